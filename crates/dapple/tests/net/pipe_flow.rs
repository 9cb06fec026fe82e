//! Pipes that are smaller than the data sent through them: both ends retry, or are woken when the pipe is ready.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::common::{runtime, watched};
use dapple::is_cancelled;
use dapple::net::pipe;
use dapple::net::pipe::{Receiver, Sender};
use dapple::task::yield_now;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use rustix::pipe::fcntl_setpipe_size;

/// As small as a pipe gets.
const PAGE: usize = 4096;

fn small_pipe() -> (Sender, Receiver) {
    let (sender, receiver) = pipe().unwrap();
    assert_eq!(fcntl_setpipe_size(&sender, PAGE).unwrap(), PAGE);
    (sender, receiver)
}

/// The byte at a position of a stream.
fn byte(position: usize) -> u8 {
    (position % 251) as u8
}

fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(byte).collect()
}

/// Runs a test in a task of a runtime with one worker, so that what it spawns runs when it yields and only then.
fn on_one_worker(test: impl Future<Output = ()> + Send + 'static) {
    watched(|| {
        let rt = runtime(1);
        rt.block_on(rt.spawn(test)).unwrap();
    });
}

/// Counts the polls of a future.
async fn counted<F: Future>(count: Arc<AtomicUsize>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        count.fetch_add(1, Relaxed);
        future.as_mut().poll(cx)
    })
    .await
}

/// Both ends in turns on one worker, and at the same time on two.
#[test]
fn messages_larger_than_the_pipe_come_through_whole() {
    const MESSAGE: usize = 8 * PAGE + 17;
    for workers in [1, 2] {
        watched(move || {
            runtime(workers).block_on(async {
                let mut tasks = Vec::new();
                for _ in 0..8 {
                    let ((mut there, mut from_there), (mut back, mut from_back)) =
                        (small_pipe(), small_pipe());
                    tasks.push(dapple::spawn(async move {
                        for number in 0..20 {
                            let mut message = bytes(number, MESSAGE);
                            there.write_all(&message).await.unwrap();
                            from_back.read_exact(&mut message).await.unwrap();
                            assert_eq!(message, bytes(number + 1, MESSAGE));
                        }
                    }));
                    tasks.push(dapple::spawn(async move {
                        for number in 0..20 {
                            let mut message = vec![0; MESSAGE];
                            from_there.read_exact(&mut message).await.unwrap();
                            assert_eq!(message, bytes(number, MESSAGE));
                            back.write_all(&bytes(number + 1, MESSAGE)).await.unwrap();
                        }
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
    }
}

/// A thread outside takes its time, so that trying again does not help, and no event may be lost.
#[test]
fn the_other_end_may_be_outside() {
    const MUCH: usize = 1_000_000;
    watched(|| {
        runtime(1).block_on(async {
            let (sender, mut receiver) = small_pipe();
            let mut outside = std::fs::File::from(sender.into_blocking_fd().unwrap());
            let writes = thread::spawn(move || {
                let mut position = 0;
                while position < MUCH {
                    let len = (1 + position % 7000).min(MUCH - position);
                    outside.write_all(&bytes(position, len)).unwrap();
                    position += len;
                }
            });
            let mut all = Vec::new();
            receiver.read_to_end(&mut all).await.unwrap();
            writes.join().unwrap();
            assert!(all.len() == MUCH && all.iter().enumerate().all(|(i, b)| *b == byte(i)));

            let (mut sender, receiver) = small_pipe();
            let mut outside = std::fs::File::from(receiver.into_blocking_fd().unwrap());
            let reads = thread::spawn(move || {
                let (mut position, mut buffer) = (0, [0; 7000]);
                loop {
                    let len = outside.read(&mut buffer[..1 + position % 7000]).unwrap();
                    if len == 0 {
                        return position;
                    }
                    assert_eq!(buffer[..len], bytes(position, len));
                    position += len;
                }
            });
            sender.write_all(&bytes(0, MUCH)).await.unwrap();
            drop(sender);
            assert_eq!(reads.join().unwrap(), MUCH);
        });
    });
}

/// A waiter goes to sleep in the end: it is not polled each time that other tasks have run.
#[test]
fn an_empty_or_full_pipe_is_not_retried_in_a_loop() {
    on_one_worker(async {
        let (mut sender, mut receiver) = small_pipe();
        let polls = Arc::new(AtomicUsize::new(0));
        let reads = dapple::spawn(counted(polls.clone(), async move {
            let mut buffer = [0; 2 * PAGE];
            receiver.read_exact(&mut buffer).await.unwrap();
            receiver
        }));
        for _ in 0..10 {
            // Each a short read, most of them after others have run.
            sender.write_all(&[1; 100]).await.unwrap();
            yield_now().await;
        }
        for _ in 0..1000 {
            yield_now().await;
        }
        let before = polls.load(Relaxed);
        for _ in 0..1000 {
            yield_now().await;
        }
        assert_eq!(polls.load(Relaxed), before, "polls of who waits");
        sender.write_all(&[1; 2 * PAGE - 1000]).await.unwrap();
        let receiver = reads.await.unwrap();

        let polls = Arc::new(AtomicUsize::new(0));
        let writes = dapple::spawn(counted(polls.clone(), async move {
            sender.write_all(&[1; 2 * PAGE]).await.unwrap_err();
        }));
        for _ in 0..1000 {
            yield_now().await;
        }
        let before = polls.load(Relaxed);
        for _ in 0..1000 {
            yield_now().await;
        }
        assert_eq!(polls.load(Relaxed), before, "polls of who waits");
        drop(receiver);
        writes.await.unwrap();
    });
}

/// A wait that has begun by letting other tasks run, and is then cancelled, takes the bytes that are there. Without bytes it
/// returns the cancellation error, and takes nothing.
#[test]
fn cancelled_while_others_run() {
    for has_more in [false, true] {
        on_one_worker(async move {
            let (mut sender, mut receiver) = small_pipe();
            sender.write_all(b"short").await.unwrap();
            let mut buffer = [0; 100];
            assert_eq!(receiver.read(&mut buffer).await.unwrap(), 5);
            let reads = dapple::spawn(async move {
                let mut buffer = [0; 100];
                let result = receiver.read(&mut buffer).await;
                (result, receiver)
            });
            yield_now().await; // now it has begun
            if has_more {
                sender.write_all(b"more").await.unwrap();
            }
            reads.cancel();
            let (result, mut receiver) = reads.await.unwrap();
            match result {
                Ok(n) => assert!(has_more && n == 4),
                Err(error) => assert!(!has_more && is_cancelled(&error)),
            }
            sender.write_all(b"the rest").await.unwrap();
            assert_eq!(receiver.read(&mut [0; 100]).await.unwrap(), 8, "nothing was lost");
        });
    }
}

/// The end of a pipe is seen at the next attempt to read or write.
#[test]
fn the_end_is_seen_at_the_next_attempt() {
    on_one_worker(async {
        let (mut sender, mut receiver) = small_pipe();
        sender.write_all(b"last").await.unwrap();
        assert_eq!(receiver.read(&mut [0; 100]).await.unwrap(), 4);
        drop(sender);
        assert_eq!(receiver.read(&mut [0; 100]).await.unwrap(), 0);

        let (mut sender, receiver) = small_pipe();
        assert_eq!(sender.write(&[0; 2 * PAGE]).await.unwrap(), PAGE);
        drop(receiver);
        let error = sender.write(&[0]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    });
}
