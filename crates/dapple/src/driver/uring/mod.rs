//! The ring of a driver: file operations that the kernel does by itself, by io_uring.
//!
//! A driver makes its ring when a task first needs it. Tasks queue operations. The worker hands the queue to the
//! kernel when it looks for events, before it sleeps, or when the queue has grown long. Completions are taken in
//! where the driver's other events are handed out. The ring is in the driver's epoll, so that the worker sleeps
//! in one place. See docs/design/files.md.
//!
//! ```text
//! node      one operation: its request, its waiter and its result
//! backend   the choice between a ring and the pool
//! close     the end of operations when the runtime ends
//! failures  promised writes that failed after their file was dropped
//! ```
//!
//! # Invariants
//!
//! * **SUBMISSION-LOCK**: the submission queue is touched under the lock of `submissions`.
//! * **ONE-READER**: the completion queue is touched under the lock of `reader`.
//! * **COMPLETION-ROOM**: operations that end by themselves (on regular files, block devices and paths) are given to the
//!   kernel only while the completion queue has room for them. An operation on anything else (a pipe, a terminal) may
//!   wait for ever. So it takes no place from others, and is given to the kernel at once. If the completion queue
//!   overflows then, the kernel keeps the rest (`IORING_FEAT_NODROP`), and `take_in` asks for it. A kernel without that
//!   feature would lose the rest, so there all operations wait for room.
//! * **GOES-ON**: a promised write, which goes on after its future is dropped, may come back before its end. The thread
//!   that takes it in then queues it again, and hands the queue to the kernel. So it does not matter
//!   which thread submitted it, nor whether that thread still exists: the kernel cancels the operations that a thread
//!   has submitted when that thread ends.
//! * **SUBMITTED-BEFORE-SLEEP**: a thread that queues an operation owns the worker slot of the ring, and submits
//!   the queue before it sleeps; otherwise it hands the queue to the kernel at once. It checks that it owns the slot
//!   after it has queued the operation, and a thread that takes the slot over looks at the queue after that.
//! * **SAME-ADDRESS**: a request to cancel an operation keeps a reference to its node until that request is done.
//!   So the number by which the kernel looks for the operation is not reused meanwhile.

pub(crate) mod backend;
pub(crate) mod close;
pub(crate) mod failures;
pub(crate) mod node;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::io::Errno;

use crate::cancel::wait::wake;
use crate::prim::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::task::cell::discard;
use crate::task::guarded::GuardedWaker;
use failures::Failures;
use node::{OpRef, OpResult};

/// The length of the kernel's submission queue.
const SUBMISSIONS: u32 = 256;
/// The most operations with the kernel that count against the room. COMPLETION-ROOM
const MOST_IN_FLIGHT: usize = 1024;
/// The queue length at which the queue is handed to the kernel at once.
const LONG: usize = 64;
/// The most threads that the kernel may use for blocking operations, for each thread that submits: as many as the
/// pool would.
const KERNEL_THREADS: u32 = 512;
/// Marks the number of a request to cancel an operation: nodes are aligned to more than this.
const GIVE_UP: u64 = 1;

pub(crate) struct Uring {
    uring: IoUring,
    submissions: Mutex<Submissions>,
    /// ONE-READER
    reader: Mutex<()>,
    /// The number of queued operations and cancel requests.
    in_line: AtomicUsize,
    /// The number of completions that are to come.
    in_flight: AtomicUsize,
    /// The number of operations with the kernel that count. COMPLETION-ROOM
    in_room: AtomicUsize,
    /// The number of promised writes: queued, with the kernel, or between the two. GOES-ON
    going_on: AtomicUsize,
    failures: Arc<Failures>,
    /// The kernel did not accept all entries of the submission queue.
    refused: AtomicBool,
    /// The operations that the kernel supports, by number.
    codes: Box<[bool; 256]>,
}

