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
//! A worker of a runtime with a policy takes what the policy says (`managed`), and its slot and its ring are
//! closed.
//!
//! # Invariants
//!
//! * **OWNER-PUTS**: only the owner puts something into `next`, and only when it is empty; anybody
//!   takes from it, by a swap.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

use super::Sched;
use super::ranks::Ranks;
use super::run_queue::{CAPACITY, RunQueue};
use super::stall_reports::CurrentTaskView;
use crate::driver::Driver;
use crate::driver::clock::Time;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::task::Priority;
use crate::task::context::ThreadContext;
use crate::task::header::{Header, QueuePosition, Runnable};
use crate::task::runtime_shared::OwnCount;
use crate::task::slab::LocalSlab;
use crate::world;

/// How many picks may pass before the worker looks around, and how long, in nanoseconds, if they take
/// long.
const LOOK_EVERY: u32 = 64;
const LOOK_AFTER: u64 = 50_000;
/// How many picks may pass before the shared line gets one ahead of the worker's own, and how long, in
/// nanoseconds.
const SHARED_EVERY: u64 = 64;
const SHARED_AFTER: u64 = 1_000_000;
/// Up to this length one at a time is enough.
const SHARED_SHORT: usize = 64;
/// From this length on the shared line, whose head is older than what is in the rings, goes first.
const SHARED_FIRST: usize = 2 * CAPACITY;
/// How long, in nanoseconds, the kernel is not asked for events while there is something to run, by the
/// priority of events. What nobody asks about is not later than the first of them.
const EVENTS_AFTER: [u64; Priority::ALL.len()] = [1_000_000, 100_000, 25_000, 0];
/// How often in a row the slot is served ahead of the ring.
const STREAK: u32 = 24;
/// How long a searcher watches a slot before it takes it from a worker that seems stuck.
const WATCH: u32 = if cfg!(miri) { 2 } else { 100 };

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
/// How long a worker waits for who stood in for it to leave its driver.
const A_MOMENT: Duration = Duration::from_micros(20);
/// How long a runnable must take, in nanoseconds, to be worth moving to another core: as long as the
/// cache misses of that. What does not fit into the ring is moved all the same.
const WORTH_MOVING: u64 = 100;

/// What lies for ever in the slot of a worker with a policy, so that nothing else does.
const CLOSED_SLOT: *mut Header = std::ptr::without_provenance_mut(1);

/// Of how many workers at the most what contends for a state stays together on one.
const MOST_TOGETHER: usize = 4;

