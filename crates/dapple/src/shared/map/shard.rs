//! Shard: one part of a map, read by many threads at a time, or changed by one.
//!
//! The [`AccessLock`] of `Shared` controls access. No caller queues for a shard: a caller that finds it in
//! use retries, since the holder is running. A reader writes only to a cache line of its own thread.
//!
//! # Invariants
//!
//! * **BY-THE-LOCK**: only a thread that has entered by the access lock touches the content: shared if it
//!   reads, exclusively if it writes.
//! * **NO-CYCLE**: `ThreadContext::in_map` says whether this thread is inside of a shard, of any map. A reader may
//!   read other shards and write none; a writer may enter no other shard. A writer that finds readers gives
//!   its permits back, so readers that want to read more make progress. So a thread inside of a shard never
//!   waits for a thread that waits, or for itself: it panics instead, whatever other threads do.
//! * **IN-A-PANIC**: a thread that is already panicking (in a panic hook, or in a destructor during
//!   unwinding) would abort the process by a second panic. Where NO-CYCLE would refuse such a thread, it
//!   enters if the shard becomes free within about 10 ms; otherwise it sees an empty shard, and changes
//!   nothing. It may then be part of a cycle of waits, but the cycle ends: each panicking thread in it gives
//!   up. The access lock still decides what it may touch: a shard that the thread itself is in never becomes
//!   free for it.

use std::cell::UnsafeCell;
use std::fmt::Display;
use std::thread::{panicking, yield_now};
use std::time::Duration;

use super::super::access_lock::{AccessLock, Hold};
use super::super::own_slots::{REGISTRY, own_slots};
use crate::context::{InMap, closure, with_context};
use crate::world::{self, spin};

/// Number of retries that spin, and the number up to which retries yield to other threads.
const LOOKS: u32 = 64;
const YIELDS: u32 = LOOKS + 64;
/// Pause between two retries after that: a reader stays for long.
const REST: Duration = Duration::from_micros(50);
/// Most retries of a panicking thread, which must not wait for ever. IN-A-PANIC
const MOST: u32 = YIELDS + 200;

/// Whether this thread is inside of a shard of any map, and so may change none. NO-CYCLE
pub(super) fn is_inside() -> bool {
    with_context(|context| context.in_map()) != InMap::No
}

/// Shard of a map. The head of this file describes its rules.
#[repr(align(128))] // a change of one shard slows no reader of another; processors fetch lines in pairs
pub(super) struct MapShard<T> {
    access_lock: AccessLock,
    inside: UnsafeCell<T>,
}

// SAFETY: one thread at a time changes the content, possibly another one; many threads read it, which `T:
// Sync` allows. BY-THE-LOCK
unsafe impl<T: Send + Sync> Sync for MapShard<T> {}

/// Access of this thread to a shard. Dropping it leaves the shard.
struct ShardGuard<'a> {
    access_lock: &'a AccessLock,
    hold: Hold<'a>,
    outer: InMap,
}

impl<'a> ShardGuard<'a> {
    #[inline]
    fn new(access_lock: &'a AccessLock, hold: Hold<'a>, inside: InMap) -> ShardGuard<'a> {
        ShardGuard { access_lock, hold, outer: with_context(|context| context.replace_in_map(inside)) }
    }

    /// Leaves the shard. Inlined, which `drop` is not: that one is called only on panics.
    #[inline(always)]
    fn leave(self) {
        let ShardGuard { access_lock, hold, outer } = self;
        std::mem::forget(self);
        with_context(|context| context.replace_in_map(outer));
        access_lock.leave(hold);
    }
}

impl Drop for ShardGuard<'_> {
    #[cold]
    fn drop(&mut self) {
        let ShardGuard { access_lock, hold, outer } = *self;
        ShardGuard { access_lock, hold, outer }.leave();
    }
}

impl<T> MapShard<T> {
    pub(super) fn new(inside: T) -> MapShard<T> {
        MapShard { access_lock: AccessLock::new(), inside: UnsafeCell::new(inside) }
    }

    /// Calls `f` with the content. `map` names the map in a panic message. `R::default()` is for IN-A-PANIC.
    #[inline]
    #[track_caller]
    pub(super) fn read<R: Default>(&self, map: &dyn Display, f: impl FnOnce(&T) -> R) -> R {
        // A single call of `f`, for the common and the rare case, so that `f` can be inlined.
        let hold = match with_context(|context| context.in_map()) == InMap::Writes {
            true => self.try_read_in_panic(map),
            false => self
                .access_lock
                .try_read(false, own_slots())
                .or_else(|| Some(look_again(|| self.access_lock.try_read(false, own_slots())))),
        };
        hold.map_or_else(R::default, |hold| self.read_by(hold, f))
    }

