//! Models of the exchange, which `MVar` is built on: putters and takers of a few places.
//!
//! Two threads each, which hold several waits if there are more: with three that spin for the lock, loom finds no end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::thread::{JoinHandle, spawn};

use super::sleeper;
use crate::prim::Parker;
use crate::waitlist::exchange::{Exchange, ExchangePlace, ExchangeSide, Stock, ToPut, ToTake};
use crate::waitlist::permits::PermitRefusal;

/// Values, and room for some more.
struct Values {
    there: VecDeque<usize>,
    capacity: usize,
    is_closed: bool,
}

impl Stock for Values {
    type Item = usize;
    const ROOM: &'static &'static str = &"room";
    const ITEM: &'static &'static str = &"a value";

    fn room(&self) -> usize {
        self.capacity - self.there.len()
    }

    fn filled(&self) -> usize {
        self.there.len()
    }

    fn put(&mut self, value: Option<usize>) {
        assert!(self.room() > 0, "there was room for the value");
        self.there.extend(value);
    }

    fn take(&mut self) -> Option<usize> {
        self.there.pop_front()
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

type Store = Exchange<Values>;

fn store(capacity: usize, values: impl Into<VecDeque<usize>>) -> Arc<Store> {
    Arc::new(Exchange::new(Values { there: values.into(), capacity, is_closed: false }))
}

/// Two preemptions at most: with three, a model takes minutes.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2)).map(|most| most.min(2));
    builder.check(f);
}

/// A wait, and the place where its thread sleeps for it.
struct Waiting<S> {
    side: S,
    place: ExchangePlace,
    parker: Arc<Parker>,
    waker: Waker,
}

impl<S: ExchangeSide<Values>> Waiting<S> {
    fn new(side: S) -> Waiting<S> {
        let (parker, waker) = sleeper();
        Waiting { side, place: ExchangePlace::default(), parker, waker }
    }

    fn poll(&mut self, store: &Store) -> Poll<Result<(), PermitRefusal>> {
        store.poll_take(&mut self.side, &mut self.place, &mut Context::from_waker(&self.waker))
    }

    /// Polls once; the wait goes on.
    fn that_waits(mut self, store: &Store) -> Waiting<S> {
        assert_eq!(self.poll(store), Poll::Pending);
        self
    }

    /// Of a wait that sleeps: it is polled again only after a wake-up.
    fn until_woken_and_done(self, store: &Store) -> Result<S, PermitRefusal> {
        self.parker.park(None);
        self.until_done(store)
    }

    fn until_done(mut self, store: &Store) -> Result<S, PermitRefusal> {
        loop {
            match self.poll(store) {
                Poll::Ready(done) => return done.map(|()| self.side),
                Poll::Pending => drop(self.parker.park(None)),
            }
        }
    }
}

fn taker() -> Waiting<ToTake<usize>> {
    Waiting::new(ToTake(None))
}

fn taken(done: Result<ToTake<usize>, PermitRefusal>) -> usize {
    done.ok().and_then(|side| side.0).expect("a value that was taken")
}

fn put(store: &Store, value: usize) {
    assert!(Waiting::new(ToPut(Some(value))).until_done(store).is_ok());
}

fn in_thread<R: 'static>(store: &Arc<Store>, f: impl FnOnce(&Store) -> R + 'static) -> JoinHandle<R> {
    let store = store.clone();
    spawn(move || f(&store))
}

#[test]
fn a_taker_does_not_sleep_through_a_put() {
    model(|| {
        let store = store(1, []);
        let taker = in_thread(&store, |store| taken(taker().until_done(store)));
        put(&store, 1);
        assert_eq!(taker.join().unwrap(), 1);
    });
}

#[test]
fn a_putter_does_not_sleep_through_a_take() {
    model(|| {
        let store = store(1, [1]);
        let putter = in_thread(&store, |store| put(store, 2));
        assert_eq!(taken(taker().until_done(&store)), 1);
        assert_eq!(taken(taker().until_done(&store)), 2);
        putter.join().unwrap();
    });
}

#[test]
fn two_values_go_to_two_takers() {
    model(|| {
        let store = store(2, []);
        let first = taker().that_waits(&store);
        let second = in_thread(&store, |store| taken(taker().until_done(store)));
        put(&store, 1);
        put(&store, 2);
        let sum = taken(first.until_woken_and_done(&store)) + second.join().unwrap();
        assert_eq!(sum, 3);
    });
}

#[test]
fn a_taker_that_gives_up_passes_its_wake_up_on() {
    model(|| {
        let store = store(1, []);
        let mut first = taker().that_waits(&store);
        let second = taker().that_waits(&store);
        let putter = in_thread(&store, |store| put(store, 1)); // wakes the first, or the second if that is gone
        store.leave::<ToTake<usize>>(&mut first.place);
        assert_eq!(taken(second.until_woken_and_done(&store)), 1);
        putter.join().unwrap();
    });
}

#[test]
fn a_value_that_was_lent_is_given_to_a_waiter() {
    model(|| {
        let store = store(1, []);
        let taker = in_thread(&store, |store| taken(taker().until_done(store)));
        store.give_back(|values| values.there.push_back(1));
        assert_eq!(taker.join().unwrap(), 1);
    });
}

#[test]
fn all_waiters_learn_that_it_is_closed() {
    model(|| {
        let store = store(1, []);
        let first = taker().that_waits(&store);
        let closer = in_thread(&store, |store| store.wake_everyone(|values| values.is_closed = true));
        let second = taker(); // comes before the end, or after it
        assert!(second.until_done(&store).is_err_and(|refused| refused == PermitRefusal::Closed));
        assert!(first.until_woken_and_done(&store).is_err_and(|refused| refused == PermitRefusal::Closed));
        closer.join().unwrap();
    });
}
