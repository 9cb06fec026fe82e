//! Callbacks that wait for a time: when they are called, how they are withdrawn, and how they end.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{
    Drops, Event, give_way, in_both_worlds, in_virtual_time, message, runtime, start_thread,
};
use dapple::event::{self, Callback, Registration};
use dapple::sim::{self, Sim};
use dapple::task::yield_now;
use dapple::time::{Duration, Instant, sleep};
use dapple::{Color, JoinError};

const MS: Duration = Duration::from_millis(1);

/// Notes of callbacks.
#[derive(Clone, Default)]
struct Notes<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Notes<T> {
    fn add(&self, note: T) {
        self.0.lock().unwrap().push(note);
    }

    fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// In one simulation, by a steady clock.
fn by_the_clock(body: impl AsyncFnOnce() + 'static) {
    Sim::new(5).workers(2).steady().run(async move { body().await });
}

#[test]
fn they_are_called_when_their_time_has_come_and_in_order() {
    by_the_clock(async || {
        let (begun, notes) = (Instant::now(), Notes::default());
        let color = Color::new();
        let note = |name: &'static str| {
            let notes = notes.clone();
            Callback::new(move || notes.add((name, begun.elapsed().as_millis()))).color(&color)
        };
        let registrations = [
            event::after(30 * MS, note("after 30")),
            event::at(begun + 10 * MS, note("at 10")),
            event::after(20 * MS, note("after 20")),
            event::at(begun - MS, note("at once")),
        ];
        assert!(!registrations[0].is_over());
        sleep(100 * MS).await.unwrap();
        assert!(registrations.iter().all(Registration::is_over));
        assert_eq!(notes.all(), [("at once", 0), ("at 10", 10), ("after 20", 20), ("after 30", 30)]);
    });
}

#[test]
fn every_period_from_the_next_on() {
    by_the_clock(async || {
        let (begun, notes) = (Instant::now(), Notes::default());
        let tick = {
            let notes = notes.clone();
            move || notes.add(begun.elapsed().as_millis())
        };
        let ticking = event::every(10 * MS, Callback::new(tick).color(&Color::new()));
        sleep(45 * MS).await.unwrap();
        drop(ticking);
        sleep(100 * MS).await.unwrap();
        assert_eq!(notes.all(), [10, 20, 30, 40]);
    });
}

/// A color that is busy: what was missed is left out.
#[test]
fn calls_that_were_missed_are_left_out() {
    by_the_clock(async || {
        let (begun, notes) = (Instant::now(), Notes::default());
        let tick = {
            let notes = notes.clone();
            move || {
                notes.add(begun.elapsed().as_millis());
                if notes.all().len() == 1 {
                    sim::work(25 * MS); // from 10 to 35
                }
            }
        };
        let _ticking = event::every(10 * MS, Callback::new(tick).color(&Color::new()));
        sleep(55 * MS).await.unwrap();
        assert_eq!(notes.all(), [10, 35, 40, 50]);
    });
}

/// Whether a callback is running, and how often it was called.
#[derive(Clone, Default)]
struct Calls(Arc<(AtomicBool, AtomicUsize)>);

impl Calls {
    fn one(&self) {
        assert!(!self.0.0.swap(true, SeqCst), "two calls at the same time");
        give_way();
        self.0.1.fetch_add(1, SeqCst);
        give_way();
        self.0.0.store(false, SeqCst);
    }

    fn is_running(&self) -> bool {
        self.0.0.load(SeqCst)
    }

    fn count(&self) -> usize {
        self.0.1.load(SeqCst)
    }
}

/// A callback of a color that is called all the time.
fn all_the_time(color: &Color, calls: &Calls, drops: &Drops) -> Registration {
    let (calls, guard) = (calls.clone(), drops.guard());
    let callback = move || {
        let _owned = &guard;
        calls.one();
    };
    event::every(Duration::from_nanos(1), Callback::new(callback).color(color))
}

/// It has been withdrawn and waited for.
async fn assert_over(calls: &Calls, drops: &Drops) {
    let count = calls.count();
    assert!(!calls.is_running(), "it is still running");
    assert_eq!(drops.count(), 1, "what it owns was not dropped");
    for _ in 0..10 {
        yield_now().await;
    }
    sleep(MS).await.unwrap();
    assert_eq!(calls.count(), count, "it was called again");
}

