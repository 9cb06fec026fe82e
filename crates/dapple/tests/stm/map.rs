//! `TMap`: like a hash map of the standard library, also while it grows, and in many transactions at the same time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use dapple::stm::{TMap, TryError, atomically, atomically_blocking, try_atomically};
use dapple::time::{Duration, sleep};
use dapple::{sim, spawn};

use crate::common::{in_a_process_of_its_own, runtime};

/// A hasher with few different hashes, so that keys collide: for each key below 8, one.
#[derive(Default)]
struct FewHashes(u64);

impl Hasher for FewHashes {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        // They differ in the first, the second, or the last four bits.
        self.0 = [0, 1, 0x10, 0x20, 1 << 60, 2 << 60, 0x1000_0000, 3][(key % 8) as usize];
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A hasher whose hash is the key.
#[derive(Default)]
struct SameAsKey(u64);

impl Hasher for SameAsKey {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Does the same with a map and with one of the standard library, and compares all that they return.
fn compare<S: std::hash::BuildHasher>(map: &TMap<u64, u64, S>, keys: u64, steps: u64) {
    let (mut model, mut dice) = (HashMap::new(), 7_u64);
    let mut roll = |end: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % end
    };
    for step in 0..steps {
        let (key, value) = (roll(keys), roll(1000));
        let (got, expected) = match roll(8) {
            0..=2 => (atomically_blocking(|tx| map.insert(tx, key, value)), model.insert(key, value)),
            3 | 4 => (atomically_blocking(|tx| map.remove(tx, &key)), model.remove(&key)),
            5 => (atomically_blocking(|tx| map.get(tx, &key)), model.get(&key).copied()),
            6 => {
                let changed = atomically_blocking(|tx| {
                    map.modify(tx, &key, |at| {
                        *at += 1;
                        *at
                    })
                });
                let expected = model.get_mut(&key).map(|at| {
                    *at += 1;
                    *at
                });
                (changed, expected)
            }
            _ => {
                let with = atomically_blocking(|tx| map.with(tx, &key, |value| *value));
                assert_eq!(
                    atomically_blocking(|tx| map.contains_key(tx, &key)),
                    Ok(model.contains_key(&key))
                );
                (with, model.get(&key).copied())
            }
        };
        assert_eq!(got, Ok(expected), "step {step}, key {key}");
        if step % 64 == 0 || step + 1 == steps {
            let all = atomically_blocking(|tx| {
                let mut all = HashMap::new();
                map.for_each(tx, |key, value| assert_eq!(all.insert(*key, *value), None))?;
                assert_eq!((map.len(tx)?, map.is_empty(tx)?), (model.len(), model.is_empty()));
                Ok(all)
            })
            .unwrap();
            assert_eq!(all, model);
        }
    }
    atomically_blocking(|tx| map.clear(tx)).unwrap();
    assert_eq!(atomically_blocking(|tx| Ok((map.len(tx)?, map.is_empty(tx)?))), Ok((0, true)));
}

#[test]
fn it_does_the_same_as_a_map_of_the_standard_library() {
    let steps = if cfg!(miri) { 200 } else { 4_000 };
    compare(&TMap::new(), 500, steps);
}

#[test]
fn keys_with_the_same_hash_are_told_apart() {
    let steps = if cfg!(miri) { 200 } else { 2_000 };
    compare(&TMap::with_hasher(BuildHasherDefault::<FewHashes>::default()), 40, steps);
}

/// Runs a transaction on another thread, while this one is in another transaction.
fn meanwhile(map: &TMap<u64, u64, BuildHasherDefault<SameAsKey>>, key: u64, value: Option<u64>) {
    let map = map.clone();
    let change = move || {
        try_atomically(|tx| match value {
            Some(value) => map.insert(tx, key, value),
            None => map.remove(tx, &key),
        })
    };
    std::thread::spawn(change).join().unwrap().unwrap();
}

#[test]
fn transactions_on_different_keys_do_not_conflict() {
    // A transaction of another test that runs alone would be a conflict, too.
    in_a_process_of_its_own("transactions_on_different_keys_do_not_conflict", use_different_keys);
}

fn use_different_keys() {
    let map = TMap::with_hasher(BuildHasherDefault::<SameAsKey>::default());
    try_atomically(|tx| (0..32).try_for_each(|key| map.insert(tx, key, 0).map(drop))).unwrap();
    for (own, other) in [(0, 1), (0, 16), (17, 1), (5, 31)] {
        // Both are changed.
        let changed = try_atomically(|tx| {
            let old = map.insert(tx, own, 1)?;
            meanwhile(&map, other, Some(2));
            Ok(old.is_some())
        });
        assert_eq!(changed, Ok(true), "{own} and {other}");
        // One is read, the other is removed and added again.
        let read = try_atomically(|tx| {
            let before = map.get(tx, &own)?;
            meanwhile(&map, other, None);
            meanwhile(&map, other, Some(3));
            assert_eq!(map.get(tx, &own)?, before);
            map.insert(tx, own, 4).map(drop)
        });
        assert_eq!(read, Ok(()), "{own} and {other}");
    }
    // The map grows while a transaction that uses other keys runs: by new keys, and by whole branches.
    let grown = try_atomically(|tx| {
        map.insert(tx, 3, 7)?;
        for key in 1000..1500 {
            meanwhile_if_apart(&map, key);
        }
        map.get(tx, &3)
    });
    assert_eq!(grown, Ok(Some(7)));
    // The same key is a conflict.
    let conflict = try_atomically(|tx| {
        let value = map.get(tx, &9)?;
        meanwhile(&map, 9, Some(1));
        map.insert(tx, 9, value.unwrap() + 1)
    });
    assert_eq!(conflict, Err(TryError::Conflict));
}

/// Adds a key, unless it shares the slot of key 3.
fn meanwhile_if_apart(map: &TMap<u64, u64, BuildHasherDefault<SameAsKey>>, key: u64) {
    if key % 16 != 3 {
        meanwhile(map, key, Some(key));
    }
}

#[dapple::test(sim, seeds = 200, workers = 3)]
async fn a_map_that_grows_under_transactions_loses_nothing() {
    let map = TMap::with_hasher(BuildHasherDefault::<FewHashes>::default());
    let mut tasks = Vec::new();
    for task in 0..4_u64 {
        let map = map.clone();
        tasks.push(spawn(async move {
            for step in 0..12 {
                // A key moves on; readers find it in exactly one of its places.
                let (old, new) = (100 * task + step, 100 * task + step + 1);
                atomically(|tx| {
                    sim::work(Duration::ZERO);
                    map.remove(tx, &old)?;
                    sim::work(Duration::ZERO);
                    map.insert(tx, new, task)
                })
                .await
                .unwrap();
            }
        }));
    }
    let waiter = spawn({
        let map = map.clone();
        atomically(move |tx| map.wait_for(tx, &312)) // the last place of task 3
    });
    for _ in 0..10 {
        let seen = atomically(|tx| {
            let mut seen = Vec::new();
            map.for_each(tx, |_, &task| {
                sim::work(Duration::ZERO);
                seen.push(task);
            })?;
            Ok(seen)
        });
        let mut seen = seen.await.unwrap();
        let len = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), len, "a task has two keys: {seen:?}");
        sleep(Duration::from_nanos(300)).await.unwrap();
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(waiter.await.unwrap(), Ok(3));
    assert_eq!(atomically(|tx| map.len(tx)).await, Ok(4));
}

#[test]
fn many_tasks_fill_a_map() {
    in_a_process_of_its_own("many_tasks_fill_a_map", || runtime(4).block_on(fill_map()));
}

async fn fill_map() {
    let map = TMap::new();
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let map = map.clone();
            spawn(async move {
                for key in 0..200 {
                    atomically(|tx| map.insert(tx, 8 * key + task, key)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let all = atomically(|tx| {
        let mut sum = 0;
        map.for_each(tx, |_, key| sum += key)?;
        Ok((map.len(tx)?, sum))
    });
    assert_eq!(all.await, Ok((1600, 8 * 199 * 200 / 2)));
}
