//! Faults and misuse: each has a defined result, and the runtime keeps working.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::{
    Drops, Event, eventually, foreign_block_on, in_both_worlds, message, panic_of, rounds, runtime,
    start_thread, watched,
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
fn a_destructor_of_a_future_can_spawn() {
    watched(|| {
        let rt = runtime(1);
        let (send, receive) = mpsc::channel();
        let future = |what: &'static str| {
            let send = send.clone();
            let spawns = OnDrop(move || {
                let send = send.clone();
                dapple::spawn(async move { send.send(what).unwrap() }).detach();
            });
            async move {
                let _kept = spawns;
                if what == "aborted" {
                    std::future::pending::<()>().await;
                }
                assert!(what != "panicked", "as asked");
            }
        };
        for what in ["ended", "panicked", "aborted"] {
            let handle = rt.spawn(future(what));
            if what == "aborted" {
                handle.abort();
            }
            assert_eq!(foreign_block_on(handle).is_ok(), what == "ended");
            assert_eq!(receive.recv().unwrap(), what);
        }
    });
}

type AtExit = OnDrop<Box<dyn FnMut()>>;

thread_local! {
    static AT_EXIT: RefCell<Option<AtExit>> = const { RefCell::new(None) };
}

/// Results of spawning in a thread-local's destructor: the panic of `dapple::spawn`, and the task of `Handle::spawn`.
type Answers = mpsc::Receiver<(String, JoinHandle<u32>)>;

fn spawn_at_exit(handle: Handle) -> Answers {
    let (send, receive) = mpsc::channel();
    let at_exit = move || {
        let free = panic_of(|| dapple::spawn(async {}));
        send.send((free, handle.spawn(async { 7 }))).unwrap();
    };
    AT_EXIT.set(Some(OnDrop(Box::new(at_exit))));
    receive
}

#[test]
fn a_thread_locals_destructor_needs_a_handle_to_spawn() {
    watched(|| {
        let rt = runtime(1);
        let handle = rt.handle();
        let answers = thread::spawn(move || spawn_at_exit(handle)).join().unwrap();
        let (free, by_handle) = answers.recv().unwrap();
        assert!(free.contains("needs a runtime"), "{free}");
        assert_eq!(rt.block_on(by_handle).unwrap(), 7);
    });
}

#[test]
fn a_thread_locals_destructor_on_a_worker_comes_after_the_runtime() {
    watched(|| {
        let rt = runtime(1);
        let handle = rt.handle();
        let answers = rt.block_on(rt.spawn(async move { spawn_at_exit(handle) })).unwrap();
        drop(rt);
        let (free, by_handle) = answers.recv().unwrap();
        assert!(free.contains("needs a runtime"), "{free}");
        assert!(foreign_block_on(by_handle).unwrap_err().is_gone());
    });
}

#[test]
fn a_waker_outlives_the_runtime() {
    type Use = fn(Waker);
    let uses: [(&str, Use); 4] = [
        ("wake", Waker::wake),
        ("wake_by_ref", |waker| waker.wake_by_ref()),
        ("clone", |waker| drop([waker.clone(), waker.clone()])),
        ("drop", drop),
    ];
    for (name, use_it) in uses {
        watched(move || {
            println!("{name}");
            let (send, receive) = mpsc::channel();
            let drops = Drops::default();
            let leak = |guard| {
                let send = send.clone();
                async move {
                    let _kept: crate::common::Guard = guard;
                    std::future::poll_fn(|cx| {
                        send.send(cx.waker().clone()).unwrap();
                        Poll::<()>::Pending
                    })
                    .await;
                }
            };
            let rt = runtime(1);
            rt.spawn(leak(drops.guard())).detach();
            rt.handle().color().spawn(leak(drops.guard())).detach();
            let local = leak(drops.guard());
            let mut wakers = rt.block_on(async {
                dapple::spawn_local(local).detach();
                let mut wakers = Vec::new();
                while wakers.len() < 3 {
                    wakers.extend(receive.try_recv());
                    yield_now().await;
                }
                wakers
            });
            drop(rt);
            assert_eq!(drops.count(), 3, "futures go with the runtime");
            use_it(wakers.pop().unwrap());
            thread::spawn(move || wakers.into_iter().for_each(use_it)).join().unwrap();
            assert_eq!(drops.count(), 3);
        });
    }
}

#[test]
fn a_handle_can_be_awaited_anywhere() {
    in_both_worlds(20, || {
        let (one, other) = (runtime(1), runtime(1));
        let gate = Event::default();
        let slow = |rt: &Runtime| {
            let gate = gate.clone();
            rt.spawn(async move {
                gate.happened().await;
                5
            })
        };
        let in_other = {
            let handle = slow(&one);
            other.spawn(async move { handle.await.unwrap() })
        };
        let in_block_on = slow(&one);
        let by_hand = slow(&one);
        let waiting = Event::default();
        let opener = {
            let (waiting, gate) = (waiting.clone(), gate.clone());
            start_thread(move || {
                waiting.wait();
                gate.set();
            })
        };
        let sum = other.block_on(async {
            waiting.set();
            in_block_on.await.unwrap() + in_other.await.unwrap()
        });
        assert_eq!(sum, 10);
        assert_eq!(foreign_block_on(by_hand).unwrap(), 5);
        opener.join().unwrap();
        // And when the runtime ends first.
        let orphan = one.spawn(std::future::pending::<()>());
        let waits = other.spawn(orphan);
        drop(one);
        assert!(other.block_on(waits).unwrap().unwrap_err().is_gone());
    });
}

