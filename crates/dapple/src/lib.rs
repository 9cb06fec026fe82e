//! An async runtime for network services on Linux, in which every task has a color.
//!
//! * **Colors**: tasks of the same color run one after the other, in order. Tasks of different colors run in parallel.
//!   State that belongs to a color needs no lock, and cannot deadlock.
//! * **Exact cancellation**: a cancelled wait returns [`Cancelled`] and has had no effect, or it returns its result.
//! * **Relief and limits**: a handler that blocks holds up no other. Work that cannot be served in time is refused early.
//!
//! ```
//! use dapple::{Color, ColorCell};
//! use std::sync::Arc;
//!
//! dapple::run(async {
//!     let bank = Color::keyed("bank");
//!     let balance = Arc::new(ColorCell::in_color(&bank, 0));
//!     let deposits: Vec<_> = (1..=100)
//!         .map(|amount| {
//!             let balance = balance.clone();
//!             bank.call(move || balance.with(|b| *b += amount)) // no lock, no lost update
//!         })
//!         .collect();
//!     for deposit in deposits {
//!         deposit.await.unwrap();
//!     }
//!     assert_eq!(bank.call(move || balance.with(|b| *b)).await.unwrap(), 5050);
//! });
//! ```
//!
//! New here? The guide (`docs/guide` in the repository) begins with a service in ten minutes, and has a table for
//! engineers who come from tokio.
//!
//! # Index
//!
//! **Programs and tasks**
//!
//! | to | use | |
//! |---|---|---|
//! | start a program or a test | [`run`], [`main`](macro@main), [`test`](macro@test) | |
//! | configure a runtime, or have several | [`Runtime`], [`runtime::Builder`], [`Handle`] | `block_on` works from any thread |
//! | run something in parallel | [`spawn`] | a small task takes 40 bytes |
//! | wait for a task, cancel it, abort it, let it go | [`JoinHandle`], [`JoinError`] | |
//! | name a task, give it a color, a priority or a limit | [`task::Builder`] | |
//! | stay on one thread (`!Send` futures) | [`spawn_local`] | in the main color |
//! | call code that blocks | [`blocking`](blocking()) | a pool of threads that grows and shrinks |
//! | let other tasks run | [`task::yield_now`], [`task::yield_to`] | a task that is always ready yields automatically, after 128 results |
//! | pass a value along with a request (task-local) | [`task::Local`] | |
//! | shut down with a time limit, and see which tasks were still running | [`Runtime::shutdown`], [`runtime::Shutdown`] | |
//!
//! **State**
//!
//! | to | use | |
//! |---|---|---|
//! | run things one after the other, in order | [`Color`] | the same key gives the same color: [`Color::keyed`] |
//! | keep state without a lock, for one color | [`ColorCell`] | |
//! | share state among colors | [`Shared`] | many read, or one writes; the closure comes to the state |
//! | change several states at once, without deadlock | [`together`](together()), [`together_all`] | |
//! | share a table; compute each missing entry once | [`SharedMap`] | |
//! | change many small variables as one, and wait for a condition over them | [`stm::atomically`], [`stm::TVar`], [`stm::TQueue`], [`stm::TBoundedQueue`], [`stm::TMap`], [`stm::TMVar`] | transactions; a `retry` sleeps until a variable changes |
//! | wait until a condition on states holds, and change them | [`Shared::when`], [`shared::when`] | |
//! | lock across an await; wait for a condition; count permits; notify | [`sync::Mutex`], [`sync::RwLock`], [`sync::Condvar`], [`sync::Semaphore`], [`sync::Notify`] | a forgotten waiter holds up no other |
//! | compute a value once; meet at a point; hand a value over | [`sync::OnceCell`], [`sync::Barrier`], [`sync::MVar`] | |
//! | send messages | [`channel::oneshot`], [`channel::mpsc`], [`channel::mpmc`], [`channel::broadcast`], [`channel::watch`] | a cancelled or dropped wait loses no message |
//!
//! **Structured concurrency, cancellation, time**
//!
//! | to | use | |
//! |---|---|---|
//! | run children that borrow, and wait for all of them | [`finish`], [`finish_local`], [`Scope`] | |
//! | cancel everything in a scope, also from elsewhere | [`Scope::cancel`], [`scope::Canceller`] | each wait returns [`Cancelled`] without effect, or its result |
//! | take the first of several (`select!`) | [`race`] | losers are cancelled and waited for |
//! | set a timeout | [`time::timeout`](time::timeout()) | a late result is in the error |
//! | finish something in spite of a cancel | [`shield`] | |
//! | drop a foreign future on cancel | [`or_cancelled`] | |
//! | await a callback | [`suspend`] | |
//! | sleep; tick | [`time::sleep`], [`time::sleep_until`], [`time::interval`] | never early |
//!
//! **Input and output**
//!
//! | to | use | |
//! |---|---|---|
//! | use TCP, UDP, Unix sockets, pipes | [`net::TcpListener`], [`net::TcpStream`], [`net::UdpSocket`], [`net::UnixListener`], [`net::UnixStream`], [`net::UnixDatagram`], [`net::pipe()`] | with futures-io's traits; hyper's and tokio's by the features `hyper` and `tokio-io` |
//! | look up a host name | [`net::lookup()`] | |
//! | wait for any file descriptor | [`net::AsyncFd`] | |
//! | read and write: by lines, by lengths, copying | [`io::AsyncReadExt`], [`io::AsyncWriteExt`], [`io::BufReader`], [`io::copy`](io::copy()), [`io::copy_bidirectional`] | errors say how far the operation got |
//! | use files | [`fs`] | the functions of `std::fs`, on io_uring or the pool |
//! | use the terminal | [`io::stdin`](io::stdin()), [`io::stdout`](io::stdout()), [`io::stderr`](io::stderr()) | |
//! | start programs; hear signals | [`process::Command`], [`signal::shutdown`], [`signal::ctrl_c`], [`signal::signal`](signal::signal()) | |
//! | write callbacks instead of tasks | [`event`] | they run beside tasks, and have colors |
//! | serve HTTP | the crate `dapple-http` | axum, tower and hyper services, files, TLS |
//!
//! **Overload, priorities, insight, tests**
//!
//! | to | use | |
//! |---|---|---|
//! | refuse work that cannot be served in time | [`limit::Limit`] | before it begins; bounds on waiting time and on numbers |
//! | keep going when a task blocks or computes | nothing; tune by [`runtime::Builder::stall_after`] | a stuck worker is replaced until it comes back |
//! | run urgent work first | [`sched::Priority`], [`Color::set_priority`] | each level keeps a share |
//! | bring your own scheduling policy | [`sched::Policy`] | |
//! | see tasks, counters and panics | [`Runtime::dump`], [`Runtime::metrics`], [`runtime::Builder::on_panic`] | |
//! | test in virtual time, by seed | [`sim::Sim`], `#[dapple::test(sim)]` | deadlocks are named, failures replayed bit for bit |
//! | test that a program survives a cancel at each of its waits | [`sim::cancel_everywhere`](sim::cancel_everywhere()) | |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `fs` | yes | files: [`fs`], by io_uring or the pool |
//! | `process` | yes | child processes and signals: [`process`], [`signal`], callbacks for signals |
//! | `sim` | yes | tests in virtual time: [`sim`], `#[dapple::test(sim)]`, `#[dapple::test(cancel_everywhere)]` |
//! | `hyper` | | hyper's I/O traits, executor and timer: `dapple::hyper` |
//! | `tokio-io` | | tokio's I/O traits for sockets and pipes |
//! | `tracing` | | events for `tracing` |
//! | `trace` | | name and place of every spawn, for [`Runtime::dump`] |
//!
//! # Names
//!
//! | name | meaning |
//! |---|---|
//! | a function at the root | a verb that programs use everywhere; the types that it returns are in a module: [`finish`] and [`scope::Finish`] |
//! | `x` and `X` | a function, and the future that it returns: [`race`] and [`scope::Race`] |
//! | `async fn`, or a function that returns a future | it may wait, so it may be cancelled, and says so in its result |
//! | `try_x` | `x`, with an error in place of a wait or a panic: [`sync::Mutex::try_lock`], [`Shared::try_write`], [`sim::Sim::try_explore`], [`task::try_current`]. Or, as in the standard library, `x` with a closure that may fail: [`SharedMap::get_or_try_insert_with`] |
//! | `x_blocking` | `x` for threads that run no tasks: it blocks the thread |
//! | `x_local`, `LocalX` | the form for the main color, which takes what is not `Send`: [`spawn_local`], [`finish_local`], [`scope::LocalScope`], [`event::Callback::local`] |
//! | `poll_x` | `x` for futures written by hand |
//! | `is_x`, `has_x` | a question, which changes nothing |
//! | `stats()` | returns a snapshot, a struct `XStats` of plain numbers: [`limit::LimitStats`]. That of a runtime is [`runtime::Metrics`], which [`Runtime::metrics`] returns |
//! | `XError` | the error of the operation `x`; it hands the value back, if there is one: [`channel::mpsc::SendError`], [`sync::TryLockError`] |
//! | an error that is an adjective | a condition that several operations report: [`Cancelled`], [`time::Elapsed`], [`limit::Refused`], [`shared::Busy`], [`io::Partial`], [`fs::Failed`] |
//!
//! Names of the standard library, of `futures-io` and of tokio mean the same here as there.
//!
//! # Supported
//!
//! 64-bit Linux, kernel 5.11 or newer, and Rust 1.95 or newer. On older kernels parts are missing: before 5.11
//! (`epoll_pwait2`) timers are later by up to 1 ms, before 5.6 files go to the pool for blocking calls, before 5.3 there
//! is no [`process`].

