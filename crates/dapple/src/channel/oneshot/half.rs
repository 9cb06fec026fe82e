//! The two halves of a oneshot channel, and the memory that they share.
//!
//! # Invariants
//!
//! VALUE, LAST-FREES and WAKER are those of [`word`](super::word).
//!
//! * **LIVE**: a half exists until its last operation on the word, and the memory at least until then.
//! * **CALLER**: `closing` is where the sender waits for the receiver to be dropped or closed. The sender
//!   creates it, then checks whether the word is closed. The receiver closes the word, then checks whether
//!   `closing` exists. Both have a fence in between, so at least one of them closes it. Both do so before
//!   their last operation.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker, ready};

use super::super::error::{RecvError, TryRecvError};
use super::word::{RawWaker, Said, Word};
use crate::Cancelled;
use crate::prim::fence_seq_cst;
use crate::task::guarded::GuardedWaker;
use crate::task::waker::{pack, unpack, wakes_same};
use crate::waitlist::permits::{PermitRefusal, PermitWait, Permits};
use crate::waitlist::wait::{Wait, block_on, wake};

struct Between<T> {
    word: Word,
    value: UnsafeCell<MaybeUninit<T>>,
    /// Created by the sender if it ever waits. CALLER
    closing: OnceLock<Box<Permits>>,
}

/// Creates a channel for one value. Use it to return one result from a task or a callback.
///
/// # Examples
///
/// ```
/// use dapple::channel::oneshot;
///
/// dapple::run(async {
///     let (sender, receiver) = oneshot::channel();
///     sender.send(5).unwrap();
///     assert_eq!(receiver.await.unwrap(), 5);
/// });
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let between = Box::new(Between {
        word: Word::new(),
        value: UnsafeCell::new(MaybeUninit::uninit()),
        closing: OnceLock::new(),
    });
    let between = NonNull::from(Box::leak(between));
    let sender = Sender { half: Half { between, _value: PhantomData } };
    (
        sender,
        Receiver { half: Some(Half { between, _value: PhantomData }), waits: None, wait: Wait::default() },
    )
}

/// Handle of a half. It may use the memory until its last operation. LIVE
struct Half<T> {
    between: NonNull<Between<T>>,
    _value: PhantomData<T>,
}

// SAFETY: the halves only pass a `T` from one to the other.
unsafe impl<T: Send> Send for Half<T> {}
// SAFETY: a shared half gives out only the state of the word.
unsafe impl<T: Send> Sync for Half<T> {}

impl<T> Half<T> {
    fn word(&self) -> &Word {
        &self.between().word
    }

    fn between(&self) -> &Between<T> {
        // SAFETY: this half has not made its last operation. LIVE
        unsafe { self.between.as_ref() }
    }

    /// # Safety
    ///
    /// There is a value, and it belongs to this half. VALUE
    unsafe fn take(&self) -> T {
        // SAFETY: the caller's promise.
        let place = unsafe { &*self.between().value.get() };
        // SAFETY: as above; the caller does not read it again.
        unsafe { place.assume_init_read() }
    }

    /// # Safety
    ///
    /// The other half has made its last operation, and the value has been moved out. LAST-FREES
    unsafe fn free(self) {
        // SAFETY: it came from a box, and there is no other user.
        drop(unsafe { Box::from_raw(self.between.as_ptr()) });
    }
}

/// Sending half of a oneshot channel.
///
/// # Examples
///
/// ```
/// use dapple::channel::oneshot;
///
/// let (sender, receiver) = oneshot::channel();
/// drop(receiver);
/// assert_eq!(sender.send(5), Err(5)); // the value comes back
/// ```
pub struct Sender<T> {
    half: Half<T>,
}

impl<T> Unpin for Sender<T> {}

impl<T> Sender<T> {
    /// Sends the value. Success does not mean that it is received: the receiver may be dropped first.
    ///
    /// # Errors
    ///
    /// Returns the value if the receiver is dropped or closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::oneshot;
    ///
    /// let (sender, receiver) = oneshot::channel();
    /// drop(receiver);
    /// assert_eq!(sender.send("hello"), Err("hello")); // the receiver is gone: here is the value back
    /// ```
    pub fn send(self, value: T) -> Result<(), T> {
        let between = self.half.between();
        // SAFETY: the place belongs to the sender until it has sent. VALUE
        let place = unsafe { &mut *between.value.get() };
        place.write(value);
        match between.word.send() {
            Ok(waker) => {
                std::mem::forget(self); // that was its last operation
                // SAFETY: the word gave it to this half. WAKER
                let waker = waker.map(|waker| unsafe { unpack(waker) });
                waker.into_iter().for_each(wake);
                Ok(())
            }
            // SAFETY: it was not sent, so it still belongs to this half. VALUE
            Err(()) => Err(unsafe { self.half.take() }),
        }
    }

