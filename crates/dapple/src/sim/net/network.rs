//! The network of a simulation: its listeners, and the ports in use.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::connection::{self, SimSocket};
use super::link_conditions::LinkDirection;
use super::listener::SimListener;
use crate::prim::{Mutex, lock};
use crate::world;

/// The range of ports that are given out, as on Linux.
const FIRST_PORT: u16 = 32768;
const LAST_PORT: u16 = 60999;

#[derive(Default)]
pub(super) struct Network {
    state: Mutex<NetworkState>,
}

#[derive(Default)]
struct NetworkState {
    listeners: BTreeMap<SocketAddr, Arc<SimListener>>,
    /// The addresses of clients.
    clients: BTreeSet<SocketAddr>,
    /// Counts the ports that were given out.
    ports: u16,
}

/// The result of an attempt to connect.
pub(super) enum Dialed {
    /// Connected. The answer arrives at the moment.
    Connected(SimSocket, Arc<SimListener>, u64),
    /// There is no listener. The refusal arrives at the moment.
    Refused(u64),
    /// Too many connections wait to be accepted.
    Full,
}

/// The network as a part of the simulated world.
#[derive(Default)]
struct NetworkPart(Arc<Network>);

/// The error that the system would return, by its number.
pub(super) fn system_error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Network {
    /// The network of this simulation.
    pub(super) fn current(what: &str) -> io::Result<Arc<Network>> {
        world::with(|world| world.part::<NetworkPart>().0.clone()).ok_or_else(|| {
            let advice =
                "there is no simulation here: use it inside of dapple::sim::Sim::run, or dapple::net";
            io::Error::new(io::ErrorKind::Unsupported, format!("{what}: {advice}"))
        })
    }

    /// The time; an error outside of this network's simulation.
    pub(super) fn enter(&self) -> io::Result<u64> {
        let here = Network::current("a connection of dapple::sim::net")?;
        if !std::ptr::eq(&raw const *here, self) {
            let message = "a connection of dapple::sim::net: it belongs to another simulation";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        Ok(world::clock().expect("`Network::current` found a simulation"))
    }

    /// Listens at an address. Port 0 means the next free port.
    pub(super) fn listen(self: &Arc<Network>, addr: SocketAddr) -> io::Result<Arc<SimListener>> {
        let mut state = lock(&self.state);
        let addr = match addr.port() {
            0 => state.free_port(addr.ip())?,
            port => SocketAddr::new(addr.ip(), port),
        };
        if state.is_listened_at(addr) {
            return Err(system_error(libc::EADDRINUSE));
        }
        let listening = Arc::new(SimListener::new(self.clone(), addr));
        state.listeners.insert(addr, listening.clone());
        Ok(listening)
    }

    /// Removes the listener at an address.
    pub(super) fn hang_up(&self, addr: SocketAddr) {
        let listening = lock(&self.state).listeners.remove(&addr);
        drop(listening);
    }

    /// Connects to an address. The handshake takes a round trip.
    pub(super) fn dial(self: &Arc<Network>, to: SocketAddr) -> io::Result<Dialed> {
        let now = self.enter()?;
        let to = SocketAddr::new(reached_by(to.ip()), to.port());
        let mut state = lock(&self.state);
        let ways = [LinkDirection::new(), LinkDirection::new()];
        let answered = now + ways[0].latency() + ways[1].latency();
        let Some(listening) = state.listener_for(to) else { return Ok(Dialed::Refused(answered)) };
        if listening.is_full() {
            return Ok(Dialed::Full);
        }
        let from = state.free_port(to.ip())?;
        state.clients.insert(from);
        drop(state);
        // The third part of the handshake: only when it arrives there is a connection to accept.
        let arrives = answered + ways[0].latency();
        let [near, far] = connection::connect(self, [from, to], ways, [answered, arrives]);
        listening.put(far, arrives);
        Ok(Dialed::Connected(near, listening, answered))
    }

    /// Frees the address of a client.
    pub(super) fn release(&self, addr: SocketAddr) {
        lock(&self.state).clients.remove(&addr);
    }
}

impl NetworkState {
    /// The next free port.
    fn free_port(&mut self, ip: IpAddr) -> io::Result<SocketAddr> {
        for _ in FIRST_PORT..=LAST_PORT {
            let addr = SocketAddr::new(ip, FIRST_PORT + self.ports);
            self.ports = (self.ports + 1) % (LAST_PORT - FIRST_PORT + 1);
            if !self.is_listened_at(addr) && !self.clients.contains(&addr) {
                return Ok(addr);
            }
        }
        Err(system_error(libc::EADDRNOTAVAIL))
    }

    fn is_listened_at(&self, addr: SocketAddr) -> bool {
        let mut others = self.listeners.keys().filter(|other| other.port() == addr.port());
        others.any(|other| other == &addr || covers(other.ip(), addr.ip()) || covers(addr.ip(), other.ip()))
    }

    fn listener_for(&self, to: SocketAddr) -> Option<Arc<SimListener>> {
        let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let all = all.into_iter().filter(|all| covers(*all, to.ip()));
        let mut ips = std::iter::once(to.ip()).chain(all);
        ips.find_map(|ip| self.listeners.get(&SocketAddr::new(ip, to.port())).cloned())
    }
}

/// Whether a listener at `all` also gets connections to `ip`: `::` stands for all addresses of both kinds.
fn covers(all: IpAddr, ip: IpAddr) -> bool {
    all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4())
}

/// The address that a connection goes to: the unspecified address means this machine.
fn reached_by(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}
