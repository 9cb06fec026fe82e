//! Protocols over channels.
