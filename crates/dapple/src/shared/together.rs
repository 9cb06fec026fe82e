//! Several states at once.
//!
//! # Invariants
//!
//! * **ALL-OR-NOTHING**: a waiter holds no state. One poll enters all states; or it leaves those that it has
//!   entered, and queues at the busy one. So waits cannot form a cycle.
//! * **BY-ADDRESS**: states are entered in one order, that of their addresses. A caller that holds some
//!   states re-checks the next one for a while, first in its queue, before it leaves all of them. It never
//!   does so for a state that precedes those it holds. So of all callers that want the same states one makes
//!   progress, and callers that use the states one by one cannot starve it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::access::{Access, AccessGuard, Reading, Wish, Writing};
use super::access_lock::AccessWait;
use super::watch_list::WatchPlace;
use super::when::WhenWait;
use crate::Cancelled;
use crate::cancel::wait::{begin_at_once, got_at_once};
use crate::context::closure;
use crate::world::is_simulated;

/// Calls `f` with several states, once all of them are available at the same time.
///
/// Use it to change several states as one step. It takes a tuple of two to eight requests, to read
/// ([`Shared::reading`](crate::Shared::reading)) or to write ([`Shared::writing`](crate::Shared::writing)),
/// in any order: it cannot deadlock. [`together_all`](crate::together_all) takes a slice.
///
/// A waiter queues at one of the states and holds none. So it may be overtaken more often than a waiter for a
/// single state: whenever it is woken for one state and finds another one busy.
///
/// # Errors
///
/// If the wait was cancelled: `f` has not run.
///
/// # Panics
///
/// If the same state is named twice; the message names the state and the places. Also as
/// [`Shared`](crate::Shared#panics).
///
/// # Cancellation
///
/// *Dropped early*: **loses its place**; `f` has not run.
/// *Scope cancelled*: returns [`Cancelled`], and `f` has not run; or the result of `f`, if all states were
/// available when the wait was polled again.
///
/// # Examples
///
/// ```
/// use dapple::{Shared, together};
///
/// dapple::run(async {
///     let (from, to, fee) = (Shared::new(100), Shared::new(0), Shared::new(1));
///     let moved = together((from.writing(), to.writing(), fee.reading()), |(from, to, fee)| {
///         let amount = *from - *fee;
///         *from = 0;
///         *to += amount;
///         amount
///     });
///     assert_eq!(moved.await, Ok(99));
/// });
/// ```
///
/// Naming the same state twice panics instead of waiting for ever:
///
/// ```should_panic
/// dapple::run(async {
///     let state = dapple::Shared::named("account", 1);
///     dapple::together((state.reading(), state.writing()), |(read, written)| *written = *read).await
/// });
/// ```
pub fn together<A, R, F>(accesses: A, f: F) -> Together<A, F>
where
    A: Accesses,
    F: for<'g> FnOnce(A::Guards<'g>) -> R,
{
    Together { accesses, f: Some(f), line: TogetherWait::default() }
}

/// Argument of [`together`] and [`when`](crate::shared::when): one to eight of [`Reading`](crate::shared::Reading) and
/// [`Writing`](crate::shared::Writing).
///
/// # Examples
///
/// ```
/// use dapple::{Shared, together};
///
/// dapple::run(async {
///     let (from, to) = (Shared::new(10), Shared::new(0));
///     let pair = (from.writing(), to.writing()); // a tuple of requests
///     together(pair, |(from, to)| std::mem::swap(from, to)).await.unwrap();
///     assert_eq!(to.read(|to| *to).await, Ok(10));
/// });
/// ```
pub trait Accesses: sealed::Sealed {
    /// Argument of the closure: a tuple of `&` and `&mut`.
    type Guards<'g>;

    /// Enters all states, and calls `then` inside.
    #[doc(hidden)]
    fn poll_enter<R>(
        &self,
        line: &mut TogetherWait,
        cx: &mut Context<'_>,
        then: impl FnOnce() -> R,
    ) -> Poll<Result<R, Cancelled>>;

    #[doc(hidden)]
    fn give_up(&self, line: &mut TogetherWait);

    /// A place in the list of each.
    #[doc(hidden)]
    type Watches: AsMut<[WatchPlace]> + AsRef<[WatchPlace]> + Default;

