//! The handle of a task: a wait for its output, and the means to cancel, abort or detach it.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::check;
use super::error::Cancelled;
use super::frame;
use super::item::{Item, Then};
use super::points::{self, Begin, OBSERVES};
use crate::context::with_context;
use crate::task::cell::{PanicPayload, discard, message};
use crate::task::guarded::GuardedWaker;
use crate::task::header::Reason;
use crate::task::join_slot::JoinSlot;
use crate::task::poll::{read_reason, take_payload};
use crate::task::state::{ABORTED, DONE, ENDED, JOIN_WAKER, PANICKED};
use crate::task::{Target, Task, sealed};

/// The right to wait for a task's output, to cancel it and to abort it.
///
/// Awaiting the handle gives `Result<T, JoinError>`. Dropping it lets the task run on, as
/// [`detach`](JoinHandle::detach) does. A handle may be awaited in any task, of any runtime, and
/// by any executor.
///
/// # Cancellation
///
/// *Dropped early*: **clean**; the task runs on, and awaiting `&mut handle` again goes on waiting.
/// *Scope cancelled*: the wait returns a [`JoinError`] with
/// [`is_cancelled`](JoinError::is_cancelled), and `&mut handle` can be awaited again; if the task
/// had ended while this handle waited for it, the result is returned.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let sum = dapple::spawn(async { 1 + 2 });
///     assert_eq!(sum.await.unwrap(), 3);
/// });
/// ```
#[must_use = "dropping a handle detaches its task; say `.detach()` if that is meant"]
pub struct JoinHandle<T> {
    /// The task; `None` if the output has been taken, or there never was a task.
    task: Option<Task>,
    on_cancel: Item,
    _output: PhantomData<T>,
}

