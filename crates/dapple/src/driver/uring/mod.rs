//! The ring of a driver: operations that the kernel does by itself, io_uring's, for files.
//!
//! A driver has one from when it is first asked for. Tasks put operations in line; the worker hands the line to
//! the kernel when it looks around, before it sleeps, or when it has grown long; and completions are taken in
//! where the driver's other events are handed out. The ring is in the driver's epoll, so that the worker sleeps
//! in one place. See docs/design/files.md.
//!
//! ```text
//! node      one operation: what it is given, who waits for it, and how it ended
//! choice    whether files go through a ring or through the pool
//! close     what becomes of operations when the runtime ends
//! failures  promised writes that failed with no file left to tell
//! ```
//!
//! # Invariants
//!
//! * **AT-THE-DESK**: the submission queue is touched under the lock of `desk`.
//! * **ONE-READER**: the completion queue is touched under the lock of `reader`.
//! * **COMPLETION-ROOM**: of operations that end by themselves (on regular files, block devices and names) no more are
//!   given to the kernel than the completion queue has room for. An operation on anything else (a pipe, a terminal) may
//!   wait for ever, so it takes no place from others: it is given to the kernel at once. If the completion queue
//!   overflows then, the kernel keeps the rest (`IORING_FEAT_NODROP`), and `take_in` asks for it; a kernel that would
//!   lose the rest gets no more than there is room for, whatever it is.
//! * **GOES-ON**: an operation that goes on whoever waits (a promised write) and comes back before its end goes into
//!   line again, by the thread that takes it in, and that thread hands the line to the kernel. So it does not matter
//!   which thread submitted it, nor whether that thread still exists: the kernel gives up what a thread has submitted
//!   when that thread ends.
//! * **SUBMITTED-BEFORE-SLEEP**: whoever puts an operation in line holds the post that the ring belongs to, and
//!   turns to the line before it sleeps; or it hands the line to the kernel itself. It looks whether it holds the
//!   post after it has put the operation in line, and who takes the post over looks at the line after that.
//! * **SAME-ADDRESS**: a request to give an operation up has a reference to its node until it is done itself.
//!   So the number by which the kernel looks for the operation is not another's.

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

/// How many the kernel takes at a time.
const SUBMISSIONS: u32 = 256;
/// How many the kernel is at that count. COMPLETION-ROOM
const MOST_IN_FLIGHT: usize = 1024;
/// How long the line may get before it is handed over at once.
const LONG: usize = 64;
/// How many threads the kernel may use for operations that block, for each thread that submits: as many as the
/// pool would.
const KERNEL_THREADS: u32 = 512;
/// Marks the number of a request to give an operation up: nodes are aligned to more than this.
const GIVE_UP: u64 = 1;

pub(crate) struct Uring {
    uring: IoUring,
    desk: Mutex<Submissions>,
    /// ONE-READER
    reader: Mutex<()>,
    /// How many are in line.
    in_line: AtomicUsize,
    /// How many completions are to come.
    in_flight: AtomicUsize,
    /// How many of them count. COMPLETION-ROOM
    in_room: AtomicUsize,
    /// Operations that go on whoever waits: in line, with the kernel, or between the two. GOES-ON
    going_on: AtomicUsize,
    failures: Arc<Failures>,
    /// The kernel did not take all that it was given.
    refused: AtomicBool,
    /// Which operations the kernel knows, by number.
    codes: Box<[bool; 256]>,
}

/// Where operations are handed in. AT-THE-DESK
#[derive(Default)]
struct Submissions {
    line: VecDeque<OpRef>,
    /// Those to be given up.
    give_up: VecDeque<OpRef>,
    /// Nothing more is taken.
    closed: bool,
    /// Nothing goes back into line, either.
    over: bool,
}

/// What was taken in, to be dealt with when no lock is held.
#[derive(Default)]
pub(crate) struct Landed {
    /// References that are given up: the last one drops what a task has left behind, which is foreign code.
    flights: Vec<OpRef>,
    /// Those that go on, with how they came back. GOES-ON
    going_on: Vec<(OpRef, OpResult)>,
}

impl Landed {
    /// Deals with them, whatever their destructors do: those that go on and are not at their end are handed to the
    /// kernel again, the others are landed and given up. It may take system calls, and calls foreign code.
    pub(crate) fn settle(&mut self, ring: &Uring) {
        let mut goes_back = false;
        for (flight, outcome) in self.going_on.drain(..) {
            goes_back |= ring.go_on(flight, outcome, &mut self.flights);
        }
        if goes_back {
            ring.submit();
        }
        self.clear();
    }

