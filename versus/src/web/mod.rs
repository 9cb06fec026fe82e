//! HTTP servers on every side: what their cases have in common.
//!
//! A server is hyper on the side's own sockets ([`server`]), in a process of its own. The load ([`crate::load::web`])
//! is one more, the same for all sides. [`cores`] puts the two on cores of their own where a case wants that.

pub(crate) mod actix;
pub(crate) mod bare;
pub(crate) mod big;
pub(crate) mod burden;
pub(crate) mod cores;
pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod kept;
pub(crate) mod memory;
pub(crate) mod nginx;
pub(crate) mod round;
pub(crate) mod secret;
pub(crate) mod server;
