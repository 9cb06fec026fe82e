//! Helpers for the tests of shared states: a state that is in use for as long as a test wants, and wakers that count.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use dapple::Shared;

use crate::common::{Event, Thread, start_thread};

/// Another thread is in a state, until it is let go.
pub(crate) struct Held {
    let_go: Event,
    thread: Thread<()>,
}

impl Held {
    /// A thread that reads the state until it is let go.
    #[track_caller]
    pub(crate) fn reading<T: Send + Sync + 'static>(state: &Shared<T>) -> Held {
        let state = state.clone();
        Held::by(move |inside| state.read_blocking(|_| inside()).expect("not cancelled"))
    }

    /// A thread that writes the state until it is let go.
    #[track_caller]
    pub(crate) fn writing<T: Send + 'static>(state: &Shared<T>) -> Held {
        let state = state.clone();
        Held::by(move |inside| state.write_blocking(|_| inside()).expect("not cancelled"))
    }

    /// A thread that stays in the closure that `enter` calls until it is let go.
    pub(crate) fn by(enter: impl FnOnce(&dyn Fn()) + Send + 'static) -> Held {
        let (inside, let_go) = (Event::default(), Event::default());
        let thread = start_thread({
            let (inside, let_go) = (inside.clone(), let_go.clone());
            move || {
                enter(&|| {
                    inside.set();
                    let_go.wait();
                });
            }
        });
        inside.wait();
        Held { let_go, thread }
    }

    /// Returns when that thread has left the state.
    #[track_caller]
    pub(crate) fn let_go(self) {
        self.let_go.set();
        self.thread.join().expect("the closure does not panic");
    }
}

/// Polls once, with a waker that does nothing.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls until the future waits for another holder, or is done. A future that only gives way wakes itself.
pub(crate) fn settle<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Bell::default().settle(future)
}

/// Counts how often it is woken.
#[derive(Clone, Default)]
pub(crate) struct Bell(Arc<Rings>);

#[derive(Default)]
struct Rings(AtomicUsize);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    /// Whether it was woken since this was last asked.
    pub(crate) fn has_rung(&self) -> bool {
        self.0.0.swap(0, Ordering::SeqCst) > 0
    }

    /// Polls once.
    pub(crate) fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(self.0.clone());
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// Polls until the future waits for another holder, or is done.
    #[track_caller]
    pub(crate) fn settle<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        for _ in 0..1000 {
            self.has_rung();
            let polled = self.poll(future);
            if polled.is_ready() || !self.has_rung() {
                return polled;
            }
        }
        panic!("gives way again and again");
    }
}
