//! A worker: picks what to run next, from its own queues, the shared line, or other workers.
//!
//! A worker is a value; a thread *drives* it. It owns a ring (`ring`), a slot for what should run
//! next (`next`), and a store of memory, and sleeps in the driver of its post (`post`). In the order of picking:
//!
//! 1. every so often it *looks around*: what has happened outside, which timers are due, and what is
//!    in the shared line, so that none of these starves; whoever puts something in line by its priority
//!    (`ranks`) makes it look at every pick, for as long as there is any;
//! 2. the slot, a bounded number of times in a row: what a task wakes finds its data in the cache;
//! 3. the ring;
//! 4. the shared line, a batch at a time;
//! 5. another worker's ring, half of it, or its slot if its owner seems stuck.
//!
//! A worker of a runtime with a policy takes what the policy says (`policy_queues`), and its slot and its ring are
//! closed.
//!
//! ```text
//! queue  its slot and its ring
//! pick   its own, and the shared line; steal: those of others
//! pace   how long a runnable takes, and what is worth moving
//! sleep  in the driver of its post
//! ```

mod pace;
mod pick;
mod queue;
mod sleep;
mod steal;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::ptr::null_mut;
use std::sync::Arc;

use super::Sched;
use super::ranks::Ranks;
use super::run_queue::{CAPACITY, RunQueue};
use super::stall_reports::CurrentTaskView;
use crate::context::ThreadContext;
use crate::driver::Driver;
use crate::driver::clock::Time;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::task::Priority;
use crate::task::header::{Header, Runnable};
use crate::task::runtime_shared::OwnCount;
use crate::task::slab::LocalSlab;
use crate::world;

/// How many picks may pass before the worker looks around, and how long, in nanoseconds, if they take
/// long.
const LOOK_EVERY: u32 = 64;
const LOOK_AFTER: u64 = 50_000;
/// From this length on the shared line, whose head is older than what is in the rings, goes first.
const SHARED_FIRST: usize = 2 * CAPACITY;
/// How long, in nanoseconds, the kernel is not asked for events while there is something to run, by the
/// priority of events. What nobody asks about is not later than the first of them.
const EVENTS_AFTER: [u64; Priority::ALL.len()] = [1_000_000, 100_000, 25_000, 0];
/// How often a searcher looks out for something to come in before it falls asleep, and how long it
/// pauses in between: together about as long as falling asleep takes.
const PATIENCE: u32 = if cfg!(miri) { 1 } else { 32 };
const PAUSE: u32 = 4;
/// How long what is in a ring must be going to take, in nanoseconds, for another to be woken for it: a
/// few times as long as waking it takes. If it turns out that whoever is woken goes to sleep again
/// soon, it takes more, up to what nobody should have to wait.
pub(super) const WORTH_WAKING: u64 = 20_000;
const SOON: u64 = 300_000;
const NO_WAITING: u64 = 1_000_000;
/// How long a runnable must take, in nanoseconds, to be worth moving to another core: as long as the
/// cache misses of that. What does not fit into the ring is moved all the same.
const WORTH_MOVING: u64 = 100;
/// What lies for ever in the slot of a worker with a policy, so that nothing else does.
const CLOSED_SLOT: *mut Header = std::ptr::without_provenance_mut(1);

/// Aligned so that what workers write often does not share a cache line.
#[repr(align(128))]
pub(crate) struct Worker {
    number: usize,
    /// Which post it holds, or holds no more. Its own, unless it is a spare.
    post: AtomicUsize,
    ring: RunQueue<Header>,
    next: AtomicPtr<Header>,
    /// It sleeps, or is about to.
    is_asleep: AtomicBool,
    /// It was woken for what is in the ring of another.
    announced: AtomicBool,
    /// How many more picks until it looks around.
    until_look: AtomicU32,
    /// How long a runnable takes here on the average, in nanoseconds; at least `WORTH_MOVING` if most
    /// come back, and so would be moved once to be run many times.
    pace: AtomicU64,
    /// What it runs would only get into each other's way elsewhere.
    stays_together: AtomicBool,
    /// How long a runnable must take to be worth moving: `WORTH_MOVING`, or what a simulation says.
    worth_moving: u64,
    /// One of `EVENTS_AFTER`.
    events_after: u64,
    pub(crate) slab: LocalSlab,
    pub(super) counts: WorkerCounts,
    pub(super) window: CurrentTaskView,
    own: WorkerPrivate,
}

