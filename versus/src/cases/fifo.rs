//! `fifo`: pairs that talk through small pipes while many others wait at pipes that stay silent.
//!
//! The pipe test of Li and Zdancewic (their Figure 18), in which idle connections are simulated. In each of
//! 128 pairs one side sends 32 KB to the other, which takes all of it and sends 32 KB back. A pipe holds
//! 4 KB, so every message is eight waits on either side. Beside them 0 to 5,000 others wait for pipes into
//! which nothing is ever written; that each did is checked at the end, when the pipes are closed and all are
//! told. Every message has a number, which is checked.
//!
//! `idle0` in the lines of the others is Dapple without any idle task, measured in the same rounds: how flat it
//! is. `threads` are the system's, as many as there are tasks elsewhere, and pipes that block ([`threads`]).

mod threads;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::pipe::fcntl_setpipe_size;

use crate::contest::{Contest, Entry, Metric, Role, Sample, Scale};
use crate::sides::{Dapple, Host, Side, SmolDriven, TokioDriven};
use crate::work::{self, Stopwatch};

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        contest("fifo/0", "128 pairs exchange 32 KB over pipes of 4 KB, nobody idle; per message", 0),
        contest("fifo/100", "the same while 100 tasks wait at other pipes", 100),
        contest("fifo/500", "the same while 500 do", 500),
        contest("fifo/1000", "the same while 1000 do", 1000),
        contest("fifo/2500", "the same while 2500 do", 2500),
        contest("fifo/5000", "the same while 5000 do", 5000),
    ]
}

const PAIRS: usize = 128;
/// Bytes of a message.
const MESSAGE: usize = 32 * 1024;
/// Bytes that a pipe holds.
const BUFFER: usize = 4096;

/// Exchanges of each pair in a round, and messages in an exchange of all.
const EXCHANGES: usize = 150;
const MESSAGES: usize = 2 * PAIRS;

const METRICS: &[Metric] = &[
    Metric::new("wall", "ns"),
    Metric::new("cpu", "ns"),
    Metric { name: "throughput", unit: "MB/s", ratios: false, absolutes: true },
];

fn contest(name: &'static str, about: &'static str, idle: usize) -> Contest {
    let mut entries = vec![
        entry::<Dapple, OfDapple>(Dapple::NAME, Role::Ours, idle),
        entry::<TokioDriven, OfTokio>(TokioDriven::NAME, Role::Rival, idle),
        entry::<SmolDriven, OfSmol>(SmolDriven::NAME, Role::Rival, idle),
        Entry {
            side: "threads",
            role: Role::Rival,
            round: Box::new(move |scale| threads::round(idle, exchanges(scale))),
        },
    ];
    if idle > 0 {
        entries.push(entry::<Dapple, OfDapple>("idle0", Role::Rival, 0));
    }
    work::measured(name, about, METRICS, entries)
}

fn exchanges(scale: Scale) -> usize {
    EXCHANGES.div_ceil(if scale.quick { 20 } else { 1 })
}

/// The cost of a round, in the order of [`METRICS`].
fn sample(stopwatch: Stopwatch, exchanges: usize) -> Sample {
    let mut sample = stopwatch.per_operation(exchanges * MESSAGES);
    let bytes_per_nanosecond = MESSAGE as f64 / sample[0];
    sample.push(bytes_per_nanosecond * 1e3);
    sample
}

/// Makes a pipe small.
fn shrink(end: impl AsFd) {
    let size = fcntl_setpipe_size(end, BUFFER).expect("a pipe of this size");
    assert_eq!(size, BUFFER, "as small as asked for");
}

/// Writes the number of a message into it.
fn stamp(message: &mut [u8], number: usize) {
    message[MESSAGE - size_of::<usize>()..].copy_from_slice(&number.to_le_bytes());
}

/// Looks whether it is this message, and whole.
fn check(message: &[u8], number: usize) {
    assert_eq!(message[MESSAGE - size_of::<usize>()..], number.to_le_bytes(), "the message that was sent");
}

/// A runtime's own pipes.
trait Pipes: 'static {
    type Sender: AsFd + Send + 'static;
    type Receiver: Send + 'static;

    /// Inside of the runtime.
    fn open() -> (Self::Sender, Self::Receiver);

    fn write_all(sender: &mut Self::Sender, bytes: &[u8]) -> impl Future<Output = ()> + Send;
    fn read_exact(receiver: &mut Self::Receiver, buffer: &mut [u8]) -> impl Future<Output = ()> + Send;

    /// How much was there; 0 at the end.
    fn read(receiver: &mut Self::Receiver, buffer: &mut [u8]) -> impl Future<Output = usize> + Send;
}

fn entry<H: Host, P: Pipes>(side: &'static str, role: Role, idle: usize) -> Entry {
    let round = move |scale| Ok(round::<H, P>(idle, exchanges(scale)));
    Entry { side, role, round: Box::new(round) }
}

