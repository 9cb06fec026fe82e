//! Access lock of a state: many readers, or one writer.
//!
//! An access lock is a number of permits ([`Permits`]). A writer takes all of them. A reader takes one, or,
//! in the common case, none: it registers in a slot of its thread ([`reader_slots`](super::reader_slots)),
//! which no other processor reads until a writer comes.
//!
//! ```text
//! reader:  register in a slot; read the word: no writer, no waiter      --> enters
//! writer:  take all permits; scan the slots: no reader                  --> enters
//!          a reader is found: spin a little, then count it: from now on the reader holds one of the
//!          permits, and releases it when it leaves; the writer waits in the queue for all permits
//! ```
//!
//! docs/design/shared.md describes how callers that find the state in use are treated.
//!
//! # Invariants
//!
//! * **SHOW-THEN-LOOK**: a reader registers first and reads the word second; a writer takes the permits first
//!   and scans the slots second. So of a reader and a writer that arrive together at least one sees the
//!   other. All four steps are sequentially consistent.
//! * **SLOTTED**: the word has a mark while slots may be in use. A reader that enters by a slot has
//!   registered first, and has then seen, in one load, the mark and no writer. Only a writer that holds all
//!   permits and found all slots empty clears the mark. So no slot names a lock without the mark, and a
//!   writer need not scan.
//! * **ONE-WRITER**: a caller that holds all permits and found no reader in the slots is alone. Taking a
//!   permit acquires all writes that its release published, and so does finding a slot empty.
//! * **ONE-WOKEN**: a holder that leaves wakes the first waiter, unless a woken waiter has not been polled
//!   yet: that one will take the access or pass it on. If many holders leave meanwhile, the next waiter is
//!   woken as well; and each sleeping waiter re-checks by a timer. So a waiter that is never polled delays no
//!   other.

use std::task::{Context, Poll, ready};

use super::reader_slots::{ReaderSlot, ReaderSlots, Registry};
use super::retry_timer::{AGAIN, WakeTimer, hurry};
use super::watch_list::{WatchPlace, WatchPoint, Watchers};
use crate::context::with_context;
use crate::prim::{AtomicU8, AtomicU32, IS_MODEL, Ordering, step_fence};
use crate::waitlist::permits::{MARK, ONE, PermitRefusal, Permits, WAITERS, WaitTicket};
use crate::waitlist::wait::{GuardedWaker, Wait, Wakers};
use crate::world::look_out;

/// Most readers that can be counted at a time.
const READERS: usize = u32::MAX as usize;

/// Longest time that a caller spins for a state in use before it joins the queue: the holder is running and
/// will leave soon. In units of the processor's pause instruction, some tens of nanoseconds.
const PATIENCE: u8 = if IS_MODEL { 1 } else { 30 };

/// A state found in use again within this many microseconds is contended. Spinning is then expensive: all
/// tasks are done sooner if they take turns on one processor.
const SHORTLY: u32 = 20;

/// A waiter that was woken this often without being served, or that holds other states, re-checks `LOOKS`
/// times with a pause of `PAUSE` in between before it sleeps again: some 20 microseconds.
const TOO_LATE: u8 = 2;
const LOOKS: u32 = if IS_MODEL { 1 } else { 64 };
const PAUSE: u8 = 16;

/// After this many scans in a row that found no reader, writers stop scanning.
const IN_VAIN: u8 = if IS_MODEL { 4 } else { 16 };

/// Access lock of a state. The head of this file describes the protocol.
#[repr(C)] // the word first, near the value that it guards
pub(crate) struct AccessLock {
    permits: Permits,
    /// Scans in a row that found no reader. Written by the sole holder.
    in_vain: AtomicU8,
    /// Releases that woke no waiter. ONE-WOKEN
    skipped: AtomicU8,
    /// How long spinning paid off lately: an estimate, at most `PATIENCE`.
    patience: AtomicU8,
    /// Time in microseconds at which a writer last found the state in use.
    in_use: AtomicU32,
    /// Every `when` that waits for a write.
    watchers: WatchPoint,
}

