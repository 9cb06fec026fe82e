//! Limits: what waits is bounded, by how long it waits and by how many there are.
//!
//! ```text
//! mod    what users hold, and the counts behind it: who may begin, who is refused, who is held back
//! delay  when there is too much: the least time that anything waited, over an interval
//! color  the limit of a color
//! admit  for code that would rather wait, or ask by itself
//! ```
//!
//! `lane/limited.rs` is where tasks ask.
//!
//! # Invariants
//!
//! * **WAITERS-COUNTED**: `waiting` are those in line that are to begin. One that is to be refused in the place of a
//!   newcomer is in `owed` instead, whoever that will be: the next that comes to its turn.
//! * **RESERVED**: of the free places, so many are for tasks that were held back and have been woken. Each of those
//!   comes, since the scheduler runs it: it begins, or is refused, or leaves; and gives its reservation up with that.
//! * **COUNT-THEN-LOOK**: who changes a count looks for watchers afterwards, and who watches looks at the counts
//!   afterwards, all in one order. So nobody waits for a change that he has missed.
//! * **CLOSED-OR-COUNTED**: what is about to begin, or to be held back, is first counted where `close` and `drained`
//!   look for it, and then looks whether the limit is closed. With a bound on how many run, both are done under the
//!   lock of `room`, which `close` takes after it has set its flag: what is held back was there for `close` to wake, or
//!   sees the flag. Without such a bound, the count comes first: `drained` sees it, or it sees the flag, and is taken
//!   back.

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

/// Bounds what waits for the colors, tasks and listeners that it is given to: what cannot be served in time is refused
/// early, before it has cost anything.
///
/// A limit is shared by its clones: with a color for each connection no single line is ever long, but all of them
/// together are. Without any bound it refuses nothing, and counts.
///
/// * [`delay`](Limit::delay) bounds how long things wait, the time in run queues included. If *everything* has waited
///   longer than the target for a whole interval, there is more work than can be done; a burst, which is gone before
///   that, passes. From then on what has waited for more than half the target is refused when it comes to its turn,
///   until an interval has gone by in which nothing had to be. So what is served is served soon.
/// * [`depth`](Limit::depth) bounds how many wait.
/// * [`concurrency`](Limit::concurrency) bounds how many have begun and not ended. The others are held back, in line;
///   others of their color run meanwhile.
///
/// Only what has not begun is refused: a task before its first poll, a closure before it is called. It goes ahead of
/// what is in line in its color, and in that color's turn it is dropped, and its drop closure called
/// ([`or_else`](crate::task::Builder::or_else)). Its handle says [`is_refused`](crate::JoinError::is_refused).
///
/// What a task spawns into its own color is counted as waiting from when that color came in line: a connection that
/// waited for its turn for 40 ms and then spawns a handler has kept its client waiting for 40 ms already.
///
/// When the runtime shuts down, what has a limit and has not begun is refused.
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

/// Which of those that wait is refused if there are too many, by [`Limit::refusing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Refuse {
    /// The one that has waited the longest, for nobody may be waiting for it any more: that is, the next that comes
    /// to its turn. By default.
    #[default]
    Oldest,
    /// The one that comes: what is in line is served, however late.
    Newest,
}

/// What a [`Limit`] has counted so far. Taken without stopping anybody, so the numbers need not fit together exactly.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LimitStats {
    /// In line, not begun.
    pub waiting: usize,
    /// Begun and not ended.
    pub running: usize,
    /// Refused so far.
    pub refused: u64,
    /// Whether things wait for too long.
    pub is_over: bool,
    /// The least time that anything has waited in the interval before this one, if anything did.
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
    /// Who waits for a change outside of a line.
    watchers: AtomicUsize,
    changed: Notify,
}

/// Where tasks are held back, if there is a bound on how many run.
#[derive(Default)]
struct Room {
    running: usize,
    /// RESERVED
    reserved: usize,
    held: VecDeque<(u64, GuardedWaker)>,
    /// Tickets of those that are on their way to a reserved place.
    woken: HashSet<u64>,
    /// Tickets of those that were held back and are to be refused.
    doomed: HashSet<u64>,
    last_ticket: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit::new()
    }
}

