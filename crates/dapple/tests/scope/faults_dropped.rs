//! Scopes that are dropped, at any point, with destructors that panic.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::Drops;
use crate::faults::{Count, FOR_EVER, PanicsInDrop, ms, panic_in};
use dapple::channel::{mpsc, oneshot};
use dapple::sim::{self, Sim};
use dapple::sync::{Condvar, Mutex as AsyncMutex, Notify, Semaphore};
use dapple::task::yield_now;
use dapple::time::sleep;
use dapple::{Cancelled, finish, or_cancelled, race};
use futures_lite::future::poll_once;
use futures_util::future::{join_all, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Its name is noted when it is dropped.
struct Named(String, Arc<Mutex<Vec<String>>>);

impl Drop for Named {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(std::mem::take(&mut self.0));
    }
}

#[test]
fn a_scope_that_is_dropped_drops_its_body_and_then_the_children_in_their_order() {
    Sim::new(1).explore(0..100, || async {
        let names = Arc::new(Mutex::new(Vec::new()));
        let name = |name: String| Named(name, names.clone());
        let done = sim::random() % 10;
        {
            let mut scope = pin!(finish(async |s| {
                let _body = name("body".to_owned());
                let mut kept = Vec::new();
                for i in 0..10 {
                    let name = name(format!("child {i}"));
                    kept.push(s.start(async move {
                        if i == done {
                            yield_now().await;
                            return Some(name); // an output that is never taken
                        }
                        let _kept = name;
                        assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
                        None
                    }));
                }
                if sim::random().is_multiple_of(2) {
                    kept.clear();
                }
                sleep(FOR_EVER).await
            }));
            for _ in 0..=sim::random() % 4 {
                assert!(poll_once(&mut scope).await.is_none());
                sleep(ms(1)).await.unwrap();
            }
        }
        let mut expected = vec!["body".to_owned()];
        expected.extend((0..10).map(|i| format!("child {i}")));
        let mut names = std::mem::take(&mut *names.lock().unwrap());
        if names[0] == format!("child {done}") {
            expected.remove(1 + done as usize);
            names.remove(0); // the child was done, and its handle was dropped
        }
        assert_eq!(names, expected);
    });
}

/// One of each primitive that can be waited for, so that a test can check which still have waiters.
struct Things {
    semaphore: Semaphore,
    notify: Notify,
    mutex: AsyncMutex<u8>,
    condvar: Condvar,
    sender: mpsc::Sender<u8>,
    receiver: mpsc::Receiver<u8>,
}

impl Things {
    fn new() -> Things {
        let (sender, receiver) = mpsc::bounded(1);
        sender.try_send(1).unwrap();
        let (semaphore, notify) = (Semaphore::new(0), Notify::new());
        Things { semaphore, notify, mutex: AsyncMutex::new(0), condvar: Condvar::new(), sender, receiver }
    }

    /// Checks that nothing has a waiter: a new caller is served at once, and no permit or message was lost.
    async fn no_task_waits(&mut self) {
        self.semaphore.add_permits(1);
        drop(self.semaphore.try_acquire().expect("the permit went to a waiter that was dropped"));
        for line in [format!("{:?}", self.notify), format!("{:?}", self.condvar)] {
            assert!(line.contains("waiting: 0"), "{line}");
        }
        self.notify.notify_one();
        assert_eq!(poll_once(self.notify.notified()).await, Some(Ok(())));
        drop(self.mutex.try_lock().expect("the mutex has a holder, or a waiter in line"));
        assert_eq!(self.receiver.try_recv().unwrap(), 1);
        assert!(self.receiver.try_recv().is_err());
        self.sender.try_send(1).unwrap();
    }
}

