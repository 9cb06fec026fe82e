//! The main color: a lane that only one thread runs, the thread that called `run` or `block_on`.
//!
//! # Invariants
//!
//! * **HOME-THREAD**: until its thread leaves, the lane of a main color is in no queue. A push sets `ready` and wakes
//!   the thread, and only that thread takes the turn. So a future that is not `Send` is polled and dropped on the
//!   thread that made it.
//! * **LEFT-TO-OTHERS**: the thread leaves once no task of the color has a future (LISTED) and none is queued. In a
//!   last turn it sets `has_left` and gives the turn back. A push after that sees `has_left`, because the push
//!   acquires what the turn released, and hands the lane to the spawning thread or to the workers (AT-ONCE). Tasks
//!   that were pushed during the last turn are handed to the workers. Only tasks that are `Send` are spawned from
//!   other threads, so any thread may drop their futures. It ends them unpolled, one after the other, in the color's
//!   turn.
//! * **AT-ONCE**: a thread that spawns into such a color, is no worker, and runs no color itself (it runs no task, or
//!   a blocking call) takes the color's turn itself, unless another thread has it or is about to. So the task has
//!   ended when `spawn` returns. The turn is taken by its only entry (ONE-TURN), without a lock, for as many tasks as
//!   any turn. The rest goes to the workers. A drop closure runs in that turn, and so in a color: tasks that it
//!   spawns are queued there or left to the workers, so such turns never nest.
//! * **LISTED**: a task of a main color is in the list of its lane from before its first step until its future has
//!   been dropped. So all tasks can be found and ended before the thread goes on.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::in_lane::{InLane, LaneExtra};
use super::lane::{Lane, NewLane};
use crate::context::{SetAside, ThreadContext, with_context};
use crate::prim::{AtomicBool, Ordering, Unpark};
use crate::sched::MainTurn;
use crate::task::cell::CellPrefix;
use crate::task::header::{Header, TaskPtr};
use crate::task::state::ABORTED;
use crate::task::{QueuePosition, RuntimeShared, Task};

/// The thread of a main color, as the lane sees it.
pub(crate) struct MainThread {
    /// The lane's turn can be taken.
    ready: AtomicBool,
    sleeper: Arc<dyn Unpark>,
    /// All tasks that arrive now are ended. Written by the thread itself, and read in turns.
    closing: AtomicBool,
    /// Written by the thread itself, in its last turn. LEFT-TO-OTHERS
    has_left: AtomicBool,
}

