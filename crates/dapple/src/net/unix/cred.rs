//! The credentials of the peer.
//!
//! They are read with `libc`: `rustix` has the process id in a type that cannot be 0, but the kernel returns 0
//! for a process outside of this PID namespace.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

/// The user, group and process id of a peer of a Unix stream, at the time when it connected (or listened, if the peer is
/// the listener); see [`UnixStream::peer_cred`](super::UnixStream::peer_cred).
///
/// # Examples
///
/// ```
/// use dapple::net::UnixStream;
///
/// # dapple::run(async {
/// let (here, _there) = UnixStream::pair()?;
/// let peer = here.peer_cred()?;
/// assert_eq!(peer.pid(), Some(std::process::id() as i32)); // the kernel vouches for it
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
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
        // SAFETY: it was zeroed or filled by the kernel, and consists of integers, for which all bytes are valid.
        let cred = unsafe { cred.assume_init() };
        Ok(UCred { uid: cred.uid, gid: cred.gid, pid: (cred.pid != 0).then_some(cred.pid) })
    }

    /// Effective user id of the peer.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Effective group id of the peer.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The process id, if it is visible here. The process may have ended since, and its number may be
    /// another's: do not use it for access decisions.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }
}
