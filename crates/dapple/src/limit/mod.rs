//! Limits (overload protection): bounds on waiting time and on the number of waiting or running tasks.
//!
//! Make a [`Limit`], and give it to colors, tasks or listeners. Work beyond its bounds is refused before it begins.
//!
//! # Inside
//!
//! ```text
//! mod    Limit and its counts: which task begins, is refused, or is held back
//! delay  overload detection: the least waiting time over an interval
//! color  limit of a color
//! admit  for code that waits for room, or asks for itself
//! ```
//!
//! `lane/limited.rs` asks a limit before the first poll of a task.
//!
//! # Invariants
//!
//! * **WAITERS-COUNTED**: `waiting` counts the queued tasks that are to begin. When a newcomer is let in and
//!   an older task is to be refused instead, `owed` counts the older one: the next task whose turn comes.
//! * **RESERVED**: `reserved` of the free places are for tasks that were held back and have been woken. The
//!   scheduler runs each of them: the task begins, is refused, or leaves, and thereby gives up its
//!   reservation.
//! * **COUNT-THEN-LOOK**: code that changes a count checks for watchers afterwards; a watcher registers first
//!   and checks the counts afterwards; all in one order (SeqCst). So no watcher misses a change.
//! * **CLOSED-OR-COUNTED**: a task that is about to begin, or to be held back, is first counted where `close`
//!   and `drained` look, and then checks whether the limit is closed. With a bound on concurrency, both
//!   happen under the lock of `room`, which `close` takes after it has set its flag: a held task is there for
//!   `close` to wake, or sees the flag. Without such a bound, the count comes first: `drained` sees the
//!   count, or the task sees the flag and takes its count back.

mod admit;
mod color;
mod delay;

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

pub use admit::{AdmitError, Admitted, Refused};

use crate::cancel::wait;
use crate::driver::clock::Time;
use crate::lane::limited::{Admission, AdmissionStage};
use crate::prim::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, lock};
use crate::sync::Notify;
use crate::task::guarded::GuardedWaker;
use crate::task::poll::Passage;
use delay::Delay;

/// Overload protection: bounds the waiting work of the colors, tasks and listeners that it is given to. Work
/// that cannot be served in time is refused early, before it has cost anything.
///
/// Clones share one limit: with a color for each connection no single queue is ever long, but all of them
/// together are. Without any bound a limit refuses nothing, and only counts.
///
/// * [`delay`](Limit::delay) bounds the waiting time, including the time in run queues. If *all* work has
///   waited longer than the target for a whole interval, there is overload; a burst, which is over before
///   that, passes. During overload, work that has waited for more than half the target is refused when its
///   turn comes, until an interval passes without a refusal. So the work that is served is served soon.
/// * [`depth`](Limit::depth) bounds the number of waiting tasks.
/// * [`concurrency`](Limit::concurrency) bounds the number of tasks that have begun and not ended. The other
///   tasks are held back, in order; other tasks of their color run meanwhile.
///
/// Only work that has not begun is refused: a task before its first poll, a closure before it is called. A
/// refused task goes ahead of the queue of its color; in the color's turn it is dropped, and its drop closure
/// is called ([`or_else`](crate::task::Builder::or_else)). [`is_refused`](crate::JoinError::is_refused) holds
/// for the error of its handle.
///
/// A task that is spawned into the color of its parent counts as waiting since that color was queued: a
/// connection that waited for its turn for 40 ms and then spawns a handler has kept its client waiting for 40
/// ms already.
///
/// When the runtime shuts down, work with a limit that has not begun is refused.
///
/// # Examples
///
/// ```
/// use dapple::{Color, task::Builder, limit::Limit};
/// use std::time::Duration;
///
/// dapple::run(async {
///     let limit = Limit::new().delay(Duration::from_millis(50), Duration::from_millis(500)).depth(1000);
///     for client in 0..10 {
///         let color = Color::new();
///         color.set_limit(limit.clone());
///         Builder::new()
///             .color(&color)
///             .or_else(move || println!("client {client}: busy, try again later"))
///             .spawn(async move { println!("client {client}: here you are") })
///             .await
///             .unwrap();
///     }
///     assert_eq!(limit.stats().refused, 0);
/// });
/// ```
#[derive(Clone)]
pub struct Limit(Arc<Inner>);

/// Which waiting task is refused if there are too many. Set by [`Limit::refusing`].
///
/// # Examples
///
/// ```
/// use dapple::limit::{Limit, Refuse};
///
/// let limit = Limit::new().depth(100).refusing(Refuse::Oldest); // the newest requests are most likely still wanted
/// assert!(limit.has_room());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Refuse {
    /// The task that has waited longest, since its client may have given up: the next one whose turn comes.
    /// The default.
    #[default]
    Oldest,
    /// The newcomer: queued tasks are served, however late.
    Newest,
}

