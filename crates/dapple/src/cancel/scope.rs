//! How far a cancel reaches: the counted part of a scope, and the chain of scopes around what is polled.
//!
//! Whoever polls inside of a scope puts a [`CancelFrame`] into the chain, for as long as that takes. A wait that
//! is polled looks up the chain: it is cancelled if any of the scopes around it is, up to the first
//! [`shield`](crate::shield), or if its task is. So a cancel is seen at once, wherever it happens.
//!
//! Being seen is not enough for those who wait: they must be polled. A cancel wakes whoever polls the
//! scope, and that polls all that was started in it. A wait that is polled with another waker than that (a
//! combinator's) links it: see `cancel`.
//!
//! # Invariants
//!
//! * **ON-THE-STACK**: the links of the chain, from the thread's innermost on outwards, are those of polls
//!   that this thread is in. So all of them, and their reaches, are there while the chain is walked.
//! * **BY-TASK**: nearly always a scope is polled by one task, with its own waker. The reach then keeps a
//!   reference to that task from the first poll on, before anybody else knows of the scope, and who has news
//!   wakes it: by NO-LOST-WAKE in `state` it is polled after that. As soon as the scope is polled with another
//!   waker, it goes **by waker**, for good; the word of `woken` says which, so that a push knows it.
//! * **STORE-OR-SEE**: who polls a scope by waker leaves that there and then looks at the flag, the count and
//!   the line once more. Who has news makes it known and then looks for the waker. To leave it and to look for
//!   it needs the waker's lock: so who comes to it later sees what the other did before, and no cancel is slept
//!   through. A waker of ours stays there, and need not be left again: to use it makes whoever is polled with
//!   it be polled once more. Who polls a scope that begins to go by waker says so, and then looks; who has news
//!   makes it known, and then looks which way it goes, with a fence between on both sides: one sees the other.
//! * **RUN-FIRST**: who puts a strand in line gives its reference away, and with it what keeps the reach. So
//!   who goes by task takes the right to run that task first, and puts it in line after: while the right is
//!   its, the task exists, whatever becomes of the scope; and it is polled after the strand came in line. Who
//!   does not get the right, since the task is running or in line, keeps the reach instead and wakes the task
//!   once more after that: it may have looked too early.
//! * **INSIDE-LOOKS**: who polls a scope looks at the line of the woken after everything that was polled. So what is
//!   put in line on the same thread, from inside of that poll, needs nobody to be woken. The link of a task that was
//!   *spawned* in the scope does not count: such a task is polled by itself, and no poll of the scope comes after.
//! * **LOSER-TAKES-NOTHING**: a race that is decided drops whatever its losers return. So a wait in one of them must
//!   not take anything any more: the link of such a race is *lost*, and so is every link inside of it up to a shield. A
//!   wait asks the innermost link alone. This cannot change during a poll inside of the link: a race is decided between
//!   two polls.

use std::cell::Cell;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use std::task::Waker;

use super::context::ThreadContext;
use super::guarded::GuardedWaker;
use super::ready_list::{ReadyList, ReadyWord};
use super::waker::{self, Behind, borrowed_waker, is_ours, task_behind};
use crate::prim::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, SpinLock, fence_seq_cst};

/// What a scope shares with who can reach it from elsewhere: its cancellers, the wakers of what was
/// started in it, and what was spawned in it.
pub(crate) struct CancelScope {
    cancelled: AtomicBool,
    /// It is polled with more than one waker, or with that of something else than a task. BY-TASK
    by_waker: AtomicBool,
    /// The task that polls the scope, with a reference; null before the first poll, and if none ever has. Set
    /// once, by who polls the scope.
    task: AtomicPtr<Behind>,
    /// Wakes who polls the scope, if that goes by waker. Whoever has news takes it, or a clone if it is ours.
    waker: SpinLock<Option<GuardedWaker>>,
    /// What was started and is to be polled.
    pub(crate) woken: ReadyList,
    /// How many tasks were spawned in it that have not ended.
    pub(crate) spawned: AtomicUsize,
}

