//! `together` over random sets of states, with everything that can go wrong: no sum is ever wrong, nothing is
//! seen halfway, and it ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Random, Thread, give_way, pause, runtime, start_thread};
use dapple::sim::{self, Sim};
use dapple::task::yield_now;
use dapple::time::timeout;
use dapple::{Runtime, Shared, finish, together, together_all};
use futures_lite::future::poll_once;

const STATES: usize = 10;
/// In each account at the beginning.
const MONEY: i64 = 1000;

/// Two values that are changed together, and so are always equal outside of `write`.
#[derive(Debug)]
struct Account {
    money: i64,
    copy: i64,
}

impl Account {
    #[track_caller]
    fn check(&self) -> i64 {
        let money = self.money;
        give_way();
        assert_eq!(money, self.copy, "seen halfway");
        assert_eq!(money, self.money, "changed while it is read");
        money
    }

    fn add(&mut self, amount: i64) {
        self.check();
        self.money += amount;
        give_way();
        self.copy += amount;
    }
}

/// The accounts, and how many operations have been done.
#[derive(Clone)]
struct Bank {
    accounts: Arc<Vec<Shared<Account>>>,
    progress: Arc<AtomicUsize>,
}

/// The payload of a planned panic in a closure, raised when the accounts are in order.
struct OnPurpose;

impl Bank {
    fn new() -> Bank {
        let account = |_| Shared::new(Account { money: MONEY, copy: MONEY });
        Bank { accounts: Arc::new((0..STATES).map(account).collect()), progress: Arc::default() }
    }

    /// Picks `count` different accounts.
    fn pick(&self, random: &mut Random, count: usize) -> Vec<&Shared<Account>> {
        let mut all: Vec<_> = self.accounts.iter().collect();
        (0..count).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect()
    }

    /// Moves money around. It panics now and then, on purpose.
    async fn transfer(&self, random: &mut Random) {
        let panics = random.below(16) == 0;
        let end = || {
            self.progress.fetch_add(1, Ordering::Relaxed);
            if panics {
                resume_unwind(Box::new(OnPurpose)); // without a word on stderr
            }
        };
        let amount = random.below(100) as i64;
        let kind = random.below(8);
        let count = 2 + random.below(3) as usize;
        let picked = self.pick(random, count);
        // Not being done is no failure: the wait may be cancelled.
        let _ = match (kind, &picked[..]) {
            (0, [a, ..]) => a.read(|a| (a.check(), end()).1).await,
            (1, [a, ..]) => a.write(|a| (a.add(amount), a.add(-amount), end()).2).await,
            (2 | 3, [a, b, ..]) => {
                let both = together((a.writing(), b.writing()), |(a, b)| {
                    a.add(-amount);
                    b.add(amount);
                    end();
                });
                both.await
            }
            (4, [a, b, c, ..]) => {
                let three = together((a.reading(), b.writing(), c.writing()), |(a, b, c)| {
                    let part = a.check() % 7;
                    b.add(part);
                    c.add(-part);
                    end();
                });
                three.await
            }
            (5, _) => {
                let all: Vec<_> = self.accounts.iter().map(Shared::reading).collect();
                let sum = together_all(&all, |all| {
                    assert_eq!(all.iter().map(|a| a.check()).sum::<i64>(), MONEY * STATES as i64, "the sum");
                    end();
                });
                sum.await
            }
            _ => {
                let all: Vec<_> = picked.iter().map(|account| account.writing()).collect();
                let moved = together_all(&all, |all| {
                    let count = all.len() as i64;
                    all.iter_mut().for_each(|account| account.add(amount));
                    all[0].add(-amount * count);
                    end();
                });
                moved.await
            }
        };
    }

    /// One operation of a thread that runs no tasks.
    fn use_by_thread(&self, random: &mut Random) {
        let amount = random.below(100) as i64;
        let picked = self.pick(random, 2);
        let end = || {
            self.progress.fetch_add(1, Ordering::Relaxed);
        };
        match (random.below(5), &picked[..]) {
            (0, [a, ..]) => a.read_blocking(|a| (a.check(), end()).1).unwrap(),
            (1, [a, ..]) => a.write_blocking(|a| (a.add(amount), a.add(-amount), end()).2).unwrap(),
            (2, [a, ..]) => drop(a.try_read(|a| (a.check(), end()).1)),
            (3, [a, b]) => {
                // One inside of the other, without waiting.
                let _ = a.try_write(|a| {
                    let moved = b.try_write(|b| b.add(amount));
                    a.add(if moved.is_ok() { -amount } else { 0 });
                    end();
                });
            }
            _ => drop(crate::common::foreign_block_on(catch(self.transfer(random)))),
        }
    }

    /// All accounts are free, and nothing is lost.
    #[track_caller]
    fn settle(&self) {
        let total: i64 =
            self.accounts.iter().map(|account| account.try_write(|account| account.check()).unwrap()).sum();
        assert_eq!(total, MONEY * STATES as i64);
    }
}

