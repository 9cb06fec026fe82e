//! The log of a simulated world: each poll, with its task, time and thread.

use std::borrow::Cow;
use std::collections::HashMap;

/// The color of a task that is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolledColor {
    /// The task's own color.
    Own,
    /// The color of the lane at this address.
    Lane(usize),
    /// No color: it is a blocking call.
    None,
}

/// A color, by a name that is the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StableColor {
    Own,
    Number(u64),
    Main,
    None,
}

#[derive(Clone, Debug)]
pub(crate) struct PollRecord {
    /// Nanoseconds from the beginning.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) thread: u32,
    pub(crate) task: u64,
    pub(crate) color: StableColor,
}

/// The log. It is empty unless `is_kept` is set.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollLog {
    pub(crate) is_kept: bool,
    pub(crate) polls: Vec<PollRecord>,
    /// The names of tasks, by number.
    pub(crate) names: HashMap<u64, Cow<'static, str>>,
    /// The numbers of colors, by the addresses of their lanes; 0 is the main color's.
    colors: HashMap<usize, u64>,
}

impl PollLog {
    /// Records the name of a new task.
    pub(crate) fn name(&mut self, task: u64, name: impl FnOnce() -> Cow<'static, str>) {
        if self.is_kept {
            self.names.insert(task, name());
        }
    }

    /// Records the number of a new lane's color.
    pub(crate) fn name_lane(&mut self, lane: usize, number: u64) {
        if self.is_kept {
            self.colors.insert(lane, number);
        }
    }

    pub(super) fn begin(&mut self, now: u64, thread: usize, task: u64, color: PolledColor) -> usize {
        if !self.is_kept {
            return 0;
        }
        let color = match color {
            PolledColor::Own => StableColor::Own,
            PolledColor::None => StableColor::None,
            PolledColor::Lane(lane) => match self.colors.get(&lane) {
                Some(0) => StableColor::Main,
                number => StableColor::Number(number.copied().unwrap_or(0)),
            },
        };
        self.polls.push(PollRecord { begun: now, ended: now, thread: thread as u32, task, color });
        self.polls.len() - 1
    }

    pub(super) fn end(&mut self, begun: usize, now: u64) {
        if let Some(poll) = self.polls.get_mut(begun) {
            poll.ended = now;
        }
    }
}
