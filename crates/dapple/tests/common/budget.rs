//! Work that is always ready, of each kind: by it alone a task would never give way.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dapple::channel::{mpsc, watch};
use dapple::io::AsyncReadExt;
use dapple::sync::{Condvar, Mutex, Semaphore};
use dapple::time::{Duration, sleep};
use dapple::{Shared, sim, together};
use futures_util::StreamExt;

/// How many results a task may get in one poll.
pub(crate) const BUDGET: usize = 128;

/// Work that always has a result, and ends when it is cancelled.
pub(crate) type Busy = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Counts a result: `true` if there are to be no more.
pub(crate) type Count = Arc<dyn Fn() -> bool + Send + Sync>;

/// For work without end, which takes some time.
pub(crate) fn never() -> Count {
    let results = AtomicUsize::new(0);
    Arc::new(move || {
        if results.fetch_add(1, Relaxed).is_multiple_of(64) {
            sim::work(Duration::from_micros(20));
        }
        false
    })
}

/// The name of a kind of work, and how it is made.
pub(crate) type Kind = (&'static str, fn(Count) -> Busy);

/// Each kind of work that is always ready.
pub(crate) const KINDS: [Kind; 13] = [
    ("mutex", |count| {
        Box::pin(async move {
            let mutex = Mutex::new(0);
            while mutex.lock().await.is_ok() && !count() {}
        })
    }),
    ("semaphore", |count| {
        Box::pin(async move {
            let permits = Semaphore::new(3);
            while permits.acquire_many(2).await.is_ok() && !count() {}
        })
    }),
    ("messages", |count| {
        Box::pin(async move {
            let (sender, mut receiver) = mpsc::unbounded();
            while sender.try_send(1).is_ok() && receiver.recv().await.is_ok() && !count() {}
        })
    }),
    ("no messages at all", |count| {
        Box::pin(async move {
            let (_sender, mut receiver) = mpsc::unbounded::<u8>();
            while receiver.recv_many(&mut Vec::new(), 0).await.is_ok() && !count() {}
        })
    }),
    ("room", |count| {
        Box::pin(async move {
            let (sender, mut receiver) = mpsc::bounded(1);
            while sender.send(1).await.is_ok() && receiver.try_recv().is_ok() && !count() {}
        })
    }),
    ("a stream", |count| {
        Box::pin(async move {
            let (sender, mut receiver) = mpsc::unbounded();
            while sender.try_send(1).is_ok() && receiver.next().await.is_some_and(|it| it.is_ok()) && !count()
            {
            }
        })
    }),
    ("nothing to read", |count| {
        Box::pin(async move {
            let mut byte = [0];
            while dapple::io::empty().read(&mut byte).await.is_ok() && !count() {}
        })
    }),
    ("a state to read", |count| {
        Box::pin(async move {
            let state = Shared::new(1);
            while state.read(|_| ()).await.is_ok() && !count() {}
        })
    }),
    ("a state to write", |count| {
        Box::pin(async move {
            let state = Shared::new(1);
            while state.write(|n| *n += 1).await.is_ok() && !count() {}
        })
    }),
    ("two states", |count| {
        Box::pin(async move {
            let (one, two) = (Shared::new(1), Shared::new(2));
            while together((one.reading(), two.writing()), |(_, two)| *two += 1).await.is_ok() && !count() {}
        })
    }),
    ("a value that is as wanted", |count| {
        Box::pin(async move {
            let (_sender, mut watched) = watch::channel(1);
            while watched.wait_for(|_| true).await.is_ok() && !count() {}
        })
    }),
    ("a condition that holds", |count| {
        Box::pin(async move {
            let (mutex, condvar) = (Mutex::new(1), Condvar::new());
            let Ok(mut guard) = mutex.lock().await else { return };
            loop {
                let (again, waited) = condvar.wait_while(guard, |_| false).await;
                if waited.is_err() || count() {
                    return;
                }
                guard = again;
            }
        })
    }),
    ("moments that have come", |count| {
        Box::pin(async move { while sleep(Duration::ZERO).await.is_ok() && !count() {} })
    }),
];
