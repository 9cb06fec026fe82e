//! The state machine of a connection, through every pair of events in every phase, and by random walks.

use std::collections::HashSet;

use super::*;
use crate::strict::framing::Framing;

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// The body of a request that has one, in reads: each read of HTTP/1 is as long as [`HEAD`].
const BODY_READS: usize = 2;

/// A state, with a model of its parts' own knowledge: an event is sent only by a part that can send it.
struct Machine {
    state: ConnectionState,
    settings: ServerSettings,
    /// Requests that are under way: whether their response has begun.
    requests: Vec<bool>,
    /// Responses of HTTP/2 that are being sent: whether they wait for their service.
    sending: Vec<bool>,
    pieces: u32,
    peer: PeerModel,
    /// The signs that flushes looked for, so that a test can see that none was left out.
    looked_for: HashSet<&'static str>,
}

/// The actions of an HTTP/1 peer, derived from the events alone.
#[derive(Default)]
struct PeerModel {
    /// Requests have a body of [`BODY_READS`] reads.
    sends_bodies: bool,
    /// Reads of the body that have not come.
    body: usize,
    /// Heads that have come before their request began.
    heads: usize,
    has_finished: bool,
    is_gone: bool,
    /// The connection has begun to close, was cut, or has ended.
    is_past: bool,
}

impl PeerModel {
    fn note(&mut self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Read if self.body > 0 => self.body -= 1,
            ConnectionEvent::Read => self.heads += 1,
            ConnectionEvent::RequestBegan => {
                self.heads = self.heads.saturating_sub(1);
                let body = if self.sends_bodies { BODY_READS } else { 0 };
                let here = self.heads.min(body);
                self.heads -= here;
                self.body = body - here;
            }
            ConnectionEvent::PeerFinished => self.has_finished = true,
            ConnectionEvent::PeerGone => self.is_gone = true,
            ConnectionEvent::Closing
            | ConnectionEvent::HeadLate
            | ConnectionEvent::LingerOver
            | ConnectionEvent::Cut
            | ConnectionEvent::Ended => self.is_past = true,
            _ => {}
        }
    }
}

/// Every event, with bytes that count as progress and bytes that do not.
const EVENTS: [ConnectionEvent; 31] = [
    ConnectionEvent::Read,
    ConnectionEvent::PeerFinished,
    ConnectionEvent::PeerGone,
    ConnectionEvent::Wrote(1),
    ConnectionEvent::Wrote(1 << PROGRESS),
    ConnectionEvent::WriteBlocked,
    ConnectionEvent::BareRead(0),
    ConnectionEvent::BareRead(1 << PROGRESS),
    ConnectionEvent::Closing,
    ConnectionEvent::RequestBegan,
    ConnectionEvent::BodyIsBare,
    ConnectionEvent::BodyUnread,
    ConnectionEvent::ResponseBegan,
    ConnectionEvent::RequestEnded,
    ConnectionEvent::SendingBegan,
    ConnectionEvent::SendingEnded,
    ConnectionEvent::SourceWaits,
    ConnectionEvent::SourceReady,
    ConnectionEvent::PieceQueued,
    ConnectionEvent::PieceTaken(1),
    ConnectionEvent::PieceTaken(1 << PROGRESS),
    ConnectionEvent::PieceGone,
    ConnectionEvent::SpeaksHttp2,
    ConnectionEvent::Draining,
    ConnectionEvent::HeadLate,
    ConnectionEvent::BareBodyLate,
    ConnectionEvent::LingerOver,
    ConnectionEvent::Cut,
    ConnectionEvent::Ended,
    ConnectionEvent::RequestEnded,
    ConnectionEvent::Read,
];

impl Machine {
    fn new(is_http2: bool) -> Machine {
        let settings = ServerSettings::default();
        let mut machine = Machine {
            state: ConnectionState::new(),
            settings,
            requests: Vec::new(),
            sending: Vec::new(),
            pieces: 0,
            peer: PeerModel::default(),
            looked_for: HashSet::new(),
        };
        if is_http2 {
            machine.send(ConnectionEvent::SpeaksHttp2);
        }
        machine
    }

