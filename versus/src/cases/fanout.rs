//! `fanout`: a task starts a thousand children, each of which waits once.
//!
//! A child waits for a number of its own, which the task sends when all children wait, and returns it; the task then
//! collects the results. Children wait at a oneshot channel: that of their runtime, and with `FuturesUnordered`, which
//! has none, that of `futures-channel`, which comes with it; with tokio's instead, `FU-tokio`, it is a reference. The
//! children of a `JoinSet` are tasks, and those that have not run by then find their number there: the task yields once
//! before it sends, and does not wait for them all.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::task::Poll;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::JoinSet;

use crate::contest::{Contest, Role};
use crate::sides::{Dapple, Side, Tokio};
use crate::work::{self, BATCH, Work};

pub(crate) fn contest() -> Contest {
    let about =
        "a task starts 1000 children that wait once, lets them go on, and takes their values; per child";
    let entries = vec![
        work::entry::<Dapple, FanOut<Scope>>(Role::Ours),
        work::entry_as::<Tokio, FanOut<Unordered<OfFutures>>>("FuturesUnordered", Role::Rival),
        work::entry_as::<Tokio, FanOut<Set>>("JoinSet", Role::Rival),
        work::entry_as::<Tokio, FanOut<Unordered<OfTokio>>>("FU-tokio", Role::Reference),
    ];
    work::timed("fanout", about, entries)
}

/// A way to start children inside of a task.
trait Way: 'static {
    /// Starts a batch of children; the sum of their values.
    fn batch() -> impl Future<Output = usize> + Send;
}

struct FanOut<W>(PhantomData<W>);

impl<W: Way> Work for FanOut<W> {
    const BATCHES: usize = 1000;
    const OPERATIONS: usize = BATCH;

    async fn run<S: Side>(_: S, batches: usize) {
        for _ in 0..batches {
            assert_eq!(W::batch().await, BATCH * (BATCH - 1) / 2);
        }
    }
}

struct Scope;

impl Way for Scope {
    async fn batch() -> usize {
        dapple::finish(async |scope| {
            let (mut senders, mut children) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
            for _ in 0..BATCH {
                let (sender, receiver) = dapple::channel::oneshot::channel();
                children.push(scope.start(async { receiver.await.expect("a number") }));
                senders.push(sender);
            }
            for (number, sender) in senders.into_iter().enumerate() {
                sender.send(number).expect("a child that waits");
            }
            let mut sum = 0;
            for child in children {
                sum += child.await;
            }
            sum
        })
        .await
    }
}

/// A channel for one number.
trait OneShot: 'static {
    type Sender: Send;
    type Receiver: Send + 'static;

    fn channel() -> (Self::Sender, Self::Receiver);
    fn send(sender: Self::Sender, number: usize);
    fn receive(receiver: Self::Receiver) -> impl Future<Output = usize> + Send + 'static;
}

struct Unordered<C>(PhantomData<C>);

impl<C: OneShot> Way for Unordered<C> {
    async fn batch() -> usize {
        let (mut senders, mut children) = (Vec::with_capacity(BATCH), FuturesUnordered::new());
        for _ in 0..BATCH {
            let (sender, receiver) = C::channel();
            children.push(C::receive(receiver));
            senders.push(sender);
        }
        // It does not poll them before it is polled itself.
        poll_fn(|cx| {
            assert!(children.poll_next_unpin(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        for (number, sender) in senders.into_iter().enumerate() {
            C::send(sender, number);
        }
        let mut sum = 0;
        while let Some(number) = children.next().await {
            sum += number;
        }
        sum
    }
}

struct Set;

impl Way for Set {
    async fn batch() -> usize {
        let (mut senders, mut children) = (Vec::with_capacity(BATCH), JoinSet::new());
        for _ in 0..BATCH {
            let (sender, receiver) = OfTokio::channel();
            children.spawn(OfTokio::receive(receiver));
            senders.push(sender);
        }
        tokio::task::yield_now().await;
        for (number, sender) in senders.into_iter().enumerate() {
            OfTokio::send(sender, number);
        }
        let mut sum = 0;
        while let Some(number) = children.join_next().await {
            sum += number.expect("a task that ends");
        }
        sum
    }
}

struct OfFutures;

impl OneShot for OfFutures {
    type Sender = futures_channel::oneshot::Sender<usize>;
    type Receiver = futures_channel::oneshot::Receiver<usize>;

    fn channel() -> (Self::Sender, Self::Receiver) {
        futures_channel::oneshot::channel()
    }

    fn send(sender: Self::Sender, number: usize) {
        sender.send(number).expect("a child that waits");
    }

    async fn receive(receiver: Self::Receiver) -> usize {
        receiver.await.expect("a number")
    }
}

struct OfTokio;

impl OneShot for OfTokio {
    type Sender = tokio::sync::oneshot::Sender<usize>;
    type Receiver = tokio::sync::oneshot::Receiver<usize>;

    fn channel() -> (Self::Sender, Self::Receiver) {
        tokio::sync::oneshot::channel()
    }

    fn send(sender: Self::Sender, number: usize) {
        sender.send(number).expect("a child that waits");
    }

    async fn receive(receiver: Self::Receiver) -> usize {
        receiver.await.expect("a number")
    }
}
