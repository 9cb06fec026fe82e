//! The network of a simulation: connections in memory, with latency and short reads and writes by seed. Ends are in
//! `net_ends.rs`, cancelled waits in `net_cancel.rs`, whole programs in `net_streams.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::sim::{self, Sim};
use dapple::time::{Instant, sleep};
use dapple::{is_cancelled, spawn};
use futures_lite::StreamExt;

/// Bytes that differ from place to place and from stream to stream.
pub(crate) fn pattern(which: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(which * 7)) as u8).collect()
}

/// A connection: the side that connected, and the side that listened.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("10.0.0.1:7").await.unwrap();
    let near = TcpStream::connect("10.0.0.1:7").await.unwrap();
    let (far, from) = listener.accept().await.unwrap();
    assert_eq!(near.local_addr().unwrap(), from);
    (near, far)
}

pub(crate) async fn wait_a_second() {
    sleep(Duration::from_secs(1)).await.unwrap();
}

#[track_caller]
pub(crate) fn assert_kind<T: std::fmt::Debug>(result: io::Result<T>, kind: ErrorKind) {
    match result {
        Err(error) if error.kind() == kind => {}
        other => panic!("expected {kind:?}, got {other:?}"),
    }
}

#[test]
fn many_clients_get_back_what_they_sent() {
    Sim::new(0).workers(3).explore(0..40, || async {
        let listener = TcpListener::bind("127.0.0.1:80").await?;
        let server = spawn(async move {
            let mut incoming = listener.incoming();
            while let Some(stream) = incoming.next().await {
                let stream = stream?;
                spawn(async move {
                    let (read, write) = stream.into_split();
                    dapple::io::copy(read, write).await.unwrap();
                })
                .detach();
            }
            io::Result::Ok(())
        });
        let clients: Vec<_> = (0..12)
            .map(|which| {
                spawn(async move {
                    let bytes = pattern(which, 200 << (which % 10));
                    let stream = TcpStream::connect("127.0.0.1:80").await?;
                    let (mut read, mut write) = stream.into_split();
                    let sent = bytes.clone();
                    let writer = spawn(async move { write.write_all(&sent).await });
                    let mut got = Vec::new();
                    read.read_to_end(&mut got).await?;
                    assert!(got == bytes, "client {which}");
                    writer.await.unwrap()
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap()?;
        }
        server.cancel();
        assert!(is_cancelled(&server.await.unwrap().unwrap_err()));
        io::Result::Ok(())
    });
}

#[test]
fn reads_and_writes_fall_short_by_the_seed() {
    let (shorts, fulls, single) = (Cell::new([0; 2]), Cell::new([0; 2]), Cell::new(0));
    Sim::new(0).explore(0..50, || async {
        let (near, far) = pair().await;
        let bytes = pattern(1, 1000);
        let mut sent = 0;
        while sent < bytes.len() {
            let n = near.try_write(&bytes[sent..]).unwrap();
            assert!(n > 0);
            count(&shorts, &fulls, 0, n < bytes.len() - sent);
            sent += n;
        }
        wait_a_second().await;
        let mut got = Vec::<u8>::new();
        while got.len() < bytes.len() {
            let mut buffer = [0; 100];
            let wanted = buffer.len().min(bytes.len() - got.len());
            let n = far.try_read(&mut buffer).unwrap();
            assert!((1..=wanted).contains(&n));
            count(&shorts, &fulls, 1, n < wanted);
            single.set(single.get() + usize::from(n == 1));
            got.extend(&buffer[..n]);
        }
        assert_eq!(got, bytes);
    });
    for way in 0..2 {
        assert!(shorts.get()[way] > 20 && fulls.get()[way] > 20, "{shorts:?} {fulls:?}");
    }
    assert!(single.get() > 10);
}

fn count(shorts: &Cell<[u32; 2]>, fulls: &Cell<[u32; 2]>, way: usize, is_short: bool) {
    let counter = if is_short { shorts } else { fulls };
    let mut counts = counter.get();
    counts[way] += 1;
    counter.set(counts);
}

#[test]
fn what_is_steady_is_not_cut_short() {
    Sim::new(3).steady().run(async {
        let (near, far) = pair().await;
        assert_eq!(near.try_write(&[7; 1000]).unwrap(), 1000);
        let begun = Instant::now();
        far.readable().await.unwrap();
        // A tenth of a millisecond, and up to a tick of the timers.
        assert!((100..=300).contains(&begun.elapsed().as_micros()), "{:?}", begun.elapsed());
        assert_eq!(far.try_read(&mut [0; 2000]).unwrap(), 1000);
    });
}

#[test]
fn a_byte_arrives_a_latency_later() {
    let latencies = RefCell::new(BTreeSet::new());
    Sim::new(0).explore(0..50, || async {
        let (near, far) = pair().await;
        assert_eq!(near.try_write(b"x").unwrap(), 1);
        let sent = Instant::now();
        assert_kind(far.try_read(&mut [0; 1]), ErrorKind::WouldBlock);
        // Without a wait: a task that only works sees the byte as soon as it has arrived.
        while far.try_read(&mut [0; 1]).is_err() {
            sim::work(Duration::from_micros(1));
        }
        let latency = sent.elapsed();
        assert!((9..=1100).contains(&latency.as_micros()), "{latency:?}");
        latencies.borrow_mut().insert(latency.as_micros());
    });
    let latencies = latencies.into_inner();
    assert!(latencies.len() > 25 && *latencies.first().unwrap() < 50, "{latencies:?}");
    assert!(*latencies.last().unwrap() > 400, "{latencies:?}");
}

#[test]
fn a_waiting_reader_is_woken_at_arrival() {
    Sim::new(0).explore(0..30, || async {
        let (mut near, mut far) = pair().await;
        let reader = spawn(async move {
            let mut byte = [0];
            far.read_exact(&mut byte).await.unwrap();
            (byte[0], Instant::now())
        });
        wait_a_second().await;
        let begun = Instant::now();
        near.write_all(b"y").await.unwrap();
        let (byte, at) = reader.await.unwrap();
        assert_eq!(byte, b'y');
        let took = at - begun;
        assert!((10..5000).contains(&took.as_micros()), "{took:?}");
    });
}

#[test]
fn more_on_its_way_does_not_put_the_first_off() {
    Sim::new(0).explore(0..20, || async {
        let (near, mut far) = pair().await;
        let begun = Instant::now();
        let reader = spawn(async move {
            far.read_exact(&mut [0]).await.unwrap();
            (Instant::now(), far)
        });
        sleep(Duration::from_millis(1)).await.unwrap();
        let writer = spawn(async move {
            for _ in 0..2000 {
                near.try_write(b"z").unwrap();
                sim::work(Duration::from_micros(10));
            }
        });
        let (at, _far) = reader.await.unwrap();
        let took = at - begun;
        assert!(took < Duration::from_millis(6), "{took:?}");
        writer.await.unwrap();
    });
}

#[test]
fn a_reader_that_is_done_is_not_woken_by_later_bytes() {
    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicU32);
    impl std::task::Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    Sim::new(1).run(async {
        let (near, mut far) = pair().await;
        let count = std::sync::Arc::new(Count::default());
        let waker = std::task::Waker::from(count.clone());
        let woken = || count.0.load(std::sync::atomic::Ordering::Relaxed);
        let poll = |far: &mut TcpStream| {
            let mut cx = std::task::Context::from_waker(&waker);
            futures_lite::AsyncRead::poll_read(std::pin::Pin::new(far), &mut cx, &mut [0; 1]).is_ready()
        };
        assert!(!poll(&mut far));
        for round in 1..4 {
            near.try_write(b"x").unwrap();
            assert_eq!(woken(), u32::from(round > 1), "not when it is sent");
            wait_a_second().await;
            assert_eq!(woken(), 1);
            assert!(round > 1 || poll(&mut far));
        }
    });
}

#[test]
fn ports_are_used_again() {
    Sim::new(1).steady().workers(1).run(async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let mut ports = BTreeSet::new();
        for _ in 0..29_000 {
            let near = TcpStream::connect("127.0.0.1:80").await.unwrap();
            listener.accept().await.unwrap();
            ports.insert(near.local_addr().unwrap().port());
        }
        assert_eq!(ports.len(), 60999 - 32768 + 1);
    });
}

#[test]
fn connecting_takes_a_round_trip() {
    Sim::new(0).explore(0..30, || async {
        let listener = TcpListener::bind("[::]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let begun = Instant::now();
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let took = begun.elapsed();
        assert!((20..5000).contains(&took.as_micros()), "{took:?}");
        assert_eq!(stream.peer_addr().unwrap(), SocketAddr::from(([127, 0, 0, 1], port)));
        let (accepted, _) = listener.accept().await.unwrap();
        assert_eq!(accepted.local_addr().unwrap(), stream.peer_addr().unwrap());
    });
}

#[test]
fn a_writer_that_is_ahead_waits() {
    Sim::new(0).explore(0..10, || async {
        let (mut near, mut far) = pair().await;
        let mut put = 0;
        loop {
            match near.try_write(&[1; 5000]) {
                Ok(n) => put += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(put, 64 << 10);
        let mut writer = spawn(async move {
            near.writable().await.unwrap();
            near.write_all(&[2; 100_000]).await.unwrap();
        });
        wait_a_second().await;
        assert!(!writer.is_finished());
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert_eq!(got.len(), put + 100_000);
        assert!(got[..put].iter().all(|byte| *byte == 1) && got[put..].iter().all(|byte| *byte == 2));
        (&mut writer).await.unwrap();
    });
}
