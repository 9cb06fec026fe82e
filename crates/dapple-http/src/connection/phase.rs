//! What is known of one connection, by those who have a part in it: the stream that hyper reads and writes, the
//! requests under way, and the task that drives it all and keeps the time.
//!
//! # Invariants
//!
//! * **ONE-COLOR**: all of it is written in the connection's color, but for the faults that a service's [`Body`] notes,
//!   which may be elsewhere: they are behind a lock. So counters are loaded and stored rather than added to, and nothing
//!   here orders anything.
//!
//! [`Body`]: crate::Body

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http::StatusCode;

use crate::request::answer::Own;
use crate::request::observer::Line;
use crate::request::receiving::{Bare, Faults};
use crate::server::Hub;
use crate::strict::framing::{Flaw, Framing};
use crate::strict::heads::Heads;

/// Who is at the other end, in the extensions of a request if the server was told so
/// ([`peer_info`](crate::Serve::peer_info)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The address; a Unix socket's client has none.
    pub address: Option<SocketAddr>,
    /// Whether it came by TLS.
    pub is_tls: bool,
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>, is_tls: bool) -> Peer {
        Peer { address, is_tls }
    }
}

/// So much has to be taken by a client within [`write_timeout`](crate::Serve::write_timeout), and sent within
/// [`body_timeout`](crate::Serve::body_timeout), as two to this power.
const PROGRESS: u32 = 13;

/// See the head of the file.
pub(crate) struct Watch {
    pub(crate) hub: Arc<Hub>,
    pub(crate) peer: Peer,
    /// How many requests have begun.
    requests: AtomicU64,
    /// What was read of heads. Never contended: it is used in the connection's color alone.
    heads: Mutex<Heads>,
    /// How many of them are under way.
    active: AtomicU32,
    /// Something was read since the last request began.
    is_fresh: AtomicBool,
    /// A request with a body was refused.
    is_unread: AtomicBool,
    /// The body that is being received, if it is timed here.
    pub(crate) bare: Bare,
    pub(crate) faults: Faults,
    /// The client does not take what is written.
    is_blocked: AtomicBool,
    /// What the client has taken.
    written: AtomicU64,
    /// The head did not come in time: say so, and close.
    is_head_late: AtomicBool,
    is_http2: AtomicBool,
    /// Being closed: the client has a moment to notice. And that that is over.
    is_closing: AtomicBool,
    is_closed: AtomicBool,
    /// HTTP is over; if there still is a stream, it is for something else.
    is_ended: AtomicBool,
    /// How many responses are being sent, and how many of those wait for their service rather than for the client.
    sending: AtomicU32,
    sourcing: AtomicU32,
    /// How many pieces of responses have been handed over, and are not written.
    queued: AtomicU32,
}

/// What a connection is at, and a number that changes when it gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Reading the head of a request.
    Head(u64),
    /// Nothing was begun.
    Idle(u64),
    /// Reading a body that is timed here.
    Body(u64),
    /// A request is under way.
    Busy,
    /// The client does not take what is written.
    Blocked(u64),
    /// Being closed.
    Closing,
}

impl Watch {
    pub(crate) fn new(hub: Arc<Hub>, peer: Peer) -> Watch {
        Watch {
            hub,
            peer,
            requests: AtomicU64::new(0),
            heads: Mutex::default(),
            active: AtomicU32::new(0),
            is_fresh: AtomicBool::new(false),
            is_unread: AtomicBool::new(false),
            bare: Bare::default(),
            faults: Faults::default(),
            is_blocked: AtomicBool::new(false),
            written: AtomicU64::new(0),
            is_head_late: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            sending: AtomicU32::new(0),
            sourcing: AtomicU32::new(0),
            queued: AtomicU32::new(0),
        }
    }

    /// The number of a request that begins.
    pub(crate) fn begin_request(&self) -> u64 {
        let number = self.requests.load(Relaxed) + 1;
        self.requests.store(number, Relaxed);
        self.active.store(self.active.load(Relaxed) + 1, Relaxed);
        self.is_fresh.store(false, Relaxed);
        self.is_unread.store(false, Relaxed); // or there would not be another
        self.bare.set_there(false);
        number
    }

    pub(crate) fn end_request(&self, number: u64) {
        self.active.store(self.active.load(Relaxed) - 1, Relaxed);
        self.faults.take(number);
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.active.load(Relaxed) == 0 && !self.is_fresh.load(Relaxed)
    }

    /// Something was read. If that is not as it should be, the request that it belongs to is answered for.
    pub(crate) fn note_read(&self, read: &[u8]) -> Result<(), Flaw> {
        if self.is_http2() {
            self.is_fresh.store(true, Relaxed);
            return Ok(());
        }
        let mut heads = self.heads();
        match heads.push(read) {
            Ok(()) if heads.has_begun() => self.is_fresh.store(true, Relaxed),
            Ok(()) => {}
            Err(flaw) => {
                self.faults.note(self.requests(), flaw.into());
                return Err(flaw);
            }
        }
        Ok(())
    }

