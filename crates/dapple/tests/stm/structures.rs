//! Structures of variables: `TMVar`, `TQueue`, `TBoundedQueue`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use dapple::stm::{Abort, TBoundedQueue, TMVar, TQueue, Transaction, TryError, atomically, try_atomically};
use dapple::time::{Duration, sleep, timeout};
use dapple::{JoinHandle, spawn};

use crate::common::{in_a_process_of_its_own, runtime};

const STEP: Duration = Duration::from_millis(1);

/// As `try_atomically`, but waits for a transaction of another test that runs alone.
fn attempt<R>(mut f: impl FnMut(&mut Transaction<'_>) -> Result<R, Abort>) -> Result<R, TryError> {
    loop {
        match try_atomically(&mut f) {
            Err(TryError::Conflict) => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// Runs a transaction on another thread, while this one is in another transaction.
fn meanwhile(transaction: impl FnOnce() -> Result<(), TryError> + Send + 'static) {
    std::thread::spawn(transaction).join().unwrap().unwrap();
}

#[dapple::test(sim, seeds = 20)]
async fn an_empty_place_lets_a_taker_sleep_and_a_full_one_a_putter() {
    let place = TMVar::empty();
    let taker = spawn({
        let place = place.clone();
        atomically(move |tx| place.take(tx))
    });
    sleep(STEP).await.unwrap();
    assert!(!taker.is_finished());
    atomically(|tx| place.put(tx, 1)).await.unwrap();
    assert_eq!(taker.await.unwrap(), Ok(1));
    atomically(|tx| place.put(tx, 2)).await.unwrap();
    assert!(timeout(STEP, atomically(|tx| place.put(tx, 3))).await.is_err());
    assert_eq!(atomically(|tx| place.try_put(tx, 3)).await, Ok(Err(3)));
    assert_eq!(atomically(|tx| Ok((place.read(tx)?, place.is_empty(tx)?))).await, Ok((2, false)));
    assert_eq!(atomically(|tx| Ok((place.try_take(tx)?, place.try_take(tx)?))).await, Ok((Some(2), None)));
    assert_eq!(format!("{place:?}"), "TMVar(TVar(None))");
}

#[dapple::test]
async fn a_queue_gives_values_back_in_order_across_its_segments() {
    let queue = TQueue::new();
    let (mut pushed, mut popped) = (0, 0);
    for round in 1..40 {
        let after = atomically(|tx| {
            (pushed..pushed + round).try_for_each(|value| queue.push(tx, value))?;
            queue.len(tx)
        });
        assert_eq!(after.await, Ok(pushed + round - popped));
        pushed += round;
        let some = atomically(|tx| {
            assert_eq!(queue.peek(tx)?, popped);
            (0..round - 1).map(|_| queue.pop(tx)).collect::<Result<Vec<_>, _>>()
        });
        assert_eq!(some.await, Ok((popped..popped + round - 1).collect()));
        popped += round - 1;
    }
    let rest = atomically(|tx| {
        let mut rest = 0;
        while let Some(value) = queue.try_pop(tx)? {
            assert_eq!(value, popped + rest);
            rest += 1;
        }
        Ok((rest, queue.is_empty(tx)?, queue.try_peek(tx)?))
    });
    assert_eq!(rest.await, Ok((pushed - popped, true, None)));
}

#[dapple::test]
async fn an_undone_push_leaves_no_value() {
    let (queue, ring) = (TQueue::new(), TBoundedQueue::new(20));
    let undone = attempt(|tx| {
        for value in 0..20 {
            queue.push(tx, value)?;
            ring.push(tx, value)?;
        }
        tx.retry::<()>()
    });
    assert_eq!(undone, Err(TryError::Retry));
    assert_eq!(attempt(|tx| Ok((queue.len(tx)?, ring.len(tx)?))), Ok((0, 0)));
    attempt(|tx| queue.push(tx, 7)).unwrap();
    assert_eq!(attempt(|tx| queue.pop(tx)), Ok(7));
}

#[test]
fn a_push_does_not_disturb_a_pop() {
    // A transaction of another test that runs alone would be a conflict, too.
    in_a_process_of_its_own("a_push_does_not_disturb_a_pop", push_and_pop);
}

fn push_and_pop() {
    let (queue, ring) = (TQueue::new(), TBoundedQueue::new(4));
    try_atomically(|tx| Ok((queue.push(tx, 1)?, ring.push(tx, 1)?))).unwrap();
    let popped = try_atomically(|tx| {
        let values = (queue.pop(tx)?, ring.pop(tx)?);
        let (queue, ring) = (queue.clone(), ring.clone());
        meanwhile(move || try_atomically(|tx| queue.push(tx, 2).and_then(|()| ring.push(tx, 2))));
        Ok(values)
    });
    assert_eq!(popped, Ok((1, 1)));
    let pushed = try_atomically(|tx| {
        queue.push(tx, 3)?;
        ring.push(tx, 3)?;
        let (queue, ring) = (queue.clone(), ring.clone());
        meanwhile(move || {
            let popped = try_atomically(|tx| Ok((queue.pop(tx)?, ring.pop(tx)?)));
            popped.map(|both| assert_eq!(both, (2, 2)))
        });
        Ok(())
    });
    assert_eq!(pushed, Ok(()));
    // Two pops do disturb each other.
    let both = try_atomically(|tx| {
        let value = queue.pop(tx)?;
        let queue = queue.clone();
        meanwhile(move || try_atomically(|tx| queue.pop(tx).map(drop)));
        Ok(value)
    });
    assert_eq!(both, Err(TryError::Conflict));
}

#[dapple::test]
async fn a_bounded_queue_goes_round_and_is_full_at_its_capacity() {
    for capacity in [1, 2, 63, 64, 65, 200] {
        let queue = TBoundedQueue::new(capacity);
        assert_eq!(queue.capacity(), capacity);
        let mut next = 0;
        for _ in 0..5 {
            for pushed in 0..capacity {
                let state = atomically(|tx| Ok((queue.len(tx)?, queue.is_full(tx)?, queue.is_empty(tx)?)));
                assert_eq!(state.await, Ok((pushed, false, pushed == 0)));
                assert_eq!(attempt(|tx| queue.push(tx, next + pushed)), Ok(()));
            }
            assert_eq!(attempt(|tx| queue.try_push(tx, 0)), Ok(Err(0)));
            assert_eq!(attempt(|tx| queue.push(tx, 0)), Err(TryError::Retry));
            assert_eq!(attempt(|tx| Ok((queue.len(tx)?, queue.is_full(tx)?))), Ok((capacity, true)));
            // One less, so that the next round begins elsewhere.
            for popped in 0..capacity {
                assert_eq!(attempt(|tx| queue.peek(tx)), Ok(next + popped));
                assert_eq!(attempt(|tx| queue.pop(tx)), Ok(next + popped));
            }
            assert_eq!(attempt(|tx| queue.pop(tx)), Err(TryError::Retry));
            assert_eq!(attempt(|tx| queue.try_peek(tx)), Ok(None));
            attempt(|tx| queue.push(tx, 0)).unwrap();
            attempt(|tx| queue.pop(tx)).unwrap();
            next += capacity;
        }
    }
}

#[test]
fn a_capacity_of_zero_is_refused_with_a_sentence() {
    const NO_MEMORY: &str = "there is no memory for a capacity";
    for (capacity, text) in [(0, "the capacity is 0"), (1 << 56, NO_MEMORY), (usize::MAX, NO_MEMORY)] {
        let refused = catch_unwind(|| TBoundedQueue::<u8>::new(capacity)).unwrap_err();
        let message = refused.downcast_ref::<String>().cloned();
        let message = message.or_else(|| refused.downcast_ref::<&str>().map(|text| String::from(*text)));
        assert!(message.as_ref().is_some_and(|message| message.contains(text)), "{message:?}");
    }
}

/// Each value goes from one of the producers to one of the consumers, through queues that wait.
async fn pass_on(producers: u64, consumers: u64, each: u64) {
    let (first, second) = (TBoundedQueue::new(3), TQueue::new());
    let mut tasks: Vec<JoinHandle<u64>> = Vec::new();
    for producer in 0..producers {
        let first = first.clone();
        tasks.push(spawn(async move {
            for value in 0..each {
                atomically(|tx| first.push(tx, producer * each + value)).await.unwrap();
            }
            0
        }));
    }
    let mover = spawn({
        let (first, second) = (first.clone(), second.clone());
        async move {
            for _ in 0..producers * each {
                atomically(|tx| {
                    let value = first.pop(tx)?;
                    second.push(tx, value)
                })
                .await
                .unwrap();
            }
        }
    });
    for _ in 0..consumers {
        let second = second.clone();
        tasks.push(spawn(async move {
            let mut sum = 0;
            for _ in 0..producers * each / consumers {
                sum += atomically(|tx| second.pop(tx)).await.unwrap();
            }
            sum
        }));
    }
    mover.await.unwrap();
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    let values = producers * each;
    assert_eq!(sum, values * (values - 1) / 2);
    assert_eq!(attempt(|tx| Ok((first.len(tx)?, second.len(tx)?))), Ok((0, 0)));
}

#[dapple::test(sim, seeds = 200, workers = 3)]
async fn values_pass_through_queues_once_in_virtual_time() {
    pass_on(3, 2, 6).await;
}

#[test]
fn values_pass_through_queues_once() {
    in_a_process_of_its_own("values_pass_through_queues_once", || runtime(4).block_on(pass_on(8, 8, 100)));
}

#[test]
fn a_value_that_was_popped_is_dropped_at_once() {
    // A transaction of another test may be older, and would keep it for a while.
    in_a_process_of_its_own("a_value_that_was_popped_is_dropped_at_once", drop_popped);
}

fn drop_popped() {
    let (queue, ring) = (TQueue::new(), TBoundedQueue::new(2));
    let value = Arc::new(());
    let counts = |value: &Arc<()>| Arc::strong_count(value);
    attempt(|tx| {
        queue.push(tx, value.clone())?;
        ring.push(tx, value.clone())
    })
    .unwrap();
    assert_eq!(counts(&value), 3);
    attempt(|tx| Ok((queue.pop(tx)?, ring.pop(tx)?))).map(drop).unwrap();
    assert_eq!(counts(&value), 1);
    // And with the queue, if it was not.
    let weak: Weak<()> = Arc::downgrade(&value);
    attempt(|tx| queue.push(tx, value.clone())).unwrap();
    drop(value);
    assert!(weak.upgrade().is_some());
    drop(queue);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_panic_inside_leaves_a_queue_as_it_was() {
    let queue = TQueue::new();
    attempt(|tx| queue.push(tx, 1)).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        attempt(|tx| {
            queue.pop(tx)?;
            queue.push(tx, 2)?;
            if true {
                panic!("on purpose");
            }
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(attempt(|tx| Ok((queue.pop(tx)?, queue.try_pop(tx)?))), Ok((1, None)));
}
