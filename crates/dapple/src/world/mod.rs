//! The world that a thread lives in: the real one, or a simulated one with a clock, a seed and
//! threads of its own.
//!
//! The runtime asks here for everything that comes from outside and differs from run to run: the
//! time, how a thread waits, when it goes on, and random numbers. In the real world the kernel
//! answers. In a simulated world all threads are *virtual*: they take turns on one real
//! thread, by a queue of events in the order of virtual time, and the seed makes all choices that are
//! left open. See docs/design/simulation.md.
//!
//! ```text
//! threads  virtual threads, as coroutines, and the queue of events. no_threads: without the feature `sim`
//! rng      random numbers from a seed, and how rough a world is
//! log      what happened, for `sim::Trace`
//! plain    atomics and locks that are no steps of a simulation
//! ```
//!
//! # Invariants
//!
//! * **ONE-WORLD**: the pointer to a world is set while, and only while, the real thread is in it.
//! * **ONE-RUNS**: of the virtual threads of a world one runs at a time, and it yields only where it
//!   waits, works ([`World::work`]), or [`pause`]s. So all that it does in between is atomic to the others.

pub(crate) mod log;
pub(crate) mod plain;
pub(crate) mod rng;
#[cfg_attr(not(feature = "sim"), path = "no_threads.rs")]
mod threads;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr::null;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use log::PollLog;
use rng::Rng;
use threads::{NotifiedThreads, Threads};

/// The default number of workers of a simulation.
pub(crate) const WORKERS: usize = 4;
/// The start time of a simulation: far from any moment of the real clock, with room before it.
const BEGIN: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;

/// The virtual time of one spin, in nanoseconds.
const SPIN: u64 = 20;

/// The end of the clock, which it never reaches: a later moment means for ever.
const FAR: u64 = u64::MAX / 2;

thread_local! {
    /// ONE-WORLD
    static WORLD: Cell<*const World> = const { Cell::new(null()) };
}

/// A simulated world.
pub(crate) struct World {
    now: Cell<u64>,
    pub(crate) rng: Rng,
    threads: RefCell<Threads>,
    notified: Arc<NotifiedThreads>,
    /// The last number that a task or a color got.
    numbers: Cell<u64>,
    /// The number of polls so far, and the limit.
    polls: Cell<u64>,
    most_polls: Cell<u64>,
    /// The number of events since the last poll or work.
    idle_events: Cell<u64>,
    /// The end of the last poll.
    last_poll: Cell<u64>,
    /// The reason for an early end, once there is one.
    ended: RefCell<Option<EarlyEnd>>,
    /// Called when the world must end.
    on_end: RefCell<Option<Box<dyn Fn()>>>,
    /// Called when nothing can run. Returns true if it has made something runnable.
    on_stuck: RefCell<Option<Box<dyn Fn() -> bool>>>,
    pub(crate) log: RefCell<PollLog>,
    /// The world calls `on_stuck` or `on_end`, and no step lets other threads run.
    is_at_work: Cell<bool>,
    /// Values that layers above keep in the world, by type.
    parts: RefCell<Vec<Rc<dyn Any>>>,
}

/// The reason why a simulation ends before its future does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    /// Nothing can run, and the passing of time will not change that.
    Stuck,
    /// It has had more polls than the limit.
    Endless,
}

/// Calls `f` with the world of this thread, if it is a simulated one.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&World) -> R) -> Option<R> {
    if !cfg!(feature = "sim") {
        return None;
    }
    let world = WORLD.get();
    // SAFETY: ONE-WORLD: the pointer is null, or the thread is inside `World::enter`, which borrows the world.
    unsafe { world.as_ref() }.map(f)
}

/// Whether this thread lives in a simulated world.
#[inline]
pub(crate) fn is_simulated() -> bool {
    cfg!(feature = "sim") && !WORLD.get().is_null()
}

/// The time in a simulated world, in nanoseconds.
#[inline]
pub(crate) fn clock() -> Option<u64> {
    with(|world| world.now.get())
}

/// A number for a task or a color, unique in this world; 0 in the real world.
pub(crate) fn number() -> u64 {
    with(World::number).unwrap_or(0)
}

/// Lets other virtual threads run in the middle of a protocol. It does nothing in the real world, where they may run at
/// any time.
#[inline]
pub(crate) fn pause() {
    with(World::pause);
}

/// Lets other virtual threads run. Called before each operation on an atomic or a lock.
#[cfg(dapple_steps)]
pub(crate) fn step() {
    with(World::step);
}

