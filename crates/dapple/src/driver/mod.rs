//! The driver: the source of a worker's events. It reports the readiness of file descriptors, timers that are due, and
//! wake-ups by other threads. A worker that has nothing to do sleeps here.
//!
//! ```text
//! wakeup     wakes the thread that sleeps in the driver
//! readiness  the known state of one file descriptor, and its waiters
//! fd_table   the file descriptors of a driver, by token
//! wheel      timers in order of their deadlines, as plain data; timers: the same, shared by threads; spare_timers
//! clock      time in ticks
//! epoll_wait the wait at an epoll, by one of two system calls
//! uring      file operations by io_uring; the ring is made when a task first needs it. no_uring: without the feature `fs`
//! ```
//!
//! A driver stores wakers and knows nothing about the tasks behind them. It first collects the wakers of all waiters
//! whose event has happened, and then wakes them with no lock held but the claim.
//!
//! # Invariants
//!
//! * **CLAIMED**: only the thread that has the claim waits for events and hands them out. As a rule it is the driver's
//!   own worker, or the spare that has replaced it. The monitor may take the claim while a worker is stuck in a task.
//!   The thread that closes the driver keeps the claim for ever. The monitor may look once more after that, and would
//!   put completions into a batch that is not looked at again.
//! * **FOREIGN-LAST**: a waker that is not a task's or a child's is foreign code and may block. Foreign wakers stay in
//!   the batch until all others are woken. A thread takes one of them at a time and wakes it without the claim, so a
//!   foreign waker that blocks holds up no other waker: the next owner of the worker slot takes the rest. The monitor takes
//!   none, unless there is no spare that could. No thread sleeps in the driver while the batch has any.
//! * **PASSED-ON**: see `sched::slot_owner`: a thread that wakes from its sleep here and no longer owns the worker slot
//!   wakes the driver again. The wake-up may have been for the new owner.
//! * **NO-STALE-EVENT**: a token is used once. The kernel may still report an event for a file descriptor that has left
//!   the table, if a duplicate of it is open; such an event finds no waiter.

pub(crate) mod clock;
#[expect(unsafe_code, reason = "makes a system call that rustix does not")]
mod epoll_wait;
mod fd_table;
pub(crate) mod readiness;
mod spare_timers;
pub(crate) mod timers;
#[cfg_attr(feature = "fs", expect(unsafe_code, reason = "hands memory to the kernel, and gets it back"))]
#[cfg_attr(not(feature = "fs"), path = "no_uring.rs")]
pub(crate) mod uring;
pub(crate) mod wakeup;
mod wheel;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use clock::Time;
use epoll_wait::EVENTS;
use fd_table::FdTable;
use readiness::{Direction, Readiness};
use timers::Timers;
use uring::failures::Failures;
use uring::{Landed, Uring};
use wakeup::Wakeup;

use crate::cancel::wait::wake;
use crate::context::with_context;
use crate::prim::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, Unpark, lock};
use crate::task::guarded::GuardedWaker;
use crate::world;

/// The most timers that fire in one step.
const FIRINGS: usize = 512;
/// The tokens of the wake-up and of the ring; the table never gives them out.
const WAKEUP_TOKEN: u64 = u64::MAX;
const RING_TOKEN: u64 = u64::MAX - 1;
/// The longest sleep of a worker after the kernel has refused an operation for lack of memory.
const AFTER_REFUSAL: Duration = Duration::from_millis(1);

pub(crate) struct Driver {
    /// None in a simulation and under Miri, where there are no events from outside.
    epoll: Option<OwnedFd>,
    wakeup: Wakeup,
    pub(crate) timers: &'static Timers,
    table: Mutex<FdTable>,
    /// File descriptors in the table.
    sources: AtomicUsize,
    /// The ring, made when a task first needs it, or the error of making it.
    files: OnceLock<io::Result<Arc<Uring>>>,
    /// CLAIMED
    batch: Mutex<WakeBatch>,
}

type EpollEvent = (u64, EventFlags);

