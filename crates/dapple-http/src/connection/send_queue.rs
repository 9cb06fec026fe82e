//! Bytes of responses that an HTTP/2 connection has queued for a client that does not read them.
//!
//! hyper takes a whole piece of a body as soon as the stream may send one byte. A client that opens many streams and
//! reads none would hold one full piece for each of them. So a body learns, while it is polled, how large its next
//! piece should be ([`piece_limit`]): the more the connection has queued, the smaller. No stream ever waits for the
//! others: a client that reads one stream and ignores the rest still gets that stream.
//!
//! # Invariants
//!
//! * **QUEUE-BOUNDED**: with more than [`FREE_RESPONSES`] responses, a piece is at most a quarter of the free part of
//!   [`BUDGET`], and at least [`LEAST_PIECE`]. hyper takes up to two pieces of a body whose window is shut. So bodies that
//!   follow the limit hold at most [`BUDGET`] and two [`LEAST_PIECE`]s for each stream, beyond the pieces of the first
//!   [`FREE_RESPONSES`]. Where the windows are open and the socket is full, h2 takes `UNSENT` bytes of each stream
//!   (`server/http2.rs`).

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that a connection may queue before pieces have the least size.
const BUDGET: usize = 512 << 10;

/// Responses of one connection that are sent without a limit.
const FREE_RESPONSES: usize = 4;

/// The least limit: a page of the kernel's cache.
const LEAST_PIECE: usize = 4 << 10;

/// The responses that a connection is sending, and the bytes of their pieces that hyper holds.
#[derive(Default)]
pub(super) struct SendQueue {
    responses: AtomicUsize,
    bytes: AtomicUsize,
}

impl SendQueue {
    pub(super) fn response_began(&self) {
        self.responses.fetch_add(1, Relaxed);
    }

    pub(super) fn response_ended(&self) {
        self.responses.fetch_sub(1, Relaxed);
    }

    /// A piece counts in full until it is dropped: its memory is freed as a whole.
    pub(super) fn piece_queued(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn piece_gone(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// The most bytes that the next piece should have. QUEUE-BOUNDED
    pub(super) fn piece_limit(&self) -> usize {
        if self.responses.load(Relaxed) <= FREE_RESPONSES {
            return usize::MAX;
        }
        let free = BUDGET.saturating_sub(self.bytes.load(Relaxed));
        (free / 4 / LEAST_PIECE * LEAST_PIECE).max(LEAST_PIECE)
    }
}

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Polls a body that may ask for [`piece_limit`] meanwhile.
#[inline]
pub(crate) fn with_piece_limit<R>(limit: usize, poll: impl FnOnce() -> R) -> R {
    let outer = LIMIT.replace(limit);
    let polled = poll();
    LIMIT.set(outer); // a poll that panics leaves a limit: the next one sets its own
    polled
}

/// The most bytes that the next piece of the body that is being polled should have.
#[cfg(feature = "files")]
pub(crate) fn piece_limit() -> usize {
    LIMIT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_pieces_stay_within_the_budget_and_a_least_piece_for_each_stream() {
        const STREAMS: usize = 100;
        const WANTED: usize = 64 << 10;
        let queue = SendQueue::default();
        (0..STREAMS).for_each(|_| queue.response_began());
        let mut held = Vec::new();
        for _ in 0..STREAMS {
            let piece = WANTED.min(queue.piece_limit());
            assert!(piece >= LEAST_PIECE);
            queue.piece_queued(piece);
            held.push(piece);
        }
        assert_eq!(held[0], WANTED);
        assert!(held.iter().sum::<usize>() <= BUDGET + STREAMS * LEAST_PIECE);
        held.into_iter().for_each(|piece| queue.piece_gone(piece));
        assert!(queue.piece_limit() >= WANTED, "a client that has read gets full pieces again");
    }

    #[test]
    fn few_responses_are_not_limited() {
        let queue = SendQueue::default();
        (0..FREE_RESPONSES).for_each(|_| queue.response_began());
        queue.piece_queued(10 * BUDGET);
        assert_eq!(queue.piece_limit(), usize::MAX);
        queue.response_began();
        assert_eq!(queue.piece_limit(), LEAST_PIECE);
        queue.response_ended();
        assert_eq!(queue.piece_limit(), usize::MAX);
    }
}
