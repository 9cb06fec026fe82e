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
    /// Until it is told nothing any more.
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
        self.write(b"\n")
    }

    /// Tells it what to do next, and waits for what it says then.
    pub(crate) fn tell<T: FromStr>(&mut self, what: &str) -> Result<T, Failure> {
        self.write(what.as_bytes())?;
        self.ask()
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Tells it to go on, and waits for what it says then.
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
        // It ends by itself when nobody asks any more, and takes with it what it has started.
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
    // Nobody is there to be told if this fails.
    let _ = io::stdout().lock().write_all(line.as_bytes());
}

/// In the child: waits until it is told to go on; false if nobody will.
pub(crate) fn told() -> bool {
    heard().is_some()
}

/// In the child: waits for what it is told to do; nothing if nobody will.
pub(crate) fn heard() -> Option<String> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(length) if length > 0 => Some(line.trim_end().to_owned()),
        _ => None,
    }
}
