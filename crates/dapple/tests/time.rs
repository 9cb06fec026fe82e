//! Timers: never early, cancelled exactly, taken back for nothing, and fired whatever their worker does.

mod common;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};

use common::{eventually, watched};
use dapple::time::{Duration, Instant, MissedTicks, Sleep, interval, interval_at, sleep, sleep_until};
use dapple::{Cancelled, Runtime};
use futures_core::Stream;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Polls once, with a waker that does nothing.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A waker that says so through a channel.
struct Tell(mpsc::Sender<()>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

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
fn what_has_passed_is_over_at_once() {
    dapple::run(async {
        assert_eq!(poll_once(&mut sleep(Duration::ZERO)), Poll::Ready(Ok(())));
        let now = Instant::now();
        assert_eq!(poll_once(&mut sleep_until(now)), Poll::Ready(Ok(())));
        let past = now.checked_sub(Duration::from_millis(1)).unwrap_or(now);
        let mut sleep = sleep_until(past);
        assert_eq!(poll_once(&mut sleep), Poll::Ready(Ok(())));
        assert_eq!(poll_once(&mut sleep), Poll::Ready(Ok(())), "and stays over");
    });
}

#[test]
fn a_thousand_years_are_for_ever() {
    watched(|| {
        dapple::run(async {
            for long in [1000 * YEAR, Duration::MAX, 100 * YEAR] {
                let waits = dapple::spawn(sleep(long));
                dapple::task::yield_now().await;
                sleep(Duration::from_millis(1)).await.unwrap();
                assert!(!waits.is_finished());
                waits.cancel();
                assert_eq!(waits.await.unwrap(), Err(Cancelled));
            }
        });
    });
}

#[test]
fn cancelled_unless_the_time_had_come() {
    watched(|| {
        dapple::run(async {
            let task = dapple::spawn(async {
                let mut elapsed = sleep(Duration::from_millis(1));
                assert!(poll_once(&mut elapsed).is_pending());
                sleep(Duration::from_millis(3)).await.unwrap();
                dapple::task::current().cancel();
                let begun_later = sleep(Duration::ZERO).await;
                (elapsed.await, begun_later)
            });
            assert_eq!(task.await.unwrap(), (Ok(()), Err(Cancelled)));
        });
    });
}

#[test]
fn reset_waits_for_another_moment() {
    watched(|| {
        dapple::run(async {
            let mut sleep = sleep(YEAR);
            assert!(poll_once(&mut sleep).is_pending());
            let soon = Instant::now() + Duration::from_millis(1);
            sleep.reset(soon);
            (&mut sleep).await.unwrap();
            assert!(Instant::now() >= soon);
            sleep.reset(Instant::now() + YEAR);
            assert!(poll_once(&mut sleep).is_pending());
        });
    });
}

#[test]
fn many_at_once_each_fires_once() {
    let many = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    watched(move || {
        let fired = Arc::new(AtomicUsize::new(0));
        dapple::run(async {
            let tasks: Vec<_> = (0..many)
                .map(|n| {
                    let fired = fired.clone();
                    dapple::spawn(async move {
                        sleep(Duration::from_millis(n as u64 % 50)).await.unwrap();
                        fired.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(fired.load(Ordering::Relaxed), many);
    });
}

#[test]
fn taken_back_before_they_fire() {
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
    watched(|| {
        dapple::run(async {
            let fired = Arc::new(Fired::default());
            let waker = Waker::from(fired.clone());
            let mut cx = Context::from_waker(&waker);
            let last = Instant::now() + Duration::from_millis(300);
            let mut sleeps: Vec<Sleep> =
                (0..10_000).map(|n| sleep_until(last - Duration::from_micros(n % 3000))).collect();
            for sleep in &mut sleeps {
                let _ = Pin::new(sleep).poll(&mut cx);
            }
            drop(sleeps);
            fired.taken_back.store(true, Ordering::SeqCst);
            drop(waker);
            eventually("no waker is kept", || Arc::strong_count(&fired) == 1);
            sleep_until(last).await.unwrap();
            assert_eq!(fired.after_that.load(Ordering::SeqCst), 0);
        });
    });
}

#[test]
fn on_a_thread_that_is_no_worker() {
    watched(|| {
        let rt = Runtime::builder().workers(2).build().unwrap();
        // The workers sleep for good by then, and one is woken for an earlier timer.
        rt.block_on(async {
            let far = rt.spawn(sleep(YEAR));
            let start = Instant::now();
            sleep(Duration::from_millis(30)).await.unwrap();
            sleep(Duration::from_millis(1)).await.unwrap();
            assert!(start.elapsed() >= Duration::from_millis(31));
            far.abort();
        });
    });
}

#[test]
fn another_waker_takes_over() {
    watched(|| {
        dapple::run(async {
            let mut sleep = sleep(Duration::from_millis(2));
            assert!(poll_once(&mut sleep).is_pending());
            sleep.await.unwrap(); // with the task's own waker
        });
    });
}

#[test]
fn goes_on_in_another_runtime() {
    watched(|| {
        let deadline = Instant::now() + Duration::from_millis(40);
        let mut sleep = sleep_until(deadline);
        let first = Runtime::builder().workers(1).build().unwrap();
        first.block_on(async { assert!(poll_once(&mut sleep).is_pending()) });
        drop(first);
        dapple::run(sleep).unwrap();
        assert!(Instant::now() >= deadline);
    });
}

#[test]
fn fires_while_its_worker_is_stuck() {
    watched(|| {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let stuck = rt.spawn(async {
            let (told, wait) = mpsc::channel();
            let waker = Waker::from(Arc::new(Tell(told)));
            let mut sleep = pin!(sleep(Duration::from_millis(5)));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            wait.recv() // nobody but the monitor can help
        });
        rt.block_on(stuck).unwrap().unwrap();
    });
}

#[test]
#[should_panic(expected = "no runtime")]
fn outside_of_a_runtime() {
    let _ = poll_once(&mut sleep(Duration::from_secs(1)));
}

fn ago(duration: Duration) -> Instant {
    Instant::now().checked_sub(duration).expect("the machine has been up for longer")
}

const TEN: Duration = Duration::from_millis(10_000);

#[test]
fn missed_ticks_are_made_up_for() {
    dapple::run(async {
        let start = ago(TEN * 5 / 2);
        let mut ticks = interval_at(start, TEN);
        for n in 0..3 {
            assert_eq!(ticks.tick().await, Ok(start + TEN * n));
        }
        assert!(poll_once(&mut ticks.tick()).is_pending());
    });
}

#[test]
fn missed_ticks_delay_the_next() {
    dapple::run(async {
        let start = ago(TEN * 5 / 2);
        let mut ticks = interval_at(start, TEN).missed_ticks(MissedTicks::Delay);
        assert_eq!(ticks.tick().await, Ok(start));
        assert!(poll_once(&mut ticks.tick()).is_pending());
    });
}

#[test]
fn missed_ticks_are_skipped() {
    watched(|| {
        dapple::run(async {
            let period = Duration::from_millis(10);
            let start = ago(period * 5 / 2);
            let mut ticks = interval_at(start, period).missed_ticks(MissedTicks::Skip);
            assert_eq!(ticks.tick().await, Ok(start));
            let next = ticks.tick().await.unwrap();
            let since = next - start;
            assert!(
                since >= period * 3 && since.as_nanos().is_multiple_of(period.as_nanos()),
                "on the grid: {since:?}"
            );
        });
    });
}

#[test]
fn an_interval_is_a_stream() {
    watched(|| {
        dapple::run(async {
            let mut ticks = interval(Duration::from_millis(1));
            let mut last = None;
            for _ in 0..5 {
                let tick = std::future::poll_fn(|cx| Pin::new(&mut ticks).poll_next(cx)).await;
                let tick = tick.expect("it never ends").unwrap();
                assert!(last.is_none_or(|last| tick - last == ticks.period()));
                last = Some(tick);
            }
        });
    });
}

#[test]
fn a_cancelled_tick_is_still_to_come() {
    watched(|| {
        dapple::run(async {
            let task = dapple::spawn(async {
                let mut ticks = interval_at(Instant::now() + Duration::from_millis(2), TEN);
                dapple::task::current().cancel();
                (ticks.tick().await, ticks)
            });
            let (cancelled, mut ticks) = task.await.unwrap();
            assert_eq!(cancelled, Err(Cancelled));
            ticks.tick().await.unwrap();
        });
    });
}

#[test]
#[should_panic(expected = "must not be zero")]
fn a_period_of_zero() {
    let _ = interval(Duration::ZERO);
}

#[test]
fn the_only_worker_is_stuck() {
    watched(|| {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let (release, wait) = mpsc::channel::<()>();
        let stuck = rt.spawn(async move { wait.recv() });
        rt.block_on(sleep(Duration::from_millis(5))).unwrap(); // the timer lies with that worker
        drop(release);
        rt.block_on(stuck).unwrap().unwrap_err();
    });
}

#[test]
fn a_tick_begun_in_a_cancelled_task() {
    watched(|| {
        dapple::run(async {
            let task = dapple::spawn(async {
                let mut ticks = interval_at(Instant::now() + Duration::from_millis(1), TEN);
                assert!(poll_once(&mut ticks.tick()).is_pending()); // given up
                sleep(Duration::from_millis(3)).await.unwrap();
                dapple::task::current().cancel();
                ticks.tick().await
            });
            assert_eq!(task.await.unwrap(), Err(Cancelled));
        });
    });
}
