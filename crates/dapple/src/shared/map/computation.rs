//! One computation of a key's value, as those see it who wait for it.
//!
//! # Invariants
//!
//! * **LOOK-AGAIN**: `word` changes whenever there may be something new for those who wait: the computation is
//!   over, with or without a value, or somebody else has put a value there. It is changed first, and they are
//!   all told then; who waits has noted the word while he had the shelf, and is in the crowd or sees that it
//!   has changed. All are told, and not one of them, so that one who is never polled again holds up nobody.
//! * **GRAPH**: a wait inside of a computation is noted in each computation around it, under the lock of
//!   `GRAPH`, before it begins: a wait that would close a circle never begins.
//! * **COMPUTATIONS-ON-STACK**: the computations that a thread is in the midst of polling are a chain from its
//!   `Here::computation` outwards. Each link is on the stack of the frame that polls the computation, which takes it
//!   off before it ends, by unwinding too.

use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Cancelled;
use crate::context::{Fills, OfComputation, with_context};
use crate::prim::{AtomicUsize, Mutex, Ordering, lock};
use crate::waitlist::wait_list::{ListTicket, WaitList};

/// In the word: nobody computes any more. Above it is counted how often a value was put there by others.
const OVER: usize = 1;
const PUT: usize = 2;

pub(super) struct PendingComputation {
    /// LOOK-AGAIN
    word: AtomicUsize,
    crowd: WaitList,
    /// Where the computation was asked for.
    place: &'static Location<'static>,
    /// What this computation waits for. GRAPH
    waits_for: Mutex<Vec<Arc<PendingComputation>>>,
}

static GRAPH: Mutex<()> = Mutex::new(());

/// A computation that this thread is in the midst of polling. COMPUTATIONS-ON-STACK
struct ComputationFrame {
    ticket: *const Arc<PendingComputation>,
    outer: *const ComputationFrame,
}

// SAFETY: no other type fills it. ONE-TYPE
unsafe impl Fills<OfComputation> for ComputationFrame {}

/// The computations that this thread is in the midst of polling, the innermost first.
fn polled_here() -> Vec<Arc<PendingComputation>> {
    let mut tickets = Vec::new();
    let mut next = with_context(|here| here.computation::<ComputationFrame>());
    // SAFETY: the links of this thread are there. COMPUTATIONS-ON-STACK
    while let Some(ComputationFrame { ticket, outer }) = unsafe { next.as_ref() } {
        // SAFETY: the frame that the link is in borrows the ticket.
        tickets.push(unsafe { &**ticket }.clone());
        next = *outer;
    }
    tickets
}

impl PendingComputation {
    pub(super) fn new(place: &'static Location<'static>) -> Arc<PendingComputation> {
        Arc::new(PendingComputation {
            word: AtomicUsize::new(0),
            crowd: WaitList::default(),
            place,
            waits_for: Mutex::default(),
        })
    }

    /// What is to change, for one who has the shelf. LOOK-AGAIN
    pub(super) fn word(&self) -> usize {
        self.word.load(Ordering::Acquire)
    }

    pub(super) fn is_over(&self) -> bool {
        self.word() & OVER != 0
    }

    /// Nobody computes any more: those who wait look for themselves.
    pub(super) fn end(&self) {
        self.word.fetch_or(OVER, Ordering::AcqRel);
        self.crowd.tell();
    }

    /// Somebody else has put a value there, or there may be one: those who wait look for themselves.
    pub(super) fn put(&self) {
        self.word.fetch_add(PUT, Ordering::AcqRel);
        self.crowd.tell();
    }

    /// Calls `f`, which polls this computation.
    pub(super) fn polled<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        struct LeaveComputation(*const ComputationFrame);
        impl Drop for LeaveComputation {
            fn drop(&mut self) {
                with_context(|here| here.set_computation(self.0));
            }
        }
        let outer = with_context(|here| here.computation());
        let polled = ComputationFrame { ticket: self, outer };
        let _out = LeaveComputation(outer);
        with_context(|here| here.set_computation(&raw const polled)); // COMPUTATIONS-ON-STACK
        f()
    }
}

/// One who waits for a computation.
pub(super) struct ComputeWait {
    ticket: Arc<PendingComputation>,
    seen: usize,
    place: ListTicket,
    _within: Option<NestedWait>,
}

impl ComputeWait {
    /// Begins to wait for more than was `seen`.
    ///
    /// # Errors
    ///
    /// If the computation would wait for itself.
    pub(super) fn new(ticket: Arc<PendingComputation>, seen: usize) -> Result<ComputeWait, Circle> {
        let within = NestedWait::new(&ticket)?;
        Ok(ComputeWait { ticket, seen, place: ListTicket::default(), _within: within })
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        let ComputeWait { ticket, seen, place, .. } = self;
        ticket.crowd.poll_until(place, cx, || (ticket.word() != *seen).then_some(()))
    }
}

impl Drop for ComputeWait {
    fn drop(&mut self) {
        self.ticket.crowd.leave(&mut self.place);
    }
}

/// A computation would wait for itself.
pub(super) struct Circle {
    /// Where it was asked for.
    pub(super) own: &'static Location<'static>,
    /// Where the one was asked for that it would wait for, and that waits for it; none if that is itself.
    pub(super) other: Option<&'static Location<'static>>,
}

/// A wait that is part of other computations. GRAPH
struct NestedWait {
    computations: Vec<Arc<PendingComputation>>,
    waits_for: Arc<PendingComputation>,
}

impl NestedWait {
    fn new(ticket: &Arc<PendingComputation>) -> Result<Option<NestedWait>, Circle> {
        let computations = polled_here();
        if computations.is_empty() {
            return Ok(None);
        }
        let graph = lock(&GRAPH);
        let reached = reached_from(ticket);
        if let Some(own) =
            computations.iter().find(|own| reached.iter().any(|ticket| Arc::ptr_eq(ticket, own)))
        {
            let other = (!Arc::ptr_eq(own, ticket)).then_some(ticket.place);
            return Err(Circle { own: own.place, other });
        }
        for computation in &computations {
            lock(&computation.waits_for).push(ticket.clone());
        }
        drop(graph);
        Ok(Some(NestedWait { computations, waits_for: ticket.clone() }))
    }
}

impl Drop for NestedWait {
    fn drop(&mut self) {
        let graph = lock(&GRAPH);
        for computation in &self.computations {
            let mut waits_for = lock(&computation.waits_for);
            if let Some(own) = waits_for.iter().position(|ticket| Arc::ptr_eq(ticket, &self.waits_for)) {
                waits_for.swap_remove(own); // never the last reference: we have one
            }
        }
        drop(graph);
    }
}

/// A computation, and all that it waits for in the end, for one who has the lock of `GRAPH`.
fn reached_from(ticket: &Arc<PendingComputation>) -> Vec<Arc<PendingComputation>> {
    let mut reached = vec![ticket.clone()];
    let mut next = 0;
    while let Some(ticket) = reached.get(next).cloned() {
        for further in lock(&ticket.waits_for).iter() {
            if !reached.iter().any(|known| Arc::ptr_eq(known, further)) {
                reached.push(further.clone());
            }
        }
        next += 1;
    }
    reached
}