/// Counters of a [`Limit`]. They are read without stopping other threads, so they need not be consistent with
/// each other.
///
/// # Examples
///
/// ```
/// use dapple::limit::Limit;
///
/// dapple::run(async {
///     let limit = Limit::new().concurrency(1);
///     let admitted = limit.admit().await.unwrap();
///     assert!(limit.try_admit().is_err());
///     let stats = limit.stats();
///     assert_eq!((stats.running, stats.waiting), (1, 0));
///     drop(admitted);
///     assert_eq!(limit.stats().running, 0);
/// });
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LimitStats {
    /// Tasks that wait, and have not begun.
    pub waiting: usize,
    /// Tasks that have begun, and not ended.
    pub running: usize,
    /// Tasks refused so far.
    pub refused: u64,
    /// Whether there is overload by [`Limit::delay`].
    pub is_over: bool,
    /// Shortest waiting time of the work that began in the last whole interval of [`Limit::delay`]; `None` if none began.
    pub least_delay: Option<Duration>,
}

struct Inner {
    delay: Option<Delay>,
    depth: usize,
    concurrency: Option<usize>,
    refuses: Refuse,
    is_closed: AtomicBool,
    waiting: AtomicUsize,
    owed: AtomicUsize,
    running: AtomicUsize,
    refused: AtomicU64,
    room: Mutex<Room>,
    /// Callers of `admit`, `room` and `drained` that wait for a change.
    watchers: AtomicUsize,
    changed: Notify,
}

/// Tasks held back by a bound on concurrency.
#[derive(Default)]
struct Room {
    running: usize,
    /// RESERVED
    reserved: usize,
    held: VecDeque<(u64, GuardedWaker)>,
    /// Numbers of woken tasks with a reserved place. RESERVED
    woken: HashSet<u64>,
    /// Numbers of held tasks that are to be refused.
    doomed: HashSet<u64>,
    last_hold_id: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit::new()
    }
}

impl Limit {
    /// Creates a limit without bounds, which refuses nothing.
    #[must_use]
    pub fn new() -> Limit {
        Limit(Arc::new(Inner {
            delay: None,
            depth: usize::MAX,
            concurrency: None,
            refuses: Refuse::default(),
            is_closed: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            room: Mutex::default(),
            watchers: AtomicUsize::new(0),
            changed: Notify::new(),
        }))
    }

    #[track_caller]
    fn change(mut self, change: impl FnOnce(&mut Inner)) -> Limit {
        let Some(inner) = Arc::get_mut(&mut self.0) else {
            panic!("a limit is in use already: set all of its bounds before it is cloned or used");
        };
        change(inner);
        self
    }

    /// Bounds the waiting time: there is overload if all work has waited for longer than `target` during
    /// `interval`. For a server that should answer within a second, 50 ms over 500 ms is a good choice.
    ///
    /// # Panics
    ///
    /// If `target` is zero, or longer than `interval`; if the limit is in use.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::limit::Limit;
    /// use dapple::time::Duration;
    ///
    /// // Refuses work if all of it has waited longer than 50 ms for half a second.
    /// let limit = Limit::new().delay(Duration::from_millis(50), Duration::from_millis(500));
    /// assert!(!limit.is_over());
    /// ```
    #[track_caller]
    #[must_use]
    pub fn delay(self, target: Duration, interval: Duration) -> Limit {
        assert!(
            !target.is_zero(),
            "a target of zero refuses all work: set the longest waiting time that is acceptable"
        );
        assert!(target <= interval, "a target of {target:?} is longer than the interval of {interval:?}");
        self.change(|inner| inner.delay = Some(Delay::new(target, interval)))
    }

