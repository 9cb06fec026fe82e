//! State that belongs to a color. It needs no lock, because a color never overlaps with itself.
//!
//! # Invariants
//!
//! * **IN-COLOR**: the value and the borrow flag are touched only while the cell's color runs on this thread, which
//!   at most one thread does at a time (ONE-OWNER, ONE-TURN), or by the owner of the cell.
//! * **ID-HELD**: the cell holds a reference to the lane or the task whose address identifies its color, so no other
//!   color can get that address.

use std::cell::{Cell, UnsafeCell};
use std::fmt;

use super::Color;
use crate::context::with_context;
use crate::task::{ColorName, Task};

/// A value that only its own color can use, without a lock and without waiting.
///
/// Use it for state of a group of tasks that run in one color. Put it into an `Arc` to share it. Code of another color
/// reaches the value by [`Color::call`](crate::Color::call), with [`with`](Self::with) inside of the closure.
///
/// # Examples
///
/// ```
/// use dapple::{Color, ColorCell};
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let color = Color::new();
///     let hits = Arc::new(ColorCell::in_color(&color, 0));
///     for _ in 0..10 {
///         let hits = hits.clone();
///         color.call(move || hits.with(|n| *n += 1)).detach();
///     }
///     let total = color.call(move || hits.with(|n| *n)).await.unwrap();
///     assert_eq!(total, 10);
/// });
/// ```
pub struct ColorCell<T> {
    id: usize,
    /// ID-HELD
    held: ColorOwner,
    borrowed: Cell<bool>,
    value: UnsafeCell<T>,
}

enum ColorOwner {
    Color(Color),
    /// The color of a task that has not been asked for it. Asking would give the task a lane.
    Task(Task),
}

// SAFETY: any thread may reach the value, but only one at a time (IN-COLOR).
unsafe impl<T: Send> Sync for ColorCell<T> {}

impl<T> ColorCell<T> {
    /// Makes a cell that belongs to the color of the calling task.
    ///
    /// # Panics
    ///
    /// Outside of a task, and in a [`blocking`](crate::blocking()) call, which has no color.
    #[must_use]
    #[track_caller]
    pub fn new(value: T) -> ColorCell<T> {
        let has_own_color = with_context(|context| !context.has_lane() && context.color() != 0);
        if has_own_color && let Some(task) = Task::current() {
            return ColorCell::made(task.id(), ColorOwner::Task(task), value);
        }
        ColorCell::in_color(&Color::current(), value)
    }

    /// Makes a cell that belongs to `color`. It can be made anywhere, also outside of a runtime.
    #[must_use]
    pub fn in_color(color: &Color, value: T) -> ColorCell<T> {
        ColorCell::made(color.id(), ColorOwner::Color(color.clone()), value)
    }

    fn made(id: usize, held: ColorOwner, value: T) -> ColorCell<T> {
        ColorCell { id, held, borrowed: Cell::new(false), value: UnsafeCell::new(value) }
    }

    /// Calls `f` with the value, and returns its result. It never waits.
    ///
    /// # Panics
    ///
    /// If another color than the cell's is running, with both colors in the message, and if `f` uses the same cell
    /// again. A panic in `f` is passed on to the caller and leaves the cell usable.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::ColorCell;
    ///
    /// dapple::run(async {
    ///     let visits = ColorCell::new(0); // belongs to the color that runs here
    ///     assert_eq!(visits.with(|visits| { *visits += 1; *visits }), 1);
    /// });
    /// ```
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        if with_context(|context| context.color()) != self.id {
            self.wrong_color();
        }
        if self.borrowed.replace(true) {
            panic!("ColorCell of {} used inside its own `with`", self.owner());
        }
        let _release = Release(&self.borrowed);
        // SAFETY: its color runs on this thread, and the flag was not set. IN-COLOR
        f(unsafe { &mut *self.value.get() })
    }

    #[cold]
    #[track_caller]
    fn wrong_color(&self) -> ! {
        let running = match Task::current() {
            Some(task) => format!("{} (by task {})", ColorName(task.color_id()), task.name()),
            None => "no color (outside of any task)".to_owned(),
        };
        panic!(
            "ColorCell of {} used in {running}: use it in its own color, for example with color.call",
            self.owner(),
        );
    }

    fn owner(&self) -> String {
        match &self.held {
            ColorOwner::Color(color) => format!("{color:?}"),
            ColorOwner::Task(task) => format!("{} (of task {})", ColorName(task.color_id()), task.name()),
        }
    }

    /// Returns a mutable reference to the value, in any color: `&mut self` proves that no other code uses the cell.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Returns the value, in any color: no other code can use a cell that is passed by value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

struct Release<'a>(&'a Cell<bool>);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<T> fmt::Debug for ColorCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColorCell({})", self.owner())
    }
}
