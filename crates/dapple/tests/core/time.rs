//! Timers: they never fire early, fire on the next tick, are cancelled exactly, cost nothing when dropped, and fire
//! whatever their worker does.
//!
//! Tests of the kernel's clock use that clock. All others run in virtual time, with many seeds: a sleep of a year takes
//! no real time, and lateness can be checked exactly.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{in_virtual_time, runtime, watched};
use dapple::Cancelled;
use dapple::sim::{self, Sim};
use dapple::time::{Duration, Instant, MissedTicks, Sleep, interval, interval_at, sleep, sleep_until};
use futures_core::Stream;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const MS: Duration = Duration::from_millis(1);

/// Timers fire at ticks: up to this much late.
const TICK: Duration = Duration::from_nanos(1 << 17);
/// The most time that polls and wake-ups take in a rough simulation in which little happens.
const ROUGH: Duration = Duration::from_micros(300);
/// Interval at which the monitor checks for stuck workers. The second check in a row finds one.
const PERIOD: Duration = Duration::from_millis(5);

/// Polls once, with a waker that does nothing.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Asserts that it is `moment`, or as little later as a timer and a simulation may take.
#[track_caller]
fn assert_now(moment: Instant) {
    let now = Instant::now();
    assert!(now >= moment, "early by {:?}", moment - now);
    assert!(now - moment < TICK + ROUGH, "late by {:?}", now - moment);
}

/// By the kernel's clock: timeouts of system calls are rounded up, too.
#[test]
fn never_early() {
    watched(|| {
        dapple::run(async {
            let sleeps: Vec<_> = (0..2000_u64)
                .map(|n| {
                    let duration = Duration::from_micros(n * 7919 % 30_000);
                    dapple::spawn(async move {
                        let deadline = Instant::now() + duration;
                        sleep(duration).await.unwrap();
                        assert!(Instant::now() >= deadline, "{duration:?} was over early");
                    })
                })
                .collect();
            for sleep in sleeps {
                sleep.await.unwrap();
            }
        });
    });
}

#[test]
fn over_at_the_next_tick_however_long() {
    sim::explore(0..20, || async {
        let durations = (0..300_u64).map(|n| Duration::from_nanos(n * 104_729 % 30_000_000));
        let longer = (0..20).map(|n| Duration::from_micros(3_u64.pow(n)));
        let sleep = |duration: Duration| {
            dapple::spawn(async move {
                let deadline = Instant::now() + duration;
                sleep(duration).await.unwrap();
                assert_now(deadline);
            })
        };
        let sleeps: Vec<_> = durations.chain(longer).map(sleep).collect();
        for sleep in sleeps {
            sleep.await.unwrap();
        }
    });
    // Where nothing else takes time, it fires exactly at the tick. A simulation begins at a tick.
    Sim::new(0).steady().run(async {
        let begun = Instant::now();
        for n in 1..1000 {
            sleep_until(begun + TICK * n - Duration::from_micros(10)).await.unwrap();
            let since = begun.elapsed();
            let polls = Duration::from_nanos(100 + 3 * u64::from(n)); // each takes one
            assert!(since + polls >= TICK * n, "{since:?} is before tick {n}");
            assert!(since < TICK * n + polls, "{since:?} is after tick {n}");
        }
    });
}

#[dapple::test(sim, seeds = 10)]
async fn what_has_passed_is_over_at_once() {
    assert_eq!(poll_once(&mut sleep(Duration::ZERO)), Poll::Ready(Ok(())));
    let now = Instant::now();
    assert_eq!(poll_once(&mut sleep_until(now)), Poll::Ready(Ok(())));
    let mut sleep = sleep_until(now - MS);
    assert_eq!(poll_once(&mut sleep), Poll::Ready(Ok(())));
    assert_eq!(poll_once(&mut sleep), Poll::Ready(Ok(())), "and stays over");
}

