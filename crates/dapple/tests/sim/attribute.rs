//! `#[dapple::test(sim)]`: a test over many seeds, each in a simulation of its own.

use std::time::Duration;

use crate::children::{child, is_child, shell};
use dapple::sim;
use dapple::time::{Instant, sleep};

#[dapple::test(sim)]
async fn a_body_runs_in_a_simulation() {
    assert!(sim::is_simulated());
    let begun = Instant::now();
    sleep(Duration::from_secs(3600)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(3600));
}

/// Checks that there are `workers` workers: this number of tasks can work at a time, and no more.
async fn assert_workers(workers: u32) {
    for (tasks, seconds) in [(workers, 1.0), (workers + 1, 2.0)] {
        let begun = Instant::now();
        let work = || async { sim::work(Duration::from_secs(1)) };
        let tasks: Vec<_> = (0..tasks).map(|_| dapple::spawn(work())).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let took = begun.elapsed().as_secs_f64();
        assert!(took >= seconds && took < seconds + 0.5, "{took}");
    }
}

#[dapple::test(sim)]
async fn a_simulation_has_four_workers() {
    assert_workers(4).await;
}

#[dapple::test(sim, workers = 8)]
async fn a_simulation_has_the_workers_that_are_asked_for() {
    assert_workers(8).await;
}

#[dapple::test(seeds = 3, workers = 2, sim)]
async fn options_come_in_any_order() {
    eprintln!("rolled {}", sim::random());
    assert_workers(2).await;
}

#[dapple::test(sim)]
async fn has_the_seeds_that_are_usual() {
    eprintln!("rolled {}", sim::random());
}

#[dapple::test(sim, seeds = 1_0)]
async fn returns_a_result() -> Result<(), std::num::ParseIntError> {
    let number: u64 = "17".parse()?;
    assert_eq!(dapple::spawn(async move { number }).await.unwrap(), 17);
    Ok(())
}

#[dapple::test(sim)]
#[should_panic(expected = "on purpose")]
async fn panics_as_its_body_does() {
    panic!("on purpose");
}

#[dapple::test(sim)]
#[should_panic(expected = "deadlock")]
async fn a_deadlock_fails() {
    std::future::pending().await
}

// The tests below run in child processes.

mod inner {
    use super::*;

    #[dapple::test(sim, seeds = 1_000)]
    pub(super) async fn fails_by_chance() {
        let roll = sim::random();
        eprintln!("rolled {roll}");
        assert!(!is_child() || !roll.is_multiple_of(20), "it is a multiple");
    }
}

#[dapple::test(sim)]
async fn returns_an_error() -> Result<(), &'static str> {
    if is_child() { Err("sorry") } else { Ok(()) }
}

#[test]
fn an_error_fails() {
    let ended = child("returns_an_error", &[]);
    let why = "dapple: the simulation failed with seed 0: returned an error: \"sorry\"";
    assert!(!ended.is_success && ended.lines(why).len() == 1, "{ended:#?}");
}

#[test]
fn a_body_is_run_once_for_each_seed() {
    let usual = child("has_the_seeds_that_are_usual", &[]);
    let rolls = usual.lines("rolled ");
    assert!(usual.is_success && rolls.len() == 100, "{usual:#?}");
    assert!(rolls.iter().all(|roll| rolls.iter().filter(|other| *other == roll).count() == 1), "{rolls:?}");
    let some = child("options_come_in_any_order", &[]);
    assert!(some.is_success && some.lines("rolled ").len() == 3, "{some:#?}");
}

#[test]
fn the_environment_sets_how_many_seeds() {
    for test in ["has_the_seeds_that_are_usual", "options_come_in_any_order"] {
        let ended = child(test, &[("DAPPLE_SEEDS", "7")]);
        assert!(ended.is_success && ended.lines("rolled ").len() == 7, "{ended:#?}");
    }
    for wrong in ["0", "many"] {
        let ended = child("has_the_seeds_that_are_usual", &[("DAPPLE_SEEDS", wrong)]);
        assert!(!ended.is_success && ended.lines("rolled ").is_empty(), "{ended:#?}");
        assert!(ended.stderr.contains(&format!("DAPPLE_SEEDS={wrong}: it must be ")), "{ended:#?}");
    }
}

#[test]
fn the_environment_sets_the_seed() {
    let all = child("has_the_seeds_that_are_usual", &[]);
    let one = child("has_the_seeds_that_are_usual", &[("DAPPLE_SEED", "63"), ("DAPPLE_SEEDS", "7")]);
    assert_eq!(one.lines("rolled "), [all.lines("rolled ")[63]], "{one:#?}");
}

#[test]
fn a_test_fails_at_the_first_seed_that_does_and_can_be_run_again() {
    let first = child("inner::fails_by_chance", &[]);
    let rolls = first.lines("rolled ");
    let seed = rolls.len() - 1;
    let is_bad = |roll: &&str| roll.parse::<u64>().unwrap().is_multiple_of(20);
    assert_eq!(rolls.iter().position(is_bad), Some(seed), "{first:#?}");
    assert!(!first.is_success, "{first:#?}");
    assert!(
        first.run_again().ends_with(" --exact --nocapture attribute::inner::fails_by_chance"),
        "{first:#?}"
    );

    let second = shell(first.run_again());
    assert!(!second.is_success, "{second:#?}");
    assert_eq!(second.lines("rolled "), [rolls[seed]]);
    let why = format!("dapple: the simulation failed with seed {seed}: panicked: it is a multiple");
    assert_eq!((first.lines(&why).len(), second.lines(&why).len()), (1, 1), "{first:#?} {second:#?}");
}

#[test]
fn runs_on_a_thread_of_another_name() {
    if is_child() {
        let other = std::thread::Builder::new().name("another".to_owned());
        other.spawn(inner::fails_by_chance).unwrap().join().unwrap();
    }
}

#[test]
fn a_test_knows_its_name_on_any_thread() {
    let ended = child("runs_on_a_thread_of_another_name", &[]);
    assert!(
        ended.run_again().ends_with(" --exact --nocapture attribute::inner::fails_by_chance"),
        "{ended:#?}"
    );
}
