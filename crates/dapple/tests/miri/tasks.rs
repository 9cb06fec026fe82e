//! Small tests of all that owns memory, for Miri (`ci/miri`): few tasks, two workers, every path.
//!
//! Under Miri a second is over before a worker has left, and with it the patience of a runtime that
//! is dropped: so these tests wait for tasks by their handles, not for the runtime.
#![expect(clippy::async_yields_async, reason = "handles are handed over, to be awaited elsewhere")]

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::{Drops, Event, eventually, foreign_block_on, runtime};
use dapple::channel::mpsc;
use dapple::sched::{LongestLane, Priority, ShortestQueue};
use dapple::task::{self, Builder, Local, yield_now, yield_to};
use dapple::time::{Duration, Instant, Sleep, interval, sleep};
use dapple::{Cancelled, Color, ColorCell, JoinHandle, Runtime};

/// Waits for ever, with something to be dropped, and tells its waker.
async fn wait_with(guard: crate::common::Guard, begun: Event, waker: Arc<std::sync::Mutex<Option<Waker>>>) {
    let _kept = guard;
    poll_fn(|cx| {
        *waker.lock().unwrap() = Some(cx.waker().clone());
        begun.set();
        Poll::<()>::Pending
    })
    .await;
}

#[test]
fn spawn_join_abort_cancel_and_detach() {
    let (rt, drops) = (runtime(2), Drops::default());
    type Spawn = fn(&Runtime, crate::common::Guard) -> JoinHandle<Box<u32>>;
    async fn body(guard: crate::common::Guard) -> Box<u32> {
        let _kept = guard;
        yield_now().await;
        drop(dapple::spawn(async { Box::new(1) }).await);
        Box::new(7)
    }
    let kinds: [Spawn; 3] = [
        |rt, guard| rt.spawn(body(guard)),
        |rt, guard| rt.handle().color().spawn(body(guard)),
        |rt, guard| rt.handle().keyed_color("k").spawn(body(guard)),
    ];
    for spawn in kinds {
        assert_eq!(*rt.block_on(spawn(&rt, drops.guard())).unwrap(), 7);
        assert_eq!(*foreign_block_on(spawn(&rt, drops.guard())).unwrap(), 7);
        spawn(&rt, drops.guard()).detach();
        let aborted = spawn(&rt, drops.guard());
        aborted.abort();
        assert!(foreign_block_on(aborted).map_or_else(|error| error.is_aborted(), |n| *n == 7));
        let cancelled = spawn(&rt, drops.guard());
        cancelled.cancel();
        assert_eq!(*foreign_block_on(cancelled).unwrap(), 7);
    }
    drop(rt);
    eventually("all futures are dropped", || drops.count() == 15);
}

#[test]
fn panics_in_poll_in_drop_and_of_the_output() {
    struct Jumpy(u32);
    impl Drop for Jumpy {
        fn drop(&mut self) {
            if self.0 == 0 {
                panic!("in drop");
            }
        }
    }
    let rt = runtime(2);
    let color = rt.handle().color();
    let spawn = |jumpy: Jumpy, panics: bool| {
        let future = async move {
            let kept = jumpy;
            yield_now().await;
            if panics {
                std::mem::forget(kept);
                panic!("{}", String::from("in poll"));
            }
        };
        color.spawn(future)
    };
    assert!(rt.block_on(spawn(Jumpy(1), true)).unwrap_err().to_string().contains("in poll"));
    assert!(rt.block_on(spawn(Jumpy(0), false)).unwrap_err().to_string().contains("in drop"));
    spawn(Jumpy(0), false).detach();
    let aborted = spawn(Jumpy(0), false);
    aborted.abort();
    assert!(rt.block_on(aborted).unwrap_err().is_panic());
    rt.spawn(async { Jumpy(0) }).detach();
    std::mem::forget(rt.block_on(rt.spawn(async { Jumpy(0) })).unwrap());
    assert_eq!(rt.block_on(rt.spawn(async { 5 })).unwrap(), 5);
}

