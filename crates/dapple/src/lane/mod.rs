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

mod color;
mod color_cell;
mod keyed;
#[expect(clippy::module_inception, reason = "the file is about one lane")]
mod lane;
mod laned;
pub(crate) mod limited;
pub(crate) mod main;

mod ranked;

pub(crate) use color::spawn_local;
pub use {color::Color, color_cell::ColorCell};
