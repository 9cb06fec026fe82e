//! Builder of tasks: name, color, priority, limit, drop closure.

use std::borrow::Cow;

use super::submit::{FreshClocked, FreshColor, InColor, gone, submit, submit_local};
use crate::Color;
use crate::cancel::JoinHandle;
use crate::context::{HANDLE, require};
use crate::limit::Limit;
use crate::runtime::{Core, OnPool};
use crate::task::header::Meta;
use crate::task::or_else::OrElse;
use crate::task::poll::ClosureFuture;
use crate::task::runtime_shared::WholeRuntime;
use crate::task::{Priority, RuntimeShared};

/// Spawns tasks with a name, a color, a priority, a limit or a drop closure. The place of the spawn is
/// recorded for [`dump`](crate::Runtime::dump).
///
/// # Examples
///
/// ```
/// use dapple::task::Builder;
/// dapple::run(async {
///     let task = Builder::new().name("greeter").spawn(async { dapple::task::current().name() });
///     assert_eq!(task.await.unwrap(), "greeter");
/// });
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "call `.spawn(future)`"]
pub struct Builder<D = NoDropClosure> {
    name: Option<Cow<'static, str>>,
    color: Option<Color>,
    priority: Option<Priority>,
    limit: Option<Limit>,
    is_clocked: bool,
    drop_closure: D,
}

/// Type of a [`Builder`] without a drop closure ([`or_else`](Builder::or_else)).
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDropClosure(());

/// Type of a [`Builder`] with a drop closure ([`or_else`](Builder::or_else)).
#[derive(Clone, Copy, Debug)]
pub struct DropClosure<G>(G);

impl<G> DropClosure<G> {
    pub(crate) fn new(closure: G) -> DropClosure<G> {
        DropClosure(closure)
    }

    pub(crate) fn into_inner(self) -> G {
        self.0
    }
}

impl Builder {
    /// Creates a builder of tasks without a name, each with a color of its own.
    pub fn new() -> Builder {
        Builder::default()
    }
}

impl<D> Builder<D> {
    /// Sets the name for [`dump`](crate::Runtime::dump) and messages.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Builder<D> {
        self.name = Some(name.into());
        self
    }

    /// Sets the color that the task runs in.
    pub fn color(mut self, color: &Color) -> Builder<D> {
        self.color = Some(color.clone());
        self
    }

    /// Sets a priority for this task alone. Without this call, the task has the priority of its color.
    ///
    /// Tasks of one color still run in order: an urgent task makes its color urgent, and does not overtake
    /// the tasks before it. In the main color, and for blocking calls, a priority has no effect.
    pub fn priority(mut self, priority: Priority) -> Builder<D> {
        self.priority = Some(priority);
        self
    }

    /// Puts the task under a [`Limit`]. The task has a color of its own.
    ///
    /// # Panics
    ///
    /// Spawning panics if a color was set as well: [the limit of a color](Color::set_limit) applies to all of
    /// its tasks. In the main color, and for blocking calls, it has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{task::Builder, limit::Limit};
    ///
    /// dapple::run(async {
    ///     let limit = Limit::new().concurrency(10);
    ///     let task = Builder::new().limit(limit.clone()).spawn(async { "begun" });
    ///     assert_eq!(task.await.unwrap(), "begun");
    ///     limit.close();
    ///     let task = Builder::new().limit(limit).spawn(async { "refused" });
    ///     assert!(task.await.unwrap_err().is_refused());
    /// });
    /// ```
    pub fn limit(mut self, limit: Limit) -> Builder<D> {
        self.limit = Some(limit);
        self
    }

    /// Measures how long the task has waited for its turn, for [`Limit::try_admit`]. Use it for a task that
    /// calls `try_admit`, such as the task of a connection.
    ///
    /// Tasks that this task spawns with `measure_wait` start with its waiting time: a connection has waited
    /// for as long as the task that accepts connections.
    ///
    /// It works for a task with a color of its own and no priority. A color [with a limit](Color::set_limit)
    /// measures anyway. The place of the spawn is recorded only if the task has a name, since there may be
    /// many such tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use dapple::{task::Builder, limit::Limit};
    ///
    /// dapple::run(async {
    ///     let limit = Limit::new().delay(Duration::from_millis(50), Duration::from_millis(500));
    ///     let connection = Builder::new().measure_wait().spawn(async move {
    ///         match limit.try_admit() {
    ///             Ok(_admitted) => "handle the request",
    ///             Err(_refused) => "answer: overload, try again later",
    ///         }
    ///     });
    ///     assert_eq!(connection.await.unwrap(), "handle the request");
    /// });
    /// ```
    pub fn measure_wait(mut self) -> Builder<D> {
        self.is_clocked = true;
        self
    }

    /// Sets a closure that is called if the task ends before it has begun: it was aborted, refused, or its
    /// runtime ended. It is called in the task's color, after the future has been dropped; without a runtime,
    /// or after its end, at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use dapple::{Color, task::Builder};
    /// static REFUSED: AtomicBool = AtomicBool::new(false);
    ///
    /// dapple::run(async {
    ///     let task = Builder::new().or_else(|| REFUSED.store(true, Relaxed)).spawn(async {
    ///         unreachable!("it is aborted before it has begun")
    ///     });
    ///     task.abort();
    ///     assert!(task.await.is_err() && REFUSED.load(Relaxed));
    /// });
    /// ```
    pub fn or_else<G: FnOnce() + Send + 'static>(self, closure: G) -> Builder<DropClosure<G>> {
        let Builder { name, color, priority, limit, is_clocked, drop_closure: _ } = self;
        Builder { name, color, priority, limit, is_clocked, drop_closure: DropClosure(closure) }
    }

    #[track_caller]
    fn meta(&mut self) -> Meta {
        let (name, meta) = (self.name.take(), Meta::of_caller());
        // There may be many clocked tasks: one for each connection of a server.
        Meta { is_kept: meta.is_kept || name.is_some() || !self.is_clocked, name, ..meta }
    }

    #[track_caller]
    fn spawn_this<F>(mut self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let meta = self.meta();
        if let Some(limit) = self.limit.take() {
            assert!(
                self.color.is_none(),
                "a task in a color has the limit of the color: call `color.set_limit(limit)`"
            );
            let Some(color) = Color::new_in(runtime()) else { return gone(future) };
            color.set_limit(limit);
            self.color = Some(color);
        }
        match (&self.color, self.priority) {
            (Some(color), None) => submit(InColor::new(color), future, meta),
            (Some(color), Some(priority)) => submit(InColor::at(color, priority), future, meta),
            (None, None | Some(Priority::Normal)) if self.is_clocked => {
                submit(FreshClocked(runtime()), future, meta)
            }
            (None, None | Some(Priority::Normal)) => submit(FreshColor(runtime()), future, meta),
            (None, Some(priority)) => {
                let Some(color) = Color::new_in(runtime()) else { return gone(future) };
                color.set_priority(priority);
                submit(InColor::new(color), future, meta)
            }
        }
    }

    #[track_caller]
    fn spawn_this_local<F>(mut self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        if let Some(color) = &self.color {
            assert!(*color == Color::main(), "spawn_local spawns in the main color, not in {color:?}");
        }
        let meta = self.meta();
        submit_local(future, meta)
    }

    #[track_caller]
    fn call_blocking<F, T>(mut self, call: F) -> JoinHandle<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        assert!(self.color.is_none(), "a blocking call has no color: it runs in parallel with all colors");
        let meta = self.meta();
        submit(OnPool(Core::of(require("task::Builder::blocking", HANDLE))), call, meta)
    }
}

