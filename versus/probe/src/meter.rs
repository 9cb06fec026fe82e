//! Measures a number of operations in a task: time, allocations, or instructions.

use std::thread;
use std::time::{Duration, Instant};

use dapple::Runtime;
use dapple::sched::Priority;

use crate::{callgrind, tally};

/// In how many parts the work is timed.
const PARTS: usize = 20;
/// How long another thread waits before it looks again whether the worker sleeps.
pub(crate) const A_MOMENT: Duration = Duration::from_micros(50);

/// A quantity that is measured per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meter {
    /// Nanoseconds: of the part that took the least, which is the one that nothing came between.
    Time,
    /// Allocations of the worker's thread.
    Allocations,
    /// Instructions of the worker's thread, which callgrind counts and tells by itself.
    Instructions,
}

impl Meter {
    /// Does `count` operations, after some to warm up. Returns nanoseconds or allocations of one; nothing of
    /// instructions.
    pub(crate) async fn of<F>(self, count: usize, mut work: impl FnMut(usize) -> F) -> f64
    where
        F: Future<Output = ()>,
    {
        match self {
            Meter::Time => {
                let each = count.div_ceil(PARTS);
                let mut least = f64::MAX;
                for _ in 0..PARTS {
                    let begin = Instant::now();
                    work(each).await;
                    least = least.min(begin.elapsed().as_secs_f64() * 1e9 / each as f64);
                }
                least
            }
            Meter::Allocations => {
                work(count).await;
                let before = tally::allocations();
                work(count).await;
                (tally::allocations() - before) as f64 / count as f64
            }
            Meter::Instructions => {
                work(count.div_ceil(10)).await;
                callgrind::toggle_collect();
                work(count).await;
                callgrind::toggle_collect();
                f64::NAN
            }
        }
    }

    /// Runs a task on a worker that is alone, so that it never matters where a task runs.
    ///
    /// For the counts no spare takes the worker's place, and the kernel is asked for events as seldom as can be:
    /// under valgrind all takes fifty times as long, and both go by the clock.
    pub(crate) fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        let mut builder = Runtime::builder().workers(1);
        if self != Meter::Time {
            let long = Duration::from_secs(3600);
            builder = builder.max_spares(0).stall_after(long).random_seed(1).event_priority(Priority::Low);
        }
        let runtime = builder.build().expect("a runtime");
        // Until when the worker has planned to sleep decides what entering a timer costs; so it has slept in any case.
        while self != Meter::Time && runtime.metrics().workers[0].sleeps == 0 {
            thread::sleep(A_MOMENT);
        }
        let task = runtime.spawn(work);
        runtime.block_on(task).expect("a task that ends")
    }
}
