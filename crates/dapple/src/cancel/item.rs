//! How a wait inside a task learns that the task was cancelled.
//!
//! `cancel` sets a flag and wakes the task; a wait that is polled looks at the flag. A wait that
//! is polled with a waker other than its task's (a combinator's) would not be polled then, so it
//! links an [`Item`]: its waker is woken too. That is rare, so the items lie in a table on the
//! side, and a task pays nothing for them.
//!
//! How neither misses the other is LINK-OR-SEE in `links`.
//!
//! # Invariants
//!
//! * **SPAWNED-SEE**: a task that was spawned in a scope is polled inside of a link to that scope. So whatever it begins
//!   to wait for after the scope's flag was set is cancelled, wherever it runs. A cancel of anything *around* the scope
//!   (an outer scope, a `timeout`, the task that polls it) sets the scope's flag before it returns: a scope links itself
//!   to all that is around it before the first task is spawned in it, and again whenever it is polled elsewhere. That
//!   goes from scope to scope, through the tasks that were spawned in them.
//! * **ALL-TELL**: of several threads that cancel the same thing at the same time each sets all those flags before it
//!   returns, though another was the first: that one may not have got so far. The thread that sets a flag first wakes.
//!
//! # Futures that know nothing of cancelling
//!
//! * **LEFT-ALONE**: a `timeout` whose time is up, a `race` that is decided and a task that was cancelled (by its handle, or with the scope that spawned it)
//!   drop what they poll if that waits in nothing that could answer. Something in it could, or is not to be dropped, if
//!   it is polled and says so (`ThreadContext::note_stays`): a wait that is put off (BUDGET), a file operation under way, a
//!   shield, a scope in which something of that kind was started or a task was spawned. Or if it is linked: whatever is
//!   polled with a foreign waker is not polled in every poll of what is around it, so its link tells of it. A wait that
//!   answers unlinks itself; a scope or region in which nothing stays does so, too. But a collection of waits that is
//!   not polled any more (a `FuturesUnordered` beside a foreign future) keeps them linked. So where all that is linked
//!   would answer, and does not within a [grace](GRACE), it is dropped as well. A `timeout` and a `race` keep the time
//!   themselves; for a task, another one does, and the [`Grace`] is in the table.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Task;
use super::cancel_points::{self, Begin, OBSERVES};
use super::cancel_scope::{self, CancelScope};
use super::cancel_table::CancelTable;
use super::context::{ThreadContext, this_thread, with_context};
use super::guarded::GuardedWaker;
use super::header::{Extended, Header};
use super::runtime_shared::RuntimeShared;
use super::state::{CANCELLED, DONE};
use super::waker::task_behind;
use crate::prim::{AtomicU8, Ordering};

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

/// What a cancel has to reach. Counted, so that no foreign code runs under the lock.
#[derive(Clone)]
enum Reached {
    /// To be woken.
    Waker(Arc<GuardedWaker>, Then),
    /// To be cancelled as well. SPAWNED-SEE
    Scope(Arc<CancelScope>),
    /// Not reached: how far the grace of a task is that was cancelled. LEFT-ALONE
    Grace(Arc<AtomicU8>),
}

/// How long waits that would answer, and are linked, may take to be polled after a cancel. Their wakers were woken, so
/// that this is long; but a foreign combinator may be gone, or pass a waker on late. LEFT-ALONE
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// How something that is linked ends when it is polled after a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It returns in that poll, as a wait does.
    Answers,
    /// It may go on, and is not to be dropped: a shield, a file operation, a scope. LEFT-ALONE
    Stays,
}

impl Reached {
    fn is_scope(&self) -> bool {
        matches!(self, Reached::Scope(_))
    }
}

static LINKS: LazyLock<CancelTable<Reached>> = LazyLock::new(CancelTable::default);

/// Whether the task that this thread is running was cancelled.
#[inline]
pub(crate) fn is_current_cancelled() -> bool {
    with_context(is_cancelled_here)
}

/// As [`is_current_cancelled`], on the thread that this `with_context` is of.
#[inline]
pub(crate) fn is_cancelled_here(here: &ThreadContext) -> bool {
    match here.link.get().is_null() {
        true => is_task_cancelled(here),
        false => cancel_scope::is_cancelled(here),
    }
}

