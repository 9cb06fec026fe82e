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
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::task::Waker;

use super::Task;
use super::cell::discard;
use super::header::{Extended, Header};
use super::here::here;
use super::links::Links;
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
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<Cancelled>() {
            return true;
        }
        // What an `io::Error` wraps is not its source: that is the source of what it wraps.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source());
    }
    false
}

/// Whom to wake. Counted, so that no foreign code runs under the lock.
static LINKS: LazyLock<Links<Arc<Waker>>> = LazyLock::new(Links::default);

/// Whether the task that this thread is running was cancelled.
#[inline]
pub(crate) fn is_current_cancelled() -> bool {
    here(|here| has_been(here.current.get()))
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
        for waker in LINKS.of(self.ptr().addr().get()) {
            // LINK-OR-SEE. A waker may be foreign code, and must not keep the others from being woken.
            discard(catch_unwind(AssertUnwindSafe(|| waker.wake_by_ref())));
        }
    }
}

/// What a wait keeps while it must be woken when its task is cancelled.
#[derive(Default)]
pub(crate) struct Item(Option<Box<Linked>>);

struct Linked {
    task: Task,
    /// In the order in which they were linked.
    number: u64,
    waker: Arc<Waker>,
}

impl Item {
    /// Sees to it that `waker` is woken when the current task is cancelled. To be called by a wait
    /// that returns `Pending`, after it has looked at the flag. `what` completes "waits for".
    #[inline]
    pub(crate) fn link(&mut self, waker: &Waker, what: &'static &'static str) {
        let current = here(|here| here.current.get());
        // SAFETY: the current task is being polled, so it exists. EXISTS
        if let Some(extended) = unsafe { current.as_ref() }.and_then(Extended::of) {
            extended.waits_for(what);
        }
        self.link_only(waker);
    }

    /// As `link`, without a word about what is waited for.
    #[inline]
    pub(crate) fn link_only(&mut self, waker: &Waker) {
        let current = here(|here| here.current.get());
        if current.is_null() || task_behind(waker).is_some_and(|task| std::ptr::eq(task.as_ptr(), current)) {
            self.unlink();
        } else {
            self.link_to(current, waker);
        }
    }

    #[cold]
    fn link_to(&mut self, current: *const Header, waker: &Waker) {
        let same = |linked: &Linked| {
            std::ptr::eq(linked.task.ptr().as_ptr(), current) && linked.waker.will_wake(waker)
        };
        if self.0.as_deref().is_some_and(same) {
            return;
        }
        self.unlink();
        let Some(task) = Task::current() else { return };
        let linked = Box::new(Linked { task, number: LINKS.number(), waker: Arc::new(waker.clone()) });
        LINKS.add(linked.key(), linked.number, linked.waker.clone());
        self.0 = Some(linked);
        if has_been(current) {
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
    fn key(&self) -> usize {
        self.task.ptr().addr().get()
    }

    #[cold]
    fn unlink(&self) {
        drop(LINKS.remove(self.key(), self.number)); // a waker's destructor is foreign code
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.unlink();
    }
}
