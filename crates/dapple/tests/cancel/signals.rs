//! Protocols over permits and notifications: limits, pools, buffers.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};

use dapple::sim::check_after;
use dapple::sync::{Condvar, Mutex, Notify, OwnedSemaphorePermit, Semaphore};
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, spawn};
use futures_util::future::{Either, select};

use crate::Anything;
use crate::ledger::{InHand, Ledger, locked, sorted};

const MS: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Buffer {
    items: Mutex<(VecDeque<u32>, bool)>,
    filled: Condvar,
    emptied: Condvar,
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn a_bounded_buffer_over_condvars_forgets_no_waiter() -> Result<(), Anything> {
    let buffer = Arc::new(Buffer::default());
    let (put, taken) = (Ledger::new(), Ledger::new());
    let (producers, consumers) = (Arc::new(()), Arc::new(()));
    check_after({
        let (buffer, put, taken) = (buffer.clone(), put.clone(), taken.clone());
        let (producers, consumers) = (Arc::downgrade(&producers), Arc::downgrade(&consumers));
        async move {
            let items = buffer.items.try_lock().expect("a lock is held after its task has ended");
            let left: Vec<u32> = items.0.iter().copied().collect();
            assert_eq!(sorted(&[taken.list(), left.clone()]), sorted(&[put.list()]));
            if consumers.strong_count() > 0 {
                assert!(left.is_empty(), "a consumer waits, and {left:?} are there");
                assert_eq!(producers.strong_count(), 0, "a producer waits, and there is room");
            }
        }
    });
    let consuming = [0, 1].map(|consumer| {
        let (buffer, taken, is_alive) = (buffer.clone(), taken.clone(), consumers.clone());
        spawn(async move {
            let _is_alive = is_alive;
            loop {
                let items = buffer.items.lock().await?;
                let wait =
                    buffer.filled.wait_while(items, |(items, is_closed)| items.is_empty() && !*is_closed);
                let (mut items, waited) = wait.await;
                waited?;
                let Some(item) = items.0.pop_front() else { return Ok::<_, Cancelled>(()) };
                taken.add(item);
                drop(items);
                buffer.emptied.notify_one();
                sleep(MS * consumer).await?;
            }
        })
    });
    let producing = [0, 10].map(|first| {
        let (buffer, put, is_alive) = (buffer.clone(), put.clone(), producers.clone());
        spawn(async move {
            let _is_alive = is_alive;
            for item in first..first + 4 {
                let items = buffer.items.lock().await?;
                let (mut items, waited) =
                    buffer.emptied.wait_while(items, |(items, _)| items.len() >= 2).await;
                waited?;
                items.0.push_back(item);
                put.add(item);
                drop(items);
                buffer.filled.notify_one();
            }
            Ok::<_, Cancelled>(())
        })
    });
    drop((producers, consumers));
    for producer in producing {
        producer.await??;
    }
    buffer.items.lock().await?.1 = true;
    buffer.filled.notify_all();
    for consumer in consuming {
        consumer.await??;
    }
    assert_eq!(taken.len(), 8);
    Ok(())
}

#[derive(Default)]
struct Barrier {
    state: Mutex<Phase>,
    turned: Condvar,
}

#[derive(Default)]
struct Phase {
    number: u32,
    members: usize,
    arrived: usize,
}

impl Phase {
    fn turn_if_complete(&mut self, turned: &Condvar) {
        if self.arrived == self.members {
            (self.number, self.arrived) = (self.number + 1, 0);
            turned.notify_all();
        }
    }
}

/// A member, which the others no longer wait for after it was dropped.
struct Member {
    barrier: Arc<Barrier>,
    arrived_in: Option<u32>,
}

impl Member {
    async fn arrive(&mut self) -> Result<(), Cancelled> {
        let mut phase = self.barrier.state.lock().await?;
        let number = phase.number;
        self.arrived_in = Some(number);
        phase.arrived += 1;
        phase.turn_if_complete(&self.barrier.turned);
        self.barrier.turned.wait_while(phase, |phase| phase.number == number).await.1
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut phase = self.barrier.state.try_lock().expect("held across no wait");
        phase.members -= 1;
        phase.arrived -= usize::from(self.arrived_in == Some(phase.number));
        phase.turn_if_complete(&self.barrier.turned);
    }
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_barrier_goes_on_without_a_member_that_leaves() -> Result<(), Anything> {
    let barrier = Arc::new(Barrier::default());
    let progress: Arc<[AtomicU32; 3]> = Arc::default();
    let left = Ledger::new();
    check_after({
        let (barrier, left) = (barrier.clone(), left.clone());
        async move {
            let phase = barrier.state.try_lock().expect("a lock is held after its task has ended");
            assert_eq!((phase.members, phase.arrived), (0, 0), "a member waits for one that has left");
            assert_eq!(left.len(), 3);
        }
    });
    barrier.state.try_lock()?.members = 3;
    let members = [0, 1, 2].map(|number: u32| {
        let (progress, left) = (progress.clone(), left.clone());
        let leaves = InHand::new(number, &left);
        let mut member = Member { barrier: barrier.clone(), arrived_in: None };
        spawn(async move {
            let _leaves = leaves;
            for phase in 1..=3 {
                sleep(MS * number).await?;
                progress[number as usize].store(phase, Relaxed);
                member.arrive().await?;
                let is_behind = |other: &u32| progress[*other as usize].load(Relaxed) < phase;
                let early = (0..3).filter(is_behind).find(|other| !left.list().contains(other));
                assert_eq!(early, None, "phase {phase} has ended without a member");
            }
            Ok::<_, Cancelled>(())
        })
    });
    for member in members {
        member.await??;
    }
    assert!(progress.iter().all(|progress| progress.load(Relaxed) == 3));
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_rate_limiter_counts_each_token_once() -> Result<(), Anything> {
    let tokens = Arc::new(Semaphore::new(2));
    let (refilled, used) = (Ledger::new(), Ledger::new());
    check_after({
        let (tokens, refilled, used) = (tokens.clone(), refilled.clone(), used.clone());
        async move {
            let used: usize = used.list().iter().sum();
            assert_eq!(tokens.available_permits(), 2 + refilled.len() - used);
        }
    });
    let refill = spawn({
        let tokens = tokens.clone();
        async move {
            for _ in 0..8 {
                sleep(2 * MS).await?;
                if tokens.available_permits() < 2 {
                    tokens.add_permits(1);
                    refilled.add(());
                }
            }
            Ok::<_, Cancelled>(())
        }
    });
    let clients = [1, 1, 2, 1].map(|cost| {
        let (tokens, used) = (tokens.clone(), used.clone());
        spawn(async move {
            for _ in 0..3 {
                // Permits that came together with the end of the time are used.
                let acquired = timeout(3 * MS, tokens.acquire_many(cost)).await;
                if let Ok(permits) = acquired.unwrap_or_else(|late| late.into_inner().unwrap()) {
                    assert_eq!(permits.count(), cost);
                    permits.forget();
                    used.add(cost);
                }
                sleep(MS).await?;
            }
            Ok::<_, Cancelled>(())
        })
    });
    for client in clients {
        client.await??;
    }
    Ok(refill.await??)
}

/// A connection, which goes back to its pool when it is dropped: first the connection, then the permit.
struct Connection {
    number: u32,
    idle: Arc<StdMutex<Vec<u32>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Connection {
    fn drop(&mut self) {
        locked(&self.idle).push(self.number);
    }
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_connection_pool_gets_all_connections_back() -> Result<(), Anything> {
    let permits = Arc::new(Semaphore::new(2));
    let idle = Arc::new(StdMutex::new(vec![0, 1]));
    let (begun, ended, broken_off) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (permits, idle) = (permits.clone(), idle.clone());
        let (begun, ended, broken_off) = (begun.clone(), ended.clone(), broken_off.clone());
        async move {
            assert_eq!(permits.available_permits(), 2);
            assert_eq!(sorted(&[locked(&idle).clone()]), [0, 1]);
            assert_eq!(sorted(&[ended.list(), broken_off.list()]), sorted(&[begun.list()]));
        }
    });
    let clients = [0, 1, 2, 3].map(|client: u32| {
        let (permits, idle) = (permits.clone(), idle.clone());
        let (begun, ended, broken_off) = (begun.clone(), ended.clone(), broken_off.clone());
        spawn(async move {
            for query in 0..2 {
                let permit = match select(pin!(permits.clone().acquire_owned()), pin!(sleep(3 * MS))).await {
                    Either::Left((permit, _)) => permit?,
                    Either::Right((time, _)) => {
                        time?;
                        continue; // the pool is busy: this query is given up
                    }
                };
                let number = locked(&idle).pop().expect("a permit is a connection");
                let connection = Connection { number, idle: idle.clone(), _permit: permit };
                begun.add((client, query));
                let running = InHand::new((client, query), &broken_off);
                sleep(MS * (1 + client)).await?;
                ended.add(running.done());
                drop(connection);
            }
            Ok::<_, Anything>(())
        })
    });
    for client in clients {
        client.await??;
    }
    assert_eq!(begun.len(), ended.len());
    Ok(())
}

type Queue = (StdMutex<VecDeque<u32>>, Notify);

/// Takes items until it is cancelled.
async fn consume(
    (items, filled): &Queue,
    pause: Duration,
    taken: &Ledger<u32>,
    broken_off: &Ledger<u32>,
) -> Result<(), Cancelled> {
    loop {
        let next = locked(items).pop_front();
        if let Some(item) = next {
            let item = InHand::new(item, broken_off);
            sleep(pause).await?;
            taken.add(item.done());
        } else {
            // Other duties come from time to time. The wait that is dropped then passes its notification on.
            loop {
                match select(filled.notified(), sleep(6 * pause)).await {
                    Either::Left((notified, _)) => break notified?,
                    Either::Right((time, _)) => time?,
                }
            }
        }
    }
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn a_queue_with_notifications_forgets_no_consumer() -> Result<(), Anything> {
    let queue: Arc<Queue> = Arc::default();
    let (put, taken, broken_off) = (Ledger::new(), Ledger::new(), Ledger::new());
    let consumers = Arc::new(());
    check_after({
        let (queue, put, taken, broken_off) = (queue.clone(), put.clone(), taken.clone(), broken_off.clone());
        let consumers = Arc::downgrade(&consumers);
        async move {
            let left: Vec<u32> = locked(&queue.0).drain(..).collect();
            assert!(
                consumers.strong_count() == 0 || left.is_empty(),
                "a consumer waits, and {left:?} are there"
            );
            assert_eq!(sorted(&[taken.list(), broken_off.list(), left]), sorted(&[put.list()]));
        }
    });
    let consuming = [1, 2, 3].map(|pause| {
        let (queue, taken, broken_off) = (queue.clone(), taken.clone(), broken_off.clone());
        let is_alive = consumers.clone();
        spawn(async move {
            let _is_alive = is_alive;
            consume(&queue, MS * pause, &taken, &broken_off).await
        })
    });
    drop(consumers);
    for item in 0..6 {
        locked(&queue.0).push_back(item);
        put.add(item);
        queue.1.notify_one();
        sleep(MS * item).await?;
    }
    sleep(20 * MS).await?;
    assert!(locked(&queue.0).is_empty(), "all consumers wait, and the queue is not empty");
    for consumer in &consuming {
        consumer.cancel();
    }
    for consumer in consuming {
        match consumer.await? {
            Err(Cancelled) => {}
            Ok(()) => unreachable!("a consumer ends when it is cancelled"),
        }
    }
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn large_and_small_requests_share_a_budget() -> Result<(), Anything> {
    let budget = Arc::new(Semaphore::new(4));
    let used = Arc::new(AtomicU32::new(0));
    let (served, refused) = (Ledger::new(), Ledger::new());
    check_after({
        let (budget, used) = (budget.clone(), used.clone());
        async move {
            assert_eq!(used.load(Relaxed), 0);
            assert_eq!(budget.available_permits(), 4);
        }
    });
    let requests = [1, 4, 2, 3, 1, 2].map(|size: u32| {
        let (budget, used) = (budget.clone(), used.clone());
        let (served, refused) = (served.clone(), refused.clone());
        spawn(async move {
            let permits = match budget.acquire_many_owned(size as usize).await {
                Ok(permits) => permits,
                Err(error) if error.is_closed() => {
                    refused.add(size);
                    return Ok(());
                }
                Err(error) => return Err(Anything::from(error)),
            };
            // The work goes on in a task of its own, which takes the permits along.
            let worker = spawn(async move {
                let _used = Used::new(size, &used);
                sleep(MS * size).await?;
                drop(permits);
                Ok::<_, Cancelled>(())
            });
            worker.await??;
            served.add(size);
            Ok(())
        })
    });
    sleep(6 * MS).await?;
    budget.close();
    for request in requests {
        request.await??;
    }
    assert_eq!(served.len() + refused.len(), 6);
    Ok(())
}

/// A part of the budget in use.
struct Used(u32, Arc<AtomicU32>);

impl Used {
    fn new(size: u32, used: &Arc<AtomicU32>) -> Used {
        assert!(used.fetch_add(size, Relaxed) + size <= 4, "more is in use than there is");
        Used(size, used.clone())
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0, Relaxed);
    }
}
