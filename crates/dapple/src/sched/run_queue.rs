//! The run queue of a worker: a ring buffer that its owner pushes to and any thread takes from.
//!
//! It has two counters that only grow: `head` (taken up to here) and `tail` (pushed up to here). The owner pops one
//! by moving `head` by one. A thief copies half of the content and then moves `head` past it. If its compare-and-swap
//! fails, the copy is discarded.
//!
//! # Invariants
//!
//! * **OWNER-PUSHES**: only the owner writes slots and `tail`.
//! * **SLOT-KEPT**: a slot between `head` and `tail` is not overwritten: the owner reads `head` with acquire before
//!   it writes, and a thread moves `head` with release, after reading the slots.
//! * **TAKEN-ONCE**: the content of slots before `head` belongs to the thread whose compare-and-swap moved `head`
//!   past them.
//! * **PUBLISHED**: `tail` is stored with release and loaded with acquire, so a thread that sees `tail` sees the
//!   pushed content.

use std::ptr::NonNull;

use crate::prim::{AtomicPtr, AtomicUsize, IS_MODEL, Ordering};

/// Capacity of a run queue. Small in models, so that a model reaches full and empty.
pub(crate) const CAPACITY: usize = if IS_MODEL { 4 } else { 1024 };

pub(crate) struct RunQueue<N> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: [AtomicPtr<N>; CAPACITY],
}

impl<N> RunQueue<N> {
    pub(crate) fn new() -> RunQueue<N> {
        let slots = std::array::from_fn(|_| AtomicPtr::default());
        RunQueue { head: AtomicUsize::new(0), tail: AtomicUsize::new(0), slots }
    }

    /// A run queue that is always full: every push fails. No thread may take from it.
    pub(crate) fn closed() -> RunQueue<N> {
        RunQueue { tail: AtomicUsize::new(CAPACITY), ..RunQueue::new() }
    }

    fn slot(&self, index: usize) -> &AtomicPtr<N> {
        &self.slots[index % CAPACITY]
    }

    /// Approximate length.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).wrapping_sub(head).min(CAPACITY)
    }

    /// Whether it is empty. For the owner.
    #[inline]
    pub(crate) fn is_empty_for_owner(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == self.head.load(Ordering::Relaxed) // OWNER-PUSHES
    }

    /// Pushes at the end. `Ok(true)`: it is the only one. `Err` returns it if the queue is full. For the owner.
    #[inline]
    pub(crate) fn push(&self, node: NonNull<N>) -> Result<bool, NonNull<N>> {
        let tail = self.tail.load(Ordering::Relaxed); // OWNER-PUSHES
        let head = self.head.load(Ordering::Acquire); // SLOT-KEPT
        if tail.wrapping_sub(head) >= CAPACITY {
            return Err(node);
        }
        self.slot(tail).store(node.as_ptr(), Ordering::Relaxed);
        self.tail.store(tail.wrapping_add(1), Ordering::Release); // PUBLISHED
        Ok(tail == head)
    }

    /// Takes the oldest. For the owner.
    #[inline]
    pub(crate) fn pop(&self) -> Option<NonNull<N>> {
        let tail = self.tail.load(Ordering::Relaxed); // OWNER-PUSHES
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            let node = self.slot(head).load(Ordering::Relaxed);
            match self.move_head(head, 1) {
                Ok(()) => return NonNull::new(node),
                Err(now) => head = now,
            }
        }
        None
    }

    /// The position of the next push. Each position is used once. For the owner.
    pub(crate) fn end(&self) -> usize {
        self.tail.load(Ordering::Relaxed) // OWNER-PUSHES
    }

    /// Whether the oldest was pushed before this position, which `end` returned. For the owner.
    pub(crate) fn begins_before(&self, position: usize) -> bool {
        let ahead = position.wrapping_sub(self.head.load(Ordering::Relaxed));
        (1..=CAPACITY).contains(&ahead)
    }

    /// Takes the older half of a full queue. For the owner.
    pub(crate) fn pop_half(&self, mut each: impl FnMut(NonNull<N>)) {
        const HALF: usize = CAPACITY / 2;
        let head = self.head.load(Ordering::Relaxed);
        if self.tail.load(Ordering::Relaxed).wrapping_sub(head) < HALF || self.move_head(head, HALF).is_err()
        {
            return; // thieves have made room
        }
        for index in 0..HALF {
            // The content before `head` is still in its slot: only the owner overwrites it. OWNER-PUSHES
            let node = self.slot(head.wrapping_add(index)).load(Ordering::Relaxed);
            NonNull::new(node).into_iter().for_each(&mut each);
        }
    }

    /// Moves the older half (rounded up) into the thief's own queue, which must be empty, except the last of them,
    /// which is returned to be run. For a thread that owns `into`.
    pub(crate) fn steal_into(&self, into: &RunQueue<N>) -> Option<NonNull<N>> {
        let start = into.tail.load(Ordering::Relaxed); // OWNER-PUSHES: `into` belongs to the caller
        debug_assert_eq!(into.len(), 0);
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let there = self.tail.load(Ordering::Acquire).wrapping_sub(head); // PUBLISHED
            if there == 0 || there > CAPACITY {
                return None; // empty, or `head` is out of date because other threads take from it
            }
            let count = there - there / 2;
            for index in 0..count {
                let node = self.slot(head.wrapping_add(index)).load(Ordering::Relaxed);
                into.slot(start.wrapping_add(index)).store(node, Ordering::Relaxed);
            }
            match self.move_head(head, count) {
                Ok(()) => {
                    let kept = start.wrapping_add(count - 1);
                    into.tail.store(kept, Ordering::Release); // PUBLISHED
                    return NonNull::new(into.slot(kept).load(Ordering::Relaxed));
                }
                Err(now) => head = now,
            }
        }
    }

    #[inline]
    fn move_head(&self, from: usize, by: usize) -> Result<(), usize> {
        let to = from.wrapping_add(by);
        // Release: the slots have been read (SLOT-KEPT). Acquire: for another try.
        self.head.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}
