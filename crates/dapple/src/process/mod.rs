//! Child processes: start them, communicate through pipes, and wait for them without blocking a worker.
//!
//! ```
//! use dapple::process::Command;
//!
//! # fn main() -> std::io::Result<()> {
//! dapple::run(async {
//!     let output = Command::new("echo").arg("hello").output().await?;
//!     assert!(output.status.success());
//!     assert_eq!(output.stdout, b"hello\n");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # No zombies
//!
//! If a [`Child`] is dropped, its process runs on, unless [`Command::kill_on_drop`] is set. When it
//! ends, it is *reaped* in the background, by a thread that exists only while there are such
//! children, and that needs no runtime. So it does not matter whether the runtime has ended by then.
//! If this program ends first, the system reaps them.

#[expect(unsafe_code, reason = "sends signals that rustix has no name for")]
mod child;
mod command;
mod pipes;
mod reaper;

pub use child::Child;
pub use command::Command;
pub use pipes::{ChildStderr, ChildStdin, ChildStdout};
pub use std::process::{ExitStatus, Output, Stdio};
