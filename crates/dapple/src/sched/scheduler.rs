//! The scheduler of one runtime: its workers, and the queues and lists that they share.

use std::any::Any;
use std::io;
use std::ptr::null;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::idle::Idle;
use super::injector::Injector;
use super::monitor::Monitor;
use super::policy::Chosen;
use super::policy_queues::{Managed, Rules};
use super::ranks::Ranks;
use super::worker::{WORTH_WAKING, Worker};
use super::worker_slot::{Spares, WorkerSlot};
use crate::context::{SetAside, ThreadContext, with_context};
use crate::driver::Driver;
use crate::driver::clock::Time;
use crate::prim::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::task::Priority;
use crate::task::header::{QueuePosition, Runnable};
use crate::task::panics::OnPanic;
use crate::task::runtime_shared::{IsLeftAlone, RuntimePhase, RuntimeShared, WholeRuntime};
use crate::task::state::ABORTED;
use crate::world;

/// How many more file descriptors than another driver one driver may have. One worker serves this many with fewer
/// wake-ups than two workers would need.
const CLUSTER: usize = 1024;

/// Settings of a scheduler.
pub(crate) struct SchedSettings {
    pub(crate) workers: usize,
    pub(crate) seed: u64,
    pub(crate) policy: Chosen,
    /// The priority of events.
    pub(crate) events: Priority,
    pub(crate) stall_after: Duration,
    pub(crate) max_spares: usize,
    pub(crate) on_panic: OnPanic,
}

/// See the head of the module. `repr(C)`: a pointer to `shared` is a pointer to the scheduler (WHOLE).
#[repr(C)]
pub(crate) struct Sched {
    pub(crate) shared: RuntimeShared,
    /// The whole runtime. The slab keeps it alive after the workers have left, until its last cell is back.
    whole: OnceLock<Weak<dyn Any + Send + Sync>>,
    /// The priorities of which a lane is queued, a bit for each.
    pub(super) queued_ranks: AtomicU8,
    /// Settings of lanes that depend on the policy.
    pub(crate) rules: Rules,
    pub(super) workers: Box<[Worker]>,
    /// One for each configured worker.
    pub(super) slots: Box<[WorkerSlot]>,
    pub(super) spares: Spares,
    /// The priority of events.
    pub(super) events: Priority,
    pub(super) injector: Injector,
    pub(super) ranks: Ranks,
    /// Replaces run queues and the shared queue in a runtime with a policy.
    pub(super) managed: Option<Managed>,
    pub(super) idle: Idle,
    pub(super) monitor: Monitor,
    /// How long the work in a run queue must take, in nanoseconds, before another worker is woken for it.
    pub(super) worth_waking: AtomicU64,
    /// Lower bound of `worth_waking`: `WORTH_WAKING`, or the choice of a simulation.
    pub(super) least_worth_waking: u64,
    /// Number of the next driver for timers and descriptors from threads that are not workers.
    next_driver: AtomicUsize,
    /// Workers that are driven, or will be.
    driven: AtomicUsize,
    /// LAST-OUT
    pub(super) closed: AtomicBool,
    draining: AtomicBool,
    /// The last driving thread has left, and all queued work was ended.
    drained: AtomicBool,
}

// SAFETY: it is `repr(C)` and begins with the `RuntimeShared`, and only `Sched::new` makes one. WHOLE
unsafe impl WholeRuntime for Sched {}

impl Sched {
    pub(crate) fn new(settings: &SchedSettings, is_left_alone: IsLeftAlone) -> io::Result<Sched> {
        let &SchedSettings { workers, seed, events, .. } = settings;
        let managed = Managed::new(&settings.policy, workers);
        crate::prim::init_fences();
        let worth_waking = world::with(|world| world.rng.threshold(WORTH_WAKING)).unwrap_or(WORTH_WAKING);
        Ok(Sched {
            shared: RuntimeShared::new(is_left_alone, settings.on_panic.clone()),
            whole: OnceLock::new(),
            queued_ranks: AtomicU8::new(0),
            rules: managed.as_ref().map_or_else(Rules::default, Managed::rules),
            workers: (0..workers).map(|i| Worker::new(i, seed, managed.is_some(), events)).collect(),
            slots: (0..workers).map(WorkerSlot::new).collect::<io::Result<_>>()?,
            spares: Spares::new(settings.max_spares, seed),
            events,
            ranks: Ranks::default(),
            managed,
            injector: Injector::default(),
            idle: Idle::new(workers),
            monitor: Monitor::new(settings.stall_after),
            worth_waking: AtomicU64::new(worth_waking),
            least_worth_waking: worth_waking,
            next_driver: AtomicUsize::new(0),
            driven: AtomicUsize::new(workers),
            closed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            drained: AtomicBool::new(false),
        })
    }

