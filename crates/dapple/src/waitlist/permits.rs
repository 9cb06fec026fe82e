//! Permits that can be taken, released and waited for: what the semaphore, the mutex and the
//! read-write lock are made of.
//!
//! A newcomer who finds nobody in line takes what is free, with one compare-and-swap. Whoever
//! releases adds to what is free, with one addition, and wakes the first in line if there is one.
//! A newcomer who finds others in line takes only if enough is left for all of them; otherwise he
//! gives way once: he joins the line, and takes what is free when he is polled again, unless one
//! who sleeps ahead of him waits for more than is free.
//!
//! # Invariants
//!
//! * **FREE-UNTIL-POLLED**: permits are handed to nobody. They are free until somebody takes them in
//!   his own poll, so that a waiter that is leaked or forgotten keeps none.
//! * **FLAGS**: `WAITERS` is set while the line is not empty, `SLEEPERS` while somebody in it has not
//!   been woken, `WOKEN` while somebody has been. They are changed under the lock of the line, and lie in the
//!   word of the free permits:
//!   a waiter that goes to sleep has looked at them after (or as) it was set, and one who releases
//!   sees it or is seen. While all in line have been woken, nobody else needs the lock.
//! * **WAITER-WOKEN**: if something is free and somebody sleeps who could take it, somebody has been woken
//!   for it, or is about to be by the one who released it. Whoever was woken and leaves without
//!   taking, or takes and leaves some, wakes the next.
//! * **TAKEN-BY-OTHERS**: who takes permits may find that others have some of them, who did not take them
//!   here (the readers of a `Shared`, in their slots). From then on those have them, and release them; who
//!   took gives back the rest, keeps his place and waits for all.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::wait::{Wait, Wakers};
use super::wait_queue::WaitQueue;
use crate::prim::{AtomicU8, AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::task::guarded::GuardedWaker;

/// Somebody is in line. FLAGS
pub(crate) const WAITERS: usize = 1;
/// Somebody is in line who has not been woken. FLAGS
const SLEEPERS: usize = 2;
/// No permits are given out any more. Never unset.
const CLOSED: usize = 4;
/// Somebody is in line who has been woken, and not been polled since. FLAGS
const WOKEN: usize = 8;
/// For whoever has the permits to say something by: see [`Permits::mark`].
pub(crate) const MARK: usize = 16;
/// One who was woken came too late, so that nobody may go ahead of those in line. FLAGS
const HUNGRY: usize = 32;
/// A second mark: see [`Permits::watch`].
pub(crate) const WATCHED: usize = 64;
/// The free permits are counted above the flags.
pub(crate) const ONE: usize = 128;

/// So often nobody is woken while one who was woken has yet to come.
const SKIPS: u8 = 128;

/// What is shown of the line. FLAGS
const SHOWN: usize = WAITERS | SLEEPERS | WOKEN | HUNGRY;

/// The most permits that there can be.
pub(crate) const MAX: usize = usize::MAX >> 8;

#[repr(C)] // the word first, near what it guards
pub(crate) struct Permits {
    word: AtomicUsize,
    /// What those in line need together, for newcomers who do not look at the line.
    needs: AtomicUsize,
    /// Made when somebody first waits.
    line: Mutex<Option<Box<WaitQueue>>>,
}

/// The line, locked.
struct Locked<'a>(MutexGuard<'a, Option<Box<WaitQueue>>>);

impl std::ops::Deref for Locked<'_> {
    type Target = WaitQueue;

    fn deref(&self) -> &WaitQueue {
        self.0.as_ref().expect("made when it was locked")
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut WaitQueue {
        self.0.as_mut().expect("made when it was locked")
    }
}

/// Why permits could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitRefusal {
    /// There are not enough.
    Busy,
    Closed,
    Cancelled,
}

impl Permits {
    pub(crate) fn new(permits: usize) -> Permits {
        assert!(permits <= MAX, "more than {MAX} permits");
        Permits { word: AtomicUsize::new(permits * ONE), needs: AtomicUsize::new(0), line: Mutex::default() }
    }