#[test]
fn wakers_handles_and_colors_outlive_the_runtime() {
    let (rt, drops) = (runtime(2), Drops::default());
    let mut wakers = Vec::new();
    let mut handles = Vec::new();
    let color = rt.handle().color();
    for in_color in [false, true] {
        let (begun, slot) = (Event::default(), Arc::default());
        let future = wait_with(drops.guard(), begun.clone(), Arc::clone(&slot));
        handles.push(if in_color { color.spawn(future) } else { rt.spawn(future) });
        begun.wait();
        wakers.extend(slot.lock().unwrap().take());
    }
    let task = handles[0].task().unwrap().clone();
    let handle = rt.handle();
    drop(rt);
    wakers[0].wake_by_ref();
    wakers.push(wakers[1].clone());
    thread::spawn(move || wakers.into_iter().for_each(Waker::wake)).join().unwrap();
    for handle in handles {
        assert!(foreign_block_on(handle).unwrap_err().is_gone());
    }
    assert_eq!(drops.count(), 2);
    assert!(foreign_block_on(color.clone().call(|| ())).unwrap_err().is_gone());
    assert!(task.is_finished() && !task.name().is_empty());
    assert!(handle.spawn(async {}).is_finished());
    drop(color);
}

#[test]
fn lanes_keyed_colors_and_cells() {
    let rt = runtime(2);
    let total = rt.block_on(async {
        let color = Color::keyed("bank");
        assert_eq!(color, Color::keyed("bank"));
        let cell = Arc::new(ColorCell::in_color(&color, 0));
        let add = |_| {
            let cell = cell.clone();
            Color::keyed("bank").spawn(async move {
                cell.with(|n| *n += 1);
                yield_now().await;
                cell.with(|n| *n += 1);
            })
        };
        let tasks: Vec<_> = (0..6).map(add).collect();
        for task in tasks {
            task.await.unwrap();
        }
        for key in 0..20 {
            Color::keyed(&key).call(|| ()).detach();
        }
        color.call(move || cell.with(|n| *n)).await.unwrap()
    });
    assert_eq!(total, 12);
}

