//! `timeout`, `race` and `JoinHandle::cancel` end a future that knows nothing of cancelling: it is dropped, unless
//! something in it must be done to its end.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use dapple::channel::mpsc;
use dapple::sim::Sim;
use dapple::sync::{Condvar, Mutex, Notify};
use dapple::task::yield_now;
use dapple::time::{Duration, Instant, sleep, timeout};
use dapple::{Cancelled, finish, finish_local, race, shield, spawn};
use futures_util::future::{join, join_all, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn simulated<T>(program: impl Future<Output = T> + 'static) -> T
where
    T: 'static,
{
    Sim::new(0).run(program)
}

/// Sets a flag when it is dropped.
struct Dropped(Rc<Cell<bool>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// A foreign future that never ends, and a flag: whether it was dropped.
fn foreign() -> (impl Future<Output = ()>, Rc<Cell<bool>>) {
    let is_dropped = Rc::new(Cell::new(false));
    let drops = Dropped(is_dropped.clone());
    let waits = async move {
        let _drops = drops;
        pending::<()>().await;
    };
    (waits, is_dropped)
}

/// Gives way, as a library's future does it.
async fn foreign_yield() {
    let mut yielded = false;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn a_timeout_drops_a_foreign_future() {
    simulated(async {
        let begun = Instant::now();
        let (future, is_dropped) = foreign();
        let elapsed = timeout(50 * MS, future).await.unwrap_err();
        assert!(is_dropped.get(), "it is still there");
        assert_eq!((elapsed.get(), elapsed.into_inner()), (None, None));
        assert!(begun.elapsed() < 60 * MS);
    });
}

#[test]
fn cancellable_waits_in_a_timeout_return_their_outcome() {
    simulated(async {
        let elapsed = timeout(MS, sleep(HOUR)).await.unwrap_err();
        assert_eq!(elapsed.get(), Some(&Err(Cancelled)));
        assert_eq!(elapsed.into_inner(), Some(Err(Cancelled)));
    });
}

#[test]
fn a_race_drops_foreign_losers() {
    simulated(async {
        let begun = Instant::now();
        let ((first, first_is_dropped), (last, last_is_dropped)) = (foreign(), foreign());
        let won = race((
            first,
            async { sleep(5 * MS).await.unwrap() },
            async {
                sleep(HOUR).await.unwrap_err();
            },
            last,
        ));
        won.await;
        assert!(first_is_dropped.get() && last_is_dropped.get());
        assert!(begun.elapsed() < 10 * MS);
    });
}

#[test]
fn a_cancelled_task_in_foreign_code_is_aborted() {
    simulated(async {
        let begun = Instant::now();
        let gone = Arc::new(AtomicBool::new(false));
        struct Sets(Arc<AtomicBool>);
        impl Drop for Sets {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let sets = Sets(gone.clone());
        let task = spawn(async move {
            let _sets = sets;
            assert_eq!(sleep(HOUR).await, Err(Cancelled)); // a wait of ours is cancelled first
            pending::<()>().await;
        });
        sleep(MS).await.unwrap();
        task.cancel();
        assert!(task.await.unwrap_err().is_aborted());
        assert!(gone.load(Ordering::Relaxed));
        // The same, cancelled before its first poll.
        let task = spawn(pending::<()>());
        task.cancel();
        assert!(task.await.unwrap_err().is_aborted());
        assert!(begun.elapsed() < 10 * MS);
    });
}

#[test]
fn a_task_that_is_not_cancelled_is_left_alone() {
    simulated(async {
        let task = spawn(pending::<()>());
        assert!(timeout(MS, spawn(sleep(HOUR))).await.is_err());
        sleep(MS).await.unwrap();
        assert!(!task.is_finished());
        task.abort();
    });
}

/// A cancel of a scope keeps its rule: what knows nothing of it is waited for.
#[test]
fn a_cancelled_scope_waits_for_foreign_futures() {
    simulated(async {
        let (sender, receiver) = futures_channel();
        let begun = Instant::now();
        finish(async |s| {
            let waits = s.start(receiver);
            s.cancel();
            drop(s.start(shield(async move {
                sleep(20 * MS).await.unwrap();
                sender.send();
            })));
            waits.await;
        })
        .await;
        assert!(begun.elapsed() >= 20 * MS);
    });
}

/// A cancel of a scope reaches its spawned tasks as a cancel by their handles does.
#[test]
fn a_cancelled_scope_ends_spawned_tasks_in_foreign_code() {
    simulated(async {
        for begins in [false, true] {
            let begun = Instant::now();
            finish(async |s| {
                let waits = s.spawn(pending::<()>());
                if begins {
                    sleep(MS).await.unwrap();
                }
                s.cancel();
                assert!(shield(waits).await.unwrap_err().is_aborted());
            })
            .await;
            assert!(begun.elapsed() < 10 * MS);
        }
    });
}

struct Sender(Arc<(AtomicBool, std::sync::Mutex<Option<std::task::Waker>>)>);

impl Sender {
    fn send(self) {
        self.0.0.store(true, Ordering::SeqCst);
        let waker = self.0.1.lock().unwrap().take();
        waker.into_iter().for_each(std::task::Waker::wake);
    }
}

/// A channel that knows nothing of cancelling.
fn futures_channel() -> (Sender, impl Future<Output = ()> + Send) {
    let shared = Arc::new((AtomicBool::new(false), std::sync::Mutex::new(None)));
    let sent = shared.clone();
    let receiver = poll_fn(move |cx| {
        *sent.1.lock().unwrap() = Some(cx.waker().clone());
        if sent.0.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    });
    (Sender(shared), receiver)
}

#[test]
fn a_shield_is_waited_for_wherever_it_is() {
    simulated(async {
        for shape in 0..8 {
            let done = Cell::new(0);
            let work = || async {
                shield(sleep(20 * MS)).await.unwrap();
                done.set(done.get() + 1);
            };
            let around = async {
                match shape {
                    0 => work().await,
                    1 => drop(join(work(), pending::<()>()).await),
                    // With a waker of its own, so that it is not polled when the time is up.
                    2 => drop(join_all((0..40).map(|_| work())).await),
                    3 => {
                        let mut all = FuturesUnordered::from_iter([work()]);
                        while all.next().await.is_some() {}
                        pending::<()>().await;
                    }
                    4 => finish_local(async |s| drop(s.start(work()))).await,
                    5 => finish_local(async |s| s.start(work()).await).await,
                    6 => {
                        let _either = select(pin!(work()), pin!(pending::<()>())).await;
                    }
                    _ => race((work(), pending::<()>())).await,
                }
            };
            let begun = Instant::now();
            let late = timeout(MS, around).await;
            assert!(late.is_err(), "{shape}: it was in time");
            assert_eq!(done.get(), if shape == 2 { 40 } else { 1 }, "{shape}: the shield was dropped");
            assert!(begun.elapsed() < 30 * MS, "{shape}");
        }
    });
}

#[test]
fn a_shield_in_a_cancelled_task_is_waited_for() {
    simulated(async {
        for is_joined in [false, true] {
            let count = Arc::new(AtomicUsize::new(0));
            let counts = count.clone();
            let task = spawn(async move {
                let work = || async {
                    shield(sleep(20 * MS)).await.unwrap();
                    counts.fetch_add(1, Ordering::Relaxed);
                };
                if is_joined {
                    join_all((0..40).map(|_| work())).await;
                } else {
                    work().await;
                }
                pending::<()>().await;
            });
            sleep(MS).await.unwrap();
            task.cancel();
            assert!(task.await.unwrap_err().is_aborted());
            assert_eq!(count.load(Ordering::Relaxed), if is_joined { 40 } else { 1 });
        }
    });
}

#[test]
fn waits_behind_foreign_combinators_answer() {
    simulated(async {
        let answered = Cell::new(0);
        let waits = |notify: Rc<Notify>| {
            let answered = &answered;
            async move {
                assert_eq!(notify.notified().await, Err(Cancelled));
                answered.set(answered.get() + 1);
                pending::<()>().await;
            }
        };
        let notify = Rc::new(Notify::new());
        let all = join_all((0..100).map(|_| waits(notify.clone())));
        assert_eq!(timeout(MS, all).await.unwrap_err().into_inner(), None);
        assert_eq!(answered.get(), 100, "some were dropped without having been told");
    });
}

#[test]
fn foreign_futures_in_scopes_and_regions_are_dropped_with_them() {
    simulated(async {
        let begun = Instant::now();
        assert!(timeout(MS, finish(async |_| pending::<()>().await)).await.is_err());
        assert!(timeout(MS, finish(async |s| drop(s.start(pending::<()>())))).await.is_err());
        assert!(timeout(MS, timeout(HOUR, pending::<()>())).await.is_err());
        assert!(timeout(MS, race((pending::<()>(), pending()))).await.is_err());
        let many = |_| timeout(HOUR, finish(async |s| s.start(pending::<()>()).await));
        assert!(timeout(MS, join_all((0..40).map(many))).await.is_err());
        let scopes = (0..40).map(|_| finish(async |s| drop(s.start(pending::<()>()))));
        assert!(timeout(MS, join_all(scopes)).await.is_err());
        assert!(begun.elapsed() < 10 * MS);
    });
}

#[test]
fn a_scope_with_spawned_tasks_is_waited_for() {
    simulated(async {
        let ended = Arc::new(AtomicBool::new(false));
        let ends = ended.clone();
        let begun = Instant::now();
        let scope = finish(async |s| {
            s.spawn(async move {
                shield(sleep(20 * MS)).await.unwrap();
                ends.store(true, Ordering::Relaxed);
            })
            .detach();
            pending::<()>().await;
        });
        assert!(timeout(MS, scope).await.is_err());
        assert!(ended.load(Ordering::Relaxed) && begun.elapsed() >= 20 * MS);
    });
}

#[test]
fn a_started_child_goes_on_when_the_wait_for_it_ends() {
    simulated(async {
        let begun = Instant::now();
        let took = finish(async |s| {
            let slow = s.start(async {
                sleep(20 * MS).await.unwrap();
                7
            });
            assert_eq!(timeout(MS, slow).await.unwrap_err().into_inner(), None);
            let slow = s.start(async { sleep(20 * MS).await.is_ok() });
            race((async { slow.await.then_some(()).unwrap() }, async { sleep(MS).await.unwrap() })).await;
            begun.elapsed()
        })
        .await;
        assert!(took < 5 * MS, "the wait took {took:?}");
        assert!(begun.elapsed() >= 20 * MS, "the children were not waited for by their scope");
    });
}

/// A mutex is locked again after the wait for a condition, in any case: its guard is returned.
#[test]
fn the_lock_of_a_condition_is_taken_again() {
    simulated(async {
        let (lock, condvar, held) = (Mutex::new(0), Condvar::new(), Cell::new(false));
        finish_local(async |s| {
            let waits = s.start(timeout(5 * MS, async {
                let (guard, waited) = condvar.wait(lock.lock().await.unwrap()).await;
                assert!(waited.is_err());
                held.set(true);
                drop(guard);
            }));
            sleep(MS).await.unwrap();
            let guard = lock.lock().await.unwrap();
            sleep(20 * MS).await.unwrap();
            drop(guard);
            assert_eq!(waits.await.unwrap_err().into_inner(), Some(()));
            assert!(held.get());
        })
        .await;
    });
}

#[test]
fn clean_up_that_gives_way_a_few_times_is_not_cut_off() {
    simulated(async {
        let cleaned = Cell::new(false);
        let work = async {
            assert!(sleep(HOUR).await.is_err());
            for _ in 0..20 {
                yield_now().await;
                foreign_yield().await;
            }
            cleaned.set(true);
        };
        assert_eq!(timeout(MS, work).await.unwrap_err().into_inner(), Some(()));
        assert!(cleaned.get());
        let task = spawn(async {
            assert!(sleep(HOUR).await.is_err());
            for _ in 0..1000 {
                yield_now().await;
            }
        });
        sleep(MS).await.unwrap();
        task.cancel();
        task.await.expect("it was awake, and is not to be dropped");
    });
}

#[test]
fn a_loop_that_only_gives_way_ends() {
    simulated(async {
        let forever = async {
            loop {
                yield_now().await;
                dapple::sim::work(MS / 10);
            }
        };
        let never: Result<(), _> = timeout(MS, forever).await;
        assert_eq!(never.unwrap_err().into_inner(), None);
    });
}

#[test]
fn a_destructor_that_panics_unwinds_the_timeout() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in the drop");
        }
    }
    simulated(async {
        let task = spawn(async {
            let work = async {
                let _panics = Panics;
                pending::<()>().await;
            };
            let _unwinds = timeout(MS, work).await;
        });
        assert!(task.await.unwrap_err().is_panic());
        let task = spawn(async {
            let work = async {
                let _panics = Panics;
                pending::<()>().await;
            };
            race((work, async { sleep(MS).await.unwrap() })).await;
        });
        assert!(task.await.unwrap_err().is_panic());
    });
}

/// Messages that come while a future is being given up are not lost with it.
#[test]
fn a_foreign_combinator_around_waits_loses_no_message() {
    for seed in 0..50 {
        Sim::new(seed).run(async {
            let (sender, mut receiver) = mpsc::bounded(100);
            let sends = spawn(async move {
                for item in 0..50_u32 {
                    sleep(MS / 2).await.unwrap();
                    sender.try_send(item).unwrap();
                }
            });
            let mut next = 0;
            while next < 50 {
                let (receives, never) = (pin!(receiver.recv()), pin!(pending::<()>()));
                let got = timeout(MS * 2 / 3, select(receives, never)).await;
                let got = got.unwrap_or_else(|late| late.into_inner().expect("it has answered"));
                if let futures_util::future::Either::Left((Ok(item), _)) = got {
                    assert_eq!(item, next);
                    next += 1;
                }
            }
            sends.await.unwrap();
        });
    }
}
