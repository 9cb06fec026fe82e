//! Random programs over states: takers that wait by `when`, writers that add, and cancels, by seed.
//!
//! A seed decides who takes how much of what, when each begins, and which are cancelled or dropped. In the end as much is
//! added as the takers that are left want: all of them end, or the simulation reports a deadlock. Nothing is taken twice,
//! and no closure runs more often than its states were written, and once.
//!
//! A watcher that is passed over is served after 2 ms by the alarm. So all have to end in half of that, in virtual time: a
//! wake-up that is passed on late by the alarm alone counts as lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use dapple::shared::when;
use dapple::sim::{self, Sim};
use dapple::time::{sleep, timeout};
use dapple::{Shared, spawn};

const STATES: usize = 3;
const TAKERS: u64 = 8;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A state, and how often it was written.
#[derive(Clone)]
struct Counted {
    state: Shared<u64>,
    writes: Arc<AtomicU64>,
}

async fn program(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 7);
    let states: Vec<_> =
        (0..STATES).map(|_| Counted { state: Shared::new(0), writes: Arc::default() }).collect();
    let (taken, mut added) = (Arc::new(AtomicU64::new(0)), 0);
    let mut takers = Vec::new();
    let mut wanted = [0; STATES];
    // First in each list is one whose condition never holds: it has to pass on each wake-up.
    let greedy: Vec<_> = states
        .iter()
        .map(|counted| {
            let state = counted.state.clone();
            spawn(async move { state.when(|value: &mut u64| (*value == u64::MAX).then_some(())).await })
        })
        .collect();
    for _ in 0..TAKERS {
        let (a, step) = (dice.below(STATES as u64) as usize, 1 + dice.below(STATES as u64 - 1) as usize);
        let b = (a + step) % STATES;
        let (amount, begins, only_reads) = (1 + dice.below(3), dice.below(40), dice.below(4) == 0);
        let leaves_after = (dice.below(3) == 0).then(|| dice.below(60));
        if leaves_after.is_none() && !only_reads {
            wanted[a] += amount;
        }
        let (first, second, taken) = (states[a].clone(), states[b].clone(), taken.clone());
        takers.push(spawn(async move {
            sleep(Duration::from_micros(begins)).await.unwrap();
            let writes = || first.writes.load(SeqCst) + second.writes.load(SeqCst);
            let (before, mut looks) = (writes(), 0);
            let mut look = |value: u64| {
                looks += 1;
                sim::work(Duration::from_nanos(300)); // others come between
                // A write is counted before it ends: three may be under way when this begins.
                assert!(looks <= writes() - before + 4, "a closure runs without a write");
                value >= amount
            };
            if only_reads {
                let reads =
                    when((first.state.reading(), second.state.reading()), |(a, _)| look(*a).then_some(()));
                let _late = timeout(Duration::from_micros(leaves_after.unwrap_or(70)), reads).await;
                return;
            }
            let takes = when((first.state.writing(), second.state.reading()), |(a, _)| {
                look(*a).then(|| {
                    first.writes.fetch_add(1, SeqCst);
                    *a -= amount;
                    taken.fetch_add(amount, SeqCst);
                })
            });
            match leaves_after {
                None => takes.await.unwrap(),
                Some(after) => drop(timeout(Duration::from_micros(after), takes).await),
            }
        }));
    }
    // All who stay are to be served: what those took who leave is made good until the end.
    let mut rounds = 0;
    loop {
        for (index, counted) in states.iter().enumerate() {
            let amount = dice.below(2) + u64::from(rounds > 20) * (wanted[index] + 3 * TAKERS);
            added += amount;
            counted.writes.fetch_add(1, SeqCst);
            counted.state.write(|value| *value += amount).await.unwrap();
        }
        rounds += 1;
        sleep(Duration::from_micros(dice.below(8))).await.unwrap();
        if rounds > 22 {
            break;
        }
    }
    // Nothing is written any more, but by takers.
    let all = async {
        for taker in takers {
            taker.await.unwrap();
        }
    };
    timeout(Duration::from_millis(1), all).await.expect("a taker sleeps while its condition holds");
    greedy.iter().for_each(|task| task.abort());
    let mut left = 0;
    for counted in &states {
        left += counted.state.read(|value| *value).await.unwrap();
    }
    assert_eq!(added, left + taken.load(SeqCst), "taken twice, or lost");
}

#[test]
fn no_taker_is_left_waiting_while_its_condition_holds() {
    for seed in 0..400 {
        Sim::new(seed).workers(1 + (seed % 3) as usize).run(program(seed));
    }
}
