//! The watchers of one state: every `when` that sleeps until the state has been written.
//!
//! A `when` whose condition does not hold *enlists* with each of its states before it leaves them, and is a *watcher* from
//! then on. A writer that leaves increments the count of writes and wakes watchers: all that only read, and the first of
//! those that write. A watcher that has looked, or that goes away, *passes the wake-up on* to the next watcher that has not
//! looked since the last write.
//!
//! ```text
//! write 7 --> wakes readers r1, r2, r3 together
//!        \--> wakes w1; its condition fails --> wakes w2; its condition holds, and it writes: write 8 --> wakes w1 ...
//! ```
//!
//! # Invariants
//!
//! * **ENLIST-INSIDE**: a watcher enlists, and notes the count of writes, while it holds the state's access lock. A writer
//!   changes the count, and reads the flag `WATCHED` of the access lock, while it still holds that lock. So a writer that
//!   comes after the look of a watcher finds the watcher enlisted, and a watcher never looks twice at one write.
//! * **WATCHER-WOKEN**: if a watcher that writes has not looked since the last write, one such watcher has been woken
//!   and has not looked since (it holds the *token*); or a timer is set, which will pass the holder of the token over.
//! * **PASSED-OVER**: a token whose holder is not polled within some milliseconds does not count any more, however often
//!   other watchers look meanwhile. While a token is out and other watchers wait behind its holder, a timer is set in the
//!   runtime of the waking thread. A thread outside of a runtime has no timer, and wakes all watchers at once.
//! * **ROUND-GOES-ON**: a write while a token is out does not send the token back to the first watcher. The token goes on
//!   to the last watcher, and then round again. So a watcher is reached after as many looks as there are watchers before
//!   it, however often the state is written meanwhile.
//! * **LIST-STAYS**: the list of an access lock is made once, and freed with the access lock.

use std::ptr::null_mut;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use super::retry_timer::wake_later;
use crate::prim::{AtomicPtr, AtomicU64, Ordering, SpinGuard, SpinLock};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::wait::Wakers;

const NONE: u32 = u32::MAX;

/// A table of more entries than this is freed when no watcher is left.
const KEEP: usize = 64;

/// The list of an access lock, if any `when` has waited there. LIST-STAYS
pub(crate) struct WatchPoint(AtomicPtr<WatchList>);

impl WatchPoint {
    pub(crate) fn new() -> WatchPoint {
        WatchPoint(AtomicPtr::new(null_mut()))
    }

