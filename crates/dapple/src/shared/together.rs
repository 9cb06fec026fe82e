//! Several states, all at once.
//!
//! # Invariants
//!
//! * **ALL-OR-NOTHING**: whoever waits is in no state. In one poll all states are entered, in the order of
//!   their addresses; or those that were are left, and the busy one is queued at. So no cycle of waiting can
//!   form; and of those who want the same states at a time, the one who has the first goes ahead.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::access::{Access, Entered, Wish};
use crate::Cancelled;
use crate::sync::permits::Place;
use crate::task::closure;

/// How often it tries anew in one poll, before it lets others run.
const ROUNDS: usize = 4;

/// Calls `f` with several states, when all of them can be had at once.
///
/// Two to eight states, of which some are to be read ([`Shared::reading`](crate::Shared::reading)) and some
/// to be written ([`Shared::writing`](crate::Shared::writing)), in whatever order: there is nothing to
/// deadlock on. For a number that is not known in advance there is [`together_all`](crate::together_all).
///
/// Who waits, waits in line for one of the states, and has none. So it may be overtaken more often than who
/// wants one state alone: whenever it is woken for one of them and finds that another is taken.
///
/// # Errors
///
/// If the wait was cancelled: `f` has not run.
///
/// # Panics
///
/// If the same state is named twice, saying which and where. And as for [`Shared`](crate::Shared#panics).
///
/// # Cancellation
///
/// *Dropped early*: **loses its place**; `f` has not run.
/// *Scope cancelled*: returns [`Cancelled`], and `f` has not run; or what `f` returns, if all states could be
/// had when the wait was polled again.
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
/// The same state twice is refused, not waited for:
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
    Together { accesses, f: Some(f), line: Line::default() }
}

/// What [`together`] takes: tuples of two to eight of [`Reading`](crate::Reading) and
/// [`Writing`](crate::Writing).
pub trait Accesses: sealed::Sealed {
    /// What the closure gets: a tuple of `&` and `&mut`.
    type Guards<'g>;

