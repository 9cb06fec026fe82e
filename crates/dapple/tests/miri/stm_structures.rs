//! The memory that structures of variables own: segments of a queue, places of a ring, branches of a map.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use dapple::stm::{TBoundedQueue, TMVar, TMap, TQueue, atomically, atomically_blocking};

/// Values are dropped by the last transaction that could use them, which may be one of another test.
fn wait_for_count(value: &Arc<()>, count: usize) {
    while Arc::strong_count(value) != count {
        thread::yield_now();
    }
}

#[test]
fn segments_of_a_queue_are_freed_one_by_one_and_with_it() {
    let queue = TQueue::new();
    let value = Arc::new(());
    for _ in 0..2 {
        atomically_blocking(|tx| (0..40).try_for_each(|_| queue.push(tx, value.clone()))).unwrap();
        atomically_blocking(|tx| (0..30).try_for_each(|_| queue.pop(tx).map(drop))).unwrap();
    }
    wait_for_count(&value, 21);
    drop(queue);
    wait_for_count(&value, 1);
}

#[test]
fn values_go_through_queues_from_thread_to_thread() {
    let (ring, queue) = (TBoundedQueue::new(2), TQueue::new());
    let thread = thread::spawn({
        let (ring, queue) = (ring.clone(), queue.clone());
        move || {
            for _ in 0..6 {
                atomically_blocking(|tx| {
                    let value: Box<u32> = ring.pop(tx)?;
                    queue.push(tx, value)
                })
                .unwrap();
            }
        }
    });
    for value in 0..6 {
        atomically_blocking(|tx| ring.push(tx, Box::new(value))).unwrap();
    }
    thread.join().unwrap();
    let all = atomically_blocking(|tx| (0..6).map(|_| queue.pop(tx)).collect::<Result<Vec<_>, _>>());
    assert_eq!(all, Ok((0..6).map(Box::new).collect()));
}

#[test]
fn branches_of_a_map_are_freed_once_the_task_that_is_parked_in_them_is_polled() {
    let map = TMap::new();
    let value = Arc::new(());
    atomically_blocking(|tx| (0..20).try_for_each(|key| map.insert(tx, key, value.clone()).map(drop)))
        .unwrap();
    let waits = atomically({
        let map = map.clone();
        move |tx| map.wait_for(tx, &100)
    });
    let mut waits = Box::pin(waits);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    atomically_blocking(|tx| map.remove(tx, &3)).unwrap();
    atomically_blocking(|tx| map.clear(tx)).unwrap(); // the slot in which it is parked is in no map
    drop(map);
    assert!(waits.as_mut().poll(&mut cx).is_pending()); // it leaves that slot, and parks in another one
    wait_for_count(&value, 1);
    drop(waits);
}

#[test]
fn a_place_wakes_its_taker() {
    let place = TMVar::empty();
    let mut taker = Box::pin({
        let place = place.clone();
        atomically(move |tx| place.take(tx))
    });
    let mut cx = Context::from_waker(Waker::noop());
    assert!(taker.as_mut().poll(&mut cx).is_pending());
    atomically_blocking(|tx| place.put(tx, Box::new(1))).unwrap();
    assert_eq!(taker.as_mut().poll(&mut cx), Poll::Ready(Ok(Box::new(1))));
}
