//! Models of the state word: wake-ups, ownership, the end of a task and its memory.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use super::Plain;
use crate::prim::{AtomicUsize, Mutex, Ordering, Parker, lock};
use crate::task::state::{ABORTED, DONE, Finished, JOIN_INTEREST, JOIN_WAKER, RestOutcome, StateWord};

/// A task from the view of its state word.
struct Task {
    state: StateWord,
    /// Number of polls. Only the owner touches it. ONE-OWNER
    polls: Plain<usize>,
    /// Number of events that the last poll saw.
    seen: Plain<usize>,
    /// Events that wakers announce, without an ordering of their own.
    events: AtomicUsize,
    /// The output: there from the last poll until its owner takes it. HANDLE-OUTPUT
    output: Plain<Option<u32>>,
    /// The join slot: whether a waker is in it. SLOT
    slot: Plain<bool>,
    /// Thread that the waker in the slot wakes.
    joiner: Parker,
    /// The memory: `true` until it is freed.
    there: Plain<bool>,
}

impl Task {
    /// A task that is owned, with a handle.
    fn new() -> Arc<Task> {
        Task::with(StateWord::new(false))
    }

    fn with(state: StateWord) -> Arc<Task> {
        Arc::new(Task {
            state,
            polls: Plain::default(),
            seen: Plain::default(),
            events: AtomicUsize::new(0),
            output: Plain::default(),
            slot: Plain::default(),
            joiner: Parker::default(),
            there: Plain::new(true),
        })
    }

    /// A task that is owned, without a handle.
    fn detached() -> Arc<Task> {
        let task = Task::new();
        assert!(task.state.detach());
        task
    }

    /// A task that has been polled once, waits, and has a handle.
    fn idle() -> Arc<Task> {
        let task = Task::new();
        task.poll_until_idle();
        task
    }

    /// The last use of a reference before it is given up.
    fn touch(&self) {
        assert!(self.there.read(), "used after it was freed");
    }

    fn free(&self) {
        assert!(self.there.change(|there| std::mem::replace(there, false)), "freed twice");
    }

    fn is_freed(&self) -> bool {
        !self.there.read()
    }

    /// The owner's poll of a future that is never ready. `poll::step`
    fn poll_until_idle(&self) {
        loop {
            let before = self.state.before_poll();
            self.poll();
            if self.state.rest(before, 0) == RestOutcome::Idle {
                return;
            }
        }
    }

    fn poll(&self) {
        self.polls.change(|polls| *polls += 1);
        self.seen.write(self.events.load(Ordering::Relaxed));
    }

    /// Announces an event, and wakes.
    fn send(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
        if self.state.wake() {
            self.poll_until_idle();
        }
    }

    /// The owner's step once the future is ready. `poll::finish`
    fn finish(&self, unsettled: i64) {
        self.output.write(Some(7));
        let mut unwanted = false;
        loop {
            if !unwanted && !self.state.load().has(JOIN_INTEREST) {
                unwanted = true;
                self.take_output();
            }
            self.touch();
            match self.state.finish(0, unsettled, !unwanted) {
                Finished::Unwanted => {}
                Finished::Shared => return,
                Finished::Last => return self.free(),
                Finished::WakeJoiner => {
                    self.take_waker();
                    self.joiner.unpark();
                    self.touch();
                    if self.state.drop_existence() {
                        self.free();
                    }
                    return;
                }
            }
        }
    }

    fn take_output(&self) {
        self.output.change(Option::take).expect("the output is there until it is taken");
    }

    fn take_waker(&self) {
        assert!(self.slot.change(std::mem::take), "the waker is there until it is taken");
    }

    /// Gives up a reference. `waker::drop`
    fn drop_ref(&self) {
        self.touch();
        if self.state.drop_ref() {
            self.free();
        }
    }

    /// Gives up a reference, and wakes. `waker::wake`. `true` if the caller owns the task now.
    fn wake_and_drop_ref(&self) -> bool {
        self.touch();
        let (owned, last) = self.state.wake_and_drop_ref();
        if last && !owned {
            self.free();
        }
        owned
    }

