//! tokio: the multi-threaded scheduler, and a `LocalSet` on its single-threaded one.

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, LocalSet};

use super::{Host, Side, WORKERS};

/// A `multi_thread` runtime of two workers, without I/O and time drivers.
pub(crate) struct Tokio(Runtime);

/// Tasks of the multi-threaded scheduler.
#[derive(Clone)]
pub(crate) struct Tasks;

impl Host for Tokio {
    const NAME: &'static str = "tokio";
    type Side = Tasks;

    fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).build();
        Self(runtime.expect("a tokio runtime"))
    }

    fn run<F>(&mut self, work: impl FnOnce(Tasks) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let root = self.0.spawn(work(Tasks));
        self.0.block_on(root).expect("a root task that ends")
    }
}

impl Side for Tasks {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    #[inline]
    fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::spawn(future)
    }

    #[inline]
    fn detach<T: Send + 'static>(handle: JoinHandle<T>) {
        drop(handle);
    }

    #[inline]
    async fn join<T: Send + 'static>(handle: JoinHandle<T>) -> T {
        handle.await.expect("a task that ends")
    }

    #[inline]
    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

/// The same with its drivers of I/O and time, for the cases that need them.
pub(crate) struct TokioDriven(Tokio);

impl TokioDriven {
    /// The same with another number of workers.
    pub(crate) fn with_workers(workers: usize) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build();
        Self(Tokio(runtime.expect("a tokio runtime")))
    }
}

impl Host for TokioDriven {
    const NAME: &'static str = Tokio::NAME;
    type Side = Tasks;

    fn start() -> Self {
        Self::with_workers(WORKERS)
    }

    fn run<F>(&mut self, work: impl FnOnce(Tasks) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.run(work)
    }
}

/// A `LocalSet`, driven by a `current_thread` runtime on the calling thread.
pub(crate) struct TokioLocalSet {
    runtime: Runtime,
    tasks: LocalSet,
}

/// Tasks of the local set that is running.
#[derive(Clone)]
pub(crate) struct LocalTasks;

impl Host for TokioLocalSet {
    const NAME: &'static str = "tokio";
    type Side = LocalTasks;

    fn start() -> Self {
        Self { runtime: Builder::new_current_thread().build().expect("a runtime"), tasks: LocalSet::new() }
    }

    fn run<F>(&mut self, work: impl FnOnce(LocalTasks) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let root = self.tasks.spawn_local(work(LocalTasks));
        let output = self.tasks.block_on(&self.runtime, root);
        output.expect("a root task that ends")
    }
}

impl Side for LocalTasks {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    #[inline]
    fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::task::spawn_local(future)
    }

    #[inline]
    fn detach<T: Send + 'static>(handle: JoinHandle<T>) {
        Tasks::detach(handle);
    }

    #[inline]
    fn join<T: Send + 'static>(handle: JoinHandle<T>) -> impl Future<Output = T> + Send {
        Tasks::join(handle)
    }

    #[inline]
    fn yield_now() -> impl Future<Output = ()> + Send {
        Tasks::yield_now()
    }
}
