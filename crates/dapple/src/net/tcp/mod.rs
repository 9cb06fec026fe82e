//! TCP: listeners, connections and their halves, and sockets whose options are set before they are used.
//!
//! # Inside
//!
//! ```text
//! socket    a socket that is neither connected nor listening yet, and its options
//! connect   from addresses to a connection
//! stream    a connection; split: its halves
//! listener  accepts connections
//! queue     how much of a connection is still on its way
//! ```

mod connect;
mod listener;
#[expect(unsafe_code, reason = "asks the kernel how much is on its way")]
mod queue;
mod socket;
mod split;
mod stream;

pub(crate) use connect::unreached;
pub use listener::{Incoming, IntoIncoming, TcpListener};
pub use socket::TcpSocket;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::TcpStream;
