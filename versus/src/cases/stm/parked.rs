//! `stm/parked`: a million detached tasks, each parked by `retry` on one of 1,000 variables.
//!
//! As in `memory`, each side is a process of its own, which reads the resident size while all tasks are parked. Then one
//! variable is written, and its thousand tasks must end, and no other closure be called once more: both are counted. In the end
//! the other variables are written, and all tasks must end.
//!
//! fast-stm cannot do this: it would need a million threads. Neither are GHC's threads counted: its collector keeps copies,
//! so resident bytes say more about it than about a thread.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::thread;
use std::time::{Duration, Instant};

use crate::cases::memory::{self, resident};
use crate::contest::{Contest, Entry, Failure, Metric, Role};
use crate::sides::{Dapple, Host, Side, Tokio};
use crate::stms::{AsyncStm, DappleStm, Stm};

pub(in crate::cases) const NAME: &str = "stm/parked";

/// Parked tasks, if no smaller number was asked for.
const TASKS: u64 = 1_000_000;

/// Variables on which they are parked.
const VARS: u64 = 1000;

/// How long a count has to stay the same until it is believed to.
const SETTLE: Duration = Duration::from_millis(300);

/// A count that is not reached by then never will be.
const DEADLINE: Duration = Duration::from_secs(600);

/// Calls of the closures of all tasks.
static LOOKS: AtomicU64 = AtomicU64::new(0);
/// Tasks that have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

const BYTES: &[Metric] = &[Metric { name: "", unit: "B", ratios: true, absolutes: false }];

pub(super) fn contest() -> Contest {
    Contest {
        name: NAME,
        about: "a million tasks, each parked by `retry` on one of 1,000 variables; resident bytes per task",
        metrics: BYTES,
        warm_up: false,
        at_most: 1,
        entries: vec![entry("dapple", Role::Ours), entry("async-stm", Role::Rival)],
    }
}

fn entry(side: &'static str, role: Role) -> Entry {
    let round = move |scale: crate::contest::Scale| {
        let tasks = scale.tasks.min(if scale.quick { TASKS / 20 } else { TASKS });
        Ok(vec![memory::in_child(side, NAME, tasks)?])
    };
    Entry { side, role, round: Box::new(round) }
}

/// Runs in the fresh process: measures and returns bytes per task.
pub(in crate::cases) fn child(side: &str, tasks: u64) -> Result<f64, Failure> {
    // As many for each variable.
    let tasks = tasks.next_multiple_of(VARS);
    let bytes = match side {
        "dapple" => park::<Dapple, DappleStm>(tasks),
        "async-stm" => park::<Tokio, AsyncStm>(tasks),
        _ => return Err(format!("{NAME} has no side {side:?}")),
    };
    Ok(bytes as f64 / tasks as f64)
}

/// Parks the tasks, wakes some and then all, and returns the bytes that they held.
fn park<H: Host, M: Stm<Var<bool>: Send + Sync>>(tasks: u64) -> usize {
    let vars: &'static [M::Var<bool>] = Vec::leak((0..VARS).map(|_| M::var(false)).collect());
    let mut host = H::start();
    let before = resident();
    host.run(move |side| async move {
        for task in 0..tasks {
            let var = &vars[(task % VARS) as usize];
            H::Side::detach(side.spawn(wait_for::<M>(var)));
        }
    });
    wait_until("all closures have been called", || LOOKS.load(Acquire) >= tasks);
    let looks = settled(&LOOKS);
    let grown = resident().saturating_sub(before);
    assert_eq!(ENDED.load(Acquire), 0, "a task has ended early");

    host.run(move |_| open::<M>(&vars[7..8]));
    let woken = tasks / VARS;
    wait_until("the tasks of one variable have ended", || ENDED.load(Acquire) >= woken);
    assert_eq!(settled(&LOOKS), looks + woken, "a commit woke other tasks than those that wait for it");
    assert_eq!(ENDED.load(Acquire), woken, "a task has ended early");

    host.run(move |_| open::<M>(vars));
    wait_until("all tasks have ended", || ENDED.load(Acquire) == tasks);
    grown
}

async fn wait_for<M: Stm<Var<bool>: Send + Sync>>(var: &'static M::Var<bool>) {
    M::atomically(move |transaction| {
        LOOKS.fetch_add(1, AcqRel);
        match M::with(transaction, var, |is_open| *is_open)? {
            true => Ok(()),
            false => M::retry(transaction),
        }
    })
    .await;
    ENDED.fetch_add(1, AcqRel);
}

async fn open<M: Stm<Var<bool>: Send + Sync>>(vars: &[M::Var<bool>]) {
    for var in vars {
        M::atomically(|transaction| M::write(transaction, var, true)).await;
    }
}

/// The count, once it has stayed the same for a while.
fn settled(count: &AtomicU64) -> u64 {
    loop {
        let before = count.load(Acquire);
        thread::sleep(SETTLE);
        if count.load(Acquire) == before {
            return before;
        }
    }
}

/// Ends the program if it never holds.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        let counts = || format!("{} tasks ended, {} looks", ENDED.load(Acquire), LOOKS.load(Acquire));
        assert!(begin.elapsed() < DEADLINE, "not in time: {what}; {}", counts());
        thread::sleep(Duration::from_millis(10));
    }
}
