//! File descriptors of the user's that are waited for.
#![expect(unsafe_code, reason = "closes file descriptors behind the back of who waits for them")]

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::task::Poll;

use crate::common::{Event, foreign_block_on, runtime, telling, watched};
use dapple::is_cancelled;
use dapple::net::{AsyncFd, UnixStream};
use futures_lite::{AsyncReadExt, future};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Takes one from a counter, or all of it.
fn take(counter: &OwnedFd) -> io::Result<u64> {
    let mut count = [0; 8];
    rustix::io::read(counter, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

fn add(counter: impl AsFd, n: u64) {
    rustix::io::write(counter, &n.to_ne_bytes()).unwrap();
}

fn counter(flags: EventfdFlags) -> OwnedFd {
    eventfd(0, flags | EventfdFlags::CLOEXEC).unwrap()
}

#[test]
fn a_counter() {
    watched(|| {
        runtime(2).block_on(async {
            let counter = Arc::new(AsyncFd::new(counter(EventfdFlags::empty())).unwrap());
            let (waits, begun) = (counter.clone(), Event::default());
            let task = dapple::spawn(telling(begun.clone(), async move { waits.read_with(take).await }));
            begun.happened().await;
            counter.writable().await.unwrap();
            add(&*counter, 42);
            assert_eq!(task.await.unwrap().unwrap(), 42);
            assert!(future::poll_once(counter.readable()).await.is_none(), "it was taken");
        });
    });
}

#[test]
fn a_timer() {
    watched(|| {
        runtime(1).block_on(async {
            let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
            let timer = AsyncFd::new(timer).unwrap();
            let soon = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: 0, tv_nsec: 2_000_000 },
            };
            for _ in 0..3 {
                timerfd_settime(&timer, TimerfdTimerFlags::empty(), &soon).unwrap();
                assert_eq!(timer.read_with(take).await.unwrap(), 1);
            }
        });
    });
}

#[test]
fn what_is_always_ready_is_refused_and_handed_back() {
    watched(|| {
        runtime(1).block_on(async {
            let path = std::env::current_exe().unwrap();
            let file = std::fs::File::open(&path).unwrap();
            let (error, file) = AsyncFd::try_new(file).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("regular file"), "{error}");
            assert!(error.to_string().contains("dapple::blocking"), "{error}");
            assert!(file.metadata().unwrap().is_file(), "it is still open");
            assert!(AsyncFd::new(file).is_err());
            // Whatever happened, others are not disturbed.
            let counter = AsyncFd::new(counter(EventfdFlags::empty())).unwrap();
            add(&counter, 1);
            counter.readable().await.unwrap();
        });
    });
}

#[test]
fn many_tasks_wait_for_one_descriptor() {
    const MANY: usize = 300;
    watched(|| {
        runtime(2).block_on(async {
            let counter = Arc::new(AsyncFd::new(counter(EventfdFlags::SEMAPHORE)).unwrap());
            let waits: Vec<_> = (0..MANY)
                .map(|n| {
                    let (counter, begun) = (counter.clone(), Event::default());
                    let wait = async move {
                        if n % 3 == 0 {
                            counter.readable().await?;
                        }
                        counter.read_with(take).await
                    };
                    (begun.clone(), dapple::spawn(telling(begun, wait)))
                })
                .collect();
            for (begun, _) in &waits {
                begun.happened().await;
            }
            // Some give up, some are dropped; the others get what there is.
            let (mut stay, mut go) = (Vec::new(), Vec::new());
            for (n, (_, task)) in waits.into_iter().enumerate() {
                if n % 2 == 0 { stay.push(task) } else { go.push(task) }
            }
            go.iter().step_by(2).for_each(|task| task.cancel());
            go.iter().skip(1).step_by(2).for_each(|task| task.abort());
            for task in go {
                assert!(
                    task.await.map_or_else(|error| error.is_aborted(), |got| is_cancelled(&got.unwrap_err()))
                );
            }
            add(&*counter, stay.len() as u64);
            for task in stay {
                assert_eq!(task.await.unwrap().unwrap(), 1);
            }
            assert_eq!(take(counter.get_ref()).unwrap_err().kind(), ErrorKind::WouldBlock);
        });
    });
}

