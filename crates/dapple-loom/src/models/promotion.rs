//! Model of promotion: a running task gets a lane while other threads wake it.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use super::Plain;
use super::inbox::{Item, walk};
use crate::prim::{AtomicPtr, Ordering};
use crate::task::inbox::{Inbox, NodeList, Pushed};
use crate::task::state::{RestOutcome, StateWord};

/// The part of a vtable that matters here: the lane whose queue the task enters.
struct Table {
    lane: Plain<Option<usize>>,
}

struct Task {
    state: StateWord,
    vtable: AtomicPtr<Table>,
    /// Link of the task in a queue.
    item: Item,
    /// The lane that the task gets. The promoter has its turn.
    lane: Inbox<Item>,
    /// Queue of that lane. TURN-OWNS-LINE
    line: Plain<Option<NodeList<Item>>>,
    own: Table,
    promoted: Table,
}

impl Task {
    /// `waker::enqueue`, then `Lane::push`.
    fn enqueue(&self) {
        let table = NonNull::new(self.vtable.load(Ordering::Acquire)).expect("a vtable");
        // SAFETY: it points to one of the task's own two vtables.
        let lane = unsafe { table.as_ref() }.lane.read();
        assert_eq!(lane, Some(1), "a promoted task enters its lane's queue");
        // SAFETY: the task lives on, and the caller owns it.
        if matches!(unsafe { self.lane.push(NonNull::from(&self.item)) }, Pushed::First { .. }) {
            self.run_entry();
        }
    }

    /// `Lane::run`, by the only entry.
    fn run_entry(&self) {
        let (list, _) = self.lane.claim().expect("the only entry");
        self.poll(self.line.change(Option::take));
        self.poll(list);
        self.take_turn();
    }

    /// `Lane::end_first_turn`; the entry is taken at once.
    fn end_first_turn(&self) {
        while self.lane.is_empty() {
            if self.lane.release() {
                return;
            }
        }
        let list = self.lane.pull();
        self.line.change(|line| *line = list);
        self.lane.put_back();
        self.run_entry();
    }

    fn poll(&self, list: Option<NodeList<Item>>) {
        if let Some(list) = list {
            walk(&list, |item| {
                let before = self.state.before_poll();
                item.payload.change(|polls| *polls += 1);
                assert_eq!(self.state.rest(before, 0), RestOutcome::Idle, "it is woken at most once");
            });
        }
    }

    /// `Lane::run`, once the turn is claimed.
    fn take_turn(&self) {
        loop {
            if let Some(list) = self.lane.pull() {
                self.poll(Some(list));
            } else if self.lane.release() {
                return;
            }
        }
    }
}

#[test]
fn a_wake_up_after_promotion_goes_to_the_lane() {
    model(|| {
        let task = Arc::new(Task {
            state: StateWord::new(false),
            vtable: AtomicPtr::default(),
            item: Item::new(0),
            lane: Inbox::new_owned(),
            line: Plain::default(),
            own: Table { lane: Plain::default() },
            promoted: Table { lane: Plain::default() },
        });
        task.vtable.store((&raw const task.own).cast_mut(), Ordering::Release);
        let waker = spawn({
            let task = task.clone();
            move || {
                if task.state.wake() {
                    task.enqueue();
                }
            }
        });
        // A poll in which the task is promoted. `promotion::promote`, `own_color::leave_new_lane`
        let before = task.state.before_poll();
        task.item.payload.write(1);
        task.promoted.lane.write(Some(1));
        task.vtable.store((&raw const task.promoted).cast_mut(), Ordering::Release);
        if task.state.rest(before, 0) == RestOutcome::Again {
            task.enqueue();
        }
        task.end_first_turn();
        waker.join().unwrap();
        // A wake-up before the poll is consumed by this poll; any other led to one more poll.
        assert!(task.state.load().is_idle());
        assert!((1..=2).contains(&task.item.payload.read()));
        assert!(task.lane.claim_idle(), "the turn was given back");
    });
}
