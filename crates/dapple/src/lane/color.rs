//! A color, as users hold it.

use std::fmt;
use std::hash::Hash;

use super::in_lane::promote;
use super::keyed;
use super::lane::{Lane, NewLane};
use crate::context::require;
use crate::context::with_context;
use crate::prim::Ordering;
use crate::task::header::{Header, TaskPtr};
use crate::task::{ColorName, Priority, RuntimeShared, Task};

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
/// Every task has a color; [`spawn`](crate::spawn()) gives it a fresh one. A color costs nothing
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

    /// The main color, if it is running here.
    pub(crate) fn try_main() -> Option<Color> {
        with_context(|here| {
            let main = here.main_lane::<Header>();
            if main.is_null() || here.color() != main.addr() {
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
        let lane = with_context(|here| TaskPtr::new(here.lane::<Header>().cast_mut()));
        if let Some(lane) = lane {
            // SAFETY: this thread has the lane's turn. LANE-LIVES
            unsafe { lane.as_ref() }.state.add_ref();
            return Color(lane);
        }
        match Task::current() {
            Some(task) if with_context(|here| here.color()) != 0 => Color::promote(task),
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
