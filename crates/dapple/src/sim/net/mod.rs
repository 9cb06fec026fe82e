//! A network inside of a simulation: `TcpListener` and `TcpStream` in memory.
//!
//! They have the methods of those in [`dapple::net`](crate::net), so a server that was written for
//! those is tested by changing one `use` line:
//!
//! ```
//! # /*
//! use dapple::net::{TcpListener, TcpStream};
//! # */
//! use dapple::sim::net::{TcpListener, TcpStream};
//! # use dapple::io::{AsyncReadExt, AsyncWriteExt};
//!
//! async fn shout(mut stream: TcpStream) -> std::io::Result<()> {
//!     let mut text = String::new();
//!     stream.read_to_string(&mut text).await?;
//!     stream.write_all(text.to_uppercase().as_bytes()).await
//! }
//!
//! dapple::sim::Sim::new(1).explore(0..10, || async {
//!     let listener = TcpListener::bind("0.0.0.0:80").await?;
//!     let mut client = TcpStream::connect("10.1.1.7:80").await?;
//!     let (stream, _) = listener.accept().await?;
//!     let serving = dapple::spawn(shout(stream));
//!     client.write_all(b"hello").await?;
//!     client.close().await?;
//!     let mut answer = String::new();
//!     client.read_to_string(&mut answer).await?;
//!     assert_eq!(answer, "HELLO");
//!     serving.await.unwrap()
//! });
//! ```
//!
//! # Behaviour
//!
//! The seed decides, as everywhere in a simulation:
//!
//! * Each direction of a connection has a latency, between ten microseconds and a millisecond, which
//!   differs from write to write. To connect takes a round trip. Bytes stay in order.
//! * A read or a write transfers any number of bytes, from one up to the most that is possible.
//! * A direction holds 64 KiB. A writer that is ahead by more waits.
//!
//! No byte is lost, doubled or reordered. In a [steady](super::Sim::steady) simulation the latency is
//! always a tenth of a millisecond, and reads and writes are not cut short. As with real connections:
//!
//! * A reader gets the bytes that were sent before the peer ended the stream, and then the end. If
//!   the peer was dropped with bytes that had arrived there and were not read, the reader gets
//!   `ConnectionReset` in place of the end. Writing to a peer that is gone works for a round trip, and from then on
//!   fails with `BrokenPipe` (or `ConnectionReset`).
//! * 1024 connections may wait to be accepted. A client beyond that tries again after a second,
//!   and after two more, and so on. A listener that is dropped resets the connections that wait.
//!
//! There is one machine, which has all addresses: a listener can use any, and `0.0.0.0` and `::` stand for
//! all. The only name is `localhost`. Two simulations are not connected.
//!
//! Functions that make no sense here are missing: `from_std` and `into_std`, `read_with` and `write_with`, the file
//! descriptor, and `TcpSocket`. So is `set_limit`: call [`Limit::room`](crate::limit::Limit::room) before `accept`. There are no faults yet, such as partitions.

mod arrivals;
mod connect;
mod connection;
mod link_conditions;
mod listener;
mod network;
mod options;
mod split;
mod stream;

pub use listener::TcpListener;
pub use stream::TcpStream;

pub use crate::net::ToAddrs;

/// The types behind [`TcpListener`] and [`TcpStream`]; as [`dapple::net::tcp`](crate::net::tcp).
pub mod tcp {
    pub use super::listener::{Incoming, IntoIncoming, TcpListener};
    pub use super::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
    pub use super::stream::TcpStream;
}