    fn lock_line(&self) -> Locked<'_> {
        let mut line = lock(&self.line);
        line.get_or_insert_default();
        Locked(line)
    }

    /// How many are free now.
    pub(crate) fn free(&self) -> usize {
        self.word.load(Ordering::Acquire) / ONE
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Takes what is free now, whoever is in line.
    #[inline]
    pub(crate) fn try_take(&self, need: usize) -> Result<(), PermitRefusal> {
        self.take_if(need, |_| need)
    }

    /// Takes what is free now, if that leaves enough for those in line.
    #[inline]
    fn take_leaving_enough(&self, need: usize) -> Result<(), PermitRefusal> {
        self.take_if(need, |word| match word & WAITERS {
            0 => need,
            _ => need.saturating_add(self.needs.load(Ordering::Relaxed)),
        })
    }

    /// Takes what is free now, if so many are that `enough` says.
    #[inline]
    fn take_if(&self, need: usize, enough: impl Fn(usize) -> usize) -> Result<(), PermitRefusal> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return Err(PermitRefusal::Closed);
            }
            if word / ONE < enough(word) {
                return Err(PermitRefusal::Busy);
            }
            let taken = word - need * ONE;
            // Those who are not counted look at the word after they have shown themselves. TAKEN-BY-OTHERS
            match self.word.compare_exchange_weak(word, taken, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// The word: what is free, in units of `ONE`, and the flags.
    #[inline]
    pub(crate) fn word(&self) -> usize {
        self.word.load(Ordering::SeqCst)
    }

    /// Says that the word is about to be changed: it may be far.
    #[inline]
    pub(crate) fn glance(&self) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        // SAFETY: a hint, which has no effect but on the cache.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(&self.word).cast());
        }
    }

    /// Takes all of so many, if all are free, nobody is in line, and there is no mark.
    #[inline]
    pub(crate) fn take_all_at_once(&self, all: usize) -> bool {
        self.word.compare_exchange(all * ONE, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Sets `MARK` in the word, or unsets it.
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

    /// Takes what is free now, if nobody is in line, and the others have none of it. TAKEN-BY-OTHERS
    #[inline]
    pub(crate) fn take_but(&self, need: usize, others: impl FnOnce() -> usize) -> Result<(), PermitRefusal> {
        self.take_leaving_enough(need)?;
        self.settle(need, others())
    }

    /// As `take_but`, for one who has given way already: takes what is free ahead of those in line, unless one
    /// who sleeps there waits for more than that, or one who was woken came too late.
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
            let line = self.lock_line();
            if !line.lets_through(self.free()) {
                return Err(PermitRefusal::Busy);
            }
            self.try_take(need)?;
        }
        self.settle(need, others())
    }

    /// Gives back what is left of so many that were taken, if others have some of them. TAKEN-BY-OTHERS
    #[inline]
    fn settle(&self, need: usize, others: usize) -> Result<(), PermitRefusal> {
        if others == 0 {
            return Ok(());
        }
        self.release(need - others);
        Err(PermitRefusal::Busy)
    }

    /// Gives permits back, or adds some. There must not be more than `MAX` then.
    #[inline]
    pub(crate) fn release(&self, permits: usize) {
        let word = self.word.fetch_add(permits * ONE, Ordering::AcqRel); // FLAGS
        if word & SLEEPERS != 0 && permits != 0 {
            self.wake(self.lock_line(), permits);
        }
    }

    /// As `release`, but while one who was woken has not been polled, who will take it or pass it on, it wakes
    /// somebody only now and then, by this count. For those who look again by themselves if he does not come.
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
        skipped.store((skips + 1) % (SKIPS + 1), Ordering::Relaxed); // a guess, if others come between
        if skips >= SKIPS {
            self.wake(self.lock_line(), permits);
        }
    }

    /// Nobody is to go ahead of those in line until one of them has been served.
    pub(crate) fn is_hungry(&self) {
        let mut line = self.lock_line();
        line.is_hungry = !line.is_empty();
        self.show(&line);
    }

    /// Gives nothing out from now on. Those in line are not told: [`close`](Permits::close) is to follow.
    pub(crate) fn begin_close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Refuses everybody, now and from now on.
    pub(crate) fn close(&self) {
        self.begin_close();
        let mut wakers = Wakers::default();
        loop {
            let mut line = self.lock_line();
            while line.wake_next(&mut wakers) {}
            let more = line.next_need().is_some();
            self.show(&line);
            drop(line);
            wakers.wake_all();
            if !more {
                return;
            }
        }
    }

    /// Shows to those outside of the lock what the line has become. Says what is free. FLAGS
    fn show(&self, line: &WaitQueue) -> usize {
        self.needs.store(line.needs(), Ordering::Relaxed);
        let waiters = if line.is_empty() { 0 } else { WAITERS };
        let sleepers = if line.next_need().is_none() { 0 } else { SLEEPERS };
        let woken = if line.claims() == 0 { 0 } else { WOKEN };
        let flags = waiters | sleepers | woken | if line.is_hungry { HUNGRY } else { 0 };
        let word = self.word.load(Ordering::Relaxed);
        if word & SHOWN == flags {
            return word / ONE; // only we change them
        }
        self.word.fetch_or(flags, Ordering::AcqRel);
        self.word.fetch_and(flags | !SHOWN, Ordering::AcqRel) / ONE
    }

    /// Wakes the next in line, as far as `permits` go. WAITER-WOKEN
    #[cold]
    fn wake<'a>(&'a self, mut line: Locked<'a>, permits: usize) {
        let mut wakers = Wakers::default();
        let mut left = permits;
        loop {
            let free = self.free();
            // Those that were woken may be gone for good: what was just released goes to others.
            left = left.max(free.saturating_sub(line.claims()));
            // The first may need more than was released now, if it is there.
            let mut most = if left > 0 { free } else { 0 };
            while let Some(need) = line.next_need()
                && need <= most
                && line.wake_next(&mut wakers)
            {
                left = left.saturating_sub(need);
                most = left.min(free);
            }
            let full = wakers.is_full();
            self.show(&line);
            drop(line);
            wakers.wake_all();
            if !full {
                return;
            }
            line = self.lock_line();
        }
    }

    /// Takes permits, or waits in line for them.
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
            // In a race that another has won: what it was woken for goes to the next in line. EXACT
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

    /// As `poll_take`, for a wait that has begun and could not be had at once. `others` says, of so many as
    /// were just taken, how many others turn out to have; it is asked under the lock, and must neither wait
    /// nor run foreign code. TAKEN-BY-OTHERS. `late`: it was not woken, and comes to see whether those have
    /// come who were.
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
        let mut line = self.lock_line();
        let mut word = self.word.load(Ordering::Acquire);
        let result = loop {
            if word & CLOSED != 0 {
                break Some(Err(PermitRefusal::Closed));
            }
            let takes = (word / ONE).checked_sub(need).is_some_and(|left| left >= line.needs());
            let next = if takes { word - need * ONE } else { word | WAITERS | SLEEPERS };
            match self.word.compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) if !takes => break None,
                Ok(_) => match others() {
                    0 => break Some(Ok(())),
                    // Back again, and once more: now it will have to wait.
                    others => {
                        let back = (need - others) * ONE;
                        word = self.word.fetch_add(back, Ordering::AcqRel) + back;
                    }
                },
                Err(now) => word = now,
            }
        };
        if let Some(result) = result {
            drop(line);
            drop(waker);
            place.wait.end();
            return Poll::Ready(result);
        }
        let gives_way = word / ONE >= need && line.lets_through(word / ONE);
        let mut waker = Some(waker);
        place.key = Some(line.join(need, if gives_way { None } else { waker.take() }));
        self.show(&line);
        drop(line);
        // Gives way to those who were woken for it, and then comes back without being told.
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
        let mut line = self.lock_line();
        if late {
            line.lose_woken(key);
        }
        let result = match line.may_take(key, self.free()) {
            true => self.try_take(need).and_then(|()| match others() {
                0 => Ok(()),
                others => {
                    // Whoever sleeps is told below: we have the lock.
                    self.word.fetch_add((need - others) * ONE, Ordering::AcqRel);
                    Err(PermitRefusal::Busy)
                }
            }),
            false if self.is_closed() => Err(PermitRefusal::Closed),
            false => Err(PermitRefusal::Busy),
        };
        line.is_hungry = result == Err(PermitRefusal::Busy) && (line.is_hungry || line.is_woken(key));
        if result == Err(PermitRefusal::Busy) && !cancelled {
            let old = if line.wakes_same(key, cx.waker()) { Some(waker) } else { line.sleep(key, waker) };
            // What is free may be meant for one who will not come for it: let one more see. WAITER-WOKEN
            let free = self.show(&line);
            if line.claims() <= free && line.next_need().is_some_and(|need| need <= free) {
                self.wake(line, 1);
            } else {
                drop(line);
            }
            drop(old);
            place.wait.rest(cx, &"a lock or permits");
            return Poll::Pending;
        }
        let passed_on = if result.is_err() && line.is_woken(key) { need } else { 0 };
        let old = self.leave(place, line, key, passed_on);
        drop((old, waker));
        place.wait.end();
        Poll::Ready(result.map_err(|refused| {
            if refused == PermitRefusal::Busy { PermitRefusal::Cancelled } else { refused }
        }))
    }

    /// Takes a waiter out of the line, and wakes those whom that lets through, or whom he was woken
    /// in place of. WAITER-WOKEN
    fn leave(
        &self,
        place: &mut WaitTicket,
        mut line: Locked<'_>,
        key: usize,
        passed_on: usize,
    ) -> Option<GuardedWaker> {
        place.key = None;
        let waker = line.leave(key);
        let free = self.show(&line);
        if free > 0 && line.next_need().is_some() {
            self.wake(line, passed_on);
        }
        waker
    }

    /// Gives up waiting for so many.
    #[cold]
    pub(crate) fn give_up(&self, place: &mut WaitTicket, need: usize) {
        if let Some(key) = place.key {
            let line = self.lock_line();
            let passed_on = if line.is_woken(key) { need } else { 0 };
            drop(self.leave(place, line, key, passed_on));
        }
        place.wait.give_up();
    }
}

/// Where a waiter is in line.
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
    /// That of a wait that has begun.
    pub(crate) fn begun() -> WaitTicket {
        WaitTicket { key: None, wait: Wait::begun() }
    }

    /// At the head of a poll, for who tries something else before permits.
    #[inline]
    pub(crate) fn wait(&mut self) -> &mut Wait {
        &mut self.wait
    }

    #[inline]
    pub(crate) fn is_in_line(&self) -> bool {
        self.key.is_some()
    }
}

/// A wait for permits.
pub(crate) struct PermitWait<'a> {
    permits: &'a Permits,
    need: usize,
    place: WaitTicket,
}

impl<'a> PermitWait<'a> {
    pub(crate) fn new(permits: &'a Permits, need: usize) -> PermitWait<'a> {
        PermitWait { permits, need, place: WaitTicket::default() }
    }

    /// A wait that is not to be cancelled.
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
