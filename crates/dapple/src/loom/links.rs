//! Models of how a wait learns that its task was cancelled.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use crate::prim::Parker;
use crate::task::links::Links;
use crate::task::state::{CANCELLED, State};

struct Task {
    state: State,
    links: Links<Arc<Parker>>,
}

const ADDRESS: usize = 64;

impl Task {
    fn new() -> Arc<Task> {
        Arc::new(Task { state: State::new(false), links: Links::default() })
    }

    /// `Task::cancel`
    fn cancel(&self) {
        self.state.wake_with(CANCELLED);
        self.links.of(ADDRESS).iter().for_each(|waker| waker.unpark());
    }

    /// A wait that nothing ends but that its task is cancelled. `Item::link`
    fn wait(&self, number: u64) {
        let waker = Arc::new(Parker::default());
        self.links.add(ADDRESS, number, waker.clone());
        if self.state.load().has(CANCELLED) {
            waker.unpark();
        }
        waker.park(None);
        assert!(self.links.remove(ADDRESS, number).is_some());
    }
}

#[test]
fn a_wait_that_begins_during_a_cancel_is_told_of_it() {
    model(|| {
        let task = Task::new();
        let other = spawn({
            let task = task.clone();
            move || task.cancel()
        });
        task.wait(1);
        other.join().unwrap();
        assert!(task.links.of(ADDRESS).is_empty());
    });
}

#[test]
fn all_waits_of_a_task_are_told() {
    model(|| {
        let task = Task::new();
        let waits = [1, 2].map(|number| {
            let task = task.clone();
            spawn(move || task.wait(number))
        });
        task.cancel();
        for wait in waits {
            wait.join().unwrap();
        }
        assert!(task.links.of(ADDRESS).is_empty());
    });
}
