//! A lane: the line of tasks that share a color, and the turn at it.
//!
//! Pushing onto an idle lane makes the *lane* runnable. The worker that takes it has its *turn*:
//! it steps the tasks in line, up to a budget, and puts the lane back if more wait. So order
//! within a color is the order of the line, and nobody ever looks for a task that may run.
//!
//! A lane is as urgent as the most urgent that waits in it: a task with a priority of its own, or
//! any other, with that of the color. Whoever puts something more urgent in line than the lane was queued for
//! adds an entry for it further ahead (`inbox`).
//!
//! # Invariants
//!
//! * **ONE-TURN**, **ONE-PLAIN**: see `inbox`.
//! * **TURN-OWNS-LINE**: `first`, `last`, `unsettled` and `locals` are touched only by the thread
//!   that has the turn, which has the lane in its [`ThreadContext`].
//! * **PULL-FIRST**: what the turn itself puts in line goes behind what is in the inbox.
//! * **LANE-LIVES**: every task that is not done holds a reference to its lane, and so does every
//!   [`Color`](super::Color). What turns add (tasks spawned) or drop (tasks that ended) is counted in `unsettled`, and
//!   settled when the lane becomes idle; also when it is put back, once it is [much](MOST_UNSETTLED), or a color that
//!   is never idle would count up for ever. From the push that makes a lane runnable until it is idle again, there are
//!   more tasks that are not done than are unsettled: at first one and none; both grow and shrink together in turns,
//!   and `put_back` leaves one that is owed. So the word counts one or more without the references of others, and a
//!   lane outlives its turns.
//! * **ENTRY-LIVES**: there are as many entries of a lane as it has references for them, and one more while it
//!   is in line, when LANE-LIVES keeps it alive. An entry that finds nothing to claim gives up one such reference,
//!   whichever of them it was. So a lane outlives its entries.

use std::alloc::Layout;
use std::cell::{Cell, UnsafeCell};
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use super::keyed;
use super::limited::LaneLimit;
use super::main::{Locals, MainThread};
use super::ranked::PriorityCounts;
use crate::context::{ThreadContext, with_context};
use crate::prim::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sched::Sched;
use crate::task::header::{Header, LaneAccess, LaneFacts, TaskKindTag, TaskPtr, VTable, field};
use crate::task::inbox::{Inbox, InboxNode, NodeList, Pushed};
use crate::task::poll::{StepOutcome, step};
use crate::task::runtime_shared::RuntimePhase;
use crate::task::slab::{class_of, put_cell};
use crate::task::state::{ABORTED, StateWord};
use crate::task::{Priority, QueuePosition, Runnable, RuntimeShared, Task};
use crate::world;

/// See the head of this file. `repr(C)`, so that a pointer to its header is a pointer to it.
#[repr(C)]
pub(crate) struct Lane {
    pub(crate) header: Header,
    /// In a cell, so that a lane may be freed while a `&Lane` is still in scope (and not used any
    /// more) in the function that frees it.
    body: UnsafeCell<LaneFields>,
}

