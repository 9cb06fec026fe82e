//! `stm/bank`: transfers between 1,000 accounts, and the total of all of them now and then.
//!
//! A transfer takes two accounts at random and moves an amount from one to the other, if it is there. One operation in 1,024
//! adds up all accounts in one transaction, while transfers go on: it must find the same total each time.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::contest::Contest;
use crate::scatter::{below, scatter};
use crate::sides::Side;
use crate::stms::{AsyncStm, DappleStm, FastStm, Stm};
use crate::work::Work;

pub(super) fn contest() -> Contest {
    let about = "transactions between 1,000 accounts, one in 1,024 a total of all; per transaction";
    super::contest::<Bank<DappleStm>, Bank<FastStm>, Bank<AsyncStm>>("stm/bank", about)
}

const ACCOUNTS: usize = 1000;

/// The balance of each account at the start. Small, so that some accounts are empty at times.
const BALANCE: u64 = 100;

/// The most that is transferred at a time.
const MOST: u64 = 50;

/// One operation in so many is a total.
const TOTALS: u64 = 1024;

/// Operations after which a task lets others run.
const TURN: u64 = 64;

struct Bank<M>(PhantomData<M>);

impl<M: Stm<Var<u64>: Send + Sync + 'static>> Work for Bank<M> {
    const BATCHES: usize = 400;
    const OPERATIONS: usize = 1024;

    async fn run<S: Side>(side: S, batches: usize) {
        let accounts: Arc<[M::Var<u64>]> = (0..ACCOUNTS).map(|_| M::var(BALANCE)).collect();
        let each = (batches * Self::OPERATIONS / M::TASKS) as u64;
        let mut tasks = Vec::with_capacity(M::TASKS);
        for task in 0..M::TASKS as u64 {
            let accounts = accounts.clone();
            tasks.push(side.spawn(async move {
                for number in task * each..(task + 1) * each {
                    operation::<M>(&accounts, scatter(number)).await;
                    if number % TURN == TURN - 1 {
                        S::yield_now().await;
                    }
                }
            }));
        }
        for task in tasks {
            S::join(task).await;
        }
        assert_total::<M>(&accounts).await;
    }
}

async fn operation<M: Stm<Var<u64>: Sync>>(accounts: &[M::Var<u64>], scattered: u64) {
    if scattered.is_multiple_of(TOTALS) {
        return assert_total::<M>(accounts).await;
    }
    let from = below(scattered, ACCOUNTS as u64) as usize;
    // One of the others, by how far it is from there.
    let distance = 1 + below(scattered << 32, ACCOUNTS as u64 - 1) as usize;
    let (from, to) = (&accounts[from], &accounts[(from + distance) % ACCOUNTS]);
    let amount = 1 + scattered % MOST;
    M::atomically(|transaction| {
        let balance = M::with(transaction, from, |balance| *balance)?;
        if balance >= amount {
            M::write(transaction, from, balance - amount)?;
            M::modify(transaction, to, |balance| *balance += amount)?;
        }
        Ok(())
    })
    .await;
}

async fn assert_total<M: Stm<Var<u64>: Sync>>(accounts: &[M::Var<u64>]) {
    let total = M::atomically(|transaction| {
        let mut total = 0;
        for account in accounts {
            total += M::with(transaction, account, |balance| *balance)?;
        }
        Ok(total)
    });
    assert_eq!(total.await, ACCOUNTS as u64 * BALANCE, "money was lost, or made");
}
