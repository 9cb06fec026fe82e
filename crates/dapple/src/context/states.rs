//! Use of shared states and maps by this thread: closures that it is in, locks of maps, computations.

use std::cell::Cell;
use std::ptr::null;

use super::ThreadContext;
use super::closure::Closure;
use super::slot::{Fills, OfComputation, OfDrops, Slot};

/// The use of maps that a thread is in: none (it may do anything), reads (it may read), writes (it may do nothing).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InMap {
    No,
    Reads,
    Writes,
}

pub(super) struct StatesPart {
    /// The access lock, by its address, that the current task has yielded to in this poll, or 0.
    yielded_to: Cell<usize>,
    /// The innermost closure of a state that this thread is in; null if it is in none. CLOSURES-ON-STACK in `closure`
    closure: Cell<*const Closure<'static>>,
    /// Whether this thread is in a part of a map. NO-CYCLE in `shared::map::shard`
    in_map: Cell<InMap>,
    /// Whether this thread is in the closure of a transaction, which is also among its closures.
    in_transaction: Cell<bool>,
    /// The queue of old values that this thread is dropping; null if it drops none. ONE-DROPS in `stm::drops`
    drops: Slot<OfDrops>,
    /// The innermost computation of a map that is being polled. COMPUTATIONS-ON-STACK in `shared::map::computation`
    computation: Slot<OfComputation>,
}

impl StatesPart {
    pub(super) const fn new() -> StatesPart {
        StatesPart {
            yielded_to: Cell::new(0),
            closure: Cell::new(null()),
            in_map: Cell::new(InMap::No),
            in_transaction: Cell::new(false),
            drops: Slot::null(),
            computation: Slot::null(),
        }
    }

    pub(super) fn swap(&self, other: &StatesPart) {
        self.yielded_to.swap(&other.yielded_to);
        self.closure.swap(&other.closure);
        self.in_map.swap(&other.in_map);
        self.in_transaction.swap(&other.in_transaction);
        self.drops.swap(&other.drops);
        self.computation.swap(&other.computation);
    }

    /// For a nested `block_on`: it is in the closures and the maps that the code around it is in.
    pub(super) fn nest_in(&self, outer: &StatesPart) {
        self.closure.set(outer.closure.get());
        self.in_map.set(outer.in_map.get());
        self.in_transaction.set(outer.in_transaction.get());
    }

    /// A poll begins: its task has yielded to no lock.
    #[inline]
    pub(super) fn forget_yield(&self) {
        self.yielded_to.set(0);
    }
}

impl ThreadContext {
    /// The access lock, by its address, that the current task has yielded to in this poll, or 0.
    pub(crate) fn yielded_to(&self) -> usize {
        self.states.yielded_to.get()
    }

    /// The current task yields to the access lock of this address. Outside of tasks this is not remembered.
    pub(crate) fn note_yield_to(&self, lock: usize) {
        self.states.yielded_to.set(if self.has_task() { lock } else { 0 });
    }

    /// The innermost closure of a state that this thread is in.
    #[inline]
    pub(super) fn closure(&self) -> *const Closure<'static> {
        self.states.closure.get()
    }

    #[inline]
    pub(super) fn set_closure(&self, closure: *const Closure<'static>) {
        self.states.closure.set(closure);
    }

    /// Whether this thread is in the closure of a transaction.
    #[inline]
    pub(crate) fn in_transaction(&self) -> bool {
        self.states.in_transaction.get()
    }

    #[inline]
    pub(crate) fn set_in_transaction(&self, is_in: bool) {
        self.states.in_transaction.set(is_in);
    }

    /// The queue of old values that this thread is dropping; null if it drops none.
    #[inline]
    pub(crate) fn drops<T: Fills<OfDrops>>(&self) -> *const T {
        self.states.drops.get()
    }

    pub(crate) fn set_drops<T: Fills<OfDrops>>(&self, drops: *const T) {
        self.states.drops.set(drops);
    }

    /// Whether this thread is in a part of a map, and how.
    pub(crate) fn in_map(&self) -> InMap {
        self.states.in_map.get()
    }

    pub(crate) fn replace_in_map(&self, in_map: InMap) -> InMap {
        self.states.in_map.replace(in_map)
    }

    /// The innermost computation of a map that is being polled; null if there is none.
    pub(crate) fn computation<T: Fills<OfComputation>>(&self) -> *const T {
        self.states.computation.get()
    }

    pub(crate) fn set_computation<T: Fills<OfComputation>>(&self, computation: *const T) {
        self.states.computation.set(computation);
    }
}