    /// Sends an event, if a part of the connection could send it now, and checks what must hold after it.
    fn send(&mut self, event: ConnectionEvent) -> bool {
        if !self.keep_books(event) {
            return false;
        }
        self.peer.note(event);
        let before = self.state.phase();
        let was_timed = self.state.timed(&self.settings).is_some();
        if event == ConnectionEvent::Read && !self.state.is_http2() {
            self.state.heads.push(HEAD).unwrap();
        }
        let is_news = self.state.apply(event);
        if event == ConnectionEvent::RequestBegan && !self.state.is_http2() {
            // As `RequestHandle::http1` does; a head that hyper made up is refused there.
            let framing = match self.peer.sends_bodies {
                true => Framing::Length((BODY_READS * HEAD.len()) as u64),
                false => Framing::Nothing,
            };
            let _verdict = self.state.heads.next("GET", framing, 0);
            self.state.apply(ConnectionEvent::Read);
        }
        self.check(event, before, was_timed, is_news);
        self.check_look(event);
        true
    }

    /// A flush looks for the end of the peer's bytes exactly if that end is the next thing that can come, and for a
    /// reset in all other cases in which a request is under way.
    fn check_look(&mut self, event: ConnectionEvent) {
        let PeerModel { body, heads, has_finished, is_gone, is_past, .. } = self.peer;
        let is_under_way = !self.requests.is_empty() && !is_past && !is_gone;
        let (expected, name) = match is_under_way && !self.state.is_http2() {
            false => (LookFor::Nothing, "nothing"),
            true if heads > 0 => (LookFor::Reset, "a reset, behind a head"),
            true if body > 0 => (LookFor::Reset, "a reset, inside of a body"),
            true if has_finished => (LookFor::Reset, "a reset, behind the end"),
            true => (LookFor::End, "the end"),
        };
        assert_eq!(self.state.look_for(), expected, "after {event:?}: {:?}", self.state);
        self.looked_for.insert(name);
    }

    fn keep_books(&mut self, event: ConnectionEvent) -> bool {
        let is_http2 = self.state.is_http2();
        match event {
            ConnectionEvent::SpeaksHttp2 => {
                return self.state.requests() == 0 && !self.state.heads.has_begun();
            }
            // hyper begins the next request of HTTP/1 when the one before it has ended.
            ConnectionEvent::RequestBegan if !is_http2 && !self.requests.is_empty() => return false,
            ConnectionEvent::RequestBegan => self.requests.push(false),
            ConnectionEvent::ResponseBegan => {
                match self.requests.iter_mut().find(|is_answered| !**is_answered) {
                    Some(is_answered) => *is_answered = true,
                    None => return false,
                }
            }
            ConnectionEvent::RequestEnded => {
                match self.requests.iter().position(|is_answered| *is_answered) {
                    Some(at) => drop(self.requests.swap_remove(at)),
                    None => return false,
                }
            }
            ConnectionEvent::BodyIsBare | ConnectionEvent::BodyUnread => return !self.requests.is_empty(),
            ConnectionEvent::SendingBegan if is_http2 => self.sending.push(false),
            ConnectionEvent::SendingEnded if self.sending.contains(&false) => {
                let at = self.sending.iter().position(|waits| !waits).unwrap();
                self.sending.swap_remove(at);
            }
            ConnectionEvent::SourceWaits if self.sending.contains(&false) => {
                *self.sending.iter_mut().find(|waits| !**waits).unwrap() = true;
            }
            ConnectionEvent::SourceReady if self.sending.contains(&true) => {
                *self.sending.iter_mut().find(|waits| **waits).unwrap() = false;
            }
            ConnectionEvent::PieceQueued if is_http2 => self.pieces += 1,
            ConnectionEvent::PieceGone if self.pieces > 0 => self.pieces -= 1,
            ConnectionEvent::PieceTaken(_) => return self.pieces > 0,
            ConnectionEvent::SendingBegan
            | ConnectionEvent::SendingEnded
            | ConnectionEvent::SourceWaits
            | ConnectionEvent::SourceReady => {
                return false;
            }
            ConnectionEvent::PieceQueued | ConnectionEvent::PieceGone => return false,
            _ => {}
        }
        true
    }