/// Lets other virtual threads run, among them the holder of a lock that the caller waits for.
pub(crate) fn let_others() {
    with(|world| world.wait(Some(world.now.get() + SPIN), true));
}

/// As [`pause`], where the real world spins.
#[inline]
pub(crate) fn spin() {
    if is_simulated() { pause() } else { std::hint::spin_loop() }
}

/// Spins `spins` times. In a simulated world the same time passes as in the real one, so that the thread that
/// the caller waits for makes progress.
#[inline]
pub(crate) fn look_out(spins: u8) {
    if with(|world| world.wait(Some(world.now.get() + SPIN * u64::from(spins)), false)).is_none() {
        (0..spins).for_each(|_| std::hint::spin_loop());
    }
}

/// Suspends this thread for at most `duration`. For a caller that polls a condition again and
/// again.
pub(crate) fn sleep(duration: Duration) {
    if with(|world| world.rest(Some(duration))).is_none() {
        std::thread::sleep(duration);
    }
}

/// A thread that waits, or will, with the means to wake it.
pub(crate) enum Sleeper {
    Real(std::thread::Thread),
    Virtual { notified: Arc<NotifiedThreads>, thread: threads::ThreadId },
}

impl Sleeper {
    /// The current thread.
    pub(crate) fn current() -> Sleeper {
        let virtual_ =
            with(|world| Sleeper::Virtual { notified: world.notified.clone(), thread: world.thread() });
        virtual_.unwrap_or_else(|| Sleeper::Real(std::thread::current()))
    }

    /// Suspends the current thread until it is woken, or `limit` has passed. It may also return for no reason.
    pub(crate) fn rest(&self, limit: Option<Duration>) {
        match (self, limit) {
            (Sleeper::Virtual { .. }, limit) => drop(with(|world| world.rest(limit))),
            (Sleeper::Real(_), None) => std::thread::park(),
            (Sleeper::Real(_), Some(limit)) => std::thread::park_timeout(limit),
        }
    }

    /// Wakes the thread, if it waits.
    pub(crate) fn wake(&self) {
        match self {
            Sleeper::Real(thread) => thread.unpark(),
            Sleeper::Virtual { notified, thread } => notified.add(*thread),
        }
    }

    /// Whether it is the current thread.
    pub(crate) fn is_here(&self) -> bool {
        match self {
            Sleeper::Real(thread) => thread.id() == std::thread::current().id(),
            Sleeper::Virtual { thread, .. } => with(|world| world.thread() == *thread).unwrap_or(false),
        }
    }
}

impl World {
    /// Makes a world whose first virtual thread is the one that enters it. `context` makes a place for a thread's
    /// own context; the returned function swaps it with the context in use.
    #[cfg(feature = "sim")]
    pub(crate) fn new(seed: u64, is_steady: bool, context: fn() -> threads::Context) -> World {
        let rng = Rng::new(seed, is_steady);
        World {
            now: Cell::new(BEGIN),
            threads: RefCell::new(Threads::new(context)),
            notified: Arc::default(),
            rng,
            numbers: Cell::new(0),
            polls: Cell::new(0),
            most_polls: Cell::new(u64::MAX),
            idle_events: Cell::new(0),
            last_poll: Cell::new(BEGIN),
            ended: RefCell::new(None),
            on_end: RefCell::new(None),
            on_stuck: RefCell::new(None),
            log: RefCell::default(),
            is_at_work: Cell::new(false),
            parts: RefCell::default(),
        }
    }

    /// Sets the limit on polls, and the function to call when the world must end.
    pub(crate) fn limit(&self, polls: u64, on_end: impl Fn() + 'static) {
        self.most_polls.set(polls);
        *self.on_end.borrow_mut() = Some(Box::new(on_end));
    }

    /// Sets the function to call when nothing can run, before that counts as a deadlock. It returns true if it has made
    /// something runnable.
    pub(crate) fn when_stuck(&self, on_stuck: impl Fn() -> bool + 'static) {
        *self.on_stuck.borrow_mut() = Some(Box::new(on_stuck));
    }

    /// Sets the limit on polls.
    pub(crate) fn limit_polls(&self, polls: u64) {
        self.most_polls.set(polls);
    }

    fn is_helped(&self) -> bool {
        self.is_at_work.set(true);
        let is_helped = self.on_stuck.borrow().as_ref().is_some_and(|on_stuck| on_stuck());
        self.is_at_work.set(false);
        is_helped
    }

