//! `mpsc`: four tasks send numbers to one, through the bounded channel of their own runtime.

use std::marker::PhantomData;

use crate::contest::{Contest, Role};
use crate::sides::{Dapple, Side, Smol, Tokio};
use crate::work::{self, Work};

/// Messages that a channel holds.
const CAPACITY: usize = 100;

const SENDERS: usize = 4;

pub(crate) fn contest() -> Contest {
    let about = "four tasks send numbers to one over a channel that holds 100; per message";
    let entries = vec![
        work::entry::<Dapple, FourToOne<OfDapple>>(Role::Ours),
        work::entry::<Tokio, FourToOne<OfTokio>>(Role::Rival),
        work::entry::<Smol, FourToOne<OfSmol>>(Role::Reference),
    ];
    work::timed("mpsc", about, entries)
}

/// A runtime's own channel.
trait Channel: 'static {
    type Sender: Clone + Send + Sync + 'static;
    type Receiver: Send + 'static;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver);
    fn send(sender: &Self::Sender, number: u64) -> impl Future<Output = ()> + Send;

    /// `None` when all senders are gone.
    fn receive(receiver: &mut Self::Receiver) -> impl Future<Output = Option<u64>> + Send;
}

struct FourToOne<C>(PhantomData<C>);

impl<C: Channel> Work for FourToOne<C> {
    const BATCHES: usize = 1000;
    const OPERATIONS: usize = 1000;

    async fn run<S: Side>(side: S, batches: usize) {
        let each = batches * Self::OPERATIONS / SENDERS;
        let (sender, mut receiver) = C::bounded(CAPACITY);
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let sender = sender.clone();
                side.spawn(async move {
                    for number in 1..=each as u64 {
                        C::send(&sender, number).await;
                    }
                })
            })
            .collect();
        drop(sender);
        let sum = side.spawn(async move {
            let mut sum = 0;
            while let Some(number) = C::receive(&mut receiver).await {
                sum += number;
            }
            sum
        });
        for sender in senders {
            S::join(sender).await;
        }
        assert_eq!(S::join(sum).await, (SENDERS * each * (each + 1) / 2) as u64);
    }
}

struct OfDapple;

impl Channel for OfDapple {
    type Sender = dapple::channel::mpsc::Sender<u64>;
    type Receiver = dapple::channel::mpsc::Receiver<u64>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        dapple::channel::mpsc::bounded(capacity)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send(number).await.expect("a receiver that stays");
    }

    #[inline]
    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}

struct OfTokio;

impl Channel for OfTokio {
    type Sender = tokio::sync::mpsc::Sender<u64>;
    type Receiver = tokio::sync::mpsc::Receiver<u64>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        tokio::sync::mpsc::channel(capacity)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send(number).await.expect("a receiver that stays");
    }

    #[inline]
    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await
    }
}

struct OfSmol;

impl Channel for OfSmol {
    type Sender = smol::channel::Sender<u64>;
    type Receiver = smol::channel::Receiver<u64>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        smol::channel::bounded(capacity)
    }

    #[inline]
    async fn send(sender: &Self::Sender, number: u64) {
        sender.send(number).await.expect("a receiver that stays");
    }

    #[inline]
    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}
