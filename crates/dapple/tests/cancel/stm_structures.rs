//! Programs that pass values through structures of variables: a value whose transaction is cancelled is where it was.

use std::sync::Arc;

use dapple::sim::check_after;
use dapple::stm::{TBoundedQueue, TMVar, TMap, TQueue, atomically};
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, JoinHandle, spawn};

use crate::Anything;
use crate::ledger::{InHand, Ledger, sorted};

const STEP: Duration = Duration::from_millis(1);

/// Waits, with a time limit, in case the tasks that it waits for have left. Returns the result of the wait in either case.
async fn in_time<F: Future>(wait: F) -> Result<F::Output, Cancelled> {
    match timeout(20 * STEP, wait).await {
        Ok(output) => Ok(output),
        Err(late) => late.into_inner().ok_or(Cancelled),
    }
}

async fn join(tasks: Vec<JoinHandle<Result<(), Anything>>>) -> Result<(), Anything> {
    let mut first = Ok(());
    for task in tasks {
        first = first.and(task.await?);
    }
    first
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn values_go_through_queues_once() -> Result<(), Anything> {
    let (ring, queue) = (TBoundedQueue::new(2), TQueue::new());
    let (pushed, popped) = (Ledger::new(), Ledger::new());
    let (in_ring, in_queue, all, out) = (ring.clone(), queue.clone(), pushed.clone(), popped.clone());
    check_after(async move {
        let left = atomically(|tx| {
            let mut left = Vec::new();
            while let Some(value) = in_ring.try_pop(tx)? {
                left.push(value);
            }
            while let Some(value) = in_queue.try_pop(tx)? {
                left.push(value);
            }
            Ok(left)
        });
        let left = left.await.unwrap();
        assert_eq!(sorted(&[all.list()]), sorted(&[out.list(), left]), "lost, or doubled");
        // Both go on as if no one had been cancelled.
        atomically(|tx| ring_and_queue(tx, &in_ring, &in_queue)).await.unwrap();
    });
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for producer in 0..2_u32 {
        let (ring, pushed) = (ring.clone(), pushed.clone());
        tasks.push(spawn(async move {
            for value in [2 * producer, 2 * producer + 1] {
                let push = atomically(|tx| {
                    let log = pushed.clone();
                    tx.after_commit(move || log.add(value));
                    ring.push(tx, value)
                });
                in_time(push).await??;
            }
            Ok(())
        }));
    }
    // A mover has a value in no hand: it is in the one queue, or in the other.
    tasks.push(spawn({
        let (ring, queue) = (ring.clone(), queue.clone());
        async move {
            for _ in 0..4 {
                in_time(atomically(|tx| {
                    let value = ring.pop(tx)?;
                    queue.push(tx, value)
                }))
                .await??;
            }
            Ok(())
        }
    }));
    tasks.push(spawn(async move {
        for _ in 0..4 {
            let value = in_time(atomically(|tx| {
                let value = queue.pop(tx)?;
                let log = popped.clone();
                tx.after_commit(move || log.add(value));
                Ok(value)
            }))
            .await??;
            assert!(value < 4);
            sleep(STEP / 4).await?;
        }
        Ok(())
    }));
    join(tasks).await
}

fn ring_and_queue(
    tx: &mut dapple::stm::Transaction<'_>,
    ring: &TBoundedQueue<u32>,
    queue: &TQueue<u32>,
) -> Result<(), dapple::stm::Abort> {
    for value in 0..2 {
        ring.push(tx, value)?;
        queue.push(tx, value)?;
    }
    assert!(ring.is_full(tx)?);
    for value in 0..2 {
        assert_eq!((ring.pop(tx)?, queue.pop(tx)?), (value, value));
    }
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn forks_are_taken_both_or_none() -> Result<(), Anything> {
    let forks: Arc<[TMVar<u32>]> = (0..3).map(TMVar::new).collect();
    let hands = Ledger::new();
    let (after, left_in_hand) = (forks.clone(), hands.clone());
    check_after(async move {
        let on_table = atomically(|tx| {
            let mut on_table = Vec::new();
            for fork in &*after {
                on_table.extend(fork.try_take(tx)?);
            }
            Ok(on_table)
        });
        let on_table = on_table.await.unwrap();
        assert_eq!(sorted(&[on_table, left_in_hand.list()]), [0, 1, 2], "a fork is lost, or doubled");
    });
    let tasks = (0..3)
        .map(|seat| {
            let (forks, hands) = (forks.clone(), hands.clone());
            spawn(async move {
                let (left, right) = (&forks[seat], &forks[(seat + 1) % 3]);
                for _ in 0..2 {
                    let both = atomically(|tx| Ok((left.take(tx)?, right.take(tx)?)));
                    let (a, b) = in_time(both).await??;
                    let (a, b) = (InHand::new(a, &hands), InHand::new(b, &hands));
                    sleep(STEP / 4).await?;
                    atomically(|tx| left.put(tx, *a).and_then(|()| right.put(tx, *b))).await?;
                    a.done();
                    b.done();
                }
                Ok::<(), Anything>(())
            })
        })
        .collect();
    join(tasks).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_guest_waits_for_a_room_in_a_map() -> Result<(), Anything> {
    let rooms = TMap::new();
    let moved_in = Ledger::new();
    let (after, guests) = (rooms.clone(), moved_in.clone());
    check_after(async move {
        // A guest has a room, or has not: a room that is taken is not in the map.
        let left = atomically(|tx| {
            let mut left = Vec::new();
            after.for_each(tx, |room, _| left.push(*room))?;
            Ok(left)
        });
        let all = sorted(&[left.await.unwrap(), guests.list()]);
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "a room is given twice: {all:?}");
        let next = spawn({
            let rooms = after.clone();
            atomically(move |tx| rooms.wait_for(tx, &100))
        });
        sleep(STEP).await.unwrap();
        atomically(|tx| after.insert(tx, 100, ())).await.unwrap();
        timeout(10 * STEP, next).await.expect("a guest sleeps while there is a room").unwrap().unwrap();
    });
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for room in 0..3_u32 {
        let (rooms, moved_in) = (rooms.clone(), moved_in.clone());
        tasks.push(spawn(async move {
            let take = atomically(|tx| {
                rooms.wait_for(tx, &room)?;
                rooms.remove(tx, &room)?;
                let log = moved_in.clone();
                tx.after_commit(move || log.add(room));
                Ok(())
            });
            Ok(in_time(take).await??)
        }));
    }
    tasks.push(spawn(async move {
        for room in 0..3 {
            sleep(STEP).await?;
            atomically(|tx| rooms.insert(tx, room, ())).await?;
        }
        Ok(())
    }));
    join(tasks).await
}