    /// Enters all, calls `then` inside, and waits for a write if that returns `None`.
    #[doc(hidden)]
    fn poll_when<R>(
        &self,
        wait: &mut WhenWait<Self::Watches>,
        cx: &mut Context<'_>,
        then: impl FnMut() -> Option<R>,
    ) -> Poll<Result<R, Cancelled>>;

    #[doc(hidden)]
    fn give_up_when(&self, wait: &mut WhenWait<Self::Watches>);

    /// # Safety
    ///
    /// The caller has entered all states, and stays for as long as the guards live.
    #[doc(hidden)]
    unsafe fn guards<'g>(&self) -> Self::Guards<'g>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! impl_accesses {
    ($count:literal: $($name:ident $index:tt),+) => {
        impl<$($name: Access),+> sealed::Sealed for ($($name,)+) {}

        impl<$($name: Access<Value: 'static>),+> Accesses for ($($name,)+) {
            type Guards<'g> = ($($name::Guard<'g>,)+);

            #[inline]
            fn poll_enter<R>(
                &self,
                line: &mut TogetherWait,
                cx: &mut Context<'_>,
                then: impl FnOnce() -> R,
            ) -> Poll<Result<R, Cancelled>> {
                let mut wishes = [$(self.$index.wish()),+];
                sort(&mut wishes);
                let mut entered = [const { None }; $count];
                ready!(line.poll_enter(&wishes, &mut entered, cx))?;
                Poll::Ready(Ok(call(&wishes, entered, then)))
            }

            #[inline]
            fn give_up(&self, line: &mut TogetherWait) {
                line.give_up([$(self.$index.wish()),+]);
            }

            type Watches = [WatchPlace; $count];

            #[inline]
            fn poll_when<R>(
                &self,
                wait: &mut WhenWait<Self::Watches>,
                cx: &mut Context<'_>,
                then: impl FnMut() -> Option<R>,
            ) -> Poll<Result<R, Cancelled>> {
                wait.poll([$(self.$index.wish()),+], [const { None }; $count], cx, then)
            }

            #[inline]
            fn give_up_when(&self, wait: &mut WhenWait<Self::Watches>) {
                wait.give_up([$(self.$index.wish()),+]);
            }

            #[inline]
            unsafe fn guards<'g>(&self) -> Self::Guards<'g> {
                // SAFETY: the caller keeps the promise of `guards`, which is that of `guard` for each state.
                ($(unsafe { self.$index.guard() },)+)
            }
        }
    };
}

/// One state needs no tuple: what the closure gets is its guard.
macro_rules! impl_access_of_one {
    ($access:ident) => {
        impl<T> sealed::Sealed for $access<'_, T> {}

        impl<T: 'static> Accesses for $access<'_, T> {
            type Guards<'g> = <Self as Access>::Guard<'g>;
            type Watches = [WatchPlace; 1];

            #[inline]
            fn poll_enter<R>(
                &self,
                line: &mut TogetherWait,
                cx: &mut Context<'_>,
                then: impl FnOnce() -> R,
            ) -> Poll<Result<R, Cancelled>> {
                let mut wishes = [self.wish()];
                sort(&mut wishes);
                let mut entered = [const { None }; 1];
                ready!(line.poll_enter(&wishes, &mut entered, cx))?;
                Poll::Ready(Ok(call(&wishes, entered, then)))
            }

            #[inline]
            fn give_up(&self, line: &mut TogetherWait) {
                line.give_up([self.wish()]);
            }

            #[inline]
            fn poll_when<R>(
                &self,
                wait: &mut WhenWait<Self::Watches>,
                cx: &mut Context<'_>,
                then: impl FnMut() -> Option<R>,
            ) -> Poll<Result<R, Cancelled>> {
                wait.poll([self.wish()], [const { None }; 1], cx, then)
            }

            #[inline]
            fn give_up_when(&self, wait: &mut WhenWait<Self::Watches>) {
                wait.give_up([self.wish()]);
            }

            #[inline]
            unsafe fn guards<'g>(&self) -> Self::Guards<'g> {
                // SAFETY: handed on from the caller.
                unsafe { self.guard() }
            }
        }
    };
}

