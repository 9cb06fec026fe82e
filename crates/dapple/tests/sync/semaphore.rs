//! A semaphore: counting, order, closing, leaked and cancelled waits.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{Random, foreign_block_on, in_both_worlds, panic_of, rounds, runtime, start_thread};
use dapple::sim;
use dapple::sync::Semaphore;
use dapple::task::yield_now;
use dapple::time::{Duration, sleep};

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that is polled by hand.
struct Hand<F> {
    future: Pin<Box<F>>,
    count: Arc<Count>,
}

impl<F: Future> Hand<F> {
    fn new(future: F) -> Hand<F> {
        Hand { future: Box::pin(future), count: Arc::default() }
    }

    /// A future that has been polled, and waits.
    fn waiting(future: F) -> Hand<F> {
        let mut hand = Hand::new(future);
        assert!(hand.poll().is_pending());
        hand
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(self.count.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn wakes(&self) -> usize {
        self.count.0.load(Ordering::SeqCst)
    }

    fn leak(self) {
        std::mem::forget(self.future);
    }
}

#[test]
fn permits_are_counted() {
    let semaphore = Arc::new(Semaphore::new(3));
    let two = semaphore.try_acquire_many(2).unwrap();
    assert_eq!((two.count(), semaphore.available_permits()), (2, 1));
    assert!(semaphore.try_acquire_many(2).unwrap_err().is_busy());
    semaphore.try_acquire().unwrap().forget();
    drop(two);
    assert_eq!(semaphore.available_permits(), 2, "one is forgotten");
    semaphore.add_permits(5);
    let owned = foreign_block_on(semaphore.clone().acquire_many_owned(7)).unwrap();
    assert!(semaphore.clone().try_acquire_owned().is_err());
    drop(owned);
    foreign_block_on(semaphore.clone().acquire_owned()).unwrap().forget();
    assert_eq!(semaphore.available_permits(), 6);
    assert!(panic_of(|| Semaphore::new(usize::MAX)).contains("at most"));
    assert!(panic_of(|| semaphore.add_permits(Semaphore::MAX_PERMITS)).contains("at most"));
}

#[test]
fn waiters_are_served_in_order() {
    let semaphore = Semaphore::new(0);
    let mut waits: Vec<_> = (0..5).map(|_| Hand::waiting(semaphore.acquire())).collect();
    for at in 0..5 {
        semaphore.add_permits(1);
        let woken: Vec<_> = waits.iter().map(Hand::wakes).collect();
        assert!((0..5).all(|i| woken[i] == usize::from(i <= at)), "{woken:?}");
        let Poll::Ready(Ok(permit)) = waits[at].poll() else { panic!("it was woken") };
        permit.forget();
    }
}

#[test]
fn a_waiter_that_is_polled_without_being_woken_does_not_overtake_sleepers() {
    let semaphore = Semaphore::new(0);
    let mut waits: Vec<_> = (0..4).map(|_| Hand::waiting(semaphore.acquire())).collect();
    semaphore.add_permits(1);
    assert!(waits[2].poll().is_pending() && waits[3].poll().is_pending());
    assert_eq!(waits[1].wakes(), 1, "in case that the first does not come, the second is told");
    assert_eq!(waits[2].wakes() + waits[3].wakes(), 0);
    assert!(waits[1].poll().is_ready());
    assert!(waits[0].poll().is_ready(), "the permit went back");
}

#[test]
fn a_waiter_for_many_permits_is_not_overtaken() {
    let semaphore = Semaphore::new(3);
    let mut many = Hand::waiting(semaphore.acquire_many(5));
    let mut one = Hand::waiting(semaphore.acquire());
    assert!(one.poll().is_pending());
    assert_eq!(one.wakes(), 0, "it would only be told to wait");
    semaphore.add_permits(3);
    assert_eq!((many.wakes(), one.wakes()), (1, 1), "there is enough for both");
    let Poll::Ready(Ok(permit)) = one.poll() else { panic!("there are enough") };
    assert!(many.poll().is_ready());
    drop(permit);
}

#[test]
fn a_waiter_that_gives_up_lets_the_next_through() {
    let semaphore = Semaphore::new(3);
    let many = Hand::waiting(semaphore.acquire_many(5));
    let mut one = Hand::waiting(semaphore.acquire());
    drop(many);
    assert_eq!(one.wakes(), 1);
    assert!(one.poll().is_ready());
    let semaphore = Semaphore::new(0);
    let (first, mut second) = (Hand::waiting(semaphore.acquire()), Hand::waiting(semaphore.acquire()));
    semaphore.add_permits(1);
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    drop(first);
    assert_eq!(second.wakes(), 1, "a wake-up goes to the next");
    assert!(second.poll().is_ready());
}

#[test]
fn a_newcomer_gives_way_once() {
    let semaphore = Semaphore::new(0);
    let mut first = Hand::waiting(semaphore.acquire());
    semaphore.add_permits(1);
    let mut newcomer = Hand::waiting(semaphore.acquire());
    assert_eq!(newcomer.wakes(), 1, "comes back by itself");
    let Poll::Ready(Ok(permit)) = first.poll() else { panic!("nobody overtook it") };
    assert!(newcomer.poll().is_pending());
    drop(permit);
    assert_eq!(newcomer.wakes(), 2);
    let mut later = Hand::waiting(semaphore.acquire());
    assert!(later.poll().is_ready(), "it gave way, and what is free may be taken");
    assert!(newcomer.poll().is_ready(), "the permit went back");
    semaphore.add_permits(5);
    let _sleeps = Hand::waiting(semaphore.acquire_many(7));
    assert!(Hand::new(semaphore.acquire_many(6)).poll().is_pending());
}

#[test]
fn a_leaked_wait_holds_up_no_waiter() {
    let semaphore = Semaphore::new(0);
    Hand::waiting(semaphore.acquire()).leak();
    let mut sleeper = Hand::waiting(semaphore.acquire());
    semaphore.add_permits(1); // wakes the one that is leaked
    assert_eq!(sleeper.wakes(), 0);
    drop(foreign_block_on(semaphore.acquire()).unwrap()); // a newcomer gets it
    assert_eq!(sleeper.wakes(), 1, "and then the next in line");
    drop(sleeper.poll());
    Hand::waiting(semaphore.acquire_many(9)).leak();
    drop(semaphore.try_acquire().unwrap());
    let mut polled = Hand::new(semaphore.acquire());
    assert!(polled.poll().is_pending(), "one who needs many sleeps ahead");
}

#[test]
fn closing_refuses_all_and_wakes_many() {
    in_both_worlds(20, || {
        let semaphore = Semaphore::new(1);
        let kept = semaphore.try_acquire().unwrap();
        let mut waits: Vec<_> = (0..100).map(|_| Hand::waiting(semaphore.acquire())).collect();
        semaphore.close();
        assert!(semaphore.is_closed());
        for wait in &mut waits {
            assert_eq!(wait.wakes(), 1);
            assert!(matches!(wait.poll(), Poll::Ready(Err(error)) if error.is_closed()));
        }
        drop(kept);
        assert!(semaphore.try_acquire().unwrap_err().is_closed());
        assert!(semaphore.acquire_blocking().unwrap_err().is_closed());
    });
}

#[test]
fn many_permits_at_once_wake_as_many() {
    let semaphore = Semaphore::new(0);
    let mut waits: Vec<_> = (0..100).map(|_| Hand::waiting(semaphore.acquire())).collect();
    semaphore.add_permits(70);
    assert_eq!(waits.iter().filter(|wait| wait.wakes() == 1).count(), 70);
    waits.truncate(70);
    for mut wait in waits {
        let Poll::Ready(Ok(permit)) = wait.poll() else { panic!("it was woken") };
        permit.forget();
    }
    assert_eq!(semaphore.available_permits(), 0);
}

#[test]
fn a_panicking_waker_does_not_stop_other_wake_ups() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as asked");
        }
    }
    let semaphore = Semaphore::new(0);
    let mut bad = Box::pin(semaphore.acquire());
    let waker = Waker::from(Arc::new(Panics));
    assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let good = Hand::waiting(semaphore.acquire());
    semaphore.add_permits(2);
    assert_eq!(good.wakes(), 1);
}

