//! Transactions that are in each other's way, on real threads: with panics, cancels and old values.
//!
//! While a transaction runs alone, others of the process do not commit, and a try of another test would fail: so some of these
//! tests have a process of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use dapple::stm::{Abort, TVar, Transaction, atomically, atomically_blocking};
use dapple::task::yield_now;
use dapple::time::timeout;

use crate::common::{Drops, Random, in_a_process_of_its_own, panic_of, runtime, watched};

/// Moves `amount` from one account to another, and never sees another sum than 0.
fn transfer(tx: &mut Transaction<'_>, accounts: &[TVar<i64>], random: &mut Random) -> Result<(), Abort> {
    let mut any = || random.below(accounts.len() as u64) as usize;
    let (from, to) = (any(), any());
    tx.modify(&accounts[from], |from| *from -= 1)?;
    tx.modify(&accounts[to], |to| *to += 1)
}

fn total(tx: &mut Transaction<'_>, accounts: &[TVar<i64>]) -> Result<i64, Abort> {
    accounts.iter().try_fold(0, |sum, account| Ok(sum + tx.read(account)?))
}

#[test]
fn no_transaction_sees_a_sum_that_was_never_there() {
    in_a_process_of_its_own("no_transaction_sees_a_sum_that_was_never_there", || watched(look_at_sums));
}

