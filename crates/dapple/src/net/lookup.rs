//! Name lookup: the types of addresses to connect and bind to, and `getaddrinfo` in the pool.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

use super::error::failed;
use crate::context::no_runtime_error;
use crate::sched::Sched;
use crate::source::stream::begin;
use crate::world;
use crate::{Cancelled, JoinHandle};

/// A type that names one or more socket addresses: an address, a literal, or a name and a port.
///
/// | | looked up |
/// |---|---|
/// | [`SocketAddr`], [`SocketAddrV4`], [`SocketAddrV6`], slices, arrays and `Vec`s of [`SocketAddr`] | never |
/// | `(IpAddr, u16)`, `(Ipv4Addr, u16)`, `(Ipv6Addr, u16)` | never |
/// | `"127.0.0.1:80"`, `"[::1]:80"`, `("127.0.0.1", 80)` | never |
/// | `"localhost:80"`, `("localhost", 80)` | as [`lookup`] does |
///
/// Strings may be `&str` or `String`; all types may be behind a reference. The trait is sealed.
///
/// # Examples
///
/// ```
/// use dapple::net::TcpListener;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?; // a literal
///     assert!(TcpListener::bind(listener.local_addr()?).await.is_err()); // an address, which is in use
///     TcpListener::bind(("127.0.0.1", 0)).await?; // a host and a port
///     Ok(())
/// })
/// # }
/// ```
pub trait ToAddrs: Sealed {}

/// The meaning of a value of [`ToAddrs`].
#[derive(Clone, Debug)]
pub enum LookupTarget {
    One(SocketAddr),
    Many(Vec<SocketAddr>),
    Name(String, u16),
    /// A string without a port.
    Portless(String),
    /// A string whose port is not a number.
    BadPort(String),
}

/// Keeps [`ToAddrs`] to this crate.
pub trait Sealed {
    #[doc(hidden)]
    fn target(&self) -> LookupTarget;
}

macro_rules! to_addrs {
    ($($type:ty: |$this:ident| $target:expr,)*) => {
        $(
            impl Sealed for $type {
                fn target(&self) -> LookupTarget {
                    let $this = self;
                    $target
                }
            }
            impl ToAddrs for $type {}
        )*
    };
}

to_addrs! {
    SocketAddr: |addr| LookupTarget::One(*addr),
    SocketAddrV4: |addr| LookupTarget::One((*addr).into()),
    SocketAddrV6: |addr| LookupTarget::One((*addr).into()),
    (IpAddr, u16): |addr| LookupTarget::One((*addr).into()),
    (Ipv4Addr, u16): |addr| LookupTarget::One((*addr).into()),
    (Ipv6Addr, u16): |addr| LookupTarget::One((*addr).into()),
    (&str, u16): |addr| host_and_port(addr.0, addr.1),
    (String, u16): |addr| host_and_port(&addr.0, addr.1),
    str: |text| parse(text),
    String: |text| parse(text),
    [SocketAddr]: |addrs| LookupTarget::Many(addrs.to_vec()),
    Vec<SocketAddr>: |addrs| LookupTarget::Many(addrs.clone()),
}

impl<const N: usize> Sealed for [SocketAddr; N] {
    fn target(&self) -> LookupTarget {
        LookupTarget::Many(self.to_vec())
    }
}

impl<const N: usize> ToAddrs for [SocketAddr; N] {}

impl<T: Sealed + ?Sized> Sealed for &T {
    fn target(&self) -> LookupTarget {
        T::target(self)
    }
}

impl<T: ToAddrs + ?Sized> ToAddrs for &T {}

fn host_and_port(host: &str, port: u16) -> LookupTarget {
    match host.parse::<IpAddr>() {
        Ok(ip) => LookupTarget::One(SocketAddr::new(ip, port)),
        Err(_) => LookupTarget::Name(host.to_owned(), port),
    }
}