#[test]
fn never_more_at_a_time_under_load_with_cancels() {
    in_both_worlds(20, || {
        let (rt, count) = (runtime(2), rounds(200, 15));
        let (semaphore, inside) = (Arc::new(Semaphore::new(3)), Arc::new(AtomicUsize::new(0)));
        let visit = |need: usize, rounds: usize| {
            let (semaphore, inside) = (semaphore.clone(), inside.clone());
            async move {
                for _ in 0..rounds {
                    let Ok(_permit) = semaphore.acquire_many(need).await else { return };
                    assert!(inside.fetch_add(need, Ordering::SeqCst) + need <= 3);
                    yield_now().await;
                    inside.fetch_sub(need, Ordering::SeqCst);
                }
            }
        };
        let tasks: Vec<_> = (0..12).map(|id| rt.spawn(visit(1 + id % 3, count))).collect();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let visit = visit(1, count);
                start_thread(move || foreign_block_on(visit))
            })
            .collect();
        let mut random = Random::new(7);
        for task in &tasks {
            if random.below(3) == 0 {
                task.cancel();
            }
        }
        tasks.into_iter().for_each(|task| rt.block_on(task).unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(semaphore.available_permits(), 3);
    });
}

/// One of two is aborted just when a permit is free: either way it comes to the other one.
#[test]
fn an_aborted_waiter_leaves_the_permit_to_the_next() {
    let (taken, left) = (Cell::new(0), Cell::new(0));
    sim::explore(0..100, || async {
        let semaphore = Arc::new(Semaphore::new(0));
        let take = || {
            let semaphore = semaphore.clone();
            dapple::spawn(async move { drop(semaphore.acquire().await.unwrap()) })
        };
        let (first, second) = (take(), take());
        sleep(Duration::from_millis(1)).await.unwrap(); // both wait
        semaphore.add_permits(1);
        sim::work(Duration::from_nanos(1 << (sim::random() % 25))); // so that another worker may run it first
        first.abort();
        let count = if first.await.is_ok() { &taken } else { &left };
        count.set(count.get() + 1);
        second.await.unwrap();
        assert_eq!(semaphore.available_permits(), 1);
    });
    assert!(taken.get() > 0 && left.get() > 0, "both happen: {taken:?}, {left:?}");
}

