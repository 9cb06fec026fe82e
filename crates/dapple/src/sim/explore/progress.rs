//! Progress of an exploration: a bar on a terminal, and one line at the end.

use std::io::{IsTerminal, Write};
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::prim::{AtomicBool, Ordering};

/// The least time between two redraws of the bar.
const REDRAW: Duration = Duration::from_millis(100);
/// The length of the bar, in characters, within its brackets.
const LENGTH: u64 = 10;
/// Moves to the start of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";
/// Turns line wrapping off and on: a bar that wraps would not be cleared.
const CUT: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// Whether a bar is on the terminal: there is one at a time.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

pub(super) struct Progress {
    begun: Instant,
    all: u64,
    tried: u64,
    /// The time of the next redraw, if there is a bar.
    next: Option<Instant>,
    /// Whether this value has set IS_DRAWN.
    is_drawn: bool,
}

impl Progress {
    pub(super) fn begin(all: u64) -> Progress {
        let is_wanted = std::io::stderr().is_terminal()
            && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
            && super::super::failure::shows_all();
        let begun = Instant::now();
        Progress { begun, all, tried: 0, next: is_wanted.then(|| begun + REDRAW), is_drawn: false }
    }

    /// Counts one more run.
    pub(super) fn step(&mut self) {
        self.tried += 1;
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now < next {
            return;
        }
        self.next = Some(now + REDRAW);
        self.is_drawn = self.is_drawn || !IS_DRAWN.swap(true, Ordering::Relaxed);
        if self.is_drawn {
            clear_before_panics();
            IS_DRAWN.store(true, Ordering::Relaxed); // a panic that was caught may have cleared it
            let bar = bar(self.tried, self.all, now - self.begun);
            show(&format!("{CLEAR}{CUT}{bar}{WRAP}"));
        }
    }

    /// Ends the bar, and prints the summary.
    pub(super) fn end(mut self, result: &str) {
        self.clear();
        eprintln!("{}", summary(self.tried, self.all, self.begun.elapsed(), result));
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) && IS_DRAWN.swap(false, Ordering::Relaxed) {
            show(CLEAR);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Writes to stderr. An error does not matter: the bar is only for a person who watches.
fn show(text: &str) {
    let mut stderr = std::io::stderr().lock();
    _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Clears the bar before the message of a panic, so that the message replaces it.
fn clear_before_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_DRAWN.swap(false, Ordering::Relaxed) {
                show(CLEAR);
            }
            hook(panic);
        }));
    });
}

fn bar(tried: u64, all: u64, elapsed: Duration) -> String {
    let all = all.max(tried).max(1);
    let done = (u128::from(LENGTH) * u128::from(tried) / u128::from(all)) as usize;
    let (full, open) = ("#".repeat(done), "-".repeat(LENGTH as usize - done));
    let left = elapsed.mul_f64((all - tried) as f64 / tried.max(1) as f64);
    let speed = speed(tried, elapsed);
    format!("[{full}{open}] {tried}/{all} seeds, none failed, {speed}, {} left", time(left))
}

fn summary(tried: u64, all: u64, elapsed: Duration, result: &str) -> String {
    let speed = speed(tried, elapsed);
    format!("dapple: {result} (passed: {tried} of {all} seeds, in {}, {speed})", time(elapsed))
}

fn speed(tried: u64, elapsed: Duration) -> String {
    format!("{:.0}/s", tried as f64 / elapsed.as_secs_f64().max(1e-9))
}

fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_tells_how_far_how_fast_and_how_long() {
        let half = bar(500, 1000, Duration::from_secs(30));
        assert_eq!(half, "[#####-----] 500/1000 seeds, none failed, 17/s, 30 s left");
        let full = bar(7, 7, Duration::from_millis(100));
        assert_eq!(full, "[##########] 7/7 seeds, none failed, 70/s, 0.0 s left");
        assert!(bar(u64::MAX / 2, u64::MAX, Duration::from_secs(7200)).contains("] 92"));
        assert!(bar(1, 1 << 40, Duration::from_secs(1)).ends_with("1/s, 305419896 h left"));
    }

    #[test]
    fn the_summary_is_one_line() {
        let text = summary(10, 20, Duration::from_secs(200), "seed 10 failed");
        assert_eq!(text, "dapple: seed 10 failed (passed: 10 of 20 seeds, in 3 min, 0/s)");
    }
}
