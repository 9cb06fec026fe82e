//! Models of a lane's inbox: pushes, pulls, turns, and a main color whose thread leaves.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use super::Plain;
use crate::prim::{AtomicBool, Ordering, Parker};
use crate::task::inbox::{Inbox, InboxNode, NodeList, Pushed};

/// An item to push into an inbox.
pub(super) struct Item {
    link: Plain<*mut Item>,
    pub(super) payload: Plain<usize>,
}

// SAFETY: the link is an address that loom checks.
unsafe impl Sync for Item {}
// SAFETY: as above.
unsafe impl Send for Item {}

impl Item {
    pub(super) fn new(payload: usize) -> Item {
        Item { link: Plain::new(null_mut()), payload: Plain::new(payload) }
    }
}

impl InboxNode for Item {
    fn next_link(&self) -> *mut Item {
        self.link.read()
    }

    fn set_link(&self, next: *mut Item) {
        self.link.write(next);
    }
}

/// Calls a function with each node of a list, from the first to the last.
pub(super) fn walk(list: &NodeList<Item>, mut each: impl FnMut(&Item)) {
    let mut next = Some(list.first);
    while let Some(node) = next {
        // SAFETY: nodes outlive the models that push them.
        let item = unsafe { node.as_ref() };
        next = NonNull::new(item.next_link());
        assert_eq!(next.is_none(), node == list.last);
        each(item);
    }
}

/// A lane: an inbox, the effects of its turns, and the pushed items.
struct Lane {
    inbox: Inbox<Item>,
    /// Items that ran, in order. TURN-OWNS-LINE
    log: Plain<Vec<usize>>,
    items: [Item; 3],
}

impl Lane {
    fn new(inbox: Inbox<Item>) -> Arc<Lane> {
        Arc::new(Lane { inbox, log: Plain::default(), items: [0; 3].map(Item::new) })
    }

    /// Pushes an item with its number and 10 as payload, and takes the turn if there is one.
    fn push(&self, number: usize) -> Pushed {
        self.items[number].payload.write(number + 10);
        // SAFETY: the item lives as long as the lane, and is pushed once.
        let pushed = unsafe { self.inbox.push(NonNull::from(&self.items[number])) };
        if matches!(pushed, Pushed::First { .. }) {
            self.run_entry();
        }
        pushed
    }

    /// `Lane::run`, by an entry. `false` if there was nothing to claim.
    fn run_entry(&self) -> bool {
        let Some((list, _)) = self.inbox.claim() else { return false };
        self.log.change(|_| ());
        if let Some(list) = list {
            walk(&list, |item| self.log.change(|log| log.push(item.payload.read())));
        }
        self.take_turn();
        true
    }

    /// The rest of a turn, which checks its queue before the inbox.
    fn take_turn(&self) {
        self.log.change(|_| ());
        loop {
            if let Some(list) = self.inbox.pull() {
                walk(&list, |item| self.log.change(|log| log.push(item.payload.read())));
            } else if self.inbox.release() {
                return;
            }
        }
    }

    fn log(&self) -> Vec<usize> {
        self.log.change(std::mem::take)
    }
}

#[test]
fn everything_is_run_once_and_in_order_by_one_at_a_time() {
    model(|| {
        let lane = Lane::new(Inbox::new());
        let other = spawn({
            let lane = lane.clone();
            move || {
                lane.push(0);
                lane.push(1);
            }
        });
        lane.push(2);
        other.join().unwrap();
        let mut log = lane.log();
        assert!(log.iter().position(|ran| *ran == 10) < log.iter().position(|ran| *ran == 11));
        log.sort_unstable();
        assert_eq!(log, [10, 11, 12]);
        assert!(lane.inbox.claim_idle(), "the last turn was given back");
    });
}

#[test]
fn a_push_at_the_end_of_a_turn_is_not_lost() {
    model(|| {
        let lane = Lane::new(Inbox::new_owned());
        let pushers = [0, 1].map(|number| {
            let lane = lane.clone();
            spawn(move || lane.push(number))
        });
        lane.take_turn();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let mut log = lane.log();
        log.sort_unstable();
        assert_eq!(log, [10, 11]);
    });
}

#[test]
fn one_push_makes_an_idle_lane_runnable() {
    model(|| {
        let lane = Lane::new(Inbox::new());
        let push = |lane: &Lane, number: usize| {
            lane.items[number].payload.write(number + 10);
            // SAFETY: the item lives as long as the lane, and is pushed once.
            unsafe { lane.inbox.push(NonNull::from(&lane.items[number])) }
        };
        let other = spawn({
            let lane = lane.clone();
            move || push(&lane, 0)
        });
        let here = push(&lane, 1);
        let firsts =
            [here, other.join().unwrap()].iter().filter(|p| matches!(p, Pushed::First { .. })).count();
        assert_eq!(firsts, 1);
        assert!(lane.run_entry());
        assert_eq!(lane.log().len(), 2);
    });
}

/// The main color's lane: its thread, as far as pushers depend on it.
struct Main {
    lane: Arc<Lane>,
    ready: AtomicBool,
    sleeper: Parker,
    has_left: AtomicBool,
}

