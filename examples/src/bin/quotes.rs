//! A stock-quote server, which sends a message a second to each of its clients, and the clients.
//!
//! You learn how to serve thousands of clients from one task, or from a task each, and how to use `race` and `shield`.
//!
//! Run it: `cargo run --release -p examples --bin quotes serve`
//!
//! In a second terminal, by hand: `nc 127.0.0.1 7778`. Or many: `... --bin quotes watch 4000`. Both print once a second how
//! many messages there were, and the CPU time of one. Ctrl-C at the server closes the market: each client gets a last
//! line. It is the server of section 5.3 of the AC paper (Figure 12), where the system's limits were reached at 18,000
//! clients; here the limit is the number of open files.
//!
//! * **One task**: the scope starts a child for each client, in the server's own task, on one core as in the paper. With
//!   `--tasks` it spawns a task for each, in parallel, and waits for them and cancels them, too.
//! * **Exact cancellation**: Ctrl-C cancels the scope. A client's wait for the next second returns at once; a line that is
//!   halfway out is written to its end, shielded, and then the last one. A client that counts, as `watch` does, has all
//!   lines that were sent.
//! * **`race`** in `watch`: the first to end, the clients or Ctrl-C, ends the others.

use std::error::Error;
use std::fs;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dapple::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, how_far, stdout};
use dapple::net::{TcpListener, TcpStream};
use dapple::signal::ctrl_c;
use dapple::sync::Semaphore;
use dapple::time::{Duration, MissedTicks, interval, timeout};
use dapple::{finish, is_cancelled, race, shield};
use lexopt::prelude::*;

const HELP: &str = "\
A stock-quote server, and its clients.

Usage: quotes serve [OPTIONS] [ADDRESS]
       quotes watch N [ADDRESS]

ADDRESS is 127.0.0.1:7778, if nothing else is said; to listen, port 0 is any.

  --every MS    how often each client gets a message (1000)
  --tasks       a task for each client, in parallel, instead of all in one
";
const ADDRESS: &str = "127.0.0.1:7778";
const LAST: &str = "the market is closed";
const PATIENCE: Duration = Duration::from_secs(5); // for the last line
const CONNECTING: usize = 256; // clients that may be connecting at the same time

/// The counts so far.
#[derive(Default)]
struct Tally {
    clients: AtomicU64,
    messages: AtomicU64,
    /// Clients that got their last line.
    closed: AtomicU64,
}

impl Tally {
    /// Says once a second what has happened in it.
    async fn report(&self) -> io::Result<()> {
        let mut ticks = interval(Duration::from_secs(1)).missed_ticks(MissedTicks::Delay);
        let (mut messages, mut spent) = (0, Duration::ZERO);
        loop {
            let (messages_now, spent_now) = (self.messages.load(Relaxed), processor_time());
            let (new, took) = (messages_now - messages, (spent_now - spent).as_secs_f64() * 1e6);
            if new > 0 {
                let (clients, each) = (self.clients.load(Relaxed), took / new as f64);
                println!("{clients} clients, {new} messages/s, {each:.1} us of the processor for each");
            }
            (messages, spent) = (messages_now, spent_now);
            ticks.tick().await?;
        }
    }

    fn summary(&self) -> String {
        let (messages, closed) = (self.messages.load(Relaxed), self.closed.load(Relaxed));
        format!("messages: {messages}; clients that got the last line: {closed}")
    }
}

/// The CPU time of all threads of this program so far.
fn processor_time() -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let spent = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(spent.sum())
}

/// How many connections there may be: what the limit on open files leaves.
fn room() -> io::Result<usize> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let limit = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(usize::MAX);
    let open = fs::read_dir("/proc/self/fd")?.count();
    let room = limit.saturating_sub(open + 8); // some to spare
    println!("{limit} files may be open: room for {room} connections");
    Ok(room)
}

/// Sends a client its quotes, until it goes, or all is cancelled: then it gets the last line.
async fn quote(mut stream: TcpStream, every: Duration, tally: &Tally) -> io::Result<()> {
    let mut ticks = interval(every).missed_ticks(MissedTicks::Skip);
    let mut price = 100;
    while ticks.tick().await.is_ok() {
        price += price * 7 % 11 - 5;
        match send(&mut stream, format!("DAPL {price}\n").as_bytes()).await {
            Ok(()) => tally.messages.fetch_add(1, Relaxed),
            Err(error) if is_cancelled(&error) => break,
            Err(error) => return Err(error),
        };
    }
    send_all(&mut stream, format!("{LAST}\n").as_bytes()).await?;
    tally.closed.fetch_add(1, Relaxed);
    Ok(())
}

