//! No edge is lost: events that come at the worst of moments.
#![expect(unsafe_code, reason = "a waker with a hook")]

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;

use crate::common::{Event, Random, may_open, runtime, telling, watched};
use dapple::Runtime;
use dapple::net::{AsyncFd, TcpListener, TcpStream, UnixDatagram, UnixStream};
use dapple::task::yield_now;
use futures_lite::{AsyncReadExt, AsyncWriteExt, future};
use rustix::event::{EventfdFlags, eventfd};

fn take(counter: &OwnedFd) -> io::Result<u64> {
    let mut count = [0; 8];
    rustix::io::read(counter, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

fn add(counter: impl AsFd, n: u64) {
    rustix::io::write(counter, &n.to_ne_bytes()).unwrap();
}

/// Waits until `all` threads have come: spins, and yields now and then.
fn meet(come: &AtomicUsize, all: usize) {
    come.fetch_add(1, Ordering::SeqCst);
    let mut looks = 0;
    while come.load(Ordering::SeqCst) < all {
        looks += 1;
        if looks % 1000 == 0 {
            thread::yield_now();
        }
    }
}

/// Two threads wait for the same file descriptor for the first time, and so register it both.
#[test]
fn registered_by_two_at_the_same_time() {
    const ROUNDS: usize = 500;
    if !may_open(4096) {
        return;
    }
    for workers in [1, 2] {
        watched(move || {
            let rt = runtime(workers);
            let sockets: Vec<_> = (0..ROUNDS).map(|_| UnixDatagram::pair().unwrap()).collect();
            let (near, far): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
            let (far, met) = (Arc::new(far), Arc::new(AtomicUsize::new(0)));
            let (threads, begun): (Vec<_>, Vec<_>) = (0..2)
                .map(|_| {
                    let (far, met, handle) = (far.clone(), met.clone(), rt.handle().clone());
                    let begun: Vec<_> = (0..ROUNDS).map(|_| Event::default()).collect();
                    let tells = begun.clone();
                    let thread = thread::spawn(move || {
                        handle.block_on(async move {
                            for (round, (socket, begun)) in far.iter().zip(tells).enumerate() {
                                let mut is_first = true;
                                let receives = socket.read_with(|socket| {
                                    if std::mem::take(&mut is_first) {
                                        meet(&met, 2 * round + 2);
                                        return Err(io::ErrorKind::WouldBlock.into());
                                    }
                                    socket.recv(&mut [0; 10])
                                });
                                assert_eq!(telling(begun, receives).await.unwrap(), 3);
                            }
                        });
                    });
                    (thread, begun)
                })
                .unzip();
            for (round, socket) in near.iter().enumerate() {
                begun.iter().for_each(|begun| begun[round].wait());
                for _ in 0..2 {
                    socket.try_send(b"one").unwrap();
                }
            }
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }
}

/// A task that tells when an event of the counter was handed out, without taking it.
fn watch(rt: &Runtime, counter: &Arc<AsyncFd<OwnedFd>>) -> Event {
    let (begun, told) = (Event::default(), Event::default());
    let (counter, tells) = (counter.clone(), told.clone());
    let waits = telling(begun.clone(), async move { counter.readable().await.unwrap() });
    rt.spawn(async move {
        waits.await;
        tells.set();
    })
    .detach();
    begun.wait();
    told
}

/// The event comes after a read has found nothing, and before what was known is taken back.
#[test]
fn an_event_while_a_read_finds_nothing() {
    watched(|| {
        let rt = Arc::new(runtime(1));
        let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let counter = rt.block_on(async { Arc::new(AsyncFd::new(counter).unwrap()) });
        let (told, watches) = (watch(&rt, &counter), rt.clone());
        add(&*counter, 1);
        told.wait(); // so it is known to be readable
        let mut calls = 0;
        let got = rt.block_on(counter.read_with(|fd| {
            calls += 1;
            if calls == 1 {
                assert_eq!(take(fd)?, 1);
                let told = watch(&watches, &counter);
                add(fd, 5);
                told.wait();
                return Err(io::ErrorKind::WouldBlock.into());
            }
            take(fd)
        }));
        assert_eq!((got.unwrap(), calls), (5, 2));
    });
}

/// Calls a closure when it is cloned.
struct CloneHook<F>(F);

impl<F: Fn()> CloneHook<F> {
    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |hook| {
            // SAFETY: `hook` is what `waker` was given, and outlives the wakers.
            let CloneHook(hook) = unsafe { &*hook.cast::<CloneHook<F>>() };
            hook();
            RawWaker::new(std::ptr::null(), Waker::noop().vtable())
        },
        |_| {},
        |_| {},
        |_| {},
    );

    fn poll<R>(&self, future: &mut (impl Future<Output = R> + Unpin)) -> Poll<R> {
        let raw = RawWaker::new(std::ptr::from_ref(self).cast(), &Self::TABLE);
        // SAFETY: the functions do nothing but call the hook, which is there until this returns; clones
        // are wakers that do nothing.
        let waker = unsafe { Waker::from_raw(raw) };
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }
}

/// The event comes after it was known that there is none, and before the reader is entered as one who
/// waits.
#[test]
fn an_event_while_a_reader_begins_to_wait() {
    watched(|| {
        let rt = runtime(1);
        let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let counter = rt.block_on(async { Arc::new(AsyncFd::new(counter).unwrap()) });
        let told = watch(&rt, &counter);
        let hook = CloneHook(|| {
            add(&*counter, 5);
            told.wait();
        });
        let mut reads = Box::pin(counter.read_with(take));
        let polled = rt.block_on(async { hook.poll(&mut reads) });
        assert!(matches!(polled, Poll::Ready(Ok(5))), "it waits for what has happened");
    });
}

/// Bytes go back and forth in steps of all sizes, on sockets that share two workers, with others that
/// come and go.
#[test]
fn no_edge_is_lost() {
    const PAIRS: u64 = 16;
    const ROUNDS: usize = 300;
    watched(|| {
        let rt = runtime(2);
        let tasks: Vec<_> = (1..=PAIRS)
            .map(|seed| {
                rt.spawn(async move {
                    let (mut near, mut far) = UnixStream::pair().unwrap();
                    let echo = dapple::spawn(async move {
                        let mut random = Random(seed * 77);
                        let mut buffer = [0; 64];
                        loop {
                            let limit = random.below(63) as usize + 1;
                            match far.read(&mut buffer[..limit]).await.unwrap() {
                                0 => return,
                                n => far.write_all(&buffer[..n]).await.unwrap(),
                            }
                            if random.below(3) == 0 {
                                yield_now().await;
                            }
                        }
                    });
                    let mut random = Random(seed);
                    for round in 0..ROUNDS {
                        let len = random.below(200) as usize + 1;
                        let sent = vec![round as u8; len];
                        near.write_all(&sent).await.unwrap();
                        if random.below(4) == 0 {
                            // Given up after one poll, and begun again.
                            let mut early = [0; 8];
                            if let Some(n) = future::poll_once(near.read(&mut early)).await {
                                let n = n.unwrap();
                                near.read_exact(&mut vec![0; len - n]).await.unwrap();
                                continue;
                            }
                        }
                        let mut got = vec![0; len];
                        near.read_exact(&mut got).await.unwrap();
                        assert_eq!(got, sent);
                    }
                    drop(near);
                    echo.await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            rt.block_on(task).unwrap();
        }
    });
}

/// More than the driver takes from the kernel at a time.
#[test]
fn a_thousand_at_once() {
    const MANY: usize = 1000;
    if !may_open(4096) {
        return;
    }
    watched(|| {
        let rt = runtime(1);
        let (counters, tasks): (Vec<_>, Vec<_>) = (0..MANY)
            .map(|_| {
                let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
                let adds = counter.try_clone().unwrap();
                let begun = Event::default();
                let task = rt.spawn(telling(begun.clone(), async move {
                    AsyncFd::new(counter).unwrap().read_with(take).await
                }));
                ((adds, begun), task)
            })
            .unzip();
        counters.iter().for_each(|(_, begun)| begun.wait());
        for (adds, _) in &counters {
            add(adds, 3);
        }
        for task in tasks {
            assert_eq!(rt.block_on(task).unwrap().unwrap(), 3);
        }
    });
}

/// A read stops before an urgent byte, though there are bytes behind it.
#[test]
fn bytes_behind_an_urgent_one_are_read() {
    watched(|| {
        runtime(1).block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 100];
            assert!(future::poll_once(far.read(&mut buffer)).await.is_none(), "it is registered");
            let near = socket2::Socket::from(OwnedFd::from(near));
            for _ in 0..20 {
                near.send(b"before").unwrap();
                near.send_out_of_band(b"!").unwrap();
                near.send(b"behind").unwrap();
                let mut got = Vec::new();
                while !got.ends_with(b"behind") {
                    let n = far.read(&mut buffer).await.unwrap();
                    got.extend(&buffer[..n]);
                }
                assert_eq!(got, b"beforebehind");
            }
        });
    });
}
