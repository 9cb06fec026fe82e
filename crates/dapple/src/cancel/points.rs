//! Cancellation points: the waits of a simulation, one of which is cancelled, dropped or held back.
//!
//! `sim::cancel_everywhere` runs a program again and again. Each run counts the waits as they begin. The first run,
//! the *reference*, makes a list of them; each later run has a [`Plan`]: at the wait with this number, cancel the
//! scope around it, drop the task that waits, or hold the wait back.
//!
//! Programs that are shipped pay nothing for this: it is in builds with debug assertions alone ([`OBSERVES`]). There a
//! wait gets here by the branch of a cancelled wait.
//!
//! * **SUSPECT**: around each poll of a task of such a simulation there is one more scope, which is always cancelled. A
//!   wait that begins asks whether it may be cancelled (`check::may_be_cancelled`), which is true inside of that scope. The
//!   branch of a cancelled wait comes here and looks more closely. The question whether a wait *is* cancelled
//!   (`check::is_current_cancelled`) ignores the scope. A shield hides it. So an observed wait that cannot be cancelled is
//!   in a shield: it is counted, and left alone.
//!
//! # Which waits count
//!
//! A wait may begin inside of another one: a step of `read_exact` around the read of a socket. Both have the same
//! budget, since only a result changes it, and no note of a wait was made between them. Only the inner one counts.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::check::{is_cancelled_in, is_current_cancelled, is_task_cancelled};
use super::child_waker::{self, ChildWaker};
use super::error::Cancelled;
use super::frame::{self, CancelFrame};
use super::item::{Item, Then};
use super::scope::CancelScope;
use super::wait::wake;
use crate::context::{ThreadContext, with_context};
use crate::task::Task;
use crate::task::guarded::GuardedWaker;
use crate::task::header::{Extended, TaskPtr, WaitNote};
use crate::task::state::ABORTED;
pub(crate) use crate::task::traced::OBSERVES;
use crate::task::traced::{PollObserver, replace_observer};
use crate::world;

/// A wait that begins.
#[derive(Clone, Copy)]
pub(crate) struct Begin {
    /// Tells it from other waits of its task, as long as it has not begun.
    key: usize,
    /// Another one may have the same key, that of a wait that is gone. Not where that is known.
    is_same: bool,
    is_join: bool,
}

impl Begin {
    pub(super) fn of<T>(wait: &T) -> Begin {
        Begin { key: std::ptr::from_ref(wait).addr(), is_same: true, is_join: false }
    }

    /// A wait that knows whether it was held back.
    #[cfg(debug_assertions)]
    pub(super) fn again<T>(wait: &T, is_held_back: bool) -> Begin {
        Begin { is_same: is_held_back, ..Begin::of(wait) }
    }

    pub(super) fn of_join(task: &Task) -> Begin {
        Begin { key: task.id(), is_same: true, is_join: true }
    }
}

/// The action at the planned wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// The innermost `finish` around it is cancelled, or its task if there is none, before the wait is tried.
    CancelBefore,
    /// The same after the poll in which the wait has returned `Pending`.
    CancelAfter,
    /// After that poll the task is aborted, or the started child is dropped.
    Drop,
    /// The wait stays `Pending` until nothing else can run.
    Late,
}

/// The action of a run, and the wait at which it happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The number of the wait among all that begin, nested ones included.
    pub(crate) wait: usize,
    pub(crate) mode: Mode,
    /// Cancels the task in place of the innermost `finish`.
    pub(crate) cancels_task: bool,
    /// Keeps a backtrace of the wait.
    pub(crate) keeps_place: bool,
    /// How many polls a wait is held back, at most: for programs in which there is always something that can run.
    pub(crate) patience: u64,
}

/// A wait of the reference run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReferenceWait {
    /// The number of its task in the simulation.
    pub(crate) task: u64,
    /// The note of the wait, if it returned `Pending` in its first poll.
    pub(crate) waited_for: Option<&'static str>,
    /// Another wait began inside of it, and counts in its place.
    pub(crate) is_outer: bool,
    is_join: bool,
    budget: i32,
}

