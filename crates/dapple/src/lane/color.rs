//! A color, as users hold it.

use std::fmt;
use std::hash::Hash;
use std::mem::ManuallyDrop;

use super::keyed;
use super::lane::{Lane, NewLane};
use super::laned::{Laned, promote};
use super::limited::Limited;
use super::main::MainTask;
use super::ranked::Ranked;
use crate::prim::Ordering;
use crate::task::cell::{Cell, TaskKind};
use crate::task::context::with_context;
use crate::task::header::{Header, Meta, TaskPtr};
use crate::task::poll::{ClosureFuture, start};
use crate::task::{ColorName, JoinHandle, Priority, QueuePosition, RuntimeShared, Task, drop_unspawned};

/// A label that says what may not run at the same time.
///
/// What has the same color runs one after the other, in the order in which it was submitted; what
/// has different colors runs in parallel. State that is used in one color only needs no lock: see
/// [`ColorCell`](crate::ColorCell).
///
/// A color orders *runnables*: one poll of a task, or one closure. Between two polls of a task
/// (that is, while it awaits something) others of its color may run. Keep what must not be seen
/// half-done within one poll or one closure.
///
/// Every task has a color; [`spawn`](crate::spawn) gives it a fresh one. A color costs nothing
/// until it is asked for, and is forgotten when nobody holds it.
///
/// # Examples
///
/// ```
/// use dapple::Color;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// static COUNT: AtomicU32 = AtomicU32::new(0);
///
/// dapple::run(async {
///     let color = Color::new();
///     let tasks: Vec<_> = (0..100)
///         .map(|_| color.call(|| COUNT.store(COUNT.load(Relaxed) + 1, Relaxed)))
///         .collect();
///     for task in tasks {
///         task.await.unwrap();
///     }
///     assert_eq!(COUNT.load(Relaxed), 100); // no update was lost: they never overlapped
/// });
/// ```
pub struct Color(TaskPtr);

// SAFETY: a counted reference to a lane, whose shared parts are atomic and whose other parts only
// the one with the turn touches (TURN-OWNS-LINE).
unsafe impl Send for Color {}
// SAFETY: as above.
unsafe impl Sync for Color {}

impl Color {
    /// A new color of the runtime that is running here.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each one is different, and it needs a runtime")]
    #[track_caller]
    pub fn new() -> Color {
        in_runtime("Color::new()", Color::new_in)
    }

    pub(crate) fn new_in(home: &RuntimeShared) -> Option<Color> {
        Lane::make(home, NewLane { key: None, main: None, of: None }).map(Color)
    }

    /// The color of a key: the same key is the same color, within a runtime.
    ///
    /// Modules that know nothing of each other agree on a color by using the same key. Keys are
    /// known by their hash: two that collide (one pair in 2^64) run one after the other.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::Color;
    /// dapple::run(async {
    ///     assert_eq!(Color::keyed("user 7"), Color::keyed("user 7"));
    ///     assert_ne!(Color::keyed("user 7"), Color::keyed("user 8"));
    /// });
    /// ```
    #[must_use]
    #[track_caller]
    pub fn keyed(key: &(impl Hash + ?Sized)) -> Color {
        in_runtime("Color::keyed()", |home| Color::keyed_in(home, key))
    }

    pub(crate) fn keyed_in(home: &RuntimeShared, key: &(impl Hash + ?Sized)) -> Option<Color> {
        keyed::lane(home, keyed::hash(key)).map(Color)
    }

    /// The main color of the innermost `run` or `block_on` on this thread: its future's own.
    ///
    /// Once that `run` or `block_on` is over, nothing is polled in the color any more. A task that is spawned there, or a
    /// call, ends ([`is_aborted`](crate::JoinError::is_aborted)): its future is dropped and its drop closure called, in the
    /// color as all of its are, one after the other. Where no color is running (outside of tasks, and in a blocking
    /// call) this has happened when `spawn` or `call` returns, unless another thread is busy with the color: hold no
    /// lock there that the drop closure takes. In all other cases another thread does it soon after.
    ///
    /// # Panics
    ///
    /// If what calls this is not running in a main color.
    #[must_use]
    #[track_caller]
    pub fn main() -> Color {
        match Color::try_main() {
            Some(color) => color,
            None => panic!(
                "Color::main() called outside of a main color: only what runs in the future of \
                 dapple::run or block_on, or was spawned with spawn_local, has one"
            ),
        }
    }

    fn try_main() -> Option<Color> {
        with_context(|here| {
            let main = here.main.get();
            if main.is_null() || here.color.get() != main.addr() {
                return None;
            }
            let lane = TaskPtr::new(main.cast_mut())?;
            // SAFETY: the main color's thread keeps it open, and is in its turn.
            unsafe { lane.as_ref() }.state.add_ref();
            Some(Color(lane))
        })
    }

