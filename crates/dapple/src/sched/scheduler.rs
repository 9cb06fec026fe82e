//! The scheduler of one runtime: its workers and what they share.

use std::io;
use std::ptr::null;
use std::sync::Arc;
use std::time::Duration;

use super::idle::Idle;
use super::injector::Injector;
use super::monitor::Monitor;
use super::policy::Chosen;
use super::policy_queues::Managed;
use super::ranks::Ranks;
use super::worker::{WORTH_WAKING, Worker};
use super::worker_slot::{Spares, WorkerSlot};
use crate::context::{Fills, OfWorker, SetAside, ThreadContext, with_context};
use crate::driver::Driver;
use crate::driver::clock::Time;
use crate::prim::{AbortOnUnwind, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::task::Priority;
use crate::task::header::{QueuePosition, Runnable, TaskKindTag};
use crate::task::panics::OnPanic;
use crate::task::runtime_shared::{Hooks, Rules, RuntimePhase, RuntimeShared};
use crate::task::state::ABORTED;
use crate::world;

// SAFETY: no other type fills it. ONE-TYPE
unsafe impl Fills<OfWorker> for Worker {}

/// How many picks may pass before the main color gets its turn; fewer if they take long.
const MAIN_EVERY: u64 = 16;
/// How many file descriptors more than another a driver may have: so many a worker serves alone, with
/// fewer wake-ups than two would need.
const CLUSTER: usize = 1024;

/// What a scheduler is made by.
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

/// See the head of the module. `repr(C)`, so that a pointer to its home is a pointer to it.
#[repr(C)]
pub(crate) struct Sched {
    pub(crate) home: RuntimeShared,
    pub(super) workers: Box<[Worker]>,
    /// One for each of the workers.
    pub(super) posts: Box<[WorkerSlot]>,
    pub(super) spares: Spares,
    /// The priority of events.
    pub(super) events: Priority,
    pub(super) injector: Injector,
    pub(super) ranks: Ranks,
    /// What takes the place of rings and the shared line in a runtime with a policy.
    pub(super) managed: Option<Managed>,
    pub(super) idle: Idle,
    pub(super) monitor: Monitor,
    /// How long what is in a ring must be going to take, in nanoseconds, for another to be woken.
    pub(super) worth_waking: AtomicU64,
    /// At least: `WORTH_WAKING`, or what a simulation says.
    pub(super) least_worth_waking: u64,
    /// Whose turn it is to take what a thread from outside brings.
    next_driver: AtomicUsize,
    /// Workers that are driven, or will be.
    driven: AtomicUsize,
    /// LAST-OUT
    pub(super) closed: AtomicBool,
    draining: AtomicBool,
    /// The last driver has left and all that was to be ended has been.
    drained: AtomicBool,
}

impl Sched {
    pub(crate) fn new(settings: &SchedSettings, hooks: &'static Hooks) -> io::Result<Sched> {
        let &SchedSettings { workers, seed, events, .. } = settings;
        let managed = Managed::new(&settings.policy, workers);
        crate::prim::init_fences();
        let worth_waking = world::with(|world| world.dice.threshold(WORTH_WAKING)).unwrap_or(WORTH_WAKING);
        Ok(Sched {
            home: RuntimeShared::new(
                hooks,
                managed.as_ref().map_or_else(Rules::default, Managed::rules),
                settings.on_panic.clone(),
            ),
            workers: (0..workers).map(|i| Worker::new(i, seed, managed.is_some(), events)).collect(),
            posts: (0..workers).map(WorkerSlot::new).collect::<io::Result<_>>()?,
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

    /// The scheduler around a home.
    #[inline]
    pub(crate) fn of(home: &RuntimeShared) -> &Sched {
        // SAFETY: every home is the first part of a scheduler, and `whole` a pointer to all of it.
        unsafe { &*home.whole().cast::<Sched>() }
    }

    /// Calls `f` with the scheduler of the runtime that this thread is in, if it is in one.
    #[inline]
    pub(crate) fn current<R>(f: impl FnOnce(&Sched) -> R) -> Option<R> {
        let home = with_context(|here| here.runtime::<RuntimeShared>());
        // SAFETY: it is set while this thread is in the runtime, which it does not leave in `f`.
        unsafe { home.as_ref() }.map(|home| f(Sched::of(home)))
    }

    /// Puts a runnable in line: with this thread's worker if it is one of ours, else in the shared
    /// line.
    #[inline]
    pub(crate) fn enqueue(&self, runnable: Runnable, place: QueuePosition) {
        let worker = with_context(|here| if self.is_home(here) { here.worker::<Worker>() } else { null() });
        // SAFETY: it is set while this thread drives it. ONE-DRIVER
        match unsafe { worker.as_ref() } {
            Some(worker) => worker.enqueue(self, runnable, place),
            None => self.inject(runnable),
        }
    }

    #[inline]
    fn is_home(&self, here: &ThreadContext) -> bool {
        std::ptr::eq(here.runtime(), &raw const self.home)
    }

    /// Calls `f` with the worker that this thread drives, if it is one of ours.
    #[inline]
    pub(super) fn with_worker_here<R>(&self, f: impl FnOnce(&Worker) -> R) -> Option<R> {
        let worker = with_context(|here| if self.is_home(here) { here.worker::<Worker>() } else { null() });
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

    /// Wakes somebody for what has just been put where all take from.
    pub(super) fn wake_for_one(&self) {
        if let Some(worker) = self.idle.whom_to_wake_from_outside() {
            self.unpark(worker);
        }
        self.drain_if_closed();
    }

    /// Ends what has come in, if nobody is left to run it. LAST-OUT
    pub(super) fn drain_if_closed(&self) {
        if self.closed.load(Ordering::SeqCst) {
            self.drain();
        }
    }

    /// Whether there is something that any worker could take.
    pub(super) fn has_work(&self) -> bool {
        !self.injector.is_empty()
            || self.home.ranks.load(Ordering::SeqCst) != 0
            || match &self.managed {
                Some(managed) => managed.has_work(),
                None => self.all_workers().any(|worker| worker.has_spare(0)),
            }
    }

    /// Wakes a worker if there is something for it, and nobody searches.
    pub(super) fn wake_for_more(&self) {
        if self.has_work()
            && let Some(worker) = self.idle.whom_to_wake()
        {
            self.unpark(worker);
        }
    }

    #[cold]
    pub(super) fn unpark(&self, worker: usize) {
        self.worker(worker).driver(self).ring();
    }

    /// A configured worker's driver, which also wakes it, whatever the reason.
    pub(crate) fn driver(&self, worker: usize) -> &Arc<Driver> {
        &self.posts[worker].driver
    }

    /// The driver for a new timer: that of this thread's worker, if it is one of ours, or else any.
    #[inline]
    pub(crate) fn driver_here(&self) -> &Arc<Driver> {
        self.with_worker_here(|worker| worker.post())
            .map_or_else(|| self.any_driver(), |post| &self.posts[post].driver)
    }

    /// What runs on this thread found a state in use, or others in line for it.
    pub(crate) fn contended() {
        let worker = with_context(|here| here.worker::<Worker>());
        // SAFETY: it is set while this thread drives it. ONE-DRIVER
        if let Some(worker) = unsafe { worker.as_ref() } {
            worker.contended();
        }
    }

    #[cold]
    fn any_driver(&self) -> &Arc<Driver> {
        let next = self.next_driver.fetch_add(1, Ordering::Relaxed);
        &self.posts[next % self.posts.len()].driver
    }

    /// The driver for a new file descriptor: the one that has most of them, unless another has far fewer. Events
    /// then come many at a time and to one worker, whom others help if that is worth it; if they came one by one to
    /// each, all would be woken for little. A server of many connections is spread over all.
    pub(crate) fn driver_for_source(&self) -> &Arc<Driver> {
        let (mut fullest, mut least) = (self.driver_here(), self.driver_here());
        for driver in self.posts.iter().map(|post| &post.driver) {
            if driver.sources() > fullest.sources() {
                fullest = driver;
            } else if driver.sources() < least.sources() {
                least = driver;
            }
        }
        if fullest.sources() > least.sources() + CLUSTER { least } else { fullest }
    }

    /// Makes this thread drive a worker until the guard is dropped. Once for each worker.
    pub(crate) fn take_seat(&self, worker: usize) -> WorkerGuard<'_> {
        let aside = SetAside::new();
        let worker = self.worker(worker);
        with_context(|here| {
            here.drive(self.home.whole(), std::ptr::from_ref(worker), &raw const worker.slab);
        });
        worker.window.open();
        WorkerGuard { sched: self, worker, aside: Some(aside) }
    }

    /// Tells all workers to leave. Returns at once.
    pub(crate) fn stop(&self) {
        self.home.enter_phase(RuntimePhase::Stopped);
        self.posts.iter().for_each(|post| post.driver.ring());
        self.spares.stop();
        self.monitor.stop();
    }

    /// A worker that was never driven counts as one that has left.
    pub(crate) fn forgo(&self, workers: usize) {
        if workers > 0 && self.driven.fetch_sub(workers, Ordering::AcqRel) == workers {
            self.close();
        }
    }

    /// Another worker will be driven; `false` if the last has left.
    pub(super) fn count_driver(&self) -> bool {
        let more = |driven: usize| (driven > 0).then_some(driven + 1);
        self.driven.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn close(&self) {
        self.home.enter_phase(RuntimePhase::Stopped); // also when a panic brought us here early
        self.closed.store(true, Ordering::SeqCst);
        // Idle tasks are in no queue: wake them into the shared line, to their end.
        self.home.each_task(|task| {
            // The thread of a main color, if it is still in `block_on`, ends its tasks itself.
            if task.kind() != TaskKindTag::Blocking {
                task.wake_with(ABORTED);
            }
        });
        self.drain();
        let (home, hooks) = (self.home.whole(), self.home.hooks);
        // SAFETY: `home` is a pointer to the runtime's core, which is alive: we are in it.
        unsafe { (hooks.keep)(home) };
        if !self.home.slab.close() {
            // SAFETY: it gives back what `keep` took. Whoever called us keeps the core.
            unsafe { (hooks.retire)(home) };
        }
        Driver::close_all(self.posts.iter().map(|post| &*post.driver));
        self.drained.store(true, Ordering::Release);
    }

    /// Ends all that is in line, unless somebody else is at it.
    fn drain(&self) {
        let is_some_left = || {
            let managed = self.managed.as_ref().is_some_and(Managed::has_work);
            managed || !self.injector.is_empty() || self.home.ranks.load(Ordering::SeqCst) != 0
        };
        while is_some_left() && !self.draining.swap(true, Ordering::SeqCst) {
            let _aside = SetAside::new();
            with_context(|here| here.enter_runtime(self.home.whole()));
            let next = || {
                let managed = || self.managed.as_ref().and_then(Managed::take_one);
                self.injector.pop_one().or_else(|| self.ranks.pop_any(self)).or_else(managed)
            };
            while let Some(runnable) = next() {
                if runnable.header().vtable().kind != TaskKindTag::Lane {
                    runnable.header().state.mark(ABORTED);
                }
                // A lane sees for itself that all is over.
                self.injector.push(with_context(|here| runnable.run(here)));
            }
            self.draining.store(false, Ordering::SeqCst);
        }
    }

    /// Waits until the last driver has left and everything was ended; `false` if `limit` passed.
    pub(crate) fn wait_drained(&self, limit: Duration) -> bool {
        let begun = Time::now();
        let is_over = || Time::now().nanos_since(begun) >= limit.as_nanos() as u64;
        while !self.drained.load(Ordering::Acquire) && !is_over() {
            world::sleep(Duration::from_micros(50));
        }
        self.drained.load(Ordering::Acquire)
    }

    /// Whether this thread drives one of its workers.
    pub(crate) fn is_here(&self) -> bool {
        with_context(|here| here.has_worker() && self.is_home(here))
    }
}

/// The color that the thread of a worker runs beside the worker: the main color of `run`.
pub(crate) trait MainTurn {
    /// Whether there is a turn to be taken.
    fn is_ready(&self) -> bool;

    /// Takes a turn, if there is one to be taken.
    fn take_turn(&self);
}

/// Of a thread that runs its worker alone.
struct NoMainTurn;

impl MainTurn for NoMainTurn {
    #[inline]
    fn is_ready(&self) -> bool {
        false
    }

    fn take_turn(&self) {}
}

/// The right to drive a worker. ONE-DRIVER
pub(crate) struct WorkerGuard<'a> {
    sched: &'a Sched,
    worker: &'a Worker,
    aside: Option<SetAside>,
}

impl WorkerGuard<'_> {
    /// Runs what there is to run until `until` says to stop; sleeps when there is nothing, for
    /// `limit` at a time. Without a limit, whoever makes `until` true must unpark the worker.
    pub(crate) fn drive(&self, main: &impl MainTurn, limit: Option<Duration>, until: impl Fn() -> bool) {
        with_context(|here| self.drive_here(here, main, limit, until));
    }

    /// The same, on a thread without a main color, and without a limit.
    pub(crate) fn drive_alone(&self, until: impl Fn() -> bool) {
        self.drive(&NoMainTurn, None, until);
    }

    fn drive_here(
        &self,
        here: &ThreadContext,
        main: &impl MainTurn,
        limit: Option<Duration>,
        until: impl Fn() -> bool,
    ) {
        // A panic here is a bug of ours, and would leave tasks owned for ever.
        let abort = AbortOnUnwind("a worker panicked outside of any task");
        let (sched, worker) = (self.sched, self.worker);
        let mut until_main = 0;
        while !until() {
            if until_main == 0 && main.is_ready() {
                until_main = worker.picks_in_a_while(MAIN_EVERY);
                worker.found(sched);
                worker.counts.main_turns.add_one();
                main.take_turn();
                worker.look_soon();
            }
            let Some(runnable) = worker.pick(sched) else {
                until_main = 0;
                if main.is_ready() {
                    continue;
                }
                match worker.search(sched) {
                    Some(runnable) => worker.run(sched, here, runnable),
                    None => worker.sleep(sched, limit, || main.is_ready() || until()),
                }
                continue;
            };
            until_main = until_main.saturating_sub(1);
            worker.run(sched, here, runnable);
        }
        std::mem::forget(abort);
    }

    /// Whether workers have been told to leave.
    pub(crate) fn is_stopped(&self) -> bool {
        self.sched.is_stopped()
    }
}

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        self.worker.window.close();
        self.worker.retire(self.sched);
        self.sched.home.slab.take_over(&self.worker.slab);
        drop(self.aside.take());
        self.sched.forgo(1);
    }
}
