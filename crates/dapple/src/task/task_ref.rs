//! A counted reference to a task: its name, its color, and the means to wake and cancel it.

use std::fmt;
use std::mem::ManuallyDrop;

use super::guarded::GuardedWaker;
use super::header::{Extended, Header, QueuePosition, TaskPtr};
use super::state::DONE;
use super::waker::borrowed_waker;
use crate::context::with_context;

/// A reference to a task: its name, its color, its place in the source, and a way to cancel it from anywhere.
///
/// [`current`] and [`JoinHandle::task`](crate::JoinHandle::task) return it. Two references are equal if they are to the
/// same task. A reference keeps a few bytes of the task in memory, not its future.
///
/// # Examples
///
/// ```
/// use dapple::channel::oneshot;
/// use dapple::task::{self, Builder};
///
/// dapple::run(async {
///     let (tell, told) = oneshot::channel();
///     let handle = Builder::new().name("customer 12").spawn(async move {
///         let _ = tell.send(task::current()); // the task hands out its own handle
///         std::future::pending::<()>().await;
///     });
///     let customer = told.await.unwrap();
///     assert_eq!(customer.name(), "customer 12");
///     customer.cancel(); // from anywhere, without the `JoinHandle`
///     assert!(customer.is_cancelled());
///     drop(handle);
/// });
/// ```
pub struct Task(TaskPtr);

// SAFETY: a `Task` gives access to the header, whose fields are atomic, and to the functions of its vtable, but not to the
// future or its output.
unsafe impl Send for Task {}
// SAFETY: as above.
unsafe impl Sync for Task {}

impl Task {
    /// # Safety
    ///
    /// The caller has a counted reference to a task and gives it away.
    pub(crate) unsafe fn from_counted(task: TaskPtr) -> Task {
        Task(task)
    }

    /// The task in a cell of the slab, if there is one that is not done.
    pub(super) fn of_cell(cell: TaskPtr) -> Option<Task> {
        // SAFETY: a cell starts with a state word at all times (ZEROED), and one that has references and is not DONE is
        // that of a task.
        unsafe { cell.as_ref() }.state.try_ref().then(|| Task(cell))
    }

    /// The task that this thread is running.
    pub(crate) fn current() -> Option<Task> {
        let current = TaskPtr::new(with_context(|context| context.current::<Header>()).cast_mut())?;
        // The reference of a cloned waker becomes ours.
        let waker = ManuallyDrop::new(GuardedWaker::of(&borrowed_waker(current)));
        debug_assert_eq!(waker.as_waker().data(), current.as_ptr().cast());
        Some(Task(current))
    }

    pub(crate) fn ptr(&self) -> TaskPtr {
        self.0
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: we have a reference.
        unsafe { self.0.as_ref() }
    }

    /// Returns a number that no other task has while this reference exists.
    #[must_use]
    pub fn id(&self) -> usize {
        self.0.addr().get()
    }

    /// Returns the name that the task was given, or else the type of its future.
    #[must_use]
    pub fn name(&self) -> String {
        let given = Extended::of(self.header()).and_then(|e| e.meta.name.as_deref());
        given.map_or_else(|| (self.header().vtable().type_name)().to_owned(), str::to_owned)
    }

    /// Returns the place in the source where the task was spawned, if that was recorded: for tasks of a
    /// [`Builder`](super::Builder), and for all tasks with the feature `trace`.
    #[must_use]
    pub fn spawned_at(&self) -> Option<&'static std::panic::Location<'static>> {
        Extended::of(self.header()).and_then(|e| e.meta.spawned_at)
    }

    /// Its number in a simulation.
    pub(crate) fn number(&self) -> Option<u64> {
        Extended::of(self.header()).and_then(|e| e.observed).map(|observed| observed.number)
    }

