//! Protocols over timers and callbacks.
