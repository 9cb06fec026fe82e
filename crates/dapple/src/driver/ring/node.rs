//! One operation of the kernel's, from when it is asked for until it is done: what it is given, who waits for
//! it, and how it ended.
//!
//! ```text
//!              enlist              take off                 land
//! WITH FUTURE --------> QUEUED ----------------> FLYING -----------> DONE --> (enlisted again, or taken out)
//!                          \---- withdraw ----> WITHDRAWN
//! ```
//!
//! A node is counted. The future has one reference ([`Op`]), and who will land it has another ([`Flight`]): a
//! queue, the kernel (as the number that it gives back with a completion), or a closure of the pool.
//!
//! # Invariants
//!
//! * **WITH-THE-KERNEL**: the request is touched by the future alone while the phase is WITH FUTURE, WITHDRAWN
//!   or DONE, and by nobody but the one who took it off while it is FLYING. Each change of phase is made under
//!   the lock, so the next owner sees all that the last one did.
//! * **OUTLIVES**: the memory of a request is given back with the last reference, and who lands a node gives
//!   his up after that. So what the kernel may write to exists, in one place, until its completion, whatever
//!   is dropped or leaked.
//! * **LANDS-ONCE**: a flight that was taken off is landed, exactly once; `Departed` sees to it for the pool,
//!   and the kernel completes what it was given.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

use io_uring::squeue::Entry;
use rustix::io::Errno;

use super::Ring;
use crate::prim::{Mutex, lock};
use crate::task::wait::wake;

/// What the kernel is asked for, with all that it reads and writes meanwhile.
///
/// # Safety
///
/// Whatever the entry points to is owned by the request (or static), valid for what the kernel does with it,
/// and stays where it is while the request itself does, until the operation is done.
pub(crate) unsafe trait Request: Send + 'static {
    /// The kernel's number of the operation, if a ring can do it.
    const CODE: Option<u8>;

    /// Whether a ring is to do it, if it can.
    fn by_ring(&self) -> bool {
        true
    }

    /// The request in the kernel's terms. It is called once the request lies where it stays.
    fn entry(&mut self) -> Entry {
        unreachable!("a request that no ring can do")
    }

    /// Does it here and now, by a call that may block.
    fn perform(&mut self) -> Result<u32, Errno>;

    /// Whether it is done also if it was promised and the runtime ends before it was begun: it must not wait for
    /// somebody else then.
    fn at_the_end(&self) -> bool {
        false
    }

    /// It was done, with this result: what that stands for must have an owner, in case nobody waits any more.
    fn done(&mut self, _result: u32) {}
}

const ERESTARTSYS: i32 = 512;
const ERESTART_RESTARTBLOCK: i32 = 516;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has not been asked for.
    WithFuture,
    /// It waits to be taken off, and can be withdrawn.
    Queued,
    /// The kernel, or a thread of the pool, is at it.
    Flying,
    /// It was withdrawn before it began, for good.
    Withdrawn,
    /// It is done, and the outcome is there.
    Done,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Did(u32),
    Failed(Errno),
    /// Nobody will do it: the runtime has ended, or has no thread to give. It has had no effect.
    Gone,
}

impl Outcome {
    /// What a completion says.
    pub(super) fn of(result: i32) -> Outcome {
        match u32::try_from(result) {
            Ok(result) => Outcome::Did(result),
            // What the kernel says to itself when a call was interrupted, and here to us.
            Err(_) if (ERESTARTSYS..=ERESTART_RESTARTBLOCK).contains(&-result) => {
                Outcome::Failed(Errno::INTR)
            }
            Err(_) => Outcome::Failed(Errno::from_raw_os_error(-result)),
        }
    }
}

struct Inside {
    phase: Phase,
    outcome: Outcome,
    waker: Option<Waker>,
}

/// What is the same for all requests. `repr(C)`, and the first part of every node, so that a pointer to the
/// one is a pointer to the other.
#[repr(C)]
pub(super) struct Header {
    inside: Mutex<Inside>,
    /// If the future is dropped, the operation goes on to its end.
    goes_on: bool,
    vtable: &'static Vtable,
}