    /// Whether the receiver is dropped or closed, so that `send` would return the value.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.half.word().load(), Said::Closed | Said::ReceiverGone)
    }

    /// Waits until the receiver is dropped or closed.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**.
    /// *Scope cancelled*: returns [`Cancelled`]; or `Ok`, if the receiver was dropped or closed when the wait
    /// was polled again.
    pub async fn closed(&mut self) -> Result<(), Cancelled> {
        let closing = self.half.between().closing.get_or_init(|| Box::new(Permits::new(0)));
        fence_seq_cst(); // CALLER
        if self.is_closed() {
            closing.close();
        }
        match PermitWait::new(closing, 1).await {
            Err(PermitRefusal::Cancelled) => Err(Cancelled),
            _ => Ok(()),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let half = Half { between: self.half.between, _value: PhantomData };
        match half.word().drop_sender() {
            // SAFETY: the receiver has made its last operation, and nothing was sent. LAST-FREES
            Said::ReceiverGone => unsafe { half.free() },
            // SAFETY: the word gave it to this half. WAKER
            Said::Waits(waker) => wake(unsafe { unpack(waker) }),
            _ => {}
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("closed", &self.is_closed()).finish()
    }
}

/// Receiving half of a oneshot channel: a future of the value.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: a value that was sent is dropped, and one that is sent later is returned to
/// the sender. Await `&mut receiver` to keep it.
/// *Scope cancelled*: returns a [`RecvError`] with [`is_cancelled`](RecvError::is_cancelled); the value
/// stays, and `&mut receiver` can be awaited again. If the value was there when the wait was polled again,
/// returns it.
///
/// # Examples
///
/// ```
/// use dapple::channel::oneshot;
///
/// dapple::run(async {
///     let (sender, mut receiver) = oneshot::channel();
///     assert!(receiver.try_recv().unwrap_err().is_empty());
///     dapple::spawn(async move { sender.send("done") }).detach();
///     assert_eq!((&mut receiver).await.unwrap(), "done");
/// });
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct Receiver<T> {
    /// None if the value has been taken.
    half: Option<Half<T>>,
    /// Waker that was stored in the word.
    waits: Option<Offered>,
    wait: Wait,
}

/// Address of a waker. Only compared with the word's, and used to withdraw it.
struct Offered(RawWaker);

// SAFETY: it is only compared with the state of the word.
unsafe impl Send for Offered {}
// SAFETY: as above.
unsafe impl Sync for Offered {}

impl<T> Unpin for Receiver<T> {}

impl<T> Receiver<T> {
    /// Takes the value if it is there.
    ///
    /// # Errors
    ///
    /// If the value has not been sent, or never will be.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let Some(half) = &self.half else { return Err(TryRecvError { closed: true }) };
        match half.word().load() {
            Said::Sent => Ok(self.take_sent()),
            Said::SenderGone | Said::Closed => Err(TryRecvError { closed: true }),
            _ => Err(TryRecvError { closed: false }),
        }
    }

    /// Waits for the value, for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the sender is dropped, or the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn recv_blocking(&mut self) -> Result<T, RecvError> {
        block_on("oneshot::Receiver::recv_blocking", self)
    }

    /// Closes the channel: a value that is sent from now on is returned to the sender. A value that was sent
    /// before can still be received.
    pub fn close(&mut self) {
        let Some(half) = &self.half else { return };
        let waker = match half.word().close() {
            Said::Sent | Said::SenderGone => return,
            Said::Waits(waker) => Some(waker),
            _ => None,
        };
        fence_seq_cst(); // CALLER
        if let Some(closing) = half.between().closing.get() {
            closing.close();
        }
        self.waits = None;
        // SAFETY: the word gave it to this half. WAKER
        drop(waker.map(|waker| unsafe { unpack(waker) }));
    }

    /// Takes the value, which has been sent: the sender is gone.
    fn take_sent(&mut self) -> T {
        let half = self.half.take().expect("a value that was not taken");
        self.waits = None;
        // SAFETY: it was sent, and is taken once, since `half` is None now. VALUE
        let value = unsafe { half.take() };
        // SAFETY: the sender's last operation was to send. LAST-FREES
        unsafe { half.free() };
        value
    }

    /// Stores `waker` in the word. An error if the state of the word has changed instead.
    fn offer(&mut self, waker: &Waker) -> Result<(), Said> {
        let word = self.half.as_ref().expect("a half").word();
        if let Some(Offered(old)) = self.waits.take() {
            if wakes_same(old, waker) && word.load() == Said::Waits(old) {
                self.waits = Some(Offered(old));
                return Ok(());
            }
            if word.withdraw(old) {
                // SAFETY: this half has it back. WAKER
                drop(unsafe { unpack(old) });
            }
        }
        let raw = pack(GuardedWaker::of(waker));
        match word.wait(raw) {
            Ok(()) => {
                self.waits = Some(Offered(raw));
                Ok(())
            }
            Err(said) => {
                // SAFETY: the word has not taken it. WAKER
                drop(unsafe { unpack(raw) });
                Err(said)
            }
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if ready!(this.wait.begin(cx)).is_err() {
            return Poll::Ready(Err(RecvError { cancelled: true }));
        }
        let Some(half) = &this.half else {
            return Poll::Ready(Err(RecvError { cancelled: false }));
        };
        let mut said = half.word().load();
        if matches!(said, Said::Empty | Said::Waits(_)) && !this.wait.is_cancelled() {
            match this.offer(cx.waker()) {
                Ok(()) => {
                    this.wait.rest(cx, &"the value of a oneshot");
                    return Poll::Pending;
                }
                Err(happened) => said = happened,
            }
        }
        this.wait.end();
        Poll::Ready(match said {
            Said::Sent => Ok(this.take_sent()),
            Said::Empty | Said::Waits(_) => Err(RecvError { cancelled: true }),
            _ => Err(RecvError { cancelled: false }),
        })
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.close();
        let Some(half) = self.half.take() else { return };
        match half.word().drop_receiver() {
            Said::Sent => {
                // SAFETY: it was sent, and only this half knows of it. VALUE
                let value = unsafe { half.take() };
                // SAFETY: the sender's last operation was to send. LAST-FREES
                unsafe { half.free() };
                drop(value);
            }
            // SAFETY: the sender has made its last operation, and has sent nothing. LAST-FREES
            Said::SenderGone => unsafe { half.free() },
            _ => {} // closed: no waker is stored, and the sender frees the memory
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("taken", &self.half.is_none()).finish_non_exhaustive()
    }
}
