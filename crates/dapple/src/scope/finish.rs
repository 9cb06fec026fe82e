//! The future of a scope: its body and its children.
//!
//! # Invariants
//!
//! * **OUTLIVES**: the body and the children are dropped in `poll`, or in `drop`: before the scope that they
//!   refer to, and before anything that they borrow from outside of it.
//! * **BRANDED**: a scope is invariant in both its lifetimes, and the body must compile for any first one. So
//!   a child cannot borrow from the body's own variables, and cannot leave the scope.

use std::cell::Cell;
use std::fmt;
use std::marker::{PhantomData, PhantomPinned};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr::null;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::children::{ChildPanic, Children};
use super::{Started, spawned};
use crate::JoinHandle;
use crate::cancel::check::{is_cancelled_around, is_current_cancelled};
use crate::cancel::item::{Item, Then};
use crate::cancel::scope::CancelScope;
use crate::context::{ThreadContext, with_context};
#[cfg(feature = "tracing")]
use crate::task::guarded::guarded;

/// Most polls of the body and the children in one poll of the scope. FAIR in `children::ready`
const TURN: usize = 256;

/// A scope, passed to the body of [`finish`]: all children started or spawned in it end before `finish`
/// returns.
///
/// Use it to run several futures at once. Children may borrow variables declared outside of the `finish`
/// block (`'env`), but not variables of the body.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let text = String::from("borrowed");
///     let sum = dapple::finish(async |scope| {
///         let length = scope.start(async { text.len() }); // in this task
///         let parallel = scope.spawn(async { 34 }); // a task of its own
///         length.await + parallel.await.unwrap()
///     });
///     assert_eq!(sum.await, 42);
/// });
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    children: Children,
    /// BRANDED
    scope: PhantomData<Cell<&'scope mut &'scope ()>>,
    env: PhantomData<Cell<&'env mut &'env ()>>,
}

// SAFETY: children and their outputs are `Send`.
unsafe impl Send for Scope<'_, '_> {}
// SAFETY: only the thread that polls the scope touches the children, which is checked (INSIDE). The rest is
// shared through `CancelScope`, which is `Sync`.
unsafe impl Sync for Scope<'_, '_> {}

/// A scope, passed to the body of [`finish_local`]. As [`Scope`], but children need not be `Send`.
///
/// # Examples
///
/// ```
/// use std::cell::Cell;
///
/// dapple::run(async {
///     let sum = Cell::new(0); // not `Sync`: borrowed by children on this thread
///     dapple::finish_local(async |scope| {
///         for number in 1..=3 {
///             let sum = &sum;
///             scope.start(async move { sum.set(sum.get() + number) });
///         }
///     })
///     .await;
///     assert_eq!(sum.get(), 6);
/// });
/// ```
pub struct LocalScope<'scope, 'env: 'scope> {
    children: Children,
    /// BRANDED
    scope: PhantomData<Cell<&'scope mut &'scope ()>>,
    env: PhantomData<Cell<&'env mut &'env ()>>,
    not_send: PhantomData<*const ()>,
}