    /// Makes this the world of this thread during the call of `f`. Afterwards its virtual threads are gone.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        struct LeaveWorld<'a>(&'a World);
        impl Drop for LeaveWorld<'_> {
            fn drop(&mut self) {
                self.0.leave_threads();
                *self.0.on_end.borrow_mut() = None;
                *self.0.on_stuck.borrow_mut() = None;
                WORLD.set(null());
            }
        }
        assert!(!is_simulated(), "a simulation inside of a simulation: run them one after the other");
        WORLD.set(self); // ONE-WORLD
        let _leave = LeaveWorld(self);
        f()
    }

    pub(crate) fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// The virtual time from the start to the last poll.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.last_poll.get() - BEGIN)
    }

    /// The number of polls so far.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// The reason for an early end, if there is one.
    pub(crate) fn ended(&self) -> Option<EarlyEnd> {
        *self.ended.borrow()
    }

    fn end(&self, why: EarlyEnd) {
        if self.ended.borrow().is_some() {
            return;
        }
        *self.ended.borrow_mut() = Some(why);
        self.is_at_work.set(true);
        if let Some(on_end) = &*self.on_end.borrow() {
            on_end();
        }
        self.is_at_work.set(false);
    }

    /// The part of a type, made at its first use.
    pub(crate) fn part<T: Default + 'static>(&self) -> Rc<T> {
        let found = self.parts.borrow().iter().find_map(|part| part.clone().downcast().ok());
        found.unwrap_or_else(|| {
            let part = Rc::new(T::default());
            self.parts.borrow_mut().push(part.clone());
            part
        })
    }

    /// Keeps the current thread busy for `duration`, and in a rough world a little longer, so that others can
    /// run in between also if `duration` is zero.
    pub(crate) fn work(&self, duration: Duration) {
        self.idle_events.set(0);
        let until = self.after(duration).unwrap_or(FAR) + self.rng.work();
        self.wait(Some(until), false);
    }

    /// Suspends the current thread until it is notified, or `limit` has passed.
    fn rest(&self, limit: Option<Duration>) {
        self.wait(limit.and_then(|limit| self.after(limit)), true);
    }

    /// The moment `duration` later, if the clock will ever reach it.
    fn after(&self, duration: Duration) -> Option<u64> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        self.now.get().checked_add(nanos).filter(|time| *time < FAR)
    }

    /// Lets other virtual threads run, now and then.
    fn pause(&self) {
        if let Some(cost) = self.rng.pause() {
            self.wait(Some(self.now.get() + cost), false);
        }
    }

    /// Lets other virtual threads run, now and then, unless the world itself is at work.
    #[cfg(dapple_steps)]
    fn step(&self) {
        if !self.is_at_work.get()
            && self.threads.try_borrow_mut().is_ok()
            && let Some(cost) = self.rng.step()
        {
            self.wait(Some(self.now.get() + cost * self.slowness()), false);
        }
    }

    /// Records the start of a poll of a task. Pass the returned index to [`World::end_poll`].
    pub(crate) fn begin_poll(&self, task: u64, color: log::PolledColor) -> usize {
        self.log.borrow_mut().begin(self.now.get() - BEGIN, self.thread().index(), task, color)
    }

    /// Records the end of a poll. The poll itself takes some virtual time.
    pub(crate) fn end_poll(&self, begun: usize) {
        self.log.borrow_mut().end(begun, self.now.get() - BEGIN);
        self.polls.set(self.polls.get() + 1);
        self.idle_events.set(0);
        self.last_poll.set(self.now.get());
        if self.polls.get() == self.most_polls.get() {
            self.end(EarlyEnd::Endless);
        }
        let cost = self.rng.poll() * self.slowness();
        self.wait(Some(self.now.get() + cost), false);
    }
}

/// The error of an operation that would reach out of a simulation.
pub(crate) fn no_outside(what: &str) -> std::io::Error {
    std::io::Error::new(
        std::io::ErrorKind::Unsupported,
        format!(
            "{what}: there is no outside in a simulation: use dapple::sim::net in place of dapple::net, or run it on a real runtime"
        ),
    )
}

/// Returns an error in a simulated world: `what` would reach out of it.
#[inline]
pub(crate) fn outside(what: &str) -> std::io::Result<()> {
    if is_simulated() { Err(no_outside(what)) } else { Ok(()) }
}
