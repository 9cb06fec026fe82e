//! UDP sockets.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use crate::common::{Event, foreign_block_on, runtime, telling, watched};
use dapple::is_cancelled;
use dapple::net::UdpSocket;
use futures_lite::future;

const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// A socket that is connected to another one, and that one.
async fn connected() -> (UdpSocket, UdpSocket) {
    let near = UdpSocket::bind(HERE).await.unwrap();
    let far = UdpSocket::bind(HERE).await.unwrap();
    near.connect(far.local_addr().unwrap()).await.unwrap();
    far.connect(near.local_addr().unwrap()).await.unwrap();
    (near, far)
}

#[test]
fn datagrams_keep_their_bounds() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = connected().await;
            let long = vec![7; 60_000];
            for sent in [&b"one"[..], b"", b"three", &long] {
                assert_eq!(near.send(sent).await.unwrap(), sent.len());
            }
            let mut buffer = vec![0; 65_507];
            for expected in [&b"one"[..], b"", b"three", &long] {
                let n = far.recv(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..n], expected);
            }
        });
    });
}

#[test]
fn what_does_not_fit_is_lost_and_the_next_is_whole() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = connected().await;
            near.send(b"much too long").await.unwrap();
            near.send(b"for an empty buffer").await.unwrap();
            near.send(b"next").await.unwrap();
            let mut buffer = [0; 4];
            assert_eq!((far.recv(&mut buffer).await.unwrap(), &buffer), (4, b"much"));
            assert_eq!(far.recv(&mut []).await.unwrap(), 0);
            assert_eq!((far.recv(&mut buffer).await.unwrap(), &buffer), (4, b"next"));
        });
    });
}

#[test]
fn a_datagram_too_long_for_the_network_is_an_error() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = connected().await;
            let error = near.send(&vec![0; 65_508]).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
            near.send(b"goes on").await.unwrap();
            assert_eq!(far.recv(&mut [0; 100]).await.unwrap(), 7);
        });
    });
}

#[test]
fn a_connected_socket_hears_its_peer_alone() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = connected().await;
            let stranger = UdpSocket::bind(HERE).await.unwrap();
            stranger.send_to(b"stranger", far.local_addr().unwrap()).await.unwrap();
            near.send(b"peer").await.unwrap();
            let mut buffer = [0; 100];
            let (n, from) = far.recv_from(&mut buffer).await.unwrap();
            assert_eq!((&buffer[..n], from), (&b"peer"[..], near.local_addr().unwrap()));
            assert_eq!(far.try_recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert_eq!(far.peer_addr().unwrap(), near.local_addr().unwrap());
            assert_eq!(stranger.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
            assert!(stranger.send(b"to whom?").await.is_err());
        });
    });
}

#[test]
fn refused_is_reported_and_the_socket_goes_on() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, far) = connected().await;
            let near = Arc::new(near);
            drop(far);
            // It waits when the kernel reports that the port is unreachable.
            let (receives, begun) = (near.clone(), Event::default());
            let wait = telling(begun.clone(), async move { receives.recv(&mut [0; 10]).await });
            let receives = dapple::spawn(wait);
            begun.happened().await;
            near.send(b"anybody?").await.unwrap();
            assert_eq!(receives.await.unwrap().unwrap_err().kind(), ErrorKind::ConnectionRefused);

            let other = UdpSocket::bind(HERE).await.unwrap();
            near.connect(other.local_addr().unwrap()).await.unwrap();
            near.send(b"you!").await.unwrap();
            let mut buffer = [0; 10];
            let (n, from) = other.recv_from(&mut buffer).await.unwrap();
            other.send_to(&buffer[..n], from).await.unwrap();
            assert_eq!(near.recv(&mut buffer).await.unwrap(), 4);
            assert!(near.take_error().unwrap().is_none());
        });
    });
}

#[test]
fn each_of_many_receivers_gets_one_datagram() {
    const MANY: u8 = 40;
    watched(|| {
        runtime(2).block_on(async {
            let (near, far) = connected().await;
            let far = Arc::new(far);
            let waits: Vec<_> = (0..MANY)
                .map(|_| {
                    let (far, begun) = (far.clone(), Event::default());
                    let wait = async move {
                        let mut buffer = [0];
                        far.recv(&mut buffer).await.map(|_| buffer[0])
                    };
                    (begun.clone(), dapple::spawn(telling(begun, wait)))
                })
                .collect();
            for (begun, _) in &waits {
                begun.happened().await;
            }
            for n in 0..MANY {
                near.send(&[n]).await.unwrap();
            }
            let mut got = Vec::new();
            for (_, task) in waits {
                got.push(task.await.unwrap().unwrap());
            }
            got.sort_unstable();
            assert_eq!(got, (0..MANY).collect::<Vec<_>>());
        });
    });
}

