//! Sockets, pipes, and whatever else has a file descriptor that can be waited for.

pub(crate) mod accept;
mod async_fd;
mod datagram;
mod halves;
pub(crate) mod lookup;
pub mod pipe;
pub(crate) mod source;
pub(crate) mod stream;
pub mod tcp;
pub(crate) mod traits;
mod udp;
pub mod unix;

pub use async_fd::AsyncFd;
pub use lookup::{ToAddrs, lookup};
pub use pipe::pipe;
pub use tcp::{TcpListener, TcpSocket, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
