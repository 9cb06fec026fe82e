//! A TCP proxy: one address in front of several servers, with fail-over.
//!
//! You learn how to bound connections with a `Semaphore`, how to shut down in two steps, and how a cancelled copy counts its
//! bytes.
//!
//! Run it: `cargo run --release -p examples --bin proxy -- 127.0.0.1:8080 localhost:8001 localhost:8002`
//!
//! In a second terminal start a server, `python3 -m http.server 8001`, and in a third talk to it:
//! `curl http://127.0.0.1:8080/`. Each connection goes to the next server, and if that cannot be reached, to the one after
//! it. Ctrl-C stops listening, gives open connections some time to end (a second Ctrl-C does not), and prints how much was
//! carried.
//!
//! * **Limits**: a `Semaphore` has a permit per connection. Without one nothing is accepted: new clients wait in the
//!   kernel's queue. When all permits are back, all connections have ended.
//! * **Colors**: the totals are plain numbers in a color of their own.
//! * **Exact cancellation**: a cancelled copy says how many bytes it has carried each way, and hands back those that it had
//!   read and not written. So the totals are right to the byte.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dapple::io::{AsyncWriteExt, Partial, copy_bidirectional, stdout};
use dapple::net::{TcpListener, TcpStream};
use dapple::signal::{SignalKind, signal};
use dapple::sync::{OwnedSemaphorePermit, Semaphore};
use dapple::time::{Duration, sleep};
use dapple::{Color, ColorCell, JoinHandle, is_cancelled, spawn};
use futures_lite::future;
use lexopt::prelude::*;

const HELP: &str = "\
A TCP proxy: one address in front of several servers.

Usage: proxy [OPTIONS] LISTEN SERVER...

LISTEN is an address such as 127.0.0.1:8080; port 0 is any that is free. SERVER is host:port.

  --max N        connections at the same time (1000)
  --connect MS   how long to try each address of a server (3000)
  --grace MS     how long connections have to end after Ctrl-C (5000)
";

struct Options {
    listen: String,
    servers: Vec<String>,
    max: usize,
    connect: Duration,
    grace: Duration,
}

/// `None`: help was asked for.
fn options() -> Result<Option<Options>, lexopt::Error> {
    let (mut max, mut connect, mut grace, mut names) = (1000, 3000, 5000, Vec::new());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("max") => max = arguments.value()?.parse()?,
            Long("connect") => connect = arguments.value()?.parse()?,
            Long("grace") => grace = arguments.value()?.parse()?,
            Value(name) => names.push(name.string()?),
            other => return Err(other.unexpected()),
        }
    }
    if names.len() < 2 || max == 0 {
        return Err("an address to listen at, a server, and room for a connection are wanted".into());
    }
    let (connect, grace) = (Duration::from_millis(connect), Duration::from_millis(grace));
    Ok(Some(Options { listen: names.remove(0), servers: names, max, connect, grace }))
}

/// The traffic so far.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    connections: u64,
    /// Those for which no server could be reached.
    unserved: u64,
    there: u64,
    back: u64,
    /// Bytes that had been read and not written when their connection broke or was cancelled.
    undelivered: usize,
}

struct Proxy {
    options: Options,
    /// The server to try first, counted on without end.
    next: AtomicUsize,
    color: Color,
    totals: ColorCell<Totals>,
}

impl Proxy {
    /// Changes the totals, in their color.
    fn count(self: &Arc<Self>, f: impl FnOnce(&mut Totals) + Send + 'static) -> JoinHandle<Totals> {
        let proxy = self.clone();
        self.color.call(move || {
            proxy.totals.with(|totals| {
                f(totals);
                *totals
            })
        })
    }

