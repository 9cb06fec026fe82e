//! What the tests share: a watchdog, events, counters of drops, and a foreign executor.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use dapple::Runtime;

/// After this long a test is taken to hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test on a thread of its own, and turns a hang into a failure.
#[track_caller]
pub(crate) fn watched<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let name = thread::current().name().unwrap_or("test").to_owned();
    let thread = thread::Builder::new().name(name).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(body));
        let _ = done.send(());
        result
    });
    let thread = thread.expect("a thread for the test");
    if is_done.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the test hangs: not done after {PATIENCE:?}");
    }
    thread.join().expect("panics are caught").unwrap_or_else(|payload| resume_unwind(payload))
}

/// Waits until `is_so` holds, for what happens soon and tells nobody.
#[track_caller]
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "did not come to be: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().expect("a runtime")
}

/// The message of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(not a string)".to_owned())
}

/// The message of the panic that `f` ends in.
#[track_caller]
pub(crate) fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("did not panic"),
        Err(payload) => message(&*payload),
    }
}

/// Something that happens once, and that threads and tasks can wait for.
#[derive(Clone, Default)]
pub(crate) struct Event(Arc<Happening>);

#[derive(Default)]
struct Happening {
    /// Whether it has happened, and which tasks wait for it.
    state: Mutex<(bool, Vec<Waker>)>,
    told: Condvar,
}

impl Event {
    pub(crate) fn set(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.0 = true;
        let wakers = std::mem::take(&mut state.1);
        drop(state);
        self.0.told.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.state.lock().unwrap().0
    }

    /// Blocks this thread until it has happened.
    pub(crate) fn wait(&self) {
        let state = self.0.state.lock().unwrap();
        drop(self.0.told.wait_while(state, |state| !state.0).unwrap());
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.state.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1.push(cx.waker().clone());
        Poll::Pending
    }

    /// Waits as a task does.
    pub(crate) async fn happened(&self) {
        poll_fn(|cx| self.poll(cx)).await;
    }
}

/// Tells when a future has begun to wait.
pub(crate) async fn telling<F: Future>(begun: Event, future: F) -> F::Output {
    let mut future = Box::pin(future);
    poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            begun.set();
        }
        polled
    })
    .await
}

/// Counts how many of its guards have been dropped.
#[derive(Clone, Default)]
pub(crate) struct Drops(Arc<AtomicUsize>);

pub(crate) struct Guard(Drops);

impl Drops {
    pub(crate) fn guard(&self) -> Guard {
        Guard(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Notices when two of its visitors are inside at the same time.
#[derive(Default)]
pub(crate) struct Alone(AtomicBool);

impl Alone {
    #[track_caller]
    pub(crate) fn visit<R>(&self, f: impl FnOnce() -> R) -> R {
        assert!(!self.0.swap(true, Ordering::Relaxed), "two of one color at the same time");
        let _leave = Leave(&self.0);
        f()
    }
}

struct Leave<'a>(&'a AtomicBool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Another executor: the future on this thread, which parks between polls.
pub(crate) fn foreign_block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Small numbers, the same ones for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
