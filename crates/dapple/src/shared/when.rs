//! Several states at once, once a condition holds: [`when`].
//!
//! A `when` has one of three forms while it waits. It *enters*: as [`together`](crate::together) does, in the line of a
//! busy state. It *looks*: inside of all states it calls the closure. It *sleeps*: enlisted with each state
//! (`watch_list`), until one of them has been written. Then it enters again, and keeps its places in the lists.
//!
//! # Invariants
//!
//! * **NONE-IS-NO-WRITE**: a `when` whose closure returned `None` leaves its states as one that has changed nothing.
//!   Otherwise two of them would wake each other for ever.
//! * **ENLISTED-IN-ALL**: a `when` that sleeps is enlisted with each of its states, since before it left the first of
//!   them. So no write comes between its look and its sleep, whichever state it is to (ENLIST-INSIDE).

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use super::access::{AccessGuard, Wish};
use super::together::{Accesses, All, TogetherWait, put_in_order, sort};
use super::watch_list::WatchPlace;
use crate::Cancelled;
use crate::cancel::wait::got_at_once;
use crate::context::closure;
use crate::task::waker::is_ours;
use crate::waitlist::wait::{GuardedWaker, Wait, Wakers};
use crate::world::is_simulated;

/// Waits until a condition over several states holds, and changes them in the same moment.
///
/// The closure gets one to eight states, as [`together`](crate::together) does, and returns `Some` if its condition
/// holds: that ends the wait. On `None` the task sleeps, and costs nothing, until one of the states has been written;
/// then the closure is called again. It is not called without a write.
///
/// | to wait for | use |
/// |---|---|
/// | a condition over several states | `when((a.writing(), b.reading()), \|(a, b)\| ...)` |
/// | a condition over one, to change it | [`Shared::when`](crate::Shared::when) |
/// | a condition over one, to read it | `when(a.reading(), \|a\| ...)` |
///
/// **A closure that returns `None` must have changed nothing.** A change that it made stays, and no other `when` is told
/// of it.
///
/// # Who is woken
///
/// After each write: all that only read, together, and of those that write something the one that came first. One whose
/// condition does not hold, or that was cancelled or dropped, passes the wake-up on to the next. So a write wakes no
/// crowd, and no `when` sleeps while its condition holds. One that was woken and is not polled for some milliseconds, or
/// was forgotten, is passed over, wherever there is a runtime. A caller whose condition holds goes ahead at once, as
/// it does in [`Shared`](crate::Shared#who-comes-when).
///
/// What counts as a write: the end of each `write`, `try_write` or `together` that had the state to write, whether or not
/// its closure changed something, and of a `when` that wrote it and returned `Some`.
///
/// # Errors
///
/// If the wait was cancelled: the closure has not returned `Some`.
///
/// # Panics
///
/// As [`together`](crate::together). A panic in the closure goes on to the caller, and counts as a write.
///
/// # Cancellation
///
/// *Dropped early*: **hands over** to the next waiter what it was woken for; loses its place.
/// *Scope cancelled*: returns [`Cancelled`]; or what the closure returned, if its condition held when the wait was
/// polled again.
///
/// # Examples
///
/// ```
/// use dapple::{Shared, shared::when};
///
/// dapple::run(async {
///     let (stock, open) = (Shared::new(0), Shared::new(false));
///     let buyer = dapple::spawn({
///         let (stock, open) = (stock.clone(), open.clone());
///         async move {
///             when((stock.writing(), open.reading()), |(stock, open)| {
///                 (*open && *stock >= 3).then(|| *stock -= 3)
///             })
///             .await
///         }
///     });
///     stock.write(|stock| *stock += 5).await.unwrap();
///     open.write(|open| *open = true).await.unwrap();
///     buyer.await.unwrap().unwrap();
///     assert_eq!(stock.read(|stock| *stock).await, Ok(2));
/// });
/// ```
///
/// The states do not leave the closure:
///
/// ```compile_fail
/// # use dapple::{Shared, shared::when};
/// let name = Shared::new(String::from("kept"));
/// dapple::run(async { when(name.reading(), |name| Some(name)).await }).unwrap();
/// ```
///
/// ```
/// # use dapple::{Shared, shared::when};
/// let name = Shared::new(String::from("kept"));
/// dapple::run(async { when(name.reading(), |name| Some(name.clone())).await }).unwrap();
/// ```
///
/// And a closure cannot await:
///
/// ```compile_fail,E0728
/// # use dapple::{Shared, shared::when};
/// let state = Shared::new(0);
/// dapple::run(async { when(state.reading(), |_| Some(dapple::task::yield_now().await)).await });
/// ```
pub fn when<A, R, F>(accesses: A, f: F) -> When<A, F>
where
    A: Accesses,
    F: for<'g> FnMut(A::Guards<'g>) -> Option<R>,
{
    When { accesses, wait: WhenWait::default(), f: Some(f) }
}

