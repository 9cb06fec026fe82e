//! A lane: the line of tasks that share a color, and the turn at it.
//!
//! Pushing onto an idle lane makes the *lane* runnable. The worker that takes it has its *turn*:
//! it steps the tasks in line, up to a budget, and puts the lane back if more wait. So order
//! within a color is the order of the line, and nobody ever looks for a task that may run.
//!
//! # Invariants
//!
//! * **ONE-TURN**: see `inbox`.
//! * **TURN-OWNS-LINE**: `first`, `last`, `unsettled` and `locals` are touched only by the thread
//!   that has the turn, which has the lane in its [`Here`].
//! * **PULL-FIRST**: what the turn itself puts in line goes behind what is in the inbox.
//! * **LANE-LIVES**: every task that is not done holds a reference to its lane, and so does every
//!   [`Color`](super::Color). References that a turn adds or drops are settled at its end, so a
//!   lane outlives its turn.

use std::alloc::Layout;
use std::cell::{Cell, UnsafeCell};
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use super::inbox::{Inbox, List, Node, Pushed};
use super::keyed;
use super::main::{Locals, MainThread};
use crate::task::cell::TaskKind;
use crate::task::header::{Header, Kind, Ptr, VTable, field};
use crate::task::here::{Here, here};
use crate::task::home::Phase;
use crate::task::run::{After, Own, step};
use crate::task::slab::{class_of, put_cell};
use crate::task::state::{ABORTED, State};
use crate::task::{Home, Place, Task};
use crate::world;

/// How many tasks a turn steps at the most, before others of the worker get theirs.
const TURN: usize = 64;

/// See the head of this file. `repr(C)`, so that a pointer to its header is a pointer to it.
#[repr(C)]
pub(crate) struct Lane {
    pub(crate) header: Header,
    /// In a cell, so that a lane may be freed while a `&Lane` is still in scope (and not used any
    /// more) in the function that frees it.
    body: UnsafeCell<Body>,
}

/// A lane but for its header, which walkers over the slab may look at while a lane is made.
pub(crate) struct Body {
    /// The pointer that the slab gave out: one to the lane would not reach the chunk's head.
    ptr: Ptr,
    inbox: Inbox<Header>,
    first: Cell<*mut Header>,
    last: Cell<*mut Header>,
    /// References that this turn has added (tasks spawned) or dropped (tasks that ended).
    unsettled: Cell<i64>,
    /// What tells its color from others: its address, or that of the task it was made for.
    pub(crate) id: usize,
    pub(crate) key: Option<u64>,
    /// The task that was promoted to it, which keeps `id` from being used again.
    of: Option<Task>,
    pub(crate) main: Option<Arc<MainThread>>,
    pub(super) locals: Locals,
}

impl Deref for Lane {
    type Target = Body;

    fn deref(&self) -> &Body {
        // SAFETY: nobody has it mutable, but for whoever makes or frees the lane.
        unsafe { &*self.body.get() }
    }
}

impl Node for Header {
    fn link(&self) -> *mut Header {
        Header::link(self)
    }

    fn set_link(&self, next: *mut Header) {
        Header::set_link(self, next);
    }
}

const LAYOUT: Layout = Layout::new::<Lane>();
const CLASS: u8 = class_of(LAYOUT);