    /// The list, if it has been made.
    #[inline]
    pub(crate) fn get(&self) -> Option<&WatchList> {
        // SAFETY: the list is freed with its access lock, which is borrowed. LIST-STAYS
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The list, which is made at first.
    #[inline]
    pub(crate) fn get_or_make(&self) -> &WatchList {
        self.get().unwrap_or_else(|| self.make())
    }

    #[cold]
    fn make(&self) -> &WatchList {
        let new = Arc::new_cyclic(|own| WatchList {
            written: AtomicU64::new(0),
            queue: SpinLock::new(WatchQueue::default()),
            own: own.clone(),
        });
        let new = Arc::into_raw(new).cast_mut();
        let made = self.0.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        if made.is_err() {
            // SAFETY: it was just made of an `Arc`, and no one else has it.
            drop(unsafe { Arc::from_raw(new) });
        }
        self.get().expect("just made")
    }
}

impl Drop for WatchPoint {
    fn drop(&mut self) {
        let list = self.0.load(Ordering::Acquire);
        if !list.is_null() {
            // SAFETY: `get_or_make` made it of an `Arc`, which is taken back here, once. LIST-STAYS
            drop(unsafe { Arc::from_raw(list) });
        }
    }
}

/// See the head of this file.
pub(crate) struct WatchList {
    /// How often the state was written while it was watched. ENLIST-INSIDE
    written: AtomicU64,
    queue: SpinLock<WatchQueue>,
    own: Weak<WatchList>,
}

/// A watcher's place in the list of one state.
#[derive(Clone, Copy)]
pub struct WatchPlace {
    key: u32,
    /// The count of writes at its last look.
    seen: u64,
}

impl Default for WatchPlace {
    fn default() -> WatchPlace {
        WatchPlace { key: NONE, seen: 0 }
    }
}

/// Result of the look that a writer takes at the watchers.
#[derive(PartialEq, Eq)]
pub(crate) enum Watchers {
    /// None is left, so that the next writer need not look.
    Gone,
    /// All that are to be woken have been put among the wakers.
    Woken,
    /// More are to be woken than fit.
    More,
    /// All are to be woken, by [`WatchList::wake_everyone`]. PASSED-OVER
    Everyone,
}

#[derive(Default)]
struct WatchQueue {
    entries: Vec<WatchEntry>,
    /// Freed entries, linked by `next`.
    free: EntryIndex,
    readers: WatchRing,
    writers: WatchRing,
    len: usize,
    /// Writers that were woken, have not looked since, and are counted on. WATCHER-WOKEN
    tokens: usize,
    /// How many tokens have been given back.
    returned: u64,
    /// The timer is set, at this count of tokens that were given back. PASSED-OVER
    alarm: Option<u64>,
}

/// An index, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EntryIndex(u32);

impl Default for EntryIndex {
    fn default() -> EntryIndex {
        EntryIndex(NONE)
    }
}

impl EntryIndex {
    fn get(self) -> Option<usize> {
        (self.0 != NONE).then_some(self.0 as usize)
    }
}

/// Watchers of one kind, in the order in which they came.
#[derive(Default)]
struct WatchRing {
    first: EntryIndex,
    last: EntryIndex,
    /// All before it have been woken for the last write, or have looked; unless `again` is set.
    next: EntryIndex,
    /// There was a write since this round began: another round follows. ROUND-GOES-ON
    again: bool,
}

struct WatchEntry {
    prev: EntryIndex,
    next: EntryIndex,
    writes: bool,
    seen: u64,
    woken: bool,
    /// PASSED-OVER
    passed_over: bool,
    waker: Option<GuardedWaker>,
}

impl WatchQueue {
    fn ring(&mut self, writes: bool) -> &mut WatchRing {
        if writes { &mut self.writers } else { &mut self.readers }
    }

