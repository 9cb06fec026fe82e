//! `sim::cancel_everywhere` at its edges: panics that hide behind others, late waits in loops, programs that spin, and
//! checks in cancelled tasks. Found by an attack on the tool.

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dapple::channel::mpsc;
use dapple::io::AsyncReadExt;
use dapple::sim::{self, CancelCount, CancelEverywhere, Failure, Sim};
use dapple::task::yield_now;
use dapple::time::{Duration, Instant, sleep};
use dapple::{finish, shield};
use futures_util::future::{Either, select};

const SECOND: Duration = Duration::from_secs(1);

fn count<F: Future<Output: sim::Ending>>(work: impl FnMut() -> F) -> CancelCount {
    CancelEverywhere::new().try_run(work, || async {}).unwrap()
}

fn failure<F: Future<Output: sim::Ending>>(work: impl FnMut() -> F) -> Failure {
    CancelEverywhere::new().try_run(work, || async {}).unwrap_err()
}

#[test]
fn a_destructor_that_panics_in_an_aborted_task_is_a_failure() {
    struct Guard(bool);
    impl Drop for Guard {
        fn drop(&mut self) {
            assert!(self.0, "dropped before the commit");
        }
    }
    let failure = failure(|| async {
        let task = dapple::spawn(async {
            let mut guard = Guard(false);
            let _ = sleep(SECOND).await;
            guard.0 = true;
        });
        let _ = task.await;
    });
    assert!(failure.why().contains("a task panicked: dropped before the commit"), "{failure}");
}

#[test]
fn a_panic_that_takes_the_place_of_an_expected_one_is_a_failure() {
    let failure = failure(|| async {
        let task = dapple::spawn(async {
            assert!(sleep(SECOND).await.is_ok(), "the bug");
            panic!("expected, and handled");
        });
        let _: Result<(), _> = task.await;
    });
    assert!(failure.why().contains("a task panicked: the bug"), "{failure}");
}

#[test]
fn panics_that_happen_undisturbed_are_expected() {
    let counted = count(|| async {
        let task = dapple::spawn(async { panic!("expected, and handled") });
        let _: Result<(), _> = task.await;
        let _ = sleep(SECOND).await;
    });
    assert_eq!(counted.waits, 2);
}

#[test]
fn a_late_wait_in_a_loop_is_late_once() {
    let got = Mutex::new(Vec::new());
    count(|| async {
        for _ in 0..20 {
            yield_now().await;
        }
        let (sender, mut receiver) = mpsc::bounded::<u32>(4);
        (1..=3).for_each(|number| sender.try_send(number).unwrap());
        let mut these = Vec::new();
        for _ in 0..3 {
            these.push(match select(pin!(receiver.recv()), pin!(sleep(SECOND))).await {
                Either::Left((message, _)) => message.unwrap_or_default(),
                Either::Right(_) => 99,
            });
        }
        got.lock().unwrap().push(these);
    });
    let got = got.into_inner().unwrap();
    for expected in [[99, 1, 2], [1, 99, 2], [1, 2, 99]] {
        assert!(got.iter().any(|these| *these == expected), "{expected:?} is not in {got:?}");
    }
}

#[test]
fn a_late_wait_outlasts_a_branch_that_takes_many_polls() {
    let winners = Mutex::new(Vec::new());
    count(|| async {
        let (sender, mut receiver) = mpsc::bounded::<u32>(1);
        sender.try_send(1).unwrap();
        let slow = pin!(async {
            for _ in 0..100 {
                if sleep(SECOND).await.is_err() {
                    return false;
                }
            }
            true
        });
        let won = matches!(select(pin!(receiver.recv()), slow).await, Either::Right((true, _)));
        winners.lock().unwrap().push(won);
    });
    assert!(winners.into_inner().unwrap().contains(&true));
}

#[test]
fn a_task_that_spins_after_the_program_has_returned_is_a_failure() {
    let failure = failure(|| async {
        let spins = dapple::spawn(async {
            while sleep(2 * SECOND).await.is_err() {
                yield_now().await;
            }
        });
        spins.detach();
        yield_now().await;
    });
    assert!(failure.why().contains("does not end"), "{failure}");
}

#[test]
fn a_nested_cancel_everywhere_is_refused_and_the_outer_goes_on() {
    let refused = AtomicUsize::new(0);
    let counted = count(|| async {
        let nested = || sim::cancel_everywhere(|| async {}, || async {});
        let nested = std::panic::catch_unwind(nested).unwrap_err();
        let message = nested.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(message.contains("run them one after the other"), "{message}");
        refused.fetch_add(1, Relaxed);
        for _ in 0..3 {
            let _ = sleep(SECOND).await;
        }
    });
    assert_eq!((counted.waits, counted.runs), (3, 12));
    assert_eq!(refused.load(Relaxed), 2 + 12);
}

/// A stream that is not dapple's: bytes come through a mutex.
#[derive(Clone, Default)]
struct Foreign(Arc<Mutex<(Vec<u8>, Option<Waker>)>>);

impl Foreign {
    fn push(&self, bytes: &[u8]) {
        let mut inside = self.0.lock().unwrap();
        inside.0.extend(bytes);
        inside.1.take().into_iter().for_each(Waker::wake);
    }
}

impl futures_util::AsyncRead for Foreign {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut inside = self.0.lock().unwrap();
        if inside.0.is_empty() {
            inside.1 = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = buffer.len().min(inside.0.len());
        buffer[..n].copy_from_slice(&inside.0[..n]);
        inside.0.drain(..n);
        Poll::Ready(Ok(n))
    }
}

#[test]
fn waits_at_foreign_streams_are_tried_in_all_modes() {
    let work = |beside_a_clock: bool| {
        move || async move {
            let mut stream = Foreign::default();
            let far = stream.clone();
            dapple::spawn(async move {
                let _ = shield(sleep(3 * SECOND)).await;
                far.push(b"four");
            })
            .detach();
            let mut bytes = [0; 4];
            let read = pin!(stream.read_exact(&mut bytes));
            if beside_a_clock {
                let _ = select(read, pin!(sleep(10 * SECOND))).await;
            } else {
                let _ = read.await;
            }
        }
    };
    let alone = count(work(false));
    assert_eq!((alone.waits, alone.runs), (1, 4));
    let beside = count(work(true));
    assert_eq!((beside.waits, beside.runs), (2, 8));
}

#[test]
fn a_check_is_not_cancelled_with_the_task_of_the_program() {
    let cancels_itself = || async {
        sim::check_after(async { sleep(SECOND).await.expect("the check is not cancelled") });
        dapple::task::current().cancel();
    };
    Sim::new(0).run(cancels_itself());
    let check = || async { sleep(SECOND).await };
    CancelEverywhere::new().run(cancels_itself, check);
}

#[test]
fn polls_in_a_shield_are_no_waits() {
    let counted = count(|| async {
        let yields = finish(async |_| {
            for _ in 0..5 {
                yield_now().await;
            }
        });
        shield(yields).await;
    });
    assert_eq!((counted.waits, counted.shielded), (0, 0));
}

/// The closures are called inside of the simulation, so a timer that they make has its deadline from the virtual clock.
#[test]
fn timers_that_the_closure_makes_go_by_the_virtual_clock() {
    let work = || {
        let hour = sleep(3600 * SECOND);
        async {
            let begun = Instant::now();
            if hour.await.is_ok() {
                assert_eq!(begun.elapsed().as_secs(), 3600);
            }
        }
    };
    assert_eq!(count(work).waits, 1);
}