static LANE: VTable = VTable {
    run: Lane::run,
    enqueue: Own::enqueue,
    step: |_, _| unreachable!("a lane is not stepped"),
    end: |_, _| unreachable!("a lane has no future"),
    left: None,
    take: |_, _| unreachable!("a lane has no output"),
    drop_output: |_| {},
    free: Lane::free,
    color: |lane| lane.addr().get(),
    type_name: || "lane",
    join_offset: 0,
    stage_offset: 0,
    kind: Kind::Lane,
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
    pub(super) fn make(home: &Home, new: NewLane) -> Option<Ptr> {
        let slab = here(|here| here.slab_of(home));
        let ptr = home.take_cell(slab, CLASS, LAYOUT)?;
        let body = Body {
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
        };
        let vtable = if body.main.is_some() { &MAIN_LANE } else { &LANE };
        // SAFETY: the memory is ours and of a lane's layout.
        unsafe { field::<UnsafeCell<Body>>(ptr, offset_of!(Lane, body)).write(UnsafeCell::new(body)) };
        // SAFETY: a cell has a header at all times. ZEROED
        unsafe { ptr.as_ref() }.install(vtable, State::new_counted());
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
    pub(crate) unsafe fn of<'a>(ptr: Ptr) -> &'a Lane {
        // SAFETY: handed on from the caller.
        unsafe { ptr.cast::<Lane>().as_ref() }
    }

    pub(crate) fn home(&self) -> &Home {
        // SAFETY: the runtime's core outlives its lanes. LIVE-UNTIL-EMPTY
        unsafe { &*Home::of(self.ptr()) }
    }

    pub(crate) fn ptr(&self) -> Ptr {
        self.ptr
    }

    fn is_my_turn(&self, here: &Here) -> bool {
        std::ptr::eq(here.lane.get(), &raw const self.header)
    }

    /// Adds a reference for a task that is about to be put in line.
    pub(super) fn add_task(&self, here: &Here) {
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
    pub(super) unsafe fn drop_task(ptr: Ptr, here: &Here) {
        // SAFETY: the reference that we are about to drop keeps it alive.
        let lane = unsafe { Lane::of(ptr) };
        if lane.is_my_turn(here) {
            lane.unsettled.set(lane.unsettled.get() - 1); // LANE-LIVES
        } else if lane.header.state.drop_ref() {
            // SAFETY: it was the last reference.
            unsafe { Lane::free(ptr) };
        }
    }

    /// Puts a task in line. `false`: the lane is closed, and the task still the caller's.
    ///
    /// # Safety
    ///
    /// The caller has the right to run the task and gives it away; the task is of this lane.
    pub(super) unsafe fn push(ptr: Ptr, task: Ptr, place: Place) -> bool {
        // SAFETY: the task is not done, so its lane lives. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        here(|here| {
            if lane.is_my_turn(here) {
                lane.append(task);
                return true;
            }
            // The task may run, end and take the lane with it as soon as it is in the inbox.
            let enqueue = lane.header.vtable().enqueue;
            // SAFETY: a task that is owned exists, and its link is its owner's.
            match unsafe { lane.inbox.push(task) } {
                // SAFETY: the turn is ours. ONE-TURN
                Pushed::First => unsafe { enqueue(ptr, place) },
                Pushed::Behind => {}
                Pushed::Closed => return false,
            }
            true
        })
    }

    /// For the one who has the turn.
    fn append(&self, task: Ptr) {
        if !self.inbox.is_empty() {
            self.pull(); // PULL-FIRST
        }
        // SAFETY: a task that is owned exists.
        unsafe { task.as_ref() }.set_link(null_mut());
        self.extend(List { first: task, last: task });
    }

    fn pull(&self) {
        if let Some(list) = self.inbox.pull() {
            self.extend(list);
        }
    }

    fn extend(&self, list: List<Header>) {
        match Ptr::new(self.last.replace(list.last.as_ptr())) {
            None => self.first.set(list.first.as_ptr()),
            // SAFETY: what is in line is owned by the lane, so it exists.
            Some(last) => unsafe { last.as_ref() }.set_link(list.first.as_ptr()),
        }
    }

    /// The first in line. For the one who has the turn.
    fn next(&self) -> Option<Ptr> {
        if self.first.get().is_null() && !self.inbox.is_empty() {
            self.pull();
        }
        let task = Ptr::new(self.first.get())?;
        // SAFETY: what is in line is owned by the lane, so it exists.
        let next = unsafe { task.as_ref() }.link();
        self.first.set(next);
        if next.is_null() {
            self.last.set(null_mut());
        }
        Some(task)
    }

    /// One turn. If it comes back, more is in line, and the turn is the caller's again.
    ///
    /// # Safety
    ///
    /// The caller has the turn and gives it away.
    pub(super) unsafe fn run(ptr: Ptr, here: &Here) -> Option<Ptr> {
        // SAFETY: the lane lives through its turn. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        let stopped = lane.home().phase() == Phase::Stopped;
        here.lane.set(ptr.as_ptr());
        here.color.set(lane.id);
        let mut budget = TURN;
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
            // SAFETY: the line's right to run the task is ours. TURN-OWNS-LINE
            if unsafe { step(task, here) } == After::Again {
                lane.append(task);
            }
            budget -= 1;
        }
        here.lane.set(null());
        here.color.set(0);
        Some(ptr)
    }

    /// Ends the turn if nothing has come in, and settles the references.
    ///
    /// # Safety
    ///
    /// The caller has the turn, and on `true` has given it away.
    unsafe fn leave(ptr: Ptr, here: &Here) -> bool {
        // SAFETY: the lane lives through its turn. LANE-LIVES
        let lane = unsafe { Lane::of(ptr) };
        let unsettled = lane.unsettled.replace(0);
        if unsettled > 0 {
            lane.header.state.add_refs(unsettled.unsigned_abs());
        }
        let owed = unsettled.min(0);
        if !lane.inbox.release() {
            lane.unsettled.set(owed);
            return false;
        }
        here.lane.set(null());
        here.color.set(0);
        // From here on the lane is there only if references are owed. LANE-LIVES
        if owed < 0 && lane.header.state.drop_refs(owed.unsigned_abs()) {
            // SAFETY: they were the last.
            unsafe { Lane::free(ptr) };
        }
        true
    }

    /// Closes the lane, if nothing is in line and nobody has its turn.
    pub(super) fn close_if_idle(&self) -> bool {
        self.inbox.close()
    }

    /// # Safety
    ///
    /// The caller gave up the last reference.
    pub(super) unsafe fn free(ptr: Ptr) {
        // SAFETY: nobody else can reach the lane.
        let lane = unsafe { Lane::of(ptr) };
        if let Some(key) = lane.key {
            keyed::forget(lane.home(), key, ptr);
        }
        // SAFETY: nobody else can reach the lane, and the body is not used again.
        unsafe { field::<UnsafeCell<Body>>(ptr, offset_of!(Lane, body)).drop_in_place() };
        // SAFETY: as above; the state counts no references, so walkers pass it by.
        unsafe { put_cell(ptr) };
    }
}
