//! Helpers for the tests of shared maps: futures that are polled by hand.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that is polled by hand.
pub(crate) struct Hand<F> {
    future: Pin<Box<F>>,
    count: Arc<Count>,
}

impl<F: Future> Hand<F> {
    pub(crate) fn new(future: F) -> Hand<F> {
        Hand { future: Box::pin(future), count: Arc::default() }
    }

    /// A future that has been polled, and waits.
    #[track_caller]
    pub(crate) fn waiting(future: F) -> Hand<F> {
        let mut hand = Hand::new(future);
        assert!(hand.poll().is_pending());
        hand
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(self.count.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn wakes(&self) -> usize {
        self.count.0.load(Ordering::SeqCst)
    }

    pub(crate) fn leak(self) {
        std::mem::forget(self.future);
    }
}