impl_access_of_one!(Reading);
impl_access_of_one!(Writing);
impl_accesses!(1: A 0);
impl_accesses!(2: A 0, B 1);
impl_accesses!(3: A 0, B 1, C 2);
impl_accesses!(4: A 0, B 1, C 2, D 3);
impl_accesses!(5: A 0, B 1, C 2, D 3, E 4);
impl_accesses!(6: A 0, B 1, C 2, D 3, E 4, F 5);
impl_accesses!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
impl_accesses!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Sorts requests into the order in which they are entered. Panics if two name one state, or inside of a
/// closure.
#[inline]
pub(super) fn sort(wishes: &mut [Wish<'_>]) {
    wishes.iter().for_each(|wish| wish.gate.glance());
    closure::assert_may_wait(&All(wishes));
    put_in_order(wishes, is_simulated());
    for pair in wishes.windows(2) {
        if pair[0].address() == pair[1].address() {
            refuse_twice(pair);
        }
    }
}

/// Puts wishes in the order in which they are entered, or were: `by_number` in a simulation.
#[inline]
pub(super) fn put_in_order(wishes: &mut [Wish<'_>], by_number: bool) {
    match wishes {
        [_] => {}
        [first, second] if first.rank(by_number) <= second.rank(by_number) => {}
        [first, second] => std::mem::swap(first, second),
        _ => wishes.sort_unstable_by_key(|wish| wish.rank(by_number)),
    }
}

#[cold]
fn refuse_twice(pair: &[Wish<'_>]) -> ! {
    panic!(
        "together or when: one state is named twice ({}; and {}). Name each once, and write it if any of the uses \
         writes it",
        pair[0], pair[1]
    );
}

/// Calls `f` inside of the entered states, then leaves them. A waker that blocks must not do so before all of them are
/// left: it panics instead.
#[inline]
pub(super) fn call<R>(wishes: &[Wish<'_>], entered: impl Sized, f: impl FnOnce() -> R) -> R {
    closure::enter(&All(wishes), move || {
        let _entered = entered; // left even if `f` panics
        let result = f();
        closure::note_returned();
        result
    })
}

/// Leaves all entered states, as `call` does.
fn leave(wishes: &[Wish<'_>], entered: &mut [Option<AccessGuard<'_>>]) {
    closure::enter(&All(wishes), || {
        closure::note_returned(); // it was not called
        entered.iter_mut().filter_map(Option::take).for_each(AccessGuard::leave_unwritten);
    });
}

/// Wait for several states. Allocates nothing until it has to wait.
#[derive(Default)]
pub struct TogetherWait(pub(super) Option<Box<TogetherEntry>>);

pub(super) struct TogetherEntry {
    waiting: AccessWait,
    /// Address of the state in whose queue the caller is.
    at: Option<usize>,
}

impl TogetherWait {
    /// Enters all states, which are sorted, or none. ALL-OR-NOTHING
    #[inline]
    pub(super) fn poll_enter<'a>(
        &mut self,
        wishes: &[Wish<'a>],
        entered: &mut [Option<AccessGuard<'a>>],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        if self.0.is_none() {
            ready!(begin_at_once(cx, self, |line, wait| {
                line.0 = Some(Box::new(TogetherEntry { waiting: wait.into(), at: None }));
            }))?;
            if wishes.iter().zip(&mut *entered).all(|(wish, entered)| {
                *entered = wish.enter_at_once();
                entered.is_some()
            }) {
                got_at_once();
                return Poll::Ready(Ok(()));
            }
        }
        let line =
            self.0.get_or_insert_with(|| Box::new(TogetherEntry { waiting: AccessWait::begun(), at: None }));
        line.poll_slowly(wishes, entered, cx)
    }

    /// As `poll_enter`, as the next part of a wait that has begun before.
    pub(super) fn poll_enter_again<'a>(
        &mut self,
        wishes: &[Wish<'a>],
        entered: &mut [Option<AccessGuard<'a>>],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        if !self.is_waiting() {
            let begun = AccessWait::begun();
            match &mut self.0 {
                Some(line) => line.waiting = begun,
                None => self.0 = Some(Box::new(TogetherEntry { waiting: begun, at: None })),
            }
        }
        let Some(line) = &mut self.0 else { unreachable!("just made") };
        line.poll_slowly(wishes, entered, cx)
    }

    /// Enters all at once, or none: then `poll_enter_again` is to follow. Nothing is counted.
    #[inline]
    pub(super) fn enter_at_once<'a>(wishes: &[Wish<'a>], entered: &mut [Option<AccessGuard<'a>>]) -> bool {
        wishes.iter().zip(&mut *entered).all(|(wish, entered)| {
            *entered = wish.enter_at_once();
            entered.is_some()
        })
    }

    /// Whether it is in the line of one of the states, or about to be.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.as_ref().is_some_and(|line| line.at.is_some())
    }

    /// Gives up waiting.
    #[inline]
    pub(super) fn give_up<'a>(&mut self, wishes: impl IntoIterator<Item = Wish<'a>>) {
        if let Some(line) = &mut self.0 {
            line.give_up(wishes);
        }
    }
}

impl TogetherEntry {
    #[cold]
    fn poll_slowly<'a>(
        &mut self,
        wishes: &[Wish<'a>],
        entered: &mut [Option<AccessGuard<'a>>],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        if self.at.is_none() {
            ready!(self.waiting.begin(cx)).map_err(|_| Cancelled)?;
        }
        for index in 0..wishes.len() {
            if entered[index].is_some() {
                continue;
            }
            let wish = &wishes[index];
            if self.at != Some(wish.address()) {
                entered[index] = wish.try_enter(self.waiting.gave_way());
                if entered[index].is_some() {
                    continue;
                }
                self.give_up(wishes.iter().copied());
                self.at = Some(wish.address());
            }
            // Leaves the states behind this one first: their holder must not wait for a preceding state.
            // BY-ADDRESS
            leave(wishes, &mut entered[index + 1..]);
            match self.poll_at(wish, index > 0, cx) {
                Poll::Ready(Ok(it)) => entered[index] = Some(it),
                other => {
                    leave(wishes, entered);
                    return other.map_ok(drop);
                }
            }
        }
        self.waiting.end();
        Poll::Ready(Ok(()))
    }

    /// Waits in the queue of one state. With `has_others`, the caller holds other states: it re-checks for a
    /// while, and no caller overtakes the queue meanwhile.
    fn poll_at<'a>(
        &mut self,
        wish: &Wish<'a>,
        has_others: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AccessGuard<'a>, Cancelled>> {
        let polled = wish.poll_in_line(&mut self.waiting, has_others, cx);
        if polled.is_ready() {
            self.at = None;
        }
        polled
    }

    fn give_up<'a>(&mut self, wishes: impl IntoIterator<Item = Wish<'a>>) {
        if let Some(at) = self.at.take()
            && let Some(wish) = wishes.into_iter().find(|wish| wish.address() == at)
        {
            wish.give_up(&mut self.waiting);
        }
    }
}