/// A wait begins: `Ready` if it is cancelled, `Pending` if a simulation holds it back, `None` if it goes on.
#[inline]
pub(crate) fn begin(begin: Begin, cx: &mut Context<'_>) -> Option<Poll<Cancelled>> {
    match OBSERVES {
        true => match with_context(may_be_cancelled) {
            true => cancel_points::begin(begin, cx),
            false => {
                cancel_points::note_shielded();
                None
            }
        },
        false => is_current_cancelled().then_some(Poll::Ready(Cancelled)),
    }
}

/// Whether a wait that begins goes on, as [`begin`] would say, if that is the common case; `false`: ask that.
#[inline]
pub(crate) fn begins(here: &ThreadContext) -> bool {
    if !OBSERVES {
        return !is_cancelled_here(here);
    }
    let goes_on = !may_be_cancelled(here);
    if goes_on {
        cancel_points::note_shielded();
    }
    goes_on
}

/// Whether a scope that is about to be polled is in something that was cancelled.
#[inline]
pub(crate) fn is_cancelled_around(here: &ThreadContext, scope: &Arc<CancelScope>) -> bool {
    match OBSERVES {
        true => may_be_cancelled(here) && cancel_points::is_cancelled_around(scope),
        false => is_cancelled_here(here),
    }
}

/// As [`is_cancelled_here`], for a wait that begins, and true wherever waits are observed. SUSPECT in `cancel_points`
#[inline]
pub(crate) fn may_be_cancelled(here: &ThreadContext) -> bool {
    match here.link.get().is_null() {
        true => is_task_cancelled(here),
        false => cancel_scope::may_be_cancelled(here),
    }
}

/// Whether the task that this thread is running was cancelled itself.
#[inline]
pub(super) fn is_task_cancelled(here: &ThreadContext) -> bool {
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
        cancel_linked(self.ptr().addr().get(), true);
    }
}

/// Cancels all scopes that were linked to a task, or to the reach of a scope, after its flag was set, and wakes what
/// was linked to those; `wakes`: to itself as well. LINK-OR-SEE, ALL-TELL
pub(super) fn cancel_linked(to: usize, wakes: bool) {
    let linked = LINKS.of(to);
    let mut wakers = Vec::new();
    let mut first = Vec::new();
    if linked.iter().any(Reached::is_scope) {
        let mut scopes = sort(linked, wakes, &mut wakers);
        // One may be linked to several others: without this, its part of the tree would be walked for each of them.
        let mut seen = BTreeSet::new();
        while let Some(scope) = scopes.pop() {
            let address = Arc::as_ptr(&scope).addr();
            if seen.insert(address) {
                let is_first = scope.mark();
                scopes.extend(sort(LINKS.of(address), is_first, &mut wakers));
                first.extend(is_first.then_some(scope));
            }
        }
    } else {
        sort(linked, wakes, &mut wakers);
    }
    wakers.iter().for_each(|waker| waker.wake_by_ref());
    first.iter().for_each(|scope| scope.nudge());
}

/// How what is linked to a task, or to the reach of a scope, by its address, ends, if anything is that waits. `Stays` if
/// only one of several does. LEFT-ALONE
#[cold]
pub(crate) fn linked_to(to: usize) -> Option<Then> {
    then_of(&LINKS.of(to))
}

fn then_of(linked: &[Reached]) -> Option<Then> {
    let mut found = None;
    for linked in linked {
        match linked {
            Reached::Waker(_, Then::Stays) => return Some(Then::Stays),
            Reached::Waker(_, Then::Answers) => found = Some(Then::Answers),
            Reached::Scope(_) | Reached::Grace(_) => {}
        }
    }
    found
}

/// Whether a task that was cancelled, and rests, is to be dropped. `stays`: something in it has said that it is not.
/// LEFT-ALONE
#[cold]
pub(super) fn is_left_alone(task: &Task, stays: bool) -> bool {
    let linked = LINKS.of(task.ptr().addr().get());
    let grace = linked.iter().find_map(|linked| match linked {
        Reached::Grace(grace) => Some(grace),
        Reached::Waker(..) | Reached::Scope(_) => None,
    });
    match (if stays { Some(Then::Stays) } else { then_of(&linked) }, grace) {
        (None, _) => true,
        (Some(Then::Stays), None) => false,
        (Some(Then::Stays), Some(grace)) => {
            grace.store(WITHDRAWN, Ordering::Release);
            drop(LINKS.remove_all(task.ptr().addr().get(), |linked| matches!(linked, Reached::Grace(_))));
            false
        }
        (Some(Then::Answers), Some(grace)) => grace.load(Ordering::Acquire) == OVER,
        (Some(Then::Answers), None) => {
            // SAFETY: a task's home outlives it.
            let home = unsafe { &*RuntimeShared::of(task.ptr()) };
            // SAFETY: it is the pointer to the whole of this home.
            unsafe { (home.hooks.keep_grace)(home.whole(), Grace::begin(task.clone())) };
            false
        }
    }
}

