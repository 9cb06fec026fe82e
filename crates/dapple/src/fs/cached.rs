//! Operations on data in the kernel's memory, by calls that do not wait for a disk.
//!
//! For a file in the page cache a plain system call is several times as cheap as a ring or the pool.
//! So reading, opening and asking for metadata are tried here first, with flags that make the
//! kernel return `EAGAIN` instead of waiting (`RWF_NOWAIT`, `RESOLVE_CACHED`). `None` means that the caller must use
//! another way.

use std::ffi::CStr;
use std::fs::Metadata;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::file::Opened;

/// Whether this error of a call that must not wait means that it would have to wait, or is not supported.
fn is_later(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::AGAIN
            | Errno::INTR
            | Errno::INVAL
            | Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::PERM
            | Errno::TOOBIG
    )
}

/// Reads as many bytes as are in the page cache, from a position or from the cursor (`CURSOR`). 0 means the end.
pub(super) fn read(file: &Opened, buffer: &mut [MaybeUninit<u8>], at: u64) -> Option<io::Result<usize>> {
    if !file.may_read_at_once() {
        return None;
    }
    let error = match read_flagged(file, buffer, at, if file.is_in_memory() { 0 } else { libc::RWF_NOWAIT }) {
        Ok(n) => return Some(Ok(n)),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => None,
        Some(libc::EOPNOTSUPP) if file.is_regular() && is_in_memory(file) => {
            file.note_in_memory();
            read_flagged(file, buffer, at, 0).map_or_else(|_| None, |n| Some(Ok(n)))
        }
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::EPERM | libc::ESPIPE) => {
            file.never_at_once();
            None
        }
        _ => Some(Err(error)),
    }
}

fn read_flagged(file: &Opened, buffer: &mut [MaybeUninit<u8>], at: u64, flags: i32) -> io::Result<usize> {
    let piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // `CURSOR` is no valid position, and becomes -1, which is the kernel's number for the cursor.
    let at = i64::try_from(at).unwrap_or(-1);
    // SAFETY: `piece` describes `buffer`, which this function may write to.
    let n = unsafe { libc::preadv2(file.as_raw_fd(), &raw const piece, 1, at, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Whether the file system keeps all files in memory: such a one does not support `RWF_NOWAIT`, and never waits.
fn is_in_memory(file: &Opened) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|system| matches!(system.f_type as u64, TMPFS | RAMFS))
}

/// As `read`, but reads until the buffer is full, or the file ends.
pub(super) fn read_full(file: &Opened, buffer: &mut [MaybeUninit<u8>], at: u64) -> Option<io::Result<usize>> {
    let mut done = 0;
    loop {
        match read(file, &mut buffer[done..], at + done as u64)? {
            Ok(0) => return Some(Ok(done)),
            Ok(n) if done + n == buffer.len() => return Some(Ok(buffer.len())),
            Ok(n) => done += n,
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Looks a path up in the kernel's memory, without opening the file there.
fn look_up(path: &CStr, follow: bool) -> Option<Result<OwnedFd, Errno>> {
    let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::PATH | OFlags::CLOEXEC | nofollow;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Err(errno) if is_later(errno) => None,
        found => Some(found),
    }
}

/// The metadata of a path.
pub(super) fn metadata(path: &CStr, follow: bool) -> Option<io::Result<Metadata>> {
    match look_up(path, follow)? {
        Ok(fd) => Some(std::fs::File::from(fd).metadata()),
        Err(errno) => Some(Err(errno.into())),
    }
}

/// Opens an existing regular file, and returns its length. Opening any other kind of file may
/// wait (a FIFO does).
pub(super) fn open(path: &CStr, flags: OFlags) -> Option<io::Result<(OwnedFd, u64)>> {
    if flags.intersects(OFlags::CREATE | OFlags::TRUNC | OFlags::TMPFILE | OFlags::PATH) {
        return None;
    }
    let found = match look_up(path, !flags.contains(OFlags::NOFOLLOW))? {
        Ok(found) => found,
        Err(errno) => return Some(Err(errno.into())),
    };
    let len = regular_len(found.as_fd())?;
    drop(found);
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(fd) => Some(Ok((fd, len))),
        Err(errno) if is_later(errno) => None,
        Err(errno) => Some(Err(errno.into())),
    }
}

/// The length of a regular file; `None` for any other kind.
pub(super) fn regular_len(fd: BorrowedFd<'_>) -> Option<u64> {
    let stat = rustix::fs::fstat(fd).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat.st_size as u64)
}
