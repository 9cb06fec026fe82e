//! A system that refuses threads or system calls. Limits and filters are for ever, so each such test starts this binary
//! again.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/fs.rs"]
mod fs_common;
#[expect(unsafe_code, reason = "asks the kernel to refuse system calls")]
#[path = "../common/refused.rs"]
mod refused_common;

mod epoll;
mod files;
mod threads;