    /// The body of the request that begins is given away as hyper has it.
    pub(crate) fn note_bare(&self) {
        if !self.is_http2() {
            self.bare.set_there(true);
        }
    }

    pub(crate) fn note_late_body(&self) {
        self.bare.set_late();
        self.faults.note(self.requests(), Own::LATE_BODY);
    }

    /// Looks at the head of the request that begins, as it came.
    pub(crate) fn next_head(&self, method: &str, framing: Framing) -> Result<(), Own> {
        let mut heads = self.heads();
        let verdict = heads.next(method, framing, self.hub.settings.max_body_size);
        if heads.has_begun() {
            self.is_fresh.store(true, Relaxed);
        }
        verdict
    }

    /// Whether a request of HTTP/1 is under way of which nothing more is to come, nor has anything of another.
    pub(crate) fn is_all_read(&self) -> bool {
        self.active.load(Relaxed) > 0 && !self.is_fresh.load(Relaxed) && !self.heads().is_receiving()
    }

    /// Tells of a head that did not become a request, and what is answered instead.
    pub(crate) fn tell_unread(&self, status: StatusCode, took: Duration) {
        if let Some(observer) = &self.hub.settings.observer {
            let line = Line::new(self.heads().begun());
            observer.tell_unread(self.peer, line.as_ref(), status, took);
        }
    }

    fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_unread(&self) {
        self.is_unread.store(true, Relaxed);
    }

    pub(crate) fn note_late_head(&self) {
        self.is_head_late.store(true, Relaxed);
        self.note_closing();
    }

    pub(crate) fn is_head_late(&self) -> bool {
        self.is_head_late.load(Relaxed)
    }

    /// How a write to the client's socket went.
    #[inline]
    pub(crate) fn note_write(&self, polled: &Poll<io::Result<usize>>) {
        match polled {
            Poll::Ready(Ok(count)) => {
                self.written.store(self.written.load(Relaxed) + *count as u64, Relaxed);
                self.is_blocked.store(false, Relaxed);
            }
            Poll::Pending => self.is_blocked.store(true, Relaxed),
            Poll::Ready(Err(_)) => {}
        }
    }

    pub(crate) fn set_http2(&self) {
        self.is_http2.store(true, Relaxed);
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    pub(crate) fn note_closing(&self) {
        self.is_closing.store(true, Relaxed);
    }

    /// The client has had its moment. Whether that was not known.
    pub(crate) fn set_closed(&self) -> bool {
        !self.is_closed.swap(true, Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    pub(crate) fn set_ended(&self) {
        self.is_ended.store(true, Relaxed);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Relaxed)
    }

    /// A response of HTTP/2 is being sent, or no longer.
    pub(crate) fn note_sending(&self, change: i32) {
        self.sending.store(self.sending.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// A response of HTTP/2 waits for its service, or no longer.
    pub(crate) fn note_sourcing(&self, change: i32) {
        self.sourcing.store(self.sourcing.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// A piece of a response of HTTP/2 is to be written, or no longer.
    pub(crate) fn note_queued(&self, change: i32) {
        self.queued.store(self.queued.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// Whether the client may still be sending what nobody will read: to close the connection then would take
    /// away from it the answer that is on its way.
    pub(crate) fn is_talking(&self) -> bool {
        self.is_fresh.load(Relaxed) || self.is_unread.load(Relaxed) || self.heads().is_receiving()
    }

    /// What it is at, and how long that may take: asked once after each poll of hyper's.
    pub(crate) fn phase(&self) -> (Phase, Duration) {
        let settings = &self.hub.settings;
        let requests = self.requests.load(Relaxed);
        if self.is_closing.load(Relaxed) {
            return (Phase::Closing, LINGER);
        }
        // With HTTP/2 a client may leave the connection open and a stream shut.
        let is_stuck = self.is_http2()
            && (self.sending.load(Relaxed) > self.sourcing.load(Relaxed) || self.queued.load(Relaxed) > 0);
        if is_stuck || self.is_blocked.load(Relaxed) {
            return (Phase::Blocked(self.written.load(Relaxed) >> PROGRESS), settings.write_timeout);
        }
        if self.active.load(Relaxed) > 0 {
            return match self.bare.is_there() && self.bare.take_asked_for() && self.heads().is_receiving() {
                true => (Phase::Body(self.bare.received() >> PROGRESS), settings.body_timeout),
                false => (Phase::Busy, Duration::MAX),
            };
        }
        // A client that was never heard of is as one whose head does not come.
        let is_head = self.is_fresh.load(Relaxed) && !self.is_http2() || requests == 0;
        if is_head {
            return (Phase::Head(requests), settings.header_timeout);
        }
        (Phase::Idle(requests), settings.idle_timeout)
    }
}

/// How long a client has to notice that a connection was closed.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