    /// Bounds the number of waiting tasks. When one more comes, a waiting task is refused, or the newcomer: see
    /// [`refusing`](Limit::refusing).
    ///
    /// # Panics
    ///
    /// If it is 0: then nothing could ever begin. If the limit is in use.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::limit::Limit;
    /// use dapple::task::Builder;
    ///
    /// dapple::run(async {
    ///     let limit = Limit::new().depth(1); // one may wait
    ///     let tasks: Vec<_> = (0..10).map(|_| Builder::new().limit(limit.clone()).spawn(async {})).collect();
    ///     let mut refused = 0;
    ///     for task in tasks {
    ///         refused += usize::from(task.await.is_err_and(|error| error.is_refused()));
    ///     }
    ///     assert!(refused < 10);
    /// });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn depth(self, depth: usize) -> Limit {
        assert!(depth > 0, "a depth of 0 refuses all work: use 1 or more");
        self.change(|inner| inner.depth = depth)
    }

    /// Bounds the number of tasks that have begun and not ended. The others wait.
    ///
    /// # Panics
    ///
    /// If it is 0: then nothing could ever begin. If the limit is in use.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::limit::Limit;
    ///
    /// dapple::run(async {
    ///     let limit = Limit::new().concurrency(1);
    ///     let first = limit.admit().await.unwrap();
    ///     assert!(limit.try_admit().is_err()); // one is under way
    ///     drop(first);
    ///     assert!(limit.try_admit().is_ok());
    /// });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn concurrency(self, concurrency: usize) -> Limit {
        assert!(concurrency > 0, "a concurrency of 0 lets no work begin: use 1 or more");
        self.change(|inner| inner.concurrency = Some(concurrency))
    }

    /// Chooses which waiting task is refused.
    ///
    /// # Panics
    ///
    /// If the limit is in use.
    #[track_caller]
    #[must_use]
    pub fn refusing(self, which: Refuse) -> Limit {
        self.change(|inner| inner.refuses = which)
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> LimitStats {
        let inner = &*self.0;
        LimitStats {
            waiting: inner.waiting.load(Ordering::Relaxed),
            running: inner.running(),
            refused: inner.refused.load(Ordering::Relaxed),
            is_over: self.is_over(),
            least_delay: inner.delay.as_ref().and_then(Delay::least),
        }
    }

    /// Whether there is overload by [`delay`](Limit::delay), so that work is refused.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.delay.as_ref().is_some_and(|delay| delay.is_over(Time::now().nanos()))
    }

    /// Closes the limit: no work begins from now on. Waiting and new work is refused, and so are waits in
    /// [`admit`](Limit::admit). Work that has begun goes on; [`drained`](Limit::drained) waits for it.
    /// Listeners that were given the limit accept nothing more.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        // Wakes the held tasks, which then see the flag.
        let held = std::mem::take(&mut lock(&self.0.room).held); // CLOSED-OR-COUNTED
        held.into_iter().for_each(|(_, waker)| wait::wake(waker));
        self.0.changed.notify_waiters();
    }

    /// Whether the limit is [closed](Limit::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn into_gate(self) -> Arc<dyn Admission> {
        self.0
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitStats { waiting, running, refused, is_over, .. } = self.stats();
        let mut shown = f.debug_struct("Limit");
        shown.field("waiting", &waiting).field("running", &running).field("refused", &refused);
        shown.field("is_over", &is_over).finish_non_exhaustive()
    }
}

impl Inner {
    fn running(&self) -> usize {
        match self.concurrency {
            None => self.running.load(Ordering::SeqCst),
            Some(_) => lock(&self.room).running,
        }
    }

    fn refuse(&self) -> Passage {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Passage::Refuse
    }

    /// Uncounts a task that waited. WAITERS-COUNTED
    fn stops_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.tell_watcher();
    }

    /// Takes over one owed refusal, if there is one. WAITERS-COUNTED
    fn takes_owed(&self) -> bool {
        let less = |owed: usize| owed.checked_sub(1);
        self.owed.load(Ordering::Relaxed) > 0
            && self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Wakes a watcher, if there is one. COUNT-THEN-LOOK
    fn tell_watcher(&self) {
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.changed.notify_one();
        }
    }

    /// Counts work as running, if there is room besides the reserved places and the limit is not closed.
    fn try_run(&self) -> bool {
        let Some(most) = self.concurrency else { return self.try_count_running() };
        let mut room = lock(&self.room);
        let has_room = room.running + room.reserved < most && !self.is_closed.load(Ordering::SeqCst);
        room.running += usize::from(has_room);
        has_room
    }

    /// As `try_run`, for a limit without a bound on concurrency. CLOSED-OR-COUNTED
    fn try_count_running(&self) -> bool {
        self.running.fetch_add(1, Ordering::SeqCst);
        let is_closed = self.is_closed.load(Ordering::SeqCst);
        if is_closed {
            self.end_run(); // `drained` may have seen the count
        }
        !is_closed
    }

    /// Refuses a queued task for good.
    fn refuse_waiting(&self) -> Passage {
        // If a newcomer was let in against an owed refusal, this task takes that refusal over.
        if !self.takes_owed() {
            self.stops_waiting();
        }
        self.refuse()
    }

    /// Uncounts work that has ended.
    fn end_run(&self) {
        let is_last = match self.concurrency {
            None => self.running.fetch_sub(1, Ordering::SeqCst) == 1,
            Some(most) => {
                let mut room = lock(&self.room);
                room.running -= 1;
                let is_last = room.running == 0;
                let next = room.reserve(most);
                drop(room);
                if let Some(waker) = next {
                    wait::wake(waker);
                }
                is_last
            }
        };
        if is_last && self.is_closed.load(Ordering::SeqCst) {
            self.changed.notify_waiters();
        }
        self.tell_watcher();
    }
}

