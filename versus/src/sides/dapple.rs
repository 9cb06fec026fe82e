//! Dapple: tasks with a fresh color each, and tasks that share one color.

use std::time::Duration;

use dapple::{Color, JoinHandle, Runtime};

use super::{Host, Side, WORKERS};

/// How long a runtime that has nothing left to do may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A runtime of two workers; ends with the value.
pub(crate) struct Dapple(Option<Runtime>);

impl Dapple {
    /// The same with another number of workers.
    pub(crate) fn with_workers(workers: usize) -> Self {
        Self(Some(Runtime::builder().workers(workers).build().expect("a Dapple runtime")))
    }
}

/// Tasks with a fresh color each.
#[derive(Clone)]
pub(crate) struct Tasks;

impl Host for Dapple {
    const NAME: &'static str = "dapple";
    type Side = Tasks;

    fn start() -> Self {
        Self::with_workers(WORKERS)
    }

    fn run<F>(&mut self, work: impl FnOnce(Tasks) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let runtime = self.0.as_ref().expect("a runtime that runs");
        let root = runtime.spawn(work(Tasks));
        runtime.block_on(root).expect("a root task that ends")
    }
}

impl Drop for Dapple {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            let _ = runtime.shutdown(PATIENCE);
        }
    }
}

impl Side for Tasks {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    #[inline]
    fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        dapple::spawn(future)
    }

    #[inline]
    fn detach<T: Send + 'static>(handle: JoinHandle<T>) {
        handle.detach();
    }

    #[inline]
    async fn join<T: Send + 'static>(handle: JoinHandle<T>) -> T {
        handle.await.expect("a task that ends")
    }

    #[inline]
    fn yield_now() -> impl Future<Output = ()> + Send {
        dapple::task::yield_now()
    }
}

/// The same runtime; the root and all that it spawns have one color.
pub(crate) struct DappleLane(Dapple);

/// Tasks of one color.
#[derive(Clone)]
pub(crate) struct OneColor(Color);

impl Host for DappleLane {
    const NAME: &'static str = "dapple";
    type Side = OneColor;

    fn start() -> Self {
        Self(Dapple::start())
    }

    fn run<F>(&mut self, work: impl FnOnce(OneColor) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let runtime = self.0.0.as_ref().expect("a runtime that runs");
        runtime.block_on(async {
            let color = Color::new();
            let root = color.spawn(work(OneColor(color.clone())));
            root.await.expect("a root task that ends")
        })
    }
}

impl Side for OneColor {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    #[inline]
    fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.spawn(future)
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
