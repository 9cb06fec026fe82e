//! The future of a scope: its body, and what was started in it.
//!
//! # Invariants
//!
//! * **OUTLIVES**: the body and what was started are dropped before the scope that they refer to, and
//!   before anything that they borrow from outside of it can be: in `poll`, or in `drop`.
//! * **BRANDED**: a scope is invariant in both its lifetimes, and the body must work for any first one. So
//!   what is started cannot borrow from the body's own variables, and cannot leave.

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

/// How many polls of the body and of what was started there may be in one poll of the scope. FAIR in `children`
const TURN: usize = 256;

/// A scope, given to the body of [`finish`]: what is started in it has ended before `finish` has.
///
/// What is started may borrow what was declared outside of the `finish` block (`'env`), not what the body
/// declares itself.
pub struct Scope<'scope, 'env: 'scope> {
    children: Children,
    /// BRANDED
    scope: PhantomData<Cell<&'scope mut &'scope ()>>,
    env: PhantomData<Cell<&'env mut &'env ()>>,
}

// SAFETY: what is started in it is `Send`, and so is what that leaves.
unsafe impl Send for Scope<'_, '_> {}
// SAFETY: its children are touched inside of its poll alone, which is checked (INSIDE); the rest is shared
// through `CancelScope`, which is `Sync`.
unsafe impl Sync for Scope<'_, '_> {}

/// A scope, given to the body of [`finish_local`]; see [`Scope`]. What is started need not be `Send`.
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
            /// Starts a future: in this task, at once, never in parallel with the others of the scope.
            ///
            /// It is polled before this returns. If it has to wait, the scope goes on, and polls it again
            /// when it is woken. If it does not, it is as if it had been awaited.
            ///
            /// # Panics
            ///
            /// Outside of the scope's own poll, that is, on another thread.
            ///
            /// # Cancellation
            ///
            /// In a cancelled scope it is started all the same, and its waits return
            /// [`Cancelled`](crate::Cancelled).
            #[inline]
            #[track_caller]
            pub fn start<F>(&'scope self, future: F) -> Started<'scope, F::Output>
            where
                F: Future $(+ $send)? + 'scope,
                $(F::Output: $send,)?
            {
                // SAFETY: the scope ends what is started in it before what that borrows is gone.
                // OUTLIVES, BRANDED
                Started::new(&self.children, unsafe { self.children.start(future) })
            }

            /// Spawns a task: in parallel, as [`dapple::spawn`](crate::spawn()) does. The scope waits for
            /// it, and cancels it when it is cancelled itself. Its handle tells of a panic. Without need of the
            /// handle, call [`detach`](JoinHandle::detach) on it: the scope waits for the task all the same.
            ///
            /// # Cancellation
            ///
            /// In a cancelled scope it is spawned all the same, and is cancelled from the start: its first wait
            /// returns [`Cancelled`](crate::Cancelled). [`shield`](crate::shield) inside of the task protects as ever.
            ///
            /// A cancel of the scope reaches the task as [`JoinHandle::cancel`] does: if the task then waits in nothing
            /// of this crate that could return `Cancelled`, its future is dropped.
            ///
            /// # Panics
            ///
            /// Outside of a runtime, and outside of the scope's own poll.
            #[track_caller]
            pub fn spawn<F>(&'scope self, future: F) -> JoinHandle<F::Output>
            where
                F: Future + Send + 'static,
                F::Output: Send + 'static,
            {
                spawned::spawn(&self.children, future)
            }

            /// Cancels all that is in the scope: a wait that has begun returns its result or
            /// [`Cancelled`](crate::Cancelled); a wait that begins after this has returned is `Cancelled`. Code that
            /// runs goes on.
            ///
            /// That holds for children, for tasks that were [spawned](Self::spawn) in the scope, on whatever worker
            /// they run, and for all that is started or spawned in scopes inside of those.
            ///
            /// A future that waits in nothing of this crate (a channel of another, [`std::future::pending`]) does not
            /// learn of the cancel. In the body, or in a child that was [started](Self::start), the scope waits for it:
            /// wrap such a future in [`or_cancelled`](crate::or_cancelled). A [spawned](Self::spawn) task that waits there
            /// is ended, as by [`JoinHandle::cancel`]: its future is dropped, and its handle says
            /// [`is_aborted`](crate::JoinError::is_aborted). A [`shield`](crate::shield) protects both.
            pub fn cancel(&self) {
                self.children.reach.cancel();
            }

            /// Whether the scope was cancelled, or one around it, or its task.
            ///
            /// Asked from elsewhere than inside of the scope, it tells of the scope itself.
            #[must_use]
            pub fn is_cancelled(&self) -> bool {
                self.children.reach.is_cancelled()
                    || with_context(|here| self.children.is_inside(here)) && is_current_cancelled()
            }

            /// What cancels the scope from anywhere, at any time.
            #[must_use]
            pub fn canceller(&self) -> Canceller {
                Canceller { reach: self.children.reach.clone() }
            }
        }

        impl fmt::Debug for $scope<'_, '_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let cancelled = self.children.reach.is_cancelled();
                f.debug_struct(stringify!($scope)).field("cancelled", &cancelled).finish_non_exhaustive()
            }
        }
    };
}

