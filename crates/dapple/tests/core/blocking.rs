//! The thread pool for blocking calls: how it grows and shrinks, and how its calls end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::common::{
    Drops, Event, eventually, foreign_block_on, in_both_worlds, rounds, start_thread, watched,
};
use dapple::{JoinHandle, Runtime};

/// A runtime with one worker and a pool of at most `threads` threads, which stay idle for an hour before they end.
fn runtime(threads: usize) -> Runtime {
    let builder = Runtime::builder().workers(1).max_blocking_threads(threads).thread_name("pool");
    builder.blocking_keep_alive(Duration::from_secs(3600)).build().expect("a runtime")
}

/// Calls that block until `release`; all of them have begun when this returns.
fn occupy(rt: &Runtime, calls: usize, release: &Event) -> Vec<JoinHandle<()>> {
    let occupy = |_| {
        let (begun, release) = (Event::default(), release.clone());
        let begin = begun.clone();
        let call = rt.handle().blocking(move || {
            begin.set();
            release.wait();
        });
        begun.wait();
        call
    };
    (0..calls).map(occupy).collect()
}

#[test]
fn the_pool_grows_to_its_limit_and_not_beyond() {
    watched(|| {
        let rt = runtime(4);
        let release = Event::default();
        let mut calls = occupy(&rt, 4, &release);
        assert_eq!(rt.metrics().blocking_threads, 4);
        let (running, most) = (Arc::new(AtomicUsize::new(4)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..50 {
            let (running, most) = (running.clone(), most.clone());
            calls.push(rt.handle().blocking(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        let metrics = rt.metrics();
        assert_eq!((metrics.blocking_threads, metrics.blocking_queued), (4, 50));
        running.store(0, Ordering::SeqCst);
        release.set();
        calls.into_iter().for_each(|call| foreign_block_on(call).unwrap());
        assert!(most.load(Ordering::SeqCst) <= 4);
        let metrics = rt.metrics();
        assert_eq!((metrics.blocking_threads, metrics.blocking_queued), (4, 0));
    });
}

#[test]
fn as_many_calls_as_threads_run_at_once_and_threads_are_used_again() {
    watched(|| {
        let rt = runtime(8);
        for _ in 0..50 {
            let meet = Arc::new(Barrier::new(8));
            let call = |_| {
                let meet = meet.clone();
                rt.handle().blocking(move || _ = meet.wait())
            };
            let calls: Vec<_> = (0..8).map(call).collect();
            calls.into_iter().for_each(|call| foreign_block_on(call).unwrap());
        }
        assert_eq!(rt.metrics().blocking_threads, 8);
    });
}

#[test]
fn the_pool_shrinks_when_idle_and_grows_again() {
    watched(|| {
        let builder = Runtime::builder().workers(1).blocking_keep_alive(Duration::from_millis(1));
        let rt = builder.build().unwrap();
        for _ in 0..3 {
            let release = Event::default();
            let calls = occupy(&rt, 5, &release);
            assert_eq!(rt.metrics().blocking_threads, 5);
            release.set();
            calls.into_iter().for_each(|call| foreign_block_on(call).unwrap());
            eventually("all threads have gone", || rt.metrics().blocking_threads == 0);
        }
    });
}

/// Threads that are about to go must not leave a call behind.
#[test]
fn no_call_is_lost_between_threads_that_come_and_go() {
    in_both_worlds(50, || {
        for keep_alive in [Duration::ZERO, Duration::from_micros(50)] {
            let builder = Runtime::builder().workers(1).max_blocking_threads(2);
            let rt = builder.blocking_keep_alive(keep_alive).build().unwrap();
            for i in 0..rounds(500, 20) {
                let calls = [rt.handle().blocking(move || i), rt.handle().blocking(move || i + 1)];
                let sum: u32 = calls.into_iter().map(|call| foreign_block_on(call).unwrap()).sum();
                assert_eq!(sum, 2 * i + 1);
            }
        }
    });
}

#[test]
fn threads_have_names() {
    watched(|| {
        let rt = runtime(1);
        let name = rt.handle().blocking(|| thread::current().name().map(str::to_owned));
        assert_eq!(foreign_block_on(name).unwrap().as_deref(), Some("pool-blocking"));
        let plain = crate::common::runtime(1);
        let name = plain.handle().blocking(|| thread::current().name().map(str::to_owned));
        assert_eq!(foreign_block_on(name).unwrap().as_deref(), Some("dapple-blocking"));
    });
}

#[test]
fn panics_reach_the_handle_and_leave_the_thread() {
    watched(|| {
        let rt = runtime(1);
        for _ in 0..50 {
            let error = foreign_block_on(rt.handle().blocking(|| panic!("as asked"))).unwrap_err();
            assert!(error.is_panic() && error.to_string().contains("as asked"));
            rt.handle().blocking(|| panic!("nobody listens")).detach();
        }
        assert_eq!(foreign_block_on(rt.handle().blocking(|| 5)).unwrap(), 5);
        assert_eq!(rt.metrics().blocking_threads, 1);
    });
}

#[test]
fn a_call_aborted_before_it_begins_never_runs() {
    in_both_worlds(50, || {
        let rt = runtime(1);
        let (release, drops) = (Event::default(), Drops::default());
        let busy = occupy(&rt, 1, &release);
        let ran = Event::default();
        let (run, guard) = (ran.clone(), drops.guard());
        let call = rt.handle().blocking(move || {
            let _kept = guard;
            run.set();
        });
        call.abort();
        release.set();
        assert!(foreign_block_on(call).unwrap_err().is_aborted());
        assert_eq!((ran.is_set(), drops.count()), (false, 1));
        busy.into_iter().for_each(|call| foreign_block_on(call).unwrap());
    });
}

#[test]
fn a_call_that_has_begun_is_not_stopped() {
    in_both_worlds(50, || {
        let rt = runtime(1);
        let release = Event::default();
        let busy = occupy(&rt, 1, &release);
        busy.iter().for_each(|call| {
            call.cancel();
            call.abort();
        });
        release.set();
        busy.into_iter().for_each(|call| foreign_block_on(call).expect("it was faster"));
    });
}

#[test]
fn calls_can_start_calls_and_tasks() {
    in_both_worlds(50, || {
        let rt = runtime(2);
        let handle = rt.handle();
        let nested = rt.handle().blocking(move || {
            let inner = dapple::blocking(|| dapple::spawn(async { 1 }));
            let task = foreign_block_on(inner).unwrap();
            let color = dapple::Color::keyed("k");
            let in_color = color.call(|| 10);
            let sum = foreign_block_on(task).unwrap() + foreign_block_on(in_color).unwrap();
            sum + handle.block_on(async { dapple::spawn_local(async { 100 }).await.unwrap() })
        });
        assert_eq!(foreign_block_on(nested).unwrap(), 111);
    });
}

#[test]
fn calls_in_line_when_the_runtime_ends_are_dropped() {
    in_both_worlds(50, || {
        let rt = runtime(1);
        let (release, drops) = (Event::default(), Drops::default());
        let busy = occupy(&rt, 1, &release);
        let in_line: Vec<_> = (0..10)
            .map(|_| {
                let guard = drops.guard();
                rt.handle().blocking(move || drop(guard))
            })
            .collect();
        let ender = start_thread(move || drop(rt));
        for call in in_line {
            assert!(foreign_block_on(call).unwrap_err().is_gone());
        }
        assert_eq!(drops.count(), 10);
        release.set();
        ender.join().unwrap();
        busy.into_iter().for_each(|call| foreign_block_on(call).unwrap());
    });
}
