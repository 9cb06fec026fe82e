//! Futures that look up a value, and compute it if there is none.
//!
//! ```text
//! there is a value          --> clone it; nothing else is written
//! another caller computes   --> wait for its computation, then look again
//! neither                   --> compute in own polls; insert the value in the poll in which it is ready
//! ```
//!
//! A computing caller that is dropped, or panics, drops first the computation and then its turn. Then all
//! waiters look again, and the first one that is polled computes.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem::replace;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::computation::{Circle, ComputeWait};
use super::store::{ComputeLookup, ComputeTurn, MapStore};
use crate::Cancelled;
use crate::cancel::wait::Wait;
use crate::world::pause;

/// Common part of both futures.
struct Fill<'a, K, V, S, F, Fut> {
    store: &'a MapStore<K, V, S>,
    place: &'static Location<'static>,
    wait: Wait,
    stage: FillStage<'a, K, V, S, F, Fut>,
}

enum FillStage<'a, K, V, S, F, Fut> {
    Looks {
        key: K,
        compute: F,
        /// Another caller computes. Boxed, as is the computation: most lookups find a value at once.
        waiting: Option<Box<ComputeWait>>,
    },
    Computes(Computation<'a, K, V, S, Fut>),
    Done,
}

/// Fields in the order in which they must be dropped.
struct Computation<'a, K, V, S, Fut> {
    future: Pin<Box<Fut>>,
    turn: ComputeTurn<'a, K, V, S>,
}

impl<'a, K, V, S, F, Fut> Fill<'a, K, V, S, F, Fut> {
    #[inline]
    fn new(store: &'a MapStore<K, V, S>, key: K, compute: F, place: &'static Location<'static>) -> Self {
        Fill { store, place, wait: Wait::default(), stage: FillStage::Looks { key, compute, waiting: None } }
    }

    fn stage(&self) -> &'static str {
        match &self.stage {
            FillStage::Looks { waiting: Some(_), .. } => "waits",
            FillStage::Looks { .. } => "has not begun",
            FillStage::Computes(_) => "computes",
            FillStage::Done => "is done",
        }
    }
}

