//! Permits that can be taken, released and waited for: the base of semaphore, mutex and read-write lock.
//!
//! A caller that finds the queue empty takes free permits with one compare-and-swap. A releaser adds to the
//! free permits with one addition, and wakes the first waiter, if any. A caller that finds waiters takes only
//! if enough is left for all of them. Otherwise it yields to them once: it joins the queue, and when polled
//! again takes the free permits, unless a sleeper ahead of it needs more than is free.
//!
//! # Invariants
//!
//! * **FREE-UNTIL-POLLED**: permits are never assigned to a waiter. They stay free until a waiter takes them
//!   in its own poll, so a leaked or forgotten waiter holds none.
//! * **FLAGS**: `WAITERS` is set while the queue is not empty, `SLEEPERS` while a waiter in it has not been
//!   woken, `WOKEN` while a waiter has been woken and not polled. The flags change only under the queue's
//!   lock, and share a word with the free permits. A waiter sets `SLEEPERS` before or together with its last
//!   look at the free permits. So either the releaser sees the flag, or the waiter sees the released permits.
//!   While all waiters have been woken, callers outside of the queue need no lock.
//! * **WAITER-WOKEN**: if permits are free and a sleeper could take them, a waiter has been woken for them,
//!   or the releaser is about to wake one. A woken waiter that leaves without taking, or takes only some,
//!   wakes the next waiter.
//! * **TAKEN-BY-OTHERS**: a caller that takes permits may find that some belong to readers that took none
//!   here (readers of a `Shared`, registered in reader slots). From then on these readers hold those permits
//!   and release them. The caller gives back the rest, keeps its place, and waits for all permits.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::wait::{Wait, Wakers};
use super::wait_queue::WaitQueue;
use crate::prim::{AtomicU8, AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::task::guarded::GuardedWaker;

/// A waiter is in the queue. FLAGS
pub(crate) const WAITERS: usize = 1;
/// A waiter in the queue has not been woken. FLAGS
const SLEEPERS: usize = 2;
/// No permits are given out any more. Never unset.
const CLOSED: usize = 4;
/// A waiter in the queue has been woken and not polled since. FLAGS
const WOKEN: usize = 8;
/// Free for the owner of the permits to use: see [`Permits::mark`].
pub(crate) const MARK: usize = 16;
/// A woken waiter came too late to be served, so callers may not overtake the queue. FLAGS
const HUNGRY: usize = 32;
/// A second mark: see [`Permits::watch`].
pub(crate) const WATCHED: usize = 64;
/// The free permits are counted above the flags.
pub(crate) const ONE: usize = 128;

/// Most releases in a row that wake no waiter while a woken waiter is unpolled.
const SKIPS: u8 = 128;

/// Flags that `show` copies from the queue to the word. FLAGS
const SHOWN: usize = WAITERS | SLEEPERS | WOKEN | HUNGRY;

/// The most permits that there can be.
pub(crate) const MAX: usize = usize::MAX >> 8;

#[repr(C)] // the word first, near the value that it guards
pub(crate) struct Permits {
    word: AtomicUsize,
    /// Sum of the waiters' needs, for callers that do not lock the queue.
    needs: AtomicUsize,
    /// Allocated by the first waiter.
    queue: Mutex<Option<Box<WaitQueue>>>,
}

/// The queue, locked.
struct Locked<'a>(MutexGuard<'a, Option<Box<WaitQueue>>>);

impl std::ops::Deref for Locked<'_> {
    type Target = WaitQueue;

    fn deref(&self) -> &WaitQueue {
        self.0.as_ref().expect("allocated by lock_queue")
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut WaitQueue {
        self.0.as_mut().expect("allocated by lock_queue")
    }
}

/// Reason why permits could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitRefusal {
    /// Not enough permits are free.
    Busy,
    Closed,
    Cancelled,
}

impl Permits {
    pub(crate) fn new(permits: usize) -> Permits {
        assert!(permits <= MAX, "more than {MAX} permits");
        Permits { word: AtomicUsize::new(permits * ONE), needs: AtomicUsize::new(0), queue: Mutex::default() }
    }

