//! One turn at a lane: taking it, stepping the queued tasks, and giving it back.
//!
//! The invariants are at the head of `lane.rs`.

use std::ptr::null_mut;

use super::lane::Lane;
use crate::context::ThreadContext;
use crate::prim::Ordering;
use crate::sched::Sched;
use crate::task::Priority;
use crate::task::header::{Header, TaskPtr};
use crate::task::inbox::NodeList;
use crate::task::poll::{StepOutcome, step};
use crate::task::runtime_shared::{RuntimePhase, WholeRuntime};
use crate::task::state::ABORTED;

/// How many references a lane that is put back may leave unsettled, so that most turns do not write to the state
/// word. It is small compared to the range of the counter (`state::TOO_MANY_REFS`). LANE-LIVES
const MOST_UNSETTLED: u64 = 1 << 10;

impl Lane {
    /// Adds a task at the end of the queue. For the holder of the turn.
    pub(super) fn append(&self, task: TaskPtr) {
        if !self.inbox.is_empty() {
            self.pull(); // PULL-FIRST
        }
        self.count(1);
        // SAFETY: a task that is owned exists.
        unsafe { task.as_ref() }.set_link(null_mut());
        self.extend(NodeList { first: task, last: task });
    }

    fn pull(&self) {
        if let Some(list) = self.inbox.pull() {
            self.extend(list);
        }
    }

    fn extend(&self, list: NodeList<Header>) {
        let mut list = list;
        if self.is_watched() {
            self.waiting.add_list(list.first);
            match self.sift(list) {
                Some(rest) => list = rest,
                None => return,
            }
        }
        match TaskPtr::new(self.last.replace(list.last.as_ptr())) {
            None => self.first.set(list.first.as_ptr()),
            // SAFETY: the lane owns the tasks in its queue, so they exist.
            Some(last) => unsafe { last.as_ref() }.set_link(list.first.as_ptr()),
        }
    }

    /// Takes the first task from the queue. For the holder of the turn.
    fn next(&self) -> Option<TaskPtr> {
        if self.first.get().is_null() && !self.inbox.is_empty() {
            self.pull();
        }
        let task = TaskPtr::new(self.first.get())?;
        // SAFETY: the lane owns the tasks in its queue, so they exist.
        let next = unsafe { task.as_ref() }.next_link();
        self.first.set(next);
        if next.is_null() {
            self.last.set(null_mut());
        }
        if self.is_watched() {
            self.note_taken(task);
            self.waiting.remove(task);
            self.count(-1);
        }
        Some(task)
    }

