//! Sockets and timers under load, while tasks are cancelled, aborted and panic, futures are dropped on
//! other threads, and runtimes end in the midst of it: everything comes to an end, and is dropped once.
//!
//! `DAPPLE_STRESS=10` makes it ten times as long. Meant for ThreadSanitizer too (`ci/tsan`).

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::{Drops, Guard, Random, eventually, foreign_block_on, watched};
use dapple::net::{TcpListener, TcpStream, UdpSocket};
use dapple::time::{Duration, Instant, Sleep, interval, sleep};
use dapple::{Handle, JoinHandle, Runtime};
use futures_lite::{AsyncReadExt, AsyncWriteExt, future};

const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// The first byte of a request whose answer is a panic.
const PANIC: u8 = 255;
/// Long enough for whatever should not take as long.
const LONG: Duration = Duration::from_secs(3600);

fn scale() -> u64 {
    let factor = std::env::var("DAPPLE_STRESS").ok().and_then(|text| text.parse().ok());
    factor.unwrap_or(1)
}

/// A resource that is used up on another thread.
enum Left {
    Stream(TcpStream),
    Sleep(Pin<Box<Sleep>>),
    Task(JoinHandle<io::Result<()>>),
}

#[derive(Clone)]
struct World {
    rt: Handle,
    server: SocketAddr,
    datagrams: Arc<UdpSocket>,
    /// A thread that drops, or polls once and drops, what it gets.
    elsewhere: mpsc::Sender<Left>,
    drops: Drops,
    made: Arc<AtomicUsize>,
    answers: Arc<AtomicUsize>,
}

impl World {
    fn guard(&self) -> Guard {
        self.made.fetch_add(1, Ordering::SeqCst);
        self.drops.guard()
    }
}

fn millis(random: &mut Random, most: u64) -> Duration {
    Duration::from_micros(random.below(most * 1000))
}

/// Gives up after a while.
async fn within<T>(limit: Duration, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = async {
        sleep(limit).await?;
        Err(io::ErrorKind::TimedOut.into())
    };
    future::or(future, late).await
}

/// Sends back what comes in, a byte of length first.
async fn serve(mut stream: TcpStream, guard: Guard) -> io::Result<()> {
    let _kept = guard;
    loop {
        let mut len = [0];
        within(LONG, stream.read_exact(&mut len)).await?;
        assert_ne!(len[0], PANIC, "as asked");
        let mut bytes = vec![0; len[0].into()];
        stream.read_exact(&mut bytes).await?;
        stream.write_all(&bytes).await?;
    }
}

async fn accept(world: World, listener: TcpListener) -> io::Result<()> {
    let _kept = world.guard();
    loop {
        let (stream, _) = listener.accept().await?;
        dapple::spawn(serve(stream, world.guard())).detach();
    }
}

async fn ask(stream: &mut TcpStream, len: u8) -> io::Result<()> {
    let sent: Vec<u8> = (0..len).collect();
    stream.write_all(&[len]).await?;
    stream.write_all(&sent).await?;
    let mut got = vec![0; len.into()];
    stream.read_exact(&mut got).await?;
    assert_eq!(got, sent);
    Ok(())
}

/// A client connection, with random operations and ends.
async fn client(world: World, seed: u64) -> io::Result<()> {
    let (_kept, mut random) = (world.guard(), Random(seed));
    let mut stream = TcpStream::connect(world.server).await?;
    for _ in 0..random.below(6) {
        ask(&mut stream, 1 + random.below(40) as u8).await?;
        world.answers.fetch_add(1, Ordering::Relaxed);
        match random.below(10) {
            0 => {
                stream.write_all(&[PANIC]).await?;
                assert_eq!(stream.read(&mut [0]).await?, 0, "it ends when its task panics");
                return Ok(());
            }
            1 => sleep(millis(&mut random, 3)).await?,
            2 => {
                let waits = within(millis(&mut random, 2), stream.read_exact(&mut [0])).await;
                assert!(waits.is_err(), "nothing was asked for");
            }
            3 => {
                world.datagrams.send_to(b"x", world.datagrams.local_addr()?).await?;
                drop(within(millis(&mut random, 2), world.datagrams.recv(&mut [0])).await);
            }
            4 => {
                let mut left = Box::pin(sleep(millis(&mut random, 2)));
                let _ = future::poll_once(&mut left).await;
                let _ = world.elsewhere.send(Left::Sleep(left));
            }
            5 => {
                // Begins to wait for bytes that will not come, and hands the stream to another thread.
                let _ = future::poll_once(stream.read(&mut [0])).await;
                let _ = world.elsewhere.send(Left::Stream(stream));
                return Ok(());
            }
            6 => panic!("as asked"),
            _ => {}
        }
    }
    Ok(())
}

