//! Several states, all at once.
//!
//! # Invariants
//!
//! * **ALL-OR-NOTHING**: whoever waits is in no state. In one poll all states are entered; or those that were
//!   are left, and the busy one is queued at. So no cycle of waiting can form.
//! * **BY-ADDRESS**: states are entered in one order, that of their addresses. Who is in some looks for the next for a
//!   while, first in line there, before he leaves all; but never for one that comes before those he is in. So
//!   of those who want the same states one gets on, and others who use them one by one cannot keep him from it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::access::{Access, AccessGuard, Reading, Wish, Writing};
use super::access_lock::AccessWait;
use super::watch_list::WatchPlace;
use super::when::WhenWait;
use crate::Cancelled;
use crate::task::closure;
use crate::task::wait::{begin_at_once, got_at_once};

/// Calls `f` with several states, when all of them can be had at once.
///
/// Two to eight states, of which some are to be read ([`Shared::reading`](crate::Shared::reading)) and some
/// to be written ([`Shared::writing`](crate::Shared::writing)), in whatever order: there is nothing to
/// deadlock on. For a number that is not known in advance there is [`together_all`](crate::together_all).
///
/// Who waits, waits in line for one of the states, and has none. So it may be overtaken more often than who
/// wants one state alone: whenever it is woken for one of them and finds that another is taken for long.
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
    Together { accesses, f: Some(f), line: TogetherWait::default() }
}

/// What [`together`] and [`when`](crate::shared::when) take: tuples of up to eight of [`Reading`](crate::Reading) and
/// [`Writing`](crate::Writing).
pub trait Accesses: sealed::Sealed {
    /// What the closure gets: a tuple of `&` and `&mut`.
    type Guards<'g>;

    /// Enters all, and calls `then` inside.
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
                // SAFETY: handed on from the caller.
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

/// Puts wishes in the order in which they are entered, and refuses those that cannot be: two for one state, or
/// inside of a closure.
#[inline]
pub(super) fn sort(wishes: &mut [Wish<'_>]) {
    wishes.iter().for_each(|wish| wish.gate.glance());
    closure::assert_outside(&All(wishes));
    put_in_order(wishes);
    for pair in wishes.windows(2) {
        if pair[0].address() == pair[1].address() {
            refuse_twice(pair);
        }
    }
}

/// Puts wishes in the order in which they are entered.
#[inline]
pub(super) fn put_in_order(wishes: &mut [Wish<'_>]) {
    match wishes {
        [_] => {}
        [first, second] if first.rank() <= second.rank() => {}
        [first, second] => std::mem::swap(first, second),
        _ => wishes.sort_unstable_by_key(Wish::rank),
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

/// Calls `f` inside of the states that were entered, and leaves them. Whoever is woken by that must not wait
/// for one that is yet to be left.
#[inline]
pub(super) fn call<R>(wishes: &[Wish<'_>], entered: impl Sized, f: impl FnOnce() -> R) -> R {
    closure::enter(&All(wishes), move || {
        let _entered = entered; // left also if `f` panics
        f()
    })
}

/// Leaves all that were entered, as `call` does.
fn leave(wishes: &[Wish<'_>], entered: &mut [Option<AccessGuard<'_>>]) {
    closure::enter(&All(wishes), || {
        entered.iter_mut().filter_map(Option::take).for_each(AccessGuard::leave_unwritten);
    });
}

/// Where somebody waits who wants several states: nowhere, until he has to.
#[derive(Default)]
pub struct TogetherWait(pub(super) Option<Box<TogetherEntry>>);

pub(super) struct TogetherEntry {
    waiting: AccessWait,
    /// The state in whose line he is, by its address.
    at: Option<usize>,
}

impl TogetherWait {
    /// Enters all states, which are in order, or none. ALL-OR-NOTHING
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
            // Those behind it are left at once: who has them must not look for one before them. BY-ADDRESS
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

    /// Waits in the line of one. Who is in others, too, looks for a while, and nobody goes ahead of him then.
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

/// The future of [`together`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Together<A: Accesses, F> {
    accesses: A,
    line: TogetherWait,
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
        assert!(f.is_some(), "together: polled again after it was done");
        let polled = accesses.poll_enter(line, cx, || {
            let f = f.take().expect("just seen");
            // SAFETY: we are in all states while this closure runs, and `f` cannot keep what it gets.
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