fn parse(text: &str) -> LookupTarget {
    if let Ok(addr) = text.parse() {
        return LookupTarget::One(addr);
    }
    match text.rsplit_once(':') {
        // An IPv6 address without a port has more than one colon.
        Some((host, port)) if !host.contains(':') => match port.parse() {
            Ok(port) => LookupTarget::Name(host.to_owned(), port),
            Err(_) => LookupTarget::BadPort(text.to_owned()),
        },
        _ => LookupTarget::Portless(text.to_owned()),
    }
}

/// The addresses that were found.
#[derive(Debug)]
pub(crate) enum Addrs {
    One(SocketAddr),
    Many(Vec<SocketAddr>),
}

impl Addrs {
    pub(crate) fn as_slice(&self) -> &[SocketAddr] {
        match self {
            Addrs::One(addr) => std::slice::from_ref(addr),
            Addrs::Many(addrs) => addrs,
        }
    }
}

/// Looks up the addresses to connect or bind to. Returns an error in a cancelled task.
pub(crate) async fn resolve(target: LookupTarget) -> io::Result<Addrs> {
    begin().await?;
    let found = match target {
        LookupTarget::One(addr) => return Ok(Addrs::One(addr)),
        LookupTarget::Many(addrs) => addrs,
        LookupTarget::Name(host, port) => ask(host, port).await?,
        LookupTarget::Portless(text) => {
            let advice = format!("{text:?} has no port: write \"host:port\", or give (host, port)");
            return Err(io::Error::new(ErrorKind::InvalidInput, advice));
        }
        LookupTarget::BadPort(text) => {
            let advice =
                format!("{text:?} has no valid port: it is a number from 0 to 65535 after the last ':'");
            return Err(io::Error::new(ErrorKind::InvalidInput, advice));
        }
    };
    if found.is_empty() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "no address was given: the list is empty"));
    }
    Ok(Addrs::Many(found))
}

/// Calls `getaddrinfo` in the pool.
async fn ask(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    if world::is_simulated() {
        return Err(world::no_outside(&format!("lookup of {host:?}")));
    }
    if Sched::current(|_| ()).is_none() {
        return Err(no_runtime_error("look up names in"));
    }
    let mut call = Abandoned(crate::blocking(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        found.map_err(|why| failed(format!("cannot find the address of {host:?}"), why))
    }));
    (&mut call.0).await.unwrap_or_else(|error| {
        Err(if error.is_cancelled() { Cancelled.into() } else { io::Error::other(error) })
    })
}

/// A call in the pool. If this is dropped before the call begins, the call does not begin.
struct Abandoned<T>(JoinHandle<T>);

impl<T> Drop for Abandoned<T> {
    fn drop(&mut self) {
        self.0.abort(); // no effect if it has begun
    }
}

/// Finds the addresses of a host.
///
/// Names are looked up as the C library does it (`getaddrinfo`), in the pool of
/// [`blocking`](crate::blocking()) calls. Literals and addresses need no lookup, and never leave
/// the worker. A name or literal without a port yields addresses with port 0.
///
/// # Errors
///
/// If the name has no address, with the name in the message; if the wait was cancelled
/// ([`is_cancelled`](crate::is_cancelled)); outside of a runtime, for a name.
///
/// # Cancellation
///
/// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or the addresses if they were
/// ready. In both cases a call that has begun goes on in the pool, and its result is dropped;
/// a call that has not begun does not begin.
///
/// # Examples
///
/// ```
/// use dapple::net::lookup;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     for addr in lookup("localhost:80").await? {
///         assert!(addr.ip().is_loopback() && addr.port() == 80);
///     }
///     assert_eq!(lookup(("::1", 443)).await?, ["[::1]:443".parse().unwrap()]);
///     Ok(())
/// })
/// # }
/// ```
pub async fn lookup(host: impl ToAddrs) -> io::Result<Vec<SocketAddr>> {
    let target = match host.target() {
        LookupTarget::Portless(host) => host_and_port(host.trim_start_matches('[').trim_end_matches(']'), 0),
        target => target,
    };
    Ok(match resolve(target).await? {
        Addrs::One(addr) => vec![addr],
        Addrs::Many(addrs) => addrs,
    })
}