    /// Enters all; then they stay entered while `then` is called.
    #[doc(hidden)]
    fn poll_enter<R>(
        &self,
        line: &mut Line,
        cx: &mut Context<'_>,
        then: impl FnOnce(&[Wish<'_>]) -> R,
    ) -> Poll<Result<R, Cancelled>>;

    #[doc(hidden)]
    fn give_up(&self, line: &mut Line);

    /// # Safety
    ///
    /// The caller is in all of them, for as long as what is returned lives.
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
                line: &mut Line,
                cx: &mut Context<'_>,
                then: impl FnOnce(&[Wish<'_>]) -> R,
            ) -> Poll<Result<R, Cancelled>> {
                let mut wishes = [$(self.$index.wish()),+];
                sort(&mut wishes);
                let mut entered = [const { None }; $count];
                ready!(line.poll_enter(&wishes, &mut entered, cx))?;
                let result = then(&wishes);
                leave(&mut entered);
                Poll::Ready(Ok(result))
            }

            fn give_up(&self, line: &mut Line) {
                line.give_up([$(self.$index.wish()),+]);
            }

            #[inline]
            unsafe fn guards<'g>(&self) -> Self::Guards<'g> {
                // SAFETY: handed on from the caller.
                ($(unsafe { self.$index.guard() },)+)
            }
        }
    };
}

impl_accesses!(2: A 0, B 1);
impl_accesses!(3: A 0, B 1, C 2);
impl_accesses!(4: A 0, B 1, C 2, D 3);
impl_accesses!(5: A 0, B 1, C 2, D 3, E 4);
impl_accesses!(6: A 0, B 1, C 2, D 3, E 4, F 5);
impl_accesses!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
impl_accesses!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Puts wishes in the order in which they are entered, and looks whether two are the same.
#[inline]
pub(super) fn sort(wishes: &mut [Wish<'_>]) {
    wishes.sort_unstable_by_key(Wish::address);
    for pair in wishes.windows(2) {
        if pair[0].address() == pair[1].address() {
            refuse_twice(pair);
        }
    }
}

#[cold]
fn refuse_twice(pair: &[Wish<'_>]) -> ! {
    panic!(
        "together: one state is named twice ({}; and {}). Name each once, and write it if any of the uses \
         writes it",
        pair[0], pair[1]
    );
}

/// Leaves all that were entered, the last first.
#[inline]
pub(super) fn leave(entered: &mut [Option<Entered<'_>>]) {
    entered.iter_mut().rev().for_each(|entered| *entered = None);
}

/// Where somebody waits who wants several states.
#[derive(Default)]
pub struct Line {
    place: Place,
    /// The state in whose line he is, by its address.
    at: Option<usize>,
}

impl Line {
    /// Enters all states, which are in order, or none. ALL-OR-NOTHING
    #[inline]
    pub(super) fn poll_enter<'a>(
        &mut self,
        wishes: &[Wish<'a>],
        entered: &mut [Option<Entered<'a>>],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        if self.at.is_none() {
            if ready!(self.place.wait().begin(cx)).is_err() {
                self.place.wait().end();
                return Poll::Ready(Err(Cancelled));
            }
            if wishes.iter().zip(&mut *entered).all(|(wish, entered)| {
                *entered = wish.try_enter();
                entered.is_some()
            }) {
                self.place.wait().end();
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_slowly(wishes, entered, cx)
    }

    #[cold]
    fn poll_slowly<'a>(
        &mut self,
        wishes: &[Wish<'a>],
        entered: &mut [Option<Entered<'a>>],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cancelled>> {
        for _ in 0..ROUNDS {
            let Some(busy) = ready!(self.poll_each(wishes, entered, cx))? else {
                return Poll::Ready(Ok(()));
            };
            leave(entered);
            self.give_up(wishes.iter().copied());
            self.at = Some(wishes[busy].address());
            // The next round begins with the one that was waited for, if it can be had at once.
            entered[busy] = Some(ready!(self.poll_at(&wishes[busy], cx))?);
        }
        // Others are as eager.
        leave(entered);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Enters all that are not entered. Which of them is busy, if one is, in whose line we are not.
    fn poll_each<'a>(
        &mut self,
        wishes: &[Wish<'a>],
        entered: &mut [Option<Entered<'a>>],
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<usize>, Cancelled>> {
        for (index, wish) in wishes.iter().enumerate() {
            if entered[index].is_some() {
                continue;
            }
            if self.at != Some(wish.address()) {
                entered[index] = wish.try_enter();
                if entered[index].is_none() {
                    return Poll::Ready(Ok(Some(index)));
                }
                continue;
            }
            match self.poll_at(wish, cx) {
                Poll::Ready(Ok(it)) => entered[index] = Some(it),
                other => {
                    leave(entered);
                    return other.map_ok(|_| None);
                }
            }
        }
        Poll::Ready(Ok(None))
    }

    /// Waits in the line of one. Whoever is in others as well leaves them if this has to wait.
    fn poll_at<'a>(&mut self, wish: &Wish<'a>, cx: &mut Context<'_>) -> Poll<Result<Entered<'a>, Cancelled>> {
        let polled = wish.poll_enter(&mut self.place, cx);
        if polled.is_ready() {
            self.at = None;
        }
        polled
    }

    /// Gives up waiting.
    pub(super) fn give_up<'a>(&mut self, wishes: impl IntoIterator<Item = Wish<'a>>) {
        if let Some(at) = self.at.take()
            && let Some(wish) = wishes.into_iter().find(|wish| wish.address() == at)
        {
            wish.give_up(&mut self.place);
        }
    }
}

/// The future of [`together`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Together<A: Accesses, F> {
    accesses: A,
    line: Line,
    /// None once it has been called.
    f: Option<F>,
}

// The closure is moved when it is called, and never pinned; the accesses are references.
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
        closure::assert_outside(&"together");
        assert!(f.is_some(), "together: polled again after it was done");
        let polled = accesses.poll_enter(line, cx, |wishes| {
            let f = f.take().expect("just seen");
            // SAFETY: we are in all states while this closure runs, and `f` cannot keep what it gets.
            closure::enter(&All(wishes), || f(unsafe { accesses.guards() }))
        });
        let result = ready!(polled);
        *f = None;
        Poll::Ready(result)
    }
}

impl<A: Accesses, F> Drop for Together<A, F> {
    #[inline]
    fn drop(&mut self) {
        if self.line.at.is_some() {
            self.accesses.give_up(&mut self.line);
        }
    }
}

impl<A: Accesses, F> fmt::Debug for Together<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together").field("waits", &self.line.at.is_some()).finish_non_exhaustive()
    }
}

/// Names all states of a closure.
pub(super) struct All<'a>(pub(super) &'a [Wish<'a>]);

impl fmt::Display for All<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, wish) in self.0.iter().enumerate() {
            write!(f, "{}{wish}", if index == 0 { "" } else { "; and of " })?;
        }
        Ok(())
    }
}