/// Future of [`together`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Together<A: Accesses, F> {
    accesses: A,
    line: TogetherWait,
    /// None once the closure has been called.
    f: Option<F>,
}

// The closure is moved when called, and never pinned; the requests are references.
impl<A: Accesses, F> Unpin for Together<A, F> {}

impl<A, R, F> Future for Together<A, F>
where
    A: Accesses,
    F: for<'g> FnOnce(A::Guards<'g>) -> R,
{
    type Output = Result<R, Cancelled>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Together { accesses, line, f } = self.get_mut();
        assert!(f.is_some(), "together: polled again after it was done");
        let polled = accesses.poll_enter(line, cx, || {
            let f = f.take().expect("just seen");
            // SAFETY: all states stay entered while this closure runs, and `f` cannot keep the references
            // that it gets.
            f(unsafe { accesses.guards() })
        });
        let result = ready!(polled);
        *f = None;
        Poll::Ready(result)
    }
}

impl<A: Accesses, F> Drop for Together<A, F> {
    #[inline]
    fn drop(&mut self) {
        self.accesses.give_up(&mut self.line);
    }
}

impl<A: Accesses, F> fmt::Debug for Together<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together").field("waits", &self.line.0.is_some()).finish_non_exhaustive()
    }
}

/// Displays all states of a closure, for messages.
pub(super) struct All<'a>(pub(super) &'a [Wish<'a>]);

impl fmt::Display for All<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, wish) in self.0.iter().enumerate() {
            write!(f, "{}{wish}", if index == 0 { "" } else { "; and of " })?;
        }
        Ok(())
    }
}
