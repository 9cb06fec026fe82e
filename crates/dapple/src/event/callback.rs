//! A callback: a closure, with a color, a priority, a name and a drop closure.

use std::borrow::Cow;
use std::fmt;

use crate::Color;
use crate::sched::Priority;
use crate::spawn::{DropClosure, NoDropClosure};

/// A closure to be called when an event happens, with its color, its priority, and a closure to be called
/// instead if it is never called.
///
/// Nothing happens until it is passed to [`now`](super::now), [`after`](super::after),
/// [`readable`](super::readable) or another function of this [module](super). Color and priority are parts of
/// the callback, not arguments of these functions, so a function that takes a callback need not know in which
/// color it will run.
///
/// Without a color it runs in the main color. Colors are not inherited: a callback created in a callback of
/// some color is in the main color as well, unless it is given that color ([`Color::current`]).
///
/// # Examples
///
/// ```
/// use dapple::event::{self, Callback};
/// use dapple::{Color, sched::Priority};
///
/// dapple::run(async {
///     let color = Color::new();
///     let sum = Callback::new(|| 1 + 2).color(&color).priority(Priority::High).name("sum");
///     assert_eq!(event::now(sum).await.unwrap(), 3);
/// });
/// ```
#[must_use = "a callback is called only if it is handed to `event::now`, `after`, `readable` or the like"]
pub struct Callback<F, D = NoDropClosure, W = Anywhere> {
    pub(super) closure: F,
    pub(super) color: Option<Color>,
    pub(super) priority: Option<Priority>,
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) drop_closure: D,
    pub(super) place: W,
}

/// Marker of a [`Callback`] that is `Send` and may run in any color.
///
/// # Examples
///
/// ```
/// use dapple::event::{Anywhere, Callback};
///
/// fn is_send<C: Send>(_: &C) {}
///
/// let callback: Callback<_, _, Anywhere> = Callback::new(|| println!("on any worker"));
/// is_send(&callback);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere(());

/// Marker of a [`Callback`] that stays on the thread of its main color.
///
/// # Examples
///
/// ```
/// use dapple::event::{self, Callback};
/// use std::rc::Rc;
///
/// dapple::run(async {
///     let name = Rc::new("main"); // not `Send`
///     let callback = Callback::local(move || name.len()); // a `Callback<_, _, OnThisThread>`
///     assert_eq!(event::now(callback).await.unwrap(), 4);
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OnThisThread(());

impl<F: Send + 'static> Callback<F> {
    /// Creates a callback that may run on any thread.
    ///
    /// The closure takes no argument, or one that is supplied later: see [`with`](Callback::with). A closure
    /// that is called once ([`now`](super::now), [`after`](super::after), [`at`](super::at)) may be an
    /// `FnOnce`; one that is called repeatedly must be an `FnMut`.
    ///
    /// ```compile_fail,E0277
    /// let shared = std::rc::Rc::new(1);
    /// let callback = dapple::event::Callback::new(move || *shared); // use `local`
    /// ```
    pub fn new(closure: F) -> Callback<F> {
        Callback::of(closure, Anywhere(()))
    }
}

impl<F: 'static> Callback<F, NoDropClosure, OnThisThread> {
    /// Creates a callback that runs in the main color in which it is registered, on this thread, and need not
    /// be `Send`.
    ///
    /// Functions that take it panic outside of a main color: call them in the future of [`run`](crate::run)
    /// or [`block_on`](crate::Runtime::block_on), or in other code of their color.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc};
    /// use dapple::event::{self, Callback};
    ///
    /// dapple::run(async {
    ///     let count = Rc::new(Cell::new(0));
    ///     let add = { let count = count.clone(); move || count.set(count.get() + 1) };
    ///     event::now(Callback::local(add)).await.unwrap();
    ///     assert_eq!(count.get(), 1);
    /// });
    /// ```
    pub fn local(closure: F) -> Callback<F, NoDropClosure, OnThisThread> {
        Callback::of(closure, OnThisThread(()))
    }
}

