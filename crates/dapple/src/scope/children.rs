//! Children started in a scope: their memory, polls and ends. `child` is one child in memory; `ready` decides
//! which is polled next; `tasks` is about tasks that were spawned in the scope.
//!
//! # Invariants
//!
//! * **INSIDE**: only the thread that polls the scope touches the children, while it polls; or the exclusive
//!   owner of the scope. `inside` names that thread. So plain cells suffice.
//! * **NO-BORROW**: nothing in here is borrowed while foreign code runs (a poll, a destructor, a waker):
//!   foreign code may start children, cancel the scope, or drop a `Started`.
//! * **ON-ITS-WAY**: a child that is done has woken its joiner, but a foreign waker may deliver the wake-up
//!   late. Until the value is taken, or not wanted any more, the value counts as on its way, in the scope's
//!   cancel frame. A cancelled scope with such a value is linked like a wait that would answer. A region in
//!   which a child of an enclosing scope was awaited by a foreign waker reads these counts. Both therefore
//!   get a grace period (LEFT-ALONE in `cancel::grace`), and the value is not dropped together with the future that
//!   waits for it.

mod child;
mod ready;
mod tasks;

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use std::task::{Context, Poll, RawWakerVTable, Waker};

pub(crate) use child::drop_started;
pub(super) use child::{ChildHeader, ChildPanic};
use child::{ChildStage, Dropped, Joiner, Union, Whole, free_memory};
use ready::ChildQueue;

use super::started::StartedPanicked;
use crate::cancel::child_waker::ChildWaker;
use crate::cancel::frame::{CancelFrame, is_lost};
use crate::cancel::item::Item;
use crate::cancel::scope::CancelScope;
use crate::cancel::wait::wake;
use crate::context::{ThreadContext, with_context};
use crate::prim::{AbortOnUnwind, AtomicBool, AtomicUsize, Ordering};
use crate::task::Task;
use crate::task::cell::discard;
use crate::task::guarded::GuardedWaker;

/// State of a scope, whether or not its children are `Send`.
pub(super) struct Children {
    pub(super) cancel_scope: Arc<CancelScope>,
    pub(super) frame: CancelFrame,
    /// Thread that polls the scope; 0 if none does. INSIDE
    inside: AtomicUsize,
    /// Children that have a future or an output, in the order in which they were started.
    first: Cell<*mut ChildHeader>,
    last: Cell<*mut ChildHeader>,
    /// Number of children that have a future.
    pending: Cell<usize>,
    /// Woken children, to be polled.
    ready_first: Cell<*mut ChildWaker>,
    ready_last: Cell<*mut ChildWaker>,
    /// Children that have woken themselves in this poll of the scope, to be polled in the next one.
    later: ChildQueue,
    /// Children that woke themselves in the last poll of the scope.
    due: ChildQueue,
    /// Whether the next child to be polled comes from `due`, if that is not empty. FAIR
    is_for_due: Cell<bool>,
    /// Memory of a former child, for reuse.
    spare: Cell<*mut ChildHeader>,
    /// The children have been queued to see the cancel.
    announced: Cell<bool>,
    /// Number of children that, in their last poll after the cancel, asked not to be dropped. LEFT-ALONE in
    /// `cancel::grace`
    staying: Cell<usize>,
    /// Waker of the scope's last poll, if it need not be stored again. Only compared.
    known: Cell<(*const (), *const RawWakerVTable)>,
    /// Waker that the body is polled with, while the scope is polled.
    pub(super) body_waker: Cell<*const Waker>,
    /// A child that the body awaits is done: the body must be polled again.
    body_woken: Cell<bool>,
    panic: Cell<Option<ChildPanic>>,
    /// `end` was called.
    over: Cell<bool>,
    /// Spawned tasks that may not have ended.
    tasks: Cell<Vec<Task>>,
    /// A task was spawned in the scope.
    has_spawned: Cell<bool>,
    /// Link to the enclosing scope, by which its cancel arrives, once a task was spawned. SPAWNED-SEE in
    /// `cancel::item`
    around: Cell<Item>,
}

/// Result of the first poll of a child.
pub(super) enum StartOutcome<T> {
    Done(T),
    /// It waits. The reference is for a `Started`.
    Waits(NonNull<ChildHeader>),
    Panicked,
}