    fn join(&mut self, writes: bool, seen: u64, waker: GuardedWaker) -> u32 {
        let prev = self.ring(writes).last;
        let entry = WatchEntry {
            prev,
            next: EntryIndex(NONE),
            writes,
            seen,
            woken: false,
            passed_over: false,
            waker: Some(waker),
        };
        let index = match self.free.get() {
            Some(free) => {
                self.free = self.entries[free].next;
                self.entries[free] = entry; // a free entry has no waker
                free
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        let key = u32::try_from(index).ok().filter(|key| *key != NONE).expect("fewer than 2^32 watchers");
        match prev.get() {
            Some(prev) => self.entries[prev].next = EntryIndex(key),
            None => self.ring(writes).first = EntryIndex(key),
        }
        let ring = self.ring(writes);
        ring.last = EntryIndex(key);
        if ring.next == EntryIndex(NONE) {
            ring.next = EntryIndex(key);
        }
        self.len += 1;
        key
    }

    /// A watcher looks at the state as of the write `seen`. It holds no token any more.
    fn look(&mut self, key: u32, seen: u64) {
        let entry = &mut self.entries[key as usize];
        entry.seen = seen;
        self.take_token(key);
    }

    fn take_token(&mut self, key: u32) {
        let entry = &mut self.entries[key as usize];
        let woken = std::mem::take(&mut entry.woken);
        let passed_over = std::mem::take(&mut entry.passed_over);
        if woken && entry.writes && !passed_over {
            self.tokens -= 1;
            self.returned += 1;
        }
    }

    fn take_out(&mut self, watch: &mut WatchPlace) -> Option<GuardedWaker> {
        let key = std::mem::replace(&mut watch.key, NONE);
        if key == NONE { None } else { self.leave(key) }
    }

    fn leave(&mut self, key: u32) -> Option<GuardedWaker> {
        self.take_token(key);
        let WatchEntry { prev, next, writes, .. } = self.entries[key as usize];
        match next.get() {
            Some(next) => self.entries[next].prev = prev,
            None => self.ring(writes).last = prev,
        }
        match prev.get() {
            Some(prev) => self.entries[prev].next = next,
            None => self.ring(writes).first = next,
        }
        let ring = self.ring(writes);
        if ring.next == EntryIndex(key) {
            ring.next = next;
        }
        self.len -= 1;
        let free = std::mem::replace(&mut self.free, EntryIndex(key));
        let entry = &mut self.entries[key as usize];
        entry.next = free;
        let waker = entry.waker.take();
        if self.len == 0 && self.entries.len() > KEEP {
            self.entries = Vec::new(); // all are free and hold no waker
            self.free = EntryIndex(NONE);
        }
        waker
    }

    /// The next of its kind that sleeps, and has not looked since the write `now`.
    fn next_asleep(&mut self, writes: bool, now: u64) -> Option<usize> {
        loop {
            let mut at = self.ring(writes).next;
            while let Some(index) = at.get()
                && (self.entries[index].woken || self.entries[index].seen == now)
            {
                at = self.entries[index].next;
            }
            let ring = self.ring(writes);
            ring.next = at;
            if at.get().is_some() || !std::mem::take(&mut ring.again) {
                return at.get();
            }
            ring.next = ring.first;
        }
    }

    /// Wakes the next of its kind that has not looked since the write `now`. `false`: there is none.
    fn wake_next(&mut self, writes: bool, now: u64, wakers: &mut Wakers) -> bool {
        let Some(index) = self.next_asleep(writes, now) else { return false };
        let entry = &mut self.entries[index];
        entry.woken = true;
        wakers.put_once(entry.waker.take()); // it may have been woken by the list of another state
        self.tokens += usize::from(writes);
        true
    }

    /// Wakes the next watcher that writes, unless one is on its way. Returns whether a timer is to be set. WATCHER-WOKEN
    fn pass_on(&mut self, now: u64, wakers: &mut Wakers) -> bool {
        if self.tokens == 0 && !self.wake_next(true, now, wakers) {
            return false;
        }
        let needs_alarm = self.alarm.is_none() && self.next_asleep(true, now).is_some();
        if needs_alarm {
            self.alarm = Some(self.returned);
        }
        needs_alarm
    }

    /// Counts no more on those that were woken. PASSED-OVER
    fn pass_over(&mut self) {
        let mut at = self.writers.first;
        while let Some(index) = at.get() {
            let entry = &mut self.entries[index];
            entry.passed_over |= entry.woken;
            at = entry.next;
        }
        self.tokens = 0;
    }
}

impl WatchList {
    /// Whether the state was written since the watcher last looked.
    #[inline]
    pub(crate) fn has_news(&self, watch: &WatchPlace) -> bool {
        self.written.load(Ordering::Acquire) != watch.seen
    }

    /// Enlists a watcher that is inside of the state, and has found that its condition does not hold. A watcher that
    /// is in the list keeps its place, and passes the wake-up on. Gives back the waker that it had. ENLIST-INSIDE
    pub(crate) fn enlist(
        &self,
        watch: &mut WatchPlace,
        writes: bool,
        waker: GuardedWaker,
        wakers: &mut Wakers,
    ) -> Option<GuardedWaker> {
        let mut queue = self.queue.lock();
        let now = self.written.load(Ordering::Relaxed); // changed by those alone who are inside, and write
        watch.seen = now;
        if watch.key == NONE {
            watch.key = queue.join(writes, now, waker);
            return None;
        }
        queue.look(watch.key, now);
        let old = queue.entries[watch.key as usize].waker.replace(waker);
        self.pass_on(queue, now, wakers);
        old
    }

    /// A watcher that is polled, and has nothing new to look at, sleeps on with this waker. `false`: it was woken
    /// meanwhile. Gives back a waker that is to be dropped.
    pub(crate) fn sleep_on(&self, watch: &WatchPlace, waker: GuardedWaker) -> (bool, Option<GuardedWaker>) {
        let mut queue = self.queue.lock();
        let entry = &mut queue.entries[watch.key as usize];
        match entry.woken {
            true => (false, Some(waker)),
            false => (true, entry.waker.replace(waker)),
        }
    }

    /// Takes a watcher out of the list, and passes its wake-up on. Returns the watcher's waker.
    pub(crate) fn leave(&self, watch: &mut WatchPlace, wakers: &mut Wakers) -> Option<GuardedWaker> {
        if watch.key == NONE {
            return None;
        }
        let mut queue = self.queue.lock();
        let waker = queue.take_out(watch);
        let now = self.written.load(Ordering::Relaxed);
        self.pass_on(queue, now, wakers);
        waker
    }

    /// The state has been written, by one that is still inside. ENLIST-INSIDE
    ///
    /// `own`: the writer's place, if it is itself in the list; it is taken out. Gives back the waker that it had.
    pub(crate) fn note_write(
        &self,
        own: Option<&mut WatchPlace>,
        wakers: &mut Wakers,
    ) -> (Watchers, Option<GuardedWaker>) {
        let mut queue = self.queue.lock();
        let old = own.and_then(|watch| queue.take_out(watch));
        if queue.len == 0 {
            return (Watchers::Gone, old);
        }
        let now = self.written.load(Ordering::Relaxed) + 1;
        self.written.store(now, Ordering::Release);
        queue.readers.next = queue.readers.first;
        if queue.tokens == 0 {
            queue.writers.next = queue.writers.first;
            queue.writers.again = false;
        } else {
            queue.writers.again = true; // ROUND-GOES-ON
        }
        let needs_alarm = queue.pass_on(now, wakers);
        let more = WatchList::fill(&mut queue, now, wakers);
        drop(queue);
        if needs_alarm && !self.set_alarm() {
            return (Watchers::Everyone, old); // not here: the writer is still inside
        }
        (more, old)
    }

    /// More watchers that only read are to be woken.
    pub(crate) fn wake_more(&self, wakers: &mut Wakers) -> Watchers {
        let mut queue = self.queue.lock();
        let now = self.written.load(Ordering::Relaxed);
        WatchList::fill(&mut queue, now, wakers)
    }

    fn fill(queue: &mut WatchQueue, now: u64, wakers: &mut Wakers) -> Watchers {
        while !wakers.is_full() {
            if !queue.wake_next(false, now, wakers) {
                return Watchers::Woken;
            }
        }
        Watchers::More
    }

    fn pass_on(&self, mut queue: SpinGuard<'_, WatchQueue>, now: u64, wakers: &mut Wakers) {
        let needs_alarm = queue.pass_on(now, wakers);
        drop(queue);
        if needs_alarm && !self.set_alarm() {
            self.wake_everyone();
        }
    }

    /// A token is out, and others wait behind it. `false`: there is no alarm, and all are to be woken. PASSED-OVER
    #[cold]
    fn set_alarm(&self) -> bool {
        self.own.upgrade().is_none_or(|own| wake_later(Waker::from(own).into()))
    }

    /// Wakes all that write. For threads outside of runtimes. PASSED-OVER
    #[cold]
    pub(crate) fn wake_everyone(&self) {
        let mut wakers = Wakers::default();
        loop {
            let mut queue = self.queue.lock();
            queue.alarm = None;
            let now = self.written.load(Ordering::Relaxed);
            while !wakers.is_full() && queue.wake_next(true, now, &mut wakers) {}
            queue.pass_over();
            drop(queue);
            let more = wakers.is_full();
            wakers.wake_all();
            if !more {
                return;
            }
        }
    }
}

impl Wake for WatchList {
    /// Called when the timer fires. PASSED-OVER
    fn wake(self: Arc<Self>) {
        let mut wakers = Wakers::default();
        let mut queue = self.queue.lock();
        let Some(set_at) = queue.alarm.take() else { return };
        if set_at == queue.returned {
            queue.pass_over();
        }
        let now = self.written.load(Ordering::Relaxed);
        let needs_alarm = queue.pass_on(now, &mut wakers);
        drop(queue);
        if needs_alarm && !self.set_alarm() {
            self.wake_everyone();
        }
    }
}
