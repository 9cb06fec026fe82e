//! Sockets, pipes, and other file descriptors that can be waited for.
//!
//! # Errors of binding and connecting
//!
//! They contain the address, and have the system's error, with its number, as their source:
//!
//! ```
//! use std::error::Error;
//! use std::io;
//!
//! use dapple::net::UdpSocket;
//!
//! # fn main() -> io::Result<()> {
//! dapple::run(async {
//!     let first = UdpSocket::bind("127.0.0.1:0").await?;
//!     let error = UdpSocket::bind(first.local_addr()?).await.unwrap_err();
//!     let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
//!     assert_eq!(source.unwrap().raw_os_error(), Some(98)); // EADDRINUSE
//!     Ok(())
//! })
//! # }
//! ```

pub(crate) mod accept;
mod async_fd;
mod datagram;
pub(crate) mod error;
pub(crate) mod halves;
pub(crate) mod lookup;
pub mod pipe;
mod socket_traits;
pub mod tcp;
mod udp;
pub mod unix;

pub use async_fd::AsyncFd;
pub use lookup::{ToAddrs, lookup};
pub use pipe::pipe;
pub use tcp::{TcpListener, TcpSocket, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
