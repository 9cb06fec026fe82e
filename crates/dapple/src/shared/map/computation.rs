//! One computation of a key's value, from the view of its waiters.
//!
//! # Invariants
//!
//! * **LOOK-AGAIN**: `word` changes whenever waiters must look again: the computation is over, with or
//!   without a value, or another caller has inserted a value. The word changes first; then all waiters are
//!   woken. A waiter has read the word while it held the shard, so it is in the wait list or sees that the
//!   word has changed. All waiters are woken, not just one, so that a waiter that is never polled again
//!   delays no other.
//! * **GRAPH**: a wait inside of computations is recorded in each enclosing computation before it begins,
//!   under the lock of `GRAPH`. So a wait that would close a cycle never begins.
//! * **COMPUTATIONS-ON-STACK**: the computations that a thread is polling form a linked list, from
//!   `ThreadContext::computation` outwards. Each entry is on the stack of the function that polls the computation,
//!   which removes the entry before it returns or unwinds.

use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Cancelled;
use crate::context::{Fills, OfComputation, with_context};
use crate::prim::{AtomicUsize, Mutex, Ordering, lock};
use crate::waitlist::wait_list::{ListTicket, WaitList};

/// Bit of the word: the computation is over. The bits above count values inserted by others.
const OVER: usize = 1;
const PUT: usize = 2;

pub(super) struct PendingComputation {
    /// LOOK-AGAIN
    word: AtomicUsize,
    waiters: WaitList,
    /// Place of the call that computes.
    place: &'static Location<'static>,
    /// Computations that this one waits for. GRAPH
    waits_for: Mutex<Vec<Arc<PendingComputation>>>,
}

static GRAPH: Mutex<()> = Mutex::new(());

/// A computation that this thread is polling. COMPUTATIONS-ON-STACK
struct ComputationFrame {
    pending: *const Arc<PendingComputation>,
    outer: *const ComputationFrame,
}

// SAFETY: no other type fills it. ONE-TYPE
unsafe impl Fills<OfComputation> for ComputationFrame {}

/// Returns the computations that this thread is polling, the innermost first.
fn polled_here() -> Vec<Arc<PendingComputation>> {
    let mut found = Vec::new();
    let mut next = with_context(|context| context.computation::<ComputationFrame>());
    // SAFETY: the entries of this thread's list are on its stack. COMPUTATIONS-ON-STACK
    while let Some(ComputationFrame { pending, outer }) = unsafe { next.as_ref() } {
        // SAFETY: the frame that holds the entry borrows the computation.
        found.push(unsafe { &**pending }.clone());
        next = *outer;
    }
    found
}

impl PendingComputation {
    pub(super) fn new(place: &'static Location<'static>) -> Arc<PendingComputation> {
        Arc::new(PendingComputation {
            word: AtomicUsize::new(0),
            waiters: WaitList::default(),
            place,
            waits_for: Mutex::default(),
        })
    }

    /// Current word, for a caller that holds the shard. LOOK-AGAIN
    pub(super) fn word(&self) -> usize {
        self.word.load(Ordering::Acquire)
    }

    pub(super) fn is_over(&self) -> bool {
        self.word() & OVER != 0
    }

    /// Ends the computation, and makes all waiters look again.
    pub(super) fn end(&self) {
        self.word.fetch_or(OVER, Ordering::AcqRel);
        self.waiters.tell();
    }

    /// Another caller has inserted a value, or may have: makes all waiters look again.
    pub(super) fn put(&self) {
        self.word.fetch_add(PUT, Ordering::AcqRel);
        self.waiters.tell();
    }

    /// Calls `f`, which polls this computation. COMPUTATIONS-ON-STACK
    pub(super) fn polled<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        struct LeaveComputation(*const ComputationFrame);
        impl Drop for LeaveComputation {
            fn drop(&mut self) {
                with_context(|context| context.set_computation(self.0));
            }
        }
        let outer = with_context(|context| context.computation());
        let polled = ComputationFrame { pending: self, outer };
        let _out = LeaveComputation(outer);
        with_context(|context| context.set_computation(&raw const polled)); // COMPUTATIONS-ON-STACK
        f()
    }
}

/// A wait for a computation.
pub(super) struct ComputeWait {
    pending: Arc<PendingComputation>,
    seen: usize,
    place: ListTicket,
    _within: Option<NestedWait>,
}

impl ComputeWait {
    /// Starts a wait until the word differs from `seen`.
    ///
    /// # Errors
    ///
    /// If the computation would wait for itself.
    pub(super) fn new(pending: Arc<PendingComputation>, seen: usize) -> Result<ComputeWait, Circle> {
        let within = NestedWait::new(&pending)?;
        Ok(ComputeWait { pending, seen, place: ListTicket::default(), _within: within })
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        let ComputeWait { pending, seen, place, .. } = self;
        pending.waiters.poll_until(place, cx, || (pending.word() != *seen).then_some(()))
    }
}

impl Drop for ComputeWait {
    fn drop(&mut self) {
        self.pending.waiters.leave(&mut self.place);
    }
}

/// A computation would wait for itself.
pub(super) struct Circle {
    /// Place of the call that computes it.
    pub(super) own: &'static Location<'static>,
    /// Place of the call that computes the other value, which waits for this one. None if both are the same.
    pub(super) other: Option<&'static Location<'static>>,
}

/// A wait inside of enclosing computations. GRAPH
struct NestedWait {
    computations: Vec<Arc<PendingComputation>>,
    waits_for: Arc<PendingComputation>,
}

impl NestedWait {
    fn new(pending: &Arc<PendingComputation>) -> Result<Option<NestedWait>, Circle> {
        let computations = polled_here();
        if computations.is_empty() {
            return Ok(None);
        }
        let graph = lock(&GRAPH);
        let reached = reached_from(pending);
        if let Some(own) =
            computations.iter().find(|own| reached.iter().any(|pending| Arc::ptr_eq(pending, own)))
        {
            let other = (!Arc::ptr_eq(own, pending)).then_some(pending.place);
            return Err(Circle { own: own.place, other });
        }
        for computation in &computations {
            lock(&computation.waits_for).push(pending.clone());
        }
        drop(graph);
        Ok(Some(NestedWait { computations, waits_for: pending.clone() }))
    }
}

impl Drop for NestedWait {
    fn drop(&mut self) {
        let graph = lock(&GRAPH);
        for computation in &self.computations {
            let mut waits_for = lock(&computation.waits_for);
            if let Some(own) = waits_for.iter().position(|pending| Arc::ptr_eq(pending, &self.waits_for)) {
                waits_for.swap_remove(own); // never the last reference: `self` has one
            }
        }
        drop(graph);
    }
}

/// Returns a computation and all that it waits for, directly or not. The caller holds the lock of `GRAPH`.
fn reached_from(pending: &Arc<PendingComputation>) -> Vec<Arc<PendingComputation>> {
    let mut reached = vec![pending.clone()];
    let mut next = 0;
    while let Some(pending) = reached.get(next).cloned() {
        for further in lock(&pending.waits_for).iter() {
            if !reached.iter().any(|known| Arc::ptr_eq(known, further)) {
                reached.push(further.clone());
            }
        }
        next += 1;
    }
    reached
}
