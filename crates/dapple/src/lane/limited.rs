//! Tasks in a color that has a limit: until they have begun they may be refused, or held back.
//!
//! Who decides is a [`Admission`], which `limit/` has the only kind of. What is here is when it is asked, and what becomes
//! of a task then. A refused one goes ahead of what is in line, and is dropped in its color's turn as everything is.
//!
//! # Invariants
//!
//! * **ASKED-ONCE-BEGUN**: a gate is told of the arrival of a task, then asked before its first poll until it lets it
//!   begin or refuses it, and told when its future is gone: each task leaves once, by the stage that it is in.
//! * **READY-SINCE**: `ready` is when a lane was last put in line, and 0 while it is idle or nobody saw it. It is a
//!   measurement: who reads it beside a change gets one or the other.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::task::Waker;

use super::in_lane::{InLane, LaneExtra};
use super::lane::Lane;
use crate::context::with_context;
use crate::prim::{AtomicU64, Mutex, Ordering, lock};
use crate::task::cell::Front;
use crate::task::header::{Header, TaskKindTag, TaskPtr};
use crate::task::inbox::NodeList;
use crate::task::poll::Passage;
use crate::task::runtime_shared::RuntimePhase;
use crate::task::waker::borrowed_waker;
use crate::task::{Priority, RuntimeShared};

/// Who decides what may begin.
pub(crate) trait Admission: Send + Sync {
    /// Nanoseconds of the clock.
    fn now(&self) -> u64;
    /// A task is about to be put in line, for what has waited since then. `false`: it is refused.
    fn arrive(&self, since: u64) -> bool;
    /// A task comes to its turn. One that is held back is woken to ask again; `ticket`, 0 at first, is the gate's to
    /// know it by.
    fn begin(&self, since: u64, ticket: &Cell<u64>, waker: &Waker) -> Passage;
    /// The future of a task is gone.
    fn leave(&self, stage: AdmissionStage, ticket: u64);
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AdmissionStage {
    InLine,
    Refused,
    Begun,
}

/// What a lane with a limit knows more than others.
pub(crate) struct LaneLimit {
    gate: Mutex<Arc<dyn Admission>>,
    /// READY-SINCE
    ready: AtomicU64,
    /// `ready`, of the turn that is running. TURN-OWNS-LINE
    since: Cell<u64>,
    /// The last of those at the head of the line that were refused when they came. TURN-OWNS-LINE
    last_refused: Cell<*mut Header>,
}

impl LaneLimit {
    fn new(gate: Arc<dyn Admission>) -> LaneLimit {
        LaneLimit {
            since: Cell::new(gate.now()),
            gate: Mutex::new(gate),
            ready: AtomicU64::new(0),
            last_refused: Cell::new(null_mut()),
        }
    }

    fn gate(&self) -> Arc<dyn Admission> {
        lock(&self.gate).clone()
    }

    fn now(&self) -> u64 {
        lock(&self.gate).now()
    }
}

impl Lane {
    /// Gives the lane a limit, for what is spawned from now on. A main color has none.
    pub(crate) fn set_limit(&self, gate: Arc<dyn Admission>) {
        if self.main.is_some() {
            return;
        }
        let limits = self.limits.get_or_init(|| Box::new(LaneLimit::new(gate.clone())));
        *lock(&limits.gate) = gate;
        self.is_watched.store(true, Ordering::Relaxed);
        self.is_special.store(true, Ordering::Release);
    }

    /// Something is about to be put in line from outside of its turn.
    pub(super) fn note_ready(&self) {
        if let Some(limits) = self.limits.get()
            && self.inbox.is_idle()
        {
            limits.ready.store(limits.now(), Ordering::Relaxed); // READY-SINCE
        }
    }

    /// The turn begins: since when was it waited for?
    pub(super) fn note_turn(&self) {
        if let Some(limits) = self.limits.get() {
            let ready = limits.ready.swap(0, Ordering::Relaxed);
            limits.since.set(if ready == 0 { limits.now() } else { ready });
        }
    }

    /// The turn ends, and leaves something in line.
    pub(super) fn note_put_back(&self) {
        if let Some(limits) = self.limits.get() {
            limits.ready.store(limits.now(), Ordering::Relaxed);
        }
    }

    /// The turn ends, and leaves nothing.
    pub(super) fn note_left(&self) {
        if let Some(limits) = self.limits.get() {
            limits.ready.store(0, Ordering::Relaxed);
        }
    }

