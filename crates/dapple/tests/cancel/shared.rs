//! Protocols over shared states.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dapple::sim;
use dapple::time::{Duration, Instant, sleep, timeout};
use dapple::{Cancelled, JoinHandle, Shared, SharedMap, shield, together, together_all};

use super::Anything;

const STEP: Duration = Duration::from_millis(1);

/// Lets other workers run while a closure has its states: otherwise no other task would ever find a state busy.
fn linger() {
    sim::work(STEP / 50);
}

async fn join<T>(tasks: Vec<JoinHandle<Result<T, Anything>>>) -> Result<(), Anything> {
    for task in tasks {
        task.await??;
    }
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 3)]
async fn a_transfer_is_acknowledged_if_and_only_if_it_is_applied() -> Result<(), Anything> {
    let accounts: [Shared<i64>; 3] = std::array::from_fn(|_| Shared::new(100));
    let acknowledged = Arc::new(Mutex::new([100; 3]));
    let (after, expected) = (accounts.clone(), acknowledged.clone());
    sim::check_after(async move {
        let all = after.each_ref().map(Shared::writing);
        let balances: Vec<i64> =
            together_all(&all, |all| all.iter().map(|balance| **balance).collect()).await.unwrap();
        assert_eq!(balances, *expected.lock().unwrap());
    });
    let teller = |from: usize| {
        let (accounts, acknowledged) = (accounts.clone(), acknowledged.clone());
        dapple::spawn(async move {
            for amount in 1..=4 {
                let to = (from + 1 + amount as usize % 2) % 3;
                let both = (accounts[from].writing(), accounts[to].writing());
                together(both, |(source, target)| {
                    *source -= amount;
                    linger();
                    *target += amount;
                })
                .await?;
                let mut acknowledged = acknowledged.lock().unwrap();
                acknowledged[from] -= amount;
                acknowledged[to] += amount;
            }
            Ok::<(), Anything>(())
        })
    };
    join((0..3).map(teller).collect()).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 3)]
async fn an_audit_never_sees_half_a_transfer() -> Result<(), Anything> {
    let accounts: Arc<[Shared<i64>]> = (0..4).map(|_| Shared::new(25)).collect();
    let after = accounts.clone();
    sim::check_after(async move { assert_eq!(sum(&after).await, Ok(100)) });
    async fn sum(accounts: &[Shared<i64>]) -> Result<i64, Cancelled> {
        let all: Vec<_> = accounts.iter().map(Shared::reading).collect();
        together_all(&all, |all| {
            linger();
            all.iter().map(|balance| **balance).sum()
        })
        .await
    }
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for from in 0..3 {
        let accounts = accounts.clone();
        tasks.push(dapple::spawn(async move {
            for amount in 1..=3 {
                let two = [accounts[from].writing(), accounts[from + 1].writing()];
                together_all(&two, |two| {
                    *two[0] -= amount;
                    linger();
                    *two[1] += amount;
                })
                .await?;
            }
            Ok(())
        }));
    }
    let auditor = dapple::spawn(async move {
        for _ in 0..4 {
            assert_eq!(sum(&accounts).await?, 100, "half a transfer was seen");
        }
        Ok(())
    });
    tasks.push(auditor);
    join(tasks).await
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Order {
    Reserved(u32),
    Sold(u32),
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_reservation_is_sold_or_given_back() -> Result<(), Anything> {
    const TOTAL: u32 = 10;
    let (stock, orders) = (Shared::new(TOTAL), Shared::new(BTreeMap::new()));
    let (paid, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (free, book, receipts, over) = (stock.clone(), orders.clone(), paid.clone(), ended.clone());
    sim::check_after(async move {
        let both = (free.reading(), book.reading());
        let (free, orders) = together(both, |(free, orders)| (*free, orders.clone())).await.unwrap();
        let held: u32 = orders.values().map(|(Order::Reserved(count) | Order::Sold(count))| count).sum();
        assert_eq!(free + held, TOTAL, "{orders:?}");
        let sold = |id: &u32| matches!(orders.get(id), Some(Order::Sold(_)));
        assert_eq!(*receipts.lock().unwrap(), orders.keys().copied().filter(sold).collect::<Vec<_>>());
        for id in over.lock().unwrap().iter() {
            assert!(!matches!(orders.get(id), Some(Order::Reserved(_))), "customer {id} left a reservation");
        }
    });
    let customer = |id: u32| {
        let (stock, orders, paid, ended) = (stock.clone(), orders.clone(), paid.clone(), ended.clone());
        let buy = async move || {
            let reserve = |(stock, orders): (&mut u32, &mut BTreeMap<u32, Order>)| {
                *stock -= id;
                linger();
                orders.insert(id, Order::Reserved(id));
            };
            together((stock.writing(), orders.writing()), reserve).await?;
            let pay = async || {
                sleep(STEP * id).await?; // the bank
                let sell = orders.write(|orders| orders.insert(id, Order::Sold(id)));
                assert_eq!(sell.await?, Some(Order::Reserved(id)));
                let mut paid = paid.lock().unwrap();
                paid.push(id);
                paid.sort_unstable();
                Ok::<(), Anything>(())
            };
            let payment = pay().await;
            if payment.is_err() {
                let give_back = |(stock, orders): (&mut u32, &mut BTreeMap<u32, Order>)| {
                    orders.remove(&id);
                    *stock += id;
                };
                shield(together((stock.writing(), orders.writing()), give_back)).await?;
            }
            payment
        };
        dapple::spawn(async move {
            let bought = buy().await;
            ended.lock().unwrap().push(id);
            bought
        })
    };
    join((1..=4).map(customer).collect()).await
}

/// The errors of a computation that may fail.
enum Fetch {
    Busy,
    Cancelled(Cancelled),
}

impl From<Cancelled> for Fetch {
    fn from(cancelled: Cancelled) -> Fetch {
        Fetch::Cancelled(cancelled)
    }
}

/// Counts calls, of which none may overlap.
#[derive(Default)]
struct Backend {
    calls: AtomicUsize,
    running: AtomicUsize,
    answers: AtomicUsize,
}

impl Backend {
    /// Answers after a while; the first call finds it busy.
    async fn fetch(&self) -> Result<usize, Fetch> {
        struct Running<'a>(&'a AtomicUsize);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Relaxed);
            }
        }
        assert_eq!(self.running.fetch_add(1, Relaxed), 0, "two computations at a time");
        let _running = Running(&self.running);
        let call = self.calls.fetch_add(1, Relaxed);
        sleep(STEP).await?;
        if call == 0 {
            return Err(Fetch::Busy);
        }
        self.answers.fetch_add(1, Relaxed);
        Ok(call)
    }
}

