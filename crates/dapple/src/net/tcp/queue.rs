//! The send queue of a connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The number of bytes that were written to a socket and not acknowledged by the peer.
pub(super) fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `fd` is open, as it is borrowed; the kernel writes one `c_int` to `count` for this request.
    let asked = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut count) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(count).unwrap_or(0))
}
