//! Wakers and cancellers that come late or from other threads, and scopes that move.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::{Drops, Event, in_both_worlds, panic_of, runtime, watched};
use crate::faults::{FOR_EVER, ends_when_cancelled, ms, panic_in};
use dapple::channel::oneshot;
use dapple::sim::{self, Sim};
use dapple::sync::Semaphore;
use dapple::task::yield_now;
use dapple::time::sleep;
use dapple::{Cancelled, Scope, finish, finish_local, scope::Canceller};
use futures_lite::future::poll_once;
use futures_util::future::join_all;

#[test]
fn late_wakers_have_no_effect() {
    in_both_worlds(30, || {
        let rt = runtime(2);
        let task = rt.spawn(async {
            let wakers = Mutex::new(Vec::new());
            for round in 0..20 {
                let keep = |waker: &Waker| wakers.lock().unwrap().push(waker.clone());
                let mut scope = Box::pin(finish(async |s| {
                    for i in 0..5 {
                        drop(s.start(async move {
                            let mut polls = 0;
                            poll_fn(|cx| {
                                keep(cx.waker());
                                polls += 1;
                                if polls > i { Poll::Ready(()) } else { Poll::Pending }
                            })
                            .await;
                        }));
                    }
                }));
                if round % 2 == 0 {
                    assert!(poll_once(&mut scope).await.is_none());
                } else {
                    // Each is woken until it is done, by its own wakers of earlier rounds, too.
                    poll_fn(|cx| {
                        wakers.lock().unwrap().iter().for_each(Waker::wake_by_ref);
                        let polled = scope.as_mut().poll(cx);
                        if polled.is_pending() {
                            cx.waker().wake_by_ref();
                        }
                        polled
                    })
                    .await;
                }
            }
            wakers.into_inner().unwrap()
        });
        let wakers = rt.block_on(task).unwrap();
        assert!(wakers.len() > 100);
        // Their scopes are gone, and so is their task.
        let halves = wakers.clone();
        let other = crate::common::start_thread(move || halves.into_iter().for_each(Waker::wake));
        wakers.iter().for_each(Waker::wake_by_ref);
        drop(rt);
        wakers.into_iter().for_each(Waker::wake);
        other.join().unwrap();
    });
}

