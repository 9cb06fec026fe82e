//! The state word of a task: its owner, its references, and its wake-ups.
//!
//! One `u64`, so that each step of a task's life is one atomic operation at the most:
//!
//! ```text
//!  63      62          35 34               8 7          0
//! +-------+--------------+------------------+------------+
//! | STORM | wake-ups: 28 |  references: 27  |  flags: 8  |
//! +-------+--------------+------------------+------------+
//! ```
//!
//! Wake-ups are *counted*, not flagged. A task with none is **idle**: it has no owner, and the
//! thread that brings it from none to one must enqueue it. A task with some is **owned** by the scheduler,
//! queued or being polled. Its owner reads the word before a poll; if the count is the same after
//! it, one compare-and-swap puts the task to rest, otherwise it was woken meanwhile and is polled
//! again. So a poll needs no write before it, and a yield none at all.
//!
//! # Invariants
//!
//! * **ONE-OWNER**: the right to run a task passes by the step from zero wake-ups to one, and goes
//!   back by [`StateWord::rest`] alone. At most one thread has it.
//! * **NO-LOST-WAKE**: a wake-up changes the word, so a `rest` that has not seen it fails.
//! * **NO-WRAP**: half-way to its limit the count of wake-ups is set back to one, and STORM takes
//!   the place of the change: by the owner before a poll, and by threads that wake, clone or settle. Only a
//!   wake-up that gives its reference away cannot do it, and of those there are at most as many as
//!   references, a quarter of the range.
//! * **EXISTS**: while the future is there, the scheduler's own references, [`EXISTS`] many, keep
//!   the memory. The owner may therefore count clones and drops of its task's waker in a plain
//!   variable during a poll and settle them afterwards: others cannot bring the count to zero.
//! * **DONE-LAST**: DONE is set once, with the output (or the reason for having none) written
//!   before it, and nothing but references changes after it.
//! * **HANDLE-OUTPUT**: at the moment of DONE, the output belongs to the handle if JOIN_INTEREST
//!   is set, otherwise to the thread that sets DONE.
//! * **SLOT**: while JOIN_WAKER is clear, the join slot belongs to the handle; while it is set,
//!   to the thread that sets DONE.

use crate::prim::{AtomicU64, IS_MODEL, Ordering};

/// The future is gone. Set once, by the owner; excludes every further poll.
pub(crate) const DONE: u64 = 1;
/// A `JoinHandle` exists. Set at birth, cleared by the handle when it is dropped before DONE.
pub(crate) const JOIN_INTEREST: u64 = 1 << 1;
/// The join slot holds a waker. Set and cleared by the handle before DONE.
pub(crate) const JOIN_WAKER: u64 = 1 << 2;
/// Waits in this task return `Cancelled`. Set by any thread, never cleared.
pub(crate) const CANCELLED: u64 = 1 << 3;
/// The owner must drop the future instead of polling it. Set by any thread, never cleared.
pub(crate) const ABORTED: u64 = 1 << 4;
/// Set with DONE: the task panicked, and its payload lies where the output would.
pub(crate) const PANICKED: u64 = 1 << 5;
/// Set with DONE: there is no output, and the reason lies where it would.
pub(crate) const ENDED: u64 = 1 << 6;
/// Not a task, but something else that is counted, and that a table may refer to weakly. Set at
/// birth, with DONE.
const COUNTED: u64 = 1 << 7;

const REF: u64 = 1 << 8;
const REFS: u64 = (WAKE - 1) & !(REF - 1);
/// References that the scheduler holds while the future exists (see **EXISTS**).
const EXISTS: u64 = REF << 20;
/// Above this the count of references is taken for a leak that would end in a use after free.
const TOO_MANY_REFS: u64 = REF << 26;

const WAKE: u64 = 1 << 35;
const WAKES: u64 = STORM - WAKE;
/// From here on the count of wake-ups is set back (see **NO-WRAP**). Small in models, so that a
/// model gets there.
const STORM_FROM: u64 = WAKE << if IS_MODEL { 2 } else { 27 };
/// The count was set back. Set by anyone, cleared by the owner before a poll. Being the highest
/// bit, it makes the word at least STORM_FROM, so that one comparison asks for both.
const STORM: u64 = 1 << 63;

/// How many clones a poll may count in a plain variable before it settles them (see **EXISTS**).
pub(crate) const MAX_UNSETTLED: i64 = 1 << 19;

/// The state word; see the head of this file.
pub(crate) struct StateWord(AtomicU64);

/// One reading of the state word.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    pub(crate) fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    pub(crate) fn is_idle(self) -> bool {
        self.0 & WAKES == 0
    }
}

/// The state of a task after a poll that returned `Pending`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RestOutcome {
    /// It has no owner any more.
    Idle,
    /// It was woken meanwhile: the caller still owns it and must enqueue it.
    Again,
}