#[test]
fn a_future_that_wakes_itself_forever_does_not_hold_up_others() {
    /// Wakes itself at each poll, until `stop` is set.
    struct Selfish(Arc<AtomicBool>);
    impl Future for Selfish {
        type Output = ();
        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if self.0.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (stop, color) = (Arc::new(AtomicBool::new(false)), rt.handle().color());
        let selfish = [
            rt.spawn(Selfish(stop.clone())),
            rt.spawn(Selfish(stop.clone())),
            color.spawn(Selfish(stop.clone())),
        ];
        for _ in 0..rounds(100, 10) {
            let others = [
                rt.spawn(async {
                    yield_now().await;
                    dapple::spawn(async {}).await.unwrap();
                }),
                color.spawn(yield_now()),
                rt.handle().color().call(|| ()),
            ];
            others.into_iter().for_each(|other| rt.block_on(other).unwrap());
        }
        rt.block_on(async {
            dapple::spawn_local(Selfish(stop.clone())).detach();
            dapple::spawn_local(yield_now()).await.unwrap();
            stop.store(true, Ordering::Relaxed); // else the local task would run for its second of grace at the end of `block_on`
        });
        selfish.into_iter().for_each(|task| rt.block_on(task).unwrap());
    });
}

/// A task that another task wakes runs next, ahead of the queue: two tasks that wake each other could occupy the worker
/// for ever.
#[test]
fn tasks_that_wake_each_other_forever_do_not_hold_up_others() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let stop = Arc::new(AtomicBool::new(false));
        let wakers: Arc<[Mutex<Option<Waker>>; 2]> = Arc::default();
        let player = |me: usize| {
            let (stop, wakers) = (stop.clone(), wakers.clone());
            rt.spawn(std::future::poll_fn(move |cx| {
                *wakers[me].lock().unwrap() = Some(cx.waker().clone());
                let other = wakers[1 - me].lock().unwrap().take();
                // Before its partner begins, and after the partner has left, it wakes itself.
                other.unwrap_or_else(|| cx.waker().clone()).wake();
                if stop.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
            }))
        };
        let players = [player(0), player(1)];
        for _ in 0..rounds(100, 10) {
            // Spawned from inside, so that it goes into the worker's own queue.
            let others = rt.spawn(async {
                let inner = dapple::spawn(yield_now());
                yield_now().await;
                inner.await.unwrap();
            });
            rt.block_on(others).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        players.into_iter().for_each(|player| rt.block_on(player).unwrap());
    });
}

/// The only worker is the thread of the main color, which never rests.
#[dapple::test(workers = 1)]
async fn a_busy_main_color_does_not_hold_up_others() {
    let called = dapple::spawn(async { dapple::blocking(|| 5).await.unwrap() });
    let in_color = Color::new().call(|| ());
    let task = called.task().unwrap().clone();
    while !task.is_finished() || !in_color.is_finished() {
        yield_now().await;
    }
    assert_eq!(called.await.unwrap(), 5);
}

#[test]
fn a_great_many_tasks_can_be_ended_at_once() {
    let count = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };
    type End = fn(&JoinHandle<bool>);
    let ends: [(&str, End); 2] = [("cancel", JoinHandle::cancel), ("abort", JoinHandle::abort)];
    for (name, end) in ends {
        watched(move || {
            let (rt, drops) = (runtime(2), Drops::default());
            let never = Arc::new(AtomicUsize::new(0));
            let spawn = |_| {
                let (guard, never) = (drops.guard(), never.clone());
                rt.spawn(async move {
                    let _kept = guard;
                    let ended = dapple::spawn(std::future::pending::<()>()).await;
                    never.fetch_add(usize::from(ended.is_ok()), Ordering::Relaxed);
                    ended.unwrap_err().is_cancelled()
                })
            };
            let handles: Vec<_> = (0..count).map(spawn).collect();
            handles.iter().for_each(end);
            for handle in handles {
                match foreign_block_on(handle) {
                    Ok(cancelled) => assert!(cancelled && name == "cancel"),
                    Err(error) => assert!(error.is_aborted() && name == "abort"),
                }
            }
            assert_eq!((drops.count(), never.load(Ordering::Relaxed)), (count, 0), "{name}");
            drop(rt); // drops the tasks that they waited for
        });
    }
}

#[test]
fn a_panic_is_no_reason_to_lose_a_worker() {
    watched(|| {
        let rt = runtime(2);
        for _ in 0..100 {
            let panics: Vec<_> = (0..10).map(|_| rt.spawn(async { panic!("as asked") })).collect();
            for panic in panics {
                let error = rt.block_on(panic).unwrap_err();
                assert_eq!(message(&*error.try_into_panic().unwrap()), "as asked");
            }
        }
        let meet = Arc::new(std::sync::Barrier::new(2));
        let both = [meet.clone(), meet].map(|meet| rt.spawn(async move { _ = meet.wait() }));
        both.into_iter().for_each(|task| rt.block_on(task).unwrap());
        eventually("all have ended", || rt.metrics().alive() == 0);
    });
}