impl MainThread {
    /// Hands the lane's turn to its thread. This is `VTable::enqueue` of a main color's lane.
    pub(super) unsafe fn enqueue(lane: TaskPtr, place: QueuePosition) {
        // SAFETY: the caller has the only entry, so the lane lives. LANE-LIVES
        let own = unsafe { Lane::of(lane) };
        let main = own.main.as_ref().expect("a main color has a thread");
        own.inbox.see_last_turn();
        if main.has_left.load(Ordering::Relaxed) {
            // SAFETY: handed on from the caller. LEFT-TO-OTHERS
            return unsafe { MainThread::enqueue_late(lane, place) };
        }
        // Once the thread has the turn, the lane may be freed.
        let main = main.clone();
        main.ready.store(true, Ordering::Release); // HANDOVER
        // The thread itself is awake, and looks at `ready` before it sleeps.
        if with_context(|context| context.main_lane() != lane.as_ptr().cast_const()) {
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
            |context: &ThreadContext| !context.has_worker() && context.color() == 0 && !context.has_lane();
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

    /// Called for each task that is about to be stepped. `true`: the task must end.
    pub(super) fn admit(&self, lane: &Lane, task: TaskPtr) -> bool {
        lane.locals.add(task);
        self.closing.load(Ordering::Relaxed)
    }
}

/// One turn of a lane on a thread that is not a worker, with the context of the lane's runtime. AT-ONCE
///
/// # Safety
///
/// As for [`Lane::run`].
unsafe fn run_aside(lane: TaskPtr) -> Option<TaskPtr> {
    let _aside = SetAside::new();
    with_context(|context| {
        context.enter_runtime(RuntimeShared::of(lane));
        // SAFETY: handed on from the caller.
        unsafe { Lane::run(lane, context) }
    })
}

/// The tasks of a main color whose futures exist. TURN-OWNS-LINE
#[derive(Default)]
pub(crate) struct Locals {
    first: Cell<*mut MainPrefix>,
}

/// Additional fields of a task of a main color: its position in the list of the color's tasks.
pub(crate) struct MainTask {
    listed: Cell<bool>,
    next: Cell<*mut MainPrefix>,
    /// The pointer to this task: the list's first, or another task's `next`.
    back: Cell<*const Cell<*mut MainPrefix>>,
}

type MainPrefix = CellPrefix<InLane<MainTask>>;

impl Default for MainTask {
    #[inline]
    fn default() -> MainTask {
        MainTask { listed: Cell::new(false), next: Cell::new(null_mut()), back: Cell::new(std::ptr::null()) }
    }
}

impl LaneExtra for MainTask {
    fn leave(&self) {
        Locals::remove(self);
    }
}

impl Locals {
    /// Adds a task to the list, if it is not in it. LISTED
    fn add(&self, task: TaskPtr) {
        // SAFETY: tasks in the queue of a main color are of kind `MainTask`, and exist.
        let kind = &unsafe { MainPrefix::of(task) }.kind.extra;
        if kind.listed.replace(true) {
            return;
        }
        let after = self.first.replace(task.cast().as_ptr());
        kind.next.set(after);
        kind.back.set(&raw const self.first);
        if let Some(after) = NonNull::new(after) {
            // SAFETY: tasks in the list exist. LISTED
            unsafe { after.as_ref() }.kind.extra.back.set(&raw const kind.next);
        }
    }

    fn remove(local: &MainTask) {
        if !local.listed.replace(false) {
            return;
        }
        let after = local.next.get();
        // SAFETY: it points into the list or into a task in the list. LISTED
        unsafe { &*local.back.get() }.set(after);
        if let Some(after) = NonNull::new(after) {
            // SAFETY: tasks in the list exist. LISTED
            unsafe { after.as_ref() }.kind.extra.back.set(local.back.get());
        }
    }

    fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut next = self.first.get();
        while let Some(front) = NonNull::new(next) {
            // SAFETY: tasks in the list exist. LISTED
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
    /// Opens a main color for this thread, the innermost from now on. `None`: the runtime has ended.
    pub(crate) fn open(shared: &RuntimeShared, sleeper: Arc<dyn Unpark>) -> Option<MainLane> {
        let (ready, closing, has_left) = Default::default();
        let thread = Arc::new(MainThread { ready, sleeper, closing, has_left });
        let new = NewLane { key: None, main: Some(thread.clone()), of: None };
        let lane = super::Color::from_counted(Lane::make(shared, new)?);
        let outer = with_context(|context| context.replace_main_lane(lane.lane().ptr().as_ptr()));
        Some(MainLane { lane, thread, outer })
    }

    pub(crate) fn color(&self) -> &super::Color {
        &self.lane
    }

    /// Whether a turn can be taken.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.thread.ready.load(Ordering::Relaxed)
    }

    /// Takes a turn, if one can be taken.
    pub(crate) fn take_turn(&self) -> bool {
        if !self.is_ready() || !self.thread.ready.swap(false, Ordering::Acquire) {
            return false;
        }
        let lane = self.lane.lane().ptr();
        // SAFETY: `ready` hands the turn over, and the swap took it. HANDOVER, HOME-THREAD
        let again = with_context(|context| unsafe { Lane::run(lane, context) });
        if again.is_some() {
            // SAFETY: the turn still belongs to this thread.
            unsafe { MainThread::enqueue(lane, QueuePosition::Back) };
        }
        true
    }

    /// Cancels all tasks of the color.
    pub(crate) fn cancel_all(&self) {
        self.tasks().iter().for_each(Task::cancel);
    }

    /// Whether no task of the color has a future, as far as this thread has seen.
    pub(crate) fn is_empty(&self) -> bool {
        self.lane.lane().locals.first.get().is_null()
    }

    pub(crate) fn tasks(&self) -> Vec<Task> {
        self.lane.lane().locals.tasks()
    }

    /// Ends all tasks of the color on this thread. Tasks that arrive later are ended by other threads.
    pub(crate) fn close(&self) {
        self.thread.closing.store(true, Ordering::Relaxed);
        for task in self.tasks() {
            task.wake_with(ABORTED);
        }
        loop {
            while self.take_turn() {}
            // A task that another thread is waking just now arrives a moment later.
            if self.is_empty() && self.leave() {
                return;
            }
            crate::world::sleep(std::time::Duration::from_micros(50));
        }
    }

    /// Leaves the color to other threads, unless a task is queued. No task of it has a future. LEFT-TO-OTHERS
    fn leave(&self) -> bool {
        let lane = self.lane.lane();
        if !lane.inbox.claim_idle() {
            return false;
        }
        self.thread.has_left.store(true, Ordering::Relaxed); // released with the turn
        if !lane.inbox.release() {
            lane.inbox.put_back();
            // SAFETY: the lane is in its queued state, and the entry belongs to this thread.
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
    /// The main color of the innermost `run` or `block_on` on this thread, whatever color is running.
    #[inline]
    pub(crate) fn main_of_thread() -> Option<std::mem::ManuallyDrop<super::Color>> {
        let main = with_context(|context| context.main_lane::<Header>());
        // Not counted and not dropped: this thread keeps it open while it is in that `run` or `block_on`.
        TaskPtr::new(main.cast_mut())
            .map(|lane| std::mem::ManuallyDrop::new(super::Color::from_counted(lane)))
    }
}

impl Drop for MainLane {
    fn drop(&mut self) {
        self.close();
        with_context(|context| context.replace_main_lane(self.outer));
    }
}
