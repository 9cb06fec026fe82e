//! This program, started once more: a process that is asked and answers, a line at a time.
//!
//! It ends with the value, and also when this process does: its standard input is closed then.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;

use crate::contest::Failure;

/// The other process.
pub(crate) struct Child {
    process: process::Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The command line, to name it in errors.
    arguments: String,
}

impl Child {
    /// Starts this program with other arguments.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Failure> {
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let arguments = arguments.join(" ");
        let mut process = command.spawn().map_err(|error| format!("{arguments}: {error}"))?;
        let questions = process.stdin.take().expect("a pipe to the child");
        let answers = BufReader::new(process.stdout.take().expect("a pipe from the child"));
        Ok(Self { process, questions, answers, arguments })
    }

    /// Waits for what it says next.
    pub(crate) fn answer<T: FromStr>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => return Err(self.failed("ended too early")),
            Ok(_) => {}
            Err(error) => return Err(self.failed(error)),
        }
        line.trim_end().parse().map_err(|_| self.failed(format!("answered {line:?}")))
    }

    /// Tells it to go on.
    pub(crate) fn go_on(&mut self) -> Result<(), Failure> {
        self.questions.write_all(b"\n").map_err(|error| self.failed(error))
    }

    /// Tells it to go on, and waits for what it says then.
    pub(crate) fn ask<T: FromStr>(&mut self) -> Result<T, Failure> {
        self.go_on()?;
        self.answer()
    }

    fn failed(&self, why: impl ToString) -> Failure {
        format!("{}: {}", self.arguments, why.to_string())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the child: answers.
pub(crate) fn say(answer: impl ToString) {
    let mut line = answer.to_string();
    line.push('\n');
    // Nobody is there to be told if this fails.
    let _ = io::stdout().lock().write_all(line.as_bytes());
}

/// In the child: waits until it is told to go on; false if nobody will.
pub(crate) fn told() -> bool {
    let mut line = String::new();
    matches!(io::stdin().lock().read_line(&mut line), Ok(length) if length > 0)
}
