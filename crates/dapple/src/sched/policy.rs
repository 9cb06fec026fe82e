//! Policies: where a lane that has become runnable goes, and which of those in line goes first.
//!
//! Without one, or with [`Home`], workers use their rings (`ring`) and pay nothing for any of this.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Priority;
use super::policy_queues::PolicyWorker;

/// Decides where what has become runnable goes, and which of those in line goes first.
///
/// Given to [`runtime::Builder::policy`](crate::runtime::Builder::policy) or
/// [`Sim::policy`](crate::sim::Sim::policy). A policy sees *lanes*: a color with what is in line behind it; a
/// task with a color of its own is a lane of one. What it cannot change is order within a color, and that a
/// worker with nothing to do takes from another.
///
/// No lane is passed over for ever: the first in line is picked after [`MOST_WEIGHED`] others, whatever weighs
/// more.
///
/// Its methods are called by the scheduler, often, and on any thread: they should be short. They must not
/// call the runtime (spawn, wake, lock what a task holds), and a panic in one ends the process.
///
/// # Examples
///
/// A policy by which what has waited in line in the largest number goes to the worker with the least to do:
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
    /// Which worker, by its index, a lane goes to that has become runnable. By default its home. An index that
    /// there is not counts as its home.
    fn place(&self, lane: &LaneView<'_>, workers: &Workers<'_>) -> usize {
        let _ = workers;
        lane.home()
    }

    /// How many of the lanes in line at a worker are weighed against each other, from the first on; at most
    /// [`MOST_WEIGHED`]. By default none: first come, first served, and priorities as without a policy.
    fn weighs(&self) -> usize {
        0
    }

    /// How much a lane weighs for a worker that is about to pick one: the heaviest is picked, and of equal ones
    /// the first in line. Only called if [`weighs`](Policy::weighs) is not zero; priorities mean only what
    /// this makes of them then.
    fn weight(&self, lane: &LaneView<'_>, worker: &WorkerView<'_>) -> i64 {
        let _ = worker;
        lane.priority() as i64
    }
}

/// The most lanes that are weighed against each other in one pick.
pub const MOST_WEIGHED: usize = 64;

/// The default: a lane goes to the worker that makes it runnable or last ran it, and is served first come,
/// first served, by priorities.
#[derive(Clone, Copy, Debug, Default)]
pub struct Home;

impl Policy for Home {}

/// A lane goes to the worker with the fewest in line: join the shortest queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortestQueue;

impl Policy for ShortestQueue {
    fn place(&self, lane: &LaneView<'_>, workers: &Workers<'_>) -> usize {
        let home = lane.home();
        // Its home, if no other is better.
        let load = |worker: &WorkerView<'_>| {
            (worker.queued() + usize::from(!worker.is_idle()), worker.index() != home)
        };
        workers.iter().min_by_key(load).map_or(home, |worker| worker.index())
    }
}

/// The lane with the most in line goes first: the color that holds everybody up, without anybody saying so.
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

/// libasync-mp's own: of the first few lanes in line the one with the highest priority goes first, where one
/// more counts for the color that the worker ran last.
#[derive(Clone, Copy, Debug)]
pub struct FirstLanes(usize);

impl FirstLanes {
    /// Weighs the first `lanes` in line against each other.
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

/// A lane, as a policy sees it: a color with what is in line, or a task with a color of its own.
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
    /// The priority of the most urgent in line.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// How many are in line, about.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "what is runnable is not empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The worker that last ran it; if none has, or it is a task with a color of its own, the one that made it
    /// runnable, or any if that was a thread from outside.
    #[must_use]
    pub fn home(&self) -> usize {
        self.home
    }

    /// What [`Color::set_tag`](crate::Color::set_tag) has set.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }
}

/// A worker, as a policy sees it.
#[derive(Clone, Copy)]
pub struct WorkerView<'a> {
    pub(super) index: usize,
    pub(super) seat: &'a PolicyWorker,
}

impl WorkerView<'_> {
    /// Which one it is, from 0 on.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many lanes are in line with it.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.seat.queued()
    }

    /// Whether it has nothing to run.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.seat.is_idle()
    }

    /// Whether this lane is the one that it ran last.
    #[must_use]
    pub fn ran_last(&self, lane: &LaneView<'_>) -> bool {
        self.seat.last_color() == lane.color
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
    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<WorkerView<'a>> {
        self.0.get(index).map(|seat| WorkerView { index, seat })
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = WorkerView<'a>> + use<'a> {
        self.0.iter().enumerate().map(|(index, seat)| WorkerView { index, seat })
    }
}

/// The policy that was chosen, if it is not the default.
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
