//! Models of a worker's run queue: its owner against thieves. Its capacity here is four.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::model;
use loom::thread::{JoinHandle, spawn};

use super::Plain;
use crate::sched::run_queue::{CAPACITY, RunQueue};

/// Written before it is pushed, and incremented by the thread that takes it.
type Item = Plain<usize>;

const PUSHED: usize = 10;
const TAKEN: usize = 11;

struct Queues {
    owner: RunQueue<Item>,
    thieves: [RunQueue<Item>; 2],
    items: [Item; 7],
}

impl Queues {
    fn new() -> Arc<Queues> {
        let thieves = [RunQueue::new(), RunQueue::new()];
        Arc::new(Queues { owner: RunQueue::new(), thieves, items: Default::default() })
    }

    /// For the owner.
    fn push(&self, number: usize) -> Result<(), usize> {
        self.items[number].write(PUSHED);
        self.owner.push(NonNull::from(&self.items[number])).map(drop).map_err(|_| number)
    }

    /// For the owner.
    fn pop(&self) -> bool {
        self.owner.pop().map(take).is_some()
    }

    /// Steals, and runs all stolen items.
    fn steal(&self, thief: usize) {
        let into = &self.thieves[thief];
        if let Some(first) = self.owner.steal_into(into) {
            take(first);
            while let Some(item) = into.pop() {
                take(item);
            }
        }
    }

    fn spawn_thief(self: &Arc<Queues>, thief: usize) -> JoinHandle<()> {
        let queues = self.clone();
        spawn(move || queues.steal(thief))
    }

    /// Takes the remaining items, and checks that each of the first `count` was taken once.
    fn assert_all_taken(&self, count: usize) {
        while self.pop() {}
        let taken: Vec<usize> = self.items[..count].iter().map(Plain::read).collect();
        assert_eq!(taken, vec![TAKEN; count]);
    }
}

fn take(item: NonNull<Item>) {
    // SAFETY: items live as long as the queues.
    unsafe { item.as_ref() }.change(|value| *value += 1);
}

#[test]
fn owner_and_thief_take_each_once() {
    model(|| {
        let queues = Queues::new();
        let thief = queues.spawn_thief(0);
        for number in 0..3 {
            queues.push(number).unwrap();
        }
        queues.pop();
        queues.pop();
        thief.join().unwrap();
        queues.assert_all_taken(3);
    });
}

#[test]
fn two_thieves_take_each_once() {
    model(|| {
        let queues = Queues::new();
        let thieves = [0, 1].map(|thief| queues.spawn_thief(thief));
        for number in 0..3 {
            queues.push(number).unwrap();
        }
        queues.pop();
        for thief in thieves {
            thief.join().unwrap();
        }
        queues.assert_all_taken(3);
    });
}

#[test]
fn what_was_stolen_can_be_stolen_again() {
    model(|| {
        let queues = Queues::new();
        (0..4).for_each(|number| queues.push(number).unwrap());
        let first = queues.spawn_thief(0);
        let second = spawn({
            let queues = queues.clone();
            move || {
                let [from, into] = &queues.thieves;
                from.steal_into(into).into_iter().for_each(take);
                assert!(into.pop().is_none(), "there was one to steal");
            }
        });
        first.join().unwrap();
        second.join().unwrap();
        queues.assert_all_taken(4);
    });
}

#[test]
fn a_slot_is_kept_until_it_is_taken() {
    model(|| {
        let queues = Queues::new();
        // Not at the start, so that the following items wrap around the end.
        queues.push(0).unwrap();
        assert!(queues.pop());
        (1..=CAPACITY).for_each(|number| queues.push(number).unwrap());
        let thief = queues.spawn_thief(0);
        for number in CAPACITY + 1..CAPACITY + 3 {
            if queues.push(number).is_err() {
                queues.pop();
                queues.push(number).unwrap();
            }
        }
        thief.join().unwrap();
        queues.assert_all_taken(CAPACITY + 3);
    });
}

#[test]
fn what_overflows_is_taken_once() {
    model(|| {
        let queues = Queues::new();
        (0..CAPACITY).for_each(|number| queues.push(number).unwrap());
        let thief = queues.spawn_thief(0);
        if queues.push(CAPACITY).is_err() {
            queues.owner.pop_half(take);
            take(NonNull::from(&queues.items[CAPACITY]));
        }
        thief.join().unwrap();
        queues.assert_all_taken(CAPACITY + 1);
    });
}
