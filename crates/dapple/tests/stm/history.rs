//! Records what transactions read and write, and checks that one order of all commits explains it.
//!
//! Each value that is written is written once, so a value that is read tells its version. The stamp of a commit
//! (`last_stamp`) is its place in the order. The check is by the recorded history alone:
//!
//! * **Serial**: a transaction that was committed has read what was there just before its place in the order.
//! * **Opaque**: each run of a closure, also one that was aborted, has read values that were there at one moment.
//! * **Real time**: a transaction that ended before another began comes before it, and no run reads what was replaced before
//!   it began.
//! * **Woken by a commit**: a closure that has called `retry` runs again only after a commit to a variable that it has read.
//! * **Poisoned**: a run that swallowed an abort is not committed.
//! * **At rest** (in simulations): the variables that a parked task has read are as it has read them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple::sim;
use dapple::stm::{Abort, TVar, Transaction, last_stamp};
use dapple::time::Duration;

/// Values have their class in the lowest bits. Conditions are about classes.
pub(crate) const CLASSES: u64 = 4;

/// A variable: a number in place, or a value behind an `Arc`.
pub(crate) enum Var {
    Number(TVar<u64>),
    Boxed(TVar<Box<u64>>),
}

impl Var {
    fn load(&self) -> u64 {
        match self {
            Var::Number(var) => var.load(),
            Var::Boxed(var) => *var.load(),
        }
    }
}

/// How a run of a closure has ended, but for the commit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
enum Ended {
    #[default]
    Not,
    /// It is committed, or was aborted in the commit.
    Done,
    Retried,
    /// Aborted, or refused by the closure.
    Undone,
}

/// One run of a closure. Places in real time are those of `History::tick`.
#[derive(Clone, Debug, Default)]
struct Run {
    task: usize,
    transaction: usize,
    begun: u64,
    ended: u64,
    /// Variables and the values that were read; not those that the run had written itself.
    reads: Vec<(usize, u64)>,
    writes: BTreeMap<usize, u64>,
    end: Ended,
    has_swallowed: bool,
    stamp: Option<u64>,
}

/// The variables of a program, and all that its transactions did.
pub(crate) struct History {
    vars: Vec<Var>,
    real_time: AtomicU64,
    values: AtomicU64,
    runs: Mutex<Vec<Run>>,
    /// By task, the run after which it was parked.
    parked: Mutex<BTreeMap<usize, usize>>,
}

/// The record of one run of a closure.
pub(crate) struct Recorder<'a> {
    history: &'a History,
    run: Run,
    /// An operation has failed.
    is_poisoned: bool,
    has_retried: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Others come between.
fn pause() {
    if sim::is_simulated() {
        sim::work(Duration::ZERO);
    } else {
        std::thread::yield_now();
    }
}

impl History {
    pub(crate) fn new(vars: usize) -> Arc<History> {
        let var = |value: usize| match value % 2 {
            0 => Var::Number(TVar::new(initial(value))),
            _ => Var::Boxed(TVar::new(Box::new(initial(value)))),
        };
        Arc::new(History {
            vars: (0..vars).map(var).collect(),
            real_time: AtomicU64::new(0),
            values: AtomicU64::new(vars as u64),
            runs: Mutex::default(),
            parked: Mutex::default(),
        })
    }

    fn tick(&self) -> u64 {
        self.real_time.fetch_add(1, SeqCst)
    }

    /// How many runs of closures there were.
    pub(crate) fn runs(&self) -> usize {
        locked(&self.runs).len()
    }

    pub(crate) fn vars(&self) -> usize {
        self.vars.len()
    }