    /// The handle is awaited. `JoinHandle::poll_done`. `true` if it has the output.
    fn poll_handle(&self) -> bool {
        let now = self.state.load();
        if !now.has(DONE) {
            let withdrawn = now.has(JOIN_WAKER);
            if !withdrawn || self.state.withdraw_join_waker() {
                if withdrawn {
                    self.take_waker();
                }
                self.slot.write(true);
                if self.state.offer_join_waker() {
                    return false;
                }
                self.take_waker();
            }
        }
        self.take_output();
        self.drop_ref();
        true
    }

    /// The handle is dropped. `JoinHandle::drop`
    fn drop_handle(&self) {
        if self.state.load().has(JOIN_WAKER) && self.state.withdraw_join_waker() {
            self.take_waker();
        }
        self.touch();
        if !self.state.detach() {
            self.take_output();
            self.drop_ref();
        }
    }
}

#[test]
fn a_wake_up_during_a_poll_is_not_lost() {
    model(|| {
        let task = Task::new();
        let waker = spawn({
            let task = task.clone();
            move || task.send()
        });
        task.poll_until_idle();
        waker.join().unwrap();
        assert_eq!(task.seen.read(), 1, "the last poll saw the event");
        assert!(task.state.load().is_idle());
    });
}

#[test]
fn a_storm_of_wake_ups_is_not_lost() {
    model(|| {
        let task = Task::new();
        let waker = spawn({
            let task = task.clone();
            move || (0..4).for_each(|_| task.send())
        });
        task.poll_until_idle();
        waker.join().unwrap();
        assert_eq!(task.seen.read(), 4, "the last poll saw all events");
        assert!(task.state.load().is_idle());
    });
}

#[test]
fn of_two_wakers_one_becomes_the_owner() {
    model(|| {
        let task = Task::idle();
        let wakers = [(); 2].map(|()| {
            let task = task.clone();
            spawn(move || task.state.wake())
        });
        let owners = wakers.map(|waker| waker.join().unwrap());
        assert_ne!(owners[0], owners[1]);
    });
}

#[test]
fn an_owner_sees_what_wakers_and_the_last_owner_did() {
    model(|| {
        let task = Task::idle();
        let wakers = [(); 2].map(|()| {
            let task = task.clone();
            spawn(move || task.send())
        });
        for waker in wakers {
            waker.join().unwrap();
        }
        assert_eq!(task.seen.read(), 2, "the last poll saw both events");
        assert!((2..=3).contains(&task.polls.read()));
    });
}

#[test]
fn an_abort_is_seen_by_the_next_poll() {
    model(|| {
        let task = Task::new();
        let run = |task: &Task| loop {
            let before = task.state.before_poll();
            if before.has(ABORTED) {
                break task.output.write(Some(0));
            }
            task.poll();
            if task.state.rest(before, 0) == RestOutcome::Idle {
                break;
            }
        };
        let aborter = spawn({
            let task = task.clone();
            move || {
                if task.state.wake_with(ABORTED) {
                    run(&task);
                }
            }
        });
        run(&task);
        aborter.join().unwrap();
        task.take_output(); // the task has been ended
    });
}

#[test]
fn an_output_is_dropped_once_when_the_handle_goes() {
    model(|| {
        let task = Task::new();
        let handle = spawn({
            let task = task.clone();
            move || task.drop_handle()
        });
        task.finish(0);
        handle.join().unwrap();
        assert_eq!(task.output.read(), None);
        assert!(task.is_freed());
    });
}

#[test]
fn a_waiter_is_woken_or_sees_the_end() {
    model(|| {
        let task = Task::new();
        let handle = spawn({
            let task = task.clone();
            move || {
                if !task.poll_handle() {
                    task.joiner.park(None);
                    assert!(task.poll_handle(), "woken, so it is done");
                }
            }
        });
        task.finish(0);
        handle.join().unwrap();
        assert!(task.is_freed());
    });
}

#[test]
fn a_waker_is_taken_once_when_another_takes_its_place() {
    model(|| {
        let task = Task::new();
        let handle = spawn({
            let task = task.clone();
            move || {
                if !task.poll_handle() && !task.poll_handle() {
                    task.drop_handle();
                }
            }
        });
        task.finish(0);
        handle.join().unwrap();
        assert!(!task.slot.read());
        assert_eq!(task.output.read(), None);
        assert!(task.is_freed());
    });
}

