//! A lane: the queue of tasks that share a color. `turn` has the turn at it, and `priority` its priorities.
//!
//! Pushing a task onto an idle lane makes the *lane* runnable. The worker that takes the lane has its *turn*: it
//! steps the queued tasks, up to a budget, and puts the lane back if more are queued. So the order within a color is
//! the order of the queue, and no worker searches for a task that may run.
//!
//! A lane has the priority of the most urgent task in its queue. A task without a priority of its own has the
//! priority of the color. A thread that queues a more urgent task than the lane was queued for adds another entry of
//! the lane (`inbox`).
//!
//! # Invariants
//!
//! * **ONE-TURN**, **ONE-PLAIN**: see `inbox`.
//! * **TURN-OWNS-LINE**: `first`, `last`, `unsettled` and `locals` are touched only by the thread that has the turn,
//!   whose [`ThreadContext`] names the lane.
//! * **PULL-FIRST**: a task that the turn itself queues goes behind those in the inbox.
//! * **LANE-LIVES**: every task that is not done holds a reference to its lane, and so does every
//!   [`Color`](super::Color). A turn counts the references that it adds (spawned tasks) and drops (ended tasks) in
//!   `unsettled`. They are settled when the lane becomes idle, and also when it is put back with more than
//!   `MOST_UNSETTLED` of them, because a color that is never idle would count up for ever. From the push that makes a
//!   lane runnable until it is idle again, there are more tasks that are not done than unsettled drops: at first one
//!   and none. Both change together in turns, and `put_back` leaves one drop owed. So the state word counts at least
//!   one reference besides those of colors, and a lane outlives its turns.
//! * **ENTRY-LIVES**: a lane has one reference for each of its entries, except for one entry while tasks are queued,
//!   when LANE-LIVES keeps the lane alive. An entry that finds nothing to claim gives up one such reference, no
//!   matter which entry it was made for. So a lane outlives its entries.

use std::alloc::Layout;
use std::cell::{Cell, UnsafeCell};
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use super::keyed;
use super::limited::LaneLimit;
use super::main::{Locals, MainThread};
use super::priority::PriorityCounts;
use crate::context::{ThreadContext, with_context};
use crate::prim::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sched::Sched;
use crate::task::header::{Header, LaneAccess, TaskPtr, VTable, field};
use crate::task::inbox::{Inbox, InboxNode, Pushed};
use crate::task::runtime_shared::WholeRuntime;
use crate::task::slab::{class_of, put_cell};
use crate::task::state::StateWord;
use crate::task::{Priority, QueuePosition, Runnable, RuntimeShared, Task};
use crate::world;

/// See the head of this file. `repr(C)`: a pointer to its header is a pointer to it.
#[repr(C)]
pub(crate) struct Lane {
    pub(crate) header: Header,
    /// In an `UnsafeCell`, because a `&Lane` may still be in scope (and not used any more) in the function that frees
    /// the lane.
    body: UnsafeCell<LaneFields>,
}

/// The fields of a lane without its header. Walkers over the slab may read the header while a lane is made.
pub(crate) struct LaneFields {
    /// The pointer that the slab gave out. A pointer derived from `&Lane` would not be valid for the head of the
    /// chunk.
    pub(super) ptr: TaskPtr,
    pub(super) inbox: Inbox<Header>,
    pub(super) first: Cell<*mut Header>,
    pub(super) last: Cell<*mut Header>,
    /// References that this turn has added (spawned tasks) minus those that it has dropped (ended tasks).
    pub(super) unsettled: Cell<i64>,
    /// Identity of its color: its address, or that of the task it was made for.
    pub(crate) id: usize,
    pub(crate) key: Option<u64>,
    /// The task that was promoted to it, which keeps `id` from being used again.
    of: Option<Task>,
    pub(crate) main: Option<Arc<MainThread>>,
    pub(super) locals: Locals,
    /// Whether `len` is counted, for a policy.
    pub(super) is_counted: bool,
    /// Whether the lane counts its tasks or has a limit.
    pub(super) is_special: AtomicBool,
    /// Whether any of `len`, `waiting` and `limits` is in use.
    pub(super) is_watched: AtomicBool,
    /// The color's priority.
    pub(super) priority: AtomicU8,
    /// One more than the highest priority of an entry. 0: no entry was queued by priority.
    pub(super) queued_at: AtomicU8,
    /// Queued tasks by priority, once the lane is ranked. TURN-OWNS-LINE
    pub(super) waiting: PriorityCounts,
    /// Number of tasks in the queue and in the inbox.
    pub(super) len: AtomicU32,
    /// One more than the number of the worker that last had the turn, for a policy.
    pub(super) ran_on: AtomicU32,
    /// The number that the program sets for its policy.
    pub(crate) tag: AtomicU64,
    /// Set once the lane has had a limit.
    pub(super) limits: OnceLock<Box<LaneLimit>>,
}

impl Deref for Lane {
    type Target = LaneFields;

