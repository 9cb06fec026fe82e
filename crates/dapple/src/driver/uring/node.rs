//! One operation of the kernel's, from when it is asked for until it is done: what it is given, who waits for
//! it, and how it ended.
//!
//! ```text
//!              enlist              take off                 land
//! WITH FUTURE --------> QUEUED ----------------> FLYING -----------> DONE --> (enlisted again, or taken out)
//!                          \---- withdraw ----> WITHDRAWN
//! ```
//!
//! An operation that goes on (a promised write) and came back before its end, interrupted or after a part of it, is
//! not landed: it goes from FLYING back to QUEUED, without the future.
//!
//! A node is counted. The future has one reference ([`Op`]), and who will land it has another ([`OpRef`]): a
//! queue, the kernel (as the number that it gives back with a completion), or a closure of the pool.
//!
//! # Invariants
//!
//! * **WITH-THE-KERNEL**: the request is touched by the future alone while the phase is WITH FUTURE, WITHDRAWN
//!   or DONE, and by nobody but the one who took it off while it is FLYING. Each change of phase is made under
//!   the lock, so the next owner sees all that the last one did.
//! * **LANDED-THEN-FREED**: the memory of a request is given back with the last reference, and who lands a node gives
//!   his up after that. So what the kernel may write to exists, in one place, until its completion, whatever
//!   is dropped or leaked.
//! * **LANDS-ONCE**: a flight that was taken off is landed or goes back into line, exactly once; `Departed` sees to it
//!   for the pool, and the kernel completes what it was given.
//! * **TOLD-OR-COUNTED**: an operation that goes on and fails tells its future, or is noted in [`Failures`]: by the
//!   lander if the future was dropped before (`left`), or else by the future if it is dropped without having taken the
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

    /// Whether it ends within a bounded time, whatever other programs do: then it waits in line until the ring has
    /// room (COMPLETION-ROOM in `uring`). One that may wait for ever takes no place from others.
    fn is_bounded(&self) -> bool {
        true
    }

    /// Of an operation that goes on: takes note of a part that was done. `true` if there is more to do.
    fn advance(&mut self, _result: u32) -> bool {
        false
    }

    /// The path of the file that it is about, if that is known.
    fn path(&self) -> Option<&Path> {
        None
    }
}

/// How often in a row an operation that goes on may be interrupted without any progress. The threads that submit it may
/// end one after the other; a file system that says so for ever must not keep a worker busy.
const MOST_INTERRUPTIONS: u16 = 1000;

const ERESTARTSYS: i32 = 512;
const ERESTART_RESTARTBLOCK: i32 = 516;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpPhase {
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
pub(crate) enum OpResult {
    Did(u32),
    Failed(Errno),
    /// Nobody will do it: the runtime has ended, or has no thread to give. It has had no effect.
    Gone,
}

impl OpResult {
    /// What a completion says.
    pub(super) fn of(result: i32) -> OpResult {
        match u32::try_from(result) {
            Ok(result) => OpResult::Did(result),
            // What the kernel says to itself when a call was interrupted, and here to us.
            Err(_) if (ERESTARTSYS..=ERESTART_RESTARTBLOCK).contains(&-result) => {
                OpResult::Failed(Errno::INTR)
            }
            Err(_) => OpResult::Failed(Errno::from_raw_os_error(-result)),
        }
    }

    /// The error of an operation that goes on, if it has failed. A part of nothing is a failure, too: nothing that
    /// goes on is empty.
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
    /// How often in a row it was interrupted.
    interruptions: u16,
}

/// What is the same for all requests. `repr(C)`, and the first part of every node, so that a pointer to the
/// one is a pointer to the other.
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
    /// `None` once the future has taken it. WITH-THE-KERNEL
    request: UnsafeCell<Option<R>>,
}

// SAFETY: the request is `Send`, and touched by one at a time. WITH-THE-KERNEL
unsafe impl<R: Send> Send for OpNode<R> {}
// SAFETY: as above.
unsafe impl<R: Send> Sync for OpNode<R> {}

