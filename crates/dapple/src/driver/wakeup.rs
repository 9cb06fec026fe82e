//! The bell: wakes the thread that sleeps in a driver.
//!
//! Somebody who rings while nobody sleeps only leaves a note; so does everybody after the first.
//! The system call is made for a sleeper alone. Where there is no kernel to sleep in (in a simulation,
//! under Miri, in a model), a parker takes its place. One thread at a time sleeps by it, not always the same one.
//!
//! # Invariants
//!
//! * **RUNG-OR-SEEN**: the sleeper changes AWAKE to ASLEEP in one step, and whoever rings changes
//!   what is there to RUNG in one step. So either the sleeper finds the note, or the one who rings
//!   finds the sleeper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::prim::{AtomicU8, Ordering, SharedParker};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

pub(crate) struct Wakeup {
    state: AtomicU8,
    hammer: WakeupChannel,
}

/// What reaches the sleeper.
enum WakeupChannel {
    Event(OwnedFd),
    Parker(SharedParker),
}

impl Wakeup {
    /// For who sleeps in the kernel.
    pub(crate) fn new() -> Result<Wakeup, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wakeup { state: AtomicU8::new(AWAKE), hammer: WakeupChannel::Event(event) })
    }

    /// For who sleeps in [`listen`](Self::listen).
    pub(crate) fn without_kernel() -> Wakeup {
        Wakeup { state: AtomicU8::new(AWAKE), hammer: WakeupChannel::Parker(SharedParker::default()) }
    }

    #[inline]
    pub(crate) fn ring(&self) {
        // Always a write, also over RUNG: who gets up and changes it back sees what we did before.
        if self.state.swap(RUNG, Ordering::SeqCst) == ASLEEP {
            self.strike();
        }
    }

    #[cold]
    fn strike(&self) {
        match &self.hammer {
            WakeupChannel::Parker(parker) => parker.unpark(),
            WakeupChannel::Event(event) => {
                // It is never read, only its edge is seen. Its counter has room for all rings of a lifetime.
                let struck = rustix::io::write(event, &1_u64.to_ne_bytes());
                debug_assert!(struck.is_ok(), "an eventfd takes what it is given");
            }
        }
    }

    /// Before the thread sleeps. `false`: it has been rung for, and must not.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok() // RUNG-OR-SEEN
    }

    /// After it slept, or was told not to. What was rung for until now must be looked at after this.
    pub(crate) fn finish_sleep(&self) {
        self.state.swap(AWAKE, Ordering::SeqCst);
    }

    /// Waits to be rung for, where there is no kernel to do so in.
    pub(crate) fn listen(&self, limit: Option<Duration>) {
        if let WakeupChannel::Parker(parker) = &self.hammer {
            parker.park(limit);
        }
    }

    /// What the kernel is to wait for.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        match &self.hammer {
            WakeupChannel::Event(event) => Some(event.as_fd()),
            WakeupChannel::Parker(_) => None,
        }
    }
}
