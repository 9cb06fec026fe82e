//! Promised writes that failed with no file left to tell: counted for the metrics, and told to `tracing`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::prim::{AtomicU64, Ordering};
use crate::task::cell::discard;

/// The count of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Failures(AtomicU64);

impl Failures {
    /// One more. Call it with no lock held: a subscriber of `tracing` is foreign code.
    #[cold]
    pub(crate) fn note(&self, path: Option<&Path>, error: &io::Error) {
        self.0.fetch_add(1, Ordering::Relaxed);
        discard(catch_unwind(AssertUnwindSafe(|| tell(path, error))));
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "tracing")]
fn tell(path: Option<&Path>, error: &io::Error) {
    tracing::error!(target: "dapple::fs", ?path, %error, "a promised write failed after its file was dropped");
}

#[cfg(not(feature = "tracing"))]
fn tell(_path: Option<&Path>, _error: &io::Error) {}
