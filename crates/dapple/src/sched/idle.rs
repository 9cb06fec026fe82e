//! Which workers sleep, and which one to wake: no task waits while a worker sleeps, and no worker is woken in vain.
//!
//! A worker without work *searches* (looks at the other queues), then *sleeps*. A thread that makes something
//! runnable wakes a sleeping worker only if no worker is searching: a searching worker will find it. A searching
//! worker that finds work wakes the next one, as long as there is more.
//!
//! # Invariants
//!
//! * **SLEEP-OR-SEE**: a worker announces its sleep, fences, and looks at all queues once more before it sleeps. A
//!   thread that pushes fences and then looks for sleeping workers. So the worker sees the push, or the pusher sees
//!   the sleeping worker. Threads that are not workers use a full fence. A worker, which is awake and will run the
//!   pushed runnable itself, uses a light fence (see below).
//! * **ONE-WAKER**: a sleeping worker is woken by the thread that took it off the list.
//! * **SEARCHES**: a worker counts as searching only while it is about to look at the queues. It gives up that mark
//!   (and may be the LAST-SEARCHER) before it runs anything: a runnable, the main color, or a foreign waker. None of
//!   these needs to return, and a mark that is kept meanwhile would keep every other worker asleep.
//! * **LAST-SEARCHER**: pushes rely on a searching worker, if there is one. So the last searching worker, when it
//!   finds work, looks for more, and wakes another worker if there is more.
//!
//! # The light fence
//!
//! A full fence on every push of a worker would cost more than the push. With the light fence, a pushed runnable may
//! still be in the store buffer when the pusher looks for sleeping workers and when a worker that falls asleep looks
//! for work. Then they miss each other for some nanoseconds. Nothing is lost: the worker that pushed runs the
//! runnable itself, and its next push is seen. If this was its last push and it stays in its poll, the monitor wakes
//! a worker. (`membarrier` would make it exact, and was tried: it interrupts every core each time a worker falls
//! asleep, which cost 17% of `versus spawn`.)

use crate::prim::{AtomicUsize, Mutex, Ordering, fence_seq_cst, lock, push_fence};

const SLEEPER: usize = 1;
const SEARCHER: usize = 1 << 16;

pub(crate) struct Idle {
    /// Number of sleeping workers (low half) and of searching workers (high half).
    counts: AtomicUsize,
    /// Numbers of the sleeping workers. The last to fall asleep is the first to be woken.
    sleepers: Mutex<Vec<usize>>,
    workers: usize,
}

impl Idle {
    pub(crate) fn new(workers: usize) -> Idle {
        Idle { counts: AtomicUsize::new(0), sleepers: Mutex::new(Vec::with_capacity(workers)), workers }
    }

    /// The worker to wake after a push to a queue that others may take from.
    #[inline]
    pub(crate) fn worker_to_wake(&self) -> Option<usize> {
        if self.could_wake() { self.take_sleeper() } else { None }
    }

    /// Whether a worker sleeps and none searches. Call it after a push.
    #[inline]
    pub(crate) fn could_wake(&self) -> bool {
        push_fence(); // SLEEP-OR-SEE
        let counts = self.counts.load(Ordering::Relaxed);
        counts != 0 && counts < SEARCHER
    }

    /// As `worker_to_wake`, for a thread that is not a worker and cannot run anything itself.
    pub(crate) fn worker_to_wake_from_outside(&self) -> Option<usize> {
        fence_seq_cst(); // SLEEP-OR-SEE
        let counts = self.counts.load(Ordering::Relaxed);
        if counts >= SEARCHER || counts == 0 {
            return None;
        }
        self.take_sleeper()
    }

    /// The worker to wake after a push to the queue of `worker` that others take from too: `worker` itself if it
    /// sleeps.
    pub(crate) fn worker_to_wake_for(&self, worker: usize) -> Option<usize> {
        fence_seq_cst(); // SLEEP-OR-SEE
        if self.sleeping() == 0 {
            return None;
        }
        let mut sleepers = lock(&self.sleepers);
        if let Some(index) = sleepers.iter().position(|sleeper| *sleeper == worker) {
            sleepers.remove(index); // ONE-WAKER
            self.counts.fetch_add(SEARCHER - SLEEPER, Ordering::SeqCst);
            return Some(worker);
        }
        drop(sleepers);
        self.take_sleeper()
    }

    #[cold]
    fn take_sleeper(&self) -> Option<usize> {
        let mut sleepers = lock(&self.sleepers);
        if self.counts.load(Ordering::Relaxed) >= SEARCHER {
            return None;
        }
        let worker = sleepers.pop()?; // ONE-WAKER
        // It is woken as a searching worker, so that no other is woken before it has looked.
        self.counts.fetch_add(SEARCHER - SLEEPER, Ordering::SeqCst);
        Some(worker)
    }

    /// Whether a worker without work may search. At most half of the workers search at a time.
    pub(crate) fn begin_search(&self) -> bool {
        let searching = self.counts.load(Ordering::Relaxed) / SEARCHER;
        if 2 * searching >= self.workers {
            return false;
        }
        self.counts.fetch_add(SEARCHER, Ordering::SeqCst);
        true
    }

    /// A searching worker has found work. `true`: it was the last, and must look for more work and wake another
    /// worker for it.
    pub(crate) fn end_search(&self) -> bool {
        let before = self.counts.fetch_sub(SEARCHER, Ordering::SeqCst);
        fence_seq_cst();
        before / SEARCHER == 1 // LAST-SEARCHER
    }

    /// Announces that a worker sleeps. The worker must look at all queues after this, before it sleeps.
    pub(crate) fn fall_asleep(&self, worker: usize, was_searching: bool) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.push(worker);
        let change = if was_searching { SLEEPER.wrapping_sub(SEARCHER) } else { SLEEPER };
        self.counts.fetch_add(change, Ordering::SeqCst);
        drop(sleepers);
        fence_seq_cst(); // SLEEP-OR-SEE
    }

    /// A worker wakes up by itself: it found work at the last look, or an event woke it. `true`: it is off the list.
    /// `false`: another thread has taken it off, as a searching worker, and a token is on its way.
    pub(crate) fn wake_up(&self, worker: usize) -> bool {
        let mut sleepers = lock(&self.sleepers);
        let Some(index) = sleepers.iter().position(|sleeper| *sleeper == worker) else { return false };
        sleepers.remove(index);
        self.counts.fetch_sub(SLEEPER, Ordering::SeqCst);
        true
    }

    /// Number of sleeping workers.
    pub(crate) fn sleeping(&self) -> usize {
        self.counts.load(Ordering::SeqCst) % SEARCHER
    }
}
