//! One part of a map: what lies on it is read by many at a time, or changed by one who is alone.
//!
//! The [`AccessLock`] of `Shared` says who may be in. Nobody waits in line for a shelf: who finds it in use looks
//! again, since whoever is in it runs. To read one writes to a cache line of this thread alone.
//!
//! # Invariants
//!
//! * **BY-THE-GATE**: what is inside is touched by who has entered by the gate: shared if he reads, exclusively
//!   if he writes.
//! * **NO-CYCLE**: `Here::in_map` says whether this thread is in a shelf, of any map. Who reads one may read others,
//!   and writes none; who writes one is let into none at all. A writer who finds readers takes back what he
//!   has taken, so that those who read and want to read more get on. So nobody who is in a shelf waits for
//!   somebody who waits, and nobody waits for himself: it is a panic that says so, whatever the others do.
//! * **IN-A-PANIC**: a thread that panics already (in a panic hook, or in a destructor that runs while it unwinds)
//!   would end the process by a second panic. Where NO-CYCLE would refuse it, it is let in if the shelf comes free
//!   within about 10 ms, and otherwise gets the answer of an empty shelf, and changes nothing. It may be part of a
//!   cycle then, but the cycle ends: each panicking thread in it gives up. What it may touch is decided by the gate,
//!   as ever: the shelf that it is in itself never comes free for it.

use std::cell::UnsafeCell;
use std::fmt::Display;
use std::thread::{panicking, yield_now};
use std::time::Duration;

use super::super::access_lock::{AccessLock, Hold};
use super::super::reader_slots::{REGISTRY, own_row};
use crate::context::{InMap, closure, with_context};
use crate::world::{self, spin};

/// How often to look again at once, and how often after that by letting other threads go first.
const LOOKS: u32 = 64;
const YIELDS: u32 = LOOKS + 64;
/// How long to rest between two looks after that: somebody reads for long.
const REST: Duration = Duration::from_micros(50);
/// How often a thread looks that must not wait for ever. IN-A-PANIC
const MOST: u32 = YIELDS + 200;

/// Whether this thread is in a shelf of any map, so that it can change none. NO-CYCLE
pub(super) fn is_inside() -> bool {
    with_context(|here| here.in_map()) != InMap::No
}

/// See the head of this file.
#[repr(align(128))] // who changes one disturbs nobody who reads another; processors fetch lines in pairs
pub(super) struct MapShard<T> {
    gate: AccessLock,
    inside: UnsafeCell<T>,
}

// SAFETY: what is inside is reached by one at a time, possibly on another thread, and by many, which `T: Sync`
// allows. BY-THE-GATE
unsafe impl<T: Send + Sync> Sync for MapShard<T> {}

/// That this thread is in a shelf, until it is dropped.
struct ShardGuard<'a> {
    gate: &'a AccessLock,
    hold: Hold<'a>,
    outer: InMap,
}

impl<'a> ShardGuard<'a> {
    #[inline]
    fn new(gate: &'a AccessLock, hold: Hold<'a>, inside: InMap) -> ShardGuard<'a> {
        ShardGuard { gate, hold, outer: with_context(|here| here.replace_in_map(inside)) }
    }

    /// Leaves, in place: who drops it does so in a call, for the sake of panics.
    #[inline(always)]
    fn leave(self) {
        let ShardGuard { gate, hold, outer } = self;
        std::mem::forget(self);
        with_context(|here| here.replace_in_map(outer));
        gate.leave(hold);
    }
}

impl Drop for ShardGuard<'_> {
    #[cold]
    fn drop(&mut self) {
        let ShardGuard { gate, hold, outer } = *self;
        ShardGuard { gate, hold, outer }.leave();
    }
}

impl<T> MapShard<T> {
    pub(super) fn new(inside: T) -> MapShard<T> {
        MapShard { gate: AccessLock::new(), inside: UnsafeCell::new(inside) }
    }

    /// Calls `f` with what is inside. `map` is whose it is, for a panic. The default is for IN-A-PANIC.
    #[inline]
    #[track_caller]
    pub(super) fn read<R: Default>(&self, map: &dyn Display, f: impl FnOnce(&T) -> R) -> R {
        // One call of `f` for the common and the rare case, so that it can be inlined.
        let hold = match with_context(|here| here.in_map()) == InMap::Writes {
            true => self.try_read_in_panic(map),
            false => self
                .gate
                .try_read(false, own_row())
                .or_else(|| Some(look_again(|| self.gate.try_read(false, own_row())))),
        };
        hold.map_or_else(R::default, |hold| self.read_by(hold, f))
    }

    /// IN-A-PANIC, or it is refused. NO-CYCLE
    #[cold]
    #[track_caller]
    fn try_read_in_panic(&self, map: &dyn Display) -> Option<Hold<'_>> {
        if !panicking() {
            refuse(&format_args!("use of {map}"));
        }
        look_a_while(|| self.gate.try_read(false, own_row()))
    }

    /// As [`read`](Self::read), if nobody is changing it.
    pub(super) fn try_read<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.gate.try_read(false, own_row()).map(|hold| self.read_by(hold, f))
    }

    #[inline]
    fn read_by<R>(&self, hold: Hold<'_>, f: impl FnOnce(&T) -> R) -> R {
        let entered = ShardGuard::new(&self.gate, hold, InMap::Reads);
        // SAFETY: we are in, to read, and `f` cannot keep what it gets. BY-THE-GATE
        let result = f(unsafe { &*self.inside.get() });
        entered.leave();
        result
    }

    /// Calls `f` with what is inside, alone. `map` is whose it is, for a panic.
    #[inline]
    #[track_caller]
    pub(super) fn write<R>(&self, map: &dyn Display, f: impl FnOnce(&mut T) -> R) -> R {
        if is_inside() {
            refuse(&format_args!("change of {map}"));
        }
        self.write_by(self.hold_to_write(), f)
    }

    /// As [`write`](Self::write), also of a thread that panics already, which may get a default. IN-A-PANIC
    #[inline]
    #[track_caller]
    pub(super) fn change<R: Default>(&self, map: &dyn Display, f: impl FnOnce(&mut T) -> R) -> R {
        let hold = if is_inside() { self.try_write_in_panic(map) } else { Some(self.hold_to_write()) };
        hold.map_or_else(R::default, |hold| self.write_by(hold, f))
    }

    /// IN-A-PANIC, or it is refused. NO-CYCLE
    #[cold]
    #[track_caller]
    fn try_write_in_panic(&self, map: &dyn Display) -> Option<Hold<'_>> {
        if !panicking() {
            refuse(&format_args!("change of {map}"));
        }
        look_a_while(|| self.gate.try_write_now(&REGISTRY))
    }

    /// For a thread that is in no part of a map.
    #[inline]
    fn hold_to_write(&self) -> Hold<'_> {
        match self.gate.try_write(false, &REGISTRY) {
            Some(hold) => hold,
            None => look_again(|| self.gate.try_write_now(&REGISTRY)),
        }
    }

    #[inline]
    fn write_by<R>(&self, hold: Hold<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        let entered = ShardGuard::new(&self.gate, hold, InMap::Writes);
        // SAFETY: we are in, alone, and `f` cannot keep what it gets. BY-THE-GATE
        let result = f(unsafe { &mut *self.inside.get() });
        entered.leave();
        result
    }
}

/// NO-CYCLE
#[cold]
#[track_caller]
fn refuse(what: &dyn Display) -> ! {
    closure::assert_outside(what); // if it is a closure, it has a name
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

/// As `look_again`, but not for long. In a simulation no other thread runs in the midst of a panic. IN-A-PANIC
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
