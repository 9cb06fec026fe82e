//! Several states of one type, from a slice, at once.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::access::Access;
use super::together::{TogetherWait, call, sort};
use crate::Cancelled;

/// Calls `f` with all states of a slice, once all of them are available at the same time.
///
/// As [`together`](crate::together), for states of one type whose number is not known at compile time. The
/// closure gets them in the order of the slice. For an empty slice, `f` gets an empty slice at once.
///
/// # Errors
///
/// If the wait was cancelled: `f` has not run.
///
/// # Panics
///
/// As [`together`](crate::together).
///
/// # Cancellation
///
/// *Dropped early*: **loses its place**; `f` has not run.
/// *Scope cancelled*: as [`together`](crate::together).
///
/// # Examples
///
/// ```
/// use dapple::{Shared, together_all};
///
/// dapple::run(async {
///     let accounts: Vec<_> = (0..10).map(|_| Shared::new(100)).collect();
///     let transfer = [accounts[7].writing(), accounts[3].writing()];
///     together_all(&transfer, |accounts| {
///         *accounts[0] -= 10;
///         *accounts[1] += 10;
///     })
///     .await
///     .unwrap();
///
///     let all: Vec<_> = accounts.iter().map(Shared::reading).collect();
///     let sum = together_all(&all, |accounts| accounts.iter().map(|balance| **balance).sum::<i32>());
///     assert_eq!(sum.await, Ok(1000));
/// });
/// ```
pub fn together_all<'a, A, R, F>(accesses: &'a [A], f: F) -> TogetherAll<'a, A, F>
where
    A: Access<Value: 'static>,
    F: for<'g> FnOnce(&mut [A::Guard<'g>]) -> R,
{
    TogetherAll { accesses, f: Some(f), line: TogetherWait::default() }
}

/// Future of [`together_all`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct TogetherAll<'a, A: Access, F> {
    accesses: &'a [A],
    line: TogetherWait,
    /// None once the closure has been called.
    f: Option<F>,
}

// The closure is moved when called, and never pinned.
impl<A: Access, F> Unpin for TogetherAll<'_, A, F> {}

impl<A, R, F> Future for TogetherAll<'_, A, F>
where
    A: Access<Value: 'static>,
    F: for<'g> FnOnce(&mut [A::Guard<'g>]) -> R,
{
    type Output = Result<R, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let TogetherAll { accesses, line, f } = self.get_mut();
        assert!(f.is_some(), "together_all: polled again after it was done");
        // Up to four states need no allocation.
        let polled = match *accesses {
            [] => poll_few([], line, f, cx),
            [a] => poll_few([a], line, f, cx),
            [a, b] => poll_few([a, b], line, f, cx),
            [a, b, c] => poll_few([a, b, c], line, f, cx),
            [a, b, c, d] => poll_few([a, b, c, d], line, f, cx),
            _ => poll_many(accesses, line, f, cx),
        };
        let result = ready!(polled);
        *f = None;
        Poll::Ready(result)
    }
}

fn poll_few<const N: usize, A, R, F>(
    accesses: [&A; N],
    line: &mut TogetherWait,
    f: &mut Option<F>,
    cx: &mut Context<'_>,
) -> Poll<Result<R, Cancelled>>
where
    A: Access<Value: 'static>,
    F: for<'g> FnOnce(&mut [A::Guard<'g>]) -> R,
{
    let mut wishes = accesses.map(A::wish);
    sort(&mut wishes);
    let mut entered = [const { None }; N];
    ready!(line.poll_enter(&wishes, &mut entered, cx))?;
    let f = f.take().expect("just seen");
    // SAFETY: all states stay entered until `f` has returned, and `f` cannot keep the references that it
    // gets.
    let mut guards = accesses.map(|access| unsafe { access.guard() });
    Poll::Ready(Ok(call(&wishes, entered, || f(&mut guards))))
}

fn poll_many<A, R, F>(
    accesses: &[A],
    line: &mut TogetherWait,
    f: &mut Option<F>,
    cx: &mut Context<'_>,
) -> Poll<Result<R, Cancelled>>
where
    A: Access<Value: 'static>,
    F: for<'g> FnOnce(&mut [A::Guard<'g>]) -> R,
{
    let mut wishes: Vec<_> = accesses.iter().map(A::wish).collect();
    sort(&mut wishes);
    let mut entered: Vec<_> = wishes.iter().map(|_| None).collect();
    ready!(line.poll_enter(&wishes, &mut entered, cx))?;
    let f = f.take().expect("just seen");
    // SAFETY: all states stay entered until `f` has returned, and `f` cannot keep the references that it
    // gets.
    let mut guards: Vec<_> = accesses.iter().map(|access| unsafe { access.guard() }).collect();
    Poll::Ready(Ok(call(&wishes, entered, || f(&mut guards))))
}

impl<A: Access, F> Drop for TogetherAll<'_, A, F> {
    fn drop(&mut self) {
        let TogetherAll { accesses, line, .. } = self;
        line.give_up(accesses.iter().map(A::wish));
    }
}

impl<A: Access, F> fmt::Debug for TogetherAll<'_, A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TogetherAll").field("states", &self.accesses.len()).finish_non_exhaustive()
    }
}
