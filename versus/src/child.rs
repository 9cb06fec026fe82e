//! This program, started once more: a process that is asked and answers, a line at a time.
//!
//! It ends with the value, and also when this process does: its standard input is closed then.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use crate::contest::Failure;

/// How long it may take to end by itself.
const PATIENCE: Duration = Duration::from_millis(500);

/// The other process.
pub(crate) struct Child {
    process: process::Child,
    /// The child's standard input. `None` once it is closed.
    questions: Option<ChildStdin>,
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
        let questions = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("a pipe from the child"));
        Ok(Self { process, questions, answers, arguments })
    }

    /// Waits for the child's next answer.
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
        self.write(b"\n")
    }

    /// Sends the child its next order, and waits for the answer.
    pub(crate) fn tell<T: FromStr>(&mut self, what: &str) -> Result<T, Failure> {
        self.write(what.as_bytes())?;
        self.ask()
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Lets the child go on, and waits for its answer.
    pub(crate) fn ask<T: FromStr>(&mut self) -> Result<T, Failure> {
        self.go_on()?;
        self.answer()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let questions = self.questions.as_mut().expect("a pipe to the child");
        questions.write_all(bytes).map_err(|error| self.failed(error))
    }

    fn failed(&self, why: impl ToString) -> Failure {
        format!("{}: {}", self.arguments, why.to_string())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child ends by itself when its standard input is closed, and ends the processes that it has started.
        drop(self.questions.take());
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the child: answers.
pub(crate) fn say(answer: impl ToString) {
    let mut line = answer.to_string();
    line.push('\n');
    // If this fails, the parent is gone, and no process could read an error.
    let _ = io::stdout().lock().write_all(line.as_bytes());
}

/// In the child: waits until the parent lets it go on. False if the parent has closed the pipe.
pub(crate) fn told() -> bool {
    heard().is_some()
}

/// In the child: waits for the next order. `None` if the parent has closed the pipe.
pub(crate) fn heard() -> Option<String> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(length) if length > 0 => Some(line.trim_end().to_owned()),
        _ => None,
    }
}
