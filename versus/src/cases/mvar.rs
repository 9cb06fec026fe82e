//! `mvar`: two tasks exchange a number through two places that are empty or full, one for each direction.
//!
//! A task puts a number into the first place and takes the answer, the number after it, out of the second; the other task
//! does the reverse. Every `put` finds its place empty, and nearly every `take` has to wait. The places of the rivals are
//! what MVar is elsewhere: `put` waits until the place is empty and `take` until it is full, for any number of tasks. A
//! `Notify` for each of the two keeps a signal that comes before its waiter, so each change wakes one task and none is
//! missed.
//!
//! `tokio` has its own mutex around the value. `tokio-std`, a reference, has the standard library's, which tokio's
//! documentation advises for sections without an await.

use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;

use crate::contest::{Contest, Role};
use crate::sides::{Dapple, Side, Tokio};
use crate::work::{self, Work};

pub(crate) fn contest() -> Contest {
    let about = "two tasks exchange numbers through two places that are empty or full; per round trip";
    let entries = vec![
        work::entry::<Dapple, PingPong<OfDapple>>(Role::Ours),
        work::entry::<Tokio, PingPong<OfTokio>>(Role::Rival),
        work::entry_as::<Tokio, PingPong<OfStd>>("tokio-std", Role::Reference),
    ];
    work::timed("mvar", about, entries)
}

/// A place for one number, which is empty at first.
trait Place: Send + Sync + 'static {
    fn empty() -> Self;

    /// Fills the place once it is empty.
    fn put(&self, number: u64) -> impl Future<Output = ()> + Send;

    /// Empties the place once it is full.
    fn take(&self) -> impl Future<Output = u64> + Send;
}

struct PingPong<P>(PhantomData<P>);

impl<P: Place> Work for PingPong<P> {
    const BATCHES: usize = 500;
    const OPERATIONS: usize = 1000;

    async fn run<S: Side>(side: S, batches: usize) {
        let trips = (batches * Self::OPERATIONS) as u64;
        let places = Arc::new((P::empty(), P::empty()));
        let answers = side.spawn({
            let places = places.clone();
            async move {
                for _ in 0..trips {
                    let number = places.0.take().await;
                    places.1.put(number + 1).await;
                }
            }
        });
        let asks = side.spawn(async move {
            for number in 0..trips {
                places.0.put(number).await;
                assert_eq!(places.1.take().await, number + 1, "a number was lost, or came twice");
            }
        });
        S::join(asks).await;
        S::join(answers).await;
    }
}

struct OfDapple(dapple::sync::MVar<u64>);

impl Place for OfDapple {
    fn empty() -> Self {
        Self(dapple::sync::MVar::empty())
    }

    #[inline]
    async fn put(&self, number: u64) {
        self.0.put(number).await.expect("nobody cancels");
    }

    #[inline]
    async fn take(&self) -> u64 {
        self.0.take().await.expect("nobody cancels")
    }
}

#[derive(Default)]
struct OfTokio {
    value: tokio::sync::Mutex<Option<u64>>,
    filled: Notify,
    emptied: Notify,
}

impl Place for OfTokio {
    fn empty() -> Self {
        Self::default()
    }

    #[inline]
    async fn put(&self, number: u64) {
        loop {
            let mut value = self.value.lock().await;
            if value.is_none() {
                *value = Some(number);
                drop(value);
                return self.filled.notify_one();
            }
            drop(value);
            self.emptied.notified().await;
        }
    }

    #[inline]
    async fn take(&self) -> u64 {
        loop {
            let taken = self.value.lock().await.take();
            if let Some(number) = taken {
                self.emptied.notify_one();
                return number;
            }
            self.filled.notified().await;
        }
    }
}

#[derive(Default)]
struct OfStd {
    value: std::sync::Mutex<Option<u64>>,
    filled: Notify,
    emptied: Notify,
}

impl OfStd {
    /// Fills the place if it is empty.
    fn fill(&self, number: u64) -> bool {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = value.is_none();
        value.get_or_insert(number);
        is_empty
    }
}

impl Place for OfStd {
    fn empty() -> Self {
        Self::default()
    }

    #[inline]
    async fn put(&self, number: u64) {
        while !self.fill(number) {
            self.emptied.notified().await;
        }
        self.filled.notify_one();
    }

    #[inline]
    async fn take(&self) -> u64 {
        loop {
            let taken = self.value.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(number) = taken {
                self.emptied.notify_one();
                return number;
            }
            self.filled.notified().await;
        }
    }
}
