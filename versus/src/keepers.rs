//! One small state that many tasks change, and the ways to guard it, on Dapple and elsewhere.
//!
//! Every keeper runs the same code on the state, [`State::change`] and [`State::look`], and differs in how a
//! task comes to it. Locks that block are taken inside of tokio's tasks, as tokio's documentation advises for
//! sections without an await; an actor is a task that owns the state, is asked over a channel and answers over
//! another. The state is a sum, which shows whether a change was lost.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use dapple::{Color, ColorCell, Shared};
use tokio::sync::{mpsc, oneshot};

use crate::sides::Side;
use crate::spin;

/// The shared state.
#[derive(Clone, Copy)]
pub(crate) struct State {
    sum: u64,
    trace: u64,
}

impl State {
    const fn new() -> Self {
        Self { sum: 0, trace: 0 }
    }

    /// A critical section of `steps` steps (with 0 steps it does almost nothing). Returns the new sum.
    #[inline]
    fn change(&mut self, key: u64, steps: u64) -> u64 {
        if steps > 0 {
            // From the last one's, so that a processor that looks ahead cannot begin with it before.
            self.trace = spin::work(steps, key ^ self.trace);
        }
        self.sum = self.sum.wrapping_add(key);
        self.sum
    }

    /// The same without changing anything.
    #[inline]
    fn look(&self, key: u64, steps: u64) -> u64 {
        if steps > 0 {
            black_box(spin::work(steps, key ^ self.trace));
        }
        self.sum
    }
}

/// Something through which tasks change the state.
pub(crate) trait Keeper: Clone + Send + Sync + 'static {
    /// Keeps a new state, for tasks of this side.
    fn keep<S: Side>(side: &S) -> Self;

    /// [`State::change`].
    fn change(&self, key: u64, steps: u64) -> impl Future<Output = u64> + Send;
}

/// Something through which tasks look at the state, too.
pub(crate) trait Reader: Keeper {
    /// [`State::look`].
    fn look(&self, key: u64, steps: u64) -> impl Future<Output = u64> + Send;
}

/// Dapple's own.
#[derive(Clone)]
pub(crate) struct OfDapple(Shared<State>);

impl Keeper for OfDapple {
    fn keep<S: Side>(_: &S) -> Self {
        Self(Shared::new(State::new()))
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        self.0.write(|state| state.change(key, steps)).await.expect("nobody cancels")
    }
}

impl Reader for OfDapple {
    #[inline]
    async fn look(&self, key: u64, steps: u64) -> u64 {
        self.0.read(|state| state.look(key, steps)).await.expect("nobody cancels")
    }
}

/// No lock at all: all tasks have the color of the state.
#[derive(Clone)]
pub(crate) struct OfColor(Arc<ColorCell<State>>);

impl Keeper for OfColor {
    fn keep<S: Side>(_: &S) -> Self {
        Self(Arc::new(ColorCell::in_color(&Color::current(), State::new())))
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        self.0.with(|state| state.change(key, steps))
    }
}

/// A mutex that blocks: the standard library's.
#[derive(Clone)]
pub(crate) struct StdMutex(Arc<Mutex<State>>);

impl Keeper for StdMutex {
    fn keep<S: Side>(_: &S) -> Self {
        Self(Arc::new(Mutex::new(State::new())))
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).change(key, steps)
    }
}

/// A mutex that blocks: parking_lot's.
#[derive(Clone)]
pub(crate) struct ParkingLotMutex(Arc<parking_lot::Mutex<State>>);

impl Keeper for ParkingLotMutex {
    fn keep<S: Side>(_: &S) -> Self {
        Self(Arc::new(parking_lot::Mutex::new(State::new())))
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        self.0.lock().change(key, steps)
    }
}

/// A mutex that tasks wait for in line: tokio's.
#[derive(Clone)]
pub(crate) struct TokioMutex(Arc<tokio::sync::Mutex<State>>);

impl Keeper for TokioMutex {
    fn keep<S: Side>(_: &S) -> Self {
        Self(Arc::new(tokio::sync::Mutex::new(State::new())))
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        self.0.lock().await.change(key, steps)
    }
}

/// A task of tokio that owns the state.
#[derive(Clone)]
pub(crate) struct Actor(mpsc::UnboundedSender<Question>);

/// A request to the actor.
struct Question {
    key: u64,
    steps: u64,
    answer: oneshot::Sender<u64>,
}

impl Keeper for Actor {
    fn keep<S: Side>(side: &S) -> Self {
        let (sender, mut questions) = mpsc::unbounded_channel();
        // Ends when all that can ask are gone.
        S::detach(side.spawn(async move {
            let mut state = State::new();
            while let Some(Question { key, steps, answer }) = questions.recv().await {
                // The requester waits for this answer.
                let _ = answer.send(state.change(key, steps));
            }
        }));
        Self(sender)
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        let (answer, answered) = oneshot::channel();
        assert!(self.0.send(Question { key, steps, answer }).is_ok(), "an actor that lives");
        answered.await.expect("an answer")
    }
}

/// A lock for readers and writers that blocks: parking_lot's.
#[derive(Clone)]
pub(crate) struct ParkingLotRwLock(Arc<parking_lot::RwLock<State>>);

impl Keeper for ParkingLotRwLock {
    fn keep<S: Side>(_: &S) -> Self {
        Self(Arc::new(parking_lot::RwLock::new(State::new())))
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        self.0.write().change(key, steps)
    }
}

impl Reader for ParkingLotRwLock {
    #[inline]
    async fn look(&self, key: u64, steps: u64) -> u64 {
        self.0.read().look(key, steps)
    }
}

/// A lock for readers and writers that tasks wait for in line: tokio's.
#[derive(Clone)]
pub(crate) struct TokioRwLock(Arc<tokio::sync::RwLock<State>>);

impl Keeper for TokioRwLock {
    fn keep<S: Side>(_: &S) -> Self {
        Self(Arc::new(tokio::sync::RwLock::new(State::new())))
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        self.0.write().await.change(key, steps)
    }
}

impl Reader for TokioRwLock {
    #[inline]
    async fn look(&self, key: u64, steps: u64) -> u64 {
        self.0.read().await.look(key, steps)
    }
}

/// Readers use the current state; a writer copies it, changes the copy and swaps the copy in.
#[derive(Clone)]
pub(crate) struct Swapped(Arc<Swap>);

pub(crate) struct Swap {
    current: ArcSwap<State>,
    /// Else what one writer has put there would be lost to another.
    writers: parking_lot::Mutex<()>,
}

impl Keeper for Swapped {
    fn keep<S: Side>(_: &S) -> Self {
        let current = ArcSwap::from_pointee(State::new());
        Self(Arc::new(Swap { current, writers: parking_lot::Mutex::new(()) }))
    }

    #[inline]
    async fn change(&self, key: u64, steps: u64) -> u64 {
        let _alone = self.0.writers.lock();
        let mut state = **self.0.current.load();
        let sum = state.change(key, steps);
        self.0.current.store(Arc::new(state));
        sum
    }
}

impl Reader for Swapped {
    #[inline]
    async fn look(&self, key: u64, steps: u64) -> u64 {
        self.0.current.load().look(key, steps)
    }
}