/// Timers alone: reset, ticked, raced.
async fn timers(world: World, seed: u64) -> io::Result<()> {
    let (_kept, mut random) = (world.guard(), Random(seed));
    let mut every = interval(Duration::from_micros(300));
    let mut moved = Box::pin(sleep(LONG));
    for _ in 0..10 {
        every.tick().await?;
        let _ = future::poll_once(&mut moved).await;
        moved.as_mut().get_mut().reset(Instant::now() + millis(&mut random, 2));
        let mut many: Vec<_> = (0..20).map(|_| Box::pin(sleep(millis(&mut random, 4)))).collect();
        poll_fn(|cx| {
            let over = many.iter_mut().map(|sleep| sleep.as_mut().poll(cx)).filter(Poll::is_ready);
            if over.count() > 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    Ok(())
}

/// Uses up what is left to it, on a thread that is none of the runtime's.
fn elsewhere(left: mpsc::Receiver<Left>) {
    let mut cx = Context::from_waker(Waker::noop());
    for (n, left) in left.into_iter().enumerate() {
        match left {
            Left::Stream(stream) => drop(stream),
            Left::Task(task) if n % 2 == 0 => drop(task),
            Left::Task(task) => task.abort(),
            Left::Sleep(mut sleep) => {
                if n % 2 == 0 {
                    sleep.as_mut().get_mut().reset(Instant::now() + LONG);
                } else {
                    // If its runtime has ended, it panics: there is none here.
                    drop(catch_unwind(AssertUnwindSafe(|| sleep.as_mut().poll(&mut cx))));
                }
            }
        }
    }
}

/// One runtime from its beginning to its end.
fn round(seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let rt = Runtime::builder().workers(2 + random.below(3) as usize).build().unwrap();
    let (listener, datagrams) = rt.block_on(async {
        (TcpListener::bind(HERE).await.unwrap(), Arc::new(UdpSocket::bind(HERE).await.unwrap()))
    });
    let (send, receive) = mpsc::channel();
    let world = World {
        rt: rt.handle(),
        server: listener.local_addr().unwrap(),
        datagrams,
        elsewhere: send,
        drops: Drops::default(),
        made: Arc::default(),
        answers: Arc::default(),
    };
    let elsewhere = thread::spawn(move || elsewhere(receive));
    rt.spawn(accept(world.clone(), listener)).detach();
    let spawners: Vec<_> = (0..2)
        .map(|_| {
            let (world, mut random) = (world.clone(), Random(random.below(u64::MAX) | 1));
            thread::spawn(move || {
                let mut kept = Vec::new();
                for _ in 0..30 {
                    let seed = random.below(u64::MAX) | 1;
                    let task = match random.below(5) {
                        0 => world.rt.spawn(timers(world.clone(), seed)),
                        _ => world.rt.spawn(client(world.clone(), seed)),
                    };
                    match random.below(6) {
                        0 => task.cancel(),
                        1 => task.abort(),
                        2 => drop(world.elsewhere.send(Left::Task(task))),
                        3 => task.detach(),
                        _ => kept.push(task),
                    }
                    if random.below(4) == 0 {
                        thread::sleep(millis(&mut random, 1));
                    }
                }
                kept
            })
        })
        .collect();
    let (answers, drops, made) = (world.answers.clone(), world.drops.clone(), world.made.clone());
    let waits_for_all = random.below(2) == 0;
    let kept: Vec<_> = if waits_for_all {
        let tasks: Vec<_> = spawners.into_iter().flat_map(|spawner| spawner.join().unwrap()).collect();
        drop(world);
        for task in tasks {
            // Cancelled, panicked, or done: but it ends.
            drop(rt.block_on(within(LONG, async { Ok(task.await) })));
        }
        Vec::new()
    } else {
        thread::sleep(millis(&mut random, 12));
        drop(world);
        spawners
    };
    if random.below(2) == 0 {
        drop(rt)
    } else {
        drop(rt.shutdown(millis(&mut random, 20)))
    }
    for task in kept.into_iter().flat_map(|spawner| spawner.join().unwrap()) {
        drop(foreign_block_on(task));
    }
    elsewhere.join().unwrap();
    eventually("all is dropped, once", || drops.count() == made.load(Ordering::SeqCst));
    answers.load(Ordering::Relaxed)
}

#[test]
fn sockets_timers_cancels_panics_and_the_end() {
    watched(|| {
        let answers: usize = (1..=20 * scale()).map(round).sum();
        assert!(answers > 0, "somebody got an answer");
    });
}