#[dapple::test(cancel_everywhere, seeds = 3, workers = 2)]
async fn a_cache_with_single_flight_keeps_one_answer() -> Result<(), Anything> {
    let (cache, backend, got) =
        (SharedMap::new(), Arc::new(Backend::default()), Arc::new(Mutex::new(Vec::new())));
    let (after, source, values) = (cache.clone(), backend.clone(), got.clone());
    sim::check_after(async move {
        let cached: Option<usize> = after.get("page");
        assert_eq!(source.answers.load(Relaxed), usize::from(cached.is_some()), "answers are kept, once");
        assert!(values.lock().unwrap().iter().all(|value| Some(*value) == cached), "all got the same");
        // After any failure the next caller gets an answer.
        while timeout(10 * STEP, after.get_or_try_insert_with("page", || source.fetch()))
            .await
            .unwrap()
            .is_err()
        {}
    });
    let reader = |_| {
        let (cache, backend, got) = (cache.clone(), backend.clone(), got.clone());
        dapple::spawn(async move {
            loop {
                match cache.get_or_try_insert_with("page", || backend.fetch()).await {
                    Ok(value) => break got.lock().unwrap().push(value),
                    Err(Fetch::Busy) => sleep(STEP / 2).await?,
                    Err(Fetch::Cancelled(cancelled)) => return Err(cancelled.into()),
                }
            }
            Ok::<(), Anything>(())
        })
    };
    join((0..4).map(reader).collect()).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_computation_that_asks_for_others_computes_each_once() -> Result<(), Anything> {
    let (memo, computed) = (SharedMap::new(), Arc::new(Mutex::new(Vec::new())));
    let (after, log) = (memo.clone(), computed.clone());
    sim::check_after(async move {
        let mut log = log.lock().unwrap().clone();
        let count = log.len();
        log.sort_unstable();
        log.dedup();
        assert_eq!(log.len(), count, "computed twice: {log:?}");
        let mut keys = after.keys();
        keys.sort_unstable();
        assert_eq!(keys, log, "the map has the computed values, and no others");
        after.for_each(|key, value| assert_eq!(*value, 1_u64 << key));
    });
    /// Two to the power of `n`, by way of all powers below.
    async fn power(n: u64, memo: &SharedMap<u64, u64>, log: &Mutex<Vec<u64>>) -> Result<u64, Cancelled> {
        let compute = async || {
            let below = if n == 0 { 0 } else { Box::pin(power(n - 1, memo, log)).await? };
            sleep(STEP).await?;
            log.lock().unwrap().push(n);
            Ok::<_, Cancelled>((2 * below).max(1))
        };
        memo.get_or_try_insert_with(n, compute).await
    }
    let ask = |n| {
        let (memo, computed) = (memo.clone(), computed.clone());
        dapple::spawn(async move {
            assert_eq!(power(n, &memo, &computed).await?, 1 << n);
            Ok::<(), Anything>(())
        })
    };
    join([3, 1, 4, 2].map(ask).into()).await
}

#[dapple::test(cancel_everywhere, seeds = 3, workers = 3)]
async fn a_cache_that_is_written_through_is_never_stale() -> Result<(), Anything> {
    let (database, cache) = (Shared::new(0), SharedMap::new());
    let (truth, after) = (database.clone(), cache.clone());
    sim::check_after(async move {
        let truth = truth.read(|value| *value).await.unwrap();
        assert!(
            after.get("row").is_none_or(|cached| cached == truth),
            "{:?} is not {truth}",
            after.get("row")
        );
    });
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for number in 1..=3 {
        let (database, cache) = (database.clone(), cache.clone());
        tasks.push(dapple::spawn(async move {
            sleep(STEP * number).await?;
            // The insert is inside of the closure, so that the cache gets values in the order of the database.
            database
                .write(|value| {
                    *value = number;
                    linger();
                    cache.insert("row", number);
                })
                .await?;
            Ok(())
        }));
    }
    for number in 0..2 {
        let (database, cache) = (database.clone(), cache.clone());
        tasks.push(dapple::spawn(async move {
            sleep(STEP * number).await?;
            let mut last = 0;
            for _ in 0..3 {
                let load = async || {
                    let loaded = database.read(|value| *value).await?;
                    sleep(2 * STEP).await?; // the way back
                    Ok::<_, Cancelled>(loaded)
                };
                let value = cache.get_or_try_insert_with("row", load).await?;
                assert!(value >= last, "{value} after {last}");
                last = value;
                sleep(STEP).await?;
            }
            Ok(())
        }));
    }
    join(tasks).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 3)]
