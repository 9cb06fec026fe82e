//! Makes a callback a task of its color: one that may run anywhere, or one of this thread.

use std::borrow::Cow;

use super::callback::{Anywhere, Callback, OnThisThread};
use super::callback_tasks::{CallNow, CallOften, CallOnce, DropCall, Occasion, Verdict};
use super::registration::Registration;
use crate::cancel::JoinHandle;
use crate::context::with_context;
use crate::sched::Priority;
use crate::spawn::submit::{InColor, gone, submit, submit_local};
use crate::task::header::Meta;
use crate::{Color, runtime};

/// A callback that can be called once: a [`Callback`] whose closure is an `FnOnce()`, and `Send` unless it is
/// [local](Callback::local). Sealed: only `Callback` implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a callback that can be called once",
    note = "its closure takes no argument (`Callback::with` gives it one), and what it returns is `Send`, unless it \
            was made by `Callback::local`"
)]
pub trait Once: Sized {
    /// Output of the closure.
    type Output;

    #[doc(hidden)]
    fn now(self, site: CallSite) -> JoinHandle<Self::Output>;

    #[doc(hidden)]
    fn once<O: Occasion>(self, occasion: O, site: CallSite) -> Registration;
}

/// A callback that can be called repeatedly: a [`Callback`] whose closure is an `FnMut()` that returns
/// nothing, or a [`ControlFlow`](std::ops::ControlFlow) whose `Break` withdraws it. Sealed: only `Callback`
/// implements it.
///
/// # Examples
///
/// ```
/// use dapple::event::{self, Callback};
/// use dapple::time::Duration;
/// use std::ops::ControlFlow;
///
/// dapple::run(async {
///     let (done, ended) = dapple::channel::oneshot::channel();
///     let (mut count, mut done) = (0, Some(done));
///     let tick = Callback::new(move || {
///         count += 1;
///         if count < 3 {
///             return ControlFlow::Continue(());
///         }
///         let _ = done.take().map(|done| done.send(count));
///         ControlFlow::Break(()) // is not called again
///     });
///     event::every(Duration::from_millis(1), tick).detach();
///     assert_eq!(ended.await.unwrap(), 3);
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a callback that can be called often",
    note = "its closure takes no argument, can be called again and again (`FnMut`), and returns nothing or a \
            `ControlFlow<()>`"
)]
pub trait Often: Sized {
    #[doc(hidden)]
    fn often<O: Occasion>(self, occasion: O, site: CallSite) -> Registration;
}

/// Place where a callback was registered, and the function that was called.
pub struct CallSite {
    pub(super) what: &'static str,
    meta: Meta,
}

impl CallSite {
    #[inline]
    #[track_caller]
    pub(super) fn of_caller(what: &'static str) -> CallSite {
        CallSite { what, meta: Meta::of_caller() }
    }
}

impl<F, T, D> Once for Callback<F, D, Anywhere>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
    D: DropCall<Guard: Send + 'static>,
{
    type Output = T;

    #[inline]
    fn now(self, site: CallSite) -> JoinHandle<T> {
        let (closure, drop_closure, how) = self.split();
        how.spawn(CallNow::new(closure, drop_closure.guard()), site)
    }

    fn once<O: Occasion>(self, occasion: O, site: CallSite) -> Registration {
        let (closure, drop_closure, how) = self.split();
        let (guard, withdrawn) = drop_closure.guard_registration();
        Registration::new(how.spawn(CallOnce::new(occasion, closure, guard), site), withdrawn)
    }
}

impl<F, T, D> Often for Callback<F, D, Anywhere>
where
    F: FnMut() -> T + Send + 'static,
    T: Verdict,
    D: DropCall<Guard: Send + 'static>,
{
    fn often<O: Occasion>(self, occasion: O, site: CallSite) -> Registration {
        let (closure, drop_closure, how) = self.split();
        let (guard, withdrawn) = drop_closure.guard_registration();
        Registration::new(how.spawn(CallOften::new(occasion, closure, guard), site), withdrawn)
    }
}

impl<F, T, D> Once for Callback<F, D, OnThisThread>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
    D: DropCall<Guard: 'static>,
{
    type Output = T;

    fn now(self, site: CallSite) -> JoinHandle<T> {
        let (closure, drop_closure, how) = self.split();
        how.spawn_local(CallNow::new(closure, drop_closure.guard()), site)
    }

    fn once<O: Occasion>(self, occasion: O, site: CallSite) -> Registration {
        let (closure, drop_closure, how) = self.split();
        let (guard, withdrawn) = drop_closure.guard_registration();
        Registration::new(how.spawn_local(CallOnce::new(occasion, closure, guard), site), withdrawn)
    }
}

impl<F, T, D> Often for Callback<F, D, OnThisThread>
where
    F: FnMut() -> T + 'static,
    T: Verdict,
    D: DropCall<Guard: 'static>,
{
    fn often<O: Occasion>(self, occasion: O, site: CallSite) -> Registration {
        let (closure, drop_closure, how) = self.split();
        let (guard, withdrawn) = drop_closure.guard_registration();
        Registration::new(how.spawn_local(CallOften::new(occasion, closure, guard), site), withdrawn)
    }
}

/// A callback without its closures.
struct How {
    color: Option<Color>,
    priority: Option<Priority>,
    name: Option<Cow<'static, str>>,
}

impl<F, D, W> Callback<F, D, W> {
    #[inline]
    fn split(self) -> (F, D, How) {
        let Callback { closure, color, priority, name, drop_closure, place: _ } = self;
        (closure, drop_closure, How { color, priority, name })
    }
}

impl How {
    /// Keeps the name, if there is one.
    #[inline]
    fn meta(&mut self, meta: Meta) -> Meta {
        match self.name.take() {
            None => meta,
            name => Meta { name, is_kept: true, ..meta },
        }
    }

    #[inline]
    fn spawn<U>(mut self, future: U, site: CallSite) -> JoinHandle<U::Output>
    where
        U: Future + Send + 'static,
        U::Output: Send + 'static,
    {
        let meta = self.meta(site.meta);
        match self.color {
            Some(color) => match self.priority {
                None => submit(InColor::new(color), future, meta),
                Some(priority) => submit(InColor::at(color, priority), future, meta),
            },
            // Priorities have no effect in the main color.
            None => runtime::in_main_color(site.what, |color| match color {
                Some(color) => submit(InColor::new(color), future, meta),
                None => gone(future),
            }),
        }
    }

    fn spawn_local<U>(mut self, future: U, site: CallSite) -> JoinHandle<U::Output>
    where
        U: Future + 'static,
        U::Output: 'static,
    {
        assert!(
            with_context(|context| context.is_in_main_color()),
            "{} called outside of a main color with a `Callback::local`: call it in the future of dapple::run or \
             block_on, or in other code of their color; elsewhere use `Callback::new`",
            site.what
        );
        let meta = self.meta(site.meta);
        submit_local(future, meta)
    }
}
