//! TCP sockets: their options, and where they come from and go to.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::common::{not_run, runtime, watched};
use dapple::net::{TcpListener, TcpSocket, TcpStream};
use futures_lite::{AsyncReadExt, AsyncWriteExt, future};

const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

#[track_caller]
fn run<F: Future<Output = ()> + Send + 'static>(test: F) {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(rt.spawn(test)).unwrap();
    });
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(HERE).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

#[test]
fn options_are_what_they_were_set_to() {
    run(async {
        let (stream, _far) = pair().await;
        for on in [true, false] {
            stream.set_nodelay(on).unwrap();
            assert_eq!(stream.nodelay().unwrap(), on);
        }
        for after in [Some(Duration::from_secs(33)), None] {
            stream.set_keepalive_probes(Duration::from_secs(5), 3).unwrap();
            stream.set_keepalive(after).unwrap();
            assert_eq!(stream.keepalive().unwrap(), after);
        }
        for linger in [Some(Duration::ZERO), None] {
            stream.set_linger(linger).unwrap();
            assert_eq!(stream.linger().unwrap(), linger);
        }
        stream.set_ttl(42).unwrap();
        assert_eq!(stream.ttl().unwrap(), 42);
        assert!(stream.take_error().unwrap().is_none());

        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.set_reuseport(true).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_keepalive(Some(Duration::from_secs(9))).unwrap();
        socket.set_send_buffer_size(10_000).unwrap();
        socket.set_recv_buffer_size(10_000).unwrap();
        socket.bind(HERE.into()).unwrap();
        assert!(socket.reuseaddr().unwrap() && socket.reuseport().unwrap() && socket.nodelay().unwrap());
        assert_eq!(socket.keepalive().unwrap(), Some(Duration::from_secs(9)));
        assert!(socket.send_buffer_size().unwrap() >= 10_000 && socket.recv_buffer_size().unwrap() >= 10_000);
        let listener = socket.listen(5).unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.bind(HERE.into()).unwrap();
        let (own, addr) = (client.local_addr().unwrap(), listener.local_addr().unwrap());
        let client = client.connect(addr).await.unwrap();
        let (accepted, from) = listener.accept().await.unwrap();
        assert_eq!((from, client.peer_addr().unwrap()), (own, addr));
        assert!(accepted.nodelay().unwrap(), "taken over from the listener");
        listener.set_ttl(7).unwrap();
        assert_eq!(listener.ttl().unwrap(), 7);
    });
}

#[test]
fn ipv6_is_as_good() {
    if let Err(error) = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        return not_run(format_args!("no IPv6 on the loopback interface: {error}"));
    }
    run(async {
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_, from) = listener.accept().await.unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        let socket = TcpSocket::new_v6().unwrap();
        socket.set_only_v6(true).unwrap();
        assert!(socket.only_v6().unwrap());
    });
}

#[test]
fn sockets_come_from_the_standard_library_and_go_there() {
    run(async {
        let listener = std::net::TcpListener::bind(HERE).unwrap();
        let addr = listener.local_addr().unwrap();
        let listener = TcpListener::try_from(listener).unwrap();
        let client = std::net::TcpStream::connect(addr).unwrap();
        let mut client = TcpStream::try_from(client).unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        assert!(future::poll_once(accepted.read(&mut [0])).await.is_none(), "registered");
        client.write_all(b"a").await.unwrap();
        accepted.readable().await.unwrap();
        let number = accepted.as_raw_fd();
        let accepted = accepted.into_std().unwrap();
        assert_eq!(accepted.as_raw_fd(), number);
        let mut accepted = TcpStream::from_std(accepted).unwrap(); // and once more
        assert_eq!(accepted.read(&mut [0]).await.unwrap(), 1);
        assert!(future::poll_once(accepted.read(&mut [0])).await.is_none(), "registered again");
        client.write_all(b"b").await.unwrap();
        assert_eq!(accepted.read(&mut [0]).await.unwrap(), 1);
        let number = client.as_raw_fd();
        assert_eq!(OwnedFd::from(client).as_raw_fd(), number);
        assert_eq!(listener.into_std().unwrap().local_addr().unwrap(), addr);
    });
}

#[test]
fn debug_tells_the_addresses() {
    run(async {
        let (near, _far) = pair().await;
        let text = format!("{near:?}");
        let addr: SocketAddr = near.local_addr().unwrap();
        assert!(text.contains(&addr.to_string()), "{text}");
    });
}
