//! An async runtime in which every task has a color.
//!
//! Same color: one after the other, in order. Different colors: in parallel. State that belongs to
//! a color needs no lock, and there is nothing to deadlock on.
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
//! # Where things are
//!
//! | to | use |
//! |---|---|
//! | start a program | [`run`], [`main`](macro@main), [`test`](macro@test), or a [`Runtime`] |
//! | run something in parallel | [`spawn`] |
//! | run something one after the other | [`Color`] |
//! | keep state without a lock | [`ColorCell`] |
//! | share state among colors | [`Shared`], [`together`](together()), [`SharedMap`] |
//! | stay on one thread (`!Send`) | [`spawn_local`] |
//! | call what blocks | [`blocking`](blocking()) |
//! | wait, cancel, abort | [`JoinHandle`] |
//! | send messages | [`channel::oneshot`], [`channel::mpsc`], [`channel::watch`] |
//! | lock, signal, limit | [`sync::Mutex`], [`sync::RwLock`], [`sync::Condvar`], [`sync::Notify`], [`sync::Semaphore`] |
//! | wait for a time | [`time::sleep`], [`time::interval`] |
//! | set a timeout; take the first of several (`select!`) | [`time::timeout`](time::timeout()), [`race`] |
//! | run children that borrow, and wait for all; cancel them | [`finish`], [`Scope`], [`shield`], [`or_cancelled`] |
//! | pass a value along with a request (task-local) | [`task::Local`] |
//! | hear of panics | [`RuntimeBuilder::on_panic`], [`Metrics::panics`] |
//! | talk to others | [`net::TcpListener`], [`net::TcpStream`], [`net::UdpSocket`], [`net::UnixStream`], [`net::pipe()`], [`net::lookup()`] |
//! | wait for any file descriptor | [`net::AsyncFd`] |
//! | read and write | [`io::AsyncReadExt`], [`io::AsyncWriteExt`], [`io::BufReader`], [`io::copy`](io::copy()) |
//! | use files | [`fs::File`], [`fs::read`], [`fs::write`], [`fs::read_dir`] |
//! | use the terminal | [`io::stdin`](io::stdin()), [`io::stdout`](io::stdout()), [`io::stderr`](io::stderr()) |
//! | start programs, hear signals | [`process::Command`], [`signal::ctrl_c`], [`signal::signal`](signal::signal()) |
//! | refuse what cannot be served in time | [`sched::Limit`] |
//! | write callbacks | [`event`] |
//! | test in virtual time; cancel at each wait | [`sim::Sim`], [`sim::cancel_everywhere`](sim::cancel_everywhere()) |
//! | see what is going on | [`Runtime::metrics`], [`Runtime::dump`] |
//!
//! # Supported
//!
//! Linux from 5.11 on, 64 bits; Rust from 1.95 on. Older kernels work, without what they lack: before 5.11
//! (`epoll_pwait2`) timers are later by up to 1 ms, before 5.6 files go to the pool for blocking calls, before 5.3 there
//! is no [`process`].

#![cfg_attr(loom, allow(dead_code, reason = "only what the models use is compiled under loom"))]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("dapple runs on 64-bit Linux only; see \"Supported\" in its documentation");

#[cfg(not(loom))]
mod blocking;
#[cfg_attr(not(loom), expect(unsafe_code, reason = "owns the memory between the halves of a oneshot"))]
pub mod channel;
#[cfg(not(loom))]
mod driver;
#[cfg(loom)]
mod driver {
    pub(crate) mod clock;
    pub(crate) mod readiness;
    pub(crate) mod timers;
    pub(crate) mod wakeup;
    mod wheel;
}
#[cfg(not(loom))]
pub mod event;
#[expect(unsafe_code, reason = "says what the kernel may read and write")]
#[cfg(not(loom))]
pub mod fs;
#[cfg(all(feature = "hyper", not(loom)))]
#[expect(unsafe_code, reason = "hyper's buffers are filled before they are initialised")]
pub mod hyper;
#[cfg(not(loom))]
pub mod io;
#[expect(unsafe_code, reason = "owns the turn protocol")]
mod lane;
#[cfg(not(loom))]
mod limit;
#[expect(unsafe_code, reason = "models of protocols that hand out rights to memory")]
#[cfg(all(test, loom))]
mod loom;
#[cfg(not(loom))]
pub mod net;
mod prim;
#[expect(unsafe_code, reason = "hands on the promise of who calls pre_exec")]
#[cfg(all(feature = "process", not(loom)))]
pub mod process;
#[expect(unsafe_code, reason = "goes from a task's home back to the runtime around it")]
#[cfg(not(loom))]
mod runtime;
#[cfg_attr(not(loom), expect(unsafe_code, reason = "queues own rights to run; a thread finds its worker"))]
pub mod sched;
#[expect(unsafe_code, reason = "owns what was started, and its memory, for less than for ever")]
#[cfg(not(loom))]
mod scope;
#[expect(unsafe_code, reason = "closures reach the state that their gate lets them to")]
mod shared;
#[expect(unsafe_code, reason = "puts an action into a signal handler")]
#[cfg(all(feature = "process", not(loom)))]
pub mod signal;
#[cfg(not(loom))]
pub mod sim;
#[cfg_attr(not(loom), expect(unsafe_code, reason = "guards give out what their locks own"))]
pub mod sync;
#[expect(unsafe_code, reason = "owns the task protocol and the memory of tasks")]
pub mod task;
#[cfg(not(loom))]
pub mod time;
#[expect(unsafe_code, reason = "a thread finds its world, and a virtual thread its own stack")]
#[cfg(not(loom))]
mod world;
#[cfg(loom)]
mod world {
    /// A model has no clock.
    pub(crate) fn clock() -> Option<u64> {
        None
    }

    pub(crate) fn look_out(_spins: u8) {
        loom::thread::yield_now();
    }
}

#[cfg(not(loom))]
pub use {
    dapple_macros::{main, test},
    lane::{Color, ColorCell},
    runtime::{
        Dump, Handle, Runtime, RuntimeBuilder, Shutdown, TaskInfo, TaskState, blocking, run, spawn,
        spawn_local,
    },
    sched::{Metrics, WorkerMetrics},
    scope::{
        Canceller, Finish, FinishLocal, LocalScope, OrCancelled, Race, Racers, Resume, Scope, Shield,
        Started, Suspend, finish, finish_local, or_cancelled, race, shield, suspend,
    },
    shared::{
        Access, Accesses, Busy, GetOrInsert, GetOrTryInsert, KeyHasher, MapHasher, Read, Reading, Shared,
        SharedMap, Together, TogetherAll, Write, Writing, together, together_all,
    },
    task::{
        JoinError, JoinHandle,
        cancel::{Cancelled, is_cancelled},
        panics::PanicReport,
    },
};

/// What the attributes expand to. Not for use by hand.
#[doc(hidden)]
#[cfg(not(loom))]
pub mod __private {
    /// Runs the body of a `main` or a test.
    #[track_caller]
    pub fn run<F: Future>(workers: Option<usize>, future: F) -> F::Output {
        let builder = crate::RuntimeBuilder::default();
        let builder = match workers {
            Some(workers) => builder.workers(workers),
            None => builder,
        };
        crate::runtime::run_with(builder, future)
    }

    /// Runs the body of a test in simulations, by one seed after the other.
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