/// A lane but for its header, which walkers over the slab may look at while a lane is made.
pub(crate) struct LaneFields {
    /// The pointer that the slab gave out: one to the lane would not reach the chunk's head.
    ptr: TaskPtr,
    pub(super) inbox: Inbox<Header>,
    pub(super) first: Cell<*mut Header>,
    pub(super) last: Cell<*mut Header>,
    /// References that this turn has added (tasks spawned) or dropped (tasks that ended).
    unsettled: Cell<i64>,
    /// What tells its color from others: its address, or that of the task it was made for.
    pub(crate) id: usize,
    pub(crate) key: Option<u64>,
    /// The task that was promoted to it, which keeps `id` from being used again.
    of: Option<Task>,
    pub(crate) main: Option<Arc<MainThread>>,
    pub(super) locals: Locals,
    /// Whether `len` is kept: a policy wants to know.
    is_counted: bool,
    /// Whether the lane counts or has a limit.
    pub(super) is_special: AtomicBool,
    /// Whether anything of `len`, `waiting` and `limits` is kept.
    pub(super) is_watched: AtomicBool,
    /// The color's priority.
    pub(super) priority: AtomicU8,
    /// The highest priority of which there is an entry, and one; 0 if there is none, or none by priority.
    pub(super) queued_at: AtomicU8,
    /// What waits in line, by priority, once the lane is ranked. TURN-OWNS-LINE
    pub(super) waiting: PriorityCounts,
    /// How many are in line and in the inbox.
    len: AtomicU32,
    /// The worker that last had its turn, as a policy sees it, and one.
    ran_on: AtomicU32,
    /// What the program tells its policy.
    pub(crate) tag: AtomicU64,
    /// What it knows once it has had a limit.
    pub(super) limits: OnceLock<Box<LaneLimit>>,
}

impl Deref for Lane {
    type Target = LaneFields;

    fn deref(&self) -> &LaneFields {
        // SAFETY: nobody has it mutable, but for whoever makes or frees the lane.
        unsafe { &*self.body.get() }
    }
}

impl InboxNode for Header {
    fn next_link(&self) -> *mut Header {
        Header::next_link(self)
    }

    fn set_link(&self, next: *mut Header) {
        Header::set_link(self, next);
    }
}

/// How many references a lane that is put back may leave unsettled, so that most turns need not touch the word. Few
/// beside what a word can count (`state::TOO_MANY_REFS`). LANE-LIVES
const MOST_UNSETTLED: u64 = 1 << 10;

const LAYOUT: Layout = Layout::new::<Lane>();
const CLASS: u8 = class_of(LAYOUT);

static LANE: VTable = VTable {
    run: Lane::run,
    enqueue: Lane::enqueue,
    step: Lane::end_first_turn,
    end: |_, _| unreachable!("a lane has no future"),
    left: None,
    take: |_, _| unreachable!("a lane has no output"),
    drop_output: |_| {},
    free: Lane::free,
    color: |lane| lane.addr().get(),
    type_name: || "lane",
    join_offset: 0,
    stage_offset: 0,
    kind: TaskKindTag::Lane,
    lane: Some(&LaneAccess { facts: Lane::facts, note_ran: Lane::note_ran }),
    drops_output: false,
    is_extended: false,
};

static MAIN_LANE: VTable = VTable { enqueue: MainThread::enqueue, ..LANE };

/// What makes one lane different from another.
pub(super) struct NewLane {
    pub(super) key: Option<u64>,
    pub(super) main: Option<Arc<MainThread>>,
    /// The running task that is to be promoted: the caller has the new lane's turn then.
    pub(super) of: Option<Task>,
}

impl Lane {
    /// A lane with one reference, the caller's; `None` once the runtime is gone.
    pub(super) fn make(home: &RuntimeShared, new: NewLane) -> Option<TaskPtr> {
        let slab = with_context(|here| here.slab_of(home));
        let ptr = home.take_cell(slab, CLASS, LAYOUT)?;
        let body = LaneFields {
            ptr,
            inbox: if new.of.is_some() { Inbox::new_owned() } else { Inbox::new() },
            first: Cell::new(null_mut()),
            last: Cell::new(null_mut()),
            unsettled: Cell::new(0),
            id: new.of.as_ref().map_or(ptr.addr().get(), Task::id),
            key: new.key,
            of: new.of,
            locals: Locals::default(),
            main: new.main,
            is_counted: home.rules.counts_lines,
            is_special: AtomicBool::new(home.rules.counts_lines),
            is_watched: AtomicBool::new(home.rules.counts_lines),
            priority: AtomicU8::new(Priority::Normal as u8),
            queued_at: AtomicU8::new(0),
            waiting: PriorityCounts::default(),
            len: AtomicU32::new(0),
            ran_on: AtomicU32::new(0),
            tag: AtomicU64::new(0),
            limits: OnceLock::new(),
        };
        let vtable = if body.main.is_some() { &MAIN_LANE } else { &LANE };
        // SAFETY: the memory is ours and of a lane's layout.
        unsafe { field::<UnsafeCell<LaneFields>>(ptr, offset_of!(Lane, body)).write(UnsafeCell::new(body)) };
        // SAFETY: a cell has a header at all times. ZEROED
        unsafe { ptr.as_ref() }.install(vtable, StateWord::new_counted());
        if home.is_simulated {
            // SAFETY: we have the only reference.
            unsafe { Lane::of(ptr) }.number();
        }
        Some(ptr)
    }

