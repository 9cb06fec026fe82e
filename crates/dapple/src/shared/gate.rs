//! Who may be in a state: many who read, or one who writes.
//!
//! A gate is so many permits ([`Permits`]): who writes takes all of them, and who reads takes one, or none
//! at all: he names the gate in a slot of his thread ([`slots`](super::slots)), which no other processor
//! looks at until somebody wants to write.
//!
//! ```text
//! reads:   name the gate in a slot; look at the word: nobody writes, nobody waits  --> in
//! writes:  take all permits; look through the slots: nobody reads                  --> in
//!          somebody reads: wait a little, then count him: he has one of the permits now, and gives it back
//!          when he leaves; and wait in line for all of them
//! ```
//!
//! # Invariants
//!
//! * **SHOW-THEN-LOOK**: who reads names the gate first and looks at the word then; who writes takes the
//!   permits first and looks at the slots then. So of two who come at a time at least one sees the other. All
//!   four steps are sequentially consistent.
//! * **SLOTTED**: whoever is in by a slot has seen `slotted` set after he had named the gate. It is unset by
//!   one who writes, has looked through all slots and found nobody. So a gate whose flag is not set is read
//!   through no slot, and who writes need not look.
//! * **ONE-WRITER**: who has all permits, and has found nobody in the slots, is alone; taking acquires what
//!   giving back released, and so does finding a slot empty.

use std::task::{Context, Poll, ready};

use super::slots::{Registry, Row, Slot};
use crate::prim::{AtomicBool, AtomicU8, Ordering, step_fence};
use crate::sync::permits::{ONE, Permits, Place, Refused, WAITERS};
use crate::world::spin;

/// How many can be counted as reading at a time.
const READERS: usize = u32::MAX as usize;

/// How often who finds a state in use looks again before he waits in line: whoever is in it runs, and will
/// soon be out.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 20 };

/// After so many who looked through the slots for nothing, those who write need not look any more.
const IN_VAIN: u8 = 4;

/// See the head of this file.
pub(crate) struct Gate {
    permits: Permits,
    /// SLOTTED
    slotted: AtomicBool,
    /// How many in a row have looked through the slots for nothing; for who is alone.
    in_vain: AtomicU8,
}

