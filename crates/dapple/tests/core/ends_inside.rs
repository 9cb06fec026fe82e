//! A runtime that ends while parts of it still run: inside its own tasks, and during calls of `block_on`.

use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::common::{
    Drops, Event, foreign_block_on, give_way, in_both_worlds, panic_of, rounds, runtime, start_thread,
    watched,
};
use dapple::task::yield_now;
use dapple::{Color, Handle, JoinHandle, Runtime};

/// Calls a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn what_a_destructor_spawns_while_the_runtime_ends_is_dropped() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (drops, spawned) = (Drops::default(), Arc::new(Mutex::new(Vec::new())));
        for _ in 0..100 {
            let (drops, spawned) = (drops.clone(), spawned.clone());
            let begun = Event::default();
            let begin = begun.clone();
            rt.spawn(async move {
                let _spawns = OnDrop(move || {
                    let guard = drops.guard();
                    let handle = dapple::spawn(async move { drop(guard) });
                    spawned.lock().unwrap().push(handle);
                });
                begin.set();
                std::future::pending::<()>().await;
            })
            .detach();
            begun.wait();
        }
        drop(rt);
        let handles = std::mem::take(&mut *spawned.lock().unwrap());
        assert_eq!((handles.len(), drops.count()), (100, 100));
        for handle in handles {
            assert!(foreign_block_on(handle).unwrap_err().is_gone());
        }
    });
}

#[test]
fn a_runtime_can_be_dropped_inside_its_own_tasks() {
    type Enter = fn(Handle, Box<dyn FnOnce() + Send>) -> JoinHandle<()>;
    let ways: [(&str, Enter); 3] = [
        ("task", |rt, end| rt.spawn(async move { end() })),
        ("color", |rt, end| rt.color().call(end)),
        ("blocking", |rt, end| rt.blocking(end)),
    ];
    for (way, enter) in ways {
        watched(move || {
            let (rt, drops) = (runtime(2), Drops::default());
            let others: Vec<_> = (0..10)
                .map(|_| {
                    let guard = drops.guard();
                    rt.spawn(async move {
                        let _kept = guard;
                        std::future::pending::<()>().await;
                    })
                })
                .collect();
            let handle = rt.handle();
            let ended = enter(handle.clone(), Box::new(move || drop(rt)));
            assert!(foreign_block_on(ended).is_ok(), "{way}: the task itself goes on to its end");
            for other in others {
                assert!(foreign_block_on(other).unwrap_err().is_gone(), "{way}");
            }
            assert_eq!(drops.count(), 10, "{way}");
            assert!(foreign_block_on(handle.spawn(async {})).unwrap_err().is_gone(), "{way}");
        });
    }
}

#[test]
fn a_runtime_can_be_shut_down_inside_its_own_task() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let handle = rt.handle();
        let task = handle.spawn(async move { rt.shutdown(std::time::Duration::ZERO) });
        let report = foreign_block_on(task).unwrap();
        assert_eq!(report.still_running.len(), 1, "the one that asked: {report}");
    });
}

#[test]
fn block_on_ends_in_a_panic_when_the_runtime_ends_under_it() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (handle, begun) = (rt.handle(), Event::default());
        let begin = begun.clone();
        let thread = start_thread(move || {
            panic_of(|| {
                handle.block_on(async move {
                    begin.set();
                    std::future::pending::<()>().await;
                })
            })
        });
        begun.wait();
        drop(rt);
        let text = thread.join().unwrap();
        assert!(text.contains("runtime") && text.contains("ended"), "{text}");
    });
}

/// A waker that the task cloned in the same poll stays valid after the poll has ended the runtime.
#[test]
fn a_task_that_ends_its_runtime_with_calls_in_line_keeps_its_wakers() {
    in_both_worlds(20, || {
        let rt = Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap();
        let handle = rt.handle();
        let (begun, release) = (Event::default(), Event::default());
        let (begin, go) = (begun.clone(), release.clone());
        let busy = handle.blocking(move || {
            begin.set();
            go.wait();
        });
        begun.wait();
        let drops = Drops::default();
        let in_line: Vec<_> = (0..3)
            .map(|_| {
                let guard = drops.guard();
                handle.blocking(move || drop(guard))
            })
            .collect();
        let kept: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let (keep, mut rt) = (kept.clone(), Some(rt));
        let task = handle.spawn(poll_fn(move |cx| {
            if let Some(rt) = rt.take() {
                keep.lock().unwrap().extend([cx.waker().clone(), cx.waker().clone()]);
                cx.waker().wake_by_ref();
                drop(rt);
                keep.lock().unwrap().push(cx.waker().clone());
                assert!(dapple::task::try_current().is_some(), "still the same task");
            }
            Poll::<()>::Pending
        }));
        assert!(foreign_block_on(task).unwrap_err().is_gone());
        for call in in_line {
            assert!(foreign_block_on(call).unwrap_err().is_gone());
        }
        assert_eq!(drops.count(), 3);
        release.set();
        foreign_block_on(busy).unwrap();
        drop(handle);
        for waker in std::mem::take(&mut *kept.lock().unwrap()) {
            waker.wake_by_ref();
            let twin = waker.clone();
            waker.wake();
            drop(twin);
        }
    });
}

#[test]
fn shutdown_inside_waits_for_others_but_not_for_itself() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let handle = rt.handle();
        let report = handle.block_on(async { rt.shutdown(Duration::MAX) });
        assert!(report.still_running.len() <= 1, "{report}");
        let rt = runtime(2);
        let handle = rt.handle();
        let report = foreign_block_on(handle.blocking(move || rt.shutdown(Duration::MAX)));
        assert!(report.unwrap().still_running.len() <= 1);
    });
}

/// Tasks that are spawned while a shutdown cancels all tasks are cancelled, too.
#[test]
fn no_task_escapes_a_shutdown_by_being_born() {
    in_both_worlds(20, || {
        let forever = runtime(1); // its tasks are not cancelled
        for round in 0..rounds(40, 2) {
            let rt = runtime(6);
            let begun = Event::default();
            for i in 0..6 {
                let (begin, other) = (begun.clone(), forever.handle());
                rt.spawn(async move {
                    let color = Color::current();
                    while !dapple::task::current().is_cancelled() {
                        give_way(); // the cancel may come here: the child below is then spawned too late
                        let never = other.spawn(pending::<()>());
                        // Ends by cancellation only.
                        let child = async move { assert!(never.await.unwrap_err().is_cancelled()) };
                        let child = if i % 2 == 0 { dapple::spawn(child) } else { color.spawn(child) };
                        child.detach();
                        begin.set();
                        yield_now().await;
                    }
                })
                .detach();
            }
            begun.wait();
            let report = rt.shutdown(Duration::from_secs(20));
            assert!(report.is_clean(), "round {round}: {report}");
        }
    });
}