    /// Gives it a number in a simulation.
    #[cold]
    fn number(&self) {
        let of = self.of.as_ref().and_then(Task::number);
        let number = if self.main.is_some() { 0 } else { of.unwrap_or_else(world::number) };
        world::with(|world| world.log.borrow_mut().name_lane(self.ptr.addr().get(), number));
    }

    /// # Safety
    ///
    /// `ptr` is a lane that is alive for as long as the result is used.
    pub(crate) unsafe fn of<'a>(ptr: TaskPtr) -> &'a Lane {
        // SAFETY: handed on from the caller.
        unsafe { ptr.cast::<Lane>().as_ref() }
    }

    pub(crate) fn runtime_shared(&self) -> &RuntimeShared {
        // SAFETY: the runtime's core outlives its lanes. LIVE-UNTIL-EMPTY
        unsafe { &*RuntimeShared::of(self.ptr()) }
    }

    pub(crate) fn ptr(&self) -> TaskPtr {
        self.ptr
    }

    pub(super) fn is_my_turn(&self, here: &ThreadContext) -> bool {
        std::ptr::eq(here.lane(), &raw const self.header)
    }

    /// Adds a reference for a task that is about to be put in line.
    pub(super) fn add_task(&self, here: &ThreadContext) {
        if self.is_my_turn(here) {
            self.unsettled.set(self.unsettled.get() + 1);
        } else {
            self.header.state.add_ref();
        }
    }

    /// Drops the reference of a task that has ended.
    ///
    /// # Safety
    ///
    /// The task had one to this lane, and does not use it again.
    pub(super) unsafe fn drop_task(ptr: TaskPtr, here: &ThreadContext) {
        // SAFETY: the reference that we are about to drop keeps it alive.
        let lane = unsafe { Lane::of(ptr) };
        if lane.is_my_turn(here) {
            lane.unsettled.set(lane.unsettled.get() - 1); // LANE-LIVES
        } else if lane.header.state.drop_ref() {
            // SAFETY: it was the last reference.
            unsafe { Lane::free(ptr) };
        }
    }