/// The most that a worker wants to find in a ring before it steals from it at once.
const GREED: usize = 64;

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

    /// Puts a runnable in line. For the owner.
    #[inline]
    pub(super) fn enqueue(&self, sched: &Sched, runnable: Runnable, place: QueuePosition) {
        let next_is_free = self.next.load(Ordering::Relaxed).is_null();
        if next_is_free
            && (place == QueuePosition::Next
                || (place == QueuePosition::New && self.ring.is_empty_for_owner()))
        {
            self.next.store(runnable.into_ptr().as_ptr(), Ordering::Release); // OWNER-PUTS
            return;
        }
        if place == QueuePosition::First {
            return self.enqueue_first(sched, runnable);
        }
        self.enqueue_back(sched, runnable, next_is_free);
    }

    /// Puts a runnable into the slot, and what is there behind the others.
    #[cold]
    fn enqueue_first(&self, sched: &Sched, runnable: Runnable) {
        if let Some(managed) = &sched.managed {
            return managed.enqueue_first(sched, self.post(), runnable);
        }
        let other = self.take_next();
        self.next.store(runnable.into_ptr().as_ptr(), Ordering::Release); // OWNER-PUTS
        self.own.streak.set(0);
        if let Some(other) = other {
            self.enqueue_back(sched, other, false);
        }
    }

    #[inline]
    fn enqueue_back(&self, sched: &Sched, runnable: Runnable, next_is_free: bool) {
        match self.ring.push(runnable.into_ptr()) {
            // One alone is for this worker, which is about to look.
            Ok(was_empty) if was_empty && next_is_free => return,
            Ok(_) => {}
            // SAFETY: the ring gave the right to run back.
            Err(full) => self.overflow(sched, unsafe { Runnable::new(full) }),
        }
        if sched.idle.could_wake() {
            self.announce(sched);
        }
    }

    /// Wakes somebody for what is in the ring, if that is worth it.
    #[cold]
    fn announce(&self, sched: &Sched) {
        if sched.managed.is_some() {
            return; // what it has is not in its ring
        }
        // At its own pace this worker might be done with it before another has woken up. If it turns
        // out not to be, the next look at the pace, or the monitor, wakes somebody after all.
        let takes_long = self.pace.load(Ordering::Relaxed) >= 2 * WORTH_WAKING;
        let worth = if takes_long { 0 } else { sched.worth_waking.load(Ordering::Relaxed) };
        if self.has_spare(worth)
            && let Some(worker) = sched.idle.whom_to_wake()
        {
            sched.worker(worker).announced.store(true, Ordering::Relaxed);
            sched.unpark(worker);
        }
    }

    /// Takes note of how long a runnable takes here, and turns to what goes on outside. What is
    /// returned is from the shared line.
    #[cold]
    fn look_around(&self, sched: &Sched) -> Option<Runnable> {
        self.mind_post(sched);
        let (now, runs) = (Time::now(), self.counts.runs.get());
        self.look_at_pace(sched, now, runs);
        let mut more = false;
        let is_time = now.nanos_since(self.own.asked.get()) >= self.events_after;
        if is_time || self.driver(sched).timers.may_be_due(now.tick()) {
            self.own.asked.set(now);
            more = self.take_in(sched, now);
        }
        if sched.idle.could_wake() {
            self.announce(sched);
        }
        let looks = LOOK_AFTER
            .min(self.events_after)
            .checked_div(self.pace.load(Ordering::Relaxed))
            .unwrap_or(u64::MAX);
        let looks = if more { LOOK_EVERY } else { looks.clamp(1, LOOK_EVERY.into()) as u32 };
        self.until_look.store(looks, Ordering::Relaxed);
        let line = sched.injector.line_len();
        if line >= SHARED_SHORT && runs >= self.own.older_until.get() && sched.managed.is_none() {
            return self.trade(sched, line, runs);
        }
        let (since, runs_then) = self.own.shared.get();
        if runs - runs_then < SHARED_EVERY && now.nanos_since(since) < SHARED_AFTER {
            return None;
        }
        self.own.shared.set((now, runs));
        sched.injector.pop_one()
    }

    /// Gives what is in the ring for a share of what has waited for longer, in a shared line of this length: the less
    /// often the shorter it is. So in the end all wait for about as long, however many there are. Returns the first.
    #[cold]
    fn trade(&self, sched: &Sched, line: usize, runs: u64) -> Option<Runnable> {
        // What is left of the last share is older than all others, and stays ahead: in the back of the line it would wait
        // for as long once more, and perhaps again after that.
        let older_end = self.own.older_end.get();
        let is_older = || self.ring.begins_before(older_end);
        let older: Vec<_> = std::iter::from_fn(|| is_older().then(|| self.ring.pop()).flatten()).collect();
        let mut newer = Vec::with_capacity(CAPACITY);
        // SAFETY: what a ring gives out is the right to run.
        newer.extend(std::iter::from_fn(|| self.ring.pop()).map(|node| unsafe { Runnable::new(node) }));
        let share = (CAPACITY / 2).saturating_sub(older.len());
        let mut taken = 0;
        let mut put = |node| {
            let pushed = self.ring.push(node);
            debug_assert!(pushed.is_ok(), "the ring was emptied");
            taken += 1;
        };
        older.into_iter().for_each(&mut put);
        sched.injector.push(newer);
        let first = sched.injector.pop(
            |len| (len / sched.workers.len()).min(share),
            share,
            |runnable| put(runnable.into_ptr()),
        );
        self.own.older_end.set(self.ring.end());
        let every = (SHARED_FIRST / line).max(1) as u64;
        self.own.older_until.set(runs + taken * every);
        first
    }

    /// Puts what has happened outside in line, behind what is there. Says whether there may be more.
    fn take_in(&self, sched: &Sched, now: Time) -> bool {
        let was_busy = !self.ring.is_empty_for_owner() && self.next.load(Ordering::Relaxed).is_null();
        let Some(claim) = self.driver(sched).claim() else { return false };
        let more = claim.hand_out(now, || self.found(sched)); // SEARCHES in `idle`
        if was_busy
            && sched.managed.is_none()
            && let Some(first) = self.take_next()
        {
            self.enqueue_back(sched, first, false);
        }
        more
    }

    fn look_at_pace(&self, sched: &Sched, now: Time, runs: u64) {
        let (since, runs_then) = self.own.paced.replace((now, runs));
        let (runs, nanos) = (runs - runs_then, now.nanos_since(since));
        let most_come_back = 2 * self.own.came_back.replace(0) >= runs;
        let many_contend = 8 * self.own.contended.replace(0) >= runs && runs > 0;
        // Elsewhere they would wait for those here. Where there are many workers, those have something else to do
        // meanwhile, more often than not.
        let stays_together = many_contend && sched.workers.len() <= MOST_TOGETHER;
        if stays_together != self.stays_together.load(Ordering::Relaxed) {
            self.stays_together.store(stays_together, Ordering::Relaxed);
        }
        if let Some(pace) = nanos.checked_div(runs) {
            let pace = match self.pace.load(Ordering::Relaxed).midpoint(pace) {
                pace if most_come_back => pace.max(self.worth_moving),
                pace => pace,
            };
            self.pace.store(pace, Ordering::Relaxed);
        }
    }

    #[cold]
    fn overflow(&self, sched: &Sched, runnable: Runnable) {
        if let Some(managed) = &sched.managed {
            return managed.enqueue(sched, runnable);
        }
        if sched.injector.line_len() >= SHARED_FIRST {
            return sched.injector.push_one(runnable); // what is in the ring is older
        }
        let mut older = Vec::with_capacity(CAPACITY / 2 + 1);
        // SAFETY: what a ring gives out is the right to run.
        self.ring.pop_half(|node| older.push(unsafe { Runnable::new(node) }));
        older.push(runnable);
        self.counts.overflows.add_one();
        sched.injector.push(older);
        if let Some(worker) = sched.idle.whom_to_wake() {
            sched.unpark(worker);
        }
    }

    /// How many picks it takes until somebody else has waited long, but no more than `most`.
    pub(super) fn picks_in_a_while(&self, most: u64) -> u32 {
        let pace = self.pace.load(Ordering::Relaxed);
        LOOK_AFTER.checked_div(pace).unwrap_or(most).clamp(1, most) as u32
    }

    /// Looks around at the next pick: the main color has had a turn, which takes as long as it takes, or there is
    /// something to look at. For anybody; the owner may overlook it, and then looks a little later.
    pub(super) fn look_soon(&self) {
        self.until_look.store(0, Ordering::Relaxed);
    }

    /// What to run next, without looking at other workers.
    #[inline]
    pub(super) fn pick(&self, sched: &Sched) -> Option<Runnable> {
        match self.until_look.load(Ordering::Relaxed) {
            0 => {
                if let ControlFlow::Break(picked) = self.look(sched) {
                    return picked;
                }
            }
            left => self.until_look.store(left - 1, Ordering::Relaxed),
        }
        let streak = self.own.streak.get();
        if streak < STREAK
            && let Some(runnable) = self.take_next()
        {
            self.own.streak.set(streak + 1);
            return Some(runnable);
        }
        self.own.streak.set(0);
        if let Some(node) = self.ring.pop() {
            // SAFETY: what a ring gives out is the right to run.
            return Some(unsafe { Runnable::new(node) });
        }
        self.take_next().or_else(|| self.pick_shared(sched)).or_else(|| sched.ranks.pop_any(sched))
    }

    /// Looks around, if it is time to, and at what is in line by priority or policy. If it does not pick, the
    /// worker does as always.
    ///
    /// How often that is depends on the clock, so `versus/instructions` leaves it out, by its name.
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

    /// Whether there is something in its slot, in its ring, or in the shared line.
    fn has_ordinary(&self, sched: &Sched) -> bool {
        !self.next.load(Ordering::Relaxed).is_null()
            || !self.ring.is_empty_for_owner()
            || !sched.injector.is_empty()
    }

    /// What runs here found a state in use, or others in line for it. For the owner.
    pub(super) fn contended(&self) {
        self.own.contended.set(self.own.contended.get() + 1);
    }

    /// Takes what is in the slot. For anybody.
    #[inline]
    pub(super) fn take_next(&self) -> Option<Runnable> {
        if self.next.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let node = NonNull::new(self.next.swap(null_mut(), Ordering::AcqRel))?;
        // SAFETY: what is in the slot is the right to run, and the swap took it. OWNER-PUTS
        Some(unsafe { Runnable::new(node) })
    }

    /// A fair share of the shared line: one to run now, the rest into the ring, which is empty.
    fn pick_shared(&self, sched: &Sched) -> Option<Runnable> {
        let share = |len: usize| (len / sched.workers.len()).min(CAPACITY / 2);
        let first = sched.injector.pop(share, CAPACITY / 2, |runnable| {
            let pushed = self.ring.push(runnable.into_ptr());
            debug_assert!(pushed.is_ok(), "the ring was empty");
        });
        if first.is_some() {
            self.own.older_end.set(self.ring.end());
        }
        first
    }

    /// Looks at the other workers. Counts as searching from here on, unless enough others are.
    pub(super) fn search(&self, sched: &Sched) -> Option<Runnable> {
        let may_search = self.own.searching.get() || sched.idle.begin_search();
        if may_search {
            self.own.searching.set(true);
            world::pause();
        }
        if let Some(managed) = &sched.managed {
            // Looks in any case: what is in line for one that is just waking up would keep this one from sleeping.
            let (this, posts) = (self.post(), sched.posts.len());
            let first = self.random() as usize % posts;
            return (first..first + posts).find_map(|of| managed.pick(sched, this, of % posts));
        }
        if !may_search {
            return None;
        }
        let found = self.pick_shared(sched).or_else(|| self.steal(sched, self.own.greed.get()));
        found
            .or_else(|| self.linger(sched))
            .or_else(|| self.steal(sched, 1))
            .or_else(|| self.take_from_stalled(sched))
    }

    /// The other workers, beginning with any of them.
    fn others<'a>(&self, sched: &'a Sched) -> impl Iterator<Item = &'a Worker> + use<'a> {
        let (first, number) = (self.random() as usize % sched.workers.len(), self.number);
        let (before, after) = sched.workers.split_at(first);
        let others = after.iter().chain(before).chain(sched.spares.made());
        others.filter(move |other| other.number != number)
    }

    /// Takes half of what another worker has in its ring, if that is at least so much, beginning with
    /// any of them. To steal little is dear, so who got little wants more the next time.
    fn steal(&self, sched: &Sched, at_least: usize) -> Option<Runnable> {
        let mut worth_it =
            self.others(sched).filter(|other| other.ring.len() >= at_least && other.has_spare(0));
        let node = worth_it.find_map(|other| other.ring.steal_into(&self.ring))?;
        self.own.older_end.set(self.ring.end()); // they have waited there
        let stolen = self.ring.len() + 1;
        let greed = self.own.greed.get();
        self.own.greed.set(if stolen < GREED / 2 { (2 * greed).min(GREED) } else { greed.div_ceil(2) });
        self.counts.steals.add_one();
        self.counts.stolen.add(stolen as u64);
        // SAFETY: what a ring gives out is the right to run.
        Some(unsafe { Runnable::new(node) })
    }

    /// Takes what waits in the slot of a worker that seems stuck.
    fn take_from_stalled(&self, sched: &Sched) -> Option<Runnable> {
        let mut others = sched.all_workers().filter(|other| other.number != self.number);
        let runnable = others.find(|other| other.seems_stuck())?.take_next()?;
        self.counts.steals.add_one();
        self.counts.stolen.add_one();
        Some(runnable)
    }

    /// Looks out for a moment for something to come in, which is cheaper than to fall asleep and be
    /// woken; less and less if it turns out to be in vain.
    fn linger(&self, sched: &Sched) -> Option<Runnable> {
        // Where events come from outside, they come to those who sleep.
        if sched.posts.iter().any(|post| post.driver.sources() > 0) {
            return None;
        }
        let looks = self.own.patience.get();
        for left in (0..looks).rev() {
            for _ in 0..PAUSE {
                world::spin();
            }
            let at_least = self.own.greed.get() * left as usize / PATIENCE as usize;
            let found = self.pick_shared(sched).or_else(|| self.steal(sched, at_least.max(1)));
            if found.is_some() {
                self.own.patience.set(PATIENCE);
                return found;
            }
        }
        // Now and then it tries again.
        let tried = self.own.tried.get().wrapping_add(1);
        self.own.tried.set(tried);
        self.own.patience.set(if tried.is_multiple_of(32) { PATIENCE } else { looks / 2 });
        None
    }

    /// What tells whether it gets on: what it has run so far, and what waits in its slot.
    pub(super) fn progress(&self) -> (u64, *const Header) {
        (self.counts.runs.get() + self.counts.main_turns.get(), self.next.load(Ordering::Relaxed))
    }

    /// Whether it sleeps, or is about to.
    pub(super) fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Acquire)
    }

    /// Whether there is something in its slot or in its ring.
    pub(super) fn has_own(&self) -> bool {
        !self.next.load(Ordering::Relaxed).is_null() || self.ring.len() > 0
    }

    /// Whether its slot has been full for a while in which it has not run anything else.
    fn seems_stuck(&self) -> bool {
        let before = self.progress();
        let is_the_same = |_| {
            world::spin();
            self.progress() == before
        };
        !before.1.is_null() && (0..WATCH).all(is_the_same)
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

    /// Sleeps until there is something to do, `awake` says that there is, or `limit` has passed.
    pub(super) fn sleep(&self, sched: &Sched, limit: Option<Duration>, awake: impl Fn() -> bool) {
        world::pause(); // something may come in after the last look
        self.mind_post(sched);
        self.is_asleep.store(true, Ordering::Release);
        sched.idle.fall_asleep(self.number, self.own.searching.replace(false));
        world::pause();
        let events = (!awake() && !sched.has_work()).then(|| {
            self.counts.sleeps.add_one();
            if let Some(since) = self.own.helps_since.take() {
                self.has_helped(sched, since);
            }
            let events = self.driver(sched).sleep(limit, || self.holds_post(sched));
            if events.is_none() {
                world::sleep(A_MOMENT); // who stood in is about to leave
            }
            events
        });
        self.is_asleep.store(false, Ordering::Release);
        let now = Time::now();
        if self.announced.load(Ordering::Relaxed) {
            self.announced.store(false, Ordering::Relaxed);
            self.own.helps_since.set(Some(now));
        }
        self.own.paced.set((now, self.counts.runs.get()));
        // Taken off the list by another, we count as searching. ONE-WAKER
        self.own.searching.set(!sched.idle.wake_up(self.number));
        sched.monitor.wake(); // SLEEPS-WITH-ALL
        if let Some(events) = events.flatten() {
            self.own.asked.set(now);
            events.hand_out(now, || self.found(sched)); // SEARCHES in `idle`
        }
    }

    /// Sets how much there must be for the next to be woken, by how long this one was of use.
    #[cold]
    fn has_helped(&self, sched: &Sched, since: Time) {
        let worth = sched.worth_waking.load(Ordering::Relaxed);
        let soon = Time::now().nanos_since(since) < SOON;
        let worth = if soon { worth + worth / 2 } else { worth / 2 };
        sched.worth_waking.store(worth.clamp(sched.least_worth_waking, NO_WAITING), Ordering::Relaxed);
    }

    /// It runs little, for what takes long or for want of anything: so it has not looked around either.
    /// Hands out what happened in its place, and makes whatever is in its ring worth moving, until it is
    /// known again how long a runnable takes. For the monitor.
    pub(super) fn look_after(&self, sched: &Sched) {
        self.pace.store(WORTH_WAKING, Ordering::Relaxed);
        self.stays_together.store(false, Ordering::Relaxed);
        self.until_look.store(0, Ordering::Relaxed);
        if let Some(events) = self.driver(sched).claim() {
            if sched.can_hand_off() {
                events.hand_out_ours(Time::now());
            } else {
                events.hand_out(Time::now(), || {}); // no other thread can
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

    /// Puts what it has into the shared line. For the owner.
    pub(super) fn hand_over(&self, sched: &Sched) {
        if sched.managed.is_some() {
            return; // what is in line is not here
        }
        let mut left: Vec<Runnable> = self.take_next().into_iter().collect();
        while let Some(node) = self.ring.pop() {
            // SAFETY: what a ring gives out is the right to run.
            left.push(unsafe { Runnable::new(node) });
        }
        sched.injector.push(left);
    }

    /// Whether there is something in its ring for others to take: it will take the worker so long,
    /// and is worth moving.
    pub(super) fn has_spare(&self, nanos: u64) -> bool {
        let (len, pace) = (self.ring.len() as u64, self.pace.load(Ordering::Relaxed));
        len > 0
            && pace >= self.worth_moving
            && !self.stays_together.load(Ordering::Relaxed)
            && len * pace >= nanos
    }

    pub(super) fn queued(&self, sched: &Sched) -> usize {
        if let Some(managed) = &sched.managed {
            return if self.number < sched.posts.len() { managed.queued(self.number) } else { 0 };
        }
        self.ring.len() + usize::from(!self.next.load(Ordering::Relaxed).is_null())
    }

    fn random(&self) -> u64 {
        let mut x = self.own.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.own.random.set(x);
        x
    }
}
