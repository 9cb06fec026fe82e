//! What this thread is doing: the runtime it works for and the task that it is running.
//!
//! Constant to set up and without a destructor, so that it can be used from anywhere, also from
//! the destructors of other thread-locals.
//!
//! # Invariants
//!
//! * **ONE-CONTEXT**: all that a thread knows of what it runs is in its [`ThreadContext`], and is exchanged as a whole:
//!   where a nested `block_on` begins and ends ([`SetAside`]), and where a virtual thread of a simulation gives way
//!   ([`context`]). A thread-local beside it would be shared by what runs inside of each other, or in turns. What
//!   `ThreadContext` points to on the stack is on the stack of the thread, or virtual thread, whose context it is.

use std::cell::Cell;
use std::ptr::null;
use std::task::Waker;

use super::cancel_scope::CancelFrame;
use super::child_waker::ChildWaker;
use super::closure::Closure;
use super::header::Header;
use super::local::Bound;
use super::runtime_shared::RuntimeShared;
use super::slab::LocalSlab;
use super::wait::BUDGET;
use crate::prim::Published;

/// How many waits are put off in one poll of a task, at most.
const SPINS: i32 = 1 << 16;

pub(crate) struct ThreadContext {
    /// The runtime that this thread works for or has entered; null outside.
    pub(crate) home: Cell<*const RuntimeShared>,
    /// The worker that this thread drives, in the scheduler's own terms; null elsewhere.
    pub(crate) worker: Cell<*const ()>,
    /// That worker's store of memory; null elsewhere.
    pub(crate) slab: Cell<*const LocalSlab>,
    /// The task that is being polled, or whose future is being dropped. Others look at it to tell what a worker is
    /// stuck in.
    pub(crate) current: Published<Header>,
    /// The current task has woken itself.
    pub(crate) woken: Cell<bool>,
    /// References to the current task that were made (or, below zero, dropped) in this poll.
    pub(crate) unsettled: Cell<i64>,
    /// How many more results the current task may get in this poll. BUDGET in `wait`
    pub(crate) budget: Cell<i32>,
    /// How many waits have said in this poll of the task that they are cancelled and rest all the same. LEFT-ALONE in
    /// `cancel`
    pub(crate) stays: Cell<u32>,
    /// The identity of the running color; 0 if there is none.
    pub(crate) color: Cell<usize>,
    /// The lane whose turn this thread has; null for a task with a color of its own.
    pub(crate) lane: Cell<*const Header>,
    /// The innermost scope or shield around what is being polled; null if there is none. ON-THE-STACK in
    /// `cancel_scope`
    pub(crate) link: Cell<*const CancelFrame>,
    /// The waker by which who polls that is woken when it is cancelled; null if that is the task's own.
    pub(crate) own: Cell<*const Waker>,
    /// The strand that is being polled.
    pub(crate) strand: Cell<*const ChildWaker>,
    /// References to it that were made (or, below zero, dropped) in this poll.
    pub(crate) strand_refs: Cell<i64>,
    /// It has woken itself.
    pub(crate) strand_woken: Cell<bool>,
    /// Since when the running task has waited for its turn, in nanoseconds; 0 if nobody knows.
    pub(crate) since: Cell<u64>,
    /// When what is being handed out happened, in nanoseconds; 0 if nothing is.
    pub(crate) moment: Cell<u64>,
    /// The main color's lane of the innermost `run` or `block_on` on this thread.
    pub(crate) main: Cell<*const Header>,
    /// The gate of a state, by its address, at which the current task has given way in this poll, or 0.
    pub(crate) gave_way: Cell<usize>,
    /// The innermost closure of a state that this thread is in; null if it is in none.
    pub(crate) closure: Cell<*const Closure<'static>>,
    /// The waits of the task that is being polled are observed. SUSPECT in `cancel_points`
    pub(crate) is_observed: Cell<bool>,
    /// Whether this thread is in a part of a map. NO-CYCLE in `shared::map::shelf`
    pub(crate) in_map: Cell<InMap>,
    /// The innermost computation of a map that is being polled; null if there is none.
    /// COMPUTATIONS-ON-STACK in `shared::map::computation`
    pub(crate) computation: Cell<*const ()>,
    /// The innermost value of a task-local around what is being polled; null if there is none. BOUND in `local`
    pub(super) bound: Cell<*const Bound>,
}

/// What a thread may do with maps: anything, only read, or nothing at all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InMap {
    No,
    Reads,
    Writes,
}

/// What is set aside while a strand is polled.
pub(crate) struct OuterChild {
    strand: *const ChildWaker,
    own: *const Waker,
    refs: i64,
    woken: bool,
}

impl ThreadContext {
    const fn nowhere() -> ThreadContext {
        ThreadContext {
            home: Cell::new(null()),
            worker: Cell::new(null()),
            slab: Cell::new(null()),
            current: Published::null(),
            woken: Cell::new(false),
            unsettled: Cell::new(0),
            budget: Cell::new(BUDGET),
            stays: Cell::new(0),
            color: Cell::new(0),
            lane: Cell::new(null()),
            link: Cell::new(null()),
            own: Cell::new(null()),
            strand: Cell::new(null()),
            strand_refs: Cell::new(0),
            strand_woken: Cell::new(false),
            since: Cell::new(0),
            moment: Cell::new(0),
            main: Cell::new(null()),
            gave_way: Cell::new(0),
            closure: Cell::new(null()),
            is_observed: Cell::new(false),
            in_map: Cell::new(InMap::No),
            computation: Cell::new(null()),
            bound: Cell::new(null()),
        }
    }

