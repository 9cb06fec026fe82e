//! What is as a rule done in no time: to make a file, to give it another name, to write a little to it.
//!
//! Such calls change what the kernel has in memory, and wait for a disk only now and then (its journal is full, a
//! directory has to be read, the file system is on another machine). The kernel's ring hands each of them to a thread,
//! since it *may* wait, and that costs more than the call. So the worker makes the call itself, as long as these take
//! about as long as handing them over would; one that takes longer sends those after it elsewhere for a while, and
//! for longer if it happens again. Should a call really hang, the worker counts as stalled, and a spare stands in for it.
//!
//! What may wait for somebody (a FIFO, a lock, a device) is never done here.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::file::Opened;
use super::request::NameChange;
use crate::driver::clock::Time;
use crate::prim::{AtomicU64, Ordering};

/// What takes longer, in nanoseconds, has waited for something. A disk takes that long, and a thread that is woken up.
const SLOW: u64 = 100_000;
/// For how long others go elsewhere then, in nanoseconds, at first and at the most.
const PAUSE: u64 = 5_000_000;
const LONGEST_PAUSE: u64 = 1_000_000_000;
/// The most that is written here at a time: as much as is copied in some microseconds.
const A_LITTLE: usize = 64 << 10;

/// Until when nothing is done here, and how long the last pause was. Of the process: so are its disks.
static SLOW_UNTIL: AtomicU64 = AtomicU64::new(0);
static LAST_PAUSE: AtomicU64 = AtomicU64::new(0);

/// Makes a call that is quick as a rule; `None` if it is to be made elsewhere.
fn try_call<T>(call: impl FnOnce() -> Result<T, Errno>) -> Option<Result<T, Errno>> {
    let begun = Time::now().nanos();
    if begun < SLOW_UNTIL.load(Ordering::Relaxed) {
        return None;
    }
    let result = call();
    let now = Time::now().nanos();
    note(now.saturating_sub(begun), now);
    match result {
        Err(Errno::INTR | Errno::AGAIN) => None,
        result => Some(result),
    }
}

/// A call took so long.
fn note(took: u64, now: u64) {
    let last = LAST_PAUSE.load(Ordering::Relaxed);
    if took > SLOW {
        let pause = (2 * last).clamp(PAUSE, LONGEST_PAUSE);
        LAST_PAUSE.store(pause, Ordering::Relaxed);
        SLOW_UNTIL.store(now + pause, Ordering::Relaxed);
    } else if last > 0 {
        // Little by little it is forgotten.
        LAST_PAUSE.store(last - last.div_ceil(256), Ordering::Relaxed);
    }
}

/// Makes a file that is not there, if it is to be made. What is there may be anything, and is opened elsewhere.
pub(super) fn create(path: &CStr, flags: OFlags, mode: Mode) -> Option<Result<OwnedFd, Errno>> {
    if !flags.contains(OFlags::CREATE) || flags.intersects(OFlags::TMPFILE | OFlags::PATH | OFlags::DIRECTORY)
    {
        return None;
    }
    match try_call(|| rustix::fs::openat(CWD, path, flags | OFlags::EXCL, mode))? {
        Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => None,
        made => Some(made),
    }
}

/// Writes a little to a regular file, at a position.
pub(super) fn write(file: &Opened, bytes: &[u8], at: u64) -> Option<Result<usize, Errno>> {
    if bytes.len() > A_LITTLE || !file.is_regular() || file.writes_through() {
        return None;
    }
    try_call(|| rustix::io::pwrite(file, bytes, at))
}

/// Does something with a name.
pub(super) fn name(name: &NameChange) -> Option<Result<(), Errno>> {
    try_call(|| name.perform())
}

/// How long it would take a call that was slow to be forgotten, for tests.
#[cfg(test)]
fn pause() -> std::time::Duration {
    std::time::Duration::from_nanos(LAST_PAUSE.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_slow_goes_elsewhere_for_longer_each_time_and_is_forgotten() {
        let now = Time::now().nanos();
        note(SLOW + 1, now);
        assert_eq!(pause(), Duration::from_millis(5));
        assert!(try_call(|| Ok(())).is_none());
        note(SLOW + 1, now);
        assert_eq!(pause(), Duration::from_millis(10));
        (0..20).for_each(|_| note(SLOW + 1, now));
        assert_eq!(pause(), Duration::from_secs(1));
        (0..10_000).for_each(|_| note(1000, now));
        assert_eq!(pause(), Duration::ZERO);
        SLOW_UNTIL.store(0, Ordering::Relaxed);
        assert_eq!(try_call(|| Ok(7)), Some(Ok(7)));
        assert_eq!(try_call(|| Err::<(), _>(Errno::INTR)), None);
    }
}