/// How somebody is in.
#[derive(Clone, Copy)]
pub(crate) enum Hold<'a> {
    Writes,
    /// With a permit.
    Reads,
    /// By a slot of this thread.
    ReadsBy(&'a Slot),
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { permits: Permits::new(READERS), slotted: AtomicBool::new(false), in_vain: AtomicU8::new(0) }
    }

    fn name(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Enters to read, if nobody writes, and nobody waits.
    #[inline]
    pub(crate) fn try_read<'a>(&self, row: Option<&'a Row>) -> Option<Hold<'a>> {
        match row.and_then(Row::free) {
            Some(slot) => self.read_by(slot),
            None => self.permits.take_but(1, || 0).ok().map(|()| Hold::Reads),
        }
    }

    #[inline]
    fn read_by<'a>(&self, slot: &'a Slot) -> Option<Hold<'a>> {
        slot.name(self.name());
        loop {
            step_fence(); // SHOW-THEN-LOOK
            let word = self.permits.word();
            if word & WAITERS != 0 || word < ONE {
                // Whoever has counted us meanwhile has let us in.
                return slot.empty().then_some(Hold::Reads);
            }
            if self.slotted.load(Ordering::SeqCst) {
                return Some(Hold::ReadsBy(slot)); // SLOTTED
            }
            self.slotted.store(true, Ordering::SeqCst);
        }
    }

    /// Enters to read, whoever is in line.
    pub(crate) fn try_read_now(&self) -> Option<Hold<'static>> {
        self.permits.try_take(1).ok().map(|()| Hold::Reads)
    }

    /// Enters to write, if nobody is in, and nobody waits.
    #[inline]
    pub(crate) fn try_write(&self, registry: &Registry) -> Option<Hold<'static>> {
        self.permits.take_but(READERS, || self.readers(registry)).ok().map(|()| Hold::Writes)
    }

    /// Enters to write, if nobody is in, whoever is in line.
    pub(crate) fn try_write_now(&self, registry: &Registry) -> Option<Hold<'static>> {
        self.permits.try_take(READERS).ok()?;
        match self.readers(registry) {
            0 => Some(Hold::Writes),
            readers => {
                self.permits.release(READERS - readers);
                None
            }
        }
    }

    /// For one who has all permits: how many of them are those of readers in slots.
    #[inline]
    fn readers(&self, registry: &Registry) -> usize {
        step_fence(); // SHOW-THEN-LOOK
        if self.slotted.load(Ordering::SeqCst) { self.count_readers(registry) } else { 0 }
    }

    #[cold]
    fn count_readers(&self, registry: &Registry) -> usize {
        let (mut found, mut counted) = (false, 0);
        for slot in registry.named(self.name()) {
            found = true;
            let mut looks = LOOKS;
            while looks > 0 && slot.names(self.name()) {
                spin();
                looks -= 1;
            }
            counted += usize::from(slot.names(self.name()) && slot.count(self.name()));
        }
        if counted == 0 {
            // Alone, so that these are ours. SLOTTED
            let in_vain = if found { 0 } else { self.in_vain.load(Ordering::Relaxed) + 1 };
            self.in_vain.store(in_vain % IN_VAIN, Ordering::Relaxed);
            if in_vain == IN_VAIN {
                self.slotted.store(false, Ordering::SeqCst);
            }
        }
        counted
    }

    /// Waits until it can enter to read.
    #[inline]
    pub(crate) fn poll_read<'a>(
        &self,
        place: &mut Place,
        row: Option<&'a Row>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Hold<'a>, Refused>> {
        if !place.is_in_line() {
            if ready!(place.wait().begin(cx)).is_err() {
                place.wait().end();
                return Poll::Ready(Err(Refused::Cancelled));
            }
            if let Some(hold) = self.look(|| self.try_read(row)) {
                place.wait().end();
                return Poll::Ready(Ok(hold));
            }
        }
        self.permits.poll_take(place, 1, cx).map_ok(|()| Hold::Reads)
    }

    /// Waits until it can enter to write.
    #[inline]
    pub(crate) fn poll_write(
        &self,
        place: &mut Place,
        registry: &Registry,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Hold<'static>, Refused>> {
        if !place.is_in_line() {
            if ready!(place.wait().begin(cx)).is_err() {
                place.wait().end();
                return Poll::Ready(Err(Refused::Cancelled));
            }
            if let Some(hold) = self.look(|| self.try_write(registry)) {
                place.wait().end();
                return Poll::Ready(Ok(hold));
            }
        }
        let others = || self.readers(registry);
        self.permits.poll_take_but(place, READERS, cx, others).map_ok(|()| Hold::Writes)
    }

    /// Tries to enter, and looks again for a while as long as nobody waits.
    #[inline]
    pub(crate) fn look<R>(&self, attempt: impl Fn() -> Option<R>) -> Option<R> {
        attempt().or_else(|| self.look_again(attempt))
    }

    #[cold]
    fn look_again<R>(&self, attempt: impl Fn() -> Option<R>) -> Option<R> {
        for _ in 0..LOOKS {
            spin();
            let word = self.permits.word();
            if word & WAITERS != 0 {
                return None;
            }
            if word >= ONE
                && let Some(entered) = attempt()
            {
                return Some(entered);
            }
        }
        None
    }

    /// Leaves.
    #[inline]
    pub(crate) fn leave(&self, hold: Hold<'_>) {
        match hold {
            Hold::Writes => self.permits.release(READERS),
            Hold::Reads => self.permits.release(1),
            Hold::ReadsBy(slot) => {
                if slot.empty() {
                    self.permits.release(1);
                }
            }
        }
    }

    /// Gives up waiting to read, or to write.
    pub(crate) fn give_up(&self, place: &mut Place, writes: bool) {
        if place.is_in_line() {
            self.permits.give_up(place, if writes { READERS } else { 1 });
        }
    }
}