impl Limit {
    /// A limit that refuses nothing, until a bound is added.
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
            panic!(
                "a limit is in use already: say all of its bounds before it is cloned or given to anything"
            );
        };
        change(inner);
        self
    }

    /// There is too much if for `interval` everything has waited for longer than `target`. A server that answers
    /// within a second does well with 50 ms over 500 ms.
    ///
    /// # Panics
    ///
    /// If `target` is zero, or longer than `interval`; if the limit is in use.
    #[track_caller]
    #[must_use]
    pub fn delay(self, target: Duration, interval: Duration) -> Limit {
        assert!(!target.is_zero(), "a target of zero refuses everything: say how long things may wait");
        assert!(target <= interval, "a target of {target:?} cannot be seen in an interval of {interval:?}");
        self.change(|inner| inner.delay = Some(Delay::new(target, interval)))
    }

    /// At most so many wait.
    ///
    /// # Panics
    ///
    /// If it is 0: then nothing could ever begin. If the limit is in use.
    #[track_caller]
    #[must_use]
    pub fn depth(self, depth: usize) -> Limit {
        assert!(depth > 0, "a depth of 0 refuses everything: at least one must be allowed to wait");
        self.change(|inner| inner.depth = depth)
    }

    /// At most so many have begun and not ended. The others wait.
    ///
    /// # Panics
    ///
    /// If it is 0: then nothing could ever begin. If the limit is in use.
    #[track_caller]
    #[must_use]
    pub fn concurrency(self, concurrency: usize) -> Limit {
        assert!(
            concurrency > 0,
            "a concurrency of 0 lets nothing begin: at least one must be allowed to run"
        );
        self.change(|inner| inner.concurrency = Some(concurrency))
    }

    /// Which of those that wait is refused.
    ///
    /// # Panics
    ///
    /// If the limit is in use.
    #[track_caller]
    #[must_use]
    pub fn refusing(self, which: Refuse) -> Limit {
        self.change(|inner| inner.refuses = which)
    }

    /// What it has counted so far.
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

    /// Whether things wait for too long, so that some are refused.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.delay.as_ref().is_some_and(|delay| delay.is_over(Time::now().nanos()))
    }

    /// From now on, nothing begins: what waits, and what comes, is refused, waits in [`admit`](Limit::admit) included. What
    /// has begun goes on; [`drained`](Limit::drained) waits for it. Listeners that were given the limit accept nothing more.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        // Those that are held back come and see.
        let held = std::mem::take(&mut lock(&self.0.room).held); // CLOSED-OR-COUNTED
        held.into_iter().for_each(|(_, waker)| wait::wake(waker));
        self.0.changed.notify_waiters();
    }

    /// Whether it was [closed](Limit::close).
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

    /// One that waited does so no more. WAITERS-COUNTED
    fn stops_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.tell_watcher();
    }

    /// Takes upon itself to refuse somebody in the place of a newcomer, if that is owed. WAITERS-COUNTED
    fn takes_owed(&self) -> bool {
        let less = |owed: usize| owed.checked_sub(1);
        self.owed.load(Ordering::Relaxed) > 0
            && self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// COUNT-THEN-LOOK
    fn tell_watcher(&self) {
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.changed.notify_one();
        }
    }

    /// Something begins, if there is room for it beside what is reserved, and the limit is not closed.
    fn try_run(&self) -> bool {
        let Some(most) = self.concurrency else { return self.try_count_running() };
        let mut room = lock(&self.room);
        let has_room = room.running + room.reserved < most && !self.is_closed.load(Ordering::SeqCst);
        room.running += usize::from(has_room);
        has_room
    }

    /// Something begins, where there is no bound on how many run, unless the limit is closed. CLOSED-OR-COUNTED
    fn try_count_running(&self) -> bool {
        self.running.fetch_add(1, Ordering::SeqCst);
        let is_closed = self.is_closed.load(Ordering::SeqCst);
        if is_closed {
            self.end_run(); // `drained` may have seen it
        }
        !is_closed
    }

    /// One that is in line is refused for good.
    fn refuse_waiting(&self) -> Passage {
        // If a newcomer was let in for one that is refused, it may be this one.
        if !self.takes_owed() {
            self.stops_waiting();
        }
        self.refuse()
    }

    /// Something that had begun has ended.
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
    /// Reserves a place for the first that is held back, who is to be woken. RESERVED
    fn reserve(&mut self, most: usize) -> Option<GuardedWaker> {
        if self.running + self.reserved >= most {
            return None;
        }
        let (ticket, waker) = self.held.pop_front()?;
        self.reserved += 1;
        self.woken.insert(ticket);
        Some(waker)
    }

    /// Gives a reservation up, if it was one's.
    fn give_up(&mut self, ticket: u64) -> bool {
        let had = ticket != 0 && self.woken.remove(&ticket);
        self.reserved -= usize::from(had);
        had
    }

    /// Whether one that is held back comes because it is to be refused.
    fn is_doomed(&mut self, ticket: u64) -> bool {
        ticket != 0 && self.doomed.remove(&ticket)
    }

    /// Holds somebody back: at the end of the line, or where it was.
    fn hold(&mut self, ticket: &Cell<u64>, waker: &Waker) {
        if ticket.get() == 0 {
            self.last_ticket += 1;
            ticket.set(self.last_ticket);
            self.held.push_back((ticket.get(), GuardedWaker::of(waker)));
        } else if self.held.iter().all(|(other, _)| *other != ticket.get()) {
            self.held.push_front((ticket.get(), GuardedWaker::of(waker)));
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

    fn begin(&self, since: u64, ticket: &Cell<u64>, waker: &Waker) -> Passage {
        if ticket.get() != 0 && lock(&self.room).is_doomed(ticket.get()) {
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
        let is_expected = room.give_up(ticket.get()); // RESERVED
        if !is_expected && self.takes_owed() {
            // The oldest are those that are held back.
            let Some((doomed, oldest)) = room.held.pop_front().filter(|(held, _)| *held != ticket.get())
            else {
                drop(room);
                return self.refuse();
            };
            room.doomed.insert(doomed);
            room.hold(ticket, waker);
            drop(room);
            wait::wake(oldest);
            return Passage::Hold;
        }
        if !is_expected && room.running + room.reserved >= most {
            room.hold(ticket, waker);
            return Passage::Hold;
        }
        room.running += 1;
        let own = ticket.get();
        room.held.retain(|(held, _)| own == 0 || *held != own); // it came by itself
        drop(room);
        self.stops_waiting();
        Passage::Begin
    }

    fn leave(&self, stage: AdmissionStage, ticket: u64) {
        if stage == AdmissionStage::Begun {
            return self.end_run();
        }
        let is_doomed = ticket != 0 && lock(&self.room).is_doomed(ticket);
        if stage == AdmissionStage::InLine && !is_doomed && !self.takes_owed() {
            self.stops_waiting();
        }
        let Some(most) = self.concurrency.filter(|_| ticket != 0) else { return };
        let mut room = lock(&self.room);
        room.held.retain(|(held, _)| *held != ticket);
        room.give_up(ticket);
        let next = room.reserve(most);
        drop(room);
        if let Some(waker) = next {
            wait::wake(waker);
        }
    }
}