#[test]
fn withdraw_from_another_color_stops_the_callback() {
    in_both_worlds(300, || {
        runtime(3).block_on(async {
            let (calls, drops) = (Calls::default(), Drops::default());
            let registration = all_the_time(&Color::new(), &calls, &drops);
            sleep(MS).await.unwrap();
            registration.withdraw().await.unwrap();
            assert_over(&calls, &drops).await;
        });
    });
}

#[test]
fn withdraw_from_its_own_color_stops_the_callback_at_once() {
    in_both_worlds(300, || {
        runtime(3).block_on(async {
            let (color, calls, drops) = (Color::new(), Calls::default(), Drops::default());
            let registration = all_the_time(&color, &calls, &drops);
            sleep(MS).await.unwrap();
            let inside = calls.clone();
            let (withdraw, count) = color
                .call(move || {
                    let withdraw = registration.withdraw(); // not awaited yet
                    assert!(!inside.is_running());
                    (withdraw, inside.count())
                })
                .await
                .unwrap();
            for _ in 0..10 {
                yield_now().await;
            }
            assert_eq!(calls.count(), count);
            withdraw.await.unwrap();
            assert_over(&calls, &drops).await;
        });
    });
}

#[test]
fn withdraw_from_an_outside_thread_stops_the_callback() {
    in_both_worlds(300, || {
        let rt = runtime(2);
        let (color, calls, drops) = (rt.handle().color(), Calls::default(), Drops::default());
        let registration = all_the_time(&color, &calls, &drops);
        crate::common::pause(MS);
        let inside = calls.clone();
        let thread = start_thread(move || {
            crate::common::foreign_block_on(registration.withdraw()).unwrap();
            assert!(!inside.is_running(), "it is still running");
        });
        thread.join().unwrap();
        rt.block_on(assert_over(&calls, &drops));
    });
}

/// In the callback itself: this call goes on, and is the last.
#[test]
fn a_callback_that_withdraws_itself_runs_to_its_end() {
    in_both_worlds(100, || {
        runtime(3).block_on(async {
            for awaited in [false, true] {
                let (calls, drops, ended) = (Calls::default(), Drops::default(), Event::default());
                let own: Arc<Mutex<Option<Registration>>> = Arc::default();
                let callback = {
                    let (calls, guard, ended, own) =
                        (calls.clone(), drops.guard(), ended.clone(), own.clone());
                    move || {
                        let _owned = &guard;
                        calls.one();
                        // On the first call it may not be there yet.
                        let Some(registration) = own.lock().unwrap().take() else { return };
                        if awaited {
                            let ended = ended.clone();
                            dapple::spawn(async move {
                                registration.withdraw().await.unwrap();
                                ended.set();
                            })
                            .detach();
                        } else {
                            drop(registration);
                        }
                        calls.one();
                        ended.set();
                    }
                };
                let every =
                    event::every(Duration::from_nanos(1), Callback::new(callback).color(&Color::new()));
                *own.lock().unwrap() = Some(every);
                ended.happened().await;
                // The call that withdrew it ends after it has said so.
                while calls.is_running() || drops.count() == 0 {
                    sleep(MS).await.unwrap();
                }
                assert_over(&calls, &drops).await;
            }
        });
    });
}

#[test]
fn break_ends_the_registration() {
    in_both_worlds(30, || {
        runtime(2).block_on(async {
            let (drops, notes) = (Drops::default(), Notes::default());
            let callback = {
                let (guard, notes) = (drops.guard(), notes.clone());
                move || {
                    let _owned = &guard;
                    notes.add(());
                    if notes.all().len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                }
            };
            let registration = event::every(MS, Callback::new(callback).color(&Color::new()));
            while !registration.is_over() {
                sleep(MS).await.unwrap();
            }
            assert_eq!((notes.all().len(), drops.count()), (3, 1));
            registration.withdraw().await.unwrap(); // harmless when late
        });
    });
}

/// One that is to be called once, before its time and after it.
#[test]
fn one_that_waits_is_withdrawn_without_a_call() {
    in_both_worlds(30, || {
        runtime(2).block_on(async {
            let (called, drops) = (Event::default(), Drops::default());
            let callback = || {
                let (called, guard) = (called.clone(), drops.guard());
                Callback::new(move || {
                    drop(guard);
                    called.set();
                })
                .color(&Color::new())
            };
            drop(event::after(Duration::from_secs(3600), callback()));
            event::after(Duration::from_secs(3600), callback()).withdraw().await.unwrap();
            assert!(!called.is_set());
            let late = event::after(Duration::ZERO, callback());
            called.happened().await;
            late.withdraw().await.unwrap();
            crate::common::eventually("all were dropped", || drops.count() == 3);
        });
    });
}