/// How a holder has entered.
#[derive(Clone, Copy)]
pub(crate) enum Hold<'a> {
    Writes,
    /// With a permit.
    Reads,
    /// By a slot of this thread.
    ReadsBy(&'a ReaderSlot),
}

/// A caller that wants to enter and may have to wait.
#[derive(Default)]
pub(crate) struct AccessWait {
    place: WaitTicket,
    /// The caller has yielded to waiters, or has been in the queue.
    gave_way: bool,
    /// How often the caller was polled in the queue and not served.
    too_late: u8,
    /// Timer for re-checks. ONE-WOKEN
    alarm: WakeTimer,
}

impl AccessLock {
    pub(crate) fn new() -> AccessLock {
        AccessLock {
            permits: Permits::new(READERS),
            in_vain: AtomicU8::new(0),
            skipped: AtomicU8::new(0),
            patience: AtomicU8::new(PATIENCE),
            in_use: AtomicU32::new(0),
            watchers: WatchPoint::new(),
        }
    }

    fn name(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Enters to read if there is no writer and no waiter. With `free`, also ahead of waiters that need no
    /// more than is free.
    #[inline]
    pub(crate) fn try_read<'a>(&self, free: bool, slots: Option<&'a ReaderSlots>) -> Option<Hold<'a>> {
        match slots.and_then(ReaderSlots::free) {
            _ if free => self.permits.take_free_but(1, || 0).ok().map(|()| Hold::Reads),
            Some(slot) => self.read_by(slot),
            None => self.permits.take_but(1, || 0).ok().map(|()| Hold::Reads),
        }
    }

    #[inline]
    fn read_by<'a>(&self, slot: &'a ReaderSlot) -> Option<Hold<'a>> {
        slot.name(self.name());
        loop {
            step_fence(); // SHOW-THEN-LOOK
            let word = self.permits.word();
            if word & WAITERS != 0 || word < ONE {
                // A writer that counted this reader meanwhile has let it in.
                return slot.empty().then_some(Hold::Reads);
            }
            if word & MARK != 0 {
                return Some(Hold::ReadsBy(slot)); // SLOTTED
            }
            self.permits.mark(true);
        }
    }

    /// Enters to read, even ahead of waiters.
    pub(crate) fn try_read_now(&self) -> Option<Hold<'static>> {
        self.permits.try_take(1).ok().map(|()| Hold::Reads)
    }

    /// Prefetches the word: a caller that enters several states waits for all cache lines at once.
    #[inline]
    pub(crate) fn glance(&self) {
        self.permits.glance();
    }

    /// Enters to write if there is no holder, no waiter, and no slot in use.
    #[inline]
    pub(crate) fn write_at_once(&self) -> bool {
        self.permits.take_all_at_once(READERS)
    }

    /// As `write_at_once`, also if a `when` waits for a write. For callers that have called `glance`.
    #[inline]
    pub(crate) fn write_glanced(&self) -> bool {
        self.permits.take_all_glanced(READERS)
    }

    /// Enters to write if there is no holder and no waiter. With `free`, also ahead of waiters.
    #[inline]
    pub(crate) fn try_write(&self, free: bool, registry: &Registry) -> Option<Hold<'static>> {
        let others = || self.readers(registry, PATIENCE);
        let taken = match free {
            true => self.permits.take_free_but(READERS, others),
            false => self.permits.take_but(READERS, others),
        };
        taken.ok().map(|()| Hold::Writes)
    }

    /// Enters to write if there is no holder, even ahead of waiters.
    pub(crate) fn try_write_now(&self, registry: &Registry) -> Option<Hold<'static>> {
        self.permits.try_take(READERS).ok()?;
        match self.readers(registry, PATIENCE) {
            0 => Some(Hold::Writes),
            readers => {
                self.permits.release(READERS - readers);
                None
            }
        }
    }

    /// Counts readers in slots as holders of permits, and returns their number. The caller has taken all
    /// permits. `patience` is how long it spins for each reader.
    #[inline]
    fn readers(&self, registry: &Registry, patience: u8) -> usize {
        step_fence(); // SHOW-THEN-LOOK
        if self.is_slotted() { self.count_readers(registry, patience) } else { 0 }
    }

    #[inline]
    fn is_slotted(&self) -> bool {
        self.permits.word() & MARK != 0
    }

    #[cold]
    fn count_readers(&self, registry: &Registry, patience: u8) -> usize {
        let (mut found, mut counted) = (false, 0);
        for slot in registry.named(self.name()) {
            found = true;
            let mut left = patience;
            while left > 0 && slot.names(self.name()) {
                look_out(1);
                left -= 1;
            }
            counted += usize::from(slot.names(self.name()) && slot.count(self.name()));
        }
        if counted == 0 {
            // The caller is alone, so it may write these fields. SLOTTED
            let in_vain = if found { 0 } else { self.in_vain.load(Ordering::Relaxed) + 1 };
            self.in_vain.store(in_vain % IN_VAIN, Ordering::Relaxed);
            if in_vain == IN_VAIN {
                self.permits.mark(false);
            }
        }
        counted
    }

    /// Waits for access to read. With `is_hungry`, no caller may overtake the queue.
    #[inline]
    pub(crate) fn poll_read<'a>(
        &self,
        waiting: &mut AccessWait,
        is_hungry: bool,
        slots: Option<&'a ReaderSlots>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Hold<'a>, PermitRefusal>> {
        if !waiting.is_in_line() {
            if let Err(refused) = ready!(waiting.begin(cx)) {
                return Poll::Ready(Err(refused));
            }
            if let Some(hold) = self.look_to_read(waiting.gave_way, slots) {
                waiting.end();
                return Poll::Ready(Ok(hold));
            }
        }
        self.poll_in_line(waiting, 1, is_hungry, cx, || 0).map_ok(|()| Hold::Reads)
    }

    /// Waits for access to write. `is_hungry` as for `poll_read`.
    #[inline]
    pub(crate) fn poll_write(
        &self,
        waiting: &mut AccessWait,
        is_hungry: bool,
        registry: &Registry,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Hold<'static>, PermitRefusal>> {
        if !waiting.is_in_line() {
            if let Err(refused) = ready!(waiting.begin(cx)) {
                return Poll::Ready(Err(refused));
            }
            if let Some(hold) = self.look_to_write(waiting.gave_way, registry) {
                self.has_written(waiting);
                waiting.end();
                return Poll::Ready(Ok(hold));
            }
        }
        self.poll_in_line(waiting, READERS, is_hungry, cx, || self.readers(registry, 0))
            .map_ok(|()| Hold::Writes)
    }

    /// Yields once, or waits in the queue.
    #[cold]
    fn poll_in_line(
        &self,
        waiting: &mut AccessWait,
        need: usize,
        is_hungry: bool,
        cx: &mut Context<'_>,
        others: impl Fn() -> usize,
    ) -> Poll<Result<(), PermitRefusal>> {
        if waiting.is_in_line() && waiting.place.wait().is_lost() {
            self.give_up(waiting, need == READERS);
            return Poll::Ready(Err(PermitRefusal::Cancelled)); // EXACT
        }
        if !waiting.is_in_line() {
            if !waiting.gave_way && self.permits.word() & WAITERS != 0 {
                waiting.gave_way = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // The task may have been cancelled since it yielded.
            if waiting.gave_way && waiting.place.wait().is_cancelled() {
                waiting.end();
                return Poll::Ready(Err(PermitRefusal::Cancelled));
            }
        }
        // A caller that holds other states, or was woken too late repeatedly, re-checks for a while.
        let mut looks = if is_hungry || waiting.too_late >= TOO_LATE { LOOKS } else { 0 };
        let late = waiting.alarm.is_late();
        let mut polled = self.permits.poll_wait(&mut waiting.place, need, cx, late, &others);
        while polled.is_pending() && looks > 0 {
            if looks == LOOKS {
                self.permits.is_hungry();
            }
            looks -= 1;
            look_out(PAUSE);
            polled = self.permits.poll_wait(&mut waiting.place, need, cx, false, &others);
        }
        if polled.is_pending() {
            waiting.too_late = waiting.too_late.saturating_add(1);
            waiting.alarm.set(AGAIN, cx); // ONE-WOKEN
        } else {
            waiting.gave_way = true;
            waiting.alarm.unset();
            if need == READERS {
                self.has_written(waiting);
            }
        }
        polled
    }

    /// Whether the current task has yielded here in this poll, or has been in the queue, before it wrote.
    #[inline]
    pub(crate) fn has_given_way(&self) -> bool {
        with_context(|context| context.yielded_to()) == self.name()
    }

    /// The current task need not yield here again to write, for the rest of this poll.
    #[inline]
    fn has_written(&self, waiting: &AccessWait) {
        if waiting.gave_way {
            // Outside of a task, no code would reset the cell.
            with_context(|context| context.note_yield_to(self.name()));
        }
    }

    /// Enters to read, spinning for a short time. With `gave_way`, even ahead of waiters.
    #[inline]
    pub(crate) fn look_to_read<'a>(
        &self,
        gave_way: bool,
        slots: Option<&'a ReaderSlots>,
    ) -> Option<Hold<'a>> {
        self.try_read(gave_way, slots).or_else(|| self.look_again_to_read(gave_way, slots))
    }

    /// As `look_to_read`, after a failed `try_read`.
    #[cold]
    pub(crate) fn look_again_to_read<'a>(
        &self,
        gave_way: bool,
        slots: Option<&'a ReaderSlots>,
    ) -> Option<Hold<'a>> {
        self.look_again(gave_way, || self.try_read(gave_way, slots))
    }

    /// As `look_to_read`, to write.
    #[inline]
    pub(crate) fn look_to_write(&self, gave_way: bool, registry: &Registry) -> Option<Hold<'static>> {
        let attempt = || self.try_write(gave_way, registry);
        attempt().or_else(|| self.is_worth_looking().then(|| self.look_again(gave_way, attempt)).flatten())
    }

    /// Whether a writer that found the state in use should spin.
    #[cold]
    fn is_worth_looking(&self) -> bool {
        let now = hurry::micros();
        let last = self.in_use.swap(now, Ordering::Relaxed);
        if self.is_slotted() {
            return true;
        }
        hurry::contended();
        now.wrapping_sub(last) > SHORTLY
    }

    #[cold]
    fn look_again<R>(&self, gave_way: bool, attempt: impl Fn() -> Option<R>) -> Option<R> {
        let patience = self.patience.load(Ordering::Relaxed);
        let (mut looked, mut pause) = (0, 1);
        while looked < patience {
            look_out(pause);
            looked += pause;
            pause = (pause * 2).min(8);
            let word = self.permits.word();
            if word & WAITERS != 0 && !gave_way {
                return None;
            }
            if word >= ONE
                && let Some(entered) = attempt()
            {
                // Next time, spin up to twice as long as it took now.
                self.patience.store((looked * 2).clamp(patience, PATIENCE), Ordering::Relaxed);
                return Some(entered);
            }
        }
        // Spinning did not pay off: spin less next time.
        self.patience.store(patience - patience / 4, Ordering::Relaxed);
        None
    }

    /// Releases the access. A writer may have changed the state, so it wakes the watchers.
    #[inline]
    pub(crate) fn leave(&self, hold: Hold<'_>) {
        match hold {
            Hold::Writes => {
                if self.permits.is_watched() {
                    self.leave_watched();
                } else {
                    self.permits.release_to_one(READERS, &self.skipped);
                }
            }
            Hold::Reads => self.permits.release_to_one(1, &self.skipped),
            Hold::ReadsBy(slot) => self.leave_slot(slot),
        }
    }

    #[inline]
    fn leave_slot(&self, slot: &ReaderSlot) {
        if slot.empty() {
            self.permits.release_to_one(1, &self.skipped);
        }
    }

    #[cold]
    #[inline(never)]
    fn leave_watched(&self) {
        drop(self.leave_written(None, &mut Wakers::default())); // and wakes
    }

    /// As `leave`, for one that leaves several states and wakes their watchers after that: puts the wakers of those that
    /// wait for a write into `wakers`. `own`: the caller's place among these, which it gives up. Gives back the waker
    /// that it had there.
    #[inline]
    pub(crate) fn leave_into(
        &self,
        hold: Hold<'_>,
        own: Option<&mut WatchPlace>,
        wakers: &mut Wakers,
    ) -> Option<GuardedWaker> {
        let writes = matches!(hold, Hold::Writes);
        if own.is_none() && !(writes && self.permits.is_watched()) {
            self.leave_unwritten(hold);
            return None;
        }
        if wakers.is_full() {
            wakers.wake_all();
        }
        if writes {
            return self.leave_written(own, wakers);
        }
        let old = own.and_then(|watch| self.watchers.get_or_make().leave(watch, wakers));
        self.leave_unwritten(hold);
        old
    }

    /// Leaves a state that was written and is watched. There is room for a waker.
    fn leave_written(&self, own: Option<&mut WatchPlace>, wakers: &mut Wakers) -> Option<GuardedWaker> {
        let list = self.watchers.get_or_make();
        let (mut found, old) = list.note_write(own, wakers);
        if found == Watchers::Gone {
            self.permits.watch(false); // alone: no watcher enlists meanwhile. ENLIST-INSIDE
        }
        self.leave_unwritten(Hold::Writes);
        if found == Watchers::Everyone {
            list.wake_everyone();
            found = Watchers::More;
        }
        while found == Watchers::More {
            wakers.wake_all();
            found = list.wake_more(wakers);
        }
        old
    }

    /// For one that is in: sees to it that `waker` is woken when the state has been written. `writes`: it will write
    /// this state or another. Gives back the waker that it had.
    pub(crate) fn watch(
        &self,
        watch: &mut WatchPlace,
        writes: bool,
        waker: GuardedWaker,
        wakers: &mut Wakers,
    ) -> Option<GuardedWaker> {
        let old = self.watchers.get_or_make().enlist(watch, writes, waker, wakers);
        if !self.permits.is_watched() {
            self.permits.watch(true);
        }
        old
    }

    /// The list of those that wait for a write.
    pub(crate) fn watchers(&self) -> &WatchPoint {
        &self.watchers
    }

    /// Leaves, as one that has changed nothing.
    #[inline]
    pub(crate) fn leave_unwritten(&self, hold: Hold<'_>) {
        match hold {
            Hold::Writes => self.permits.release_to_one(READERS, &self.skipped),
            Hold::Reads => self.permits.release_to_one(1, &self.skipped),
            Hold::ReadsBy(slot) => self.leave_slot(slot),
        }
    }

    /// Ends a wait to read or to write.
    pub(crate) fn give_up(&self, waiting: &mut AccessWait, writes: bool) {
        if waiting.is_in_line() {
            waiting.alarm.unset();
            self.permits.give_up(&mut waiting.place, if writes { READERS } else { 1 });
        }
    }
}

impl From<Wait> for AccessWait {
    /// For a wait that was deferred before the first attempt.
    fn from(wait: Wait) -> AccessWait {
        AccessWait { place: wait.into(), ..AccessWait::default() }
    }
}

impl AccessWait {
    /// For a wait that has begun and was not served at once.
    pub(crate) fn begun() -> AccessWait {
        AccessWait { place: WaitTicket::begun(), ..AccessWait::default() }
    }

    /// Starts or resumes the wait. Called at the start of a poll.
    #[inline]
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PermitRefusal>> {
        let begun = ready!(self.place.wait().begin(cx));
        if begun.is_err() {
            self.end();
        }
        Poll::Ready(begun.map_err(|_| PermitRefusal::Cancelled))
    }

    /// Ends the wait. Called in the poll in which it was served or refused.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.place.wait().end();
    }

    #[inline]
    pub(crate) fn is_in_line(&self) -> bool {
        self.place.is_in_line()
    }

    /// Whether the caller may take free permits ahead of waiters.
    #[inline]
    pub(crate) fn gave_way(&self) -> bool {
        self.gave_way
    }
}
