//! A simulated connection: bytes in flight in two directions, and the knowledge of each side about the other.
//!
//! A sender puts its bytes into the receiver's queue at once, with the moment of their arrival. The receiver sees them
//! only from then on. So at that moment only the waiters have to be woken.
//!
//! # Invariants
//!
//! * **ARRIVES-IN-ORDER**: no byte, and no end, arrives before the bytes that were sent earlier in the same direction.
//! * **BYTES-TAKEN-ONCE**: bytes leave the queue in the call that returns their number, and enter it likewise.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use super::arrivals::{Arrivals, Tried};
use super::link_conditions::{self, LinkDirection};
use super::network::{Network, system_error};
use super::options::SocketOptions;
use crate::prim::{Mutex, MutexGuard, lock};

/// The most bytes that a direction holds.
const CAPACITY: usize = 64 << 10;

struct SimConnection {
    network: Arc<Network>,
    /// The addresses of the client and of the listener.
    addrs: [SocketAddr; 2],
    readers: [Arc<Arrivals>; 2],
    writers: [Arc<Arrivals>; 2],
    sides: Mutex<[Side; 2]>,
}

/// The state of one side.
struct Side {
    incoming: InFlight,
    /// The link for the bytes that it sends.
    way: LinkDirection,
    /// The socket was dropped.
    is_gone: bool,
    /// It has shut down writing.
    has_ended: bool,
    /// It has shut down reading.
    reads_no_more: bool,
    /// The moment at which it learns that the peer accepts no more bytes.
    refused: Option<u64>,
    /// It has returned the error of the peer's reset.
    is_told: bool,
}

/// The bytes in flight to a side, and those that have arrived and were not read.
#[derive(Default)]
struct InFlight {
    bytes: VecDeque<u8>,
    /// The number of bytes that have arrived.
    arrived: usize,
    /// The arrivals of the others: the moment, and the number of bytes. ARRIVES-IN-ORDER
    on_the_way: VecDeque<(u64, usize)>,
    /// The latest arrival of all that was sent. ARRIVES-IN-ORDER
    last: u64,
    /// The arrival of the end.
    end: Option<u64>,
    /// The arrival of the peer's reset.
    reset: Option<u64>,
}

impl InFlight {
    /// Counts the bytes that have arrived by now.
    fn settle(&mut self, now: u64) {
        while let Some(&(_, n)) = self.on_the_way.front().filter(|(at, _)| *at <= now) {
            self.arrived += n;
            self.on_the_way.pop_front();
        }
    }

    /// The moment of the next arrival.
    fn next(&self) -> Option<u64> {
        self.on_the_way.front().map(|(at, _)| *at).or(self.end).or(self.reset)
    }

    fn room(&self) -> usize {
        CAPACITY - self.bytes.len()
    }
}

/// Whether a moment is known, and has come.
fn has_come(at: Option<u64>, now: u64) -> bool {
    at.is_some_and(|at| at <= now)
}

impl Side {
    fn new(way: LinkDirection) -> Side {
        Side {
            incoming: InFlight::default(),
            way,
            is_gone: false,
            has_ended: false,
            reads_no_more: false,
            refused: None,
            is_told: false,
        }
    }

    /// Whether a read would return at once.
    fn is_readable(&self, now: u64) -> bool {
        let incoming = &self.incoming;
        let is_over = has_come(incoming.end, now) || has_come(incoming.reset, now);
        incoming.arrived > 0 || is_over || self.reads_no_more
    }

    /// The error of a write, if this side knows that the peer accepts no more.
    fn refusal(&mut self, now: u64) -> Option<io::Error> {
        if !self.has_ended && has_come(self.incoming.reset, now) && !self.is_told {
            self.is_told = true;
            return Some(system_error(libc::ECONNRESET));
        }
        let is_refused = has_come(self.refused, now) || has_come(self.incoming.reset, now);
        (self.has_ended || is_refused).then(|| system_error(libc::EPIPE))
    }

    /// The moment at which this side learns that the peer is gone.
    fn refused_at(&self) -> Option<u64> {
        self.refused.into_iter().chain(self.incoming.reset).min()
    }
}

/// A side and its peer.
fn near_and_far(sides: &mut [Side; 2], near: usize) -> (&mut Side, &mut Side) {
    let [first, second] = sides;
    if near == 0 { (first, second) } else { (second, first) }
}

/// The arrival of bytes that are sent now. ARRIVES-IN-ORDER
fn arrival(way: &LinkDirection, far: &mut InFlight, now: u64) -> u64 {
    far.last = far.last.max(now + way.latency());
    far.last
}

