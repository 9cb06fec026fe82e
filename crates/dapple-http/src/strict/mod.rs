//! Strictness: requests that two servers could read in two ways are refused.

pub(crate) mod framing;
pub(crate) mod heads;
