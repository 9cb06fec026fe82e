//! Helpers for all tests: a watchdog, both worlds, events, counters of drops, and a foreign executor.
//!
//! Events, threads and the foreign executor wait by virtual time in a simulation, so that one body can be
//! run [in both worlds](in_both_worlds): on real threads, once, and on virtual ones, by many seeds.
#![allow(dead_code, reason = "each test binary uses a part of it")]

mod not_run;

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use dapple::{JoinHandle, Runtime, sim};

pub(crate) use not_run::not_run;

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

/// The name that libtest has for a test of the caller's file, which is a module of the binary.
#[track_caller]
pub(crate) fn full_name(test: &str) -> String {
    let file = Path::new(Location::caller().file());
    format!("{}::{test}", file.file_stem().expect("a file").display())
}

/// Runs a test of the caller's file in a process of its own, where `body` may change what is the whole process's.
#[track_caller]
pub(crate) fn in_a_process_of_its_own(test: &str, body: impl FnOnce()) {
    const INSIDE: &str = "DAPPLE_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.args([&*full_name(test), "--exact", "--nocapture"]).env(INSIDE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Raises the process's limit of open files to `files`, which other tests of the process use too. If the system
/// refuses, reports the test as not run.
pub(crate) fn may_open(files: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= files) {
        return true;
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum });
    raised.map_err(|error| not_run(format_args!("needs `ulimit -n {files}`: {error}"))).is_ok()
}

/// Runs a test in virtual time, with `seeds` seeds (or `DAPPLE_SEEDS`): `body` on a thread that is no worker.
///
/// Not under ThreadSanitizer and Miri, which do not know what virtual threads are made of.
#[track_caller]
pub(crate) fn in_virtual_time(seeds: u64, body: impl Fn() + Clone + Send + 'static) {
    if cfg!(miri) || std::env::var_os("TSAN_OPTIONS").is_some() {
        return not_run("its part in virtual time: Miri and ThreadSanitizer do not know virtual threads");
    }
    let wanted = std::env::var("DAPPLE_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds = wanted.unwrap_or(seeds);
    // One worker is enough to wait: the body makes runtimes of its own.
    sim::Sim::new(0).workers(1).explore(0..seeds, || {
        let body = body.clone();
        async { start_thread(body).ended().await.unwrap_or_else(|payload| resume_unwind(payload)) }
    });
}

/// Runs a test on real threads, and then in virtual time with `seeds` seeds.
#[track_caller]
pub(crate) fn in_both_worlds(seeds: u64, body: impl Fn() + Clone + Send + 'static) {
    watched(body.clone());
    in_virtual_time(seeds, body);
}

/// Polls `is_so` until it holds. For conditions that come true soon and wake no waiter.
#[track_caller]
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = dapple::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(dapple::time::Instant::now() < deadline, "did not come to be: {what}");
        pause(Duration::from_millis(1));
    }
}

/// Waits for `duration`, by the clock of this world.
pub(crate) fn pause(duration: Duration) {
    if sim::is_simulated() { sim::work(duration) } else { thread::sleep(duration) }
}

/// Lets others go on, if they want to.
pub(crate) fn give_way() {
    if sim::is_simulated() {
        sim::work(Duration::from_nanos(sim::random() % 500));
    } else {
        thread::yield_now();
    }
}

/// How many rounds to go: on real threads, or in each of many simulations.
pub(crate) fn rounds<N>(real: N, simulated: N) -> N {
    if sim::is_simulated() { simulated } else { real }
}

/// A thread of this world.
pub(crate) enum Thread<T> {
    Real(thread::JoinHandle<T>),
    Virtual(JoinHandle<T>),
}

pub(crate) fn start_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Thread<T> {
    if sim::is_simulated() {
        Thread::Virtual(dapple::blocking(body))
    } else {
        Thread::Real(thread::spawn(body))
    }
}

impl<T> Thread<T> {
    /// Blocks this thread until that one has ended.
    pub(crate) fn join(self) -> thread::Result<T> {
        foreign_block_on(self.ended())
    }

    async fn ended(self) -> thread::Result<T> {
        match self {
            Thread::Real(thread) => thread.join(),
            Thread::Virtual(call) => {
                call.await.map_err(|error| error.try_into_panic().unwrap_or_else(|error| Box::new(error)))
            }
        }
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
    #[track_caller]
    pub(crate) fn wait(&self) {
        if sim::is_simulated() {
            return wait_until(|| self.is_set());
        }
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
        if sim::is_simulated() {
            give_way(); // or else no other thread could run in between
        }
        f()
    }
}

struct Leave<'a>(&'a AtomicBool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Keeps this virtual thread busy until `is_so`; fails if that takes too long.
#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let (mut waited, mut most) = (Duration::ZERO, 200);
    while !is_so() {
        assert!(waited < PATIENCE, "hangs: not so after {waited:?} of virtual time");
        // More and more rarely: what takes long is not to take many steps.
        let pause = Duration::from_nanos(sim::random() % most);
        most = (most + most / 8).min(10_000_000);
        sim::work(pause);
        waited += pause;
    }
}

/// The next message; none when all senders have gone.
#[track_caller]
pub(crate) fn receive<T>(receiver: &mpsc::Receiver<T>) -> Option<T> {
    if !sim::is_simulated() {
        return receiver.recv().ok();
    }
    let received = std::cell::Cell::new(Err(mpsc::TryRecvError::Empty));
    wait_until(|| {
        let now = receiver.try_recv();
        let is_so = !matches!(now, Err(mpsc::TryRecvError::Empty));
        received.set(now);
        is_so
    });
    received.into_inner().ok()
}

struct Unpark {
    thread: thread::Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Another executor: the future on this thread, which parks between polls.
#[track_caller]
pub(crate) fn foreign_block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending if sim::is_simulated() => {
                wait_until(|| unpark.is_woken.swap(false, Ordering::Acquire));
            }
            Poll::Pending => thread::park(),
        }
    }
}

/// Small numbers, the same ones for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Of a seed of its own, or of the simulation's.
    pub(crate) fn new(seed: u64) -> Random {
        Random(if sim::is_simulated() { sim::random() | 1 } else { seed })
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
