//! `TBoundedQueue`: a queue with a bound, in transactions.
//!
//! It is a ring of places. A push touches the tail's position and one place, a pop the head's position and one place. A
//! place tells by itself whether it is free: the producer does not look at the head, nor the consumer at the tail. So they
//! conflict only if the queue is full or empty, and both are at the same place.
//!
//! # Invariants
//!
//! * **RING-BETWEEN**: the places from the head's position to before the tail's have values, all others have none.
//! * **TWICE-ROUND**: positions count to twice the capacity, so that a full ring is not taken for an empty one.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::{Abort, TVar, Transaction};

/// Places that are made together, when the first of them is used.
const CHUNK: usize = 64;

/// A queue of a bounded length: a push waits for room, a pop for a value. Each value is popped once, in the order of the
/// pushes.
///
/// Use it between producers and consumers, where pushing or popping is a part of a larger transaction: one that also counts,
/// or takes from one of several queues. Otherwise [`channel::mpmc`](crate::channel::mpmc) does the same at a lower cost, and
/// serves waiters in order.
///
/// Producers conflict with each other, and so do consumers. A producer and a consumer do so only if the queue is empty or
/// full.
///
/// A clone is another handle of the same queue. A value that is popped is cloned, as the transaction may still be undone:
/// put large ones behind an [`Arc`].
///
/// # Examples
///
/// ```
/// use dapple::stm::{TBoundedQueue, TVar, atomically};
///
/// dapple::run(async {
///     let (queue, done) = (TBoundedQueue::new(2), TVar::new(0));
///     let consumer = dapple::spawn({
///         let (queue, done) = (queue.clone(), done.clone());
///         async move {
///             for job in 0..100 {
///                 let popped = atomically(|tx| {
///                     tx.modify(&done, |done| *done += 1)?;
///                     queue.pop(tx)
///                 });
///                 assert_eq!(popped.await, Ok(job));
///             }
///         }
///     });
///     for job in 0..100 {
///         atomically(|tx| queue.push(tx, job)).await.unwrap(); // sleeps while two are in it
///     }
///     consumer.await.unwrap();
///     assert_eq!(done.load(), 100);
/// });
/// ```
pub struct TBoundedQueue<T>(Arc<PlaceRing<T>>);

struct PlaceRing<T> {
    /// Where the next value is popped, and pushed. TWICE-ROUND
    head: TVar<usize>,
    tail: TVar<usize>,
    capacity: usize,
    chunks: Box<[RingChunk<T>]>,
}

/// Some places, which are made when they are first used.
struct RingChunk<T>(OnceLock<Box<[TVar<Option<T>>]>>);

impl<T: Send + Sync + 'static> PlaceRing<T> {
    fn place(&self, position: usize) -> &TVar<Option<T>> {
        let index = if position < self.capacity { position } else { position - self.capacity };
        let chunk = self.chunks[index / CHUNK].0.get_or_init(|| {
            let places = CHUNK.min(self.capacity - index / CHUNK * CHUNK);
            (0..places).map(|_| TVar::new(None)).collect()
        });
        &chunk[index % CHUNK]
    }

    fn after(&self, position: usize) -> usize {
        if position + 1 == 2 * self.capacity { 0 } else { position + 1 } // TWICE-ROUND
    }
}

