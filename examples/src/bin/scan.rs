//! Which ports of this machine are open, with a progress bar.
//!
//! You learn how to run 65,535 tasks with a bound on their number at work, and how Ctrl-C keeps the results so far.
//!
//! Run it: `cargo run --release -p examples --bin scan`, or with `-- --ports 1-1024 localhost`
//!
//! In a second terminal open a port first: `while true; do date | nc -l 9999; done`. The scan prints the port and the first
//! words of its server, if they come soon. Ctrl-C ends the scan with the ports found so far. Only loopback addresses are
//! scanned: other machines are not yours to scan.
//!
//! * **Tasks are cheap**: each port has a task of its own. A `Semaphore` bounds how many are connecting.
//! * **Exact cancellation**: Ctrl-C cancels all tasks. Those that wait for a permit or a connection end without one. One
//!   that is connected, and waits for the server's words, still reports its port.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Arc;

use dapple::channel::mpsc;
use dapple::io::{AsyncReadExt, AsyncWriteExt, stdout};
use dapple::net::{TcpStream, lookup};
use dapple::signal::{SignalKind, signal};
use dapple::sync::Semaphore;
use dapple::time::{Duration, sleep};
use dapple::{JoinHandle, is_cancelled, spawn};
use futures_lite::future;
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::prelude::*;

const HELP: &str = "\
Which ports of this machine are open, and what do they say?

Usage: scan [OPTIONS] [HOST]

HOST is a loopback address or a name for one (127.0.0.1).

  --ports A-B      which ports (1-65535)
  --at-once N      how many at the same time (256)
  --timeout MS     how long to wait for a connection, and for what the server says (300)
";

struct Options {
    host: String,
    ports: RangeInclusive<u16>,
    at_once: usize,
    timeout: Duration,
}

/// `None`: help was asked for.
fn options() -> Result<Option<Options>, lexopt::Error> {
    let (mut host, mut ports, mut at_once, mut timeout) = (None, 1..=65535, 256, 300);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("ports") => ports = arguments.value()?.parse_with(parse_ports)?,
            Long("at-once") => at_once = arguments.value()?.parse()?,
            Long("timeout") => timeout = arguments.value()?.parse()?,
            Value(name) if host.is_none() => host = Some(name.string()?),
            other => return Err(other.unexpected()),
        }
    }
    if at_once == 0 {
        return Err("--at-once 0 would never end".into());
    }
    let (host, timeout) = (host.unwrap_or("127.0.0.1".into()), Duration::from_millis(timeout));
    Ok(Some(Options { host, ports, at_once, timeout }))
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) if 0 < from && from <= to => Ok(from..=to),
        _ => Err("ports are a number, or two as in 1-1024, from 1 to 65535".into()),
    }
}

/// The address of a host, if it is this machine.
async fn loopback(host: &str) -> io::Result<IpAddr> {
    let ips: Vec<IpAddr> = lookup(host).await?.iter().map(SocketAddr::ip).collect();
    match ips.iter().find(|ip| !ip.is_loopback()) {
        Some(ip) => Err(io::Error::other(format!("{host} is {ip}: only loopback addresses are scanned"))),
        None => ips.first().copied().ok_or_else(|| io::Error::other(format!("{host} has no address"))),
    }
}

/// The first line from the server at an address; `None` if there is no server.
async fn probe(address: SocketAddr, timeout: Duration) -> io::Result<Option<String>> {
    let mut stream = match TcpStream::connect_timeout(address, timeout).await {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut => return Ok(None),
            _ => return Err(error),
        },
    };
    if stream.local_addr()? == stream.peer_addr()? {
        return Ok(None); // the system gave us this very port to call from, so that we called ourselves
    }
    let mut banner = [0; 80];
    let silence = async {
        let _ = sleep(timeout).await;
        Ok(0)
    };
    let len = future::or(stream.read(&mut banner), silence).await.unwrap_or(0); // or cancelled: it is open
    let text = String::from_utf8_lossy(&banner[..len]);
    Ok(Some(text.lines().next().unwrap_or("").chars().filter(|c| !c.is_control()).collect()))
}

/// An open port and its banner, or a port that could not be asked.
type Answer = (u16, io::Result<String>);

/// Asks all ports, each in a task of its own.
fn ask_all(
    ip: IpAddr,
    options: &Options,
    bar: &ProgressBar,
) -> (Vec<JoinHandle<()>>, mpsc::Receiver<Answer>) {
    let (answer, answers) = mpsc::unbounded();
    let permits = Arc::new(Semaphore::new(options.at_once));
    let ask = |port| {
        let (permits, answer, bar, timeout) = (permits.clone(), answer.clone(), bar.clone(), options.timeout);
        spawn(async move {
            let Ok(_permit) = permits.acquire().await else { return }; // cancelled
            match probe(SocketAddr::new(ip, port), timeout).await {
                Ok(None) => {}
                Err(error) if is_cancelled(&error) => return,
                // There is room always, and the receiver stays: nothing to wait for, nothing to fail.
                Ok(Some(banner)) => drop(answer.try_send((port, Ok(banner)))),
                Err(error) => drop(answer.try_send((port, Err(error)))),
            }
            bar.inc(1);
        })
    };
    (options.ports.clone().map(ask).collect(), answers)
}

async fn scan(options: Options) -> io::Result<()> {
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    let ip = loopback(&options.host).await?;
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} ports, {eta} left  {msg}");
    let bar = ProgressBar::new(options.ports.len() as u64).with_style(style.map_err(io::Error::other)?);
    let (tasks, mut answers) = ask_all(ip, &options, &bar);
    let (mut open, mut failed) = (Vec::new(), Vec::new());
    let mut is_stopped = false;
    loop {
        let stop = async { ctrl_c.recv().await.map(|()| None) };
        // The answers end when the last task has.
        match future::or(async { Ok(Some(answers.recv().await)) }, stop).await? {
            Some(Ok((port, Ok(banner)))) => {
                open.push((port, banner));
                bar.set_message(format!("{} open", open.len()));
            }
            Some(Ok((port, Err(error)))) => failed.push((port, error)),
            Some(Err(_)) => break,
            None => {
                is_stopped = true;
                tasks.iter().for_each(JoinHandle::cancel);
            }
        }
    }
    let asked = bar.position();
    bar.finish_and_clear();
    open.sort();
    for (port, banner) in &open {
        println!("{port:5} open  {banner}");
    }
    let stopped = if is_stopped { ", then stopped" } else { "" };
    println!("ports of {ip} asked: {asked}{stopped}; open: {}", open.len());
    match failed.first() {
        Some((port, error)) => {
            Err(io::Error::other(format!("{} ports could not be asked; {port}: {error}", failed.len())))
        }
        None => Ok(()),
    }
}

#[dapple::main]
async fn main() -> ExitCode {
    let done = match options() {
        Ok(Some(options)) => scan(options).await,
        Ok(None) => stdout().write_all(HELP.as_bytes()).await,
        Err(error) => Err(io::Error::other(format!("{error}; --help says more"))),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("scan: {error}");
    ExitCode::FAILURE
}
