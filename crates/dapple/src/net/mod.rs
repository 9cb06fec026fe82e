//! Sockets, pipes, and whatever else has a file descriptor that can be waited for.

mod async_fd;
pub(crate) mod source;
pub(crate) mod stream;

pub use async_fd::AsyncFd;
