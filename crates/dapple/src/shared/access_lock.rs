//! Who may be in a state: many who read, or one who writes.
//!
//! A gate is so many permits ([`Permits`]): who writes takes all of them, and who reads takes one, or none
//! at all: he names the gate in a slot of his thread ([`slots`](super::reader_slots)), which no other processor
//! looks at until somebody wants to write.
//!
//! ```text
//! reads:   name the gate in a slot; look at the word: nobody writes, nobody waits  --> in
//! writes:  take all permits; look through the slots: nobody reads                  --> in
//!          somebody reads: wait a little, then count him: he has one of the permits now, and gives it back
//!          when he leaves; and wait in line for all of them
//! ```
//!
//! How those are treated who find others in the way is in docs/design/shared.md.
//!
//! # Invariants
//!
//! * **SHOW-THEN-LOOK**: who reads names the gate first and looks at the word then; who writes takes the
//!   permits first and looks at the slots then. So of two who come at a time at least one sees the other. All
//!   four steps are sequentially consistent.
//! * **SLOTTED**: the word has a mark while slots may be in use. Who reads by a slot has seen the mark and that
//!   nobody writes in one look, after he had named the gate. It is unset by one who writes, has looked through
//!   all slots and found nobody. So a gate whose mark is not set is read through no slot, and who writes need
//!   not look.
//! * **ONE-WRITER**: who has all permits, and has found nobody in the slots, is alone; taking acquires what
//!   giving back released, and so does finding a slot empty.
//! * **ONE-WOKEN**: whoever leaves wakes the first in line, unless one who was woken has yet to come: he will
//!   take it, or pass it on. If many have left and he has not come, the next is woken, too; and whoever sleeps
//!   in line looks again by himself after a while. So one who does not come holds up nobody.

use std::task::{Context, Poll, ready};

use super::reader_slots::{ReaderSlot, ReaderSlots, Registry};
use super::retry_timer::{AGAIN, WakeTimer, hurry};
use super::watch_list::{WatchPlace, WatchPoint, Watchers};
use crate::prim::{AtomicU8, AtomicU32, Ordering, step_fence};
use crate::task::context::with_context;
use crate::waitlist::permits::{MARK, ONE, PermitRefusal, Permits, WAITERS, WaitTicket};
use crate::waitlist::wait::{GuardedWaker, Wait, Wakers};
use crate::world::look_out;

/// How many can be counted as reading at a time.
const READERS: usize = u32::MAX as usize;

/// How long who finds a state in use looks for it to become free before he waits in line, at most: whoever is
/// in it runs, and will soon be out. In units of the processor's pause, of some tens of nanoseconds.
const PATIENCE: u8 = if cfg!(loom) { 1 } else { 30 };

/// A state that was in use so shortly before, in microseconds, is wanted by many. Then it is dear to look: all
/// are done sooner if they take turns on one processor.
const SHORTLY: u32 = 20;

/// Who came too late so often, or is in other states as well, looks for the state that often, and pauses that
/// long in between, before he waits on: together some 20 microseconds.
const TOO_LATE: u8 = 2;
const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };
const PAUSE: u8 = 16;

/// After so many who looked through the slots for nothing, those who write need not look any more.
const IN_VAIN: u8 = if cfg!(loom) { 4 } else { 16 };

/// See the head of this file.
#[repr(C)] // the word first, near what it guards
pub(crate) struct AccessLock {
    permits: Permits,
    /// How many in a row have looked through the slots for nothing; for who is alone.
    in_vain: AtomicU8,
    /// How many left without waking anybody. ONE-WOKEN
    skipped: AtomicU8,
    /// How long it was worth looking lately; a guess, at most `PATIENCE`.
    patience: AtomicU8,
    /// When the state was last found in use by one who writes, in microseconds.
    in_use: AtomicU32,
    /// Every `when` that waits for a write.
    watchers: WatchPoint,
}

/// How somebody is in.
#[derive(Clone, Copy)]
pub(crate) enum Hold<'a> {
    Writes,
    /// With a permit.
    Reads,
    /// By a slot of this thread.
    ReadsBy(&'a ReaderSlot),
}