impl<F, W> Callback<F, NoDropClosure, W> {
    fn of(closure: F, place: W) -> Callback<F, NoDropClosure, W> {
        let drop_closure = NoDropClosure::default();
        Callback { closure, color: None, priority: None, name: None, drop_closure, place }
    }
}

impl<F, D> Callback<F, D, Anywhere> {
    /// Sets the color. Without it, the callback runs in the main color.
    #[inline]
    pub fn color(mut self, color: &Color) -> Callback<F, D> {
        self.color = Some(color.clone());
        self
    }

    /// Sets a priority for this callback alone; without this call it has that of its color. A priority has no effect in
    /// the main color. See [`Priority`].
    #[inline]
    pub fn priority(mut self, priority: Priority) -> Callback<F, D> {
        self.priority = Some(priority);
        self
    }

    /// Sets a closure that is called, in the callback's color, if the callback ends without ever having been
    /// called: the handle of [`now`](super::now) was aborted, the callback was refused, or its runtime ended
    /// first.
    ///
    /// It is not called if the program withdrew the callback by its [`Registration`](super::Registration).
    /// The callback's own closure is dropped before. If the runtime has already ended, it is called at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use dapple::event::{self, Callback};
    /// use dapple::time::Duration;
    /// static TOO_LATE: AtomicBool = AtomicBool::new(false);
    ///
    /// dapple::run(async {
    ///     let never = Callback::new(|| unreachable!()).or_else(|| TOO_LATE.store(true, Relaxed));
    ///     event::after(Duration::from_secs(3600), never).detach();
    /// });
    /// assert!(TOO_LATE.load(Relaxed)); // the runtime ended first
    /// ```
    pub fn or_else<G>(self, closure: G) -> Callback<F, DropClosure<G>>
    where
        G: FnOnce() + Send + 'static,
    {
        self.with_drop_closure(closure)
    }
}

impl<F, D> Callback<F, D, OnThisThread> {
    /// Sets a closure that is called if the callback ends without ever having been called; see
    /// [`or_else`](Callback::or_else) of a callback that may run anywhere. The closure runs on this thread, and need not be
    /// `Send`.
    pub fn or_else<G>(self, closure: G) -> Callback<F, DropClosure<G>, OnThisThread>
    where
        G: FnOnce() + 'static,
    {
        self.with_drop_closure(closure)
    }
}

impl<F, D, W> Callback<F, D, W> {
    /// Sets the name for [`dump`](crate::Runtime::dump) and messages.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Callback<F, D, W> {
        self.name = Some(name.into());
        self
    }

    /// Supplies the argument of a closure that takes one, so that it becomes a closure without arguments.
    ///
    /// A function can thus take a callback and pass it a result, whatever its color, priority and drop
    /// closure are.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::event::{self, Callback};
    ///
    /// /// Looks a name up, and calls back with the result.
    /// fn look_up<F>(name: &str, found: Callback<F>)
    /// where
    ///     F: FnOnce(usize) + Send + 'static,
    /// {
    ///     event::now(found.with(name.len())).detach();
    /// }
    ///
    /// dapple::run(async {
    ///     let answer = dapple::suspend(|resume| {
    ///         look_up("dapple", Callback::new(move |n: usize| drop(resume.resume(n))));
    ///         || {}
    ///     });
    ///     assert_eq!(answer.await, Ok(6));
    /// });
    /// ```
    pub fn with<A, T>(self, argument: A) -> Callback<impl FnOnce() -> T + use<A, T, F, D, W>, D, W>
    where
        F: FnOnce(A) -> T,
    {
        let Callback { closure, color, priority, name, drop_closure, place } = self;
        let closure = move || closure(argument);
        Callback { closure, color, priority, name, drop_closure, place }
    }

    fn with_drop_closure<G>(self, closure: G) -> Callback<F, DropClosure<G>, W> {
        let drop_closure = DropClosure::new(closure);
        let Callback { closure, color, priority, name, drop_closure: _, place } = self;
        Callback { closure, color, priority, name, drop_closure, place }
    }
}

impl<F, D, W> fmt::Debug for Callback<F, D, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback")
            .field("name", &self.name)
            .field("color", &self.color)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}
