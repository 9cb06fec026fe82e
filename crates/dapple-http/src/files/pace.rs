//! Size of the next piece of a file, by the speed of the client: a client that does not read keeps its piece in memory.
//!
//! The speed is the time between two requests for a piece: hyper asks for the next one when it has sent the last one.

use std::time::Duration;

use dapple::time::Instant;

use super::buffers;

/// Bytes that the buffers on the way to a client take, however slow the client is.
const PROVEN: u64 = 4 << 20;

/// The longest time for [`buffers::SIZE`] bytes that counts as fast: half a gigabit a second.
const FAST: Duration = Duration::from_millis(1);

/// A piece that took up to this time may be late because other clients had their turn.
const TURNS: Duration = Duration::from_millis(20);

/// Bytes that must be taken fast again after such a piece.
const AGAIN: u64 = 128 << 10;

/// The speed of a client, and so the size of its next piece.
#[derive(Default)]
pub(super) struct Pace {
    /// When the last piece was handed out, and its length; `None` once the next piece was asked for.
    handed_out: Option<(Instant, usize)>,
    /// Number of bytes that were taken fast.
    fast: u64,
}

impl Pace {
    pub(super) fn note_handed_out(&mut self, len: usize) {
        self.handed_out = Some((Instant::now(), len));
    }

    pub(super) fn note_asked(&mut self) {
        if let Some((when, len)) = self.handed_out.take() {
            self.note_taken(len, when.elapsed());
        }
    }

    fn note_taken(&mut self, len: usize, within: Duration) {
        let limit = FAST * len.div_ceil(buffers::SIZE) as u32;
        self.fast = match within {
            _ if within <= limit => self.fast + len as u64,
            _ if within <= TURNS => self.fast.min(PROVEN - AGAIN),
            _ => 0,
        };
    }

    /// Size of the next piece.
    pub(super) fn size(&self) -> usize {
        if self.fast < PROVEN { buffers::SIZE } else { buffers::LARGE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes pieces until their size changes. Returns the number of bytes.
    fn taken(pace: &mut Pace, size: usize, within: Duration) -> u64 {
        let mut all = 0;
        while pace.size() == size && all < 10 * PROVEN {
            pace.note_taken(size, within);
            all += size as u64;
        }
        all
    }

    #[test]
    fn a_fast_client_gets_larger_pieces() {
        let mut pace = Pace::default();
        assert_eq!(taken(&mut pace, buffers::SIZE, FAST), PROVEN);
        assert_eq!(taken(&mut pace, buffers::LARGE, 4 * FAST), 10 * PROVEN);
        // Other clients have had their turn.
        assert_eq!(taken(&mut pace, buffers::LARGE, TURNS), buffers::LARGE as u64);
        assert_eq!(taken(&mut pace, buffers::SIZE, FAST), AGAIN);
    }

    #[test]
    fn a_client_that_was_slow_has_to_be_fast_anew() {
        let mut pace = Pace::default();
        assert_eq!(taken(&mut pace, buffers::SIZE, 2 * FAST), 10 * PROVEN);
        pace.note_taken(buffers::SIZE, 2 * TURNS);
        assert_eq!(taken(&mut pace, buffers::SIZE, FAST), PROVEN);
        pace.note_taken(buffers::LARGE, 2 * TURNS);
        assert_eq!(taken(&mut pace, buffers::SIZE, FAST), PROVEN);
    }

    #[test]
    fn only_the_time_until_more_is_asked_for_counts() {
        let mut pace = Pace { fast: PROVEN, ..Pace::default() };
        pace.note_asked();
        assert_eq!(pace.size(), buffers::LARGE, "nothing was handed out");
    }
}
