//! Programs of transactions: what a cancelled one was to write is not written, and a parked one leaves nothing behind.

use std::sync::Arc;

use dapple::sim::{self, check_after};
use dapple::stm::{TVar, atomically};
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, JoinHandle, finish, spawn};

use crate::Anything;
use crate::ledger::Ledger;

const STEP: Duration = Duration::from_millis(1);

async fn join(tasks: Vec<JoinHandle<Result<(), Anything>>>) -> Result<(), Anything> {
    let mut first = Ok(());
    for task in tasks {
        first = first.and(task.await?);
    }
    first
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn money_is_moved_whole_or_not_at_all() -> Result<(), Anything> {
    let accounts: Arc<[TVar<i32>]> = (0..3).map(|_| TVar::new(5)).collect();
    let moved = Ledger::new();
    let (after, log) = (accounts.clone(), moved.clone());
    check_after(async move {
        let sum = atomically(|tx| after.iter().try_fold(0, |sum, account| Ok(sum + tx.read(account)?))).await;
        assert_eq!(sum, Ok(15), "half of a transfer, after {} whole ones", log.len());
        // No cell is locked, and no transaction that is gone is in the way or waited for.
        atomically(|tx| after.iter().try_for_each(|account| tx.write(account, 100))).await.unwrap();
    });
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let (accounts, moved) = (accounts.clone(), moved.clone());
        tasks.push(spawn(async move {
            for amount in [3, 4] {
                let done = moved.clone();
                let transfer = atomically(|tx| {
                    let left = tx.read(&accounts[from])?;
                    sim::work(Duration::ZERO);
                    tx.check(left >= amount)?;
                    tx.write(&accounts[from], left - amount)?;
                    tx.modify(&accounts[to], |to| *to += amount)?;
                    let done = done.clone();
                    tx.after_commit(move || done.add(amount));
                    Ok(())
                });
                match timeout(20 * STEP, transfer).await {
                    Ok(done) => done?,
                    Err(late) => late.into_inner().ok_or(Cancelled)??,
                }
            }
            Ok(())
        }));
    }
    join(tasks).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_parked_transaction_that_ends_holds_nothing() -> Result<(), Anything> {
    let (stock, held) = (TVar::new(0_u32), Arc::new(()));
    let (after, kept) = (stock.clone(), held.clone());
    check_after(async move {
        assert_eq!(Arc::strong_count(&kept), 1, "the closure of one that is gone");
        let left = after.load();
        // A customer that comes is served: no wake-up goes to one that is gone.
        let next = spawn({
            let stock = after.clone();
            atomically(move |tx| {
                let there = tx.read(&stock)?;
                tx.check(there >= left + 100)
            })
        });
        sleep(STEP).await.unwrap();
        atomically(|tx| tx.modify(&after, |stock| *stock += 100)).await.unwrap();
        timeout(10 * STEP, next).await.expect("a customer sleeps while there is enough").unwrap().unwrap();
    });
    let buy = |amount: u32| {
        let (stock, held) = (stock.clone(), held.clone());
        atomically(move |tx| {
            let there = tx.read(&stock)?;
            let _held = &held;
            tx.check(there >= amount)?;
            tx.write(&stock, there - amount)
        })
    };
    let other = spawn(timeout(20 * STEP, buy(2)));
    let result = finish(async |s| {
        let child = s.start(timeout(20 * STEP, buy(3)));
        for _ in 0..3 {
            sleep(STEP).await?;
            atomically(|tx| tx.modify(&stock, |stock| *stock += 2)).await?;
        }
        let _elapsed_or_bought = child.await;
        Ok(())
    })
    .await;
    drop(held);
    let _elapsed_or_bought = other.await?;
    result
}
