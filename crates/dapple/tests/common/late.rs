//! A foreign combinator that passes wake-ups on late.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use dapple::time::{Duration, sleep};
use dapple::{Color, shield};

/// Polls a future with a waker of its own, and again only when that was woken and `delay` has gone by.
pub(crate) struct Late<F> {
    future: Pin<Box<F>>,
    passes_on: Arc<PassesOn>,
}

struct PassesOn {
    delay: Duration,
    is_to_poll: AtomicBool,
    around: Mutex<Option<Waker>>,
    /// Where the time is waited for.
    color: OnceLock<Color>,
}

impl<F: Future> Late<F> {
    pub(crate) fn new(future: F, delay: Duration) -> Late<F> {
        let passes_on = PassesOn {
            delay,
            is_to_poll: AtomicBool::new(true),
            around: Mutex::default(),
            color: OnceLock::new(),
        };
        Late { future: Box::pin(future), passes_on: Arc::new(passes_on) }
    }
}

impl<F: Future> Future for Late<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.passes_on.color.get_or_init(Color::new);
        *self.passes_on.around.lock().unwrap() = Some(cx.waker().clone());
        if !self.passes_on.is_to_poll.swap(false, SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.passes_on.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for PassesOn {
    fn wake(self: Arc<Self>) {
        let color = self.color.get().expect("it was polled").clone();
        let later = async move {
            shield(sleep(self.delay)).await.unwrap();
            self.is_to_poll.store(true, SeqCst);
            let around = self.around.lock().unwrap().take();
            around.inspect(Waker::wake_by_ref);
        };
        color.spawn(later).detach();
    }
}
