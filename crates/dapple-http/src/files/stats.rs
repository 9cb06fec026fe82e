//! Statistics of a file service. Workers count in memory of their own, so that they share no cache line.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Statistics of a [`FileService`](super::FileService) service at one moment, returned by [`FileService::stats`](super::FileService::stats).
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
    /// Requests answered from the cache, without a system call.
    pub hits: u64,
    /// Requests for which the file system was asked, or which waited for another request that asked it.
    pub misses: u64,
    /// Cached files and listings that were compared with the file system and found unchanged.
    pub checks: u64,
    /// Files read into memory.
    pub loads: u64,
    /// Large files that were opened, to be sent in pieces.
    pub opens: u64,
    /// Folders that were read for a listing.
    pub listings: u64,
    /// Files and listings that are in the cache now.
    pub cached_pages: u64,
    /// Memory that the cache takes now, in bytes.
    pub cached_bytes: u64,
}

const STRIPES: usize = 16;

/// Events that are counted.
#[derive(Clone, Copy)]
pub(super) enum FileEvent {
    Hit,
    Miss,
    Check,
    Load,
    Open,
    List,
}

/// Aligned to the two cache lines that the processor fetches together.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; 6]);

/// The counters, in as many copies as there may be workers: nearly always each thread writes to its own copy.
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
