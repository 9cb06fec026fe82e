//! A connection: bytes on their way in two directions, and what each side knows of the other.
//!
//! What is sent is there at once, with the moment of its arrival; the side that it is for sees it only
//! from then on. So nothing need happen at that moment but that who waits is woken.
//!
//! # Invariants
//!
//! * **ARRIVES-IN-ORDER**: nothing arrives before what was sent earlier in the same direction, the end included.
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

/// How many bytes a direction holds.
const CAPACITY: usize = 64 << 10;

struct SimConnection {
    network: Arc<Network>,
    /// Who connected, and who listened.
    addrs: [SocketAddr; 2],
    readers: [Arc<Arrivals>; 2],
    writers: [Arc<Arrivals>; 2],
    sides: Mutex<[Side; 2]>,
}

/// What there is at one side.
struct Side {
    incoming: InFlight,
    /// The way of what it sends.
    way: LinkDirection,
    /// Nobody has it any more.
    is_gone: bool,
    /// It has said that it sends no more.
    has_ended: bool,
    /// It has said that it reads no more.
    reads_no_more: bool,
    /// When it learns that what it sends is not taken any more.
    refused: Option<u64>,
    /// It knows that the other side has reset the connection.
    is_told: bool,
}

/// What is on its way to a side, or has arrived and was not read.
#[derive(Default)]
struct InFlight {
    bytes: VecDeque<u8>,
    /// How many of them have arrived.
    arrived: usize,
    /// When the others will, and how many at a time. ARRIVES-IN-ORDER
    on_the_way: VecDeque<(u64, usize)>,
    /// When the last of what was sent arrives. ARRIVES-IN-ORDER
    last: u64,
    /// When the end arrives.
    end: Option<u64>,
    /// When it arrives that the other side has reset the connection.
    reset: Option<u64>,
}

impl InFlight {
    /// Takes note of what has arrived.
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

    /// Whether a read would not wait.
    fn is_readable(&self, now: u64) -> bool {
        let incoming = &self.incoming;
        let is_over = has_come(incoming.end, now) || has_come(incoming.reset, now);
        incoming.arrived > 0 || is_over || self.reads_no_more
    }

    /// The error of writing, if it is known that there is no use in it.
    fn refusal(&mut self, now: u64) -> Option<io::Error> {
        if !self.has_ended && has_come(self.incoming.reset, now) && !self.is_told {
            self.is_told = true;
            return Some(system_error(libc::ECONNRESET));
        }
        let is_refused = has_come(self.refused, now) || has_come(self.incoming.reset, now);
        (self.has_ended || is_refused).then(|| system_error(libc::EPIPE))
    }

    /// When the other side may have become known to be gone.
    fn refused_at(&self) -> Option<u64> {
        self.refused.into_iter().chain(self.incoming.reset).min()
    }
}

/// A side and the other one.
fn near_and_far(sides: &mut [Side; 2], near: usize) -> (&mut Side, &mut Side) {
    let [first, second] = sides;
    if near == 0 { (first, second) } else { (second, first) }
}

/// When what is sent now arrives. ARRIVES-IN-ORDER
fn arrival(way: &LinkDirection, far: &mut InFlight, now: u64) -> u64 {
    far.last = far.last.max(now + way.latency());
    far.last
}

/// The right to one side of a connection. Dropping it closes it.
pub(super) struct SimSocket {
    connection: Arc<SimConnection>,
    near: usize,
    pub(super) options: Mutex<SocketOptions>,
}

/// Makes a connection: the side of who connected, and of who listened. The ways are those of what they
/// send. Nothing arrives at a side before the moment that is given for it.
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

    /// Where those wait who read.
    pub(super) fn readers(&self) -> &Arc<Arrivals> {
        &self.connection.readers[self.near]
    }

    /// Where those wait who write.
    pub(super) fn writers(&self) -> &Arc<Arrivals> {
        &self.connection.writers[self.near]
    }

    /// The state, and the time, with what has arrived by then.
    fn look(&self) -> io::Result<(MutexGuard<'_, [Side; 2]>, u64)> {
        let now = self.connection.network.enter()?;
        let mut sides = lock(&self.connection.sides);
        sides[self.near].incoming.settle(now);
        Ok((sides, now))
    }

    /// Reads some bytes, and takes them unless `is_peek`.
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
        self.connection.writers[self.far()].call(); // there is room
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
            // They go on their way, and it comes back that nobody took them.
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

    /// Whether a read would not wait.
    pub(super) fn readable(&self) -> io::Result<Tried<()>> {
        let (sides, now) = self.look()?;
        let side = &sides[self.near];
        Ok(if side.is_readable(now) { Tried::Done(()) } else { Tried::NotYet(side.incoming.next()) })
    }

    /// Whether a write would not wait.
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

    /// The error that nobody was told.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let (mut sides, now) = self.look()?;
        let side = &mut sides[self.near];
        let is_news = has_come(side.incoming.reset, now) && !std::mem::replace(&mut side.is_told, true);
        Ok(is_news.then(|| system_error(libc::ECONNRESET)))
    }

    /// The other side will see it break.
    pub(super) fn reset_on_drop(&self) {
        lock(&self.options).linger = Some(std::time::Duration::ZERO);
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        let resets = lock(&self.options).linger.is_some_and(|linger| linger.is_zero());
        let SimConnection { network, addrs, sides, readers, writers } = &*self.connection;
        // Outside of the simulation no time passes: everything arrives as soon as it can.
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
            // What is on its way comes back.
            if let Some(&(arrives, _)) = near.incoming.on_the_way.front() {
                far.refused.get_or_insert(at.max(arrives + near.way.latency()));
            }
        }
        near.has_ended = true;
        // Who waits for room goes on waiting: that there is nobody to make room is what he learns then.
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