    /// Connects to the next server that can be reached.
    async fn connect(&self) -> io::Result<(TcpStream, &str)> {
        let servers = &self.options.servers;
        let first = self.next.fetch_add(1, Relaxed);
        let mut last = None;
        for turn in 0..servers.len() {
            let server = &servers[first.wrapping_add(turn) % servers.len()];
            match TcpStream::connect_timeout(server, self.options.connect).await {
                Ok(stream) => return Ok((stream, server)),
                Err(error) if is_cancelled(&error) => return Err(error),
                Err(error) => {
                    eprintln!("proxy: {server}: {error}");
                    last = Some(error);
                }
            }
        }
        Err(last.expect("there is a server"))
    }

    /// Carries one connection until it ends. The permit is given back with it.
    async fn carry(self: Arc<Self>, mut client: TcpStream, _permit: OwnedSemaphorePermit) {
        let (mut stream, server) = match self.connect().await {
            Ok(connected) => connected,
            Err(_) => return self.count(|totals| totals.unserved += 1).detach(),
        };
        let copied = copy_bidirectional(&mut client, &mut stream).await;
        let (there, back, undelivered, why) = match &copied {
            Ok((there, back)) => (*there, *back, 0, "ended".to_owned()),
            Err(error) => match Partial::of(error) {
                Some(partial) => {
                    let undelivered = partial.rest().len() + partial.rest_back().len();
                    (partial.done(), partial.done_back(), undelivered, partial.stopped_by().to_string())
                }
                None => (0, 0, 0, error.to_string()),
            },
        };
        println!("{server}: bytes there: {there}, back: {back}, {why}");
        let add = move |totals: &mut Totals| {
            totals.there += there;
            totals.back += back;
            totals.undelivered += undelivered;
        };
        self.count(add).detach(); // it is done also if this task was cancelled
    }

    /// Accepts connections until it is cancelled, and returns those that are open.
    async fn accept(self: Arc<Self>, listener: TcpListener, permits: Arc<Semaphore>) -> Vec<JoinHandle<()>> {
        let mut open: Vec<JoinHandle<()>> = Vec::new();
        while let Ok(permit) = permits.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((client, _)) => {
                    self.count(|totals| totals.connections += 1).detach();
                    open.retain(|connection| !connection.is_finished());
                    open.push(spawn(self.clone().carry(client, permit)));
                }
                Err(error) if is_cancelled(&error) => break,
                Err(error) => eprintln!("proxy: {error}"), // out of descriptors; `accept` makes a pause then
            }
        }
        open
    }
}

async fn serve(options: Options) -> io::Result<()> {
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind(&options.listen).await?;
    println!("listening at {}", listener.local_addr()?);
    let (max, grace, color) = (options.max, options.grace, Color::new());
    let totals = ColorCell::in_color(&color, Totals::default());
    let proxy = Arc::new(Proxy { options, next: AtomicUsize::new(0), color, totals });
    let permits = Arc::new(Semaphore::new(max));
    let accepting = spawn(proxy.clone().accept(listener, permits.clone()));

    ctrl_c.recv().await?;
    accepting.cancel();
    let open = accepting.await.map_err(io::Error::other)?;
    println!(
        "{grace:?} for connections to end; open: {}",
        open.iter().filter(|one| !one.is_finished()).count()
    );
    let all_ended = async { permits.acquire_many(max).await.is_ok() };
    let enough = async {
        future::or(async { sleep(grace).await.is_ok() }, async { ctrl_c.recv().await.is_ok() }).await
    };
    future::or(all_ended, enough).await;
    for connection in open {
        connection.cancel();
        connection.await.map_err(io::Error::other)?;
    }

    let Totals { connections, unserved, there, back, undelivered } =
        proxy.count(|_| ()).await.map_err(io::Error::other)?;
    println!("connections: {connections}, not served: {unserved}");
    println!("bytes there: {there}, back: {back}, undelivered: {undelivered}");
    Ok(())
}

#[dapple::main]
async fn main() -> ExitCode {
    let done = match options() {
        Ok(Some(options)) => serve(options).await,
        Ok(None) => stdout().write_all(HELP.as_bytes()).await,
        Err(error) => Err(io::Error::other(format!("{error}; --help says more"))),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("proxy: {error}");
    ExitCode::FAILURE
}
