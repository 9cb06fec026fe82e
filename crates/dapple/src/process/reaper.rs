//! Reaps children whose [`Child`](super::Child) was dropped, so that none stays a zombie.
//!
//! One thread waits for all of them. It starts with the first, and ends after the last.
//!
//! While another process traces a child that has ended, the child cannot be reaped, though its file descriptor
//! is ready. Such a child is *held*: the thread checks it at intervals.
//!
//! # Invariants
//!
//! * **TAKEN-CARE-OF**: the caller that leaves a child here starts the thread, or finds it running. The thread ends
//!   under the lock under which it found no child left.

use std::os::fd::{AsFd, OwnedFd};
use std::process;
use std::sync::LazyLock;
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::prim::{Mutex, lock};

struct Orphan {
    child: process::Child,
    pidfd: OwnedFd,
    is_held: bool,
}

#[derive(Default)]
struct Reaper {
    /// Children that came since the thread last looked.
    left: Vec<Orphan>,
    /// Set while the thread runs. TAKEN-CARE-OF
    is_running: bool,
}

static REAPER: Mutex<Reaper> = Mutex::new(Reaper { left: Vec::new(), is_running: false });

/// Wakes the thread. `None` if the system has no file descriptor for it: then the thread looks at
/// intervals.
static WAKE_EVENT: LazyLock<Option<OwnedFd>> =
    LazyLock::new(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok());

/// The interval in milliseconds if there is no event, or a child is held.
const LOOK: i64 = 100;

/// Leaves a child to the background.
pub(super) fn leave(child: process::Child, pidfd: OwnedFd) {
    let mut orphan = Orphan { child, pidfd, is_held: false };
    if orphan.has_ended() {
        return;
    }
    let mut reaper = lock(&REAPER);
    reaper.left.push(orphan);
    if reaper.is_running {
        drop(reaper);
        if let Some(event) = &*WAKE_EVENT {
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes()); // a full counter also wakes the thread
        }
        return;
    }
    let started = thread::Builder::new().name("dapple-reaper".to_owned()).spawn(reap);
    // If no thread can be started, the next caller tries again, for all children.
    reaper.is_running = started.is_ok();
}

fn reap() {
    let mut orphans = Vec::new();
    loop {
        if let Some(event) = &*WAKE_EVENT {
            let _ = rustix::io::read(event, &mut [0_u8; 8]); // before looking, so that no wake-up is lost
        }
        let mut reaper = lock(&REAPER);
        orphans.append(&mut reaper.left);
        orphans.retain_mut(|orphan: &mut Orphan| !orphan.has_ended());
        if orphans.is_empty() {
            reaper.is_running = false; // TAKEN-CARE-OF
            return;
        }
        drop(reaper);
        wait(&mut orphans);
    }
}

/// Waits until a child has ended, or another has come, or it is time to look again.
fn wait(orphans: &mut [Orphan]) {
    let event = WAKE_EVENT.as_ref().map(AsFd::as_fd);
    let others = orphans.iter().filter(|orphan| !orphan.is_held);
    let mut fds: Vec<_> = others
        .map(|orphan| orphan.pidfd.as_fd())
        .chain(event)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let looks = event.is_none() || orphans.iter().any(|orphan| orphan.is_held);
    let limit = Timespec { tv_sec: 0, tv_nsec: LOOK * 1_000_000 };
    let Ok(_) = poll(&mut fds, looks.then_some(&limit)) else { return }; // interrupted: look again
    let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let others = orphans.iter_mut().filter(|orphan| !orphan.is_held);
    // A ready child that can be reaped is gone before the next wait; otherwise it is held.
    others.zip(ready).for_each(|(orphan, is_ready)| orphan.is_held = is_ready);
}

impl Orphan {
    /// Whether it has ended and was reaped, or other code has reaped it.
    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}
