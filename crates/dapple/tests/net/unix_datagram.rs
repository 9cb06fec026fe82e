//! Unix datagrams.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Event, Random, foreign_block_on, runtime, telling, watched};
use dapple::is_cancelled;
use dapple::net::UnixDatagram;
use futures_lite::future;

fn abstract_name() -> SocketAddr {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("dapple-dgram-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    SocketAddr::from_abstract_name(name).unwrap()
}

/// Sends until there is no room. Returns how many that were.
fn fill(mut send: impl FnMut() -> std::io::Result<usize>) -> usize {
    let mut sent = 0;
    loop {
        match send() {
            Ok(_) => sent += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return sent;
            }
        }
    }
}

#[test]
fn datagrams_keep_bounds_and_are_truncated_to_the_buffer() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = UnixDatagram::pair().unwrap();
            for sent in [&b"one"[..], b"", b"too long", b"four"] {
                assert_eq!(near.send(sent).await.unwrap(), sent.len());
            }
            let mut buffer = [0; 4];
            assert_eq!(far.recv(&mut buffer).await.unwrap(), 3);
            assert_eq!(far.recv(&mut buffer).await.unwrap(), 0);
            assert_eq!((far.recv(&mut buffer).await.unwrap(), &buffer), (4, b"too "));
            assert_eq!((far.recv(&mut buffer).await.unwrap(), &buffer), (4, b"four"));
        });
    });
}

#[test]
fn by_path_by_name_and_without() {
    watched(|| {
        let folder = std::env::temp_dir().join(format!("dapple-dgram-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("socket");
        runtime(1).block_on(async {
            let at_path = UnixDatagram::bind(&path).unwrap();
            let name = abstract_name();
            let named = UnixDatagram::bind_addr(&name).unwrap();
            let unbound = UnixDatagram::unbound().unwrap();
            let mut buffer = [0; 10];

            named.send_to(b"to path", &path).await.unwrap();
            let (n, from) = at_path.recv_from(&mut buffer).await.unwrap();
            assert_eq!((n, from.as_abstract_name()), (7, name.as_abstract_name()));
            at_path.send_to_addr(b"back", &from).await.unwrap();
            let (n, from) = named.recv_from(&mut buffer).await.unwrap();
            assert_eq!((n, from.as_pathname()), (4, Some(path.as_path())));

            unbound.connect(&path).unwrap();
            unbound.send(b"hi").await.unwrap();
            let (n, from) = poll_fn(|cx| at_path.poll_recv_from(cx, &mut buffer)).await.unwrap();
            assert_eq!((n, from.is_unnamed()), (2, true));
            unbound.connect_addr(&name).unwrap();
            assert_eq!(unbound.try_send(b"now you").unwrap(), 7);
            assert_eq!(named.try_recv_from(&mut buffer).unwrap().0, 7);
            assert_eq!(at_path.try_send_to_addr(b"1", &name).unwrap(), 1);
            assert_eq!(named.try_send_to(b"12", &path).unwrap(), 2);
            assert_eq!(named.try_recv(&mut buffer).unwrap(), 1);
            assert_eq!(at_path.try_recv(&mut buffer).unwrap(), 2);

            drop(at_path);
            assert!(path.exists());
            let error = UnixDatagram::bind(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            let error = named.send_to(b"gone", &path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        });
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// Until everything that has happened so far was handed out.
async fn settle() {
    let (near, far) = UnixDatagram::pair().unwrap();
    assert!(future::poll_once(far.readable()).await.is_none());
    near.try_send(b"").unwrap();
    far.readable().await.unwrap();
}

#[test]
fn sending_waits_for_a_receiver_that_has_no_room() {
    watched(|| {
        runtime(1).block_on(async {
            let name = abstract_name();
            let receiver = UnixDatagram::bind_addr(&name).unwrap();
            let connected = Arc::new(UnixDatagram::unbound().unwrap());
            connected.connect_addr(&name).unwrap();
            let full = fill(|| connected.try_send(b"x"));
            assert!(full > 0);
            let sends = |how: fn(Arc<UnixDatagram>, SocketAddr) -> future::Boxed<std::io::Result<usize>>| {
                let begun = Event::default();
                let wait = how(connected.clone(), name.clone());
                (begun.clone(), dapple::spawn(telling(begun, wait)))
            };
            // To the one that it is connected to, of which the kernel tells; by address and from one
            // that has sent nothing yet, of which it does not.
            let waits = [
                sends(|socket, _| Box::pin(async move { socket.send(b"x").await })),
                sends(|socket, name| Box::pin(async move { socket.send_to_addr(b"x", &name).await })),
                sends(|_, name| {
                    Box::pin(async move { UnixDatagram::unbound()?.send_to_addr(b"x", &name).await })
                }),
            ];
            let (cancelled_begun, cancelled) = sends(|_, name| {
                Box::pin(async move { UnixDatagram::unbound()?.send_to_addr(b"not", &name).await })
            });
            cancelled_begun.happened().await;
            cancelled.cancel();
            assert!(is_cancelled(&cancelled.await.unwrap().unwrap_err()));
            for (begun, task) in &waits {
                begun.happened().await;
                assert!(!task.is_finished());
            }
            // So that each has found out that its own room is not what it waits for.
            for _ in 0..3 {
                dapple::spawn(settle()).await.unwrap();
            }
            let mut buffer = [0; 10];
            for _ in 0..full + waits.len() {
                assert_eq!(receiver.recv(&mut buffer).await.unwrap(), 1);
            }
            for (_, task) in waits {
                assert_eq!(task.await.unwrap().unwrap(), 1);
            }
            assert_eq!(receiver.try_recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        });
    });
}

#[test]
fn a_full_pair_waits_for_room() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, far) = UnixDatagram::pair().unwrap();
            let full = fill(|| near.try_send(&[1; 5000]));
            let begun = Event::default();
            let sends = dapple::spawn(telling(begun.clone(), async move {
                let sent = near.send(&[2; 5000]).await;
                (near, sent)
            }));
            begun.happened().await;
            let mut buffer = [0; 5000];
            for _ in 0..full {
                assert_eq!(far.recv(&mut buffer).await.unwrap(), 5000);
                assert_eq!(buffer[0], 1);
            }
            assert_eq!(far.recv(&mut buffer).await.unwrap(), 5000);
            assert_eq!(buffer[0], 2);
            let (near, sent) = sends.await.unwrap();
            assert_eq!(sent.unwrap(), 5000);
            near.writable().await.unwrap();
            poll_fn(|cx| near.poll_send_ready(cx)).await.unwrap();
            assert_eq!(poll_fn(|cx| near.poll_send(cx, b"end")).await.unwrap(), 3);
            poll_fn(|cx| far.poll_recv_ready(cx)).await.unwrap();
            assert_eq!(poll_fn(|cx| far.poll_recv(cx, &mut buffer)).await.unwrap(), 3);
        });
    });
}

#[test]
fn a_connected_datagram_socket_sees_its_peer_end() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, far) = UnixDatagram::pair().unwrap();
            let far = Arc::new(far);
            let (waits, begun) = (far.clone(), Event::default());
            let task = dapple::spawn(telling(begun.clone(), async move { waits.recv(&mut [0; 10]).await }));
            begun.happened().await;
            far.shutdown(Shutdown::Read).unwrap();
            assert_eq!(task.await.unwrap().unwrap(), 0);
            assert_eq!(near.send(b"to nobody").await.unwrap_err().kind(), ErrorKind::BrokenPipe);

            let (near, far) = UnixDatagram::pair().unwrap();
            drop(far);
            assert_eq!(near.send(b"gone").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            assert_eq!(near.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        });
    });
}

