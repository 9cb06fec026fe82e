//! Ends, resets and addresses in the network of a simulation.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use crate::net::{assert_kind, pair, pattern, wait_a_second};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::sim::{self, Sim};
use dapple::spawn;
use dapple::time::{Instant, sleep};

#[test]
fn a_half_closed_stream_can_still_be_read() {
    Sim::new(0).explore(0..30, || async {
        let (mut near, mut far) = pair().await;
        near.write_all(b"question").await.unwrap();
        near.close().await.unwrap();
        assert_kind(near.write(b"more").await, ErrorKind::BrokenPipe);
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "question");
        assert_eq!(far.read(&mut [0; 4]).await.unwrap(), 0);
        far.write_all(b"answer").await.unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        text.clear();
        near.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "answer");
    });
}

#[test]
fn a_stream_that_was_shut_down_for_reading_reads_the_end() {
    Sim::new(1).run(async {
        let (near, far) = pair().await;
        let (read, _write) = near.into_split();
        let reader = spawn(async move {
            let n = { read }.read(&mut [0; 4]).await;
            n.unwrap()
        });
        wait_a_second().await;
        far.shutdown(Shutdown::Both).unwrap();
        assert_eq!(reader.await.unwrap(), 0);
        assert_eq!(far.try_read(&mut [0; 4]).unwrap(), 0);
    });
}

#[test]
fn a_dropped_stream_has_sent_all_and_then_the_end() {
    Sim::new(0).explore(0..30, || async {
        let (mut near, mut far) = pair().await;
        let bytes = pattern(3, 20_000);
        near.write_all(&bytes).await.unwrap();
        drop(near);
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert!(got == bytes);
        // As with a real connection: the first bytes go out, and the answer comes a round trip later.
        assert!(far.write(b"anybody there?").await.unwrap() > 0);
        wait_a_second().await;
        assert_kind(far.write(b"hello?").await, ErrorKind::BrokenPipe);
        assert_eq!(far.read(&mut [0; 4]).await.unwrap(), 0);
    });
}

#[test]
fn a_stream_that_is_dropped_with_bytes_unread_resets() {
    Sim::new(0).explore(0..30, || async {
        let (mut near, mut far) = pair().await;
        far.write_all(b"never read").await.unwrap();
        wait_a_second().await;
        near.write_all(b"last words").await.unwrap();
        drop(near);
        let mut got = [0; 10];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"last words");
        assert_kind(far.read(&mut got).await, ErrorKind::ConnectionReset);
        assert_eq!(far.read(&mut got).await.unwrap(), 0);
        assert_kind(far.write(b"x").await, ErrorKind::BrokenPipe);
        assert_kind(far.shutdown(Shutdown::Write), ErrorKind::NotConnected);
    });
}

#[test]
fn a_reset_is_told_once() {
    for first in 0..3 {
        Sim::new(1).run(async {
            let (near, mut far) = pair().await;
            near.set_linger(Some(Duration::ZERO)).unwrap();
            drop(near);
            wait_a_second().await;
            match first {
                0 => assert_kind(far.write(b"x").await, ErrorKind::ConnectionReset),
                1 => assert_kind(far.read(&mut [0]).await, ErrorKind::ConnectionReset),
                _ => assert!(far.take_error().unwrap().unwrap().kind() == ErrorKind::ConnectionReset),
            }
            assert!(far.take_error().unwrap().is_none());
            assert_kind(far.write(b"x").await, ErrorKind::BrokenPipe);
            assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
        });
    }
}