    /// The color that is running here.
    ///
    /// # Panics
    ///
    /// Outside of a task, and in a [`blocking`](crate::blocking) call, which has no color.
    #[must_use]
    #[track_caller]
    pub fn current() -> Color {
        let lane = with_context(|here| TaskPtr::new(here.lane.get().cast_mut()));
        if let Some(lane) = lane {
            // SAFETY: this thread has the lane's turn. LANE-LIVES
            unsafe { lane.as_ref() }.state.add_ref();
            return Color(lane);
        }
        match Task::current() {
            Some(task) if with_context(|here| here.color.get()) != 0 => Color::promote(task),
            _ => panic!("Color::current() called where no color is running: outside of a task"),
        }
    }

    /// Gives the running task, whose color was its own, a lane that others can share.
    fn promote(task: Task) -> Color {
        // SAFETY: a task's home outlives it.
        let home = unsafe { &*RuntimeShared::of(task.ptr()) };
        let new = NewLane { key: None, main: None, of: Some(task.clone()) };
        let lane = Lane::make(home, new).expect("the runtime of a running task");
        // SAFETY: just made. One reference is the color's, and one the task's. LANE-LIVES
        unsafe { lane.as_ref() }.state.add_ref();
        promote(&task, lane);
        Color(lane)
    }

    pub(super) fn from_counted(lane: TaskPtr) -> Color {
        Color(lane)
    }

    pub(crate) fn lane(&self) -> &Lane {
        // SAFETY: we have a reference.
        unsafe { Lane::of(self.0) }
    }

    /// What tells it from other colors while it exists.
    pub(crate) fn id(&self) -> usize {
        self.lane().id
    }

    /// Spawns a task in this color: it never runs while another of the color does, and gets its
    /// first poll after all that was submitted before.
    ///
    /// If the runtime is gone, the handle says so ([`JoinError::is_gone`](crate::JoinError)).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_with(future, Meta::of_caller())
    }

    /// Calls a closure in this color, behind all that was submitted before.
    ///
    /// # Cancellation
    ///
    /// *Handle dropped*: it is called all the same. *Scope cancelled* in which the handle is awaited: so is the
    /// wait, and the closure is called all the same.
    #[track_caller]
    pub fn call<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_with(ClosureFuture::new(f), Meta::of_caller())
    }

    pub(crate) fn spawn_with<F>(&self, future: F, meta: Meta) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // SAFETY: both are `Send` and `'static`: they may be used anywhere, at any time.
        unsafe { self.spawn_anything(future, meta) }
    }

    /// As `spawn_with`, for who has a reference to give away: the task's, then.
    #[inline]
    pub(crate) fn spawn_into<F>(self, future: F, meta: Meta) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if self.lane().is_special.load(Ordering::Relaxed) {
            return self.spawn_with(future, meta);
        }
        let color = ManuallyDrop::new(self);
        if color.lane().main.is_some() {
            // SAFETY: both are `Send` and `'static`: they may be used anywhere, at any time. The reference is given away.
            unsafe { color.spawn_counted(MainTask::new(color.0), future, meta) }
        } else {
            // SAFETY: as above.
            unsafe { color.spawn_counted(Laned { lane: color.0 }, future, meta) }
        }
    }

    /// As `spawn_with`, for a task with a priority of its own, which it does not have in a main color.
    pub(crate) fn spawn_ranked<F>(&self, future: F, meta: Meta, priority: Priority) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if self.lane().main.is_some() {
            return self.spawn_with(future, meta);
        }
        if self.has_limit() {
            // SAFETY: as below.
            return unsafe { self.spawn_kind(Limited::new(self.lane(), Some(priority)), future, meta) };
        }
        // SAFETY: both are `Send` and `'static`: they may be used anywhere, at any time.
        unsafe { self.spawn_kind(Ranked { lane: self.0, priority }, future, meta) }
    }

    /// How urgent what runs in this color is, but for tasks and callbacks with a priority of their own. By default
    /// [`Normal`](Priority::Normal). A hint to the scheduler: see [`Priority`]. The main color has none.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{Color, sched::Priority};
    ///
    /// dapple::run(async {
    ///     let control = Color::new();
    ///     control.set_priority(Priority::Urgent);
    ///     assert_eq!(control.priority(), Priority::Urgent);
    ///     control.call(|| println!("ahead of what is less urgent")).await.unwrap();
    /// });
    /// ```
    pub fn set_priority(&self, priority: Priority) {
        self.lane().set_priority(priority);
    }

    /// How urgent what runs in this color is.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.lane().priority()
    }

    #[inline]
    fn has_limit(&self) -> bool {
        self.lane().is_special.load(Ordering::Acquire) && self.lane().limits.get().is_some()
    }

    /// Sets a number that means something to the program's [`Policy`](crate::sched::Policy), such as a deadline.
    /// By default 0.
    pub fn set_tag(&self, tag: u64) {
        self.lane().tag.store(tag, Ordering::Relaxed);
    }

    /// What [`set_tag`](Color::set_tag) has set.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.lane().tag.load(Ordering::Relaxed)
    }

    /// # Safety
    ///
    /// As for [`Cell::make`].
    unsafe fn spawn_anything<F: Future>(&self, future: F, meta: Meta) -> JoinHandle<F::Output> {
        if self.lane().main.is_some() {
            // SAFETY: handed on from the caller.
            unsafe { self.spawn_kind(MainTask::new(self.0), future, meta) }
        } else if self.has_limit() {
            // SAFETY: as above.
            unsafe { self.spawn_kind(Limited::new(self.lane(), None), future, meta) }
        } else {
            // SAFETY: as above.
            unsafe { self.spawn_kind(Laned { lane: self.0 }, future, meta) }
        }
    }

    /// # Safety
    ///
    /// As for [`Cell::make`]; the kind is one of tasks in this lane.
    unsafe fn spawn_kind<K: TaskKind, F: Future>(
        &self,
        kind: K,
        future: F,
        meta: Meta,
    ) -> JoinHandle<F::Output> {
        with_context(|here| self.lane().add_task(here));
        // SAFETY: handed on from the caller; the reference was just added.
        unsafe { self.spawn_counted(kind, future, meta) }
    }

    /// # Safety
    ///
    /// As for `spawn_kind`; a reference to the lane is given away, for the task.
    unsafe fn spawn_counted<K: TaskKind, F: Future>(
        &self,
        kind: K,
        future: F,
        meta: Meta,
    ) -> JoinHandle<F::Output> {
        // SAFETY: handed on from the caller.
        let task = match unsafe { Cell::make(self.lane().runtime_shared(), kind, future, meta) } {
            Ok(task) => task,
            Err(future) => {
                drop_unspawned(future);
                // SAFETY: the reference was for the task that did not come to be.
                with_context(|here| unsafe { Lane::drop_task(self.0, here) });
                return JoinHandle::gone();
            }
        };
        start(&task, QueuePosition::New);
        // SAFETY: it is a task of `F`, and this is its only handle.
        unsafe { JoinHandle::new(task) }
    }
}

