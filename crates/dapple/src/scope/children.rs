//! What was started in a scope: its memory, its polls, and how it ends. `child` is one of them in memory, `ready` says
//! which is polled next.
//!
//! # Invariants
//!
//! * **INSIDE**: children are touched by the thread that polls the scope, while it does, or by whoever has
//!   the scope exclusively. `inside` says which thread that is. So cells do.
//! * **NO-BORROW**: nothing in here is borrowed while foreign code runs (a poll, a destructor, a waker):
//!   that may start more, cancel, or drop what it likes.
//! * **ON-ITS-WAY**: a child that is done has woken its joiner, but a foreign waker may be passed on late. Until the
//!   value is taken, or not wanted any more, it counts as on its way, in the link of the scope. A cancelled scope with
//!   such a value is linked as a wait is that would answer; and a region in which a child of a scope around it was
//!   awaited by a foreign waker looks at these counts. Both are given a grace so (LEFT-ALONE in `cancel`), and the
//!   value is not dropped with the future that waits for it.

mod child;
mod ready;

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
use crate::cancel::check::is_cancelled_in;
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

/// What a scope consists of, whether or not what is started in it is `Send`.
pub(super) struct Children {
    pub(super) reach: Arc<CancelScope>,
    pub(super) link: CancelFrame,
    /// The thread that polls the scope; 0 if none does. INSIDE
    inside: AtomicUsize,
    /// All that have a future or an output, in the order in which they were started.
    first: Cell<*mut ChildHeader>,
    last: Cell<*mut ChildHeader>,
    /// Those of them with a future.
    pending: Cell<usize>,
    /// Those that are to be polled.
    ready_first: Cell<*mut ChildWaker>,
    ready_last: Cell<*mut ChildWaker>,
    /// Those that have woken themselves in this poll of the scope: to be polled in the next one.
    later: ChildQueue,
    /// Those that did so in the last one.
    due: ChildQueue,
    /// The next to be polled is one of those, if there is one. FAIR
    is_for_due: Cell<bool>,
    /// Memory to be used again, and how much.
    spare: Cell<*mut ChildHeader>,
    /// All children have been told of the cancel.
    announced: Cell<bool>,
    /// How many children have said so in their last poll after that: they are not to be dropped. LEFT-ALONE in `cancel`
    staying: Cell<usize>,
    /// The waker that the scope was last polled with, if it need not be told that again: only compared.
    known: Cell<(*const (), *const RawWakerVTable)>,
    /// The waker that the body is polled with, while the scope is polled.
    pub(super) body_waker: Cell<*const Waker>,
    /// The body is to be polled again: what it waits for, of what was started, is done.
    body_woken: Cell<bool>,
    panic: Cell<Option<ChildPanic>>,
    /// `end` was called.
    over: Cell<bool>,
    /// Those that were spawned and may not have ended.
    tasks: Cell<Vec<Task>>,
    /// Something was spawned in it.
    has_spawned: Cell<bool>,
    /// How it is cancelled with what is around it, once something was spawned in it. SPAWNED-SEE in `cancel`
    around: Cell<Item>,
}

/// What became of what was started.
pub(super) enum StartOutcome<T> {
    Done(T),
    /// It waits. The reference is for a `Started`.
    Waits(NonNull<ChildHeader>),
    Panicked,
}

impl Children {
    pub(super) fn new() -> Children {
        let reach = CancelScope::new();
        Children {
            link: CancelFrame::of(Arc::as_ptr(&reach)),
            reach,
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

    /// The scope is polled with this waker. `false`: it has to be left before the scope rests. STORE-OR-SEE in
    /// `reach`
    #[inline]
    pub(super) fn polled_with(&self, waker: &Waker) -> bool {
        let now: (*const (), *const RawWakerVTable) = (waker.data(), waker.vtable());
        if self.known.get() == now {
            return true;
        }
        let is_known = self.reach.polled_with(waker);
        self.known.set(if is_known { now } else { (null(), null()) });
        is_known
    }

    /// Whether this thread is polling the scope. INSIDE
    #[inline]
    pub(super) fn is_inside(&self, here: &ThreadContext) -> bool {
        self.inside.load(Ordering::Relaxed) == std::ptr::from_ref(here).addr()
    }

    /// Makes this the thread that polls the scope while `f` is called.
    #[inline]
    pub(super) fn inside<R>(&self, here: &ThreadContext, f: impl FnOnce() -> R) -> R {
        struct LeaveChildren<'a>(&'a Children);
        impl Drop for LeaveChildren<'_> {
            fn drop(&mut self) {
                self.0.inside.store(0, Ordering::Relaxed);
            }
        }
        self.inside.store(std::ptr::from_ref(here).addr(), Ordering::Relaxed);
        let _out = LeaveChildren(self);
        f()
    }

