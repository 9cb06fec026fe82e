//! All connections of a server: their number, the counters, whether a request is begun, and shutdown.
//!
//! # Invariants
//!
//! * **CONNECTIONS-COUNTED**: a connection counts from when it is accepted until its `ConnectionPermit` is dropped,
//!   which is when its stream is closed, also if it has become something else than HTTP.
//! * **SHUTDOWN-SEEN**: the stage is set before the connections are woken, and a connection enters its waker before it
//!   looks at the stage: it is woken, or sees it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use dapple::limit::{Admitted, Limit};
use dapple::sync::Notify;
use hyper::server::conn::http1;
use slab::Slab;

use super::settings::ServerSettings;
use super::stats::ServerCounters;
use crate::peer::Peer;
use crate::waker::CountedWaker;

/// How much of an answer waits for its client to read, and how much is read ahead, at least.
const BUFFER: usize = 64 << 10;

/// See the head of the file.
pub(crate) struct Server {
    pub(crate) settings: ServerSettings,
    pub(crate) limit: RequestLimit,
    pub(crate) counters: ServerCounters,
    pub(crate) http1: http1::Builder,
    stage: AtomicU8,
    inside: Mutex<ServerState>,
    /// A connection has ended.
    pub(crate) changed: Notify,
}

/// The stage of a server's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShutdownStage {
    Serving = 0,
    /// Requests under way finish, and none is begun.
    Draining = 1,
    /// Connections that are still open are cut.
    Cutting = 2,
}

#[derive(Default)]
struct ServerState {
    /// Connections that are accepted and not closed.
    open: usize,
    /// Requests that run on for clients that are gone.
    remainders: usize,
    by_address: HashMap<IpAddr, usize>,
    entries: Slab<OpenConnection>,
}

/// A connection, as the list of open ones sees it.
pub(crate) trait RequestCount: Send + Sync {
    /// Requests that have begun.
    fn requests(&self) -> u64;
}

struct OpenConnection {
    /// None if it is not HTTP any more: its requests were counted.
    connection: Option<Weak<dyn RequestCount>>,
    waker: CountedWaker,
}

impl Server {
    pub(crate) fn new(settings: ServerSettings, limit: RequestLimit, counters: ServerCounters) -> Server {
        let mut http1 = http1::Builder::new();
        // Timeouts are kept by the connection's task, with one timer that is hardly ever moved.
        // Bounds the part of an answer that a client that does not read may hold; hyper would keep 400 KB.
        let buffer = settings.max_header_size.max(BUFFER);
        // Whether a client is gone while its request is under way is seen by the stream (`connection/io.rs`).
        http1
            .header_read_timeout(None)
            .half_close(true)
            .max_header_size(settings.max_header_size)
            .max_buf_size(buffer);
        Server {
            settings,
            limit,
            counters,
            http1,
            stage: AtomicU8::new(0),
            inside: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stage(&self) -> ShutdownStage {
        match self.stage.load(Acquire) {
            0 => ShutdownStage::Serving,
            1 => ShutdownStage::Draining,
            _ => ShutdownStage::Cutting,
        }
    }

    /// Goes on to a stage, and tells all connections. SHUTDOWN-SEEN
    pub(crate) fn go_to(&self, stage: ShutdownStage) {
        self.stage.fetch_max(stage as u8, SeqCst);
        let wakers: Vec<_> =
            self.lock().entries.iter().map(|(_, entry)| CountedWaker::clone(&entry.waker)).collect();
        wakers.iter().for_each(CountedWaker::wake);
    }

    /// Whether another connection may be accepted.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().open < self.settings.max_connections
    }

    pub(crate) fn open(&self) -> usize {
        self.lock().open
    }

    pub(crate) fn is_empty(&self) -> bool {
        let inside = self.lock();
        inside.open == 0 && inside.remainders == 0 && inside.entries.is_empty()
    }

    /// Requests of connections that are open.
    pub(crate) fn requests_under_way(&self) -> u64 {
        let inside = self.lock();
        let connections = inside.entries.iter().filter_map(|(_, entry)| entry.connection.as_ref()?.upgrade());
        connections.map(|connection| connection.requests()).sum()
    }

    /// Counts a new connection, unless there are too many from its address.
    pub(crate) fn admit(self: &Arc<Server>, peer: Peer) -> Option<ConnectionPermit> {
        let is_bounded = self.settings.max_connections_per_address != usize::MAX;
        let address = peer.address.map(|address| address.ip().to_canonical()).filter(|_| is_bounded);
        let mut inside = self.lock();
        if let Some(address) = address {
            let count = inside.by_address.entry(address).or_default();
            if *count >= self.settings.max_connections_per_address {
                return None;
            }
            *count += 1;
        }
        inside.open += 1;
        Some(ConnectionPermit { server: self.clone(), address })
    }

    /// Lists a connection among those that are woken for shutdown. SHUTDOWN-SEEN
    pub(crate) fn enter(
        self: &Arc<Server>,
        connection: Arc<dyn RequestCount>,
        waker: &Waker,
    ) -> ShutdownListener {
        let waker = CountedWaker::of(waker); // foreign code, not under the lock
        let key = self
            .lock()
            .entries
            .insert(OpenConnection { connection: Some(Arc::downgrade(&connection)), waker });
        ShutdownListener { server: self.clone(), key, connection: Some(connection) }
    }

    /// Lists a stream that is not HTTP any more. SHUTDOWN-SEEN
    pub(crate) fn enter_stream(self: &Arc<Server>, waker: &Waker) -> ShutdownListener {
        let waker = CountedWaker::of(waker); // as above
        let key = self.lock().entries.insert(OpenConnection { connection: None, waker });
        ShutdownListener { server: self.clone(), key, connection: None }
    }

    /// Counts what runs on for a client that is gone.
    pub(crate) fn remainder(self: &Arc<Server>) -> RunsOn {
        self.lock().remainders += 1;
        RunsOn(self.clone())
    }
}

/// The place of an open connection. CONNECTIONS-COUNTED
pub(crate) struct ConnectionPermit {
    server: Arc<Server>,
    address: Option<IpAddr>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut inside = self.server.lock();
        inside.open -= 1;
        if let Some(address) = self.address
            && let Some(count) = inside.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                inside.by_address.remove(&address);
            }
        }
        // Only in these two cases does the server's task wait for a connection to end.
        let is_awaited = inside.open + 1 == self.server.settings.max_connections
            || self.server.stage.load(Relaxed) != ShutdownStage::Serving as u8;
        drop(inside);
        if is_awaited {
            self.server.changed.notify_one();
        }
    }
}