#[test]
fn from_the_standard_library_and_back() {
    watched(|| {
        let (near, far) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let (near, far) = (UnixDatagram::try_from(near).unwrap(), UnixDatagram::from_std(far).unwrap());
        runtime(1).block_on(async {
            assert!(future::poll_once(far.recv(&mut [0; 10])).await.is_none());
            let far = UnixDatagram::from_std(far.into_std().unwrap()).unwrap();
            near.write_with(|socket| socket.send(b"abc")).await.unwrap();
            far.readable().await.unwrap();
            assert_eq!(far.read_with(|socket| socket.recv(&mut [0; 10])).await.unwrap(), 3);
            assert!(far.local_addr().unwrap().is_unnamed());
            assert!(far.take_error().unwrap().is_none());
        });
        let error = foreign_block_on(near.recv(&mut [0; 10])).unwrap_err();
        assert!(error.to_string().contains("dapple::run"), "{error}");
        let number = near.as_raw_fd();
        assert_eq!(OwnedFd::from(near).as_raw_fd(), number);
    });
}

/// Many receive; some are cancelled, some dropped, at any moment. Everything is received once.
#[test]
fn nothing_is_lost_whoever_gives_up() {
    const COUNT: u32 = 3000;
    watched(|| {
        let rt = runtime(2);
        let (near, far) = UnixDatagram::pair().unwrap();
        let far = Arc::new(far);
        let seen = Arc::new((0..COUNT).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
        let total = Arc::new(AtomicUsize::new(0));
        let sends = rt.spawn(async move {
            for n in 0..COUNT {
                near.send(&n.to_ne_bytes()).await.unwrap();
                if n % 7 == 0 {
                    dapple::task::yield_now().await;
                }
            }
            near
        });
        let receive = |seed: u64| {
            let (far, seen, total) = (far.clone(), seen.clone(), total.clone());
            async move {
                let mut random = Random(seed);
                loop {
                    let mut buffer = [0; 4];
                    // Given up after a few polls.
                    let mut left = random.below(4);
                    let mut receives = Box::pin(far.recv(&mut buffer));
                    let received = poll_fn(|cx| {
                        let polled = receives.as_mut().poll(cx).map(Some);
                        if polled.is_pending() && left == 0 {
                            return std::task::Poll::Ready(None);
                        }
                        left = left.saturating_sub(1);
                        polled
                    })
                    .await;
                    drop(receives);
                    match received {
                        Some(Ok(n)) => {
                            assert_eq!(n, 4);
                            seen[u32::from_ne_bytes(buffer) as usize].fetch_add(1, Ordering::Relaxed);
                            total.fetch_add(1, Ordering::Release);
                        }
                        Some(Err(error)) => {
                            assert!(is_cancelled(&error));
                            return;
                        }
                        None => dapple::task::yield_now().await,
                    }
                }
            }
        };
        let mut seed = 0;
        while total.load(Ordering::Acquire) < COUNT as usize {
            seed += 8;
            let receivers: Vec<_> = (1..6).map(|n| rt.spawn(receive(seed + n))).collect();
            std::thread::yield_now();
            let enough = (total.load(Ordering::Acquire) + 100).min(COUNT as usize);
            while total.load(Ordering::Acquire) < enough {
                std::thread::yield_now();
            }
            receivers.iter().for_each(|receiver| receiver.cancel());
            for receiver in receivers {
                // It may be cancelled in `yield_now`, which ends it, too.
                rt.block_on(receiver).unwrap();
            }
        }
        drop(rt.block_on(sends).unwrap());
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    });
}