impl<R: Request> OpNode<R> {
    const VTABLE: Vtable = Vtable {
        advance: |header, result| {
            // SAFETY: a flight's header is the first part of its node, which it has a reference to.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: it has come back to the caller, and is not landed yet. WITH-THE-KERNEL
            let request = unsafe { &mut *node.request.get() };
            request.as_mut().is_some_and(|request| request.advance(result))
        },
        at_the_end: |header| {
            // SAFETY: as above.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: it was just taken off by the caller. WITH-THE-KERNEL
            match unsafe { &mut *node.request.get() } {
                Some(request) if request.at_the_end() => perform(request, true),
                _ => OpResult::Gone,
            }
        },
        lost: |header, failures, error| {
            // SAFETY: as above.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: it is done, and its future is gone or is who calls. WITH-THE-KERNEL
            let request = unsafe { &*node.request.get() };
            failures.note(request.as_ref().and_then(Request::path), error);
        },
        entry: |header| {
            // SAFETY: a flight's header is the first part of its node, which it has a reference to.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: it was just taken off by the caller. WITH-THE-KERNEL
            let request = unsafe { &mut *node.request.get() };
            request.as_mut().expect("a request that nobody has taken").entry()
        },
        done: |header, result| {
            // SAFETY: as above.
            let node = unsafe { header.cast::<OpNode<R>>().as_ref() };
            // SAFETY: who calls is about to land it. WITH-THE-KERNEL
            if let Some(request) = unsafe { &mut *node.request.get() } {
                request.done(result);
            }
        },
        release: |header| {
            // SAFETY: it gives back the reference that the flight was made of.
            drop(unsafe { Arc::from_raw(header.cast::<OpNode<R>>().as_ptr()) });
        },
    };
}

/// The reference of who will land it.
pub(crate) struct OpRef(NonNull<OpHeader>);

// SAFETY: nodes are `Send` and `Sync`, and counted.
unsafe impl Send for OpRef {}

impl OpRef {
    fn of<R: Request>(node: &Arc<OpNode<R>>) -> OpRef {
        let node = Arc::into_raw(node.clone()).cast_mut();
        OpRef(NonNull::new(node.cast()).expect("a reference is not null"))
    }

    fn header(&self) -> &OpHeader {
        // SAFETY: it counts as a reference. LANDED-THEN-FREED
        unsafe { self.0.as_ref() }
    }

    /// Whether it goes on to its end, whoever waits for it.
    pub(super) fn goes_on(&self) -> bool {
        self.header().goes_on
    }

    /// Whether it counts against the room of a ring.
    pub(super) fn is_bounded(&self) -> bool {
        self.header().is_bounded
    }

    /// Of one that goes on: takes note of how it came back. `true` if it is in line again: it was interrupted, which
    /// the kernel also does to all that a thread has submitted when that thread ends; or only a part was done.
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

    /// What becomes of it if the ring takes nothing more: a promised write to a regular file is done here and now.
    pub(super) fn at_the_end(&self) -> OpResult {
        match self.goes_on() {
            // SAFETY: the vtable is that of its node, which was taken off by the caller.
            true => unsafe { (self.header().vtable.at_the_end)(self.0) },
            false => OpResult::Gone,
        }
    }

    /// Takes it off, unless it was withdrawn. LANDS-ONCE: it must be landed then.
    pub(super) fn take_off(&self) -> bool {
        let mut inside = lock(&self.header().inside);
        let is_queued = inside.phase == OpPhase::Queued;
        if is_queued {
            inside.phase = OpPhase::Flying;
        }
        is_queued
    }

    /// The request in the kernel's terms, once it was taken off.
    pub(super) fn entry(&self) -> Entry {
        // SAFETY: the vtable is that of its node.
        unsafe { (self.header().vtable.entry)(self.0) }
    }

