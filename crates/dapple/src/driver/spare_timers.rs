//! Timers that no driver uses. They live as long as the process, so the next driver gets them: FOR-EVER in `timers`.

use super::timers::Timers;
use crate::prim::{Mutex, lock};

static SPARE: Mutex<Vec<&'static Timers>> = Mutex::new(Vec::new());

/// Timers for a new driver.
pub(super) fn take() -> &'static Timers {
    let spare = lock(&SPARE).pop();
    let timers = spare.unwrap_or_else(|| Box::leak(Box::new(Timers::new())));
    timers.open();
    timers
}

/// Makes timers available to the next driver. They must be closed.
pub(super) fn give_back(timers: &'static Timers) {
    lock(&SPARE).push(timers);
}
