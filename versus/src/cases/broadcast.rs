//! `broadcast`: one task sends numbers to eight others over a channel that brings every message to all receivers.
//!
//! In `broadcast/1` the sender waits until all eight have received a message before it sends the next one: news that comes
//! singly, each of which wakes eight tasks. In `broadcast/64` it sends 64 before it waits, into a channel that holds 128,
//! so receivers find messages that are there. The sender waits by a count that the receivers share and by a hand-made
//! slot, the same on all sides, once per burst; without it a receiver that is slow would miss messages and have less to
//! do. No receiver may miss one, or get one twice or out of order. The measure is per message, all eight receivers
//! included.
//!
//! `async-broadcast` on tokio is a reference; with room for all messages its sender never waits.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::AcqRel;

use crate::contest::{Contest, Role};
use crate::sides::{Dapple, Side, Tokio};
use crate::signal::Slot;
use crate::work::{self, Work};

const RECEIVERS: usize = 8;

/// Messages that a channel holds.
const CAPACITY: usize = 128;

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        contest::<1>(
            "broadcast/1",
            "one task sends numbers to eight, who all get each before the next; per message",
        ),
        contest::<64>("broadcast/64", "the same in bursts of 64; per message"),
    ]
}

fn contest<const BURST: usize>(name: &'static str, about: &'static str) -> Contest {
    let entries = vec![
        work::contended_entry::<Dapple, OneToEight<OfDapple, BURST>>("dapple", Role::Ours),
        work::contended_entry::<Tokio, OneToEight<OfTokio, BURST>>("tokio", Role::Rival),
        work::contended_entry::<Tokio, OneToEight<AsyncBroadcast, BURST>>("async-broadcast", Role::Reference),
    ];
    work::contended(name, about, entries)
}

/// A channel whose messages go to all receivers.
trait Channel: 'static {
    type Sender: Send + Sync + 'static;
    type Receiver: Send + 'static;

    /// A sender with as many receivers.
    fn bounded(capacity: usize, receivers: usize) -> (Self::Sender, Vec<Self::Receiver>);

    /// Sends to all receivers. There is room.
    fn send(sender: &Self::Sender, number: u64) -> impl Future<Output = ()> + Send;

    /// The next message. Panics if this receiver has missed one.
    fn receive(receiver: &mut Self::Receiver) -> impl Future<Output = u64> + Send;
}

struct OneToEight<C, const BURST: usize>(PhantomData<C>);

/// How the sender learns that a burst has come to all.
struct Arrivals {
    missing: AtomicUsize,
    all: Slot,
}

impl<C: Channel, const BURST: usize> Work for OneToEight<C, BURST> {
    const BATCHES: usize = if BURST == 1 { 100_000 } else { 400_000 / BURST };
    const OPERATIONS: usize = BURST;

    async fn run<S: Side>(side: S, bursts: usize) {
        let (sender, receivers) = C::bounded(CAPACITY, RECEIVERS);
        let arrivals = Arc::new(Arrivals { missing: AtomicUsize::new(RECEIVERS), all: Slot::new() });
        let mut tasks = Vec::with_capacity(RECEIVERS);
        for mut receiver in receivers {
            let arrivals = arrivals.clone();
            tasks.push(side.spawn(async move {
                for burst in 0..bursts {
                    for number in burst * BURST..(burst + 1) * BURST {
                        let got = C::receive(&mut receiver).await;
                        assert_eq!(got, number as u64, "a message was lost, or came twice");
                    }
                    if arrivals.missing.fetch_sub(1, AcqRel) == 1 {
                        arrivals.missing.store(RECEIVERS, std::sync::atomic::Ordering::Relaxed);
                        arrivals.all.send();
                    }
                }
            }));
        }
        let sends = side.spawn(async move {
            for burst in 0..bursts {
                for number in burst * BURST..(burst + 1) * BURST {
                    C::send(&sender, number as u64).await;
                }
                arrivals.all.receive().await;
            }
        });
        S::join(sends).await;
        for task in tasks {
            S::join(task).await;
        }
    }
}

struct OfDapple;

impl Channel for OfDapple {
    type Sender = dapple::channel::broadcast::Sender<u64>;
    type Receiver = dapple::channel::broadcast::Receiver<u64>;

    fn bounded(capacity: usize, receivers: usize) -> (Self::Sender, Vec<Self::Receiver>) {
        let (sender, first) = dapple::channel::broadcast::bounded(capacity);
        let mut all = vec![first];
        all.resize_with(receivers, || sender.subscribe());
        (sender, all)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send(number).expect("receivers that stay");
    }

    #[inline]
    async fn receive(receiver: &mut Self::Receiver) -> u64 {
        receiver.recv().await.expect("a message that was not missed")
    }
}

struct OfTokio;

impl Channel for OfTokio {
    type Sender = tokio::sync::broadcast::Sender<u64>;
    type Receiver = tokio::sync::broadcast::Receiver<u64>;

    fn bounded(capacity: usize, receivers: usize) -> (Self::Sender, Vec<Self::Receiver>) {
        let (sender, first) = tokio::sync::broadcast::channel(capacity);
        let mut all = vec![first];
        all.resize_with(receivers, || sender.subscribe());
        (sender, all)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send(number).expect("receivers that stay");
    }

    #[inline]
    async fn receive(receiver: &mut Self::Receiver) -> u64 {
        receiver.recv().await.expect("a message that was not missed")
    }
}

struct AsyncBroadcast;

impl Channel for AsyncBroadcast {
    type Sender = async_broadcast::Sender<u64>;
    type Receiver = async_broadcast::Receiver<u64>;

    fn bounded(capacity: usize, receivers: usize) -> (Self::Sender, Vec<Self::Receiver>) {
        let (sender, first) = async_broadcast::broadcast(capacity);
        let mut all = vec![first];
        all.resize_with(receivers, || sender.new_receiver());
        (sender, all)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        // The direct call is without the allocation that `broadcast` makes for its future's listener.
        sender.broadcast_direct(number).await.expect("receivers that stay");
    }

    #[inline]
    async fn receive(receiver: &mut Self::Receiver) -> u64 {
        receiver.recv_direct().await.expect("a message that was not missed")
    }
}
