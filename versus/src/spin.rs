//! Work of a given length: arithmetic, and no look at the clock.
//!
//! The work in a critical section must be the same on all sides, and must not become shorter when other threads hold it
//! up: a thread that spins until a time on the clock would count its waiting as work. So the number of steps is fixed,
//! once per run, by timing them before anything else runs.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Computes a number in `steps` steps, each of which needs the one before.
#[inline(never)]
pub(crate) fn work(steps: u64, seed: u64) -> u64 {
    let mut value = seed;
    for _ in 0..steps {
        value = (value ^ (value >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    value
}

/// The number of steps that take `nanos` nanoseconds.
pub(crate) fn steps(nanos: u64) -> u64 {
    static STEPS_PER_NANO: OnceLock<f64> = OnceLock::new();
    let per_nano = STEPS_PER_NANO.get_or_init(calibrate);
    (nanos as f64 * per_nano).round() as u64
}

/// The shortest of many short times: whatever else runs on the machine can only make one longer.
fn calibrate() -> f64 {
    const STEPS: u64 = 20_000;
    let time = || {
        let begin = Instant::now();
        black_box(work(black_box(STEPS), 1));
        begin.elapsed()
    };
    let shortest = (0..200).map(|_| time()).min().expect("more than none");
    STEPS as f64 / shortest.as_nanos() as f64
}