/// Somebody who wants to enter, and may have to wait.
#[derive(Default)]
pub(crate) struct AccessWait {
    place: WaitTicket,
    /// He has found others in line and let them go ahead, or has been in line.
    gave_way: bool,
    /// How often he was polled in line and had to go on waiting.
    too_late: u8,
    /// ONE-WOKEN
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

    /// Enters to read, if nobody writes and nobody waits. `free`: or whoever waits, if he could enter, too.
    #[inline]
    pub(crate) fn try_read<'a>(&self, free: bool, row: Option<&'a ReaderSlots>) -> Option<Hold<'a>> {
        match row.and_then(ReaderSlots::free) {
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
                // Whoever has counted us meanwhile has let us in.
                return slot.empty().then_some(Hold::Reads);
            }
            if word & MARK != 0 {
                return Some(Hold::ReadsBy(slot)); // SLOTTED
            }
            self.permits.mark(true);
        }
    }

    /// Enters to read, whoever is in line.
    pub(crate) fn try_read_now(&self) -> Option<Hold<'static>> {
        self.permits.try_take(1).ok().map(|()| Hold::Reads)
    }

    /// Has the word brought near: who enters several waits for all of them at a time, and not for one after
    /// the other.
    #[inline]
    pub(crate) fn glance(&self) {
        self.permits.glance();
    }

    /// Enters to write, if nobody is in, nobody waits, and nobody may be in a slot.
    #[inline]
    pub(crate) fn write_at_once(&self) -> bool {
        self.permits.take_all_at_once(READERS)
    }

    /// Enters to write, if nobody is in and nobody waits. `free`: or whoever waits.
    #[inline]
    pub(crate) fn try_write(&self, free: bool, registry: &Registry) -> Option<Hold<'static>> {
        let others = || self.readers(registry, PATIENCE);
        let taken = match free {
            true => self.permits.take_free_but(READERS, others),
            false => self.permits.take_but(READERS, others),
        };
        taken.ok().map(|()| Hold::Writes)
    }

    /// Enters to write, if nobody is in, whoever is in line.
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

    /// For one who has all permits: how many of them are those of readers in slots, after that much patience.
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
            // Alone, so that these are ours. SLOTTED
            let in_vain = if found { 0 } else { self.in_vain.load(Ordering::Relaxed) + 1 };
            self.in_vain.store(in_vain % IN_VAIN, Ordering::Relaxed);
            if in_vain == IN_VAIN {
                self.permits.mark(false);
            }
        }
        counted
    }

    /// Waits until it can enter to read. `is_hungry`: nobody is to go ahead of those in line.
    #[inline]
    pub(crate) fn poll_read<'a>(
        &self,
        waiting: &mut AccessWait,
        is_hungry: bool,
        row: Option<&'a ReaderSlots>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Hold<'a>, PermitRefusal>> {
        if !waiting.is_in_line() {
            if let Err(refused) = ready!(waiting.begin(cx)) {
                return Poll::Ready(Err(refused));
            }
            if let Some(hold) = self.look_to_read(waiting.gave_way, row) {
                waiting.end();
                return Poll::Ready(Ok(hold));
            }
        }
        self.poll_in_line(waiting, 1, is_hungry, cx, || 0).map_ok(|()| Hold::Reads)
    }

    /// Waits until it can enter to write. `is_hungry` as for `poll_read`.
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

    /// Gives way, once, or waits in line.
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
            // It may have been a while since it was looked at.
            if waiting.gave_way && waiting.place.wait().is_cancelled() {
                waiting.end();
                return Poll::Ready(Err(PermitRefusal::Cancelled));
            }
        }
        // Who has others, or was woken again and again and came too late, looks for a while.
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

    /// Whether the task that would write has let those in line go ahead in this poll, or has been in line.
    #[inline]
    pub(crate) fn has_given_way(&self) -> bool {
        with_context(|here| here.gave_way.get()) == self.name()
    }

    /// For the rest of this poll, his task need not give way here again.
    #[inline]
    fn has_written(&self, waiting: &AccessWait) {
        if waiting.gave_way {
            // Elsewhere nobody unsets it.
            with_context(|here| {
                here.gave_way.set(if here.current.get().is_null() { 0 } else { self.name() })
            });
        }
    }

    /// Enters to read, if that needs no waiting, or not for long. `gave_way`: others in line are no reason not
    /// to.
    #[inline]
    pub(crate) fn look_to_read<'a>(&self, gave_way: bool, row: Option<&'a ReaderSlots>) -> Option<Hold<'a>> {
        self.try_read(gave_way, row).or_else(|| self.look_again_to_read(gave_way, row))
    }

    /// As `look_to_read`, after a `try_read`.
    #[cold]
    pub(crate) fn look_again_to_read<'a>(
        &self,
        gave_way: bool,
        row: Option<&'a ReaderSlots>,
    ) -> Option<Hold<'a>> {
        self.look_again(gave_way, || self.try_read(gave_way, row))
    }

    /// As `look_to_read`, to write.
    #[inline]
    pub(crate) fn look_to_write(&self, gave_way: bool, registry: &Registry) -> Option<Hold<'static>> {
        let attempt = || self.try_write(gave_way, registry);
        attempt().or_else(|| self.is_worth_looking().then(|| self.look_again(gave_way, attempt)).flatten())
    }

    /// For one who would write, and found the state in use.
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
                // As long again would do.
                self.patience.store((looked * 2).clamp(patience, PATIENCE), Ordering::Relaxed);
                return Some(entered);
            }
        }
        // It is not worth it here; but it is tried all the same, a little.
        self.patience.store(patience - patience / 4, Ordering::Relaxed);
        None
    }

    /// Leaves. A writer may have changed the state: its watchers are told.
    #[inline]
    pub(crate) fn leave(&self, hold: Hold<'_>) {
        match hold {
            Hold::Writes if self.permits.is_watched() => self.leave_watched(),
            _ => self.leave_unwritten(hold),
        }
    }

    #[cold]
    fn leave_watched(&self) {
        let mut wakers = Wakers::default();
        let list = self.watchers.get_or_make();
        let mut found = list.note_write(&mut wakers);
        if found == Watchers::Gone {
            self.permits.watch(false); // alone: no watcher enlists meanwhile. ENLIST-INSIDE
        }
        self.leave_unwritten(Hold::Writes);
        wakers.wake_all();
        while found == Watchers::More {
            found = list.wake_more(&mut wakers);
            wakers.wake_all();
        }
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
            Hold::ReadsBy(slot) => {
                if slot.empty() {
                    self.permits.release_to_one(1, &self.skipped);
                }
            }
        }
    }

    /// Gives up waiting to read, or to write.
    pub(crate) fn give_up(&self, waiting: &mut AccessWait, writes: bool) {
        if waiting.is_in_line() {
            waiting.alarm.unset();
            self.permits.give_up(&mut waiting.place, if writes { READERS } else { 1 });
        }
    }
}

impl From<Wait> for AccessWait {
    /// One that was put off before it could be tried.
    fn from(wait: Wait) -> AccessWait {
        AccessWait { place: wait.into(), ..AccessWait::default() }
    }
}

impl AccessWait {
    /// One that has begun, and could not have it at once.
    pub(crate) fn begun() -> AccessWait {
        AccessWait { place: WaitTicket::begun(), ..AccessWait::default() }
    }

    /// At the head of a poll.
    #[inline]
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PermitRefusal>> {
        let begun = ready!(self.place.wait().begin(cx));
        if begun.is_err() {
            self.end();
        }
        Poll::Ready(begun.map_err(|_| PermitRefusal::Cancelled))
    }

    /// At the end of a poll in which it got what it wanted, or was refused.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.place.wait().end();
    }

    #[inline]
    pub(crate) fn is_in_line(&self) -> bool {
        self.place.is_in_line()
    }

    /// Whether others in line are no reason any more not to take what is free.
    #[inline]
    pub(crate) fn gave_way(&self) -> bool {
        self.gave_way
    }
}