/// Sends a line. If it is cancelled, it either sends the whole line and returns `Ok`, or sends nothing and returns the
/// error.
async fn send(stream: &mut TcpStream, line: &[u8]) -> io::Result<()> {
    let Err(error) = stream.write_all(line).await else { return Ok(()) };
    match how_far(&error) {
        Some(done @ 1..) if is_cancelled(&error) => send_all(stream, &line[done as usize..]).await,
        _ => Err(error),
    }
}

/// Sends all of it, even if it is cancelled, unless that takes too long.
async fn send_all(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let sent = shield(timeout(PATIENCE, stream.write_all(bytes))).await;
    sent.map_err(|_| io::Error::from(ErrorKind::TimedOut))?
}

async fn serve(address: &str, every: Duration, in_tasks: bool) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(room()?)); // if it is full, a new client waits until one leaves
    let listener = TcpListener::bind(address).await?;
    println!("listening at {}", listener.local_addr()?);
    let tally = Arc::new(Tally::default());
    finish(async |market| {
        market.start(async {
            if ctrl_c().await.is_ok() {
                market.cancel();
            }
        });
        market.start(tally.report());
        while let Ok(permit) = room.clone().acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) if is_cancelled(&error) => break,
                Err(error) => {
                    eprintln!("quotes: {error}");
                    continue;
                }
            };
            let tally = tally.clone();
            let client = async move {
                tally.clients.fetch_add(1, Relaxed);
                let _ = quote(stream, every, &tally).await; // a client that has left needs no last line
                tally.clients.fetch_sub(1, Relaxed);
                drop(permit);
            };
            if in_tasks {
                market.spawn(client).detach();
            } else {
                market.start(client);
            }
        }
    })
    .await;
    println!("{LAST}; {}", tally.summary());
    Ok(())
}

/// A client: reads lines until the end.
async fn client(stream: TcpStream, tally: &Tally) -> io::Result<()> {
    let mut lines = BufReader::with_capacity(256, stream).lines();
    while let Some(line) = lines.next_line().await? {
        let count = if line == LAST { &tally.closed } else { &tally.messages };
        count.fetch_add(1, Relaxed);
    }
    Ok(())
}

async fn watch(count: usize, address: &str) -> io::Result<()> {
    let count = count.min(room()?);
    println!("{count} clients connect to {address}");
    let (tally, connecting) = (Tally::default(), Arc::new(Semaphore::new(CONNECTING)));
    let clients = finish(async |clients| {
        let mut started = Vec::new();
        while started.len() < count {
            let Ok(permit) = connecting.clone().acquire_owned().await else { break };
            started.push(clients.start(async {
                let stream = TcpStream::connect(address).await?;
                drop(permit);
                tally.clients.fetch_add(1, Relaxed);
                let ended = client(stream, &tally).await;
                tally.clients.fetch_sub(1, Relaxed);
                ended
            }));
        }
        let mut result = Ok(());
        for client in started {
            result = result.and(client.await); // the first error, when all have ended
        }
        result
    });
    let ended = race((clients, tally.report(), ctrl_c())).await;
    println!("{}", tally.summary());
    ended
}

async fn start() -> Result<(), Box<dyn Error>> {
    let (mut every, mut in_tasks, mut words) = (Duration::from_secs(1), false, Vec::new());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(stdout().write_all(HELP.as_bytes()).await?),
            Long("every") => {
                every =
                    Duration::from_millis(arguments.value()?.parse_with(str::parse::<NonZero<u64>>)?.get())
            }
            Long("tasks") => in_tasks = true,
            Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve"] => serve(ADDRESS, every, in_tasks).await?,
        ["serve", address] => serve(address, every, in_tasks).await?,
        ["watch", count] => watch(count.parse()?, ADDRESS).await?,
        ["watch", count, address] => watch(count.parse()?, address).await?,
        _ => return Err("serve, or watch how many? see --help".into()),
    }
    Ok(())
}

#[dapple::main]
async fn main() -> ExitCode {
    let Err(error) = start().await else { return ExitCode::SUCCESS };
    eprintln!("quotes: {error}");
    ExitCode::FAILURE
}
