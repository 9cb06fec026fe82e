//! Connections that bring one byte, get one back, and end.
//!
//! The server hangs up first, as it does when it has answered, and its end would then be kept in
//! TIME_WAIT for a minute: a run would fill the table of the kernel, and run out of the 28,000 ports that a
//! client can have. So this end does not answer with its own FIN but resets the connection (`SO_LINGER` of
//! 0), which leaves nothing behind on either side. The server has closed its socket by then, and does
//! not notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::net::sockopt::set_socket_linger;

use super::{Load, Poll};

/// Those who come and go, a few at a time.
pub(crate) struct Visitors {
    server: SocketAddr,
    poll: Poll,
    /// A connection for each place.
    streams: Vec<Option<TcpStream>>,
    /// So far.
    visits: usize,
}

impl Visitors {
    /// Opens `places` connections at a time.
    pub(crate) fn new(server: SocketAddr, places: usize) -> Self {
        Self { server, poll: Poll::new(places), streams: (0..places).map(|_| None).collect(), visits: 0 }
    }

    /// Connects and sends a byte. On the loopback interface neither waits.
    fn come(&mut self, place: usize) {
        let mut stream = TcpStream::connect(self.server).expect("a server that listens");
        set_socket_linger(&stream, Some(Duration::ZERO)).expect("SO_LINGER");
        stream.write_all(&[place as u8]).expect("a server that stays");
        // When the server has hung up, its byte is there too.
        self.poll.add(&stream, place, EventFlags::RDHUP);
        self.streams[place] = Some(stream);
        self.visits += 1;
    }

    /// Reads the byte and hangs up.
    fn go(&mut self, place: usize) {
        let mut stream = self.streams[place].take().expect("somebody in this place");
        let mut reply = [0; 2];
        let length = stream.read(&mut reply).expect("a server that answers");
        assert_eq!(reply[..length], [place as u8], "a wrong reply");
    }
}

impl Load for Visitors {
    fn run(&mut self, operations: usize) {
        let all = self.visits + operations;
        for place in 0..self.streams.len().min(operations) {
            self.come(place);
        }
        let mut left = operations;
        while left > 0 {
            let places: Vec<usize> = self.poll.wait().collect();
            for place in places {
                self.go(place);
                left -= 1;
                if self.visits < all {
                    self.come(place);
                }
            }
        }
    }
}
