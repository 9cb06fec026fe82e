//! The ring of messages between senders and receivers.
//!
//! ```text
//! position    8     9     10    11        a sender writes slot 12 % 4 next, over message 8
//! slot      [  0  |  1  |  2  |  3  ]     a receiver that wants 8 from then on has missed it
//! ```
//!
//! Senders take turns by the lock of the tail. A receiver that finds its message in its slot takes no lock: it *pins* the slot,
//! clones the message, and then unpins the slot in one step. Only a receiver that finds no message, or has missed some,
//! takes the lock of the tail.
//!
//! # Invariants
//!
//! * **PINNED**: only a sender that has set `WRITING` in the word of a slot, while no receiver had the slot pinned, changes
//!   the slot's message and position. A receiver that pins the slot and finds `WRITING` not set may read both until it
//!   unpins the slot. A receiver that finds `WRITING` set reads nothing.
//! * **TO-READ**: above the pins the word counts the receivers that have yet to receive the message. Each of them wants
//!   this position, and comes once: to receive the message, or to drop it unread. So a message that a receiver wants is
//!   there, and the last of them takes it out. If another receiver looks at the slot in that moment, for another position,
//!   the message stays until the next one is written over it.
//! * **ALL-TOLD**: a receiver leaves its waker under the lock of the tail, under which it has seen that its position is
//!   the next to be written. A sender moves the tail and takes all wakers out under the same lock. So a receiver whose
//!   position is behind the tail has no waker there.

use std::cell::UnsafeCell;

use crate::prim::{AtomicU64, AtomicUsize, Ordering, SpinLock};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::wait_list::WaitList;
use crate::world::look_out;

/// A pin. PINNED
const PIN: u64 = 1;
/// The slot is being changed. PINNED
const WRITING: u64 = 1 << 31;
/// A receiver that has yet to receive. TO-READ
const READER: u64 = 1 << 32;
/// The pins, below `WRITING`.
const PINS: u64 = WRITING - 1;

/// The most receivers that there can be. TO-READ
const MOST_RECEIVERS: usize = PINS as usize;

pub(super) struct Ring<T> {
    slots: Box<[RingSlot<T>]>,
    tail: SpinLock<RingTail>,
    pub(super) senders: AtomicUsize,
    /// Senders that wait for the receivers to go.
    pub(super) closing: WaitList,
}

pub(super) struct RingTail {
    /// The position that is written next.
    pub(super) next: u64,
    pub(super) receivers: usize,
    pub(super) closed: bool,
    /// The wakers of receivers that wait for the position `next`. ALL-TOLD
    wakers: Vec<Option<GuardedWaker>>,
}

struct RingSlot<T> {
    word: AtomicU64,
    /// The position of its message; `u64::MAX` at first. PINNED
    position: AtomicU64,
    message: UnsafeCell<Option<T>>,
}

// SAFETY: messages are moved in and out by one thread at a time, and may be dropped on another one (`Send`); several threads
// clone one message at a time (`Sync`). PINNED
unsafe impl<T: Send + Sync> Sync for Ring<T> {}

/// The state of the ring at the position of a receiver.
pub(super) enum AtPosition<T> {
    Message(T),
    /// Not written yet, or overwritten: the tail says which.
    Other,
}

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize) -> Ring<T> {
        let slot = |_| RingSlot {
            word: AtomicU64::new(0),
            position: AtomicU64::new(u64::MAX),
            message: UnsafeCell::new(None),
        };
        Ring {
            slots: (0..capacity.next_power_of_two()).map(slot).collect(),
            tail: SpinLock::new(RingTail { next: 0, receivers: 0, closed: false, wakers: Vec::new() }),
            senders: AtomicUsize::new(1),
            closing: WaitList::default(),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline]
    fn slot(&self, position: u64) -> &RingSlot<T> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Calls `f` with the tail. It must not run foreign code.
    pub(super) fn with_tail<R>(&self, f: impl FnOnce(&mut RingTail) -> R) -> R {
        f(&mut self.tail.lock())
    }

    /// Writes a message to the next position, for all receivers, and wakes those that wait for it. Says how many receivers
    /// there are, or hands the message back if there is none.
    pub(super) fn send(&self, message: T) -> Result<usize, T> {
        let mut message = Some(message);
        let mut looks = 0_u32;
        let (mut tail, receivers, old) = loop {
            let mut tail = self.tail.lock();
            let (position, receivers) = (tail.next, tail.receivers);
            if receivers == 0 {
                return Err(message.take().expect("not written"));
            }
            if let Some(old) = self.slot(position).write(position, &mut message, receivers as u64) {
                tail.next = position + 1;
                break (tail, receivers, old);
            }
            drop(tail);
            // One that has it pinned clones, and will soon be done; unless it waits for the processor.
            look_out(1);
            looks += 1;
            if looks.is_multiple_of(64) {
                std::thread::yield_now();
            }
        };
        let mut wakers = std::mem::take(&mut tail.wakers); // ALL-TOLD
        drop(tail);
        if !wakers.is_empty() {
            wakers.drain(..).flatten().for_each(GuardedWaker::wake);
            let mut tail = self.tail.lock();
            if tail.wakers.capacity() == 0 {
                tail.wakers = wakers; // its memory is used again
            }
        }
        drop(old); // foreign code: not under the lock, and last, since it may panic
        Ok(receivers)
    }

    /// Receives the message at the position of a receiver, which goes on to the next, also if the clone panics. TO-READ
    #[inline]
    pub(super) fn receive(&self, position: &mut u64, place: &mut Option<usize>) -> AtPosition<T>
    where
        T: Clone,
    {
        match self.slot(*position).pin(*position) {
            Some(pinned) => {
                *position += 1;
                *place = None; // its waker was taken out. ALL-TOLD
                // SAFETY: it is pinned, has this position, and is wanted by this receiver. PINNED, TO-READ
                let message = unsafe { &*pinned.0.message.get() };
                let clone = message.as_ref().expect("a message that is wanted").clone();
                AtPosition::Message(clone) // let go of after that, also if the clone panicked
            }
            None => AtPosition::Other,
        }
    }

    /// Leaves all messages from `position` on unread, for a receiver that goes.
    pub(super) fn leave_unread(&self, position: u64, end: u64) {
        for position in position.max(end.saturating_sub(self.capacity()))..end {
            drop(self.slot(position).pin(position));
        }
    }
}

