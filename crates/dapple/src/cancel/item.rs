//! How a wait with a foreign waker learns that it was cancelled.
//!
//! `cancel` sets a flag and wakes the task; a wait that is polled looks at the flag. A wait that is polled with a waker other
//! than its task's (a combinator's) would not be polled then. So it registers an [`Item`], and a cancel wakes its waker too.
//! That is rare, so the registrations are in a table of the process, and a task pays nothing for them.
//!
//! A cancel and a registration at the same time do not miss each other: LINK-OR-SEE in `table`.
//!
//! # Invariants
//!
//! * **SPAWNED-SEE**: a task that was spawned in a scope is polled inside of a frame of that scope. So a wait that it begins
//!   after the scope's flag was set is cancelled, wherever the task runs. A cancel of anything *around* the scope (an outer
//!   scope, a `timeout`, the task that polls it) sets the scope's flag before it returns: a scope registers itself with all
//!   that is around it before the first task is spawned in it, and again whenever it is polled elsewhere. That goes from
//!   scope to scope, through the tasks that were spawned in them.
//! * **ALL-TELL**: if several threads cancel the same task or scope at the same time, each of them sets all these flags
//!   before it returns, also if another thread was first, because that thread may not have set all of them yet. The thread
//!   that is the first to set a flag wakes the waits.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::sync::{Arc, LazyLock};
use std::task::Waker;

use super::check::is_cancelled_in;
use super::frame;
use super::scope::CancelScope;
use super::table::CancelTable;
use crate::context::{ThreadContext, this_thread, with_context};
use crate::prim::AtomicU8;
use crate::task::Task;
use crate::task::guarded::GuardedWaker;
use crate::task::header::{Extended, Header};
use crate::task::state::{CANCELLED, DONE};
use crate::task::waker::task_behind;

/// An entry of the table. Cheap to clone and counted, so that no foreign code runs under the lock.
#[derive(Clone)]
pub(super) enum Registered {
    /// A cancel wakes it.
    Waker(Arc<GuardedWaker>, Then),
    /// A cancel cancels it as well. SPAWNED-SEE
    Scope(Arc<CancelScope>),
    /// The stage of a cancelled task's grace period. A cancel does nothing to it. LEFT-ALONE
    Grace(Arc<AtomicU8>),
}

/// How a registered wait ends when it is polled after a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It returns in that poll, as most waits do.
    Answers,
    /// It may go on, and must not be dropped: a shield, a file operation, a scope. LEFT-ALONE
    Stays,
}

impl Registered {
    fn is_scope(&self) -> bool {
        matches!(self, Registered::Scope(_))
    }
}

pub(super) static REGISTERED: LazyLock<CancelTable<Registered>> = LazyLock::new(CancelTable::default);

impl Task {
    /// Asks the task to end by itself; see [`JoinHandle::cancel`](crate::JoinHandle::cancel).
    pub fn cancel(&self) {
        if self.header().state.load().has(DONE) {
            return;
        }
        self.wake_with(CANCELLED);
        cancel_registered(self.ptr().addr().get(), true);
    }
}

/// Cancels all scopes that are registered with a task or a scope, by its address, and wakes the waits that are registered
/// with those; `wakes`: also the waits that are registered with it directly. The caller has set its flag before.
/// LINK-OR-SEE, ALL-TELL
pub(super) fn cancel_registered(at: usize, wakes: bool) {
    let registered = REGISTERED.of(at);
    let mut wakers = Vec::new();
    let mut first = Vec::new();
    if registered.iter().any(Registered::is_scope) {
        let mut scopes = sort(registered, wakes, &mut wakers);
        // A scope may be registered with several others. Without this set, its part of the tree would be walked for each.
        let mut seen = BTreeSet::new();
        while let Some(scope) = scopes.pop() {
            let address = Arc::as_ptr(&scope).addr();
            if seen.insert(address) {
                let is_first = scope.mark();
                scopes.extend(sort(REGISTERED.of(address), is_first, &mut wakers));
                first.extend(is_first.then_some(scope));
            }
        }
    } else {
        sort(registered, wakes, &mut wakers);
    }
    wakers.iter().for_each(|waker| waker.wake_by_ref());
    first.iter().for_each(|scope| scope.wake_poller());
}

