//! Connections that listen: on each a message comes every second.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::net::sockopt::set_socket_linger;

use super::{Load, Poll};

/// Bytes of a message: the number of it on its connection, eight bytes, and then nothing but that again.
pub(crate) const LENGTH: usize = 64;

pub(crate) type Message = [u8; LENGTH];

/// The message of a number.
pub(crate) fn message(number: u64) -> Message {
    let mut message = [0; LENGTH];
    for part in message.chunks_exact_mut(size_of::<u64>()) {
        part.copy_from_slice(&number.to_le_bytes());
    }
    message
}

/// All connections.
pub(crate) struct Listeners {
    poll: Poll,
    listeners: Vec<Listener>,
}

struct Listener {
    stream: TcpStream,
    /// Messages so far.
    heard: u64,
}

impl Listeners {
    /// Connects, and hears the first message on each, so that the server has accepted it.
    pub(crate) fn open(server: SocketAddr, count: usize) -> Self {
        let poll = Poll::new(count);
        let connect = |number| {
            let stream = TcpStream::connect(server).expect("a server that listens");
            // So that none is left in TIME_WAIT.
            set_socket_linger(&stream, Some(Duration::ZERO)).expect("SO_LINGER");
            let mut listener = Listener { stream, heard: 0 };
            listener.hear();
            poll.add(&listener.stream, number, EventFlags::IN);
            listener
        };
        let mut listeners: Vec<Listener> = (0..count).map(connect).collect();
        // Messages that came before the measurement are not counted.
        for listener in &mut listeners {
            listener.stream.set_nonblocking(true).expect("a socket that does not block");
            while listener.hear() {}
        }
        Self { poll, listeners }
    }
}

impl Load for Listeners {
    /// An operation is a message.
    fn run(&mut self, operations: usize) {
        let mut left = operations;
        while left > 0 {
            for number in self.poll.wait() {
                if self.listeners[number].hear() {
                    left = left.saturating_sub(1);
                }
            }
        }
    }
}

impl Listener {
    /// Reads a message, which is there as a whole, as it was sent, or not at all.
    fn hear(&mut self) -> bool {
        let mut heard = [0; LENGTH];
        let length = match self.stream.read(&mut heard) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("the server has failed: {error}"),
        };
        assert_eq!(heard[..length], message(self.heard), "a wrong message");
        self.heard += 1;
        true
    }
}
