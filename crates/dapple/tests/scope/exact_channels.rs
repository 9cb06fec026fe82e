//! Channels in a scope that is cancelled: each operation happens, or it does not.

use std::sync::Mutex as StdMutex;

use crate::exact::SEEDS;
use crate::scope_common::{Lent, Operation, happened, simulated};
use dapple::channel::{mpsc, oneshot, watch};

#[derive(Clone, Copy)]
enum Sends {
    Send,
    Reserve,
    ReserveOwned,
}

/// A channel that is full.
struct Sending(mpsc::Sender<u8>, Lent<mpsc::Receiver<u8>>, Sends);

impl Operation for Sending {
    async fn run(&self) -> bool {
        match self.2 {
            Sends::Send => match self.0.send(2).await {
                Ok(()) => true,
                Err(error) => {
                    assert!(error.is_cancelled());
                    assert_eq!(error.into_inner(), 2, "the message comes back");
                    false
                }
            },
            Sends::Reserve => {
                happened(self.0.reserve().await).map(|permit| permit.send(2).unwrap()).is_some()
            }
            Sends::ReserveOwned => {
                let permit = happened(self.0.clone().reserve_owned().await);
                permit.map(|permit| drop(permit.send(2).unwrap())).is_some()
            }
        }
    }

    async fn complete(&self) {
        self.1.with(|receiver| receiver.try_recv().unwrap());
    }

    async fn settle(&self, completed: usize, happened: usize) {
        let left = self.1.with(|receiver| std::iter::from_fn(|| receiver.try_recv().ok()).count());
        assert_eq!(left, 1 + happened - completed);
        assert_eq!(self.0.capacity(), 1);
    }
}

#[test]
fn sending_to_a_full_channel() {
    for how in [Sends::Send, Sends::Reserve, Sends::ReserveOwned] {
        simulated(SEEDS, true, async move || {
            let (sender, receiver) = mpsc::bounded(1);
            sender.try_send(1).unwrap();
            Sending(sender, Lent::new(receiver), how)
        });
    }
}

struct Receiving(mpsc::Sender<u8>, Lent<mpsc::Receiver<u8>>, bool);

impl Operation for Receiving {
    async fn run(&self) -> bool {
        let mut receiver = self.1.take();
        let got = match self.2 {
            false => happened(receiver.recv().await),
            true => {
                let mut many = Vec::new();
                let count = happened(receiver.recv_many(&mut many, 5).await);
                assert_eq!(count.unwrap_or(0), many.len());
                many.pop()
            }
        };
        self.1.give(receiver);
        assert!(got.is_none_or(|value| value == 7));
        got.is_some()
    }

    async fn complete(&self) {
        self.0.try_send(7).unwrap();
    }

    async fn settle(&self, completed: usize, happened: usize) {
        let left = self.1.with(|receiver| std::iter::from_fn(|| receiver.try_recv().ok()).count());
        assert_eq!(left, completed - happened);
    }
}

#[test]
fn receiving_from_an_empty_channel() {
    for many in [false, true] {
        for bounded in [false, true] {
            simulated(SEEDS, false, async move || {
                let (sender, receiver) = if bounded { mpsc::bounded(1) } else { mpsc::unbounded() };
                Receiving(sender, Lent::new(receiver), many)
            });
        }
    }
}

struct Once(StdMutex<Option<oneshot::Sender<u8>>>, Lent<oneshot::Receiver<u8>>);

impl Operation for Once {
    async fn run(&self) -> bool {
        let mut receiver = self.1.take();
        let got = happened((&mut receiver).await);
        self.1.give(receiver);
        got.is_some()
    }

    async fn complete(&self) {
        let sender = self.0.lock().unwrap().take().unwrap();
        sender.send(7).unwrap();
    }

    async fn settle(&self, completed: usize, happened: usize) {
        if happened == 0 {
            assert_eq!(self.1.with(|receiver| receiver.try_recv()).is_ok(), completed == 1);
        }
    }
}

#[test]
fn a_value_that_is_sent_once() {
    simulated(SEEDS, false, async || {
        let (sender, receiver) = oneshot::channel();
        Once(StdMutex::new(Some(sender)), Lent::new(receiver))
    });
}

/// A sender that waits until every receiver is gone.
enum Closed {
    Mpsc(mpsc::Sender<u8>, StdMutex<Option<mpsc::Receiver<u8>>>),
    Once(Lent<oneshot::Sender<u8>>, StdMutex<Option<oneshot::Receiver<u8>>>),
    Watch(watch::Sender<u8>, StdMutex<Option<watch::Receiver<u8>>>),
}

impl Operation for Closed {
    async fn run(&self) -> bool {
        let closed = match self {
            Closed::Mpsc(sender, _) => sender.closed().await,
            Closed::Watch(sender, _) => sender.closed().await,
            Closed::Once(sender, _) => {
                let mut lent = sender.take();
                let closed = lent.closed().await;
                sender.give(lent);
                closed
            }
        };
        happened(closed).is_some()
    }

    async fn complete(&self) {
        match self {
            Closed::Mpsc(_, receiver) => drop(receiver.lock().unwrap().take()),
            Closed::Once(_, receiver) => drop(receiver.lock().unwrap().take()),
            Closed::Watch(_, receiver) => drop(receiver.lock().unwrap().take()),
        }
    }

    async fn settle(&self, completed: usize, _happened: usize) {
        let is_closed = match self {
            Closed::Mpsc(sender, _) => sender.is_closed(),
            Closed::Once(sender, _) => sender.with(|sender| sender.is_closed()),
            Closed::Watch(sender, _) => sender.is_closed(),
        };
        assert_eq!(is_closed, completed > 0);
    }
}

#[test]
fn waiting_until_every_receiver_is_gone() {
    simulated(SEEDS, false, async || {
        let (sender, receiver) = mpsc::bounded(1);
        Closed::Mpsc(sender, StdMutex::new(Some(receiver)))
    });
    simulated(SEEDS, false, async || {
        let (sender, receiver) = oneshot::channel();
        Closed::Once(Lent::new(sender), StdMutex::new(Some(receiver)))
    });
    simulated(SEEDS, false, async || {
        let (sender, receiver) = watch::channel(1);
        Closed::Watch(sender, StdMutex::new(Some(receiver)))
    });
}

struct Watching(watch::Sender<usize>, Lent<watch::Receiver<usize>>, bool);

impl Operation for Watching {
    async fn run(&self) -> bool {
        let mut receiver = self.1.take();
        let seen = match self.2 {
            false => happened(receiver.changed().await).is_some(),
            true => happened(receiver.wait_for(|value| *value == 1).await.map(drop)).is_some(),
        };
        self.1.give(receiver);
        seen
    }

    async fn complete(&self) {
        self.0.send_modify(|value| *value += 1);
    }

    async fn settle(&self, completed: usize, happened: usize) {
        let has_changed = self.1.with(|receiver| receiver.has_changed().unwrap());
        assert_eq!(*self.0.borrow(), completed);
        // `wait_for` has looked at each value, so none counts as changed.
        assert!(has_changed == (completed > happened) || self.2 && !has_changed);
    }
}

#[test]
fn a_value_that_is_watched() {
    for wanted in [false, true] {
        simulated(SEEDS, false, async move || {
            let (sender, receiver) = watch::channel(0);
            Watching(sender, Lent::new(receiver), wanted)
        });
    }
}
