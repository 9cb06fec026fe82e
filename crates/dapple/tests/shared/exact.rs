//! Waits for shared states in scopes that are cancelled: `Err(Cancelled)` means that the closure did not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Event, in_both_worlds, runtime, telling};
use crate::scope_common::{Lent, Operation, really, simulated};
use crate::shared_common::{Bell, Held, settle};
use dapple::sim::{self, Sim};
use dapple::time::{sleep, timeout};
use dapple::{Cancelled, JoinHandle, Shared, finish, together, together_all};

const SEEDS: u64 = 12;

/// The operation that waits.
#[derive(Clone, Copy, Debug)]
enum How {
    Read,
    Write,
    Together,
    /// `together_all` over this number of states.
    All(usize),
}

/// States of which one is in use until it is let go.
struct States {
    how: How,
    states: Vec<Shared<usize>>,
    ran: AtomicUsize,
    let_go: Event,
    holder: Lent<Option<JoinHandle<()>>>,
}

impl States {
    async fn new(how: How, held: usize, held_by_reader: bool) -> States {
        let count = match how {
            How::Read | How::Write => 1,
            How::Together => 3,
            How::All(count) => count,
        };
        let states: Vec<_> = (0..count).map(|_| Shared::new(0)).collect();
        let (inside, let_go) = (Event::default(), Event::default());
        let (state, tell, told) = (states[held % count].clone(), inside.clone(), let_go.clone());
        let holder = dapple::blocking(move || {
            let wait = || {
                tell.set();
                told.wait();
            };
            match held_by_reader {
                true => state.read_blocking(|_| wait()).unwrap(),
                false => state.write_blocking(|_| wait()).unwrap(),
            }
        });
        inside.happened().await;
        States { how, states, ran: AtomicUsize::new(0), let_go, holder: Lent::new(Some(holder)) }
    }

    fn run_closure(&self) {
        self.ran.fetch_add(1, Ordering::SeqCst);
    }
}

impl Operation for States {
    async fn run(&self) -> bool {
        let ran = || self.run_closure();
        let [first, ..] = &self.states[..] else { unreachable!() };
        let result: Result<(), Cancelled> = match self.how {
            How::Read => first.read(|_| ran()).await,
            How::Write => first.write(|_| ran()).await,
            How::Together => {
                let [a, b, c] = &self.states[..] else { unreachable!() };
                together((c.writing(), a.writing(), b.writing()), |_| ran()).await
            }
            How::All(_) => {
                let all: Vec<_> = self.states.iter().map(Shared::writing).collect();
                together_all(&all, |_| ran()).await
            }
        };
        result.is_ok()
    }

    async fn complete(&self) {
        self.let_go.set();
        let holder = self.holder.with(Option::take);
        if let Some(holder) = holder {
            let left = dapple::shield(holder).await; // also in a scope that is cancelled
            left.unwrap();
        }
    }

    async fn settle(&self, _completed: usize, happened: usize) {
        self.complete().await;
        assert_eq!(self.ran.load(Ordering::SeqCst), happened, "the closure ran exactly if the wait says so");
        for state in &self.states {
            assert!(state.try_write(|_| ()).is_ok(), "nobody is in");
        }
    }
}

#[test]
fn to_read() {
    simulated(SEEDS, true, async || States::new(How::Read, 0, false).await);
    really(2, true, async || States::new(How::Read, 0, false).await);
}

#[test]
fn to_write() {
    for held_by_reader in [false, true] {
        simulated(SEEDS, true, async move || States::new(How::Write, 0, held_by_reader).await);
        really(2, true, async move || States::new(How::Write, 0, held_by_reader).await);
    }
}

#[test]
fn together_with_each_of_them_in_use() {
    for held in 0..3 {
        for held_by_reader in [false, true] {
            simulated(SEEDS / 2, true, async move || States::new(How::Together, held, held_by_reader).await);
        }
        really(1, true, async move || States::new(How::Together, held, false).await);
    }
}

#[test]
fn together_all_few_and_many() {
    for count in [1, 2, 4, 7] {
        simulated(SEEDS / 2, true, async move || States::new(How::All(count), count / 2, false).await);
    }
}