#[test]
fn a_waiting_writer_learns_that_the_reader_is_gone() {
    Sim::new(0).explore(0..30, || async {
        let (mut near, far) = pair().await;
        let begun = Instant::now();
        let writer = spawn(async move { near.write_all(&[0; 1 << 20]).await });
        sleep(Duration::from_micros(sim::random() % 3000)).await.unwrap();
        drop(far);
        let error = writer.await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        assert!(begun.elapsed() < Duration::from_millis(20), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_connection_to_no_listener_is_refused() {
    Sim::new(1).run(async {
        let error = TcpStream::connect("127.0.0.1:80").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("127.0.0.1:80"), "{error}");
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.unwrap().raw_os_error(), Some(111));
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        assert_kind(TcpStream::connect("127.0.0.2:80").await, ErrorKind::ConnectionRefused);
        let addrs = ["127.0.0.1:79", "127.0.0.1:80"].map(|addr| addr.parse::<SocketAddr>().unwrap());
        assert_eq!(TcpStream::connect(addrs).await.unwrap().peer_addr().unwrap(), addrs[1]);
        drop(listener);
        assert_kind(TcpStream::connect("localhost:80").await, ErrorKind::ConnectionRefused);
    });
}

#[test]
fn an_address_has_one_listener() {
    Sim::new(1).run(async {
        let first = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let error = TcpListener::bind("127.0.0.1:80").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().starts_with("cannot listen at 127.0.0.1:80: "), "{error}");
        assert_kind(TcpListener::bind("0.0.0.0:80").await, ErrorKind::AddrInUse);
        assert_kind(TcpListener::bind("[::]:80").await, ErrorKind::AddrInUse);
        let _second = TcpListener::bind("127.0.0.2:80").await.unwrap();
        let _third = TcpListener::bind("[::1]:80").await.unwrap();
        drop(first);
        TcpListener::bind("127.0.0.1:80").await.unwrap();
    });
}

#[test]
fn free_ports_are_the_same_every_time() {
    let ports = |seed| {
        Sim::new(seed).run(async {
            let (first, second) =
                (TcpListener::bind("localhost:0").await, TcpListener::bind("[::1]:0").await);
            let (first, second) = (first.unwrap(), second.unwrap());
            let client = TcpStream::connect(first.local_addr().unwrap()).await.unwrap();
            [first.local_addr(), second.local_addr(), client.local_addr()].map(|addr| addr.unwrap().port())
        })
    };
    assert_eq!(ports(1), ports(2));
    let [a, b, c] = ports(1);
    assert!(a != 0 && a != b && b != c && a != c);
}

#[test]
fn a_client_that_finds_too_many_waiting_tries_again() {
    Sim::new(5).run(async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..1024 {
            waiting.push(TcpStream::connect("127.0.0.1:80").await.unwrap());
        }
        let limit = Duration::from_millis(500);
        assert_kind(TcpStream::connect_timeout("127.0.0.1:80", limit).await, ErrorKind::TimedOut);
        let begun = Instant::now();
        let late = spawn(TcpStream::connect("127.0.0.1:80"));
        sleep(Duration::from_millis(1500)).await.unwrap();
        let (first, _) = listener.accept().await.unwrap();
        assert_eq!(first.peer_addr().unwrap(), waiting[0].local_addr().unwrap());
        late.await.unwrap().unwrap();
        assert_eq!(begun.elapsed().as_secs(), 3);
    });
}

#[test]
fn dropping_a_listener_resets_waiting_connections() {
    Sim::new(0).explore(0..20, || async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let mut client = TcpStream::connect("127.0.0.1:80").await.unwrap();
        let under_way = spawn(TcpStream::connect("127.0.0.1:80"));
        sleep(Duration::from_micros(sim::random() % 2000)).await.unwrap();
        drop(listener);
        assert_kind(client.read(&mut [0; 1]).await, ErrorKind::ConnectionReset);
        match under_way.await.unwrap() {
            Ok(mut stream) => assert_kind(stream.read(&mut [0; 1]).await, ErrorKind::ConnectionReset),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        }
    });
}

#[test]
fn a_reset_is_told_behind_the_end_of_the_stream() {
    for seed in 0..20 {
        Sim::new(seed).run(async {
            let (near, mut far) = pair().await;
            near.shutdown(Shutdown::Write).unwrap();
            assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
            let waiting = dapple::time::timeout(Duration::from_secs(60), far.closed()).await;
            assert!(waiting.is_err(), "it still reads");
            near.set_linger(Some(Duration::ZERO)).unwrap();
            let reset = spawn(async move {
                wait_a_second().await;
                drop(near);
            });
            let begun = Instant::now();
            std::future::poll_fn(|cx| far.poll_closed(cx)).await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
            far.closed().await.unwrap();
            reset.await.unwrap();
        });
    }
}

#[test]
fn a_connection_is_closed_when_both_sides_have_ended_theirs() {
    for seed in 0..20 {
        Sim::new(seed).run(async {
            let (near, far) = pair().await;
            near.shutdown(Shutdown::Write).unwrap();
            let ending = spawn(async move {
                wait_a_second().await;
                far.shutdown(Shutdown::Write).unwrap();
                far.closed().await.unwrap();
                far
            });
            near.closed().await.unwrap();
            ending.await.unwrap();
        });
    }
}