    /// Puts a task in line.
    ///
    /// # Safety
    ///
    /// The caller has the right to run the task and gives it away; the task is of this lane.
    #[inline(always)]
    pub(super) unsafe fn push(ptr: TaskPtr, task: TaskPtr, place: QueuePosition, priority: Option<Priority>) {
        // SAFETY: the task is not done, so its lane lives. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        if with_context(|here| lane.is_my_turn(here)) {
            lane.append(task);
            return;
        }
        if priority.is_some() || lane.is_special.load(Ordering::Relaxed) || lane.inbox.is_ranked() {
            // SAFETY: handed on from the caller.
            return unsafe { Lane::push_special(ptr, task, place, priority) };
        }
        // SAFETY: handed on from the caller.
        unsafe { Lane::push_plain(ptr, task, place) }
    }

    /// # Safety
    ///
    /// As for `push`.
    #[inline(always)]
    unsafe fn push_plain(ptr: TaskPtr, task: TaskPtr, place: QueuePosition) {
        // SAFETY: the task is not done, so its lane lives. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        // The task may run, end and take the lane with it as soon as it is in the inbox.
        let enqueue = lane.header.vtable().enqueue;
        // SAFETY: a task that is owned exists, and its link is its owner's.
        match unsafe { lane.inbox.push(task) } {
            // SAFETY: the entry is ours.
            Pushed::First { is_ranked: false } => unsafe { enqueue(ptr, place) },
            Pushed::First { is_ranked: true } => lane.enqueue_at(lane.priority()),
            Pushed::InLine | Pushed::Running => {}
        }
    }

    /// As `push`, for a lane that has a limit, or counts, or in which something has a priority.
    ///
    /// # Safety
    ///
    /// As for `push`.
    #[cold]
    unsafe fn push_special(ptr: TaskPtr, task: TaskPtr, place: QueuePosition, priority: Option<Priority>) {
        // SAFETY: the task is not done, so its lane lives. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        lane.note_ready();
        if priority.is_some() || lane.is_counted || lane.inbox.is_ranked() {
            // SAFETY: handed on from the caller.
            return unsafe { Lane::push_ranked(ptr, task, place, priority) };
        }
        // SAFETY: handed on from the caller.
        unsafe { Lane::push_plain(ptr, task, place) }
    }

    /// As `push`, for a lane in which something has a priority, or that counts.
    ///
    /// # Safety
    ///
    /// As for `push`.
    #[cold]
    unsafe fn push_ranked(ptr: TaskPtr, task: TaskPtr, place: QueuePosition, priority: Option<Priority>) {
        // SAFETY: the task is not done, so its lane lives. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        let enqueue = lane.header.vtable().enqueue;
        lane.header.state.add_ref(); // for another entry, should there be one
        lane.count(1);
        if priority.is_some() && lane.main.is_none() {
            lane.inbox.rank();
        }
        let priority = priority.unwrap_or_else(|| lane.priority());
        // SAFETY: a task that is owned exists, and its link is its owner's.
        match unsafe { lane.inbox.push(task) } {
            // SAFETY: the entry is ours.
            Pushed::First { is_ranked: false } => unsafe { enqueue(ptr, place) },
            Pushed::First { is_ranked: true } => {
                lane.queued_at.fetch_max(priority as u8 + 1, Ordering::AcqRel);
                lane.enqueue_at(priority);
            }
            Pushed::InLine if lane.raise(priority) => return, // with the reference. ENTRY-LIVES
            Pushed::InLine | Pushed::Running => {}
        }
        // SAFETY: it is ours, and we do not use it again.
        unsafe { Lane::drop_ref(ptr) };
    }

    /// The color's priority.
    pub(super) fn priority(&self) -> Priority {
        Priority::from_u8(self.priority.load(Ordering::Relaxed))
    }

    /// Sets the color's priority, which what is in line already goes by, too.
    pub(super) fn set_priority(&self, priority: Priority) {
        self.priority.store(priority as u8, Ordering::Relaxed);
        if self.main.is_some() || (priority == Priority::Normal && !self.inbox.is_ranked()) {
            return; // a main color is in no queue
        }
        self.header.state.add_ref();
        if !(self.inbox.rank() && self.raise(priority)) {
            self.header.state.drop_ref(); // the caller has another one
        }
    }

    /// Adds an entry to a lane in line, if it is more urgent than the lane was queued for. On `true` a reference
    /// of the caller's has become the entry's. ENTRY-LIVES
    fn raise(&self, priority: Priority) -> bool {
        let plain = Priority::Normal as u8 + 1;
        let before = match self.queued_at.fetch_max(priority as u8 + 1, Ordering::AcqRel) {
            0 => plain,
            before => before,
        };
        let raises = before < priority as u8 + 1 && self.runtime_shared().rules.raises;
        if raises {
            self.enqueue_at(priority);
        }
        raises
    }

    /// Hands an entry to the scheduler. A lane's `enqueue`, unless it is of a main color.
    ///
    /// # Safety
    ///
    /// The caller has an entry of the lane and gives it away.
    #[inline]
    pub(super) unsafe fn enqueue(ptr: TaskPtr, place: QueuePosition) {
        // SAFETY: the runtime's core outlives its lanes. LIVE-UNTIL-EMPTY
        let home = unsafe { &*RuntimeShared::of(ptr) };
        // SAFETY: handed on from the caller.
        Sched::of(home).enqueue(unsafe { Runnable::new(ptr) }, place);
    }

    /// Hands an entry to the scheduler, by its priority. ENTRY-LIVES
    fn enqueue_at(&self, priority: Priority) {
        // SAFETY: the caller has an entry, which is the right to run a lane once.
        let entry = unsafe { Runnable::new(self.ptr) };
        Sched::of(self.runtime_shared()).enqueue_ranked(entry, priority);
    }

    /// # Safety
    ///
    /// As [`LaneAccess`] says.
    unsafe fn facts(lane: TaskPtr) -> LaneFacts {
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
    /// As [`LaneAccess`] says.
    unsafe fn note_ran(lane: TaskPtr, worker: usize) {
        // SAFETY: it is a lane, which lives as long as its entry. ENTRY-LIVES
        unsafe { Lane::of(lane) }.ran_on.store(worker as u32 + 1, Ordering::Relaxed);
    }

    /// The priority that it is queued for, as far as that is known.
    fn queued_for(&self) -> Priority {
        match self.queued_at.load(Ordering::Relaxed) {
            0 => self.priority(),
            queued => Priority::from_u8(queued - 1),
        }
    }

    fn count(&self, change: i32) {
        if self.is_counted {
            self.len.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Drops a reference.
    ///
    /// # Safety
    ///
    /// It is the caller's, who does not use the lane again.
    unsafe fn drop_ref(ptr: TaskPtr) {
        // SAFETY: the reference keeps it alive.
        if unsafe { Lane::of(ptr) }.header.state.drop_ref() {
            // SAFETY: it was the last.
            unsafe { Lane::free(ptr) };
        }
    }

    /// For the one who has the turn.
    fn append(&self, task: TaskPtr) {
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
            // SAFETY: what is in line is owned by the lane, so it exists.
            Some(last) => unsafe { last.as_ref() }.set_link(list.first.as_ptr()),
        }
    }

    /// The first in line. For the one who has the turn.
    fn next(&self) -> Option<TaskPtr> {
        if self.first.get().is_null() && !self.inbox.is_empty() {
            self.pull();
        }
        let task = TaskPtr::new(self.first.get())?;
        // SAFETY: what is in line is owned by the lane, so it exists.
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

    /// One turn, for one who has an entry. If the lane comes back, more is in line, and the entry is the
    /// caller's again.
    ///
    /// # Safety
    ///
    /// The caller has an entry of the lane and gives it away.
    pub(super) unsafe fn run(ptr: TaskPtr, here: &ThreadContext) -> Option<TaskPtr> {
        // SAFETY: the lane lives as long as its entry, and through its turn. ENTRY-LIVES, LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        if !lane.take_turn() {
            // SAFETY: an entry too many has a reference. ENTRY-LIVES
            unsafe { Lane::drop_ref(ptr) };
            return None;
        }
        if lane.is_watched() {
            lane.note_turn();
        }
        let home = lane.runtime_shared();
        let stopped = home.phase() == RuntimePhase::Stopped;
        here.take_turn(ptr.as_ptr());
        here.set_color(lane.id);
        let mut budget = home.rules.turn;
        while budget > 0 {
            let Some(task) = lane.next() else {
                // SAFETY: we have the turn.
                if unsafe { Lane::leave(ptr, here) } {
                    return None;
                }
                continue;
            };
            if stopped || lane.main.as_ref().is_some_and(|main| main.admit(lane, task)) {
                // SAFETY: what is in line exists.
                unsafe { task.as_ref() }.state.mark(ABORTED);
            }
            budget -= 1;
            // SAFETY: the line's right to run the task is ours. TURN-OWNS-LINE
            if unsafe { step(task, here) } == StepOutcome::Again {
                // Alone in its color, it gives way to other colors.
                if lane.first.get().is_null() && lane.inbox.is_empty() {
                    budget = 0;
                }
                lane.append(task);
            }
            if home.has_ranks() && home.has_above(lane.priority_of_turn()) {
                budget = 0;
            }
        }
        here.end_turn();
        // SAFETY: we have the turn, and do not use it again.
        unsafe { Lane::put_back(ptr) }
    }

    /// Claims the turn, with one of the lane's entries.
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

    /// Begins to keep count of what waits by priority, as soon as anything has one. For the one who has the turn.
    fn look_at_ranks(&self) {
        if self.inbox.is_ranked() {
            self.is_watched.store(true, Ordering::Relaxed);
            self.waiting.begin(self.first.get());
        }
    }

    fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// How urgent what is in line is, for the one who has the turn.
    fn priority_of_turn(&self) -> Priority {
        self.waiting.highest(self.priority())
    }

    /// Ends the turn that a running task got together with its lane, after the poll. `Again`: something is in line, and
    /// an entry is the caller's. A lane's `step`.
    ///
    /// # Safety
    ///
    /// The caller has the turn, and gives it away.
    #[cold]
    unsafe fn end_first_turn(ptr: TaskPtr, here: &ThreadContext) -> StepOutcome {
        // SAFETY: the lane lives through its turn. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        while lane.first.get().is_null() && lane.inbox.is_empty() {
            // SAFETY: we have the turn.
            if unsafe { Lane::leave(ptr, here) } {
                return StepOutcome::Rest;
            }
        }
        here.give_turn_up();
        // SAFETY: we have the turn, and do not use it again.
        if unsafe { Lane::put_back(ptr) }.is_some() { StepOutcome::Again } else { StepOutcome::Rest }
    }

    /// Ends a turn that leaves something in line.
    ///
    /// # Safety
    ///
    /// The caller has the turn, and gives it away. What comes back is an entry.
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

    /// Settles the references, for the one who has the turn; one may still be owed. LANE-LIVES
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

    /// Ends the turn if nothing has come in, and settles the references.
    ///
    /// # Safety
    ///
    /// The caller has the turn, and on `true` has given it away.
    unsafe fn leave(ptr: TaskPtr, here: &ThreadContext) -> bool {
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
        here.end_turn();
        // From here on the lane is there only if references are owed. LANE-LIVES
        if owed < 0 && lane.header.state.drop_refs(owed.unsigned_abs()) {
            // SAFETY: they were the last.
            unsafe { Lane::free(ptr) };
        }
        true
    }

    /// # Safety
    ///
    /// The caller gave up the last reference.
    pub(super) unsafe fn free(ptr: TaskPtr) {
        // SAFETY: nobody else can reach the lane.
        let lane = unsafe { Lane::of(ptr) };
        if let Some(key) = lane.key {
            keyed::forget(lane.runtime_shared(), key, ptr);
        }
        // SAFETY: nobody else can reach the lane, and the body is not used again.
        unsafe { field::<UnsafeCell<LaneFields>>(ptr, offset_of!(Lane, body)).drop_in_place() };
        // SAFETY: as above; the state counts no references, so walkers pass it by.
        unsafe { put_cell(ptr) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::MOST_UNSETTLED;
    use crate::Color;
    use crate::sim::Sim;
    use crate::task::yield_now;

    /// A task that gives way again and again keeps its color busy, and others call and spawn there meanwhile: the
    /// references that are counted stay few, from wherever they come.
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
                yield_now().await; // until the last turn is over
            }
            assert_eq!(color.lane().header.state.refs(), 1, "idle, and settled");
        });
    }
}
