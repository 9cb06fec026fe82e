//! The threads of the system in `fifo`: one for each task of the others, in calls that block.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::{Arc, Barrier};
use std::thread::{self, Builder, JoinHandle};

use super::{MESSAGE, MESSAGES, PAIRS, check, sample, shrink, stamp};
use crate::contest::{Failure, Sample};
use crate::work::Stopwatch;

/// Bytes of a stack: enough for any of them, and little to set up.
const STACK: usize = 128 * 1024;

/// One round.
pub(super) fn round(idle: usize, exchanges: usize) -> Result<Sample, Failure> {
    let mut silent = Vec::with_capacity(idle);
    let mut waiting = Vec::with_capacity(idle);
    for _ in 0..idle {
        let (mut receiver, sender) = open()?;
        silent.push(sender);
        waiting.push(spawn(move || receiver.read(&mut [0]).expect("a pipe that holds"))?);
    }
    talk(exchanges.div_ceil(10))?;
    let sample = talk(exchanges)?;
    drop(silent);
    for thread in waiting {
        assert_eq!(thread.join().expect("a thread that ends"), 0, "nothing but the end of a silent pipe");
    }
    Ok(sample)
}

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, Failure> {
    Builder::new().stack_size(STACK).spawn(work).map_err(|error| format!("no more threads: {error}"))
}

fn open() -> Result<(PipeReader, PipeWriter), Failure> {
    let (receiver, sender) = io::pipe().map_err(|error| format!("no more pipes: {error}"))?;
    shrink(&sender);
    Ok((receiver, sender))
}

/// Lets all pairs exchange `exchanges` messages each.
fn talk(exchanges: usize) -> Result<Sample, Failure> {
    let mut threads = Vec::with_capacity(MESSAGES);
    let begun = Arc::new(Barrier::new(2 * PAIRS + 1));
    for _ in 0..PAIRS {
        let (from_first, to_second) = open()?;
        let (from_second, to_first) = open()?;
        let (first, second) = (begun.clone(), begun.clone());
        threads.push(spawn(move || {
            first.wait();
            begin(to_second, from_second, exchanges);
        })?);
        threads.push(spawn(move || {
            second.wait();
            answer(to_first, from_first, exchanges);
        })?);
    }
    thread::yield_now(); // so that most of them are there
    let stopwatch = Stopwatch::start();
    begun.wait();
    for thread in threads {
        thread.join().expect("a thread that ends");
    }
    Ok(sample(stopwatch, exchanges))
}

fn begin(mut to: PipeWriter, mut from: PipeReader, exchanges: usize) {
    let mut message = vec![0; MESSAGE];
    for number in 0..exchanges {
        stamp(&mut message, number);
        to.write_all(&message).expect("a pipe that holds");
        from.read_exact(&mut message).expect("a pipe that holds");
        check(&message, number + 1);
    }
}

fn answer(mut to: PipeWriter, mut from: PipeReader, exchanges: usize) {
    let mut message = vec![0; MESSAGE];
    for number in 0..exchanges {
        from.read_exact(&mut message).expect("a pipe that holds");
        check(&message, number);
        stamp(&mut message, number + 1);
        to.write_all(&message).expect("a pipe that holds");
    }
}
