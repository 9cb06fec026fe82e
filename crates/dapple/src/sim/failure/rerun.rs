//! The command that runs a program, or one of its tests, again, as far as the way it was started is known.
//!
//! Cargo's environment names the package. The path of the executable shows which
//! target of the package runs:
//!
//! ```text
//! target/debug/deps/accounts-0123456789abcdef     tests: of tests/accounts.rs, of a library, of a program
//! target/debug/examples/demo-0123456789abcdef     tests of an example
//! target/debug/examples/demo                      an example
//! target/debug/bank                               a program
//! /tmp/rustdoctest.../...                         an example of the documentation
//! ```
//!
//! An option that is not known is left out: the command then runs more, but includes the failed run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The known facts about the start of this process.
struct ProcessStart {
    /// Its arguments, the program's name first.
    arguments: Vec<String>,
    executable: PathBuf,
    /// The package that cargo runs, if it does, and the folder of its manifest.
    package: Option<String>,
    folder: PathBuf,
    /// Whether this looks like a release build, if the path does not show it.
    is_release: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RunKind<'a> {
    /// Tests of the crate with this name, which may be an example.
    Tests { name: &'a str, of_example: bool },
    /// Examples of the documentation.
    Documentation,
    /// A program with a `main` of its own.
    Program { name: &'a str, is_example: bool },
}

/// The name of the test that this thread runs, if it looks like a test.
pub(super) fn test_of_this_thread() -> Option<String> {
    let thread = std::thread::current();
    thread.name().filter(|name| is_path(name) || is_place(name)).map(str::to_owned)
}

/// Whether it is the path of a function: the harness names the threads of tests so. The main thread is not one.
fn is_path(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric());
    name != "main" && name.split("::").all(is_part)
}

/// Whether it is the name of a doctest.
fn is_place(name: &str) -> bool {
    name.contains(" - ") && name.contains("(line ")
}

/// Whether the output of this process is visible: the test harness captures it, unless told otherwise.
pub(in crate::sim) fn shows_all() -> bool {
    let started = ProcessStart::this();
    let is_told = || std::env::var_os("RUST_TEST_NOCAPTURE").is_some_and(|value| value != "0");
    let is_asked = || started.has(&["--nocapture", "--no-capture"]);
    matches!(started.kind(), RunKind::Program { .. }) || is_asked() || is_told()
}

/// The command that runs this again, restricted to `test` if there are tests.
pub(super) fn command(test: Option<&str>) -> String {
    ProcessStart::this().command(test)
}

impl ProcessStart {
    fn this() -> ProcessStart {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let var = |name| std::env::var_os(name);
        ProcessStart {
            arguments: std::env::args_os().map(text).collect(),
            executable: std::env::current_exe().unwrap_or_default(),
            package: var("CARGO_PKG_NAME").map(text),
            folder: var("CARGO_MANIFEST_DIR").unwrap_or_default().into(),
            is_release: !cfg!(debug_assertions),
        }
    }