/// Where a `when` waits.
pub struct WhenWait<W> {
    line: TogetherWait,
    /// One for each state, in the order in which they are entered.
    watches: W,
    is_enlisted: bool,
    /// It has enlisted in a simulation, and so in that order. It may be polled or dropped outside of it.
    by_number: bool,
    /// While it sleeps.
    sleep: Option<Wait>,
}

impl<W: Default> Default for WhenWait<W> {
    fn default() -> WhenWait<W> {
        WhenWait {
            line: TogetherWait::default(),
            watches: W::default(),
            is_enlisted: false,
            by_number: false,
            sleep: None,
        }
    }
}

/// Leaves the states that were entered, also if a closure panics.
struct LeaveAll<'e, 'a>(&'e mut [Option<AccessGuard<'a>>]);

impl LeaveAll<'_, '_> {
    /// As one that may have changed what it has to write. If it is enlisted, it leaves the lists of the states in the same
    /// step as the states, so that each list is locked once. Those that are to be woken are woken after all states were
    /// left, or they would find some of them busy.
    #[inline]
    fn written(
        self,
        is_enlisted: bool,
        watches: &mut [WatchPlace],
        wakers: &mut Wakers,
        foreign: &mut Option<Box<ForeignWakers>>,
    ) {
        for (entered, watch) in self.0.iter_mut().zip(watches) {
            if let Some(entered) = entered.take()
                && let Some(old) = entered.leave_into(is_enlisted.then_some(watch), wakers)
            {
                ForeignWakers::put_aside(old, foreign);
            }
        }
    }

    /// As one that has changed nothing. NONE-IS-NO-WRITE
    fn unwritten(self) {
        self.0.iter_mut().filter_map(Option::take).for_each(AccessGuard::leave_unwritten);
    }
}

impl Drop for LeaveAll<'_, '_> {
    fn drop(&mut self) {
        self.0.fill_with(|| None);
    }
}

/// Wakers of other executors: what they do when they are cloned or dropped must not happen inside of the states.
/// NO-FOREIGN-CODE
#[derive(Default)]
struct ForeignWakers {
    new: Vec<GuardedWaker>,
    old: Vec<GuardedWaker>,
}

impl ForeignWakers {
    /// So many clones, if the waker is of another executor.
    #[inline]
    fn of(waker: &Waker, clones: usize) -> Option<Box<ForeignWakers>> {
        (!is_ours(waker)).then(|| {
            let new = (0..clones).map(|_| GuardedWaker::of(waker)).collect();
            Box::new(ForeignWakers { new, old: Vec::new() })
        })
    }

    /// Drops a waker of ours, and puts another one aside.
    #[inline]
    fn put_aside(old: GuardedWaker, foreign: &mut Option<Box<ForeignWakers>>) {
        if !old.is_ours() {
            foreign.get_or_insert_default().old.push(old);
        }
    }
}

