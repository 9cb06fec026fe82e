//! Connecting in a simulation: the addresses in turn, each with a time limit.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::connection::SimSocket;
use super::listener::SimListener;
use super::network::{Dialed, Network, system_error};
use super::stream::TcpStream;
use crate::is_cancelled;
use crate::net::lookup::{Addrs, LookupTarget, resolve};
use crate::net::tcp::unreached;
use crate::time::sleep;
use crate::world;

/// The time until a client that found the listener's queue full tries again. It doubles each time.
const AGAIN: Duration = Duration::from_secs(1);

/// Finds the addresses. Returns an error in a cancelled task.
pub(super) async fn find(target: LookupTarget) -> io::Result<Addrs> {
    let target = match target {
        LookupTarget::Name(host, port) if host == "localhost" => {
            LookupTarget::One((Ipv4Addr::LOCALHOST, port).into())
        }
        target => target,
    };
    resolve(target).await
}

/// Tries all addresses in turn.
pub(super) async fn connect_to_any(target: LookupTarget, each: Duration) -> io::Result<TcpStream> {
    let network = Network::current("sim::net::TcpStream::connect")?;
    let addrs = find(target).await?;
    let mut tried = Vec::new();
    for &addr in addrs.as_slice() {
        match connect(&network, addr, each).await {
            Err(error) if !is_cancelled(&error) => tried.push((addr, error)),
            done => return done,
        }
    }
    Err(unreached(tried))
}

async fn connect(network: &Arc<Network>, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let (mut again, mut left) = (AGAIN, limit);
    loop {
        let dialed = network.dial(to)?;
        let takes = match &dialed {
            Dialed::Connected(_, _, at) | Dialed::Refused(at) => from_now(*at),
            Dialed::Full => again,
        };
        let attempt = ConnectAttempt(Some(dialed));
        let is_late = takes > left;
        sleep(takes.min(left)).await?;
        if is_late {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("no answer within {limit:?}")));
        }
        if let Some(connected) = attempt.finish() {
            return connected;
        }
        left -= takes;
        again *= 2;
    }
}

fn from_now(at: u64) -> Duration {
    Duration::from_nanos(at.saturating_sub(world::clock().unwrap_or(at)))
}

/// A connection that is being made. If the attempt is dropped, the listener does not get it.
struct ConnectAttempt(Option<Dialed>);

impl ConnectAttempt {
    /// The result; `None` if the caller must try again.
    fn finish(mut self) -> Option<io::Result<TcpStream>> {
        match self.0.take()? {
            Dialed::Connected(socket, ..) => Some(Ok(TcpStream::new(socket))),
            Dialed::Refused(_) => Some(Err(system_error(libc::ECONNREFUSED))),
            Dialed::Full => None,
        }
    }
}

impl Drop for ConnectAttempt {
    fn drop(&mut self) {
        if let Some(Dialed::Connected(socket, listening, at)) = self.0.take() {
            withdraw(&socket, &listening, at);
        }
    }
}

/// Withdraws a connection before the answer has arrived. After that it is closed as any other.
fn withdraw(socket: &SimSocket, listening: &SimListener, answered: u64) {
    if world::clock().is_some_and(|now| now < answered) {
        listening.forget(socket.local_addr());
    }
}