#[cfg(test)]
impl ReferenceWait {
    pub(crate) fn for_tests(waited_for: Option<&'static str>) -> ReferenceWait {
        ReferenceWait { task: 1, waited_for, is_outer: false, is_join: false, budget: 0 }
    }
}

/// The last wait that began in a poll of a task, while its result is not known.
struct OpenWait {
    index: usize,
    task: Task,
    child: *const ChildWaker,
    /// The note that its task had before.
    note: WaitNote,
}

/// The action after a poll.
enum Action {
    CancelScope(Arc<CancelScope>),
    CancelTask(Task),
    /// The task, and the child in it that waits, by its waker.
    Drop(Task, Option<GuardedWaker>),
}

/// A wait that is held back.
struct HeldBack {
    task: Task,
    key: usize,
    waker: GuardedWaker,
    /// So that it learns of a cancel.
    _on_cancel: Item,
    /// The number of polls at which it is let go.
    until: u64,
}

/// Drops a started child, given its waker part, when it is polled next. `Some(false)`: its value may be asked for. `None`:
/// it has ended.
pub(crate) type DropChild = unsafe fn(*const ChildWaker) -> Option<bool>;

/// The cancellation points of one run: a part of its world.
pub(crate) struct CancelPoints {
    plan: Option<Plan>,
    drop_child: DropChild,
    /// Waits are counted: until the program has returned.
    is_counting: Cell<bool>,
    count: Cell<usize>,
    /// Waits of the reference run that were left alone, in a shield.
    shielded: Cell<usize>,
    seen: RefCell<Vec<ReferenceWait>>,
    /// One for each task that is in a poll: one that works in its poll lets others be polled meanwhile.
    open: RefCell<Vec<OpenWait>>,
    /// The scopes of `finish`, by their addresses: kept, so that no address is used twice.
    scopes: RefCell<HashMap<usize, Arc<CancelScope>>>,
    /// With the task, by its number, whose poll it is done after.
    action: RefCell<Option<(usize, Action)>>,
    held_back: RefCell<Option<HeldBack>>,
    is_done: Cell<bool>,
    place: RefCell<Option<Backtrace>>,
    spawned_at: Cell<Option<&'static Location<'static>>>,
    /// The messages of tasks that panicked.
    panics: RefCell<Vec<String>>,
    /// The task that runs the program, and whether it is to drop it.
    root: RefCell<Option<Task>>,
    drops_root: Cell<bool>,
    /// SUSPECT
    suspect: Arc<CancelScope>,
}

thread_local! {
    /// The run that this thread simulates.
    static CURRENT: RefCell<Option<Rc<CancelPoints>>> = const { RefCell::new(None) };
}

