//! Futures of one state: they wait for access, then call their closure with the value.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::access::{Access, Reading, Shown, Writing};
use super::access_lock::AccessWait;
use crate::Cancelled;
use crate::cancel::wait::{begins_at_once, got_at_once};
use crate::context::closure;

#[cold]
#[inline(never)]
fn refuse_again(what: &dyn fmt::Display) -> ! {
    panic!("{what}: polled again after it was done");
}

macro_rules! impl_wait {
    ($(#[$doc:meta])* $wait:ident, $access:ident, $value:ty) => {
        $(#[$doc])*
        #[must_use = "a future does nothing unless it is awaited"]
        pub struct $wait<'a, T, F> {
            access: $access<'a, T>,
            /// None until it has to wait.
            waiting: Option<Box<AccessWait>>,
            /// None once the closure has been called.
            f: Option<F>,
        }

        impl<'a, T, F> $wait<'a, T, F> {
            #[inline]
            pub(super) fn new(access: $access<'a, T>, f: F) -> Self {
                Self { access, waiting: None, f: Some(f) }
            }
        }

        // The closure is moved when it is called, and never pinned.
        impl<T, F> Unpin for $wait<'_, T, F> {}

        impl<T, R, F: FnOnce($value) -> R> Future for $wait<'_, T, F> {
            type Output = Result<R, Cancelled>;

            #[inline]
            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                let this = self.get_mut();
                let shown = Shown(&this.access);
                closure::assert_may_wait(&shown);
                if this.f.is_none() {
                    refuse_again(&shown);
                }
                // The common case: access without waiting. It is inlined and builds no `Wish`.
                let is_new = this.waiting.is_none() && begins_at_once();
                let entered = match is_new.then(|| this.access.try_at_once()).flatten() {
                    Some(entered) => {
                        got_at_once();
                        entered
                    }
                    None => match ready!(this.access.wish().poll_enter(&mut this.waiting, is_new, cx)) {
                        Ok(entered) => entered,
                        Err(cancelled) => {
                            this.f = None;
                            return Poll::Ready(Err(cancelled));
                        }
                    },
                };
                let f = this.f.take().expect("just seen");
                // SAFETY: the access guard is dropped after `f` returns, and `f` cannot keep the reference
                // that it gets.
                let result = closure::enter(&shown, || f(unsafe { this.access.guard() }));
                entered.leave();
                Poll::Ready(Ok(result))
            }
        }

        impl<T, F> Drop for $wait<'_, T, F> {
            #[inline]
            fn drop(&mut self) {
                if let Some(waiting) = self.waiting.take() {
                    self.access.wish().drop_waiting(waiting);
                }
            }
        }

        impl<T, F> fmt::Debug for $wait<'_, T, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($wait)).field(&self.access).finish()
            }
        }
    };
}

impl_wait!(
    /// Future of [`Shared::read`](crate::Shared::read).
    ReadFuture, Reading, &T
);
impl_wait!(
    /// Future of [`Shared::write`](crate::Shared::write).
    WriteFuture, Writing, &mut T
);
