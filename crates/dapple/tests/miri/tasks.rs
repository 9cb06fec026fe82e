//! Tasks, colors and runtimes, for Miri (`ci/miri`): few tasks, two workers, every path.
//!
//! Under Miri a second is over before a worker has left, and with it the patience of a runtime that
//! is dropped: so these tests wait for tasks by their handles, not for the runtime.
#![expect(clippy::async_yields_async, reason = "handles are handed over, to be awaited elsewhere")]

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;

use crate::common::{Drops, Event, eventually, foreign_block_on, runtime};
use dapple::sched::Priority;
use dapple::task::{Builder, Local, yield_now};
use dapple::time::Duration;
use dapple::{Color, ColorCell, JoinHandle, Runtime};

/// Waits for ever, with something to be dropped, and tells its waker.
pub(crate) async fn wait_with(
    guard: crate::common::Guard,
    begun: Event,
    waker: Arc<std::sync::Mutex<Option<Waker>>>,
) {
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
        rt.spawn(async move { Asks(spawns) }).detach(); // as an output without a handle
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
