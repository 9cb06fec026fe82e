//! A read-write lock across awaits.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::common::{in_both_worlds, rounds, runtime, start_thread};
use dapple::sync::{RwLock, RwLockWriteGuard};
use dapple::task::yield_now;

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn readers_share_and_writers_are_alone() {
    in_both_worlds(20, || {
        let (rt, times) = (runtime(2), rounds(200, 15));
        let pair = Arc::new(RwLock::new((0, 0)));
        let tasks: Vec<_> = (0..8)
            .map(|id| {
                let pair = pair.clone();
                rt.spawn(async move {
                    for _ in 0..times {
                        if id % 4 == 0 {
                            let mut guard = pair.write().await.unwrap();
                            guard.0 += 1;
                            yield_now().await;
                            guard.1 += 1;
                        } else {
                            let guard = pair.read().await.unwrap();
                            yield_now().await;
                            assert_eq!(guard.0, guard.1);
                        }
                    }
                })
            })
            .collect();
        let thread = start_thread({
            let pair = pair.clone();
            move || {
                for _ in 0..times {
                    let guard = pair.read_blocking().unwrap();
                    assert_eq!(guard.0, guard.1);
                    drop(guard);
                    let mut guard = pair.write_blocking().unwrap();
                    *guard = (guard.0 + 1, guard.1 + 1);
                }
            }
        });
        tasks.into_iter().for_each(|task| rt.block_on(task).unwrap());
        thread.join().unwrap();
        assert_eq!(Arc::into_inner(pair).unwrap().into_inner(), (3 * times, 3 * times));
    });
}

#[test]
fn a_writer_is_not_starved_by_readers() {
    let lock = RwLock::new(0);
    let reader = lock.try_read().unwrap();
    let mut writer = pin!(lock.write());
    assert!(poll_once(writer.as_mut()).is_pending());
    let mut late = pin!(lock.read());
    for _ in 0..3 {
        assert!(poll_once(late.as_mut()).is_pending(), "a writer is ahead");
    }
    assert!(lock.try_write().is_err());
    drop(reader);
    let Poll::Ready(Ok(guard)) = poll_once(writer.as_mut()) else { panic!("nobody reads") };
    assert!(poll_once(late.as_mut()).is_pending() && lock.try_read().is_err());
    let read = RwLockWriteGuard::downgrade(guard);
    let Poll::Ready(Ok(other)) = poll_once(late.as_mut()) else { panic!("both read") };
    assert_eq!(*read + *other, 0);
    drop((read, other));
    assert!(lock.try_write().is_ok());
}

#[test]
fn a_cancelled_writer_lets_readers_through() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let lock = Arc::new(RwLock::new(0));
        let reader = lock.try_read().unwrap();
        let writer = rt.spawn({
            let lock = lock.clone();
            async move { lock.write().await.is_err() }
        });
        rt.block_on(rt.spawn(yield_now())).unwrap();
        let late = rt.spawn({
            let lock = lock.clone();
            async move { lock.read().await.map(|guard| *guard) }
        });
        rt.block_on(rt.spawn(yield_now())).unwrap();
        writer.cancel();
        assert!(rt.block_on(writer).unwrap());
        assert_eq!(rt.block_on(late).unwrap(), Ok(0));
        drop(reader);
    });
}
