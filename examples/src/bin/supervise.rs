//! Keeps programs running: starts them again when they fail.
//!
//! You learn how to start processes, read their pipes, handle signals, and hand children over from a cancelled task.
//!
//! Run it: `cargo run --release -p examples --bin supervise -- -- sleep 1000 -- sh -c 'sleep 3; exit 1'`
//!
//! In a second terminal: `pkill -HUP supervise` prints the status of the programs, `pkill sleep` makes one fail, and `pkill
//! supervise` (or Ctrl-C in the first) ends all: each gets SIGTERM, some time to end, and then SIGKILL, and so do the
//! programs that it has started.
//!
//! * **Colors**: each service runs in the color of its name. Its status is plain data there.
//! * **Exact cancellation**: to stop, the services' tasks are cancelled. Their waits end at once and take nothing, and the
//!   running children are handed over, to be stopped in peace.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use dapple::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, stdout};
use dapple::process::{Child, Command, Stdio};
use dapple::signal::{Signal, SignalKind, signal};
use dapple::task::Task;
use dapple::time::{Duration, Instant, sleep};
use dapple::{Color, ColorCell, JoinHandle, is_cancelled, spawn};
use futures_lite::future;
use lexopt::prelude::*;

const HELP: &str = "\
Keeps programs running: starts them again when they fail.

Usage: supervise [OPTIONS] -- COMMAND [ARGUMENT]... [-- COMMAND [ARGUMENT]...]...

  --tries N      give up after so many quick failures in a row (10)
  --grace MS     how long they have to end after SIGTERM (5000)
";
const PAUSE: Duration = Duration::from_millis(100); // doubles with each quick failure
const LONG: Duration = Duration::from_secs(10); // the longest pause; a run of this length is no quick failure
const LINE: usize = 4096; // longer lines are shown in pieces

struct Service {
    name: String,
    command: Vec<OsString>,
    color: Color,
    status: ColorCell<Status>,
}

struct Status {
    now: String,
    since: Instant,
    restarts: u32,
}

impl Service {
    fn new(number: usize, command: &[OsString]) -> Option<Arc<Service>> {
        let name = Path::new(command.first()?).file_name()?.to_string_lossy();
        let (name, command) = (format!("{name}.{number}"), command.to_vec());
        let color = Color::keyed(&("service", &name));
        let status = Status { now: "starting".into(), since: Instant::now(), restarts: 0 };
        Some(Arc::new(Service { name, command, status: ColorCell::in_color(&color, status), color }))
    }

    /// Sets the status, and tells it; in the service's color.
    async fn is_now(&self, now: String) {
        let line = format!("{}: {now}", self.name);
        self.status.with(|status| (status.now, status.since) = (now, Instant::now()));
        tell(line).await;
    }

    /// The status; in the service's color.
    fn line(&self) -> String {
        self.status.with(|Status { now, since, restarts }| {
            format!("{}: {now} for {:.1?}, restarts: {restarts}", self.name, since.elapsed())
        })
    }

    fn start(&self) -> io::Result<Running> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a group of its own: Ctrl-C is for us alone, and all that it starts can be stopped together.
        let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
        let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let outputs = [spawn(relay(self.name.clone(), stdout)), spawn(relay(self.name.clone(), stderr))];
        Ok(Running { child, outputs })
    }
}

/// A child, and the tasks that show its output.
struct Running {
    child: Child,
    outputs: [JoinHandle<io::Result<()>>; 2],
}

impl Running {
    /// Waits until all output is shown, but at most for `limit`: other processes may hold the pipes.
    async fn shown(&mut self, limit: Duration) -> bool {
        let [stdout, stderr] = &mut self.outputs;
        let all = async { Some(future::zip(stdout, stderr).await) };
        future::or(all, async { sleep(limit).await.err().and(None) }).await.is_some()
    }

    /// Ends the program and the processes that it has started: gracefully, or by force if that takes too long.
    async fn stop(mut self, grace: Duration) -> io::Result<()> {
        let pid = self.child.id();
        signal_group(pid, "TERM").await?;
        let gone = async { self.child.wait().await.is_ok() && self.shown(grace).await };
        if !future::or(gone, async { sleep(grace).await.is_err() }).await {
            signal_group(pid, "KILL").await?;
        }
        self.shown(grace).await;
        self.child.wait().await.map(drop)
    }
}

/// Sends a signal to a child and to the processes that it has started, if any are left.
async fn signal_group(pid: Option<u32>, name: &str) -> io::Result<()> {
    let Some(pid) = pid else { return Ok(()) };
    // Every shell has a `kill`; a program of that name is not on every machine.
    let kill = format!("kill -s {name} -- -{pid}");
    Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status().await.map(drop)
}