    /// One turn, for the holder of an entry. If the lane is returned, more tasks are queued, and the caller has the
    /// entry again.
    ///
    /// # Safety
    ///
    /// The caller has an entry of the lane and gives it away.
    pub(super) unsafe fn run(ptr: TaskPtr, context: &ThreadContext) -> Option<TaskPtr> {
        // SAFETY: the lane lives as long as its entry, and through its turn. ENTRY-LIVES, LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        if !lane.take_turn() {
            // SAFETY: an entry that cannot claim the turn gives up a reference. ENTRY-LIVES
            unsafe { Lane::drop_ref(ptr) };
            return None;
        }
        if lane.is_watched() {
            lane.note_turn();
        }
        let shared = lane.runtime_shared();
        let sched = Sched::of(shared);
        let stopped = shared.phase() == RuntimePhase::Stopped;
        context.take_turn(ptr.as_ptr());
        context.set_color(lane.id);
        let mut budget = sched.rules.turn;
        while budget > 0 {
            let Some(task) = lane.next() else {
                // SAFETY: this thread has the turn.
                if unsafe { Lane::leave(ptr, context) } {
                    return None;
                }
                continue;
            };
            if stopped || lane.main.as_ref().is_some_and(|main| main.admit(lane, task)) {
                // SAFETY: the lane owns the tasks in its queue, so they exist.
                unsafe { task.as_ref() }.state.mark(ABORTED);
            }
            budget -= 1;
            // SAFETY: the queue's right to run the task was taken with the task. TURN-OWNS-LINE
            if unsafe { step(task, context) } == StepOutcome::Again {
                // A task that is alone in its color gives way to other colors.
                if lane.first.get().is_null() && lane.inbox.is_empty() {
                    budget = 0;
                }
                lane.append(task);
            }
            if sched.has_ranks() && sched.has_above(lane.priority_of_turn()) {
                budget = 0;
            }
        }
        context.end_turn();
        // SAFETY: this thread has the turn, and does not use it again.
        unsafe { Lane::put_back(ptr) }
    }

    /// Claims the turn with one of the lane's entries.
    #[inline]
    fn take_turn(&self) -> bool {
        let Some((list, is_ranked)) = self.inbox.claim() else { return false };
        if let Some(list) = list {
            self.extend(list);
        }
        if is_ranked {
            self.look_at_ranks();
        }
        true
    }

    /// Starts counting queued tasks by priority once any task has one. For the holder of the turn.
    fn look_at_ranks(&self) {
        if self.inbox.is_ranked() {
            self.is_watched.store(true, Ordering::Relaxed);
            self.waiting.begin(self.first.get());
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Priority of the most urgent queued task. For the holder of the turn.
    fn priority_of_turn(&self) -> Priority {
        self.waiting.highest(self.priority())
    }

    /// Ends the turn that a running task got together with its lane, after the poll. `Again`: tasks are queued, and
    /// the caller has an entry. This is `VTable::step` of a lane.
    ///
    /// # Safety
    ///
    /// The caller has the turn, and gives it away.
    #[cold]
    pub(super) unsafe fn end_first_turn(ptr: TaskPtr, context: &ThreadContext) -> StepOutcome {
        // SAFETY: the lane lives through its turn. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        while lane.first.get().is_null() && lane.inbox.is_empty() {
            // SAFETY: this thread has the turn.
            if unsafe { Lane::leave(ptr, context) } {
                return StepOutcome::Rest;
            }
        }
        context.give_turn_up();
        // SAFETY: this thread has the turn, and does not use it again.
        if unsafe { Lane::put_back(ptr) }.is_some() { StepOutcome::Again } else { StepOutcome::Rest }
    }

    /// Ends a turn that leaves tasks queued. Returns an entry, unless it has passed that to the scheduler.
    ///
    /// # Safety
    ///
    /// The caller has the turn, and gives it away.
    unsafe fn put_back(ptr: TaskPtr) -> Option<TaskPtr> {
        // SAFETY: the lane lives through its turn. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        if !lane.inbox.is_empty() {
            lane.pull();
        }
        lane.look_at_ranks();
        if lane.is_watched() {
            lane.note_put_back();
        }
        if lane.unsettled.get().unsigned_abs() > MOST_UNSETTLED {
            lane.settle();
        }
        let priority = lane.priority_of_turn();
        if lane.inbox.is_ranked() {
            lane.queued_at.store(priority as u8 + 1, Ordering::Relaxed);
        }
        if !lane.inbox.put_back() {
            return Some(ptr);
        }
        lane.enqueue_at(priority);
        None
    }

    /// Settles the references. One drop may still be owed. For the holder of the turn. LANE-LIVES
    #[cold]
    fn settle(&self) {
        let unsettled = self.unsettled.get();
        if unsettled > 0 {
            self.header.state.add_refs(unsettled.unsigned_abs());
            self.unsettled.set(0);
        } else if unsettled < -1 {
            let is_last = self.header.state.drop_refs(unsettled.unsigned_abs() - 1);
            debug_assert!(!is_last, "one is still owed");
            self.unsettled.set(-1);
        }
    }

    /// Ends the turn if the inbox is empty, and settles the references. `false`: tasks have arrived, and the turn
    /// goes on.
    ///
    /// # Safety
    ///
    /// The caller has the turn, and on `true` has given it away.
    unsafe fn leave(ptr: TaskPtr, context: &ThreadContext) -> bool {
        // SAFETY: the lane lives through its turn. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        let unsettled = lane.unsettled.replace(0);
        if unsettled > 0 {
            lane.header.state.add_refs(unsettled.unsigned_abs());
        }
        let owed = unsettled.min(0);
        if lane.is_watched() {
            lane.queued_at.store(0, Ordering::Relaxed);
            lane.note_left();
        }
        if !lane.inbox.release() {
            lane.unsettled.set(owed);
            return false;
        }
        context.end_turn();
        // From here on the lane exists only if drops are owed. LANE-LIVES
        if owed < 0 && lane.header.state.drop_refs(owed.unsigned_abs()) {
            // SAFETY: the references were the last.
            unsafe { Lane::free(ptr) };
        }
        true
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::MOST_UNSETTLED;
    use crate::Color;
    use crate::sim::Sim;
    use crate::task::yield_now;

    /// A task that yields again and again keeps its color busy while others call and spawn there. The counted
    /// references stay few.
    #[test]
    fn a_color_that_is_never_idle_counts_no_references_of_what_has_ended() {
        Sim::new(7).workers(2).run(async {
            let color = Color::new();
            let busy = color.spawn(async {
                loop {
                    Color::current().call(|| ()).detach(); // of its own turn
                    yield_now().await;
                }
            });
            for _ in 0..4 * MOST_UNSETTLED {
                color.call(|| ()).detach();
                color.call(|| ()).await.unwrap();
                let counted = color.lane().header.state.refs();
                assert!(counted < 2 * MOST_UNSETTLED, "{counted} references of a few tasks");
            }
            busy.abort();
            busy.await.unwrap_err();
            color.call(|| ()).await.unwrap();
            for _ in 0..1000 {
                yield_now().await; // until the last turn has ended
            }
            assert_eq!(color.lane().header.state.refs(), 1, "idle, and settled");
        });
    }
}
