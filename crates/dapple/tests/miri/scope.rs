//! Small tests of all that scopes own in memory, for Miri (`ci/miri`): few children, every path.
//!
//! One worker, no clock: what a test waits for, it brings about itself.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use crate::common::{Drops, Event, foreign_block_on, panic_of, runtime};
use dapple::channel::{mpsc, oneshot};
use dapple::task::yield_now;
use dapple::{Cancelled, Scope, finish, finish_local, or_cancelled, race, shield, suspend};
use futures_lite::future::poll_once;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Runs in a task of a runtime with one worker.
#[track_caller]
fn in_a_task<F>(future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let rt = runtime(1);
    rt.block_on(rt.spawn(future)).unwrap()
}

/// Waits until it is cancelled.
async fn wait() -> Result<(), Cancelled> {
    or_cancelled(pending()).await
}

/// The waker with which this is polled.
async fn own_waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

/// Keeps its waker, after so many polls, and returns it.
async fn keep_waker(polls: usize, wakers: &Mutex<Vec<Waker>>) -> Waker {
    for _ in 0..polls {
        yield_now().await;
    }
    let waker = own_waker().await;
    wakers.lock().unwrap().push(waker.clone());
    waker
}

/// Leaves its waker somewhere, and waits until it is woken.
async fn woken_through(slot: &Mutex<Option<Waker>>) {
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        *slot.lock().unwrap() = Some(cx.waker().clone());
        if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn children_that_are_ready_use_the_same_memory() {
    let sum = in_a_task(async {
        let text = String::from("borrowed");
        finish(async |s| {
            let mut sum = 0;
            for i in 0..5 {
                let text = &text;
                sum += s.start(async move { Box::new(i + text.len()) }).await.as_ref();
                drop(s.start(async move { [i as u8; 300] })); // larger
                drop(s.start(async move { text.to_owned() }));
            }
            sum
        })
        .await
    });
    assert_eq!(sum, 50);
}

#[test]
fn large_and_over_aligned_children() {
    #[repr(align(128))]
    struct Aligned(u8);
    let sum = in_a_task(async {
        finish(async |s| {
            drop(s.start(async { 1_u8 })); // its memory is too small for the next
            let aligned = s.start(async {
                let aligned = Aligned(3);
                yield_now().await;
                assert!((&raw const aligned).addr().is_multiple_of(128));
                aligned
            });
            let large = s.start(async {
                let large = [2_u8; 5000];
                yield_now().await;
                large
            });
            drop(s.start(async {}));
            usize::from(aligned.await.0) + large.await.iter().map(|byte| usize::from(*byte)).sum::<usize>()
        })
        .await
    });
    assert_eq!(sum, 10_003);
}

#[test]
fn children_that_wait_awaited_or_not() {
    let drops = Drops::default();
    let guards: Vec<_> = (0..12).map(|_| drops.guard()).collect();
    in_a_task(async move {
        let mut guards = guards.into_iter();
        let mut guard = move || guards.next().unwrap();
        finish(async |s| {
            let mut child = |polls: usize| {
                let (future, output) = (guard(), guard());
                async move {
                    let _kept = future;
                    for _ in 0..polls {
                        yield_now().await;
                    }
                    output
                }
            };
            let (first, second) = (s.start(child(1)), s.start(child(2)));
            drop(s.start(child(1))); // nobody wants its output
            let third = s.start(child(1));
            let fourth = s.start(child(3));
            let late = s.start(child(0));
            drop(second.await);
            drop(first.await); // is done by now
            drop(third); // has an output by now
            drop(late.await);
            assert!(poll_once(fourth).await.is_none()); // and dropped
        })
        .await;
    });
    assert_eq!(drops.count(), 12);
}

#[test]
fn children_that_start_and_await_children() {
    fn grow<'s>(
        s: &'s Scope<'s, '_>,
        depth: usize,
        count: &'s Mutex<usize>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 's>> {
        Box::pin(async move {
            *count.lock().unwrap() += 1;
            if depth > 0 {
                let left = s.start(grow(s, depth - 1, count));
                yield_now().await;
                drop(s.start(grow(s, depth - 1, count)));
                left.await;
            }
        })
    }
    let count = in_a_task(async {
        let count = Mutex::new(0);
        finish(async |s| drop(s.start(grow(s, 4, &count)))).await;
        count.into_inner().unwrap()
    });
    assert_eq!(count, 31);
}

#[test]
fn a_child_that_owns_its_own_handle() {
    in_a_task(async {
        finish(async |s| {
            let slot = Arc::new(Mutex::new(None));
            let own = slot.clone();
            *slot.lock().unwrap() = Some(s.start(async move {
                yield_now().await;
                yield_now().await;
                drop(own.lock().unwrap().take());
                Box::new(1)
            }));
            let slot = Arc::new(Mutex::new(None));
            let own = slot.clone();
            *slot.lock().unwrap() = Some(s.start(async move {
                yield_now().await;
                let _kept = own; // goes with the future
            }));
        })
        .await;
    });
}

#[test]
fn nested_scopes_and_a_cancel() {
    let ended = in_a_task(async {
        let ended = Mutex::new(Vec::new());
        finish(async |outer| {
            let (ended, canceller) = (&ended, outer.canceller());
            drop(outer.start(async move {
                finish(async |inner| {
                    drop(inner.start(async {
                        wait().await.unwrap_err();
                        ended.lock().unwrap().push(1);
                    }));
                    drop(inner.start(join_all((0..3).map(|_| wait()))));
                    let shielded = shield(async {
                        yield_now().await;
                        finish(async |s| {
                            drop(s.start(wait()));
                            s.cancel();
                        })
                        .await;
                    });
                    drop(inner.start(shielded));
                    wait().await.unwrap_err();
                    ended.lock().unwrap().push(2);
                })
                .await;
            }));
            drop(outer.start(async move {
                yield_now().await;
                canceller.cancel();
                canceller.cancel();
                assert!(canceller.is_cancelled());
            }));
            wait().await.unwrap_err();
            wait().await.unwrap_err();
        })
        .await;
        ended.into_inner().unwrap().len()
    });
    assert_eq!(ended, 2);
}

#[test]
fn spawned_tasks() {
    in_a_task(async {
        finish(async |s| {
            assert_eq!(*s.spawn(async { Box::new(3) }).await.unwrap(), 3);
            drop(s.spawn(async { yield_now().await }));
            let waits = s.spawn(wait());
            yield_now().await;
            s.cancel();
            drop(waits);
            drop(s.spawn(wait())); // too late
        })
        .await;
    });
}

/// Scopes that are linked to each other: cancelled from outside, dropped, moved, and one after the end of the other.
#[test]
fn spawned_tasks_of_scopes_in_scopes() {
    in_a_task(async {
        for drops in [false, true] {
            let canceller = Arc::new(Mutex::new(None));
            let (kept, nested) = (canceller.clone(), async || {
                finish(async |inner| {
                    // A foreign combinator, too: its waker is linked to the scope that the task was spawned in.
                    inner.spawn(async { assert!(join_all([wait(), wait()]).await[0].is_err()) }).detach();
                    inner.spawn(wait()).await.unwrap().unwrap_err();
                })
                .await;
            });
            let mut outer = Box::pin(finish(async move |outer| {
                *kept.lock().unwrap() = Some(outer.canceller());
                outer.spawn(async move { nested().await }).detach();
                wait().await.unwrap_err();
            }));
            // First polled in another scope than later.
            finish(async |_| assert!(poll_once(&mut outer).await.is_none())).await;
            (0..3).for_each(|_| {
                assert!(outer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending())
            });
            yield_now().await;
            yield_now().await;
            let canceller = canceller.lock().unwrap().take().unwrap();
            if drops {
                drop(outer);
            } else {
                let cancels = thread::spawn({
                    let canceller = canceller.clone();
                    move || canceller.cancel()
                });
                canceller.cancel();
                outer.await;
                cancels.join().unwrap();
            }
            canceller.cancel(); // after its end
        }
    });
}

#[test]
fn panics() {
    type Make = fn() -> Pin<Box<dyn Future<Output = ()> + Send>>;
    let makes: [Make; 6] = [
        || Box::pin(async { finish(async |s| drop(s.start(async { panic!("first") }))).await }),
        || {
            Box::pin(async {
                finish(async |s| {
                    let waits = s.start(wait());
                    drop(s.start(async {
                        yield_now().await;
                        panic!("{}", String::from("first"))
                    }));
                    waits.await.unwrap_err();
                    panic!("second");
                })
                .await;
            })
        },
        || {
            Box::pin(async {
                finish(async |s| {
                    let panics = s.start(async {
                        yield_now().await;
                        panic!("first");
                    });
                    drop(s.start(panics)); // a sibling awaits it
                    drop(s.start(async { Box::new(wait().await.unwrap_err()) }));
                })
                .await;
            })
        },
        || {
            Box::pin(async {
                finish(async |s| {
                    drop(s.start(wait()));
                    panic!("first");
                })
                .await;
            })
        },
        || {
            Box::pin(async {
                finish(async |s| {
                    drop(s.start(async {
                        let _kept = PanicsInDrop("first");
                        yield_now().await;
                    }));
                    drop(s.start(async {
                        yield_now().await;
                        PanicsInDrop("second") // an output that nobody wants
                    }));
                })
                .await;
            })
        },
        || {
            Box::pin(async {
                let loses = async { wait().await.map_err(drop).unwrap_err() };
                race((loses, async {
                    yield_now().await;
                    panic!("first");
                }))
                .await;
            })
        },
    ];
    for make in makes {
        let rt = runtime(1);
        let error = rt.block_on(rt.spawn(make())).unwrap_err();
        assert!(error.to_string().contains("first"), "{error}");
    }
}

struct PanicsInDrop(&'static str);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

#[test]
fn a_scope_is_dropped_after_any_number_of_polls() {
    let drops = Drops::default();
    let mut made = 0;
    for polls in 0..8 {
        let guards: Vec<_> = (0..6).map(|_| drops.guard()).collect();
        made += guards.len();
        in_a_task(async move {
            let (sender, mut receiver) = mpsc::bounded::<Box<u8>>(1);
            let scope = finish(async |s| {
                let mut guards = guards.into_iter();
                for (i, guard) in guards.by_ref().take(3).enumerate() {
                    let sender = sender.clone();
                    drop(s.start(async move {
                        let _kept = guard;
                        for n in 0..i {
                            yield_now().await;
                            sender.send(Box::new(n as u8)).await.unwrap();
                        }
                    }));
                }
                let guard = guards.next().unwrap();
                let child = s.start(async move {
                    let _kept = guard;
                    yield_now().await;
                    yield_now().await;
                    Box::new(1)
                });
                // A sibling awaits it, and somebody else that one, through a foreign combinator.
                let (sibling, guard) = (s.start(child), guards.next().unwrap());
                let mut all: FuturesUnordered<_> = [sibling].into_iter().collect();
                drop(s.start(async move {
                    let _kept = guard;
                    all.next().await
                }));
                let _kept = guards.next().unwrap();
                wait().await
            });
            let mut scope = pin!(scope);
            for _ in 0..polls {
                assert!(poll_once(&mut scope).await.is_none());
                while receiver.try_recv().is_ok() {}
            }
        });
        assert_eq!(drops.count(), made);
    }
}

#[test]
fn wakers_that_outlive_their_scope() {
    for in_thread in [false, true] {
        let mut wakers = in_a_task(async {
            let wakers = Mutex::new(Vec::new());
            finish(async |s| {
                let wakers = &wakers;
                drop(s.start(keep_waker(0, wakers)));
                drop(s.start(keep_waker(1, wakers)));
                let third = s.start(keep_waker(2, wakers)).await;
                wakers.lock().unwrap().push(third);
                finish(async |inner| drop(inner.start(keep_waker(1, wakers)))).await;
                for waker in wakers.lock().unwrap().iter() {
                    waker.wake_by_ref(); // of children that are done
                }
            })
            .await;
            wakers.into_inner().unwrap()
        });
        assert_eq!(wakers.len(), 5);
        let use_them = move || {
            let last = wakers.pop().unwrap();
            let again = last.clone();
            again.wake();
            last.wake_by_ref();
            drop(last);
            wakers.into_iter().for_each(Waker::wake);
        };
        if in_thread { thread::spawn(use_them).join().unwrap() } else { use_them() }
    }
}

#[test]
fn wakers_of_a_scope_that_was_dropped() {
    let waker = in_a_task(async {
        let slot = Mutex::new(None);
        {
            let mut scope = pin!(finish(async |s| drop(s.start(woken_through(&slot)))));
            assert!(poll_once(&mut scope).await.is_none());
            slot.lock().unwrap().as_ref().unwrap().wake_by_ref(); // in line when it is dropped
        }
        slot.into_inner().unwrap().unwrap()
    });
    waker.wake();
}

#[test]
fn woken_from_another_thread() {
    let rt = runtime(1);
    for _ in 0..3 {
        let slot = Arc::new(Mutex::new(None));
        let (left, begun) = (slot.clone(), Event::default());
        let begin = begun.clone();
        let task = rt.spawn(async move {
            finish(async |s| {
                drop(s.start(woken_through(&left)));
                begin.set();
            })
            .await;
        });
        begun.wait();
        let waker: Waker = slot.lock().unwrap().clone().unwrap();
        let again = waker.clone();
        let other = thread::spawn(move || again.wake());
        waker.wake_by_ref();
        rt.block_on(task).unwrap();
        other.join().unwrap();
        drop(waker);
    }
}

#[test]
fn cancelled_from_another_thread_and_late() {
    let rt = runtime(1);
    let (send, receive) = oneshot::channel();
    let task = rt.spawn(async move {
        finish(async |s| {
            drop(s.start(wait()));
            drop(s.start(join_all([wait(), wait()])));
            send.send(s.canceller()).unwrap();
            wait().await
        })
        .await
    });
    let canceller = foreign_block_on(receive).unwrap();
    let other = canceller.clone();
    let other = thread::spawn(move || other.cancel());
    canceller.cancel();
    assert_eq!(rt.block_on(task).unwrap(), Err(Cancelled));
    other.join().unwrap();
    canceller.cancel();
    drop(rt);
    assert!(canceller.is_cancelled());
}

#[test]
fn started_on_another_thread_is_refused_and_dropped_there() {
    in_a_task(async {
        finish(async |s| {
            let begun = s.start(async {
                yield_now().await;
                Box::new(5)
            });
            let dropped = s.start(async {
                yield_now().await;
                Box::new(6)
            });
            thread::scope(|threads| {
                threads.spawn(|| {
                    assert!(panic_of(|| drop(s.start(async {}))).contains("outside of its scope"));
                    drop(dropped);
                    let mut begun = begun;
                    let mut cx = Context::from_waker(Waker::noop());
                    assert!(panic_of(|| Pin::new(&mut begun).poll(&mut cx)).contains("outside of its scope"));
                    s.cancel();
                });
            });
        })
        .await;
    });
}

#[test]
fn local_scopes_share_cells() {
    dapple::run(async {
        let (count, list) = (Cell::new(0), RefCell::new(Vec::new()));
        let left = finish_local(async |s| {
            for i in 0..3 {
                let (count, list) = (&count, &list);
                drop(s.start(async move {
                    yield_now().await;
                    count.set(count.get() + i);
                    list.borrow_mut().push(Box::new(i));
                }));
            }
            s.start(async {
                yield_now().await;
                std::rc::Rc::new(4)
            })
            .await
        })
        .await;
        assert_eq!((count.get(), list.borrow().len(), *left), (3, 3, 4));
    });
}

#[test]
fn races_and_callbacks() {
    in_a_task(async {
        let quick = async { yield_now().await };
        assert_eq!(
            race((
                async {
                    wait().await.unwrap_err();
                },
                quick
            ))
            .await,
            ()
        );
        let outer = finish(async |s| {
            let racing = s.start(race((
                wait(),
                wait(),
                shield(async {
                    yield_now().await;
                    Ok(())
                }),
            )));
            let called = s.start(suspend(|resume| {
                let call = thread::spawn(move || resume.resume(Box::new(7)));
                move || drop(call.join())
            }));
            let never = s.start(suspend(|resume| || drop::<dapple::Resume<Box<u8>>>(resume)));
            // Before the cancel, which would end the two that wait ahead of the third.
            let raced = racing.await;
            let called = called.await;
            s.cancel();
            (raced, called.map(|value| *value), never.await.map(|value| *value))
        })
        .await;
        assert_eq!(outer, (Ok(()), Ok(7), Err(Cancelled)));
        {
            let mut dropped = pin!(race((wait(), wait())));
            assert!(poll_once(&mut dropped).await.is_none());
        }
    });
}

#[test]
fn a_foreign_waker_is_let_go() {
    struct Count;
    impl Wake for Count {
        fn wake(self: Arc<Self>) {}
    }
    let count = Arc::new(Count);
    let waker = Waker::from(count.clone());
    for cancelled in [false, true] {
        let waker = waker.clone();
        in_a_task(async move {
            let poll = |future: Pin<&mut (dyn Future<Output = ()> + Send)>| {
                future.poll(&mut Context::from_waker(&waker))
            };
            let mut scope = Box::pin(finish(async |s| {
                let mut child = Box::pin(s.start(pending::<()>()));
                assert!(poll(child.as_mut()).is_pending());
                let mut waits = Box::pin(async {
                    wait().await.unwrap_err();
                });
                assert!(poll(waits.as_mut()).is_pending());
                if cancelled {
                    s.cancel();
                    assert!(poll(waits.as_mut()).is_ready());
                }
                pending::<()>().await;
            }));
            assert!(poll_once(&mut scope).await.is_none());
        });
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1);
}
