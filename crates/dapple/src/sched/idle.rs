//! Who sleeps, and whom to wake: no task waits while a worker sleeps, and no worker is woken for
//! nothing.
//!
//! A worker without work *searches* (looks at the other queues), then *sleeps*. Whoever makes
//! something runnable wakes a sleeper only if nobody is searching: a searcher will find it. A
//! searcher that finds something wakes the next one, as long as there is more.
//!
//! # Invariants
//!
//! * **SLEEP-OR-SEE**: a worker says that it sleeps, fences, and looks at all queues once more
//!   before it does. One who pushes fences and then looks whether anybody sleeps. So the one sees
//!   the push or the other the sleeper. Threads from outside fence for real. A worker, which is
//!   awake and will run what it pushes, fences lightly (see below).
//! * **ONE-WAKER**: a sleeper is woken by the one who took it off the list.
//! * **SEARCHES**: a worker counts as searching only while it is on its way to look at the queues. It gives the mark up
//!   (and is a LAST-SEARCHER, perhaps) before it runs anything: a runnable, the main color, or a foreign waker, none of
//!   which need return. A mark that is kept meanwhile would keep every other worker asleep.
//! * **LAST-SEARCHER**: pushes rely on a searcher, if there is one. So one that finds work and was
//!   the last looks whether there is more, and wakes another if there is.
//!
//! # The light fence
//!
//! A full fence on every push of a worker would cost more than the push. So what a worker pushes
//! may still be in its store buffer when it looks for sleepers and when the one who falls asleep
//! looks for work, and they miss each other: for some nanoseconds, and nothing is lost, since the
//! worker that pushed runs it itself, and its next push is seen. Should it be the last one, and the
//! worker stay in its poll, the monitor wakes somebody. (`membarrier` would make it exact, and was
//! tried: an interrupt of every core each time a worker falls asleep, 17% of `versus spawn`.)

use crate::prim::{AtomicUsize, Mutex, Ordering, fence_seq_cst, lock, push_fence};

const SLEEPER: usize = 1;
const SEARCHER: usize = 1 << 16;

pub(crate) struct Idle {
    /// How many sleep (low half) and search (high half).
    counts: AtomicUsize,
    /// The workers that sleep, by number; the last to fall asleep is the first to be woken.
    sleepers: Mutex<Vec<usize>>,
    workers: usize,
}

impl Idle {
    pub(crate) fn new(workers: usize) -> Idle {
        Idle { counts: AtomicUsize::new(0), sleepers: Mutex::new(Vec::with_capacity(workers)), workers }
    }

    /// Called after a push to a queue that others may take from: says whom to wake, if anybody.
    #[inline]
    pub(crate) fn whom_to_wake(&self) -> Option<usize> {
        if self.could_wake() { self.take_sleeper() } else { None }
    }

    /// Whether somebody sleeps, and nobody searches. To be asked after a push.
    #[inline]
    pub(crate) fn could_wake(&self) -> bool {
        push_fence(); // SLEEP-OR-SEE
        let counts = self.counts.load(Ordering::Relaxed);
        counts != 0 && counts < SEARCHER
    }

    /// As `whom_to_wake`, by a thread that is not a worker and cannot run anything itself.
    pub(crate) fn whom_to_wake_from_outside(&self) -> Option<usize> {
        fence_seq_cst(); // SLEEP-OR-SEE
        let counts = self.counts.load(Ordering::Relaxed);
        if counts >= SEARCHER || counts == 0 {
            return None;
        }
        self.take_sleeper()
    }

    /// Called after a push to the queue of a worker that others take from, too: says whom to wake, which is that
    /// worker if it sleeps.
    pub(crate) fn whom_to_wake_for(&self, worker: usize) -> Option<usize> {
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
        // It is woken as a searcher, so that nobody wakes another one before it has looked.
        self.counts.fetch_add(SEARCHER - SLEEPER, Ordering::SeqCst);
        Some(worker)
    }

    /// A worker without work asks whether it may search. No more than half of them do at a time.
    pub(crate) fn begin_search(&self) -> bool {
        let searching = self.counts.load(Ordering::Relaxed) / SEARCHER;
        if 2 * searching >= self.workers {
            return false;
        }
        self.counts.fetch_add(SEARCHER, Ordering::SeqCst);
        true
    }

    /// A searcher has found something. `true`: it was the last, and must look whether there is more,
    /// to wake another one.
    pub(crate) fn end_search(&self) -> bool {
        let before = self.counts.fetch_sub(SEARCHER, Ordering::SeqCst);
        fence_seq_cst();
        before / SEARCHER == 1 // LAST-SEARCHER
    }

    /// A worker says that it sleeps. It must look at all queues after this, before it does.
    pub(crate) fn fall_asleep(&self, worker: usize, was_searching: bool) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.push(worker);
        let change = if was_searching { SLEEPER.wrapping_sub(SEARCHER) } else { SLEEPER };
        self.counts.fetch_add(change, Ordering::SeqCst);
        drop(sleepers);
        fence_seq_cst(); // SLEEP-OR-SEE
    }

    /// A worker wakes by itself: it found something at the last look, or something else woke it.
    /// `true`: it is off the list. `false`: somebody has taken it off, as a searcher, and a token
    /// is on its way.
    pub(crate) fn wake_up(&self, worker: usize) -> bool {
        let mut sleepers = lock(&self.sleepers);
        let Some(index) = sleepers.iter().position(|sleeper| *sleeper == worker) else { return false };
        sleepers.remove(index);
        self.counts.fetch_sub(SLEEPER, Ordering::SeqCst);
        true
    }

    /// How many sleep.
    pub(crate) fn sleeping(&self) -> usize {
        self.counts.load(Ordering::SeqCst) % SEARCHER
    }
}
