//! Clients that send a request, wait for the answer, and repeat: a closed loop, which measures the cost of a request.
//!
//! Each client has one request under way. If a connection has a limit of requests, its last request says `connection:
//! close`; the server hangs up and the client comes again on a new connection. As in `accept`, this end resets its
//! connection then, so that nothing is left in TIME_WAIT. Every answer is checked.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use rustix::event::epoll::EventFlags;

use super::answer::FIRST;
use super::connection::{Connection, Received};
use crate::load::{Load, Poll};
use crate::scatter::{below, scatter};

/// A request, and the answer to expect.
pub(crate) struct Wanted {
    keep: Vec<u8>,
    close: Vec<u8>,
    length: usize,
    first: [u8; FIRST],
}

impl Wanted {
    /// A path, and the length and the first bytes of its answer.
    pub(crate) fn new(path: &str, length: usize, first: [u8; FIRST]) -> Self {
        let close = format!("GET {path} HTTP/1.1\r\nhost: versus\r\nconnection: close\r\n\r\n");
        Self { keep: super::request(path), close: close.into_bytes(), length, first }
    }
}

/// All clients.
pub(crate) struct Clients {
    server: SocketAddr,
    poll: Poll,
    clients: Vec<Option<Client>>,
    wanted: Vec<Wanted>,
    /// Requests on a connection; 0 if it stays.
    each: u32,
    /// Requests so far.
    asked: u64,
    buffer: Box<[u8]>,
}

struct Client {
    connection: Connection,
    /// Requests that it has made.
    made: u32,
    /// The number of the answer that it waits for.
    waits: Option<usize>,
}

/// A server that is silent for this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clients that come at the same time, before they are timed.
const GATHER: usize = 64;

/// The result of reading from a client's connection.
enum Seen {
    /// Not all of an answer.
    Part,
    /// An answer, and the connection stays.
    Answer,
    /// An answer, and the server is about to hang up.
    Last,
    /// The server has hung up, as it should.
    End,
}

impl Clients {
    pub(crate) fn new(server: SocketAddr, count: usize, wanted: Vec<Wanted>, each: u32) -> Self {
        let buffer = vec![0; 64 * 1024].into();
        let clients = (0..count).map(|_| None).collect();
        Self { server, poll: Poll::new(count), clients, wanted, each, asked: 0, buffer }
    }

    /// Lets a client ask, on a new connection if it has none that may be used.
    fn ask(&mut self, number: usize) {
        let used_up = |client: &Client| client.waits.is_none() && self.each != 0 && client.made == self.each;
        if self.clients[number].as_ref().is_none_or(used_up) {
            let connection = Connection::begin(self.server).expect("a server that listens");
            self.poll.add(&connection.stream, number, EventFlags::IN);
            self.clients[number] = Some(Client { connection, made: 0, waits: None });
        }
        let which = below(scatter(self.asked), self.wanted.len() as u64) as usize;
        self.asked += 1;
        let client = self.clients[number].as_mut().expect("made above");
        client.made += 1;
        client.waits = Some(which);
        let wanted = &self.wanted[which];
        let request = if client.made == self.each { &wanted.close } else { &wanted.keep };
        client.connection.send(request).expect("a server that stays");
        if client.connection.has_unsent() {
            self.poll.change(&client.connection.stream, number, EventFlags::IN | EventFlags::OUT);
        }
    }

    /// Does what a client has to do.
    fn look(&mut self, number: usize) -> Seen {
        let client = self.clients[number].as_mut().expect("only those who are connected are heard of");
        if client.connection.has_unsent() {
            client.connection.send_rest().expect("a server that stays");
            if !client.connection.has_unsent() {
                self.poll.change(&client.connection.stream, number, EventFlags::IN);
            }
        }
        match client.connection.receive(&mut self.buffer).expect("a server that stays") {
            Received::Part => Seen::Part,
            Received::Whole(answer) => {
                let wanted = &self.wanted[client.waits.take().expect("an answer to a request")];
                assert_eq!(answer.status, 200, "a wrong answer");
                assert_eq!((answer.length, answer.first), (wanted.length, wanted.first), "a wrong answer");
                if client.made == self.each { Seen::Last } else { Seen::Answer }
            }
            Received::End => {
                assert!(client.made == self.each && client.waits.is_none(), "the server has hung up");
                self.clients[number] = None;
                Seen::End
            }
        }
    }

    /// Lets every client send one request, a few at a time: if all came at once, some might not fit into the accept
    /// backlog, and the kernel would retry those only after a second.
    pub(crate) fn gather(&mut self) {
        for first in (0..self.clients.len()).step_by(GATHER) {
            let some = first..self.clients.len().min(first + GATHER);
            let requests = some.len();
            self.run_with(some, requests);
        }
    }

    /// Does `operations` requests, beginning with these clients. The others have nothing under way.
    fn run_with(&mut self, clients: Range<usize>, operations: usize) {
        let (mut to_ask, mut left) = (operations, operations);
        for number in clients.take(operations) {
            self.ask(number);
            to_ask -= 1;
        }
        let mut events: Vec<usize> = Vec::new();
        while left > 0 {
            events.extend(self.poll.wait_for(PATIENCE));
            assert!(!events.is_empty(), "the server does not answer");
            for number in events.drain(..) {
                let may_ask = match self.look(number) {
                    Seen::Part => false,
                    Seen::Answer => {
                        left -= 1;
                        true
                    }
                    // It asks again when the server has hung up.
                    Seen::Last => {
                        left -= 1;
                        false
                    }
                    Seen::End => true,
                };
                if may_ask && to_ask > 0 {
                    self.ask(number);
                    to_ask -= 1;
                }
            }
        }
    }
}

impl Load for Clients {
    fn run(&mut self, operations: usize) {
        self.run_with(0..self.clients.len(), operations);
    }
}
