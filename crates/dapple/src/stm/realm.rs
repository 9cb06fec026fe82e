//! The clock of all transactions, the announcements of those that run, and old values that wait for them.
//!
//! A transaction reads values without counting references. So a value that a commit replaced must stay until no running
//! transaction can have a reference to it. A transaction *announces* itself, with the time of the clock, before it reads;
//! a value that is replaced at time `t` is *retired* with `t`, and dropped when all announcements are of `t` or later.
//! Usually that is at once. Otherwise the value waits in `limbo`, and the last transaction that could use it drops it.
//!
//! Crates for this purpose drop late, on any thread, at no defined time; a `Sender` in a `TVar` would close late.
//!
//! # Invariants
//!
//! * **ANNOUNCED-OR-LOCKED**: a transaction announces itself by a SeqCst swap before its first SeqCst look at a word; a
//!   commit locks by a SeqCst compare-and-swap before it looks at the announcements (SeqCst). So a transaction that has
//!   seen a word from before the lock is seen by the commit that retires the value. The same holds for cells: code that
//!   removes the last handle comes after every use of a handle.
//! * **RETIRED-LATER**: a value or cell is retired with a time that the clock gave out after it was locked, or after its last
//!   handle went. A transaction with an announcement of that time or later has no reference to it.
//! * **MARKED-COLLECTS**: for each value in limbo there is an announcement that is older, and marked. The owner of a marked
//!   announcement looks at limbo when it ends it.
//! * **LIMBO-BY-TIME**: each queue of limbo is in the order of the times. So the values that are free are its first ones,
//!   and neither to add a value nor to look for free ones takes a walk through those that a long transaction keeps.
//! * **BOUND-TO-WORLD**: a cell is bound to the world (real, or a simulation) of the first transaction that uses it. Its
//!   values wait for transactions of this world alone: those of other worlds would make a simulation differ from run to run.
//!   A cell that is used in a second world becomes bound to none, and its values wait for all. A transaction binds the
//!   cell, SeqCst, after it has announced itself and before it looks at the word; a commit asks after it has locked. So
//!   either the commit sees the new binding, or the transaction sees the lock.
//! * **OWN-ANNOUNCEMENT**: an announcement belongs to one log at a time. Others may only set MARKED.
//! * **ANNOUNCEMENTS-STAY**: announcements are never freed.

use std::collections::VecDeque;
use std::ptr::{NonNull, null_mut};

use super::cell::{EVERYWHERE, UNBOUND, ValueBits};
use super::log::KEEPS;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Mutex, Ordering, lock, step_fence};

/// An announcement without a transaction.
const IDLE: u64 = 0;
/// A transaction runs; its time is above the flags.
const RUNS: u64 = 1;
/// Values wait for it. MARKED-COLLECTS
const MARKED: u64 = 2;
const TIME: u32 = 2;

/// Drops a value, or a cell with its value. It may panic, as the value's destructor may.
pub(crate) type DropBits = unsafe fn(ValueBits);

/// How the values of a cell are dropped.
pub(crate) struct ValueKind {
    pub(crate) drop_bits: DropBits,
    /// A value is small and has no destructor, so that no code can tell when it is dropped. A log keeps some such values, and
    /// retires them together: PLAIN-LATER in `log`.
    pub(crate) is_plain: bool,
}

/// A value or cell that is not used any more, and has to be dropped.
pub(crate) struct Retired {
    bits: ValueBits,
    drop_bits: DropBits,
    time: u64,
    /// BOUND-TO-WORLD
    world: u32,
}

// SAFETY: a `TVar` asks for values that may be sent.
unsafe impl Send for Retired {}

impl Retired {
    /// # Safety
    ///
    /// `drop_bits` may be called with `bits`, once, when the announcements of `world` are of `time` or later.
    pub(crate) unsafe fn new(bits: ValueBits, drop_bits: DropBits, time: u64, world: u32) -> Retired {
        Retired { bits, drop_bits, time, world }
    }

    /// The value, to wait for the transactions of `world` that began before `time`.
    pub(crate) fn again(self, time: u64, world: u32) -> Retired {
        Retired { time, world, ..self }
    }

    /// Drops the value, which may panic.
    ///
    /// # Safety
    ///
    /// No transaction can use it any more.
    pub(crate) unsafe fn drop_value(self) {
        // SAFETY: promised to `new`, and by the caller.
        unsafe { (self.drop_bits)(self.bits) };
    }

    fn is_free(&self, oldest: Oldest) -> bool {
        match self.world {
            UNBOUND => true, // no transaction has read it
            EVERYWHERE => self.time <= oldest.all,
            _ => self.time <= oldest.own,
        }
    }
}