#[dapple::test(sim, seeds = 10)]
async fn a_hundred_years_end_and_a_thousand_do_not() {
    let begun = Instant::now();
    for long in [1000 * YEAR, Duration::MAX] {
        let waits = dapple::spawn(sleep(long));
        sleep(YEAR).await.unwrap();
        assert!(!waits.is_finished());
        waits.cancel();
        assert_eq!(waits.await.unwrap(), Err(Cancelled));
    }
    sleep_until(begun + 100 * YEAR).await.unwrap();
    assert_now(begun + 100 * YEAR);
}

#[test]
fn an_endless_sleep_in_virtual_time_is_a_deadlock() {
    for long in [1000 * YEAR, Duration::MAX] {
        let failure = Sim::new(0).try_run(async move { sleep(long).await }).unwrap_err();
        assert!(
            failure.why().contains("deadlock") && failure.why().contains("waits for a time"),
            "{failure}"
        );
    }
}

#[dapple::test(sim, seeds = 50)]
async fn cancelled_unless_the_time_had_come() {
    let task = dapple::spawn(async {
        let mut elapsed = sleep(MS);
        assert!(poll_once(&mut elapsed).is_pending());
        sleep(3 * MS).await.unwrap();
        dapple::task::current().cancel();
        let begun_later = sleep(Duration::ZERO).await;
        (elapsed.await, begun_later)
    });
    assert_eq!(task.await.unwrap(), (Ok(()), Err(Cancelled)));
}

/// Cancelled at about the moment at which the timer fires: the sleep ends in one way or the other, and not late.
#[test]
fn cancelled_just_when_the_time_comes() {
    let (over, cancelled) = (Cell::new(0), Cell::new(0));
    sim::explore(0..100, || async {
        let deadline = Instant::now() + MS;
        let task = dapple::spawn(async move { (sleep_until(deadline).await, Instant::now()) });
        sleep_until(deadline - TICK).await.unwrap();
        sim::work(Duration::from_nanos(sim::random() % (2 * TICK.as_nanos() as u64)));
        task.cancel();
        let since = Instant::now();
        let (ended, when) = task.await.unwrap();
        match ended {
            Ok(()) => assert!(when >= deadline && when - deadline < TICK + ROUGH, "{:?}", when - deadline),
            Err(Cancelled) => assert!(when >= since && when - since < ROUGH, "{:?}", when - since),
        }
        let count = if ended.is_ok() { &over } else { &cancelled };
        count.set(count.get() + 1);
    });
    assert!(over.get() > 10 && cancelled.get() > 10, "both happen: {over:?}, {cancelled:?}");
}

#[dapple::test(sim, seeds = 50)]
async fn reset_waits_for_another_moment() {
    let mut sleep = sleep(YEAR);
    assert!(poll_once(&mut sleep).is_pending());
    let soon = Instant::now() + MS;
    sleep.reset(soon);
    (&mut sleep).await.unwrap();
    assert_now(soon);
    let late = Instant::now() + YEAR;
    sleep.reset(late);
    assert!(poll_once(&mut sleep).is_pending());
    sleep.await.unwrap();
    assert_now(late);
}