// SAFETY: the handle gives out the output and nothing else of the task, wherever it is.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared handle gives nothing out: awaiting needs it mutable.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// # Safety
    ///
    /// The task's output is a `T`, and no other handle exists.
    pub(crate) unsafe fn new(task: Task) -> JoinHandle<T> {
        JoinHandle { task: Some(task), on_cancel: Item::default(), _output: PhantomData }
    }

    /// A handle without a task: the runtime was gone.
    pub(crate) fn gone() -> JoinHandle<T> {
        JoinHandle { task: None, on_cancel: Item::default(), _output: PhantomData }
    }

    /// Asks the task to end by itself: each of its waits, now and later, returns `Cancelled`, or its result if that is
    /// ready. The task goes on running until it returns. A second call, or one after the task's end, does nothing.
    ///
    /// **Foreign futures.** If the task then waits in no future of this crate that could return `Cancelled` (it waits in a
    /// channel of another crate, or in [`std::future::pending`]), its future is dropped, as by [`abort`](Self::abort), and
    /// [`is_aborted`](JoinError::is_aborted) holds for the error of the handle. So put clean-up code that awaits a foreign
    /// future into a [`shield`](crate::shield). A task is not dropped while it is awake, or waits for a shield, for a file
    /// operation that has begun, or for a scope with spawned tasks. If it has a wait of this crate that is not polled any
    /// more (in a `FuturesUnordered`, beside a foreign future that is awaited), the task is dropped after a second. While
    /// a runtime shuts down, no task is dropped before the time limit of the shutdown.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::time::{Duration, sleep};
    ///
    /// dapple::run(async {
    ///     let task = dapple::spawn(async {
    ///         let slept = sleep(Duration::from_secs(3600)).await;
    ///         if slept.is_err() { "cleaned up" } else { "slept" } // the code after the wait runs
    ///     });
    ///     task.cancel();
    ///     assert_eq!(task.await.unwrap(), "cleaned up");
    /// });
    /// ```
    pub fn cancel(&self) {
        if let Some(task) = &self.task {
            task.cancel();
        }
    }

    /// Ends the task by dropping its future, at its next wait at the latest. The handle then gives
    /// a [`JoinError`] with [`is_aborted`](JoinError::is_aborted), unless the task was faster.
    ///
    /// The future is dropped in the task's own color, never while it or another of the color runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::time::{Duration, sleep};
    ///
    /// dapple::run(async {
    ///     let task = dapple::spawn(async {
    ///         let _ = sleep(Duration::from_secs(3600)).await;
    ///         unreachable!("the future is dropped at its wait");
    ///     });
    ///     task.abort();
    ///     assert!(task.await.unwrap_err().is_aborted());
    /// });
    /// ```
    pub fn abort(&self) {
        if let Some(task) = &self.task {
            task.wake_with(ABORTED);
        }
    }

    /// Lets the task run on without a handle; its output is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::oneshot;
    ///
    /// dapple::run(async {
    ///     let (tell, told) = oneshot::channel();
    ///     dapple::spawn(async { tell.send("it runs on").unwrap() }).detach();
    ///     assert_eq!(told.await.unwrap(), "it runs on");
    /// });
    /// ```
    pub fn detach(self) {}

    /// Whether the task has ended, in whatever way.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.header().state.load().has(DONE))
    }

    /// The task behind the handle; `None` if the runtime was gone, or the output has been taken.
    #[must_use]
    pub fn task(&self) -> Option<&Task> {
        self.task.as_ref()
    }

    /// Takes the output, the panic or the reason that the task has ended with.
    ///
    /// # Safety
    ///
    /// It is done.
    unsafe fn take(&mut self) -> Result<T, JoinError> {
        let Some(task) = self.task.take() else { return Err(JoinError(Repr::Gone)) };
        let (ptr, state) = (task.ptr(), task.header().state.load());
        if state.has(PANICKED) {
            // SAFETY: the payload is the handle's (HANDLE-OUTPUT), and taken once.
            return Err(JoinError(Repr::Panic(unsafe { take_payload(ptr) }, task.name().into())));
        }
        if state.has(ENDED) {
            // SAFETY: the task ended without an output.
            return Err(JoinError::from(unsafe { read_reason(ptr) }));
        }
        let mut output = MaybeUninit::<T>::uninit();
        // SAFETY: the output is the handle's (HANDLE-OUTPUT), is a `T`, and is taken once.
        unsafe { (task.header().vtable().take)(ptr, output.as_mut_ptr().cast()) };
        // SAFETY: just written.
        Ok(unsafe { output.assume_init() })
    }

    /// Takes the result if the task is done. Otherwise `waker` is woken when it is.
    pub(crate) fn poll_done(&mut self, waker: &Waker) -> Poll<Result<T, JoinError>> {
        let Some(task) = &self.task else { return Poll::Ready(Err(JoinError(Repr::Gone))) };
        let state = &task.header().state;
        let now = state.load();
        let waiting = if now.has(DONE) {
            false
        } else {
            // SAFETY: the handle has a reference.
            let slot = unsafe { JoinSlot::of(task.ptr()) };
            if now.has(JOIN_WAKER) && slot.wakes_same(waker) {
                true
            } else if now.has(JOIN_WAKER) && !state.withdraw_join_waker() {
                false // it is done, and has taken the waker
            } else {
                if now.has(JOIN_WAKER) {
                    // SAFETY: it was there, and we have withdrawn it. SLOT
                    drop(unsafe { slot.take() });
                }
                slot.put(GuardedWaker::of(waker));
                let waiting = state.offer_join_waker();
                if !waiting {
                    // SAFETY: just put there, and not offered. SLOT
                    drop(unsafe { slot.take() });
                }
                waiting
            }
        };
        if waiting {
            return Poll::Pending;
        }
        // SAFETY: all ways here have seen DONE.
        Poll::Ready(unsafe { self.take() })
    }

    /// Detaches from a task that is done, or whose join slot is in use.
    #[cold]
    fn drop_slowly(&mut self) {
        let Some(task) = &self.task else { return };
        let state = &task.header().state;
        if state.load().has(JOIN_WAKER) && state.withdraw_join_waker() {
            // SAFETY: the handle has a reference.
            let slot = unsafe { JoinSlot::of(task.ptr()) };
            // SAFETY: it was there, and we have withdrawn it. SLOT
            drop(unsafe { slot.take() });
        }
        if state.detach() {
            // The reference went with the interest.
            std::mem::forget(self.task.take());
        } else {
            // The destructor of the output runs here or in the task, depending on which is faster. A panic in it is
            // discarded in both cases.
            // SAFETY: the task is done: the slot is empty, and nothing else makes `detach` fail.
            discard(catch_unwind(AssertUnwindSafe(|| drop(unsafe { self.take() }))));
        }
    }

    /// Takes the result of a task that is known to be done.
    pub(crate) fn take_finished(&mut self) -> Result<T, JoinError> {
        assert!(self.is_finished());
        // SAFETY: it is done.
        unsafe { self.take() }
    }

    fn is_waiting(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.header().state.load().has(JOIN_WAKER))
    }
}