/// How the waits end that are registered with a task or a scope, by its address; `None` if there are none. `Stays` if one of
/// several does. LEFT-ALONE
#[cold]
pub(crate) fn registered_at(at: usize) -> Option<Then> {
    then_of(&REGISTERED.of(at))
}

pub(super) fn then_of(registered: &[Registered]) -> Option<Then> {
    let mut found = None;
    for registered in registered {
        match registered {
            Registered::Waker(_, Then::Stays) => return Some(Then::Stays),
            Registered::Waker(_, Then::Answers) => found = Some(Then::Answers),
            Registered::Scope(_) | Registered::Grace(_) => {}
        }
    }
    found
}

/// Returns the scopes, and adds the wakers to `wakers` if `wakes`.
fn sort(
    registered: Vec<Registered>,
    wakes: bool,
    wakers: &mut Vec<Arc<GuardedWaker>>,
) -> Vec<Arc<CancelScope>> {
    let mut scopes = Vec::new();
    for registered in registered {
        match registered {
            Registered::Waker(waker, _) if wakes => wakers.push(waker),
            Registered::Waker(..) | Registered::Grace(_) => {}
            Registered::Scope(scope) => scopes.push(scope),
        }
    }
    scopes
}

/// Wakes all waits that were registered with a scope that has ended, and removes the scopes: a cancel of the ended scope
/// does not reach them any more.
pub(super) fn end_registered(at: usize) {
    let (mut wakers, registered) = (Vec::new(), REGISTERED.of(at));
    if !sort(registered, true, &mut wakers).is_empty() {
        drop(REGISTERED.remove_all(at, Registered::is_scope));
    }
    wakers.iter().for_each(|waker| waker.wake_by_ref());
}

/// The registration of a wait that a cancel must wake, or of a scope that it must cancel.
#[derive(Default)]
pub(crate) struct Item(
    /// Dropped by [`unregister`](Item::unregister) alone, so that an item that is not registered costs one look.
    ManuallyDrop<Option<Box<CancelRegistration>>>,
);

struct CancelRegistration {
    /// From the inside out.
    with: Vec<CancelledBy>,
    /// In the order of registrations.
    number: u64,
    what: Registered,
}

/// A task or a scope that cancels a wait. The reference keeps its address from being used again.
enum CancelledBy {
    Task(Task),
    Scope(Arc<CancelScope>),
}

impl CancelledBy {
    fn address(&self) -> usize {
        match self {
            CancelledBy::Task(task) => task.ptr().addr().get(),
            CancelledBy::Scope(scope) => Arc::as_ptr(scope).addr(),
        }
    }
}

impl Item {
    /// Makes a cancel of the current task, or of a scope around this code, wake `waker`. A wait that returns `Pending` calls
    /// this, after it has looked at the flags. `what` completes "waits for".
    #[inline]
    pub(crate) fn wake_on_cancel(&mut self, waker: &Waker, then: Then, what: &'static &'static str) {
        let context = this_thread(); // a closure would be a call
        // SAFETY: the current task is being polled, so it exists. EXISTS
        if let Some(extended) = unsafe { context.current::<Header>().as_ref() }.and_then(Extended::of) {
            extended.waits_for(what);
        }
        self.register_in(&context, waker, then);
    }

    /// As `wake_on_cancel`, without a note for the dump.
    #[inline]
    pub(crate) fn register(&mut self, waker: &Waker, then: Then) {
        with_context(|context| self.register_in(context, waker, then));
    }

    /// As `register`, for the thread of this context.
    #[inline(always)] // a look at two words, in each wait that rests
    pub(crate) fn register_in(&mut self, context: &ThreadContext, waker: &Waker, then: Then) {
        // A cancel wakes the waker of the task, and that of a child of a scope, anyway.
        let own = context.own_waker();
        let is_own = if own.is_null() {
            let current = context.current::<Header>();
            current.is_null() || task_behind(waker).is_some_and(|task| std::ptr::eq(task.as_ptr(), current))
        } else {
            // SAFETY: it is the waker of a poll that this thread is in.
            unsafe { &*own }.will_wake(waker)
        };
        if is_own { self.unregister() } else { self.register_foreign(context, waker, then) }
    }