    /// Tells the scheduler which runtime it is the first field of. Call it before the first task is made.
    pub(crate) fn settle<W: WholeRuntime + Send + Sync + 'static>(&self, whole: &Arc<W>) {
        RuntimeShared::settle(Arc::as_ptr(whole).cast());
        debug_assert!(std::ptr::eq(self, Sched::of(&self.shared)), "the scheduler of this runtime");
        let weak: Weak<dyn Any + Send + Sync> = Arc::<W>::downgrade(whole);
        self.whole.set(weak).expect("a scheduler is settled once");
    }

    /// Another reference to the whole runtime, which the caller keeps alive.
    pub(crate) fn counted(&self) -> Arc<dyn Any + Send + Sync> {
        self.whole.get().and_then(Weak::upgrade).expect("the caller keeps the runtime alive")
    }

    /// Whether any lane is queued by its priority.
    #[inline]
    pub(crate) fn has_ranks(&self) -> bool {
        self.queued_ranks.load(Ordering::Relaxed) != 0
    }

    /// Whether a lane of a higher priority is queued.
    #[inline]
    pub(crate) fn has_above(&self, priority: Priority) -> bool {
        self.queued_ranks.load(Ordering::Relaxed) >> (priority as u8 + 1) != 0
    }

    /// Calls `f` with the scheduler of the runtime that this thread is in, if it is in one.
    #[inline]
    pub(crate) fn current<R>(f: impl FnOnce(&Sched) -> R) -> Option<R> {
        let shared = with_context(|context| context.runtime::<RuntimeShared>());
        // SAFETY: it is set while this thread is in the runtime, which it does not leave in `f`.
        unsafe { shared.as_ref() }.map(|shared| f(Sched::of(shared)))
    }

    /// Queues a runnable: with this thread's worker if the worker is of this runtime, otherwise in the shared queue.
    #[inline]
    pub(crate) fn enqueue(&self, runnable: Runnable, place: QueuePosition) {
        let worker =
            with_context(
                |context| if self.is_thread_of(context) { context.worker::<Worker>() } else { null() },
            );
        // SAFETY: it is set while this thread drives it. ONE-DRIVER
        match unsafe { worker.as_ref() } {
            Some(worker) => worker.enqueue(self, runnable, place),
            None => self.inject(runnable),
        }
    }

    #[inline]
    fn is_thread_of(&self, context: &ThreadContext) -> bool {
        std::ptr::eq(context.runtime(), &raw const self.shared)
    }

    /// Calls `f` with the worker that this thread drives, if the worker is of this runtime.
    #[inline]
    pub(super) fn with_worker_here<R>(&self, f: impl FnOnce(&Worker) -> R) -> Option<R> {
        let worker =
            with_context(
                |context| if self.is_thread_of(context) { context.worker::<Worker>() } else { null() },
            );
        // SAFETY: it is set while this thread drives it. ONE-DRIVER
        unsafe { worker.as_ref() }.map(f)
    }

    #[cold]
    pub(super) fn inject(&self, runnable: Runnable) {
        match &self.managed {
            Some(managed) => managed.enqueue(self, runnable),
            None => {
                self.injector.push_one(runnable);
                self.wake_for_one();
            }
        }
    }

    /// Wakes a worker for a runnable that was put where all workers take from.
    pub(super) fn wake_for_one(&self) {
        if let Some(worker) = self.idle.worker_to_wake_from_outside() {
            self.unpark(worker);
        }
        self.drain_if_closed();
    }

    /// Ends queued work if no worker is left to run it. LAST-OUT
    pub(super) fn drain_if_closed(&self) {
        if self.closed.load(Ordering::SeqCst) {
            self.drain();
        }
    }

    /// Whether a queue has work that any worker could take.
    pub(super) fn has_work(&self) -> bool {
        !self.injector.is_empty()
            || self.queued_ranks.load(Ordering::SeqCst) != 0
            || match &self.managed {
                Some(managed) => managed.has_work(),
                None => self.all_workers().any(|worker| worker.has_spare(0)),
            }
    }

    /// Wakes a worker if there is work to take and no worker searches.
    pub(super) fn wake_for_more(&self) {
        if self.has_work()
            && let Some(worker) = self.idle.worker_to_wake()
        {
            self.unpark(worker);
        }
    }

    #[cold]
    pub(super) fn unpark(&self, worker: usize) {
        self.worker(worker).driver(self).wake();
    }

    /// The driver of a configured worker. Notifying it wakes the worker.
    pub(crate) fn driver(&self, worker: usize) -> &Arc<Driver> {
        &self.slots[worker].driver
    }

    /// The driver for a new timer: that of this thread's worker if the worker is of this runtime, otherwise any.
    #[inline]
    pub(crate) fn driver_here(&self) -> &Arc<Driver> {
        self.with_worker_here(|worker| worker.slot())
            .map_or_else(|| self.any_driver(), |slot| &self.slots[slot].driver)
    }

    /// Notes that the running task found a state in use, or other tasks waiting for it.
    pub(crate) fn contended() {
        let worker = with_context(|context| context.worker::<Worker>());
        // SAFETY: it is set while this thread drives it. ONE-DRIVER
        if let Some(worker) = unsafe { worker.as_ref() } {
            worker.contended();
        }
    }

    #[cold]
    fn any_driver(&self) -> &Arc<Driver> {
        let next = self.next_driver.fetch_add(1, Ordering::Relaxed);
        &self.slots[next % self.slots.len()].driver
    }

    /// The driver for a new file descriptor: the one that has most of them, unless another has far fewer. Then many
    /// events come at once to one worker, and others help it if that is worth it. Events that come one by one to each
    /// worker would wake all of them for little. A server with many connections is spread over all drivers.
    pub(crate) fn driver_for_source(&self) -> &Arc<Driver> {
        let (mut fullest, mut least) = (self.driver_here(), self.driver_here());
        for driver in self.slots.iter().map(|slot| &slot.driver) {
            if driver.sources() > fullest.sources() {
                fullest = driver;
            } else if driver.sources() < least.sources() {
                least = driver;
            }
        }
        if fullest.sources() > least.sources() + CLUSTER { least } else { fullest }
    }

    /// Tells all workers to leave. Returns at once.
    pub(crate) fn stop(&self) {
        self.shared.enter_phase(RuntimePhase::Stopped);
        self.slots.iter().for_each(|slot| slot.driver.wake());
        self.spares.stop();
        self.monitor.stop();
    }

    /// Counts workers that were never driven as workers that have left.
    pub(crate) fn forgo(&self, workers: usize) {
        if workers > 0 && self.driven.fetch_sub(workers, Ordering::AcqRel) == workers {
            self.close();
        }
    }

    /// Counts one more worker that will be driven. `false`: the last has left.
    pub(super) fn count_driver(&self) -> bool {
        let more = |driven: usize| (driven > 0).then_some(driven + 1);
        self.driven.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn close(&self) {
        self.shared.enter_phase(RuntimePhase::Stopped); // also when a panic of `run` closes the scheduler early
        self.closed.store(true, Ordering::SeqCst);
        // Idle tasks are in no queue: waking puts them into the shared queue, where `drain` ends them.
        self.shared.each_task(|task| {
            // A thread that is still in `block_on` ends the tasks of its main color itself.
            if !task.is_blocking() {
                task.wake_with(ABORTED);
            }
        });
        self.drain();
        self.shared.slab.close(self.counted());
        Driver::close_all(self.slots.iter().map(|slot| &*slot.driver));
        self.drained.store(true, Ordering::Release);
    }

    /// Ends all queued work, unless another thread does so already.
    fn drain(&self) {
        let is_some_left = || {
            let managed = self.managed.as_ref().is_some_and(Managed::has_work);
            managed || !self.injector.is_empty() || self.queued_ranks.load(Ordering::SeqCst) != 0
        };
        while is_some_left() && !self.draining.swap(true, Ordering::SeqCst) {
            let _aside = SetAside::new();
            with_context(|context| context.enter_runtime(self.shared.whole()));
            let next = || {
                let managed = || self.managed.as_ref().and_then(Managed::take_one);
                self.injector.pop_one().or_else(|| self.ranks.pop_any(self)).or_else(managed)
            };
            while let Some(runnable) = next() {
                if !runnable.header().vtable().is_lane() {
                    runnable.header().state.mark(ABORTED);
                }
                // A lane sees by itself that the runtime has stopped.
                self.injector.push(with_context(|context| runnable.run(context)));
            }
            self.draining.store(false, Ordering::SeqCst);
        }
    }

    /// Waits until the last driving thread has left and all queued work was ended. `false`: `limit` passed first.
    pub(crate) fn wait_drained(&self, limit: Duration) -> bool {
        let begun = Time::now();
        let is_over = || Time::now().nanos_since(begun) >= limit.as_nanos() as u64;
        while !self.drained.load(Ordering::Acquire) && !is_over() {
            world::sleep(Duration::from_micros(50));
        }
        self.drained.load(Ordering::Acquire)
    }

    /// Whether this thread drives a worker of this runtime.
    pub(crate) fn is_here(&self) -> bool {
        with_context(|context| context.has_worker() && self.is_thread_of(context))
    }
}