#[derive(Default)]
struct WakeBatch {
    /// The events of the kernel, each with its token.
    events: Vec<EpollEvent>,
    wakers: Vec<GuardedWaker>,
    landed: Landed,
    /// FOREIGN-LAST
    foreign: VecDeque<GuardedWaker>,
}

impl Driver {
    pub(crate) fn new() -> io::Result<Driver> {
        let explain = |what: &'static str| {
            move |errno: Errno| {
                let error = io::Error::from(errno);
                io::Error::new(error.kind(), format!("cannot start a driver: {what}: {error}"))
            }
        };
        if cfg!(miri) || world::is_simulated() {
            return Ok(Driver::of(None, Wakeup::without_kernel()));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(explain("epoll_create"))?;
        let wakeup = Wakeup::new().map_err(explain("eventfd"))?;
        // Edge-triggered, so that the eventfd need not be read: each wake-up is an event.
        let flags = EventFlags::IN | EventFlags::ET;
        let event = wakeup.event().expect("Wakeup::new makes an eventfd");
        epoll::add(&epoll, event, EventData::new_u64(WAKEUP_TOKEN), flags).map_err(explain("epoll_ctl"))?;
        let driver = Driver::of(Some(epoll), wakeup);
        let asked = driver.wait(&mut lock(&driver.batch).events, Some(Duration::ZERO));
        asked.map_err(explain("epoll_pwait2 or epoll_pwait, one of which must be allowed"))?;
        Ok(driver)
    }

    fn of(epoll: Option<OwnedFd>, wakeup: Wakeup) -> Driver {
        Driver {
            epoll,
            wakeup,
            timers: spare_timers::take(),
            table: Mutex::default(),
            sources: AtomicUsize::new(0),
            files: OnceLock::new(),
            batch: Mutex::default(),
        }
    }

    /// Wakes the thread that sleeps in this driver. If none does, the next thread that wants to sleep does not.
    #[inline]
    pub(crate) fn wake(&self) {
        self.wakeup.notify();
    }

