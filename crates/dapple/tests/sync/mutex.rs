//! A mutex across awaits: exclusion, order, guards, cancelled and leaked waits.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::common::{Event, foreign_block_on, in_both_worlds, panic_of, rounds, runtime, start_thread};
use dapple::channel::{mpsc, oneshot, watch};
use dapple::sync::{
    Condvar, Mutex, MutexGuard, Notified, Notify, OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    Semaphore, SemaphorePermit,
};
use dapple::task::yield_now;

/// Compiles exactly if the type does not have the trait: otherwise the method is ambiguous.
macro_rules! has_not {
    ($($type:ty: $marker:ident;)*) => {$(
        const _: fn() = || {
            trait Ambiguous<A> {
                fn check() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            struct Has;
            impl<T: ?Sized + $marker> Ambiguous<Has> for T {}
            <$type as Ambiguous<_>>::check();
        };
    )*};
}

has_not! {
    MutexGuard<'static, Cell<u8>>: Sync;
    OwnedMutexGuard<Cell<u8>>: Sync;
    MutexGuard<'static, Rc<u8>>: Send;
    Mutex<Rc<u8>>: Send;
    Mutex<Rc<u8>>: Sync;
    RwLock<Cell<u8>>: Sync;
    RwLockReadGuard<'static, Cell<u8>>: Send;
    RwLockWriteGuard<'static, Cell<u8>>: Sync;
    oneshot::Sender<Rc<u8>>: Send;
    oneshot::Receiver<Rc<u8>>: Send;
    mpsc::Sender<Rc<u8>>: Send;
    mpsc::Receiver<Rc<u8>>: Sync;
    watch::Sender<Cell<u8>>: Sync;
}

/// Types that must be `Send` and `Sync` for tasks to hold them across an await.
const _: fn() = || {
    fn both<T: Send + Sync>() {}
    both::<Mutex<Cell<u8>>>();
    both::<MutexGuard<'static, u8>>();
    both::<RwLockReadGuard<'static, u8>>();
    both::<(Semaphore, SemaphorePermit<'static>, Notify, Notified<'static>, Condvar)>();
    both::<(oneshot::Sender<Cell<u8>>, oneshot::Receiver<Cell<u8>>)>();
    both::<(mpsc::Sender<Cell<u8>>, mpsc::Receiver<Cell<u8>>, mpsc::Permit<'static, Cell<u8>>)>();
    both::<(watch::Sender<u8>, watch::Receiver<u8>)>();
};

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn one_at_a_time_across_awaits() {
    in_both_worlds(20, || {
        let (rt, times) = (runtime(2), rounds(200, 15));
        let counter = Arc::new(Mutex::new((0, false)));
        let visit = move |counter: Arc<Mutex<(u32, bool)>>, owned: bool| async move {
            for round in 0..times {
                let mut guard = if owned {
                    let mut guard = counter.clone().lock_owned().await.unwrap();
                    guard.0 += 1;
                    continue;
                } else {
                    counter.lock().await.unwrap()
                };
                assert!(!std::mem::replace(&mut guard.1, true));
                let seen = guard.0;
                if round % 3 == 0 {
                    yield_now().await;
                }
                *guard = (seen + 1, false);
            }
        };
        let tasks: Vec<_> = (0..8).map(|id| rt.spawn(visit(counter.clone(), id % 4 == 0))).collect();
        let threads: Vec<_> = (0..2)
            .map(|id| {
                let counter = counter.clone();
                start_thread(move || match id {
                    0 => foreign_block_on(visit(counter, false)),
                    _ => (0..times).for_each(|_| counter.lock_blocking().unwrap().0 += 1),
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| rt.block_on(task).unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(Arc::into_inner(counter).unwrap().into_inner(), (10 * times, false));
    });
}

#[test]
fn a_free_mutex_is_locked_at_once_and_a_locked_one_not() {
    let mut mutex = Arc::new(Mutex::new(1));
    let guard = mutex.try_lock().unwrap();
    assert!(mutex.try_lock().is_err() && mutex.clone().try_lock_owned().is_err());
    assert!(poll_once(pin!(mutex.lock())).is_pending());
    assert_eq!(format!("{mutex:?} {guard:?}"), "Mutex(locked) 1");
    drop(guard);
    let owned = mutex.clone().try_lock_owned().unwrap();
    assert_eq!(*owned, 1);
    drop(owned);
    assert_eq!(format!("{mutex:?}"), "Mutex(1)");
    *Arc::get_mut(&mut mutex).unwrap().get_mut() = 5;
    assert_eq!(*foreign_block_on(mutex.lock()).unwrap(), 5);
    let unsized_one: Arc<Mutex<[u8]>> = Arc::new(Mutex::new([1, 2]));
    unsized_one.try_lock().unwrap()[0] = 3;
    assert_eq!(unsized_one.try_lock().unwrap()[..], [3, 2]);
}

#[test]
fn a_panic_unlocks_and_does_not_poison() {
    let mutex = Mutex::new(1);
    panic_of(|| {
        let mut guard = mutex.try_lock().unwrap();
        *guard = 2;
        panic!("as asked");
    });
    assert_eq!(*mutex.try_lock().unwrap(), 2);
    let rt = runtime(1);
    let text = rt.block_on(rt.spawn(async { Mutex::new(1).lock_blocking().map(|g| *g) })).unwrap_err();
    assert!(text.to_string().contains("lock_blocking called on a thread that runs tasks"), "{text}");
}

#[test]
fn cancelled_waits_do_not_lock() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let mutex = Arc::new(Mutex::new(0));
        // Before the first poll, although it is free.
        let gate = Event::default();
        let task = rt.spawn({
            let (mutex, go) = (mutex.clone(), gate.clone());
            async move {
                dapple::shield(go.happened()).await;
                mutex.lock().await.is_err() && mutex.clone().lock_owned().await.is_err()
            }
        });
        task.cancel();
        gate.set();
        assert!(rt.block_on(task).unwrap());
        // While it waits, and not any more when it could be had.
        let color = rt.handle().color();
        for comes_free in [false, true] {
            let guard = rt.block_on(mutex.clone().lock_owned()).unwrap();
            let begun = Event::default();
            let waiter = color.spawn({
                let (mutex, begun) = (mutex.clone(), begun.clone());
                async move {
                    let mut lock = pin!(mutex.lock());
                    std::future::poll_fn(|cx| {
                        let polled = lock.as_mut().poll(cx);
                        begun.set();
                        polled
                    })
                    .await
                    .is_ok()
                }
            });
            begun.wait();
            let task = waiter.task().unwrap().clone();
            let guard = color.call(move || {
                let guard = if comes_free { None } else { Some(guard) };
                task.cancel();
                guard
            });
            let guard = rt.block_on(guard).unwrap();
            assert_eq!(rt.block_on(waiter).unwrap(), comes_free);
            drop(guard);
            assert!(mutex.try_lock().is_ok(), "nobody has it");
        }
    });
}

#[test]
fn dropped_or_leaked_waits_hold_up_no_waiter() {
    in_both_worlds(20, || {
        let mutex = Mutex::new(0);
        let guard = mutex.try_lock().unwrap();
        let mut leaked = Box::pin(mutex.lock());
        assert!(poll_once(leaked.as_mut()).is_pending());
        std::mem::forget(leaked);
        let (mut first, mut second) = (Box::pin(mutex.lock()), Box::pin(mutex.lock()));
        assert!(poll_once(first.as_mut()).is_pending());
        assert!(poll_once(second.as_mut()).is_pending());
        drop(guard);
        drop(first);
        drop(foreign_block_on(mutex.lock()).unwrap());
        drop(foreign_block_on(second).unwrap());
        drop(mutex.lock_blocking().unwrap());
    });
}