impl_scope!(Scope, Send);
impl_scope!(LocalScope);

/// Cancels a scope, from another task, another thread, or a signal's; see [`Scope::canceller`].
///
/// Once is enough, and later than the end of the scope it does nothing.
#[derive(Clone)]
pub struct Canceller {
    reach: Arc<CancelScope>,
}

impl Canceller {
    /// Cancels the scope, as [`Scope::cancel`] does: once this has returned, no wait begins in it that succeeds.
    pub fn cancel(&self) {
        self.reach.cancel();
    }

    /// Whether the scope was cancelled. A cancel around the scope counts once the scope has been told of it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.reach.is_cancelled()
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// What a body was, is, and left.
enum BodyState<F, Fut: Future> {
    New(F),
    Runs(Fut),
    Done(Fut::Output),
    /// It was taken, or it panicked.
    Gone,
}

/// Runs `body`, and waits for all that is started in it: then returns what the body returned.
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
/// If the body, or something that was started, panics: the others are cancelled, and when they have ended
/// the first panic goes on.
///
/// # Cancellation
///
/// *Dropped early*: what was started is dropped, in the order in which it was started, and what was spawned
/// is cancelled and goes on by itself. *Scope cancelled*: so are the scopes inside; `finish` waits for all.
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

/// Where a scope was made: kept for `tracing` alone.
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

    /// A scope was dropped with something in it that had not ended.
    fn was_dropped(self) {
        #[cfg(feature = "tracing")]
        guarded(|| tracing::debug!(place = %self.location, "a scope was dropped rather than cancelled"));
    }
}

/// How long a cancelled scope may wait before that is told of.
#[cfg(feature = "tracing")]
const TOO_LONG: std::time::Duration = std::time::Duration::from_secs(1);

/// Tells of a scope that was cancelled and does not end: something in it ignores that. For `tracing` alone.
#[derive(Default)]
struct Late {
    #[cfg(feature = "tracing")]
    alarm: crate::sched::wake_timer::WakeTimer,
    #[cfg(feature = "tracing")]
    is_told: bool,
}

impl Late {
    /// At the end of a poll in which the scope has not ended.
    #[cfg(feature = "tracing")]
    fn look(&mut self, children: &Children, place: ScopeLocation, cx: &mut Context<'_>) {
        if self.is_told || !children.reach.is_cancelled() {
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
                "a scope was cancelled a second ago and still waits; what ignores that can be put into or_cancelled"
            );
        });
    }

    #[cfg(not(feature = "tracing"))]
    #[inline]
    fn look(&mut self, _children: &Children, _place: ScopeLocation, _cx: &mut Context<'_>) {}
}

