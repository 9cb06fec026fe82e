//! The state machine of one connection: its phase, the events that change it, and the operation that is timed.
//!
//! Nothing here waits, locks or reads a clock: [`ConnectionState::apply`] is the only way to change the phase, and
//! [`ConnectionState::timed`] names the operation that the client may be slow at now. `connection/shared.rs` puts the
//! state behind its lock.
//!
//! ```text
//!               a part of a head                  the request begins
//!   Opening ──────────────────────▶ Head ──────────────────────────▶ Busy ◀─┐
//!      │                             ▲  │                             │ │   │ the next request begins
//!      │ (HTTP/2: the request begins)│  │ the head is late            │ └───┘
//!      └──────────────▶ Busy         │  ▼                             │ the last request ends
//!                                    │ Closing ◀── the peer may ──────┤
//!                        a part of a │    │        still be sending   ▼
//!                        head        └────┼───────────────────────── Idle
//!                                         ▼ the peer had its time
//!                                       Closed          from every phase: Ended (HTTP is over) and Cut
//! ```

use std::time::Duration;

use crate::registry::settings::ServerSettings;
use crate::reply::ServerReply;
use crate::strict::heads::Heads;

/// The time that a peer has to notice that its connection is being closed, or that the server has said goodbye.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// The progress that a peer has to make within [`write_timeout`](crate::Serve::write_timeout) or
/// [`body_timeout`](crate::Serve::body_timeout), in bytes, as a power of two.
const PROGRESS: u32 = 13;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionPhase {
    /// No request has begun. With HTTP/1, nothing of a head has come either.
    Opening,
    /// HTTP/1: a part of a head has come, and no request is under way.
    Head,
    /// Requests are under way. With HTTP/1 there is one at a time.
    Busy,
    /// All requests have been answered, and nothing of another one has come.
    Idle,
    /// The server has shut down its side, or will: the peer has [`LINGER`] to notice.
    Closing,
    /// The peer has had that time.
    Closed,
    /// The connection was cut: handlers that have not begun do not begin, the others are cancelled.
    Cut,
    /// HTTP is over. A stream that is still used carries another protocol.
    Ended,
}

/// An event of a connection. Each group is sent by one kind of handle; see `connection/shared.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    // The stream.
    /// Bytes were read, and `ConnectionState::heads` has seen them.
    Read,
    /// The peer has shut down its side.
    PeerFinished,
    /// The peer has reset the connection, while a request was under way.
    PeerGone,
    /// The socket has taken this many bytes.
    Wrote(usize),
    /// The socket has no room.
    WriteBlocked,
    /// A body that the service holds as hyper gave it was read: this many bytes came, perhaps none.
    BareRead(usize),
    /// The server closes the stream, and the peer may still be sending.
    Closing,

    // One request.
    RequestBegan,
    /// The body of the newest request is held by its service as hyper gave it.
    BodyIsBare,
    /// The body of a request was refused unread.
    BodyUnread,
    /// The head of a response was handed to hyper, or there will be none. Comes once, before `RequestEnded`.
    ResponseBegan,
    RequestEnded,

    // One response of HTTP/2.
    SendingBegan,
    SendingEnded,
    /// A response waits for its service.
    SourceWaits,
    SourceReady,
    /// A piece of a response was handed to hyper.
    PieceQueued,
    /// This many bytes of a piece were written: to the socket, or to the buffer of TLS while the socket is full.
    PieceTaken(usize),
    PieceGone,

    // The task of the connection.
    #[cfg_attr(not(any(feature = "http2", test)), expect(dead_code, reason = "a part of HTTP/2 sends it"))]
    SpeaksHttp2,
    /// The server has told the peer that no further request will be served.
    Draining,
    HeadLate,
    BareBodyLate,
    LingerOver,
    #[cfg_attr(not(any(feature = "http2", test)), expect(dead_code, reason = "a part of HTTP/2 sends it"))]
    Cut,
    Ended,
}

/// An operation that a peer may be slow at, with a number that changes as the peer makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// The head of a request, or the first byte of a connection.
    Head(u64),
    /// The next request.
    Idle(u64),
    /// A body that the service holds as hyper gave it.
    Body(u64),
    /// Reading what the server sends. The time is one half of the limit.
    Blocked { taken: u64, halves: u64 },
    /// The answer, after the peer has shut down its side.
    HalfClosed(u64),
    /// Nothing any more: it has reset the connection.
    Gone,
    /// Closing its side.
    Closing,
}

/// The sign that shows that the peer of HTTP/1 is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookFor {
    /// Nothing: no request is under way, or the peer is known to be gone.
    Nothing,
    /// The end of the peer's bytes, or a reset: the request under way was read to its end.
    End,
    /// A reset: a part of the next request is here, or the peer has shut down its side, or hyper reads a body.
    Reset,
}

