//! smol: an executor in a static, run by two threads of ours, as its docs advise.
//!
//! The one that counts is `smol::Executor`, which is what the crate `smol` has and
//! what programs use. `async_executor::StaticExecutor`, an optional feature of the
//! crate below, keeps no list of its tasks and spawns about twice as fast; it is
//! shown as a reference, `smol-static`. The threads wait in `futures_lite`'s `block_on`: `async_io`'s, which also
//! drives I/O, is slower where there is none. Where there is, or timers, they wait in that one, as the threads
//! behind `smol::spawn` do.

use std::marker::PhantomData;
use std::thread::{self, JoinHandle};

use async_executor::StaticExecutor;
use smol::channel::{Receiver, Sender, bounded};
use smol::{Executor, Task, future};

use super::{Host, Side, WORKERS};

static FAST: StaticExecutor = StaticExecutor::new();
static PLAIN: Executor<'static> = Executor::new();

/// smol as a rival.
pub(crate) type Smol = Threads<Plain>;

/// smol as a rival, its threads driving I/O and timers.
pub(crate) type SmolDriven = Threads<Driven>;

/// smol as a reference.
pub(crate) type SmolStatic = Threads<Fast>;

/// The static executor.
pub(crate) struct Fast;

/// The ordinary executor.
pub(crate) struct Plain;

/// The ordinary executor, on threads that wait for I/O and timers themselves.
pub(crate) struct Driven;

/// The threads that run an executor; they end with the value.
pub(crate) struct Threads<P> {
    stop: Sender<()>,
    threads: Vec<JoinHandle<()>>,
    pool: PhantomData<P>,
}

/// Tasks of an executor.
pub(crate) struct Tasks<P>(PhantomData<P>);

/// An executor.
pub(crate) trait Pool: Send + Sync + 'static {
    const NAME: &'static str;

    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    /// Runs tasks until the channel is closed.
    fn run(stopped: Receiver<()>);
}

impl Pool for Fast {
    const NAME: &'static str = "smol-static";

    #[inline]
    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        FAST.spawn(future)
    }

    fn run(stopped: Receiver<()>) {
        let _ = future::block_on(FAST.run(stopped.recv()));
    }
}

impl Pool for Plain {
    const NAME: &'static str = "smol";

    #[inline]
    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        PLAIN.spawn(future)
    }

    fn run(stopped: Receiver<()>) {
        let _ = future::block_on(PLAIN.run(stopped.recv()));
    }
}

impl Pool for Driven {
    const NAME: &'static str = Plain::NAME;

    #[inline]
    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        Plain::spawn(future)
    }

    fn run(stopped: Receiver<()>) {
        let _ = smol::block_on(PLAIN.run(stopped.recv()));
    }
}

impl<P: Pool> Host for Threads<P> {
    const NAME: &'static str = P::NAME;
    type Side = Tasks<P>;

    fn start() -> Self {
        let (stop, stopped) = bounded(1);
        let worker = |_| {
            let stopped = stopped.clone();
            thread::spawn(move || P::run(stopped))
        };
        Self { stop, threads: (0..WORKERS).map(worker).collect(), pool: PhantomData }
    }

    fn run<F>(&mut self, work: impl FnOnce(Tasks<P>) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        future::block_on(P::spawn(work(Tasks(PhantomData))))
    }
}

impl<P> Drop for Threads<P> {
    fn drop(&mut self) {
        self.stop.close();
        for thread in self.threads.drain(..) {
            thread.join().expect("an executor thread that ends");
        }
    }
}

impl<P> Clone for Tasks<P> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<P: Pool> Side for Tasks<P> {
    type Handle<T: Send + 'static> = Task<T>;

    #[inline]
    fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        P::spawn(future)
    }

    #[inline]
    fn detach<T: Send + 'static>(handle: Task<T>) {
        handle.detach();
    }

    #[inline]
    fn join<T: Send + 'static>(handle: Task<T>) -> impl Future<Output = T> + Send {
        handle
    }

    #[inline]
    fn yield_now() -> impl Future<Output = ()> + Send {
        future::yield_now()
    }
}
