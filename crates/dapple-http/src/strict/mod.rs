//! Strictness: requests that two servers could read in two ways are refused.

mod check;
pub(crate) mod framing;
pub(crate) mod heads;
mod host;

pub(crate) use check::begin;
pub(crate) use host::KnownHost;
