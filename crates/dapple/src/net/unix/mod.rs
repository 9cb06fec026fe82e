//! Sockets between processes of one machine: streams and datagrams, by path or by abstract name.
//!
//! # Inside
//!
//! ```text
//! stream    a connection; split: its halves; cred: the process at the other end
//! listener  accepts connections
//! datagram  messages without a connection
//! attempt   addresses, and calls that must be tried again after a pause
//! ```

mod attempt;
#[expect(unsafe_code, reason = "asks the kernel who the peer is")]
mod cred;
mod datagram;
mod listener;
mod split;
mod stream;

pub use cred::UCred;
pub use datagram::UnixDatagram;
pub use listener::{Incoming, IntoIncoming, UnixListener};
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::UnixStream;
