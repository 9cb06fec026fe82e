//! HTTP on Dapple.

#![forbid(unsafe_code)]

mod alarm;
mod answer;
mod body;
mod connection;
mod error;
pub mod files;
mod handling;
mod heads;
mod hub;
mod io;
mod limit;
mod listen;
mod serve;
mod service;
mod settings;
#[cfg(feature = "axum")]
pub mod state;
mod stats;
mod strict;
mod tls;
mod upgrade;
mod watch;
#[cfg(feature = "ws")]
pub mod ws;

pub use body::Body;
pub use error::{BoxError, Error};
pub use files::files;
pub use listen::Listener;
pub use serve::{Serve, Served, serve};
#[doc(hidden)]
pub use service::Within;
pub use service::{Handler, IntoHandler};
#[cfg(feature = "axum")]
pub use state::stateful;
pub use stats::{Counts, Stats};
pub use tls::Tls;
pub use upgrade::{Upgraded, upgrade};
pub use watch::Peer;
