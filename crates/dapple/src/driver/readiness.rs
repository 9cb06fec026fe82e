//! The readiness of one file descriptor: whether reading and writing may succeed, and the waiters for it.
//!
//! The kernel reports each change once (edge-triggered). So the report is kept in a word until a system call finds that
//! it no longer holds. A count in the word shows whether the kernel has reported again meanwhile.
//!
//! # Invariants
//!
//! * **CLEAR-WHAT-WAS-SEEN**: readiness is cleared only if the word has not changed since it was read, before the
//!   system call that would have blocked.
//! * **ENLIST-OR-SEE**: an event is noted in the word before the list of waiters is taken. A waiter reads the word
//!   and enters the list under the list's lock. So the waiter sees the event, or the event finds the waiter.

use std::task::Waker;

use rustix::event::epoll::EventFlags;

use crate::prim::{AtomicU32, Mutex, Ordering, lock};
use crate::task::guarded::GuardedWaker;

/// The event that a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    /// The end of both directions: a reset, or both sides have shut down. The kernel always reports it.
    Closed,
}

const READABLE: u32 = 1;
const WRITABLE: u32 = 2;
/// The peer or this side will send no more: from now on a read does not block.
const READ_CLOSED: u32 = 4;
const WRITE_CLOSED: u32 = 8;
/// The driver is gone.
const GONE: u32 = 16;
/// Urgent data has arrived. A read stops at it, so a short read does not mean that the buffer is empty.
const URGENT: u32 = 32;
/// One event, in the count above the flags.
const EVENT: u32 = 256;

impl Direction {
    /// The wait description that dumps show.
    pub(crate) fn what(self) -> &'static &'static str {
        match self {
            Direction::Read => &"a file descriptor to be readable",
            Direction::Write => &"a file descriptor to be writable",
            Direction::Closed => &"a file descriptor to be closed by both sides, or reset",
        }
    }

    fn flags(self) -> u32 {
        match self {
            Direction::Read => READABLE | READ_CLOSED,
            Direction::Write => WRITABLE | WRITE_CLOSED,
            Direction::Closed => WRITE_CLOSED,
        }
    }

    fn only_ready(self) -> u32 {
        match self {
            Direction::Read => READABLE,
            Direction::Write => WRITABLE,
            Direction::Closed => 0,
        }
    }
}

/// The readiness at the time of a look. CLEAR-WHAT-WAS-SEEN
#[derive(Clone, Copy)]
pub(crate) struct ReadinessSnapshot(u32);

#[derive(Default)]
pub(crate) struct Readiness {
    word: AtomicU32,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    /// The reader, the writer and the waiter for the end of both, each through an exclusive reference.
    one: [Option<GuardedWaker>; 3],
    /// Waiters that share the file descriptor, by number.
    sharing: Vec<(u64, Direction, GuardedWaker)>,
    last_number: u64,
}

/// The kind of waiter.
pub(crate) enum Who<'a> {
    /// The only waiter in this direction.
    One,
    /// One of many; it keeps its number while it waits.
    OfMany(&'a mut Option<u64>),
}

/// The result of an attempt to wait.
#[derive(PartialEq, Eq)]
pub(crate) enum Enlisted {
    /// There will be a wake-up.
    Waits,
    /// The operation may succeed.
    Ready,
    /// The driver is gone.
    Gone,
}

impl Readiness {
    /// A snapshot if the operation may succeed.
    #[inline]
    pub(crate) fn seen(&self, direction: Direction) -> Option<ReadinessSnapshot> {
        let word = self.word.load(Ordering::Acquire);
        (word & direction.flags() != 0).then_some(ReadinessSnapshot(word))
    }

    /// Clears readiness after a system call that would have blocked.
    #[inline]
    pub(crate) fn clear(&self, direction: Direction, seen: ReadinessSnapshot) {
        self.change(seen, !direction.flags());
    }

    /// Clears readiness after a system call that took everything; the end of the stream stays known.
    #[inline]
    pub(crate) fn drained(&self, direction: Direction, seen: ReadinessSnapshot) {
        if seen.0 & URGENT == 0 {
            self.change(seen, !direction.only_ready());
        }
    }

    fn change(&self, ReadinessSnapshot(seen): ReadinessSnapshot, keep: u32) {
        // If it fails, the kernel has reported again, and the next attempt will find out. CLEAR-WHAT-WAS-SEEN
        let _ = self.word.compare_exchange(seen, seen & keep, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Registers the waiter for the next event, unless one has happened. ENLIST-OR-SEE
    pub(crate) fn enlist(&self, direction: Direction, who: Who<'_>, waker: &Waker) -> Enlisted {
        let new = GuardedWaker::of(waker); // foreign code, like the old one's destructor: not under the lock
        let mut waiters = lock(&self.waiters);
        let word = self.word.load(Ordering::Acquire);
        if word & GONE != 0 {
            return Enlisted::Gone;
        }
        if word & direction.flags() != 0 {
            return Enlisted::Ready;
        }
        let old = match who {
            Who::One => waiters.one[direction as usize].replace(new),
            Who::OfMany(number) => waiters.join(direction, number, new),
        };
        drop(waiters);
        drop(old);
        Enlisted::Waits
    }

    /// Removes the waiter of this number.
    pub(crate) fn leave(&self, number: u64) {
        let mut waiters = lock(&self.waiters);
        let index = waiters.sharing.iter().position(|waiter| waiter.0 == number);
        let left = index.map(|index| waiters.sharing.swap_remove(index));
        drop(waiters);
        drop(left);
    }

    /// Notes an event, and moves the wakers of its waiters to `wakers`. ENLIST-OR-SEE
    pub(crate) fn deliver(&self, flags: EventFlags, wakers: &mut Vec<GuardedWaker>) {
        let mut news = 0;
        if flags.intersects(EventFlags::IN | EventFlags::PRI) {
            news |= READABLE;
        }
        if flags.contains(EventFlags::PRI) {
            news |= URGENT;
        }
        if flags.contains(EventFlags::OUT) {
            news |= WRITABLE;
        }
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            news |= READ_CLOSED;
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            news |= WRITE_CLOSED;
        }
        self.note(news, wakers);
    }

    pub(crate) fn close(&self, wakers: &mut Vec<GuardedWaker>) {
        self.note(READ_CLOSED | WRITE_CLOSED | GONE, wakers);
    }

    fn note(&self, news: u32, wakers: &mut Vec<GuardedWaker>) {
        let add = |word: u32| Some((word | news).wrapping_add(EVENT));
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add);
        let mut waiters = lock(&self.waiters);
        for direction in [Direction::Read, Direction::Write, Direction::Closed] {
            if news & direction.flags() != 0 {
                wakers.extend(waiters.one[direction as usize].take());
            }
        }
        if !waiters.sharing.is_empty() {
            let is_told = |waiter: &mut (_, Direction, _)| news & waiter.1.flags() != 0;
            wakers.extend(waiters.sharing.extract_if(.., is_told).map(|waiter| waiter.2));
        }
    }
}

impl Waiters {
    fn join(
        &mut self,
        direction: Direction,
        number: &mut Option<u64>,
        waker: GuardedWaker,
    ) -> Option<GuardedWaker> {
        let place = number.and_then(|number| self.sharing.iter_mut().find(|waiter| waiter.0 == number));
        if let Some((_, was, old)) = place {
            *was = direction;
            return Some(std::mem::replace(old, waker));
        }
        self.last_number += 1;
        *number = Some(self.last_number);
        self.sharing.push((self.last_number, direction, waker));
        None
    }
}