#[test]
fn both_directions_by_different_tasks() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, far) = StdStream::pair().unwrap();
            let near = Arc::new(AsyncFd::new(near).unwrap());
            let filled: usize = std::iter::from_fn(|| near.get_ref().write(&[0; 4096]).ok()).sum();
            let begun = [Event::default(), Event::default()];
            let (reads, writes) = (near.clone(), near.clone());
            let reads = dapple::spawn(telling(begun[0].clone(), async move {
                reads.read_with(|mut socket| socket.read(&mut [0; 10])).await
            }));
            let writes = dapple::spawn(telling(begun[1].clone(), async move {
                writes.write_with(|mut socket| socket.write(b"room")).await
            }));
            begun[0].happened().await;
            begun[1].happened().await;
            (&far).write_all(b"hello").unwrap();
            assert_eq!(reads.await.unwrap().unwrap(), 5);
            assert!(!writes.is_finished());
            (&far).read_exact(&mut vec![0; filled]).unwrap();
            assert_eq!(writes.await.unwrap().unwrap(), 4);
        });
    });
}

#[test]
fn cancelled_or_dropped_takes_nothing() {
    watched(|| {
        let rt = runtime(2);
        let counter = rt.block_on(async { Arc::new(AsyncFd::new(counter(EventfdFlags::empty())).unwrap()) });
        let (waits, begun) = (counter.clone(), Event::default());
        let task = rt.spawn(telling(begun.clone(), async move {
            let first = waits.read_with(take).await;
            let second = waits.readable().await;
            let third = waits.writable().await;
            [first.map(drop), second, third]
        }));
        begun.wait();
        task.cancel();
        for result in rt.block_on(task).unwrap() {
            assert!(is_cancelled(&result.unwrap_err()));
        }
        rt.block_on(async {
            assert!(future::poll_once(counter.read_with(take)).await.is_none());
            add(&*counter, 7);
            assert_eq!(counter.read_with(take).await.unwrap(), 7);
        });
    });
}

#[test]
fn a_wait_that_is_over_leaves_no_waker_behind() {
    struct Nobody;

    impl std::task::Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    watched(|| {
        runtime(1).block_on(async {
            let counter = AsyncFd::new(counter(EventfdFlags::empty())).unwrap();
            let nobody = Arc::new(Nobody);
            let waker = std::task::Waker::from(nobody.clone());
            let before = Arc::strong_count(&nobody);
            for _ in 0..3 {
                let mut waits = Box::pin(counter.readable());
                let mut cx = std::task::Context::from_waker(&waker);
                assert!(waits.as_mut().poll(&mut cx).is_pending());
                assert!(waits.as_mut().poll(&mut cx).is_pending());
                assert!(Arc::strong_count(&nobody) > before);
                drop(waits);
                assert_eq!(Arc::strong_count(&nobody), before);
            }
        });
    });
}

#[test]
fn an_operation_that_is_interrupted_is_tried_again_and_an_error_ends_it() {
    watched(|| {
        runtime(1).block_on(async {
            let counter = AsyncFd::new(counter(EventfdFlags::empty())).unwrap();
            let mut calls = 0;
            let operation = |_: &OwnedFd| {
                calls += 1;
                if calls < 5 { Err(ErrorKind::Interrupted.into()) } else { Ok(calls) }
            };
            assert_eq!(counter.write_with(operation).await.unwrap(), 5);
            let failed = counter.write_with(|_| io::Result::<()>::Err(io::Error::other("mine"))).await;
            assert_eq!(failed.unwrap_err().to_string(), "mine");
        });
    });
}

#[test]
fn use_outside_of_a_runtime_is_refused() {
    watched(|| {
        let error = AsyncFd::new(counter(EventfdFlags::empty())).unwrap_err();
        assert!(error.to_string().contains("dapple::run"), "{error}");
        // Made inside, it may be waited for from anywhere while the runtime lives.
        let rt = runtime(1);
        let counter = rt.block_on(async { AsyncFd::new(counter(EventfdFlags::empty())).unwrap() });
        let adds = counter.as_fd().try_clone_to_owned().unwrap();
        rt.spawn(async move { add(adds, 5) }).detach();
        assert_eq!(foreign_block_on(counter.read_with(take)).unwrap(), 5);
    });
}