impl Main {
    /// `MainThread::enqueue`, after a push. Workers take their entries at once.
    fn push(&self, number: usize) {
        self.lane.items[number].payload.write(number + 10);
        // SAFETY: the item lives as long as the lane, and is pushed once.
        let pushed = unsafe { self.lane.inbox.push(NonNull::from(&self.lane.items[number])) };
        if let Pushed::First { .. } = pushed {
            self.lane.inbox.see_last_turn();
            if self.has_left.load(Ordering::Relaxed) {
                assert!(self.lane.run_entry());
            } else {
                self.ready.store(true, Ordering::Release);
                self.sleeper.unpark();
            }
        }
    }

    /// `MainLane::close`.
    fn close(&self) {
        loop {
            if self.ready.load(Ordering::Relaxed) && self.ready.swap(false, Ordering::Acquire) {
                assert!(self.lane.run_entry());
            } else if self.lane.inbox.claim_idle() {
                break;
            } else {
                let _ = self.sleeper.park(None); // a pusher is about to set `ready`
            }
        }
        self.lane.log.change(|log| log.push(0));
        self.has_left.store(true, Ordering::Relaxed);
        if !self.lane.inbox.release() {
            self.lane.inbox.put_back();
            assert!(self.lane.run_entry());
        }
    }
}

/// The thread of a main color leaves while other threads push. Each item is run by that thread before it
/// left, or by a worker after that, and never by both at the same time.
#[test]
fn a_push_when_a_thread_leaves_finds_it_there_or_a_worker() {
    model(|| {
        let main = Arc::new(Main {
            lane: Lane::new(Inbox::new()),
            ready: AtomicBool::new(false),
            sleeper: Parker::default(),
            has_left: AtomicBool::new(false),
        });
        let pushers = [0, 1].map(|number| {
            let main = main.clone();
            spawn(move || main.push(number))
        });
        main.close();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        assert!(!main.ready.load(Ordering::Relaxed), "handed to a thread that has left");
        let mut log = main.lane.log();
        log.sort_unstable();
        assert_eq!(log, [0, 10, 11]);
    });
}

/// A queued lane has two entries, the second one from when it became more urgent. Two workers take them: one
/// gets the turn.
#[test]
fn of_two_entries_one_has_the_turn() {
    model(|| {
        let lane = Lane::new(Inbox::new());
        lane.items[0].payload.write(10);
        // SAFETY: the item lives as long as the lane, and is pushed once.
        let pushed = unsafe { lane.inbox.push(NonNull::from(&lane.items[0])) };
        assert_eq!(pushed, Pushed::First { is_ranked: false });
        assert!(lane.inbox.rank(), "it is in line");
        let other = spawn({
            let lane = lane.clone();
            move || lane.run_entry()
        });
        let here = lane.run_entry();
        assert!(here != other.join().unwrap());
        assert_eq!(lane.log(), [10]);
    });
}

/// A turn puts its lane back while another thread pushes. The remaining items are run, by whichever entry is
/// first, after all effects of the turn. The turn that a running task gets together with its lane ends in the
/// same way.
#[test]
fn a_lane_that_is_put_back_is_claimed_with_all_that_came_in() {
    model(|| {
        let lane = Lane::new(Inbox::new_owned());
        let pusher = spawn({
            let lane = lane.clone();
            move || {
                lane.items[1].payload.write(11);
                // SAFETY: the item lives as long as the lane, and is pushed once.
                unsafe { lane.inbox.push(NonNull::from(&lane.items[1])) }
            }
        });
        // A surplus entry, which may come too early.
        let other = spawn({
            let lane = lane.clone();
            move || lane.run_entry()
        });
        lane.log.change(|log| log.push(0));
        assert!(!lane.inbox.put_back(), "nothing has a priority");
        let here = lane.run_entry();
        let (other, pushed) = (other.join().unwrap(), pusher.join().unwrap());
        assert!(here || other, "it was in line");
        if let Pushed::First { .. } = pushed {
            lane.run_entry();
        }
        assert_eq!(lane.log(), [0, 11]);
    });
}

/// One thread ranks a lane, another makes it runnable. The thread that has the entry knows which queue to
/// use, or the other thread sees that the lane is queued.
#[test]
fn a_rank_is_seen_by_the_holder_of_the_entry_or_sees_the_lane_in_line() {
    model(|| {
        let lane = Lane::new(Inbox::new());
        let ranks = spawn({
            let lane = lane.clone();
            move || lane.inbox.rank()
        });
        lane.items[0].payload.write(10);
        // SAFETY: the item lives as long as the lane, and is pushed once.
        let pushed = unsafe { lane.inbox.push(NonNull::from(&lane.items[0])) };
        let was_in_line = ranks.join().unwrap();
        assert_eq!(pushed, Pushed::First { is_ranked: !was_in_line });
        assert!(lane.inbox.is_ranked() && lane.run_entry());
        assert!(lane.inbox.is_ranked(), "for ever");
        assert_eq!(lane.log(), [10]);
    });
}
