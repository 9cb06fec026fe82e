//! Serial queues by hand in `callback`: for each color a queue behind a lock, over a pool of threads.
//!
//! The submitter that puts the first closure into an empty queue asks the pool to run the queue. The pool thread that
//! runs the queue takes all its closures under one lock, and puts the queue at the end of the pool's line if more have
//! come, so that other queues get their turn. The pool is rayon's, with as many threads as the others have workers; the
//! submitter is one of its jobs, as it is a task elsewhere.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{ALL_CALLED, BATCH, Job, batch_of, call, check, expect};
use crate::contest::Sample;
use crate::sides::WORKERS;
use crate::work::Stopwatch;

/// The queue of a color.
#[derive(Default)]
#[repr(align(64))]
struct Queue(Mutex<Line>);

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    /// The pool has been asked to run it.
    is_scheduled: bool,
}

/// One round.
pub(super) fn round(colors: usize, batches: usize) -> Sample {
    let pool = ThreadPoolBuilder::new().num_threads(WORKERS).build().expect("a pool of threads");
    let queues: Arc<[Queue]> = (0..colors).map(|_| Queue::default()).collect();
    submit_all(&pool, &queues, batches.div_ceil(10));
    let stopwatch = Stopwatch::start();
    submit_all(&pool, &queues, batches);
    stopwatch.contended(batches * BATCH)
}

fn submit_all(pool: &ThreadPool, queues: &Arc<[Queue]>, batches: usize) {
    expect(queues.len(), batches * BATCH);
    let submitter = queues.clone();
    pool.spawn(move || {
        for batch in 0..batches {
            for (color, number) in batch_of(batch, submitter.len()) {
                submit(&submitter, color, Box::new(move || call(color, number)));
            }
            rayon::yield_now();
        }
    });
    smol::future::block_on(ALL_CALLED.pass());
    check(queues.len(), batches * BATCH);
}

#[inline]
fn submit(queues: &Arc<[Queue]>, color: usize, job: Job) {
    let mut line = queues[color].0.lock();
    line.jobs.push_back(job);
    if !mem::replace(&mut line.is_scheduled, true) {
        drop(line);
        schedule(queues.clone(), color);
    }
}

fn schedule(queues: Arc<[Queue]>, color: usize) {
    rayon::spawn_fifo(move || run(queues, color));
}

/// The pool's job for a queue: runs its closures.
fn run(queues: Arc<[Queue]>, color: usize) {
    let queue = &queues[color];
    let mut jobs = mem::take(&mut queue.0.lock().jobs);
    jobs.drain(..).for_each(|job| job());
    let mut line = queue.0.lock();
    if line.jobs.is_empty() {
        line.jobs = jobs; // its memory
        line.is_scheduled = false;
    } else {
        drop(line);
        schedule(queues, color);
    }
}
