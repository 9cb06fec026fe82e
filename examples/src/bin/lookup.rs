//! Names looked up at several servers: all of them, the first that answers, the first within a time limit.
//!
//! You learn `finish`, `start` and `cancel`, and how a cancelled request leaves its connection usable. These are the
//! programs of Figures 2 to 4 of the AC paper (Harris and others, 2011), nearly line by line.
//!
//! Run it: `cargo run --release -p examples --bin lookup`. It starts four servers of its own: a quick one, a slow one, one
//! that is wrong, and one that never answers.
//!
//! Or be a server yourself: `nc -lk 5353` in a second terminal, and here `-- first bread,milk 127.0.0.1:5353`. A question
//! comes as `1 bread`, and `1 10.1.2.3` is its answer; answer to `1` twice, or late.
//!
//! * `do { ... } finish` is `finish_local(async |queries| { ... }).await`
//! * `async S` is `queries.start(async { S })`: it runs at once; where it first waits, the loop goes on
//! * `cancel queries` is `queries.cancel()`: each wait inside returns that it was cancelled, or its result
//!
//! * **No locks**: children never run in parallel with the rest, so they share plain `Cell`s.
//! * **Borrowed, not moved**: each query has its own server by `&mut`, for as long as the `finish` takes.
//! * **Exact cancellation**: a cancelled query has asked, or has not, and the part of an answer that has come is kept. So
//!   its connection stays usable, and the late answer is not taken for one to the next question.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::process::ExitCode;

use dapple::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, how_far, stdout};
use dapple::net::{TcpListener, TcpStream, tcp};
use dapple::time::{Duration, Instant, sleep};
use dapple::{finish, finish_local, is_cancelled, shield, spawn};
use lexopt::prelude::*;

const HELP: &str = "\
Looks names up at several servers at the same time.

Usage: lookup [--timeout MS] [all|first|within NAMES ADDRESS...]

NAMES are looked up one after the other: bread,milk. `all` checks that the servers agree, `first` takes the first
answer, and so does `within`, for no longer than --timeout (1000). Without them it is shown with servers of its own.
";

/// A connection to a name server: questions and answers are lines, with a number that says which is whose.
struct Server {
    name: String,
    answers: Lines<BufReader<tcp::OwnedReadHalf>>,
    questions: tcp::OwnedWriteHalf,
    /// The number of the last question, and of the last that was answered.
    asked: u64,
    answered: u64,
    /// Answers that came after their query had been cancelled.
    passed_over: u64,
}

impl Server {
    async fn connect(name: &str, address: &str) -> io::Result<Server> {
        let (read, questions) = TcpStream::connect(address).await?.into_split();
        let answers = BufReader::new(read).lines().max(256);
        Ok(Server { name: name.to_owned(), answers, questions, asked: 0, answered: 0, passed_over: 0 })
    }

    /// LookupOneAC: sends a question, and receives its answer. Cancelled, it has asked nothing, or the answer
    /// is still owed, which the next query knows.
    async fn lookup(&mut self, name: &str) -> io::Result<Ipv4Addr> {
        let question = format!("{} {name}\n", self.asked + 1);
        if let Err(error) = self.questions.write_all(question.as_bytes()).await {
            let done = how_far(&error).unwrap_or(0) as usize;
            if is_cancelled(&error) && done > 0 {
                shield(self.questions.write_all(&question.as_bytes()[done..])).await?; // not half a question
                self.asked += 1;
            }
            return Err(error);
        }
        self.asked += 1;
        loop {
            let line = self.answers.next_line().await?.ok_or(ErrorKind::UnexpectedEof)?;
            let (number, address) = line.split_once(' ').unwrap_or((&line, ""));
            match (number.parse::<u64>(), address.parse()) {
                (Ok(number), Ok(address)) if (1..=self.asked).contains(&number) => {
                    self.answered = self.answered.max(number);
                    if number == self.asked {
                        return Ok(address);
                    }
                    self.passed_over += 1;
                }
                _ => return Err(io::Error::new(ErrorKind::InvalidData, format!("what is {line:?}?"))),
            }
        }
    }
}

/// Figure 2: asks all servers at the same time, and checks that they agree.
async fn lookup_all(servers: &mut [Server], name: &str) -> io::Result<Ipv4Addr> {
    let (first, differ) = (Cell::new(None), Cell::new(false));
    finish_local(async |queries| {
        let (first, differ) = (&first, &differ);
        for server in servers {
            queries.start(async move {
                match server.lookup(name).await {
                    Ok(address) => {
                        println!("  {} says {address}", server.name);
                        differ.set(differ.get() || first.get().is_some_and(|first| first != address));
                        first.set(first.get().or(Some(address)));
                    }
                    Err(error) => println!("  {}: {error}", server.name),
                }
            });
        }
    })
    .await;
    if differ.get() {
        return Err(io::Error::other("the servers do not agree"));
    }
    first.get().ok_or_else(|| io::Error::other("nobody has answered"))
}

