//! One file operation, from its request until its completion: the request, the waiter and the result.
//!
//! ```text
//!              enlist              take off                 land
//! WITH FUTURE --------> QUEUED ----------------> FLYING -----------> DONE --> (enlisted again, or taken out)
//!                          \---- withdraw ----> WITHDRAWN
//! ```
//!
//! A promised write that came back before its end, interrupted or after a part of it, is not landed: it goes from FLYING
//! back to QUEUED, without the future.
//!
//! A node is reference-counted. The future has one reference ([`Op`]), and the party that will land the operation has
//! another ([`OpRef`]): a queue, the kernel (as the number that it gives back with a completion), or a closure of the
//! pool.
//!
//! # Invariants
//!
//! * **WITH-THE-KERNEL**: while the phase is WITH FUTURE, WITHDRAWN or DONE, only the future touches the request. While
//!   it is FLYING, only the party that took it off does. Each change of phase is made under the lock, so the next owner
//!   sees all writes of the last one.
//! * **LANDED-THEN-FREED**: the memory of a request is freed with the last reference, and the party that lands a node
//!   drops its reference after landing. So memory that the kernel may write to exists, at one address, until the
//!   completion, whatever is dropped or leaked.
//! * **LANDS-ONCE**: an operation that was taken off is landed or queued again, exactly once. `Departed` ensures it
//!   for the pool, and the kernel completes each operation once.
//! * **TOLD-OR-COUNTED**: a promised write that fails reports to its future, or is noted in [`Failures`]: by the
//!   lander if the future was dropped before (`left`), or else by the future if it is dropped before it has taken the
//!   request back. Both look under the lock.

use std::cell::UnsafeCell;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

use io_uring::squeue::Entry;
use rustix::io::Errno;

use super::Uring;
use super::failures::Failures;
use crate::cancel::wait::wake;
use crate::prim::{Mutex, lock};
use crate::task::guarded::GuardedWaker;

/// A request to the kernel, with all memory that the kernel reads and writes meanwhile.
///
/// # Safety
///
/// All memory that the entry points to is owned by the request (or static), and is valid for the operation. It
/// stays at its address until the operation is done, as long as the request is not moved.
pub(crate) unsafe trait Request: Send + 'static {
    /// The kernel's number of the operation, if a ring can do it.
    const CODE: Option<u8>;

    /// Whether a ring should do it, if it supports the operation.
    fn by_ring(&self) -> bool {
        true
    }

    /// The request as an entry of the submission queue. It is called once the request is at its final address.
    fn entry(&mut self) -> Entry {
        unreachable!("a request that no ring can do")
    }

    /// Does the operation on this thread, by a call that may block.
    fn perform(&mut self) -> Result<u32, Errno>;

    /// Whether a promised operation is still done if the runtime ends before it has begun. Such an operation must not
    /// wait for another program.
    fn at_the_end(&self) -> bool {
        false
    }

    /// Takes ownership of the result of a completed operation, in case its future was dropped.
    fn done(&mut self, _result: u32) {}

    /// Whether it ends within a bounded time, whatever other programs do. If so, it waits in the queue until the ring
    /// has room (COMPLETION-ROOM in `uring`). An operation that may wait for ever takes no place from others.
    fn is_bounded(&self) -> bool {
        true
    }

    /// Records the part of a promised write that was done. `true` if there is more to do.
    fn advance(&mut self, _result: u32) -> bool {
        false
    }

    /// The path of the operation's file, if it is known.
    fn path(&self) -> Option<&Path> {
        None
    }
}

/// The most interruptions in a row, without progress, of a promised write. The threads that submit it may
/// end one after the other, but a file system that interrupts for ever must not keep a worker busy.
const MOST_INTERRUPTIONS: u16 = 1000;