    fn check(&mut self, event: ConnectionEvent, before: ConnectionPhase, was_timed: bool, is_news: bool) {
        let now = self.state.phase();
        let what = format!("{before:?} --{event:?}--> {now:?}: {:?}", self.state);
        assert!(rank(now) >= rank(before), "a phase is never gone back to: {what}");
        if rank(now) == 0 {
            assert_eq!(now == ConnectionPhase::Busy, !self.requests.is_empty(), "{what}");
        }
        assert!(now != ConnectionPhase::Head || !self.state.is_http2(), "{what}");
        let timed = self.state.timed(&self.settings).map(|(timed, _)| timed);
        match (now, timed) {
            (ConnectionPhase::Cut | ConnectionPhase::Ended, None) => {}
            (ConnectionPhase::Closing | ConnectionPhase::Closed, Some(Timed::Closing)) => {}
            (
                ConnectionPhase::Opening | ConnectionPhase::Head,
                Some(Timed::Head(_) | Timed::Blocked { .. }),
            ) => {}
            (ConnectionPhase::Opening, Some(Timed::Idle(_))) => {
                assert!(self.state.is_http2() && self.state.is_draining, "{what}");
            }
            (ConnectionPhase::Idle, Some(Timed::Idle(_) | Timed::Blocked { .. })) => {}
            (
                ConnectionPhase::Busy,
                Some(Timed::Blocked { .. } | Timed::HalfClosed(_) | Timed::Body(_) | Timed::Gone) | None,
            ) => {}
            other => panic!("{other:?}: {what}"),
        }
        // TIMER-LOOKS: an event of a stream's own task wakes the connection's, if that has to keep time from now on.
        let is_of_stream = !matches!(
            event,
            ConnectionEvent::Read
                | ConnectionEvent::WriteBlocked
                | ConnectionEvent::Wrote(_)
                | ConnectionEvent::PeerFinished
                | ConnectionEvent::PeerGone
                | ConnectionEvent::RequestBegan
                | ConnectionEvent::Closing
                | ConnectionEvent::HeadLate
                | ConnectionEvent::LingerOver
                | ConnectionEvent::Draining
                | ConnectionEvent::SpeaksHttp2
        );
        if self.state.is_http2() && is_of_stream && !was_timed && timed.is_some() {
            assert!(is_news, "{what}");
        }
    }
}

/// Events that lead to each phase.
fn ways() -> Vec<(ConnectionPhase, bool, Vec<ConnectionEvent>)> {
    use ConnectionEvent as E;
    let mut ways = Vec::new();
    for is_http2 in [false, true] {
        ways.push((ConnectionPhase::Opening, is_http2, vec![]));
        ways.push((ConnectionPhase::Busy, is_http2, vec![E::Read, E::RequestBegan]));
        ways.push((ConnectionPhase::Busy, is_http2, vec![E::Read, E::RequestBegan, E::ResponseBegan]));
        ways.push((
            ConnectionPhase::Idle,
            is_http2,
            vec![E::Read, E::RequestBegan, E::ResponseBegan, E::RequestEnded],
        ));
        ways.push((ConnectionPhase::Closing, is_http2, vec![E::Closing]));
        ways.push((ConnectionPhase::Closing, is_http2, vec![E::Read, E::RequestBegan, E::Closing]));
        ways.push((ConnectionPhase::Closed, is_http2, vec![E::Closing, E::LingerOver]));
        ways.push((ConnectionPhase::Cut, is_http2, vec![E::Read, E::RequestBegan, E::Cut]));
        ways.push((ConnectionPhase::Ended, is_http2, vec![E::Read, E::RequestBegan, E::Ended]));
    }
    ways.push((ConnectionPhase::Head, false, vec![E::Read]));
    ways.push((ConnectionPhase::Busy, false, vec![E::Read, E::RequestBegan, E::BodyIsBare, E::Read]));
    ways.push((
        ConnectionPhase::Busy,
        true,
        vec![E::Read, E::RequestBegan, E::RequestBegan, E::ResponseBegan, E::SendingBegan, E::PieceQueued],
    ));
    ways
}

fn machine(is_http2: bool, sends_bodies: bool, way: &[ConnectionEvent]) -> Machine {
    let mut machine = Machine::new(is_http2);
    machine.peer.sends_bodies = sends_bodies;
    way.iter().for_each(|event| assert!(machine.send(*event), "{event:?} in {way:?}"));
    machine
}

#[test]
fn every_pair_of_events_in_every_phase_keeps_the_rules() {
    let mut pairs = 0;
    let mut looked_for = HashSet::new();
    for sends_bodies in [false, true] {
        for (phase, is_http2, way) in ways() {
            assert_eq!(machine(is_http2, sends_bodies, &way).state.phase(), phase, "{way:?}");
            for first in EVENTS {
                for second in EVENTS {
                    let mut machine = machine(is_http2, sends_bodies, &way);
                    if machine.send(first) && machine.send(second) {
                        pairs += 1;
                    }
                    looked_for.extend(machine.looked_for);
                }
            }
        }
    }
    assert!(pairs > 10_000, "{pairs}");
    assert_eq!(looked_for.len(), 5, "{looked_for:?}");
}