#[test]
fn many_at_once_each_fires_once() {
    let many = if cfg!(debug_assertions) { 4000 } else { 200_000 };
    sim::explore(0..3, || async {
        let (begun, fired) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..many)
            .map(|n| {
                let (fired, deadline) = (fired.clone(), begun + MS * (n as u32 % 5000));
                dapple::spawn(async move {
                    sleep_until(deadline).await.unwrap();
                    assert!(Instant::now() >= deadline);
                    fired.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        sleep_until(begun + 4999 * MS + TICK).await.unwrap();
        sleep(MS).await.unwrap();
        assert_eq!(fired.load(Ordering::Relaxed), many, "by now");
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(fired.load(Ordering::Relaxed), many);
    });
}

#[test]
fn timers_can_be_dropped_before_they_fire() {
    #[derive(Default)]
    struct Fired {
        taken_back: AtomicBool,
        after_that: AtomicUsize,
    }
    impl Wake for Fired {
        fn wake(self: Arc<Self>) {
            if self.taken_back.load(Ordering::SeqCst) {
                self.after_that.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    sim::explore(0..10, || async {
        let fired = Arc::new(Fired::default());
        let waker = Waker::from(fired.clone());
        let mut cx = Context::from_waker(&waker);
        let last = Instant::now() + 300 * MS;
        let mut sleeps: Vec<Sleep> =
            (0..2000).map(|n| sleep_until(last - Duration::from_micros(n % 3000))).collect();
        for sleep in &mut sleeps {
            assert!(Pin::new(sleep).poll(&mut cx).is_pending());
        }
        // Some are dropped here, and some by another worker.
        let others = sleeps.split_off(1000);
        let elsewhere = dapple::spawn(async move { drop(others) });
        drop(sleeps);
        elsewhere.await.unwrap();
        fired.taken_back.store(true, Ordering::SeqCst);
        drop(waker);
        assert_eq!(Arc::strong_count(&fired), 1, "no waker is kept");
        sleep_until(last + TICK).await.unwrap();
        assert_eq!(fired.after_that.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn on_a_thread_that_is_no_worker() {
    in_virtual_time(50, || {
        let rt = runtime(2);
        // By then the workers sleep without a limit, and one is woken for an earlier timer.
        rt.block_on(async {
            let far = rt.spawn(sleep(YEAR));
            let start = Instant::now();
            sleep(30 * MS).await.unwrap();
            assert_now(start + 30 * MS);
            let again = Instant::now();
            sleep(MS).await.unwrap();
            assert_now(again + MS);
            assert!(!far.is_finished());
            far.abort();
        });
    });
}

#[dapple::test(sim, seeds = 50)]
async fn another_waker_takes_over() {
    let deadline = Instant::now() + 2 * MS;
    let mut sleep = sleep_until(deadline);
    assert!(poll_once(&mut sleep).is_pending());
    sleep.await.unwrap(); // with the task's own waker
    assert_now(deadline);
}

#[test]
fn goes_on_in_another_runtime() {
    in_virtual_time(50, || {
        let first = runtime(2);
        let deadline = Instant::now() + 40 * MS;
        let mut sleep = sleep_until(deadline);
        first.block_on(async { assert!(poll_once(&mut sleep).is_pending()) });
        drop(first);
        assert!(Instant::now() < deadline, "it takes no time to end a runtime that does nothing");
        runtime(1).block_on(sleep).unwrap();
        assert_now(deadline);
    });
}

/// A waker that records when it was used.
#[derive(Default)]
struct Told(Mutex<Option<Instant>>);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().get_or_insert_with(Instant::now);
    }
}

#[dapple::test(sim, seeds = 50)]
async fn fires_while_its_worker_is_stuck() {
    let stuck = dapple::spawn(async {
        let told = Arc::new(Told::default());
        let waker = Waker::from(told.clone());
        let deadline = Instant::now() + 7 * MS;
        let mut sleep = pin!(sleep_until(deadline));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        sim::work(1000 * MS); // only the monitor can fire the timer
        let fired = told.0.lock().unwrap().expect("it has fired");
        assert!(fired >= deadline);
        assert!(fired - deadline < 2 * PERIOD + TICK + ROUGH, "late by {:?}", fired - deadline);
    });
    stuck.await.unwrap();
}

/// The same with threads of the kernel.
#[test]
fn fires_while_its_real_worker_is_stuck() {
    struct Tell(mpsc::Sender<()>);
    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    watched(|| {
        let rt = runtime(2);
        let stuck = rt.spawn(async {
            let (told, wait) = mpsc::channel();
            let waker = Waker::from(Arc::new(Tell(told)));
            let mut sleep = pin!(sleep(MS));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            wait.recv()
        });
        rt.block_on(stuck).unwrap().unwrap();
    });
}

#[test]
fn the_only_worker_is_stuck() {
    in_virtual_time(50, || {
        let rt = runtime(1);
        let stuck = rt.spawn(async { sim::work(1000 * MS) });
        let deadline = Instant::now() + 7 * MS;
        rt.block_on(sleep_until(deadline)).unwrap(); // the timer is in that worker's wheel
        let late = Instant::now() - deadline;
        assert!(late < 2 * PERIOD + TICK + ROUGH, "late by {late:?}");
        rt.block_on(stuck).unwrap();
        assert!(Instant::now() - deadline > 900 * MS, "it was stuck");
    });
}

#[test]
#[should_panic(expected = "no runtime")]
fn outside_of_a_runtime() {
    let _ = poll_once(&mut sleep(Duration::from_secs(1)));
}

/// Time between ticks.
const LONG: Duration = Duration::from_millis(1000);

#[dapple::test(sim, seeds = 20)]
async fn missed_ticks_are_made_up_for() {
    let start = Instant::now();
    let mut ticks = interval_at(start, LONG);
    sim::work(LONG * 5 / 2);
    for n in 0..3 {
        assert_eq!(ticks.tick().await, Ok(start + LONG * n));
        assert!(start.elapsed() < LONG * 5 / 2 + ROUGH, "at once");
    }
    assert_eq!(ticks.tick().await, Ok(start + LONG * 3));
    assert_now(start + LONG * 3);
}

#[dapple::test(sim, seeds = 20)]
async fn missed_ticks_delay_the_next() {
    let start = Instant::now();
    let mut ticks = interval_at(start, LONG).missed_ticks(MissedTicks::Delay);
    sim::work(LONG * 5 / 2);
    assert_eq!(ticks.tick().await, Ok(start));
    let late = Instant::now();
    assert!(late - start < LONG * 5 / 2 + ROUGH, "at once");
    let next = ticks.tick().await.unwrap();
    assert!(next >= start + LONG * 7 / 2 && next <= late + LONG, "{:?}", next - start);
    assert_now(next);
}

#[dapple::test(sim, seeds = 20)]
async fn missed_ticks_are_skipped() {
    let start = Instant::now();
    let mut ticks = interval_at(start, LONG).missed_ticks(MissedTicks::Skip);
    sim::work(LONG * 5 / 2);
    assert_eq!(ticks.tick().await, Ok(start));
    for n in 3..6 {
        assert_eq!(ticks.tick().await, Ok(start + LONG * n), "on the grid");
        assert_now(start + LONG * n);
    }
}

#[dapple::test(sim, seeds = 20)]
async fn an_interval_is_a_stream() {
    let begun = Instant::now();
    let mut ticks = interval(MS);
    let mut next = begun;
    for n in 0..100 {
        let tick = std::future::poll_fn(|cx| Pin::new(&mut ticks).poll_next(cx)).await;
        let tick = tick.expect("it never ends").unwrap();
        assert!(n == 0 || tick == next, "tick {n}");
        assert_now(tick);
        next = tick + ticks.period();
    }
}

#[dapple::test(sim, seeds = 20)]
async fn a_cancelled_tick_is_still_to_come() {
    let first = Instant::now() + 2 * MS;
    let task = dapple::spawn(async move {
        let mut ticks = interval_at(first, LONG);
        dapple::task::current().cancel();
        (ticks.tick().await, ticks)
    });
    let (cancelled, mut ticks) = task.await.unwrap();
    assert_eq!(cancelled, Err(Cancelled));
    assert!(Instant::now() < first);
    assert_eq!(ticks.tick().await, Ok(first));
    assert_now(first);
}

#[test]
#[should_panic(expected = "must not be zero")]
fn a_period_of_zero() {
    let _ = interval(Duration::ZERO);
}

#[dapple::test(sim, seeds = 20)]
async fn a_tick_begun_in_a_cancelled_task() {
    let task = dapple::spawn(async {
        let mut ticks = interval_at(Instant::now() + MS, LONG);
        assert!(poll_once(&mut ticks.tick()).is_pending()); // given up
        sleep(3 * MS).await.unwrap();
        dapple::task::current().cancel();
        ticks.tick().await
    });
    assert_eq!(task.await.unwrap(), Err(Cancelled));
}