    /// Puts those of `list` that were refused ahead of what is in line, and gives back the rest. For the one who has
    /// the turn.
    pub(super) fn sift(&self, list: NodeList<Header>) -> Option<NodeList<Header>> {
        let Some(limits) = self.limits.get() else { return Some(list) };
        let (mut rest, mut next) = (None::<NodeList<Header>>, Some(list.first));
        while let Some(task) = next {
            // SAFETY: what is in line is owned by the lane, so it exists.
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

    /// Puts a task at the head of the line, behind those that were put there before.
    fn put_ahead(&self, task: TaskPtr, last_ahead: &Cell<*mut Header>) {
        // SAFETY: what is in line is owned by the lane, so it exists.
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

    /// The first in line is taken.
    pub(super) fn note_taken(&self, task: TaskPtr) {
        if let Some(limits) = self.limits.get()
            && limits.last_refused.get() == task.as_ptr()
        {
            limits.last_refused.set(null_mut());
        }
    }
}

/// Since when what runs here has waited, in nanoseconds; `None` if nobody has looked.
pub(crate) fn waited_since() -> Option<u64> {
    with_context(|here| {
        if here.ready_since() > 0 {
            return Some(here.ready_since());
        }
        let lane = TaskPtr::new(here.lane::<Header>().cast_mut())?;
        // SAFETY: this thread has the lane's turn. LANE-LIVES
        Some(unsafe { Lane::of(lane) }.limits.get()?.since.get())
    })
}

/// What a task in a lane with a limit has more.
pub(crate) struct Limited {
    priority: Option<Priority>,
    since: u64,
    /// The maker's, then the owner's. ONE-OWNER
    stage: Cell<AdmissionStage>,
    ticket: Cell<u64>,
    /// Until the task has left.
    gate: Cell<Option<Arc<dyn Admission>>>,
}

impl Limited {
    /// For a task of `lane`, if that has a limit. The task has arrived then.
    #[inline]
    pub(crate) fn arrive(lane: &Lane, priority: Option<Priority>) -> Option<Limited> {
        if !lane.is_special.load(Ordering::Acquire) {
            return None;
        }
        lane.limits.get().map(|limits| Limited::new(lane, limits, priority))
    }

    fn new(lane: &Lane, limits: &LaneLimit, priority: Option<Priority>) -> Limited {
        let gate = limits.gate();
        // What a turn spawns into its own color is what that turn was waited for.
        let is_my_turn = with_context(|here| lane.is_my_turn(here));
        let since = if is_my_turn { limits.since.get() } else { gate.now() };
        let stage = if gate.arrive(since) { AdmissionStage::InLine } else { AdmissionStage::Refused };
        let (stage, ticket, gate) = (Cell::new(stage), Cell::new(0), Cell::new(Some(gate)));
        Limited { priority, since, stage, ticket, gate }
    }
}

impl LaneExtra for Limited {
    const KIND: TaskKindTag = TaskKindTag::Limited;
    const GATE: Option<unsafe fn(TaskPtr) -> Passage> = Some(pass);

    fn priority(&self) -> Option<Priority> {
        self.priority
    }

    fn leave(&self) {
        if let Some(gate) = self.gate.take() {
            gate.leave(self.stage.get(), self.ticket.get()); // ASKED-ONCE-BEGUN
        }
    }
}

/// # Safety
///
/// The task exists, and the caller owns it.
unsafe fn is_refused(task: TaskPtr) -> bool {
    // SAFETY: handed on from the caller.
    if unsafe { task.as_ref() }.vtable().kind != TaskKindTag::Limited {
        return false;
    }
    // SAFETY: as above, and it is of this kind.
    unsafe { Front::<InLane<Limited>>::of(task) }.kind.extra.stage.get() == AdmissionStage::Refused
}

/// Whether a task may begin, or has.
///
/// # Safety
///
/// The caller owns the task, which is of this kind.
unsafe fn pass(task: TaskPtr) -> Passage {
    // SAFETY: handed on from the caller.
    let kind = &unsafe { Front::<InLane<Limited>>::of(task) }.kind.extra;
    match kind.stage.get() {
        AdmissionStage::Begun => return Passage::Begin,
        AdmissionStage::Refused => return Passage::Refuse,
        AdmissionStage::InLine => {}
    }
    // SAFETY: a task's home outlives it.
    let is_ending = unsafe { &*RuntimeShared::of(task) }.phase() >= RuntimePhase::Cancelling;
    let passage = if is_ending {
        kind.leave(); // as one that never began
        Passage::Refuse
    } else {
        let gate = kind.gate.take().expect("a task that has not left");
        let passage = gate.begin(kind.since, &kind.ticket, &borrowed_waker(task));
        kind.gate.set(Some(gate));
        passage
    };
    match passage {
        Passage::Begin => kind.stage.set(AdmissionStage::Begun),
        Passage::Refuse => kind.stage.set(AdmissionStage::Refused),
        Passage::Hold => {}
    }
    passage
}