#[test]
fn a_detached_registration_stays() {
    in_virtual_time(30, || {
        runtime(2).block_on(async {
            let calls = Notes::default();
            let note = calls.clone();
            event::every(MS, Callback::new(move || note.add(())).color(&Color::new())).detach();
            sleep(10 * MS).await.unwrap();
            assert!(calls.all().len() >= 9, "{}", calls.all().len());
        });
    });
}

/// A withdrawal that is cancelled is one all the same, and can be awaited again.
#[test]
fn a_cancelled_wait_has_withdrawn() {
    in_both_worlds(50, || {
        runtime(2).block_on(async {
            let (calls, drops) = (Calls::default(), Drops::default());
            let registration = all_the_time(&Color::new(), &calls, &drops);
            let mut withdraw = registration.withdraw();
            let first: Result<(), JoinError> = dapple::finish(async |scope| {
                scope.cancel();
                (&mut withdraw).await
            })
            .await;
            assert!(first.is_ok() || first.unwrap_err().is_cancelled());
            withdraw.await.unwrap();
            assert_over(&calls, &drops).await;
        });
    });
}

/// A scope that is cancelled does not withdraw what was registered in it.
#[test]
fn a_registration_is_not_part_of_a_scope() {
    in_both_worlds(20, || {
        runtime(2).block_on(async {
            let called = Event::default();
            let registration = dapple::finish(async |scope| {
                let called = called.clone();
                let registration = event::after(MS, Callback::new(move || called.set()).color(&Color::new()));
                scope.cancel();
                registration
            })
            .await;
            called.happened().await;
            drop(registration);
        });
    });
}

#[test]
fn a_panic_ends_only_its_own_registration() {
    in_both_worlds(30, || {
        runtime(2).block_on(async {
            let color = Color::new();
            let (calls, drops) = (Calls::default(), Drops::default());
            let healthy = all_the_time(&color, &calls, &drops);
            let guard = drops.guard();
            let mut left = 3;
            let callback = move || {
                let _owned = &guard;
                left -= 1;
                assert!(left > 0, "that was one too many");
            };
            let sick =
                event::every(Duration::from_nanos(1), Callback::new(callback).color(&color).name("sick"));
            while !sick.is_over() {
                sleep(MS).await.unwrap();
            }
            assert_eq!(drops.count(), 1, "what it owned is gone");
            let error = sick.withdraw().await.unwrap_err();
            assert!(error.to_string().contains("task sick panicked: that was one too many"), "{error}");

            let once = event::after(Duration::ZERO, Callback::new(|| panic!("once")).color(&color));
            while !once.is_over() {
                sleep(MS).await.unwrap();
            }
            let payload = once.withdraw().await.unwrap_err().try_into_panic().unwrap();
            assert_eq!(message(&*payload), "once");

            let now: dapple::JoinHandle<()> = event::now(Callback::new(|| panic!("now")).color(&color));
            assert!(now.await.unwrap_err().is_panic());

            // The color goes on, and so does what else is in it.
            let before = calls.count();
            while calls.count() == before {
                sleep(MS).await.unwrap();
            }
            healthy.withdraw().await.unwrap();
        });
    });
}

/// The end of a runtime is the end of its callbacks, wherever they are.
#[test]
fn shutdown_ends_registrations() {
    in_both_worlds(50, || {
        let (drops, calls) = (Drops::default(), Calls::default());
        let rt = runtime(2);
        let color = rt.handle().color();
        let kept = rt.block_on(async {
            let often = all_the_time(&color, &calls, &drops);
            let guard = drops.guard();
            let once = Callback::new(move || drop(guard)).color(&color);
            let guard = drops.guard();
            let in_main = Callback::new(move || drop(guard));
            event::after(Duration::from_secs(3600), in_main).detach();
            [often, event::after(Duration::from_secs(3600), once)]
        });
        assert_eq!(drops.count(), 1, "the one in the main color ends with it");
        rt.shutdown(Duration::from_secs(10));
        assert_eq!(drops.count(), 3);
        assert!(kept.iter().all(Registration::is_over));
        for registration in kept {
            crate::common::foreign_block_on(registration.withdraw()).unwrap();
        }
        // And what is registered afterwards has ended before it began.
        let late = event::after(Duration::ZERO, Callback::new(|| unreachable!("it is over")).color(&color));
        assert!(late.is_over());
    });
}