/// A connection that is woken for shutdown.
pub(crate) struct ShutdownListener {
    server: Arc<Server>,
    key: usize,
    connection: Option<Arc<dyn RequestCount>>,
}

impl ShutdownListener {
    /// Replaces the waker that is woken for shutdown.
    pub(crate) fn renew(&self, waker: &Waker) {
        let is_known = |entry: &OpenConnection| entry.waker.will_wake(waker);
        if self.server.lock().entries.get(self.key).is_none_or(is_known) {
            return;
        }
        let new = CountedWaker::of(waker); // foreign code, not under the lock
        let mut inside = self.server.lock();
        let old = inside.entries.get_mut(self.key).map(|entry| std::mem::replace(&mut entry.waker, new));
        drop(inside);
        drop(old);
    }
}

impl Drop for ShutdownListener {
    fn drop(&mut self) {
        let entry = self.server.lock().entries.try_remove(self.key);
        drop(entry);
        if let Some(connection) = &self.connection {
            self.server.counters.count_requests(connection.requests());
        }
        // Its stream may have been closed before: what it was at has come to its end only now.
        if self.server.stage() != ShutdownStage::Serving {
            self.server.changed.notify_one();
        }
    }
}

/// Something that runs on for a client that is gone.
pub(crate) struct RunsOn(Arc<Server>);

impl Drop for RunsOn {
    fn drop(&mut self) {
        self.0.lock().remainders -= 1;
        if self.0.stage() != ShutdownStage::Serving {
            self.0.changed.notify_one();
        }
    }
}

/// How long the least patient request may wait, and for how long all of them may have waited longer than that.
const DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Whether a request is begun: the only type that knows of limits.
///
/// A request of HTTP/1 is not a task: it begins in the turn of its connection, and has waited since that turn was
/// asked for. A stream of HTTP/2 is a task, and begins in its own turn. So the tasks of connections and streams are
/// clocked, and so is the task that accepts: a connection was waiting in the kernel's queue for as long as that task
/// was in line.
pub(crate) struct RequestLimit {
    limit: Option<Limit>,
    /// The limit is the server's default. No caller can ask it how many requests run, so they are not counted.
    is_own: bool,
}

impl Default for RequestLimit {
    fn default() -> RequestLimit {
        RequestLimit { is_own: true, ..RequestLimit::new(Some(Limit::new().delay(DELAY.0, DELAY.1))) }
    }
}

impl RequestLimit {
    pub(crate) fn new(limit: Option<Limit>) -> RequestLimit {
        RequestLimit { limit, is_own: false }
    }

    /// Spawns the task of a connection, or of a stream of HTTP/2, which knows how long it has waited for its turn.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.limit {
            None => dapple::spawn(task).detach(),
            Some(_) => dapple::task::Builder::new().measure_wait().spawn(task).detach(),
        }
    }

    /// Asks when a request begins, in the task that runs it. Refused: the seconds after which another try may succeed.
    #[inline]
    pub(crate) fn admit(&self) -> Result<Option<Admitted>, u64> {
        let Some(limit) = &self.limit else { return Ok(None) };
        let admitted = if self.is_own { limit.check().map(|()| None) } else { limit.try_admit().map(Some) };
        match admitted {
            Ok(admitted) => Ok(admitted),
            Err(refused) => Err(refused.retry_after().as_millis().div_ceil(1000).max(1) as u64),
        }
    }
}