impl Children {
    pub(super) fn new() -> Children {
        let cancel_scope = CancelScope::new();
        Children {
            frame: CancelFrame::of(Arc::as_ptr(&cancel_scope)),
            cancel_scope,
            inside: AtomicUsize::new(0),
            first: Cell::new(null_mut()),
            last: Cell::new(null_mut()),
            pending: Cell::new(0),
            ready_first: Cell::new(null_mut()),
            ready_last: Cell::new(null_mut()),
            later: ChildQueue::default(),
            due: ChildQueue::default(),
            is_for_due: Cell::new(false),
            spare: Cell::new(null_mut()),
            announced: Cell::new(false),
            staying: Cell::new(0),
            known: Cell::new((null(), null())),
            body_waker: Cell::new(null()),
            body_woken: Cell::new(false),
            panic: Cell::new(None),
            over: Cell::new(false),
            tasks: Cell::new(Vec::new()),
            has_spawned: Cell::new(false),
            around: Cell::new(Item::default()),
        }
    }

    /// Records the poller's waker. `false` if the waker must be stored before the scope waits. STORE-OR-SEE
    /// in `cancel::scope`
    #[inline]
    pub(super) fn polled_with(&self, waker: &Waker) -> bool {
        let now: (*const (), *const RawWakerVTable) = (waker.data(), waker.vtable());
        if self.known.get() == now {
            return true;
        }
        let is_known = self.cancel_scope.polled_with(waker);
        self.known.set(if is_known { now } else { (null(), null()) });
        is_known
    }

    /// Whether this thread is polling the scope. INSIDE
    #[inline]
    pub(super) fn is_inside(&self, context: &ThreadContext) -> bool {
        self.inside.load(Ordering::Relaxed) == std::ptr::from_ref(context).addr()
    }