    fn kind(&self) -> RunKind<'_> {
        let is_doc = |part: &std::ffi::OsStr| part.to_string_lossy().starts_with("rustdoctest");
        if self.executable.iter().any(is_doc) {
            return RunKind::Documentation;
        }
        let name = self.executable.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let is_example = folder_name(self.executable.parent()) == "examples";
        match name.rsplit_once('-') {
            Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                RunKind::Tests { name, of_example: is_example }
            }
            _ => RunKind::Program { name, is_example },
        }
    }

    fn has(&self, options: &[&str]) -> bool {
        self.arguments.iter().skip(1).any(|argument| options.contains(&argument.as_str()))
    }

    fn command(&self, test: Option<&str>) -> String {
        let mut line = RerunCommand::default();
        let Some(package) = &self.package else {
            line.push(self.arguments.first().map_or("", String::as_str));
            match self.kind() {
                RunKind::Tests { .. } => self.push_test(test, &mut line),
                _ => line.extend(self.arguments.iter().skip(1)),
            }
            return line.0;
        };
        match self.kind() {
            RunKind::Tests { name, of_example } => {
                line.extend(["cargo", "test"]);
                self.push_profile(&mut line);
                line.extend(["-p", package]);
                line.extend(self.target_of_tests(package, name, of_example));
                line.push("--");
                self.push_test(test, &mut line);
            }
            RunKind::Documentation => {
                line.extend(["cargo", "test"]);
                self.push_profile(&mut line);
                line.extend(["-p", package, "--doc"]);
                // The line number in the name of the doctest may change before the next run.
                let item = test.and_then(|test| test.split(" (line ").next());
                line.extend(item.into_iter().flat_map(|item| ["--", item]));
            }
            RunKind::Program { name, is_example } => {
                line.extend(["cargo", "run"]);
                self.push_profile(&mut line);
                line.extend(["-p", package, if is_example { "--example" } else { "--bin" }, name]);
                line.extend((self.arguments.len() > 1).then_some("--"));
                line.extend(self.arguments.iter().skip(1));
            }
        }
        line.0
    }

    fn push_test(&self, test: Option<&str>, line: &mut RerunCommand) {
        let Some(test) = test else {
            line.extend((!self.has(&["--nocapture", "--no-capture"])).then_some("--nocapture"));
            return line.extend(self.arguments.iter().skip(1));
        };
        line.extend(["--exact", "--nocapture"]);
        line.extend(self.has(&["--ignored", "--include-ignored"]).then_some("--include-ignored"));
        line.push(test);
    }

    /// Adds the profile. Cargo names the folder after the profile, except for `dev` and `test`, which use `debug`.
    fn push_profile(&self, line: &mut RerunCommand) {
        let folder = self.executable.parent();
        let is_inner = |name: &str| name == "deps" || name == "examples";
        let folder = if is_inner(folder_name(folder)) { folder.and_then(Path::parent) } else { folder };
        match folder_name(folder) {
            "debug" => {}
            "release" => line.push("--release"),
            // Doctests are built elsewhere, always with the test profile.
            _ if self.kind() != RunKind::Documentation && self.has_marks_of_a_build(folder) => {
                line.extend(["--profile", folder_name(folder)]);
            }
            _ => line.extend(self.is_release.then_some("--release")),
        }
    }

    fn has_marks_of_a_build(&self, folder: Option<&Path>) -> bool {
        folder.is_some_and(|folder| folder.join("deps").is_dir() && folder.join(".fingerprint").is_dir())
    }

    /// The cargo options for the target whose tests are called `name`, if it is known.
    fn target_of_tests(&self, package: &str, name: &str, of_example: bool) -> Vec<String> {
        let options = |option: &str, name: &str| vec![option.to_owned(), name.to_owned()];
        if of_example {
            return options("--example", name);
        }
        // A file may be named with dashes: `two-words`.
        let with_dashes = name.replace('_', "-");
        let is_file = |path: String| self.folder.join(path).is_file();
        let find = |folder: &str| {
            [name, &with_dashes].into_iter().find(|name| {
                is_file(format!("{folder}/{name}.rs")) || is_file(format!("{folder}/{name}/main.rs"))
            })
        };
        let is_own = package.replace('-', "_") == name;
        let (has_library, has_program) =
            (is_file("src/lib.rs".to_owned()), is_file("src/main.rs".to_owned()));
        let may_be = [
            find("tests").map(|name| options("--test", name)),
            find("src/bin").map(|name| options("--bin", name)),
            (is_own && has_library).then(|| vec!["--lib".to_owned()]),
            (is_own && has_program).then(|| options("--bin", package)),
        ];
        let mut may_be = may_be.into_iter().flatten();
        match (may_be.next(), may_be.next()) {
            (Some(only), None) => only,
            _ => Vec::new(),
        }
    }
}

fn folder_name(folder: Option<&Path>) -> &str {
    folder.and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default()
}

/// A line for a shell.
#[derive(Default)]
struct RerunCommand(String);