async fn an_optimistic_update_is_not_lost() -> Result<(), Anything> {
    let state = Shared::new((0, 0)); // a value and its version
    let added = Arc::new(Mutex::new((0, 0)));
    let (after, expected) = (state.clone(), added.clone());
    sim::check_after(async move {
        assert_eq!(after.write(|state| *state).await, Ok(*expected.lock().unwrap()));
    });
    let adder = |amount| {
        let (state, added) = (state.clone(), added.clone());
        dapple::spawn(async move {
            for _ in 0..2 {
                loop {
                    let (value, version) = state.read(|state| *state).await?;
                    sleep(STEP * amount).await?; // computes
                    let put = |state: &mut (u32, u32)| {
                        let is_current = state.1 == version;
                        linger();
                        if is_current {
                            *state = (value + amount, version + 1);
                        }
                        is_current
                    };
                    if state.write(put).await? {
                        break;
                    }
                }
                let mut added = added.lock().unwrap();
                *added = (added.0 + amount, added.1 + 1);
            }
            Ok::<(), Anything>(())
        })
    };
    join((1..=3).map(adder).collect()).await
}

/// The right to write to the journal, until a deadline.
#[derive(Clone, Copy)]
struct Lease {
    token: u64,
    until: Instant,
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_leader_whose_lease_ran_out_writes_nothing() -> Result<(), Anything> {
    const TERM: Duration = Duration::from_millis(4);
    let lease = Shared::new(Lease { token: 0, until: Instant::now() });
    let journal = Shared::new(Vec::new()); // of tokens
    let written = Arc::new(AtomicUsize::new(0));
    let (entries, count, free) = (journal.clone(), written.clone(), lease.clone());
    sim::check_after(async move {
        let entries = entries.write(|entries| entries.clone()).await.unwrap();
        assert!(entries.is_sorted(), "an old leader has written: {entries:?}");
        assert_eq!(
            entries.len(),
            count.load(Relaxed),
            "acknowledged writes are in the journal, and no others"
        );
        let until = free.write(|lease| lease.until).await.unwrap();
        assert!(Instant::now() >= until, "a lease ends also if its leader was dropped");
    });
    let node = |_| {
        let (lease, journal, written) = (lease.clone(), journal.clone(), written.clone());
        dapple::spawn(async move {
            let elect = |lease: &mut Lease| {
                let is_free = Instant::now() >= lease.until;
                if is_free {
                    *lease = Lease { token: lease.token + 1, until: Instant::now() + TERM };
                }
                is_free.then_some(lease.token)
            };
            let token = loop {
                match lease.write(elect).await? {
                    Some(token) => break token,
                    None => sleep(STEP).await?,
                }
            };
            for _ in 0..3 {
                let append = |(lease, journal): (&Lease, &mut Vec<u64>)| {
                    let leads = lease.token == token && Instant::now() < lease.until;
                    if leads {
                        linger();
                        journal.push(token);
                    }
                    leads
                };
                if !together((lease.reading(), journal.writing()), append).await? {
                    break; // deposed
                }
                written.fetch_add(1, Relaxed);
                sleep(STEP).await?;
            }
            let resign = |lease: &mut Lease| {
                if lease.token == token {
                    lease.until = Instant::now();
                }
            };
            shield(lease.write(resign)).await?;
            Ok::<(), Anything>(())
        })
    };
    join((0..3).map(node).collect()).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 3)]