/// A body of HTTP/1 that a service holds as hyper gave it, so that the connection keeps its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BareBody {
    received: u64,
    /// hyper has asked for more since the time was last looked at. If hyper does not ask, the service has enough.
    is_asked_for: bool,
    is_late: bool,
}

/// A peer that keeps the server from sending. Its time is halved, and at the end of each half the stream asks the kernel
/// how much the peer has not received: a socket has room again only after it has received much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Blockade {
    /// The progress of the peer when this began, as the socket shows it.
    taken: u64,
    /// Halves that are over.
    halves: u64,
    /// The stream is to ask the kernel.
    is_asked: bool,
    /// The kernel's count of unacknowledged bytes at the end of the last half, if it has one.
    unacknowledged: Option<usize>,
}

impl Blockade {
    /// Notes the kernel's count of unacknowledged bytes, if it was asked for.
    fn note(&mut self, unacknowledged: usize) {
        let step = 1 << (PROGRESS - 1);
        let has_received = self.unacknowledged.is_some_and(|before| unacknowledged + step <= before);
        if self.is_asked && (self.halves == 0 || has_received) {
            *self = Blockade {
                halves: self.halves + 1,
                is_asked: false,
                unacknowledged: Some(unacknowledged),
                ..*self
            };
        }
    }

    /// A half is over. Returns whether the peer has more time: another half, or until the stream has asked.
    fn half_is_over(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_asked, true) {
            return true;
        }
        // The peer has not received enough, or it cannot be known.
        let is_first = self.halves == 0;
        if is_first {
            (self.halves, self.is_asked) = (1, false);
        }
        is_first
    }
}

/// The responses of HTTP/2 that are being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SendingCounts {
    responses: u32,
    /// How many of them wait for their service.
    sourcing: u32,
    /// Pieces that were handed to hyper and not written.
    pieces: u32,
}

impl SendingCounts {
    /// Whether a response waits for its peer: the window may be shut while the socket has room.
    fn is_stuck(self) -> bool {
        self.responses > self.sourcing || self.pieces > 0
    }
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    phase: ConnectionPhase,
    is_http2: bool,
    /// Requests that have begun.
    requests: u64,
    /// Those of them that have not ended.
    active: u32,
    /// Those of them whose response has not begun.
    unanswered: u32,
    /// HTTP/1: a part of the next head has come. HTTP/2: something has come since the last request began.
    is_next_begun: bool,
    is_body_unread: bool,
    bare: Option<BareBody>,
    is_peer_finished: bool,
    is_peer_gone: bool,
    is_write_blocked: bool,
    blockade: Option<Blockade>,
    /// Bytes that the peer has taken: HTTP/1 of everything, HTTP/2 of bodies.
    taken: u64,
    /// HTTP/2: bytes of bodies that were written while the socket was full. They lie in the buffer of TLS, and count as
    /// taken when the socket takes bytes again.
    buffered: u64,
    sending: SendingCounts,
    is_draining: bool,
    is_head_late: bool,
    /// HTTP/1: what was read of heads.
    pub(super) heads: Heads,
    /// Replies to requests whose bodies could not be received, by the number of the request.
    faults: Vec<(u64, ServerReply)>,
}

impl ConnectionState {
    pub(super) fn new() -> ConnectionState {
        ConnectionState {
            phase: ConnectionPhase::Opening,
            is_http2: false,
            requests: 0,
            active: 0,
            unanswered: 0,
            is_next_begun: false,
            is_body_unread: false,
            bare: None,
            is_peer_finished: false,
            is_peer_gone: false,
            is_write_blocked: false,
            blockade: None,
            taken: 0,
            buffered: 0,
            sending: SendingCounts::default(),
            is_draining: false,
            is_head_late: false,
            heads: Heads::default(),
            faults: Vec::new(),
        }
    }