    /// Sleeps until an event happens, the driver is woken, or `limit` has passed. For the worker that owns the driver's
    /// slot. It does not sleep if `is_owner` returns false; the thread that makes it return false wakes the driver.
    /// `None` if another thread has the claim.
    pub(crate) fn sleep(&self, limit: Option<Duration>, is_owner: impl Fn() -> bool) -> Option<Claim<'_>> {
        let mut batch = self.try_batch()?;
        let limit = match self.timers.plan(Time::now().tick()) {
            Some(until) => Some(limit.map_or(until, |limit| limit.min(until))),
            None => limit,
        };
        let (is_done, limit) = match self.ring_in_use() {
            Some(ring) => self.before_sleep(ring, limit),
            None => (false, limit),
        };
        let is_done = is_done || !batch.is_over(); // FOREIGN-LAST
        world::pause();
        let may_sleep = self.wakeup.prepare_sleep() && !is_done && is_owner(); // OWNER-SLEEPS in `sched::slot_owner`
        // If there is no other source of events, the kernel is not asked.
        if may_sleep || !is_done || self.sources.load(Ordering::Relaxed) > 0 {
            self.wait_here(&mut batch.events, if may_sleep { limit } else { Some(Duration::ZERO) });
        }
        self.wakeup.finish_sleep();
        if !is_owner() {
            self.wakeup.notify(); // PASSED-ON
        }
        Some(Claim { driver: self, batch })
    }

    fn try_batch(&self) -> Option<MutexGuard<'_, WakeBatch>> {
        match self.batch.try_lock() {
            Ok(batch) => Some(batch),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Whether foreign code waits for the owner of the worker slot to run it. FOREIGN-LAST
    pub(crate) fn has_foreign(&self) -> bool {
        self.try_batch().is_some_and(|batch| !batch.is_over())
    }

    /// Looks for events without waiting. `None` if another thread has the claim.
    pub(crate) fn claim(&self) -> Option<Claim<'_>> {
        let mut batch = self.try_batch()?;
        if let Some(ring) = self.ring_in_use() {
            ring.submit();
        }
        if self.sources() > 0 {
            self.wait_here(&mut batch.events, Some(Duration::ZERO));
        }
        Some(Claim { driver: self, batch })
    }

    /// Wakes foreign wakers, one at a time. If another thread has the claim, the rest is left to the next thread that
    /// hands out: no thread sleeps here before all are woken. FOREIGN-LAST
    #[cold]
    fn wake_foreign(&self) {
        while let Some(waker) = self.try_batch().and_then(|mut batch| batch.foreign.pop_front()) {
            wake(waker);
        }
    }

    fn wait_here(&self, events: &mut Vec<EpollEvent>, limit: Option<Duration>) {
        match self.wait(events, limit) {
            Ok(()) | Err(Errno::INTR) => {}
            // Any other error is a bug of this module.
            Err(errno) => panic!("epoll_pwait2 or epoll_pwait: {}", io::Error::from(errno)),
        }
    }

    fn wait(&self, events: &mut Vec<EpollEvent>, limit: Option<Duration>) -> Result<(), Errno> {
        let Some(epoll) = &self.epoll else {
            if limit != Some(Duration::ZERO) {
                self.wakeup.park(limit);
            }
            return Ok(());
        };
        epoll_wait::wait(epoll, events, limit)
    }

    /// The number of registered file descriptors. The ring counts as one while it is in use.
    #[inline]
    pub(crate) fn sources(&self) -> usize {
        self.sources.load(Ordering::Relaxed) + usize::from(self.ring_in_use().is_some_and(Uring::is_in_use))
    }

    /// The ring, if there is one already.
    #[inline]
    fn ring_in_use(&self) -> Option<&Uring> {
        self.files.get().and_then(|ring| ring.as_deref().ok())
    }

    /// The ring, which is made at the first call.
    #[inline]
    pub(crate) fn files(&self, failures: &Arc<Failures>) -> Result<&Arc<Uring>, &io::Error> {
        self.files.get_or_init(|| self.open_ring(failures)).as_ref()
    }

    #[cold]
    fn open_ring(&self, failures: &Arc<Failures>) -> io::Result<Arc<Uring>> {
        let Some(epoll) = &self.epoll else { return Err(world::no_outside("files")) };
        let ring = Uring::new(failures.clone())?;
        epoll::add(epoll, &ring, EventData::new_u64(RING_TOKEN), EventFlags::IN | EventFlags::ET)?;
        Ok(Arc::new(ring))
    }

    /// Hands the queued operations to the kernel. Returns whether completions are there already, and how long the
    /// worker may sleep. SUBMITTED-BEFORE-SLEEP in `uring`
    fn before_sleep(&self, ring: &Uring, limit: Option<Duration>) -> (bool, Option<Duration>) {
        let limit = match ring.submit() {
            true => Some(limit.map_or(AFTER_REFUSAL, |limit| limit.min(AFTER_REFUSAL))),
            false => limit,
        };
        (ring.has_completions(), limit)
    }

    /// Registers a file descriptor, edge-triggered.
    pub(crate) fn register(
        self: &Arc<Driver>,
        fd: BorrowedFd<'_>,
        direction: Direction,
    ) -> io::Result<FdRegistration> {
        let readiness = Arc::new(Readiness::default());
        let token = lock(&self.table).insert(fd.as_raw_fd(), readiness.clone())?;
        self.sources.fetch_add(1, Ordering::Relaxed);
        let registration =
            FdRegistration { driver: self.clone(), token, readiness, writing: AtomicBool::new(false) };
        registration.begin(fd, direction)?;
        Ok(registration)
    }

    /// Ends all waits of a runtime, once. Its workers are gone, so no event will be handed out again.
    pub(crate) fn close_all<'a>(drivers: impl Iterator<Item = &'a Driver>) {
        let rings: Vec<_> = drivers.filter_map(Driver::close).collect();
        if !rings.is_empty() {
            uring::close::close_all(rings);
        }
    }

    /// Ends the waits for file descriptors and timers. Returns the ring, if there is one, for the caller to close.
    fn close(&self) -> Option<Arc<Uring>> {
        let mut wakers = Vec::new();
        lock(&self.table).close(&mut wakers);
        self.timers.close(&mut wakers);
        let mut batch = lock(&self.batch);
        wakers.extend(std::mem::take(&mut batch.foreign));
        let mut landed = std::mem::take(&mut batch.landed);
        std::mem::forget(batch); // never unlocked: no other thread gets the claim any more. CLAIMED
        wakers.into_iter().for_each(wake);
        if let Some(ring) = self.ring_in_use() {
            landed.settle(ring);
        }
        // From now on there is no ring, or one that accepts nothing.
        let ring = self.files.get_or_init(|| Err(io::Error::other("the runtime has ended")));
        ring.as_ref().ok().cloned()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.try_batch().is_some() {
            Driver::close_all(std::iter::once(&*self)); // of a runtime that was not built to its end
        }
        spare_timers::give_back(self.timers);
    }
}