/// What a worker counts of itself.
#[derive(Default)]
pub(super) struct WorkerCounts {
    pub(super) runs: OwnCount,
    /// Turns of the main color.
    pub(super) main_turns: OwnCount,
    pub(super) steals: OwnCount,
    pub(super) stolen: OwnCount,
    pub(super) sleeps: OwnCount,
    pub(super) overflows: OwnCount,
}

/// What only the thread that drives the worker touches.
struct WorkerPrivate {
    streak: Cell<u32>,
    random: Cell<u64>,
    /// Runnables that came back since the pace was last looked at.
    came_back: Cell<u64>,
    /// How often, since then, somebody found a state in use, or others in line for it.
    contended: Cell<u64>,
    /// When the pace was last looked at, after so many runs.
    paced: Cell<(Time, u64)>,
    /// When the kernel was last asked for events.
    asked: Cell<Time>,
    /// When it woke up, if it was for what is in the ring of another.
    helps_since: Cell<Option<Time>>,
    /// When, and after how many runs, the shared line last got one ahead.
    shared: Cell<(Time, u64)>,
    /// After how many runs all that came from the shared line, in the last trade, has been taken up, or more.
    older_until: Cell<u64>,
    /// Where in the ring that ends which was taken from the shared line, or from another worker.
    older_end: Cell<usize>,
    /// How much there must be in a ring for it to steal from it at once.
    greed: Cell<usize>,
    /// How often it looks out for something before it falls asleep.
    patience: Cell<u32>,
    /// How often it did so in vain.
    tried: Cell<u32>,
    searching: Cell<bool>,
    /// How many picks by priority, or by a policy, until it looks around; how many there were.
    until_around: Cell<u32>,
    picks: Cell<u32>,
}

// SAFETY: `own` and the owner's side of the rest are used only by the thread that drives the
// worker, of which `Sched::drive` lets there be one.
unsafe impl Sync for Worker {}