    /// Records a run of a closure, which is `body`.
    pub(crate) fn record<E: From<Abort>>(
        self: &Arc<History>,
        (task, transaction): (usize, usize),
        tx: &mut Transaction<'_>,
        body: impl FnOnce(&mut Recorder<'_>, &mut Transaction<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        locked(&self.parked).remove(&task);
        let begun = Run { task, transaction, begun: self.tick(), ..Run::default() };
        let at = {
            let mut runs = locked(&self.runs);
            runs.push(begun.clone());
            runs.len() - 1
        };
        let history = self.clone();
        tx.after_commit(move || {
            let stamp = last_stamp();
            let ended = history.tick();
            let run = &mut locked(&history.runs)[at];
            (run.stamp, run.ended) = (Some(stamp), ended);
        });
        let mut recorder = Recorder { history: self, run: begun, is_poisoned: false, has_retried: false };
        let result = body(&mut recorder, tx);
        let Recorder { mut run, has_retried, is_poisoned, .. } = recorder;
        run.ended = self.tick();
        run.has_swallowed = is_poisoned && result.is_ok();
        run.end = match result {
            _ if has_retried => Ended::Retried,
            Ok(()) if !is_poisoned => Ended::Done,
            _ => Ended::Undone,
        };
        if run.end == Ended::Retried {
            locked(&self.parked).insert(task, at);
        }
        locked(&self.runs)[at] = run;
        result
    }

    /// The task waits for a transaction no more.
    pub(crate) fn has_left(&self, task: usize) {
        locked(&self.parked).remove(&task);
    }

    /// Nothing runs now: the variables are as those who are parked have read them.
    pub(crate) fn check_rest(&self) {
        let (parked, runs) = (locked(&self.parked).clone(), locked(&self.runs).clone());
        for (task, at) in parked {
            for &(var, value) in &runs[at].reads {
                let now = self.vars[var].load();
                assert_eq!(now, value, "task {task} is parked, though {var} was written: {:?}", runs[at]);
            }
        }
    }

    /// Checks all that was recorded. See the head of this file.
    pub(crate) fn check(&self) {
        let runs = locked(&self.runs).clone();
        let versions = Versions::of(&runs, self.vars.len());
        for run in &runs {
            assert_ne!(run.end, Ended::Not, "a closure has not ended: {run:?}");
            versions.check_reads(run);
        }
        check_real_time(&runs);
        let mut last: BTreeMap<(usize, usize), &Run> = BTreeMap::new();
        for run in &runs {
            if let Some(before) = last.insert((run.task, run.transaction), run)
                && before.end == Ended::Retried
            {
                assert!(versions.has_reason(before, run), "woken without a commit: {before:?}, then {run:?}");
            }
        }
    }
}

fn initial(var: usize) -> u64 {
    var as u64 * CLASSES
}

/// The values of each variable, and when it had them.
struct Versions(Vec<Vec<Version>>);

struct Version {
    value: u64,
    stamp: u64,
    /// When the transaction that wrote it began, and ended, in real time.
    begun: u64,
    ended: u64,
}

impl Versions {
    fn of(runs: &[Run], vars: usize) -> Versions {
        let first = |var| vec![Version { value: initial(var), stamp: 0, begun: 0, ended: 0 }];
        let mut versions: Vec<Vec<Version>> = (0..vars).map(first).collect();
        let mut writers = BTreeMap::new();
        for run in runs {
            let Some(stamp) = run.stamp else { continue };
            assert!(!run.has_swallowed && run.end == Ended::Done, "committed after an abort: {run:?}");
            if !run.writes.is_empty()
                && let Some(other) = writers.insert(stamp, run)
            {
                panic!("two commits at one time: {other:?} and {run:?}");
            }
        }
        for (&stamp, run) in &writers {
            for (&var, &value) in &run.writes {
                versions[var].push(Version { value, stamp, begun: run.begun, ended: run.ended });
            }
        }
        Versions(versions)
    }

    /// Which version of a variable has this value.
    fn position(&self, var: usize, value: u64) -> Option<usize> {
        self.0[var].iter().position(|version| version.value == value)
    }

    fn check_reads(&self, run: &Run) {
        // The values were all there at the times from `from` to before `until`.
        let (mut from, mut until) = (0, u64::MAX);
        for &(var, value) in &run.reads {
            let Some(at) = self.position(var, value) else {
                panic!("{value} of {var} was not committed: {run:?}")
            };
            from = from.max(self.0[var][at].stamp);
            if let Some(next) = self.0[var].get(at + 1) {
                until = until.min(next.stamp);
                assert!(next.ended > run.begun, "{value} of {var} was replaced before: {run:?}");
            }
        }
        assert!(from < until, "the values that were read were never there together: {run:?}");
        match run.stamp {
            Some(stamp) if run.writes.is_empty() => {
                assert!(from <= stamp && stamp < until, "not as of {stamp}: {run:?}");
            }
            Some(stamp) => assert!(from < stamp && stamp <= until, "not as before {stamp}: {run:?}"),
            None => {}
        }
    }

