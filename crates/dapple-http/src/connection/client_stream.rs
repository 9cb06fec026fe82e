//! The stream of one client, as connections use it: bytes in both directions, and the end of the connection.

use std::io;
use std::task::{Context, Poll};

use dapple::net::{TcpStream, UnixStream};

/// The stream of a connection.
#[doc(hidden)]
pub trait ClientStream: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static {
    /// Ready when the client has reset the connection, or both sides have ended theirs; see
    /// [`TcpStream::closed`](dapple::net::TcpStream::closed).
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// How many bytes were written and not received by the client, if that can be known.
    fn unacknowledged(&self) -> Option<usize> {
        None
    }
}

impl ClientStream for TcpStream {
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_closed(self, cx)
    }

    fn unacknowledged(&self) -> Option<usize> {
        TcpStream::unacknowledged(self).ok()
    }
}

macro_rules! client_streams {
    ($stream:ty) => {
        impl ClientStream for $stream {
            fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$stream>::poll_closed(self, cx)
            }
        }
    };
}

client_streams!(UnixStream);
#[cfg(feature = "sim")]
client_streams!(dapple::sim::net::TcpStream);
