//! `run` and `block_on`: a future in a main color, on the calling thread.

use std::sync::Arc;
use std::time::Duration;

use super::builder::RuntimeBuilder;
use super::core::Core;
use crate::cancel::{JoinError, JoinHandle};
use crate::context::closure::assert_outside;
use crate::context::{SetAside, with_context};
use crate::driver::clock::Time;
use crate::lane::main::MainLane;
use crate::prim::Parker;
use crate::spawn::submit::{InColor, Placement};
use crate::task::header::Meta;

/// How long tasks have to end by themselves after the future of `run` or `block_on` has returned.
const GRACE: Duration = Duration::from_secs(if cfg!(miri) { 60 } else { 1 }); // Miri is slow

#[track_caller]
pub(crate) fn assert_not_on_worker(what: &str) {
    assert_outside(&what);
    let on_worker = with_context(|context| context.has_worker());
    assert!(
        !on_worker,
        "{what} called on a worker: it would hold up the tasks there. Await the future, or move \
         the call into dapple::blocking"
    );
}

/// Spawns the future of a `run` or `block_on`.
///
/// # Safety
///
/// The caller runs this lane on this thread until the future has been dropped.
unsafe fn spawn_root<F: Future>(main: &MainLane, future: F) -> JoinHandle<F::Output> {
    let meta = Meta { name: Some("main".into()), ..Meta::of_caller() };
    // SAFETY: the future is run and dropped on this thread, before the caller returns.
    unsafe { InColor::new(main.color()).put_task(future, meta) }
}

/// Runs a future on this thread, in a main color of its own.
#[track_caller]
pub(super) fn block_on<F: Future>(core: &Arc<Core>, future: F) -> F::Output {
    assert_not_on_worker("block_on");
    let _outer = SetAside::new();
    with_context(|context| context.enter_runtime(core.sched.shared.whole()));
    let parker = Arc::new(Parker::default());
    let main =
        MainLane::open(core.runtime_shared(), parker.clone()).expect("block_on: the runtime has ended");
    let color = main.color().clone();
    let _listed = core.main_colors.list(&color, false);
    // SAFETY: this thread runs `main` until the future is done, or closes `main` on unwinding, which drops the
    // future.
    let mut root = unsafe { spawn_root(&main, future) };
    while !root.is_finished() {
        if !main.take_turn() {
            parker.park(None);
        }
    }
    let result = root.take_finished();
    main.cancel_all();
    let deadline = Time::now().later(GRACE);
    while !main.is_empty() && main.take_turn() && Time::now() < deadline {}
    drop(main);
    result.unwrap_or_else(JoinError::unwind_any)
}

/// Runs a future on a new runtime with default settings. This thread is its first worker.
///
/// The future runs in the main color, on this thread, and need not be `Send`. When it returns, all tasks are
/// cancelled, get a second to end by themselves, and are then dropped. A [`blocking`](crate::blocking()) call that
/// still runs gets the same second, and is then left behind on its thread. For another limit, or to see which tasks
/// were still running, use a [`Runtime`](crate::Runtime) and its [`shutdown`](crate::Runtime::shutdown).
///
/// # Panics
///
/// On a worker of a runtime; if the system cannot start threads; if the future panics.
///
/// # Examples
///
/// ```
/// let answer = dapple::run(async { 6 * 7 });
/// assert_eq!(answer, 42);
/// ```
#[track_caller]
pub fn run<F: Future>(future: F) -> F::Output {
    run_with(RuntimeBuilder::default(), future)
}

#[track_caller]
pub(crate) fn run_with<F: Future>(builder: RuntimeBuilder, future: F) -> F::Output {
    assert_not_on_worker("dapple::run");
    builder.check().unwrap_or_else(|error| panic!("dapple::run: {error}"));
    let core = Core::new(&builder).unwrap_or_else(|error| panic!("dapple::run: {error}"));
    let result = run_on(&core, builder.worker_count(), future, || false);
    result.expect("it runs until it is finished").unwrap_or_else(JoinError::unwind_any)
}

/// Runs a future on a new core, with this thread as its first worker, until it is finished. `None`: `give_up`
/// returned true first, after the worker was woken.
#[track_caller]
pub(crate) fn run_on<F: Future>(
    core: &Arc<Core>,
    workers: usize,
    future: F,
    give_up: impl Fn() -> bool,
) -> Option<Result<F::Output, JoinError>> {
    // The runtime ends with this call, also on unwinding.
    let _end = super::Runtime::of(core.clone());
    let guard = core.sched.enter_worker(0);
    core.start_workers(1..workers).unwrap_or_else(|error| panic!("dapple::run: {error}"));
    let main = MainLane::open(core.runtime_shared(), core.sched.driver(0).clone()).expect("a new runtime");
    let color = main.color().clone();
    let _listed = core.main_colors.list(&color, true);
    // SAFETY: this thread runs `main` until the future is done, or closes `main` on unwinding, which drops the
    // future.
    let mut root = unsafe { spawn_root(&main, future) };
    guard.drive(&main, None, || root.is_finished() || give_up());
    let result = root.is_finished().then(|| root.take_finished());
    core.cancel_all();
    let deadline = Time::now().later(GRACE);
    let poll = Some(Duration::from_millis(2));
    let is_over = || core.sched.alive() == 0 || Time::now() >= deadline || give_up();
    guard.drive(&main, poll, is_over);
    drop(main);
    core.sched.stop();
    drop(guard);
    result
}
