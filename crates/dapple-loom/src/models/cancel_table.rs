//! Models of cancellation: how a wait learns that its task was cancelled, and a scope that an enclosing one
//! was.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use crate::cancel::table::CancelTable;
use crate::prim::{AtomicBool, Ordering, Parker};
use crate::task::state::{CANCELLED, StateWord};

struct Task {
    state: StateWord,
    links: CancelTable<Arc<Parker>>,
}

const ADDRESS: usize = 64;

impl Task {
    fn new() -> Arc<Task> {
        Arc::new(Task { state: StateWord::new(false), links: CancelTable::default() })
    }

    /// `Task::cancel`
    fn cancel(&self) {
        self.state.wake_with(CANCELLED);
        self.links.of(ADDRESS).iter().for_each(|waker| waker.unpark());
    }

    /// A wait that ends only by the cancel of its task. `Item::link`
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

/// Nested scopes, as flags. A task was spawned in the inner ones, so they are linked.
#[derive(Default)]
struct Scopes {
    flags: [AtomicBool; 3],
    /// Numbers of the scopes that are inside of another one.
    links: CancelTable<usize>,
}

impl Scopes {
    /// `CancelScope::cancel` and `cancel_registered`
    fn cancel(&self, scope: usize) {
        self.flags[scope].swap(true, Ordering::AcqRel);
        for inner in self.links.of(scope) {
            self.cancel(inner);
        }
    }

    /// `Children::begin_to_spawn`
    fn link(&self, scope: usize, outer: usize) {
        self.links.add(outer, 0, scope);
        if self.is_cancelled(outer) {
            self.cancel(scope);
        }
    }

    fn is_cancelled(&self, scope: usize) -> bool {
        self.flags[scope].load(Ordering::Acquire)
    }
}

#[test]
fn a_scope_is_cancelled_when_the_cancel_of_an_outer_one_has_returned() {
    model(|| {
        let scopes = Arc::new(Scopes::default());
        let other = spawn({
            let scopes = scopes.clone();
            move || scopes.cancel(0)
        });
        scopes.link(1, 0);
        // A task is spawned in the scope here.
        other.join().unwrap();
        assert!(scopes.is_cancelled(1));
    });
}

#[test]
fn of_two_cancels_none_returns_before_all_scopes_are_cancelled() {
    model(|| {
        let scopes = Arc::new(Scopes::default());
        scopes.link(1, 0);
        scopes.link(2, 1);
        let cancel = |scopes: &Scopes| {
            scopes.cancel(0);
            assert!(scopes.is_cancelled(2));
        };
        let other = spawn({
            let scopes = scopes.clone();
            move || cancel(&scopes)
        });
        cancel(&scopes);
        other.join().unwrap();
    });
}
