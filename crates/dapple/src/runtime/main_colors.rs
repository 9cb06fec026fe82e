//! The open main colors of a runtime. A callback without a color runs in one of them, whatever thread submits it.

use super::core::Core;
use crate::Color;
use crate::context::{require, with_context};
use crate::prim::{Mutex, lock};
use crate::task::RuntimeShared;
use crate::task::runtime_shared::{RuntimePhase, WholeRuntime};

/// The open main colors of a runtime.
#[derive(Default)]
pub(crate) struct MainColors(Mutex<Vec<MainColor>>);

struct MainColor {
    color: Color,
    /// It belongs to `run`, not to a `block_on`.
    is_of_run: bool,
}

/// Removes a main color from the list when it is dropped.
pub(super) struct MainColorGuard<'a> {
    main_colors: &'a MainColors,
    color: &'a Color,
}

/// Reason for not finding a main color.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// No main color is open.
    All,
    /// Several are open, all of them of `block_on`.
    Choice,
}

impl MainColors {
    /// Adds a main color to the list. Drop the guard after the color was closed: a thread that looks in between then
    /// finds the color.
    pub(super) fn list<'a>(&'a self, color: &'a Color, is_of_run: bool) -> MainColorGuard<'a> {
        lock(&self.0).push(MainColor { color: color.clone(), is_of_run });
        MainColorGuard { main_colors: self, color }
    }

    /// The main color of `run`, otherwise the only one.
    fn find(&self) -> Result<Color, Missing> {
        let open = lock(&self.0);
        match (open.iter().find(|main| main.is_of_run), &open[..]) {
            (Some(main), _) | (None, [main]) => Ok(main.color.clone()),
            (None, []) => Err(Missing::All),
            (None, _) => Err(Missing::Choice),
        }
    }
}

impl Drop for MainColorGuard<'_> {
    fn drop(&mut self) {
        let mut open = lock(&self.main_colors.0);
        let index = open.iter().position(|main| main.color == *self.color);
        let closed = index.map(|index| open.swap_remove(index));
        drop(open);
        drop(closed);
    }
}

/// Calls `f` with the main color of the innermost `run` or `block_on` on this thread; on other threads with that of
/// the runtime's `run`, or of its only `block_on`. `None`: the runtime is ending.
#[inline]
#[track_caller]
pub(crate) fn in_main_color<R>(what: &str, f: impl FnOnce(Option<&Color>) -> R) -> R {
    match Color::main_of_thread() {
        Some(color) => f(Some(&color)),
        None => f(main_elsewhere(what).as_ref()),
    }
}

#[cold]
#[track_caller]
fn main_elsewhere(what: &str) -> Option<Color> {
    let shared = require(what, ", or give the callback a color");
    let missing = match Core::of(shared).main_colors.find() {
        Ok(color) => return Some(color),
        Err(_) if shared.phase() == RuntimePhase::Stopped => return None,
        Err(Missing::All) => {
            "there is no main color: this runtime is not one of dapple::run, and no thread is in block_on"
        }
        Err(Missing::Choice) => "there is more than one main color: several threads are in block_on",
    };
    panic!(
        "{what} with a callback without a color, and {missing}. Say which color it runs in: Callback::color"
    )
}

/// Whether the runtime that this thread is in has stopped.
pub(crate) fn has_stopped() -> bool {
    let shared = with_context(|context| context.runtime::<RuntimeShared>());
    // SAFETY: it is set only while this thread works for a runtime or has entered it.
    unsafe { shared.as_ref() }.is_none_or(|shared: &RuntimeShared| shared.phase() == RuntimePhase::Stopped)
}
