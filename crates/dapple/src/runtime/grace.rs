//! Timekeeper of a cancelled task that waits beside waits which are not polled any more: a task of its own.
//!
//! See LEFT-ALONE in `cancel/grace.rs`. That such a task is rare is why this one costs others nothing.

use std::future::poll_fn;
use std::task::Poll;

use crate::cancel::check::is_current_cancelled;
use crate::cancel::grace::{self, GRACE, Grace};
use crate::sched::wake_timer::WakeTimer;
use crate::spawn::submit::{FreshColor, submit};
use crate::task::header::Meta;
use crate::task::{RuntimeShared, Task};

/// Whether a task that was cancelled, and rests, is to be dropped. `stays`: something in it has said that it stays.
pub(super) fn is_left_alone(home: &RuntimeShared, task: &Task, stays: bool) -> bool {
    grace::is_left_alone(task, stays, |grace| keep(home, grace))
}

/// Tells `grace` when its time is up, and keeps it until it is needless.
fn keep(home: &RuntimeShared, grace: Grace) {
    let mut alarm = WakeTimer::default();
    // Not a `sleep`: that would be a wait of the program, which a simulation may cancel.
    let keeps = poll_fn(move |cx| {
        if grace.is_needless() || is_current_cancelled() {
            return Poll::Ready(()); // the latter: the runtime ends, and gives its tasks a time of its own
        }
        if alarm.is_late() {
            grace.end();
            alarm.unset();
        }
        alarm.set(GRACE, cx);
        Poll::Pending
    });
    let name = Some("the grace of a cancelled task".into());
    submit(FreshColor(home), keeps, Meta { name, is_kept: true, ..Meta::of_caller() }).detach();
}