#[test]
fn an_uncounted_waker_that_is_dropped_elsewhere_keeps_the_memory() {
    model(|| {
        let task = Task::detached();
        task.state.before_poll();
        let waker = spawn({
            let task = task.clone(); // the poll's own clone, which only `finish` counts
            move || task.drop_ref()
        });
        task.finish(1);
        waker.join().unwrap();
        assert!(task.is_freed());
    });
}

#[test]
fn an_uncounted_waker_that_wakes_elsewhere_keeps_the_memory() {
    model(|| {
        let task = Task::detached();
        let before = task.state.before_poll();
        let waker = spawn({
            let task = task.clone(); // the poll's own clone, which only `rest` counts
            move || {
                if task.wake_and_drop_ref() {
                    task.finish(0);
                }
            }
        });
        if task.state.rest(before, 1) == RestOutcome::Again {
            task.finish(0);
        }
        waker.join().unwrap();
        assert!(task.is_freed(), "it was woken, so it has been finished");
    });
}

#[test]
fn a_wake_up_at_the_end_frees_or_leaves_the_memory() {
    model(|| {
        let task = Task::detached();
        task.state.add_ref();
        let waker = spawn({
            let task = task.clone();
            move || assert!(!task.wake_and_drop_ref(), "it has an owner, or is done")
        });
        task.finish(0);
        waker.join().unwrap();
        assert!(task.is_freed());
    });
}

#[test]
fn a_walker_gets_no_reference_to_what_is_freed() {
    model(|| {
        let task = Task::new();
        let walker = spawn({
            let task = task.clone();
            move || {
                if task.state.try_ref() {
                    task.drop_ref();
                }
            }
        });
        task.finish(0);
        task.take_output();
        task.drop_ref(); // the handle's
        walker.join().unwrap();
        assert!(task.is_freed());
    });
}

#[test]
fn a_walker_sees_the_task_that_a_cell_was_made_into() {
    model(|| {
        let task = Task::with(StateWord::new_counted());
        assert!(task.state.drop_ref());
        let walker = spawn({
            let task = task.clone();
            move || {
                if task.state.try_ref() {
                    assert_eq!(task.polls.read(), 1);
                    task.drop_ref();
                }
            }
        });
        task.polls.write(1);
        task.state.reset(StateWord::new(false));
        walker.join().unwrap();
        assert!(!task.is_freed());
    });
}

#[test]
fn a_counted_thing_on_its_way_out_is_not_given_out() {
    model(|| {
        let lane = Task::with(StateWord::new_counted());
        let table = Arc::new(Mutex::new(true)); // whether it is in the table. `lane::keyed`
        let drop_ref = |lane: &Task, table: &Mutex<bool>| {
            lane.touch();
            if lane.state.drop_ref() {
                *lock(table) = false;
                lane.free();
            }
        };
        let finder = spawn({
            let (lane, table) = (lane.clone(), table.clone());
            move || {
                let known = lock(&table);
                let found = *known && lane.state.try_ref_counted();
                drop(known);
                if found {
                    drop_ref(&lane, &table);
                }
            }
        });
        drop_ref(&lane, &table);
        finder.join().unwrap();
        assert!(lane.is_freed());
    });
}

#[test]
fn a_failed_look_at_a_counted_thing_comes_after_its_end() {
    model(|| {
        let lane = Task::with(StateWord::new_counted());
        let guarded = Arc::new(Plain::new(0)); // guarded by a color, in one lane of its key after the other
        let finder = spawn({
            let (lane, guarded) = (lane.clone(), guarded.clone());
            move || {
                if lane.state.try_ref_counted() {
                    return lane.state.drop_ref();
                }
                guarded.change(|n| *n += 1); // in a new lane
                false
            }
        });
        guarded.change(|n| *n += 1);
        let last = lane.state.drop_refs(1);
        assert!(last != finder.join().unwrap(), "one is the last");
    });
}
