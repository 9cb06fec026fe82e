//! Tests of a ring alone: how many operations it takes, overflow of completions, and operations that are queued again.

use std::sync::Arc;
use std::task::Waker;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;

use super::failures::Failures;
use super::node::{Op, OpResult, Request};
use super::{Landed, MOST_IN_FLIGHT, Uring, close};
use crate::driver::Driver;
use crate::driver::clock::Time;
use crate::prim::Ordering;

/// A ring, or `None` where io_uring is not available, as under Miri.
fn ring() -> Option<Arc<Uring>> {
    if cfg!(miri) {
        return None;
    }
    let ring = Uring::new(Arc::default());
    ring.map_err(|error| eprintln!("not run: no io_uring: {error}")).ok().map(Arc::new)
}

/// Submits the queue, and takes in completions.
fn look(ring: &Uring) {
    ring.submit();
    let mut landed = Landed::default();
    ring.take_in(&mut Vec::new(), &mut landed);
    landed.settle(ring);
}

/// An operation that is done at once, or that waits for an event that never comes.
struct Probe {
    silent: Option<Arc<OwnedFd>>,
    is_bounded: bool,
}

// SAFETY: it points to nothing, and owns the file that it names.
unsafe impl Request for Probe {
    const CODE: Option<u8> = Some(opcode::Nop::CODE);

    fn entry(&mut self) -> Entry {
        match &self.silent {
            Some(fd) => opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).build(),
            None => opcode::Nop::new().build(),
        }
    }

    fn perform(&mut self) -> Result<u32, Errno> {
        unreachable!("no pool in this test")
    }

    fn is_bounded(&self) -> bool {
        self.is_bounded
    }
}

fn send(ring: &Arc<Uring>, silent: Option<&Arc<OwnedFd>>, is_bounded: bool) -> Op<Probe> {
    let mut op = Op::new(Probe { silent: silent.cloned(), is_bounded });
    op.send_to_ring(ring, || true);
    op
}

fn is_done<R: Request>(op: &Op<R>) -> bool {
    op.outcome(Waker::noop()).is_some()
}

/// COMPLETION-ROOM, with more operations that wait for ever than the ring counts room for.
#[test]
fn what_waits_for_ever_takes_no_place() {
    let Some(ring) = ring() else { return };
    let silent = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let waiting: Vec<_> = (0..3 * MOST_IN_FLIGHT).map(|_| send(&ring, Some(&silent), false)).collect();
    look(&ring);
    assert_eq!(ring.in_line.load(Ordering::Relaxed), 0, "all are with the kernel");
    let op = send(&ring, None, true);
    look(&ring);
    assert!(is_done(&op));
    drop(waiting); // each is cancelled, though there are more cancel requests than room
    for _ in 0..1000 {
        look(&ring);
    }
    assert!(!ring.is_in_use(), "{} left", ring.in_flight.load(Ordering::Relaxed));
}

/// COMPLETION-ROOM: those that count wait in line, first come first served.
#[test]
fn what_ends_by_itself_waits_for_room_in_order() {
    let Some(ring) = ring() else { return };
    let silent = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let mut first: Vec<_> = (0..MOST_IN_FLIGHT).map(|_| send(&ring, Some(&silent), true)).collect();
    let then = [(); 3].map(|()| send(&ring, None, true));
    look(&ring);
    assert_eq!(ring.in_line.load(Ordering::Relaxed), 3);
    for done in 1..=3 {
        drop(first.pop());
        look(&ring); // one operation is cancelled, and the next has room
        look(&ring);
        let is_done = then.each_ref().map(is_done);
        assert!(is_done[..done].iter().all(|is_done| *is_done), "{done}: {is_done:?}");
    }
    drop(first);
    for _ in 0..100 {
        look(&ring);
    }
    assert!(!ring.is_in_use());
}

/// More is done at once than the completion queue has room for.
#[test]
fn no_completion_is_lost_when_the_queue_overflows() {
    let Some(ring) = ring() else { return };
    let number = 2 * ring.uring.params().cq_entries() as usize + 100;
    let ops: Vec<_> = (0..number).map(|_| send(&ring, None, false)).collect();
    look(&ring);
    assert_eq!(ops.iter().filter(|op| is_done(op)).count(), number);
    assert!(!ring.is_in_use());
}

