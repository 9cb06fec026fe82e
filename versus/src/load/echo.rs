//! Messages of 64 bytes over connections that stay, one in flight on each.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::event::epoll::EventFlags;

use super::{Load, Poll};

/// Bytes of a message.
const LENGTH: usize = 64;

type Message = [u8; LENGTH];

/// All connections.
pub(crate) struct Connections {
    poll: Poll,
    connections: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    number: usize,
    /// Messages so far.
    sent: usize,
    /// The part of the last reply that has arrived.
    reply: Message,
    length: usize,
}

impl Connections {
    /// Connects, and sees a message come back on each, so that the server has accepted it.
    pub(crate) fn open(server: SocketAddr, count: usize) -> Self {
        let poll = Poll::new(count);
        let connect = |number| {
            let mut connection = Connection::open(server, number);
            connection.stream.set_nonblocking(true).expect("a socket that does not block");
            poll.add(&connection.stream, number, EventFlags::IN);
            connection.length = 0;
            connection
        };
        let connections = (0..count).map(connect).collect();
        Self { poll, connections }
    }
}

impl Load for Connections {
    fn run(&mut self, operations: usize) {
        let first = operations.min(self.connections.len());
        for connection in &mut self.connections[..first] {
            connection.send();
        }
        let (mut left_to_send, mut left) = (operations - first, operations);
        while left > 0 {
            for number in self.poll.wait() {
                let connection = &mut self.connections[number];
                if connection.receive() {
                    left -= 1;
                    if left_to_send > 0 {
                        left_to_send -= 1;
                        connection.send();
                    }
                }
            }
        }
    }
}

impl Connection {
    fn open(server: SocketAddr, number: usize) -> Self {
        let stream = TcpStream::connect(server).expect("a server that listens");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let mut connection = Self { stream, number, sent: 0, reply: [0; LENGTH], length: 0 };
        connection.send();
        while !connection.receive() {}
        connection
    }

    /// Sends the next message. There is always room for one.
    fn send(&mut self) {
        self.sent += 1;
        let length = self.stream.write(&self.message()).expect("a server that stays");
        assert_eq!(length, LENGTH, "a message was cut");
    }

    /// Reads what there is; true if that was the rest of the reply.
    fn receive(&mut self) -> bool {
        match self.stream.read(&mut self.reply[self.length..]) {
            Ok(0) => panic!("the server has hung up"),
            Ok(length) => self.length += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        let done = self.length == LENGTH;
        if done {
            assert_eq!(self.reply, self.message(), "a wrong reply");
            self.length = 0;
        }
        done
    }

    /// The last message: no two are the same.
    fn message(&self) -> Message {
        let mut message = [0; LENGTH];
        let (words, _) = message.as_chunks_mut();
        for (index, word) in words.iter_mut().enumerate() {
            let value = (self.number as u64) << 48 | (self.sent as u64) << 8 | index as u64;
            *word = value.to_ne_bytes();
        }
        message
    }
}