impl Unpark for Driver {
    fn unpark(&self) {
        self.wake();
    }
}

/// The epoll flags for a direction. Writability is asked for only after a writer has had to wait: most writers never
/// wait, and each registration would otherwise cause an event at once.
fn flags(direction: Direction) -> EventFlags {
    let flags = EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
    match direction {
        Direction::Read | Direction::Closed => flags,
        Direction::Write => flags | EventFlags::OUT,
    }
}

fn explain_refusal(errno: Errno) -> io::Error {
    let advice = match errno {
        Errno::PERM => {
            "it is always ready, as a regular file is: read it with dapple::fs or dapple::blocking"
        }
        Errno::NOSPC => "the limit on watches is reached: see /proc/sys/fs/epoll/max_user_watches",
        _ => return errno.into(),
    };
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("cannot wait for this file descriptor: {advice} ({error})"))
}

/// The right to hand out events. CLAIMED
pub(crate) struct Claim<'a> {
    driver: &'a Driver,
    batch: MutexGuard<'a, WakeBatch>,
}

impl Claim<'_> {
    /// Wakes all waiters of the events that happened, and of the timers that are due. `true`: there may be
    /// more. Calls `before_foreign` before it runs foreign code. For the worker that owns the worker slot.
    pub(crate) fn hand_out(self, now: Time, before_foreign: impl FnOnce()) -> bool {
        self.wake_all(now, Some(before_foreign))
    }

    /// As [`hand_out`](Self::hand_out), but leaves foreign code to the next thread that hands out. For the monitor,
    /// which nothing may hold up. FOREIGN-LAST
    pub(crate) fn hand_out_ours(self, now: Time) {
        self.wake_all(now, None::<fn()>);
    }

    fn wake_all(mut self, now: Time, before_foreign: Option<impl FnOnce()>) -> bool {
        let WakeBatch { events, wakers, landed, foreign } = &mut *self.batch;
        let is_full = events.len() >= EVENTS;
        if !events.is_empty() {
            let table = lock(&self.driver.table);
            for (token, flags) in events.drain(..) {
                if token < RING_TOKEN {
                    table.deliver(token, flags, wakers); // NO-STALE-EVENT
                }
            }
        }
        if let Some(ring) = self.driver.ring_in_use() {
            ring.take_in(wakers, landed);
            ring.submit(); // what there is room for now
        }
        let more = self.driver.timers.fire(now.tick(), FIRINGS, wakers) || is_full;
        if !wakers.iter().all(GuardedWaker::is_ours) {
            set_apart(wakers, foreign);
        }
        let has_foreign = !foreign.is_empty();
        let before_foreign = before_foreign.filter(|_| has_foreign || !landed.is_empty());
        if wakers.is_empty() && before_foreign.is_none() {
            return more;
        }
        // The claim is free while waiters are woken, so that the monitor can take it.
        let mut wakers = std::mem::take(wakers);
        let mut landed = before_foreign.is_some().then(|| std::mem::take(landed));
        let Claim { driver, batch } = self;
        drop(batch);
        let moment = |nanos| with_context(|context| context.set_event_time(nanos));
        moment(now.nanos());
        wakers.drain(..).for_each(wake);
        moment(0);
        if let Some(before_foreign) = before_foreign {
            before_foreign();
            if let (Some(ring), Some(landed)) = (driver.ring_in_use(), &mut landed) {
                landed.settle(ring);
            }
            if has_foreign {
                driver.wake_foreign();
            }
        }
        let Some(mut batch) = driver.try_batch() else { return more };
        if let Some(landed) = landed.filter(|_| batch.landed.is_empty()) {
            batch.landed = landed;
        }
        if batch.wakers.capacity() == 0 {
            std::mem::forget(std::mem::replace(&mut batch.wakers, wakers)); // its memory; the old one has none
        }
        more
    }
}