#[test]
fn promotion_with_and_without_a_name_beside_wake_ups_and_a_dump() {
    let rt = runtime(2);
    for named in [false, true] {
        let (begun, slot) = (Event::default(), Arc::new(std::sync::Mutex::new(None::<Waker>)));
        let (begin, put) = (begun.clone(), slot.clone());
        let future = async move {
            let cell = Arc::new(ColorCell::new(0));
            let mut polls = 0;
            poll_fn(|cx| {
                polls += 1;
                *put.lock().unwrap() = Some(cx.waker().clone());
                begin.set();
                if polls == 2 {
                    let cell = cell.clone();
                    Color::current().call(move || cell.with(|n| *n += 1)).detach();
                }
                cx.waker().wake_by_ref();
                if polls > 4 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            let color = Color::current();
            let child = cell.clone();
            color.call(move || child.with(|n| *n += 1)).await.unwrap();
            cell.with(|n| *n)
        };
        let task = rt.block_on(async {
            if named { Builder::new().name("named").spawn(future) } else { dapple::spawn(future) }
        });
        begun.wait();
        let waker = slot.lock().unwrap().clone().unwrap();
        let wake = thread::spawn(move || (0..5).for_each(|_| waker.wake_by_ref()));
        drop(rt.dump().to_string());
        assert_eq!(rt.block_on(task).unwrap(), 2);
        wake.join().unwrap();
    }
}

#[test]
fn destructors_that_ask_for_their_color_or_spawn() {
    struct Asks(bool);
    impl Drop for Asks {
        fn drop(&mut self) {
            drop(Color::current());
            if self.0 {
                dapple::spawn(async {}).detach();
            }
        }
    }
    let rt = runtime(2);
    for spawns in [false, true] {
        rt.spawn(async move { Asks(spawns) }).detach(); // as an output that nobody wants
        rt.handle().color().spawn(async move { Asks(spawns) }).detach();
        let (asks, begun) = (Asks(spawns), Event::default());
        let begin = begun.clone();
        let aborted = rt.spawn(async move {
            let _kept = asks;
            begin.set();
            pending::<()>().await;
        });
        begun.wait();
        aborted.abort();
        assert!(rt.block_on(aborted).unwrap_err().is_aborted());
    }
}

#[test]
fn local_tasks_and_their_outputs() {
    let rt = runtime(2);
    let kept = Rc::new(5);
    let left = rt.block_on(async {
        let mine = kept.clone();
        assert_eq!(*dapple::spawn_local(async move { mine }).await.unwrap(), 5);
        let mine = kept.clone();
        dapple::spawn_local(async move {
            let _kept = mine;
            pending::<()>().await;
        })
        .detach();
        let mine = kept.clone();
        let aborted = dapple::spawn_local(async move { drop(mine) });
        aborted.abort();
        let mine = kept.clone();
        let main = Color::main();
        let sent = dapple::spawn(async move { main.call(|| 1).await.unwrap() });
        assert_eq!(sent.await.unwrap(), 1);
        dapple::spawn_local(async move { mine })
    });
    assert_eq!(Rc::strong_count(&kept), 2, "one is the output that nobody has taken");
    drop(left);
    assert_eq!(Rc::strong_count(&kept), 1);
    // The future may borrow, and its block_on may be nested.
    let sum = rt.block_on(async { *kept + rt.block_on(async { *kept }) });
    assert_eq!(sum, 10);
}

#[test]
fn run_is_a_worker_too() {
    let drops = Drops::default();
    let guard = drops.guard();
    let answer = dapple::run(async {
        dapple::spawn(async move {
            let _kept = guard;
            assert!(dapple::spawn(async { yield_now().await }).await.is_ok());
        })
        .await
        .unwrap();
        let local = dapple::spawn_local(async { Rc::new(1) }).await.unwrap();
        let blocking = dapple::blocking(|| Box::new(2)).await.unwrap();
        *local + *blocking
    });
    assert_eq!((answer, drops.count()), (3, 1));
}

#[test]
fn blocking_calls() {
    let rt = Runtime::builder().workers(2).max_blocking_threads(1).build().unwrap();
    let (begun, release, drops) = (Event::default(), Event::default(), Drops::default());
    let (begin, go) = (begun.clone(), release.clone());
    let busy = rt.handle().blocking(move || {
        begin.set();
        go.wait();
        String::from("done")
    });
    begun.wait();
    let guard = drops.guard();
    let aborted = rt.handle().blocking(move || drop(guard));
    aborted.abort();
    let panics = rt.handle().blocking(|| panic!("as asked"));
    release.set();
    assert_eq!(rt.block_on(busy).unwrap(), "done");
    assert!(rt.block_on(aborted).unwrap_err().is_aborted());
    assert!(rt.block_on(panics).unwrap_err().is_panic());
    let nested = rt.handle().blocking(|| dapple::blocking(|| 3).detach());
    rt.block_on(nested).unwrap();
    drop(rt);
    assert_eq!(drops.count(), 1);
}

#[test]
fn shutdown_reports_and_drops() {
    let (rt, drops) = (runtime(2), Drops::default());
    let (begun, guard) = (Event::default(), drops.guard());
    let future = wait_with(guard, begun.clone(), Arc::default());
    let stubborn = rt.block_on(async { Builder::new().name("stubborn").spawn(future) });
    begun.wait();
    let report = rt.shutdown(Duration::from_millis(1));
    assert_eq!(report.still_running.len(), 1, "{report}");
    assert_eq!(report.still_running[0].name, "stubborn");
    assert!(foreign_block_on(stubborn).unwrap_err().is_gone());
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_runtime_dropped_inside_its_own_task() {
    let (rt, drops) = (runtime(2), Drops::default());
    let handle = rt.handle();
    let other = handle.spawn(wait_with(drops.guard(), Event::default(), Arc::default()));
    let task = handle.spawn(async move { drop(rt) });
    foreign_block_on(task).unwrap();
    assert!(foreign_block_on(other).unwrap_err().is_gone());
    assert_eq!(drops.count(), 1);
}

static ID: Local<String> = Local::new();

#[test]
fn task_locals() {
    let rt = runtime(2);
    let task = ID.scope("seven".to_owned(), async {
        yield_now().await;
        ID.scope("eight".to_owned(), async { ID.with(String::len) }).await + ID.get().len()
    });
    assert_eq!(rt.block_on(rt.spawn(task)).unwrap(), 10);
    let dropped = rt.spawn(ID.scope("gone".to_owned(), pending::<()>()));
    dropped.abort();
    assert!(rt.block_on(dropped).is_err());
}

/// A lane that a running task has just got, with more entries than one: found by many seeds
/// (`-Zmiri-many-seeds -Zmiri-preemption-rate=0.1`).
#[test]
fn a_new_lane_that_others_make_more_urgent() {
    let rt = runtime(3);
    let total = rt.block_on(rt.spawn(async {
        let cell = Arc::new(ColorCell::new(0_u32));
        let color = Color::current();
        color.set_priority(Priority::High);
        let others = [(); 2].map(|()| {
            let (color, cell) = (color.clone(), cell.clone());
            dapple::spawn(async move {
                for _ in 0..2 {
                    let cell = cell.clone();
                    let urgent = Builder::new().color(&color).priority(Priority::Urgent);
                    urgent.spawn(async move { cell.with(|n| *n += 1) }).detach();
                    yield_now().await;
                }
            })
        });
        for _ in 0..2 {
            yield_now().await;
        }
        for other in others {
            other.await.unwrap();
        }
        color.call(move || cell.with(|n| *n)).await.unwrap()
    }));
    assert_eq!(total.unwrap(), 4);
}

/// A main color whose `block_on` is over, and two threads that spawn there.
#[test]
fn a_main_color_that_is_over() {
    let rt = runtime(2);
    let drops = Drops::default();
    let color = rt.block_on(async { Color::main() });
    let threads = [(); 2].map(|()| {
        let (color, guard) = (color.clone(), drops.guard());
        std::thread::spawn(move || {
            Builder::new().color(&color).or_else(move || drop(guard)).spawn(async {}).detach();
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(rt.block_on(color.call(|| ())).is_err());
    assert_eq!(drops.count(), 2);
}

#[test]
fn large_and_over_aligned_futures() {
    #[repr(align(64))]
    struct Aligned([u8; 64]);
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let rt = runtime(2);
    let color = rt.handle().color();
    let large = || async {
        let bytes = [1_u8; 20_000];
        yield_now().await;
        u32::from(bytes[0]) + u32::from(bytes[19_999])
    };
    let aligned = || async {
        let (small, page) = (Aligned([2; 64]), Page([3; 4096]));
        yield_now().await;
        assert!(
            (&raw const small).addr().is_multiple_of(64) && (&raw const page).addr().is_multiple_of(4096)
        );
        u32::from(small.0[63]) + u32::from(page.0[4095])
    };
    assert_eq!(rt.block_on(rt.spawn(large())).unwrap(), 2);
    assert_eq!(rt.block_on(color.spawn(large())).unwrap(), 2);
    assert_eq!(rt.block_on(rt.spawn(aligned())).unwrap(), 5);
    assert_eq!(rt.block_on(color.spawn(aligned())).unwrap(), 5);
    rt.block_on(rt.spawn(async { Aligned([0; 64]) })).unwrap();
    rt.spawn(large()).detach();
    let aborted = rt.spawn(aligned());
    aborted.abort();
    drop(aborted);
    drop(rt.spawn(async { [0_u8; 17_000] }));
}

#[test]
fn waits_behind_a_foreign_waker_and_hand_offs() {
    let rt = runtime(2);
    let never = rt.spawn(pending::<()>());
    let begun = Event::default();
    let begin = begun.clone();
    let waiter = rt.spawn(async move {
        let mut never = Box::pin(never);
        let waker = Waker::from(Arc::new(Relay(task_waker().await)));
        poll_fn(|_| {
            let polled = never.as_mut().poll(&mut std::task::Context::from_waker(&waker));
            begin.set();
            polled
        })
        .await
    });
    begun.wait();
    waiter.cancel();
    assert!(rt.block_on(waiter).unwrap().unwrap_err().is_cancelled());
    let other = rt.spawn(yield_now());
    rt.block_on(rt.spawn(async move {
        yield_to(&other).await;
        yield_to(&task::current()).await;
        other.await.unwrap();
    }))
    .unwrap();
}

struct Relay(Waker);

impl std::task::Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}

async fn task_waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

/// Polls once.
fn poll_with(waker: &Waker, sleep: &mut Sleep) -> Poll<Result<(), Cancelled>> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

/// A waker, and what is shared by all its clones.
fn foreign_waker() -> (Arc<Relay>, Waker) {
    let relay = Arc::new(Relay(Waker::noop().clone()));
    (relay.clone(), Waker::from(relay))
}

/// How many clones of it somebody has.
fn used(relay: &Arc<Relay>) -> usize {
    Arc::strong_count(relay) - 2
}

#[test]
fn timers_that_fire_are_moved_cancelled_and_dropped() {
    let rt = runtime(2);
    let tasks: [JoinHandle<bool>; 5] = [
        rt.spawn(async { sleep(SHORT).await.is_ok() && sleep(Duration::ZERO).await.is_ok() }),
        rt.spawn(async {
            let mut every = interval(SHORT);
            for _ in 0..3 {
                every.tick().await.unwrap();
            }
            true
        }),
        rt.spawn(async {
            let (mut sleep, (relay, waker)) = (sleep(LONG), foreign_waker());
            assert!(poll_with(&waker, &mut sleep).is_pending());
            sleep.reset(Instant::now() + SHORT); // takes the waker out
            assert_eq!(used(&relay), 0);
            sleep.await.is_ok()
        }),
        rt.spawn(async {
            let (mut sleep, (relay, waker)) = (sleep(LONG), foreign_waker());
            assert!(poll_with(&waker, &mut sleep).is_pending());
            assert!(poll_with(&task_waker().await, &mut sleep).is_pending()); // another takes its place
            assert_eq!(used(&relay), 0);
            assert!(poll_with(&waker, &mut sleep).is_pending());
            thread::spawn(move || drop(sleep)).join().unwrap();
            used(&relay) == 0
        }),
        rt.spawn(async { sleep(LONG).await == Err(Cancelled) }),
    ];
    tasks[4].cancel();
    for task in tasks {
        assert!(rt.block_on(task).unwrap());
    }
    let aborted = rt.spawn(sleep(LONG));
    aborted.abort();
    assert!(rt.block_on(aborted).is_err());
    assert!(rt.block_on(sleep(SHORT)).is_ok());
}

#[test]
fn many_timers_whose_memory_is_given_back() {
    let rt = runtime(1);
    let task = rt.spawn(async {
        let (own, (relay, waker)) = (task_waker().await, foreign_waker());
        // More than a wheel keeps room for.
        let count = if cfg!(miri) { 40 } else { 1100 };
        let mut many: Vec<_> = (0..count).map(|n| sleep(LONG + SHORT * n)).collect();
        assert!(many.iter_mut().all(|sleep| poll_with(&own, sleep).is_pending()));
        let mut first = many.swap_remove(0);
        first.reset(Instant::now() + 50 * SHORT);
        assert!(poll_with(&waker, &mut first).is_pending());
        drop(many);
        sleep(60 * SHORT).await.unwrap(); // it is empty now, and its memory gone
        let mut others: Vec<_> = (0..3).map(|_| sleep(LONG)).collect();
        assert!(others.iter_mut().all(|sleep| poll_with(&waker, sleep).is_pending()));
        assert!(poll_with(&waker, &mut first).is_ready(), "its place belongs to another");
        drop((first, others));
        used(&relay)
    });
    assert_eq!(rt.block_on(task).unwrap(), 0);
}

#[test]
fn timers_at_the_end_of_their_runtime_and_after_it() {
    let (first, drops) = (runtime(2), Drops::default());
    let (relay, waker) = foreign_waker();
    let mut sleeps: Vec<_> = (0..4).map(|_| sleep(2 * SHORT)).collect();
    sleeps.iter_mut().for_each(|sleep| sleep.reset(Instant::now() + LONG));
    first.block_on(async { assert!(sleeps.iter_mut().all(|sleep| poll_with(&waker, sleep).is_pending())) });
    assert_eq!(used(&relay), 8, "in the wheel, and to be told of a cancel");
    let (begun, guard) = (Event::default(), drops.guard());
    let waits = first.spawn(crate::common::telling(begun.clone(), async move {
        let _kept = guard;
        sleep(LONG).await
    }));
    begun.wait();
    drop(first);
    assert!(foreign_block_on(waits).unwrap_err().is_gone());
    assert_eq!((drops.count(), used(&relay)), (1, 4), "out of the wheel");
    // What it left behind is used again by the next one, where these are not known.
    let second = runtime(2);
    second.block_on(async {
        let mut new = sleep(LONG);
        assert!(poll_with(&waker, &mut new).is_pending());
        drop(sleeps.pop());
        sleeps[0].reset(Instant::now() + SHORT);
        assert!((&mut sleeps[0]).await.is_ok());
        assert!(poll_with(&waker, &mut sleeps[1]).is_pending(), "it goes on here");
        assert_eq!(used(&relay), 5);
        sleeps.push(new);
    });
    drop(second);
    assert_eq!(used(&relay), 3);
    drop(sleeps);
    assert_eq!(used(&relay), 0);
}

#[test]
fn what_is_always_ready_gives_way() {
    let rt = runtime(1);
    let (sender, mut receiver) = mpsc::unbounded();
    // The task gives way every 128 of them. The other may have been moved to the shared line by then, which has
    // its turn a little later.
    const MESSAGES: usize = 2000;
    (0..MESSAGES).for_each(|n| sender.send_blocking(Box::new(n)).unwrap());
    let others = Drops::default();
    let guard = others.guard();
    let task = rt.spawn(async move {
        dapple::spawn(async move { drop(guard) }).detach();
        for n in 0..MESSAGES {
            assert_eq!(*receiver.recv().await.unwrap(), n);
            if others.count() == 1 {
                return n;
            }
        }
        panic!("the other task had no turn");
    });
    assert!(rt.block_on(task).unwrap() >= 128);
    drop(sender);
}

/// Lanes that become more urgent while they are in line have more than one entry; the colors are gone before the
/// last of these is taken up.
#[test]
fn priorities_and_drop_closures() {
    let rt = runtime(2);
    let (drops, refused) = (Drops::default(), Arc::new(AtomicUsize::new(0)));
    for round in 0..3 {
        let color = rt.handle().color();
        let mut handles = Vec::new();
        for number in 0..8 {
            let guard = drops.guard();
            let priority = Priority::ALL[(number + round) % 4];
            let refused = refused.clone();
            let builder = Builder::new().color(&color).priority(priority);
            let builder = builder.or_else(move || {
                refused.fetch_add(1, Ordering::Relaxed);
            });
            handles.push(builder.spawn(async move {
                yield_now().await;
                drop(guard);
            }));
            if number == 4 {
                color.set_priority(Priority::Urgent);
                handles[2].abort();
            }
        }
        drop(color);
        for handle in handles {
            let _ = rt.block_on(handle);
        }
    }
    assert_eq!(drops.count(), 24);
    assert!(refused.load(Ordering::Relaxed) <= 3);
    let color = rt.handle().color();
    let late = Builder::new().color(&color).priority(Priority::Low).spawn(pending::<()>());
    drop(rt);
    color.set_priority(Priority::High);
    assert!(late.is_finished());
}

#[test]
fn a_runtime_with_a_policy() {
    for weighs in [false, true] {
        let builder = Runtime::builder().workers(2);
        let builder = if weighs { builder.policy(LongestLane) } else { builder.policy(ShortestQueue) };
        let rt = builder.build().unwrap();
        let drops = Drops::default();
        let color = rt.handle().color();
        let handles: Vec<_> = (0..6)
            .map(|number| {
                let guard = drops.guard();
                let body = async move {
                    yield_now().await;
                    drop(guard);
                };
                if number % 2 == 0 { color.spawn(body) } else { rt.spawn(body) }
            })
            .collect();
        handles.into_iter().for_each(|handle| rt.block_on(handle).unwrap());
        assert_eq!(drops.count(), 6);
        drop(color.spawn(pending::<()>()));
        drop(rt);
    }
}

/// Who stands in has memory of its own, and hands over what is left when it leaves.
#[test]
fn a_spare_stands_in_and_leaves() {
    let rt = Runtime::builder().workers(1).stall_after(Duration::from_millis(50)).build().unwrap();
    for _ in 0..2 {
        let (send, receive) = std::sync::mpsc::channel();
        let stuck = rt.spawn(async move { receive.recv().unwrap() });
        let others = rt.spawn(async move {
            let tasks: Vec<_> = (0..5).map(|i| dapple::spawn(async move { vec![i] })).collect();
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.unwrap());
            }
            send.send(all).unwrap();
        });
        assert_eq!(rt.block_on(stuck).unwrap(), [0, 1, 2, 3, 4]);
        rt.block_on(others).unwrap();
    }
    assert!(rt.metrics().spares_sent >= 1);
}

#[test]
fn limits_refuse_hold_back_and_let_go() {
    use dapple::sched::{Limit, Refuse};
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let bounds = [
        Limit::new().depth(2),
        Limit::new().depth(2).refusing(Refuse::Newest),
        Limit::new().concurrency(1).depth(3),
    ];
    for limit in bounds {
        let handles = runtime.block_on(async {
            let color = Color::new();
            color.set_limit(limit.clone());
            let spawn = |number: usize| {
                let kept = Box::new(number);
                let task = Builder::new().color(&color).or_else(move || drop(kept)).spawn(async move {
                    dapple::task::yield_now().await;
                    Box::new(number)
                });
                if number % 4 == 3 {
                    task.abort();
                }
                task
            };
            let handles: Vec<_> = (0..8).map(spawn).collect();
            let admitted = limit.admit_now();
            let mut ended = Vec::new();
            drop(admitted);
            for handle in handles {
                ended.push(handle.await);
            }
            ended
        });
        assert_eq!(handles.len(), 8);
        assert!(handles.iter().any(Result::is_ok) || limit.counts().refused > 0);
        limit.close();
    }
    drop(runtime);
}

/// Stamps that who wakes a task writes and who runs it reads, on two workers; and a task that becomes a color meanwhile.
#[test]
fn clocked_tasks_are_woken_everywhere() {
    use dapple::sched::Limit;
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime.block_on(async {
        let limit = Limit::new().delay(Duration::from_secs(1), Duration::from_secs(1));
        let spawn = |number: usize| {
            let limit = limit.clone();
            Builder::new().clocked().spawn(async move {
                dapple::task::yield_now().await;
                limit.pass_now().unwrap();
                let inner = Builder::new().clocked().spawn(async move { Box::new(number) });
                let number = inner.await.unwrap();
                if *number % 2 == 0 {
                    Color::current().spawn(async {}).await.unwrap();
                }
                drop(limit.admit_now().unwrap());
                *number
            })
        };
        let tasks: Vec<_> = (0..4).map(spawn).collect();
        tasks[3].abort();
        for (number, task) in tasks.into_iter().enumerate() {
            assert!(task.await.is_ok_and(|own| own == number) || number == 3);
        }
    });
}