/// Spawns a task in the main color that is running here.
#[track_caller]
pub(crate) fn spawn_local<F: Future + 'static>(future: F, meta: Meta) -> JoinHandle<F::Output> {
    let Some(color) = Color::try_main() else {
        panic!(
            "spawn_local called outside of a main color: use it in the future of dapple::run or \
             block_on, or in what that spawned with spawn_local; elsewhere use dapple::spawn"
        );
    };
    // SAFETY: tasks of a main color are run and dropped only on its thread, which is this one
    // (HOME-THREAD); the output leaves it only if the handle can, that is, if it is `Send`.
    unsafe { color.spawn_anything(future, meta) }
}

impl super::main::MainLane {
    /// Spawns the future that a `block_on` is about.
    ///
    /// # Safety
    ///
    /// The caller runs this lane on this thread until the future is gone.
    pub(crate) unsafe fn spawn_root<F: Future>(&self, future: F) -> JoinHandle<F::Output> {
        // SAFETY: it is run and dropped on this thread, before the caller returns.
        unsafe {
            self.color().spawn_anything(future, Meta { name: Some("main".into()), ..Meta::of_caller() })
        }
    }
}

#[track_caller]
fn in_runtime(what: &str, make: impl FnOnce(&RuntimeShared) -> Option<Color>) -> Color {
    let home = with_context(|here| here.home.get());
    // SAFETY: it is set only while this thread works for a runtime or has entered it.
    match unsafe { home.as_ref() } {
        None => panic!("{what} needs a runtime: call it inside dapple::run, block_on or a task"),
        Some(home) => make(home).unwrap_or_else(|| panic!("{what}: the runtime has ended")),
    }
}

impl Clone for Color {
    fn clone(&self) -> Color {
        self.lane().header.state.add_ref();
        Color(self.0)
    }
}

impl Drop for Color {
    fn drop(&mut self) {
        if self.lane().header.state.drop_ref() {
            // SAFETY: it was the last reference.
            unsafe { Lane::free(self.0) };
        }
    }
}

impl PartialEq for Color {
    fn eq(&self, other: &Color) -> bool {
        self.0 == other.0
    }
}

impl Eq for Color {}

impl Hash for Color {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ColorName(self.0.addr().get()))
    }
}

const _: () = assert!(std::mem::size_of::<Header>() == 24);