    fn lock_queue(&self) -> Locked<'_> {
        let mut queue = lock(&self.queue);
        queue.get_or_insert_default();
        Locked(queue)
    }

    /// Number of free permits.
    pub(crate) fn free(&self) -> usize {
        self.word.load(Ordering::Acquire) / ONE
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Takes free permits, even ahead of waiters.
    #[inline]
    pub(crate) fn try_take(&self, need: usize) -> Result<(), PermitRefusal> {
        self.take_if(need, |_| need)
    }

    /// Takes free permits if enough are left for all waiters.
    #[inline]
    fn take_leaving_enough(&self, need: usize) -> Result<(), PermitRefusal> {
        self.take_if(need, |word| match word & WAITERS {
            0 => need,
            _ => need.saturating_add(self.needs.load(Ordering::Relaxed)),
        })
    }

    /// Takes `need` permits if at least `enough(word)` are free.
    #[inline]
    fn take_if(&self, need: usize, enough: impl Fn(usize) -> usize) -> Result<(), PermitRefusal> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                let closed = self.is_closed(); // acquires what was written before the closing
                debug_assert!(closed, "never unset");
                return Err(PermitRefusal::Closed);
            }
            if word / ONE < enough(word) {
                return Err(PermitRefusal::Busy);
            }
            let taken = word - need * ONE;
            // SeqCst: an uncounted reader fills its slot first and reads the word after. TAKEN-BY-OTHERS
            match self.word.compare_exchange_weak(word, taken, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// The word: free permits, in units of `ONE`, and flags.
    #[inline]
    pub(crate) fn word(&self) -> usize {
        self.word.load(Ordering::SeqCst)
    }

    /// Prefetches the word for writing: its cache line may be in another core.
    #[inline]
    pub(crate) fn glance(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch hint, which affects only the cache.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(&self.word).cast());
        }
    }

    /// Takes all `all` permits if they are free, the queue is empty, and no mark is set.
    #[inline]
    pub(crate) fn take_all_at_once(&self, all: usize) -> bool {
        self.word.compare_exchange(all * ONE, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// As `take_all_at_once`, also if the value is watched. It looks before it takes: for callers that have prefetched.
    #[inline]
    pub(crate) fn take_all_glanced(&self, all: usize) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & !WATCHED == all * ONE
            && self.word.compare_exchange(word, word & WATCHED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Sets or clears `MARK` in the word.
    pub(crate) fn mark(&self, set: bool) {
        if set {
            self.word.fetch_or(MARK, Ordering::SeqCst);
        } else {
            self.word.fetch_and(!MARK, Ordering::SeqCst);
        }
    }

    /// Whether `WATCHED` is set. For the holder of all permits: it alone, or a holder before it, has set it.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WATCHED != 0
    }

    /// Sets `WATCHED` in the word, or unsets it.
    pub(crate) fn watch(&self, set: bool) {
        if set {
            self.word.fetch_or(WATCHED, Ordering::AcqRel);
        } else {
            self.word.fetch_and(!WATCHED, Ordering::AcqRel);
        }
    }

    /// Takes `need` free permits if enough are left for all waiters, and none of them belongs to an uncounted holder
    /// (`others`). TAKEN-BY-OTHERS
    #[inline]
    pub(crate) fn take_but(&self, need: usize, others: impl FnOnce() -> usize) -> Result<(), PermitRefusal> {
        self.take_leaving_enough(need)?;
        self.settle(need, others())
    }

    /// As `take_but`, for a caller that has yielded to waiters before. It takes free permits ahead of them,
    /// unless a sleeper needs more than is free, or a woken waiter came too late.
    pub(crate) fn take_free_but(
        &self,
        need: usize,
        others: impl FnOnce() -> usize,
    ) -> Result<(), PermitRefusal> {
        let word = self.word.load(Ordering::Relaxed);
        if word / ONE < need || word & HUNGRY != 0 {
            return Err(PermitRefusal::Busy);
        }
        if word & SLEEPERS == 0 {
            self.try_take(need)?;
        } else {
            let queue = self.lock_queue();
            if !queue.lets_through(self.free()) {
                return Err(PermitRefusal::Busy);
            }
            self.try_take(need)?;
        }
        self.settle(need, others())
    }

    /// Gives back the rest of `need` taken permits if `others` of them belong to uncounted holders.
    /// TAKEN-BY-OTHERS
    #[inline]
    fn settle(&self, need: usize, others: usize) -> Result<(), PermitRefusal> {
        if others == 0 {
            return Ok(());
        }
        self.release(need - others);
        Err(PermitRefusal::Busy)
    }

    /// Releases permits, or adds new ones. The sum must stay within `MAX`.
    #[inline]
    pub(crate) fn release(&self, permits: usize) {
        let word = self.word.fetch_add(permits * ONE, Ordering::AcqRel); // FLAGS
        if word & SLEEPERS != 0 && permits != 0 {
            self.wake(self.lock_queue(), permits);
        }
    }

    /// As `release`, but wakes rarely while a woken waiter is unpolled: that waiter will take the permits or
    /// pass them on. `skipped` counts the releases that woke no waiter. Only for waiters that re-check by a
    /// timer in case the woken waiter is never polled.
    #[inline]
    pub(crate) fn release_to_one(&self, permits: usize, skipped: &AtomicU8) {
        let word = self.word.fetch_add(permits * ONE, Ordering::AcqRel); // FLAGS
        if word & SLEEPERS != 0 {
            self.wake_one(word, permits, skipped);
        }
    }

    #[cold]
    fn wake_one(&self, word: usize, permits: usize, skipped: &AtomicU8) {
        let skips = if word & WOKEN == 0 { SKIPS } else { skipped.load(Ordering::Relaxed) };
        skipped.store((skips + 1) % (SKIPS + 1), Ordering::Relaxed); // approximate if releasers race
        if skips >= SKIPS {
            self.wake(self.lock_queue(), permits);
        }
    }

    /// Forbids callers to overtake the queue until one of its waiters has been served.
    pub(crate) fn is_hungry(&self) {
        let mut queue = self.lock_queue();
        queue.is_hungry = !queue.is_empty();
        self.show(&queue);
    }

    /// Stops giving out permits. Does not wake the waiters: [`close`](Permits::close) must follow.
    pub(crate) fn begin_close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Refuses permits from now on, to waiters as well.
    pub(crate) fn close(&self) {
        self.begin_close();
        let mut wakers = Wakers::default();
        loop {
            let mut queue = self.lock_queue();
            while queue.wake_next(&mut wakers) {}
            let more = queue.next_need().is_some();
            self.show(&queue);
            drop(queue);
            wakers.wake_all();
            if !more {
                return;
            }
        }
    }

    /// Publishes the queue's state in the word's flags and in `needs`. Returns the number of free permits.
    /// FLAGS
    fn show(&self, queue: &WaitQueue) -> usize {
        self.needs.store(queue.needs(), Ordering::Relaxed);
        let waiters = if queue.is_empty() { 0 } else { WAITERS };
        let sleepers = if queue.next_need().is_none() { 0 } else { SLEEPERS };
        let woken = if queue.claims() == 0 { 0 } else { WOKEN };
        let flags = waiters | sleepers | woken | if queue.is_hungry { HUNGRY } else { 0 };
        let word = self.word.load(Ordering::Relaxed);
        if word & SHOWN == flags {
            return word / ONE; // flags change only under this lock
        }
        self.word.fetch_or(flags, Ordering::AcqRel);
        self.word.fetch_and(flags | !SHOWN, Ordering::AcqRel) / ONE
    }

    /// Wakes waiters, in order, as far as `permits` go. WAITER-WOKEN
    #[cold]
    fn wake<'a>(&'a self, mut queue: Locked<'a>, permits: usize) {
        let mut wakers = Wakers::default();
        let mut left = permits;
        loop {
            let free = self.free();
            // Woken waiters may never be polled, so permits just released may wake further waiters.
            left = left.max(free.saturating_sub(queue.claims()));
            // The first waiter may use all free permits, not only those released now.
            let mut most = if left > 0 { free } else { 0 };
            while let Some(need) = queue.next_need()
                && need <= most
                && queue.wake_next(&mut wakers)
            {
                left = left.saturating_sub(need);
                most = left.min(free);
            }
            let full = wakers.is_full();
            self.show(&queue);
            drop(queue);
            wakers.wake_all();
            if !full {
                return;
            }
            queue = self.lock_queue();
        }
    }

    /// Takes permits, or waits in the queue for them.
    #[inline]
    pub(crate) fn poll_take(
        &self,
        place: &mut WaitTicket,
        need: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PermitRefusal>> {
        let begun = ready!(place.wait.begin(cx));
        let result = match (begun, place.key) {
            (Err(_), None) => Err(PermitRefusal::Cancelled),
            // Another branch of a race has won: permits meant for this waiter go to the next one. EXACT
            (Err(_), Some(_)) => {
                self.give_up(place, need);
                return Poll::Ready(Err(PermitRefusal::Cancelled));
            }
            (Ok(()), Some(_)) => return self.poll_wait(place, need, cx, false, || 0),
            (Ok(()), None) => match self.take_leaving_enough(need) {
                Err(PermitRefusal::Busy) => return self.poll_wait(place, need, cx, false, || 0),
                result => result,
            },
        };
        place.wait.end();
        Poll::Ready(result)
    }

    /// As `poll_take`, for a started wait that could not be served at once.
    ///
    /// `others` returns how many of the permits just taken belong to uncounted holders (TAKEN-BY-OTHERS). It
    /// is called under the lock, and must neither wait nor run foreign code. `late`: a timer woke the caller,
    /// which now checks whether the woken waiters have been polled.
    pub(crate) fn poll_wait(
        &self,
        place: &mut WaitTicket,
        need: usize,
        cx: &mut Context<'_>,
        late: bool,
        others: impl Fn() -> usize,
    ) -> Poll<Result<(), PermitRefusal>> {
        match place.key {
            Some(key) => self.poll_in_line(place, key, need, cx, late, others),
            None => self.poll_newcomer(place, need, cx, others),
        }
    }

    #[cold]
    fn poll_newcomer(
        &self,
        place: &mut WaitTicket,
        need: usize,
        cx: &mut Context<'_>,
        others: impl Fn() -> usize,
    ) -> Poll<Result<(), PermitRefusal>> {
        let waker = GuardedWaker::of(cx.waker());
        let mut queue = self.lock_queue();
        let mut word = self.word.load(Ordering::Acquire);
        let result = loop {
            if word & CLOSED != 0 {
                break Some(Err(PermitRefusal::Closed));
            }
            let takes = (word / ONE).checked_sub(need).is_some_and(|left| left >= queue.needs());
            let next = if takes { word - need * ONE } else { word | WAITERS | SLEEPERS };
            match self.word.compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) if !takes => break None,
                Ok(_) => match others() {
                    0 => break Some(Ok(())),
                    // Release the rest and try again; then too few are free and the caller waits.
                    others => {
                        let back = (need - others) * ONE;
                        word = self.word.fetch_add(back, Ordering::AcqRel) + back;
                    }
                },
                Err(now) => word = now,
            }
        };
        if let Some(result) = result {
            drop(queue);
            drop(waker);
            place.wait.end();
            return Poll::Ready(result);
        }
        let gives_way = word / ONE >= need && queue.lets_through(word / ONE);
        let mut waker = Some(waker);
        place.key = Some(queue.join(need, if gives_way { None } else { waker.take() }));
        self.show(&queue);
        drop(queue);
        // Yields to the woken waiters, then is polled again by its own wake-up.
        waker.into_iter().for_each(GuardedWaker::wake);
        place.wait.rest(cx, &"a lock or permits");
        Poll::Pending
    }

    #[cold]
    fn poll_in_line(
        &self,
        place: &mut WaitTicket,
        key: usize,
        need: usize,
        cx: &mut Context<'_>,
        late: bool,
        others: impl Fn() -> usize,
    ) -> Poll<Result<(), PermitRefusal>> {
        let waker = GuardedWaker::of(cx.waker());
        let cancelled = place.wait.is_cancelled();
        let mut queue = self.lock_queue();
        if late {
            queue.lose_woken(key);
        }
        let result = match queue.may_take(key, self.free()) {
            true => self.try_take(need).and_then(|()| match others() {
                0 => Ok(()),
                others => {
                    // No wake-up here: this function holds the lock and wakes sleepers below.
                    self.word.fetch_add((need - others) * ONE, Ordering::AcqRel);
                    Err(PermitRefusal::Busy)
                }
            }),
            false if self.is_closed() => Err(PermitRefusal::Closed),
            false => Err(PermitRefusal::Busy),
        };
        queue.is_hungry = result == Err(PermitRefusal::Busy) && (queue.is_hungry || queue.is_woken(key));
        if result == Err(PermitRefusal::Busy) && !cancelled {
            let old = if queue.wakes_same(key, cx.waker()) { Some(waker) } else { queue.sleep(key, waker) };
            // The free permits may be meant for a waiter that is never polled: wake one more. WAITER-WOKEN
            let free = self.show(&queue);
            if queue.claims() <= free && queue.next_need().is_some_and(|need| need <= free) {
                self.wake(queue, 1);
            } else {
                drop(queue);
            }
            drop(old);
            place.wait.rest(cx, &"a lock or permits");
            return Poll::Pending;
        }
        let passed_on = if result.is_err() && queue.is_woken(key) { need } else { 0 };
        let old = self.leave(place, queue, key, passed_on);
        drop((old, waker));
        place.wait.end();
        Poll::Ready(result.map_err(|refused| {
            if refused == PermitRefusal::Busy { PermitRefusal::Cancelled } else { refused }
        }))
    }

    /// Removes a waiter and wakes the waiters that this lets through. `passed_on` is the number of permits
    /// that the waiter was woken for and did not take. WAITER-WOKEN
    fn leave(
        &self,
        place: &mut WaitTicket,
        mut queue: Locked<'_>,
        key: usize,
        passed_on: usize,
    ) -> Option<GuardedWaker> {
        place.key = None;
        let waker = queue.leave(key);
        let free = self.show(&queue);
        if free > 0 && queue.next_need().is_some() {
            self.wake(queue, passed_on);
        }
        waker
    }

    /// Ends a wait for `need` permits.
    #[cold]
    pub(crate) fn give_up(&self, place: &mut WaitTicket, need: usize) {
        if let Some(key) = place.key {
            let queue = self.lock_queue();
            let passed_on = if queue.is_woken(key) { need } else { 0 };
            drop(self.leave(place, queue, key, passed_on));
        }
        place.wait.give_up();
    }
}