impl Worker {
    pub(super) fn new(number: usize, seed: u64, is_managed: bool, events: Priority) -> Worker {
        let seed = seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Worker {
            number,
            post: AtomicUsize::new(number),
            ring: if is_managed { RunQueue::closed() } else { RunQueue::new() },
            next: AtomicPtr::new(if is_managed { CLOSED_SLOT } else { null_mut() }),
            is_asleep: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            until_look: AtomicU32::new(0),
            pace: AtomicU64::new(WORTH_WAKING),
            stays_together: AtomicBool::new(false),
            worth_moving: world::with(|world| world.dice.threshold(WORTH_MOVING)).unwrap_or(WORTH_MOVING),
            events_after: EVENTS_AFTER[events as usize],
            slab: LocalSlab::default(),
            counts: WorkerCounts::default(),
            window: CurrentTaskView::default(),
            own: WorkerPrivate {
                streak: Cell::new(0),
                random: Cell::new(seed | 1),
                came_back: Cell::new(0),
                contended: Cell::new(0),
                paced: Cell::new((Time::now(), 0)),
                asked: Cell::new(Time::now()),
                helps_since: Cell::new(None),
                shared: Cell::new((Time::now(), 0)),
                older_until: Cell::new(0),
                older_end: Cell::new(0),
                greed: Cell::new(1),
                patience: Cell::new(PATIENCE),
                tried: Cell::new(0),
                searching: Cell::new(false),
                until_around: Cell::new(0),
                picks: Cell::new(0),
            },
        }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    #[inline]
    pub(super) fn post(&self) -> usize {
        self.post.load(Ordering::Relaxed)
    }

    /// For a spare that rests. ONE-THREAD in `post`
    pub(super) fn set_post(&self, post: usize) {
        self.post.store(post, Ordering::Relaxed);
    }

    /// The driver of its post.
    #[inline]
    pub(super) fn driver<'a>(&self, sched: &'a Sched) -> &'a Arc<Driver> {
        &sched.posts[self.post()].driver
    }

    /// Takes its post back, if somebody stood in for it. For the owner.
    fn mind_post(&self, sched: &Sched) {
        if self.number < sched.posts.len() && !self.holds_post(sched) {
            sched.take_post_back(self);
        }
    }

    /// Looks around, if it is time to, and at what is in line by priority or policy. If it does not pick, the
    /// worker does as always.
    ///
    /// How often that is depends on the clock, so `versus/instructions` leaves it out, by its name; that is why it stands
    /// in the file of the type.
    #[cold]
    #[inline(never)]
    fn look(&self, sched: &Sched) -> ControlFlow<Option<Runnable>> {
        if sched.managed.is_none() && !sched.home.has_ranks() {
            return match self.look_around(sched) {
                None => ControlFlow::Continue(()),
                shared => ControlFlow::Break(shared),
            };
        }
        match self.own.until_around.get() {
            0 => {
                let shared = self.look_around(sched);
                self.own.until_around.set(self.until_look.load(Ordering::Relaxed));
                self.until_look.store(0, Ordering::Relaxed); // it goes on looking
                if shared.is_some() {
                    return ControlFlow::Break(shared);
                }
            }
            left => self.own.until_around.set(left - 1),
        }
        let managed = sched.managed.as_ref();
        if let Some(managed) = managed.filter(|managed| managed.weighs()) {
            return ControlFlow::Break(managed.pick(sched, self.post(), self.post()));
        }
        let picks = self.own.picks.get().wrapping_add(1);
        self.own.picks.set(picks);
        for priority in Ranks::order(picks) {
            if priority != Priority::Normal {
                if let Some(runnable) = sched.ranks.pop(sched, priority) {
                    return ControlFlow::Break(Some(runnable));
                }
                continue;
            }
            // What has a priority after all, and what has none, in turns.
            let ranked = || sched.ranks.pop(sched, Priority::Normal);
            if picks.is_multiple_of(2)
                && let Some(runnable) = ranked()
            {
                return ControlFlow::Break(Some(runnable));
            }
            let ordinary = match managed {
                None if self.has_ordinary(sched) => return ControlFlow::Continue(()),
                // Where there is always something urgent, nobody searches.
                None => Ranks::is_aged(picks).then(|| self.steal(sched, 1)).flatten(),
                Some(managed) => managed.pick(sched, self.post(), self.post()),
            };
            if let Some(runnable) = ordinary.or_else(ranked) {
                return ControlFlow::Break(Some(runnable));
            }
        }
        if managed.is_some() { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
    }

    /// What tells whether it gets on: what it has run so far, and what waits in its slot.
    pub(super) fn progress(&self) -> (u64, *const Header) {
        (self.counts.runs.get() + self.counts.main_turns.get(), self.next.load(Ordering::Relaxed))
    }

    /// Runs something, after having found it.
    #[inline]
    pub(super) fn run(&self, sched: &Sched, here: &ThreadContext, runnable: Runnable) {
        self.found(sched);
        self.counts.runs.add_one();
        if let Some(again) = runnable.run(here) {
            self.own.came_back.set(self.own.came_back.get() + 1);
            self.enqueue_back(sched, again, self.next.load(Ordering::Relaxed).is_null());
        }
    }

    /// Counts as searching no more.
    #[inline]
    pub(super) fn found(&self, sched: &Sched) {
        if self.own.searching.get() {
            self.own.searching.set(false);
            if sched.idle.end_search() {
                sched.wake_for_more();
            }
        }
    }

    /// Gives up what it has, when its thread leaves.
    pub(super) fn retire(&self, sched: &Sched) {
        if self.own.searching.replace(false) {
            sched.idle.end_search();
        }
        self.hand_over(sched);
    }
}
