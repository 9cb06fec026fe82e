//! The main color: a lane that only one thread runs, the one that called `run` or `block_on`.
//!
//! # Invariants
//!
//! * **HOME-THREAD**: until its thread leaves, the lane of a main color is in no queue. A push sets `ready` and wakes
//!   the thread, and only that thread takes its turn. So a future that is not `Send` is polled and dropped where it was
//!   made.
//! * **LEFT-TO-OTHERS**: the thread leaves once no task of the color has a future (LISTED) and nothing is in line, in a
//!   last turn of its own: it notes that it has left, and gives the turn back. A push after that sees the note (it
//!   acquires what the turn released), and hands the lane to the spawning thread or to the workers (AT-ONCE); what was
//!   pushed during the turn is handed to the workers. Only tasks that are `Send` are spawned from elsewhere, so any
//!   thread may drop their futures: it ends them, unpolled, one after the other, in the color's turn.
//! * **AT-ONCE**: a thread that spawns into such a color, is no worker, and is in no color itself (it runs no task, or
//!   a blocking call) takes the color's turn itself, if no other thread has it or is about to. So the task has ended
//!   when `spawn` returns. The turn is taken by its only entry (ONE-TURN), under no lock, for as many tasks as any
//!   turn; the rest goes to the workers. A drop closure runs in that turn, that is, in a color: so whatever it spawns
//!   is put in line there, or left to the workers, and such turns are never inside of each other.
//! * **LISTED**: a task of a main color is in the list of its lane from before its first step
//!   until its future is gone. So all can be found and ended before the thread goes on.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::in_lane::{InLane, LaneExtra};
use super::lane::{Lane, NewLane};
use crate::context::{SetAside, ThreadContext, with_context};
use crate::prim::{AtomicBool, Ordering, Unpark};
use crate::sched::MainTurn;
use crate::task::cell::Front;
use crate::task::header::{Header, TaskKindTag, TaskPtr};
use crate::task::state::ABORTED;
use crate::task::{QueuePosition, RuntimeShared, Task};

/// The thread of a main color, as the lane sees it.
pub(crate) struct MainThread {
    /// The lane's turn waits to be taken.
    ready: AtomicBool,
    sleeper: Arc<dyn Unpark>,
    /// Everything that comes in now is dropped. Written by the thread itself, and read in turns.
    closing: AtomicBool,
    /// Written by the thread itself, in its last turn. LEFT-TO-OTHERS
    has_left: AtomicBool,
}

impl MainThread {
    /// Hands the lane's turn to its thread. A lane's `enqueue`.
    pub(super) unsafe fn enqueue(lane: TaskPtr, place: QueuePosition) {
        // SAFETY: the caller has the only entry, so the lane lives. LANE-LIVES
        let own = unsafe { Lane::of(lane) };
        let main = own.main.as_ref().expect("a main color has a thread");
        own.inbox.see_last_turn();
        if main.has_left.load(Ordering::Relaxed) {
            // SAFETY: handed on from the caller. LEFT-TO-OTHERS
            return unsafe { MainThread::enqueue_late(lane, place) };
        }
        // Once the thread has the turn, the lane may go.
        let main = main.clone();
        main.ready.store(true, Ordering::Release); // HANDOVER
        // On its own thread nobody sleeps, and it looks before it does.
        if with_context(|here| here.main_lane() != lane.as_ptr().cast_const()) {
            main.sleeper.unpark();
        }
    }

    /// As `enqueue`, once the thread has left.
    ///
    /// # Safety
    ///
    /// The caller has the only entry of the lane, and gives it away.
    #[cold]
    unsafe fn enqueue_late(lane: TaskPtr, place: QueuePosition) {
        let is_in_no_color =
            |here: &ThreadContext| !here.has_worker() && here.color() == 0 && !here.has_lane();
        let entry = match place == QueuePosition::New && with_context(is_in_no_color) {
            // SAFETY: handed on from the caller. AT-ONCE
            true => unsafe { run_aside(lane) },
            false => Some(lane),
        };
        if let Some(lane) = entry {
            // SAFETY: handed on from the caller, or given back by the turn.
            unsafe { Lane::enqueue(lane, place) };
        }
    }

    /// Called for each task that is about to be stepped. `true`: it must end.
    pub(super) fn admit(&self, lane: &Lane, task: TaskPtr) -> bool {
        lane.locals.add(task);
        self.closing.load(Ordering::Relaxed)
    }
}

/// One turn of a lane on a thread of the program's own, as if the thread were in the lane's runtime. AT-ONCE
///
/// # Safety
///
/// As for [`Lane::run`].
unsafe fn run_aside(lane: TaskPtr) -> Option<TaskPtr> {
    let _aside = SetAside::new();
    with_context(|here| {
        here.enter_runtime(RuntimeShared::of(lane));
        // SAFETY: handed on from the caller.
        unsafe { Lane::run(lane, here) }
    })
}

/// The tasks of a main color whose futures exist. TURN-OWNS-LINE
#[derive(Default)]
pub(crate) struct Locals {
    first: Cell<*mut MainFront>,
}

/// What a task of a main color has more: its place in the list of the color's tasks.
pub(crate) struct MainTask {
    listed: Cell<bool>,
    next: Cell<*mut MainFront>,
    /// The link that points at this task: the list's own, or another task's `next`.
    back: Cell<*const Cell<*mut MainFront>>,
}

type MainFront = Front<InLane<MainTask>>;

impl Default for MainTask {
    #[inline]
    fn default() -> MainTask {
        MainTask { listed: Cell::new(false), next: Cell::new(null_mut()), back: Cell::new(std::ptr::null()) }
    }
}

impl LaneExtra for MainTask {
    const KIND: TaskKindTag = TaskKindTag::Local;

