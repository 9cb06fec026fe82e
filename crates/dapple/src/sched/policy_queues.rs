//! The run queues of a runtime with a policy: one for each worker, behind a lock.
//!
//! They replace next slots, run queues and the shared queue. In such a runtime the next slot and the run queue of a
//! worker are *closed*, which means always full (`Worker::new`), and the worker looks around at every pick. So
//! runnables take the slow path, which leads here, and a runtime without a policy pays nothing.
//!
//! # Invariants
//!
//! * **NO-LOCK-HELD**: a policy is called while no lock is held, with copies of the facts that it sees.
//! * **SLEEP-OR-SEE**: see `idle`. A thread that puts a lane into a queue looks for sleeping workers afterwards.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Sched;
use super::policy::{Chosen, LaneView, MOST_WEIGHED, Policy, WorkerView, Workers};
use super::worker::Worker;
use crate::prim::{AbortOnUnwind, AtomicBool, AtomicUsize, Mutex, Ordering, lock};
use crate::task::header::LaneFacts;
use crate::task::{Priority, Runnable};

/// Settings of lanes that depend on the policy.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// How many tasks one turn of a lane steps at the most.
    pub(crate) turn: usize,
    /// Whether lanes count their queued tasks.
    pub(crate) counts_tasks: bool,
    /// Whether a lane that has become more urgent gets another entry.
    pub(crate) raises: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { turn: 64, counts_tasks: false, raises: true }
    }
}

pub(super) struct Managed {
    policy: Arc<dyn Policy>,
    /// How many lanes are weighed against each other. 0: none.
    weighs: usize,
    workers: Box<[PolicyWorker]>,
    /// Number of the next worker for lanes from outside.
    next: AtomicUsize,
}

/// The queue of one worker, and facts about that worker for the policy.
#[repr(align(128))]
pub(crate) struct PolicyWorker {
    queue: Mutex<PolicyQueue>,
    queued: AtomicUsize,
    is_busy: AtomicBool,
    /// The color that the worker ran last.
    last: AtomicUsize,
}

#[derive(Default)]
struct PolicyQueue {
    lanes: VecDeque<Runnable>,
    /// How often the first lane was passed over.
    passed: usize,
}

impl PolicyWorker {
    pub(super) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::Relaxed)
    }

    pub(super) fn last_color(&self) -> usize {
        self.last.load(Ordering::Relaxed)
    }

    /// Changes the queue, and updates `queued`.
    fn with_queue<R>(&self, change: impl FnOnce(&mut PolicyQueue) -> R) -> R {
        let mut queue = lock(&self.queue);
        let result = change(&mut queue);
        self.queued.store(queue.lanes.len(), Ordering::SeqCst);
        result
    }
}

impl std::fmt::Debug for PolicyWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("queued", &self.queued()).field("is_idle", &self.is_idle()).finish()
    }
}

impl Managed {
    pub(super) fn new(chosen: &Chosen, workers: usize) -> Option<Managed> {
        let policy = chosen.0.clone()?;
        let weighs = policy.weighs().min(MOST_WEIGHED);
        let new = |_| PolicyWorker {
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            is_busy: AtomicBool::new(false),
            last: AtomicUsize::new(0),
        };
        Some(Managed { policy, weighs, workers: (0..workers).map(new).collect(), next: AtomicUsize::new(0) })
    }

    /// Settings of lanes under this policy.
    pub(super) fn rules(&self) -> Rules {
        // A policy that weighs lanes weighs them again after each runnable, by the tasks queued then.
        let turn = if self.weighs() { 1 } else { Rules::default().turn };
        Rules { turn, counts_tasks: true, raises: !self.weighs() }
    }

    /// Whether lanes are weighed against each other. Then all lanes are in these queues, whatever their priority.
    pub(super) fn weighs(&self) -> bool {
        self.weighs > 0
    }

    pub(super) fn queued(&self, worker: usize) -> usize {
        self.workers[worker].queued()
    }

    /// Whether any lane is queued.
    pub(super) fn has_work(&self) -> bool {
        self.workers.iter().any(|worker| worker.queued.load(Ordering::SeqCst) > 0)
    }

    /// Calls the policy. A panic in it would lose lanes, so it aborts the process.
    fn ask<R>(&self, question: impl FnOnce(&dyn Policy) -> R) -> R {
        let abort = AbortOnUnwind("a scheduling policy panicked");
        let answer = question(&*self.policy);
        std::mem::forget(abort);
        answer
    }