async fn an_outbox_delivers_each_payment_once() -> Result<(), Anything> {
    let (source, outbox, target) = (Shared::new(20_u32), Shared::new(Vec::new()), Shared::new(Vec::new()));
    let (left, on_the_way, arrived) = (source.clone(), outbox.clone(), target.clone());
    sim::check_after(async move {
        let all = (left.writing(), on_the_way.writing(), arrived.writing());
        let (left, waiting, arrived) =
            together(all, |(left, waiting, arrived)| (*left, waiting.clone(), arrived.clone()))
                .await
                .unwrap();
        let sum = |payments: &[u32]| payments.iter().sum::<u32>();
        assert_eq!(left + sum(&waiting) + sum(&arrived), 20);
        let payments = [arrived, waiting].concat();
        assert!((1..=4).collect::<Vec<_>>().starts_with(&payments), "in order, once: {payments:?}");
    });
    let payer = dapple::spawn({
        let outbox = outbox.clone();
        async move {
            for amount in 1..=4 {
                let pay = |(source, outbox): (&mut u32, &mut Vec<u32>)| {
                    *source -= amount;
                    linger();
                    outbox.push(amount);
                };
                together((source.writing(), outbox.writing()), pay).await?;
                sleep(STEP).await?;
            }
            Ok::<(), Anything>(())
        }
    });
    let relay = |_| {
        let (outbox, target) = (outbox.clone(), target.clone());
        dapple::spawn(async move {
            for _ in 0..4 {
                let deliver = |(outbox, target): (&mut Vec<u32>, &mut Vec<u32>)| {
                    if !outbox.is_empty() {
                        let first = outbox.remove(0);
                        linger();
                        target.push(first);
                    }
                };
                together((outbox.writing(), target.writing()), deliver).await?;
                sleep(STEP * 3 / 4).await?;
            }
            Ok::<(), Anything>(())
        })
    };
    let relays = (0..2).map(relay);
    join(std::iter::once(payer).chain(relays).collect()).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 4)]
async fn readers_see_versions_in_order_and_whole() -> Result<(), Anything> {
    let (settings, written) = (Shared::new([0; 3]), Arc::new(AtomicUsize::new(0)));
    let (after, count) = (settings.clone(), written.clone());
    sim::check_after(async move {
        let last = count.load(Relaxed);
        assert_eq!(
            after.write(|settings| *settings).await,
            Ok([last; 3]),
            "each write that returned is there"
        );
    });
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for _ in 0..3 {
        let settings = settings.clone();
        tasks.push(dapple::spawn(async move {
            let mut last = 0;
            for _ in 0..4 {
                let read = |settings: &[usize; 3]| {
                    let first = settings[0];
                    linger();
                    assert_eq!(*settings, [first; 3], "half of a version");
                    first
                };
                let version = timeout(STEP, settings.read(read)).await;
                let Ok(version) = version.unwrap_or_else(|late| late.into_inner().unwrap()) else {
                    continue;
                };
                assert!(version >= last, "{version} after {last}");
                last = version;
                sleep(STEP / 20).await?;
            }
            Ok(())
        }));
    }
    tasks.push(dapple::spawn(async move {
        for version in 1..=4 {
            let write = |settings: &mut [usize; 3]| {
                for setting in settings {
                    *setting = version;
                    linger();
                }
            };
            settings.write(write).await?;
            written.store(version, Relaxed);
        }
        Ok(())
    }));
    join(tasks).await
}