    /// Whether a variable that `before` has read was written by a transaction that began before `after`.
    fn has_reason(&self, before: &Run, after: &Run) -> bool {
        before.reads.iter().any(|&(var, value)| {
            let next = self.position(var, value).and_then(|at| self.0[var].get(at + 1));
            next.is_some_and(|next| next.begun < after.begun)
        })
    }
}

/// A transaction that ended before another began has an earlier stamp. Those that only read stand behind the commit that
/// they have seen.
fn check_real_time(runs: &[Run]) {
    let place = |run: &Run| run.stamp.map(|stamp| 2 * stamp + u64::from(run.writes.is_empty()));
    let mut by_begin: Vec<&Run> = runs.iter().filter(|run| run.stamp.is_some()).collect();
    let mut by_end = by_begin.clone();
    by_begin.sort_unstable_by_key(|run| run.begun);
    by_end.sort_unstable_by_key(|run| run.ended);
    let (mut ended, mut latest) = (0, None);
    for run in by_begin {
        while by_end[ended].ended < run.begun {
            latest = latest.max(place(by_end[ended]));
            ended += 1;
        }
        assert!(latest <= place(run), "committed before one that had ended: {run:?}, {latest:?}");
    }
}

impl Recorder<'_> {
    fn note<T>(&mut self, result: Result<T, Abort>) -> Result<T, Abort> {
        self.is_poisoned |= result.is_err();
        result
    }

    pub(crate) fn read(&mut self, tx: &mut Transaction<'_>, var: usize) -> Result<u64, Abort> {
        pause();
        let read = match &self.history.vars[var] {
            Var::Number(var) => tx.read(var),
            Var::Boxed(var) => tx.with(var, |value| **value),
        };
        let value = self.note(read)?;
        self.saw(var, value);
        Ok(value)
    }

    fn saw(&mut self, var: usize, value: u64) {
        assert!(!self.is_poisoned, "an operation succeeds after an abort: {:?}", self.run);
        match self.run.writes.get(&var) {
            Some(&own) => assert_eq!(own, value, "not what it has written: {:?}", self.run),
            None => self.run.reads.push((var, value)),
        }
    }

    /// A value that was never written.
    fn fresh(&self, class: u64) -> u64 {
        self.history.values.fetch_add(1, SeqCst) * CLASSES + class
    }

    pub(crate) fn write(&mut self, tx: &mut Transaction<'_>, var: usize, class: u64) -> Result<(), Abort> {
        pause();
        let value = self.fresh(class);
        let written = match &self.history.vars[var] {
            Var::Number(var) => tx.write(var, value),
            Var::Boxed(var) => tx.write(var, Box::new(value)),
        };
        self.note(written)?;
        assert!(!self.is_poisoned, "an operation succeeds after an abort: {:?}", self.run);
        self.run.writes.insert(var, value);
        Ok(())
    }

    /// Reads and writes a variable in one operation.
    pub(crate) fn change(&mut self, tx: &mut Transaction<'_>, var: usize, class: u64) -> Result<(), Abort> {
        pause();
        let value = self.fresh(class);
        let changed = match &self.history.vars[var] {
            Var::Number(var) => tx.modify(var, |at| std::mem::replace(at, value)),
            Var::Boxed(var) => tx.modify(var, |at| std::mem::replace(&mut **at, value)),
        };
        let old = self.note(changed)?;
        self.saw(var, old);
        self.run.writes.insert(var, value);
        Ok(())
    }

    /// Waits until a variable is of this class, or above. Not for one that it has written: no other can change that.
    pub(crate) fn require(&mut self, tx: &mut Transaction<'_>, var: usize, class: u64) -> Result<(), Abort> {
        let holds = self.read(tx, var)? % CLASSES >= class || self.run.writes.contains_key(&var);
        self.has_retried |= !holds;
        let checked = tx.check(holds);
        self.note(checked)
    }

    /// Begins a branch of `or_else`: what was written, to undo it.
    pub(crate) fn branch(&self) -> BTreeMap<usize, u64> {
        self.run.writes.clone()
    }

    /// The first branch has called `retry`, and is undone.
    pub(crate) fn undo(&mut self, writes: BTreeMap<usize, u64>) {
        assert!(
            self.has_retried,
            "the second branch runs, though the first has not called retry: {:?}",
            self.run
        );
        self.run.writes = writes;
        (self.has_retried, self.is_poisoned) = (false, false);
    }
}