/// Many waits are cancelled at random times: the result of each agrees with whether its closure ran.
#[test]
fn results_agree_with_effects() {
    Sim::new(0).explore(0..150, || async {
        let states: Vec<_> = (0..3).map(|_| Shared::new(0_u64)).collect();
        let ran: Arc<Vec<AtomicUsize>> = Arc::new((0..16).map(|_| AtomicUsize::new(0)).collect());
        let said = finish(async |s| {
            let tasks: Vec<_> = (0..16_usize)
                .map(|number| {
                    let (states, ran) = (states.clone(), ran.clone());
                    s.spawn(async move {
                        let work = |value: &mut u64| {
                            *value += 1;
                            sim::work(Duration::from_nanos(sim::random() % 2000));
                            ran[number].fetch_add(1, Ordering::SeqCst);
                        };
                        let mut done = 0;
                        for _ in 0..4 {
                            let [a, b, c] = &states[..] else { unreachable!() };
                            let limit = Duration::from_nanos(sim::random() % 20_000);
                            let result = match sim::random() % 5 {
                                0 => a.write(work).await,
                                1 => a.read(|_| work(&mut 0)).await,
                                2 => together((b.writing(), a.reading()), |(b, _)| work(b)).await,
                                3 => match timeout(limit, c.write(work)).await {
                                    Ok(in_time) => in_time,
                                    Err(late) => late.into_inner().unwrap(),
                                },
                                _ => together_all(&[c.writing(), a.writing()], |all| work(all[0])).await,
                            };
                            done += usize::from(result.is_ok());
                        }
                        done
                    })
                })
                .collect();
            sleep(Duration::from_nanos(sim::random() % 60_000)).await.unwrap();
            s.cancel();
            tasks
        })
        .await;
        for (number, task) in said.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), ran[number].load(Ordering::SeqCst), "task {number}");
        }
        assert!(states.iter().all(|state| state.try_write(|_| ()).is_ok()), "nobody is in");
    });
}

/// That both come about, or the tests above say little.
#[test]
fn some_are_cancelled_and_some_are_not() {
    let (mut cancelled, mut done) = (0, 0);
    for seed in 0..60 {
        let (ok, err) = Sim::new(seed).run(async {
            let operation = Arc::new(States::new(How::Together, 1, false).await);
            let begun = Event::default();
            let completing = crate::scope_common::complete_after(&operation, &begun);
            let running = telling(begun.clone(), operation.run());
            let shape = crate::scope_common::Shape::Child;
            let happened =
                crate::scope_common::in_a_cancelled(shape, crate::scope_common::When::After(begun), running)
                    .await;
            completing.await.unwrap();
            (usize::from(happened), usize::from(!happened))
        });
        done += ok;
        cancelled += err;
    }
    assert!(cancelled >= 5 && done >= 5, "{cancelled} cancelled, {done} done");
}

#[test]
fn one_that_was_woken_and_is_cancelled_takes_what_is_free() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let state = Shared::new(0);
        let held = Held::writing(&state);
        let begun = Event::default();
        let task = rt.spawn({
            let (state, begun) = (state.clone(), begun.clone());
            async move { telling(begun, state.write(|value| *value += 1)).await }
        });
        begun.wait();
        // Woken by both, in whatever order: it may say either, but not both.
        held.let_go();
        task.cancel();
        let said = rt.block_on(task).unwrap();
        assert_eq!(state.try_read(|value| *value), Ok(i32::from(said.is_ok())));
        assert!(state.try_write(|_| ()).is_ok());
    });
}

#[test]
fn a_call_that_blocks_is_cancelled_before_it_begins_to_wait_and_while_it_waits() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let state = Shared::new(0);
        let held = Held::writing(&state);
        let waits = rt.block_on(async {
            let (inside, its) = (Event::default(), state.clone());
            let call = dapple::blocking({
                let inside = inside.clone();
                move || {
                    inside.set();
                    (its.write_blocking(|value| *value += 1), its.read_blocking(|value| *value))
                }
            });
            inside.happened().await;
            call.cancel();
            call.await.unwrap()
        });
        assert_eq!(waits, (Err(Cancelled), Err(Cancelled)), "the state was in use all the time");
        held.let_go();
        assert_eq!(state.into_inner().unwrap(), 0);
    });
}

#[test]
fn a_write_dropped_before_it_runs_leaves_no_trace() {
    in_both_worlds(10, || {
        let (state, other) = (Shared::new(0), Shared::new(0));
        drop(state.write(|value| *value += 1));
        drop(together((state.writing(), other.writing()), |(state, _)| *state += 1));
        let held = Held::writing(&state);
        let bell = Bell::default();
        let mut behind = state.write(|value| *value);
        {
            let mut write = state.write(|value| *value += 1);
            let mut read = state.read(|value| *value);
            let mut both = together((state.writing(), other.writing()), |(state, _)| *state += 1);
            let wishes = [other.writing(), state.writing()];
            let mut all = together_all(&wishes, |all| *all[1] += 1);
            assert!(settle(&mut write).is_pending());
            assert!(settle(&mut read).is_pending());
            assert!(settle(&mut both).is_pending());
            assert!(settle(&mut all).is_pending());
            assert!(bell.settle(&mut behind).is_pending());
            assert!(other.try_write(|_| ()).is_ok(), "who waits has nothing");
        }
        held.let_go();
        assert!(bell.has_rung(), "now the first in line");
        assert_eq!(bell.poll(&mut behind), std::task::Poll::Ready(Ok(0)));
    });
}
