//! Protocols over simulated sockets.
