//! Panics of runnables: counted, and reported to the hook of their runtime.
//!
//! A panic of a task, a callback or a blocking call is caught where it is run, and kept for its handle. If no handle
//! is left, it would end in a line of the standard error alone. So each one is counted, and told to a hook.
//!
//! The hook is foreign code: it is called on the thread that ran the task, after the poll and the future's destructor
//! and before the task counts as done, with no lock held and no current task. Its own panic is discarded and counted.

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::Task;
use super::cell::{PanicPayload, message};
use super::guarded::guarded;
use super::header::{Header, TaskPtr};
use super::runtime_shared::RuntimeShared;
use super::state::JOIN_INTEREST;
use crate::context::ThreadContext;
use crate::prim::{AtomicU64, Ordering};

/// A panic of a task, a callback or a blocking call, as the hook of its runtime sees it; see
/// [`runtime::Builder::on_panic`](crate::runtime::Builder::on_panic).
pub struct PanicReport<'a> {
    task: &'a Task,
    payload: &'a PanicPayload,
    has_handle: bool,
}

impl PanicReport<'_> {
    /// The task that panicked: its name, its color, and where it was spawned, if that is kept.
    #[must_use]
    pub fn task(&self) -> &Task {
        self.task
    }

    /// The payload of the panic.
    #[must_use]
    pub fn payload(&self) -> &(dyn Any + Send) {
        &**self.payload
    }

    /// The message of the panic, if its payload is a string; `"(not a string)"` otherwise.
    #[must_use]
    pub fn message(&self) -> &str {
        message(self.payload)
    }

    /// Whether a [`JoinHandle`](crate::JoinHandle) exists that will give the panic to its owner. The handle may still be
    /// dropped. If there is none, this report is all that is ever said of the panic.
    #[must_use]
    pub fn has_handle(&self) -> bool {
        self.has_handle
    }
}

impl fmt::Debug for PanicReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PanicReport");
        shown.field("task", &self.task.name()).field("message", &self.message());
        shown.field("has_handle", &self.has_handle).finish()
    }
}

/// The hook of a runtime, if it has one.
#[derive(Clone, Default)]
pub(crate) struct OnPanic(Option<Arc<Hook>>);

type Hook = dyn Fn(&PanicReport<'_>) + Send + Sync;

impl OnPanic {
    pub(crate) fn new(hook: impl Fn(&PanicReport<'_>) + Send + Sync + 'static) -> OnPanic {
        OnPanic(Some(Arc::new(hook)))
    }
}

impl fmt::Debug for OnPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnPanic" } else { "None" })
    }
}

/// The panics of a runtime.
pub(crate) struct Panics {
    count: AtomicU64,
    hook: OnPanic,
}

impl Panics {
    pub(crate) fn new(hook: OnPanic) -> Panics {
        Panics { count: AtomicU64::new(0), hook }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn count_one(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        // The destructors of the hook's captures are foreign code, too, and this may run on any thread.
        let hook = std::mem::take(&mut self.hook);
        guarded(|| drop(hook));
    }
}

/// Counts the panic of a task, and reports it.
///
/// # Safety
///
/// The caller owns the task.
#[cold]
pub(super) unsafe fn report(task: TaskPtr, context: &ThreadContext, payload: &PanicPayload) {
    // SAFETY: a task's runtime outlives it. LIVE-UNTIL-EMPTY
    let panics = unsafe { &(*RuntimeShared::of(task)).panics };
    panics.count_one();
    let Some(hook) = &panics.hook.0 else { return };
    // SAFETY: a task that is owned exists (EXISTS), and this is not dropped, so that it needs no reference.
    let behind = ManuallyDrop::new(unsafe { Task::from_counted(task) });
    let has_handle = behind.header().state.load().has(JOIN_INTEREST);
    let current = context.current::<Header>();
    context.clear_current();
    if guarded(|| hook(&PanicReport { task: &behind, payload, has_handle })) {
        panics.count_one();
    }
    context.set_current(current);
}