    /// Changes the state. Returns whether the task of an HTTP/2 connection has to look at its timer again, since
    /// streams run in other tasks.
    #[inline]
    pub(super) fn apply(&mut self, event: ConnectionEvent) -> bool {
        match event {
            ConnectionEvent::Wrote(count) => {
                self.is_write_blocked = false;
                if !self.is_http2 {
                    self.taken += count as u64;
                } else if self.buffered > 0 {
                    let taken = self.buffered.min(count as u64);
                    self.buffered -= taken;
                    self.taken += taken;
                }
            }
            ConnectionEvent::WriteBlocked => self.is_write_blocked = true,
            ConnectionEvent::Read => {
                if self.is_http2 || self.heads.has_begun() {
                    self.is_next_begun = true;
                    if !self.is_http2
                        && matches!(self.phase, ConnectionPhase::Opening | ConnectionPhase::Idle)
                    {
                        self.phase = ConnectionPhase::Head;
                    }
                }
            }
            ConnectionEvent::RequestBegan => {
                self.requests += 1;
                self.active += 1;
                self.unanswered += 1;
                self.is_next_begun = false; // the head is taken out of `heads` after this
                self.is_body_unread = false; // or hyper would not have begun another request
                self.bare = None;
                self.enter(ConnectionPhase::Busy);
            }
            ConnectionEvent::ResponseBegan => self.unanswered -= 1,
            ConnectionEvent::RequestEnded => {
                self.active -= 1;
                if self.active == 0 {
                    self.enter(match self.is_next_begun && !self.is_http2 {
                        true => ConnectionPhase::Head,
                        false => ConnectionPhase::Idle,
                    });
                    return self.is_http2;
                }
            }
            event => return self.apply_rare(event),
        }
        false
    }

    /// The events that most requests of HTTP/1 never send.
    fn apply_rare(&mut self, event: ConnectionEvent) -> bool {
        let was_stuck = self.sending.is_stuck();
        match event {
            ConnectionEvent::PeerFinished => self.is_peer_finished = true,
            ConnectionEvent::PeerGone => self.is_peer_gone = true,
            ConnectionEvent::BareRead(count) => {
                if let Some(bare) = &mut self.bare {
                    bare.is_asked_for = true;
                    bare.received += count as u64;
                }
            }
            ConnectionEvent::Closing => self.enter(ConnectionPhase::Closing),
            ConnectionEvent::BodyIsBare if !self.is_http2 => self.bare = Some(BareBody::default()),
            ConnectionEvent::BodyIsBare => {}
            ConnectionEvent::BodyUnread => self.is_body_unread = true,
            ConnectionEvent::SendingBegan => self.sending.responses += 1,
            ConnectionEvent::SendingEnded => self.sending.responses -= 1,
            ConnectionEvent::SourceWaits => self.sending.sourcing += 1,
            ConnectionEvent::SourceReady => self.sending.sourcing -= 1,
            ConnectionEvent::PieceQueued => self.sending.pieces += 1,
            ConnectionEvent::PieceTaken(count) if self.is_write_blocked => self.buffered += count as u64,
            ConnectionEvent::PieceTaken(count) => self.taken += count as u64,
            ConnectionEvent::PieceGone => self.sending.pieces -= 1,
            ConnectionEvent::SpeaksHttp2 => self.is_http2 = true,
            ConnectionEvent::Draining => self.is_draining = true,
            ConnectionEvent::HeadLate => {
                self.is_head_late = true;
                self.enter(ConnectionPhase::Closing);
            }
            ConnectionEvent::BareBodyLate => {
                if let Some(bare) = &mut self.bare {
                    bare.is_late = true;
                }
            }
            ConnectionEvent::LingerOver => self.enter(ConnectionPhase::Closed),
            ConnectionEvent::Cut => self.enter(ConnectionPhase::Cut),
            ConnectionEvent::Ended => self.phase = ConnectionPhase::Ended,
            ConnectionEvent::Read | ConnectionEvent::Wrote(_) | ConnectionEvent::WriteBlocked => {}
            ConnectionEvent::RequestBegan
            | ConnectionEvent::ResponseBegan
            | ConnectionEvent::RequestEnded => {}
        }
        self.sending.is_stuck() && !was_stuck
    }

    /// Enters a phase, unless the connection is past it: the phases from `Closing` on are only followed by later ones.
    fn enter(&mut self, phase: ConnectionPhase) {
        if rank(phase) >= rank(self.phase) {
            self.phase = phase;
        }
    }