/// Figure 3: asks all servers at the same time, takes the first answer, and cancels the other queries.
async fn lookup_first(servers: &mut [Server], name: &str) -> io::Result<Ipv4Addr> {
    let (first, failure) = (Cell::new(None), Cell::new(None));
    finish_local(async |queries| {
        let (first, failure) = (&first, &failure);
        for server in servers.iter_mut().take_while(|_| first.get().is_none()) {
            queries.start(async move {
                match server.lookup(name).await {
                    Ok(address) => {
                        println!("  {} says {address}", server.name); // so may another, at the same moment
                        first.set(first.get().or(Some(address)));
                        queries.cancel();
                    }
                    Err(error) => {
                        println!("  {}: {error}", server.name);
                        failure.set(Some(error));
                    }
                }
            });
        }
    })
    .await;
    first.get().ok_or_else(|| failure.take().unwrap_or_else(|| io::Error::other("there is no server")))
}

/// Figure 4: as `lookup_first`, for no longer than that. `dapple::time::timeout` is this, ready-made.
///
/// Always returns the result of `lookup_first`: an answer that came as the time was up is not lost. If a caller cancels
/// this, `lookup_first` decides its result, too.
async fn lookup_within(limit: Duration, servers: &mut [Server], name: &str) -> io::Result<Ipv4Addr> {
    finish_local(async |both| {
        let found = both.start(async {
            let found = lookup_first(servers, name).await;
            both.cancel();
            found
        });
        both.start(async { sleep(limit).await.map(|()| both.cancel()) });
        found.await
    })
    .await
}

/// Looks a name up, and prints the result, and the state of the connections afterwards.
async fn look_up(shape: &str, name: &str, servers: &mut [Server], limit: Duration) -> io::Result<bool> {
    println!("{shape}({name}), {} servers", servers.len());
    let passed_over = |servers: &[Server]| servers.iter().map(|server| server.passed_over).sum::<u64>();
    let (begun, before) = (Instant::now(), passed_over(servers));
    let found = match shape {
        "all" => lookup_all(servers, name).await,
        "first" => lookup_first(servers, name).await,
        "within" => lookup_within(limit, servers, name).await,
        other => return Err(io::Error::other(format!("what is {other:?}? all, first or within"))),
    };
    let took = begun.elapsed();
    match &found {
        Ok(address) => println!("= {address}, in {took:.1?}"),
        Err(error) if is_cancelled(error) => println!("= cancelled, after {took:.1?}"),
        Err(error) => println!("= {error}, after {took:.1?}"),
    }
    let (late, owed) = (passed_over(servers) - before, servers.iter().map(|s| s.asked - s.answered));
    println!("  late answers passed over: {late}; still owed: {}\n", owed.sum::<u64>());
    Ok(found.is_ok())
}

/// A name server that is slow, or wrong, or says nothing at all.
async fn serve(listener: TcpListener, delay: Duration, is_wrong: bool) {
    let answer = async |stream: TcpStream| -> io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines().max(256);
        while let Some(line) = lines.next_line().await? {
            let (number, name) = line.split_once(' ').unwrap_or((&line, ""));
            let hash = name.bytes().fold(7, |hash: u32, byte| hash.wrapping_mul(31) + u32::from(byte));
            let [_, a, b, c] = if is_wrong { [6; 4] } else { hash.to_be_bytes() };
            sleep(delay).await?;
            write.write_all(format!("{number} 10.{a}.{b}.{c}\n").as_bytes()).await?;
        }
        Ok(())
    };
    finish(async |clients| {
        while let Ok((stream, _)) = listener.accept().await {
            clients.start(async { drop(answer(stream).await) }); // fails if the client left or it is cancelled
        }
    })
    .await;
}

/// All shapes, with servers of its own, which end when `main` does.
async fn show(limit: Duration) -> io::Result<()> {
    let mut servers = Vec::new();
    for (name, delay, is_wrong) in
        [("quick", 1, false), ("slow", 200, false), ("wrong", 50, true), ("mute", 1 << 40, false)]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        servers.push(Server::connect(name, &listener.local_addr()?.to_string()).await?);
        spawn(serve(listener, Duration::from_millis(delay), is_wrong)).detach();
    }
    look_up("all", "bread", &mut servers[..2], limit).await?;
    look_up("all", "bread", &mut servers[..3], limit).await?;
    look_up("first", "bread", &mut servers, limit).await?;
    look_up("all", "milk", &mut servers[..2], limit).await?; // the slow one was cancelled: its answer is late
    look_up("within", "milk", &mut servers[3..], limit / 10).await?;
    look_up("within", "milk", &mut servers, limit).await.map(drop)
}

/// `Ok(false)`: a name was not found.
async fn start() -> Result<bool, Box<dyn std::error::Error>> {
    let (mut limit, mut words) = (Duration::from_secs(1), Vec::new());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(stdout().write_all(HELP.as_bytes()).await.is_ok()),
            Long("timeout") => limit = Duration::from_millis(arguments.value()?.parse()?),
            Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let (mut servers, mut all_found) = (Vec::new(), true);
    match &words[..] {
        [] => show(limit).await?,
        [shape, names, addresses @ ..] => {
            for address in addresses {
                servers.push(Server::connect(address, address).await?);
            }
            for name in names.split(',') {
                all_found &= look_up(shape, name, &mut servers, limit).await?;
            }
        }
        _ => return Err("which names? see --help".into()),
    }
    Ok(all_found)
}

#[dapple::main]
async fn main() -> ExitCode {
    let found = start().await.inspect_err(|error| eprintln!("lookup: {error}"));
    if found.is_ok_and(|found| found) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