/// The next step of the thread that finished a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// Free the memory: no reference is left.
    Last,
    /// Nothing: others still refer to it.
    Shared,
    /// Take the waker from the join slot, wake it, then call [`StateWord::drop_existence`].
    WakeJoiner,
    /// Drop the output, then try again: the handle has gone.
    Unwanted,
}

impl StateWord {
    /// The word of a new task, owned by its maker: existing, with a handle, woken once.
    pub(crate) fn new(cancelled: bool) -> StateWord {
        let cancelled = if cancelled { CANCELLED } else { 0 };
        StateWord(AtomicU64::new((EXISTS + REF + WAKE) | JOIN_INTEREST | cancelled))
    }

    /// The word of something counted that is not a task, with one reference: walkers pass it by.
    pub(crate) fn new_counted() -> StateWord {
        StateWord(AtomicU64::new(REF | DONE | COUNTED))
    }

    /// Makes a cell of memory that counted no references into a task. Release: walkers that come
    /// to see the new word see the task.
    #[inline]
    pub(crate) fn reset(&self, new: StateWord) {
        self.0.store(new.0.into_inner(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire)) // DONE-LAST
    }

    /// How many references there are.
    #[cfg(test)]
    pub(crate) fn refs(&self) -> u64 {
        (self.0.load(Ordering::Acquire) & REFS) / REF
    }

    /// Counts a wake-up. `true`: the caller now owns the task and must enqueue it.
    #[inline]
    pub(crate) fn wake(&self) -> bool {
        // Release: the poll sees what the waker's thread did. Acquire: the caller may come to own.
        let before = self.0.fetch_add(WAKE, Ordering::AcqRel);
        if before >= STORM_FROM {
            self.calm();
        }
        before & WAKES == 0
    }

    /// As [`wake`](Self::wake), giving up the caller's reference; the second value says whether it
    /// was the last one.
    #[inline]
    pub(crate) fn wake_and_drop_ref(&self) -> (bool, bool) {
        let before = self.0.fetch_add(WAKE - REF, Ordering::AcqRel);
        (before & WAKES == 0, before & REFS == REF)
    }

