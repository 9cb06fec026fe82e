//! Cancelled tasks whose futures know nothing of cancellation: when they are dropped.
//!
//! # Invariants
//!
//! * **LEFT-ALONE**: a `timeout` whose time is up, a `race` that is decided, and a task that was cancelled (by its handle, or
//!   with the scope that spawned it) drop the future that they poll if that future waits in nothing that could answer. Two
//!   things keep the future. First, something in it is polled and says that it stays (`ThreadContext::note_stays`): a wait
//!   that is put off (BUDGET), a file operation under way, a shield, a scope in which one of these was started or a task was
//!   spawned. Second, something in it is registered ([`Item`](super::item::Item)): code that is polled with a foreign waker
//!   is not polled in every poll of the code around it, so its registration speaks for it. A wait that answers unregisters
//!   itself, and so does a scope or region in which nothing stays. But a collection of waits that is not polled any more (a
//!   `FuturesUnordered` beside a foreign future) keeps its waits registered. So where all registered waits would answer, and
//!   do not within a [grace period](GRACE), the future is dropped as well. A `timeout` and a `race` measure that time
//!   themselves. For a task, another task does, and the [`Grace`] is in the table.

use std::sync::Arc;
use std::time::Duration;

use super::item::{REGISTERED, Registered, Then, then_of};
use crate::prim::{AtomicU8, Ordering};
use crate::task::Task;

/// The time that registered waits have, after a cancel, to be polled and answer. It is long, because a cancel wakes their
/// wakers; but a foreign combinator may be gone, or pass the wake-up on late. LEFT-ALONE
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Whether a task that was cancelled, and rests, is to be dropped. `stays`: something in it has said that it stays. `keep`
/// is given the grace period of the task if one begins. LEFT-ALONE
#[cold]
pub(crate) fn is_left_alone(task: &Task, stays: bool, keep: impl FnOnce(Grace)) -> bool {
    let registered = REGISTERED.of(task.ptr().addr().get());
    let grace = registered.iter().find_map(|registered| match registered {
        Registered::Grace(grace) => Some(grace),
        Registered::Waker(..) | Registered::Scope(_) => None,
    });
    match (if stays { Some(Then::Stays) } else { then_of(&registered) }, grace) {
        (None, _) => true,
        (Some(Then::Stays), None) => false,
        (Some(Then::Stays), Some(grace)) => {
            grace.store(WITHDRAWN, Ordering::Release);
            let is_grace = |registered: &Registered| matches!(registered, Registered::Grace(_));
            drop(REGISTERED.remove_all(task.ptr().addr().get(), is_grace));
            false
        }
        (Some(Then::Answers), Some(grace)) => grace.load(Ordering::Acquire) == OVER,
        (Some(Then::Answers), None) => {
            keep(Grace::begin(task.clone()));
            false
        }
    }
}

/// The grace period of a cancelled task, while waits are registered with it that would answer. It is in the table until
/// this value is dropped. LEFT-ALONE
pub(crate) struct Grace {
    task: Task,
    number: u64,
    stage: Arc<AtomicU8>,
}

/// The period has not ended.
const RUNS: u8 = 0;
/// The period has ended.
const OVER: u8 = 1;
/// Something in the task stays: there is no limit.
const WITHDRAWN: u8 = 2;

impl Grace {
    fn begin(task: Task) -> Grace {
        let (number, stage) = (REGISTERED.number(), Arc::new(AtomicU8::new(RUNS)));
        REGISTERED.add(task.ptr().addr().get(), number, Registered::Grace(stage.clone()));
        Grace { task, number, stage }
    }

    /// Whether the period is of no use any more: the task has ended, or stays.
    pub(crate) fn is_needless(&self) -> bool {
        self.task.is_finished() || self.stage.load(Ordering::Acquire) == WITHDRAWN
    }

    /// The period has ended: the task is polled once more, and dropped if it still waits there.
    pub(crate) fn end(&self) {
        if self.stage.compare_exchange(RUNS, OVER, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.task.wake_with(0);
        }
    }
}

impl Drop for Grace {
    fn drop(&mut self) {
        drop(REGISTERED.remove(self.task.ptr().addr().get(), self.number));
    }
}