macro_rules! impl_scope {
    ($scope:ident $(, $send:ident)?) => {
        impl<'scope, 'env> $scope<'scope, 'env> {
            /// Starts a child: a future that runs in this task, never in parallel with the other children of
            /// the scope.
            ///
            /// The child is polled before this returns. If it has to wait, the scope goes on, and polls the
            /// child again when it is woken. If it ends at once, the effect is that of awaiting it.
            ///
            /// # Panics
            ///
            /// Outside of the scope's own poll, for example on another thread.
            ///
            /// # Cancellation
            ///
            /// A child of a cancelled scope is started nevertheless, and its waits return
            /// [`Cancelled`](crate::Cancelled).
            ///
            /// # Examples
            ///
            /// ```
            /// use dapple::time::{Duration, sleep};
            ///
            /// dapple::run(async {
            ///     let words = [String::from("one"), String::from("two")]; // children may borrow
            ///     let lengths = dapple::finish(async |scope| {
            ///         let first = scope.start(async { sleep(Duration::from_millis(1)).await.map(|()| words[0].len()) });
            ///         let second = scope.start(async { words[1].len() });
            ///         (first.await, second.await)
            ///     });
            ///     assert_eq!(lengths.await, (Ok(3), 3));
            /// });
            /// ```
            #[inline]
            #[track_caller]
            pub fn start<F>(&'scope self, future: F) -> Started<'scope, F::Output>
            where
                F: Future $(+ $send)? + 'scope,
                $(F::Output: $send,)?
            {
                // SAFETY: the scope ends the child before anything that the child borrows is dropped.
                // OUTLIVES, BRANDED
                Started::new(&self.children, unsafe { self.children.start(future) })
            }

            /// Spawns a task, which runs in parallel, as [`dapple::spawn`](crate::spawn()) does. The scope
            /// waits for the task, and cancels it when the scope is cancelled.
            ///
            /// A panic of the task is in its handle. If you do not need the handle, call
            /// [`detach`](JoinHandle::detach) on it: the scope still waits for the task.
            ///
            /// # Cancellation
            ///
            /// A task of a cancelled scope is spawned nevertheless, and is cancelled from the start: its
            /// first wait returns [`Cancelled`](crate::Cancelled). [`shield`](crate::shield) works inside of
            /// the task as usual.
            ///
            /// A cancelled scope cancels the task as [`JoinHandle::cancel`] does: if the task then waits in
            /// no future of this crate that could return `Cancelled`, its future is dropped.
            ///
            /// # Panics
            ///
            /// Outside of a runtime, and outside of the scope's own poll.
            ///
            /// # Examples
            ///
            /// ```
            /// dapple::run(async {
            ///     let sum = dapple::finish(async |scope| {
            ///         let halves = [scope.spawn(async { (0..50).sum::<u32>() }), scope.spawn(async { (50..100).sum() })];
            ///         let mut sum = 0;
            ///         for half in halves {
            ///             sum += half.await.unwrap();
            ///         }
            ///         sum
            ///     });
            ///     assert_eq!(sum.await, 4950);
            /// });
            /// ```
            #[track_caller]
            pub fn spawn<F>(&'scope self, future: F) -> JoinHandle<F::Output>
            where
                F: Future + Send + 'static,
                F::Output: Send + 'static,
            {
                spawned::spawn(&self.children, future)
            }

            /// Cancels the scope. A wait that has begun returns its result or
            /// [`Cancelled`](crate::Cancelled); a wait that begins after this call is `Cancelled`. Running
            /// code goes on.
            ///
            /// The cancel reaches the body, all children, all tasks [spawned](Self::spawn) in the scope, on
            /// whatever worker they run, and all scopes inside of those.
            ///
            /// A future that is not of this crate (a channel of another crate, [`std::future::pending`]) does
            /// not see the cancel. In the body, or in a [started](Self::start) child, the scope waits for it:
            /// wrap such a future in [`or_cancelled`](crate::or_cancelled). A [spawned](Self::spawn) task
            /// that waits in such a future is ended, as by [`JoinHandle::cancel`]: its future is dropped, and
            /// [`is_aborted`](crate::JoinError::is_aborted) holds for the error of its handle. A
            /// [`shield`](crate::shield) protects both.
            ///
            /// # Examples
            ///
            /// ```
            /// use dapple::time::{Duration, sleep};
            ///
            /// dapple::run(async {
            ///     let slow = dapple::finish(async |scope| {
            ///         let slow = scope.start(sleep(Duration::from_secs(3600)));
            ///         scope.cancel();
            ///         slow.await // ended by itself, at once
            ///     });
            ///     assert_eq!(slow.await, Err(dapple::Cancelled));
            /// });
            /// ```
            pub fn cancel(&self) {
                self.children.cancel_scope.cancel();
            }

            /// Whether the scope, a scope around it, or its task was cancelled.
            ///
            /// Outside of the scope's own poll, it looks only at the scope itself.
            #[must_use]
            pub fn is_cancelled(&self) -> bool {
                self.children.cancel_scope.is_cancelled()
                    || with_context(|context| self.children.is_inside(context)) && is_current_cancelled()
            }

            /// Returns a handle that cancels the scope from anywhere, at any time.
            #[must_use]
            pub fn canceller(&self) -> Canceller {
                Canceller { cancel_scope: self.children.cancel_scope.clone() }
            }
        }

        impl fmt::Debug for $scope<'_, '_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let cancelled = self.children.cancel_scope.is_cancelled();
                f.debug_struct(stringify!($scope)).field("cancelled", &cancelled).finish_non_exhaustive()
            }
        }
    };
}

