//! What the scheduler does all the time, on one worker: for callgrind.

use std::hint::black_box;

use dapple::Color;
use dapple::channel::mpsc;
use dapple::sim::Sim;
use dapple::task::yield_now;

/// How many tasks are alive at a time.
const AT_ONCE: usize = 100;

/// Runs a future on one worker, of a simulation: valgrind knows no `epoll_pwait2`, which a real one sleeps
/// in. The scheduler is the same; what a simulation notes of every poll is counted with it.
pub(crate) fn alone<F: Future<Output = f64>>(work: F) -> f64 {
    Sim::new(1).workers(1).steady().run(work)
}

/// Tasks that end at once, and are waited for.
pub(crate) async fn spawn(count: usize) {
    for _ in 0..count.div_ceil(AT_ONCE) {
        let handles: Vec<_> = (0..AT_ONCE).map(|i| dapple::spawn(async move { black_box(i) })).collect();
        for handle in handles {
            handle.await.expect("a task that ends");
        }
    }
}

/// Tasks that yield, side by side.
pub(crate) async fn yields(count: usize) {
    let each = count / AT_ONCE;
    let one = || async move {
        for _ in 0..each {
            yield_now().await;
        }
    };
    for handle in (0..AT_ONCE).map(|_| dapple::spawn(one())).collect::<Vec<_>>() {
        handle.await.expect("a task that ends");
    }
}

/// Two tasks that send each other a number, there and back.
pub(crate) async fn pingpong(count: usize) {
    let (there, mut comes) = mpsc::unbounded::<usize>();
    let (back, mut returns) = mpsc::unbounded::<usize>();
    let other = dapple::spawn(async move {
        while let Ok(number) = comes.recv().await {
            back.send(number).await.expect("somebody who listens");
        }
    });
    let one = dapple::spawn(async move {
        for number in 0..count {
            there.send(number).await.expect("somebody who listens");
            returns.recv().await.expect("an answer");
        }
    });
    one.await.expect("a task that ends");
    other.await.expect("a task that ends");
}

/// Closures in one color, a hundred at a time.
pub(crate) async fn calls(count: usize) {
    let color = Color::new();
    for _ in 0..count.div_ceil(AT_ONCE) {
        for i in 1..AT_ONCE {
            color.call(move || black_box(i)).detach();
        }
        color.call(|| black_box(0)).await.expect("a closure that ends");
    }
}