/// The queue of operations for the kernel. SUBMISSION-LOCK
#[derive(Default)]
struct Submissions {
    line: VecDeque<OpRef>,
    /// Operations to be cancelled.
    give_up: VecDeque<OpRef>,
    /// No new operation is accepted.
    closed: bool,
    /// No promised write is queued again, either.
    over: bool,
}

/// Completions that were taken in, to be dealt with when no lock is held.
#[derive(Default)]
pub(crate) struct Landed {
    /// References to be dropped. The last reference drops the request of a dropped future, which is foreign code.
    ops: Vec<OpRef>,
    /// Promised writes that came back, with their results. GOES-ON
    going_on: Vec<(OpRef, OpResult)>,
}

impl Landed {
    /// Deals with them, also if a destructor panics: promised writes that are not at their end are submitted
    /// again, the others are landed and dropped. It may make system calls, and runs foreign code.
    pub(crate) fn settle(&mut self, ring: &Uring) {
        let mut goes_back = false;
        for (op, outcome) in self.going_on.drain(..) {
            goes_back |= ring.go_on(op, outcome, &mut self.ops);
        }
        if goes_back {
            ring.submit();
        }
        self.clear();
    }

    fn clear(&mut self) {
        for op in self.ops.drain(..) {
            discard(catch_unwind(AssertUnwindSafe(|| drop(op))));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.going_on.is_empty()
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        debug_assert!(self.going_on.is_empty(), "not settled");
        self.clear();
    }
}

impl Uring {
    /// Makes a ring, and tries it out, because io_uring may be forbidden in several ways.
    pub(crate) fn new(failures: Arc<Failures>) -> io::Result<Uring> {
        let make = |is_modern: bool| {
            let mut builder = IoUring::builder();
            builder.dontfork().setup_clamp().setup_cqsize(2 * MOST_IN_FLIGHT as u32);
            if is_modern {
                // Completions are posted when the worker enters the kernel by itself, at the latest with the next
                // tick of its clock. And one bad entry does not hold up the others.
                builder.setup_coop_taskrun().setup_submit_all();
            }
            builder.build(SUBMISSIONS)
        };
        let mut uring = make(true).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => make(false),
            _ => Err(error),
        })?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        let codes = std::array::from_fn(|code| probe.is_supported(code as u8));
        // Without it a few files that block for ever would hold up all others. Not all kernels have this limit.
        let _ = uring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS, KERNEL_THREADS]);
        try_out(&mut uring)?;
        Ok(Uring {
            uring,
            submissions: Mutex::default(),
            reader: Mutex::default(),
            in_line: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            in_room: AtomicUsize::new(0),
            failures,
            going_on: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            codes: Box::new(codes),
        })
    }

    /// Whether the kernel supports this operation.
    #[inline]
    pub(crate) fn can(&self, code: u8) -> bool {
        self.codes[usize::from(code)]
    }

    /// Whether an operation is queued or with the kernel.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_line.load(Ordering::Relaxed) + self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Queues an operation. SUBMITTED-BEFORE-SLEEP
    fn push(&self, op: OpRef, is_own: impl FnOnce() -> bool) {
        let mut submissions = lock(&self.submissions);
        if submissions.closed {
            drop(submissions);
            return self.turn_away(&op);
        }
        if op.goes_on() {
            self.going_on.fetch_add(1, Ordering::Relaxed);
        }
        submissions.line.push_back(op);
        self.in_line.fetch_add(1, Ordering::SeqCst);
        if !is_own() || submissions.line.len() >= LONG {
            self.hand_over(&mut submissions);
        }
    }

    /// Asks the kernel to cancel an operation.
    fn cancel(&self, op: OpRef) {
        let mut submissions = lock(&self.submissions);
        submissions.give_up.push_back(op);
        self.in_line.fetch_add(1, Ordering::Relaxed);
        self.hand_over(&mut submissions);
    }

    /// Hands the queue to the kernel. `true`: the kernel refused some of it, and the caller must try again soon.
    pub(crate) fn submit(&self) -> bool {
        if self.in_line.load(Ordering::SeqCst) > 0 || self.refused.load(Ordering::Relaxed) {
            self.hand_over(&mut lock(&self.submissions));
        }
        self.refused.load(Ordering::Relaxed)
    }

    fn hand_over(&self, submissions: &mut MutexGuard<'_, Submissions>) {
        loop {
            // SAFETY: SUBMISSION-LOCK.
            let mut queue = unsafe { self.uring.submission_shared() };
            self.fill(submissions, &mut queue);
            let given = queue.len();
            drop(queue); // publishes its entries to the kernel
            if given == 0 {
                self.refused.store(false, Ordering::Relaxed);
                return;
            }
            let taken = match self.uring.submit() {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The kernel is short of memory. It will have more when an operation ends, or a little later.
                Err(_) => 0,
            };
            self.refused.store(taken < given, Ordering::Relaxed);
            if taken == 0 {
                return;
            }
        }
    }

    /// Moves queued operations to the submission queue. COMPLETION-ROOM
    fn fill(&self, submissions: &mut Submissions, queue: &mut squeue::SubmissionQueue<'_>) {
        let mut moved = 0;
        let mut in_room = self.in_room.load(Ordering::Relaxed);
        let is_nodrop = self.is_nodrop();
        // Cancel requests go first: they may make the room that others wait for.
        while !queue.is_full()
            && (is_nodrop || self.in_flight.load(Ordering::Relaxed) < 2 * MOST_IN_FLIGHT)
            && let Some(op) = submissions.give_up.pop_front()
        {
            moved += 1;
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            let entry = opcode::AsyncCancel::new(op.number()).build();
            let entry = entry.user_data(op.into_number() | GIVE_UP); // SAME-ADDRESS
            push_entry(queue, &entry);
        }
        let has_room = |op: &OpRef, in_room| in_room < MOST_IN_FLIGHT || is_nodrop && !op.is_bounded();
        while !queue.is_full()
            && let Some(op) = submissions.line.pop_front_if(|op| has_room(op, in_room))
        {
            moved += 1;
            if !op.take_off() {
                continue; // it was withdrawn
            }
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            if self.counts(&op) {
                in_room = self.in_room.fetch_add(1, Ordering::Relaxed) + 1;
            }
            let entry = op.entry();
            push_entry(queue, &entry.user_data(op.into_number()));
        }
        self.in_line.fetch_sub(moved, Ordering::Relaxed);
    }

    /// Whether the kernel keeps completions that the queue has no room for.
    fn is_nodrop(&self) -> bool {
        self.uring.params().is_feature_nodrop()
    }

    /// Whether an operation counts against the room. COMPLETION-ROOM
    fn counts(&self, op: &OpRef) -> bool {
        op.is_bounded() || !self.is_nodrop()
    }

    /// Whether there are completions to take in.
    pub(crate) fn has_completions(&self) -> bool {
        let Ok(_reader) = self.reader.try_lock() else { return false };
        // SAFETY: ONE-READER.
        !unsafe { self.uring.completion_shared() }.is_empty()
    }

    /// Takes in completions, unless another thread does. The caller wakes `wakers`.
    pub(crate) fn take_in(&self, wakers: &mut Vec<GuardedWaker>, landed: &mut Landed) {
        let Ok(_reader) = self.reader.try_lock() else { return };
        while self.take_in_some(wakers, landed) {}
    }

    /// Takes in the completion queue. `true`: the kernel had kept more completions than there was room for.
    fn take_in_some(&self, wakers: &mut Vec<GuardedWaker>, landed: &mut Landed) -> bool {
        let may_overflow = self.in_flight.load(Ordering::Relaxed) > self.uring.params().cq_entries() as usize;
        // SAFETY: ONE-READER.
        for completion in unsafe { self.uring.completion_shared() } {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            let number = completion.user_data();
            if number == GIVE_UP {
                continue; // the request to cancel all operations, made at the end
            }
            // SAFETY: the number comes from `into_number`, and the kernel gives it back once. The mark is removed.
            let op = unsafe { OpRef::from_number(number & !GIVE_UP) };
            if number & GIVE_UP == 0 {
                self.land(op, &completion, wakers, landed);
            } else {
                landed.ops.push(op);
            }
        }
        may_overflow && self.ask_for_kept()
    }

    /// Asks the kernel for completions that it has kept. Returns whether there were any. COMPLETION-ROOM
    #[cold]
    fn ask_for_kept(&self) -> bool {
        let _submissions = lock(&self.submissions);
        // SAFETY: SUBMISSION-LOCK.
        let is_kept = unsafe { self.uring.submission_shared() }.cq_overflow();
        // The kernel sets the overflow mark, and then the call fetches them. If it fails, the next look tries again.
        is_kept && self.uring.submit().is_ok()
    }

    fn land(
        &self,
        op: OpRef,
        completion: &cqueue::Entry,
        wakers: &mut Vec<GuardedWaker>,
        landed: &mut Landed,
    ) {
        if self.counts(&op) {
            self.in_room.fetch_sub(1, Ordering::Relaxed);
        }
        let outcome = OpResult::of(completion.result());
        if op.goes_on() {
            // It may need a system call or a report of its failure: neither under these locks.
            landed.going_on.push((op, outcome));
        } else {
            wakers.extend(op.land(outcome, None));
            landed.ops.push(op);
        }
    }

    /// Deals with a promised write that came back. `true`: it is queued again, and the queue must be handed over. GOES-ON
    fn go_on(&self, op: OpRef, outcome: OpResult, ops: &mut Vec<OpRef>) -> bool {
        let mut outcome = outcome;
        if op.goes_back(outcome) {
            let mut submissions = lock(&self.submissions);
            if !submissions.over {
                submissions.line.push_back(op);
                self.in_line.fetch_add(1, Ordering::SeqCst);
                return true;
            }
            // A holder of the file sends the rest to another runtime.
            op.take_off();
            outcome = OpResult::Failed(Errno::CANCELED);
        }
        self.land_for_good(&op, outcome);
        ops.push(op);
        false
    }

    /// Ends a promised write.
    fn land_for_good(&self, op: &OpRef, outcome: OpResult) {
        if let Some(waker) = op.land(outcome, Some(&self.failures)) {
            wake(waker);
        }
        self.going_on.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until the kernel has completed an operation, for at most `limit`.
    fn wait(&self, limit: Duration) {
        let limit = types::Timespec::from(limit);
        let args = types::SubmitArgs::new().timespec(&limit);
        // The submission queue has only refused entries. A timeout is no error.
        let _ = self.uring.submitter().submit_with_args(1, &args);
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // No operation is with the kernel, but requests to cancel completed operations may still be there.
        let mut landed = Landed::default();
        self.take_in(&mut Vec::new(), &mut landed);
        landed.settle(self);
    }
}

fn push_entry(queue: &mut squeue::SubmissionQueue<'_>, entry: &squeue::Entry) {
    // SAFETY: the memory that an entry points to outlives the operation, by the contract of `Request` and by
    // LANDED-THEN-FREED in `node`.
    let pushed = unsafe { queue.push(entry) };
    pushed.expect("the caller checked that the submission queue is not full");
}

/// Submits an operation without effect, to see that the ring works.
fn try_out(uring: &mut IoUring) -> io::Result<()> {
    let nothing = opcode::Nop::new().build();
    push_entry(&mut uring.submission(), &nothing);
    uring.submit_and_wait(1)?;
    uring
        .completion()
        .next()
        .map(drop)
        .ok_or_else(|| io::Error::other("io_uring completed no operation in a test"))
}

impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the ring exists.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}