#[test]
fn an_unsatisfiable_acquire_waits_and_so_do_waiters_behind_it() {
    let semaphore = Semaphore::new(2);
    let mut cx = Context::from_waker(Waker::noop());
    let held = semaphore.try_acquire_many(2).unwrap();
    // Their needs add up to more than a word holds, three times over.
    let mut greedy: Vec<_> = (0..4).map(|_| Box::pin(semaphore.acquire_many(usize::MAX))).collect();
    greedy.iter_mut().for_each(|all| assert!(all.as_mut().poll(&mut cx).is_pending()));
    let mut behind = pin!(semaphore.acquire());
    assert!(behind.as_mut().poll(&mut cx).is_pending());
    drop(held);
    let mut late = pin!(semaphore.acquire());
    assert!(late.as_mut().poll(&mut cx).is_pending(), "a newcomer does not overtake those in line");
    assert!(behind.as_mut().poll(&mut cx).is_pending(), "nor does the next in line");
    assert!(greedy[0].as_mut().poll(&mut cx).is_pending());
    drop(greedy); // nothing of them is left in line
    assert!(behind.as_mut().poll(&mut cx).is_ready());
    assert!(late.as_mut().poll(&mut cx).is_ready());
    assert_eq!(semaphore.available_permits(), 2);
}
