//! Colors and their lanes: what has the same color runs one after the other, in order.
//!
//! ```text
//! lane    a lane: its inbox (`task::inbox`), the line behind it, one turn
//! laned   tasks in a lane; how a running task gets one; ranked: those with a priority of their own; limited: those
//!         that may be refused
//! main    the main color: a lane that only one thread runs
//! keyed   the table of keyed colors
//! color   what users hold; color_cell: state that belongs to a color
//! ```

#[cfg(not(loom))]
mod color;
#[cfg(not(loom))]
mod color_cell;
#[cfg(not(loom))]
mod keyed;
#[cfg(not(loom))]
#[expect(clippy::module_inception, reason = "the file is about one lane")]
mod lane;
#[cfg(not(loom))]
mod laned;
#[cfg(not(loom))]
pub(crate) mod limited;
#[cfg(not(loom))]
pub(crate) mod main;

#[cfg(not(loom))]
mod ranked;

#[cfg(not(loom))]
pub(crate) use color::spawn_local;
#[cfg(not(loom))]
pub use {color::Color, color_cell::ColorCell};
