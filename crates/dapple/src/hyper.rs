//! What [hyper](https://docs.rs/hyper) needs of a runtime: an executor, a timer, and its I/O traits,
//! which all streams of [`net`](crate::net) have with the feature `hyper`.

use std::io;
use std::task::{Poll, ready};

use hyper::rt::ReadBufCursor;

/// Reads into a buffer of hyper's.
pub(crate) fn poll_fill(
    mut cursor: ReadBufCursor<'_>,
    read: impl FnOnce(&mut [u8]) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<()>> {
    let buffer = cursor.initialize_unfilled();
    let room = buffer.len();
    let n = ready!(read(buffer))?;
    assert!(n <= room, "read more than there was room for");
    // SAFETY: all of the buffer was initialised above, and `n` is within it.
    unsafe { cursor.advance(n) };
    Poll::Ready(Ok(()))
}