    /// The note of its last wait, if notes are kept, as for a task with a name.
    pub(crate) fn waited_for(&self) -> Option<&'static str> {
        Extended::of(self.header()).and_then(Extended::waited_for)
    }

    /// Returns a number that identifies the task's color, for messages; 0 for a blocking call, which has none.
    #[must_use]
    pub fn color_id(&self) -> usize {
        // SAFETY: we have a reference, and a task's color does not change.
        unsafe { (self.header().vtable().color)(self.0) }
    }

    /// Whether the task was cancelled: asked to end by itself.
    ///
    /// A cancel of the scope in which the task was spawned shows here a moment later than in its waits: the scope passes it on
    /// to its tasks. To ask about a scope, use [`Canceller::is_cancelled`](crate::scope::Canceller::is_cancelled).
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.header().state.load().has(super::state::CANCELLED)
    }

    /// Whether the task has ended: it returned, panicked, or was dropped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.header().state.load().has(DONE)
    }

    /// Whether it waits, neither running nor in line.
    pub(crate) fn is_waiting(&self) -> bool {
        self.header().state.load().is_idle()
    }

    /// Whether it is a call on the pool of blocking calls.
    pub(crate) fn is_blocking(&self) -> bool {
        self.header().vtable().is_blocking()
    }

    /// Keeps a blocking call from beginning, unless it has begun. Does nothing to other tasks.
    pub(crate) fn withdraw(&self) {
        if let Some(withdraw) = self.header().vtable().withdraw {
            // SAFETY: we have a reference, and the function is that of the task's kind.
            unsafe { withdraw(self.ptr()) };
        }
    }

    /// Sets `flags` and wakes it, so that it sees them.
    pub(crate) fn wake_with(&self, flags: u64) {
        if self.header().state.wake_with(flags) {
            self.enqueue(QueuePosition::Next);
        }
    }

    /// Wakes it, to run ahead of others if it is not in line yet. `false`: it was awake already.
    pub(super) fn wake_next(&self) -> bool {
        let owned = !self.header().state.load().has(DONE) && self.header().state.wake();
        if owned {
            self.enqueue(QueuePosition::First);
        }
        owned
    }

    fn enqueue(&self, place: QueuePosition) {
        let enqueue = self.header().vtable().enqueue;
        // SAFETY: the caller counted the first wake-up, so the right to run is ours. ONE-OWNER
        unsafe { enqueue(self.0, place) };
    }
}

impl Clone for Task {
    fn clone(&self) -> Task {
        self.header().state.add_ref();
        Task(self.0)
    }
}

impl Drop for Task {
    #[inline]
    fn drop(&mut self) {
        if self.header().state.drop_ref() {
            // SAFETY: we gave up the last reference.
            unsafe { (self.header().vtable().free)(self.0) };
        }
    }
}

impl PartialEq for Task {
    fn eq(&self, other: &Task) -> bool {
        self.0 == other.0
    }
}

impl Eq for Task {}

impl std::hash::Hash for Task {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({})", self.name())
    }
}

/// Returns the task that runs the calling code.
///
/// # Panics
///
/// Outside of a task. [`try_current`] returns `None` there.
///
/// # Examples
///
/// ```
/// use dapple::task::{self, Builder};
///
/// dapple::run(async {
///     let name = Builder::new().name("customer 12").spawn(async { task::current().name() });
///     assert_eq!(name.await.unwrap(), "customer 12");
/// });
/// ```
#[must_use]
pub fn current() -> Task {
    try_current().expect("dapple::task::current() called outside of a task")
}

/// Returns the task that runs the calling code; `None` outside of a task.
///
/// # Examples
///
/// ```
/// use dapple::task;
///
/// assert!(task::try_current().is_none()); // this thread runs no task
/// dapple::run(async { assert!(task::try_current().is_some()) });
/// ```
#[must_use]
pub fn try_current() -> Option<Task> {
    Task::current()
}

/// How a color is called in messages, by [`Task::color_id`].
pub(crate) struct ColorName(pub(crate) usize);

impl fmt::Display for ColorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no color"),
            id => write!(f, "color #{id:x}"),
        }
    }
}