/// The oldest announcements: of one world, and of all.
#[derive(Clone, Copy)]
struct Oldest {
    own: u64,
    all: u64,
}

/// See the head of this file. There is one, but for models.
pub(crate) struct Realm {
    clock: ClockLine,
    announcements: AtomicPtr<Announcement>,
    limbo: LimboLine,
}

/// Processors fetch lines in pairs.
#[repr(align(128))]
struct ClockLine(AtomicU64);

/// As above.
#[repr(align(128))]
struct LimboLine(Mutex<Limbo>);

/// Values that wait for transactions: for each world a queue. LIMBO-BY-TIME
pub(crate) struct Limbo(Vec<LimboQueue>);

struct LimboQueue {
    world: u32,
    values: VecDeque<Retired>,
}

/// The announcement of a transaction, if one runs.
#[repr(align(128))]
pub(crate) struct Announcement {
    state: AtomicU64,
    world: AtomicU32,
    taken: AtomicBool,
    next: AtomicPtr<Announcement>,
}

impl Realm {
    /// A realm of these parts: a clock at 0, no announcement, an empty limbo. A model makes them of other types.
    pub(crate) const fn of(
        clock: AtomicU64,
        announcements: AtomicPtr<Announcement>,
        limbo: Mutex<Limbo>,
    ) -> Realm {
        Realm { clock: ClockLine(clock), announcements, limbo: LimboLine(limbo) }
    }

    /// The time of the last commit.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // Acquire: a reader at this time sees the locks of the commits up to then.
        self.clock.0.load(Ordering::Acquire)
    }

    /// A new time, that no other commit gets.
    #[inline]
    pub(crate) fn tick(&self) -> u64 {
        self.clock.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// An announcement for a log. OWN-ANNOUNCEMENT until `give_back`.
    pub(crate) fn take(&self, world: u32) -> &'static Announcement {
        let free = self.all().find(|one| {
            let is_free = !one.taken.load(Ordering::Relaxed);
            is_free && !one.taken.swap(true, Ordering::Acquire)
        });
        let one = free.unwrap_or_else(|| self.add());
        one.world.store(world, Ordering::SeqCst);
        one
    }

    #[cold]
    fn add(&self) -> &'static Announcement {
        let new: &'static mut Announcement = Box::leak(Box::new(Announcement {
            state: AtomicU64::new(IDLE),
            world: AtomicU32::new(UNBOUND),
            taken: AtomicBool::new(true),
            next: AtomicPtr::new(null_mut()),
        }));
        let new = NonNull::from(new);
        // SAFETY: it was just leaked. ANNOUNCEMENTS-STAY
        let one: &'static Announcement = unsafe { new.as_ref() };
        let mut first = self.announcements.load(Ordering::Acquire);
        loop {
            one.next.store(first, Ordering::Relaxed);
            // SeqCst, as are the walks: a commit that must see an announcement also sees that it is in the list.
            match self.announcements.compare_exchange(
                first,
                new.as_ptr(),
                Ordering::SeqCst,
                Ordering::Acquire,
            ) {
                Ok(_) => return one,
                Err(now) => first = now,
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &'static Announcement> {
        fn at(pointer: *mut Announcement) -> Option<&'static Announcement> {
            // SAFETY: an announcement in the list is never freed. ANNOUNCEMENTS-STAY
            unsafe { pointer.as_ref() }
        }
        let first = at(self.announcements.load(Ordering::SeqCst));
        std::iter::successors(first, |last| at(last.next.load(Ordering::Relaxed)))
    }

    fn oldest(&self, world: u32) -> Oldest {
        let mut oldest = Oldest { own: u64::MAX, all: u64::MAX };
        for one in self.all() {
            let state = one.state.load(Ordering::SeqCst);
            if state & RUNS != 0 {
                oldest.note(state >> TIME, one.world.load(Ordering::SeqCst) == world);
            }
        }
        oldest
    }

    /// Whether no transaction of a world runs; of `EVERYWHERE`: none at all. So a cell whose last handle is gone is free.
    pub(crate) fn is_idle(&self, world: u32) -> bool {
        let oldest = self.oldest(world);
        if world == EVERYWHERE { oldest.all == u64::MAX } else { oldest.own == u64::MAX }
    }

    /// Retires values. Those that no transaction can use any more stay in `retired`, to be dropped by the caller.
    pub(crate) fn retire(&self, retired: &mut Vec<Retired>, world: u32) {
        if retired.is_empty() {
            return;
        }
        step_fence();
        let oldest = self.oldest(world);
        if !retired.iter().all(|one| one.is_free(oldest)) {
            self.keep(retired, world);
        }
    }

    /// Puts values into limbo, and marks the announcements that they wait for. Takes them out again if there are none left.
    #[inline(never)]
    fn keep(&self, retired: &mut Vec<Retired>, world: u32) {
        let mut until = Until::default();
        let mut limbo = lock(&self.limbo.0);
        for one in retired.extract_if(.., |one| one.world != UNBOUND) {
            until.note(&one, world);
            limbo.add(one);
        }
        self.free(&mut limbo, until, retired, world);
    }

    /// Puts the values of limbo that no transaction can use any more into `free`. For the owner of a marked announcement
    /// that it has ended. MARKED-COLLECTS
    #[cold]
    pub(crate) fn collect(&self, free: &mut Vec<Retired>, world: u32) {
        let mut limbo = lock(&self.limbo.0);
        let mut until = Until::default();
        limbo.0.iter().filter_map(|queue| queue.values.back()).for_each(|last| until.note(last, world));
        self.free(&mut limbo, until, free, world);
    }

    /// Marks the announcements that values of limbo wait for, and takes out the values that wait for none: of those that
    /// were retired by `until`.
    fn free(&self, limbo: &mut Limbo, until: Until, free: &mut Vec<Retired>, world: u32) {
        // A transaction that began later keeps no value that was retired by `until`.
        let mut oldest = Oldest { own: until.own, all: until.all };
        for one in self.all() {
            let is_own = one.world.load(Ordering::SeqCst) == world;
            let until = if is_own { until.own.max(until.all) } else { until.all };
            if let Some(time) = one.mark(until) {
                oldest.note(time, is_own);
            }
        }
        limbo.take_free(oldest, free, world);
    }
}

