//! What an example and its tests share.

pub mod oracle;