struct Vtable {
    entry: unsafe fn(NonNull<Header>) -> Entry,
    done: unsafe fn(NonNull<Header>, u32),
    release: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Node<R> {
    header: Header,
    /// `None` once the future has taken it. WITH-THE-KERNEL
    request: UnsafeCell<Option<R>>,
}

// SAFETY: the request is `Send`, and touched by one at a time. WITH-THE-KERNEL
unsafe impl<R: Send> Send for Node<R> {}
// SAFETY: as above.
unsafe impl<R: Send> Sync for Node<R> {}

impl<R: Request> Node<R> {
    const VTABLE: Vtable = Vtable {
        entry: |header| {
            // SAFETY: a flight's header is the first part of its node, which it has a reference to.
            let node = unsafe { header.cast::<Node<R>>().as_ref() };
            // SAFETY: it was just taken off by who calls. WITH-THE-KERNEL
            let request = unsafe { &mut *node.request.get() };
            request.as_mut().expect("a request that nobody has taken").entry()
        },
        done: |header, result| {
            // SAFETY: as above.
            let node = unsafe { header.cast::<Node<R>>().as_ref() };
            // SAFETY: who calls is about to land it. WITH-THE-KERNEL
            if let Some(request) = unsafe { &mut *node.request.get() } {
                request.done(result);
            }
        },
        release: |header| {
            // SAFETY: it gives back the reference that the flight was made of.
            drop(unsafe { Arc::from_raw(header.cast::<Node<R>>().as_ptr()) });
        },
    };
}

/// The reference of who will land it.
pub(crate) struct Flight(NonNull<Header>);

// SAFETY: nodes are `Send` and `Sync`, and counted.
unsafe impl Send for Flight {}

impl Flight {
    fn of<R: Request>(node: &Arc<Node<R>>) -> Flight {
        let node = Arc::into_raw(node.clone()).cast_mut();
        Flight(NonNull::new(node.cast()).expect("a reference is not null"))
    }

    fn header(&self) -> &Header {
        // SAFETY: it counts as a reference. OUTLIVES
        unsafe { self.0.as_ref() }
    }

    /// Whether it goes on to its end, whoever waits for it.
    pub(super) fn goes_on(&self) -> bool {
        self.header().goes_on
    }

    /// Takes it off, unless it was withdrawn. LANDS-ONCE: it must be landed then.
    pub(super) fn take_off(&self) -> bool {
        let mut inside = lock(&self.header().inside);
        let is_queued = inside.phase == Phase::Queued;
        if is_queued {
            inside.phase = Phase::Flying;
        }
        is_queued
    }

    /// The request in the kernel's terms, once it was taken off.
    pub(super) fn entry(&self) -> Entry {
        // SAFETY: the vtable is that of its node.
        unsafe { (self.header().vtable.entry)(self.0) }
    }

    /// It is done. What is returned is to be woken.
    #[must_use]
    pub(super) fn land(&self, outcome: Outcome) -> Option<Waker> {
        if let Outcome::Did(result) = outcome {
            // SAFETY: the vtable is that of its node, which was taken off by who calls.
            unsafe { (self.header().vtable.done)(self.0, result) };
        }
        let mut inside = lock(&self.header().inside);
        debug_assert_eq!(inside.phase, Phase::Flying, "LANDS-ONCE");
        inside.phase = Phase::Done;
        inside.outcome = outcome;
        inside.waker.take()
    }

    /// The number by which the kernel gives it back. The reference goes along.
    pub(super) fn into_number(self) -> u64 {
        let number = self.0.expose_provenance().get() as u64;
        std::mem::forget(self);
        number
    }

    /// The number by which the kernel knows it.
    pub(super) fn number(&self) -> u64 {
        self.0.expose_provenance().get() as u64
    }

    /// # Safety
    ///
    /// The number is from `into_number`, and comes back for the first time.
    pub(super) unsafe fn from_number(number: u64) -> Flight {
        let header = std::ptr::with_exposed_provenance_mut(number as usize);
        Flight(NonNull::new(header).expect("a number that the kernel was given"))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // SAFETY: the vtable is that of its node, and the reference is ours.
        unsafe { (self.header().vtable.release)(self.0) };
    }
}

/// The future's side of an operation.
pub(crate) struct Op<R: Request> {
    node: Arc<Node<R>>,
    /// Where it flies, or last did; `None` for the pool.
    ring: Option<Arc<Ring>>,
    /// The kernel has been asked to give it up.
    asked: bool,
}

impl<R: Request> Op<R> {
    /// An operation that is given up if this is dropped.
    pub(crate) fn new(request: R) -> Op<R> {
        Op::with(request, false)
    }

    /// An operation that goes on to its end also if this is dropped.
    pub(crate) fn going_on(request: R) -> Op<R> {
        Op::with(request, true)
    }

    fn with(request: R, goes_on: bool) -> Op<R> {
        let inside = Inside { phase: Phase::WithFuture, outcome: Outcome::Gone, waker: None };
        let header = Header { inside: Mutex::new(inside), goes_on, vtable: &Node::<R>::VTABLE };
        let node = Arc::new(Node { header, request: UnsafeCell::new(Some(request)) });
        Op { node, ring: None, asked: false }
    }

    /// The reference for who will do it.
    fn enlist(&mut self) -> Flight {
        let mut inside = lock(&self.node.header.inside);
        debug_assert!(matches!(inside.phase, Phase::WithFuture | Phase::Done), "asked for twice");
        inside.phase = Phase::Queued;
        drop(inside);
        self.asked = false;
        Flight::of(&self.node)
    }