    /// It is done. What is returned is to be woken. With no lock held if it goes on: a failure may have to be told.
    #[must_use]
    pub(super) fn land(&self, outcome: OpResult, failures: Option<&Failures>) -> Option<GuardedWaker> {
        if let OpResult::Did(result) = outcome {
            // SAFETY: the vtable is that of its node, which was taken off by the caller.
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

    /// Nobody will hear how one that goes on has ended: if it has failed, that is counted.
    fn count(&self, outcome: OpResult, failures: Option<&Failures>) {
        if let (Some(error), Some(failures)) = (outcome.failure(), failures) {
            // SAFETY: the vtable is that of its node, which is done; its future is gone, or is who calls.
            unsafe { (self.header().vtable.lost)(self.0, failures, &error) };
        }
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
    pub(super) unsafe fn from_number(number: u64) -> OpRef {
        let header = std::ptr::with_exposed_provenance_mut(number as usize);
        OpRef(NonNull::new(header).expect("a number that the kernel was given"))
    }
}

impl Drop for OpRef {
    fn drop(&mut self) {
        // SAFETY: the vtable is that of its node, and the reference is ours.
        unsafe { (self.header().vtable.release)(self.0) };
    }
}

/// The future's side of an operation.
pub(crate) struct Op<R: Request> {
    node: Arc<OpNode<R>>,
    /// Where it flies, or last did.
    place: OpRoute,
    /// The kernel has been asked to give it up.
    asked: bool,
    /// The request was taken back.
    taken: bool,
}

/// Where an operation flies.
enum OpRoute {
    Nowhere,
    Ring(Arc<Uring>),
    /// What is counted, of one that goes on.
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

/// Does a request here and now, by calls that may block; all of it if it goes on.
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
    /// An operation that is given up if this is dropped.
    pub(crate) fn new(request: R) -> Op<R> {
        Op::with(request, false)
    }

    /// An operation that goes on to its end also if this is dropped.
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

    /// The reference for who will do it.
    fn enlist(&mut self) -> OpRef {
        let mut inside = lock(&self.node.header.inside);
        debug_assert!(matches!(inside.phase, OpPhase::WithFuture | OpPhase::Done), "asked for twice");
        inside.phase = OpPhase::Queued;
        drop(inside);
        self.asked = false;
        OpRef::of(&self.node)
    }

    /// As for a thread of the pool, with the flight in the hands of a test.
    #[cfg(test)]
    pub(super) fn enlist_at(&mut self, failures: &Arc<Failures>) -> OpRef {
        self.place = OpRoute::Pool(Some(failures.clone()));
        self.enlist()
    }

    /// Asks a ring for it. `is_own`: this thread drives the worker that turns to that ring before it sleeps.
    pub(crate) fn send_to_ring(&mut self, ring: &Arc<Uring>, is_own: impl FnOnce() -> bool) {
        let flight = self.enlist();
        self.place = OpRoute::Ring(ring.clone());
        ring.push(flight, is_own);
    }

    /// What a thread of the pool is to call.
    pub(crate) fn for_pool(&mut self, failures: &Arc<Failures>) -> impl FnOnce() + Send + use<R> {
        let failures = self.node.header.goes_on.then(|| failures.clone());
        self.place = OpRoute::Pool(failures.clone());
        let mut departure = Departure { node: self.node.clone(), flight: Some(self.enlist()), failures };
        move || departure.depart(false)
    }

    /// Where it is counted if nobody hears of its failure.
    pub(crate) fn failures(&self) -> Option<Arc<Failures>> {
        self.place.failures().cloned()
    }

    /// The outcome, or else `waker` is woken when it is there.
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

    /// Whether it was taken back before it began. Then it has no effect.
    pub(crate) fn withdraw(&self) -> bool {
        let mut inside = lock(&self.node.header.inside);
        if inside.phase == OpPhase::Queued {
            inside.phase = OpPhase::Withdrawn;
        }
        inside.phase == OpPhase::Withdrawn
    }

    /// Asks the kernel to give it up, once. Its own completion says whether it did.
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

    /// The request, which is with the future.
    ///
    /// # Panics
    ///
    /// If it is not, or if it has been taken before.
    pub(crate) fn take(&mut self) -> R {
        self.taken = true;
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

/// A flight in a closure of the pool, which may be dropped without having been called.
struct Departure<R: Request> {
    node: Arc<OpNode<R>>,
    flight: Option<OpRef>,
    failures: Option<Arc<Failures>>,
}

impl<R: Request> Departure<R> {
    /// Does it here and now, unless it was withdrawn. `is_over`: the pool has closed, and it is done only if it was
    /// promised; on a thread of its own if it may wait for another program.
    fn depart(&mut self, is_over: bool) {
        let Some(flight) = self.flight.take() else { return };
        if !flight.take_off() {
            return;
        }
        let goes_on = flight.goes_on();
        let mut departed =
            Departed { node: self.node.clone(), flight: Some(flight), failures: self.failures.take() };
        if is_over && !goes_on {
            departed.land(OpResult::Gone);
        } else if is_over && !departed.request().at_the_end() {
            // If there is no thread to be had, `departed` is dropped, and it has failed. Nobody waits for the thread.
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

/// A flight that a thread of the pool has taken off. LANDS-ONCE
struct Departed<R: Request> {
    node: Arc<OpNode<R>>,
    flight: Option<OpRef>,
    failures: Option<Arc<Failures>>,
}

impl<R: Request> Departed<R> {
    fn request(&mut self) -> &mut R {
        // SAFETY: it was taken off for this `Departed`, there is no other, and it is not landed. WITH-THE-KERNEL
        let request = unsafe { &mut *self.node.request.get() };
        request.as_mut().expect("a request that nobody has taken")
    }

    /// Does it, and lands it.
    fn perform(mut self) {
        let goes_on = self.node.header.goes_on;
        let outcome = perform(self.request(), goes_on);
        self.land(outcome);
    }

    fn land(mut self, outcome: OpResult) {
        self.land_as(outcome);
    }

    fn land_as(&mut self, outcome: OpResult) {
        if let Some(flight) = self.flight.take()
            && let Some(waker) = flight.land(outcome, self.failures.as_deref())
        {
            wake(waker);
        }
    }
}

impl<R: Request> Drop for Departed<R> {
    fn drop(&mut self) {
        // It panicked, which is a bug of ours; or there was no thread for it.
        self.land_as(OpResult::Failed(Errno::IO));
    }
}
