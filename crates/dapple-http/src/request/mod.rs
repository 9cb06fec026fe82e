//! One request: the service that handles it, its body, and the response.

pub(crate) mod body;
pub(crate) mod handling;
pub(crate) mod service;
pub(crate) mod upgrade;
#[cfg(feature = "ws")]
pub mod ws;