impl CancelScope {
    pub(crate) fn new() -> Arc<CancelScope> {
        Arc::new(CancelScope {
            cancelled: AtomicBool::new(false),
            by_waker: AtomicBool::new(false),
            task: AtomicPtr::new(null_mut()),
            waker: SpinLock::default(),
            woken: ReadyList::new(),
            spawned: AtomicUsize::new(0),
        })
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Cancels all that is inside, and wakes it. `false`: it was cancelled already.
    pub(crate) fn cancel(self: &Arc<CancelScope>) -> bool {
        let is_first = self.mark();
        #[cfg(not(loom))]
        super::cancel::cancel_linked(Arc::as_ptr(self).addr(), is_first);
        if is_first {
            self.nudge(); // STORE-OR-SEE
        }
        is_first
    }

    /// Sets the flag. `true`: the caller was the first, and has to wake who polls the scope, and what is linked to it.
    pub(super) fn mark(&self) -> bool {
        !self.is_cancelled() && !self.cancelled.swap(true, Ordering::AcqRel)
    }

    /// Wakes who polls the scope.
    pub(crate) fn nudge(&self) {
        if !self.goes_by_waker() {
            if let Some(task) = self.task() {
                // SAFETY: the reach has a reference to it. BY-TASK
                unsafe { waker::wake_task(task) };
            }
            return;
        }
        let mut left = self.waker.lock();
        let waker = left.as_ref().and_then(GuardedWaker::clone_ours).or_else(|| left.take());
        drop(left);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Which way it goes, for who has made news known.
    fn goes_by_waker(&self) -> bool {
        self.by_waker.load(Ordering::Relaxed) || {
            fence_seq_cst(); // STORE-OR-SEE
            self.by_waker.load(Ordering::Relaxed)
        }
    }

    fn task(&self) -> Option<waker::TaskPtr> {
        NonNull::new(self.task.load(Ordering::Acquire))
    }

    /// Who polls the scope does so with this waker, for the first time, or for the first time after another.
    /// `true`: it need not say so again while that stays so; otherwise it has to leave the waker before it
    /// rests.
    #[cold]
    pub(crate) fn polled_with(&self, waker: &Waker) -> bool {
        if !self.by_waker.load(Ordering::Relaxed) {
            if let Some(task) = task_behind(waker)
                && self.task().is_none()
            {
                std::mem::forget(GuardedWaker::of(waker)); // the reach has its reference
                self.task.store(task.as_ptr(), Ordering::Release); // BY-TASK
                return true;
            }
            self.by_waker.store(true, Ordering::Relaxed);
            fence_seq_cst(); // STORE-OR-SEE
            self.woken.go_by_waker();
        }
        self.leave_waker(waker);
        is_ours(waker)
    }

    /// Whether it goes by waker. For who polls the scope. BY-TASK
    #[inline]
    pub(crate) fn is_by_waker(&self) -> bool {
        self.by_waker.load(Ordering::Relaxed)
    }

    /// Who polls the scope is to be woken by this. It must look at the flag, the count and the line after this.
    /// STORE-OR-SEE
    pub(crate) fn leave_waker(&self, waker: &Waker) {
        if self.waker.lock().as_ref().is_some_and(|old| old.will_wake(waker)) {
            return;
        }
        let new = GuardedWaker::of(waker); // foreign code: not under the lock
        let old = self.waker.lock().replace(new);
        drop(old);
    }

    /// The scope has ended. Who is still linked to it (a wait that was polled in it, and lives on) is to be
    /// polled again, to be linked to what is around it then.
    pub(crate) fn end(self: &Arc<CancelScope>) {
        #[cfg(not(loom))]
        super::cancel::end_linked(Arc::as_ptr(self).addr());
    }

    /// A task that was spawned in the scope has ended.
    pub(crate) fn task_ended(&self) {
        if self.spawned.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.nudge(); // STORE-OR-SEE
        }
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        if let Some(task) = self.task() {
            drop(std::mem::ManuallyDrop::into_inner(borrowed_waker(task))); // with the reach's reference
        }
        // In a model, who uses one that is gone waits for its lock for ever, which loom notices.
        #[cfg(loom)]
        std::mem::forget(self.waker.lock());
    }
}

/// What who puts a strand in line does so that its scope is polled. RUN-FIRST
pub(super) enum Nudge {
    None,
    /// The right to run the task that polls the scope.
    Run(waker::TaskPtr),
    Keep(Arc<CancelScope>),
}

impl Nudge {
    /// Before a strand is put in line of a scope, whose line was `seen` like that.
    ///
    /// # Safety
    ///
    /// The reach, a pointer into its `Arc`, is there.
    #[inline]
    pub(super) unsafe fn prepare(
        &mut self,
        reach: *const CancelScope,
        seen: ReadyWord,
        here: &ThreadContext,
    ) {
        if !seen.is_by_task() && !seen.is_by_waker() {
            return; // who was the first has seen to it
        }
        match self {
            Nudge::Keep(_) => return,
            Nudge::Run(_) if seen.is_by_task() => return,
            _ => std::mem::replace(self, Nudge::None).give(), // for a task that has nothing to do with it any more
        }
        if is_inside(here, reach) {
            return; // INSIDE-LOOKS
        }
        // SAFETY: handed on from the caller.
        let task = if seen.is_by_task() { unsafe { &*reach }.task() } else { None };
        if let Some(task) = task
            // SAFETY: the reach has a reference to it, and the reach is there.
            && unsafe { waker::claim(task, here) }
        {
            *self = Nudge::Run(task);
            return;
        }
        // SAFETY: handed on from the caller.
        unsafe { Arc::increment_strong_count(reach) };
        // SAFETY: the reference was just counted.
        *self = Nudge::Keep(unsafe { Arc::from_raw(reach) });
    }

