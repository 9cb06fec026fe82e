//! Transactions in simulations: runs of one seed are the same, bit for bit, whatever else the process does.

use std::sync::{Arc, Mutex};

use dapple::sim::{self, Sim};
use dapple::stm::{TVar, atomically, atomically_blocking};
use dapple::time::Duration;

use crate::common::Random;

/// Notes when it is dropped.
struct NotesDrop(u64, Arc<Mutex<Vec<u64>>>);

impl Drop for NotesDrop {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// A program with conflicts, waits, and old values whose destructors are noted. Returns the trace and the notes.
fn run(seed: u64) -> (String, Vec<u64>) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let ended = notes.clone();
    let ((), trace) = Sim::new(seed).workers(3).run_traced(async move {
        let vars: Arc<[TVar<NotesDrop>]> = (0..4).map(|at| TVar::new(NotesDrop(at, notes.clone()))).collect();
        let turns = TVar::new(0_u64);
        let tasks: Vec<_> = (0..4_u64)
            .map(|task| {
                let (vars, turns, notes) = (vars.clone(), turns.clone(), notes.clone());
                dapple::spawn(async move {
                    let mut random = Random::new(task);
                    for round in 0..6 {
                        let (one, other) = (random.below(4) as usize, random.below(4) as usize);
                        atomically(|tx| {
                            let turn = tx.read(&turns)?;
                            tx.check(turn + 3 > round)?;
                            let number = tx.with(&vars[one], |value| value.0)?;
                            sim::work(Duration::ZERO);
                            tx.write(&vars[other], NotesDrop(number + 100 * task + round, notes.clone()))?;
                            tx.write(&turns, turn + 1)
                        })
                        .await
                        .unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let notes = ended.lock().unwrap().clone();
    (trace.to_string(), notes)
}

#[test]
fn runs_of_one_seed_are_the_same_beside_other_transactions() {
    let alone: Vec<_> = (0..6).map(run).collect();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let others: Vec<_> = (0..2)
        .map(|_| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                let var = TVar::new(String::new());
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    atomically_blocking(|tx| tx.modify(&var, |text| *text = text.len().to_string())).unwrap();
                }
            })
        })
        .collect();
    let beside: Vec<_> = (0..6).map(run).collect();
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    for (seed, (alone, beside)) in alone.iter().zip(&beside).enumerate() {
        assert!(alone == beside, "seed {seed}: other transactions of the process have changed the run");
    }
    assert_ne!(alone[0].0, alone[1].0, "seeds differ");
}

#[test]
fn a_variable_of_several_worlds_is_safe() {
    let var = TVar::new(Arc::new(1));
    let outside = std::thread::spawn({
        let var = var.clone();
        move || {
            for _ in 0..2000 {
                atomically_blocking(|tx| tx.modify(&var, |value| *value = Arc::new(**value + 1))).unwrap();
            }
        }
    });
    for seed in 0..5 {
        let var = var.clone();
        Sim::new(seed).run(async move {
            for _ in 0..20 {
                atomically(|tx| {
                    let value = tx.get(&var)?;
                    sim::work(Duration::ZERO);
                    assert!(**value > 0);
                    tx.write(&var, Arc::new(**value + 1))
                })
                .await
                .unwrap();
            }
        });
    }
    outside.join().unwrap();
    assert_eq!(*var.load(), 2101);
}
