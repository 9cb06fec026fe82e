//! The bell: wakes the thread that sleeps in a driver.
//!
//! Somebody who rings while nobody sleeps only leaves a note; so does everybody after the first.
//! The system call is made for a sleeper alone.
//!
//! # Invariants
//!
//! * **RUNG-OR-SEEN**: the sleeper changes AWAKE to ASLEEP in one step, and whoever rings changes
//!   what is there to RUNG in one step. So either the sleeper finds the note, or the one who rings
//!   finds the sleeper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::prim::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

pub(crate) struct Bell {
    state: AtomicU8,
    event: OwnedFd,
    #[cfg(any(loom, miri))]
    parker: crate::prim::Parker,
}

impl Bell {
    pub(crate) fn new() -> Result<Bell, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell {
            state: AtomicU8::new(AWAKE),
            event,
            #[cfg(any(loom, miri))]
            parker: Default::default(),
        })
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
        #[cfg(any(loom, miri))]
        self.parker.unpark();
        // It is never read, only its edge is seen. Its counter has room for all rings of a lifetime.
        let struck = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        debug_assert!(struck.is_ok(), "an eventfd takes what it is given");
    }

    /// Before the thread sleeps. `false`: it has been rung for, and must not.
    pub(crate) fn lie_down(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok() // RUNG-OR-SEEN
    }

    /// After it slept, or was told not to. What was rung for until now must be looked at after this.
    pub(crate) fn get_up(&self) {
        self.state.swap(AWAKE, Ordering::SeqCst);
    }

    #[cfg(any(loom, miri))]
    pub(crate) fn listen(&self, limit: Option<std::time::Duration>) {
        self.parker.park(limit);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