impl<W: AsMut<[WatchPlace]> + AsRef<[WatchPlace]>> WhenWait<W> {
    #[inline]
    pub(super) fn poll<'a, R, const N: usize>(
        &mut self,
        mut wishes: [Wish<'a>; N],
        mut entered: [Option<AccessGuard<'a>>; N],
        cx: &mut Context<'_>,
        then: impl FnMut() -> Option<R>,
    ) -> Poll<Result<R, Cancelled>> {
        sort(&mut wishes);
        if self.is_enlisted && self.by_number != is_simulated() {
            put_in_order(&mut wishes, self.by_number);
        }
        if !self.is_enlisted {
            ready!(self.line.poll_enter(&wishes, &mut entered, cx))?;
        } else if let Err(cancelled) = ready!(self.poll_enter_again(&wishes, &mut entered, cx)) {
            self.leave_lists(&wishes);
            return Poll::Ready(Err(cancelled));
        }
        if let Some(result) = self.look(&wishes, &mut entered, cx, then) {
            return Poll::Ready(Ok(result));
        }
        let sleep = self.sleep.insert(Wait::begun());
        if sleep.is_cancelled() {
            // It has tried once more after the cancel.
            sleep.end_around();
            self.sleep = None;
            self.leave_lists(&wishes);
            return Poll::Ready(Err(Cancelled));
        }
        sleep.rest(cx, &SLEEPS);
        Poll::Pending
    }

    /// Sleeps on, or enters again after a write.
    fn poll_enter_again<'a>(
        &mut self,
        wishes: &[Wish<'a>],
        entered: &mut [Option<AccessGuard<'a>>],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        if let Some(sleep) = &mut self.sleep {
            if let Err(cancelled) = ready!(sleep.begin(cx)) {
                self.sleep = None;
                return Poll::Ready(Err(cancelled));
            }
            let mut lists = wishes.iter().zip(self.watches.as_ref());
            let has_news = lists.any(|(wish, watch)| wish.watchers().has_news(watch));
            if !has_news {
                if sleep.is_cancelled() {
                    sleep.end();
                    self.sleep = None;
                    return Poll::Ready(Err(Cancelled));
                }
                if Self::sleep_on(wishes, self.watches.as_ref(), cx) {
                    sleep.rest(cx, &SLEEPS);
                    return Poll::Pending;
                }
            }
            sleep.end_around();
            self.sleep = None;
            if TogetherWait::enter_at_once(wishes, entered) {
                got_at_once();
                return Poll::Ready(Ok(()));
            }
        }
        self.line.poll_enter_again(wishes, entered, cx)
    }

    /// Inside of all states: calls the closure, and leaves. ENLISTED-IN-ALL
    #[inline]
    fn look<'a, R>(
        &mut self,
        wishes: &[Wish<'a>],
        entered: &mut [Option<AccessGuard<'a>>],
        cx: &mut Context<'_>,
        mut then: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let mut foreign = ForeignWakers::of(cx.waker(), wishes.len());
        let mut wakers = Wakers::default();
        let result = closure::enter(&All(wishes), || {
            let entered = LeaveAll(entered);
            let result = then();
            closure::note_returned();
            match &result {
                Some(_) => {
                    let is_enlisted = std::mem::take(&mut self.is_enlisted);
                    entered.written(is_enlisted, self.watches.as_mut(), &mut wakers, &mut foreign);
                }
                None => {
                    self.enlist(wishes, &mut foreign, cx, &mut wakers);
                    entered.unwritten();
                }
            }
            result
        });
        // All states have been left: wakes their watchers, and those that get the wake-up which this wait passes on.
        drop((wakers, foreign));
        result
    }

    #[cold]
    fn enlist(
        &mut self,
        wishes: &[Wish<'_>],
        foreign: &mut Option<Box<ForeignWakers>>,
        cx: &mut Context<'_>,
        wakers: &mut Wakers,
    ) {
        let writes = wishes.iter().any(|wish| wish.writes);
        if !std::mem::replace(&mut self.is_enlisted, true) {
            self.by_number = is_simulated();
        }
        for (wish, watch) in wishes.iter().zip(self.watches.as_mut()) {
            let clone = foreign.as_mut().and_then(|foreign| foreign.new.pop());
            let waker = clone.unwrap_or_else(|| GuardedWaker::of(cx.waker()));
            if let Some(old) = wish.gate.watch(watch, writes, waker, wakers) {
                ForeignWakers::put_aside(old, foreign);
            }
        }
    }

    /// Whether it may sleep on: it was not woken in any of the lists.
    #[cold]
    fn sleep_on(wishes: &[Wish<'_>], watches: &[WatchPlace], cx: &mut Context<'_>) -> bool {
        wishes.iter().zip(watches).all(|(wish, watch)| {
            let (sleeps, old) = wish.watchers().sleep_on(watch, GuardedWaker::of(cx.waker()));
            drop(old);
            sleeps
        })
    }

    fn leave_lists(&mut self, wishes: &[Wish<'_>]) {
        self.leave_lists_into(wishes, &mut Wakers::default());
    }

    /// Leaves all lists. A wake-up that this wait has not used is passed on: the next watcher's waker goes into `wakers`.
    #[cold]
    fn leave_lists_into(&mut self, wishes: &[Wish<'_>], wakers: &mut Wakers) {
        self.is_enlisted = false;
        for (wish, watch) in wishes.iter().zip(self.watches.as_mut()) {
            drop(wish.watchers().leave(watch, wakers));
        }
    }

    #[inline]
    pub(super) fn give_up<const N: usize>(&mut self, mut wishes: [Wish<'_>; N]) {
        self.line.give_up(wishes);
        if self.is_enlisted {
            if let Some(mut sleep) = self.sleep.take() {
                sleep.give_up();
            }
            put_in_order(&mut wishes, self.by_number);
            self.leave_lists(&wishes);
        }
    }
}

/// Completes "waits for".
const SLEEPS: &str = "a state to be written";

/// The future of [`when`] and of [`Shared::when`](crate::Shared::when).
#[must_use = "a future does nothing unless it is awaited"]
pub struct When<A: Accesses, F> {
    accesses: A,
    wait: WhenWait<A::Watches>,
    /// None once it is done.
    f: Option<F>,
}

// The closure is called in place, and never pinned; the accesses are references.
impl<A: Accesses, F> Unpin for When<A, F> {}

impl<A, R, F> Future for When<A, F>
where
    A: Accesses,
    F: for<'g> FnMut(A::Guards<'g>) -> Option<R>,
{
    type Output = Result<R, Cancelled>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let When { accesses, wait, f } = self.get_mut();
        let Some(call) = f else { panic!("when: polled again after it was done") };
        let result = ready!(accesses.poll_when(wait, cx, || {
            // SAFETY: we are in all states while this closure runs, and `f` cannot keep what it gets.
            call(unsafe { accesses.guards() })
        }));
        *f = None;
        Poll::Ready(result)
    }
}

impl<A: Accesses, F> Drop for When<A, F> {
    #[inline]
    fn drop(&mut self) {
        self.accesses.give_up_when(&mut self.wait);
    }
}

impl<A: Accesses, F> fmt::Debug for When<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("When").field("sleeps", &self.wait.sleep.is_some()).finish_non_exhaustive()
    }
}
