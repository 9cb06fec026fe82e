//! As `hostile_wakers.rs`, for waits with one waiter: locks, timers, scopes, computations, sockets and files. The result
//! that a hostile waker waited for is there when its future is polled again.

use std::future::poll_fn;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::watched;
use crate::hostile_common::{FUNCTIONS, Hostile, is_not_lost};
use dapple::io::AsyncReadExt;
use dapple::sync::{Condvar, Mutex as AsyncMutex, Notify, RwLock};
use dapple::{SharedMap, finish};

#[test]
fn locks_are_not_lost() {
    for function in FUNCTIONS.into_iter().filter(|function| *function != "clone") {
        let mutex = Arc::new(AsyncMutex::new(1));
        let held = mutex.clone().try_lock_owned().unwrap();
        let waits = mutex.clone();
        let got =
            is_not_lost("Mutex", function, Box::pin(async move { *waits.lock().await.unwrap() }), || {
                drop(held)
            });
        assert_eq!(got, 1);

        let lock: &'static RwLock<i32> = Box::leak(Box::new(RwLock::new(1)));
        let held = lock.try_write().unwrap();
        let got =
            is_not_lost("RwLock", function, Box::pin(async { *lock.read().await.unwrap() }), || drop(held));
        assert_eq!(got, 1);

        let (condvar, mutex) = (Arc::new(Condvar::new()), Arc::new(AsyncMutex::new(false)));
        let (waits, of) = (condvar.clone(), mutex.clone());
        let wait = Box::pin(async move {
            let guard = of.lock().await.unwrap();
            let (guard, waited) = waits.wait_while(guard, |done| !*done).await;
            waited.map(|()| *guard).unwrap()
        });
        let got = is_not_lost("Condvar", function, wait, || {
            *mutex.try_lock().unwrap() = true;
            condvar.notify_one();
        });
        assert!(got);
    }
}

#[test]
fn timers_scopes_and_computations_are_not_lost() {
    for function in FUNCTIONS.into_iter().filter(|function| *function != "clone") {
        let rt = crate::common::runtime(1);
        let inside = rt.handle().clone();
        // Polled inside of the runtime, so that its driver has the timer.
        let mut sleep = Box::pin(dapple::time::sleep(Duration::from_millis(5)));
        let hostile = Arc::new(Hostile::default());
        hostile.arm(Some(function));
        rt.block_on(poll_fn(|_| {
            let waker = std::mem::ManuallyDrop::new(hostile.waker());
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            Poll::Ready(())
        }));
        rt.block_on(dapple::time::sleep(Duration::from_millis(20))).unwrap();
        rt.block_on(sleep).unwrap();
        rt.block_on(inside.spawn(async {})).unwrap(); // its worker lives
        hostile.arm(None);

        let map: SharedMap<u8, u8> = SharedMap::new();
        let mut computes = Box::pin(map.get_or_insert_with(1, async || {
            dapple::task::yield_now().await;
            7
        }));
        assert!(computes.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let waits = map.clone();
        let wait = Box::pin(async move { waits.get_or_insert_with(1, async || 8).await });
        let got = is_not_lost("SharedMap", function, wait, || {
            assert_eq!(crate::common::foreign_block_on(computes), Ok(7));
        });
        assert_eq!(got, Ok(7));

        let (go, gone) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (waits, counts) = (go.clone(), gone.clone());
        let scope = Box::pin(async move {
            finish(async |s| {
                let (waits, counts) = (&waits, &counts);
                for _ in 0..3 {
                    s.start(async move {
                        waits.notified().await.unwrap();
                        counts.fetch_add(1, SeqCst);
                    });
                }
            })
            .await;
        });
        is_not_lost("scope", function, scope, || (0..3).for_each(|_| go.notify_one()));
        assert_eq!(gone.load(SeqCst), 3);
    }
}

#[test]
fn sockets_and_files_are_not_lost() {
    watched(|| {
        for function in FUNCTIONS.into_iter().filter(|function| *function != "clone") {
            let rt = crate::common::runtime(1);
            let (reader, mut writer) = std::io::pipe().unwrap();
            let hostile = Arc::new(Hostile::default());
            let mut file = dapple::fs::File::from(OwnedFd::from(reader));
            let mut buffer = [0; 4];
            {
                let mut read = Box::pin(file.read_exact(&mut buffer));
                rt.block_on(poll_fn(|_| {
                    let waker = std::mem::ManuallyDrop::new(hostile.waker());
                    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                    Poll::Ready(())
                }));
                hostile.arm(Some(function));
                writer.write_all(b"file").unwrap();
                rt.block_on(async { dapple::time::sleep(Duration::from_millis(5)).await }).unwrap();
                hostile.arm(None);
                rt.block_on(read).unwrap();
            }
            assert_eq!(&buffer, b"file");

            let (mine, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut stream = rt.block_on(async { dapple::net::UnixStream::try_from(mine).unwrap() });
            let mut read = Box::pin(async move {
                let mut buffer = [0; 4];
                stream.read_exact(&mut buffer).await.map(|()| buffer)
            });
            rt.block_on(poll_fn(|_| {
                let waker = std::mem::ManuallyDrop::new(hostile.waker());
                assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                Poll::Ready(())
            }));
            hostile.arm(Some(function));
            other.write_all(b"sock").unwrap();
            rt.block_on(async { dapple::time::sleep(Duration::from_millis(5)).await }).unwrap();
            hostile.arm(None);
            assert_eq!(&rt.block_on(read).unwrap(), b"sock");
        }
    });
}