impl RingTail {
    /// One more receiver, whose first position is the next one.
    pub(super) fn subscribe(&mut self) -> u64 {
        assert!(self.receivers < MOST_RECEIVERS, "more than {MOST_RECEIVERS} receivers of a broadcast");
        self.receivers += 1;
        self.next
    }

    /// Leaves a waker, for the next position: the place that it has there. ALL-TOLD
    pub(super) fn wait(&mut self, waker: GuardedWaker) -> usize {
        // Each receiver has one at most: among as many there is a place that was given up.
        let given_up = match self.wakers.len() < self.receivers {
            true => None,
            false => self.wakers.iter().position(Option::is_none),
        };
        match given_up {
            Some(place) => {
                self.wakers[place] = Some(waker);
                place
            }
            None => {
                self.wakers.push(Some(waker));
                self.wakers.len() - 1
            }
        }
    }

    /// The waker at a place, for a receiver that has one there. ALL-TOLD
    pub(super) fn waker(&mut self, place: usize) -> &mut Option<GuardedWaker> {
        &mut self.wakers[place]
    }

    /// No more messages will come: the wakers of all that wait.
    pub(super) fn close(&mut self) -> Vec<Option<GuardedWaker>> {
        self.closed = true;
        self.wakers.iter_mut().map(Option::take).collect()
    }
}

impl<T> RingSlot<T> {
    /// Changes the message. Gives back the one that was there; or `None` if it is pinned, and nothing has been done. For
    /// one that has the tail.
    fn write(&self, position: u64, message: &mut Option<T>, receivers: u64) -> Option<Option<T>> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & (PINS | WRITING) != 0 {
                return None;
            }
            match self.word.compare_exchange_weak(word, WRITING, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        // SAFETY: `WRITING` was set by us while no one had it pinned. PINNED
        let old = std::mem::replace(unsafe { &mut *self.message.get() }, message.take());
        self.position.store(position, Ordering::Relaxed);
        // Those that have pinned it meanwhile have seen `WRITING`, and let go again: their pins stay.
        self.word.fetch_add((receivers * READER).wrapping_sub(WRITING), Ordering::Release);
        Some(old)
    }

    /// Pins the slot, if its message is the one at this position.
    #[inline]
    fn pin(&self, position: u64) -> Option<PinnedSlot<'_, T>> {
        let word = self.word.fetch_add(PIN, Ordering::Acquire);
        if word & WRITING != 0 || self.position.load(Ordering::Relaxed) != position {
            self.word.fetch_sub(PIN, Ordering::Release);
            return None;
        }
        Some(PinnedSlot(self))
    }

    /// The last one that wanted the message takes it out, if no one is at it.
    #[cold]
    fn clear(&self) {
        if self.word.compare_exchange(0, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // SAFETY: `WRITING` was set by us while no one had it pinned. PINNED
            let old = unsafe { &mut *self.message.get() }.take();
            self.word.fetch_sub(WRITING, Ordering::Release);
            drop(old);
        }
    }
}

/// A slot that is pinned by a receiver that wants its message: it has received it when this is dropped. PINNED, TO-READ
struct PinnedSlot<'a, T>(&'a RingSlot<T>);

impl<T> Drop for PinnedSlot<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = self.0.word.fetch_sub(PIN + READER, Ordering::AcqRel);
        if word == PIN + READER {
            self.0.clear();
        }
    }
}
