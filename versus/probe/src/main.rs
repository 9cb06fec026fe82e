//! A small program around one operation, which `versus` builds with and without cancellation (`leaf`), asks
//! for allocations (`start`), and in which callgrind counts instructions (`versus/instructions`).
//!
//! `versus-probe WHAT COUNT` does so many of it and says what one costs: nanoseconds, or allocations.

mod leaf;
mod sched;
mod start;
#[expect(unsafe_code, reason = "a global allocator")]
mod tally;

use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use dapple::Runtime;

#[global_allocator]
static ALLOCATOR: tally::Tally = tally::Tally::new();

const USAGE: &str = "\
Usage: versus-probe WHAT COUNT

  read-ready, read-pending              reads of a byte by a task; of one that is there, of one to wait for
  read-ready-scope, read-pending-scope  the same in what was started in a scope
  bare-ready, bare-pending              reads without their system call, the second up to where it waits
  bare-ready-scope, bare-pending-scope  the same in what was started in a scope
  start, start-unordered, call          a future that is ready: started, pushed to a FuturesUnordered, awaited
  spawn, yield, pingpong, color-call    a task, a yield, a message there and back, a closure in a color
  allocations                           of a start
";

fn main() -> ExitCode {
    let Some(cost) = arguments().and_then(|(what, count)| measure(&what, count)) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("{cost}");
    ExitCode::SUCCESS
}

fn arguments() -> Option<(String, usize)> {
    let mut arguments = std::env::args().skip(1);
    Some((arguments.next()?, arguments.next()?.parse().ok()?))
}

fn measure(what: &str, count: usize) -> Option<f64> {
    Some(match what {
        "read-ready" => nanos(count, leaf::ready),
        "read-pending" => nanos(count, leaf::pending),
        "read-ready-scope" => nanos(count, |count| leaf::in_scope(leaf::ready(count))),
        "read-pending-scope" => nanos(count, |count| leaf::in_scope(leaf::pending(count))),
        "bare-ready" => nanos(count, leaf::bare_ready),
        "bare-pending" => nanos(count, leaf::bare_pending),
        "bare-ready-scope" => nanos(count, |count| leaf::in_scope(leaf::bare_ready(count))),
        "bare-pending-scope" => nanos(count, |count| leaf::in_scope(leaf::bare_pending(count))),
        "start" => at_once(nanos_of(count, start::in_scope)),
        "start-unordered" => at_once(nanos_of(count, start::unordered)),
        "call" => at_once(nanos_of(count, start::called)),
        "spawn" => sched::alone(nanos_of(count, sched::spawn)),
        "yield" => sched::alone(nanos_of(count, sched::yields)),
        "pingpong" => sched::alone(nanos_of(count, sched::pingpong)),
        "color-call" => sched::alone(nanos_of(count, sched::calls)),
        "allocations" => on_one_worker(async move {
            start::in_scope(start::IN_A_SCOPE).await; // what there is only once
            let before = tally::allocations();
            start::in_scope(count).await;
            (tally::allocations() - before) as f64 / count as f64
        }),
        _ => return None,
    })
}

/// In how many parts the work is timed.
const PARTS: usize = 20;

/// Nanoseconds for each of `count` operations that a task does: of the part that took the least, which is
/// the one that nothing came between.
fn nanos<F>(count: usize, work: fn(usize) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    on_one_worker(nanos_of(count, work))
}

async fn nanos_of<F: Future<Output = ()>>(count: usize, work: fn(usize) -> F) -> f64 {
    let each = count.div_ceil(PARTS);
    let mut least = f64::MAX;
    for _ in 0..PARTS {
        let begin = Instant::now();
        work(each).await;
        least = least.min(begin.elapsed().as_secs_f64() * 1e9 / each as f64);
    }
    least
}

/// Runs what never waits, without a runtime: valgrind knows no `epoll_pwait2`.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("this never waits"),
    }
}

/// Runs a task on a worker that is alone, so that it never matters who runs where.
fn on_one_worker<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = Runtime::builder().workers(1).build().expect("a runtime");
    let task = runtime.spawn(work);
    runtime.block_on(task).expect("a task that ends")
}