#[test]
fn after_its_runtime_has_ended() {
    watched(|| {
        let first = runtime(1);
        let (counter, waits) = first.block_on(async {
            let counter = Arc::new(AsyncFd::new(counter(EventfdFlags::empty())).unwrap());
            let reads = counter.clone();
            let mut waits: future::Boxed<_> = Box::pin(async move { reads.read_with(take).await });
            assert!(future::poll_once(&mut waits).await.is_none());
            (counter, waits)
        });
        drop(first);
        let second = runtime(1);
        for wait in [
            waits,
            Box::pin({
                let counter = counter.clone();
                async move { counter.readable().await.map(|()| 0) }
            }),
        ] {
            let error = second.block_on(wait).unwrap_err();
            assert!(error.to_string().contains("has ended"), "{error}");
        }
        // Taken out, it can be registered anew.
        let inner = Arc::into_inner(counter).unwrap().into_inner();
        second.block_on(async {
            let counter = AsyncFd::new(inner).unwrap();
            assert!(future::poll_once(counter.readable()).await.is_none());
            add(&counter, 3);
            assert_eq!(counter.read_with(take).await.unwrap(), 3);
        });
        drop(second);
    });
}

/// A file descriptor number of its own for each test, high enough that no other file gets it by chance.
fn number() -> RawFd {
    static NEXT: AtomicI32 = AtomicI32::new(900);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The same file under a given number, which was free.
fn at(number: RawFd, file: impl AsFd) -> OwnedFd {
    let there = rustix::io::fcntl_dupfd_cloexec(file, number).unwrap();
    assert_eq!(there.as_raw_fd(), number);
    there
}

/// A file descriptor that other code may close.
struct Number(RawFd);

impl AsFd for Number {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: not -1. It may be closed, which is the point of the test: no other file has the number.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Number {
    fn close(number: RawFd) {
        // SAFETY: the number is the test's own, and `Number` does not close it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

#[test]
fn closed_elsewhere() {
    watched(|| {
        let rt = runtime(2);
        let number = number();
        let open = at(number, counter(EventfdFlags::empty()));
        let _ = std::os::fd::IntoRawFd::into_raw_fd(open);
        let closed = rt.block_on(async { Arc::new(AsyncFd::new(Number(number)).unwrap()) });
        let (waits, begun) = (closed.clone(), Event::default());
        let task = rt.spawn(telling(begun.clone(), async move { waits.readable().await }));
        begun.wait();
        Number::close(number);
        rt.block_on(async {
            // A new operation gets the error from the kernel.
            let read = |file: &Number| rustix::io::read(file, &mut [0; 8]).map_err(io::Error::from);
            if let Some(result) = future::poll_once(closed.read_with(read)).await {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
            } // or it was known to be not ready
        });
        // The kernel does not wake an operation that waits. When the operation is cancelled, it asks the kernel.
        task.cancel();
        assert_eq!(rt.block_on(task).unwrap().unwrap_err().raw_os_error(), Some(libc::EBADF));
        drop(closed);
    });
}

/// How often the future was polled.
async fn counting<F: Future>(polls: Arc<AtomicUsize>, future: F) -> F::Output {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        polls.fetch_add(1, Ordering::SeqCst);
        future.as_mut().poll(cx)
    })
    .await
}

#[test]
fn a_reused_descriptor_number_gets_no_old_events() {
    watched(|| {
        runtime(1).block_on(async {
            let number = number();
            let (old, mut old_far) = StdStream::pair().unwrap();
            let mut first = UnixStream::from_std(at(number, &old).into()).unwrap();
            assert!(future::poll_once(first.read(&mut [0; 10])).await.is_none(), "it is registered");
            // The number is free again, but the socket lives on, in `old`, and so do its events.
            drop(first);
            let (new, mut new_far) = StdStream::pair().unwrap();
            let mut second = UnixStream::from_std(at(number, &new).into()).unwrap();
            let (polls, begun) = (Arc::new(AtomicUsize::new(0)), Event::default());
            let task = dapple::spawn(telling(
                begun.clone(),
                counting(polls.clone(), async move {
                    let mut buffer = [0; 10];
                    let n = second.read(&mut buffer).await.unwrap();
                    (second, buffer[..n].to_vec())
                }),
            ));
            begun.happened().await;
            settle().await;
            let before = polls.load(Ordering::SeqCst);
            for _ in 0..10 {
                old_far.write_all(b"old").unwrap();
                settle().await;
            }
            assert_eq!(polls.load(Ordering::SeqCst), before, "woken by an event of the old one");
            new_far.write_all(b"new").unwrap();
            let (second, got) = task.await.unwrap();
            assert_eq!(got, b"new");
            drop((second, new));

            // The old socket under its old number: what the kernel still has of it is taken over.
            let mut third = UnixStream::from_std(at(number, &old).into()).unwrap();
            let mut buffer = [0; 100];
            assert_eq!(third.read(&mut buffer).await.unwrap(), 30);
            assert!(future::poll_once(third.read(&mut buffer)).await.is_none());
            old_far.write_all(b"again").unwrap();
            assert_eq!(third.read(&mut buffer).await.unwrap(), 5);
        });
    });
}

#[test]
fn a_number_that_changes_its_file_under_the_wait() {
    watched(|| {
        runtime(1).block_on(async {
            let number = number();
            let (one, two) = (counter(EventfdFlags::empty()), counter(EventfdFlags::empty()));
            let mut there = at(number, &one);
            let waits = AsyncFd::new(Number(number)).unwrap();
            assert!(future::poll_once(waits.readable()).await.is_none());
            rustix::io::dup2(&two, &mut there).unwrap();
            // It was the first one that was registered, and it lives: its events come, and find that the
            // second one is not ready.
            add(&one, 1);
            settle().await;
            assert!(future::poll_once(waits.readable()).await.is_none());
            // Registered anew, it is the second one that is heard.
            drop(waits);
            let waits = AsyncFd::new(Number(number)).unwrap();
            assert!(future::poll_once(waits.readable()).await.is_none());
            add(&two, 1);
            waits.readable().await.unwrap();
        });
    });
}

/// Until everything that has happened so far was handed out: to the driver it comes in order.
async fn settle() {
    let marker = AsyncFd::new(counter(EventfdFlags::empty())).unwrap();
    assert!(future::poll_once(marker.readable()).await.is_none());
    add(&marker, 1);
    marker.readable().await.unwrap();
}

#[test]
fn wakers_that_panic_and_that_drop_file_descriptors() {
    use std::task::{Context, Wake, Waker};

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }

    struct Drops(std::sync::Mutex<Option<AsyncFd<OwnedFd>>>);

    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }

    watched(|| {
        runtime(1).block_on(async {
            let counter = AsyncFd::new(self::counter(EventfdFlags::empty())).unwrap();
            let mut panics = Box::pin(counter.readable());
            let panicking = Waker::from(Arc::new(Panics));
            assert!(panics.as_mut().poll(&mut Context::from_waker(&panicking)).is_pending());
            let victim = AsyncFd::new(self::counter(EventfdFlags::empty())).unwrap();
            let dropper = Arc::new(Drops(std::sync::Mutex::new(Some(victim))));
            let mut drops = Box::pin(counter.readable());
            let dropping = Waker::from(dropper.clone());
            assert!(drops.as_mut().poll(&mut Context::from_waker(&dropping)).is_pending());
            let mut polled = false;
            let mut waits = Box::pin(counter.readable());
            std::future::poll_fn(|cx| {
                let poll = waits.as_mut().poll(cx);
                if !std::mem::replace(&mut polled, true) {
                    assert!(poll.is_pending());
                    add(&counter, 1);
                    return Poll::Pending;
                }
                poll
            })
            .await
            .unwrap();
            // Foreign wakers are called after those of the runtime.
            while dropper.0.lock().unwrap().is_some() {
                dapple::task::yield_now().await;
            }
            assert!(drops.await.is_ok() && panics.await.is_ok());
            settle().await;
        });
    });
}

#[test]
fn a_second_registration_is_refused_and_changes_nothing() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, mut far) = StdStream::pair().unwrap();
            let first = AsyncFd::new(&near).unwrap();
            let (error, _) = AsyncFd::try_new(&near).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert!(error.to_string().contains("try_clone"), "{error}");
            far.write_all(b"x").unwrap();
            first.readable().await.unwrap();
        });
    });
}
