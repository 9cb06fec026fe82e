//! A network inside of a simulation: `TcpListener` and `TcpStream` in memory.
//!
//! They have the methods of those in [`dapple::net`](crate::net), so that a server that was written for
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
//! # What it is like
//!
//! By the seed, as everything in a simulation:
//!
//! * Each direction of a connection has a latency, between ten microseconds and a millisecond, which
//!   differs from write to write. To connect takes a round trip. Bytes stay in order.
//! * A read gets, and a write puts, any number of bytes from one up to what could be had.
//! * A direction holds 64 KiB. Who is ahead by so much waits.
//!
//! No byte is lost, doubled or reordered. In a [steady](super::Sim::steady) simulation the latency is
//! always a tenth of a millisecond, and reads and writes are not cut short. As with real connections:
//!
//! * Whoever has a connection reads what was sent before the other side ended it, and then the end. If
//!   the other side was dropped with bytes that had arrived, and that it had not read, the end is a
//!   `ConnectionReset`. Writing to one who is gone works for a round trip, and fails with `BrokenPipe`
//!   (or `ConnectionReset`) from then on.
//! * 1024 connections may wait to be accepted. Whoever connects beyond that tries again after a second,
//!   and after two more, and so on. A listener that is dropped resets those that wait.
//!
//! There is one machine, which has all addresses: one can listen at any, and `0.0.0.0` and `::` are for
//! all. Of names it knows `localhost`. Two simulations never meet.
//!
//! What has no place here is missing: `from_std` and `into_std`, `read_with` and `write_with`, the file
//! descriptor, and `TcpSocket`. There are no faults yet, such as partitions.

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