/// Whether it panicked on purpose; other panics go on.
async fn catch(future: impl Future<Output = ()>) -> bool {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(|()| false),
        Err(payload) if payload.is::<OnPurpose>() => std::task::Poll::Ready(true),
        Err(payload) => resume_unwind(payload),
    })
    .await
}

/// A task that does `operations` operations, some of them only halfway.
async fn busy(bank: Bank, seed: u64, operations: usize) {
    let mut random = Random::new(seed);
    for _ in 0..operations {
        let fate = random.below(10);
        let again = random.below(3);
        let mut its = Random(random.below(u64::MAX) | 1);
        let owner = bank.clone();
        let mut transfer: Pin<Box<dyn Future<Output = bool> + Send>> =
            Box::pin(async move { catch(owner.transfer(&mut its)).await });
        match fate {
            0 | 1 => {
                // Polled some times, and then dropped or forgotten.
                for _ in 0..=again {
                    if poll_once(&mut transfer).await.is_some() {
                        break;
                    }
                    yield_now().await;
                }
                if fate == 0 {
                    std::mem::forget(transfer);
                }
            }
            2 => drop(timeout(Duration::from_nanos(random.below(20_000)), transfer).await),
            3 => {
                finish(async |s| {
                    s.start(transfer);
                    if again == 0 {
                        yield_now().await;
                    }
                    s.cancel();
                })
                .await;
            }
            4 => drop(dapple::spawn(transfer)), // beside the next
            5 => dapple::spawn(transfer).abort(),
            _ => drop(transfer.await),
        }
    }
}

/// Fails if no operation is done for long, and prints a dump of the waiting tasks.
fn watch(rt: &Runtime, bank: &Bank, is_over: &AtomicBool) {
    let mut last = 0;
    let mut looks = 0;
    while !is_over.load(Ordering::SeqCst) {
        pause(Duration::from_millis(5));
        let now = bank.progress.load(Ordering::Relaxed);
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        if looks > 6000 {
            eprintln!("nothing gets done after {last} operations:\n{:?}", rt.dump());
            std::process::abort(); // nothing could end these tasks
        }
    }
}

/// `tasks` tasks on four workers, and `threads` threads beside them, do `operations` operations each.
fn stress(tasks: u64, threads: u64, operations: usize) {
    let rt = runtime(4);
    let bank = Bank::new();
    let outside: Vec<Thread<()>> = (0..threads)
        .map(|seed| {
            let bank = bank.clone();
            start_thread(move || {
                let mut random = Random::new(977 * seed + 1);
                (0..operations).for_each(|_| bank.use_by_thread(&mut random));
            })
        })
        .collect();
    let inside: Vec<_> =
        (0..tasks).map(|seed| rt.spawn(busy(bank.clone(), 31 * seed + 7, operations))).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        if !sim::is_simulated() {
            scope.spawn(|| watch(&rt, &bank, &is_over)); // a simulation sees by itself that nothing can go on
        }
        inside.into_iter().for_each(|task| rt.block_on(task).unwrap());
        outside.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
    });
    drop(rt); // and with it what was spawned on the side
    bank.settle();
}

#[test]
fn on_real_threads() {
    stress(12, 2, if cfg!(debug_assertions) { 2_000 } else { 10_000 });
}

#[test]
fn in_virtual_time() {
    Sim::new(0).workers(1).max_polls(2_000_000).explore(0..120, || async {
        let whole = dapple::blocking(|| stress(6, 2, 12));
        whole.await.unwrap_or_else(|error| resume_unwind(error.try_into_panic().expect("a panic")));
    });
}

/// Few states, long closures, many threads: readers in slots against writers.
#[test]
fn readers_in_slots_see_no_writer() {
    let rounds = if cfg!(debug_assertions) { 4_000 } else { 40_000 };
    let account = Shared::new(Account { money: 0, copy: 0 });
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|number| {
            let (account, is_over) = (account.clone(), is_over.clone());
            std::thread::spawn(move || {
                let mut reads = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let read = |account: &Account| {
                        let money = account.money;
                        std::hint::black_box(&account);
                        assert_eq!(money, account.copy, "seen halfway");
                    };
                    match number {
                        0 => account.read_blocking(read).unwrap(),
                        1 => drop(account.try_read(read)),
                        _ => crate::common::foreign_block_on(account.read(read)).unwrap(),
                    }
                    reads += 1;
                }
                reads
            })
        })
        .collect();
    let write = |account: &mut Account| {
        account.money += 1;
        std::hint::black_box(&account);
        account.copy += 1;
    };
    let mut tried = 0;
    for round in 0..rounds {
        match round % 8 {
            // Pauses let the readers have their slots again.
            0 => std::thread::yield_now(),
            1 => tried += i64::from(account.try_write(write).is_err()),
            _ => account.write_blocking(write).unwrap(),
        }
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    let account = account.into_inner().unwrap();
    assert_eq!((account.money, account.copy + tried), (account.copy, i64::from(rounds) / 8 * 7));
}