impl<T: Clone + Send + Sync + 'static> TBoundedQueue<T> {
    /// Makes an empty queue with room for `capacity` values.
    ///
    /// # Panics
    ///
    /// If `capacity` is 0, or so large that there is no memory for that many values.
    #[must_use]
    #[track_caller]
    pub fn new(capacity: usize) -> TBoundedQueue<T> {
        assert!(
            capacity > 0,
            "stm::TBoundedQueue: the capacity is 0, so that no push could end. Use a capacity of 1, or a TMVar, to hand values \
             over one by one"
        );
        let mut chunks = Vec::new();
        let is_refused = chunks.try_reserve_exact(capacity.div_ceil(CHUNK)).is_err();
        assert!(
            !is_refused,
            "stm::TBoundedQueue: there is no memory for a capacity of {capacity}. Use a TQueue for a queue without a bound"
        );
        chunks.resize_with(capacity.div_ceil(CHUNK), || RingChunk(OnceLock::new()));
        let chunks = chunks.into_boxed_slice();
        TBoundedQueue(Arc::new(PlaceRing { head: TVar::new(0), tail: TVar::new(0), capacity, chunks }))
    }

    /// Returns the capacity of the queue: the largest number of values that it holds, set by [`new`](Self::new).
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Appends a value. If there is no room, calls [`retry`](Transaction::retry): the transaction waits.
    ///
    /// # Errors
    ///
    /// If the queue is full, or the transaction is aborted: the value is dropped.
    pub fn push(&self, tx: &mut Transaction<'_>, value: T) -> Result<(), Abort> {
        match self.try_push(tx, value)? {
            Ok(()) => Ok(()),
            Err(_full) => tx.retry(),
        }
    }

    /// Appends a value, or returns it if there is no room.
    ///
    /// # Errors
    ///
    /// `Err`, if the transaction is aborted: the value is dropped. `Ok(Err(value))`, if the value was not put in.
    pub fn try_push(&self, tx: &mut Transaction<'_>, value: T) -> Result<Result<(), T>, Abort> {
        let position = tx.read(&self.0.tail)?;
        let place = self.0.place(position);
        if tx.with(place, Option::is_some)? {
            return Ok(Err(value)); // RING-BETWEEN
        }
        tx.write(place, Some(value))?;
        tx.write(&self.0.tail, self.0.after(position)).map(Ok)
    }

    /// Removes the first value, and returns it. If the queue is empty, calls [`retry`](Transaction::retry): the transaction waits.
    ///
    /// # Errors
    ///
    /// If the queue is empty, or the transaction is aborted.
    pub fn pop(&self, tx: &mut Transaction<'_>) -> Result<T, Abort> {
        match self.try_pop(tx)? {
            Some(value) => Ok(value),
            None => tx.retry(),
        }
    }

    /// Removes the first value, and returns it; `None` if the queue is empty.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn try_pop(&self, tx: &mut Transaction<'_>) -> Result<Option<T>, Abort> {
        let position = tx.read(&self.0.head)?;
        let place = self.0.place(position);
        let Some(value) = tx.read(place)? else { return Ok(None) }; // RING-BETWEEN
        tx.write(place, None)?;
        tx.write(&self.0.head, self.0.after(position))?;
        Ok(Some(value))
    }

    /// Returns a clone of the first value, which stays in the queue. If the queue is empty, calls [`retry`](Transaction::retry): the transaction waits.
    ///
    /// # Errors
    ///
    /// If the queue is empty, or the transaction is aborted.
    pub fn peek(&self, tx: &mut Transaction<'_>) -> Result<T, Abort> {
        match self.try_peek(tx)? {
            Some(value) => Ok(value),
            None => tx.retry(),
        }
    }

    /// Returns a clone of the first value, which stays in the queue; `None` if the queue is empty.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn try_peek(&self, tx: &mut Transaction<'_>) -> Result<Option<T>, Abort> {
        let position = tx.read(&self.0.head)?;
        tx.read(self.0.place(position))
    }

    /// Whether the queue is empty, so that [`pop`](Self::pop) would wait.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn is_empty(&self, tx: &mut Transaction<'_>) -> Result<bool, Abort> {
        let position = tx.read(&self.0.head)?;
        tx.with(self.0.place(position), Option::is_none)
    }

    /// Whether the queue is full, so that [`push`](Self::push) would wait.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn is_full(&self, tx: &mut Transaction<'_>) -> Result<bool, Abort> {
        let position = tx.read(&self.0.tail)?;
        tx.with(self.0.place(position), Option::is_some)
    }

    /// Returns the number of values in the queue. A transaction that calls this conflicts with each push and pop.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn len(&self, tx: &mut Transaction<'_>) -> Result<usize, Abort> {
        let (tail, head) = (tx.read(&self.0.tail)?, tx.read(&self.0.head)?);
        Ok(if tail >= head { tail - head } else { tail + 2 * self.0.capacity - head }) // TWICE-ROUND
    }
}

impl<T> Clone for TBoundedQueue<T> {
    /// Makes another handle of the same queue.
    fn clone(&self) -> TBoundedQueue<T> {
        TBoundedQueue(self.0.clone())
    }
}

impl<T> fmt::Debug for TBoundedQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TBoundedQueue").field("capacity", &self.0.capacity).finish_non_exhaustive()
    }
}
