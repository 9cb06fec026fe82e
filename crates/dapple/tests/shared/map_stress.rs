//! A shared map under tasks and threads that do everything at once: compute, fail, panic, cancel, abort, drop, forget,
//! put, remove. It ends, no two callers compute a key at the same time, and nothing is lost or dropped twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::{Drops, Guard, Random, give_way, in_both_worlds, rounds, runtime, start_thread, watched};
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, SharedMap, race};
use futures_lite::future::poll_once;

const KEYS: usize = 4;

/// How many waits have been forgotten.
static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);

/// The computed value: knows its key, and counts its drop.
#[derive(Clone)]
struct Value {
    key: usize,
    _guard: Arc<Guard>,
}

#[derive(Clone, Default)]
struct World {
    map: SharedMap<usize, Value>,
    computing: Arc<[AtomicBool; KEYS]>,
    made: Arc<AtomicUsize>,
    drops: Drops,
}

/// Guard of a computation: its key is marked as being computed while the guard lives.
struct Computing<'a>(&'a AtomicBool);

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        assert!(self.0.swap(false, Ordering::SeqCst));
    }
}

impl World {
    fn value(&self, key: usize) -> Value {
        self.made.fetch_add(1, Ordering::SeqCst);
        Value { key, _guard: Arc::new(self.drops.guard()) }
    }

    /// Computes a value, or fails, or panics, alone.
    async fn compute(&self, key: usize, dice: u64) -> Result<Value, Cancelled> {
        assert!(!self.computing[key].swap(true, Ordering::SeqCst), "two compute the same");
        let _alone = Computing(&self.computing[key]);
        for _ in 0..dice % 3 {
            dapple::task::yield_now().await;
        }
        if dice.is_multiple_of(5) {
            sleep(Duration::from_micros(dice % 50)).await?;
        }
        match dice % 7 {
            0 => Err(Cancelled),
            1 => std::panic::resume_unwind(Box::new("planned")),
            _ => Ok(self.value(key)),
        }
    }

    async fn ask(&self, key: usize, dice: u64) -> Result<Value, Cancelled> {
        self.map.get_or_try_insert_with(key, async || self.compute(key, dice).await).await
    }

    /// Asks, and never again: if it waits it is forgotten.
    async fn forget(&self, key: usize, dice: u64) {
        let computes = AtomicBool::new(false);
        let mut ask = Box::pin(self.map.get_or_try_insert_with(key, async || {
            computes.store(true, Ordering::SeqCst);
            self.compute(key, dice).await
        }));
        let waits = poll_once(&mut ask).await.is_none() && !computes.load(Ordering::SeqCst);
        if waits {
            FORGOTTEN.fetch_add(1, Ordering::SeqCst);
            // All that it borrows is leaked, too, as it must be.
            std::mem::forget(ask);
        }
    }

    async fn step(&self, random: &mut Random) {
        let (key, dice) = (random.below(KEYS as u64) as usize, random.below(1 << 30));
        let check = |value: &Value| assert_eq!(value.key, key);
        match random.below(14) {
            0..6 => {
                if let Ok(value) = self.ask(key, dice).await {
                    check(&value);
                }
            }
            6 => drop(timeout(Duration::from_micros(dice % 30), self.ask(key, dice)).await.map(|_| ())),
            7 => {
                let value = race((self.ask(key, dice), self.ask(key, dice + 1))).await;
                value.iter().for_each(check);
            }
            8 => drop(poll_once(self.ask(key, dice)).await),
            9 => self.forget(key, dice).await,
            10 => drop(self.map.insert(key, self.value(key)).inspect(check)),
            11 => drop(self.map.remove(&key).inspect(check)),
            12 => self.map.retain(|other, value| other == &value.key && dice % 4 != 0),
            _ => assert_eq!(self.map.read(&key, |value| value.key).unwrap_or(key), key),
        }
    }
}