    /// This thread's store of memory for tasks of `home`, if it is one of its workers.
    #[inline]
    pub(crate) fn slab_of<'a>(&self, home: *const RuntimeShared) -> Option<&'a LocalSlab> {
        let slab = if self.home.get() == home { self.slab.get() } else { null() };
        // SAFETY: it is set only while this thread drives the worker that owns it. The caller does
        // not keep it beyond that: it calls nothing that would let the thread leave its seat.
        unsafe { slab.as_ref() }
    }

    /// Whether the current task has got so much in this poll that it must give way. BUDGET in `wait`
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.budget.get() <= 0 && self.is_really_spent()
    }

    #[cold]
    fn is_really_spent(&self) -> bool {
        // A future that is polled outside of a task has no other task to give way to. And a task that goes on although
        // its waits were put off so often spins: it makes new waits and drops them, until one of them is ready.
        let is_spent = !self.current.get().is_null() && self.budget.get() > -SPINS;
        if !is_spent {
            self.budget.set(BUDGET);
        }
        is_spent
    }

    /// A wait was put off.
    pub(crate) fn note_put_off(&self) {
        self.budget.set(self.budget.get() - 1);
        self.note_stays(); // it has not been asked whether it is cancelled
    }

    /// A wait that may be cancelled rests all the same: it is to be polled again. LEFT-ALONE in `cancel`
    #[cold]
    pub(crate) fn note_stays(&self) {
        self.stays.set(self.stays.get().wrapping_add(1));
    }

    /// Whether what is being polled was woken in this poll, as far as this thread knows.
    pub(crate) fn is_awake(&self) -> bool {
        self.woken.get() || self.strand_woken.get()
    }

    /// A strand is going to be polled, with this waker. What is returned is for `leave_child`.
    #[inline]
    pub(crate) fn enter_child(&self, strand: *const ChildWaker, waker: *const Waker) -> OuterChild {
        OuterChild {
            strand: self.strand.replace(strand),
            own: self.own.replace(waker),
            refs: self.strand_refs.replace(0),
            woken: self.strand_woken.replace(false),
        }
    }

    /// The poll is over: references that were made of the strand, and whether it woke itself.
    #[inline]
    pub(crate) fn leave_child(&self, outer: OuterChild) -> (i64, bool) {
        self.strand.set(outer.strand);
        self.own.set(outer.own);
        (self.strand_refs.replace(outer.refs), self.strand_woken.replace(outer.woken))
    }

    fn swap(&self, other: &ThreadContext) {
        self.home.swap(&other.home);
        self.worker.swap(&other.worker);
        self.slab.swap(&other.slab);
        self.current.swap(&other.current);
        self.woken.swap(&other.woken);
        self.unsettled.swap(&other.unsettled);
        self.budget.swap(&other.budget);
        self.stays.swap(&other.stays);
        self.color.swap(&other.color);
        self.lane.swap(&other.lane);
        self.link.swap(&other.link);
        self.own.swap(&other.own);
        self.strand.swap(&other.strand);
        self.strand_refs.swap(&other.strand_refs);
        self.strand_woken.swap(&other.strand_woken);
        self.since.swap(&other.since);
        self.moment.swap(&other.moment);
        self.main.swap(&other.main);
        self.gave_way.swap(&other.gave_way);
        self.closure.swap(&other.closure);
        self.is_observed.swap(&other.is_observed);
        self.in_map.swap(&other.in_map);
        self.computation.swap(&other.computation);
        self.bound.swap(&other.bound);
    }
}

thread_local! {
    static HERE: ThreadContext = const { ThreadContext::nowhere() };
}

/// Calls `f` with this thread's `ThreadContext`.
#[inline(always)]
pub(crate) fn with_context<R>(f: impl FnOnce(&ThreadContext) -> R) -> R {
    // Not by `HERE.with(f)`: that is a function for each `f`, which is not always inlined.
    let here = HERE.with(std::ptr::from_ref);
    // SAFETY: it is this thread's, has no destructor, and so is there until the thread has ended.
    f(unsafe { &*here })
}

/// This thread's `ThreadContext`, without a closure. It is not `Send`, so it stays on this thread.
pub(crate) struct ThisThread(*const ThreadContext);

/// See [`ThisThread`].
#[inline(always)]
pub(crate) fn this_thread() -> ThisThread {
    ThisThread(HERE.with(std::ptr::from_ref))
}

impl std::ops::Deref for ThisThread {
    type Target = ThreadContext;

    #[inline(always)]
    fn deref(&self) -> &ThreadContext {
        // SAFETY: it is this thread's, has no destructor, and so is there until the thread has ended.
        unsafe { &*self.0 }
    }
}

/// Sets aside what this thread is doing until the guard is dropped: for a nested `block_on`. ONE-CONTEXT
pub(crate) struct SetAside(ThreadContext);

impl SetAside {
    pub(crate) fn new() -> SetAside {
        let outer = ThreadContext::nowhere();
        outer.closure.set(with_context(|here| here.closure.get())); // what it is in, it is in all the same
        outer.in_map.set(with_context(|here| here.in_map.get()));
        with_context(|here| here.swap(&outer));
        SetAside(outer)
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        with_context(|here| here.swap(&self.0));
    }
}

/// Room for what a virtual thread is doing, and the way to exchange it for what this thread does. ONE-CONTEXT
pub(crate) fn context() -> Box<dyn Fn()> {
    let own = ThreadContext::nowhere();
    Box::new(move || with_context(|here| here.swap(&own)))
}