/// The times of the last values that are looked at: of those that wait for one world, and of those that wait for all.
#[derive(Clone, Copy, Default)]
struct Until {
    own: u64,
    all: u64,
}

impl Until {
    fn note(&mut self, one: &Retired, world: u32) {
        if one.world == EVERYWHERE {
            self.all = self.all.max(one.time);
        } else if one.world == world {
            self.own = self.own.max(one.time);
        }
    }
}

impl Limbo {
    pub(crate) const fn new() -> Limbo {
        Limbo(Vec::new())
    }

    /// Adds a value, usually as the last one. LIMBO-BY-TIME
    fn add(&mut self, one: Retired) {
        let at = self.0.iter().position(|queue| queue.world == one.world).unwrap_or_else(|| {
            self.0.push(LimboQueue { world: one.world, values: VecDeque::new() });
            self.0.len() - 1
        });
        let values = &mut self.0[at].values;
        match values.back() {
            Some(last) if last.time > one.time => {
                let place = values.partition_point(|earlier| earlier.time <= one.time);
                values.insert(place, one);
            }
            _ => values.push_back(one),
        }
    }

    /// Takes out the values that wait for no transaction older than `oldest`. Values of other worlds are left to
    /// transactions of those.
    fn take_free(&mut self, oldest: Oldest, free: &mut Vec<Retired>, world: u32) {
        let is_ours = |queue: &LimboQueue| queue.world == world || queue.world == EVERYWHERE;
        for queue in self.0.iter_mut().filter(|queue| is_ours(queue)) {
            while let Some(one) = queue.values.pop_front_if(|first| first.is_free(oldest)) {
                free.push(one);
            }
            if queue.values.is_empty() && queue.values.capacity() > KEEPS {
                queue.values = VecDeque::new();
            }
        }
        if self.0.len() > 1 {
            self.0.retain(|queue| !queue.values.is_empty());
        }
    }
}

impl Oldest {
    fn note(&mut self, time: u64, is_own: bool) {
        self.all = self.all.min(time);
        if is_own {
            self.own = self.own.min(time);
        }
    }
}

impl Announcement {
    /// A transaction begins. Returns the time. ANNOUNCED-OR-LOCKED
    #[inline]
    pub(crate) fn begin(&self, realm: &Realm) -> u64 {
        let now = realm.now();
        self.state.swap(now << TIME | RUNS, Ordering::SeqCst);
        step_fence();
        now
    }

    /// The transaction has ended, and uses no value any more. `true`: the caller has to look at limbo. MARKED-COLLECTS
    #[inline]
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.state.swap(IDLE, Ordering::SeqCst) & MARKED != 0
    }

    /// Gives it back to the realm. No transaction runs.
    pub(crate) fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Marks it if its transaction began before `until`. Returns the time of the transaction if it is marked.
    fn mark(&self, until: u64) -> Option<u64> {
        let mut state = self.state.load(Ordering::SeqCst);
        loop {
            if state & RUNS == 0 || state >> TIME >= until {
                return None;
            }
            if state & MARKED != 0 {
                return Some(state >> TIME);
            }
            let marked = state | MARKED;
            match self.state.compare_exchange(state, marked, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(state >> TIME),
                Err(now) => state = now,
            }
        }
    }
}