impl<T> JoinHandle<T> {
    /// A poll where the wait may have been cancelled: `Ready` if it was, `Pending` if a simulation holds it back.
    #[cold]
    #[inline(never)]
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Option<Poll<Cancelled>> {
        let begin = self.task.as_ref().filter(|_| OBSERVES && !self.is_waiting()).map(Begin::of_join);
        let over = match begin {
            Some(begin) => points::begin(begin, cx),
            None => check::is_current_cancelled().then_some(Poll::Ready(Cancelled)),
        };
        // The result of a task that ended during this wait is returned; a wait that is held back has not begun. A decided
        // race would drop the result, so it stays in the task. EXACT in `wait`
        let is_lost = with_context(frame::is_lost);
        let is_ended = || !is_lost && self.is_waiting() && self.is_finished();
        over.filter(|over| over.is_pending() || !is_ended()).inspect(|over| {
            if over.is_ready() {
                self.on_cancel.unregister();
                // A blocking call that has not begun never does; one that has goes on, and can be waited for again.
                if let Some(call) = &self.task {
                    call.withdraw();
                }
            }
        })
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if with_context(if OBSERVES { check::may_be_cancelled } else { check::is_cancelled_in })
            && let Some(polled) = self.poll_cancelled(cx)
        {
            return polled.map(|Cancelled| Err(JoinError(Repr::Cancelled)));
        }
        if OBSERVES && !self.is_waiting() && !with_context(check::may_be_cancelled) {
            points::note_shielded();
        }
        match self.poll_done(cx.waker()) {
            Poll::Pending => {
                self.on_cancel.wake_on_cancel(cx.waker(), Then::Answers, &"a task to end");
                Poll::Pending
            }
            ready => {
                self.on_cancel.unregister();
                ready
            }
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        let Some(task) = &self.task else { return };
        if task.header().state.detach() {
            // The reference went with the interest.
            std::mem::forget(self.task.take());
        } else {
            self.drop_slowly();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinHandle").field(&self.task).finish()
    }
}

/// The reason why a task, or the wait for it, gave no output.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let aborted = dapple::spawn(std::future::pending::<()>());
///     aborted.abort();
///     assert!(aborted.await.unwrap_err().is_aborted());
///
///     let panicked = dapple::spawn(async { panic!("no such seat") });
///     let payload = panicked.await.unwrap_err().try_into_panic().unwrap();
///     assert_eq!(payload.downcast_ref(), Some(&"no such seat"));
/// });
/// ```
pub struct JoinError(Repr);

enum Repr {
    Panic(PanicPayload, Box<str>),
    Aborted,
    Refused,
    Gone,
    Cancelled,
}

impl From<Reason> for JoinError {
    fn from(reason: Reason) -> JoinError {
        JoinError(match reason {
            Reason::Aborted => Repr::Aborted,
            Reason::Refused => Repr::Refused,
            Reason::Gone => Repr::Gone,
        })
    }
}

impl JoinError {
    /// Whether the task panicked, or one of its destructors did.
    ///
    /// # Examples
    ///
    /// ```
    /// dapple::run(async {
    ///     let error = dapple::spawn(async { panic!("no such customer") }).await.unwrap_err();
    ///     assert!(error.is_panic() && error.to_string().contains("no such customer"));
    /// });
    /// ```
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Repr::Panic(..))
    }

    /// Whether the future was dropped: by [`JoinHandle::abort`], or after [`JoinHandle::cancel`] where it waited in nothing that
    /// could be cancelled.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        matches!(self.0, Repr::Aborted)
    }

    /// Whether the task was refused before it began: by a [`Limit`](crate::limit::Limit), or because no thread could be
    /// started for a blocking call.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.0, Repr::Refused)
    }

    /// Whether the runtime ended before the task did.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.0, Repr::Gone)
    }

    /// Whether this *wait* was cancelled, and not the task. The task goes on, and the handle can be awaited again.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Repr::Cancelled)
    }

    /// The payload of the panic, to go on with [`std::panic::resume_unwind`].
    ///
    /// # Errors
    ///
    /// The error itself, if it is not a panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send + 'static>, JoinError> {
        match self.0 {
            Repr::Panic(payload, _) => Ok(payload),
            other => Err(JoinError(other)),
        }
    }

    /// Goes on with the task's panic in the caller, or panics with this error.
    pub(crate) fn unwind_any<T>(self) -> T {
        match self.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(error) => panic!("{error}"),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Panic(payload, name) => {
                write!(f, "task {name} panicked: {}", message(payload))
            }
            Repr::Aborted => f.write_str("the task was aborted"),
            Repr::Refused => f.write_str("the task was refused before it began"),
            Repr::Gone => f.write_str("the runtime of the task has ended"),
            Repr::Cancelled => f.write_str("the wait for the task was cancelled"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.is_cancelled().then_some(&crate::Cancelled as _)
    }
}

impl From<JoinError> for std::io::Error {
    /// An error for which [`is_cancelled`](crate::is_cancelled) holds if the wait was cancelled.
    fn from(error: JoinError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

// A panic's payload need not be `Sync`; nothing here gives a shared reference to it away but
// for reading a string out of it.
// SAFETY: `&JoinError` reads the payload only through `downcast_ref` to `&str` and `String`.
unsafe impl Sync for JoinError {}

impl<T> sealed::Sealed for JoinHandle<T> {}

impl<T> Target for JoinHandle<T> {
    fn target(&self) -> Option<&Task> {
        self.task()
    }
}