/// One side of a connection. Dropping it closes the side.
pub(super) struct SimSocket {
    connection: Arc<SimConnection>,
    near: usize,
    pub(super) options: Mutex<SocketOptions>,
}

/// Makes a connection: the sockets of the client and of the listener. `ways` are the links for the bytes that
/// they send. Nothing arrives at a side before its moment in `from`.
pub(super) fn connect(
    network: &Arc<Network>,
    addrs: [SocketAddr; 2],
    ways: [LinkDirection; 2],
    from: [u64; 2],
) -> [SimSocket; 2] {
    let mut sides = ways.map(Side::new);
    for (side, from) in sides.iter_mut().zip(from) {
        side.incoming.last = from;
    }
    let connection = Arc::new(SimConnection {
        network: network.clone(),
        addrs,
        readers: Default::default(),
        writers: Default::default(),
        sides: Mutex::new(sides),
    });
    [0, 1].map(|near| SimSocket { connection: connection.clone(), near, options: Mutex::default() })
}

impl SimSocket {
    pub(super) fn local_addr(&self) -> SocketAddr {
        self.connection.addrs[self.near]
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        self.connection.addrs[self.far()]
    }

    fn far(&self) -> usize {
        1 - self.near
    }

    /// The waiters for bytes.
    pub(super) fn readers(&self) -> &Arc<Arrivals> {
        &self.connection.readers[self.near]
    }

    /// The waiters for room.
    pub(super) fn writers(&self) -> &Arc<Arrivals> {
        &self.connection.writers[self.near]
    }

    /// Locks the state, and counts the bytes that have arrived by now. Returns the state and the time.
    fn look(&self) -> io::Result<(MutexGuard<'_, [Side; 2]>, u64)> {
        let now = self.connection.network.enter()?;
        let mut sides = lock(&self.connection.sides);
        sides[self.near].incoming.settle(now);
        Ok((sides, now))
    }

