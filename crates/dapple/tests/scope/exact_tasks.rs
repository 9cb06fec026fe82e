//! Tasks, blocking calls, callbacks and timers in a scope that is cancelled: they happen, or they do not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use crate::common::Event;
use crate::exact::SEEDS;
use crate::scope_common::{Lent, Operation, SHAPES, When, happened, in_a_cancelled, simulated};
use dapple::channel::mpsc;
use dapple::sim::{self, Sim};
use dapple::time::{Instant, interval, sleep, sleep_until, timeout};
use dapple::{Cancelled, JoinHandle, scope::Resume, suspend};

/// A task that has begun.
struct Joining {
    handle: Lent<JoinHandle<Box<u8>>>,
    ends: Event,
    ran: Event,
}

impl Joining {
    async fn new() -> Joining {
        let (ends, ran, begun) = (Event::default(), Event::default(), Event::default());
        let (told, tell, begin) = (ends.clone(), ran.clone(), begun.clone());
        let handle = dapple::spawn(async move {
            begin.set();
            told.happened().await;
            tell.set();
            Box::new(7)
        });
        begun.happened().await;
        Joining { handle: Lent::new(handle), ends, ran }
    }
}

impl Operation for Joining {
    async fn run(&self) -> bool {
        let mut handle = self.handle.take();
        let joined = (&mut handle).await;
        self.handle.give(handle);
        happened(joined).is_some()
    }

    async fn complete(&self) {
        self.ends.set();
    }

    async fn settle(&self, _completed: usize, happened: usize) {
        self.ends.set();
        self.ran.happened().await; // it went on
        if happened == 0 {
            assert_eq!(*self.handle.take().await.unwrap(), 7);
        }
    }
}

#[test]
fn tasks_go_on_when_the_wait_for_them_is_cancelled() {
    simulated(SEEDS, false, async || Joining::new().await);
}

#[test]
fn a_blocking_call_that_has_not_begun_never_does() {
    for shape in SHAPES {
        Sim::new(1).explore(0..20, move || async move {
            let ran = Arc::new(AtomicUsize::new(0));
            let call = || {
                let ran = ran.clone();
                async move {
                    happened(dapple::blocking(move || ran.fetch_add(1, Ordering::Relaxed)).await).is_some()
                }
            };
            assert!(!in_a_cancelled(shape, When::Before, call()).await);
            sleep(Duration::from_secs(1)).await.unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 0, "{shape:?}: begun after the cancel");
        });
    }
}

/// A pool of one thread, which is kept busy until the test releases it.
#[test]
fn a_queued_blocking_call_that_is_cancelled_never_begins() {
    for shape in SHAPES {
        crate::common::in_virtual_time(10, move || {
            let builder = dapple::Runtime::builder().workers(2).max_blocking_threads(1);
            let rt = builder.build().unwrap();
            let (busy, release, begun) = (Event::default(), Event::default(), Event::default());
            let (is_busy, released) = (busy.clone(), release.clone());
            let blocks = rt.handle().blocking(move || {
                is_busy.set();
                released.wait();
            });
            busy.wait();
            let ran = Event::default();
            let runs = ran.clone();
            let task = rt.spawn(async move {
                let call = async { happened(dapple::blocking(move || runs.set()).await).is_some() };
                in_a_cancelled(shape, When::After(begun.clone()), crate::common::telling(begun, call)).await
            });
            assert!(!rt.block_on(task).unwrap(), "{shape:?}");
            release.set();
            rt.block_on(blocks).unwrap();
            rt.block_on(rt.handle().blocking(|| ())).unwrap(); // whatever is in line has run
            assert!(!ran.is_set(), "{shape:?}: it ran after the cancel");
        });
    }
}

struct SetOnDrop(Event);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

#[test]
fn a_blocking_call_that_has_begun_goes_on_and_can_be_waited_for_again() {
    for shape in SHAPES {
        Sim::new(1).explore(0..10, move || async move {
            let (begun, ran) = (Event::default(), Event::default());
            let (begin, runs) = (SetOnDrop(begun.clone()), ran.clone());
            let handle = Lent::new(dapple::blocking(move || {
                runs.set();
                drop(begin); // which happens also if it never begins
                sim::work(Duration::from_millis(1));
                Box::new(7)
            }));
            let call = async {
                let mut lent = handle.take();
                let joined = (&mut lent).await;
                handle.give(lent);
                happened(joined).map(|value| *value)
            };
            let delivered = in_a_cancelled(shape, When::After(begun), call).await;
            let again = match delivered {
                Some(value) => Some(value),
                None => handle.take().await.ok().map(|value| *value),
            };
            assert_eq!(again, ran.is_set().then_some(7), "{shape:?}: the result was lost");
        });
    }
}