impl RerunCommand {
    fn push(&mut self, word: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            self.0.push_str(word);
        } else {
            self.0.push('\'');
            self.0.push_str(&word.replace('\'', r"'\''"));
            self.0.push('\'');
        }
    }

    fn extend(&mut self, words: impl IntoIterator<Item = impl AsRef<str>>) {
        words.into_iter().for_each(|word| self.push(word.as_ref()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str = "target/debug/deps/again-0123456789abcdef";

    fn started(executable: &str, arguments: &[&str], package: Option<&str>) -> ProcessStart {
        let arguments = [executable].iter().chain(arguments).map(|text| (*text).to_owned()).collect();
        let folder = std::env::temp_dir().join("dapple-there-is-no-such-package");
        let package = package.map(str::to_owned);
        ProcessStart { arguments, executable: executable.into(), package, folder, is_release: false }
    }

    #[test]
    fn a_test_under_cargo_is_run_by_cargo() {
        let of = |path: &str| started(path, &["many", "words"], Some("bank")).command(Some("a::b"));
        assert_eq!(of(TESTS), "cargo test -p bank -- --exact --nocapture a::b");
        let release = "target/release/deps/again-0123456789abcdef";
        assert_eq!(of(release), "cargo test --release -p bank -- --exact --nocapture a::b");
        let example = "target/debug/examples/demo-0123456789abcdef";
        assert_eq!(of(example), "cargo test -p bank --example demo -- --exact --nocapture a::b");
    }

    #[test]
    fn a_test_whose_name_is_not_known_is_found_by_the_arguments() {
        let line = started(TESTS, &["word", "--test-threads=1"], Some("bank")).command(None);
        assert_eq!(line, "cargo test -p bank -- --nocapture word --test-threads=1");
        let line = started(TESTS, &["--nocapture"], None).command(None);
        assert_eq!(line, format!("{TESTS} --nocapture"));
    }

    #[test]
    fn a_test_that_is_ignored_is_run_all_the_same() {
        let line = started(TESTS, &["--ignored"], None).command(Some("slow"));
        assert_eq!(line, format!("{TESTS} --exact --nocapture --include-ignored slow"));
    }

    #[test]
    fn a_program_is_run_with_its_arguments() {
        let arguments = ["two words", "it's", "", "--plain=x"];
        let quoted = r"'two words' 'it'\''s' '' --plain=x";
        let line = |path, package| started(path, &arguments, package).command(None);
        assert_eq!(line("./target/debug/pay", None), format!("./target/debug/pay {quoted}"));
        assert_eq!(
            line("target/debug/pay", Some("bank")),
            format!("cargo run -p bank --bin pay -- {quoted}")
        );
        let example = line("target/release/examples/pay", Some("bank"));
        assert_eq!(example, format!("cargo run --release -p bank --example pay -- {quoted}"));
    }

    #[test]
    fn the_thread_of_a_program_is_no_test() {
        let line = started("target/debug/pay", &[], Some("bank")).command(Some("worker"));
        assert_eq!(line, "cargo run -p bank --bin pay");
        assert!(is_path("module::promise") && !is_path("main") && !is_path("worker 3") && !is_path("a::"));
    }

    /// This file's own package has a library and no program of the same name.
    #[test]
    fn the_target_is_told_by_its_file() {
        let mut started = started(TESTS, &[], Some("dapple"));
        started.folder = env!("CARGO_MANIFEST_DIR").into();
        let target = |name| started.target_of_tests("dapple", name, false).join(" ");
        assert_eq!(target("dapple"), "--lib");
        assert_eq!(target("panic_hook"), "--test panic_hook"); // a file
        assert_eq!(target("sched"), "--test sched"); // a folder
        assert_eq!(target("unheard_of"), "");
    }

    #[test]
    fn the_line_of_this_test_names_it() {
        let name = test_of_this_thread();
        let expected = "sim::failure::rerun::tests::the_line_of_this_test_names_it";
        assert!(name.is_none_or(|name| name == expected)); // none on the main thread (--test-threads=1)
    }
}
