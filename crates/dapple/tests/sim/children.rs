//! Tests that fail, or that look at the environment, in processes of their own.

use std::process::{Command, Output, Stdio};

use crate::common::full_name;

/// Set in a child: only there a test does what it is not to do in this process.
const INSIDE: &str = "DAPPLE_TEST_INSIDE";
const VARIABLES: [&str; 7] = [
    "DAPPLE_CANCEL",
    "DAPPLE_SEED",
    "DAPPLE_SEEDS",
    "DAPPLE_TRACE",
    "CARGO_PKG_NAME",
    "CARGO_MANIFEST_DIR",
    "RUST_BACKTRACE",
];

pub(crate) fn is_child() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// How a child ended, and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) is_success: bool,
    pub(crate) stderr: String,
    pub(crate) stdout: String,
}

impl Ended {
    /// The lines on stderr that begin so, without that.
    pub(crate) fn lines<'a>(&'a self, prefix: &'a str) -> Vec<&'a str> {
        self.stderr.lines().filter_map(|line| line.strip_prefix(prefix)).collect()
    }

    /// The line that runs it again.
    #[track_caller]
    pub(crate) fn run_again(&self) -> &str {
        let lines = self.lines("run it again: ");
        assert_eq!(lines.len(), 1, "{self:#?}");
        lines[0]
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stderr, stdout) = (text(output.stderr), text(output.stdout));
        Ended { is_success: output.status.success(), stderr, stdout }
    }
}

/// Runs a test of the caller's file in a process of its own, with these variables, outside of cargo.
#[track_caller]
pub(crate) fn child(test: &str, variables: &[(&str, &str)]) -> Ended {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([&*full_name(test), "--exact", "--nocapture"]);
    run(again, variables)
}

/// Runs a command line in a shell, as a user would who copies it from the output.
pub(crate) fn shell(line: &str) -> Ended {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]);
    run(shell, &[])
}

fn run(mut command: Command, variables: &[(&str, &str)]) -> Ended {
    VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    command.env(INSIDE, "1").envs(variables.iter().copied()).stdin(Stdio::null());
    let ended = Ended::from(command.output().unwrap());
    assert!(ended.stdout.contains("running 1 test"), "{ended:#?}");
    ended
}
