//! The bell: wakes the thread that sleeps in a driver.
//!
//! A thread that rings while no thread sleeps only stores a note, and later ringers find that note. The system call is
//! made for a sleeper alone. Where there is no kernel to sleep in (in a simulation, under Miri, in a model), a parker
//! takes its place. One thread at a time sleeps by it, not always the same one.
//!
//! # Invariants
//!
//! * **RUNG-OR-SEEN**: the sleeper changes AWAKE to ASLEEP in one atomic step, and the ringer changes any state to RUNG
//!   in one atomic step. So either the sleeper finds the note, or the ringer finds the sleeper.

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

/// The way to reach the sleeper.
enum WakeupChannel {
    Event(OwnedFd),
    Parker(SharedParker),
}

impl Wakeup {
    /// A bell for threads that sleep in the kernel.
    pub(crate) fn new() -> Result<Wakeup, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wakeup { state: AtomicU8::new(AWAKE), hammer: WakeupChannel::Event(event) })
    }

    /// A bell for threads that sleep in [`listen`](Self::listen).
    pub(crate) fn without_kernel() -> Wakeup {
        Wakeup { state: AtomicU8::new(AWAKE), hammer: WakeupChannel::Parker(SharedParker::default()) }
    }

    #[inline]
    pub(crate) fn ring(&self) {
        // Always a write, also over RUNG: a sleeper that wakes and swaps it back sees the ringer's earlier writes.
        if self.state.swap(RUNG, Ordering::SeqCst) == ASLEEP {
            self.strike();
        }
    }

    #[cold]
    fn strike(&self) {
        match &self.hammer {
            WakeupChannel::Parker(parker) => parker.unpark(),
            WakeupChannel::Event(event) => {
                // It is never read: only its edge counts. Its counter has room for more rings than a process makes.
                let struck = rustix::io::write(event, &1_u64.to_ne_bytes());
                debug_assert!(struck.is_ok(), "the counter of an eventfd is full, or the eventfd is closed");
            }
        }
    }

    /// Call before sleeping. `false`: the bell has rung, and the thread must not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok() // RUNG-OR-SEEN
    }

    /// Call after sleeping, or after a refusal to sleep. The thread must then look for the work that it was rung for.
    pub(crate) fn finish_sleep(&self) {
        self.state.swap(AWAKE, Ordering::SeqCst);
    }

    /// Waits for a ring, where there is no kernel to sleep in.
    pub(crate) fn listen(&self, limit: Option<Duration>) {
        if let WakeupChannel::Parker(parker) = &self.hammer {
            parker.park(limit);
        }
    }

    /// The file descriptor for the epoll.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        match &self.hammer {
            WakeupChannel::Event(event) => Some(event.as_fd()),
            WakeupChannel::Parker(_) => None,
        }
    }
}