fn look_at_sums() {
    runtime(3).block_on(async {
        let accounts: Arc<[TVar<i64>]> = (0..16).map(|_| TVar::new(0)).collect();
        let tasks: Vec<_> = (0..6)
            .map(|seed| {
                let (accounts, mut random) = (accounts.clone(), Random::new(seed));
                dapple::spawn(async move {
                    for round in 0..2000 {
                        match round % 8 {
                            0 => atomically(|tx| {
                                // Also one that will be aborted has to see it.
                                assert_eq!(total(tx, &accounts)?, 0);
                                Ok(())
                            })
                            .await
                            .unwrap(),
                            _ => atomically(|tx| transfer(tx, &accounts, &mut random)).await.unwrap(),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(atomically(|tx| total(tx, &accounts)).await, Ok(0));
    });
}

/// A value that knows whether it was dropped.
#[derive(Clone)]
struct Alive(Arc<AtomicBool>, #[expect(dead_code, reason = "counts")] Arc<()>);

impl Alive {
    fn new(all: &Arc<()>) -> Alive {
        Alive(Arc::new(AtomicBool::new(true)), all.clone())
    }
}

#[test]
fn values_that_are_read_are_alive_and_all_are_dropped() {
    in_a_process_of_its_own("values_that_are_read_are_alive_and_all_are_dropped", || {
        watched(|| {
            let all = Arc::new(());
            let vars: Arc<[TVar<Alive>]> = (0..4).map(|_| TVar::new(Alive::new(&all))).collect();
            let threads: Vec<_> = (0..3)
                .map(|seed| {
                    let (vars, all, mut random) = (vars.clone(), all.clone(), Random::new(seed));
                    std::thread::spawn(move || {
                        for _ in 0..3000 {
                            let (one, other) = (random.below(4) as usize, random.below(4) as usize);
                            atomically_blocking(|tx| {
                                let (a, b) = (tx.get(&vars[one])?, tx.get(&vars[other])?);
                                tx.write(&vars[one], Alive::new(&all))?;
                                assert!(a.0.load(Relaxed) && b.0.load(Relaxed));
                                Ok(())
                            })
                            .unwrap();
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(Arc::strong_count(&all), 5, "no old value waits for a transaction");
            drop(vars);
            assert_eq!(Arc::strong_count(&all), 1);
        });
    });
}

#[test]
fn panics_and_cancels_leave_a_queue_whole() {
    in_a_process_of_its_own("panics_and_cancels_leave_a_queue_whole", || watched(push_and_pop));
}

fn push_and_pop() {
    runtime(3).block_on(async {
        let (queue, drops) = (TVar::new(Vec::new()), Drops::default());
        let (made, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = Vec::new();
        for seed in 0..8_u64 {
            let (queue, made, taken) = (queue.clone(), made.clone(), taken.clone());
            let drops = drops.clone();
            tasks.push(dapple::spawn(async move {
                let mut random = Random::new(seed);
                for _ in 0..300 {
                    let panics = random.below(10) == 0;
                    let pushed = std::panic::AssertUnwindSafe(async {
                        atomically(|tx| {
                            tx.modify(&queue, |queue: &mut Vec<Arc<_>>| queue.push(Arc::new(drops.guard())))?;
                            assert!(!panics, "as planned");
                            Ok(())
                        })
                        .await
                    });
                    use futures_util::FutureExt;
                    if pushed.catch_unwind().await.is_ok() {
                        made.fetch_add(1, Relaxed);
                    }
                    let limit = dapple::time::Duration::from_micros(random.below(50));
                    let pops = atomically(|tx| match tx.modify(&queue, Vec::pop)? {
                        Some(value) if Arc::strong_count(&value) > 0 => Ok(()),
                        _ => tx.retry(),
                    });
                    // Also one that popped a value just as its time was up.
                    let popped = timeout(limit, pops).await.or_else(|late| late.into_inner().ok_or(()));
                    if let Ok(Ok(())) = popped {
                        taken.fetch_add(1, Relaxed);
                    }
                    yield_now().await;
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let left = queue.load().len();
        assert_eq!(made.load(Relaxed) - taken.load(Relaxed), left);
        drop(queue);
    });
}

#[test]
fn a_long_transaction_among_short_ones_is_committed() {
    in_a_process_of_its_own("a_long_transaction_among_short_ones_is_committed", || {
        watched(|| {
            let vars: Arc<[TVar<u64>]> = (0..200).map(|_| TVar::new(0)).collect();
            let is_over = Arc::new(AtomicBool::new(false));
            let commits = Arc::new(AtomicUsize::new(0));
            let short: Vec<_> = (0..2)
                .map(|seed| {
                    let (vars, is_over, mut random) = (vars.clone(), is_over.clone(), Random::new(seed));
                    let commits = commits.clone();
                    std::thread::spawn(move || {
                        while !is_over.load(Relaxed) {
                            let at = random.below(200) as usize;
                            atomically_blocking(|tx| tx.modify(&vars[at], |value| *value += 1)).unwrap();
                            commits.fetch_add(1, Relaxed);
                        }
                    })
                })
                .collect();
            for _ in 0..3 {
                let (mut runs, mut before, mut meanwhile) = (0, 0, 0);
                atomically_blocking(|tx| {
                    runs += 1;
                    before = commits.load(Relaxed); // at the start of each run: only the run that is committed counts
                    let mut sum = 0;
                    for var in &*vars {
                        sum += tx.read(var)?;
                        std::thread::sleep(std::time::Duration::from_micros(10)); // among thousands of short ones
                    }
                    meanwhile = commits.load(Relaxed) - before; // here, while the others still stand back
                    tx.write(&vars[0], sum)
                })
                .unwrap();
                // Of each of the two threads, a commit may have been under way, and another one not yet counted.
                assert!(meanwhile <= 4, "{runs} runs, {meanwhile} commits");
            }
            is_over.store(true, Relaxed);
            for thread in short {
                thread.join().unwrap();
            }
        });
    });
}

#[test]
fn a_panic_of_a_transaction_that_runs_alone_lets_others_go_on() {
    in_a_process_of_its_own("a_panic_of_a_transaction_that_runs_alone_lets_others_go_on", || {
        watched(|| {
            let var = TVar::new(0);
            let mut runs = 0;
            let message = panic_of(|| {
                atomically_blocking(|tx| {
                    runs += 1;
                    let value = tx.read(&var)?;
                    assert!(runs < 20, "in the way too often");
                    // Aborts this run, unless it is alone: then it stands back.
                    let other = var.clone();
                    let write = move || dapple::stm::try_atomically(|tx| tx.write(&other, value + 1));
                    let written = std::thread::spawn(write).join().unwrap();
                    assert!(written.is_ok(), "this one runs alone");
                    tx.write(&var, value + 100)
                })
            });
            assert!(message.contains("this one runs alone"), "{message}");
            assert_eq!(runs, 17);
            assert_eq!(dapple::stm::try_atomically(|tx| tx.write(&var, 7)), Ok(()));
        });
    });
}

#[test]
fn a_call_after_the_commit_of_a_transaction_that_ran_alone_may_begin_others() {
    in_a_process_of_its_own(
        "a_call_after_the_commit_of_a_transaction_that_ran_alone_may_begin_others",
        || {
            watched(|| {
                /// Begins a transaction when it is dropped.
                struct Counts(TVar<u32>);
                impl Drop for Counts {
                    fn drop(&mut self) {
                        atomically_blocking(|tx| tx.modify(&self.0, |count| *count += 1)).unwrap();
                    }
                }
                let (var, old, count) = (TVar::new(0), TVar::new(None), TVar::new(0));
                let mut runs = 0;
                atomically_blocking(|tx| {
                    runs += 1;
                    tx.write(&old, Some(Counts(count.clone())))?; // dropped with each run but the last
                    let value = tx.read(&var)?;
                    let other = var.clone();
                    let write = move || dapple::stm::try_atomically(|tx| tx.write(&other, value + 1));
                    let is_alone = std::thread::spawn(write).join().unwrap().is_err();
                    assert_eq!(is_alone, runs > 16);
                    let count = count.clone();
                    tx.after_commit(move || {
                        atomically_blocking(|tx| tx.modify(&count, |count| *count += 100)).unwrap();
                    });
                    tx.write(&var, value + 1)
                })
                .unwrap();
                assert_eq!((runs, count.load()), (17, 116));
            });
        },
    );
}

#[test]
fn a_result_that_a_transaction_alone_does_not_keep_may_begin_others_when_it_is_dropped() {
    in_a_process_of_its_own(
        "a_result_that_a_transaction_alone_does_not_keep_may_begin_others_when_it_is_dropped",
        || {
            watched(|| {
                /// Begins a transaction when it is dropped.
                struct Counts(TVar<u32>);
                impl Drop for Counts {
                    fn drop(&mut self) {
                        atomically_blocking(|tx| tx.modify(&self.0, |count| *count += 1)).unwrap();
                    }
                }
                let (var, count) = (TVar::new(0), TVar::new(0));
                let mut runs = 0;
                let result = atomically_blocking(|tx| {
                    runs += 1;
                    let value = tx.read(&var)? + tx.read(&count)?;
                    let other = var.clone();
                    let write = move || dapple::stm::try_atomically(|tx| tx.write(&other, value + 1));
                    let is_alone = runs <= 17 && std::thread::spawn(write).join().unwrap().is_err();
                    assert_eq!(is_alone, runs == 17);
                    if is_alone {
                        let _swallowed = tx.retry::<()>();
                    }
                    let _swallowed = tx.write(&var, value + 2);
                    Ok(Counts(count.clone())) // of each run but the last it is dropped
                });
                assert_eq!((runs, count.load()), (18, 17));
                drop(result);
            });
        },
    );
}
