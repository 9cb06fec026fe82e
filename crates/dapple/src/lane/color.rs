//! A color, as users hold it.

use std::fmt;
use std::hash::Hash;

use super::keyed;
use super::lane::{Lane, NewLane};
use super::promotion::promote;
use crate::context::{require, with_context};
use crate::prim::Ordering;
use crate::task::header::{Header, TaskPtr};
use crate::task::{ColorName, Priority, RuntimeShared, Task};

/// A label for work that may not run at the same time.
///
/// Tasks and calls of the same color run one after the other, in the order in which they were submitted. Those of
/// different colors run in parallel. State that is used in one color only needs no lock: see
/// [`ColorCell`](crate::ColorCell).
///
/// A color orders *runnables*: one poll of a task, or one closure. Between two polls of a task, while it awaits
/// something, other tasks of its color may run. Do work that must not be seen half-done within one poll or one
/// closure.
///
/// Every task has a color; [`spawn`](crate::spawn()) gives it a fresh one. A fresh color costs nothing until the task
/// is asked for it. A color is forgotten when its last holder drops it.
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

// SAFETY: it is a counted reference to a lane, whose shared fields are atomic and whose other fields only the holder
// of the turn touches (TURN-OWNS-LINE).
unsafe impl Send for Color {}
// SAFETY: as above.
unsafe impl Sync for Color {}

impl Color {
    /// A new color of the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::Color;
    ///
    /// dapple::run(async {
    ///     let bank = Color::new();
    ///     let (first, second) = (bank.call(|| 1), bank.call(|| 2)); // one after the other, in this order
    ///     assert_eq!((first.await.unwrap(), second.await.unwrap()), (1, 2));
    ///     assert_ne!(bank, Color::new());
    /// });
    /// ```
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each one is different, and it needs a runtime")]
    #[track_caller]
    pub fn new() -> Color {
        in_runtime("Color::new()", Color::new_in)
    }

    pub(crate) fn new_in(shared: &RuntimeShared) -> Option<Color> {
        Lane::make(shared, NewLane { key: None, main: None, of: None }).map(Color)
    }

    /// The color of a key: within a runtime, equal keys give the same color.
    ///
    /// Modules that know nothing of each other agree on a color by using the same key. Keys are compared by their
    /// hash: two keys that collide (one pair in 2^64) share a color.
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
        in_runtime("Color::keyed()", |shared| Color::keyed_in(shared, key))
    }

    pub(crate) fn keyed_in(shared: &RuntimeShared, key: &(impl Hash + ?Sized)) -> Option<Color> {
        keyed::lane(shared, keyed::hash(key)).map(Color)
    }

    /// The main color of the innermost `run` or `block_on` on this thread: the color of its future.
    ///
    /// Once that `run` or `block_on` has returned, nothing is polled in the color any more. A task that is spawned
    /// there, or a call, ends ([`is_aborted`](crate::JoinError::is_aborted)): its future is dropped and its drop
    /// closure called, in the color, one task after the other. Where no color is running (outside of tasks, and in a
    /// blocking call) this has happened when `spawn` or `call` returns, unless another thread is busy with the color:
    /// hold no lock there that the drop closure takes. In all other cases another thread does it soon after.
    ///
    /// # Panics
    ///
    /// If the caller does not run in a main color.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::Color;
    ///
    /// dapple::run(async {
    ///     let main = Color::main();
    ///     let job = dapple::spawn(async move { main.call(|| "on the first thread").await });
    ///     assert_eq!(job.await.unwrap().unwrap(), "on the first thread");
    /// });
    /// ```
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

    /// The main color, if it is running on this thread.
    pub(crate) fn try_main() -> Option<Color> {
        with_context(|context| {
            let main = context.main_lane::<Header>();
            if main.is_null() || context.color() != main.addr() {
                return None;
            }
            let lane = TaskPtr::new(main.cast_mut())?;
            // SAFETY: the thread of the main color keeps it open, and is in its turn.
            unsafe { lane.as_ref() }.state.add_ref();
            Some(Color(lane))
        })
    }

    /// The color that is running on this thread.
    ///
    /// # Panics
    ///
    /// Outside of a task, and in a [`blocking`](crate::blocking) call, which has no color.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::Color;
    ///
    /// dapple::run(async {
    ///     let color = Color::new();
    ///     let inside = color.call(Color::current).await.unwrap();
    ///     assert_eq!(inside, color);
    ///     assert_eq!(Color::current(), Color::main()); // of the future given to `run`
    /// });
    /// ```
    #[must_use]
    #[track_caller]
    pub fn current() -> Color {
        let lane = with_context(|context| TaskPtr::new(context.lane::<Header>().cast_mut()));
        if let Some(lane) = lane {
            // SAFETY: this thread has the lane's turn. LANE-LIVES
            unsafe { lane.as_ref() }.state.add_ref();
            return Color(lane);
        }
        match Task::current() {
            Some(task) if with_context(|context| context.color()) != 0 => Color::promote(task),
            _ => panic!("Color::current() called where no color is running: outside of a task"),
        }
    }

    /// Gives the running task, whose color was its own, a lane that others can share.
    fn promote(task: Task) -> Color {
        // SAFETY: a task's runtime outlives it. LIVE-UNTIL-EMPTY
        let shared = unsafe { &*RuntimeShared::of(task.ptr()) };
        let new = NewLane { key: None, main: None, of: Some(task.clone()) };
        let lane = Lane::make(shared, new).expect("the runtime of a running task");
        // SAFETY: the lane was just made. One reference is the color's, and one the task's. LANE-LIVES
        unsafe { lane.as_ref() }.state.add_ref();
        promote(&task, lane);
        Color(lane)
    }

    pub(super) fn from_counted(lane: TaskPtr) -> Color {
        Color(lane)
    }

    pub(crate) fn lane(&self) -> &Lane {
        // SAFETY: `self` has a reference.
        unsafe { Lane::of(self.0) }
    }

    /// Identity of the color, unique while it exists.
    pub(crate) fn id(&self) -> usize {
        self.lane().id
    }

    /// Sets the priority of tasks and calls in this color, except those with a priority of their own. By default
    /// [`Normal`](Priority::Normal). It is a hint to the scheduler: see [`Priority`]. The main color has none.
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

    /// The priority of tasks and calls in this color.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.lane().priority()
    }

    /// Sets a number for the program's [`Policy`](crate::sched::Policy), such as a deadline. By default 0.
    pub fn set_tag(&self, tag: u64) {
        self.lane().tag.store(tag, Ordering::Relaxed);
    }

    /// The number set by [`set_tag`](Color::set_tag).
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.lane().tag.load(Ordering::Relaxed)
    }
}

#[track_caller]
fn in_runtime(what: &str, make: impl FnOnce(&RuntimeShared) -> Option<Color>) -> Color {
    make(require(what, "")).unwrap_or_else(|| panic!("{what}: the runtime has ended"))
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
