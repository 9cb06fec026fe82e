//! Options of a connection. They are stored, and all but `linger` have no effect.

use std::io;
use std::time::Duration;

use super::network::system_error;

pub(super) struct SocketOptions {
    pub(super) nodelay: bool,
    pub(super) quickack: bool,
    pub(super) keepalive: Option<Duration>,
    /// Zero resets the connection when it is dropped.
    pub(super) linger: Option<Duration>,
    pub(super) ttl: u32,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions { nodelay: false, quickack: true, keepalive: None, linger: None, ttl: 64 }
    }
}

/// Checks a TTL by the rules of Linux.
pub(super) fn check_ttl(ttl: u32) -> io::Result<u32> {
    if (1..=255).contains(&ttl) { Ok(ttl) } else { Err(system_error(libc::EINVAL)) }
}

/// Checks a keep-alive time by the rules of Linux.
pub(super) fn check_keepalive(after: Option<Duration>) -> io::Result<Option<Duration>> {
    let is_fine = after.is_none_or(|after| (1..=32767).contains(&after.as_secs()));
    if is_fine { Ok(after) } else { Err(system_error(libc::EINVAL)) }
}
