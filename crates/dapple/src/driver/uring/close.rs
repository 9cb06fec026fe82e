//! The end of a runtime's rings, and of the operations in them.
//!
//! An operation that has not begun never will, except a promised write: it gets some time to end. Promised writes go on
//! also if other threads of the runtime end meanwhile, and the kernel cancels the operations that those threads have
//! submitted: the closing thread takes them in and submits them again (GOES-ON in `uring`). All rings are closed at
//! once, so that they share one deadline. All other operations are cancelled, and waited for. If the kernel takes
//! longer than that, a separate thread waits in place of the closing thread: no memory that the kernel may write to is
//! freed before the kernel is done with it (LANDED-THEN-FREED in `node`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{opcode, types};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::node::{OpRef, OpResult};
use super::{GIVE_UP, Landed, Uring, push_entry};
use crate::cancel::wait::wake;
use crate::prim::{Ordering, lock};
use crate::task::guarded::GuardedWaker;

/// The time that promised writes get to end, and then the time that cancelled operations get.
const PATIENCE: Duration = Duration::from_millis(400);
/// The longest wait between two looks.
const STEP: Duration = Duration::from_millis(20);

/// Closes rings: they accept nothing more. Waits for the operations that the kernel works on, for a bounded time.
pub(crate) fn close_all(mut rings: Vec<Arc<Uring>>) {
    rings.iter().for_each(|ring| ring.turn_all_away());
    wait_while(&rings, |ring| ring.going_on.load(Ordering::Relaxed) > 0);
    rings.retain(|ring| ring.is_in_use());
    rings.iter().for_each(|ring| ring.give_all_up());
    wait_while(&rings, Uring::is_in_use);
    rings.into_iter().filter(|ring| ring.is_in_use()).for_each(leave_behind);
}

/// Leaves a ring to a thread that waits for the kernel's last operations.
fn leave_behind(ring: Arc<Uring>) {
    let waits = ring.clone();
    let waits = std::thread::Builder::new().name("dapple-files".to_owned()).spawn(move || {
        while waits.is_in_use() {
            waits.wait(Duration::from_secs(3600));
            waits.step();
        }
    });
    if waits.is_err() {
        // No thread will take in these completions, so the ring and its requests are leaked: the kernel may write.
        std::mem::forget(ring);
    }
}

fn wait_while(rings: &[Arc<Uring>], goes_on: impl Fn(&Uring) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for ring in rings {
            ring.submit();
            ring.step();
        }
        let now = Instant::now();
        if !rings.iter().any(|ring| goes_on(ring)) || now >= deadline {
            return;
        }
        let mut fds: Vec<_> = rings.iter().map(|ring| PollFd::new(&**ring, PollFlags::IN)).collect();
        let limit = STEP.min(deadline - now).as_nanos() as i64; // less than a second
        // Both outcomes are the same: the loop looks again.
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: limit }));
    }
}

impl Uring {
    /// Ends an operation that will not be submitted. A promised write that cannot block on another program is done here.
    pub(super) fn turn_away(&self, op: &OpRef) {
        if op.take_off()
            && let Some(waker) = op.land(op.at_the_end(), Some(&self.failures))
        {
            wake(waker);
        }
    }

    /// Closes the queue. Operations that have not begun end without effect, except promised writes.
    fn turn_all_away(&self) {
        let mut submissions = lock(&self.submissions);
        submissions.closed = true;
        let (go_on, others): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut submissions.line).into_iter().partition(OpRef::goes_on);
        submissions.line = go_on;
        drop(submissions);
        self.in_line.fetch_sub(others.len(), Ordering::Relaxed);
        others.iter().for_each(|op| self.turn_away(op));
    }

    /// Takes in completions, and wakes their waiters.
    fn step(&self) {
        let (mut wakers, mut landed) = (Vec::<GuardedWaker>::new(), Landed::default());
        self.take_in(&mut wakers, &mut landed);
        wakers.into_iter().for_each(wake);
        landed.settle(self);
    }

    /// The time is up: promised writes are not submitted again, and the kernel is asked to cancel all operations, as
    /// far as it can.
    fn give_all_up(&self) {
        let mut submissions = lock(&self.submissions);
        submissions.over = true;
        let line = std::mem::take(&mut submissions.line);
        self.in_line.fetch_sub(line.len(), Ordering::Relaxed);
        // SAFETY: SUBMISSION-LOCK.
        let mut queue = unsafe { self.uring.submission_shared() };
        if !queue.is_full() {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            let all = types::CancelBuilder::any();
            push_entry(&mut queue, &opcode::AsyncCancel2::new(all).build().user_data(GIVE_UP));
            drop(queue);
            // If it is refused, the next step tries again.
            let _ = self.uring.submit();
        }
        drop(submissions);
        for op in line {
            // A promised write: a holder of the file sends it to another runtime.
            if op.take_off() {
                self.land_for_good(&op, OpResult::Failed(Errno::CANCELED));
            }
        }
    }
}