#![cfg_attr(
    not(all(feature = "fs", feature = "process", feature = "sim")),
    allow(dead_code, unused_imports, reason = "the lower layers have parts for these modules alone")
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("dapple runs on 64-bit Linux only; see \"Supported\" in its documentation");

mod blocking;
#[expect(unsafe_code, reason = "walks the frames on a thread's stack; owns the wakers of children")]
mod cancel;
#[expect(unsafe_code, reason = "owns the memory between the halves of a oneshot")]
pub mod channel;
#[expect(unsafe_code, reason = "a thread finds its context without a closure")]
mod context;
mod driver;
pub mod event;
#[expect(unsafe_code, reason = "says what the kernel may read and write")]
#[cfg(feature = "fs")]
pub mod fs;
#[cfg(feature = "hyper")]
#[expect(unsafe_code, reason = "hyper's buffers are filled before they are initialised")]
pub mod hyper;
pub mod io;
#[expect(unsafe_code, reason = "owns the turn protocol")]
mod lane;
pub mod limit;
pub mod net;
mod prim;
#[expect(unsafe_code, reason = "passes on the promise of the caller of pre_exec")]
#[cfg(feature = "process")]
pub mod process;
#[expect(unsafe_code, reason = "gets from a task's RuntimeShared to the runtime around it")]
pub mod runtime;
#[expect(unsafe_code, reason = "queues own rights to run; a thread finds its worker")]
pub mod sched;
#[expect(unsafe_code, reason = "owns children that borrow, and their memory")]
pub mod scope;
#[expect(unsafe_code, reason = "closures get references that an access lock guards")]
pub mod shared;
#[expect(unsafe_code, reason = "puts an action into a signal handler")]
#[cfg(feature = "process")]
pub mod signal;
#[cfg(feature = "sim")]
pub mod sim;
mod source;
#[expect(unsafe_code, reason = "makes tasks of futures that may run where the tasks do")]
mod spawn;
#[expect(unsafe_code, reason = "owns the cells of variables, and the values that transactions replace")]
pub mod stm;
#[expect(unsafe_code, reason = "guards give out references to the values of their locks")]
pub mod sync;
#[expect(unsafe_code, reason = "owns the task protocol and the memory of tasks")]
pub mod task;
pub mod time;
#[expect(unsafe_code, reason = "a prefetch hint; wakers in an array that is initialised in part")]
mod waitlist;
#[expect(unsafe_code, reason = "finds the world of a thread, and the stack of a virtual thread")]
mod world;
pub use {
    cancel::{Cancelled, JoinError, JoinHandle, is_cancelled},
    dapple_macros::{main, test},
    lane::{Color, ColorCell},
    runtime::{Handle, Runtime, run},
    scope::{Scope, finish, finish_local, or_cancelled, race, shield, suspend},
    shared::{Shared, SharedMap, together, together_all},
    spawn::{blocking, spawn, spawn_local},
};

