//! The end of the rings of a runtime: what becomes of their operations.
//!
//! An operation that has not begun never will, except those that go on whoever waits (promised writes): these get the
//! time to end. They go on also if other threads of the runtime end meanwhile, and the kernel gives up what those have
//! submitted: the closing thread takes them in and submits them again (GOES-ON in `ring`). All rings are closed at
//! once, so that the time is the same for all, and does not add up. The rest is given up, and waited for. If the kernel
//! takes longer than that, a thread waits for it in our place: nothing that the kernel may write to is freed before it
//! is done (LANDED-THEN-FREED in `node`).

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

/// How long what goes on is waited for, and how long what was given up is.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long at a time.
const STEP: Duration = Duration::from_millis(20);

/// Takes nothing more, and waits for what the kernel is at, but not for long.
pub(crate) fn close_all(mut rings: Vec<Arc<Uring>>) {
    rings.iter().for_each(|ring| ring.turn_all_away());
    wait_while(&rings, |ring| ring.going_on.load(Ordering::Relaxed) > 0);
    rings.retain(|ring| ring.is_in_use());
    rings.iter().for_each(|ring| ring.give_all_up());
    wait_while(&rings, Uring::is_in_use);
    rings.into_iter().filter(|ring| ring.is_in_use()).for_each(leave_behind);
}

/// Leaves a ring to a thread that waits for what the kernel is at.
fn leave_behind(ring: Arc<Uring>) {
    let waits = ring.clone();
    let waits = std::thread::Builder::new().name("dapple-files".to_owned()).spawn(move || {
        while waits.is_in_use() {
            waits.wait(Duration::from_secs(3600));
            waits.step();
        }
    });
    if waits.is_err() {
        // Nobody will ever take in what the kernel is at: it keeps what it has.
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
        // Whether or not something has happened, it is looked at.
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: limit }));
    }
}

impl Uring {
    /// Nobody will do it, unless it was promised and does not wait for another program: then it is done here.
    pub(super) fn turn_away(&self, flight: &OpRef) {
        if flight.take_off()
            && let Some(waker) = flight.land(flight.at_the_end(), Some(&self.failures))
        {
            wake(waker);
        }
    }

    /// Takes nothing more. What has not begun is turned away, except what goes on.
    fn turn_all_away(&self) {
        let mut desk = lock(&self.desk);
        desk.closed = true;
        let (go_on, others): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut desk.line).into_iter().partition(OpRef::goes_on);
        desk.line = go_on;
        drop(desk);
        self.in_line.fetch_sub(others.len(), Ordering::Relaxed);
        others.iter().for_each(|flight| self.turn_away(flight));
    }

    /// Takes in what is done.
    fn step(&self) {
        let (mut wakers, mut landed) = (Vec::<GuardedWaker>::new(), Landed::default());
        self.take_in(&mut wakers, &mut landed);
        wakers.into_iter().for_each(wake);
        landed.settle(self);
    }

    /// The time is up: what goes on is not sent again, and the kernel is asked to give up all that it is at, as far as
    /// it can.
    fn give_all_up(&self) {
        let mut desk = lock(&self.desk);
        desk.over = true;
        let line = std::mem::take(&mut desk.line);
        self.in_line.fetch_sub(line.len(), Ordering::Relaxed);
        // SAFETY: AT-THE-DESK.
        let mut queue = unsafe { self.uring.submission_shared() };
        if !queue.is_full() {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            let all = types::CancelBuilder::any();
            push_entry(&mut queue, &opcode::AsyncCancel2::new(all).build().user_data(GIVE_UP));
            drop(queue);
            // If it is refused, the next step tries again.
            let _ = self.uring.submit();
        }
        drop(desk);
        for flight in line {
            // It was promised: whoever still has the file sends it to another runtime.
            if flight.take_off() {
                self.land_for_good(&flight, OpResult::Failed(Errno::CANCELED));
            }
        }
    }
}
