//! Small tests of all that scopes own in memory, for Miri (`ci/miri`): few children, every path.
//!
//! One worker, no clock: what a test waits for, it brings about itself.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::{Drops, runtime};
use dapple::task::yield_now;
use dapple::{Cancelled, Scope, finish, or_cancelled, shield};
use futures_lite::future::poll_once;
use futures_util::future::join_all;

/// Runs in a task of a runtime with one worker.
#[track_caller]
pub(crate) fn in_a_task<F>(future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let rt = runtime(1);
    rt.block_on(rt.spawn(future)).unwrap()
}

/// Waits until it is cancelled.
pub(crate) async fn wait() -> Result<(), Cancelled> {
    or_cancelled(pending()).await
}

/// The waker with which this is polled.
pub(crate) async fn own_waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

/// Stores its waker in `wakers` after `polls` polls, and returns it.
pub(crate) async fn keep_waker(polls: usize, wakers: &Mutex<Vec<Waker>>) -> Waker {
    for _ in 0..polls {
        yield_now().await;
    }
    let waker = own_waker().await;
    wakers.lock().unwrap().push(waker.clone());
    waker
}

/// Leaves its waker somewhere, and waits until it is woken.
pub(crate) async fn woken_through(slot: &Mutex<Option<Waker>>) {
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
            drop(s.start(child(1))); // its output is not wanted
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
