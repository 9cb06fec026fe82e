//! `oneshot`: a task makes a channel for one value, another sends, the first waits for it.
//!
//! One at a time, so that the receiver waits, and in batches, so that some values are there before
//! it does.

use std::marker::PhantomData;

use crate::contest::{Contest, Role};
use crate::sides::{Dapple, Side, Tokio};
use crate::work::{self, BATCH, Work};

pub(crate) fn contests() -> Vec<Contest> {
    let about = "make a channel, spawn a task that sends, wait for the value; per value";
    let single = vec![
        work::entry::<Dapple, Single<OfDapple>>(Role::Ours),
        work::entry::<Tokio, Single<OfTokio>>(Role::Rival),
    ];
    let about_batch = "the same with 1000 channels at a time; per value";
    let batch = vec![
        work::entry::<Dapple, Batch<OfDapple>>(Role::Ours),
        work::entry::<Tokio, Batch<OfTokio>>(Role::Rival),
    ];
    vec![work::timed("oneshot", about, single), work::timed("oneshot/batch", about_batch, batch)]
}

/// A runtime's own channel for one value.
trait Channel: 'static {
    type Sender: Send + 'static;
    type Receiver: Send + 'static;

    fn channel() -> (Self::Sender, Self::Receiver);
    fn send(sender: Self::Sender, number: usize);
    fn receive(receiver: Self::Receiver) -> impl Future<Output = usize> + Send;
}

struct Single<C>(PhantomData<C>);

impl<C: Channel> Work for Single<C> {
    const BATCHES: usize = 1000;
    const OPERATIONS: usize = 1000;

    async fn run<S: Side>(side: S, batches: usize) {
        for number in 0..batches * Self::OPERATIONS {
            let (sender, receiver) = C::channel();
            S::detach(side.spawn(async move { C::send(sender, number) }));
            assert_eq!(C::receive(receiver).await, number);
        }
    }
}

struct Batch<C>(PhantomData<C>);

impl<C: Channel> Work for Batch<C> {
    const BATCHES: usize = 1000;
    const OPERATIONS: usize = BATCH;

    async fn run<S: Side>(side: S, batches: usize) {
        let mut receivers = Vec::with_capacity(BATCH);
        for _ in 0..batches {
            receivers.extend((0..BATCH).map(|number| {
                let (sender, receiver) = C::channel();
                S::detach(side.spawn(async move { C::send(sender, number) }));
                receiver
            }));
            for (number, receiver) in receivers.drain(..).enumerate() {
                assert_eq!(C::receive(receiver).await, number);
            }
        }
    }
}

struct OfDapple;

impl Channel for OfDapple {
    type Sender = dapple::channel::oneshot::Sender<usize>;
    type Receiver = dapple::channel::oneshot::Receiver<usize>;

    #[inline]
    fn channel() -> (Self::Sender, Self::Receiver) {
        dapple::channel::oneshot::channel()
    }

    #[inline]
    fn send(sender: Self::Sender, number: usize) {
        sender.send(number).expect("a receiver that stays");
    }

    #[inline]
    async fn receive(receiver: Self::Receiver) -> usize {
        receiver.await.expect("a sender that sends")
    }
}

struct OfTokio;

impl Channel for OfTokio {
    type Sender = tokio::sync::oneshot::Sender<usize>;
    type Receiver = tokio::sync::oneshot::Receiver<usize>;

    #[inline]
    fn channel() -> (Self::Sender, Self::Receiver) {
        tokio::sync::oneshot::channel()
    }

    #[inline]
    fn send(sender: Self::Sender, number: usize) {
        sender.send(number).expect("a receiver that stays");
    }

    #[inline]
    async fn receive(receiver: Self::Receiver) -> usize {
        receiver.await.expect("a sender that sends")
    }
}
