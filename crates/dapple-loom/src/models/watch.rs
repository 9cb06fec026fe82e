//! Models of the waits of `when`: watchers of a state, and writers of it.

use std::sync::Arc;
use std::task::Waker;

use loom::thread::{JoinHandle, spawn};

use super::{Plain, block_on, sleeper};
use crate::prim::Parker;
use crate::shared::access_lock::{AccessLock, AccessWait, Hold};
use crate::shared::reader_slots::Registry;
use crate::shared::watch_list::WatchPlace;
use crate::task::guarded::GuardedWaker;
use crate::waitlist::wait::Wakers;

/// A state, which holds a number of things.
struct State {
    gate: AccessLock,
    registry: Registry,
    things: Plain<usize>,
}

fn state() -> Arc<State> {
    Arc::new(State { gate: AccessLock::new(), registry: Registry::default(), things: Plain::new(0) })
}

/// Two preemptions at most: an access has many steps.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2)).map(|most| most.min(2));
    builder.check(f);
}

fn in_thread(state: &Arc<State>, f: impl FnOnce(&State) + 'static) -> JoinHandle<()> {
    let state = state.clone();
    spawn(move || f(&state))
}

impl State {
    fn enter(&self, writes: bool) -> Hold<'static> {
        let mut place = AccessWait::default();
        let entered = block_on(std::future::poll_fn(|cx| match writes {
            true => self.gate.poll_write(&mut place, false, &self.registry, cx),
            false => self.gate.poll_read(&mut place, false, None, cx),
        }));
        entered.expect("no cancel in a model")
    }

    /// Adds things, as any writer does.
    fn add(&self, things: usize) {
        let hold = self.enter(true);
        self.things.change(|there| *there += things);
        self.gate.leave(hold);
    }
}

/// A `when` with one state.
struct Watcher<'a> {
    state: &'a State,
    writes: bool,
    watch: WatchPlace,
    is_enlisted: bool,
    parker: Arc<Parker>,
    waker: Waker,
}

impl Watcher<'_> {
    fn new(state: &State, writes: bool) -> Watcher<'_> {
        let (parker, waker) = sleeper();
        Watcher { state, writes, watch: WatchPlace::default(), is_enlisted: false, parker, waker }
    }

    /// Looks once: takes a thing, or sees one if it only reads. Otherwise it is enlisted afterwards. `WhenWait::look`
    fn look(&mut self) -> bool {
        let hold = self.state.enter(self.writes);
        let is_there = match self.writes {
            true => self.state.things.change(|there| {
                let is_there = *there > 0;
                *there -= usize::from(is_there);
                is_there
            }),
            false => self.state.things.read() > 0,
        };
        if is_there {
            let own = std::mem::take(&mut self.is_enlisted).then_some(&mut self.watch);
            let mut wakers = Wakers::default();
            drop(self.state.gate.leave_into(hold, own, &mut wakers));
            return true;
        }
        let mut wakers = Wakers::default();
        let waker = GuardedWaker::of(&self.waker);
        let old = self.state.gate.watch(&mut self.watch, self.writes, waker, &mut wakers);
        self.is_enlisted = true;
        self.state.gate.leave_unwritten(hold);
        drop((wakers, old));
        false
    }

    /// `WhenWait::poll_enter_again`
    fn has_news(&self, waker: &Waker) -> bool {
        let list = self.state.gate.watchers().get_or_make();
        list.has_news(&self.watch) || !list.sleep_on(&self.watch, GuardedWaker::of(waker)).0
    }

    /// A task is polled only after a wake-up, so it sleeps before it looks for news.
    fn sleep(&self) {
        self.parker.park(None);
        while !self.has_news(&self.waker) {
            self.parker.park(None);
        }
    }

    fn until_there(&mut self) {
        while !self.look() {
            self.sleep();
        }
    }

    /// `WhenWait::leave_lists`
    fn leave(&mut self) {
        if std::mem::take(&mut self.is_enlisted) {
            let mut wakers = Wakers::default();
            drop(self.state.gate.watchers().get_or_make().leave(&mut self.watch, &mut wakers));
        }
    }
}

#[test]
fn a_watcher_does_not_sleep_through_a_write() {
    model(|| {
        let state = state();
        let writer = in_thread(&state, |state| state.add(1));
        Watcher::new(&state, true).until_there();
        writer.join().unwrap();
        assert_eq!(state.things.read(), 0);
    });
}

#[test]
fn watchers_that_read_are_all_woken_by_one_write() {
    model(|| {
        let state = state();
        let mut first = Watcher::new(&state, false);
        assert!(!first.look());
        let second = in_thread(&state, |state| Watcher::new(state, false).until_there());
        state.add(1);
        first.sleep();
        first.until_there();
        second.join().unwrap();
    });
}

#[test]
fn two_watchers_that_write_each_get_a_thing() {
    model(|| {
        let state = state();
        let mut first = Watcher::new(&state, true);
        assert!(!first.look());
        let second = in_thread(&state, |state| Watcher::new(state, true).until_there());
        state.add(2); // wakes one of them, which wakes the other
        first.sleep();
        first.until_there();
        second.join().unwrap();
        assert_eq!(state.things.read(), 0);
    });
}

#[test]
fn a_watcher_that_goes_away_passes_its_wake_up_on() {
    model(|| {
        let state = state();
        let (mut first, mut second) = (Watcher::new(&state, true), Watcher::new(&state, true));
        assert!(!first.look() && !second.look());
        let writer = in_thread(&state, |state| state.add(1)); // wakes the first
        first.leave();
        second.sleep();
        second.until_there();
        writer.join().unwrap();
        assert_eq!(state.things.read(), 0);
    });
}

#[test]
fn a_watcher_whose_waker_changes_is_woken_or_sees_that() {
    model(|| {
        let state = state();
        let mut watcher = Watcher::new(&state, true);
        assert!(!watcher.look());
        let writer = in_thread(&state, |state| state.add(1));
        let (parker, waker) = sleeper();
        while !watcher.has_news(&waker) {
            parker.park(None); // for ever, if the write has woken the first waker alone
        }
        assert!(watcher.look());
        writer.join().unwrap();
    });
}

#[test]
fn two_first_watchers_get_the_same_list() {
    model(|| {
        let state = state();
        let other = in_thread(&state, |state| {
            let list = state.gate.watchers().get_or_make();
            assert!(std::ptr::eq(list, state.gate.watchers().get_or_make()));
        });
        let list = state.gate.watchers().get_or_make();
        other.join().unwrap();
        assert!(std::ptr::eq(list, state.gate.watchers().get_or_make()));
    });
}
