//! Children that nobody waits for any more: taken note of when they end, so that none becomes a zombie.
//!
//! A thread waits for all of them at once. It starts with the first, and ends after the last.
//!
//! A child that has ended is not given to us while another process traces it, though its file descriptor
//! says that it is ready. Such a one is *held*: it is looked at every so often instead.
//!
//! # Invariants
//!
//! * **TAKEN-CARE-OF**: who leaves a child here starts the thread, or finds it running; the thread ends
//!   under the lock under which it found nobody left.

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

/// Without a bell, or with one that is held: how often to look, in milliseconds.
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
        wait(&mut orphans);
    }
}

/// Until one of them has ended, or another has come; or to look again.
fn wait(orphans: &mut [Orphan]) {
    let bell = BELL.as_ref().map(AsFd::as_fd);
    let others = orphans.iter().filter(|orphan| !orphan.is_held);
    let mut fds: Vec<_> = others
        .map(|orphan| orphan.pidfd.as_fd())
        .chain(bell)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let looks = bell.is_none() || orphans.iter().any(|orphan| orphan.is_held);
    let limit = Timespec { tv_sec: 0, tv_nsec: LOOK * 1_000_000 };
    let Ok(_) = poll(&mut fds, looks.then_some(&limit)) else { return }; // interrupted: look again
    let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let others = orphans.iter_mut().filter(|orphan| !orphan.is_held);
    // If it can be waited for now, it is gone before the next wait.
    others.zip(ready).for_each(|(orphan, is_ready)| orphan.is_held = is_ready);
}

impl Orphan {
    /// Whether it has ended, and been taken note of; or is not ours to wait for.
    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}
