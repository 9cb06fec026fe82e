//! Colors and their lanes: tasks and calls of one color run one after the other, in order.
//!
//! ```text
//! lane       one lane: its inbox (`task::inbox`) and its queue; turn: one turn at it; priority: its priorities
//! in_lane    tasks in a lane; limited: those that may be refused; promotion: how a running task gets a lane
//! main       the main color: a lane that only one thread runs
//! keyed      the table of keyed colors
//! color      the public handle; color_cell: state that belongs to a color
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
