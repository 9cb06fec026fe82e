//! Protocols over shared states.
