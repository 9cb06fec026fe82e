//! The proxy in callbacks: figures 2-1 and 3-2 of the thesis on libasync-mp, with the parts that they leave out.
//!
//! ```text
//! main color       accept_cb -> request_cb ...                        connect_cb -> write_cb ... -> relay_cb ...
//!                                         \                          /
//! a color of its own                       parse_request_cb -> tcp_connect (a task)
//! ```
//!
//! As in figure 3-2, only the parsing is in a color of its own. To read and to relay in parallel, too, each connection
//! would be given a color, and each callback below `.color(&color)`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::Arc;

use dapple::Color;
use dapple::event::{self, Callback, Registration};

use crate::request::{Refusal, Request, is_complete};

type Socket = Arc<TcpStream>;

/// Begins to listen, and goes on until the registration is dropped.
pub(crate) fn serve(listener: TcpListener) -> io::Result<Registration> {
    listener.set_nonblocking(true)?;
    let listener = Arc::new(listener);
    let accepts = listener.clone();
    event::readable(&listener, Callback::new(move || told(accept_cb(&accepts))))
}

/// Reports the error of a connection. It ends only that connection.
fn told(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::WouldBlock
    {
        eprintln!("webproxy: {error}");
    }
}

/// Called when a new connection arrives.
fn accept_cb(listener: &TcpListener) -> io::Result<()> {
    let (client, _) = listener.accept()?;
    client.set_nonblocking(true)?;
    let (client, mut input) = (Arc::new(client), Vec::new());
    // Register a callback for incoming data.
    let reads = client.clone();
    let request = Callback::new(move || request_cb(&reads, &mut input));
    event::readable(&client, request)?.detach();
    Ok(())
}

/// Called when data arrives.
fn request_cb(client: &Socket, input: &mut Vec<u8>) -> ControlFlow<()> {
    let mut buffer = [0; 4096];
    match (&**client).read(&mut buffer) {
        Ok(0) => return ControlFlow::Break(()),
        Ok(n) => input.extend(&buffer[..n]),
        Err(error) if is_for_later(&error) => {}
        Err(error) => {
            told(Err(error));
            return ControlFlow::Break(());
        }
    }
    if !is_complete(input) {
        return ControlFlow::Continue(()); // wait for more calls
    }
    // Parse the request in a color of its own, and un-register this callback.
    let (client, input) = (client.clone(), std::mem::take(input));
    event::now(Callback::new(move || parse_request_cb(client, &input)).color(&Color::new())).detach();
    ControlFlow::Break(())
}

/// In a color of its own: beside all others.
fn parse_request_cb(client: Socket, input: &[u8]) {
    match Request::parse(input) {
        // The callback has no color: it is called in the main color again.
        Ok(Request { server, bytes }) => {
            tcp_connect(server, Callback::new(move |server| told(connect_cb(client, bytes, server))));
        }
        Err(refusal) => refuse(&client, refusal),
    }
}

/// Looks a server up, connects to it, and calls back, in whatever color the callback has. Here it is a task that waits.
fn tcp_connect<F>(server: String, connected: Callback<F>)
where
    F: FnOnce(io::Result<TcpStream>) + Send + 'static,
{
    dapple::spawn(async move {
        let stream = dapple::net::TcpStream::connect(server).await;
        event::now(connected.with(stream.and_then(dapple::net::TcpStream::into_std))).detach();
    })
    .detach();
}

/// Called when the server is connected, or cannot be.
fn connect_cb(client: Socket, bytes: Vec<u8>, server: io::Result<TcpStream>) -> io::Result<()> {
    let server = match server {
        Ok(server) => Arc::new(server),
        Err(error) => {
            refuse(&client, Refusal::BadGateway);
            return Err(error);
        }
    };
    server.set_nonblocking(true)?;
    // Write the request when there is room for it.
    let (writes, mut left) = (server.clone(), bytes);
    let write = Callback::new(move || write_cb(&client, &writes, &mut left));
    event::writable(&server, write)?.detach();
    Ok(())
}

/// Called when the server has room for more of the request.
fn write_cb(client: &Socket, server: &Socket, left: &mut Vec<u8>) -> ControlFlow<()> {
    match write_some(server, left) {
        Ok(()) if !left.is_empty() => return ControlFlow::Continue(()),
        Ok(()) => {
            let relay = Relay { client: client.clone(), server: server.clone(), buffer: Vec::new() };
            told(relay.wait());
        }
        Err(error) => told(Err(error)),
    }
    ControlFlow::Break(())
}

/// The answer, on its way back.
struct Relay {
    client: Socket,
    server: Socket,
    /// Bytes that the client has had no room for.
    buffer: Vec<u8>,
}

enum Next {
    /// Wait for the same side again.
    Same,
    Other,
    End,
}

impl Relay {
    /// Waits for the server, or for the client if it has no room.
    fn wait(self) -> io::Result<()> {
        let (client, server, waits_for_client) =
            (self.client.clone(), self.server.clone(), !self.buffer.is_empty());
        let mut relay = Some(self);
        let callback = Callback::new(move || relay_cb(&mut relay));
        let registered = match waits_for_client {
            true => event::writable(&client, callback),
            false => event::readable(&server, callback),
        };
        registered.map(Registration::detach)
    }

    fn step(&mut self) -> io::Result<Next> {
        let waited_for_client = !self.buffer.is_empty();
        if !waited_for_client {
            let mut buffer = [0; 16384];
            match (&*self.server).read(&mut buffer) {
                Ok(0) => return Ok(Next::End),
                Ok(n) => self.buffer.extend(&buffer[..n]),
                Err(error) if is_for_later(&error) => return Ok(Next::Same),
                Err(error) => return Err(error),
            }
        }
        write_some(&self.client, &mut self.buffer)?;
        Ok(if self.buffer.is_empty() != waited_for_client { Next::Same } else { Next::Other })
    }
}

/// Called when the side that is waited for is ready. At the end both connections are dropped, and so closed.
fn relay_cb(relay: &mut Option<Relay>) -> ControlFlow<()> {
    match relay.as_mut().map_or(Ok(Next::End), Relay::step) {
        Ok(Next::Same) => return ControlFlow::Continue(()),
        Ok(Next::Other) => told(relay.take().map_or(Ok(()), Relay::wait)),
        Ok(Next::End) => {}
        Err(error) => told(Err(error)),
    }
    ControlFlow::Break(())
}

/// Writes what there is room for, and takes it from `left`.
fn write_some(mut to: &TcpStream, left: &mut Vec<u8>) -> io::Result<()> {
    match to.write(left) {
        Ok(n) => drop(left.drain(..n)),
        Err(error) if is_for_later(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Says why, if there is room for it: nothing was written before.
fn refuse(mut client: &TcpStream, refusal: Refusal) {
    told(client.write_all(refusal.answer().as_bytes()));
}