#[test]
fn cancelled_while_waiting_leaves_the_datagram() {
    watched(|| {
        let rt = runtime(2);
        let (near, far) = rt.block_on(connected());
        let far = Arc::new(far);
        let (receives, begun) = (far.clone(), Event::default());
        let wait = telling(begun.clone(), async move { receives.recv(&mut [0; 10]).await });
        let task = rt.spawn(wait);
        begun.wait();
        task.cancel();
        assert!(is_cancelled(&rt.block_on(task).unwrap().unwrap_err()));
        rt.block_on(near.send(b"still here")).unwrap();
        let mut buffer = [0; 10];
        rt.block_on(far.recv(&mut buffer)).unwrap();
        assert_eq!(&buffer, b"still here");
    });
}

#[test]
fn in_a_cancelled_task_nothing_is_sent_or_taken() {
    watched(|| {
        let rt = runtime(1);
        let (near, far) = rt.block_on(connected());
        near.try_send(b"kept").unwrap();
        let gate = Event::default();
        let go = gate.clone();
        let task = rt.spawn(async move {
            dapple::shield(go.happened()).await;
            let mut buffer = [0; 10];
            assert!(is_cancelled(&far.recv(&mut buffer).await.unwrap_err()));
            assert!(is_cancelled(&far.recv_from(&mut buffer).await.unwrap_err()));
            assert!(is_cancelled(&far.peek(&mut buffer).await.unwrap_err()));
            assert!(is_cancelled(&far.readable().await.unwrap_err()));
            assert!(is_cancelled(&far.send(b"not sent").await.unwrap_err()));
            assert!(is_cancelled(&far.send_to(b"not sent", HERE).await.unwrap_err()));
            assert!(is_cancelled(&far.connect(HERE).await.unwrap_err()));
            assert!(is_cancelled(&UdpSocket::bind(HERE).await.unwrap_err()));
            let polled = poll_fn(|cx| far.poll_recv(cx, &mut buffer)).await;
            assert!(is_cancelled(&polled.unwrap_err()));
            far
        });
        task.cancel();
        gate.set();
        let far = rt.block_on(task).unwrap();
        assert_eq!(near.try_recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(far.try_recv(&mut [0; 10]).unwrap(), 4);
    });
}

#[test]
fn dropped_early_loses_nothing() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = connected().await;
            let mut buffer = [0; 10];
            for round in 0..20_u8 {
                // One is dropped before the datagram comes, one after: both have been woken by then or not.
                let mut other = [0; 10];
                let mut early = Box::pin(far.recv(&mut buffer));
                let mut late = Box::pin(far.recv(&mut other));
                assert!(future::poll_once(&mut early).await.is_none());
                assert!(future::poll_once(&mut late).await.is_none());
                drop(early);
                near.send(&[round]).await.unwrap();
                far.readable().await.unwrap();
                drop(late);
                let n = far.recv(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..n], [round]);
            }
        });
    });
}

#[test]
fn peeking_takes_nothing() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = connected().await;
            near.send(b"look").await.unwrap();
            let from = near.local_addr().unwrap();
            let mut buffer = [0; 10];
            assert_eq!(far.peek_sender().await.unwrap(), from);
            assert_eq!(far.try_peek_sender().unwrap(), from);
            assert_eq!(far.peek(&mut buffer).await.unwrap(), 4);
            assert_eq!(far.peek_from(&mut buffer).await.unwrap(), (4, from));
            assert_eq!(far.try_peek(&mut buffer).unwrap(), 4);
            assert_eq!(far.try_peek_from(&mut buffer).unwrap(), (4, from));
            assert_eq!(poll_fn(|cx| far.poll_peek(cx, &mut buffer)).await.unwrap(), 4);
            assert_eq!(poll_fn(|cx| far.poll_peek_from(cx, &mut buffer)).await.unwrap(), (4, from));
            assert_eq!(far.recv(&mut buffer).await.unwrap(), 4);
            assert_eq!(far.try_peek(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        });
    });
}

