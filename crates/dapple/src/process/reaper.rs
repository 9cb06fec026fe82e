//! Children that nobody waits for any more: taken note of when they end, so that none becomes a zombie.
//!
//! A thread waits for all of them at once. It starts with the first, and ends after the last.
//!
//! # Invariants
//!
//! * **TAKEN-CARE-OF**: who leaves a child here starts the thread, or finds it running; the thread ends
//!   under the lock under which it found nobody left.

use std::os::fd::{AsFd, OwnedFd};
use std::process;
use std::sync::LazyLock;
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::prim::{Mutex, lock};

struct Orphan {
    child: process::Child,
    pidfd: OwnedFd,
}

#[derive(Default)]
struct Reaper {
    /// Those who came since the thread last looked.
    left: Vec<Orphan>,
    /// Set while the thread runs. TAKEN-CARE-OF
    is_running: bool,
}

static REAPER: Mutex<Reaper> = Mutex::new(Reaper { left: Vec::new(), is_running: false });

/// Wakes the thread. `None` if the system has no file descriptor for it: the thread looks every so
/// often then.
static BELL: LazyLock<Option<OwnedFd>> =
    LazyLock::new(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok());

/// Without a bell: how often to look for more, in milliseconds.
const LOOK: i64 = 100;

/// Leaves a child to the background.
pub(super) fn leave(child: process::Child, pidfd: OwnedFd) {
    let mut orphan = Orphan { child, pidfd };
    if orphan.has_ended() {
        return;
    }
    let mut reaper = lock(&REAPER);
    reaper.left.push(orphan);
    if reaper.is_running {
        drop(reaper);
        if let Some(bell) = &*BELL {
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes()); // full is as good as rung
        }
        return;
    }
    let started = thread::Builder::new().name("dapple-reaper".to_owned()).spawn(reap);
    // If there is no thread to be had: the next one who comes tries again, for all.
    reaper.is_running = started.is_ok();
}

fn reap() {
    let mut orphans = Vec::new();
    loop {
        if let Some(bell) = &*BELL {
            let _ = rustix::io::read(bell, &mut [0_u8; 8]); // before the look: no ring is lost
        }
        let mut reaper = lock(&REAPER);
        orphans.append(&mut reaper.left);
        orphans.retain_mut(|orphan: &mut Orphan| !orphan.has_ended());
        if orphans.is_empty() {
            reaper.is_running = false; // TAKEN-CARE-OF
            return;
        }
        drop(reaper);
        let bell = BELL.as_ref().map(AsFd::as_fd);
        let ends = orphans.iter().map(|orphan| orphan.pidfd.as_fd());
        let mut fds: Vec<_> =
            ends.chain(bell).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: LOOK * 1_000_000 };
        let _ = poll(&mut fds, if bell.is_some() { None } else { Some(&limit) }); // or interrupted: look again
    }
}

impl Orphan {
    /// Whether it has ended, and been taken note of; or is not ours to wait for.
    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}
