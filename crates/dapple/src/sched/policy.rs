//! Policies: which worker a runnable lane goes to, and which queued lane goes first.
//!
//! Without a policy, or with [`Home`], workers use their run queues (`run_queue`) and pay nothing for this.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Priority;
use super::policy_queues::PolicyWorker;

/// Decides which worker a runnable lane goes to, and which queued lane goes first.
///
/// Given to [`runtime::Builder::policy`](crate::runtime::Builder::policy) or
/// [`Sim::policy`](crate::sim::Sim::policy). A policy sees *lanes*: a color with the tasks that are queued in it. A
/// task with a color of its own is a lane of one task. A policy cannot change the order within a color, and an idle
/// worker always takes lanes from other workers.
///
/// No lane is passed over for ever: the first in the queue is picked after [`MOST_WEIGHED`] others, whatever their
/// weights.
///
/// The scheduler calls these methods often, and on any thread, so they should be short. They must not call the
/// runtime (spawn, wake, lock a state that a task holds). A panic in one aborts the process.
///
/// # Examples
///
/// A policy that sends lanes with many queued tasks to the worker with the fewest queued lanes:
///
/// ```
/// use dapple::sched::{LaneView, Policy, WorkerView, Workers};
///
/// struct Balance;
///
/// impl Policy for Balance {
///     fn place(&self, lane: &LaneView<'_>, workers: &Workers<'_>) -> usize {
///         let least = workers.iter().min_by_key(WorkerView::queued).map(|worker| worker.index());
///         if lane.len() > 10 { least.unwrap_or(0) } else { lane.home() }
///     }
/// }
///
/// let rt = dapple::Runtime::builder().workers(2).policy(Balance).build()?;
/// assert_eq!(rt.block_on(async { dapple::spawn(async { 1 + 1 }).await.unwrap() }), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Policy: Send + Sync + 'static {
    /// The index of the worker that a runnable lane goes to. By default the lane's home, which also replaces an index
    /// that does not exist.
    fn place(&self, lane: &LaneView<'_>, workers: &Workers<'_>) -> usize {
        let _ = workers;
        lane.home()
    }

    /// Number of queued lanes of a worker that are weighed against each other, from the first on. At most
    /// [`MOST_WEIGHED`]. By default none: first come, first served, and priorities as without a policy.
    fn weighs(&self) -> usize {
        0
    }

    /// The weight of a lane for a worker that is about to pick one. The heaviest lane is picked, and of equal ones
    /// the first in the queue. Only called if [`weighs`](Policy::weighs) is not zero. Then priorities have no effect
    /// other than on this weight.
    fn weight(&self, lane: &LaneView<'_>, worker: &WorkerView<'_>) -> i64 {
        let _ = worker;
        lane.priority() as i64
    }
}

/// Most lanes that are weighed against each other in one pick.
pub const MOST_WEIGHED: usize = 64;

/// Default policy: a lane goes to the worker that makes it runnable or last ran it, first come, first served, by
/// priorities.
///
/// # Examples
///
/// ```
/// use dapple::sched::Home;
///
/// let runtime = dapple::Runtime::builder().workers(2).policy(Home).build()?; // the same as without `policy`
/// assert_eq!(runtime.block_on(runtime.spawn(async { 1 + 1 })).unwrap(), 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Home;

impl Policy for Home {}

/// Join the shortest queue: a lane goes to the worker with the fewest queued lanes.
///
/// # Examples
///
/// ```
/// use dapple::sched::ShortestQueue;
///
/// let runtime = dapple::Runtime::builder().workers(2).policy(ShortestQueue).build()?;
/// assert_eq!(runtime.block_on(runtime.spawn(async { 1 + 1 })).unwrap(), 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortestQueue;

impl Policy for ShortestQueue {
    fn place(&self, lane: &LaneView<'_>, workers: &Workers<'_>) -> usize {
        let home = lane.home();
        // The lane's home, if no other worker is better.
        let load = |worker: &WorkerView<'_>| {
            (worker.queued() + usize::from(!worker.is_idle()), worker.index() != home)
        };
        workers.iter().min_by_key(load).map_or(home, |worker| worker.index())
    }
}

