//! Protocols in scopes.