/// Functions that the attribute macros expand to. Not for direct use.
#[doc(hidden)]
pub mod __private {
    /// Runs the body of a `main` or a test.
    #[track_caller]
    pub fn run<F: Future>(workers: Option<usize>, future: F) -> F::Output {
        let builder = crate::runtime::Builder::default();
        let builder = match workers {
            Some(workers) => builder.workers(workers),
            None => builder,
        };
        crate::runtime::run_with(builder, future)
    }

    /// Runs the body of a test in simulations, by one seed after the other.
    #[cfg(feature = "sim")]
    #[track_caller]
    pub fn simulate<F: Future>(
        name: &'static str,
        workers: Option<usize>,
        seeds: Option<u64>,
        body: impl FnMut() -> F,
    ) -> F::Output
    where
        F::Output: crate::sim::Outcome,
    {
        crate::sim::Sim::explore_test(name, workers, seeds, body)
    }

    /// Runs the body of a test in simulations, cancelled at each of its waits.
    #[cfg(feature = "sim")]
    #[track_caller]
    pub fn cancel_everywhere<F: Future>(
        name: &'static str,
        workers: Option<usize>,
        seeds: Option<u64>,
        waits: Option<usize>,
        allows_errors: bool,
        body: impl FnMut() -> F,
    ) where
        F::Output: crate::sim::Ending,
    {
        crate::sim::CancelEverywhere::run_test(name, workers, seeds, waits, allows_errors, body);
    }
}
