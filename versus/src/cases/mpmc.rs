//! `mpmc`: four tasks send numbers to four others over one channel that holds 100; each number goes to one of them.
//!
//! The rivals are channels that work on any runtime; they are on tokio, on two workers. `tokio`, a reference, has no such
//! channel: its receivers share that of `mpsc` behind a mutex, as its documentation advises. `smol`, a reference, is
//! async-channel on its own runtime. The messages are sent one at a time, with nothing else between them, and the sum
//! and the number of all that was received are checked.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::contest::{Contest, Role};
use crate::sides::{Dapple, Side, Smol, Tokio};
use crate::work::{self, Work};

/// Messages that a channel holds.
const CAPACITY: usize = 100;

/// Senders, and receivers.
const ENDS: usize = 4;

pub(crate) fn contest() -> Contest {
    let about = "four tasks send numbers to four over a channel that holds 100; per message";
    let entries = vec![
        work::contended_entry::<Dapple, FourToFour<OfDapple>>("dapple", Role::Ours),
        work::contended_entry::<Tokio, FourToFour<AsyncChannel>>("async-channel", Role::Rival),
        work::contended_entry::<Tokio, FourToFour<Flume>>("flume", Role::Rival),
        work::contended_entry::<Tokio, FourToFour<OfTokio>>("tokio", Role::Reference),
        work::contended_entry::<Smol, FourToFour<AsyncChannel>>("smol", Role::Reference),
    ];
    work::contended("mpmc", about, entries)
}

/// A channel whose messages go to one receiver each.
trait Channel: 'static {
    type Sender: Clone + Send + Sync + 'static;
    type Receiver: Clone + Send + Sync + 'static;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver);
    fn send(sender: &Self::Sender, number: u64) -> impl Future<Output = ()> + Send;

    /// `None` when all senders are gone and nothing is left.
    fn receive(receiver: &Self::Receiver) -> impl Future<Output = Option<u64>> + Send;
}

struct FourToFour<C>(PhantomData<C>);

impl<C: Channel> Work for FourToFour<C> {
    const BATCHES: usize = 1000;
    const OPERATIONS: usize = 1000;

    async fn run<S: Side>(side: S, batches: usize) {
        let each = (batches * Self::OPERATIONS / ENDS) as u64;
        let (sender, receiver) = C::bounded(CAPACITY);
        let mut receivers = Vec::with_capacity(ENDS);
        for _ in 0..ENDS {
            let receiver = receiver.clone();
            receivers.push(side.spawn(async move {
                let (mut sum, mut messages) = (0, 0);
                while let Some(number) = C::receive(&receiver).await {
                    sum += number;
                    messages += 1;
                }
                (sum, messages)
            }));
        }
        let mut senders = Vec::with_capacity(ENDS);
        for _ in 0..ENDS {
            let sender = sender.clone();
            senders.push(side.spawn(async move {
                for number in 1..=each {
                    C::send(&sender, number).await;
                }
            }));
        }
        drop((sender, receiver));
        for sender in senders {
            S::join(sender).await;
        }
        let mut all = (0, 0);
        for receiver in receivers {
            let (sum, messages) = S::join(receiver).await;
            all = (all.0 + sum, all.1 + messages);
        }
        let ends = ENDS as u64;
        assert_eq!(all, (ends * each * (each + 1) / 2, ends * each), "a message was lost, or came twice");
    }
}

struct OfDapple;

impl Channel for OfDapple {
    type Sender = dapple::channel::mpmc::Sender<u64>;
    type Receiver = dapple::channel::mpmc::Receiver<u64>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        dapple::channel::mpmc::bounded(capacity)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send(number).await.expect("receivers that stay");
    }

    #[inline]
    async fn receive(receiver: &Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}

struct AsyncChannel;

impl Channel for AsyncChannel {
    type Sender = async_channel::Sender<u64>;
    type Receiver = async_channel::Receiver<u64>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        async_channel::bounded(capacity)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send(number).await.expect("receivers that stay");
    }

    #[inline]
    async fn receive(receiver: &Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}

struct Flume;

impl Channel for Flume {
    type Sender = flume::Sender<u64>;
    type Receiver = flume::Receiver<u64>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        flume::bounded(capacity)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send_async(number).await.expect("receivers that stay");
    }

    #[inline]
    async fn receive(receiver: &Self::Receiver) -> Option<u64> {
        receiver.recv_async().await.ok()
    }
}

struct OfTokio;

impl Channel for OfTokio {
    type Sender = tokio::sync::mpsc::Sender<u64>;
    type Receiver = Arc<tokio::sync::Mutex<tokio::sync::mpsc::Receiver<u64>>>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let (sender, receiver) = tokio::sync::mpsc::channel(capacity);
        (sender, Arc::new(tokio::sync::Mutex::new(receiver)))
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send(number).await.expect("receivers that stay");
    }

    #[inline]
    async fn receive(receiver: &Self::Receiver) -> Option<u64> {
        receiver.lock().await.recv().await
    }
}
