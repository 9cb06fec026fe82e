//! The end of a ring: what becomes of operations when the runtime ends.
//!
//! What has not begun never will, but for what goes on whoever waits (a write that was promised): that is given
//! the time to end. The rest is given up, and waited for. If the kernel takes longer than that, a thread waits
//! for it in our place: nothing that the kernel may write to is freed before it is done (OUTLIVES in `node`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use io_uring::{opcode, types};

use super::node::{Flight, Outcome};
use super::{GIVE_UP, Landed, Ring, push_entry};
use crate::prim::{Ordering, lock};
use crate::task::wait::wake;

/// How long what goes on is waited for, and how long what was given up is.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long at a time.
const STEP: Duration = Duration::from_millis(20);

impl Ring {
    /// Nobody will do it.
    pub(super) fn turn_away(&self, flight: &Flight) {
        if flight.take_off()
            && let Some(waker) = flight.land(Outcome::Gone)
        {
            wake(waker);
        }
    }

    /// Takes nothing more, and waits for what the kernel is at, but not for long.
    pub(crate) fn close(self: &Arc<Ring>) {
        let mut desk = lock(&self.desk);
        desk.closed = true;
        let (go_on, others): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut desk.line).into_iter().partition(Flight::goes_on);
        desk.line = go_on;
        drop(desk);
        self.in_line.fetch_sub(others.len(), Ordering::Relaxed);
        others.iter().for_each(|flight| self.turn_away(flight));
        drop(others);
        let kept_on = || lock(&self.desk).line.len() + self.going_on.load(Ordering::Relaxed);
        self.wait_while(|| kept_on() > 0);
        if self.is_in_use() {
            self.give_all_up();
            self.wait_while(|| self.is_in_use());
        }
        if self.is_in_use() {
            let ring = self.clone();
            let waits = std::thread::Builder::new().name("dapple-files".to_owned()).spawn(move || {
                while ring.is_in_use() {
                    ring.step(Duration::from_secs(3600));
                }
            });
            if waits.is_err() {
                // Nobody will ever take in what the kernel is at: it keeps what it has.
                std::mem::forget(self.clone());
            }
        }
    }

    fn wait_while(&self, goes_on: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.submit();
            self.step(Duration::ZERO);
            if !goes_on() || Instant::now() >= deadline {
                return;
            }
            self.wait(STEP);
        }
    }

    /// Takes in what is done, after having waited for it for so long.
    fn step(&self, limit: Duration) {
        if !limit.is_zero() {
            self.wait(limit);
        }
        let (mut wakers, mut landed) = (Vec::<Waker>::new(), Landed::default());
        self.take_in(&mut wakers, &mut landed);
        wakers.into_iter().for_each(wake);
    }

    /// Asks the kernel to give up all that it is at, as far as it can.
    fn give_all_up(&self) {
        let _desk = lock(&self.desk);
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
    }
}
