//! The counters of a server, which can be read while it runs.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};

use crate::registry::Server;

/// Reads the statistics of a server while it runs; made by [`Serve::stats`](crate::Serve::stats). Clones read the same
/// server. After the server's end, [`snapshot`](Self::snapshot) returns its totals.
#[derive(Clone)]
pub struct StatsReader(pub(crate) ServerCounters);

/// The statistics of a server at one moment, returned by [`StatsReader::snapshot`]. [`open`](Self::open) is the number at
/// that moment; all other numbers count from the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Connections that are open now.
    pub open: usize,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were turned away since there were too many from their address.
    pub turned_away: u64,
    /// Requests that were begun, whatever the answer.
    pub requests: u64,
    /// Requests that were answered with 503, over the limit.
    pub refused: u64,
    /// Requests that were answered with 400, 413, 414, 431 or 501 by the server itself, since they were malformed or
    /// too large.
    pub bad: u64,
    /// Clients and handlers that took too long.
    pub timeouts: u64,
    /// Handlers that were cancelled, since their client was gone or their time was up.
    pub cancelled: u64,
    /// Handlers that panicked.
    pub panics: u64,
}

impl StatsReader {
    /// Returns the counters as they are now.
    #[must_use]
    pub fn snapshot(&self) -> ServerStats {
        self.0.snapshot()
    }
}

impl fmt::Debug for StatsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// The counters themselves. Requests are counted by each connection alone, and added up here when it ends.
#[derive(Clone, Default)]
pub(crate) struct ServerCounters(Arc<ServerTotals>);

#[derive(Default)]
struct ServerTotals {
    server: OnceLock<Weak<Server>>,
    accepted: AtomicU64,
    turned_away: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    bad: AtomicU64,
    timeouts: AtomicU64,
    cancelled: AtomicU64,
    panics: AtomicU64,
}

impl ServerCounters {
    pub(crate) fn set_server(&self, server: &Arc<Server>) {
        let _is_set_once = self.0.server.set(Arc::downgrade(server));
    }

    pub(crate) fn snapshot(&self) -> ServerStats {
        let server = self.0.server.get().and_then(Weak::upgrade);
        ServerStats {
            open: server.as_ref().map_or(0, |server| server.open()),
            accepted: self.0.accepted.load(Relaxed),
            turned_away: self.0.turned_away.load(Relaxed),
            requests: self.0.requests.load(Relaxed) + server.map_or(0, |server| server.requests_under_way()),
            refused: self.0.refused.load(Relaxed),
            bad: self.0.bad.load(Relaxed),
            timeouts: self.0.timeouts.load(Relaxed),
            cancelled: self.0.cancelled.load(Relaxed),
            panics: self.0.panics.load(Relaxed),
        }
    }

    pub(crate) fn count_accepted(&self) {
        self.0.accepted.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_turned_away(&self) {
        self.0.turned_away.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_requests(&self, count: u64) {
        self.0.requests.fetch_add(count, Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.0.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_bad(&self) {
        self.0.bad.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_timeout(&self) {
        self.0.timeouts.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_cancelled(&self) {
        self.0.cancelled.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_panic(&self) {
        self.0.panics.fetch_add(1, Relaxed);
    }
}