    /// After it is in line.
    #[inline]
    pub(super) fn give(self) {
        match self {
            Nudge::None => {}
            // SAFETY: the right to run it is ours.
            Nudge::Run(task) => unsafe { waker::run(task) },
            Nudge::Keep(reach) => reach.nudge(),
        }
    }
}

/// Whether this thread is in a poll of the scope. INSIDE-LOOKS
#[inline]
fn is_inside(here: &ThreadContext, reach: *const CancelScope) -> bool {
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() } {
        if std::ptr::eq(link.reach, reach) && !link.is_spawned {
            return true;
        }
        next = link.outer.get();
    }
    false
}

/// A limit of time around what is being polled.
pub(crate) struct Deadline {
    /// In nanoseconds of the runtime's clock.
    pub(crate) at: u64,
    /// A limit inside of it was up, and has found this one up.
    pub(crate) is_claimed: Cell<bool>,
}

/// Of the limits of time around what is polled here, up to the first shield, claims the outermost that is up. `false`:
/// none is. `now` is in nanoseconds of the runtime's clock.
pub(crate) fn claim_outermost(here: &ThreadContext, now: u64) -> bool {
    let mut outermost: Option<&Deadline> = None;
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() } {
        if link.reach.is_null() {
            break;
        }
        // SAFETY: it is there while the link is in the chain.
        outermost = unsafe { link.deadline.as_ref() }.filter(|deadline| deadline.at <= now).or(outermost);
        next = link.outer.get();
    }
    outermost.inspect(|deadline| deadline.is_claimed.set(true)).is_some()
}

/// A scope, or a shield, around what is being polled.
pub(crate) struct CancelFrame {
    /// Null for a shield.
    reach: *const CancelScope,
    outer: Cell<*const CancelFrame>,
    /// The scope is a race that is decided. LOSER-TAKES-NOTHING
    is_decided: bool,
    /// The limit of time that the scope is, or null. It is there while the link is in the chain.
    deadline: *const Deadline,
    /// That, or the link around this one is lost. LOSER-TAKES-NOTHING
    lost: Cell<bool>,
    /// It is around a task that was spawned in the scope. INSIDE-LOOKS
    is_spawned: bool,
    /// A child of a scope around this one is awaited inside, by a foreign waker. ON-ITS-WAY in `scope::children`
    awaits_child: Cell<bool>,
    /// How many values of the scope's children are on their way. ON-ITS-WAY in `scope::children`
    on_their_way: Cell<u32>,
}

impl CancelFrame {
    pub(crate) const fn shield() -> CancelFrame {
        CancelFrame {
            reach: null(),
            outer: Cell::new(null()),
            is_decided: false,
            deadline: null(),
            lost: Cell::new(false),
            is_spawned: false,
            awaits_child: Cell::new(false),
            on_their_way: Cell::new(0),
        }
    }

    /// Makes it the link of a scope.
    pub(crate) fn of(reach: *const CancelScope) -> CancelFrame {
        CancelFrame::of_region(reach, false, null())
    }

    /// As `of`; `is_decided`: it is a race, and has been won. LOSER-TAKES-NOTHING.
    /// `deadline`: that of a limit of time, which is there
    /// for as long as the link is in the chain; or null.
    pub(crate) fn of_region(
        reach: *const CancelScope,
        is_decided: bool,
        deadline: *const Deadline,
    ) -> CancelFrame {
        CancelFrame {
            reach,
            outer: Cell::new(null()),
            is_decided,
            deadline,
            lost: Cell::new(false),
            is_spawned: false,
            awaits_child: Cell::new(false),
            on_their_way: Cell::new(0),
        }
    }

    /// The link of a task that was spawned in the scope. SPAWNED-SEE in `cancel`
    pub(crate) fn of_spawned(reach: *const CancelScope) -> CancelFrame {
        CancelFrame { is_spawned: true, ..CancelFrame::of(reach) }
    }