/// CLAIMED: the monitor may look at a driver once more while that is being closed.
#[test]
fn an_operation_lands_when_the_monitor_looks_at_a_closed_driver() {
    if ring().is_none() {
        return;
    }
    let driver = Driver::new().unwrap();
    let ring = driver.files(&Arc::default()).unwrap().clone();
    let mut op = Op::going_on(Probe { silent: None, is_bounded: true });
    op.send_to_ring(&ring, || true);
    ring.submit();
    let closed = driver.close().expect("it has a ring");
    if let Some(claim) = driver.claim() {
        claim.hand_out_ours(Time::now());
    }
    close::close_all(vec![closed]);
    assert!(is_done(&op));
}

/// A promised write that is done in parts.
struct Parts {
    left: u32,
}

// SAFETY: no ring does it, so the kernel gets no pointer.
unsafe impl Request for Parts {
    const CODE: Option<u8> = None;

    fn perform(&mut self) -> Result<u32, Errno> {
        Err(Errno::NOSYS)
    }

    fn advance(&mut self, result: u32) -> bool {
        self.left -= result;
        result > 0 && self.left > 0
    }
}

const INTERRUPTED: OpResult = OpResult::Failed(Errno::INTR);
const GIVEN_UP: OpResult = OpResult::Failed(Errno::CANCELED);
const NO_ROOM: OpResult = OpResult::Failed(Errno::NOSPC);

/// GOES-ON and TOLD-OR-COUNTED, for each sequence of results from the kernel, and each moment at which the file is
/// dropped. The write ends with the last step, and not before.
#[test]
fn what_goes_on_goes_back_until_its_end() {
    use OpResult::Did;
    // The steps of a write of 10 bytes, and whether it fails in the end.
    let ways: &[(&[OpResult], bool)] = &[
        (&[Did(10)], false),
        (&[GIVEN_UP, Did(10)], false),
        (&[INTERRUPTED, GIVEN_UP, Did(10)], false),
        (&[Did(3), Did(7)], false),
        (&[Did(3), Did(3), Did(4)], false),
        (&[Did(3), GIVEN_UP, Did(3), INTERRUPTED, Did(4)], false),
        (&[NO_ROOM], true),
        (&[Did(3), NO_ROOM], true),
        (&[GIVEN_UP, NO_ROOM], true),
        (&[Did(3), Did(0)], true),
        (&[Did(0)], true),
    ];
    for (steps, fails) in ways {
        // Dropped before this step; or after all of them, with the result unread or read.
        for dropped_before in 0..=steps.len() + 1 {
            let failures = Arc::new(Failures::default());
            let mut op = Op::going_on(Parts { left: 10 });
            let queued = op.enlist_at(&failures);
            let mut op = Some(op);
            for (i, step) in steps.iter().enumerate() {
                if i == dropped_before {
                    op = None;
                }
                assert!(queued.take_off(), "{steps:?}: in line");
                let goes_back = queued.goes_back(*step);
                assert_eq!(goes_back, i + 1 < steps.len(), "{steps:?} at {i}");
                if !goes_back {
                    drop(queued.land(*step, Some(&failures)));
                } else if let Some(op) = &op {
                    assert!(!is_done(op), "{steps:?} at {i}: a part is no end");
                }
            }
            if let Some(mut op) = op.take() {
                assert!(is_done(&op));
                if dropped_before > steps.len() {
                    op.take(); // told
                }
            }
            let counted = *fails && dropped_before <= steps.len();
            assert_eq!(failures.count(), u64::from(counted), "{steps:?}, dropped before {dropped_before}");
        }
    }
}

/// A file system that interrupts for ever does not keep a worker busy for ever.
#[test]
fn interruptions_without_end_are_an_end() {
    let failures = Arc::new(Failures::default());
    let mut op = Op::going_on(Parts { left: 10 });
    let queued = op.enlist_at(&failures);
    let mut times = 0;
    while queued.take_off() && queued.goes_back(INTERRUPTED) {
        times += 1;
        assert!(times < 10_000);
    }
    assert!(times >= 100, "threads may end one after the other: {times}");
    assert!(queued.land(INTERRUPTED, Some(&failures)).is_none());
    drop(op);
    assert_eq!(failures.count(), 1);
}