/// A callback.
#[derive(Default)]
struct CalledBack {
    resume: StdMutex<Option<Resume<u8>>>,
    was_called: Event,
    accepted: AtomicUsize,
    withdrawn: AtomicUsize,
}

impl Operation for CalledBack {
    async fn run(&self) -> bool {
        let called = suspend(|resume| {
            let is_late = self.was_called.is_set();
            *self.resume.lock().unwrap() = Some(resume);
            assert!(!is_late, "it was cancelled before it began");
            || {
                self.withdrawn.fetch_add(1, Ordering::Relaxed);
            }
        });
        happened(called.await).is_some()
    }

    async fn complete(&self) {
        self.was_called.set();
        let resume = self.resume.lock().unwrap().take();
        if resume.is_some_and(|resume| resume.resume(7).is_ok()) {
            self.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn settle(&self, completed: usize, happened: usize) {
        assert_eq!(self.accepted.load(Ordering::Relaxed), happened, "a value comes back, or has come");
        let begun = self.resume.lock().unwrap().is_some() || completed > 0;
        assert!(self.withdrawn.load(Ordering::Relaxed) <= usize::from(begun && happened == 0));
    }
}

#[test]
fn callbacks() {
    simulated(SEEDS, false, async || CalledBack::default());
}

#[test]
fn timers() {
    for shape in SHAPES {
        Sim::new(1).explore(0..SEEDS, move || async move {
            for late in [Duration::ZERO, Duration::from_secs(1)] {
                let begun = Instant::now();
                assert_eq!(in_a_cancelled(shape, When::Before, sleep(late)).await, Err(Cancelled));
                assert!(begun.elapsed() < Duration::from_millis(1));
            }
            // Cancelled at about the time.
            let deadline = Instant::now() + Duration::from_nanos(sim::random() % 30_000);
            let begun = Event::default();
            let waits = crate::common::telling(begun.clone(), sleep_until(deadline));
            begun.set();
            let slept = in_a_cancelled(shape, When::After(begun), waits).await;
            assert!(slept.is_err() || Instant::now() >= deadline, "{shape:?}: too early");
        });
    }
}

#[test]
fn no_tick_of_an_interval_is_lost() {
    for shape in SHAPES {
        Sim::new(1).explore(0..SEEDS, move || async move {
            let period = Duration::from_micros(10);
            let mut ticks = interval(period);
            let mut last = ticks.tick().await.unwrap();
            let mut cancelled = 0;
            for round in 0..20 {
                let begun = Event::default();
                begun.set();
                let when = if round % 4 == 0 { When::Before } else { When::After(begun) };
                match in_a_cancelled(shape, when, ticks.tick()).await {
                    Ok(tick) => {
                        assert!(round % 4 != 0, "it was cancelled");
                        assert_eq!(tick, last + period);
                        last = tick;
                    }
                    Err(Cancelled) => cancelled += 1,
                }
            }
            assert!(cancelled >= 5);
            assert_eq!(ticks.tick().await, Ok(last + period));
        });
    }
}

#[test]
fn a_timeout_returns_a_result_that_came_in_time() {
    Sim::new(1).explore(0..200, || async {
        let (sender, mut receiver) = mpsc::bounded::<u32>(4);
        let sends = dapple::spawn(async move {
            for i in 0..10 {
                sleep(Duration::from_nanos(sim::random() % 4000)).await.unwrap();
                // The sender is in a hurry as well: what it could not send comes back.
                let mut message = i;
                while let Err(elapsed) = timeout(Duration::from_nanos(700), sender.send(message)).await {
                    match elapsed.into_inner().unwrap() {
                        Ok(()) => break,
                        Err(error) => message = error.into_inner(),
                    }
                }
            }
        });
        let mut next = 0;
        while next < 10 {
            let got = timeout(Duration::from_nanos(sim::random() % 3000), receiver.recv()).await;
            let got = got.unwrap_or_else(|elapsed| elapsed.into_inner().unwrap());
            if let Some(value) = happened(got) {
                assert_eq!(value, next);
                next += 1;
            }
        }
        sends.await.unwrap();
    });
}
