//! Spawning: tasks with a color of their own, in a color, in the main color, and blocking calls.

use std::borrow::Cow;

use crate::limit::Limit;
use crate::sched::Sched;
use crate::sched::clocked::Clocked;
use crate::task::cell::{Cell, TaskKind};
use crate::task::context::with_context;
use crate::task::header::{Meta, QueuePosition, Runnable};
use crate::task::or_else::OrElse;
use crate::task::poll::{Blocking, ClosureFuture, OwnColor, start};
use crate::task::{JoinHandle, Priority, RuntimeShared, drop_unspawned};
use crate::{Color, lane};

#[inline]
pub(super) fn spawn_own<F>(home: &RuntimeShared, future: F, meta: Meta) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: both are `Send` and `'static`: they may be used anywhere, at any time.
    match unsafe { Cell::make(home, OwnColor, future, meta) } {
        Ok(task) => {
            // SAFETY: a new task is owned by its maker. ONE-OWNER
            let runnable = unsafe { Runnable::new(task.ptr()) };
            Sched::of(home).enqueue(runnable, QueuePosition::New);
            // SAFETY: it is a task of `F`, and this is its only handle.
            unsafe { JoinHandle::new(task) }
        }
        Err(future) => {
            drop_unspawned(future);
            JoinHandle::gone()
        }
    }
}

/// `call` is done at its first poll.
pub(super) fn spawn_blocking<F, T>(home: &RuntimeShared, call: F, meta: Meta) -> JoinHandle<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    spawn_started(home, Blocking::default(), call, meta)
}

/// Spawns a task of another kind than [`OwnColor`], by its own way of being put in line.
fn spawn_started<K, F>(home: &RuntimeShared, kind: K, future: F, meta: Meta) -> JoinHandle<F::Output>
where
    K: TaskKind,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: both are `Send` and `'static`: they may be used anywhere, at any time.
    match unsafe { Cell::make(home, kind, future, meta) } {
        Ok(task) => {
            start(&task, QueuePosition::New);
            // SAFETY: it is a task of `F`, and this is its only handle.
            unsafe { JoinHandle::new(task) }
        }
        Err(future) => {
            drop_unspawned(future);
            JoinHandle::gone()
        }
    }
}

#[inline]
#[track_caller]
fn home_here<'a>(what: &str) -> &'a RuntimeShared {
    let home = with_context(|here| here.home.get());
    // SAFETY: it is set only while this thread works for a runtime or has entered it, and the
    // caller does not keep it.
    match unsafe { home.as_ref() } {
        Some(home) => home,
        None => no_runtime(what),
    }
}

#[cold]
#[track_caller]
fn no_runtime(what: &str) -> ! {
    panic!("{what} needs a runtime: call it inside dapple::run, block_on or a task, or use a Handle");
}

/// Spawns a task with a color of its own: it runs in parallel with everything else.
///
/// If the runtime is ending, the handle says [`is_gone`](crate::JoinError::is_gone).
///
/// # Panics
///
/// Outside of a runtime.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let handles: Vec<_> = (0..10).map(|i| dapple::spawn(async move { i * i })).collect();
///     let mut sum = 0;
///     for handle in handles {
///         sum += handle.await.unwrap();
///     }
///     assert_eq!(sum, 285);
/// });
/// ```
#[track_caller]
#[inline]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn_own(home_here("dapple::spawn"), future, Meta::of_caller())
}

/// Spawns a task in the main color: it runs on this thread, and need not be `Send`.
///
/// # Panics
///
/// If what calls this is not running in a main color, that is, in the future of
/// [`run`](crate::run) or [`block_on`](crate::Runtime::block_on), or in a task that was spawned
/// there with `spawn_local`.
///
/// # Examples
///
/// ```
/// use std::{cell::Cell, rc::Rc};
/// dapple::run(async {
///     let count = Rc::new(Cell::new(0));
///     let task = { let count = count.clone(); dapple::spawn_local(async move { count.set(1) }) };
///     task.await.unwrap();
///     assert_eq!(count.get(), 1);
/// });
/// ```
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    lane::spawn_local(future, Meta::of_caller())
}

/// Calls `f` on a thread of its own, where it may block for as long as it likes.
///
/// The pool's threads come when needed, up to a limit
/// ([`max_blocking_threads`](crate::RuntimeBuilder::max_blocking_threads)), and go when idle. A
/// call that has not begun can be aborted; one that has cannot. If not even one thread can be had,
/// the handle says [`is_refused`](crate::JoinError::is_refused).
///
/// A task that blocks in its poll holds up its own color, and a worker, for which a spare has to stand in
/// ([`stall_after`](crate::RuntimeBuilder::stall_after)): here it holds up nobody.
///
/// # Cancellation
///
/// *Handle dropped*: the call goes on, or will begin, and its result is dropped. *Scope cancelled* in which
/// the handle is awaited, also by a [`timeout`](crate::time::timeout()) or a [`race`](crate::race): the wait says
/// [`is_cancelled`](crate::JoinError::is_cancelled) at once. A call that has begun goes on, and awaiting `&mut handle`
/// again gives its result; one that has not begun never does, and awaiting again says
/// [`is_aborted`](crate::JoinError::is_aborted). Await it in a [`shield`](crate::shield) to wait for it in any case.
/// Inside of the call, waits that block are told if the call itself was cancelled
/// ([`JoinHandle::cancel`]).
///
/// # Panics
///
/// Outside of a runtime.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let text = dapple::blocking(|| std::fs::read_to_string("/proc/version")).await.unwrap();
///     assert!(text.unwrap().starts_with("Linux"));
/// });
/// ```
#[track_caller]
pub fn blocking<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_blocking(home_here("dapple::blocking"), ClosureFuture::new(f), Meta::of_caller())
}

