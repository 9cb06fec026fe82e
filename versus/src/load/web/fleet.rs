//! The connections of a load that keeps a schedule: as many as it needs, up to a limit, each used again when
//! it is free.
//!
//! Free connections are used in turn, so that all of them are used. A connection that the server closes is forgotten;
//! the request under way on it has failed, and is reported in the same way as an answer.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::event::epoll::EventFlags;

use super::answer::Answer;
use super::connection::{Connection, Received};
use crate::load::Poll;

/// Some connections to one server. `R` is what the load has to know of a request under way.
pub(crate) struct Fleet<R> {
    server: SocketAddr,
    poll: Poll,
    places: Vec<Option<Place<R>>>,
    /// Places without a connection.
    vacant: Vec<usize>,
    /// Places with a connection that has nothing to do. Some may have been closed since.
    free: VecDeque<usize>,
    busy: usize,
    most: usize,
    buffer: Box<[u8]>,
}

struct Place<R> {
    connection: Connection,
    /// The request under way.
    request: Option<R>,
}

/// How a request ended: an answer, or nothing if the connection broke.
pub(crate) type End<R> = (R, Option<Answer>);

/// Events at a time: few, so that a schedule is looked at in between.
const EVENTS: usize = 64;

impl<R> Fleet<R> {
    /// No more connections than that.
    pub(crate) fn new(server: SocketAddr, most: usize) -> Self {
        Self {
            server,
            poll: Poll::new(EVENTS),
            places: Vec::new(),
            vacant: Vec::new(),
            free: VecDeque::new(),
            busy: 0,
            most,
            buffer: vec![0; 64 * 1024].into(),
        }
    }

    /// Requests under way.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// Sends a request on a connection that is free, or on a new one. Gives back what it is if there may be no more
    /// connections, or the server takes none.
    pub(crate) fn send(&mut self, bytes: &[u8], request: R) -> Result<(), R> {
        let Some(place) = self.place() else { return Err(request) };
        let used = self.places[place].as_mut().expect("a connection");
        if used.connection.send(bytes).is_err() {
            self.close(place);
            return Err(request);
        }
        let late = used.connection.has_unsent();
        used.request = Some(request);
        self.busy += 1;
        if late {
            self.watch(place, EventFlags::IN | EventFlags::OUT);
        }
        Ok(())
    }

    /// A place with a connection that has nothing to do.
    fn place(&mut self) -> Option<usize> {
        while let Some(place) = self.free.pop_front() {
            if self.places[place].as_ref().is_some_and(|place| place.request.is_none()) {
                return Some(place);
            }
        }
        if self.places.len() == self.most && self.vacant.is_empty() {
            return None;
        }
        let connection = Connection::begin(self.server).ok()?;
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.poll.add(&connection.stream, number, EventFlags::IN);
        self.places[number] = Some(Place { connection, request: None });
        Some(number)
    }

    /// Waits for at most `most`, and passes each request that has ended to `end`.
    pub(crate) fn wait(&mut self, most: Duration, mut end: impl FnMut(End<R>)) {
        let numbers: Vec<usize> = self.poll.wait_for(most).collect();
        for number in numbers {
            self.serve(number, &mut end);
        }
    }

    /// Does what one connection has to do.
    fn serve(&mut self, number: usize, end: &mut impl FnMut(End<R>)) {
        // It may have been closed a moment ago.
        let Some(place) = self.places[number].as_mut() else { return };
        if place.connection.has_unsent() {
            if place.connection.send_rest().is_err() {
                return self.fail(number, end);
            }
            if !place.connection.has_unsent() {
                self.watch(number, EventFlags::IN);
            }
        }
        let place = self.places[number].as_mut().expect("a connection");
        match place.connection.receive(&mut self.buffer) {
            Ok(Received::Part) => {}
            Ok(Received::Whole(answer)) => {
                let request = place.request.take().expect("an answer to a request");
                self.busy -= 1;
                if answer.close {
                    self.close(number);
                } else {
                    self.free.push_back(number);
                }
                end((request, Some(answer)));
            }
            Ok(Received::End) | Err(_) => self.fail(number, end),
        }
    }

    /// Closes a connection that is of no use any more, and with it what was under way.
    fn fail(&mut self, number: usize, end: &mut impl FnMut(End<R>)) {
        if let Some(request) = self.close(number) {
            self.busy -= 1;
            end((request, None));
        }
    }

    fn close(&mut self, number: usize) -> Option<R> {
        self.vacant.push(number);
        // It may stand among the free ones, where the next one in its place must not be found in its stead.
        self.free.retain(|&free| free != number);
        self.places[number].take()?.request
    }

    /// Abandons the requests that are still under way, and returns them.
    pub(crate) fn give_up(&mut self) -> Vec<R> {
        self.busy = 0;
        let is_busy = |place: &Option<Place<R>>| place.as_ref().is_some_and(|place| place.request.is_some());
        let late: Vec<usize> =
            (0..self.places.len()).filter(|&number| is_busy(&self.places[number])).collect();
        late.into_iter().filter_map(|number| self.close(number)).collect()
    }

    fn watch(&self, number: usize, interest: EventFlags) {
        let place = self.places[number].as_ref().expect("a connection");
        self.poll.change(&place.connection.stream, number, interest);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    /// Sends a request, and waits for how it ends.
    fn ask(fleet: &mut Fleet<u32>, number: u32) -> End<u32> {
        fleet.send(REQUEST, number).expect("a free connection");
        let mut ended = None;
        while ended.is_none() {
            fleet.wait(Duration::from_secs(10), |end| ended = Some(end));
        }
        ended.expect("looked at above")
    }

    #[test]
    fn what_finds_no_connection_is_given_back_and_what_is_under_way_can_be_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut fleet = Fleet::new(listener.local_addr().unwrap(), 2);
        assert_eq!([1, 2, 3].map(|number| fleet.send(REQUEST, number)), [Ok(()), Ok(()), Err(3)]);
        assert_eq!((fleet.give_up(), fleet.busy()), (vec![1, 2], 0));
        assert_eq!(fleet.send(REQUEST, 4), Ok(()));
    }

    #[test]
    fn a_connection_is_used_again_until_the_server_ends_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let heard = |stream: &mut TcpStream| stream.read(&mut [0; 64]).unwrap();
            let (mut first, _) = listener.accept().unwrap();
            heard(&mut first);
            first.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
            heard(&mut first);
            first.write_all(b"HTTP/1.1 503 no\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            // Another connection, which is cut.
            let (mut second, _) = listener.accept().unwrap();
            heard(&mut second);
        });
        let mut fleet = Fleet::new(address, 1);
        let status = |(number, answer): End<u32>| (number, answer.map(|answer| answer.status));
        assert_eq!(status(ask(&mut fleet, 1)), (1, Some(200)));
        assert_eq!(status(ask(&mut fleet, 2)), (2, Some(503)));
        assert_eq!(status(ask(&mut fleet, 3)), (3, None));
        server.join().unwrap();
    }
}
