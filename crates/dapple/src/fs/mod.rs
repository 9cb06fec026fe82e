//! Files and directories, without blocking a worker.
//!
//! The operations of [`std::fs`], by the same names, as async functions. On a kernel that allows it, operations go
//! through io_uring, a queue that each worker shares with the kernel: they are submitted in batches, and completions
//! come in with the worker's other events. An operation on data in the kernel's page cache is faster than a submission,
//! so the worker does it itself. Without io_uring, and for operations that it does not support, a thread of the pool
//! for blocking calls makes the system call. [`Runtime::files`](crate::Runtime::files) returns the mechanism in use,
//! and [`runtime::Builder::files`](crate::runtime::Builder::files) chooses it.
//!
//! ```
//! use dapple::fs;
//!
//! # fn main() -> std::io::Result<()> {
//! dapple::run(async {
//!     let path = std::env::temp_dir().join(format!("dapple-{}", std::process::id()));
//!     fs::write(&path, "forty-two").await?;
//!     assert_eq!(fs::read_to_string(&path).await?, "forty-two");
//!     fs::remove_file(&path).await
//! })
//! # }
//! ```
//!
//! # Two ways to use a file
//!
//! * With a cursor: [`File`] has the traits of [`futures_io`] (and `dapple::io` methods on top of them). A read
//!   or write moves the cursor, which duplicates of the file share.
//! * By position: [`File::read_at`] and [`File::write_at`] take a [buffer](BufferMut) by value and return it
//!   with the result. The kernel reads and writes that memory itself and nothing is copied. Any number of such
//!   operations can be under way on one file.
//!
//! # Cancellation
//!
//! The kernel owns the memory of an operation until the operation ends. If its future is dropped before, the memory
//! stays with the kernel, and is freed at that end. If its scope is cancelled, the operation's own end decides:
//! the call returns its result, or `Cancelled` if it has had no effect. A disk read cannot be recalled,
//! so a cancelled read may take as long as the read does.
//!
//! # Errors
//!
//! Errors contain the operation and the path; see [`Failed`].
//!
//! # In a simulation
//!
//! A simulation has no files: every operation returns an error.

mod aligned;
mod buffer;
mod cached;
mod copy;
mod cursor;
mod dir;
mod error;
mod file;
mod operation;
mod options;
mod paths;
mod request;
mod send_file;
mod short_calls;
mod whole_files;

pub use aligned::AlignedBuf;
pub use buffer::{Buffer, BufferMut, Slice};
pub use copy::copy;
pub use dir::{
    DirBuilder, DirEntry, ReadDir, create_dir, create_dir_all, read_dir, remove_dir, remove_dir_all,
};
pub use error::Failed;
pub use file::File;
pub use options::OpenOptions;
pub use paths::{
    canonicalize, hard_link, metadata, read_link, remove_file, rename, set_permissions, symlink,
    symlink_metadata, try_exists,
};
pub use send_file::{Socket, send_file};
pub use whole_files::{read, read_to_string, write};

pub use crate::driver::uring::backend::Files;