#[test]
fn everything_at_once() {
    in_both_worlds(300, || {
        let world = World::default();
        let rt = runtime(4);
        rt.block_on(async {
            let tasks: Vec<_> = (0..rounds(400, 16))
                .map(|number| {
                    let world = world.clone();
                    let mut random = Random::new(number * 7919 + 1);
                    dapple::spawn(async move {
                        for _ in 0..20 {
                            world.step(&mut random).await;
                        }
                    })
                })
                .collect();
            let mut random = Random::new(99);
            for (number, task) in tasks.iter().enumerate() {
                match number % 5 {
                    1 => task.cancel(),
                    2 => task.abort(),
                    _ => dapple::task::yield_now().await,
                }
                if random.below(3) == 0 {
                    sleep(Duration::from_micros(random.below(40))).await.unwrap();
                }
            }
            for task in tasks {
                match task.await {
                    Ok(()) => {}
                    Err(error) if error.is_aborted() => {}
                    Err(error) => {
                        assert_eq!(crate::common::message(&*error.try_into_panic().unwrap()), "planned")
                    }
                }
            }
            // Whatever was left behind, everything can still be had.
            for key in 0..KEYS {
                assert_eq!(world.ask(key, 3).await.unwrap().key, key);
                assert!(!world.computing[key].load(Ordering::SeqCst));
            }
        });
        drop(rt);
        assert_eq!(world.map.len(), KEYS);
        world.map.clear();
        assert_eq!(world.drops.count(), world.made.load(Ordering::SeqCst), "dropped as often as made");
    });
    assert!(FORGOTTEN.load(Ordering::SeqCst) > 0);
}

#[test]
fn threads_on_foreign_executors_and_tasks() {
    in_both_worlds(50, || {
        let world = World::default();
        let rt = runtime(2);
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let world = world.clone();
                start_thread(move || {
                    let mut random = Random::new(number + 1);
                    for _ in 0..rounds(2000, 20) {
                        let (key, dice) = (random.below(KEYS as u64) as usize, random.below(1 << 30));
                        let dice = dice / 35 * 35 + 2; // does not sleep, fail or panic
                        let value = crate::common::foreign_block_on(world.ask(key, dice));
                        assert_eq!(value.unwrap().key, key);
                        world.map.remove(&key);
                        give_way();
                    }
                })
            })
            .collect();
        let tasks: Vec<_> = (0..4)
            .map(|number| {
                let world = world.clone();
                rt.spawn(async move {
                    let mut random = Random::new(number + 11);
                    for _ in 0..rounds(2000, 20) {
                        let key = random.below(KEYS as u64) as usize;
                        assert_eq!(world.ask(key, 37).await.unwrap().key, key);
                        world.map.insert(key, world.value(key));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        for task in tasks {
            rt.block_on(task).unwrap();
        }
        drop(rt);
        world.map.clear();
        assert_eq!(world.drops.count(), world.made.load(Ordering::SeqCst));
    });
}

#[test]
fn readers_and_writers_on_threads_see_whole_values() {
    watched(|| {
        let map = SharedMap::<u32, [u64; 4]>::new();
        let done = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (map, done) = (map.clone(), done.clone());
                std::thread::spawn(move || {
                    let mut found = 0_u64;
                    while !done.load(Ordering::Relaxed) {
                        for key in 0..64 {
                            // The closure of `read` may take its time.
                            let whole = map.read(&key, |value| value.iter().all(|part| *part == value[0]));
                            assert_ne!(whole, Some(false));
                            found += u64::from(map.get(&key).is_some_and(|value| value[0] == value[3]));
                        }
                    }
                    found
                })
            })
            .collect();
        for round in 0..2000_u64 {
            for key in 0..64 {
                map.insert(key, [round; 4]);
            }
            match round % 50 {
                0 => map.clear(),
                25 => map.retain(|key, value| {
                    *value = [u64::MAX; 4];
                    key % 2 == 0
                }),
                _ => assert_eq!(map.remove(&3), Some([round; 4])),
            }
        }
        done.store(true, Ordering::Relaxed);
        let found: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(found > 0);
    });
}