impl Room {
    /// Reserves a place for the first held task, whose waker the caller must wake. RESERVED
    fn reserve(&mut self, most: usize) -> Option<GuardedWaker> {
        if self.running + self.reserved >= most {
            return None;
        }
        let (hold_id, waker) = self.held.pop_front()?;
        self.reserved += 1;
        self.woken.insert(hold_id);
        Some(waker)
    }

    /// Gives up the reservation of this held task, if it has one.
    fn give_up(&mut self, hold_id: u64) -> bool {
        let had = hold_id != 0 && self.woken.remove(&hold_id);
        self.reserved -= usize::from(had);
        had
    }

    /// Whether the held task with this number is to be refused. Forgets that.
    fn is_doomed(&mut self, hold_id: u64) -> bool {
        hold_id != 0 && self.doomed.remove(&hold_id)
    }

    /// Holds a task back: a new one at the end of the queue, a former one at its head.
    fn hold(&mut self, hold_id: &Cell<u64>, waker: &Waker) {
        if hold_id.get() == 0 {
            self.last_hold_id += 1;
            hold_id.set(self.last_hold_id);
            self.held.push_back((hold_id.get(), GuardedWaker::of(waker)));
        } else if self.held.iter().all(|(other, _)| *other != hold_id.get()) {
            self.held.push_front((hold_id.get(), GuardedWaker::of(waker)));
        }
    }
}

impl Admission for Inner {
    fn now(&self) -> u64 {
        Time::now().nanos()
    }

    fn arrive(&self, _since: u64) -> bool {
        let is_newest = self.refuses == Refuse::Newest;
        let is_late = || self.delay.as_ref().is_some_and(|delay| delay.is_late(Time::now().nanos()));
        if self.is_closed.load(Ordering::SeqCst) || (is_newest && is_late()) {
            self.refuse();
            return false;
        }
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        if before < self.depth {
            return true;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if is_newest {
            self.refuse();
        } else {
            self.owed.fetch_add(1, Ordering::Relaxed); // WAITERS-COUNTED
        }
        !is_newest
    }

    fn begin(&self, since: u64, hold_id: &Cell<u64>, waker: &Waker) -> Passage {
        if hold_id.get() != 0 && lock(&self.room).is_doomed(hold_id.get()) {
            return self.refuse(); // a newcomer waits in its place. WAITERS-COUNTED
        }
        let is_late = self.delay.as_ref().is_some_and(|delay| {
            let now = Time::now().nanos();
            delay.observe(now.saturating_sub(since), now) && self.refuses == Refuse::Oldest
        });
        if is_late {
            return self.refuse_waiting();
        }
        let Some(most) = self.concurrency else {
            if self.takes_owed() {
                return self.refuse();
            }
            if !self.try_count_running() {
                return self.refuse_waiting();
            }
            self.stops_waiting();
            return Passage::Begin;
        };
        let mut room = lock(&self.room);
        if self.is_closed.load(Ordering::SeqCst) {
            drop(room); // CLOSED-OR-COUNTED
            return self.refuse_waiting();
        }
        let is_expected = room.give_up(hold_id.get()); // RESERVED
        if !is_expected && self.takes_owed() {
            // The oldest tasks are the held ones.
            let Some((doomed, oldest)) = room.held.pop_front().filter(|(held, _)| *held != hold_id.get())
            else {
                drop(room);
                return self.refuse();
            };
            room.doomed.insert(doomed);
            room.hold(hold_id, waker);
            drop(room);
            wait::wake(oldest);
            return Passage::Hold;
        }
        if !is_expected && room.running + room.reserved >= most {
            room.hold(hold_id, waker);
            return Passage::Hold;
        }
        room.running += 1;
        let own = hold_id.get();
        room.held.retain(|(held, _)| own == 0 || *held != own); // it was polled without a wake-up
        drop(room);
        self.stops_waiting();
        Passage::Begin
    }

    fn leave(&self, stage: AdmissionStage, hold_id: u64) {
        if stage == AdmissionStage::Begun {
            return self.end_run();
        }
        let is_doomed = hold_id != 0 && lock(&self.room).is_doomed(hold_id);
        if stage == AdmissionStage::InLine && !is_doomed && !self.takes_owed() {
            self.stops_waiting();
        }
        let Some(most) = self.concurrency.filter(|_| hold_id != 0) else { return };
        let mut room = lock(&self.room);
        room.held.retain(|(held, _)| *held != hold_id);
        room.give_up(hold_id);
        let next = room.reserve(most);
        drop(room);
        if let Some(waker) = next {
            wait::wake(waker);
        }
    }
}