    fn clear(&mut self) {
        for flight in self.flights.drain(..) {
            discard(catch_unwind(AssertUnwindSafe(|| drop(flight))));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty() && self.going_on.is_empty()
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        debug_assert!(self.going_on.is_empty(), "not settled");
        self.clear();
    }
}

impl Uring {
    /// Makes one, and tries it out: it may be forbidden in more than one way.
    pub(crate) fn new(failures: Arc<Failures>) -> io::Result<Uring> {
        let make = |is_modern: bool| {
            let mut builder = IoUring::builder();
            builder.dontfork().setup_clamp().setup_cqsize(2 * MOST_IN_FLIGHT as u32);
            if is_modern {
                // Completions wait until the worker enters the kernel by itself, at the latest with the next
                // tick of its clock; and one bad entry does not hold up the others.
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
        // Or a few files that block for ever would hold up all others. It is a limit, and not in all kernels.
        let _ = uring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS, KERNEL_THREADS]);
        try_out(&mut uring)?;
        Ok(Uring {
            uring,
            desk: Mutex::default(),
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

    /// Whether the kernel knows this operation.
    #[inline]
    pub(crate) fn can(&self, code: u8) -> bool {
        self.codes[usize::from(code)]
    }

    /// Whether there is anything in it.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_line.load(Ordering::Relaxed) + self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Puts an operation in line. SUBMITTED-BEFORE-SLEEP
    fn push(&self, flight: OpRef, is_own: impl FnOnce() -> bool) {
        let mut desk = lock(&self.desk);
        if desk.closed {
            drop(desk);
            return self.turn_away(&flight);
        }
        if flight.goes_on() {
            self.going_on.fetch_add(1, Ordering::Relaxed);
        }
        desk.line.push_back(flight);
        self.in_line.fetch_add(1, Ordering::SeqCst);
        if !is_own() || desk.line.len() >= LONG {
            self.hand_over(&mut desk);
        }
    }

    /// Asks the kernel to give an operation up.
    fn cancel(&self, flight: OpRef) {
        let mut desk = lock(&self.desk);
        desk.give_up.push_back(flight);
        self.in_line.fetch_add(1, Ordering::Relaxed);
        self.hand_over(&mut desk);
    }

    /// Hands to the kernel what is in line. `true`: some of it was refused, and must be tried again soon.
    pub(crate) fn submit(&self) -> bool {
        if self.in_line.load(Ordering::SeqCst) > 0 || self.refused.load(Ordering::Relaxed) {
            self.hand_over(&mut lock(&self.desk));
        }
        self.refused.load(Ordering::Relaxed)
    }

    fn hand_over(&self, desk: &mut MutexGuard<'_, Submissions>) {
        loop {
            // SAFETY: AT-THE-DESK.
            let mut queue = unsafe { self.uring.submission_shared() };
            self.fill(desk, &mut queue);
            let given = queue.len();
            drop(queue); // tells the kernel of what is in it
            if given == 0 {
                self.refused.store(false, Ordering::Relaxed);
                return;
            }
            let taken = match self.uring.submit() {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // It is short of memory: there will be more when something is done, or a little later.
                Err(_) => 0,
            };
            self.refused.store(taken < given, Ordering::Relaxed);
            if taken == 0 {
                return;
            }
        }
    }

    /// Moves what is in line to the submission queue. COMPLETION-ROOM
    fn fill(&self, desk: &mut Submissions, queue: &mut squeue::SubmissionQueue<'_>) {
        let mut moved = 0;
        let mut in_room = self.in_room.load(Ordering::Relaxed);
        let is_nodrop = self.is_nodrop();
        // Those to be given up may be what there is no room for.
        while !queue.is_full()
            && (is_nodrop || self.in_flight.load(Ordering::Relaxed) < 2 * MOST_IN_FLIGHT)
            && let Some(flight) = desk.give_up.pop_front()
        {
            moved += 1;
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            let entry = opcode::AsyncCancel::new(flight.number()).build();
            let entry = entry.user_data(flight.into_number() | GIVE_UP); // SAME-ADDRESS
            push_entry(queue, &entry);
        }
        let has_room =
            |flight: &OpRef, in_room| in_room < MOST_IN_FLIGHT || is_nodrop && !flight.is_bounded();
        while !queue.is_full()
            && let Some(flight) = desk.line.pop_front_if(|flight| has_room(flight, in_room))
        {
            moved += 1;
            if !flight.take_off() {
                continue; // withdrawn
            }
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            if self.counts(&flight) {
                in_room = self.in_room.fetch_add(1, Ordering::Relaxed) + 1;
            }
            let entry = flight.entry();
            push_entry(queue, &entry.user_data(flight.into_number()));
        }
        self.in_line.fetch_sub(moved, Ordering::Relaxed);
    }

    /// The kernel keeps completions that the queue has no room for.
    fn is_nodrop(&self) -> bool {
        self.uring.params().is_feature_nodrop()
    }

    /// Whether an operation counts against the room. COMPLETION-ROOM
    fn counts(&self, flight: &OpRef) -> bool {
        flight.is_bounded() || !self.is_nodrop()
    }

    /// Whether there is something to be taken in.
    pub(crate) fn has_completions(&self) -> bool {
        let Ok(_reader) = self.reader.try_lock() else { return false };
        // SAFETY: ONE-READER.
        !unsafe { self.uring.completion_shared() }.is_empty()
    }

    /// Takes in what is done, unless somebody else is at it. What waits for it is to be woken.
    pub(crate) fn take_in(&self, wakers: &mut Vec<GuardedWaker>, landed: &mut Landed) {
        let Ok(_reader) = self.reader.try_lock() else { return };
        while self.take_in_some(wakers, landed) {}
    }

    /// Takes in what is in the completion queue. `true`: the kernel had kept more than there was room for.
    fn take_in_some(&self, wakers: &mut Vec<GuardedWaker>, landed: &mut Landed) -> bool {
        let may_overflow = self.in_flight.load(Ordering::Relaxed) > self.uring.params().cq_entries() as usize;
        // SAFETY: ONE-READER.
        for completion in unsafe { self.uring.completion_shared() } {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            let number = completion.user_data();
            if number == GIVE_UP {
                continue; // all, at the end
            }
            // SAFETY: the kernel gives each number back once; a mark is ours.
            let flight = unsafe { OpRef::from_number(number & !GIVE_UP) };
            if number & GIVE_UP == 0 {
                self.land(flight, &completion, wakers, landed);
            } else {
                landed.flights.push(flight);
            }
        }
        may_overflow && self.ask_for_kept()
    }

    /// Asks the kernel for completions that it has kept; whether there were any. COMPLETION-ROOM
    #[cold]
    fn ask_for_kept(&self) -> bool {
        let _desk = lock(&self.desk);
        // SAFETY: AT-THE-DESK.
        let is_kept = unsafe { self.uring.submission_shared() }.cq_overflow();
        // With the mark set the call asks for them; if it fails, they are asked for at the next look.
        is_kept && self.uring.submit().is_ok()
    }

    fn land(
        &self,
        flight: OpRef,
        completion: &cqueue::Entry,
        wakers: &mut Vec<GuardedWaker>,
        landed: &mut Landed,
    ) {
        if self.counts(&flight) {
            self.in_room.fetch_sub(1, Ordering::Relaxed);
        }
        let outcome = OpResult::of(completion.result());
        if flight.goes_on() {
            // It may take a system call, and a failure may have to be told: not under these locks.
            landed.going_on.push((flight, outcome));
        } else {
            wakers.extend(flight.land(outcome, None));
            landed.flights.push(flight);
        }
    }

    /// One that goes on came back. `true` if it is in line again, and the line must be handed over. GOES-ON
    fn go_on(&self, flight: OpRef, outcome: OpResult, flights: &mut Vec<OpRef>) -> bool {
        let mut outcome = outcome;
        if flight.goes_back(outcome) {
            let mut desk = lock(&self.desk);
            if !desk.over {
                desk.line.push_back(flight);
                self.in_line.fetch_add(1, Ordering::SeqCst);
                return true;
            }
            // Whoever still has the file sends the rest of it to another runtime.
            flight.take_off();
            outcome = OpResult::Failed(Errno::CANCELED);
        }
        self.land_for_good(&flight, outcome);
        flights.push(flight);
        false
    }

    /// One that goes on is at its end.
    fn land_for_good(&self, flight: &OpRef, outcome: OpResult) {
        if let Some(waker) = flight.land(outcome, Some(&self.failures)) {
            wake(waker);
        }
        self.going_on.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for the kernel to be done with something, but not for longer than so.
    fn wait(&self, limit: Duration) {
        let limit = types::Timespec::from(limit);
        let args = types::SubmitArgs::new().timespec(&limit);
        // Nothing is in the submission queue but what was refused; that the time is up is no error.
        let _ = self.uring.submitter().submit_with_args(1, &args);
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Nothing is under way any more, but somebody may have asked for what was done already to be given up.
        let mut landed = Landed::default();
        self.take_in(&mut Vec::new(), &mut landed);
        landed.settle(self);
    }
}

fn push_entry(queue: &mut squeue::SubmissionQueue<'_>, entry: &squeue::Entry) {
    // SAFETY: what it points to outlives the operation: a request's own promise, and LANDED-THEN-FREED in `node`.
    let pushed = unsafe { queue.push(entry) };
    pushed.expect("it was not full");
}

/// Whether it can be used at all.
fn try_out(uring: &mut IoUring) -> io::Result<()> {
    let nothing = opcode::Nop::new().build();
    push_entry(&mut uring.submission(), &nothing);
    uring.submit_and_wait(1)?;
    uring.completion().next().map(drop).ok_or_else(|| io::Error::other("io_uring does nothing"))
}

impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open for as long as the ring is there.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}
