//! How a wait inside a task learns that the task was cancelled.
//!
//! `cancel` sets a flag and wakes the task; a wait that is polled looks at the flag. A wait that
//! is polled with a waker other than its task's (a combinator's) would not be polled then, so it
//! links an [`Item`]: its waker is woken too. That is rare, so the items lie in a table on the
//! side, and a task pays nothing for them.
//!
//! How neither misses the other is LINK-OR-SEE in `links`.

use std::error::Error;
use std::io;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use super::Task;
use super::cancel_points::{self, Begin, OBSERVES};
use super::guarded::GuardedWaker;
use super::header::{Extended, Header};
use super::here::{Here, here};
use super::links::Links;
use super::reach::{self, Reach};
use super::state::{CANCELLED, DONE};
use super::waker::task_behind;

/// A wait was cancelled: what it waited for has not happened, and nothing has been taken or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the wait was cancelled")
    }
}

impl std::error::Error for Cancelled {}

impl From<Cancelled> for io::Error {
    /// An error for which [`is_cancelled`] holds.
    fn from(cancelled: Cancelled) -> io::Error {
        // Not `Interrupted`, which is tried again.
        io::Error::other(cancelled)
    }
}

/// Whether an I/O error says that the wait was cancelled, itself or somewhere down its chain of
/// sources: libraries wrap errors.
///
/// # Examples
///
/// ```
/// let error = std::io::Error::from(dapple::Cancelled);
/// assert!(dapple::is_cancelled(&error));
/// assert!(!dapple::is_cancelled(&std::io::ErrorKind::TimedOut.into()));
/// ```
#[must_use]
pub fn is_cancelled(error: &io::Error) -> bool {
    causes(error).any(|cause| cause.is::<Cancelled>())
}

/// An error and its chain of sources.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // What an `io::Error` wraps is not its source: that is the source of what it wraps.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

/// Whom to wake. Counted, so that no foreign code runs under the lock.
static LINKS: LazyLock<Links<Arc<GuardedWaker>>> = LazyLock::new(Links::default);

/// Whether the task that this thread is running was cancelled.
#[inline]
pub(crate) fn is_current_cancelled() -> bool {
    here(is_cancelled_here)
}

/// As [`is_current_cancelled`], on the thread that this `here` is of.
#[inline]
pub(crate) fn is_cancelled_here(here: &Here) -> bool {
    match here.link.get().is_null() {
        true => is_task_cancelled(here),
        false => reach::is_cancelled(here),
    }
}

/// A wait begins: `Ready` if it is cancelled, `Pending` if a simulation holds it back, `None` if it goes on.
#[inline]
pub(crate) fn begin(begin: Begin, cx: &mut Context<'_>) -> Option<Poll<Cancelled>> {
    match OBSERVES {
        true => match here(may_be_cancelled) {
            true => cancel_points::begin(begin, cx),
            false => {
                cancel_points::note_shielded();
                None
            }
        },
        false => is_current_cancelled().then_some(Poll::Ready(Cancelled)),
    }
}

/// Whether a scope that is about to be polled is in something that was cancelled.
#[inline]
pub(crate) fn is_cancelled_around(here: &Here, scope: &Arc<Reach>) -> bool {
    match OBSERVES {
        true => may_be_cancelled(here) && cancel_points::is_cancelled_around(scope),
        false => is_cancelled_here(here),
    }
}

/// As [`is_cancelled_here`], for a wait that begins, and true wherever waits are observed. SUSPECT in `cancel_points`
#[inline]
pub(crate) fn may_be_cancelled(here: &Here) -> bool {
    match here.link.get().is_null() {
        true => is_task_cancelled(here),
        false => reach::may_be_cancelled(here),
    }
}

/// Whether the task that this thread is running was cancelled itself.
#[inline]
pub(super) fn is_task_cancelled(here: &Here) -> bool {
    has_been(here.current.get())
}

#[inline]
fn has_been(task: *const Header) -> bool {
    // SAFETY: the current task is being polled, so it exists. EXISTS
    !task.is_null() && unsafe { &*task }.state.load().has(CANCELLED)
}

impl Task {
    /// Asks the task to end by itself; see [`JoinHandle::cancel`](super::JoinHandle::cancel).
    pub fn cancel(&self) {
        if self.header().state.load().has(DONE) {
            return;
        }
        self.wake_with(CANCELLED);
        wake_linked(self.ptr().addr().get());
    }
}

