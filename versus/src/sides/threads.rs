//! Threads of the system, for a rival that blocks the thread of a task: each task has one of its own.

use std::thread::{self, JoinHandle};

use smol::future::block_on;

use super::{Host, Side};

/// There is nothing to start.
pub(crate) struct Threads;

/// Tasks that are threads.
#[derive(Clone)]
pub(crate) struct Tasks;

impl Host for Threads {
    const NAME: &'static str = "threads";
    type Side = Tasks;

    fn start() -> Self {
        Self
    }

    fn run<F>(&mut self, work: impl FnOnce(Tasks) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        block_on(Tasks::join(Tasks.spawn(work(Tasks))))
    }
}

impl Side for Tasks {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        thread::spawn(move || block_on(future))
    }

    fn detach<T: Send + 'static>(handle: JoinHandle<T>) {
        drop(handle);
    }

    async fn join<T: Send + 'static>(handle: JoinHandle<T>) -> T {
        handle.join().expect("a thread that ends")
    }

    async fn yield_now() {
        // The system lets others run when it is their time.
    }
}