/// Runtime that the task is spawned on.
#[inline]
#[track_caller]
fn runtime<'a>() -> &'a RuntimeShared {
    require("task::Builder::spawn", HANDLE)
}

impl Builder {
    /// Spawns a task, as [`dapple::spawn`](crate::spawn()) or [`Color::spawn`] does.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, unless a color was set.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_this(future)
    }

    /// Spawns a task in the main color, as [`dapple::spawn_local`](crate::spawn_local) does.
    ///
    /// # Panics
    ///
    /// Outside of a main color, or if another color was set.
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.spawn_this_local(future)
    }

    /// Calls `f` where it may block, as [`dapple::blocking`](crate::blocking()) does.
    ///
    /// # Cancellation
    ///
    /// As [`dapple::blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// Outside of a runtime, or if a color was set: a blocking call has no color.
    #[track_caller]
    pub fn blocking<F, T>(self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.call_blocking(ClosureFuture::new(f))
    }
}

impl<G: FnOnce() + Send + 'static> Builder<DropClosure<G>> {
    fn split(self) -> (Builder, G) {
        let Builder { name, color, priority, limit, is_clocked, drop_closure } = self;
        let drops = NoDropClosure(());
        (Builder { name, color, priority, limit, is_clocked, drop_closure: drops }, drop_closure.0)
    }

    /// Spawns a task; see [`Builder::spawn`](Builder#method.spawn).
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (builder, closure) = self.split();
        builder.spawn_this(OrElse::new(future, closure))
    }

    /// Spawns a task in the main color; see [`Builder::spawn_local`](Builder#method.spawn_local).
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (builder, closure) = self.split();
        builder.spawn_this_local(OrElse::new(future, closure))
    }

    /// Calls `f` where it may block; see [`Builder::blocking`](Builder#method.blocking).
    ///
    /// # Cancellation
    ///
    /// As [`dapple::blocking`](crate::blocking()).
    #[track_caller]
    pub fn blocking<F, T>(self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (builder, closure) = self.split();
        builder.call_blocking(OrElse::new(ClosureFuture::new(f), closure))
    }
}