/// Shows what a child writes, with its name before each line.
async fn relay(name: String, pipe: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut pipe = BufReader::new(pipe);
    loop {
        let mut line = format!("{name}| ").into_bytes();
        match pipe.read_until_limited(b'\n', &mut line, LINE).await {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            _ if line.ends_with(b"\n") => {}
            _ => line.push(b'\n'), // the end, or a piece of a long line
        }
        stdout().write_all(&line).await?;
    }
}

async fn tell(text: String) {
    let _ = stdout().write_all(format!("* {text}\n").as_bytes()).await; // there is no other place to report an error
}

/// Runs a service until it succeeds, or until this task is cancelled: then its child is returned.
async fn keep(service: Arc<Service>, tries: u32) -> io::Result<Option<Running>> {
    let (mut last, mut quick) = (None, 0);
    loop {
        let begun = Instant::now();
        let ended = match service.start() {
            Ok(running) => {
                let running = last.insert(running);
                service.is_now(format!("running as {}", running.child.id().unwrap_or(0))).await;
                let ended = running.child.wait().await;
                running.shown(Duration::from_secs(1)).await;
                ended
            }
            Err(error) => Err(error),
        };
        let how = match ended {
            Ok(status) if status.success() => break service.is_now("done".into()).await,
            Ok(status) => status.to_string(),
            Err(error) if is_cancelled(&error) => return Ok(last),
            Err(error) => error.to_string(),
        };
        quick = if begun.elapsed() < LONG { quick + 1 } else { 1 };
        if quick >= tries {
            service.is_now(format!("{how}; given up after {quick} quick failures")).await;
            return Err(io::Error::other(format!("{} was given up", service.name)));
        }
        let pause = PAUSE.saturating_mul(1 << (quick - 1).min(16)).min(LONG);
        service.is_now(format!("{how}; starts again in {pause:?}")).await;
        if sleep(pause).await.is_err() {
            return Ok(last);
        }
        service.status.with(|status| status.restarts += 1);
    }
    Ok(None)
}

/// SIGHUP shows all services, SIGINT and SIGTERM cancel their tasks.
async fn listen([mut hup, mut int, mut term]: [Signal; 3], all: Vec<(Arc<Service>, Task)>) {
    loop {
        let show = async { hup.recv().await.map(|()| true) };
        let stop = async { future::or(int.recv(), term.recv()).await.map(|()| false) };
        let Ok(is_show) = future::or(show, stop).await else { return }; // cancelled: the end
        for (service, task) in &all {
            let look = service.clone();
            match is_show {
                true => tell(service.color.call(move || look.line()).await.expect("a line")).await,
                false => task.cancel(),
            }
        }
    }
}

async fn supervise(Options { services, tries, grace }: Options) -> io::Result<()> {
    let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
    let [hup, int, term] = kinds.map(signal); // they count from now on
    let keep = |service: &Arc<Service>| service.color.spawn(keep(service.clone(), tries));
    let tasks: Vec<JoinHandle<_>> = services.iter().map(keep).collect();
    let all = tasks.iter().map(|task| task.task().expect("it runs").clone());
    spawn(listen([hup?, int?, term?], services.into_iter().zip(all).collect())).detach();

    let (mut stopping, mut result) = (Vec::new(), Ok(()));
    for task in tasks {
        match task.await.map_err(io::Error::other)? {
            Ok(running) => stopping.extend(running.map(|running| spawn(running.stop(grace)))),
            Err(error) => result = Err(error),
        }
    }
    for stopped in stopping {
        stopped.await.map_err(io::Error::other)??;
    }
    tell("all have ended".into()).await;
    stdout().flush().await?;
    result
}

struct Options {
    services: Vec<Arc<Service>>,
    tries: u32,
    grace: Duration,
}

/// `None`: help was asked for.
fn options() -> Result<Option<Options>, lexopt::Error> {
    let (mut tries, mut grace) = (10, 5000);
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut parts = arguments.split(|argument| argument == "--");
    let mut flags = lexopt::Parser::from_args(parts.next().unwrap_or_default());
    while let Some(flag) = flags.next()? {
        match flag {
            Short('h') | Long("help") => return Ok(None),
            Long("tries") => tries = flags.value()?.parse()?,
            Long("grace") => grace = flags.value()?.parse()?,
            other => return Err(other.unexpected()),
        }
    }
    let services = parts.enumerate().map(|(at, part)| Service::new(at + 1, part)).collect::<Option<Vec<_>>>();
    let services = services.filter(|all| !all.is_empty()).ok_or("a command is wanted after each `--`")?;
    Ok(Some(Options { services, tries, grace: Duration::from_millis(grace) }))
}

#[dapple::main]
async fn main() -> ExitCode {
    let done = match options() {
        Ok(Some(options)) => supervise(options).await,
        Ok(None) => stdout().write_all(HELP.as_bytes()).await,
        Err(error) => Err(io::Error::other(format!("{error}; --help says more"))),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("supervise: {error}");
    ExitCode::FAILURE
}
