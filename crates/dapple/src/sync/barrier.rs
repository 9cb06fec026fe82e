//! A barrier: a number of tasks that wait for each other.
//!
//! # Invariants
//!
//! * **ROUND**: `arrived` counts the callers that wait in the round. The last caller to arrive begins the next round, under
//!   the lock, and wakes all waiters. A waiter whose round is over goes on; a waiter that leaves before is not counted any more.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::prim::{Mutex, lock};
use crate::waitlist::wait::{GuardedWaker, Wait, Wakers, block_on};
use crate::waitlist::wait_queue::WaitQueue;

/// Meeting point for a number of tasks: each waits until all have arrived, then all go on. It can be used again and
/// again.
///
/// # Examples
///
/// ```
/// use dapple::sync::Barrier;
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let barrier = Arc::new(Barrier::new(3));
///     let tasks: Vec<_> = (0..3)
///         .map(|_| {
///             let barrier = barrier.clone();
///             dapple::spawn(async move { barrier.wait().await.unwrap().is_leader() })
///         })
///         .collect();
///     let mut leaders = 0;
///     for task in tasks {
///         leaders += usize::from(task.await.unwrap());
///     }
///     assert_eq!(leaders, 1);
/// });
/// ```
pub struct Barrier {
    size: usize,
    inside: Mutex<BarrierRound>,
}

#[derive(Default)]
struct BarrierRound {
    round: u64,
    arrived: usize,
    queue: WaitQueue,
}

impl Barrier {
    /// Makes a barrier for `size` tasks. With 0 or 1 each wait ends at once, and leads its round.
    #[must_use]
    pub fn new(size: usize) -> Barrier {
        Barrier { size: size.max(1), inside: Mutex::default() }
    }

    /// Waits until `size` callers have arrived in this round. The last one to arrive leads the round.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: this caller does not count.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: this caller does not count, unless all had come.
    /// *Scope cancelled*: returns [`Cancelled`], and this caller does not count; or `Ok`, if all had come when the wait was
    /// polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::{Barrier, BarrierPass};
    ///
    /// dapple::run(async {
    ///     let alone = Barrier::new(1);
    ///     let pass: BarrierPass = alone.wait().await.unwrap();
    ///     assert!(pass.is_leader()); // one of each round is: here it is alone
    /// });
    /// ```
    pub fn wait(&self) -> BarrierWait<'_> {
        BarrierWait { barrier: self, place: None, wait: Wait::default() }
    }

    /// As [`wait`](Self::wait), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()): this caller does not count.
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn wait_blocking(&self) -> Result<BarrierPass, Cancelled> {
        block_on("Barrier::wait_blocking", self.wait())
    }

    /// Takes a waiter out of the queue. One whose round is not over is not counted any more. ROUND
    fn leave(&self, (key, round): (usize, u64)) -> bool {
        let mut inside = lock(&self.inside);
        let is_over = inside.round != round;
        inside.arrived -= usize::from(!is_over);
        let waker = inside.queue.leave(key);
        drop(inside);
        drop(waker);
        is_over
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrived = lock(&self.inside).arrived;
        f.debug_struct("Barrier").field("size", &self.size).field("arrived", &arrived).finish()
    }
}

/// Future of [`Barrier::wait`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct BarrierWait<'a> {
    barrier: &'a Barrier,
    /// Its key in the queue, and its round.
    place: Option<(usize, u64)>,
    wait: Wait,
}

impl Future for BarrierWait<'_> {
    type Output = Result<BarrierPass, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Err(cancelled) = ready!(this.wait.begin(cx)) {
            this.place.take().map(|place| this.barrier.leave(place));
            return Poll::Ready(Err(cancelled));
        }
        let waker = GuardedWaker::of(cx.waker());
        let mut inside = lock(&this.barrier.inside);
        let Some((key, round)) = this.place else {
            inside.arrived += 1;
            if inside.arrived == this.barrier.size {
                inside.arrived = 0;
                inside.round += 1;
                let left = inside.queue.len();
                drop(inside);
                this.barrier.wake(left);
                this.wait.end();
                return Poll::Ready(Ok(BarrierPass { leads: true }));
            }
            this.place = Some((inside.queue.join(1, Some(waker)), inside.round));
            drop(inside);
            this.wait.rest(cx, &"others at a barrier");
            return Poll::Pending;
        };
        if inside.round == round && !this.wait.is_cancelled() {
            let old = inside.queue.sleep(key, waker);
            drop(inside);
            drop(old);
            this.wait.rest(cx, &"others at a barrier");
            return Poll::Pending;
        }
        drop(inside);
        this.place = None;
        let is_over = this.barrier.leave((key, round));
        this.wait.end();
        Poll::Ready(if is_over { Ok(BarrierPass { leads: false }) } else { Err(Cancelled) })
    }
}

impl Barrier {
    /// Wakes those that waited when the round was over. Others that came since may be woken, and sleep again.
    fn wake(&self, mut left: usize) {
        let mut wakers = Wakers::default();
        while left > 0 {
            let mut inside = lock(&self.inside);
            while left > 0 && !wakers.is_full() {
                left = if inside.queue.wake_next(&mut wakers) { left - 1 } else { 0 };
            }
            drop(inside);
            wakers.wake_all();
        }
    }
}

impl Drop for BarrierWait<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.barrier.leave(place);
        }
    }
}

impl fmt::Debug for BarrierWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWait").field("waiting", &self.place.is_some()).finish_non_exhaustive()
    }
}

/// Proof that all tasks of a round have arrived at a [`Barrier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierPass {
    leads: bool,
}

impl BarrierPass {
    /// Whether this caller was the last one to arrive. In each round one is: it can do what has to be done once.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads
    }
}
