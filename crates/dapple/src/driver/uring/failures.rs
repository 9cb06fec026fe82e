//! Promised writes that failed after their file was dropped: counted for the metrics, and reported to `tracing`.

use std::io;
use std::path::Path;

use crate::prim::{AtomicU64, Ordering};
#[cfg(feature = "tracing")]
use crate::task::guarded::guarded;

/// The number of such failures in a runtime.
#[derive(Debug, Default)]
pub(crate) struct Failures(AtomicU64);

impl Failures {
    /// Counts and reports a failure. Call it with no lock held: a subscriber of `tracing` is foreign code.
    #[cold]
    pub(crate) fn note(&self, path: Option<&Path>, error: &io::Error) {
        self.0.fetch_add(1, Ordering::Relaxed);
        tell(path, error);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "tracing")]
fn tell(path: Option<&Path>, error: &io::Error) {
    let what = "a promised write failed after its file was dropped";
    guarded(|| tracing::error!(target: "dapple::fs", ?path, %error, "{what}"));
}

#[cfg(not(feature = "tracing"))]
fn tell(_path: Option<&Path>, _error: &io::Error) {}