    /// Queues a lane where the policy wants it.
    pub(super) fn enqueue(&self, sched: &Sched, lane: Runnable) {
        let here = sched.with_worker_here(Worker::slot);
        let from = here.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len());
        let view = view(&lane, from);
        let place = self.ask(|policy| policy.place(&view, &Workers(&self.workers)));
        let worker = if place < self.workers.len() { place } else { view.home };
        let queued = self.workers[worker].with_queue(|queue| {
            queue.lanes.push_back(lane);
            queue.lanes.len()
        });
        // A single lane is for this worker, which picks soon.
        let is_own = here == Some(worker);
        if !(is_own && queued == 1)
            && let Some(worker) = sched.idle.worker_to_wake_for(sched.slots[worker].owner())
        {
            sched.unpark(worker);
        }
        sched.drain_if_closed();
    }

    /// Queues a lane ahead of all others of this worker: a task gave way to it.
    pub(super) fn enqueue_first(&self, sched: &Sched, worker: usize, lane: Runnable) {
        self.workers[worker].with_queue(|queue| queue.lanes.push_front(lane));
        sched.drain_if_closed();
    }

    /// Picks the next lane for `worker` from the queue of the worker `of`.
    pub(super) fn pick(&self, sched: &Sched, worker: usize, of: usize) -> Option<Runnable> {
        let this = &self.workers[worker];
        let picked = if self.weighs() { self.pick_heaviest(sched, worker, of) } else { self.pick_first(of) };
        this.is_busy.store(picked.is_some(), Ordering::Relaxed);
        let lane = picked?;
        this.last.store(lane.ptr().addr().get(), Ordering::Relaxed);
        if let Some(access) = lane.header().vtable().lane {
            // SAFETY: it is a lane, which lives as long as its entry. ENTRY-LIVES
            unsafe { (access.note_ran)(lane.ptr(), worker) };
        }
        Some(lane)
    }

    fn pick_first(&self, of: usize) -> Option<Runnable> {
        if self.queued(of) == 0 {
            return None;
        }
        self.workers[of].with_queue(|queue| queue.lanes.pop_front())
    }

    /// Takes the first few lanes, weighs them, and puts back all but the heaviest. NO-LOCK-HELD
    fn pick_heaviest(&self, sched: &Sched, worker: usize, of: usize) -> Option<Runnable> {
        if self.queued(of) == 0 {
            return None;
        }
        let (mut lanes, patience) = self.workers[of].with_queue(|queue| {
            let count = self.weighs.min(queue.lanes.len());
            (queue.lanes.drain(..count).collect::<Vec<_>>(), queue.passed < MOST_WEIGHED)
        });
        if lanes.is_empty() {
            return None;
        }
        let this = WorkerView { index: worker, worker: &self.workers[worker] };
        let weight = |lane: &Runnable| self.ask(|policy| policy.weight(&view(lane, of), &this));
        let mut heaviest = 0;
        if patience && lanes.len() > 1 {
            let mut most = i64::MIN;
            for (index, weight) in lanes.iter().map(weight).enumerate() {
                if weight > most {
                    (heaviest, most) = (index, weight); // of equal weights the first
                }
            }
        }
        let picked = lanes.remove(heaviest);
        let is_some_left = self.workers[of].with_queue(|queue| {
            queue.passed = if heaviest == 0 { 0 } else { queue.passed + 1 };
            lanes.drain(..).rev().for_each(|lane| queue.lanes.push_front(lane));
            !queue.lanes.is_empty()
        });
        // A worker that looked meanwhile has not seen all lanes.
        if is_some_left {
            sched.wake_for_more();
        }
        Some(picked)
    }

    /// Takes any queued lane, when the runtime ends.
    pub(super) fn take_one(&self) -> Option<Runnable> {
        (0..self.workers.len()).find_map(|worker| self.pick_first(worker))
    }
}

/// The facts of a lane by its entry. `None` for a task with a color of its own.
fn lane_facts(entry: &Runnable) -> Option<LaneFacts> {
    let access = entry.header().vtable().lane?;
    // SAFETY: it is a lane, which lives as long as its entry. ENTRY-LIVES
    Some(unsafe { (access.facts)(entry.ptr()) })
}

/// The policy's view of a queued lane. `from` is the worker that queued it.
fn view(entry: &Runnable, from: usize) -> LaneView<'static> {
    let facts = lane_facts(entry);
    LaneView {
        color: entry.ptr().addr().get(),
        priority: facts.as_ref().map_or(Priority::Normal, |facts| facts.priority),
        len: facts.as_ref().map_or(1, |facts| facts.len.max(1)),
        home: facts.as_ref().and_then(|facts| facts.ran_on).unwrap_or(from),
        tag: facts.as_ref().map_or(0, |facts| facts.tag),
        _at: std::marker::PhantomData,
    }
}
