//! Attempts that are repeated after a pause: there is no event for a
//! listener, or the receiver of a datagram, that has room again.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::cancel::wait::Wait;
use crate::context::no_runtime_error;
use crate::sched::Sched;
use crate::time::sleep;

/// The first pause between two attempts, and the longest.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(32);

/// A sequence of growing pauses.
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST)
    }
}

impl Pauses {
    pub(super) async fn pause(&mut self) -> io::Result<()> {
        if Sched::current(|_| ()).is_none() {
            return Err(no_runtime_error("wait in"));
        }
        sleep(self.0).await?;
        self.0 = (2 * self.0).min(LONGEST);
        Ok(())
    }
}

/// Connects a new stream, in non-blocking mode. Returns an error in a cancelled task.
pub(super) async fn connect(to: &SocketAddr) -> io::Result<OwnedFd> {
    let mut wait = Wait::default();
    poll_fn(|cx| wait.begin(cx)).await?;
    let to = to_kernel(to)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let mut pauses = Pauses::default();
    let connected = loop {
        match rustix::net::connect(&socket, &to) {
            Err(Errno::AGAIN) => pauses.pause().await?,
            Err(Errno::INTR) => {}
            connected => break connected,
        }
    };
    wait.end();
    connected?;
    Ok(socket)
}

fn to_kernel(addr: &SocketAddr) -> io::Result<SocketAddrUnix> {
    if let Some(path) = addr.as_pathname() {
        return Ok(SocketAddrUnix::new(path)?);
    }
    let Some(name) = addr.as_abstract_name() else {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "a Unix socket without a name cannot be connected to",
        ));
    };
    Ok(SocketAddrUnix::new_abstract_name(name)?)
}
