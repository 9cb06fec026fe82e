//! A dump: every task of a runtime, by name, color and state.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use super::core::Core;
use crate::task::runtime_shared::WholeRuntime;
use crate::task::{RuntimeShared, Task};

/// All tasks of a runtime, as they were found one after the other; see
/// [`Runtime::dump`](crate::Runtime::dump). `Display` writes one line for each.
///
/// # Examples
///
/// ```
/// use dapple::task::Builder;
///
/// dapple::run(async {
///     let patient = Builder::new().name("patient").spawn(std::future::pending::<()>());
///     dapple::task::yield_now().await;
///     let dump = dapple::Handle::current().dump();
///     assert!(dump.tasks.iter().any(|task| task.name == "patient"));
///     println!("{dump}"); // a line for each task
///     patient.abort();
/// });
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Dump {
    /// One entry for each task that existed.
    pub tasks: Vec<TaskInfo>,
}

/// Facts about a task.
///
/// # Examples
///
/// ```
/// use dapple::channel::oneshot;
/// use dapple::runtime::TaskState;
///
/// dapple::run(async {
///     let (_bank, payment) = oneshot::channel::<()>();
///     let customer = dapple::task::Builder::new().name("customer").spawn(payment);
///     while !dapple::Handle::current().dump().tasks.iter().any(|task| {
///         task.name == "customer" && task.state == TaskState::Waiting && task.waits_for.is_some()
///     }) {
///         dapple::task::yield_now().await; // until the customer waits for the payment
///     }
///     drop(customer);
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Name of the task, given by its builder; otherwise the type of its future.
    pub name: String,
    /// Number that identifies the task's color. 0 for a blocking call, which has none.
    pub color: usize,
    /// Whether the task waits, is to be run, or is a blocking call.
    pub state: TaskState,
    /// The operation that the task waits for. `None` if it does not wait, or the operation was not recorded: it is for
    /// tasks with a name ([`Builder`](crate::task::Builder)), and for all tasks with the feature `trace`.
    pub waits_for: Option<&'static str>,
    /// Time that the task has been in one poll, if its worker counts as stalled by it; see
    /// [`stall_after`](crate::runtime::Builder::stall_after).
    pub stuck_for: Option<Duration>,
    /// Place in the source where the task was spawned, if that was recorded.
    pub spawned_at: Option<&'static Location<'static>>,
}

/// State of a task.
///
/// # Examples
///
/// ```
/// use dapple::runtime::TaskState;
///
/// dapple::run(async {
///     let dump = dapple::Handle::current().dump();
///     let waiting = dump.tasks.iter().filter(|task| task.state == TaskState::Waiting).count();
///     println!("{waiting} of {} tasks wait", dump.tasks.len());
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskState {
    /// The task waits for an event.
    Waiting,
    /// The task is running, or queued to run.
    Runnable,
    /// The task is a blocking call, running or queued.
    Blocking,
}

impl Dump {
    pub(super) fn of(shared: &RuntimeShared) -> Dump {
        let mut tasks = Vec::new();
        let stalled = Core::of(shared).sched.stalled();
        shared.each_task(|task| {
            let stuck = stalled.iter().find(|(stuck, _)| stuck.id() == task.id());
            tasks.push(TaskInfo { stuck_for: stuck.map(|(_, time)| *time), ..TaskInfo::of(&task) });
        });
        Dump { tasks }
    }
}

impl TaskInfo {
    fn of(task: &Task) -> TaskInfo {
        let state = match task {
            _ if task.is_blocking() => TaskState::Blocking,
            _ if task.is_waiting() => TaskState::Waiting,
            _ => TaskState::Runnable,
        };
        let waits_for = if state == TaskState::Waiting { task.waited_for() } else { None };
        let (name, color, spawned_at) = (task.name(), task.color_id(), task.spawned_at());
        TaskInfo { name, color, state, waits_for, stuck_for: None, spawned_at }
    }
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            TaskState::Waiting => "waiting",
            TaskState::Runnable => "runnable",
            TaskState::Blocking => "blocking",
        };
        write!(f, "{state:8} {} in {}", self.name, crate::task::ColorName(self.color))?;
        self.waits_for.map_or(Ok(()), |what| write!(f, ", for {what}"))?;
        self.stuck_for.map_or(Ok(()), |time| write!(f, ", stuck in a poll for {time:.1?}"))?;
        self.spawned_at.map_or(Ok(()), |place| write!(f, ", spawned at {place}"))
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} tasks", self.tasks.len())?;
        self.tasks.iter().try_for_each(|task| writeln!(f, "{task}"))
    }
}