impl<K, V, S, F, Fut> Fill<'_, K, V, S, F, Fut>
where
    K: Hash + Eq,
    V: Clone,
    S: BuildHasher,
    F: FnOnce() -> Fut,
    Fut: Future,
{
    /// `settle` turns the output of the computation into a result.
    #[inline]
    fn poll<E: From<Cancelled>>(
        &mut self,
        cx: &mut Context<'_>,
        settle: impl FnOnce(Fut::Output) -> Result<V, E>,
    ) -> Poll<Result<V, E>> {
        if let FillStage::Looks { key, waiting, .. } = &mut self.stage {
            if ready!(self.wait.begin(cx)).is_err() {
                *waiting = None;
                return Poll::Ready(Err(Cancelled.into()));
            }
            let hash = self.store.hash(key);
            if let Some(value) = self.store.read(hash, key, |entry| entry.value.clone()) {
                *waiting = None;
                self.wait.end();
                return Poll::Ready(Ok(value));
            }
            return self.poll_on(hash, cx, settle);
        }
        self.poll_computation(cx, settle)
    }

    /// Goes on after a lookup that found no value.
    #[cold]
    fn poll_on<E: From<Cancelled>>(
        &mut self,
        hash: u64,
        cx: &mut Context<'_>,
        settle: impl FnOnce(Fut::Output) -> Result<V, E>,
    ) -> Poll<Result<V, E>> {
        loop {
            pause();
            let FillStage::Looks { key, waiting, .. } = &mut self.stage else { unreachable!("it looks") };
            if let Some(other) = waiting {
                let waited = ready!(other.poll(cx));
                *waiting = None;
                if let Some(value) = self.store.read(hash, key, |entry| entry.value.clone()) {
                    self.wait.end();
                    return Poll::Ready(Ok(value));
                }
                // A cancelled caller starts no computation. EXACT
                if waited.is_err() || self.wait.is_cancelled() {
                    self.wait.end();
                    return Poll::Ready(Err(Cancelled.into()));
                }
            }
            let FillStage::Looks { key, compute, .. } = replace(&mut self.stage, FillStage::Done) else {
                unreachable!("it looks");
            };
            match self.store.look_or_begin(hash, key, self.place) {
                ComputeLookup::Nothing(turn) => {
                    let future = turn.pending.clone().polled(|| Box::pin(compute()));
                    self.stage = FillStage::Computes(Computation { future, turn });
                    return self.poll_computation(cx, settle);
                }
                ComputeLookup::Computed(key, pending, word) => match ComputeWait::new(pending, word) {
                    Ok(waiting) => {
                        self.stage = FillStage::Looks { key, compute, waiting: Some(Box::new(waiting)) };
                    }
                    Err(circle) => self.refuse(&circle),
                },
                ComputeLookup::Value(key) => {
                    let value = self.store.read(hash, &key, |entry| entry.value.clone());
                    self.stage = FillStage::Looks { key, compute, waiting: None };
                    if let Some(value) = value {
                        self.wait.end();
                        return Poll::Ready(Ok(value));
                    }
                }
            }
        }
    }

    fn poll_computation<E>(
        &mut self,
        cx: &mut Context<'_>,
        settle: impl FnOnce(Fut::Output) -> Result<V, E>,
    ) -> Poll<Result<V, E>> {
        let FillStage::Computes(mut computation) = replace(&mut self.stage, FillStage::Done) else {
            panic!("{}: polled again after it was done", self.store.label);
        };
        // A panic drops the computation, and the turn with it.
        let polled = computation.turn.pending.clone().polled(|| computation.future.as_mut().poll(cx));
        let Poll::Ready(output) = polled else {
            self.stage = FillStage::Computes(computation);
            return Poll::Pending;
        };
        let Computation { future, turn } = computation;
        let (store, hash) = (self.store, turn.hash);
        let result = match settle(output) {
            Ok(value) => {
                let copy = value.clone();
                Ok(match turn.finish(value) {
                    Ok(()) => copy,
                    // Another caller has inserted a value meanwhile; all callers get that one.
                    Err((key, _value)) => store.read(hash, &key, |entry| entry.value.clone()).unwrap_or(copy),
                })
            }
            Err(error) => {
                drop(future);
                drop(turn);
                Err(error)
            }
        };
        self.wait.end();
        Poll::Ready(result)
    }

    #[cold]
    fn refuse(&self, circle: &Circle) -> ! {
        let (map, place, Circle { own, other }) = (&self.store.label, self.place, circle);
        match other {
            None => panic!(
                "{map}: the computation started at {own} asks, at {place}, for the key that it computes: it would wait \
                 for itself"
            ),
            Some(other) => panic!(
                "{map}: the computation started at {own} asks, at {place}, for a key whose computation, started at \
                 {other}, waits for it: they would wait for each other"
            ),
        }
    }
}

macro_rules! impl_future {
    ($(#[$doc:meta])* $future:ident) => {
        $(#[$doc])*
        #[must_use = "a future does nothing unless it is awaited"]
        pub struct $future<'a, K, V, S, F, Fut>(Fill<'a, K, V, S, F, Fut>);

        impl<'a, K, V, S, F, Fut> $future<'a, K, V, S, F, Fut> {
            #[inline]
            pub(super) fn new(
                store: &'a MapStore<K, V, S>,
                key: K,
                compute: F,
                place: &'static Location<'static>,
            ) -> Self {
                Self(Fill::new(store, key, compute, place))
            }
        }

        // The key and the closure are moved when used, and never pinned.
        impl<K, V, S, F, Fut> Unpin for $future<'_, K, V, S, F, Fut> {}

        impl<K, V, S, F, Fut> fmt::Debug for $future<'_, K, V, S, F, Fut> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($future)).field(&format_args!("{}", self.0.stage())).finish()
            }
        }
    };
}

impl_future!(
    /// Future of [`SharedMap::get_or_insert_with`](crate::SharedMap::get_or_insert_with).
    GetOrInsert
);
impl_future!(
    /// Future of [`SharedMap::get_or_try_insert_with`](crate::SharedMap::get_or_try_insert_with).
    GetOrTryInsert
);

impl<K, V, S, F, Fut> Future for GetOrInsert<'_, K, V, S, F, Fut>
where
    K: Hash + Eq,
    V: Clone,
    S: BuildHasher,
    F: FnOnce() -> Fut,
    Fut: Future<Output = V>,
{
    type Output = Result<V, Cancelled>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll(cx, Ok)
    }
}

impl<K, V, S, E, F, Fut> Future for GetOrTryInsert<'_, K, V, S, F, Fut>
where
    K: Hash + Eq,
    V: Clone,
    S: BuildHasher,
    E: From<Cancelled>,
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<V, E>>,
{
    type Output = Result<V, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll(cx, |result| result)
    }
}