/// Wakes all that were linked to a task, or to the reach of a scope, after its flag was set. LINK-OR-SEE
pub(super) fn wake_linked(to: usize) {
    for waker in LINKS.of(to) {
        waker.wake_by_ref();
    }
}

/// What a wait keeps while it must be woken when its task is cancelled.
#[derive(Default)]
pub(crate) struct Item(Option<Box<Linked>>);

struct Linked {
    /// From the inside out.
    to: Vec<LinkedTo>,
    /// In the order in which they were linked.
    number: u64,
    waker: Arc<GuardedWaker>,
}

/// What a wait is cancelled by; kept, so that its address is not another's.
enum LinkedTo {
    Task(Task),
    Reach(Arc<Reach>),
}

impl LinkedTo {
    fn address(&self) -> usize {
        match self {
            LinkedTo::Task(task) => task.ptr().addr().get(),
            LinkedTo::Reach(reach) => Arc::as_ptr(reach).addr(),
        }
    }
}

impl Item {
    /// Sees to it that `waker` is woken when the current task is cancelled. To be called by a wait
    /// that returns `Pending`, after it has looked at the flag. `what` completes "waits for".
    #[inline]
    pub(crate) fn link(&mut self, waker: &Waker, what: &'static &'static str) {
        here(|here| {
            // SAFETY: the current task is being polled, so it exists. EXISTS
            if let Some(extended) = unsafe { here.current.get().as_ref() }.and_then(Extended::of) {
                extended.waits_for(what);
            }
            self.link_here(here, waker);
        });
    }

    /// As `link`, without a word about what is waited for.
    #[inline]
    pub(crate) fn link_only(&mut self, waker: &Waker) {
        here(|here| self.link_here(here, waker));
    }

    /// As `link_only`, on the thread that this `here` is of.
    #[inline]
    pub(crate) fn link_here(&mut self, here: &Here, waker: &Waker) {
        // Who is polled with its own waker, that of its task or of what was started in a scope, is woken
        // by a cancel anyway.
        let own = here.own.get();
        let is_own = if own.is_null() {
            let current = here.current.get();
            current.is_null() || task_behind(waker).is_some_and(|task| std::ptr::eq(task.as_ptr(), current))
        } else {
            // SAFETY: it is the waker of a poll that this thread is in.
            unsafe { &*own }.will_wake(waker)
        };
        if is_own { self.unlink() } else { self.link_to(here, waker) }
    }

    /// Links it to all that it can be cancelled by: usually one of them is enough, since who polls an inner
    /// scope hands on what happens to an outer one. But that may be who is waiting here, by foreign means.
    #[cold]
    fn link_to(&mut self, here: &Here, waker: &Waker) {
        let mut same = self
            .0
            .as_deref()
            .map(|linked| linked.to.iter())
            .filter(|_| self.0.as_deref().is_some_and(|linked| linked.waker.will_wake(waker)));
        let mut is_same =
            |address: usize| same.as_mut().and_then(Iterator::next).is_some_and(|to| to.address() == address);
        let mut are_same = true;
        let to_the_end = reach::around(here, |reach| are_same &= is_same(reach.addr()));
        if to_the_end {
            are_same &= is_same(here.current.get().addr());
        }
        if are_same && same.is_some_and(|mut more| more.next().is_none()) {
            return;
        }
        self.unlink();
        let mut to = Vec::new();
        let to_the_end = reach::around(here, |reach| {
            // SAFETY: it is a pointer into the `Arc` that the scope has, which is being polled.
            unsafe { Arc::increment_strong_count(reach) };
            // SAFETY: the reference was just counted.
            to.push(LinkedTo::Reach(unsafe { Arc::from_raw(reach) }));
        });
        to.extend(Task::current().filter(|_| to_the_end).map(LinkedTo::Task));
        if to.is_empty() {
            return; // behind a shield, or outside of all tasks: nothing to be told of
        }
        let linked =
            Box::new(Linked { to, number: LINKS.number(), waker: Arc::new(GuardedWaker::of(waker)) });
        for to in &linked.to {
            LINKS.add(to.address(), linked.number, Arc::clone(&linked.waker));
        }
        self.0 = Some(linked);
        if is_current_cancelled() {
            waker.wake_by_ref(); // LINK-OR-SEE
        }
    }

    #[inline]
    pub(crate) fn unlink(&mut self) {
        if let Some(linked) = self.0.take() {
            linked.unlink();
        }
    }
}

impl Linked {
    #[cold]
    fn unlink(&self) {
        for to in &self.to {
            drop(LINKS.remove(to.address(), self.number)); // not the last
        }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.unlink();
    }
}
