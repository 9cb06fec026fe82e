//! Tasks in a color that has a limit: before they begin they may be refused or held back.
//!
//! An [`Admission`] decides, of which `limit/` has the only implementation. This file decides when it is asked, and
//! acts on its answer. A refused task goes ahead of the queued tasks, and is dropped in its color's turn as all tasks
//! are.
//!
//! # Invariants
//!
//! * **ASKED-ONCE-BEGUN**: an admission learns of the arrival of a task. Before the first poll it is asked until it
//!   lets the task begin or refuses it. It learns when the future has been dropped: each task leaves once, with the
//!   stage that it has reached.
//! * **READY-SINCE**: `ready` is the time at which a lane was last queued, and 0 while it is idle or no thread has
//!   taken the time. It is a measurement: a thread that reads it beside a change gets the old or the new value.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::task::Waker;

use super::in_lane::{InLane, LaneExtra, priority_of};
use super::lane::Lane;
use crate::context::with_context;
use crate::prim::{AtomicU64, Mutex, Ordering, lock};
use crate::task::cell::CellPrefix;
use crate::task::header::{Header, QueuedAccess, TaskPtr};
use crate::task::inbox::NodeList;
use crate::task::poll::Passage;
use crate::task::runtime_shared::RuntimePhase;
use crate::task::waker::borrowed_waker;
use crate::task::{Priority, RuntimeShared};

/// Decides which tasks of a color may begin.
pub(crate) trait Admission: Send + Sync {
    /// The clock, in nanoseconds.
    fn now(&self) -> u64;
    /// A task is about to be queued for work that has waited since `since`. `false`: it is refused.
    fn arrive(&self, since: u64) -> bool;
    /// A task is about to begin. A task that is held back is woken to ask again. `hold_id`, at first 0, identifies it
    /// to the admission.
    fn begin(&self, since: u64, hold_id: &Cell<u64>, waker: &Waker) -> Passage;
    /// The future of a task has been dropped.
    fn leave(&self, stage: AdmissionStage, hold_id: u64);
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AdmissionStage {
    InLine,
    Refused,
    Begun,
}

/// Additional fields of a lane with a limit.
pub(crate) struct LaneLimit {
    admission: Mutex<Arc<dyn Admission>>,
    /// READY-SINCE
    ready: AtomicU64,
    /// `ready` of the turn that is running. TURN-OWNS-LINE
    since: Cell<u64>,
    /// The last of the tasks at the head of the queue that were refused on arrival. TURN-OWNS-LINE
    last_refused: Cell<*mut Header>,
}

impl LaneLimit {
    fn new(admission: Arc<dyn Admission>) -> LaneLimit {
        LaneLimit {
            since: Cell::new(admission.now()),
            admission: Mutex::new(admission),
            ready: AtomicU64::new(0),
            last_refused: Cell::new(null_mut()),
        }
    }

    fn admission(&self) -> Arc<dyn Admission> {
        lock(&self.admission).clone()
    }

    fn now(&self) -> u64 {
        lock(&self.admission).now()
    }
}

impl Lane {
    /// Gives the lane a limit, for tasks that are spawned from now on. A main color has none.
    pub(crate) fn set_limit(&self, admission: Arc<dyn Admission>) {
        if self.main.is_some() {
            return;
        }
        let limits = self.limits.get_or_init(|| Box::new(LaneLimit::new(admission.clone())));
        *lock(&limits.admission) = admission;
        self.is_watched.store(true, Ordering::Relaxed);
        self.is_special.store(true, Ordering::Release);
    }

    /// A task is about to be queued by a thread that does not have the turn.
    pub(super) fn note_ready(&self) {
        if let Some(limits) = self.limits.get()
            && self.inbox.is_idle()
        {
            limits.ready.store(limits.now(), Ordering::Relaxed); // READY-SINCE
        }
    }

    /// The turn begins: notes since when it was waited for.
    pub(super) fn note_turn(&self) {
        if let Some(limits) = self.limits.get() {
            let ready = limits.ready.swap(0, Ordering::Relaxed);
            limits.since.set(if ready == 0 { limits.now() } else { ready });
        }
    }

    /// The turn ends and leaves tasks queued.
    pub(super) fn note_put_back(&self) {
        if let Some(limits) = self.limits.get() {
            limits.ready.store(limits.now(), Ordering::Relaxed);
        }
    }

    /// The turn ends and leaves the queue empty.
    pub(super) fn note_left(&self) {
        if let Some(limits) = self.limits.get() {
            limits.ready.store(0, Ordering::Relaxed);
        }
    }

    /// Puts the refused tasks of `list` ahead of the queued tasks, and returns the rest. For the holder of the turn.
    pub(super) fn sift(&self, list: NodeList<Header>) -> Option<NodeList<Header>> {
        let Some(limits) = self.limits.get() else { return Some(list) };
        let (mut rest, mut next) = (None::<NodeList<Header>>, Some(list.first));
        while let Some(task) = next {
            // SAFETY: the lane owns the tasks in its queue, so they exist.
            let header = unsafe { task.as_ref() };
            next = TaskPtr::new(header.next_link());
            header.set_link(null_mut());
            // SAFETY: as above.
            if unsafe { is_refused(task) } {
                self.put_ahead(task, &limits.last_refused);
                continue;
            }
            rest = Some(match rest {
                None => NodeList { first: task, last: task },
                Some(NodeList { first, last }) => {
                    // SAFETY: as above.
                    unsafe { last.as_ref() }.set_link(task.as_ptr());
                    NodeList { first, last: task }
                }
            });
        }
        rest
    }