/// Spawns tasks with a name, in a color, of a priority, or with a drop closure; the place of the spawn is kept
/// too.
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

/// What a [`Builder`] has without [`or_else`](Builder::or_else).
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDropClosure(());

/// What a [`Builder`] has after [`or_else`](Builder::or_else).
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
    /// A builder of tasks without a name, with a color of their own.
    pub fn new() -> Builder {
        Builder::default()
    }
}

impl<D> Builder<D> {
    /// What the task is called in [`dump`](crate::Runtime::dump) and in messages.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Builder<D> {
        self.name = Some(name.into());
        self
    }

    /// The color that the task runs in.
    pub fn color(mut self, color: &Color) -> Builder<D> {
        self.color = Some(color.clone());
        self
    }

    /// How urgent the task is, whatever its color's priority. Without it, as urgent as its color.
    ///
    /// In a color it runs in line all the same: the color is as urgent as the most urgent that waits in it. In
    /// the main color, and for blocking calls, it has no effect.
    pub fn priority(mut self, priority: Priority) -> Builder<D> {
        self.priority = Some(priority);
        self
    }

    /// Bounds what waits: see [`Limit`]. The task has a color of its own.
    ///
    /// # Panics
    ///
    /// The spawning, if a color was asked for: [its limit](Color::set_limit) goes for all that is in it. In the main
    /// color, and for blocking calls, it has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{sched::Limit, task::Builder};
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

    /// The task knows how long it has waited for its turn, which [`Limit::admit_now`] then goes by. What it spawns
    /// in the same way has waited for as long, at first: what a task accepts was waiting when it was.
    ///
    /// For a task with a color of its own and no priority; a color [with a limit](Color::set_limit) knows it anyway.
    /// Where it was spawned is kept only if it has a name: it is for tasks of which there are many.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use dapple::{sched::Limit, task::Builder};
    ///
    /// dapple::run(async {
    ///     let limit = Limit::new().delay(Duration::from_millis(50), Duration::from_millis(500));
    ///     let connection = Builder::new().clocked().spawn(async move {
    ///         match limit.admit_now() {
    ///             Ok(_admitted) => "handle the request",
    ///             Err(_refused) => "say that there is too much to do",
    ///         }
    ///     });
    ///     assert_eq!(connection.await.unwrap(), "handle the request");
    /// });
    /// ```
    pub fn clocked(mut self) -> Builder<D> {
        self.is_clocked = true;
        self
    }

    /// What is called if the task comes to its end before it has begun: it was aborted, refused, or its
    /// runtime ended. It is called in the task's color, after the future has been dropped; without a runtime,
    /// or if it is gone, at once.
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
        // Of clocked tasks there are many: one for each connection of a server.
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
                "a task in a color has that color's limit: say `color.set_limit(limit)`"
            );
            let Some(color) = Color::new_in(home_here("task::Builder::spawn")) else {
                drop_unspawned(future);
                return JoinHandle::gone();
            };
            color.set_limit(limit);
            self.color = Some(color);
        }
        match (&self.color, self.priority) {
            (Some(color), None) => color.spawn_with(future, meta),
            (Some(color), Some(priority)) => color.spawn_ranked(future, meta, priority),
            (None, None | Some(Priority::Normal)) => {
                let home = home_here("task::Builder::spawn");
                if self.is_clocked {
                    return spawn_started(home, Clocked::default(), future, meta);
                }
                spawn_own(home, future, meta)
            }
            (None, Some(priority)) => match Color::new_in(home_here("task::Builder::spawn")) {
                Some(color) => {
                    color.set_priority(priority);
                    color.spawn_with(future, meta)
                }
                None => {
                    drop_unspawned(future);
                    JoinHandle::gone()
                }
            },
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
        lane::spawn_local(future, meta)
    }

    #[track_caller]
    fn call_blocking<F, T>(mut self, call: F) -> JoinHandle<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        assert!(self.color.is_none(), "a blocking call has no color: it may run beside anything");
        let meta = self.meta();
        spawn_blocking(home_here("task::Builder::blocking"), call, meta)
    }
}

impl Builder {
    /// Spawns a task, as [`dapple::spawn`](crate::spawn) or [`Color::spawn`] does.
    ///
    /// # Panics
    ///
    /// Without a color, outside of a runtime.
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
    /// Outside of a main color, or if another color was asked for.
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
    /// Outside of a runtime, or if a color was asked for, which a blocking call cannot have.
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

    /// As [`Builder::spawn`](Builder#method.spawn).
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (builder, closure) = self.split();
        builder.spawn_this(OrElse::new(future, closure))
    }

    /// As [`Builder::spawn_local`](Builder#method.spawn_local).
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (builder, closure) = self.split();
        builder.spawn_this_local(OrElse::new(future, closure))
    }

    /// As [`Builder::blocking`](Builder#method.blocking).
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
