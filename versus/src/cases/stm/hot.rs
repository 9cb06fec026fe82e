//! `stm/hot`: all tasks add to one variable.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::contest::Contest;
use crate::sides::Side;
use crate::stms::{AsyncStm, DappleStm, FastStm, Stm};
use crate::work::Work;

pub(super) fn contest() -> Contest {
    let about = "transactions that all write one variable; per transaction";
    super::contest::<Hot<DappleStm>, Hot<FastStm>, Hot<AsyncStm>>("stm/hot", about)
}

/// Operations after which a task lets others run.
const TURN: u64 = 64;

struct Hot<M>(PhantomData<M>);

impl<M: Stm<Var<u64>: Send + Sync + 'static>> Work for Hot<M> {
    const BATCHES: usize = 1000;
    const OPERATIONS: usize = 1024;

    async fn run<S: Side>(side: S, batches: usize) {
        let var = Arc::new(M::var(0_u64));
        let each = (batches * Self::OPERATIONS / M::TASKS) as u64;
        let mut tasks = Vec::with_capacity(M::TASKS);
        for _ in 0..M::TASKS {
            let var = var.clone();
            tasks.push(side.spawn(async move {
                for number in 0..each {
                    M::atomically(|transaction| M::modify(transaction, &var, |value| *value += 1)).await;
                    if number % TURN == TURN - 1 {
                        S::yield_now().await;
                    }
                }
            }));
        }
        for task in tasks {
            S::join(task).await;
        }
        let value = M::atomically(|transaction| M::with(transaction, &var, |value| *value)).await;
        assert_eq!(value, M::TASKS as u64 * each, "a transaction was lost, or came twice");
    }
}
