//! Priorities of lanes: the queued tasks by priority, and the entries of a lane that is queued by priority.

use std::cell::Cell;

use super::lane::Lane;
use crate::prim::Ordering;
use crate::sched::Sched;
use crate::task::header::{Header, LaneFacts, TaskPtr};
use crate::task::inbox::Pushed;
use crate::task::runtime_shared::WholeRuntime;
use crate::task::{Priority, QueuePosition, Runnable};

/// Number of queued tasks: first those without a priority, then by priority. Counted once the lane is known to be
/// ranked. For the holder of the turn.
#[derive(Default)]
pub(crate) struct PriorityCounts {
    is_kept: Cell<bool>,
    counts: [Cell<u32>; 1 + Priority::ALL.len()],
}

impl PriorityCounts {
    /// Starts counting, with the tasks that are queued already.
    #[inline]
    pub(super) fn begin(&self, first: *mut Header) {
        if !self.is_kept.replace(true)
            && let Some(first) = TaskPtr::new(first)
        {
            self.add_list(first);
        }
    }

    #[inline]
    fn count_of(&self, task: TaskPtr) -> &Cell<u32> {
        // SAFETY: the lane owns the tasks in its queue, so they exist.
        let queued = unsafe { task.as_ref() }.vtable().queued;
        // SAFETY: as above, and the function is that of the task's kind.
        let priority = queued.and_then(|queued| unsafe { (queued.priority)(task) });
        &self.counts[priority.map_or(0, |priority| 1 + priority as usize)]
    }

    /// Counts the linked tasks from `first` on, which were added to the queue.
    #[inline]
    pub(super) fn add_list(&self, first: TaskPtr) {
        if self.is_kept.get() {
            self.add_all(first);
        }
    }

    #[cold]
    fn add_all(&self, first: TaskPtr) {
        let mut next = Some(first);
        while let Some(task) = next {
            let count = self.count_of(task);
            count.set(count.get() + 1);
            // SAFETY: the lane owns the tasks in its queue, so they exist.
            next = TaskPtr::new(unsafe { task.as_ref() }.next_link());
        }
    }

    /// The first task was taken from the queue.
    #[inline]
    pub(super) fn remove(&self, task: TaskPtr) {
        if self.is_kept.get() {
            let count = self.count_of(task);
            count.set(count.get() - 1);
        }
    }

    /// The priority of the most urgent queued task. Tasks without a priority have that of the color, and so has an
    /// empty queue.
    #[inline]
    pub(super) fn highest(&self, of_color: Priority) -> Priority {
        if !self.is_kept.get() {
            return of_color;
        }
        let plain = (self.counts[0].get() > 0).then_some(of_color);
        let ranked = Priority::ALL.into_iter().rev().find(|p| self.counts[1 + *p as usize].get() > 0);
        plain.max(ranked).unwrap_or(of_color)
    }
}

impl Lane {
    /// As `push`, for a lane that counts its tasks or has tasks with a priority.
    ///
    /// # Safety
    ///
    /// As for `push`.
    #[cold]
    pub(super) unsafe fn push_ranked(
        ptr: TaskPtr,
        task: TaskPtr,
        place: QueuePosition,
        priority: Option<Priority>,
    ) {
        // SAFETY: the task is not done, so its lane lives. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        let enqueue = lane.header.vtable().enqueue;
        lane.header.state.add_ref(); // for another entry, if there will be one
        lane.count(1);
        if priority.is_some() && lane.main.is_none() {
            lane.inbox.rank();
        }
        let priority = priority.unwrap_or_else(|| lane.priority());
        // SAFETY: a task that is owned exists, and its link belongs to its owner. LINK-OWNED
        match unsafe { lane.inbox.push(task) } {
            // SAFETY: `First` gives the caller an entry.
            Pushed::First { is_ranked: false } => unsafe { enqueue(ptr, place) },
            Pushed::First { is_ranked: true } => {
                lane.queued_at.fetch_max(priority as u8 + 1, Ordering::AcqRel);
                lane.enqueue_at(priority);
            }
            Pushed::InLine if lane.raise(priority) => return, // the reference belongs to the entry now. ENTRY-LIVES
            Pushed::InLine | Pushed::Running => {}
        }
        // SAFETY: the reference was added above, and the lane is not used again.
        unsafe { Lane::drop_ref(ptr) };
    }

    /// The color's priority.
    pub(super) fn priority(&self) -> Priority {
        Priority::from_u8(self.priority.load(Ordering::Relaxed))
    }

    /// Sets the color's priority, which also applies to queued tasks.
    pub(super) fn set_priority(&self, priority: Priority) {
        self.priority.store(priority as u8, Ordering::Relaxed);
        if self.main.is_some() || (priority == Priority::Normal && !self.inbox.is_ranked()) {
            return; // a main color is in no queue
        }
        self.header.state.add_ref();
        if !(self.inbox.rank() && self.raise(priority)) {
            self.header.state.drop_ref(); // not the last: the caller has another one
        }
    }

    /// Adds an entry of a queued lane, if `priority` is above the one that the lane was queued for. On `true` a
    /// reference of the caller belongs to the entry. ENTRY-LIVES
    fn raise(&self, priority: Priority) -> bool {
        let plain = Priority::Normal as u8 + 1;
        let before = match self.queued_at.fetch_max(priority as u8 + 1, Ordering::AcqRel) {
            0 => plain,
            before => before,
        };
        let raises = before < priority as u8 + 1 && Sched::of(self.runtime_shared()).rules.raises;
        if raises {
            self.enqueue_at(priority);
        }
        raises
    }

    /// Passes an entry to the scheduler, by priority. ENTRY-LIVES
    pub(super) fn enqueue_at(&self, priority: Priority) {
        // SAFETY: the caller has an entry, which is the right to run a lane once. RUN-ONCE
        let entry = unsafe { Runnable::new(self.ptr) };
        Sched::of(self.runtime_shared()).enqueue_ranked(entry, priority);
    }

    /// # Safety
    ///
    /// As for [`LaneAccess`](crate::task::header::LaneAccess).
    pub(super) unsafe fn facts(lane: TaskPtr) -> LaneFacts {
        // SAFETY: it is a lane, which lives as long as its entry. ENTRY-LIVES
        let lane = unsafe { Lane::of(lane) };
        LaneFacts {
            priority: lane.queued_for(),
            len: lane.len.load(Ordering::Relaxed) as usize,
            tag: lane.tag.load(Ordering::Relaxed),
            ran_on: lane.ran_on.load(Ordering::Relaxed).checked_sub(1).map(|worker| worker as usize),
        }
    }

    /// # Safety
    ///
    /// As for [`LaneAccess`](crate::task::header::LaneAccess).
    pub(super) unsafe fn note_ran(lane: TaskPtr, worker: usize) {
        // SAFETY: it is a lane, which lives as long as its entry. ENTRY-LIVES
        unsafe { Lane::of(lane) }.ran_on.store(worker as u32 + 1, Ordering::Relaxed);
    }

    /// The priority that it is queued for, as far as known.
    fn queued_for(&self) -> Priority {
        match self.queued_at.load(Ordering::Relaxed) {
            0 => self.priority(),
            queued => Priority::from_u8(queued - 1),
        }
    }
}