    pub(super) fn phase(&self) -> ConnectionPhase {
        self.phase
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// How the stream finds out that the peer is gone. With HTTP/2 hyper reads all the time.
    #[inline]
    pub(super) fn look_for(&self) -> LookFor {
        if self.phase != ConnectionPhase::Busy || self.is_http2 || self.is_peer_gone {
            return LookFor::Nothing;
        }
        match self.is_next_begun || self.is_peer_finished || self.heads.is_receiving() {
            true => LookFor::Reset,
            false => LookFor::End,
        }
    }

    /// Whether the peer may still be sending bytes that the server will not read.
    pub(super) fn is_peer_sending(&self) -> bool {
        self.is_next_begun || self.is_body_unread || self.heads.is_receiving()
    }

    pub(super) fn is_head_late(&self) -> bool {
        self.is_head_late
    }

    /// Whether a bare body is being received, and whether it is late.
    pub(super) fn bare(&self) -> (bool, bool) {
        self.bare.map_or((false, false), |bare| (true, bare.is_late))
    }

    /// Notes the reply to a request whose body could not be received.
    pub(super) fn note_fault(&mut self, number: u64, reply: ServerReply) {
        self.faults.push((number, reply));
    }

    /// The first reply that was noted for a request; the others are forgotten.
    #[inline]
    pub(super) fn take_fault(&mut self, number: u64) -> Option<ServerReply> {
        if self.faults.is_empty() {
            return None;
        }
        let first = self.faults.iter().find(|fault| fault.0 == number).map(|fault| fault.1);
        self.faults.retain(|fault| fault.0 != number);
        first
    }

    /// The operation that the peer may be slow at now, and how long it may take. Asked once after each poll of hyper's.
    pub(super) fn timed(&mut self, settings: &ServerSettings) -> Option<(Timed, Duration)> {
        match self.phase {
            ConnectionPhase::Closing | ConnectionPhase::Closed => return Some((Timed::Closing, LINGER)),
            ConnectionPhase::Cut | ConnectionPhase::Ended => return None,
            _ => {}
        }
        if self.is_blocked() {
            return Some(self.timed_blocked(settings.write_timeout));
        }
        self.blockade = None;
        match self.phase {
            ConnectionPhase::Busy => self.timed_busy(settings),
            // The server has said goodbye, and no request is under way.
            ConnectionPhase::Opening if self.is_http2 && self.is_draining => {
                Some((Timed::Idle(u64::MAX), LINGER))
            }
            // A client that has not sent anything is timed as one whose head does not come.
            ConnectionPhase::Opening | ConnectionPhase::Head => {
                Some((Timed::Head(self.requests), settings.header_timeout))
            }
            ConnectionPhase::Idle if self.is_draining => Some((Timed::Idle(u64::MAX), LINGER)),
            ConnectionPhase::Idle => Some((Timed::Idle(self.requests), settings.idle_timeout)),
            _ => None,
        }
    }

    fn timed_blocked(&mut self, limit: Duration) -> (Timed, Duration) {
        let taken = self.taken >> PROGRESS;
        let blockade = match &self.blockade {
            Some(blockade) if blockade.taken == taken => *blockade,
            _ => *self.blockade.insert(Blockade { taken, ..Blockade::default() }),
        };
        let half = match blockade.halves {
            _ if limit == Duration::MAX => limit,
            0 => limit / 2,
            _ => limit - limit / 2,
        };
        (Timed::Blocked { taken, halves: blockade.halves }, half)
    }

    /// A half of the time of a blocked peer is over. Returns whether it has more time.
    pub(super) fn half_is_over(&mut self) -> bool {
        self.blockade.as_mut().is_some_and(Blockade::half_is_over)
    }

    /// Whether the stream is to ask the kernel how much the peer has not received.
    #[inline]
    pub(super) fn is_kernel_asked(&self) -> bool {
        self.blockade.is_some_and(|blockade| blockade.is_asked)
    }

    pub(super) fn note_unacknowledged(&mut self, count: usize) {
        if let Some(blockade) = &mut self.blockade {
            blockade.note(count);
        }
    }

    /// Whether the peer keeps the server from sending. Without requests an HTTP/2 peer can only leave replies to its PINGs
    /// and SETTINGS unread: its time for the next request runs on, or it would begin anew whenever there is room again.
    fn is_blocked(&self) -> bool {
        match self.is_http2 {
            true => self.sending.is_stuck() || self.is_write_blocked && self.phase == ConnectionPhase::Busy,
            false => self.is_write_blocked,
        }
    }

    fn timed_busy(&mut self, settings: &ServerSettings) -> Option<(Timed, Duration)> {
        if self.is_peer_gone {
            return Some((Timed::Gone, Duration::ZERO));
        }
        if let Some(bare) = &mut self.bare
            && std::mem::take(&mut bare.is_asked_for)
            && !bare.is_late
            && self.heads.is_receiving()
        {
            return Some((Timed::Body(bare.received >> PROGRESS), settings.body_timeout));
        }
        if self.is_peer_finished && self.unanswered > 0 {
            return Some((Timed::HalfClosed(self.requests), settings.half_close_grace));
        }
        None
    }
}

/// Orders phases: a connection never goes back to a lower rank.
fn rank(phase: ConnectionPhase) -> u8 {
    match phase {
        ConnectionPhase::Opening | ConnectionPhase::Head | ConnectionPhase::Busy | ConnectionPhase::Idle => 0,
        ConnectionPhase::Closing => 1,
        ConnectionPhase::Closed => 2,
        ConnectionPhase::Cut => 3,
        ConnectionPhase::Ended => 4,
    }
}

#[cfg(test)]
#[path = "phase_tests.rs"]
mod tests;
