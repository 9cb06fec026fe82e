//! Timekeeper of a cancelled task that is linked to waits which are no longer polled: a task of its own.
//!
//! See LEFT-ALONE in `cancel/grace.rs`. Such tasks are rare, and other tasks pay nothing for this one.

use std::future::poll_fn;
use std::task::Poll;

use crate::cancel::check::is_current_cancelled;
use crate::cancel::grace::{self, GRACE, Grace};
use crate::sched::wake_timer::WakeTimer;
use crate::spawn::submit::{FreshColor, submit};
use crate::task::header::Meta;
use crate::task::{RuntimeShared, Task};

/// Whether a task that was cancelled, and rests, is to be dropped. `stays`: something in it has said that it stays.
pub(super) fn is_left_alone(shared: &RuntimeShared, task: &Task, stays: bool) -> bool {
    grace::is_left_alone(task, stays, |grace| keep(shared, grace))
}

/// Ends `grace` when its time is up, and keeps it until it is needless.
fn keep(shared: &RuntimeShared, grace: Grace) {
    let mut alarm = WakeTimer::default();
    // Not a `sleep`: that would be a wait of the program, which a simulation may cancel.
    let keeps = poll_fn(move |cx| {
        if grace.is_needless() || is_current_cancelled() {
            return Poll::Ready(()); // or the runtime ends, which has a deadline of its own for its tasks
        }
        if alarm.is_late() {
            grace.end();
            alarm.unset();
        }
        alarm.set(GRACE, cx);
        Poll::Pending
    });
    let name = Some("the grace of a cancelled task".into());
    submit(FreshColor(shared), keeps, Meta { name, is_kept: true, ..Meta::of_caller() }).detach();
}