    /// Calls `f` with this thread as the one that polls the scope.
    #[inline]
    pub(super) fn inside<R>(&self, context: &ThreadContext, f: impl FnOnce() -> R) -> R {
        struct LeaveChildren<'a>(&'a Children);
        impl Drop for LeaveChildren<'_> {
            fn drop(&mut self) {
                self.0.inside.store(0, Ordering::Relaxed);
            }
        }
        self.inside.store(std::ptr::from_ref(context).addr(), Ordering::Relaxed);
        let _out = LeaveChildren(self);
        f()
    }

    #[inline]
    #[track_caller]
    pub(super) fn assert_inside(&self, context: &ThreadContext, what: &str) {
        if !self.is_inside(context) {
            refuse_outside(what);
        }
    }

    /// Starts a child: polls it at once.
    ///
    /// # Safety
    ///
    /// Everything that `F` borrows lives until `end` was called; `F` and its output may be moved to the
    /// threads that poll and end the scope.
    #[inline]
    #[track_caller]
    pub(super) unsafe fn start<F: Future>(&self, future: F) -> StartOutcome<F::Output> {
        with_context(|context| {
            self.assert_inside(context, "Scope::start called");
            let (memory, layout) = self.memory(Layout::new::<Whole<F>>());
            let whole = memory.cast::<Whole<F>>();
            let child = ChildHeader {
                child_waker: ChildWaker::new(&self.cancel_scope, layout),
                vtable: Cell::new(Whole::<F>::VTABLE),
                next: Cell::new(null_mut()),
                previous: Cell::new(null_mut()),
                behind: Cell::new(null_mut()),
                is_put_off: Cell::new(false),
                stays: Cell::new(false),
                stage: Cell::new(ChildStage::Future),
                joiner: Cell::new(None),
                is_wanted: AtomicBool::new(true),
            };
            let stage = UnsafeCell::new(Union { future: ManuallyDrop::new(future) });
            // SAFETY: the memory is ours, and large enough.
            unsafe { whole.write(Whole { child, stage }) };
            let child = whole.cast::<ChildHeader>();
            // SAFETY: the child is new, so it has its future. NO-BORROW
            let poll = |cx: &mut Context<'_>| unsafe { Whole::<F>::poll_inline(child, cx) };
            // The frame around the child is that of its scope, whichever frame the caller is in.
            // ON-THE-STACK, by INSIDE
            let outer = context.replace_frame(&raw const self.frame);
            let stays = context.stays();
            // SAFETY: it is a child of this scope, which this thread polls. This does not unwind.
            let (polled, after) = unsafe { ChildWaker::poll(child.cast(), context, false, poll) };
            context.set_frame(outer);
            match polled {
                Ok(Poll::Ready(output)) => {
                    self.leave(child);
                    StartOutcome::Done(output)
                }
                Ok(Poll::Pending) => {
                    if self.announced.get() {
                        // SAFETY: the child is in memory until it leaves the scope.
                        self.count_staying(unsafe { child.as_ref() }, stays != context.stays());
                    }
                    StartOutcome::Waits(self.begin_to_wait(child, after.woken))
                }
                Err(payload) => {
                    self.leave(child);
                    self.panicked(payload);
                    StartOutcome::Panicked
                }
            }
        })
    }

    /// Lists a started child that has to wait, with one more reference for a `Started`.
    fn begin_to_wait(&self, child: NonNull<ChildHeader>, woken: bool) -> NonNull<ChildHeader> {
        self.pending.set(self.pending.get() + 1);
        self.append(child);
        // SAFETY: the child is in memory until it leaves the scope.
        unsafe { child.as_ref() }.child_waker.add_ref();
        if woken {
            self.put_off(child);
        }
        child
    }

    /// Returns memory for a child, and its layout: that of a former child, if large enough.
    #[inline]
    fn memory(&self, layout: Layout) -> (NonNull<u8>, Layout) {
        if let Some(spare) = NonNull::new(self.spare.get()) {
            // SAFETY: spare memory still has its layout.
            let has = unsafe { spare.as_ref() }.child_waker.layout();
            if has.size() >= layout.size() && has.align() >= layout.align() {
                self.spare.set(null_mut());
                return (spare.cast(), has);
            }
        }
        // SAFETY: a child is not of size zero.
        let memory = NonNull::new(unsafe { alloc(layout) });
        (memory.unwrap_or_else(|| handle_alloc_error(layout)), layout)
    }

    /// Polls a child. Returns whether it is done and whether it woke itself, and sets its stage accordingly.
    ///
    /// # Safety
    ///
    /// It is a child of this scope, which this thread polls, and has a future; `in_line` as for
    /// [`ChildWaker::poll`].
    #[inline]
    unsafe fn poll_child(
        &self,
        child: NonNull<ChildHeader>,
        context: &ThreadContext,
        in_line: bool,
    ) -> (Result<bool, ChildPanic>, bool) {
        // SAFETY: the caller's promise.
        let this = unsafe { child.as_ref() };
        // SAFETY: the caller's promise. NO-BORROW
        let poll = |cx: &mut Context<'_>| unsafe { (this.vtable.get().poll)(child, cx) };
        let stays = context.stays();
        // SAFETY: handed on from the caller.
        let (polled, after) = unsafe { ChildWaker::poll(child.cast(), context, in_line, poll) };
        if self.announced.get() {
            self.count_staying(this, matches!(polled, Ok(false)) && stays != context.stays());
        }
        match &polled {
            Ok(false) => {}
            Ok(true) => this.stage.set(ChildStage::Output),
            Err(_) => this.stage.set(ChildStage::Panicked),
        }
        (polled, after.woken)
    }

    /// Updates `staying` after a child was polled in a cancelled scope.
    #[cold]
    fn count_staying(&self, child: &ChildHeader, stays: bool) {
        if child.stays.replace(stays) != stays {
            let count = self.staying.get();
            self.staying.set(if stays { count + 1 } else { count - 1 });
        }
    }

    /// Whether a part of this cancelled scope must not be dropped. LEFT-ALONE in `cancel::grace`
    #[cold]
    pub(super) fn stays(&self) -> bool {
        self.staying.get() > 0
            || self.is_to_announce()
            || !self.ready_first.get().is_null()
            || self.cancel_scope.spawned.load(Ordering::Acquire) > 0
    }

    /// Releases a child that has neither future nor output.
    #[inline]
    fn leave(&self, child: NonNull<ChildHeader>) {
        // SAFETY: the child is in memory.
        unsafe { child.as_ref() }.stage.set(ChildStage::Nothing);
        // SAFETY: it is a child of this scope, and is used again only if no other reference exists.
        if unsafe { ChildWaker::leave(child.cast(), &self.cancel_scope) }
            && let Some(old) = NonNull::new(self.spare.replace(child.as_ptr()))
        {
            free_memory(old);
        }
    }

    fn append(&self, child: NonNull<ChildHeader>) {
        // SAFETY: the child is in memory.
        let this = unsafe { child.as_ref() };
        this.previous.set(self.last.get());
        match NonNull::new(self.last.replace(child.as_ptr())) {
            // SAFETY: a child in the list is in memory.
            Some(last) => unsafe { last.as_ref() }.next.set(child.as_ptr()),
            None => self.first.set(child.as_ptr()),
        }
    }

    /// Removes a child without future and output from the list.
    fn remove(&self, child: NonNull<ChildHeader>) {
        // SAFETY: the child is in memory.
        let this = unsafe { child.as_ref() };
        self.forget_joiner(this);
        let (previous, next) = (this.previous.get(), this.next.get());
        match NonNull::new(previous) {
            // SAFETY: a child in the list is in memory.
            Some(previous) => unsafe { previous.as_ref() }.next.set(next),
            None => self.first.set(next),
        }
        match NonNull::new(next) {
            // SAFETY: as above.
            Some(next) => unsafe { next.as_ref() }.previous.set(previous),
            None => self.last.set(previous),
        }
        self.leave(child);
    }

    /// Polls the next ready child, if any.
    pub(super) fn poll_next(&self, context: &ThreadContext) {
        let Some((child, in_line)) = self.next() else { return };
        // SAFETY: the child is in the list, or the queue's reference keeps it in memory.
        let this = unsafe { child.as_ref() };
        if in_line {
            if this.stage.get() != ChildStage::Future {
                // SAFETY: the queue's reference is ours.
                return unsafe { ChildWaker::drop_ref(child.cast()) };
            }
            this.child_waker.note_dequeued();
            if this.is_put_off.get() {
                // It is polled from its queue, and not before. This reference is not the last. BIASED
                // SAFETY: the queue's reference is ours.
                return unsafe { ChildWaker::drop_ref(child.cast()) };
            }
        }
        // SAFETY: it is a child of this scope, and has a future.
        let (polled, woken) = unsafe { self.poll_child(child, context, in_line) };
        match polled {
            Ok(false) if woken => self.put_off(child),
            Ok(false) => {}
            Ok(true) => self.done(child),
            Err(payload) => {
                self.panicked(payload);
                self.done(child);
            }
        }
    }

    /// Called when the future of a listed child is gone.
    fn done(&self, child: NonNull<ChildHeader>) {
        // SAFETY: a child in the list is in memory.
        let this = unsafe { child.as_ref() };
        self.pending.set(self.pending.get() - 1);
        let joiner = this.joiner.take();
        if !this.is_wanted.load(Ordering::Acquire) {
            self.drop_output(child);
        } else if let Some(Joiner::Waker(_)) = joiner {
            this.joiner.set(Some(Joiner::Woken));
            self.frame.count_on_their_way(1);
        }
        match joiner {
            Some(Joiner::Body) => self.body_woken.set(true),
            Some(Joiner::Waker(waker)) => wake(waker),
            Some(Joiner::Woken) | None => {}
        }
    }

    /// Drops a child's output, if it has one, and removes the child from the list.
    fn drop_output(&self, child: NonNull<ChildHeader>) {
        // SAFETY: a child in the list is in memory.
        let this = unsafe { child.as_ref() };
        let stage = this.stage.replace(ChildStage::Nothing);
        if stage == ChildStage::Output {
            // SAFETY: there is an output, which is not touched again. NO-BORROW
            let dropped =
                catch_unwind(AssertUnwindSafe(|| unsafe { (this.vtable.get().drop_output)(child) }));
            if let Err(payload) = dropped {
                self.panicked(payload);
            }
        }
        self.remove(child);
    }

    /// Records a panic of the body or a child, and cancels the scope. The first panic goes on when all have
    /// ended; the panic hook has reported the others.
    pub(super) fn panicked(&self, payload: ChildPanic) {
        if payload.is::<Dropped>() {
            return;
        }
        match self.panic.take() {
            // A joiner of a panicked child unwinds with `StartedPanicked`; the child's own panic takes
            // precedence.
            Some(first) if !first.is::<StartedPanicked>() => {
                self.panic.set(Some(first));
                discard(Err(payload));
            }
            _ => self.panic.set(Some(payload)),
        }
        self.cancel_scope.cancel();
    }

    /// Whether `end` was called.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.get()
    }

    pub(super) fn take_panic(&self) -> Option<ChildPanic> {
        self.panic.take()
    }

    /// Whether there is a cancel that `announce` has not passed on to the children.
    #[inline]
    pub(super) fn is_to_announce(&self) -> bool {
        self.cancel_scope.is_cancelled() && !self.announced.get()
    }

    /// Whether there is work before the next child is polled: a cancel to announce, or the body to poll
    /// again.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.body_woken.get() || self.is_to_announce()
    }

    /// Does that work: clears `body_woken`, and tells all children of a cancel.
    #[cold]
    pub(super) fn announce(&self) {
        self.body_woken.set(false);
        if !self.is_to_announce() {
            return;
        }
        self.announced.set(true);
        let mut next = self.first.get();
        while let Some(child) = NonNull::new(next) {
            // SAFETY: a child in the list is in memory. `put_in_line` runs no foreign code.
            let this = unsafe { child.as_ref() };
            next = this.next.get();
            if this.stage.get() == ChildStage::Future {
                self.put_in_line(child);
            }
        }
        let tasks = self.tasks.take();
        tasks.iter().for_each(Task::cancel);
        self.tasks.set(tasks);
    }

    /// Returns the number of started children, and the names of spawned tasks, that have not ended.
    #[cfg(feature = "tracing")]
    pub(super) fn left(&self) -> (usize, Vec<String>) {
        let tasks = self.tasks.take();
        let names =
            tasks.iter().filter(|task| !task.is_finished()).map(|task| task.name().to_string()).collect();
        self.tasks.set(tasks);
        (self.pending.get(), names)
    }

    /// Whether all started children and spawned tasks have ended.
    #[inline]
    pub(super) fn have_ended(&self) -> bool {
        self.pending.get() == 0 && self.cancel_scope.spawned.load(Ordering::Acquire) == 0
    }

    /// Drops all remaining children, in the order in which they were started, and cancels spawned tasks.
    /// Returns `true` if a child or task had not ended. For the exclusive owner of the scope.
    pub(super) fn end(&self) -> bool {
        if self.over.replace(true) {
            return false;
        }
        // All foreign code in here is caught. A panic that escaped would leave children to the owners of
        // their wakers, without their scope.
        let abort = AbortOnUnwind("the end of a scope panicked");
        let had_ended = self.have_ended();
        while self.due.next().or_else(|| self.later.next()).is_some() {}
        while let Some(child) = NonNull::new(self.first.get()) {
            // SAFETY: a child in the list is in memory.
            let this = unsafe { child.as_ref() };
            if this.stage.get() == ChildStage::Future {
                this.stage.set(ChildStage::Nothing);
                self.pending.set(self.pending.get() - 1);
                // SAFETY: there is a future, which is not touched again. NO-BORROW
                let dropped =
                    catch_unwind(AssertUnwindSafe(|| unsafe { (this.vtable.get().drop_future)(child) }));
                if let Err(payload) = dropped {
                    self.panicked(payload);
                }
            }
            self.drop_output(child);
        }
        // From here on, a waker finds the queue closed.
        if let Some(list) = self.cancel_scope.ready.close() {
            self.line_up(list.first, list.last);
        }
        while let Some(child_waker) = self.next_ready() {
            // SAFETY: the queue's reference is ours.
            unsafe { ChildWaker::drop_ref(child_waker) };
        }
        let tasks = self.tasks.take();
        if !had_ended {
            self.cancel_scope.cancel();
            tasks.iter().for_each(Task::cancel);
        }
        if let Some(spare) = NonNull::new(self.spare.replace(null_mut())) {
            free_memory(spare);
        }
        drop(self.around.take());
        self.cancel_scope.end();
        if self.cancel_scope.is_by_waker() {
            self.cancel_scope.release_waker();
        }
        std::mem::forget(abort);
        !had_ended
    }

    /// Takes the output of a child, if it is done; otherwise stores `waker` to be woken then. `None` if the
    /// child panicked.
    ///
    /// # Safety
    ///
    /// It is a child of this scope, and `T` is its output. The caller has a reference, and gives it up if
    /// this returns `Ready`.
    #[track_caller]
    pub(super) unsafe fn poll_output<T>(
        &self,
        child: NonNull<ChildHeader>,
        waker: &Waker,
    ) -> Poll<Option<T>> {
        with_context(|context| {
            self.assert_inside(context, "a Started was awaited");
            // SAFETY: the caller's reference keeps the child in memory.
            let this = unsafe { child.as_ref() };
            match this.stage.get() {
                // A race inside of the scope is decided, and would drop the value: leave it here. EXACT in
                // `cancel::wait`
                ChildStage::Output if is_lost(context) && !self.frame.is_lost() => Poll::Pending,
                ChildStage::Output => {
                    let mut output = std::mem::MaybeUninit::<T>::uninit();
                    // SAFETY: the child is done, and there is room for the output.
                    unsafe { (this.vtable.get().take_output)(child, output.as_mut_ptr().cast()) };
                    // SAFETY: the caller gives its reference up. It is not the last. BIASED
                    unsafe { ChildWaker::drop_ref(child.cast()) };
                    self.remove(child);
                    // SAFETY: it was just written.
                    Poll::Ready(Some(unsafe { output.assume_init() }))
                }
                ChildStage::Panicked | ChildStage::Nothing => {
                    // SAFETY: as above.
                    unsafe { ChildWaker::drop_ref(child.cast()) };
                    self.remove(child);
                    Poll::Ready(None)
                }
                ChildStage::Future => {
                    // A joiner polled with the body's waker needs no wake-up: polling the body reaches it.
                    // SAFETY: it is the waker of a poll that this thread is in. INSIDE
                    let body = unsafe { self.body_waker.get().as_ref() };
                    let joiner = match body.is_some_and(|body| body.will_wake(waker)) {
                        true => Joiner::Body,
                        false => {
                            self.note_awaited(context, waker);
                            Joiner::Waker(GuardedWaker::of(waker))
                        }
                    };
                    drop(this.joiner.replace(Some(joiner)));
                    Poll::Pending
                }
            }
        })
    }

    /// Records that a child is awaited with a foreign waker, if so. ON-ITS-WAY
    fn note_awaited(&self, context: &ThreadContext, waker: &Waker) {
        // SAFETY: it is the waker of a poll that this thread is in.
        let is_own = unsafe { context.own_waker().as_ref() }.is_some_and(|own| own.will_wake(waker));
        if !is_own {
            self.frame.note_awaited(context);
        }
    }

    /// Removes the joiner of a child.
    fn forget_joiner(&self, child: &ChildHeader) {
        match child.joiner.take() {
            None | Some(Joiner::Body) => {}
            // The destructor of a waker is foreign code.
            Some(Joiner::Waker(waker)) => discard(catch_unwind(AssertUnwindSafe(|| drop(waker)))),
            Some(Joiner::Woken) => self.frame.count_on_their_way(-1), // ON-ITS-WAY
        }
    }

    /// Gives up the output of a child.
    ///
    /// # Safety
    ///
    /// The caller gives its reference up; it is a reference to a child of this scope, if the scope still
    /// exists.
    pub(super) unsafe fn disown(&self, child: NonNull<ChildHeader>) {
        // SAFETY: the caller's reference keeps the child in memory.
        let this = unsafe { child.as_ref() };
        this.is_wanted.store(false, Ordering::Release);
        // On another thread, it is left to the scope to drop the output. INSIDE
        if with_context(|context| self.is_inside(context)) {
            self.forget_joiner(this);
            if matches!(this.stage.get(), ChildStage::Output | ChildStage::Panicked) {
                self.drop_output(child);
            }
        }
        // SAFETY: the caller gives its reference up.
        unsafe { ChildWaker::drop_ref(child.cast()) };
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse_outside(what: &str) -> ! {
    panic!(
        "{what} outside of its scope: children run in the task that polls the scope. Do it in the body of \
         the scope, or in one of its children"
    );
}