/// As [`finish`], for what is not `Send`: in the main color, or wherever such futures are polled. What is
/// started may share a plain [`Cell`].
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
            /// How it learns of a cancel from outside.
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
                // SAFETY: it is pinned: what refers to the scope is gone before it is. OUTLIVES
                let scope: &'env $scope<'env, 'env> = unsafe { &*(&raw const (*this).scope) };
                // SAFETY: the body and the way out are touched here alone; what the body and the children
                // refer to is the scope.
                let body = unsafe { &mut (*this).body };
                // SAFETY: as above.
                let outer = unsafe { &mut (*this).outer };
                let polled = poll_scope(&scope.children, body, |f| f(scope), outer, cx);
                if polled.is_pending() {
                    // SAFETY: it is touched here alone.
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
    /// The future of [`finish`].
    Finish, Scope
);
impl_finish!(
    /// The future of [`finish_local`].
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
    with_context(|here| {
        children.link_around(here);
        if !children.reach.is_cancelled() && is_cancelled_around(here, &children.reach) {
            children.reach.cancel();
        }
        let is_known = children.polled_with(cx.waker());
        let stays = here.stays();
        let has_ended = children.inside(here, || {
            children.link.around(here, || {
                children.body_waker.set(cx.waker());
                if matches!(body, BodyState::New(_))
                    && let Err(payload) = begin_body(body, begin, here, cx)
                {
                    children.panicked(payload);
                }
                let has_ended = run(children, body, here, cx, is_known);
                children.body_waker.set(null());
                has_ended
            })
        });
        if !has_ended {
            if !children.reach.is_cancelled() {
                outer.register_in(here, cx.waker(), Then::Stays);
            } else if here.stays() != stays || children.stays() {
                here.note_stays();
                outer.register_in(here, cx.waker(), Then::Stays);
            } else if children.link.has_on_their_way() {
                outer.register_always(here, cx.waker(), Then::Answers); // ON-ITS-WAY in `children`
            } else {
                outer.unregister(); // LEFT-ALONE in `cancel`
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

/// Polls the body and what was started until nothing is to be polled. `true`: all has ended. `is_known`: the
/// waker need not be left.
fn run<F, Fut: Future>(
    children: &Children,
    body: &mut BodyState<F, Fut>,
    here: &ThreadContext,
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
            if let Err(payload) = poll_body(body, here, cx) {
                children.panicked(payload);
            }
            continue; // it may have cancelled
        }
        if children.has_ready() {
            children.poll_next(here);
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
            return false; // what happens from now on wakes us, and so did what we have not seen
        }
        children.reach.store_waker(cx.waker());
        // What happened before that may not have woken us. STORE-OR-SEE
        if !children.is_to_announce() && !is_done() && children.reach.ready.is_empty() {
            return false;
        }
    }
    // What goes on and on gives way to others.
    cx.waker().wake_by_ref();
    false
}

/// Makes the body; there is none yet.
#[cold]
fn begin_body<F, Fut: Future>(
    body: &mut BodyState<F, Fut>,
    begin: impl FnOnce(F) -> Fut,
    here: &ThreadContext,
    cx: &mut Context<'_>,
) -> Result<(), ChildPanic> {
    let BodyState::New(f) = std::mem::replace(body, BodyState::Gone) else { unreachable!("just seen") };
    let waker: *const Waker = cx.waker();
    let own = here.replace_own_waker(waker);
    let begun = catch_unwind(AssertUnwindSafe(|| begin(f)));
    here.replace_own_waker(own);
    begun.map(|future| *body = BodyState::Runs(future))
}

/// Polls the body, if it has not ended.
fn poll_body<F, Fut: Future>(
    body: &mut BodyState<F, Fut>,
    here: &ThreadContext,
    cx: &mut Context<'_>,
) -> Result<(), ChildPanic> {
    let BodyState::Runs(future) = body else { return Ok(()) };
    // SAFETY: it is pinned, as what it lies in is: it is not moved until it is dropped in its place.
    let future = unsafe { Pin::new_unchecked(future) };
    let waker: *const Waker = cx.waker();
    let own = here.replace_own_waker(waker);
    let polled = catch_unwind(AssertUnwindSafe(|| future.poll(cx)));
    here.replace_own_waker(own);
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

/// Drops the body where it is, whatever its destructor does.
fn drop_body<F, Fut: Future>(body: &mut BodyState<F, Fut>) -> Result<(), ChildPanic> {
    catch_unwind(AssertUnwindSafe(|| *body = BodyState::Gone))
}

/// Drops what is left of a scope: the body, then what was started. OUTLIVES
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