/// The time that a task is given after a cancel, while waits are linked to it that would answer. It is in the table until
/// this is dropped. LEFT-ALONE
pub(crate) struct Grace {
    task: Task,
    number: u64,
    stage: Arc<AtomicU8>,
}

/// The time runs.
const RUNS: u8 = 0;
/// It is up.
const OVER: u8 = 1;
/// Something in the task is not to be dropped: there is no limit.
const WITHDRAWN: u8 = 2;

impl Grace {
    fn begin(task: Task) -> Grace {
        let (number, stage) = (LINKS.number(), Arc::new(AtomicU8::new(RUNS)));
        LINKS.add(task.ptr().addr().get(), number, Reached::Grace(stage.clone()));
        Grace { task, number, stage }
    }

    /// Whether it need not be kept any more: the task has ended, or stays.
    pub(crate) fn is_needless(&self) -> bool {
        self.task.is_finished() || self.stage.load(Ordering::Acquire) == WITHDRAWN
    }

    /// The time is up: the task is polled once more, and dropped if it still waits there.
    pub(crate) fn end(&self) {
        if self.stage.compare_exchange(RUNS, OVER, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.task.wake_with(0);
        }
    }
}

impl Drop for Grace {
    fn drop(&mut self) {
        drop(LINKS.remove(self.task.ptr().addr().get(), self.number));
    }
}

/// Takes the scopes out, and puts the wakers, if they are wanted, to the others.
fn sort(linked: Vec<Reached>, wakes: bool, wakers: &mut Vec<Arc<GuardedWaker>>) -> Vec<Arc<CancelScope>> {
    let mut scopes = Vec::new();
    for linked in linked {
        match linked {
            Reached::Waker(waker, _) if wakes => wakers.push(waker),
            Reached::Waker(..) | Reached::Grace(_) => {}
            Reached::Scope(scope) => scopes.push(scope),
        }
    }
    scopes
}

/// Wakes all that were linked to the reach of a scope that has ended, and lets go of the scopes: from now on nothing
/// around them is cancelled by it.
pub(super) fn end_linked(to: usize) {
    let (mut wakers, linked) = (Vec::new(), LINKS.of(to));
    if !sort(linked, true, &mut wakers).is_empty() {
        drop(LINKS.remove_all(to, Reached::is_scope));
    }
    wakers.iter().for_each(|waker| waker.wake_by_ref());
}

/// What a wait keeps while it must be woken when its task is cancelled, and a scope while it must be cancelled then.
#[derive(Default)]
pub(crate) struct Item(
    /// Dropped by [`unlink`](Item::unlink) alone, so that an item that is not linked costs one look.
    ManuallyDrop<Option<Box<Linked>>>,
);

struct Linked {
    /// From the inside out.
    to: Vec<LinkedTo>,
    /// In the order in which they were linked.
    number: u64,
    what: Reached,
}

/// What a wait is cancelled by; kept, so that its address is not another's.
enum LinkedTo {
    Task(Task),
    Reach(Arc<CancelScope>),
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
    pub(crate) fn wake_on_cancel(&mut self, waker: &Waker, then: Then, what: &'static &'static str) {
        let here = this_thread(); // a closure would be a call
        // SAFETY: the current task is being polled, so it exists. EXISTS
        if let Some(extended) = unsafe { here.current.get().as_ref() }.and_then(Extended::of) {
            extended.waits_for(what);
        }
        self.link_here(&here, waker, then);
    }

    /// As `link`, without a word about what is waited for.
    #[inline]
    pub(crate) fn link_only(&mut self, waker: &Waker, then: Then) {
        with_context(|here| self.link_here(here, waker, then));
    }

