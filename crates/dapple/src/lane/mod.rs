//! Colors and their lanes: what has the same color runs one after the other, in order.
//!
//! ```text
//! lane    a lane: its inbox (`task::inbox`), the line behind it, one turn
//! in_lane tasks in a lane; how a running task gets one; limited: those that may be refused; ranked: those that wait in
//!         a lane, by priority
//! main    the main color: a lane that only one thread runs
//! keyed   the table of keyed colors
//! color   what users hold; color_cell: state that belongs to a color
//! ```

mod color;
mod color_cell;
pub(crate) mod in_lane;
mod keyed;
#[expect(clippy::module_inception, reason = "the file is about one lane")]
mod lane;
pub(crate) mod limited;
pub(crate) mod main;
mod priority;
mod promotion;
mod turn;

pub use {color::Color, color_cell::ColorCell};