    #[inline]
    #[track_caller]
    pub(super) fn assert_inside(&self, here: &ThreadContext, what: &str) {
        if !self.is_inside(here) {
            refuse_outside(what);
        }
    }

    /// Starts a child: polls it, here and now.
    ///
    /// # Safety
    ///
    /// What `F` borrows is there until `end` was called; `F` and its output may be on the threads that poll
    /// and end the scope.
    #[inline]
    #[track_caller]
    pub(super) unsafe fn start<F: Future>(&self, future: F) -> StartOutcome<F::Output> {
        with_context(|here| {
            self.assert_inside(here, "Scope::start called");
            let (memory, layout) = self.memory(Layout::new::<Whole<F>>());
            let whole = memory.cast::<Whole<F>>();
            let child = ChildHeader {
                strand: ChildWaker::new(&self.reach, layout),
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
            // SAFETY: the memory is ours, and has room for it.
            unsafe { whole.write(Whole { child, stage }) };
            let child = whole.cast::<ChildHeader>();
            // SAFETY: it is new: its future is there. NO-BORROW
            let poll = |cx: &mut Context<'_>| unsafe { Whole::<F>::poll_inline(child, cx) };
            // Around the child is its scope, whatever is around who started it. ON-THE-STACK, by INSIDE
            let link = here.replace_frame(&raw const self.link);
            let stays = here.stays();
            // SAFETY: it is of this scope, which is polled here. This does not unwind.
            let (polled, after) = unsafe { ChildWaker::poll(child.cast(), here, false, poll) };
            here.set_frame(link);
            match polled {
                Ok(Poll::Ready(output)) => {
                    self.leave(child);
                    StartOutcome::Done(output)
                }
                Ok(Poll::Pending) => {
                    if self.announced.get() {
                        // SAFETY: it is in memory until it leaves the scope.
                        self.count_staying(unsafe { child.as_ref() }, stays != here.stays());
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

    /// A child that was started has to wait. It has a reference more, for a `Started`.
    fn begin_to_wait(&self, child: NonNull<ChildHeader>, woken: bool) -> NonNull<ChildHeader> {
        self.pending.set(self.pending.get() + 1);
        self.append(child);
        // SAFETY: it is in memory until it leaves the scope.
        unsafe { child.as_ref() }.strand.add_ref();
        if woken {
            self.put_off(child);
        }
        child
    }

    /// Memory for a child, with its own layout: that of one that is gone, if it is large enough.
    #[inline]
    fn memory(&self, layout: Layout) -> (NonNull<u8>, Layout) {
        if let Some(spare) = NonNull::new(self.spare.get()) {
            // SAFETY: what is spare still has its layout.
            let has = unsafe { spare.as_ref() }.strand.layout();
            if has.size() >= layout.size() && has.align() >= layout.align() {
                self.spare.set(null_mut());
                return (spare.cast(), has);
            }
        }
        // SAFETY: a child is not of size zero.
        let memory = NonNull::new(unsafe { alloc(layout) });
        (memory.unwrap_or_else(|| handle_alloc_error(layout)), layout)
    }

    /// Polls a child: whether it is done, and whether it woke itself. Its stage is as that says.
    ///
    /// # Safety
    ///
    /// It is of this scope, which is polled here, and has a future; `in_line` as for [`ChildWaker::poll`].
    #[inline]
    unsafe fn poll_child(
        &self,
        child: NonNull<ChildHeader>,
        here: &ThreadContext,
        in_line: bool,
    ) -> (Result<bool, ChildPanic>, bool) {
        // SAFETY: handed on from the caller.
        let this = unsafe { child.as_ref() };
        // SAFETY: handed on from the caller. NO-BORROW
        let poll = |cx: &mut Context<'_>| unsafe { (this.vtable.get().poll)(child, cx) };
        let stays = here.stays();
        // SAFETY: handed on from the caller.
        let (polled, after) = unsafe { ChildWaker::poll(child.cast(), here, in_line, poll) };
        if self.announced.get() {
            self.count_staying(this, matches!(polled, Ok(false)) && stays != here.stays());
        }
        match &polled {
            Ok(false) => {}
            Ok(true) => this.stage.set(ChildStage::Output),
            Err(_) => this.stage.set(ChildStage::Panicked),
        }
        (polled, after.woken)
    }

    /// A child has ended, or rests, after the scope was cancelled.
    #[cold]
    fn count_staying(&self, child: &ChildHeader, stays: bool) {
        if child.stays.replace(stays) != stays {
            let count = self.staying.get();
            self.staying.set(if stays { count + 1 } else { count - 1 });
        }
    }

    /// Whether something in the scope, which is cancelled, is not to be dropped. LEFT-ALONE in `cancel`
    #[cold]
    pub(super) fn stays(&self) -> bool {
        self.staying.get() > 0
            || self.is_to_announce()
            || !self.ready_first.get().is_null()
            || self.reach.spawned.load(Ordering::Acquire) > 0
    }

    /// Lets go of a child that has neither future nor output.
    #[inline]
    fn leave(&self, child: NonNull<ChildHeader>) {
        // SAFETY: it is in memory.
        unsafe { child.as_ref() }.stage.set(ChildStage::Nothing);
        // SAFETY: it is of this scope, and is not used again unless it is ours alone.
        if unsafe { ChildWaker::leave(child.cast(), &self.reach) }
            && let Some(old) = NonNull::new(self.spare.replace(child.as_ptr()))
        {
            free_memory(old);
        }
    }

    fn append(&self, child: NonNull<ChildHeader>) {
        // SAFETY: it is in memory.
        let this = unsafe { child.as_ref() };
        this.previous.set(self.last.get());
        match NonNull::new(self.last.replace(child.as_ptr())) {
            // SAFETY: what is in the list is in memory.
            Some(last) => unsafe { last.as_ref() }.next.set(child.as_ptr()),
            None => self.first.set(child.as_ptr()),
        }
    }

    /// Takes a child out of the list that has nothing any more.
    fn remove(&self, child: NonNull<ChildHeader>) {
        // SAFETY: it is in memory.
        let this = unsafe { child.as_ref() };
        self.forget_joiner(this);
        let (previous, next) = (this.previous.get(), this.next.get());
        match NonNull::new(previous) {
            // SAFETY: what is in the list is in memory.
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

    /// Polls the next child that is to be polled, if any.
    pub(super) fn poll_next(&self, here: &ThreadContext) {
        let Some((child, in_line)) = self.next() else { return };
        // SAFETY: it is in the list, or the reference of the line keeps it in memory.
        let this = unsafe { child.as_ref() };
        if in_line {
            if this.stage.get() != ChildStage::Future {
                // SAFETY: the reference is ours.
                return unsafe { ChildWaker::drop_ref(child.cast()) };
            }
            this.strand.note_dequeued();
            if this.is_put_off.get() {
                // It will be polled in any case, and not before. Its reference is not the last. BIASED
                // SAFETY: the reference is ours.
                return unsafe { ChildWaker::drop_ref(child.cast()) };
            }
        }
        // SAFETY: it is of this scope, and has a future.
        let (polled, woken) = unsafe { self.poll_child(child, here, in_line) };
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

    /// The future of a child in the list is gone.
    fn done(&self, child: NonNull<ChildHeader>) {
        // SAFETY: what is in the list is in memory.
        let this = unsafe { child.as_ref() };
        self.pending.set(self.pending.get() - 1);
        let joiner = this.joiner.take();
        if !this.is_wanted.load(Ordering::Acquire) {
            self.drop_output(child);
        } else if let Some(Joiner::Waker(_)) = joiner {
            this.joiner.set(Some(Joiner::Woken));
            self.link.count_on_their_way(1);
        }
        match joiner {
            Some(Joiner::Body) => self.body_woken.set(true),
            Some(Joiner::Waker(waker)) => wake(waker),
            Some(Joiner::Woken) | None => {}
        }
    }

    /// Drops what a child left, if it did, and takes it out of the list.
    fn drop_output(&self, child: NonNull<ChildHeader>) {
        // SAFETY: what is in the list is in memory.
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

    /// Something in the scope has panicked: all is cancelled. The first panic goes on when all has ended;
    /// the others have been reported where they happened.
    pub(super) fn panicked(&self, payload: ChildPanic) {
        if payload.is::<Dropped>() {
            return;
        }
        match self.panic.take() {
            // Who waits for what has panicked says so, too; what that panicked with comes first.
            Some(first) if !first.is::<StartedPanicked>() => {
                self.panic.set(Some(first));
                discard(Err(payload));
            }
            _ => self.panic.set(Some(payload)),
        }
        self.reach.cancel();
    }

    /// Whether `end` was called.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.get()
    }

    pub(super) fn take_panic(&self) -> Option<ChildPanic> {
        self.panic.take()
    }

    /// Whether there is a cancel of which the children have not been told.
    #[inline]
    pub(super) fn is_to_announce(&self) -> bool {
        self.reach.is_cancelled() && !self.announced.get()
    }

    /// Whether there is something to be done before the next child is polled: a cancel to be announced, or a body
    /// to be polled again.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.body_woken.get() || self.is_to_announce()
    }

    /// Takes note of what there is to be done, and tells all children of a cancel.
    #[cold]
    pub(super) fn announce(&self) {
        self.body_woken.set(false);
        if !self.is_to_announce() {
            return;
        }
        self.announced.set(true);
        let mut next = self.first.get();
        while let Some(child) = NonNull::new(next) {
            // SAFETY: what is in the list is in memory. `put_in_line` runs no foreign code.
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

    /// The scope is about to be polled. If something was spawned in it, it is cancelled with what is around it now, which
    /// the caller looks at after this. SPAWNED-SEE in `cancel`
    #[inline]
    pub(super) fn link_around(&self, here: &ThreadContext) {
        if self.has_spawned.get() {
            let mut around = self.around.take();
            around.register_scope(here, &self.reach);
            self.around.set(around);
        }
    }

    /// Something is about to be spawned in the scope. SPAWNED-SEE in `cancel`
    #[inline]
    pub(super) fn begin_to_spawn(&self, here: &ThreadContext) {
        if !self.has_spawned.replace(true) {
            self.link.outside(here, || {
                self.link_around(here);
                if !self.reach.is_cancelled() && is_cancelled_in(here) {
                    self.reach.cancel(); // LINK-OR-SEE
                }
            });
        }
    }

    /// Takes note of a task that was spawned in the scope.
    pub(super) fn add_task(&self, task: Task) {
        if self.reach.is_cancelled() {
            task.cancel();
        }
        let mut tasks = self.tasks.take();
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
            if tasks.len() > tasks.capacity() / 2 {
                tasks.reserve(tasks.len()); // or it would be looked through again soon
            }
        }
        tasks.push(task);
        self.tasks.set(tasks);
    }

    /// What has not ended: how many that were started, and the names of tasks that were spawned.
    #[cfg(feature = "tracing")]
    pub(super) fn left(&self) -> (usize, Vec<String>) {
        let tasks = self.tasks.take();
        let names =
            tasks.iter().filter(|task| !task.is_finished()).map(|task| task.name().to_string()).collect();
        self.tasks.set(tasks);
        (self.pending.get(), names)
    }

    /// Whether all that was started and spawned has ended.
    #[inline]
    pub(super) fn have_ended(&self) -> bool {
        self.pending.get() == 0 && self.reach.spawned.load(Ordering::Acquire) == 0
    }

    /// Drops all that is left, in the order in which it was started, and cancels what was spawned. `true`:
    /// something had not ended. For whoever has the scope exclusively.
    pub(super) fn end(&self) -> bool {
        if self.over.replace(true) {
            return false;
        }
        // All foreign code in here is caught. If it were not, children would be left to whoever has their
        // wakers, without the reach.
        let abort = AbortOnUnwind("the end of a scope panicked");
        let had_ended = self.have_ended();
        while self.due.next().or_else(|| self.later.next()).is_some() {}
        while let Some(child) = NonNull::new(self.first.get()) {
            // SAFETY: what is in the list is in memory.
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
        // What is put in line from now on finds nobody.
        if let Some(list) = self.reach.ready.close() {
            self.line_up(list.first, list.last);
        }
        while let Some(strand) = self.next_ready() {
            // SAFETY: the line's reference is ours.
            unsafe { ChildWaker::drop_ref(strand) };
        }
        let tasks = self.tasks.take();
        if !had_ended {
            self.reach.cancel();
            tasks.iter().for_each(Task::cancel);
        }
        if let Some(spare) = NonNull::new(self.spare.replace(null_mut())) {
            free_memory(spare);
        }
        drop(self.around.take());
        self.reach.end();
        std::mem::forget(abort);
        !had_ended
    }

    /// Takes the output of a child, if it is done; otherwise sees to it that `waker` is woken when it is.
    /// `None`: it panicked.
    ///
    /// # Safety
    ///
    /// It is a child of this scope, with a reference of the caller's (which is given up if this is ready),
    /// and `T` is its output.
    #[track_caller]
    pub(super) unsafe fn poll_output<T>(
        &self,
        child: NonNull<ChildHeader>,
        waker: &Waker,
    ) -> Poll<Option<T>> {
        with_context(|here| {
            self.assert_inside(here, "what was started was awaited");
            // SAFETY: the caller's reference keeps it in memory.
            let this = unsafe { child.as_ref() };
            match this.stage.get() {
                // A race that is decided, inside of the scope, would drop the value. EXACT in `cancel::wait`
                ChildStage::Output if is_lost(here) && !self.link.is_lost() => Poll::Pending,
                ChildStage::Output => {
                    let mut output = std::mem::MaybeUninit::<T>::uninit();
                    // SAFETY: the child is done, and there is room.
                    unsafe { (this.vtable.get().take_output)(child, output.as_mut_ptr().cast()) };
                    // SAFETY: handed on from the caller. It is not the last. BIASED
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
                    // Who is polled with the body's waker is reached by polling the body, without a wake-up.
                    // SAFETY: it is the waker of a poll that this thread is in. INSIDE
                    let body = unsafe { self.body_waker.get().as_ref() };
                    let joiner = match body.is_some_and(|body| body.will_wake(waker)) {
                        true => Joiner::Body,
                        false => {
                            self.note_awaited(here, waker);
                            Joiner::Waker(GuardedWaker::of(waker))
                        }
                    };
                    drop(this.joiner.replace(Some(joiner)));
                    Poll::Pending
                }
            }
        })
    }

    /// A child is awaited by another waker than the body's. ON-ITS-WAY
    fn note_awaited(&self, here: &ThreadContext, waker: &Waker) {
        // SAFETY: it is the waker of a poll that this thread is in.
        let is_own = unsafe { here.own_waker().as_ref() }.is_some_and(|own| own.will_wake(waker));
        if !is_own {
            self.link.note_awaited(here);
        }
    }

    /// No joiner is to be woken any more when a child is done.
    fn forget_joiner(&self, child: &ChildHeader) {
        match child.joiner.take() {
            None | Some(Joiner::Body) => {}
            // A waker's destructor is foreign code.
            Some(Joiner::Waker(waker)) => discard(catch_unwind(AssertUnwindSafe(|| drop(waker)))),
            Some(Joiner::Woken) => self.link.count_on_their_way(-1), // ON-ITS-WAY
        }
    }

    /// Nobody will ask for the output of a child.
    ///
    /// # Safety
    ///
    /// The reference is the caller's, who gives it up; it is a child of this scope, if that still exists.
    pub(super) unsafe fn disown(&self, child: NonNull<ChildHeader>) {
        // SAFETY: the caller's reference keeps it in memory.
        let this = unsafe { child.as_ref() };
        this.is_wanted.store(false, Ordering::Release);
        // On another thread it is left to the scope. INSIDE
        if with_context(|here| self.is_inside(here)) {
            self.forget_joiner(this);
            if matches!(this.stage.get(), ChildStage::Output | ChildStage::Panicked) {
                self.drop_output(child);
            }
        }
        // SAFETY: handed on from the caller.
        unsafe { ChildWaker::drop_ref(child.cast()) };
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse_outside(what: &str) -> ! {
    panic!(
        "{what} outside of its scope: what is started in a scope runs where that does. Do so in the scope's own body, \
         or in what was started in it"
    );
}
