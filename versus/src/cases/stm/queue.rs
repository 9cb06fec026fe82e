//! `stm/queue`: 64 producers and 64 consumers, and between them a bounded queue that waits by `retry`.
//!
//! The queue is a ring of 64 variables with a variable for either end, the same on all sides: a producer conflicts with
//! producers only, and a consumer with consumers, unless the queue is full or empty. On threads that are 128 of them.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::contest::Contest;
use crate::sides::Side;
use crate::stms::{AsyncStm, DappleStm, FastStm, Step, Stm};
use crate::work::Work;

pub(super) fn contest() -> Contest {
    let about = "64 producers and 64 consumers wait by `retry` at a queue that holds 64; per message";
    super::contest::<Queue<DappleStm>, Queue<FastStm>, Queue<AsyncStm>>("stm/queue", about)
}

/// Producers, and consumers.
const ENDS: usize = 64;

/// Messages that the queue holds.
const CAPACITY: usize = 64;

struct Ring<M: Stm> {
    slots: Vec<M::Var<Option<u64>>>,
    /// The count of messages that were put in.
    last: M::Var<usize>,
    /// The count of messages that were taken out.
    first: M::Var<usize>,
}

impl<M: Stm> Ring<M> {
    fn new() -> Self {
        Self { slots: (0..CAPACITY).map(|_| M::var(None)).collect(), last: M::var(0), first: M::var(0) }
    }

    fn put(&self, transaction: &mut M::Transaction<'_>, message: u64) -> Step<M, ()> {
        let last = M::with(transaction, &self.last, |last| *last)?;
        let slot = &self.slots[last % CAPACITY];
        if M::with(transaction, slot, Option::is_some)? {
            return M::retry(transaction);
        }
        M::write(transaction, slot, Some(message))?;
        M::write(transaction, &self.last, last + 1)
    }

    fn take(&self, transaction: &mut M::Transaction<'_>) -> Step<M, u64> {
        let first = M::with(transaction, &self.first, |first| *first)?;
        let slot = &self.slots[first % CAPACITY];
        let Some(message) = M::with(transaction, slot, |message| *message)? else {
            return M::retry(transaction);
        };
        M::write(transaction, slot, None)?;
        M::write(transaction, &self.first, first + 1)?;
        Ok(message)
    }
}

struct Queue<M>(PhantomData<M>);

impl<M> Work for Queue<M>
where
    M: Stm<Var<usize>: Send + Sync + 'static, Var<Option<u64>>: Send + Sync + 'static>,
{
    const BATCHES: usize = 20;
    const OPERATIONS: usize = ENDS * 16;

    async fn run<S: Side>(side: S, batches: usize) {
        let each = (batches * Self::OPERATIONS / ENDS) as u64;
        let ring = Arc::new(Ring::<M>::new());
        let mut consumers = Vec::with_capacity(ENDS);
        for _ in 0..ENDS {
            let ring = ring.clone();
            consumers.push(side.spawn(async move {
                let mut got = Vec::with_capacity(each as usize);
                for _ in 0..each {
                    got.push(M::atomically(|transaction| ring.take(transaction)).await);
                }
                got
            }));
        }
        let mut producers = Vec::with_capacity(ENDS);
        for producer in 0..ENDS as u64 {
            let ring = ring.clone();
            producers.push(side.spawn(async move {
                for message in producer * each..(producer + 1) * each {
                    M::atomically(|transaction| ring.put(transaction, message)).await;
                }
            }));
        }
        for producer in producers {
            S::join(producer).await;
        }
        let mut got = Vec::with_capacity(ENDS * each as usize);
        for consumer in consumers {
            got.append(&mut S::join(consumer).await);
        }
        got.sort_unstable();
        assert!(got.into_iter().eq(0..ENDS as u64 * each), "a message was lost, or came twice");
    }
}