/// One round of one side, all those who are idle waiting before the clock starts.
fn round<H: Host, P: Pipes>(idle: usize, exchanges: usize) -> Sample {
    H::start().run(move |side| async move {
        let mut silent = Vec::with_capacity(idle);
        let mut waiting = Vec::with_capacity(idle);
        let arrived = Arc::new(AtomicUsize::new(0));
        for _ in 0..idle {
            let (sender, receiver) = open::<P>();
            silent.push(sender);
            waiting.push(side.spawn(wait::<P>(receiver, arrived.clone())));
        }
        while arrived.load(Acquire) < idle {
            H::Side::yield_now().await;
        }
        talk::<H::Side, P>(&side, exchanges.div_ceil(10)).await;
        let sample = talk::<H::Side, P>(&side, exchanges).await;
        drop(silent);
        for waiting in waiting {
            assert_eq!(H::Side::join(waiting).await, 0, "nothing but the end of a silent pipe");
        }
        sample
    })
}

fn open<P: Pipes>() -> (P::Sender, P::Receiver) {
    let (sender, receiver) = P::open();
    shrink(&sender);
    (sender, receiver)
}

/// A task that is idle.
async fn wait<P: Pipes>(mut receiver: P::Receiver, arrived: Arc<AtomicUsize>) -> usize {
    arrived.fetch_add(1, Release);
    P::read(&mut receiver, &mut [0]).await
}

/// Lets all pairs exchange `exchanges` messages each.
async fn talk<S: Side, P: Pipes>(side: &S, exchanges: usize) -> Sample {
    let pipes: Vec<_> = (0..MESSAGES).map(|_| open::<P>()).collect();
    let mut pipes = pipes.into_iter();
    let stopwatch = Stopwatch::start();
    let mut tasks = Vec::with_capacity(2 * PAIRS);
    while let (Some((to_second, from_first)), Some((to_first, from_second))) = (pipes.next(), pipes.next()) {
        tasks.push(side.spawn(begin::<P>(to_second, from_second, exchanges)));
        tasks.push(side.spawn(answer::<P>(to_first, from_first, exchanges)));
    }
    for task in tasks {
        S::join(task).await;
    }
    sample(stopwatch, exchanges)
}

/// A task that sends first.
async fn begin<P: Pipes>(mut to: P::Sender, mut from: P::Receiver, exchanges: usize) {
    let mut message = vec![0; MESSAGE];
    for number in 0..exchanges {
        stamp(&mut message, number);
        P::write_all(&mut to, &message).await;
        P::read_exact(&mut from, &mut message).await;
        check(&message, number + 1);
    }
}

/// A task that sends back.
async fn answer<P: Pipes>(mut to: P::Sender, mut from: P::Receiver, exchanges: usize) {
    let mut message = vec![0; MESSAGE];
    for number in 0..exchanges {
        P::read_exact(&mut from, &mut message).await;
        check(&message, number);
        stamp(&mut message, number + 1);
        P::write_all(&mut to, &message).await;
    }
}

/// The methods, which all runtimes give the same names; the traits that they need are in scope.
macro_rules! forward {
    () => {
        #[inline]
        async fn write_all(sender: &mut Self::Sender, bytes: &[u8]) {
            sender.write_all(bytes).await.expect("a pipe that holds");
        }

        #[inline]
        async fn read_exact(receiver: &mut Self::Receiver, buffer: &mut [u8]) {
            receiver.read_exact(buffer).await.expect("a pipe that holds");
        }

        #[inline]
        async fn read(receiver: &mut Self::Receiver, buffer: &mut [u8]) -> usize {
            receiver.read(buffer).await.expect("a pipe that holds")
        }
    };
}

struct OfDapple;

const _: () = {
    use dapple::io::{AsyncReadExt, AsyncWriteExt};
    use dapple::net::pipe::{Receiver, Sender};

    impl Pipes for OfDapple {
        type Sender = Sender;
        type Receiver = Receiver;

        fn open() -> (Sender, Receiver) {
            dapple::net::pipe().expect("a pipe")
        }

        forward!();
    }
};

struct OfTokio;

const _: () = {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::unix::pipe::{Receiver, Sender};

    impl Pipes for OfTokio {
        type Sender = Sender;
        type Receiver = Receiver;

        fn open() -> (Sender, Receiver) {
            tokio::net::unix::pipe::pipe().expect("a pipe")
        }

        forward!();
    }
};

struct OfSmol;

const _: () = {
    use std::io::{PipeReader, PipeWriter};

    use smol::Async;
    use smol::io::{AsyncReadExt, AsyncWriteExt};

    impl Pipes for OfSmol {
        type Sender = Async<PipeWriter>;
        type Receiver = Async<PipeReader>;

        fn open() -> (Self::Sender, Self::Receiver) {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            (Async::new(writer).expect("a pipe"), Async::new(reader).expect("a pipe"))
        }

        forward!();
    }
};