const ERESTARTSYS: i32 = 512;
const ERESTART_RESTARTBLOCK: i32 = 516;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpPhase {
    /// It has not been queued.
    WithFuture,
    /// It is queued, and can be withdrawn.
    Queued,
    /// The kernel, or a thread of the pool, works on it.
    Flying,
    /// It was withdrawn before it began, for good.
    Withdrawn,
    /// It is done, and the result is there.
    Done,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpResult {
    Did(u32),
    Failed(Errno),
    /// It was never begun and had no effect: the runtime has ended, or has no thread for it.
    Gone,
}

impl OpResult {
    /// The result of a completion.
    pub(super) fn of(result: i32) -> OpResult {
        match u32::try_from(result) {
            Ok(result) => OpResult::Did(result),
            // The kernel's internal codes for an interrupted call, which io_uring passes on.
            Err(_) if (ERESTARTSYS..=ERESTART_RESTARTBLOCK).contains(&-result) => {
                OpResult::Failed(Errno::INTR)
            }
            Err(_) => OpResult::Failed(Errno::from_raw_os_error(-result)),
        }
    }

    /// The error of a promised write, if it has failed. A write of zero bytes is a failure, because a promised write
    /// is never empty.
    fn failure(self) -> Option<std::io::Error> {
        match self {
            OpResult::Did(0) => Some(std::io::ErrorKind::WriteZero.into()),
            OpResult::Did(_) => None,
            OpResult::Failed(errno) => Some(errno.into()),
            OpResult::Gone => Some(std::io::Error::other("the runtime has ended")),
        }
    }
}

struct OpState {
    phase: OpPhase,
    outcome: OpResult,
    waker: Option<GuardedWaker>,
    /// The future was dropped. TOLD-OR-COUNTED
    left: bool,
    /// The number of interruptions in a row.
    interruptions: u16,
}

/// The part of a node that does not depend on the request type. `repr(C)`, and the first field of every node, so that
/// a pointer to the header is a pointer to the node.
#[repr(C)]
pub(super) struct OpHeader {
    inside: Mutex<OpState>,
    /// If the future is dropped, the operation goes on to its end.
    goes_on: bool,
    /// It counts against the room of a ring. COMPLETION-ROOM in `uring`
    is_bounded: bool,
    vtable: &'static Vtable,
}

struct Vtable {
    advance: unsafe fn(NonNull<OpHeader>, u32) -> bool,
    at_the_end: unsafe fn(NonNull<OpHeader>) -> OpResult,
    lost: unsafe fn(NonNull<OpHeader>, &Failures, &std::io::Error),
    entry: unsafe fn(NonNull<OpHeader>) -> Entry,
    done: unsafe fn(NonNull<OpHeader>, u32),
    release: unsafe fn(NonNull<OpHeader>),
}

#[repr(C)]
struct OpNode<R> {
    header: OpHeader,
    /// The request; `None` once the future has taken it back. WITH-THE-KERNEL
    request: UnsafeCell<Option<R>>,
}

// SAFETY: the request is `Send`, and one thread at a time touches it. WITH-THE-KERNEL
unsafe impl<R: Send> Send for OpNode<R> {}
// SAFETY: as above.
unsafe impl<R: Send> Sync for OpNode<R> {}

impl<R: Request> OpNode<R> {
    const VTABLE: Vtable = Vtable {
        advance: |header, result| {
            // SAFETY: the header of an `OpRef` is the first field of its node, and the `OpRef` keeps that node alive.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: it has come back to the caller, and is not landed yet. WITH-THE-KERNEL
            let request = unsafe { &mut *node.request.get() };
            request.as_mut().is_some_and(|request| request.advance(result))
        },
        at_the_end: |header| {
            // SAFETY: as above.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: the caller has just taken it off. WITH-THE-KERNEL
            match unsafe { &mut *node.request.get() } {
                Some(request) if request.at_the_end() => perform(request, true),
                _ => OpResult::Gone,
            }
        },
        lost: |header, failures, error| {
            // SAFETY: as above.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: it is done, and its future is gone or is the caller. WITH-THE-KERNEL
            let request = unsafe { &*node.request.get() };
            failures.note(request.as_ref().and_then(Request::path), error);
        },
        entry: |header| {
            // SAFETY: the header of an `OpRef` is the first field of its node, and the `OpRef` keeps that node alive.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: the caller has just taken it off. WITH-THE-KERNEL
            let request = unsafe { &mut *node.request.get() };
            request.as_mut().expect("the future cannot take a queued request").entry()
        },
        done: |header, result| {
            // SAFETY: as above.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: the caller is about to land it. WITH-THE-KERNEL
            if let Some(request) = unsafe { &mut *node.request.get() } {
                request.done(result);
            }
        },
        release: |header| {
            // SAFETY: it drops the reference that `OpRef::of` made with `Arc::into_raw`.
            drop(unsafe { Arc::from_raw(header.cast::<OpNode<R>>().as_ptr()) });
        },
    };
}

/// The reference of the party that will land the operation.
pub(crate) struct OpRef(NonNull<OpHeader>);

// SAFETY: nodes are `Send` and `Sync`, and reference-counted.
unsafe impl Send for OpRef {}

impl OpRef {
    fn of<R: Request>(node: &Arc<OpNode<R>>) -> OpRef {
        let node = Arc::into_raw(node.clone()).cast_mut();
        OpRef(NonNull::new(node.cast()).expect("a reference is not null"))
    }

    fn header(&self) -> &OpHeader {
        // SAFETY: it counts as a reference, so the node is alive. LANDED-THEN-FREED
        unsafe { self.0.as_ref() }
    }

    /// Whether it goes on to its end when its future is dropped.
    pub(super) fn goes_on(&self) -> bool {
        self.header().goes_on
    }

    /// Whether it counts against the room of a ring.
    pub(super) fn is_bounded(&self) -> bool {
        self.header().is_bounded
    }

    /// Records the result of a promised write that came back. `true` if it is queued again, because only a part was
    /// done or it was interrupted. The kernel also interrupts all operations of a thread when that thread ends.
    pub(super) fn goes_back(&self, outcome: OpResult) -> bool {
        let is_part = match outcome {
            // SAFETY: the vtable is that of its node, which came back to the caller.
            OpResult::Did(result) => unsafe { (self.header().vtable.advance)(self.0, result) },
            OpResult::Failed(_) | OpResult::Gone => false,
        };
        if !is_part && !matches!(outcome, OpResult::Failed(Errno::INTR | Errno::CANCELED)) {
            return false;
        }
        let mut inside = lock(&self.header().inside);
        debug_assert_eq!(inside.phase, OpPhase::Flying, "LANDS-ONCE");
        inside.interruptions = if is_part { 0 } else { inside.interruptions + 1 };
        let goes_back = inside.interruptions < MOST_INTERRUPTIONS;
        if goes_back {
            inside.phase = OpPhase::Queued;
        }
        goes_back
    }

    /// The result of an operation when the ring is closed: a promised write to a regular file is done on this thread.
    pub(super) fn at_the_end(&self) -> OpResult {
        match self.goes_on() {
            // SAFETY: the vtable is that of its node, which the caller has taken off.
            true => unsafe { (self.header().vtable.at_the_end)(self.0) },
            false => OpResult::Gone,
        }
    }

    /// Takes it off, unless it was withdrawn. The caller must then land it. LANDS-ONCE
    pub(super) fn take_off(&self) -> bool {
        let mut inside = lock(&self.header().inside);
        let is_queued = inside.phase == OpPhase::Queued;
        if is_queued {
            inside.phase = OpPhase::Flying;
        }
        is_queued
    }

    /// The request as an entry of the submission queue. It must have been taken off.
    pub(super) fn entry(&self) -> Entry {
        // SAFETY: the vtable is that of its node.
        unsafe { (self.header().vtable.entry)(self.0) }
    }

    /// Lands the operation. The caller wakes the returned waker. Call it with no lock held for a promised write, whose
    /// failure may be reported to foreign code.
    #[must_use]
    pub(super) fn land(&self, outcome: OpResult, failures: Option<&Failures>) -> Option<GuardedWaker> {
        if let OpResult::Did(result) = outcome {
            // SAFETY: the vtable is that of its node, which the caller has taken off.
            unsafe { (self.header().vtable.done)(self.0, result) };
        }
        let mut inside = lock(&self.header().inside);
        debug_assert_eq!(inside.phase, OpPhase::Flying, "LANDS-ONCE");
        inside.phase = OpPhase::Done;
        inside.outcome = outcome;
        let (waker, left) = (inside.waker.take(), inside.left);
        drop(inside);
        if left && self.goes_on() {
            self.count(outcome, failures); // TOLD-OR-COUNTED
        }
        waker
    }

    /// Counts the failure of a promised write whose future is gone.
    fn count(&self, outcome: OpResult, failures: Option<&Failures>) {
        if let (Some(error), Some(failures)) = (outcome.failure(), failures) {
            // SAFETY: the vtable is that of its node, which is done; its future is gone, or is the caller.
            unsafe { (self.header().vtable.lost)(self.0, failures, &error) };
        }
    }

    /// The number for the kernel to give back. The reference goes with it.
    pub(super) fn into_number(self) -> u64 {
        let number = self.0.expose_provenance().get() as u64;
        std::mem::forget(self);
        number
    }

    /// The number by which the kernel knows the operation.
    pub(super) fn number(&self) -> u64 {
        self.0.expose_provenance().get() as u64
    }

    /// # Safety
    ///
    /// The number is from `into_number`, and no other `OpRef` was made of it since.
    pub(super) unsafe fn from_number(number: u64) -> OpRef {
        let header = std::ptr::with_exposed_provenance_mut(number as usize);
        OpRef(NonNull::new(header).expect("the kernel gave back a number of an operation, not 0"))
    }
}

impl Drop for OpRef {
    fn drop(&mut self) {
        // SAFETY: the vtable is that of its node, and this value owns the reference.
        unsafe { (self.header().vtable.release)(self.0) };
    }
}

/// The future's side of an operation.
pub(crate) struct Op<R: Request> {
    node: Arc<OpNode<R>>,
    /// Where the operation is, or last was.
    place: OpRoute,
    /// The kernel has been asked to cancel it.
    asked: bool,
    /// The request was taken back.
    taken: bool,
}

/// The place where an operation is done.
enum OpRoute {
    Nowhere,
    Ring(Arc<Uring>),
    /// The pool, and the counter for a promised write.
    Pool(Option<Arc<Failures>>),
}

impl OpRoute {
    fn failures(&self) -> Option<&Arc<Failures>> {
        match self {
            OpRoute::Nowhere => None,
            OpRoute::Ring(ring) => Some(&ring.failures),
            OpRoute::Pool(failures) => failures.as_ref(),
        }
    }
}

/// Does a request on this thread, by calls that may block; all of it if it is a promised write.
fn perform<R: Request>(request: &mut R, goes_on: bool) -> OpResult {
    loop {
        match request.perform() {
            Ok(result) if goes_on && request.advance(result) => {}
            Ok(result) => return OpResult::Did(result),
            Err(Errno::INTR) if goes_on => {}
            Err(errno) => return OpResult::Failed(errno),
        }
    }
}

impl<R: Request> Op<R> {
    /// An operation that is cancelled if this value is dropped.
    pub(crate) fn new(request: R) -> Op<R> {
        Op::with(request, false)
    }

    /// A promised operation: it goes on to its end also if this value is dropped.
    pub(crate) fn going_on(request: R) -> Op<R> {
        Op::with(request, true)
    }

    fn with(request: R, goes_on: bool) -> Op<R> {
        let inside = OpState {
            phase: OpPhase::WithFuture,
            outcome: OpResult::Gone,
            waker: None,
            left: false,
            interruptions: 0,
        };
        let is_bounded = request.is_bounded();
        let header =
            OpHeader { inside: Mutex::new(inside), goes_on, is_bounded, vtable: &OpNode::<R>::VTABLE };
        let node = Arc::new(OpNode { header, request: UnsafeCell::new(Some(request)) });
        Op { node, place: OpRoute::Nowhere, asked: false, taken: false }
    }

    /// Queues the operation, and returns the reference for the party that will do it.
    fn enlist(&mut self) -> OpRef {
        let mut inside = lock(&self.node.header.inside);
        debug_assert!(matches!(inside.phase, OpPhase::WithFuture | OpPhase::Done), "queued twice");
        inside.phase = OpPhase::Queued;
        drop(inside);
        self.asked = false;
        OpRef::of(&self.node)
    }

    /// As for a thread of the pool, with the `OpRef` in the hands of a test.
    #[cfg(test)]
    pub(super) fn enlist_at(&mut self, failures: &Arc<Failures>) -> OpRef {
        self.place = OpRoute::Pool(Some(failures.clone()));
        self.enlist()
    }

    /// Queues it in a ring. `is_own`: this thread drives the worker that submits to that ring before it sleeps.
    pub(crate) fn send_to_ring(&mut self, ring: &Arc<Uring>, is_own: impl FnOnce() -> bool) {
        let op = self.enlist();
        self.place = OpRoute::Ring(ring.clone());
        ring.push(op, is_own);
    }

    /// The closure that a thread of the pool calls to do the operation.
    pub(crate) fn for_pool(&mut self, failures: &Arc<Failures>) -> impl FnOnce() + Send + use<R> {
        let failures = self.node.header.goes_on.then(|| failures.clone());
        self.place = OpRoute::Pool(failures.clone());
        let mut departure = Departure { node: self.node.clone(), op: Some(self.enlist()), failures };
        move || departure.depart(false)
    }

    /// The counter for a failure after the future is dropped.
    pub(crate) fn failures(&self) -> Option<Arc<Failures>> {
        self.place.failures().cloned()
    }

    /// The result, if it is there. Otherwise `waker` is woken when it is.
    pub(crate) fn outcome(&self, waker: &Waker) -> Option<OpResult> {
        let is_known = |inside: &OpState| inside.waker.as_ref().is_some_and(|old| old.will_wake(waker));
        let is_known = is_known(&lock(&self.node.header.inside));
        let waker = (!is_known).then(|| GuardedWaker::of(waker)); // foreign code, not under the lock
        let mut inside = lock(&self.node.header.inside);
        if inside.phase == OpPhase::Done {
            return Some(inside.outcome);
        }
        let old = waker.and_then(|waker| inside.waker.replace(waker));
        drop(inside);
        drop(old); // as above
        None
    }

    /// Withdraws the operation if it has not begun. `true`: it is withdrawn, and has no effect.
    pub(crate) fn withdraw(&self) -> bool {
        let mut inside = lock(&self.node.header.inside);
        if inside.phase == OpPhase::Queued {
            inside.phase = OpPhase::Withdrawn;
        }
        inside.phase == OpPhase::Withdrawn
    }

    /// Asks the kernel to cancel it, once. The operation's own completion shows whether it was cancelled.
    pub(crate) fn cancel(&mut self) {
        if let OpRoute::Ring(ring) = &self.place
            && !std::mem::replace(&mut self.asked, true)
        {
            ring.cancel(OpRef::of(&self.node));
        }
    }

    fn is_with_future(&self) -> bool {
        let phase = lock(&self.node.header.inside).phase;
        matches!(phase, OpPhase::WithFuture | OpPhase::Withdrawn | OpPhase::Done)
    }

    /// Takes the request back.
    ///
    /// # Panics
    ///
    /// If the operation is not at its end, or if the request has been taken before.
    pub(crate) fn take(&mut self) -> R {
        self.taken = true;
        self.request().take().expect("the request is taken once")
    }

    /// The request, as from `take`, without taking it.
    pub(crate) fn get_mut(&mut self) -> &mut R {
        self.request().as_mut().expect("the request has not been taken")
    }

    fn request(&mut self) -> &mut Option<R> {
        assert!(self.is_with_future(), "the request is with the kernel until the operation ends");
        // SAFETY: the future owns it, and keeps it until it is queued again through `&mut self`. WITH-THE-KERNEL
        unsafe { &mut *self.node.request.get() }
    }
}

impl<R: Request> Drop for Op<R> {
    fn drop(&mut self) {
        let mut inside = lock(&self.node.header.inside);
        let waker = inside.waker.take();
        inside.left = true;
        let untold = (inside.phase == OpPhase::Done && !self.taken).then_some(inside.outcome);
        drop(inside);
        drop(waker);
        if self.node.header.goes_on {
            if let Some(outcome) = untold {
                let failures = self.place.failures().map(|failures| &**failures);
                OpRef::of(&self.node).count(outcome, failures); // TOLD-OR-COUNTED
            }
        } else if !self.is_with_future() && !self.withdraw() {
            self.cancel();
        }
    }
}

/// An operation in a closure of the pool. The pool may drop the closure without calling it.
struct Departure<R: Request> {
    node: Arc<OpNode<R>>,
    op: Option<OpRef>,
    failures: Option<Arc<Failures>>,
}

impl<R: Request> Departure<R> {
    /// Does the operation on this thread, unless it was withdrawn. `is_over`: the pool has closed. Then only a promised
    /// operation is done, on a thread of its own if it may wait for another program.
    fn depart(&mut self, is_over: bool) {
        let Some(op) = self.op.take() else { return };
        if !op.take_off() {
            return;
        }
        let goes_on = op.goes_on();
        let mut departed = Departed { node: self.node.clone(), op: Some(op), failures: self.failures.take() };
        if is_over && !goes_on {
            departed.land(OpResult::Gone);
        } else if is_over && !departed.request().at_the_end() {
            // If no thread can be started, `departed` is dropped, which lands it as failed. No thread waits for this one.
            let thread = std::thread::Builder::new().name("dapple-files".to_owned());
            drop(thread.spawn(move || departed.perform()));
        } else {
            departed.perform();
        }
    }
}

impl<R: Request> Drop for Departure<R> {
    fn drop(&mut self) {
        self.depart(true);
    }
}

/// An operation that a thread of the pool has taken off. LANDS-ONCE
struct Departed<R: Request> {
    node: Arc<OpNode<R>>,
    op: Option<OpRef>,
    failures: Option<Arc<Failures>>,
}

impl<R: Request> Departed<R> {
    fn request(&mut self) -> &mut R {
        // SAFETY: it was taken off for this `Departed`, which is the only one, and is not landed. WITH-THE-KERNEL
        let request = unsafe { &mut *self.node.request.get() };
        request.as_mut().expect("the future cannot take a request that is under way")
    }

    /// Does the operation, and lands it.
    fn perform(mut self) {
        let goes_on = self.node.header.goes_on;
        let outcome = perform(self.request(), goes_on);
        self.land(outcome);
    }

    fn land(mut self, outcome: OpResult) {
        self.land_as(outcome);
    }

    fn land_as(&mut self, outcome: OpResult) {
        if let Some(op) = self.op.take()
            && let Some(waker) = op.land(outcome, self.failures.as_deref())
        {
            wake(waker);
        }
    }
}

impl<R: Request> Drop for Departed<R> {
    fn drop(&mut self) {
        // A request panicked, which is a bug of this crate, or no thread could be started.
        self.land_as(OpResult::Failed(Errno::IO));
    }
}
