//! The TCP sockets of the runtimes, behind the same small trait, which only forwards.
//!
//! monoio is not here: its sockets take buffers by value and stay on their thread.

use std::net::{Ipv4Addr, SocketAddr};

/// A runtime's own sockets. A failure ends the program.
pub(crate) trait Net: 'static {
    type Listener: Send + 'static;
    type Stream: Send + 'static;

    /// Listens on some port of the loopback interface.
    fn bind() -> impl Future<Output = (Self::Listener, SocketAddr)> + Send;

    fn accept(listener: &mut Self::Listener) -> impl Future<Output = Self::Stream> + Send;
    fn set_nodelay(stream: &Self::Stream);

    /// How much was there; 0 at the end.
    fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> impl Future<Output = usize> + Send;

    fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> impl Future<Output = ()> + Send;
}

/// Any port of the loopback interface.
pub(crate) const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// The methods, which all runtimes give the same names; the traits that some of them need are in scope.
macro_rules! forward {
    ($listener:ty, $stream:ty) => {
        type Listener = $listener;
        type Stream = $stream;

        async fn bind() -> (Self::Listener, SocketAddr) {
            let listener = Self::Listener::bind(ANY).await.expect("a port");
            let address = listener.local_addr().expect("an address");
            (listener, address)
        }

        #[inline]
        async fn accept(listener: &mut Self::Listener) -> Self::Stream {
            listener.accept().await.expect("a connection").0
        }

        #[inline]
        fn set_nodelay(stream: &Self::Stream) {
            stream.set_nodelay(true).expect("TCP_NODELAY");
        }

        #[inline]
        async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> usize {
            stream.read(buffer).await.expect("a connection that holds")
        }

        #[inline]
        async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) {
            stream.write_all(bytes).await.expect("a connection that holds");
        }
    };
}

pub(crate) struct OfDapple;

const _: () = {
    use dapple::io::{AsyncReadExt, AsyncWriteExt};
    use dapple::net::{TcpListener, TcpStream};

    impl Net for OfDapple {
        forward!(TcpListener, TcpStream);
    }
};

pub(crate) struct OfTokio;

const _: () = {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    impl Net for OfTokio {
        forward!(TcpListener, TcpStream);
    }
};

pub(crate) struct OfSmol;

const _: () = {
    use smol::io::{AsyncReadExt, AsyncWriteExt};
    use smol::net::{TcpListener, TcpStream};

    impl Net for OfSmol {
        forward!(TcpListener, TcpStream);
    }
};