impl WakeBatch {
    /// Whether no foreign waker and no completed operation is left in the batch.
    fn is_over(&self) -> bool {
        self.foreign.is_empty() && self.landed.is_empty()
    }
}

/// Moves foreign wakers to `foreign`, where they stay until all others are woken. FOREIGN-LAST
#[cold]
fn set_apart(wakers: &mut Vec<GuardedWaker>, foreign: &mut VecDeque<GuardedWaker>) {
    foreign.extend(wakers.extract_if(.., |waker| !waker.is_ours()));
}

/// The registration of a file descriptor in a driver. It ends when this value is dropped.
pub(crate) struct FdRegistration {
    driver: Arc<Driver>,
    token: u64,
    pub(crate) readiness: Arc<Readiness>,
    /// The kernel reports when the file descriptor becomes writable.
    writing: AtomicBool,
}

impl FdRegistration {
    /// Adds the file descriptor to the epoll. If it is ready, that is an event.
    fn begin(&self, fd: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
        let (data, flags) = (EventData::new_u64(self.token), flags(direction));
        let Some(epoll) = &self.driver.epoll else { return Err(world::no_outside("this file descriptor")) };
        let added = match epoll::add(epoll, fd, data, flags) {
            Err(Errno::EXIST) if lock(&self.driver.table).has_another(fd.as_raw_fd(), self.token) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "this file descriptor is registered already: share the value that registered it, or register a \
                     duplicate (try_clone)",
                ));
            }
            // A leftover: a file descriptor of this number was closed here, and a duplicate of it is still open.
            Err(Errno::EXIST) => epoll::modify(epoll, fd, data, flags),
            added => added,
        };
        added.map_err(explain_refusal)?;
        self.note(direction);
        Ok(())
    }

    /// Makes the kernel report `direction`, too. If the file descriptor is ready, that is an event.
    #[inline]
    pub(crate) fn want(&self, fd: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
        if self.asks_for(direction) {
            return Ok(());
        }
        let data = EventData::new_u64(self.token);
        let Some(epoll) = &self.driver.epoll else { return Err(world::no_outside("this file descriptor")) };
        epoll::modify(epoll, fd, data, flags(direction)).map_err(explain_refusal)?;
        self.note(direction);
        Ok(())
    }

    /// Whether the kernel reports `direction`.
    #[inline]
    pub(crate) fn asks_for(&self, direction: Direction) -> bool {
        direction != Direction::Write || self.writing.load(Ordering::Acquire)
    }

    fn note(&self, direction: Direction) {
        if direction == Direction::Write {
            self.writing.store(true, Ordering::Release);
        }
    }

    /// Removes the file descriptor from the epoll. Closing the descriptor also does, unless there are duplicates.
    pub(crate) fn withdraw(&self, fd: impl AsFd) {
        if let Some(epoll) = &self.driver.epoll {
            // It fails if the file descriptor was closed behind our back. Then there is nothing to remove.
            let _ = epoll::delete(epoll, fd);
        }
    }
}

impl std::fmt::Debug for FdRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("token", &self.token).finish_non_exhaustive()
    }
}

impl Drop for FdRegistration {
    fn drop(&mut self) {
        self.driver.sources.fetch_sub(1, Ordering::Relaxed);
        let removed = lock(&self.driver.table).remove(self.token);
        drop(removed);
    }
}
