//! The driver under load: sources that are always ready, storms of signals, and an end with waits
//! under way.
#![expect(unsafe_code, reason = "sends signals to threads")]

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::common::{Drops, Event, Random, runtime, telling, watched};
use dapple::net::{AsyncFd, UdpSocket, UnixStream};
use dapple::task::yield_now;
use dapple::time::sleep;
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

/// A counter that stays readable: it counts more than a test will ever read.
fn always_ready() -> OwnedFd {
    let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE).unwrap();
    add(&counter, 1 << 40);
    counter
}

/// Whatever is always ready, the others on its worker get on.
#[test]
fn always_ready_does_not_starve_its_neighbours() {
    type Greedy = fn(Arc<AtomicBool>) -> future::Boxed<()>;
    let greedy: [(&str, Greedy); 5] = [
        ("reads", |stop| {
            Box::pin(async move {
                let counter = AsyncFd::new(always_ready()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    counter.read_with(take).await.unwrap();
                }
            })
        }),
        ("is readable", |stop| {
            Box::pin(async move {
                let counter = AsyncFd::new(always_ready()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    counter.readable().await.unwrap();
                }
            })
        }),
        ("writes", |stop| {
            Box::pin(async move {
                let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                near.connect(far.local_addr().unwrap()).await.unwrap();
                while !stop.load(Ordering::Relaxed) {
                    near.send(b"again").await.unwrap();
                }
            })
        }),
        ("talks to itself", |stop| {
            Box::pin(async move {
                let (mut near, mut far) = UnixStream::pair().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    near.write_all(b"?").await.unwrap();
                    far.read_exact(&mut [0]).await.unwrap();
                }
            })
        }),
        ("reads nothing", |stop| {
            Box::pin(async move {
                let (mut near, _far) = UnixStream::pair().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    near.read(&mut []).await.unwrap();
                }
            })
        }),
    ];
    for (what, greedy) in greedy {
        watched(move || {
            let rt = runtime(1);
            let stop = Arc::new(AtomicBool::new(false));
            let runs = rt.spawn(greedy(stop.clone()));
            // A task, a timer, and another's socket.
            let neighbours = rt.spawn(async move {
                yield_now().await;
                sleep(Duration::from_millis(1)).await.unwrap();
                let (mut near, mut far) = UnixStream::pair().unwrap();
                let reads = dapple::spawn(async move { far.read_exact(&mut [0]).await });
                yield_now().await;
                near.write_all(b"x").await.unwrap();
                reads.await.unwrap().unwrap();
            });
            rt.block_on(neighbours).unwrap_or_else(|error| panic!("{what}: {error}"));
            stop.store(true, Ordering::Relaxed);
            rt.block_on(runs).unwrap();
        });
    }
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Signals interrupt every system call that waits; no operation fails.
#[test]
fn a_storm_of_signals() {
    const STORM: usize = 5000;
    watched(|| {
        // SAFETY: all zeros is a set of no flags, an empty mask, and no handler yet.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize; // without SA_RESTART
        // SAFETY: the handler only adds to a counter. No other test uses this signal.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) }, 0);

        let rt = runtime(2);
        // Both workers at the same time, so that each of them says who it is.
        let both = Arc::new(Barrier::new(2));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let both = both.clone();
                rt.spawn(async move {
                    both.wait();
                    // SAFETY: it has no preconditions.
                    (unsafe { libc::pthread_self() }) as usize
                })
            })
            .collect();
        let threads: Vec<_> = threads.into_iter().map(|task| rt.block_on(task).unwrap()).collect();
        assert_ne!(threads[0], threads[1]);

        let over = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let over = over.clone();
                rt.spawn(async move {
                    let mut rounds = 0;
                    let (mut near, mut far) = UnixStream::pair().unwrap();
                    while !over.load(Ordering::Relaxed) || rounds < 10 {
                        let writes = dapple::spawn(async move {
                            sleep(Duration::from_micros(300)).await.unwrap();
                            near.write_all(b"hello").await.unwrap();
                            near
                        });
                        let mut got = [0; 5];
                        far.read_exact(&mut got).await.unwrap();
                        assert_eq!(&got, b"hello");
                        near = writes.await.unwrap();
                        rounds += 1;
                    }
                })
            })
            .collect();
        for n in 0..STORM {
            // SAFETY: the threads are workers of `rt`, which lives until after this.
            let sent = unsafe { libc::pthread_kill(threads[n % 2] as libc::pthread_t, libc::SIGUSR2) };
            assert_eq!(sent, 0);
            if n % 16 == 0 {
                thread::yield_now();
            }
        }
        over.store(true, Ordering::Relaxed);
        for task in tasks {
            rt.block_on(task).unwrap();
        }
        assert!(SIGNALS.load(Ordering::Relaxed) > 0);
    });
}

/// A runtime that ends while tasks wait for file descriptors drops them all, and closes what they own.
#[test]
fn a_runtime_ends_with_waits_under_way() {
    watched(|| {
        let rt = runtime(2);
        let drops = Drops::default();
        let mut far_ends = Vec::new();
        for _ in 0..100 {
            let (near, far) = StdStream::pair().unwrap();
            far_ends.push(far);
            let (guard, begun) = (drops.guard(), Event::default());
            rt.spawn(telling(begun.clone(), async move {
                let mut near = UnixStream::from_std(near).unwrap();
                let _guard = guard;
                // It takes no notice of being cancelled.
                loop {
                    let _ = near.read(&mut [0; 10]).await;
                    std::future::pending::<()>().await;
                }
            }))
            .detach();
            begun.wait();
        }
        drop(rt);
        assert_eq!(drops.count(), 100);
        for mut far in far_ends {
            assert_eq!(far.read(&mut [0; 10]).unwrap(), 0, "the other side was closed");
        }
    });
}

/// Waits begin and end on threads that come and go, while events come in.
#[test]
fn sources_come_and_go_under_events() {
    watched(|| {
        let rt = runtime(2);
        let tasks: Vec<_> = (1..=8)
            .map(|seed| {
                rt.spawn(async move {
                    let mut random = Random(seed);
                    for _ in 0..200 {
                        let (near, mut far) = StdStream::pair().unwrap();
                        let mut near = UnixStream::from_std(near).unwrap();
                        // Registered, or not; with an event under way when it is dropped, or not.
                        if random.below(2) == 0 {
                            assert!(future::poll_once(near.read(&mut [0; 4])).await.is_none());
                        }
                        if random.below(2) == 0 {
                            far.write_all(b"late").unwrap();
                        }
                        match random.below(3) {
                            0 => drop(near),
                            1 => {
                                far.write_all(b"more").unwrap();
                                near.read_exact(&mut [0; 4]).await.unwrap();
                            }
                            _ => drop(near.into_std().unwrap()),
                        }
                        if random.below(2) == 0 {
                            yield_now().await;
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            rt.block_on(task).unwrap();
        }
    });
}
