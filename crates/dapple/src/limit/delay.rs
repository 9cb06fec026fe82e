//! Overload detection by waiting time: the least waiting time over an interval, as in CoDel.
//!
//! A queue that is long for a moment is a burst, which ends soon: some task then waits for less than the
//! target. If no task does for a whole interval, the queue is a standing one, and there is overload. From
//! then on, tasks that have waited for more than half the target are refused, until an interval passes in
//! which none had to be. The waiting time alone cannot show the end of the overload: it is short as soon as
//! enough tasks are refused.
//!
//! All values are measurements: a value read during a concurrent change is as good as one before or after it.

use std::time::Duration;

use crate::prim::{AtomicBool, AtomicU64, Ordering};

pub(super) struct Delay {
    target: u64,
    interval: u64,
    /// End of this interval.
    ends: AtomicU64,
    /// Least waiting time in this interval, or `NONE`.
    least: AtomicU64,
    /// Least waiting time in the interval before.
    least_before: AtomicU64,
    /// Waiting time of the last task, kept up to date during overload or while that time is long.
    last: AtomicU64,
    is_over: AtomicBool,
    /// A task was refused in this interval.
    has_refused: AtomicBool,
}

const NONE: u64 = u64::MAX;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

impl Delay {
    pub(super) fn new(target: Duration, interval: Duration) -> Delay {
        Delay {
            target: nanos(target),
            interval: nanos(interval),
            ends: AtomicU64::new(0),
            least: AtomicU64::new(NONE),
            least_before: AtomicU64::new(NONE),
            last: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
        }
    }

    /// Records that a task is about to begin that has waited for `waited`. Returns `true` if it is to be
    /// refused.
    pub(super) fn observe(&self, waited: u64, now: u64) -> bool {
        let is_over = self.is_over(now);
        if waited < self.least.load(Ordering::Relaxed) {
            self.least.fetch_min(waited, Ordering::Relaxed);
        }
        let is_long = waited > self.target / 2;
        if is_over || is_long {
            self.last.store(waited, Ordering::Relaxed); // avoids contended writes
        }
        let is_late = is_over && is_long;
        if is_late && !self.has_refused.load(Ordering::Relaxed) {
            self.has_refused.store(true, Ordering::Relaxed);
        }
        is_late
    }

    /// Whether a new task would be refused, judged by the waiting time of the last one.
    pub(super) fn is_late(&self, now: u64) -> bool {
        let is_late = self.is_over(now) && self.last.load(Ordering::Relaxed) > self.target / 2;
        if is_late && !self.has_refused.load(Ordering::Relaxed) {
            self.has_refused.store(true, Ordering::Relaxed);
        }
        is_late
    }

    /// Whether there is overload.
    pub(super) fn is_over(&self, now: u64) -> bool {
        let ends = self.ends.load(Ordering::Relaxed);
        if now >= ends {
            self.turn_over(ends, now);
        }
        self.is_over.load(Ordering::Relaxed)
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    /// Time at which the next decision about overload is made.
    pub(super) fn next_look(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// Least waiting time in the interval before this one.
    pub(super) fn least(&self) -> Option<Duration> {
        let least = self.least_before.load(Ordering::Relaxed);
        (least != NONE).then(|| Duration::from_nanos(least))
    }

    /// Ends an interval, unless another thread has.
    #[cold]
    fn turn_over(&self, ends: u64, now: u64) {
        let next = now.saturating_add(self.interval);
        if self.ends.compare_exchange(ends, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let least = self.least.swap(NONE, Ordering::Relaxed);
        let has_refused = self.has_refused.swap(false, Ordering::Relaxed);
        self.least_before.store(least, Ordering::Relaxed);
        // A measurement from long ago does not count.
        let is_news = now - ends <= self.interval;
        let stands = least != NONE && least > self.target;
        let goes_on = has_refused && self.is_over.load(Ordering::Relaxed);
        self.is_over.store(is_news && (stands || goes_on), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn delay() -> Delay {
        Delay::new(Duration::from_millis(50), Duration::from_millis(500))
    }

    /// Observes one task each millisecond, with the waiting time `waited` in milliseconds. Returns the times
    /// of those that were refused.
    fn refused(delay: &Delay, times: std::ops::Range<u64>, waited: impl Fn(u64) -> u64) -> Vec<u64> {
        times.filter(|&at| delay.observe(waited(at) * MS, at * MS)).collect()
    }

    #[test]
    fn a_burst_passes() {
        let delay = delay();
        // Each interval has a moment at which a task waited for less than the target.
        assert_eq!(refused(&delay, 1000..9000, |at| if at % 499 == 0 { 40 } else { 400 }), []);
        assert!(!delay.is_over(9000 * MS));
    }

    #[test]
    fn a_standing_queue_does_not_and_is_known_for_one_after_an_interval() {
        let delay = delay();
        let refused = refused(&delay, 1000..5000, |_| 60);
        assert_eq!(refused.first(), Some(&1500)); // the first interval begins with the first task
        assert_eq!(refused.len(), 3500);
    }

    #[test]
    fn a_task_that_has_waited_half_the_target_is_served_and_the_others_keep_it_over() {
        let delay = delay();
        refused(&delay, 1000..2000, |_| 60);
        let refused = refused(&delay, 2000..9000, |at| if at % 100 == 0 { 26 } else { 25 });
        assert_eq!(refused.len(), 70);
        assert!(delay.is_over(9000 * MS));
    }

    #[test]
    fn it_is_over_when_nothing_had_to_be_refused_for_an_interval() {
        let delay = delay();
        refused(&delay, 1000..2100, |_| 60);
        assert!(delay.is_over(2100 * MS));
        refused(&delay, 2100..3100, |_| 10);
        assert!(!delay.is_over(3100 * MS));
        assert_eq!(refused(&delay, 3100..3400, |_| 60), []);
    }

    #[test]
    fn what_was_long_ago_says_nothing() {
        let delay = delay();
        refused(&delay, 1000..1499, |_| 60);
        assert!(!delay.is_over(60_000 * MS));
        assert_eq!(refused(&delay, 60_000..60_400, |_| 60), []);
    }

    #[test]
    fn the_least_is_told() {
        let delay = delay();
        assert_eq!(delay.least(), None);
        refused(&delay, 1000..1600, |at| 20 + at % 10);
        assert_eq!(delay.least(), Some(Duration::from_millis(20)));
    }
}
