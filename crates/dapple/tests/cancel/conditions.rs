//! Programs that wait for conditions, values and each other: `when`, `MVar`, `Barrier`, `OnceCell`, `mpmc`, `broadcast`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dapple::channel::{broadcast, mpmc};
use dapple::shared::when;
use dapple::sim::check_after;
use dapple::sync::{Barrier, MVar, OnceCell};
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, JoinHandle, Shared, spawn};

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
async fn a_shop_sells_what_it_has_once() -> Result<(), Anything> {
    let (stock, cash) = (Shared::new(0_u32), Shared::new(0_u32));
    let (delivered, sold) = (Ledger::new(), Ledger::new());
    let (in_stock, in_cash, log, sales) = (stock.clone(), cash.clone(), delivered.clone(), sold.clone());
    check_after(async move {
        let stock = in_stock.write(|stock| *stock).await.unwrap();
        let cash = in_cash.write(|cash| *cash).await.unwrap();
        assert_eq!(log.list().iter().sum::<u32>(), stock + cash, "sold twice, or lost");
        assert_eq!(sales.list().iter().sum::<u32>(), cash, "a sale that was cancelled has happened");
        // A customer that is left, or comes, is served: no wake-up was lost with one that was cancelled.
        let next = spawn({
            let stock = in_stock.clone();
            async move { stock.when(|stock: &mut u32| (*stock >= 100).then(|| *stock -= 100)).await }
        });
        sleep(STEP).await.unwrap();
        in_stock.write(|stock| *stock += 100).await.unwrap();
        timeout(10 * STEP, next).await.expect("a customer sleeps while there is enough").unwrap().unwrap();
    });
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for amount in [3, 1, 2] {
        let (stock, cash, sold) = (stock.clone(), cash.clone(), sold.clone());
        tasks.push(spawn(async move {
            let buy = when((stock.writing(), cash.writing()), |(stock, cash)| {
                (*stock >= amount).then(|| {
                    *stock -= amount;
                    *cash += amount;
                    sold.add(amount);
                })
            });
            in_time(buy).await??;
            Ok(())
        }));
    }
    tasks.push(spawn(async move {
        for _ in 0..3 {
            sleep(STEP).await?;
            stock
                .write(|stock| {
                    *stock += 2;
                    delivered.add(2);
                })
                .await?;
        }
        Ok(())
    }));
    join(tasks).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn values_in_an_mvar_are_taken_once() -> Result<(), Anything> {
    let place = Arc::new(MVar::empty());
    let (put, taken, kept) = (Ledger::new(), Ledger::new(), Ledger::new());
    let (after, all, out, back) = (place.clone(), put.clone(), taken.clone(), kept.clone());
    check_after(async move {
        let left: Vec<u32> = after.try_take().into_iter().collect();
        assert_eq!(sorted(&[all.list()]), sorted(&[out.list(), back.list(), left]), "lost, or doubled");
        after.try_put(0).expect("it was emptied");
    });
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for number in 0..2 {
        let (place, put, kept) = (place.clone(), put.clone(), kept.clone());
        tasks.push(spawn(async move {
            for value in [2 * number, 2 * number + 1] {
                put.add(value);
                let in_hand = InHand::new(value, &kept);
                // A put that is dropped drops its value: the hand notes that.
                match in_time(place.put(value)).await? {
                    Ok(()) => drop(in_hand.done()),
                    Err(_) => return Err(Cancelled.into()),
                }
            }
            Ok(())
        }));
    }
    for _ in 0..2 {
        let (place, taken) = (place.clone(), taken.clone());
        tasks.push(spawn(async move {
            for _ in 0..2 {
                in_time(place.with(|value| *value += 0)).await??;
                let value = in_time(place.take()).await??;
                taken.add(value);
            }
            Ok(())
        }));
    }
    join(tasks).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_barrier_lets_through_as_many_as_have_come() -> Result<(), Anything> {
    let (barrier, passed) = (Arc::new(Barrier::new(3)), Arc::new(AtomicUsize::new(0)));
    let (after, count) = (barrier.clone(), passed.clone());
    check_after(async move {
        assert!(count.load(Relaxed) <= 3);
        // None that has left is counted.
        let waits = spawn({
            let barrier = after.clone();
            async move { barrier.wait().await }
        });
        let late = timeout(STEP, after.wait()).await.expect_err("one that has left is counted");
        assert_eq!(late.into_inner(), Some(Err(Cancelled)));
        waits.abort();
    });
    let tasks = (0..3)
        .map(|number| {
            let (barrier, passed) = (barrier.clone(), passed.clone());
            spawn(async move {
                sleep(STEP * number).await?;
                in_time(barrier.wait()).await??;
                passed.fetch_add(1, Relaxed);
                Ok::<(), Anything>(())
            })
        })
        .collect();
    join(tasks).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_value_is_initialised_once_though_initialisers_leave() -> Result<(), Anything> {
    let (cell, set) = (Arc::new(OnceCell::new()), Arc::new(AtomicUsize::new(0)));
    let (after, count) = (cell.clone(), set.clone());
    check_after(async move {
        assert_eq!(usize::from(after.is_set()), count.load(Relaxed));
        let value = timeout(STEP, after.get_or_init(|| async { 7 })).await;
        assert!(value.expect("the turn was not handed over").is_ok());
    });
    let tasks = (0..3)
        .map(|number| {
            let (cell, set) = (cell.clone(), set.clone());
            spawn(async move {
                let init = || async {
                    sleep(STEP).await?;
                    set.fetch_add(1, Relaxed);
                    Ok::<_, Cancelled>(number)
                };
                cell.get_or_try_init(init).await?;
                Ok::<(), Anything>(())
            })
        })
        .collect();
    join(tasks).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn jobs_go_to_one_worker_each() -> Result<(), Anything> {
    let (sender, receiver) = mpmc::bounded(2);
    let (sent, done) = (Ledger::new(), Ledger::new());
    let (all, out, left) = (sent.clone(), done.clone(), receiver.clone());
    check_after(async move {
        let left: Vec<u32> = std::iter::from_fn(|| left.try_recv().ok()).collect();
        assert_eq!(sorted(&[all.list()]), sorted(&[out.list(), left]), "lost, or doubled");
    });
    let mut tasks: Vec<JoinHandle<Result<(), Anything>>> = Vec::new();
    for number in 0..2 {
        let (sender, sent) = (sender.clone(), sent.clone());
        tasks.push(spawn(async move {
            for job in 0..3 {
                let job = 3 * number + job;
                // Noted when it is sent, in the same step.
                if in_time(sender.send(job)).await?.is_err() {
                    return Err(Cancelled.into());
                }
                sent.add(job);
            }
            Ok(())
        }));
    }
    drop(sender);
    for _ in 0..2 {
        let (receiver, done) = (receiver.clone(), done.clone());
        tasks.push(spawn(async move {
            loop {
                match receiver.recv().await {
                    Ok(job) => done.add(job),
                    Err(error) if error.is_closed() => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
                sleep(STEP / 4).await?;
            }
        }));
    }
    drop(receiver);
    join(tasks).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn listeners_hear_each_message_or_count_it() -> Result<(), Anything> {
    let (sender, first) = broadcast::bounded(2);
    let listener = |mut receiver: broadcast::Receiver<u64>| {
        spawn(async move {
            let mut next = 0;
            loop {
                match receiver.recv().await {
                    Ok(message) => {
                        assert_eq!(message, next);
                        next += 1;
                    }
                    Err(broadcast::RecvError::Lagged(missed)) => next += missed,
                    Err(broadcast::RecvError::Closed) => return Ok::<(), Anything>(()),
                    Err(error) => return Err(error.into()),
                }
            }
        })
    };
    let mut tasks = vec![listener(first.resubscribe()), listener(first)];
    tasks.push(spawn(async move {
        for message in 0..6 {
            if sender.send(message).is_err() {
                break; // all listeners have left
            }
            if message % 3 == 0 {
                sleep(STEP).await?;
            }
        }
        Ok(())
    }));
    join(tasks).await
}
