//! Runs an example as a program, and looks at what it writes.
//!
//! Nothing here sleeps to be right: each step waits for an action of the program, and fails after [`LIMIT`] with all
//! output of the program. A program is killed when its [`Program`] is dropped, so that a test that fails leaves nothing
//! behind.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long a step may take before the test fails. It is long: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);

/// An example that runs.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Program {
    /// Starts a program (`env!("CARGO_BIN_EXE_...")`).
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the example starts");
        let (sender, lines) = channel();
        read_lines(child.stdout.take().expect("it is piped"), sender.clone());
        read_lines(child.stderr.take().expect("it is piped"), sender);
        Program { child, lines, seen: Vec::new() }
    }

    /// Waits for a line, on either output, that has `text` in it.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(why) => panic!("no line with {text:?} ({why}); it has written {:#?}", self.seen),
            }
        }
    }

    /// Waits until it says where it listens.
    pub(crate) fn address(&mut self) -> SocketAddr {
        let line = self.expect("listening at ");
        line.trim_start_matches("listening at ").parse().expect("an address")
    }

    pub(crate) fn signal(&self, name: &str) {
        send_signal(self.child.id(), name);
    }

    /// Waits until it ends by itself: how, and all that it has written.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        while let Ok(line) = self.lines.recv_timeout(LIMIT) {
            self.seen.push(line);
        }
        // The outputs are closed, or the time is over.
        let child = self.child.id();
        let (done, is_done) = channel::<()>();
        let watchdog = thread::spawn(move || {
            if is_done.recv_timeout(LIMIT).is_err_and(|why| why == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                send_signal(child, "KILL");
            }
        });
        let status = self.child.wait().expect("it can be waited for");
        drop(done);
        watchdog.join().expect("the watchdog ends");
        (status, self.seen.join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(output: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
}

pub(crate) fn send_signal(pid: u32, name: &str) {
    // Every shell has a `kill`; a program of that name is not on every machine.
    let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {pid}")]).status();
    assert!(sent.expect("there is a shell").success(), "SIG{name} to {pid}");
}

/// Runs a program that ends by itself. Returns whether it succeeded, and its output.
pub(crate) fn output(program: &str, arguments: &[&str]) -> (bool, String) {
    let (status, text) = Program::start(program, arguments).end();
    (status.success(), text)
}

/// A connection that fails instead of waiting for ever.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, LIMIT).expect("somebody listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream.set_write_timeout(Some(LIMIT)).expect("a limit");
    stream
}

/// The next connection, if there is one in time.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let (sender, accepted) = channel();
    let listener = listener.try_clone().expect("a clone");
    thread::spawn(move || sender.send(listener.accept()));
    accepted.recv_timeout(LIMIT).expect("somebody comes in time").expect("a connection").0
}

/// A client that talks in lines.
pub(crate) struct Talker(BufReader<TcpStream>);

impl Talker {
    pub(crate) fn new(address: SocketAddr) -> Talker {
        Talker(BufReader::new(connect(address)))
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it is sent");
    }

    /// The next line; empty at the end.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line within the limit");
        line.trim_end().to_owned()
    }
}

/// Asks over HTTP, in a connection of its own: the status and the body.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = connect(address);
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}");
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer within the limit");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}
