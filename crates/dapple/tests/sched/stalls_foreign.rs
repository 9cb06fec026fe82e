//! Foreign wakers that block, in virtual time: they hold up their thread, and nothing else.
//!
//! A foreign waker is called by the thread that hands out the event: a worker as a rule. It may take for ever to return.
#![expect(clippy::async_yields_async, reason = "timers are made in a runtime, and polled by hand")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use crate::common::{in_virtual_time, pause};
use dapple::time::{Duration, Instant, Sleep, sleep};
use dapple::{Runtime, sim};

const MS: Duration = Duration::from_millis(1);
/// How long the wakers here block.
const LONG: Duration = Duration::from_secs(5);
/// When a worker counts as stalled that is not in a task (ten times `stall_after`), and then some: a spare has to
/// start, and there are two looks of the monitor.
const NOTICED: Duration = Duration::from_millis(120);

/// A waker that says that it was called, and then blocks.
struct Blocks {
    called: AtomicBool,
    time: Duration,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.called.store(true, Ordering::SeqCst);
        sim::work(self.time);
    }
}

impl Blocks {
    fn new(time: Duration) -> Arc<Blocks> {
        Arc::new(Blocks { called: AtomicBool::new(false), time })
    }

    fn is_called(&self) -> bool {
        self.called.load(Ordering::SeqCst)
    }

    /// A timer that calls it.
    fn after(self: &Arc<Self>, time: Duration) -> Pin<Box<Sleep>> {
        let mut timer = Box::pin(sleep(time));
        let waker = Waker::from(self.clone());
        assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        timer
    }
}

fn runtime() -> Runtime {
    Runtime::builder().workers(1).max_spares(8).build().unwrap()
}

/// Waits until `is_so`, and says how long that took.
fn until(is_so: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < LONG {
        pause(MS / 10);
    }
    begun.elapsed()
}

/// Whatever the worker was doing when it called the waker: looking for work, on behalf of those who rely on it, too.
#[test]
fn tasks_from_outside_are_run_while_a_foreign_waker_blocks() {
    in_virtual_time(40, || {
        let rt = runtime();
        let blocks = Blocks::new(LONG);
        let timer = rt.block_on(async { blocks.after(20 * MS) });
        // The worker is woken for these, as a searcher, again and again: until the timer is due in such a moment.
        while !blocks.is_called() {
            rt.spawn(async {}).detach();
            pause(MS / 20);
        }
        for _ in 0..5 {
            let task = rt.spawn(async {});
            let took = until(|| task.is_finished());
            assert!(took < NOTICED, "it was run after {took:?}: {:#?}", rt.metrics());
            pause(20 * MS); // the spare that stood in sleeps again
        }
        drop(timer);
    });
}

#[test]
fn a_foreign_waker_that_blocks_holds_up_no_other_waker() {
    in_virtual_time(40, || {
        let rt = runtime();
        let wakers: Vec<_> = (0..4).map(|i| Blocks::new(if i % 2 == 0 { LONG } else { MS })).collect();
        let task = rt.spawn(async { sleep(20 * MS).await });
        let timers = rt.block_on(async {
            wakers.iter().map(|waker| waker.after(20 * MS)).collect::<Vec<_>>() // all at once
        });
        let took = until(|| task.is_finished());
        assert!(took < 20 * MS + NOTICED, "the task was woken after {took:?}");
        for (i, waker) in wakers.iter().enumerate() {
            let took = until(|| waker.is_called());
            assert!(took < 2 * NOTICED, "waker {i} was called after {took:?} more");
        }
        drop(timers);
    });
}

/// The monitor hands out events in the place of a worker that is stuck, and must notice the next one that is.
#[test]
fn a_foreign_waker_does_not_hold_up_the_monitor() {
    in_virtual_time(40, || {
        let rt = runtime();
        let blocks = Blocks::new(LONG);
        let timer = rt.block_on(async { blocks.after(4 * MS) });
        let stuck = rt.spawn(async { sim::work(LONG) });
        let took = until(|| blocks.is_called());
        assert!(took < NOTICED, "called after {took:?}");
        for _ in 0..5 {
            let task = rt.spawn(async { sleep(MS).await });
            let took = until(|| task.is_finished());
            assert!(took < NOTICED, "it was run after {took:?}: {:#?}", rt.metrics());
            rt.spawn(async { sim::work(LONG) }).detach(); // the next spare, please
        }
        drop((timer, stuck));
    });
}

/// A waker that spawns a task.
#[derive(Default)]
struct Spawns(AtomicBool);

impl Wake for Spawns {
    fn wake(self: Arc<Self>) {
        dapple::spawn(async {}).detach();
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Without a spare, the monitor calls it in the place of the stuck worker.
#[test]
fn a_foreign_waker_that_the_monitor_calls_is_in_the_runtime() {
    in_virtual_time(10, || {
        let rt = Runtime::builder().workers(1).max_spares(0).build().unwrap();
        let spawns = Arc::new(Spawns::default());
        let waker = Waker::from(spawns.clone());
        let timer = rt.block_on(async {
            let mut timer = Box::pin(sleep(4 * MS));
            assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            timer
        });
        let stuck = rt.spawn(async { sim::work(LONG) });
        let took = until(|| spawns.0.load(Ordering::SeqCst));
        assert!(took < NOTICED, "called after {took:?}");
        drop((timer, stuck));
    });
}

/// Also those that wait for a worker that leaves.
#[test]
fn foreign_wakers_are_called_when_the_runtime_ends() {
    in_virtual_time(40, || {
        let rt = runtime();
        let (soon, later) = (Blocks::new(MS), Blocks::new(MS));
        let timers = rt.block_on(async { (soon.after(4 * MS), later.after(LONG)) });
        let stuck = rt.spawn(async { sim::work(9 * MS) });
        pause(5 * MS + Duration::from_nanos(sim::random() % 3_000_000)); // the monitor has taken the timer in
        drop(rt);
        assert!(soon.is_called() && later.is_called());
        drop((timers, stuck));
    });
}
