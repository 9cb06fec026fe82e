//! The program, started for a test, and requests to it over real sockets. Whatever waits, waits for some seconds at
//! the most, so that a test ends by itself.
#![allow(dead_code, reason = "no test uses all of it")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("dapple-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(folder.path()).unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dapple"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    let mut program = Program::spawn(arguments);
    let status = program.wait();
    let (stdout, stderr) = (program.stdout.all(), program.stderr.all());
    Output { status, stdout: stdout.into_bytes(), stderr: stderr.into_bytes() }
}

/// The lines of a stream of the program's, as they come.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Lines {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Lines(receiver)
    }

    #[track_caller]
    pub(crate) fn next(&self) -> String {
        self.0.recv_timeout(PATIENCE).expect("a line of the program's")
    }

    /// The next line that has this in it.
    #[track_caller]
    pub(crate) fn find(&self, part: &str) -> String {
        loop {
            let line = self.next();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// All that is left, when the program has ended.
    #[track_caller]
    pub(crate) fn all(&self) -> String {
        let mut all = String::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(line) => all.extend([&line[..], "\n"]),
                Err(RecvTimeoutError::Disconnected) => return all,
                Err(RecvTimeoutError::Timeout) => panic!("the program has not ended"),
            }
        }
    }
}

/// The program while it runs.
pub(crate) struct Program {
    child: Child,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

impl Program {
    pub(crate) fn spawn(arguments: &[&str]) -> Program {
        Program::spawn_command(command(arguments)).unwrap()
    }

    fn spawn_command(mut command: Command) -> std::io::Result<Program> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdout, stderr) =
            (Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap()));
        Ok(Program { child, stdout, stderr })
    }

    /// Starts it with room for this many file descriptors.
    pub(crate) fn spawn_with_descriptors(most: usize, arguments: &[&str]) -> Program {
        let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_dapple")]).args(arguments).stdin(Stdio::null());
        Program::spawn_command(shell).unwrap()
    }

    /// Starts it with a file, or a terminal, as its standard error.
    pub(crate) fn spawn_on(arguments: &[&str], stderr: fs::File) -> Program {
        let mut child = command(arguments).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        Program { child, stdout, stderr: Lines::of(std::io::empty()) }
    }

    /// Starts it as a user without rights if this one has all of them. Not so if that user may not run it.
    pub(crate) fn spawn_without_rights(arguments: &[&str]) -> std::io::Result<Program> {
        let mut command = command(arguments);
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        Program::spawn_command(command)
    }

    /// Starts a server at a free port. Returns it with the address of the server and that of its metrics, from the banner.
    #[track_caller]
    pub(crate) fn serve(arguments: &[&str]) -> (Program, String, String) {
        Program::spawn(&[arguments, &["--port", "0"]].concat()).served()
    }

    /// Waits for the banner of a server. Returns the program with the address of the server and that of its metrics.
    #[track_caller]
    pub(crate) fn served(self) -> (Program, String, String) {
        let program = self;
        let after = |line: String| line.split_once("://").unwrap().1.to_owned();
        let address = after(program.stderr.find("address"));
        let metrics = program.stderr.find("metrics");
        let metrics = metrics.split_once("://").map_or(String::new(), |(_, metrics)| metrics.to_owned());
        let until_slash = |text: &str| text.split('/').next().unwrap().to_owned();
        program.stderr.find("to stop");
        (program, until_slash(&address), until_slash(&metrics))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the program does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks for a path, with lines of headers, and gives the whole answer.
#[track_caller]
pub(crate) fn get(address: &str, path: &str, headers: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