    /// Puts a task at the head of the queue, behind those that were put there before.
    fn put_ahead(&self, task: TaskPtr, last_ahead: &Cell<*mut Header>) {
        // SAFETY: the lane owns the tasks in its queue, so they exist.
        let header = unsafe { task.as_ref() };
        let before = match TaskPtr::new(last_ahead.replace(task.as_ptr())) {
            None => self.first.replace(task.as_ptr()),
            Some(last) => {
                // SAFETY: as above.
                let last = unsafe { last.as_ref() };
                let before = last.next_link();
                last.set_link(task.as_ptr());
                before
            }
        };
        header.set_link(before);
        if before.is_null() {
            self.last.set(task.as_ptr());
        }
    }

    /// The first task was taken from the queue.
    pub(super) fn note_taken(&self, task: TaskPtr) {
        if let Some(limits) = self.limits.get()
            && limits.last_refused.get() == task.as_ptr()
        {
            limits.last_refused.set(null_mut());
        }
    }
}

/// Since when the running task has waited, in nanoseconds. `None`: no thread has taken the time.
pub(crate) fn waited_since() -> Option<u64> {
    with_context(|context| {
        if context.ready_since() > 0 {
            return Some(context.ready_since());
        }
        let lane = TaskPtr::new(context.lane::<Header>().cast_mut())?;
        // SAFETY: this thread has the lane's turn. LANE-LIVES
        Some(unsafe { Lane::of(lane) }.limits.get()?.since.get())
    })
}

/// Additional fields of a task in a lane with a limit.
pub(crate) struct Limited {
    priority: Option<Priority>,
    since: u64,
    /// Belongs to the maker, then to the owner. ONE-OWNER
    stage: Cell<AdmissionStage>,
    hold_id: Cell<u64>,
    /// Present until the task has left.
    admission: Cell<Option<Arc<dyn Admission>>>,
}

impl Limited {
    /// Announces the arrival of a task of `lane`, if the lane has a limit.
    #[inline]
    pub(crate) fn arrive(lane: &Lane, priority: Option<Priority>) -> Option<Limited> {
        if !lane.is_special.load(Ordering::Acquire) {
            return None;
        }
        lane.limits.get().map(|limits| Limited::new(lane, limits, priority))
    }

    fn new(lane: &Lane, limits: &LaneLimit, priority: Option<Priority>) -> Limited {
        let admission = limits.admission();
        // A task that a turn spawns into its own color counts as waiting since that turn's work was queued.
        let is_my_turn = with_context(|context| lane.is_my_turn(context));
        let since = if is_my_turn { limits.since.get() } else { admission.now() };
        let stage = if admission.arrive(since) { AdmissionStage::InLine } else { AdmissionStage::Refused };
        let (stage, hold_id, admission) = (Cell::new(stage), Cell::new(0), Cell::new(Some(admission)));
        Limited { priority, since, stage, hold_id, admission }
    }
}

impl LaneExtra for Limited {
    const ADMIT: Option<unsafe fn(TaskPtr) -> Passage> = Some(pass);
    const QUEUED: Option<&'static QueuedAccess> =
        Some(&QueuedAccess { priority: priority_of::<Limited>, is_refused: is_limited_refused });

    fn priority(&self) -> Option<Priority> {
        self.priority
    }

    fn leave(&self) {
        if let Some(admission) = self.admission.take() {
            admission.leave(self.stage.get(), self.hold_id.get()); // ASKED-ONCE-BEGUN
        }
    }
}

/// # Safety
///
/// The task exists, and the caller owns it.
unsafe fn is_refused(task: TaskPtr) -> bool {
    // SAFETY: handed on from the caller.
    let queued = unsafe { task.as_ref() }.vtable().queued;
    // SAFETY: as above, and the function is that of the task's kind.
    queued.is_some_and(|queued| unsafe { (queued.is_refused)(task) })
}

/// As [`is_refused`], for a task of the kind `InLane<Limited>`.
///
/// # Safety
///
/// As for [`is_refused`], and the task is of that kind.
unsafe fn is_limited_refused(task: TaskPtr) -> bool {
    // SAFETY: handed on from the caller.
    unsafe { CellPrefix::<InLane<Limited>>::of(task) }.kind.extra.stage.get() == AdmissionStage::Refused
}

/// Whether a task may begin or has begun.
///
/// # Safety
///
/// The caller owns the task, which is of this kind.
unsafe fn pass(task: TaskPtr) -> Passage {
    // SAFETY: handed on from the caller.
    let kind = &unsafe { CellPrefix::<InLane<Limited>>::of(task) }.kind.extra;
    match kind.stage.get() {
        AdmissionStage::Begun => return Passage::Begin,
        AdmissionStage::Refused => return Passage::Refuse,
        AdmissionStage::InLine => {}
    }
    // SAFETY: a task's runtime outlives it. LIVE-UNTIL-EMPTY
    let is_ending = unsafe { &*RuntimeShared::of(task) }.phase() >= RuntimePhase::Cancelling;
    let passage = if is_ending {
        kind.leave(); // as a task that never began
        Passage::Refuse
    } else {
        let admission = kind.admission.take().expect("a task that has not left");
        let passage = admission.begin(kind.since, &kind.hold_id, &borrowed_waker(task));
        kind.admission.set(Some(admission));
        passage
    };
    match passage {
        Passage::Begin => kind.stage.set(AdmissionStage::Begun),
        Passage::Refuse => kind.stage.set(AdmissionStage::Refused),
        Passage::Hold => {}
    }
    passage
}