#[test]
fn ready_and_then_without_waiting() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = connected().await;
            let (near_addr, far_addr) = (near.local_addr().unwrap(), far.local_addr().unwrap());
            let mut buffer = [0; 10];
            assert_eq!(far.try_recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            near.writable().await.unwrap();
            poll_fn(|cx| near.poll_send_ready(cx)).await.unwrap();
            assert_eq!(near.try_send_to(b"a", far_addr).unwrap(), 1);
            far.readable().await.unwrap();
            poll_fn(|cx| far.poll_recv_ready(cx)).await.unwrap();
            assert_eq!(far.try_recv_from(&mut buffer).unwrap(), (1, near_addr));
            // Taken, so it is not ready, whatever was known of it before.
            assert!(future::poll_once(far.readable()).await.is_none());
            assert_eq!(poll_fn(|cx| near.poll_send(cx, b"bc")).await.unwrap(), 2);
            assert_eq!(poll_fn(|cx| near.poll_send_to(cx, b"def", far_addr)).await.unwrap(), 3);
            assert_eq!(poll_fn(|cx| far.poll_recv(cx, &mut buffer)).await.unwrap(), 2);
            assert_eq!(poll_fn(|cx| far.poll_recv_from(cx, &mut buffer)).await.unwrap(), (3, near_addr));
        });
    });
}

#[test]
fn custom_system_calls_wait_for_readiness() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = connected().await;
            let (calls, far) = (Arc::new(AtomicUsize::new(0)), Arc::new(far));
            let begun = Event::default();
            let (counts, reads) = (calls.clone(), far.clone());
            let task = dapple::spawn(telling(begun.clone(), async move {
                let operation = |socket: &std::net::UdpSocket| {
                    counts.fetch_add(1, Ordering::Relaxed);
                    socket.recv(&mut [0; 10])
                };
                reads.read_with(operation).await
            }));
            begun.happened().await;
            assert_eq!(near.write_with(|socket| socket.send(b"12345")).await.unwrap(), 5);
            assert_eq!(task.await.unwrap().unwrap(), 5);
            assert!(calls.load(Ordering::Relaxed) >= 2);
        });
    });
}

/// Passes wake-ups on, and counts them.
struct Relay {
    to: Waker,
    count: Arc<AtomicUsize>,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.to.wake_by_ref();
    }
}

#[test]
fn a_cancelled_poll_through_a_foreign_waker_is_told() {
    watched(|| {
        let rt = runtime(2);
        let (_near, far) = rt.block_on(connected());
        let (begun, count) = (Event::default(), Arc::new(AtomicUsize::new(0)));
        let woken = count.clone();
        let task = rt.spawn(telling(begun.clone(), async move {
            let mut inner: Option<Waker> = None;
            poll_fn(|cx| {
                // As a combinator does: what was not woken is not polled.
                if inner.is_some() && woken.load(Ordering::SeqCst) == 0 {
                    return std::task::Poll::Pending;
                }
                let relay = Relay { to: cx.waker().clone(), count: woken.clone() };
                let waker = inner.insert(Waker::from(Arc::new(relay)));
                far.poll_recv(&mut Context::from_waker(waker), &mut [0; 10])
            })
            .await
        }));
        begun.wait();
        task.cancel();
        assert!(is_cancelled(&rt.block_on(task).unwrap().unwrap_err()));
        assert!(count.load(Ordering::SeqCst) > 0);
    });
}

#[test]
fn by_name() {
    watched(|| {
        runtime(2).block_on(async {
            let far = UdpSocket::bind("localhost:0").await.unwrap();
            let addr = far.local_addr().unwrap();
            let near = UdpSocket::bind(SocketAddr::new(addr.ip(), 0)).await.unwrap();
            near.send_to(b"by address", ("localhost", addr.port())).await.unwrap();
            assert_eq!(far.recv(&mut [0; 100]).await.unwrap(), 10);
            near.connect(&[addr][..]).await.unwrap();
            near.send(b"connected").await.unwrap();
            assert_eq!(far.recv(&mut [0; 100]).await.unwrap(), 9);
            assert!(UdpSocket::bind("localhost").await.unwrap_err().to_string().contains("port"));
        });
    });
}