/// A scope that waits for all of them: in its body, in children, in nested ones, through a combinator.
async fn waits_everywhere(things: &Things, fired: &AtomicUsize, drops: &Drops) {
    finish(async |s| {
        let children: [Pin<Box<dyn Future<Output = ()> + Send + '_>>; 7] = [
            Box::pin(async { drop(things.semaphore.acquire().await) }),
            Box::pin(async { things.notify.notified().await.unwrap_or_default() }),
            Box::pin(async { drop(things.sender.send(2).await) }),
            Box::pin(async {
                let guard = things.mutex.lock().await.unwrap();
                drop(things.condvar.wait(guard).await);
            }),
            Box::pin(async { drop(join_all((0..3).map(|_| things.semaphore.acquire())).await) }),
            Box::pin(async {
                let _ = sleep(ms(3)).await;
                fired.fetch_add(1, Ordering::Relaxed);
            }),
            Box::pin(finish(async |inner| {
                let child = inner.start(async { drop(things.semaphore.acquire().await) });
                drop(inner.start(child));
                let _ = race((things.notify.notified(), things.notify.notified())).await;
            })),
        ];
        for child in children {
            let guard = drops.guard();
            yield_now().await;
            drop(s.start(async move {
                let _kept = guard;
                child.await;
            }));
        }
        let child = s.start(or_cancelled(pending::<()>()));
        let mut all: FuturesUnordered<_> = [child].into_iter().collect();
        all.next().await;
    })
    .await;
}

#[test]
fn a_scope_dropped_at_any_point_leaves_no_waiter() {
    let count = Arc::new(Count::default());
    for polls in 0..14_usize {
        let count = count.clone();
        Sim::new(1).explore(0..10, move || {
            let count = count.clone();
            async move {
                let waker = Waker::from(count);
                let (mut things, fired, drops) = (Things::new(), AtomicUsize::new(0), Drops::default());
                {
                    let mut scope = pin!(waits_everywhere(&things, &fired, &drops));
                    for i in 0..polls {
                        // With two wakers in turn.
                        match i % 3 {
                            2 => assert!(scope.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()),
                            _ => assert!(poll_once(&mut scope).await.is_none()),
                        }
                    }
                }
                assert_eq!(drops.count(), polls.min(7));
                things.no_task_waits().await;
                sleep(ms(10)).await.unwrap();
                assert_eq!(fired.load(Ordering::Relaxed), 0);
            }
        });
    }
    assert_eq!(Arc::strong_count(&count), 1, "somebody still has a waker");
}

#[test]
fn a_foreign_select_drops_the_scope_that_loses() {
    Sim::new(1).explore(0..100, || async {
        let (mut things, fired, drops) = (Things::new(), AtomicUsize::new(0), Drops::default());
        {
            let scope = pin!(waits_everywhere(&things, &fired, &drops));
            let limit = Duration::from_micros(sim::random() % 2000);
            drop(select(scope, sleep(limit)).await);
        }
        things.no_task_waits().await;
        sleep(ms(10)).await.unwrap();
        assert_eq!(fired.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_panicking_destructor_does_not_stop_a_scope_from_dropping_the_rest() {
    Sim::new(1).explore(0..10, || async {
        for culprit in 0..4 {
            let drops = Drops::default();
            let dropped = panic_in(async {
                let mut scope = pin!(finish(async |s| {
                    let _body = drops.guard();
                    for i in 0..3 {
                        let guard = drops.guard();
                        drop(s.start(async move {
                            let _panics = (i == culprit).then_some(PanicsInDrop("in drop"));
                            let _kept = guard;
                            let _ = sleep(FOR_EVER).await;
                        }));
                    }
                    let _panics = (culprit == 3).then_some(PanicsInDrop("in drop"));
                    sleep(FOR_EVER).await
                }));
                assert!(poll_once(&mut scope).await.is_none());
            });
            assert_eq!(dropped.await, "in drop", "{culprit}");
            assert_eq!(drops.count(), 4, "{culprit}");
        }
    });
}

#[test]
fn what_was_spawned_in_a_scope_that_is_dropped_is_cancelled_and_goes_on() {
    Sim::new(1).explore(0..50, || async {
        let (send, receive) = oneshot::channel();
        {
            let mut scope = pin!(finish(async |s| {
                s.spawn(async move {
                    let slept = sleep(FOR_EVER).await;
                    dapple::shield(sleep(ms(1))).await.unwrap();
                    send.send(slept).unwrap();
                })
                .detach();
                sleep(FOR_EVER).await
            }));
            assert!(poll_once(&mut scope).await.is_none());
            sleep(ms(sim::random() % 2)).await.unwrap();
        }
        assert_eq!(receive.await, Ok(Err(Cancelled)));
    });
}