#[test]
fn wakers_from_many_threads_while_scopes_come_and_go() {
    watched(|| {
        let rt = runtime(2);
        let shared = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let over = Event::default();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (shared, over) = (shared.clone(), over.clone());
                thread::spawn(move || {
                    while !over.is_set() {
                        let wakers = std::mem::take(&mut *shared.lock().unwrap());
                        for waker in wakers {
                            waker.wake_by_ref();
                            thread::yield_now();
                            waker.wake();
                        }
                    }
                })
            })
            .collect();
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                rt.spawn(async move {
                    for round in 0..300_usize {
                        let shared = &shared;
                        let mut scope = pin!(finish(async |s| {
                            for i in 0..8 {
                                drop(s.start(async move {
                                    let mut polls = 0;
                                    poll_fn(|cx| {
                                        shared.lock().unwrap().push(cx.waker().clone());
                                        polls += 1;
                                        if polls > i % 3 { Poll::Ready(()) } else { Poll::Pending }
                                    })
                                    .await;
                                }));
                            }
                        }));
                        match round % 3 {
                            0 => drop(poll_once(&mut scope).await), // and it is dropped
                            _ => scope.await,
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            rt.block_on(task).unwrap();
        }
        over.set();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn late_cancellers_reach_no_other_scope() {
    Sim::new(1).explore(0..30, || async {
        let mut cancellers = Vec::new();
        for round in 0..50 {
            let canceller = finish(async |s| {
                for canceller in &cancellers {
                    Canceller::cancel(canceller); // of scopes whose memory this one may have
                }
                sleep(Duration::ZERO).await.unwrap();
                s.start(async { sleep(Duration::from_nanos(1)).await.unwrap() }).await;
                assert!(!s.is_cancelled());
                s.canceller()
            })
            .await;
            assert!(!canceller.is_cancelled());
            if round % 2 == 0 {
                cancellers.push(canceller); // else its memory is free to be used again
            }
        }
    });
}

#[test]
fn cancelled_once_or_often_from_a_task_or_a_thread() {
    in_both_worlds(100, || {
        let rt = runtime(2);
        for from in 0..4 {
            let (send, receive) = oneshot::channel();
            let (waits, begun) = (Semaphore::new(0), Event::default());
            let begin = begun.clone();
            let task = rt.spawn(async move {
                finish(async |s| {
                    send.send(s.canceller()).unwrap();
                    let waits = &waits;
                    for _ in 0..3 {
                        drop(s.start(async move { assert!(waits.acquire().await.is_err()) }));
                    }
                    begin.set();
                    waits.acquire().await.is_err() && s.is_cancelled()
                })
                .await
            });
            let canceller = rt.block_on(receive).unwrap();
            let other = canceller.clone();
            match from {
                0 => rt.block_on(rt.spawn(async move { other.cancel() })).unwrap(),
                1 => crate::common::start_thread(move || other.cancel()).join().unwrap(),
                2 => {
                    let threads: Vec<_> = (0..3)
                        .map(|_| {
                            let other = canceller.clone();
                            crate::common::start_thread(move || (0..3).for_each(|_| other.cancel()))
                        })
                        .collect();
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                }
                _ => {
                    begun.wait();
                    other.cancel();
                }
            }
            assert!(rt.block_on(task).unwrap());
            assert!(canceller.is_cancelled());
            canceller.cancel();
        }
    });
}

#[test]
fn cancelled_by_a_signal() {
    use dapple::signal::{SignalKind, signal};
    watched(|| {
        let rt = runtime(2);
        let answer = rt.block_on(async {
            let mut usr2 = signal(SignalKind::user_defined2()).unwrap();
            finish(async |s| {
                let canceller = s.canceller();
                let told = dapple::spawn(async move {
                    usr2.recv().await.unwrap();
                    canceller.cancel();
                });
                let pid = rustix::process::getpid();
                rustix::process::kill_process(pid, rustix::process::Signal::USR2).unwrap();
                let waited = Semaphore::new(0).acquire().await.map(drop);
                told.await.unwrap_err(); // is cancelled, as all that is awaited in here
                waited.is_err()
            })
            .await
        });
        assert!(answer);
    });
}

#[test]
fn a_scope_that_moves_from_one_scope_to_another() {
    Sim::new(1).explore(0..100, || async {
        let ended = AtomicUsize::new(0);
        let cancels = sim::random() % 4;
        let mut moves = Box::pin(finish(async |s| {
            drop(s.start(ends_when_cancelled(&ended)));
            drop(s.start(join_all([ends_when_cancelled(&ended), ends_when_cancelled(&ended)])));
            ends_when_cancelled(&ended).await;
        }));
        for round in 0..4 {
            let done = finish(async |s| {
                let moves = &mut moves;
                let polled = s.start(async move { poll_once(moves).await.is_some() }).await;
                if round < cancels {
                    assert!(!polled);
                } else {
                    s.cancel(); // it is not inside any more, and knows nothing of it
                }
                polled
            })
            .await;
            assert!(!done);
        }
        // In yet another one, which is cancelled while it is there.
        finish(async |s| {
            let moves = &mut moves;
            drop(s.start(moves));
            sleep(ms(1)).await.unwrap();
            assert_eq!(ended.load(Ordering::Relaxed), 0);
            s.cancel();
        })
        .await;
        assert_eq!(ended.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn another_thread_may_cancel_and_ask_but_not_start() {
    watched(|| {
        let rt = runtime(2);
        let task = rt.spawn(async {
            finish(async |s| {
                drop(s.start(async move {
                    let child = s.start(async {
                        yield_now().await;
                        Box::new(1)
                    });
                    thread::scope(|threads| {
                        let other = threads.spawn(|| {
                            assert!(!s.is_cancelled());
                            let refused = panic_of(|| drop(s.start(async {})));
                            assert!(
                                refused.contains("Scope::start called outside of its scope"),
                                "{refused}"
                            );
                            drop(child);
                            s.cancel();
                            s.canceller().is_cancelled()
                        });
                        assert!(other.join().unwrap());
                    });
                    assert!(s.is_cancelled());
                    drop(s.start(async {})); // here it may
                }));
                drop(s.start(async { assert_eq!(sleep(FOR_EVER).await, Err(Cancelled)) }));
            })
            .await;
        });
        rt.block_on(task).unwrap();
    });
}

#[test]
fn an_aborted_task_drops_its_scope() {
    in_both_worlds(50, || {
        let rt = runtime(2);
        let (begun, drops) = (Event::default(), Drops::default());
        let (begin, guards) = (begun.clone(), [drops.guard(), drops.guard()]);
        let task = rt.spawn(async move {
            finish(async |s| {
                for guard in guards {
                    drop(s.start(async move {
                        let _kept = guard;
                        let _ = sleep(FOR_EVER).await;
                    }));
                }
                begin.set();
                pending::<()>().await;
            })
            .await;
        });
        begun.wait();
        task.abort();
        assert!(rt.block_on(task).unwrap_err().is_aborted());
        assert_eq!(drops.count(), 2);
    });
}

#[test]
fn destructors_of_a_dropped_scope_may_use_it() {
    struct Uses<'s, 'e>(&'s Scope<'s, 'e>, &'e AtomicUsize);
    impl Drop for Uses<'_, '_> {
        fn drop(&mut self) {
            self.0.cancel();
            assert!(self.0.is_cancelled() && self.0.canceller().is_cancelled());
            // No scope would poll the child any more.
            assert!(panic_of(|| drop(self.0.start(async {}))).contains("outside of its scope"));
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    dapple::run(async {
        let used = AtomicUsize::new(0);
        {
            let mut scope = pin!(finish(async |s| {
                for _ in 0..2 {
                    let uses = Uses(s, &used);
                    drop(s.start(async move {
                        let _kept = uses;
                        pending::<()>().await;
                    }));
                }
                let _kept = Uses(s, &used);
                pending::<()>().await;
            }));
            assert!(poll_once(&mut scope).await.is_none());
        }
        assert_eq!(used.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_local_scope_fails_in_the_same_way() {
    dapple::run(async {
        let ended = std::cell::Cell::new(0);
        let scope = finish_local(async |s| {
            drop(s.start(async {
                assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
                ended.set(ended.get() + 1);
            }));
            let panics = s.start(async {
                yield_now().await;
                panic!("first");
            });
            drop(s.start(panics));
            assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
            ended.set(ended.get() + 1);
        });
        assert_eq!(panic_in(scope).await, "first");
        assert_eq!(ended.get(), 2);
    });
}
