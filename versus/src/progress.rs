//! One line on standard error that shows the current case, if standard error is a terminal.

use std::io::{IsTerminal, stderr};

/// The line; silent when standard error is not a terminal.
pub(crate) struct Progress {
    visible: bool,
}

/// Back to the first column, and erase what the line held.
const ERASE: &str = "\r\x1b[K";

impl Progress {
    pub(crate) fn new() -> Self {
        Self { visible: stderr().is_terminal() }
    }

    /// Replaces the line.
    pub(crate) fn show(&self, text: &str) {
        if self.visible {
            eprint!("{ERASE}{text}");
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.show("");
    }
}
