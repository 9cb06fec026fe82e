//! `MVar`: one waiter for each value, in order, and none that is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use dapple::sync::MVar;
use dapple::time::{sleep, timeout};
use dapple::{Cancelled, spawn};

const MS: Duration = Duration::from_millis(1);

#[dapple::test(sim, seeds = 20)]
async fn waiters_are_served_in_the_order_in_which_they_came() {
    let (place, served) = (Arc::new(MVar::empty()), Arc::new(std::sync::Mutex::new(Vec::new())));
    let mut tasks = Vec::new();
    for name in 0..5 {
        let (place, served) = (place.clone(), served.clone());
        tasks.push(spawn(async move {
            let value: usize = place.take().await.unwrap();
            served.lock().unwrap().push((name, value));
        }));
        sleep(MS).await.unwrap();
    }
    for value in 0..5 {
        place.put(value).await.unwrap();
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[dapple::test(sim, seeds = 20)]
async fn puts_wait_until_it_is_empty_in_order() {
    let place = Arc::new(MVar::new(0));
    let mut tasks = Vec::new();
    for value in 1..=4 {
        let place = place.clone();
        tasks.push(spawn(async move { place.put(value).await }));
        sleep(MS).await.unwrap();
    }
    for value in 0..=4 {
        assert_eq!(place.take().await, Ok(value));
    }
    assert!(place.is_empty());
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[dapple::test(sim, seeds = 50, workers = 2)]
async fn a_put_wakes_one_waiter() {
    // Each take that is woken in vain is polled once more: polls are counted.
    let place = Arc::new(MVar::empty());
    let polls = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (place, polls) = (place.clone(), polls.clone());
            spawn(async move {
                let mut take = std::pin::pin!(place.take());
                std::future::poll_fn(|cx| {
                    polls.fetch_add(1, Relaxed);
                    take.as_mut().poll(cx)
                })
                .await
            })
        })
        .collect();
    sleep(MS).await.unwrap();
    assert_eq!(polls.swap(0, Relaxed), 4);
    for value in 0..4 {
        place.put(value).await.unwrap();
        sleep(MS).await.unwrap();
        assert_eq!(polls.swap(0, Relaxed), 1, "one waiter is woken");
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[dapple::test(sim, seeds = 20)]
async fn a_take_that_was_cancelled_has_taken_nothing() {
    let place = MVar::empty();
    let late = timeout(MS, place.take()).await.unwrap_err();
    assert_eq!(late.into_inner(), Some(Err(Cancelled)));
    place.put(7).await.unwrap();
    let late = timeout(MS, place.put(8)).await.unwrap_err();
    let refused = late.into_inner().unwrap().unwrap_err();
    assert!(refused.is_cancelled());
    assert_eq!(refused.into_inner(), 8, "a cancelled put hands the value back");
    assert_eq!(place.take().await, Ok(7));
}

#[dapple::test(sim, seeds = 20)]
async fn reads_leave_the_value_and_with_changes_it_in_place() {
    let place = Arc::new(MVar::new(vec![1]));
    assert_eq!(place.read().await.unwrap(), [1]);
    place.with(|value| value.push(2)).await.unwrap();
    assert_eq!(place.try_read().unwrap(), [1, 2]);
    let panics = spawn({
        let place = place.clone();
        async move { place.with(|_| panic!("inside")).await }
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(place.try_take().unwrap(), [1, 2], "a panic leaves the value");
    assert!(place.try_take().is_none());
    assert!(place.try_read().is_none());
    place.try_put(vec![3]).unwrap();
    assert!(place.try_put(vec![4]).unwrap_err().is_full());
    assert_eq!(Arc::into_inner(place).unwrap().into_inner().unwrap(), [3]);
}

#[dapple::test(sim, seeds = 20)]
async fn readers_and_takers_in_line_are_all_served() {
    let place = Arc::new(MVar::empty());
    let mut readers = Vec::new();
    for _ in 0..3 {
        let place = place.clone();
        readers.push(spawn(async move { place.read().await }));
        sleep(MS).await.unwrap();
    }
    let taker = spawn({
        let place = place.clone();
        async move { place.take().await }
    });
    sleep(MS).await.unwrap();
    place.put(5).await.unwrap();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), Ok(5));
    }
    assert_eq!(taker.await.unwrap(), Ok(5));
}

#[dapple::test(sim, seeds = 20)]
async fn a_swap_leaves_no_gap_and_a_cancelled_one_hands_its_value_back() {
    let place = Arc::new(MVar::empty());
    let late = timeout(MS, place.swap(1)).await.unwrap_err();
    let refused = late.into_inner().unwrap().unwrap_err();
    assert!(refused.is_cancelled());
    assert_eq!(refused.into_inner(), 1);
    let puts = spawn({
        let place = place.clone();
        async move {
            place.put(2).await.unwrap();
            place.put(4).await.unwrap(); // only after the last take
        }
    });
    sleep(MS).await.unwrap();
    assert_eq!(place.swap(3).await.unwrap(), 2);
    assert_eq!((place.try_read(), puts.is_finished()), (Some(3), false));
    assert_eq!((place.take().await, place.take().await), (Ok(3), Ok(4)));
    puts.await.unwrap();
}

#[test]
fn threads_outside_take_and_put() {
    let place = Arc::new(MVar::empty());
    let thread = std::thread::spawn({
        let place = place.clone();
        move || (0..100).map(|_| place.take_blocking().unwrap()).sum::<u32>()
    });
    for value in 0..100 {
        place.put_blocking(value).unwrap();
    }
    assert_eq!(thread.join().unwrap(), 4950);
}
