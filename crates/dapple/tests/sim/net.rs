//! The network of a simulation: connections in memory, with latency and short reads and writes by seed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use dapple::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::sim::{self, Sim};
use dapple::time::{Instant, sleep};
use dapple::{is_cancelled, spawn};
use futures_lite::StreamExt;

/// Bytes that differ from place to place and from stream to stream.
fn pattern(which: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(which * 7)) as u8).collect()
}

/// A connection: who connected, and who listened.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("10.0.0.1:7").await.unwrap();
    let near = TcpStream::connect("10.0.0.1:7").await.unwrap();
    let (far, from) = listener.accept().await.unwrap();
    assert_eq!(near.local_addr().unwrap(), from);
    (near, far)
}

async fn wait_a_second() {
    sleep(Duration::from_secs(1)).await.unwrap();
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(result: io::Result<T>, kind: ErrorKind) {
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
        // Without a wait: who works sees it as soon as it is there.
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
fn who_waits_is_woken_when_it_arrives() {
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
fn who_has_read_is_not_woken_by_what_comes_later() {
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
fn a_writer_who_is_ahead_waits() {
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

#[test]
fn half_closed_it_can_still_be_read() {
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
fn who_was_shut_down_for_reading_reads_the_end() {
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
fn who_is_dropped_has_sent_all_and_then_the_end() {
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
fn who_is_dropped_with_bytes_unread_resets() {
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
fn a_writer_who_waits_learns_that_nobody_reads() {
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
fn nobody_there_is_refused() {
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
fn who_finds_too_many_waiting_tries_again() {
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
fn a_listener_that_is_dropped_resets_who_waits() {
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
fn a_cancelled_or_dropped_read_has_taken_nothing() {
    let cut = Cell::new(0);
    Sim::new(0).explore(0..60, || async {
        let (near, far) = pair().await;
        let bytes = pattern(9, 5000);
        let writer = spawn({
            let bytes = bytes.clone();
            async move {
                let mut near = near;
                for part in bytes.chunks(100) {
                    near.write_all(part).await.unwrap();
                    sleep(Duration::from_micros(sim::random() % 300)).await.unwrap();
                }
            }
        });
        let (mut far, mut got) = (far, Vec::<u8>::new());
        loop {
            // A task that reads until it is cancelled, by itself or from outside.
            let reader = spawn(async move {
                let mut got = Vec::<u8>::new();
                loop {
                    let mut buffer = [0; 64];
                    match far.read(&mut buffer).await {
                        Ok(0) => return (far, got, true),
                        Ok(n) => got.extend(&buffer[..n]),
                        Err(error) if is_cancelled(&error) => return (far, got, false),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            sleep(Duration::from_micros(sim::random() % 600)).await.unwrap();
            reader.cancel();
            let (back, part, is_end) = reader.await.unwrap();
            (far, _) = (back, got.extend(part));
            if is_end {
                break;
            }
            cut.set(cut.get() + 1);
            // And one that is dropped.
            let mut buffer = [0; 64];
            let read = far.read(&mut buffer);
            let limit = sleep(Duration::from_micros(sim::random() % 300));
            let n = futures_lite::future::or(async { read.await.ok() }, async {
                limit.await.unwrap();
                None
            });
            match n.await {
                Some(0) => break,
                n => got.extend(&buffer[..n.unwrap_or(0)]),
            }
        }
        assert!(got == bytes);
        writer.await.unwrap();
    });
    assert!(cut.get() > 200, "{}", cut.get());
}

#[test]
fn a_cancelled_write_has_put_what_it_returned() {
    let cut = Cell::new(0);
    Sim::new(0).explore(0..60, || async {
        let (near, mut far) = pair().await;
        let bytes: Rc<[u8]> = pattern(4, 300_000).into();
        let reader = spawn(async move {
            let (mut got, mut buffer) = (Vec::<u8>::new(), vec![0; 10_000]);
            loop {
                match far.read(&mut buffer).await.unwrap() {
                    0 => return got,
                    n => got.extend(&buffer[..n]),
                }
                sleep(Duration::from_micros(sim::random() % 300)).await.unwrap();
            }
        });
        let (mut near, mut put) = (near, 0);
        while put < bytes.len() {
            let rest = bytes[put..].to_vec();
            let writer = spawn(async move {
                let mut put = 0;
                while put < rest.len() {
                    match near.write(&rest[put..]).await {
                        Ok(n) => put += n,
                        Err(error) if is_cancelled(&error) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                (near, put)
            });
            sleep(Duration::from_micros(sim::random() % 1000)).await.unwrap();
            writer.cancel();
            let (back, part) = writer.await.unwrap();
            near = back;
            put += part;
            cut.set(cut.get() + 1);
        }
        drop(near);
        let got = reader.await.unwrap();
        assert!(got[..] == bytes[..], "{} of {}", got.len(), bytes.len());
    });
    assert!(cut.get() > 200, "{}", cut.get());
}

#[test]
fn what_one_does_not_accept_is_left_to_the_next() {
    Sim::new(0).explore(0..60, || async {
        let listener = std::sync::Arc::new(TcpListener::bind("127.0.0.1:80").await.unwrap());
        let clients: Vec<_> = (0..10)
            .map(|which: u8| {
                spawn(async move {
                    sleep(Duration::from_micros(sim::random() % 3000)).await.unwrap();
                    let mut stream = TcpStream::connect("127.0.0.1:80").await.unwrap();
                    stream.write_all(&[which]).await.unwrap();
                    let mut end = Vec::new();
                    stream.read_to_end(&mut end).await.unwrap();
                    assert!(end.is_empty());
                })
            })
            .collect();
        let mut seen = BTreeSet::new();
        while seen.len() < 10 {
            // Several at a time, all of whom are cancelled after a while.
            let acceptors: Vec<_> = (0..3)
                .map(|_| {
                    let listener = listener.clone();
                    spawn(async move { listener.accept().await })
                })
                .collect();
            sleep(Duration::from_micros(sim::random() % 500)).await.unwrap();
            for acceptor in acceptors {
                acceptor.cancel();
                match acceptor.await.unwrap() {
                    Ok((mut stream, _)) => {
                        let mut which = [0];
                        stream.read_exact(&mut which).await.unwrap();
                        assert!(seen.insert(which[0]));
                    }
                    Err(error) => assert!(is_cancelled(&error), "{error}"),
                }
            }
        }
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn who_gives_up_connecting_leaves_nothing_or_an_end() {
    let (none, ended) = (Cell::new(0), Cell::new(0));
    Sim::new(0).explore(0..100, || async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let given_up = spawn(TcpStream::connect("127.0.0.1:80"));
        sleep(Duration::from_micros(sim::random() % 1500)).await.unwrap();
        given_up.cancel();
        match given_up.await.unwrap() {
            Ok(stream) => {
                drop(stream);
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
                ended.set(ended.get() + 1);
            }
            Err(error) => {
                assert!(is_cancelled(&error));
                wait_a_second().await;
                let mut accept = Box::pin(listener.accept());
                if let Some(accepted) = futures_lite::future::poll_once(&mut accept).await {
                    // It was answered, and nobody asked any more.
                    assert_eq!(accepted.unwrap().0.read(&mut [0]).await.unwrap(), 0);
                }
                none.set(none.get() + 1);
            }
        }
        // The next one is not affected.
        let mut client = TcpStream::connect("127.0.0.1:80").await.unwrap();
        let (mut stream, from) = listener.accept().await.unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        client.write_all(b"!").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
    });
    assert!(none.get() > 10 && ended.get() > 10, "{none:?} {ended:?}");
}

#[test]
fn who_gives_up_connecting_at_once_leaves_nothing() {
    Sim::new(0).explore(0..10, || async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let mut connecting = Box::pin(TcpStream::connect("127.0.0.1:80"));
        assert!(futures_lite::future::poll_once(&mut connecting).await.is_none());
        drop(connecting);
        wait_a_second().await;
        let mut accept = Box::pin(listener.accept());
        assert!(futures_lite::future::poll_once(&mut accept).await.is_none());
    });
}

#[test]
fn a_cancelled_task_begins_nothing() {
    Sim::new(1).run(async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let mut near = TcpStream::connect("127.0.0.1:80").await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        far.write_all(b"waiting").await.unwrap();
        wait_a_second().await;
        let task = spawn(async move {
            // Waits until it is cancelled.
            assert!(sleep(Duration::from_secs(10)).await.is_err());
            assert!(is_cancelled(&near.read(&mut [0; 8]).await.unwrap_err()));
            assert!(is_cancelled(&near.peek(&mut [0; 8]).await.unwrap_err()));
            assert!(is_cancelled(&near.write(b"x").await.unwrap_err()));
            assert!(is_cancelled(&near.readable().await.unwrap_err()));
            assert!(is_cancelled(&TcpStream::connect("127.0.0.1:80").await.unwrap_err()));
            assert!(is_cancelled(&TcpListener::bind("127.0.0.1:81").await.unwrap_err()));
            near
        });
        wait_a_second().await;
        task.cancel();
        let mut near = task.await.unwrap();
        let mut text = [0; 7];
        near.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"waiting");
        assert_kind(far.try_read(&mut [0; 1]), ErrorKind::WouldBlock);
        wait_a_second().await;
        let mut accept = Box::pin(listener.accept());
        assert!(futures_lite::future::poll_once(&mut accept).await.is_none());
    });
}

#[test]
fn what_is_peeked_at_stays() {
    Sim::new(0).explore(0..20, || async {
        let (mut near, mut far) = pair().await;
        near.write_all(b"abcdef").await.unwrap();
        wait_a_second().await;
        let mut buffer = [0; 4];
        let n = far.peek(&mut buffer).await.unwrap();
        assert!(n > 0 && buffer[..n] == b"abcd"[..n]);
        let mut all = [0; 6];
        far.read_exact(&mut all).await.unwrap();
        assert_eq!(&all, b"abcdef");
    });
}

#[test]
fn several_slices_are_one_stream() {
    Sim::new(0).explore(0..30, || async {
        let (near, far) = pair().await;
        let bytes = pattern(1, 90);
        let mut put = 0;
        while put < bytes.len() {
            let (first, rest) = bytes[put..].split_at((bytes.len() - put) / 2);
            put += near
                .try_write_vectored(&[IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)])
                .unwrap();
        }
        wait_a_second().await;
        let mut got = Vec::<u8>::new();
        while got.len() < bytes.len() {
            let (mut first, mut second) = ([0; 7], [0; 30]);
            let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            let n = far.try_read_vectored(&mut buffers).unwrap();
            got.extend(first.iter().chain(&second).take(n));
        }
        assert_eq!(got, bytes);
        assert_eq!(far.try_read(&mut []).unwrap(), 0);
        assert_eq!(far.try_write(&[]).unwrap(), 0);
    });
}

#[test]
fn halves_go_their_own_ways_and_come_together() {
    Sim::new(0).explore(0..10, || async {
        let (mut near, mut far) = pair().await;
        let (mut read, mut write) = near.split();
        let both = futures_lite::future::zip(
            async {
                let mut got = [0; 3];
                read.read_exact(&mut got).await.unwrap();
                got
            },
            async { write.write_all(b"there").await.unwrap() },
        );
        far.write_all(b"two").await.unwrap();
        assert_eq!(both.await.0, *b"two");
        let (read, write) = near.into_split();
        let near = read.reunite(write).unwrap();
        let (read, write) = near.into_split();
        drop(write); // the end
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "there");
        far.write_all(b"back").await.unwrap();
        drop(far);
        { read }.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "thereback");
    });
}

#[test]
fn options_are_remembered() {
    Sim::new(1).run(async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        listener.set_ttl(7).unwrap();
        let near = TcpStream::connect("127.0.0.1:80").await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        assert_eq!((listener.ttl().unwrap(), far.ttl().unwrap(), near.ttl().unwrap()), (7, 7, 64));
        assert_kind(near.set_ttl(256), ErrorKind::InvalidInput);
        near.set_nodelay(true).unwrap();
        near.set_quickack(false).unwrap();
        near.set_keepalive(Some(Duration::from_secs(5))).unwrap();
        assert_kind(near.set_keepalive(Some(Duration::from_millis(5))), ErrorKind::InvalidInput);
        near.set_keepalive_probes(Duration::from_secs(1), 3).unwrap();
        near.set_linger(Some(Duration::ZERO)).unwrap();
        assert!(near.nodelay().unwrap() && !near.quickack().unwrap() && !far.nodelay().unwrap());
        assert_eq!(near.keepalive().unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(near.linger().unwrap(), Some(Duration::ZERO));
    });
}

/// Everybody hears what everybody says, line by line.
async fn chat(listener: TcpListener) {
    let everybody = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut incoming = listener.into_incoming();
    while let Some(Ok(stream)) = incoming.next().await {
        let (read, mut write) = stream.into_split();
        let (sender, mut receiver) = dapple::channel::mpsc::bounded::<String>(100);
        everybody.lock().unwrap().push(sender);
        spawn(async move {
            while let Ok(line) = receiver.recv().await {
                if write.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        })
        .detach();
        let everybody = everybody.clone();
        spawn(async move {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let all = everybody.lock().unwrap().clone();
                for one in all {
                    let _ = one.send(format!("{line}\n")).await;
                }
            }
        })
        .detach();
    }
}

#[test]
fn lines_of_a_chat_reach_all_in_order() {
    Sim::new(0).explore(0..25, || async {
        let listener = TcpListener::bind("0.0.0.0:6667").await.unwrap();
        let server = spawn(chat(listener));
        let mut members = Vec::new();
        for who in 0..4 {
            members.push((who, TcpStream::connect("10.0.0.1:6667").await.unwrap()));
        }
        wait_a_second().await; // all are in
        let members: Vec<_> = members
            .into_iter()
            .map(|(who, stream)| {
                spawn(async move {
                    let (read, mut write) = stream.into_split();
                    let speaker = spawn(async move {
                        for i in 0..10 {
                            write.write_all(format!("{who} says {i}\n").as_bytes()).await.unwrap();
                        }
                        write
                    });
                    let (mut lines, mut next) = (BufReader::new(read).lines(), [0; 4]);
                    while next != [10; 4] {
                        let line = lines.next_line().await.unwrap().unwrap();
                        let (who, i) = line.split_once(" says ").unwrap();
                        let next = &mut next[who.parse::<usize>().unwrap()];
                        assert_eq!(i.parse::<u32>().unwrap(), *next);
                        *next += 1;
                    }
                    drop(speaker.await.unwrap());
                })
            })
            .collect();
        for member in members {
            member.await.unwrap();
        }
        server.cancel();
        server.await.unwrap();
    });
}

#[test]
fn the_same_seed_is_the_same_traffic() {
    let run = |seed| {
        Sim::new(seed).workers(3).run_traced(async {
            let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
            let server = spawn(async move {
                for _ in 0..5 {
                    let (stream, _) = listener.accept().await.unwrap();
                    spawn(async move {
                        let (read, write) = stream.into_split();
                        dapple::io::copy(read, write).await.unwrap();
                    })
                    .detach();
                }
            });
            let clients: Vec<_> = (0..5)
                .map(|which| {
                    spawn(async move {
                        let mut stream = TcpStream::connect("127.0.0.1:80").await.unwrap();
                        stream.write_all(&pattern(which, 3000)).await.unwrap();
                        stream.close().await.unwrap();
                        let mut sizes = Vec::new();
                        loop {
                            match stream.read(&mut [0; 500]).await.unwrap() {
                                0 => return sizes,
                                n => sizes.push(n),
                            }
                        }
                    })
                })
                .collect();
            let mut sizes = Vec::new();
            for client in clients {
                sizes.push(client.await.unwrap());
            }
            server.await.unwrap();
            sizes
        })
    };
    let ((first, trace), (second, again)) = (run(5), run(5));
    assert_eq!(first, second);
    assert_eq!(trace.to_string(), again.to_string());
    assert_ne!(first, run(6).0);
}

#[test]
fn a_deadlock_says_what_is_waited_for() {
    let failure = Sim::new(1)
        .try_run(async {
            let (mut near, far) = pair().await;
            let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
            spawn(async move { listener.accept().await.map(drop) }).detach();
            spawn(async move { near.write_all(&[0; 100_000]).await }).detach();
            { far }.read_exact(&mut [0; 70_000]).await.unwrap();
            std::future::pending::<()>().await;
        })
        .unwrap_err();
    assert!(failure.why().contains("waits for a connection to accept"), "{failure}");
    let failure = Sim::new(1)
        .try_run(async {
            let (mut near, _far) = pair().await;
            near.read(&mut [0; 1]).await.unwrap();
        })
        .unwrap_err();
    assert!(failure.why().contains("waits for bytes to read"), "{failure}");
}

#[test]
fn two_simulations_never_meet() {
    let (stream, far, listener) = Sim::new(1).run(async {
        let listener = TcpListener::bind("10.0.0.1:8").await.unwrap();
        let (near, far) = pair().await;
        near.try_write(b"x").unwrap();
        (near, far, listener)
    });
    assert_kind(stream.try_write(b"x"), ErrorKind::Unsupported);
    assert!(far.try_read(&mut [0]).unwrap_err().to_string().contains("no simulation here"));
    Sim::new(1).run(async {
        TcpListener::bind("10.0.0.1:8").await.unwrap();
        let error = stream.readable().await.unwrap_err();
        assert!(error.to_string().contains("another simulation"), "{error}");
        assert_kind(listener.accept().await, ErrorKind::Unsupported);
        drop(stream);
    });
    drop((far, listener));
}

#[test]
fn there_is_no_such_network_outside() {
    dapple::run(async {
        let errors = [
            TcpListener::bind("127.0.0.1:0").await.map(drop),
            TcpStream::connect("127.0.0.1:1").await.map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("no simulation here"), "{error}");
        }
    });
}

#[test]
fn names_are_not_known_but_for_one() {
    Sim::new(1).run(async {
        let listener = TcpListener::bind("localhost:80").await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), "127.0.0.1:80".parse().unwrap());
        let error = TcpStream::connect("www.example.com:80").await.unwrap_err();
        assert!(error.to_string().contains("www.example.com"), "{error}");
        assert!(error.to_string().contains("no outside in a simulation"), "{error}");
    });
}

#[test]
fn they_can_be_sent_and_shared() {
    fn both<T: Send + Sync>() {}
    both::<TcpListener>();
    both::<TcpStream>();
    both::<sim::net::tcp::Incoming<'static>>();
    both::<sim::net::tcp::IntoIncoming>();
    both::<sim::net::tcp::ReadHalf<'static>>();
    both::<sim::net::tcp::WriteHalf<'static>>();
    both::<sim::net::tcp::OwnedReadHalf>();
    both::<sim::net::tcp::OwnedWriteHalf>();
}

#[cfg(feature = "tokio-io")]
#[test]
fn tokio_reads_and_writes_it() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    Sim::new(0).explore(0..5, || async {
        let (mut near, mut far) = pair().await;
        AsyncWriteExt::write_all(&mut near, b"tokio").await.unwrap();
        AsyncWriteExt::shutdown(&mut near).await.unwrap();
        let mut text = String::new();
        AsyncReadExt::read_to_string(&mut far, &mut text).await.unwrap();
        assert_eq!(text, "tokio");
    });
}

#[cfg(feature = "hyper")]
mod http {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::*;
    use dapple::hyper::{Executor, Timer};
    use http_body_util::{BodyExt, Empty, Full};
    use hyper::body::{Bytes, Incoming};
    use hyper::rt::Executor as _;
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let length = request.uri().path().trim_start_matches('/').parse().unwrap();
        Ok(Response::new(Full::new(vec![b'x'; length].into())))
    }

    #[test]
    fn hyper_serves_and_asks() {
        Sim::new(0).explore(0..10, || async {
            let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
            let server = spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let mut http = hyper::server::conn::http1::Builder::new();
                    let http = http.timer(Timer).header_read_timeout(Duration::from_secs(30));
                    spawn(http.serve_connection(stream, service_fn(answer))).detach();
                }
            });
            let clients: Vec<_> = (0..3)
                .map(|_| {
                    spawn(async {
                        let stream = TcpStream::connect("10.0.0.1:80").await.unwrap();
                        let (mut ask, connection) =
                            hyper::client::conn::http1::handshake(stream).await.unwrap();
                        Executor.execute(connection);
                        for length in [5_usize, 0, 100_000, 1] {
                            ask.ready().await.unwrap();
                            let request = Request::get(format!("/{length}")).header("host", "localhost");
                            let request = request.body(Empty::<Bytes>::new()).unwrap();
                            let response = ask.send_request(request).await.unwrap();
                            assert_eq!(response.status(), 200);
                            let body = response.into_body().collect().await.unwrap().to_bytes();
                            assert!(body.len() == length && body.iter().all(|byte| *byte == b'x'));
                        }
                    })
                })
                .collect();
            for client in clients {
                client.await.unwrap();
            }
            server.cancel();
            server.await.unwrap();
        });
    }

    #[test]
    fn a_client_that_sends_no_head_is_given_up() {
        Sim::new(1).run(async {
            let (near, far) = pair().await;
            near.try_write(b"GET").unwrap();
            let begun = Instant::now();
            let mut http = hyper::server::conn::http1::Builder::new();
            let http = http.timer(Timer).header_read_timeout(Duration::from_secs(3600));
            let error = http.serve_connection(far, service_fn(answer)).await.unwrap_err();
            assert!(error.is_timeout(), "{error}");
            assert_eq!(begun.elapsed().as_secs(), 3600);
        });
    }
}