    /// As `register_in`, also if a cancel wakes the waker anyway: so that the code around knows of it. LEFT-ALONE
    #[cold]
    pub(crate) fn register_always(&mut self, context: &ThreadContext, waker: &Waker, then: Then) {
        let is_same = |what: &Registered| matches!(what, Registered::Waker(old, of) if *of == then && old.will_wake(waker));
        self.register_all(context, is_same, || Registered::Waker(Arc::new(GuardedWaker::of(waker)), then));
    }

    /// Registers with all that can cancel the wait. Usually one of them would do, since the poller of an inner scope hands a
    /// cancel of an outer one on. But that poller may be the wait here, by foreign means.
    #[cold]
    fn register_foreign(&mut self, context: &ThreadContext, waker: &Waker, then: Then) {
        let is_same = |what: &Registered| matches!(what, Registered::Waker(old, of) if *of == then && old.will_wake(waker));
        if self.register_all(context, is_same, || Registered::Waker(Arc::new(GuardedWaker::of(waker)), then))
            && is_cancelled_in(context)
        {
            waker.wake_by_ref(); // LINK-OR-SEE
        }
    }

    /// Makes a cancel of anything around the code that is polled here cancel `scope`. The caller looks after this whether
    /// something was cancelled. SPAWNED-SEE
    #[cold]
    pub(crate) fn register_scope(&mut self, context: &ThreadContext, scope: &Arc<CancelScope>) {
        self.register_all(context, Registered::is_scope, || Registered::Scope(scope.clone()));
    }

    /// Registers `new` with all that is around the code that is polled here. `false`: it was registered with all of that
    /// already, or there is nothing.
    fn register_all(
        &mut self,
        context: &ThreadContext,
        is_same_what: impl FnOnce(&Registered) -> bool,
        new: impl FnOnce() -> Registered,
    ) -> bool {
        let registration = self.0.as_deref().filter(|registration| is_same_what(&registration.what));
        let mut same = registration.map(|registration| registration.with.iter());
        let mut is_same =
            |address: usize| same.as_mut().and_then(Iterator::next).is_some_and(|by| by.address() == address);
        let mut are_same = true;
        let to_the_end = frame::around(context, |scope| are_same &= is_same(scope.addr()));
        if to_the_end && context.has_task() {
            are_same &= is_same(context.task_address());
        }
        if are_same && same.is_some_and(|mut more| more.next().is_none()) {
            return false;
        }
        let mut with = Vec::new();
        let to_the_end = frame::around(context, |scope| {
            // SAFETY: it is a pointer into the `Arc` of a scope that is being polled. ON-THE-STACK
            unsafe { Arc::increment_strong_count(scope) };
            // SAFETY: the reference was just counted.
            with.push(CancelledBy::Scope(unsafe { Arc::from_raw(scope) }));
        });
        with.extend(Task::current().filter(|_| to_the_end).map(CancelledBy::Task));
        if with.is_empty() {
            self.unregister();
            return false; // behind a shield, or outside of all tasks: nothing can cancel it
        }
        let registration = Box::new(CancelRegistration { with, number: REGISTERED.number(), what: new() });
        for by in &registration.with {
            REGISTERED.add(by.address(), registration.number, registration.what.clone());
        }
        // The old one goes after that: at no moment does a scope that is in both miss this wait.
        if let Some(old) = self.0.replace(registration) {
            old.remove();
        }
        true
    }

    #[inline]
    pub(crate) fn unregister(&mut self) {
        if self.0.is_some() {
            self.remove();
        }
    }

    /// Out of line with all that it drops: every wait that ends asks whether it is registered, and hardly any is.
    #[cold]
    #[inline(never)]
    fn remove(&mut self) {
        if let Some(registration) = self.0.take() {
            registration.remove();
        }
    }
}

impl CancelRegistration {
    fn remove(&self) {
        for by in &self.with {
            drop(REGISTERED.remove(by.address(), self.number)); // not the last reference
        }
    }
}

impl Drop for Item {
    #[inline]
    fn drop(&mut self) {
        self.unregister();
    }
}