/// Longest lane first: the color with the most queued tasks, which holds up the most work.
///
/// # Examples
///
/// ```
/// use dapple::sched::LongestLane;
///
/// let runtime = dapple::Runtime::builder().workers(2).policy(LongestLane).build()?;
/// assert_eq!(runtime.block_on(runtime.spawn(async { 1 + 1 })).unwrap(), 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LongestLane;

impl Policy for LongestLane {
    fn weighs(&self) -> usize {
        MOST_WEIGHED
    }

    fn weight(&self, lane: &LaneView<'_>, _worker: &WorkerView<'_>) -> i64 {
        lane.len() as i64
    }
}

/// The policy of libasync-mp: of the first few queued lanes the one with the highest priority goes first. The color
/// that the worker ran last counts one more.
///
/// # Examples
///
/// ```
/// use dapple::sched::FirstLanes;
///
/// let runtime = dapple::Runtime::builder().workers(2).policy(FirstLanes::new(8)).build()?;
/// assert_eq!(runtime.block_on(runtime.spawn(async { 1 + 1 })).unwrap(), 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FirstLanes(usize);

impl FirstLanes {
    /// Makes the policy. Of each worker's queue it compares the first `lanes`, at most [`MOST_WEIGHED`].
    #[must_use]
    pub fn new(lanes: usize) -> FirstLanes {
        FirstLanes(lanes)
    }
}

impl Policy for FirstLanes {
    fn weighs(&self) -> usize {
        self.0
    }

    fn weight(&self, lane: &LaneView<'_>, worker: &WorkerView<'_>) -> i64 {
        lane.priority() as i64 + i64::from(worker.ran_last(lane))
    }
}

/// A lane, as a policy sees it: a color with its queued tasks, or a task with a color of its own.
#[derive(Clone, Copy, Debug)]
pub struct LaneView<'a> {
    pub(super) color: usize,
    pub(super) priority: Priority,
    pub(super) len: usize,
    pub(super) home: usize,
    pub(super) tag: u64,
    pub(super) _at: PhantomData<&'a ()>,
}

impl LaneView<'_> {
    /// The priority of the most urgent queued task.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Approximate number of queued tasks.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "what is runnable is not empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Index of the worker that last ran the lane. If none has, or for a task with a color of its own: the worker that
    /// made the lane runnable, or any worker if a thread outside of the runtime made it runnable.
    #[must_use]
    pub fn home(&self) -> usize {
        self.home
    }

    /// The tag set by [`Color::set_tag`](crate::Color::set_tag).
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }
}

/// A worker, as a policy sees it.
#[derive(Clone, Copy)]
pub struct WorkerView<'a> {
    pub(super) index: usize,
    pub(super) worker: &'a PolicyWorker,
}

impl WorkerView<'_> {
    /// Index of the worker, from 0 on.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of lanes that wait in the worker's queue.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.worker.queued()
    }

    /// Whether the worker has nothing to run.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.worker.is_idle()
    }

    /// Whether `lane` is the lane that this worker ran last, whose data may still be in its cache.
    #[must_use]
    pub fn ran_last(&self, lane: &LaneView<'_>) -> bool {
        self.worker.last_color() == lane.color
    }
}

impl fmt::Debug for WorkerView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut worker = f.debug_struct("WorkerView");
        worker.field("index", &self.index).field("queued", &self.queued()).field("is_idle", &self.is_idle());
        worker.finish()
    }
}

/// All workers of a runtime, as a policy sees them.
#[derive(Clone, Copy, Debug)]
pub struct Workers<'a>(pub(super) &'a [PolicyWorker]);

impl<'a> Workers<'a> {
    /// Number of workers.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the worker with this index; `None` if there is none.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<WorkerView<'a>> {
        self.0.get(index).map(|worker| WorkerView { index, worker })
    }

    /// All workers, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = WorkerView<'a>> + use<'a> {
        self.0.iter().enumerate().map(|(index, worker)| WorkerView { index, worker })
    }
}

/// The chosen policy, if it is not the default.
#[derive(Clone, Default)]
pub(crate) struct Chosen(pub(super) Option<Arc<dyn Policy>>);

impl Chosen {
    pub(crate) fn new<P: Policy>(policy: P) -> Chosen {
        let is_default = TypeId::of::<P>() == TypeId::of::<Home>();
        Chosen((!is_default).then(|| Arc::new(policy) as Arc<dyn Policy>))
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "one of the program's own" } else { "Home" })
    }
}
