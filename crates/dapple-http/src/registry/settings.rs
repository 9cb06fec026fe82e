//! The settings of a server, and their defaults.

use std::time::Duration;

use crate::observer::ReplyObserver;

/// The methods of [`Serve`](crate::Serve) document each setting.
#[derive(Clone, Debug)]
pub(crate) struct ServerSettings {
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) half_close_grace: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) shutdown_deadline: Duration,
    pub(crate) max_header_size: usize,
    pub(crate) max_body_size: usize,
    pub(crate) max_streams: u32,
    pub(crate) max_parallel_streams: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) has_peer_info: bool,
    pub(crate) observer: Option<ReplyObserver>,
}

/// More open connections than this need to be asked for.
const CONNECTIONS: usize = 64 * 1024;

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            request_timeout: Duration::MAX,
            write_timeout: Duration::from_secs(30),
            half_close_grace: Duration::from_secs(2),
            cancel_grace: Duration::from_secs(1),
            shutdown_deadline: Duration::from_secs(30),
            max_header_size: 32 * 1024,
            max_body_size: 16 * 1024 * 1024,
            max_streams: 100,
            max_parallel_streams: 16,
            max_connections: connections(),
            max_connections_per_address: usize::MAX,
            has_peer_info: false,
            observer: None,
        }
    }
}

/// A quarter of the file descriptors that this process may have stays for other things, such as the files that
/// it serves.
fn connections() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.and_then(|most| usize::try_from(most).ok()).map_or(CONNECTIONS, |most| {
        let rest = (most / 4).max(16);
        most.saturating_sub(rest).clamp(1, CONNECTIONS)
    })
}
