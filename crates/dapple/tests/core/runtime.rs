//! A runtime from its start to its end: entering it, several runtimes at once, local tasks, and its end.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use crate::common::{Drops, in_virtual_time, runtime, watched};
use dapple::task::yield_now;
use dapple::time::{Duration, Instant};
use dapple::{Color, Runtime};

#[dapple::main]
async fn entry() -> u32 {
    dapple::spawn(async { 6 * 7 }).await.unwrap()
}

#[dapple::main(workers = 1)]
async fn fallible_entry() -> Result<(), String> {
    Err(format!("on {:?}", thread::current().name()))?;
    Ok(())
}

#[test]
fn main_returns_the_value_of_its_body() {
    assert_eq!(entry(), 42);
    assert!(fallible_entry().unwrap_err().starts_with("on "));
}

/// With one worker, spawned tasks run on the thread of the test itself.
#[dapple::test(workers = 1)]
async fn run_makes_its_thread_the_first_worker() {
    let there = dapple::spawn(async { thread::current().id() }).await.unwrap();
    assert_eq!(there, thread::current().id());
}

#[dapple::test(workers = 3)]
async fn a_test_has_the_workers_that_it_asks_for() {
    let meet = Arc::new(Barrier::new(3));
    let tasks = [meet.clone(), meet.clone(), meet].map(|meet| dapple::spawn(async move { _ = meet.wait() }));
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn run_and_block_on_accept_borrows_and_return_values_that_are_not_send() {
    watched(|| {
        let rt = runtime(1);
        let (count, mut text) = (Cell::new(0), String::new());
        let from_run = dapple::run(async {
            count.set(count.get() + 1);
            yield_now().await;
            Rc::new(1)
        });
        let from_block_on = rt.block_on(async {
            count.set(count.get() + 1);
            text.push('x');
            yield_now().await;
            Rc::new(2)
        });
        assert_eq!((*from_run, *from_block_on, count.get(), text.as_str()), (1, 2, 2, "x"));
    });
}

#[test]
fn several_runtimes_live_side_by_side() {
    watched(|| {
        let names = ["one", "two", "three"];
        let build = |name: &&str| Runtime::builder().workers(2).thread_name(*name).build().unwrap();
        let runtimes: Vec<Runtime> = names.iter().map(build).collect();
        for (rt, name) in runtimes.iter().zip(names) {
            for _ in 0..20 {
                let where_it_ran = rt.spawn(async { thread::current().name().unwrap().to_owned() });
                let ran_on = runtimes[0].block_on(where_it_ran).unwrap();
                assert!(ran_on == format!("{name}-0") || ran_on == format!("{name}-1"), "{ran_on}");
            }
        }
        // The end of one does not affect the others.
        let mut runtimes = runtimes.into_iter();
        drop(runtimes.next());
        for rt in runtimes {
            assert_eq!(rt.block_on(async { dapple::spawn(async { 1 }).await.unwrap() }), 1);
        }
    });
}

#[test]
fn block_on_works_from_many_threads_at_once() {
    watched(|| {
        let rt = runtime(2);
        let meet = Barrier::new(8);
        let main_colors: HashSet<Color> = thread::scope(|scope| {
            let enter = |_| {
                scope.spawn(|| {
                    rt.block_on(async {
                        meet.wait(); // all are inside
                        for i in 0..200 {
                            let local = dapple::spawn_local(async move { i });
                            assert_eq!(dapple::spawn(async move { i }).await.unwrap(), local.await.unwrap());
                        }
                        Color::main()
                    })
                })
            };
            let threads: Vec<_> = (0..8).map(enter).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(main_colors.len(), 8);
    });
}

#[test]
fn local_tasks_and_their_outputs_live_and_die_on_their_thread() {
    /// Checks the thread on which it is dropped.
    struct Mark(mpsc::Sender<thread::ThreadId>, #[expect(dead_code, reason = "not Send")] Rc<()>);
    impl Drop for Mark {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    watched(|| {
        let rt = runtime(2);
        let (send, receive) = mpsc::channel();
        let mark = || Mark(send.clone(), Rc::new(()));
        let body = async || {
            let ended = dapple::spawn_local({
                let mark = mark();
                async move { mark }
            });
            dapple::spawn_local({
                let mark = mark();
                async move { mark }
            })
            .detach();
            let (leak, leaked) = mpsc::channel();
            dapple::spawn_local({
                let mark = mark();
                async move {
                    let _kept = mark;
                    std::future::poll_fn(|cx| {
                        leak.send(cx.waker().clone()).unwrap();
                        std::task::Poll::<()>::Pending
                    })
                    .await;
                }
            })
            .detach();
            dapple::spawn_local({
                let mark = mark();
                async move { drop(mark) }
            })
            .abort();
            yield_now().await;
            let waker = dapple::spawn(async move { leaked.recv().unwrap() }).await.unwrap();
            // Woken by another thread just when `block_on` returns.
            let waker = thread::spawn(move || {
                waker.wake_by_ref();
                waker
            });
            (ended, waker)
        };
        for on_a_worker in [false, true] {
            let (ended, waker) = if on_a_worker { dapple::run(body()) } else { rt.block_on(body()) };
            drop(ended);
            drop(waker.join().unwrap());
            let dropped_on: Vec<_> = receive.try_iter().collect();
            assert_eq!(dropped_on, [thread::current().id(); 4], "on a worker: {on_a_worker}");
        }
    });
}

#[test]
fn what_is_left_when_run_returns_is_dropped() {
    in_virtual_time(20, || {
        let begun = Instant::now();
        let drops = Drops::default();
        let guards = || (drops.guard(), drops.guard(), drops.guard());
        let (a, b, c) = guards();
        dapple::run(async {
            // Ends by itself when cancelled.
            dapple::spawn(async move {
                let _kept = a;
                assert!(dapple::spawn(std::future::pending::<()>()).await.unwrap_err().is_cancelled());
            })
            .detach();
            Color::new()
                .spawn(async move {
                    let _kept = b;
                    std::future::pending::<()>().await;
                })
                .detach();
            dapple::spawn_local(async move {
                let _kept = c;
                std::future::pending::<()>().await;
            })
            .detach();
        });
        assert_eq!(drops.count(), 3);
        // The two that do not end by themselves had a second.
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1010), "{took:?}");
    });
}