    /// Asks a ring for it. `is_own`: this thread drives the worker that turns to that ring before it sleeps.
    pub(crate) fn send_to_ring(&mut self, ring: &Arc<Ring>, is_own: impl FnOnce() -> bool) {
        let flight = self.enlist();
        self.ring = Some(ring.clone());
        ring.push(flight, is_own);
    }

    /// What a thread of the pool is to call.
    pub(crate) fn for_pool(&mut self) -> impl FnOnce() + Send + use<R> {
        self.ring = None;
        let mut departure = Departure { node: self.node.clone(), flight: Some(self.enlist()) };
        move || departure.depart(|_| true)
    }

    /// The outcome, or else `waker` is woken when it is there.
    pub(crate) fn outcome(&self, waker: &Waker) -> Option<Outcome> {
        let is_known = |inside: &Inside| inside.waker.as_ref().is_some_and(|old| old.will_wake(waker));
        let is_known = is_known(&lock(&self.node.header.inside));
        let waker = (!is_known).then(|| waker.clone()); // foreign code, not under the lock
        let mut inside = lock(&self.node.header.inside);
        if inside.phase == Phase::Done {
            return Some(inside.outcome);
        }
        let old = waker.and_then(|waker| inside.waker.replace(waker));
        drop(inside);
        drop(old); // as above
        None
    }

    /// Whether it was taken back before it began. Then it has no effect.
    pub(crate) fn withdraw(&self) -> bool {
        let mut inside = lock(&self.node.header.inside);
        if inside.phase == Phase::Queued {
            inside.phase = Phase::Withdrawn;
        }
        inside.phase == Phase::Withdrawn
    }

    /// Asks the kernel to give it up, once. Its own completion says whether it did.
    pub(crate) fn cancel(&mut self) {
        if let Some(ring) = &self.ring
            && !std::mem::replace(&mut self.asked, true)
        {
            ring.cancel(Flight::of(&self.node));
        }
    }

    fn is_with_future(&self) -> bool {
        let phase = lock(&self.node.header.inside).phase;
        matches!(phase, Phase::WithFuture | Phase::Withdrawn | Phase::Done)
    }

    /// The request, which is with the future.
    ///
    /// # Panics
    ///
    /// If it is not, or if it has been taken before.
    pub(crate) fn take(&mut self) -> R {
        self.request().take().expect("taken once")
    }

    /// As `take`, without taking it.
    pub(crate) fn get_mut(&mut self) -> &mut R {
        self.request().as_mut().expect("not taken")
    }

    fn request(&mut self) -> &mut Option<R> {
        assert!(self.is_with_future(), "what an operation was given is not to be had before its end");
        // SAFETY: it is with the future, and stays there until that enlists it again. WITH-THE-KERNEL
        unsafe { &mut *self.node.request.get() }
    }
}

impl<R: Request> Drop for Op<R> {
    fn drop(&mut self) {
        let waker = lock(&self.node.header.inside).waker.take();
        drop(waker);
        if !self.node.header.goes_on && !self.is_with_future() && !self.withdraw() {
            self.cancel();
        }
    }
}

/// A flight in a closure of the pool, which may be dropped without having been called.
struct Departure<R: Request> {
    node: Arc<Node<R>>,
    flight: Option<Flight>,
}

impl<R: Request> Departure<R> {
    /// Does it here and now, unless it was withdrawn, or is not to be done.
    fn depart(&mut self, is_to_be_done: impl FnOnce(&R) -> bool) {
        let Some(flight) = self.flight.take() else { return };
        if !flight.take_off() {
            return;
        }
        let departed = Departed(Some(flight));
        // SAFETY: it was just taken off, by us. WITH-THE-KERNEL
        let request = unsafe { &mut *self.node.request.get() };
        let request = request.as_mut().expect("a request that nobody has taken");
        departed.land(match is_to_be_done(request) {
            true => request.perform().map_or_else(Outcome::Failed, Outcome::Did),
            false => Outcome::Gone,
        });
    }
}

impl<R: Request> Drop for Departure<R> {
    fn drop(&mut self) {
        let is_promised = self.flight.as_ref().is_some_and(Flight::goes_on);
        self.depart(|request| is_promised && request.at_the_end());
    }
}

/// A flight that a thread of the pool has taken off. LANDS-ONCE
struct Departed(Option<Flight>);

impl Departed {
    fn land(mut self, outcome: Outcome) {
        self.land_as(outcome);
    }

    fn land_as(&mut self, outcome: Outcome) {
        if let Some(flight) = self.0.take()
            && let Some(waker) = flight.land(outcome)
        {
            wake(waker);
        }
    }
}

impl Drop for Departed {
    fn drop(&mut self) {
        self.land_as(Outcome::Failed(Errno::IO)); // it panicked, which is a bug of ours
    }
}