    /// Reads some bytes. They stay in the queue if `is_peek`.
    pub(super) fn read(&self, buffers: &mut [IoSliceMut<'_>], is_peek: bool) -> io::Result<Tried<usize>> {
        let (mut sides, now) = self.look()?;
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if wanted == 0 {
            return Ok(Tried::Done(0));
        }
        let side = &mut sides[self.near];
        if side.incoming.arrived == 0 {
            if has_come(side.incoming.reset, now) && !std::mem::replace(&mut side.is_told, true) {
                return Err(system_error(libc::ECONNRESET));
            }
            return Ok(match side.is_readable(now) {
                true => Tried::Done(0),
                false => Tried::NotYet(side.incoming.next()),
            });
        }
        let n = link_conditions::some_of(wanted.min(side.incoming.arrived));
        if is_peek {
            copy(&side.incoming.bytes, buffers, n);
            return Ok(Tried::Done(n));
        }
        let mut left = n;
        for buffer in buffers {
            let part = left.min(buffer.len());
            side.incoming.bytes.read_exact(&mut buffer[..part])?; // BYTES-TAKEN-ONCE
            left -= part;
        }
        side.incoming.arrived -= n;
        drop(sides);
        self.connection.writers[self.far()].call(); // the peer has room to write
        Ok(Tried::Done(n))
    }

    /// Writes some bytes.
    pub(super) fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Tried<usize>> {
        let (mut sides, now) = self.look()?;
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        if wanted == 0 {
            return Ok(Tried::Done(0));
        }
        let (near, far) = near_and_far(&mut sides, self.near);
        if let Some(error) = near.refusal(now) {
            return Err(error);
        }
        let room = far.incoming.room();
        if room == 0 {
            return Ok(Tried::NotYet(near.refused_at()));
        }
        let n = link_conditions::some_of(wanted.min(room));
        let at = arrival(&near.way, &mut far.incoming, now);
        if far.is_gone {
            // The bytes are sent, and after a round trip this side learns that the peer did not accept them.
            near.refused.get_or_insert_with(|| at + far.way.latency());
            return Ok(Tried::Done(n));
        }
        let mut left = n;
        for slice in slices {
            let part = left.min(slice.len());
            far.incoming.bytes.extend(&slice[..part]); // BYTES-TAKEN-ONCE
            left -= part;
        }
        far.incoming.on_the_way.push_back((at, n));
        drop(sides);
        self.connection.readers[self.far()].expect(at);
        Ok(Tried::Done(n))
    }

    /// Whether a read would return at once.
    pub(super) fn readable(&self) -> io::Result<Tried<()>> {
        let (sides, now) = self.look()?;
        let side = &sides[self.near];
        Ok(if side.is_readable(now) { Tried::Done(()) } else { Tried::NotYet(side.incoming.next()) })
    }

    /// Whether a write would return at once.
    pub(super) fn writable(&self) -> io::Result<Tried<()>> {
        let (mut sides, now) = self.look()?;
        let (near, far) = near_and_far(&mut sides, self.near);
        let is_over = near.has_ended || has_come(near.refused_at(), now);
        let is_ready = is_over || far.incoming.room() > 0;
        Ok(if is_ready { Tried::Done(()) } else { Tried::NotYet(near.refused_at()) })
    }

    /// Whether the connection is closed in both directions.
    pub(super) fn closed(&self) -> io::Result<Tried<()>> {
        let (sides, now) = self.look()?;
        let side = &sides[self.near];
        let ended_at = side.incoming.end.filter(|_| side.has_ended);
        let at = side.refused_at().into_iter().chain(ended_at).min();
        Ok(if has_come(at, now) { Tried::Done(()) } else { Tried::NotYet(at) })
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let (mut sides, now) = self.look()?;
        let (near, far) = near_and_far(&mut sides, self.near);
        if has_come(near.incoming.reset, now) {
            return Err(system_error(libc::ENOTCONN));
        }
        let (reads, writes) = match how {
            Shutdown::Read => (true, false),
            Shutdown::Write => (false, true),
            Shutdown::Both => (true, true),
        };
        near.reads_no_more |= reads;
        if writes && !near.has_ended {
            near.has_ended = true;
            far.incoming.end = Some(arrival(&near.way, &mut far.incoming, now));
        }
        let (end, is_closed) = (far.incoming.end, far.has_ended);
        drop(sides);
        if reads {
            self.readers().call();
        }
        if writes {
            self.writers().call();
            let (readers, writers) = (&self.connection.readers, &self.connection.writers);
            end.into_iter().for_each(|at| readers[self.far()].expect(at));
            end.into_iter().filter(|_| is_closed).for_each(|at| writers[self.far()].expect(at));
        }
        Ok(())
    }

    /// The pending socket error (`SO_ERROR`).
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let (mut sides, now) = self.look()?;
        let side = &mut sides[self.near];
        let is_news = has_come(side.incoming.reset, now) && !std::mem::replace(&mut side.is_told, true);
        Ok(is_news.then(|| system_error(libc::ECONNRESET)))
    }

    /// Makes the drop of this socket reset the connection.
    pub(super) fn reset_on_drop(&self) {
        lock(&self.options).linger = Some(std::time::Duration::ZERO);
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        let resets = lock(&self.options).linger.is_some_and(|linger| linger.is_zero());
        let SimConnection { network, addrs, sides, readers, writers } = &*self.connection;
        // Outside of the simulation no time passes, so everything arrives as soon as it can.
        let now = network.enter().unwrap_or(0);
        let mut sides = lock(sides);
        let (near, far) = near_and_far(&mut sides, self.near);
        near.is_gone = true;
        near.incoming.settle(now);
        let is_unread = near.incoming.arrived > 0;
        let at = arrival(&near.way, &mut far.incoming, now);
        if resets || is_unread {
            far.refused.get_or_insert(at);
            if !near.has_ended {
                far.incoming.reset = Some(at);
            }
        } else {
            if !near.has_ended {
                far.incoming.end = Some(at);
            }
            // The bytes in flight to this side are answered with a refusal.
            if let Some(&(arrives, _)) = near.incoming.on_the_way.front() {
                far.refused.get_or_insert(at.max(arrives + near.way.latency()));
            }
        }
        near.has_ended = true;
        // A writer of the peer that waits for room goes on waiting until the refusal arrives.
        let refused = far.refused;
        drop(sides);
        readers[self.far()].expect(at);
        refused.into_iter().for_each(|at| writers[self.far()].expect(at));
        if self.near == 0 {
            network.release(addrs[0]);
        }
    }
}

fn copy(bytes: &VecDeque<u8>, buffers: &mut [IoSliceMut<'_>], n: usize) {
    let (first, second) = bytes.as_slices();
    let mut bytes = first.iter().chain(second).take(n);
    for place in buffers.iter_mut().flat_map(|buffer| buffer.iter_mut()) {
        let Some(byte) = bytes.next() else { return };
        *place = *byte;
    }
}