impl_scope!(Scope, Send);
impl_scope!(LocalScope);

/// Handle that cancels a scope from another task, another thread, or a signal handler's thread. Made by
/// [`Scope::canceller`].
///
/// A second cancel, or one after the end of the scope, does nothing.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, sleep};
///
/// dapple::run(async {
///     let slept = dapple::finish(async |scope| {
///         let canceller = scope.canceller();
///         std::thread::spawn(move || canceller.cancel());
///         sleep(Duration::from_secs(3600)).await
///     });
///     assert_eq!(slept.await, Err(dapple::Cancelled));
/// });
/// ```
#[derive(Clone)]
pub struct Canceller {
    cancel_scope: Arc<CancelScope>,
}

impl Canceller {
    /// Cancels the scope, as [`Scope::cancel`] does: no wait that begins in the scope after this call
    /// succeeds.
    pub fn cancel(&self) {
        self.cancel_scope.cancel();
    }

    /// Whether the scope was cancelled. A cancel around the scope counts once the scope has seen it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel_scope.is_cancelled()
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// The body: its closure, its future, or its output.
enum BodyState<F, Fut: Future> {
    New(F),
    Runs(Fut),
    Done(Fut::Output),
    /// The output was taken, or the body panicked.
    Gone,
}

/// Runs `body`, waits for all children started and spawned in it, and returns the body's output.
///
/// Use it to run futures at once that borrow local variables, or to cancel several futures together.
///
/// ```text
/// finish(body)  ---- body runs ---------- body ends ........... waits ....... returns the body's output
///   child 1           ---- started --------------------- ends
///   child 2                 ---- spawned -------------------------------- ends
/// ```
///
/// ```
/// use dapple::time::{Duration, sleep};
///
/// dapple::run(async {
///     let names = ["a", "b", "c"];
///     let count = dapple::sync::Mutex::new(0);
///     dapple::finish(async |scope| {
///         for name in &names {
///             scope.start(async {
///                 sleep(Duration::from_millis(name.len() as u64)).await.unwrap();
///                 *count.lock().await.unwrap() += 1;
///             });
///         }
///     })
///     .await;
///     assert_eq!(*count.lock().await.unwrap(), 3);
/// });
/// ```
///
/// # Panics
///
/// If the body or a started child panics. The other children are cancelled; when they have ended, the first
/// panic goes on.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: started children are dropped, in the order in which they were started; spawned
/// tasks are cancelled, and go on without the scope.
/// *Scope cancelled*: the cancel reaches this scope and all scopes inside of it; `finish` waits for all
/// children and returns the body's output.
#[track_caller]
pub fn finish<'env, R, F, Fut>(body: F) -> Finish<'env, F, Fut>
where
    F: for<'scope> AsyncFnOnce(&'scope Scope<'scope, 'env>) -> R,
    F: FnOnce(&'env Scope<'env, 'env>) -> Fut,
    Fut: Future<Output = R>,
{
    let scope = Scope { children: Children::new(), scope: PhantomData, env: PhantomData };
    Finish {
        body: BodyState::New(body),
        scope,
        outer: Item::default(),
        place: ScopeLocation::of_caller(),
        late: Late::default(),
        _pinned: PhantomPinned,
    }
}

/// Place where a scope was made. Only used by `tracing`.
#[derive(Clone, Copy)]
struct ScopeLocation {
    #[cfg(feature = "tracing")]
    location: &'static std::panic::Location<'static>,
}

impl ScopeLocation {
    #[track_caller]
    fn of_caller() -> ScopeLocation {
        ScopeLocation {
            #[cfg(feature = "tracing")]
            location: std::panic::Location::caller(),
        }
    }

    /// Reports a scope that was dropped before all of it had ended.
    fn was_dropped(self) {
        #[cfg(feature = "tracing")]
        guarded(|| tracing::debug!(place = %self.location, "a scope was dropped rather than cancelled"));
    }
}

/// Time that a cancelled scope may wait before a warning.
#[cfg(feature = "tracing")]
const TOO_LONG: std::time::Duration = std::time::Duration::from_secs(1);

/// Warns of a cancelled scope that does not end because a future in it ignores the cancel. Only used by
/// `tracing`.
#[derive(Default)]
struct Late {
    #[cfg(feature = "tracing")]
    alarm: crate::sched::wake_timer::WakeTimer,
    #[cfg(feature = "tracing")]
    is_told: bool,
}

impl Late {
    /// Called at the end of a poll in which the scope has not ended.
    #[cfg(feature = "tracing")]
    fn look(&mut self, children: &Children, place: ScopeLocation, cx: &mut Context<'_>) {
        if self.is_told || !children.cancel_scope.is_cancelled() {
            return;
        }
        if !self.alarm.is_late() {
            return self.alarm.set(TOO_LONG, cx);
        }
        self.is_told = true;
        self.alarm.unset();
        let (started, spawned) = children.left();
        guarded(|| {
            tracing::warn!(
                place = %place.location,
                started,
                ?spawned,
                "a scope was cancelled a second ago and still waits: wrap a future that ignores cancels in or_cancelled"
            );
        });
    }

    #[cfg(not(feature = "tracing"))]
    #[inline]
    fn look(&mut self, _children: &Children, _place: ScopeLocation, _cx: &mut Context<'_>) {}
}

/// As [`finish`], for children that are not `Send`: in the main color, or wherever such futures are polled.
/// Children may share a plain [`Cell`].
///
/// # Examples
///
/// ```
/// use std::cell::Cell;
///
/// dapple::run(async {
///     let hits = Cell::new(0);
///     dapple::finish_local(async |scope| {
///         for _ in 0..3 {
///             scope.start(async { hits.set(hits.get() + 1) });
///         }
///     })
///     .await;
///     assert_eq!(hits.get(), 3);
/// });
/// ```
///
/// # Panics
///
/// As [`finish`].
///
/// # Cancellation
///
/// As [`finish`].
#[track_caller]
pub fn finish_local<'env, R, F, Fut>(body: F) -> FinishLocal<'env, F, Fut>
where
    F: for<'scope> AsyncFnOnce(&'scope LocalScope<'scope, 'env>) -> R,
    F: FnOnce(&'env LocalScope<'env, 'env>) -> Fut,
    Fut: Future<Output = R>,
{
    let children = Children::new();
    let scope = LocalScope { children, scope: PhantomData, env: PhantomData, not_send: PhantomData };
    FinishLocal {
        body: BodyState::New(body),
        scope,
        outer: Item::default(),
        place: ScopeLocation::of_caller(),
        late: Late::default(),
        _pinned: PhantomPinned,
    }
}

macro_rules! impl_finish {
    ($(#[$doc:meta])* $finish:ident, $scope:ident) => {
        $(#[$doc])*
        #[must_use = "a future does nothing unless it is awaited"]
        pub struct $finish<'env, F, Fut: Future> {
            body: BodyState<F, Fut>,
            scope: $scope<'env, 'env>,
            /// Link by which a cancel from outside arrives.
            outer: Item,
            place: ScopeLocation,
            late: Late,
            _pinned: PhantomPinned,
        }

        impl<'env, F, Fut> Future for $finish<'env, F, Fut>
        where
            F: FnOnce(&'env $scope<'env, 'env>) -> Fut,
            Fut: Future,
        {
            type Output = Fut::Output;

            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Fut::Output> {
                // SAFETY: nothing is moved out of it.
                let this: *mut Self = unsafe { self.get_unchecked_mut() };
                // SAFETY: it is pinned, and all references to the scope are dropped before the scope is.
                // OUTLIVES
                let scope: &'env $scope<'env, 'env> = unsafe { &*(&raw const (*this).scope) };
                // SAFETY: only `poll` and `drop` touch the body and the frame; the body and the children refer
                // to the scope only.
                let body = unsafe { &mut (*this).body };
                // SAFETY: as above.
                let outer = unsafe { &mut (*this).outer };
                let polled = poll_scope(&scope.children, body, |f| f(scope), outer, cx);
                if polled.is_pending() {
                    // SAFETY: only `poll` touches these fields.
                    let (late, place) = unsafe { (&mut (*this).late, (*this).place) };
                    late.look(&scope.children, place, cx);
                }
                polled
            }
        }

        impl<F, Fut: Future> Drop for $finish<'_, F, Fut> {
            fn drop(&mut self) {
                end_scope(&self.scope.children, &mut self.body, self.place);
            }
        }

        impl<F, Fut: Future> fmt::Debug for $finish<'_, F, Fut> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($finish)).field("scope", &self.scope).finish_non_exhaustive()
            }
        }
    };
}

impl_finish!(
    /// Future of [`finish`].
    Finish, Scope
);
impl_finish!(
    /// Future of [`finish_local`].
    FinishLocal, LocalScope
);

fn poll_scope<F, Fut: Future>(
    children: &Children,
    body: &mut BodyState<F, Fut>,
    begin: impl FnOnce(F) -> Fut,
    outer: &mut Item,
    cx: &mut Context<'_>,
) -> Poll<Fut::Output> {
    assert!(!children.is_over(), "a scope that has ended was polled again");
    with_context(|context| {
        children.link_around(context);
        if !children.cancel_scope.is_cancelled() && is_cancelled_around(context, &children.cancel_scope) {
            children.cancel_scope.cancel();
        }
        let is_known = children.polled_with(cx.waker());
        let stays = context.stays();
        let has_ended = children.inside(context, || {
            children.frame.around(context, || {
                children.body_waker.set(cx.waker());
                if matches!(body, BodyState::New(_))
                    && let Err(payload) = begin_body(body, begin, context, cx)
                {
                    children.panicked(payload);
                }
                let has_ended = run(children, body, context, cx, is_known);
                children.body_waker.set(null());
                has_ended
            })
        });
        if !has_ended {
            if !children.cancel_scope.is_cancelled() {
                outer.register_in(context, cx.waker(), Then::Stays);
            } else if context.stays() != stays || children.stays() {
                context.note_stays();
                outer.register_in(context, cx.waker(), Then::Stays);
            } else if children.frame.has_on_their_way() {
                outer.register_always(context, cx.waker(), Then::Answers); // ON-ITS-WAY in `children`
            } else {
                outer.unregister(); // LEFT-ALONE in `cancel::grace`
            }
            return Poll::Pending;
        }
        outer.unregister();
        children.end();
        if let Some(payload) = children.take_panic() {
            resume_unwind(payload);
        }
        match std::mem::replace(body, BodyState::Gone) {
            BodyState::Done(output) => Poll::Ready(output),
            _ => unreachable!("a body that has ended without an output has panicked"),
        }
    })
}

/// Polls the body and the children until none is ready. Returns `true` if all have ended. `is_known`: the
/// waker is stored already.
fn run<F, Fut: Future>(
    children: &Children,
    body: &mut BodyState<F, Fut>,
    context: &ThreadContext,
    cx: &mut Context<'_>,
    is_known: bool,
) -> bool {
    let mut to_poll_body = matches!(body, BodyState::Runs(_));
    children.begin_poll();
    for _ in 0..TURN {
        if children.has_news() {
            children.announce();
            to_poll_body = true;
        }
        if std::mem::take(&mut to_poll_body) {
            if let Err(payload) = poll_body(body, context, cx) {
                children.panicked(payload);
            }
            continue; // the body may have cancelled the scope
        }
        if children.has_ready() {
            children.poll_next(context);
            continue;
        }
        if children.has_put_off() {
            break;
        }
        let is_done = || !matches!(body, BodyState::Runs(_)) && children.have_ended();
        if is_done() {
            return true;
        }
        if is_known {
            return false; // each event not seen yet wakes this poller
        }
        children.cancel_scope.store_waker(cx.waker());
        // An event before the waker was stored may not have woken this poller. STORE-OR-SEE
        if !children.is_to_announce() && !is_done() && children.cancel_scope.ready.is_empty() {
            return false;
        }
    }
    // Children that are always ready yield to other tasks.
    cx.waker().wake_by_ref();
    false
}

/// Creates the body's future from its closure.
#[cold]
fn begin_body<F, Fut: Future>(
    body: &mut BodyState<F, Fut>,
    begin: impl FnOnce(F) -> Fut,
    context: &ThreadContext,
    cx: &mut Context<'_>,
) -> Result<(), ChildPanic> {
    let BodyState::New(f) = std::mem::replace(body, BodyState::Gone) else { unreachable!("just seen") };
    let waker: *const Waker = cx.waker();
    let own = context.replace_own_waker(waker);
    let begun = catch_unwind(AssertUnwindSafe(|| begin(f)));
    context.replace_own_waker(own);
    begun.map(|future| *body = BodyState::Runs(future))
}

/// Polls the body, if it has not ended.
fn poll_body<F, Fut: Future>(
    body: &mut BodyState<F, Fut>,
    context: &ThreadContext,
    cx: &mut Context<'_>,
) -> Result<(), ChildPanic> {
    let BodyState::Runs(future) = body else { return Ok(()) };
    // SAFETY: structurally pinned: it is not moved until it is dropped in place.
    let future = unsafe { Pin::new_unchecked(future) };
    let waker: *const Waker = cx.waker();
    let own = context.replace_own_waker(waker);
    let polled = catch_unwind(AssertUnwindSafe(|| future.poll(cx)));
    context.replace_own_waker(own);
    match polled {
        Ok(Poll::Pending) => Ok(()),
        Ok(Poll::Ready(output)) => {
            let dropped = drop_body(body);
            *body = BodyState::Done(output);
            dropped
        }
        Err(payload) => {
            let _ = drop_body(body);
            Err(payload)
        }
    }
}

/// Drops the body in place, and catches a panic of its destructor.
fn drop_body<F, Fut: Future>(body: &mut BodyState<F, Fut>) -> Result<(), ChildPanic> {
    catch_unwind(AssertUnwindSafe(|| *body = BodyState::Gone))
}

/// Drops the rest of a scope: the body, then the children. OUTLIVES
fn end_scope<F, Fut: Future>(children: &Children, body: &mut BodyState<F, Fut>, place: ScopeLocation) {
    let body_ran = matches!(body, BodyState::Runs(_));
    let dropped = drop_body(body);
    if children.end() || body_ran {
        place.was_dropped();
    }
    let first = dropped.err().or_else(|| children.take_panic());
    if let Some(payload) = first
        && !std::thread::panicking()
    {
        resume_unwind(payload);
    }
}