fn current() -> Option<Rc<CancelPoints>> {
    // Tasks may be dropped while a thread ends, after this was.
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// A wait begins that may be cancelled: `Ready` if it is, `Pending` if it is held back, `None` if it goes on.
#[cold]
#[inline(never)]
pub(crate) fn begin(begin: Begin, cx: &mut Context<'_>) -> Option<Poll<Cancelled>> {
    with_context(|context| {
        if context.is_observed() && current().is_some_and(|points| points.begin(context, begin, cx)) {
            return Some(Poll::Pending);
        }
        is_cancelled_in(context).then_some(Poll::Ready(Cancelled))
    })
}

/// A wait begins that cannot be cancelled: where waits are observed, it is in a shield. SUSPECT
#[cold]
pub(super) fn note_shielded() {
    if !with_context(|context| context.is_observed()) {
        return;
    }
    if let Some(points) = current().filter(|points| points.is_counting.get()) {
        points.shielded.set(points.shielded.get() + 1);
        // Notes from now on do not belong to the wait before.
        if let Some(task) = Task::current() {
            points.close(task.id(), None);
        }
    }
}

/// A wait rests without having noted what it waits for: `what`, unless a wait inside of it has.
pub(super) fn note_rest(what: &'static &'static str) {
    if with_context(|context| context.is_observed())
        && let Some(task) = Task::current()
        && let Some(extended) = Extended::of(task.header())
    {
        let note = extended.replace_note(not_waited());
        extended.replace_note(if note == not_waited() { WaitNote::of(what) } else { note });
    }
}

/// Whether the current task was cancelled, or a scope in it, where waits are observed. SUSPECT
pub(super) fn is_cancelled(context: &ThreadContext) -> bool {
    let suspect = current().map_or(std::ptr::null(), |points| Arc::as_ptr(&points.suspect));
    let mut is_cancelled = false;
    let to_the_end = frame::around(context, |scope| {
        // SAFETY: the scope is polled on this thread, so it is there. ON-THE-STACK
        is_cancelled |= !std::ptr::eq(scope, suspect) && unsafe { &*scope }.is_cancelled();
    });
    is_cancelled || to_the_end && is_task_cancelled(context)
}

/// Whether the scope of a `finish` that is about to be polled is in something that was cancelled.
#[cold]
#[inline(never)]
pub(crate) fn is_cancelled_around(scope: &Arc<CancelScope>) -> bool {
    if with_context(|context| context.is_observed())
        && let Some(points) = current()
    {
        points.scopes.borrow_mut().entry(Arc::as_ptr(scope).addr()).or_insert_with(|| scope.clone());
    }
    is_current_cancelled()
}

impl PollObserver for CancelPoints {
    fn around_poll(&self, task: TaskPtr, context: &ThreadContext, poll: &mut dyn FnMut()) {
        if !self.is_counting.get() {
            return poll();
        }
        let before = context.replace_observed(true);
        CancelFrame::of(Arc::as_ptr(&self.suspect)).around(context, poll); // SUSPECT
        context.replace_observed(before);
        self.after_poll(task.addr().get());
    }

    fn note_panic(&self, message: &str) {
        self.panics.borrow_mut().push(message.to_owned());
    }
}

impl CancelPoints {
    pub(crate) fn new(plan: Option<Plan>, drop_child: DropChild) -> Rc<CancelPoints> {
        let suspect = CancelScope::new();
        suspect.cancel();
        Rc::new(CancelPoints {
            plan,
            drop_child,
            is_counting: Cell::new(false),
            count: Cell::new(0),
            shielded: Cell::new(0),
            seen: RefCell::default(),
            open: RefCell::default(),
            scopes: RefCell::default(),
            action: RefCell::default(),
            held_back: RefCell::default(),
            is_done: Cell::new(false),
            place: RefCell::default(),
            spawned_at: Cell::new(None),
            panics: RefCell::default(),
            root: RefCell::default(),
            drops_root: Cell::new(false),
            suspect,
        })
    }

    /// Observes the simulation that this thread runs while `f` is called.
    pub(crate) fn observe<R>(self: &Rc<Self>, f: impl FnOnce() -> R) -> R {
        struct RestoreObserver(Option<Rc<CancelPoints>>);
        impl Drop for RestoreObserver {
            fn drop(&mut self) {
                let points = self.0.take();
                replace_observer(points.clone().map(|points| points as Rc<dyn PollObserver>));
                CURRENT.set(points);
            }
        }
        let _leave = RestoreObserver(CURRENT.replace(Some(self.clone())));
        replace_observer(Some(self.clone()));
        f()
    }

    /// The program begins, in the current task.
    pub(crate) fn begin_program(&self) {
        *self.root.borrow_mut() = Task::current();
        self.is_counting.set(true);
        // The poll that this is in has begun unobserved.
        if let Some(root) = &*self.root.borrow() {
            wake(root.waker());
        }
    }

    /// The program has returned, or was dropped: from here on nothing is observed.
    pub(crate) fn end_program(&self) {
        if let Some(root) = &*self.root.borrow() {
            self.close(root.id(), None);
        }
        self.is_counting.set(false);
        self.action.take();
        self.let_go();
    }

    /// Whether the program is to be dropped now.
    pub(crate) fn drops_program(&self) -> bool {
        self.drops_root.get()
    }

    /// Whether the planned wait was reached and its plan carried out.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.get()
    }

    /// How many waits of a reference run were left alone, in a shield.
    pub(crate) fn shielded(&self) -> usize {
        self.shielded.get()
    }

    /// The waits of a reference run.
    pub(crate) fn take_seen(&self) -> Vec<ReferenceWait> {
        self.seen.take()
    }

    /// The messages of tasks that have panicked so far.
    pub(crate) fn panics(&self) -> Vec<String> {
        self.panics.borrow().clone()
    }

    /// The place where the task of the planned wait was spawned, if that is known.
    pub(crate) fn spawned_at(&self) -> Option<&'static Location<'static>> {
        self.spawned_at.get()
    }

    /// The backtrace of the planned wait, if it was wanted.
    pub(crate) fn take_place(&self) -> Option<Backtrace> {
        self.place.take()
    }

    /// Nothing can run: lets a wait go that is held back. `false`: there is none.
    pub(crate) fn let_go(&self) -> bool {
        let held_back = self.held_back.take();
        held_back.map(|held_back| wake(held_back.waker)).is_some()
    }

    fn begin(&self, context: &ThreadContext, begin: Begin, cx: &mut Context<'_>) -> bool {
        if !self.is_counting.get() {
            return false;
        }
        if let Some(stays) = self.is_held_back(context, begin, cx) {
            return stays;
        }
        let wait = self.count.replace(self.count.get() + 1);
        match self.plan {
            None => self.note(context, begin),
            Some(plan) if plan.wait == wait => return self.carry_out(plan, context, begin, cx),
            Some(_) => {}
        }
        false
    }

    /// Adds a wait to the list of the reference run.
    fn note(&self, context: &ThreadContext, begin: Begin) {
        let child = context.child::<ChildWaker>();
        let Some(task) = Task::current() else { return };
        self.close(task.id(), Some((child, context.budget())));
        let mut seen = self.seen.borrow_mut();
        if let Some(extended) = Extended::of(task.header()) {
            let note = extended.replace_note(not_waited());
            self.open.borrow_mut().push(OpenWait { index: seen.len(), task: task.clone(), child, note });
        }
        seen.push(ReferenceWait {
            task: task.number().unwrap_or_default(),
            waited_for: None,
            is_outer: false,
            is_join: begin.is_join,
            budget: context.budget(),
        });
    }

    /// Records the result of the last wait that began in a task: it waits, has ended, or has begun the wait `next`.
    fn close(&self, task: usize, next: Option<(*const ChildWaker, i32)>) {
        let mut all = self.open.borrow_mut();
        let Some(at) = all.iter().position(|open| open.task.id() == task) else { return };
        let open = all.swap_remove(at);
        drop(all);
        let mut seen = self.seen.borrow_mut();
        let wait = &mut seen[open.index];
        let Some(extended) = Extended::of(open.task.header()) else { return };
        let note = extended.replace_note(open.note);
        if note != not_waited() {
            wait.waited_for = note.text();
            extended.replace_note(note);
        } else {
            wait.is_outer = !wait.is_join && next == Some((open.child, wait.budget));
        }
    }

    fn carry_out(&self, plan: Plan, context: &ThreadContext, begin: Begin, cx: &mut Context<'_>) -> bool {
        self.is_done.set(true);
        if plan.keeps_place {
            *self.place.borrow_mut() = Some(Backtrace::force_capture());
        }
        let Some(task) = Task::current() else { return false };
        self.spawned_at.set(task.spawned_at());
        match plan.mode {
            Mode::CancelBefore => self.cancel(context, plan, task).carry_out(self),
            Mode::CancelAfter => self.do_after(task.id(), self.cancel(context, plan, task)),
            Mode::Drop => self.do_after(task.id(), Action::Drop(task, child_waker::current_waker(context))),
            Mode::Late => {
                let mut on_cancel = Item::default();
                on_cancel.register_in(context, cx.waker(), Then::Answers);
                let polls = world::with(world::World::polls).unwrap_or_default();
                let held_back = HeldBack {
                    task,
                    key: begin.key,
                    waker: GuardedWaker::of(cx.waker()),
                    _on_cancel: on_cancel,
                    until: polls + plan.patience,
                };
                *self.held_back.borrow_mut() = Some(held_back);
                return true;
            }
        }
        false
    }

    /// Does it after the poll of this task.
    fn do_after(&self, task: usize, action: Action) {
        *self.action.borrow_mut() = Some((task, action));
    }

    /// The cancel of the innermost `finish`, or of the task.
    fn cancel(&self, context: &ThreadContext, plan: Plan, task: Task) -> Action {
        let (mut innermost, mut outermost) = (None, None);
        let scopes = self.scopes.borrow();
        // A task that was spawned in a scope is cancelled by itself: not all that is in the scope.
        frame::around_in_task(context, |scope| {
            if let Some(scope) = scopes.get(&scope.addr()) {
                innermost = innermost.take().or_else(|| Some(scope.clone()));
                outermost = Some(scope.clone());
            }
        });
        // The program itself is in a `finish`, so that it can be cancelled alone.
        let is_root = self.root.borrow().as_ref() == Some(&task);
        match if plan.cancels_task { outermost.filter(|_| is_root) } else { innermost } {
            Some(scope) => Action::CancelScope(scope),
            None => Action::CancelTask(task),
        }
    }

    /// Whether a wait that is held back stays so; `None` if it is another one.
    fn is_held_back(&self, context: &ThreadContext, begin: Begin, cx: &mut Context<'_>) -> Option<bool> {
        let is_this = |held_back: &HeldBack| {
            begin.is_same && (held_back.task.id(), held_back.key) == (context.task_address(), begin.key)
        };
        if !self.held_back.borrow().as_ref().is_some_and(is_this) {
            return None;
        }
        // Wakers are foreign code: nothing is borrowed while they are cloned or dropped.
        let held_back = self.held_back.take()?;
        if is_cancelled(context) {
            return Some(false);
        }
        let waker = GuardedWaker::of(cx.waker());
        let old = self.held_back.replace(Some(HeldBack { waker, ..held_back }));
        debug_assert!(old.is_none(), "there is one plan in a run");
        Some(true)
    }

    /// A task was polled.
    fn after_poll(&self, task: usize) {
        self.close(task, None);
        let action = self.action.borrow_mut().take_if(|(of, _)| *of == task);
        if let Some((_, action)) = action {
            action.carry_out(self);
        }
        let polls = world::with(world::World::polls).unwrap_or_default();
        if self.held_back.borrow().as_ref().is_some_and(|held_back| polls >= held_back.until) {
            self.let_go();
        }
    }
}

/// The note of a wait that has not had to wait.
fn not_waited() -> WaitNote {
    static NOTHING: &str = "nothing";
    WaitNote::of(&NOTHING)
}

impl Action {
    fn carry_out(self, points: &CancelPoints) {
        match self {
            Action::CancelScope(scope) => drop(scope.cancel()),
            Action::CancelTask(task) => task.cancel(),
            Action::Drop(task, child) => {
                if let Some(child) = child {
                    // SAFETY: the waker keeps the child in memory.
                    match unsafe { (points.drop_child)(child.as_waker().data().cast()) } {
                        Some(true) => return wake(child),
                        Some(false) => {}
                        None => return, // with it, the wait is gone
                    }
                }
                if points.root.borrow().as_ref() == Some(&task) {
                    points.drops_root.set(true);
                    return wake(task.waker());
                }
                task.wake_with(ABORTED);
            }
        }
    }
}

impl Task {
    fn waker(&self) -> GuardedWaker {
        GuardedWaker::of(&crate::task::waker::borrowed_waker(self.ptr()))
    }
}