    /// As `link_only`, on the thread that this `with_context` is of.
    #[inline(always)] // a look at two words, in each wait that rests
    pub(crate) fn link_here(&mut self, here: &ThreadContext, waker: &Waker, then: Then) {
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
        if is_own { self.unlink() } else { self.link_to(here, waker, then) }
    }

    /// As `link_here`, also if a cancel wakes the waker anyway: whatever is around is to know of it. LEFT-ALONE
    #[cold]
    pub(crate) fn link_in_any_case(&mut self, here: &ThreadContext, waker: &Waker, then: Then) {
        let is_same =
            |what: &Reached| matches!(what, Reached::Waker(old, of) if *of == then && old.will_wake(waker));
        self.link_all(here, is_same, || Reached::Waker(Arc::new(GuardedWaker::of(waker)), then));
    }

    /// Links it to all that it can be cancelled by: usually one of them is enough, since who polls an inner
    /// scope hands on what happens to an outer one. But that may be who is waiting here, by foreign means.
    #[cold]
    fn link_to(&mut self, here: &ThreadContext, waker: &Waker, then: Then) {
        let is_same =
            |what: &Reached| matches!(what, Reached::Waker(old, of) if *of == then && old.will_wake(waker));
        if self.link_all(here, is_same, || Reached::Waker(Arc::new(GuardedWaker::of(waker)), then))
            && is_cancelled_here(here)
        {
            waker.wake_by_ref(); // LINK-OR-SEE
        }
    }

    /// Sees to it that a scope is cancelled when anything around it is, in which it is polled here. The caller looks
    /// after this whether something was. SPAWNED-SEE
    #[cold]
    pub(crate) fn link_scope(&mut self, here: &ThreadContext, scope: &Arc<CancelScope>) {
        self.link_all(here, Reached::is_scope, || Reached::Scope(scope.clone()));
    }

    /// Links `new` to all around what is polled here. `false`: it is linked to all of that already, or there is nothing.
    fn link_all(
        &mut self,
        here: &ThreadContext,
        is_same_what: impl FnOnce(&Reached) -> bool,
        new: impl FnOnce() -> Reached,
    ) -> bool {
        let linked = self.0.as_deref().filter(|linked| is_same_what(&linked.what));
        let mut same = linked.map(|linked| linked.to.iter());
        let mut is_same =
            |address: usize| same.as_mut().and_then(Iterator::next).is_some_and(|to| to.address() == address);
        let mut are_same = true;
        let to_the_end = cancel_scope::around(here, |reach| are_same &= is_same(reach.addr()));
        if to_the_end && !here.current.get().is_null() {
            are_same &= is_same(here.current.get().addr());
        }
        if are_same && same.is_some_and(|mut more| more.next().is_none()) {
            return false;
        }
        let mut to = Vec::new();
        let to_the_end = cancel_scope::around(here, |reach| {
            // SAFETY: it is a pointer into the `Arc` that the scope has, which is being polled.
            unsafe { Arc::increment_strong_count(reach) };
            // SAFETY: the reference was just counted.
            to.push(LinkedTo::Reach(unsafe { Arc::from_raw(reach) }));
        });
        to.extend(Task::current().filter(|_| to_the_end).map(LinkedTo::Task));
        if to.is_empty() {
            self.unlink();
            return false; // behind a shield, or outside of all tasks: nothing to be told of
        }
        let linked = Box::new(Linked { to, number: LINKS.number(), what: new() });
        for to in &linked.to {
            LINKS.add(to.address(), linked.number, linked.what.clone());
        }
        // The old one goes after that: there is no moment at which what is around both does not reach it.
        if let Some(old) = self.0.replace(linked) {
            old.unlink();
        }
        true
    }

    #[inline]
    pub(crate) fn unlink(&mut self) {
        if self.0.is_some() {
            self.unlink_linked();
        }
    }

    /// Out of line with all that it drops: every wait that ends asks whether it is linked, and hardly any is.
    #[cold]
    #[inline(never)]
    fn unlink_linked(&mut self) {
        if let Some(linked) = self.0.take() {
            linked.unlink();
        }
    }
}

impl Linked {
    fn unlink(&self) {
        for to in &self.to {
            drop(LINKS.remove(to.address(), self.number)); // not the last
        }
    }
}

impl Drop for Item {
    #[inline]
    fn drop(&mut self) {
        self.unlink();
    }
}