    fn leave(&self) {
        Locals::remove(self);
    }
}

impl Locals {
    /// Lists a task, if it is not. LISTED
    fn add(&self, task: TaskPtr) {
        // SAFETY: tasks in a main color's line are of kind `MainTask`, and exist.
        let kind = &unsafe { MainFront::of(task) }.kind.extra;
        if kind.listed.replace(true) {
            return;
        }
        let after = self.first.replace(task.cast().as_ptr());
        kind.next.set(after);
        kind.back.set(&raw const self.first);
        if let Some(after) = NonNull::new(after) {
            // SAFETY: what is in the list exists. LISTED
            unsafe { after.as_ref() }.kind.extra.back.set(&raw const kind.next);
        }
    }

    fn remove(local: &MainTask) {
        if !local.listed.replace(false) {
            return;
        }
        let after = local.next.get();
        // SAFETY: it points into the list or into a task that is listed.
        unsafe { &*local.back.get() }.set(after);
        if let Some(after) = NonNull::new(after) {
            // SAFETY: what is in the list exists. LISTED
            unsafe { after.as_ref() }.kind.extra.back.set(local.back.get());
        }
    }

    fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut next = self.first.get();
        while let Some(front) = NonNull::new(next) {
            // SAFETY: what is in the list exists. LISTED
            next = unsafe { front.as_ref() }.kind.extra.next.get();
            let task: TaskPtr = front.cast();
            // SAFETY: as above.
            unsafe { task.as_ref() }.state.add_ref();
            // SAFETY: the reference was just counted.
            tasks.push(unsafe { Task::from_counted(task) });
        }
        tasks
    }
}

/// The right to run a main color: for the thread that called `run` or `block_on`.
pub(crate) struct MainLane {
    lane: super::Color,
    thread: Arc<MainThread>,
    outer: *const crate::task::header::Header,
}

impl MainLane {
    /// A main color for this thread, the innermost from now on; `None` if the runtime is gone.
    pub(crate) fn open(home: &RuntimeShared, sleeper: Arc<dyn Unpark>) -> Option<MainLane> {
        let (ready, closing, has_left) = Default::default();
        let thread = Arc::new(MainThread { ready, sleeper, closing, has_left });
        let new = NewLane { key: None, main: Some(thread.clone()), of: None };
        let lane = super::Color::from_counted(Lane::make(home, new)?);
        let outer = with_context(|here| here.replace_main_lane(lane.lane().ptr().as_ptr()));
        Some(MainLane { lane, thread, outer })
    }

    pub(crate) fn color(&self) -> &super::Color {
        &self.lane
    }

    /// Whether there is a turn to be taken.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.thread.ready.load(Ordering::Relaxed)
    }

    /// Takes a turn, if there is one to be taken.
    pub(crate) fn take_turn(&self) -> bool {
        if !self.is_ready() || !self.thread.ready.swap(false, Ordering::Acquire) {
            return false;
        }
        let lane = self.lane.lane().ptr();
        // SAFETY: `ready` hands the turn over, and we took it. HANDOVER, HOME-THREAD
        let again = with_context(|here| unsafe { Lane::run(lane, here) });
        if again.is_some() {
            // SAFETY: the turn is still ours.
            unsafe { MainThread::enqueue(lane, QueuePosition::Back) };
        }
        true
    }

    /// Cancels all tasks of the color.
    pub(crate) fn cancel_all(&self) {
        self.tasks().iter().for_each(Task::cancel);
    }

    /// Whether no task of the color has a future any more, as far as this thread has seen.
    pub(crate) fn is_empty(&self) -> bool {
        self.lane.lane().locals.first.get().is_null()
    }

    pub(crate) fn tasks(&self) -> Vec<Task> {
        self.lane.lane().locals.tasks()
    }

    /// Ends all tasks of the color, here, and leaves those that come later to others, which end them.
    pub(crate) fn close(&self) {
        self.thread.closing.store(true, Ordering::Relaxed);
        for task in self.tasks() {
            task.wake_with(ABORTED);
        }
        loop {
            while self.take_turn() {}
            // A task that somebody is waking just now comes in a moment later.
            if self.is_empty() && self.leave() {
                return;
            }
            crate::world::sleep(std::time::Duration::from_micros(50));
        }
    }

    /// Leaves the color to others, unless something is in line; no task of it has a future. LEFT-TO-OTHERS
    fn leave(&self) -> bool {
        let lane = self.lane.lane();
        if !lane.inbox.claim_idle() {
            return false;
        }
        self.thread.has_left.store(true, Ordering::Relaxed); // released with the turn
        if !lane.inbox.release() {
            lane.inbox.put_back();
            // SAFETY: the lane is in line, and the entry is ours.
            unsafe { Lane::enqueue(lane.ptr(), QueuePosition::Back) };
        }
        true
    }
}

impl MainTurn for MainLane {
    #[inline]
    fn is_ready(&self) -> bool {
        MainLane::is_ready(self)
    }

    fn take_turn(&self) {
        MainLane::take_turn(self);
    }
}

impl super::Color {
    /// The main color of the innermost `run` or `block_on` on this thread, whatever color is running on it.
    #[inline]
    pub(crate) fn main_of_thread() -> Option<std::mem::ManuallyDrop<super::Color>> {
        let main = with_context(|here| here.main_lane::<Header>());
        // Not counted, and not dropped: this thread keeps it open while it is in that `run` or `block_on`.
        TaskPtr::new(main.cast_mut())
            .map(|lane| std::mem::ManuallyDrop::new(super::Color::from_counted(lane)))
    }
}

impl Drop for MainLane {
    fn drop(&mut self) {
        self.close();
        with_context(|here| here.replace_main_lane(self.outer));
    }
}