#[test]
fn random_walks_keep_the_rules() {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    for walk in 0..2_000 {
        let mut machine = Machine::new(walk % 2 == 0);
        machine.peer.sends_bodies = walk % 4 > 1;
        for _ in 0..100 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            // Ends are rare, or no walk would get far.
            let event = EVENTS[(word >> 32) as usize % EVENTS.len()];
            if matches!(
                event,
                ConnectionEvent::Cut
                    | ConnectionEvent::Ended
                    | ConnectionEvent::Closing
                    | ConnectionEvent::HeadLate
            ) && !word.is_multiple_of(16)
            {
                continue;
            }
            machine.send(event);
        }
    }
}

#[test]
fn each_request_has_its_own_fault_and_the_first_counts() {
    let mut state = ConnectionState::new();
    assert!(state.take_fault(1).is_none());
    state.note_fault(1, ServerReply::LATE_BODY);
    state.note_fault(2, ServerReply::TOO_LARGE);
    state.note_fault(1, ServerReply::TOO_LARGE);
    assert!(state.take_fault(3).is_none());
    assert_eq!(state.take_fault(1).unwrap().status, 408);
    assert!(state.take_fault(1).is_none());
    assert_eq!(state.take_fault(2).unwrap().status, 413);
    assert!(state.faults.is_empty());
}

/// In halves of the limit: one, another from which on the peer has to receive 4 KiB in each.
#[test]
fn a_blocked_peer_has_its_time_in_halves() {
    let settings = ServerSettings { write_timeout: Duration::from_secs(9), ..ServerSettings::default() };
    let half = Duration::from_millis(4500);
    for (answers, goes_on) in [
        (&[None, None][..], false),
        (&[Some(100_000), None], false),
        (&[None, Some(10)], false),
        (&[Some(100_000), Some(95_905)], false),
        (&[Some(100_000), Some(95_904)], true),
        (&[Some(100_000), Some(95_904), Some(95_000)], false),
        (&[Some(100_000), Some(95_904), Some(99_000)], false),
        (&[Some(100_000), Some(95_904), Some(0)], true),
        (&[Some(3000), Some(0)], false),
    ] {
        let mut state = ConnectionState::new();
        state.apply(ConnectionEvent::RequestBegan);
        state.apply(ConnectionEvent::WriteBlocked);
        let mut is_over = false;
        for (number, answer) in answers.iter().enumerate() {
            let timed = Timed::Blocked { taken: 0, halves: number as u64 };
            assert_eq!(state.timed(&settings), Some((timed, half)), "{answers:?}");
            assert!(
                !state.is_kernel_asked() && state.half_is_over() && state.is_kernel_asked(),
                "{answers:?}"
            );
            if let Some(count) = answer {
                state.note_unacknowledged(*count);
            }
            // Without progress the same half is over still.
            is_over = state.timed(&settings) == Some((timed, half)) && !state.half_is_over();
        }
        assert_eq!(is_over, !goes_on, "{answers:?}");
    }
}

/// TLS takes bytes of bodies into its buffer while the socket is full: they count when the socket takes bytes again.
#[test]
fn bytes_of_bodies_that_the_socket_has_not_taken_are_no_progress() {
    use ConnectionEvent as E;
    let step = 1 << PROGRESS;
    let mut machine = Machine::new(true);
    for event in [E::Read, E::RequestBegan, E::ResponseBegan, E::SendingBegan, E::PieceQueued] {
        assert!(machine.send(event), "{event:?}");
    }
    let mut taken_after = |events: &[ConnectionEvent]| {
        events.iter().for_each(|event| assert!(machine.send(*event), "{event:?}"));
        match machine.state.timed(&machine.settings) {
            Some((Timed::Blocked { taken, .. }, _)) => taken,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(taken_after(&[E::Wrote(step), E::PieceTaken(step), E::WriteBlocked]), 1);
    assert_eq!(taken_after(&[E::PieceTaken(2 * step)]), 1, "a buffer took them");
    assert_eq!(taken_after(&[E::Wrote(step), E::WriteBlocked]), 2, "the socket took a part of them");
    assert_eq!(taken_after(&[E::Wrote(4 * step), E::WriteBlocked]), 3, "the other part, and other bytes");
    assert_eq!(taken_after(&[E::Wrote(step), E::PieceTaken(step)]), 4);
}
