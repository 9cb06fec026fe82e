//! Wake-up of the thread that sleeps in a driver.
//!
//! A thread that notifies while no thread sleeps only stores a note, and later notifiers find that note. The system call is
//! made for a sleeper alone. Where there is no kernel to sleep in (in a simulation, under Miri, in a model), a parker
//! takes its place. One thread at a time sleeps by it, not always the same one.
//!
//! # Invariants
//!
//! * **NOTIFIED-OR-SEEN**: the sleeper changes AWAKE to ASLEEP in one atomic step, and the notifier changes any state to NOTIFIED
//!   in one atomic step. So either the sleeper finds the note, or the notifier finds the sleeper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::prim::{AtomicU8, Ordering, SharedParker};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const NOTIFIED: u8 = 2;

pub(crate) struct Wakeup {
    state: AtomicU8,
    channel: WakeupChannel,
}

/// The way to reach the sleeper.
enum WakeupChannel {
    Event(OwnedFd),
    Parker(SharedParker),
}

impl Wakeup {
    /// A wake-up for threads that sleep in the kernel.
    pub(crate) fn new() -> Result<Wakeup, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wakeup { state: AtomicU8::new(AWAKE), channel: WakeupChannel::Event(event) })
    }

    /// A wake-up for threads that sleep in [`park`](Self::park).
    pub(crate) fn without_kernel() -> Wakeup {
        Wakeup { state: AtomicU8::new(AWAKE), channel: WakeupChannel::Parker(SharedParker::default()) }
    }

    #[inline]
    pub(crate) fn notify(&self) {
        // Always a write, also over NOTIFIED: a sleeper that wakes and swaps it back sees the notifier's earlier writes.
        if self.state.swap(NOTIFIED, Ordering::SeqCst) == ASLEEP {
            self.wake_sleeper();
        }
    }

    #[cold]
    fn wake_sleeper(&self) {
        match &self.channel {
            WakeupChannel::Parker(parker) => parker.unpark(),
            WakeupChannel::Event(event) => {
                // It is never read: only its edge counts. Its counter has room for more wake-ups than a process makes.
                let written = rustix::io::write(event, &1_u64.to_ne_bytes());
                debug_assert!(written.is_ok(), "the counter of an eventfd is full, or the eventfd is closed");
            }
        }
    }

    /// Call before sleeping. `false`: the wake-up was requested, and the thread must not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok() // NOTIFIED-OR-SEEN
    }

    /// Call after sleeping, or after a refusal to sleep. The thread must then look for the work that it was woken for.
    pub(crate) fn finish_sleep(&self) {
        self.state.swap(AWAKE, Ordering::SeqCst);
    }

    /// Waits for a notification, where there is no kernel to sleep in.
    pub(crate) fn park(&self, limit: Option<Duration>) {
        if let WakeupChannel::Parker(parker) = &self.channel {
            parker.park(limit);
        }
    }

    /// The file descriptor for the epoll.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        match &self.channel {
            WakeupChannel::Event(event) => Some(event.as_fd()),
            WakeupChannel::Parker(_) => None,
        }
    }
}
