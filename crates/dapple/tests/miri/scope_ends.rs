//! Scopes that panic or are dropped, and wakers and cancellers from elsewhere, for Miri.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;

use crate::common::{Drops, Event, foreign_block_on, panic_of, runtime};
use crate::scope::{in_a_task, keep_waker, wait, woken_through};
use dapple::channel::{mpsc, oneshot};
use dapple::task::yield_now;
use dapple::{Cancelled, finish, finish_local, race, shield, suspend};
use futures_lite::future::poll_once;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

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
                        PanicsInDrop("second") // an output without a receiver
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
                // A sibling awaits it, and another child awaits the sibling, through a foreign combinator.
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
            let never = s.start(suspend(|resume| || drop::<dapple::scope::Resume<Box<u8>>>(resume)));
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