    /// Waits a limited time if the thread is panicking (IN-A-PANIC); otherwise panics. NO-CYCLE
    #[cold]
    #[track_caller]
    fn try_read_in_panic(&self, map: &dyn Display) -> Option<Hold<'_>> {
        if !panicking() {
            refuse(&format_args!("use of {map}"));
        }
        look_a_while(|| self.access_lock.try_read(false, own_slots()))
    }

    /// As [`read`](Self::read), if no thread is changing the shard.
    pub(super) fn try_read<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.access_lock.try_read(false, own_slots()).map(|hold| self.read_by(hold, f))
    }

    #[inline]
    fn read_by<R>(&self, hold: Hold<'_>, f: impl FnOnce(&T) -> R) -> R {
        let entered = ShardGuard::new(&self.access_lock, hold, InMap::Reads);
        // SAFETY: this thread has entered to read, and `f` cannot keep the reference that it gets.
        // BY-THE-LOCK
        let result = f(unsafe { &*self.inside.get() });
        entered.leave();
        result
    }

    /// Calls `f` with the content, exclusively. `map` names the map in a panic message.
    #[inline]
    #[track_caller]
    pub(super) fn write<R>(&self, map: &dyn Display, f: impl FnOnce(&mut T) -> R) -> R {
        if is_inside() {
            refuse(&format_args!("change of {map}"));
        }
        self.write_by(self.hold_to_write(), f)
    }

    /// As [`write`](Self::write), but also works in a panicking thread, where it may return a default.
    /// IN-A-PANIC
    #[inline]
    #[track_caller]
    pub(super) fn change<R: Default>(&self, map: &dyn Display, f: impl FnOnce(&mut T) -> R) -> R {
        let hold = if is_inside() { self.try_write_in_panic(map) } else { Some(self.hold_to_write()) };
        hold.map_or_else(R::default, |hold| self.write_by(hold, f))
    }

    /// Waits a limited time if the thread is panicking (IN-A-PANIC); otherwise panics. NO-CYCLE
    #[cold]
    #[track_caller]
    fn try_write_in_panic(&self, map: &dyn Display) -> Option<Hold<'_>> {
        if !panicking() {
            refuse(&format_args!("change of {map}"));
        }
        look_a_while(|| self.access_lock.try_write_now(&REGISTRY))
    }

    /// Enters to write. This thread is inside of no shard.
    #[inline]
    fn hold_to_write(&self) -> Hold<'_> {
        match self.access_lock.try_write(false, &REGISTRY) {
            Some(hold) => hold,
            None => look_again(|| self.access_lock.try_write_now(&REGISTRY)),
        }
    }

    #[inline]
    fn write_by<R>(&self, hold: Hold<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        let entered = ShardGuard::new(&self.access_lock, hold, InMap::Writes);
        // SAFETY: this thread has entered to write, alone, and `f` cannot keep the reference that it gets.
        // BY-THE-LOCK
        let result = f(unsafe { &mut *self.inside.get() });
        entered.leave();
        result
    }
}

/// Panics, since the call could wait for itself. NO-CYCLE
#[cold]
#[track_caller]
fn refuse(what: &dyn Display) -> ! {
    closure::assert_outside(what); // a closure has a name for the message
    panic!(
        "{what} inside of a `hash`, `eq` or `clone` that a SharedMap has called: it could wait for itself"
    );
}

#[cold]
fn look_again<R>(attempt: impl Fn() -> Option<R>) -> R {
    let mut looks = 0;
    loop {
        if let Some(entered) = attempt() {
            return entered;
        }
        looks += 1;
        rest(looks);
    }
}

/// As `look_again`, for a limited time. In a simulation no other thread runs during a panic. IN-A-PANIC
#[cold]
fn look_a_while<R>(attempt: impl Fn() -> Option<R>) -> Option<R> {
    let most = if world::is_simulated() { 0 } else { MOST };
    (0..=most).find_map(|looks| {
        if looks > 0 {
            rest(looks);
        }
        attempt()
    })
}

fn rest(looks: u32) {
    match looks {
        0..LOOKS => spin(),
        LOOKS..YIELDS if !world::is_simulated() => yield_now(),
        _ => world::sleep(REST),
    }
}
