//! Tasks that exchange values through a place, two states, or a channel of several receivers.

use std::collections::VecDeque;
use std::sync::Arc;

use dapple::channel::{broadcast, mpmc};
use dapple::shared::when;
use dapple::sync::MVar;
use dapple::{JoinHandle, Shared};

/// How many messages a channel holds.
const CAPACITY: usize = 100;
/// How many receivers a channel has.
const RECEIVERS: usize = 4;

/// Two tasks that exchange a number through two places, there and back.
pub(crate) async fn mvar(count: usize) {
    let places = Arc::new((MVar::empty(), MVar::empty()));
    let other = dapple::spawn({
        let places = places.clone();
        async move {
            for _ in 0..count {
                let number: usize = places.0.take().await.expect("nobody cancels");
                places.1.put(number + 1).await.expect("nobody cancels");
            }
        }
    });
    let one = dapple::spawn(async move {
        for number in 0..count {
            places.0.put(number).await.expect("nobody cancels");
            assert_eq!(places.1.take().await, Ok(number + 1));
        }
    });
    one.await.expect("a task that ends");
    other.await.expect("a task that ends");
}

/// A number made by one task and used by another, which wait for conditions over two states each time.
pub(crate) async fn when_both(count: usize) {
    let credit = Shared::new(1_usize);
    let stock = Shared::new(VecDeque::<usize>::new());
    let producer = dapple::spawn({
        let (credit, stock) = (credit.clone(), stock.clone());
        async move {
            for number in 0..count {
                when((credit.writing(), stock.writing()), |(credit, stock)| {
                    (*credit > 0).then(|| {
                        *credit -= 1;
                        stock.push_back(number);
                    })
                })
                .await
                .expect("nobody cancels");
            }
        }
    });
    let consumer = dapple::spawn(async move {
        for number in 0..count {
            let taken = when((credit.writing(), stock.writing()), |(credit, stock)| {
                stock.pop_front().inspect(|_| *credit += 1)
            });
            assert_eq!(taken.await, Ok(number));
        }
    });
    producer.await.expect("a task that ends");
    consumer.await.expect("a task that ends");
}

/// Messages from two tasks to four, each to one of them, through a channel that is full and empty by turns.
pub(crate) async fn mpmc(count: usize) {
    const SENDERS: usize = 2;
    let (sender, receiver) = mpmc::bounded::<usize>(CAPACITY);
    // Not of the type that `spawn` awaits: a second caller of that code would keep it from being inlined there.
    let receivers: Vec<JoinHandle<u64>> = (0..RECEIVERS)
        .map(|_| {
            let receiver = receiver.clone();
            dapple::spawn(async move {
                let mut received = 0;
                while receiver.recv().await.is_ok() {
                    received += 1;
                }
                received
            })
        })
        .collect();
    let each = count / SENDERS;
    for _ in 0..SENDERS {
        let sender = sender.clone();
        let sends = async move {
            for number in 0..each {
                sender.send(number).await.expect("a receiver");
            }
        };
        dapple::spawn(sends).detach();
    }
    drop((sender, receiver));
    let mut received = 0;
    for receiver in receivers {
        received += receiver.await.expect("a task that ends");
    }
    assert_eq!(received, (each * SENDERS) as u64);
}

/// Messages from a task to four others, each to all of them, a hundred at a time.
pub(crate) async fn broadcast(count: usize) {
    let (sender, first) = broadcast::bounded::<usize>(CAPACITY);
    let (done, all) = mpmc::bounded::<()>(RECEIVERS);
    let mut receivers = vec![first];
    receivers.resize_with(RECEIVERS, || sender.subscribe());
    let tasks: Vec<JoinHandle<()>> = receivers
        .into_iter()
        .map(|mut receiver| {
            let done = done.clone();
            dapple::spawn(async move {
                for number in 0..count {
                    assert_eq!(receiver.recv().await, Ok(number));
                    if number % CAPACITY == CAPACITY - 1 {
                        done.send(()).await.expect("a receiver");
                    }
                }
            })
        })
        .collect();
    for number in 0..count {
        sender.send(number).expect("receivers");
        if number % CAPACITY == CAPACITY - 1 {
            for _ in 0..RECEIVERS {
                all.recv().await.expect("a sender");
            }
        }
    }
    for task in tasks {
        task.await.expect("a task that ends");
    }
}
