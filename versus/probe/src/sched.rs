//! Tasks, yields, messages and colors.

use std::hint::black_box;

use dapple::Color;
use dapple::channel::{mpsc, oneshot};
use dapple::task::yield_now;

/// How many tasks are alive at a time.
const AT_ONCE: usize = 100;
/// How many messages a channel holds.
const CAPACITY: usize = 100;

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
            back.send(number).await.expect("a receiver");
        }
    });
    let one = dapple::spawn(async move {
        for number in 0..count {
            there.send(number).await.expect("a receiver");
            returns.recv().await.expect("an answer");
        }
    });
    one.await.expect("a task that ends");
    other.await.expect("a task that ends");
}

/// Messages from a task to another, through a channel that is full and empty by turns.
pub(crate) async fn mpsc(count: usize) {
    let (sender, mut receiver) = mpsc::bounded::<usize>(CAPACITY);
    let task = dapple::spawn(async move {
        for number in 0..count {
            sender.send(number).await.expect("a receiver");
        }
    });
    let mut received = 0;
    while let Ok(number) = receiver.recv().await {
        assert_eq!(number, received);
        received += 1;
    }
    task.await.expect("a task that ends");
    assert_eq!(received, count);
}

/// Values from a task that is spawned for it, each through a channel of its own.
pub(crate) async fn oneshot(count: usize) {
    for number in 0..count {
        let (sender, receiver) = oneshot::channel();
        dapple::spawn(async move { sender.send(number).expect("a receiver") }).detach();
        assert_eq!(receiver.await, Ok(number));
    }
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