    fn deref(&self) -> &LaneFields {
        // SAFETY: no `&mut` to it exists, except where the lane is made or freed.
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
    lane: Some(&LaneAccess { facts: Lane::facts, note_ran: Lane::note_ran }),
    queued: None,
    withdraw: None,
    drops_output: false,
    is_extended: false,
};

static MAIN_LANE: VTable = VTable { enqueue: MainThread::enqueue, ..LANE };

/// Properties of a new lane.
pub(super) struct NewLane {
    pub(super) key: Option<u64>,
    pub(super) main: Option<Arc<MainThread>>,
    /// The running task that is promoted. The caller then has the new lane's turn.
    pub(super) of: Option<Task>,
}

impl Lane {
    /// Makes a lane with one reference, which is the caller's. `None`: the runtime has ended.
    pub(super) fn make(shared: &RuntimeShared, new: NewLane) -> Option<TaskPtr> {
        let slab = with_context(|context| context.slab_of(shared));
        let ptr = shared.take_cell(slab, CLASS, LAYOUT)?;
        let counts_tasks = Sched::of(shared).rules.counts_tasks;
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
            is_counted: counts_tasks,
            is_special: AtomicBool::new(counts_tasks),
            is_watched: AtomicBool::new(counts_tasks),
            priority: AtomicU8::new(Priority::Normal as u8),
            queued_at: AtomicU8::new(0),
            waiting: PriorityCounts::default(),
            len: AtomicU32::new(0),
            ran_on: AtomicU32::new(0),
            tag: AtomicU64::new(0),
            limits: OnceLock::new(),
        };
        let vtable = if body.main.is_some() { &MAIN_LANE } else { &LANE };
        // SAFETY: the memory belongs to the caller and has a lane's layout.
        unsafe { field::<UnsafeCell<LaneFields>>(ptr, offset_of!(Lane, body)).write(UnsafeCell::new(body)) };
        // SAFETY: a cell has a header at all times. ZEROED
        unsafe { ptr.as_ref() }.install(vtable, StateWord::new_counted());
        if shared.is_simulated {
            // SAFETY: the caller has the only reference.
            unsafe { Lane::of(ptr) }.number();
        }
        Some(ptr)
    }

    /// Gives the lane a number in a simulation.
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
        // SAFETY: a lane's runtime outlives it. LIVE-UNTIL-EMPTY
        unsafe { &*RuntimeShared::of(self.ptr()) }
    }

    pub(crate) fn ptr(&self) -> TaskPtr {
        self.ptr
    }

    pub(super) fn is_my_turn(&self, context: &ThreadContext) -> bool {
        std::ptr::eq(context.lane(), &raw const self.header)
    }

    /// Adds a reference for a task that is about to be queued.
    pub(super) fn add_task(&self, context: &ThreadContext) {
        if self.is_my_turn(context) {
            self.unsettled.set(self.unsettled.get() + 1);
        } else {
            self.header.state.add_ref();
        }
    }

    /// Drops the reference of a task that has ended.
    ///
    /// # Safety
    ///
    /// The task had a reference to this lane, and does not use it again.
    pub(super) unsafe fn drop_task(ptr: TaskPtr, context: &ThreadContext) {
        // SAFETY: the reference that is about to be dropped keeps it alive.
        let lane = unsafe { Lane::of(ptr) };
        if lane.is_my_turn(context) {
            lane.unsettled.set(lane.unsettled.get() - 1); // LANE-LIVES
        } else if lane.header.state.drop_ref() {
            // SAFETY: it was the last reference.
            unsafe { Lane::free(ptr) };
        }
    }

    /// Queues a task.
    ///
    /// # Safety
    ///
    /// The caller has the right to run the task and gives it away; the task is of this lane.
    #[inline(always)]
    pub(super) unsafe fn push(ptr: TaskPtr, task: TaskPtr, place: QueuePosition, priority: Option<Priority>) {
        // SAFETY: the task is not done, so its lane lives. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        if with_context(|context| lane.is_my_turn(context)) {
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
        // As soon as the task is in the inbox, it may run, end and take the lane with it.
        let enqueue = lane.header.vtable().enqueue;
        // SAFETY: a task that is owned exists, and its link belongs to its owner. LINK-OWNED
        match unsafe { lane.inbox.push(task) } {
            // SAFETY: `First` gives the caller an entry.
            Pushed::First { is_ranked: false } => unsafe { enqueue(ptr, place) },
            Pushed::First { is_ranked: true } => lane.enqueue_at(lane.priority()),
            Pushed::InLine | Pushed::Running => {}
        }
    }

    /// As `push`, for a lane that has a limit, counts its tasks, or has tasks with a priority.
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

    /// Passes an entry to the scheduler. This is `VTable::enqueue` of a lane, except of a main color's lane.
    ///
    /// # Safety
    ///
    /// The caller has an entry of the lane and gives it away.
    #[inline]
    pub(super) unsafe fn enqueue(ptr: TaskPtr, place: QueuePosition) {
        // SAFETY: a lane has the settled pointer, and its runtime outlives it. LIVE-UNTIL-EMPTY
        let sched = unsafe { Sched::from_settled(RuntimeShared::of(ptr)) };
        // SAFETY: handed on from the caller.
        sched.enqueue(unsafe { Runnable::new(ptr) }, place);
    }

    pub(super) fn count(&self, change: i32) {
        if self.is_counted {
            self.len.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Drops a reference.
    ///
    /// # Safety
    ///
    /// The reference is the caller's, which does not use the lane again.
    pub(super) unsafe fn drop_ref(ptr: TaskPtr) {
        // SAFETY: the reference keeps it alive.
        if unsafe { Lane::of(ptr) }.header.state.drop_ref() {
            // SAFETY: it was the last reference.
            unsafe { Lane::free(ptr) };
        }
    }

    /// # Safety
    ///
    /// The caller gave up the last reference.
    pub(super) unsafe fn free(ptr: TaskPtr) {
        // SAFETY: no other thread can reach the lane.
        let lane = unsafe { Lane::of(ptr) };
        if let Some(key) = lane.key {
            keyed::forget(lane.runtime_shared(), key, ptr);
        }
        // SAFETY: no other thread can reach the lane, and the body is not used again.
        unsafe { field::<UnsafeCell<LaneFields>>(ptr, offset_of!(Lane, body)).drop_in_place() };
        // SAFETY: as above. The state counts no references, so walkers ignore the cell. ZEROED
        unsafe { put_cell(ptr) };
    }
}
