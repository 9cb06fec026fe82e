//! The requests of file operations: each as an entry for io_uring, and as a system call for a
//! thread of the pool.
//!
//! # Invariants
//!
//! * **OWNS-ALL**: a request owns the memory, the paths and the file of its operation, and is not touched while
//!   the operation is under way (WITH-THE-KERNEL in `driver::uring::node`). A path is a `CString`, whose bytes are
//!   behind a pointer; a buffer promises to stay at its address.

use std::ffi::CString;
use std::mem::take;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::buffer::{Buffer, BufferMut};
use super::file::Opened;
use super::operation::Request;

/// The position that stands for the cursor of the file. For a regular file only a thread may use it: a ring that meets
/// an error after a part returns the length of that part and does not move the cursor.
pub(super) const CURSOR: u64 = u64::MAX;
/// The most bytes that the kernel reads or writes in one call.
const MOST_BYTES: usize = 0x7fff_f000;
/// The most buffers that the kernel takes in one call.
const MOST_BUFFERS: usize = 1024;

fn current_dir() -> types::Fd {
    types::Fd(libc::AT_FDCWD)
}

/// The result of a system call of libc.
fn check(result: isize) -> Result<u32, Errno> {
    u32::try_from(result).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

/// Opens a file.
pub(super) struct OpenFile {
    pub(super) path: CString,
    pub(super) flags: OFlags,
    pub(super) mode: Mode,
    /// The file descriptor, once it is open.
    pub(super) opened: Option<OwnedFd>,
}

// SAFETY: OWNS-ALL.
unsafe impl Request for OpenFile {
    const CODE: Option<u8> = Some(opcode::OpenAt::CODE);

    fn entry(&mut self) -> Entry {
        let open = opcode::OpenAt::new(current_dir(), self.path.as_ptr());
        // Without this flag the kernel first tries to open the file without waiting, and a file that waits for a peer
        // (a FIFO) then returns another result than `open` does.
        let entry = open.flags(self.flags.bits() as i32).mode(self.mode.bits()).build();
        entry.flags(io_uring::squeue::Flags::ASYNC)
    }

    fn perform(&mut self) -> Result<u32, Errno> {
        self.opened = Some(rustix::fs::openat(CWD, &self.path, self.flags, self.mode)?);
        Ok(0)
    }

    fn done(&mut self, result: u32) {
        if self.opened.is_none() {
            // SAFETY: the kernel has just made this descriptor for this request, and no other value owns it.
            self.opened = Some(unsafe { OwnedFd::from_raw_fd(result as i32) });
        }
    }
}

/// Reads into a buffer.
pub(super) struct ReadAt<B> {
    pub(super) file: Arc<Opened>,
    pub(super) buffer: B,
    /// The position, or `CURSOR`.
    pub(super) at: u64,
}

// SAFETY: OWNS-ALL.
unsafe impl<B: BufferMut> Request for ReadAt<B> {
    const CODE: Option<u8> = Some(opcode::Read::CODE);

    fn by_ring(&self) -> bool {
        self.file.by_ring(self.at)
    }

    fn is_bounded(&self) -> bool {
        self.file.is_bounded()
    }

    fn entry(&mut self) -> Entry {
        let (start, len) = self.buffer.room();
        let read = opcode::Read::new(self.file.fd(), start.as_ptr(), len.min(MOST_BYTES) as u32);
        read.offset(self.at).build()
    }

    fn perform(&mut self) -> Result<u32, Errno> {
        let (start, len) = self.buffer.room();
        let (fd, start, len) = (self.file.as_raw_fd(), start.as_ptr().cast(), len.min(MOST_BYTES));
        check(match self.at {
            // SAFETY: the contract of `BufferMut` allows writes to this memory until the buffer is next used.
            CURSOR => unsafe { libc::read(fd, start, len) },
            // SAFETY: as above.
            at => unsafe { libc::pread(fd, start, len, at as i64) },
        })
    }
}

/// Writes a buffer.
pub(super) struct WriteAt<B> {
    pub(super) file: Arc<Opened>,
    pub(super) buffer: B,
    /// The number of bytes that were written before.
    pub(super) done: usize,
    /// The position, or `CURSOR`.
    pub(super) at: u64,
}

// SAFETY: OWNS-ALL.
unsafe impl<B: Buffer> Request for WriteAt<B> {
    const CODE: Option<u8> = Some(opcode::Write::CODE);

    fn by_ring(&self) -> bool {
        self.file.by_ring(self.at)
    }

    fn is_bounded(&self) -> bool {
        self.file.is_bounded()
    }

    fn entry(&mut self) -> Entry {
        let bytes = &self.buffer.bytes()[self.done..];
        let write = opcode::Write::new(self.file.fd(), bytes.as_ptr(), bytes.len().min(MOST_BYTES) as u32);
        write.offset(self.at).build()
    }

    fn perform(&mut self) -> Result<u32, Errno> {
        let bytes = &self.buffer.bytes()[self.done..];
        let (fd, start, len) = (self.file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len().min(MOST_BYTES));
        check(match self.at {
            // SAFETY: `len` bytes are readable at `start`.
            CURSOR => unsafe { libc::write(fd, start, len) },
            // SAFETY: as above.
            at => unsafe { libc::pwrite(fd, start, len, at as i64) },
        })
    }

    fn at_the_end(&self) -> bool {
        self.file.is_regular()
    }

    fn advance(&mut self, result: u32) -> bool {
        self.done += result as usize;
        self.file.move_cursor(self.at, result as usize);
        if self.at != CURSOR {
            self.at += u64::from(result);
        }
        result > 0 && self.done < self.buffer.bytes().len()
    }

    fn path(&self) -> Option<&Path> {
        self.file.path()
    }
}

/// Pieces of memory as the kernel takes them.
pub(super) struct IoVectors(Box<[libc::iovec]>);

// SAFETY: the pieces point into buffers that the same request owns, and those are `Send`.
unsafe impl Send for IoVectors {}

impl IoVectors {
    pub(super) fn none() -> IoVectors {
        IoVectors(Box::default())
    }

    fn set(&mut self, pieces: impl Iterator<Item = (*mut u8, usize)>) -> (*const libc::iovec, usize) {
        let to_iovec = |(start, len): (*mut u8, usize)| libc::iovec { iov_base: start.cast(), iov_len: len };
        self.0 = pieces.take(MOST_BUFFERS).map(to_iovec).collect();
        (self.0.as_ptr(), self.0.len())
    }
}

/// Reads into several buffers in sequence.
pub(super) struct ReadVectoredAt<B> {
    pub(super) file: Arc<Opened>,
    pub(super) buffers: Vec<B>,
    pub(super) at: u64,
    pub(super) pieces: IoVectors,
}

impl<B: BufferMut> ReadVectoredAt<B> {
    fn pieces(&mut self) -> (*const libc::iovec, usize) {
        let room = |buffer: &mut B| {
            let (start, len) = buffer.room();
            (start.as_ptr(), len)
        };
        self.pieces.set(self.buffers.iter_mut().map(room))
    }
}

// SAFETY: OWNS-ALL.
unsafe impl<B: BufferMut> Request for ReadVectoredAt<B> {
    const CODE: Option<u8> = Some(opcode::Readv::CODE);

    fn by_ring(&self) -> bool {
        self.file.by_ring(self.at)
    }

    fn is_bounded(&self) -> bool {
        self.file.is_bounded()
    }

    fn entry(&mut self) -> Entry {
        let (pieces, len) = self.pieces();
        let read = opcode::Readv::new(self.file.fd(), pieces, len as u32);
        read.offset(self.at).build()
    }

    fn perform(&mut self) -> Result<u32, Errno> {
        let (pieces, len) = self.pieces();
        // SAFETY: the pieces describe memory that the buffers allow to be written to until they are next used.
        check(unsafe { libc::preadv(self.file.as_raw_fd(), pieces, len as i32, self.at as i64) })
    }
}

/// Writes several buffers in sequence.
pub(super) struct WriteVectoredAt<B> {
    pub(super) file: Arc<Opened>,
    pub(super) buffers: Vec<B>,
    pub(super) at: u64,
    pub(super) pieces: IoVectors,
}

impl<B: Buffer> WriteVectoredAt<B> {
    fn pieces(&mut self) -> (*const libc::iovec, usize) {
        let piece = |buffer: &B| (buffer.bytes().as_ptr().cast_mut(), buffer.bytes().len());
        self.pieces.set(self.buffers.iter().map(piece))
    }
}

// SAFETY: OWNS-ALL.
unsafe impl<B: Buffer> Request for WriteVectoredAt<B> {
    const CODE: Option<u8> = Some(opcode::Writev::CODE);

    fn by_ring(&self) -> bool {
        self.file.by_ring(self.at)
    }

    fn is_bounded(&self) -> bool {
        self.file.is_bounded()
    }

    fn entry(&mut self) -> Entry {
        let (pieces, len) = self.pieces();
        let write = opcode::Writev::new(self.file.fd(), pieces, len as u32);
        write.offset(self.at).build()
    }

    fn perform(&mut self) -> Result<u32, Errno> {
        let (pieces, len) = self.pieces();
        // SAFETY: the pieces describe readable bytes of the buffers.
        check(unsafe { libc::pwritev(self.file.as_raw_fd(), pieces, len as i32, self.at as i64) })
    }
}

/// Flushes written data to the disk.
pub(super) struct Sync {
    pub(super) file: Arc<Opened>,
    pub(super) only_data: bool,
}

// SAFETY: OWNS-ALL.
unsafe impl Request for Sync {
    const CODE: Option<u8> = Some(opcode::Fsync::CODE);

    fn entry(&mut self) -> Entry {
        let flags = if self.only_data { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        opcode::Fsync::new(self.file.fd()).flags(flags).build()
    }

    fn perform(&mut self) -> Result<u32, Errno> {
        match self.only_data {
            true => rustix::fs::fdatasync(self.file.as_fd())?,
            false => rustix::fs::fsync(self.file.as_fd())?,
        }
        Ok(0)
    }
}

/// Makes a file shorter or longer.
pub(super) struct SetLen {
    pub(super) file: Arc<Opened>,
    pub(super) len: u64,
}

// SAFETY: OWNS-ALL.
unsafe impl Request for SetLen {
    const CODE: Option<u8> = Some(opcode::Ftruncate::CODE);

    fn entry(&mut self) -> Entry {
        opcode::Ftruncate::new(self.file.fd(), self.len).build()
    }

    fn perform(&mut self) -> Result<u32, Errno> {
        rustix::fs::ftruncate(self.file.as_fd(), self.len).map(|()| 0)
    }
}

/// Closes a file.
pub(super) struct CloseFile {
    pub(super) fd: Option<OwnedFd>,
}

// SAFETY: OWNS-ALL.
unsafe impl Request for CloseFile {
    /// Not by a ring: the descriptor must have no owner after the request, however it ends.
    const CODE: Option<u8> = None;

    fn perform(&mut self) -> Result<u32, Errno> {
        use std::os::fd::IntoRawFd;
        let Some(fd) = take(&mut self.fd) else { return Ok(0) };
        // SAFETY: it was just taken, and from now on it has no owner, whatever the result is.
        match check(unsafe { libc::close(fd.into_raw_fd()) } as isize) {
            Err(Errno::INTR) => Ok(0), // it is closed, and a second close could hit another file
            closed => closed,
        }
    }
}

/// Operations on paths that return nothing.
pub(super) enum NameChange {
    Unlink { path: CString, is_dir: bool },
    Rename { from: CString, to: CString },
    MakeDir { path: CString, mode: Mode },
    Link { original: CString, link: CString },
    Symlink { original: CString, link: CString },
}

/// A request for such an operation.
pub(super) trait NameRequest: Request {
    fn name(&self) -> &NameChange;
}

/// One type per operation, because kernels differ in which of them they support.
macro_rules! name_request {
    ($name:ident, $opcode:ident) => {
        pub(super) struct $name(pub(super) NameChange);

        // SAFETY: OWNS-ALL.
        unsafe impl Request for $name {
            const CODE: Option<u8> = Some(opcode::$opcode::CODE);

            fn entry(&mut self) -> Entry {
                self.0.entry()
            }

            fn perform(&mut self) -> Result<u32, Errno> {
                self.0.perform().map(|()| 0)
            }
        }

        impl NameRequest for $name {
            fn name(&self) -> &NameChange {
                &self.0
            }
        }
    };
}

name_request!(Unlink, UnlinkAt);
name_request!(Rename, RenameAt);
name_request!(MakeDir, MkDirAt);
name_request!(Link, LinkAt);
name_request!(Symlink, SymlinkAt);

impl NameChange {
    fn entry(&self) -> Entry {
        match self {
            NameChange::Unlink { path, is_dir } => {
                let flags = if *is_dir { libc::AT_REMOVEDIR } else { 0 };
                opcode::UnlinkAt::new(current_dir(), path.as_ptr()).flags(flags).build()
            }
            NameChange::Rename { from, to } => {
                opcode::RenameAt::new(current_dir(), from.as_ptr(), current_dir(), to.as_ptr()).build()
            }
            NameChange::MakeDir { path, mode } => {
                opcode::MkDirAt::new(current_dir(), path.as_ptr()).mode(mode.bits()).build()
            }
            NameChange::Link { original, link } => {
                opcode::LinkAt::new(current_dir(), original.as_ptr(), current_dir(), link.as_ptr()).build()
            }
            NameChange::Symlink { original, link } => {
                opcode::SymlinkAt::new(current_dir(), original.as_ptr(), link.as_ptr()).build()
            }
        }
    }

    pub(super) fn perform(&self) -> Result<(), Errno> {
        match self {
            NameChange::Unlink { path, is_dir } => {
                let flags = if *is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(CWD, path, flags)
            }
            NameChange::Rename { from, to } => rustix::fs::renameat(CWD, from, CWD, to),
            NameChange::MakeDir { path, mode } => rustix::fs::mkdirat(CWD, path, *mode),
            NameChange::Link { original, link } => {
                rustix::fs::linkat(CWD, original, CWD, link, AtFlags::empty())
            }
            NameChange::Symlink { original, link } => rustix::fs::symlinkat(original, CWD, link),
        }
    }
}
