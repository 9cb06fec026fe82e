//! The supervisor restarts what fails, and leaves nothing behind.

use std::path::{Path, PathBuf};

use crate::common::{Program, output};

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");

/// A file that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{}", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        Scratch(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The number after `word`, in a line that a child has written.
fn number(line: &str) -> u32 {
    line.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number: {line}"))
}

/// Whether a process runs; one that has ended and was not waited for does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

#[test]
fn a_child_that_fails_is_started_again_until_it_succeeds() {
    let count = Scratch::new("count", "");
    let script = "echo x >> $0; wc -l < $0; echo oops >&2; test $(wc -l < $0) = 3";
    let mut program = Program::start(SUPERVISE, &["--", "sh", "-c", script, count.path()]);
    for turn in 1..=3 {
        program.expect(&format!("sh.1| {turn}"));
        if turn < 3 {
            program.expect("* sh.1: exit status: 1; starts again in ");
        }
    }
    program.expect("* sh.1: done");
    let (status, text) = program.end();
    assert!(status.success(), "{text}");
    assert_eq!(text.matches("sh.1| oops").count(), 3, "{text}");
    assert!(text.contains("starts again in 100ms") && text.contains("starts again in 200ms"), "{text}");
}

#[test]
fn one_that_fails_too_often_is_given_up() {
    let arguments = ["--tries", "2", "--", "false", "--", "/no/such/program", "--", "true"];
    let (is_ok, text) = output(SUPERVISE, &arguments);
    assert!(!is_ok, "{text}");
    assert!(text.contains("* false.1: exit status: 1; given up after 2 quick failures"), "{text}");
    assert!(text.contains("* program.2: No such file"), "{text}");
    assert!(text.contains("* true.3: done"), "{text}");
}

#[test]
fn signals_end_all_children() {
    for signal in ["TERM", "INT"] {
        let script = "sleep 1000 & echo child $!; echo own $$; wait";
        let arguments = ["--tries", "1000", "--", "sleep", "1000", "--", "false", "--", "sh", "-c", script];
        let mut program = Program::start(SUPERVISE, &arguments);
        let child = number(&program.expect("sh.3| child "));
        let own = number(&program.expect("sh.3| own "));
        program.expect("* false.2: exit status: 1; starts again");
        assert!(runs(child) && runs(own));
        program.signal("HUP");
        program.expect("* sleep.1: running as ");
        program.expect("* false.2: ");
        program.expect(&format!("* sh.3: running as {own} for "));
        program.signal(signal);
        let (status, text) = program.end();
        assert!(status.success(), "{text}");
        assert!(text.ends_with("* all have ended"), "{text}");
        assert!(!runs(child) && !runs(own), "{text}");
    }
}

#[test]
fn one_that_does_not_end_in_time_is_killed() {
    // The shell ends when it is asked to; what it has started does not.
    let script = "(trap '' TERM; echo deaf $(sh -c 'echo $PPID'); while :; do sleep 1000; done) & \
                  trap 'echo last words; exit' TERM; wait";
    let mut program = Program::start(SUPERVISE, &["--grace", "200", "--", "sh", "-c", script]);
    let deaf = number(&program.expect("sh.1| deaf "));
    program.signal("TERM");
    let (status, text) = program.end();
    assert!(status.success(), "{text}");
    assert!(text.contains("sh.1| last words"), "{text}");
    assert!(!runs(deaf), "{text}");
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(SUPERVISE, &["--help"]);
    assert!(is_ok && text.contains("Usage: supervise"), "{text}");
    for (arguments, complaint) in [
        (&[][..], "a command is wanted"),
        (&["--"], "a command is wanted"),
        (&["--tries", "few", "--", "true"], "few"),
        (&["sleep", "1"], "sleep"),
    ] {
        let (is_ok, text) = output(SUPERVISE, arguments);
        assert!(!is_ok && text.contains(complaint), "{arguments:?}: {text}");
    }
}