/// A waiter's place in the queue, and its wait.
#[derive(Default)]
pub(crate) struct WaitTicket {
    key: Option<usize>,
    wait: Wait,
}

impl From<Wait> for WaitTicket {
    fn from(wait: Wait) -> WaitTicket {
        WaitTicket { key: None, wait }
    }
}

impl WaitTicket {
    /// For a wait that has begun.
    pub(crate) fn begun() -> WaitTicket {
        WaitTicket { key: None, wait: Wait::begun() }
    }

    /// The wait itself, for callers that try another way before they poll for permits.
    #[inline]
    pub(crate) fn wait(&mut self) -> &mut Wait {
        &mut self.wait
    }

    #[inline]
    pub(crate) fn is_in_line(&self) -> bool {
        self.key.is_some()
    }
}

/// Future that waits for permits.
pub(crate) struct PermitWait<'a> {
    permits: &'a Permits,
    need: usize,
    place: WaitTicket,
}

impl<'a> PermitWait<'a> {
    pub(crate) fn new(permits: &'a Permits, need: usize) -> PermitWait<'a> {
        PermitWait { permits, need, place: WaitTicket::default() }
    }

    /// A wait that ignores cancellation.
    pub(crate) fn shielded(permits: &'a Permits, need: usize) -> PermitWait<'a> {
        PermitWait { permits, need, place: WaitTicket { key: None, wait: Wait::shielded() } }
    }
}

impl Future for PermitWait<'_> {
    type Output = Result<(), PermitRefusal>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.permits.poll_take(&mut this.place, this.need, cx)
    }
}

impl Drop for PermitWait<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.place.key.is_some() {
            self.permits.give_up(&mut self.place, self.need);
        }
    }
}
