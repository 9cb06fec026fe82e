//! The load that servers are put under, in a process of its own: one thread, plain system calls.
//!
//! Each kind keeps a fixed number of exchanges going, checks every reply, and is done after a given number of them. A
//! failure ends the process, and its parent process reports that.

mod accept;
mod echo;
mod quotes;
pub(crate) mod web;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use crate::child;

pub(crate) use self::accept::Visitors;
pub(crate) use self::echo::Connections;
pub(crate) use self::quotes::{Listeners, message};

/// A kind of load.
pub(crate) trait Load {
    /// Does `operations` operations.
    fn run(&mut self, operations: usize);
}

/// Runs a load, in its own process: a tenth of the work to warm up, then all of it at the parent's order.
pub(crate) fn put<L: Load>(mut load: L, operations: usize) {
    load.run(operations.div_ceil(10));
    child::say("warm");
    if child::told() {
        let begin = Instant::now();
        load.run(operations);
        child::say(begin.elapsed().as_nanos());
    }
}

/// A server that is silent for this long has failed.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Tells which connections have something to say, by number.
struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    /// Room for the events of `connections` connections.
    fn new(connections: usize) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("an epoll instance");
        Self { epoll, events: Vec::with_capacity(connections) }
    }

    /// Watches a connection until it is closed.
    fn add(&self, connection: impl AsFd, number: usize, interest: EventFlags) {
        let data = EventData::new_u64(number as u64);
        epoll::add(&self.epoll, connection, data, interest).expect("a connection to watch");
    }

    /// Watches it for something else.
    fn change(&self, connection: impl AsFd, number: usize, interest: EventFlags) {
        let data = EventData::new_u64(number as u64);
        epoll::modify(&self.epoll, connection, data, interest).expect("a connection to watch");
    }

    /// Watches it no more.
    fn remove(&self, connection: impl AsFd) {
        epoll::delete(&self.epoll, connection).expect("a connection that was watched");
    }

    /// Waits until there is something, but not for longer than that, and hands it all out.
    fn wait_for(&mut self, most: Duration) -> impl Iterator<Item = usize> + use<'_> {
        let most = Timespec::try_from(most).expect("a time that is not too long");
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&most)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("epoll: {error}"),
        }
        self.events.drain(..).map(|event| event.data.u64() as usize)
    }

    /// Waits until there is something, and hands it all out.
    fn wait(&mut self) -> impl Iterator<Item = usize> + use<'_> {
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&PATIENCE)) {
                Ok(0) => panic!("the server does not answer"),
                Ok(_) => break,
                // After a SIGSTOP and a SIGCONT.
                Err(Errno::INTR) => {}
                Err(error) => panic!("epoll: {error}"),
            }
        }
        self.events.drain(..).map(|event| event.data.u64() as usize)
    }
}

/// Where the servers are, which is one but for a case that has several; what they say is taken as it is.
pub(crate) fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    text.split(',').map(|text| text.parse().map_err(|_| format!("not an address: {text:?}"))).collect()
}
