//! Who is at the other end.
//!
//! Asked for with `libc`: `rustix` keeps the process in a type that cannot be 0, which the kernel says
//! of one that cannot be seen from here.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

/// The process at the other end of a Unix stream, as it was when it connected (or listened, for the
/// one who connected); see [`UnixStream::peer_cred`](super::UnixStream::peer_cred).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    uid: u32,
    gid: u32,
    pid: Option<i32>,
}

impl UCred {
    pub(super) fn of_peer(socket: impl AsFd) -> io::Result<UCred> {
        let mut cred = MaybeUninit::<libc::ucred>::zeroed();
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: `fd` is open, as it is borrowed; the kernel writes at most `len` bytes to `cred`.
        let got = unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, cred.as_mut_ptr().cast(), &raw mut len)
        };
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it consists of integers, for which zeros would do.
        let cred = unsafe { cred.assume_init() };
        Ok(UCred { uid: cred.uid, gid: cred.gid, pid: (cred.pid != 0).then_some(cred.pid) })
    }

    /// The effective user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The effective group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The process, unless it cannot be seen from here. It may have ended since, and its number have
    /// been given to another: do not decide by it what is allowed.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }
}