#[test]
fn the_first_address_that_works() {
    watched(|| {
        runtime(1).block_on(async {
            let nowhere = SocketAddr::from(([192, 0, 2, 1], 0)); // for documentation: not ours
            let here = SocketAddr::from(HERE);
            let socket = UdpSocket::bind(&[nowhere, here][..]).await.unwrap();
            assert_eq!(socket.local_addr().unwrap().ip(), here.ip());
            let error = UdpSocket::bind(&[here, nowhere][1..]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
        });
    });
}

#[test]
fn an_address_that_is_taken_is_named_and_the_number_is_told() {
    watched(|| {
        runtime(1).block_on(async {
            let first = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let addr = first.local_addr().unwrap();
            let error = UdpSocket::bind(addr).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            assert!(error.to_string().starts_with(&format!("cannot bind to {addr}: ")), "{error}");
            let source = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>();
            assert_eq!(source.unwrap().raw_os_error(), Some(libc::EADDRINUSE));
        });
    });
}

#[test]
fn options_are_kept() {
    watched(|| {
        runtime(1).block_on(async {
            let socket = UdpSocket::bind(HERE).await.unwrap();
            socket.set_ttl(33).unwrap();
            assert_eq!(socket.ttl().unwrap(), 33);
            assert!(!socket.broadcast().unwrap());
            socket.set_broadcast(true).unwrap();
            assert!(socket.broadcast().unwrap());
            socket.set_multicast_ttl_v4(7).unwrap();
            assert_eq!(socket.multicast_ttl_v4().unwrap(), 7);
            socket.set_multicast_loop_v4(false).unwrap();
            assert!(!socket.multicast_loop_v4().unwrap());
            socket.set_tos(0x10).unwrap();
            assert_eq!(socket.tos().unwrap(), 0x10);
        });
    });
}

#[test]
fn groups() {
    watched(|| {
        runtime(1).block_on(async {
            let group = Ipv4Addr::new(239, 255, 77, 78);
            let member = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
            member.join_multicast_v4(group, Ipv4Addr::LOCALHOST).unwrap();
            let sender = UdpSocket::bind(HERE).await.unwrap();
            socket2::SockRef::from(&sender).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
            sender.send_to(b"all", (group, member.local_addr().unwrap().port())).await.unwrap();
            assert_eq!(member.recv(&mut [0; 10]).await.unwrap(), 3);
            member.leave_multicast_v4(group, Ipv4Addr::LOCALHOST).unwrap();
            assert!(member.leave_multicast_v4(group, Ipv4Addr::LOCALHOST).is_err(), "it is not a member");
        });
    });
}

#[test]
fn from_the_standard_library_and_back_and_to_another_runtime() {
    watched(|| {
        let socket = std::net::UdpSocket::bind(HERE).unwrap();
        let addr = socket.local_addr().unwrap();
        let mut socket = UdpSocket::try_from(socket).unwrap();
        for _ in 0..3 {
            let rt = runtime(1);
            rt.block_on(async {
                // Waits, so that it is registered.
                assert!(future::poll_once(socket.recv(&mut [0; 10])).await.is_none());
                let other = UdpSocket::bind(HERE).await.unwrap();
                other.send_to(b"hello", addr).await.unwrap();
                assert_eq!(socket.recv(&mut [0; 10]).await.unwrap(), 5);
            });
            drop(rt);
            socket = UdpSocket::from_std(socket.into_std().unwrap()).unwrap();
        }
        let number = socket.as_raw_fd();
        assert_eq!(socket.as_fd().as_raw_fd(), number);
        assert_eq!(OwnedFd::from(socket).as_raw_fd(), number);
    });
}

#[test]
fn outside_of_a_runtime_only_waiting_is_an_error() {
    watched(|| {
        foreign_block_on(async {
            let (near, far) = connected().await;
            near.send(b"hello").await.unwrap();
            assert_eq!(far.recv(&mut [0; 10]).await.unwrap(), 5);
            let error = far.recv(&mut [0; 10]).await.unwrap_err();
            assert!(error.to_string().contains("dapple::run"), "{error}");
        });
    });
}

#[test]
fn a_runtime_that_ends_under_a_wait_on_another_thread() {
    watched(|| {
        let rt = runtime(1);
        let (_near, far) = rt.block_on(connected());
        let begun = Event::default();
        let waits = telling(begun.clone(), async move {
            let first = far.recv(&mut [0; 10]).await.unwrap_err();
            let second = far.recv(&mut [0; 10]).await.unwrap_err();
            (first, second)
        });
        // Registered with the first runtime, waited for on a second one.
        let (entered, other) = (rt.handle().clone(), runtime(1));
        let mut waits = Box::pin(waits);
        entered.block_on(future::poll_once(&mut waits));
        begun.wait();
        let task = other.spawn(waits);
        drop(rt);
        let (first, second) = other.block_on(task).unwrap();
        assert!(first.to_string().contains("ended"), "{first}");
        assert!(second.to_string().contains("ended"), "{second}");
    });
}
