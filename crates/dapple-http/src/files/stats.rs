//! What a service of files has done so far, counted without a word that all workers write to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a [`Files`](super::Files) has done so far: a snapshot.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let files = dapple_http::files("/proc/self")?;
/// let stats = files.clone(); // clones share the cache and its counters; give one to `serve`
/// assert_eq!(stats.stats().hits, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileStats {
    /// Requests answered from what was known: no system call was made for them.
    pub hits: u64,
    /// Requests for which the file system was asked, or which waited for one that did.
    pub misses: u64,
    /// Pages found unchanged when they were compared with the file system.
    pub checks: u64,
    /// Files read into memory.
    pub loads: u64,
    /// Files opened to be sent in pieces.
    pub opens: u64,
    /// Folders read to be listed.
    pub listings: u64,
    /// Pages in memory.
    pub cached_pages: u64,
    /// How much memory they take, in bytes.
    pub cached_bytes: u64,
}

const STRIPES: usize = 16;

/// What is counted.
#[derive(Clone, Copy)]
pub(super) enum FileEvent {
    Hit,
    Miss,
    Check,
    Load,
    Open,
    List,
}

/// On cache lines of its own, together with what the processor fetches along.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; 6]);

/// Counters in as many copies as there may be workers: each thread writes to its own, nearly always.
#[derive(Default)]
pub(super) struct FileCounters([Stripe; STRIPES]);

impl FileCounters {
    pub(super) fn count(&self, event: FileEvent) {
        let stripe = STRIPE.with(|stripe| *stripe);
        self.0[stripe].0[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sum(&self, event: FileEvent) -> u64 {
        self.0.iter().map(|stripe| stripe.0[event as usize].load(Ordering::Relaxed)).sum()
    }
}

thread_local! {
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}
