//! Files and directories, without blocking a worker.
//!
//! What [`std::fs`] has, by the same names, to be awaited. On a kernel that allows it, operations go through
//! io_uring, a queue that each worker shares with the kernel: they are handed over in batches, and what is done
//! comes in with the worker's other events. What is quicker done than handed over, because it is in the kernel's memory,
//! the worker does itself. Elsewhere, and for what io_uring does not know, a thread of the pool
//! for blocking calls makes the system call. What is used can be asked ([`Runtime::files`](crate::Runtime::files))
//! and chosen ([`runtime::Builder::files`](crate::runtime::Builder::files)).
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
//! * By position: [`File::read_at`] and [`File::write_at`] take a [buffer](BufferMut) by value and hand it back
//!   with the result. The kernel reads and writes that memory itself, nothing is copied, and any number of them
//!   can be under way on one file.
//!
//! # Cancellation
//!
//! The kernel owns the memory of an operation until that is done. So what is dropped while it is under way is
//! left with the kernel, and freed when it is done; and what is cancelled is decided by the operation's own
//! end: it returns its result, or `Cancelled` if it has had no effect. A disk cannot be asked to forget a read,
//! so that may take as long as the read does.
//!
//! # Errors
//!
//! They name the operation and the path; see [`Failed`].
//!
//! # In a simulation
//!
//! There are no files: every operation is an error.

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