    /// Whether what is inside of it is in a race that another has won. LOSER-TAKES-NOTHING
    #[cfg(not(loom))]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get()
    }

    /// Whether a child of a scope around this one was awaited inside, by a foreign waker.
    #[cfg(not(loom))]
    pub(crate) fn awaits_child(&self) -> bool {
        self.awaits_child.get()
    }

    /// A child of this scope is awaited here by a foreign waker: all links between the two take note of it.
    #[cfg(not(loom))]
    pub(crate) fn note_awaited(&self, here: &ThreadContext) {
        let mut next = here.link.get();
        // SAFETY: ON-THE-STACK.
        while let Some(link) = unsafe { next.as_ref() }.filter(|link| !std::ptr::eq(*link, self)) {
            link.awaits_child.set(true);
            next = link.outer.get();
        }
    }

    /// Counts values of the scope's children that are on their way.
    #[cfg(not(loom))]
    pub(crate) fn count_on_their_way(&self, change: i32) {
        self.on_their_way.set(self.on_their_way.get().wrapping_add_signed(change));
    }

    #[cfg(not(loom))]
    pub(crate) fn has_on_their_way(&self) -> bool {
        self.on_their_way.get() > 0
    }

    /// Calls `f` as if it were called around the link, which is in the chain.
    #[cfg(not(loom))]
    pub(crate) fn outside<R>(&self, here: &ThreadContext, f: impl FnOnce() -> R) -> R {
        struct Back<'a>(*const CancelFrame, &'a ThreadContext);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.1.link.set(self.0);
            }
        }
        let _back = Back(here.link.replace(self.outer.get()), here);
        f()
    }

    /// Puts it into the chain while `f` is called. ON-THE-STACK
    #[inline]
    pub(crate) fn around<R>(&self, here: &ThreadContext, f: impl FnOnce() -> R) -> R {
        struct LeaveFrame<'a>(&'a CancelFrame, &'a ThreadContext);
        impl Drop for LeaveFrame<'_> {
            fn drop(&mut self) {
                self.1.link.set(self.0.outer.get());
            }
        }
        let outer = here.link.replace(self);
        self.outer.set(outer);
        let _out = LeaveFrame(self, here);
        // SAFETY: ON-THE-STACK.
        let outer = unsafe { outer.as_ref() };
        self.lost
            .set(self.is_decided || !self.reach.is_null() && outer.is_some_and(|outer| outer.lost.get()));
        f()
    }

    /// The scope; `None` for a shield.
    fn cancel_scope(&self) -> Option<&CancelScope> {
        // SAFETY: it is the link of a poll that this thread is in. ON-THE-STACK
        unsafe { self.reach.as_ref() }
    }
}

/// Whether what is polled here is in a race that another has won. LOSER-TAKES-NOTHING
#[inline]
pub(crate) fn is_lost(here: &ThreadContext) -> bool {
    // SAFETY: ON-THE-STACK.
    unsafe { here.link.get().as_ref() }.is_some_and(|link| link.lost.get())
}

/// Whether a value of a child is on its way, in any scope around what is polled here. ON-ITS-WAY in `scope::children`
#[cfg(not(loom))]
#[cold]
pub(crate) fn has_on_their_way(here: &ThreadContext) -> bool {
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() } {
        if link.has_on_their_way() {
            return true;
        }
        next = link.outer.get();
    }
    false
}

/// The scopes around what is polled here, from the inside out, up to the first shield, by pointers into
/// their `Arc`s; and whether that is all, so that a cancel of the task reaches it, too.
pub(super) fn around(here: &ThreadContext, mut each: impl FnMut(*const CancelScope)) -> bool {
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() } {
        if link.reach.is_null() {
            return false;
        }
        each(link.reach);
        next = link.outer.get();
    }
    true
}

/// As [`around`], without the scopes that a task was spawned in.
#[cfg(not(loom))]
pub(super) fn around_in_task(here: &ThreadContext, mut each: impl FnMut(*const CancelScope)) {
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() }.filter(|link| !link.reach.is_null()) {
        if !link.is_spawned {
            each(link.reach);
        }
        next = link.outer.get();
    }
}

/// Whether what is polled here is cancelled: by a scope around it, or as a task.
#[cfg(not(loom))]
#[inline(never)]
pub(super) fn is_cancelled(here: &ThreadContext) -> bool {
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() } {
        match link.cancel_scope() {
            None => return false,
            Some(reach) if reach.is_cancelled() => return is_really_cancelled(here),
            Some(_) => next = link.outer.get(),
        }
    }
    super::cancel::is_task_cancelled(here)
}

/// As [`is_cancelled`], for a wait that begins, and true wherever waits are observed. SUSPECT in `cancel_points`
#[cfg(not(loom))]
#[inline(never)]
pub(super) fn may_be_cancelled(here: &ThreadContext) -> bool {
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() } {
        match link.cancel_scope() {
            None => return false,
            Some(reach) if reach.is_cancelled() => return true,
            Some(_) => next = link.outer.get(),
        }
    }
    super::cancel::is_task_cancelled(here)
}

/// A scope around what is polled here is cancelled: whether that is more than the one by which waits are observed.
#[cfg(not(loom))]
#[cold]
fn is_really_cancelled(here: &ThreadContext) -> bool {
    !super::cancel_points::OBSERVES || !here.is_observed.get() || super::cancel_points::is_cancelled(here)
}
