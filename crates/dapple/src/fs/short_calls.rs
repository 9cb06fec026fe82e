//! Short calls (create, rename, a small write), made on the worker itself.
//!
//! Such calls change the kernel's memory, and wait for a disk only now and then (its journal is full, a
//! directory has to be read, the file system is on another machine). io_uring hands each of them to a kernel thread,
//! because it *may* wait, and that costs more than the call. So the worker makes the call itself, as long as such calls
//! take about as long as handing them over would. After a call that takes longer, calls go elsewhere for a while, and
//! for longer if it happens again. If a call really hangs, the worker counts as stalled, and a spare replaces it.
//!
//! An operation that may wait for another program (a FIFO, a lock, a device) is never done here.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::file::Opened;
use super::request::NameChange;
use crate::driver::clock::Time;
use crate::prim::{AtomicU64, Ordering};

/// A call that takes longer than this, in nanoseconds, has waited: for a disk, or for a thread to wake up.
const SLOW: u64 = 100_000;
/// The time in nanoseconds for which calls then go elsewhere: the first pause, and the longest.
const PAUSE: u64 = 5_000_000;
const LONGEST_PAUSE: u64 = 1_000_000_000;
/// The most bytes that are written here at a time: copying them takes some microseconds.
const A_LITTLE: usize = 64 << 10;

/// The end of the current pause, and the length of the last one. They are per process, as its disks are.
static SLOW_UNTIL: AtomicU64 = AtomicU64::new(0);
static LAST_PAUSE: AtomicU64 = AtomicU64::new(0);

/// Makes a call that is quick as a rule; `None` if the caller must make it elsewhere.
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

/// Records the duration of a call.
fn note(took: u64, now: u64) {
    let last = LAST_PAUSE.load(Ordering::Relaxed);
    if took > SLOW {
        let pause = (2 * last).clamp(PAUSE, LONGEST_PAUSE);
        LAST_PAUSE.store(pause, Ordering::Relaxed);
        SLOW_UNTIL.store(now + pause, Ordering::Relaxed);
    } else if last > 0 {
        // Slow calls are forgotten gradually.
        LAST_PAUSE.store(last - last.div_ceil(256), Ordering::Relaxed);
    }
}

/// Creates a file that does not exist, if the flags ask for it. An existing file may be of any kind, and is opened
/// elsewhere.
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

/// Writes a few bytes to a regular file, at a position.
pub(super) fn write(file: &Opened, bytes: &[u8], at: u64) -> Option<Result<usize, Errno>> {
    if bytes.len() > A_LITTLE || !file.is_regular() || file.writes_through() {
        return None;
    }
    try_call(|| rustix::io::pwrite(file, bytes, at))
}

/// Does an operation on a path.
pub(super) fn name(name: &NameChange) -> Option<Result<(), Errno>> {
    try_call(|| name.perform())
}

/// The length of the last pause, for tests.
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
