//! Random programs of transactions, in simulations and on real workers, whose histories are checked.
//!
//! A seed decides what each task does: transactions that read, write, wait for conditions, choose by `or_else`, are refused
//! by their closure, or swallow the errors of their operations; and which of them are cancelled, aborted, or have a time
//! limit. They pause before each operation. When all that is left is parked, the variables are as the parked tasks have read
//! them. Then all conditions are made to hold, until all tasks have ended.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use dapple::stm::{Abort, Transaction, atomically, atomically_or};
use dapple::time::{Duration, sleep, timeout};
use dapple::{Runtime, sim, spawn};

use crate::common::in_a_process_of_its_own;
use crate::history::{CLASSES, History, Recorder};

const VARS: u64 = 4;
const TASKS: usize = 7;
const TRANSACTIONS: usize = 4;
/// The task that makes all conditions hold.
const MAIN: usize = TASKS;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn var(&mut self) -> usize {
        self.below(VARS) as usize
    }
}

enum Step {
    Read(usize),
    Write(usize, u64),
    Change(usize, u64),
    /// Waits until the variable is of this class, or above.
    Require(usize, u64),
    Either(Vec<Step>, Vec<Step>),
    /// Errors are swallowed.
    Careless(Vec<Step>),
}

/// A transaction of a task.
struct Plan {
    steps: Vec<Step>,
    is_refused: bool,
    /// In microseconds.
    pause: u64,
    limit: Option<u64>,
}

/// The steps of a transaction, or of a part of it.
fn steps(dice: &mut Dice, depth: u32) -> Vec<Step> {
    let kind = dice.below(8);
    let count = 1 + dice.below(4);
    let mut steps = Vec::new();
    for _ in 0..count {
        let (var, class) = (dice.var(), dice.below(CLASSES));
        steps.push(match dice.below(10) {
            _ if kind == 0 => Step::Read(var), // only reads
            0..=2 => Step::Read(var),
            3 | 4 => Step::Write(var, class),
            5 | 6 => Step::Change(var, class),
            7 => Step::Require(var, class),
            8 if depth < 2 => Step::Either(self::steps(dice, depth + 1), self::steps(dice, depth + 1)),
            _ if depth < 2 => Step::Careless(self::steps(dice, depth + 1)),
            _ => Step::Require(var, class),
        });
    }
    steps
}

fn plan(dice: &mut Dice) -> Plan {
    Plan {
        steps: steps(dice, 0),
        is_refused: dice.below(12) == 0,
        pause: dice.below(12).saturating_sub(6),
        limit: (dice.below(4) == 0).then(|| dice.below(30)),
    }
}

fn do_steps(
    recorder: &RefCell<&mut Recorder<'_>>,
    tx: &mut Transaction<'_>,
    steps: &[Step],
) -> Result<(), Abort> {
    for step in steps {
        match step {
            Step::Read(var) => recorder.borrow_mut().read(tx, *var).map(drop)?,
            Step::Write(var, class) => recorder.borrow_mut().write(tx, *var, *class)?,
            Step::Change(var, class) => recorder.borrow_mut().change(tx, *var, *class)?,
            Step::Require(var, class) => recorder.borrow_mut().require(tx, *var, *class)?,
            Step::Either(first, second) => {
                let before = recorder.borrow().branch();
                tx.or_else(
                    |tx| do_steps(recorder, tx, first),
                    |tx| {
                        recorder.borrow_mut().undo(before);
                        do_steps(recorder, tx, second)
                    },
                )?;
            }
            Step::Careless(steps) => {
                for step in steps {
                    let _swallowed = do_steps(recorder, tx, std::slice::from_ref(step));
                }
            }
        }
    }
    Ok(())
}

/// Why a closure has failed. The transaction itself knows if it was aborted.
#[derive(Debug)]
struct Refused;

impl From<Abort> for Refused {
    fn from(_: Abort) -> Refused {
        Refused
    }
}

/// A task that has left, however, is not parked.
struct Leaving<'a>(&'a History, usize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.has_left(self.1);
    }
}

/// Counts the tasks that have ended, however.
struct Ending(Arc<AtomicUsize>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

async fn task(history: Arc<History>, number: usize, plans: Vec<Plan>) {
    for (transaction, plan) in plans.into_iter().enumerate() {
        if plan.pause > 0 {
            let _cancelled = sleep(Duration::from_micros(plan.pause)).await;
        }
        let _leaving = Leaving(&history, number);
        let runs = atomically_or(|tx| {
            history.record((number, transaction), tx, |recorder, tx| {
                do_steps(&RefCell::new(recorder), tx, &plan.steps)?;
                if plan.is_refused { Err(Refused) } else { Ok(()) }
            })
        });
        // Cancelled, late, refused or committed: the history says the same.
        match plan.limit {
            None => drop(runs.await),
            Some(limit) => drop(timeout(Duration::from_micros(limit), runs).await),
        }
    }
}

/// Makes all conditions hold.
async fn make_all_hold(history: &Arc<History>, round: usize) {
    let write = atomically(|tx| {
        history.record((MAIN, round), tx, |recorder, tx| {
            (0..history.vars()).try_for_each(|var| recorder.write(tx, var, CLASSES - 1))
        })
    });
    write.await.unwrap();
}

async fn program(seed: u64) -> Arc<History> {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 7);
    let history = History::new(VARS as usize);
    let ended = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let plans = (0..TRANSACTIONS).map(|_| plan(&mut dice)).collect();
            let (history, ending) = (history.clone(), Ending(ended.clone()));
            spawn(async move {
                let _ending = ending;
                task(history, number, plans).await;
            })
        })
        .collect();
    sleep(Duration::from_micros(dice.below(40))).await.unwrap();
    tasks[0].abort();
    sleep(Duration::from_micros(dice.below(10))).await.unwrap();
    tasks[1].cancel();
    let begun = Instant::now();
    for round in 0.. {
        sleep(Duration::from_millis(1)).await.unwrap();
        if sim::is_simulated() {
            history.check_rest();
        }
        if ended.load(SeqCst) == TASKS {
            break;
        }
        let is_late = if sim::is_simulated() { round > 200 } else { begun.elapsed().as_secs() > 60 };
        assert!(!is_late, "a task sleeps while its condition holds");
        make_all_hold(&history, round).await;
    }
    for task in tasks {
        if let Err(error) = task.await {
            assert!(!error.is_panic(), "{error}");
        }
    }
    history.check();
    history
}

#[dapple::test(sim, seeds = 2_000, workers = 2)]
async fn one_order_of_commits_explains_a_history_of_two_workers() {
    program(sim::random()).await;
}

#[dapple::test(sim, seeds = 2_000, workers = 4)]
async fn one_order_of_commits_explains_a_history_of_four_workers() {
    program(sim::random()).await;
}

#[test]
fn one_order_of_commits_explains_a_history_of_real_workers() {
    in_a_process_of_its_own("one_order_of_commits_explains_a_history_of_real_workers", run_programs);
}

fn run_programs() {
    let runtime = Runtime::builder().workers(4).build().unwrap();
    let mut runs = 0;
    for seed in 0..if cfg!(miri) { 1 } else { 40 } {
        runs += runtime.block_on(program(seed)).runs();
    }
    assert!(runs > 40 || cfg!(miri));
}
