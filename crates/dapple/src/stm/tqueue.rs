//! `TQueue`: a queue without a bound, in transactions.
//!
//! ```text
//! head: position, segment ---> [ places | next ] ---> [ places | next ] <--- tail: position, segment
//! ```
//!
//! A push touches the tail and one place, a pop the head and one place. So producers and consumers do not conflict, unless
//! the queue is empty and both are at the same place. A list of places in segments was chosen over two lists, one of which
//! is reversed into the other: the reversal is one long transaction, which pushes would abort.
//!
//! # Invariants
//!
//! * **VALUES-BETWEEN**: the places from the head's position to before the tail's have values, all others have none.
//! * **FULL-HAS-NEXT**: the transaction that puts a value into the last place of a segment adds the next one.

use std::array;
use std::fmt;
use std::sync::Arc;

use super::{Abort, TVar, Transaction};

/// Places of a segment. A power of two.
const PLACES: usize = 16;

/// A queue of any length. Each value is popped once, in the order of the pushes.
///
/// Use it where producers must not wait. Prefer [`TBoundedQueue`](super::TBoundedQueue), which slows producers down when
/// consumers are late, and takes less memory for each value.
///
/// Producers conflict with each other, and so do consumers. A producer and a consumer do so only if the queue is empty.
///
/// A clone is another handle of the same queue. A value that is popped is cloned, as the transaction may still be undone:
/// put large ones behind an [`Arc`].
///
/// # Examples
///
/// ```
/// use dapple::stm::{TQueue, atomically};
///
/// dapple::run(async {
///     let (urgent, other) = (TQueue::new(), TQueue::new());
///     let worker = dapple::spawn({
///         let (urgent, other) = (urgent.clone(), other.clone());
///         // Takes from the first queue that has a job, and sleeps while both are empty.
///         atomically(move |tx| tx.or_else(|tx| urgent.pop(tx), |tx| other.pop(tx)))
///     });
///     atomically(|tx| {
///         other.push(tx, "sweep")?;
///         urgent.push(tx, "mend")
///     })
///     .await
///     .unwrap();
///     assert_eq!(worker.await.unwrap(), Ok("mend"));
/// });
/// ```
pub struct TQueue<T>(Arc<QueueEnds<T>>);

struct QueueEnds<T> {
    head: QueueEnd<T>,
    tail: QueueEnd<T>,
}

/// Where values are pushed, or popped.
struct QueueEnd<T> {
    /// How many were pushed, or popped.
    position: TVar<usize>,
    segment: TVar<Arc<Segment<T>>>,
}

struct Segment<T> {
    places: [TVar<Option<T>>; PLACES],
    /// FULL-HAS-NEXT
    next: TVar<Option<Arc<Segment<T>>>>,
}

impl<T: Send + Sync + 'static> Segment<T> {
    fn new() -> Arc<Segment<T>> {
        Arc::new(Segment { places: array::from_fn(|_| TVar::new(None)), next: TVar::new(None) })
    }
}

impl<T: Clone + Send + Sync + 'static> TQueue<T> {
    /// Makes an empty queue.
    #[must_use]
    pub fn new() -> TQueue<T> {
        let segment = Segment::new();
        let end = |segment| QueueEnd { position: TVar::new(0), segment: TVar::new(segment) };
        TQueue(Arc::new(QueueEnds { head: end(segment.clone()), tail: end(segment) }))
    }

    /// Appends a value. It never waits.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted: the value is dropped.
    pub fn push(&self, tx: &mut Transaction<'_>, value: T) -> Result<(), Abort> {
        let tail = &self.0.tail;
        let position = tx.read(&tail.position)?;
        let segment = tx.get(&tail.segment)?;
        tx.write(&segment.places[position % PLACES], Some(value))?;
        if position % PLACES == PLACES - 1 {
            let next = Segment::new();
            tx.write(&segment.next, Some(next.clone()))?; // FULL-HAS-NEXT
            tx.write(&tail.segment, next)?;
        }
        tx.write(&tail.position, position.wrapping_add(1))
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
        let head = &self.0.head;
        let position = tx.read(&head.position)?;
        let segment = tx.get(&head.segment)?;
        let place = &segment.places[position % PLACES];
        let Some(value) = tx.read(place)? else { return Ok(None) }; // VALUES-BETWEEN
        tx.write(place, None)?;
        if position % PLACES == PLACES - 1 {
            let next = tx.read(&segment.next)?.expect("the next segment comes with the last value"); // FULL-HAS-NEXT
            tx.write(&head.segment, next)?;
        }
        tx.write(&head.position, position.wrapping_add(1))?;
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
        self.at_head(tx, Option::clone)
    }

    /// Whether the queue is empty, so that [`pop`](Self::pop) would wait.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn is_empty(&self, tx: &mut Transaction<'_>) -> Result<bool, Abort> {
        self.at_head(tx, Option::is_none)
    }

    fn at_head<R>(&self, tx: &mut Transaction<'_>, f: impl FnOnce(&Option<T>) -> R) -> Result<R, Abort> {
        let head = &self.0.head;
        let position = tx.read(&head.position)?;
        let segment = tx.get(&head.segment)?;
        tx.with(&segment.places[position % PLACES], f)
    }

    /// Returns the number of values in the queue. A transaction that calls this conflicts with each push and pop.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn len(&self, tx: &mut Transaction<'_>) -> Result<usize, Abort> {
        let (pushed, popped) = (tx.read(&self.0.tail.position)?, tx.read(&self.0.head.position)?);
        Ok(pushed.wrapping_sub(popped))
    }
}

impl<T> Clone for TQueue<T> {
    /// Makes another handle of the same queue.
    fn clone(&self) -> TQueue<T> {
        TQueue(self.0.clone())
    }
}

impl<T: Clone + Send + Sync + 'static> Default for TQueue<T> {
    fn default() -> TQueue<T> {
        TQueue::new()
    }
}

impl<T> fmt::Debug for TQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TQueue").finish_non_exhaustive()
    }
}
