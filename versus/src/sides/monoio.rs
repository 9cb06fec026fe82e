//! monoio: one thread and no stealing; a reference that shows what neither costs.

use monoio::task::JoinHandle;
use monoio::{FusionDriver, FusionRuntime, IoUringDriver, LegacyDriver, RuntimeBuilder};

use super::{Host, Side};

/// A runtime on the calling thread: io_uring if the kernel has it, else epoll.
pub(crate) struct Monoio(FusionRuntime<IoUringDriver, LegacyDriver>);

/// Tasks of the runtime of this thread.
#[derive(Clone)]
pub(crate) struct Tasks;

impl Host for Monoio {
    const NAME: &'static str = "monoio";
    type Side = Tasks;

    fn start() -> Self {
        let runtime = RuntimeBuilder::<FusionDriver>::new().build();
        Self(runtime.expect("a monoio runtime"))
    }

    fn run<F>(&mut self, work: impl FnOnce(Tasks) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.block_on(async { monoio::spawn(work(Tasks)).await })
    }
}

impl Side for Tasks {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    #[inline]
    fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        monoio::spawn(future)
    }

    #[inline]
    fn detach<T: Send + 'static>(handle: JoinHandle<T>) {
        drop(handle);
    }

    #[inline]
    fn join<T: Send + 'static>(handle: JoinHandle<T>) -> impl Future<Output = T> + Send {
        handle
    }

    /// monoio has none, and none can be made outside of it: a task that wakes
    /// itself is put ahead of all others (`scheduler.rs`, `yield_now`).
    async fn yield_now() {
        unreachable!("monoio is left out where tasks yield");
    }
}