    /// Sets the count of wake-ups back to one without hiding that there was one. NO-WRAP
    #[cold]
    fn calm(&self) {
        let set_back = |word: u64| (word & WAKES >= STORM_FROM).then_some(word & !WAKES | WAKE | STORM);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, set_back);
    }

    /// The owner's reading before a poll, to be handed to [`rest`](Self::rest) after it.
    #[inline]
    pub(crate) fn before_poll(&self) -> Snapshot {
        let word = self.0.load(Ordering::Acquire); // sees what every waker so far did
        if word >= STORM_FROM { self.calm_owned() } else { Snapshot(word) }
    }

    /// The owner takes note of all wake-ups so far, and makes room for more. NO-WRAP
    #[cold]
    fn calm_owned(&self) -> Snapshot {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let calm = seen & !(WAKES | STORM) | WAKE;
            match self.0.compare_exchange(seen, calm, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Snapshot(calm),
                Err(now) => seen = now,
            }
        }
    }

    /// Whether the task was woken since `before`, as far as the owner sees.
    pub(crate) fn was_woken_since(&self, before: Snapshot) -> bool {
        let now = self.0.load(Ordering::Acquire);
        now & WAKES != before.0 & WAKES || now & STORM != 0
    }

    /// The owner gives the task up after a poll, unless it was woken since `before`; settles
    /// `unsettled` references either way.
    #[inline]
    pub(crate) fn rest(&self, before: Snapshot, unsettled: i64) -> RestOutcome {
        let mut seen = before.0;
        loop {
            let idle = check((seen & !WAKES).wrapping_add(refs(unsettled)));
            // Release: the next owner sees what this poll did. ONE-OWNER
            match self.0.compare_exchange(seen, idle, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return RestOutcome::Idle,
                Err(now) if now & WAKES != before.0 & WAKES || now & STORM != 0 => {
                    self.settle(unsettled);
                    return RestOutcome::Again; // NO-LOST-WAKE
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Adds references that the owner counted in a plain variable.
    #[inline]
    pub(crate) fn settle(&self, unsettled: i64) {
        if unsettled != 0 {
            let before = check(self.0.fetch_add(refs(unsettled), Ordering::AcqRel));
            if before >= STORM_FROM {
                self.calm();
            }
        }
    }

    /// The owner declares the task done, with `how` among PANICKED, ENDED or 0. `wanted` says that
    /// an output is there which the caller would have to drop if there is no handle.
    #[inline]
    pub(crate) fn finish(&self, how: u64, unsettled: i64, wanted: bool) -> Finished {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if wanted && seen & JOIN_INTEREST == 0 {
                return Finished::Unwanted; // HANDLE-OUTPUT
            }
            let leaves = seen & JOIN_WAKER == 0;
            let mut done = (seen | DONE | how).wrapping_add(refs(unsettled));
            if leaves {
                done -= EXISTS;
            }
            // Release: the handle sees the output. Acquire: we see the join slot. DONE-LAST, SLOT
            match self.0.compare_exchange_weak(seen, done, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if !leaves => return Finished::WakeJoiner,
                Ok(_) if done & REFS == 0 => return Finished::Last,
                Ok(_) => return Finished::Shared,
                Err(now) => seen = now,
            }
        }
    }

    /// Gives up the scheduler's references after DONE. `true`: they were the last.
    pub(crate) fn drop_existence(&self) -> bool {
        self.0.fetch_sub(EXISTS, Ordering::AcqRel) & REFS == EXISTS
    }

    /// Adds a reference to one that the caller has.
    #[inline]
    pub(crate) fn add_ref(&self) {
        let before = check(self.0.fetch_add(REF, Ordering::Relaxed));
        if before >= STORM_FROM {
            self.calm();
        }
    }

    /// Gives up a reference. `true`: it was the last, and the caller must free the memory.
    #[inline]
    pub(crate) fn drop_ref(&self) -> bool {
        // A sole reference to a task that is done cannot be joined by another one: walkers pass it
        // by. (Something counted can be, by `try_ref_counted`.)
        let word = self.0.load(Ordering::Acquire);
        if word & (REFS | DONE | COUNTED) == REF | DONE {
            self.0.store(DONE, Ordering::Relaxed);
            return true;
        }
        // Release: our last use is before the memory is freed. Acquire: it may be us that free it.
        self.0.fetch_sub(REF, Ordering::AcqRel) & REFS == REF
    }

    /// Adds `count` references at once, for owners that count them in a plain variable.
    pub(crate) fn add_refs(&self, count: u64) {
        check(self.0.fetch_add(REF * count, Ordering::Relaxed));
    }

    /// Drops `count` references at once, for owners that count them in a plain variable.
    pub(crate) fn drop_refs(&self, count: u64) -> bool {
        self.0.fetch_sub(REF * count, Ordering::AcqRel) & REFS == REF * count
    }

    /// A reference to a task that may be gone: for walkers over memory that stays mapped.
    pub(crate) fn try_ref(&self) -> bool {
        let live = |word: u64| (word & REFS != 0 && word & DONE == 0).then(|| word + REF);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, live).is_ok()
    }

    /// A reference to something counted that may be on its way out; `false` if it is.
    pub(crate) fn try_ref_counted(&self) -> bool {
        let alive = |word: u64| (word & REFS != 0).then(|| word + REF);
        // Acquire on failure: the caller may make another one in its place, after all uses of this one.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, alive).is_ok()
    }

    /// Sets `flags` (CANCELLED, ABORTED) and wakes. `true`: the caller must enqueue the task.
    pub(crate) fn wake_with(&self, flags: u64) -> bool {
        self.0.fetch_or(flags, Ordering::AcqRel);
        self.wake()
    }

    /// Sets `flags` without waking.
    pub(crate) fn mark(&self, flags: u64) {
        self.0.fetch_or(flags, Ordering::AcqRel);
    }

    /// The handle offers the waker that it has put into the slot. `false`: the task is done, and
    /// the slot is still the handle's.
    pub(crate) fn offer_join_waker(&self) -> bool {
        self.change_join_waker(|word| word | JOIN_WAKER)
    }

    /// The handle takes the slot back. `false`: the task is done, and the slot is not the handle's.
    pub(crate) fn withdraw_join_waker(&self) -> bool {
        self.change_join_waker(|word| word & !JOIN_WAKER)
    }

    fn change_join_waker(&self, change: impl Fn(u64) -> u64) -> bool {
        let unless_done = |word: u64| (word & DONE == 0).then(|| change(word));
        // Release: the finisher sees the slot. Acquire: on failure, the output. SLOT
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_done).is_ok()
    }

    /// The handle gives up its interest and its reference, if the task is not done and the slot is
    /// empty. `false`: nothing has changed, and the output (or the slot) is the handle's to drop.
    pub(crate) fn detach(&self) -> bool {
        let go = |word: u64| (word & (DONE | JOIN_WAKER) == 0).then(|| (word & !JOIN_INTEREST) - REF);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, go).is_ok()
    }
}

/// Ends the process before the count of references could wrap, as `Arc` does.
#[inline]
fn check(word: u64) -> u64 {
    if word & REFS >= TOO_MANY_REFS {
        std::process::abort();
    }
    word
}

/// A count of references, which may be negative, as the number to be added to the word.
fn refs(count: i64) -> u64 {
    (count as u64).wrapping_mul(REF)
}
