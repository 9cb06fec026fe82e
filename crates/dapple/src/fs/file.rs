//! A file: by position, with buffers that are given and come back. How it is used with a cursor is in `cursor`.

use std::fmt;
use std::fs::{Metadata, Permissions};
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use futures_io::AsyncSeek;
use io_uring::types;
use rustix::fs::{FileType, OFlags};

use super::buffer::{Buffer, BufferMut};
use super::cached;
use super::cursor::Cursor;
use super::error::failed;
use super::operation::{Operation, Request, begin, on_pool};
use super::options::OpenOptions;
use super::request::{
    CURSOR, CloseFile, IoVectors, ReadAt, ReadVectoredAt, SetLen, Sync, WriteAt, WriteVectoredAt,
};
use crate::cancel::wait::Wait;
use crate::prim::{AtomicBool, Mutex, Ordering, lock};

/// An open file, as long as anybody uses it: the file itself, or an operation that is under way.
pub(super) struct Opened {
    file: std::fs::File,
    path: Option<Box<Path>>,
    /// How it was opened.
    flags: OFlags,
    /// Reading is tried at once, from the kernel's memory.
    at_once: AtomicBool,
    /// Reading never waits for a disk.
    in_memory: AtomicBool,
    /// Others may have the same cursor.
    shares_cursor: AtomicBool,
    /// What kind of file it is, from when that is first asked for.
    kind: OnceLock<FileKind>,
}

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Regular,
    Block,
    /// A pipe, a terminal, a socket: reading and writing may wait for another program.
    Other,
}

impl Opened {
    /// A file that we have opened.
    pub(super) fn new(file: std::fs::File, path: &Path, flags: OFlags) -> Opened {
        Opened::with(file, Some(path.into()), flags, false)
    }

    fn with(file: std::fs::File, path: Option<Box<Path>>, flags: OFlags, shares_cursor: bool) -> Opened {
        Opened {
            file,
            path,
            flags,
            at_once: AtomicBool::new(!flags.contains(OFlags::DIRECT)),
            in_memory: AtomicBool::new(false),
            shares_cursor: AtomicBool::new(shares_cursor),
            kind: OnceLock::new(),
        }
    }

    /// It is known to be a regular file.
    pub(super) fn regular(self) -> Opened {
        Opened { kind: OnceLock::from(FileKind::Regular), ..self }
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.in_memory.load(Ordering::Relaxed)
    }

    pub(super) fn note_in_memory(&self) {
        self.in_memory.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_regular(&self) -> bool {
        self.kind() == FileKind::Regular
    }

    /// Whether reading and writing end within a bounded time: a disk does them, and not another program.
    pub(super) fn is_bounded(&self) -> bool {
        self.kind() != FileKind::Other
    }

    fn kind(&self) -> FileKind {
        *self.kind.get_or_init(|| {
            match rustix::fs::fstat(self).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                Ok(FileType::RegularFile) => FileKind::Regular,
                Ok(FileType::BlockDevice) => FileKind::Block,
                _ => FileKind::Other,
            }
        })
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Where the cursor is, as an operation is to be told: by its position if the cursor is ours alone. `CURSOR`
    /// if somebody else may use it at the same time, or if there is none.
    pub(super) fn cursor(&self) -> u64 {
        if self.shares_cursor.load(Ordering::Relaxed) || !self.is_regular() {
            return CURSOR;
        }
        rustix::fs::tell(&self.file).unwrap_or(CURSOR)
    }

    /// Moves the cursor by what was read or written where it was.
    pub(super) fn move_cursor(&self, from: u64, by: usize) {
        if from != CURSOR {
            let to = match self.flags.contains(OFlags::APPEND) {
                true => rustix::fs::SeekFrom::End(0),
                false => rustix::fs::SeekFrom::Start(from + by as u64),
            };
            let moved = rustix::fs::seek(&self.file, to);
            debug_assert!(moved.is_ok(), "a regular file has a cursor");
        }
    }

    /// Whether a ring is to read or write it. With the cursor of a file that has one, no (see `CURSOR`); nor what
    /// was opened so that it rather fails than waits: a ring would wait all the same.
    pub(super) fn by_ring(&self, at: u64) -> bool {
        match self.is_regular() {
            true => at != CURSOR,
            false => !self.flags.contains(OFlags::NONBLOCK),
        }
    }

    /// What is written goes to the disk at once.
    pub(super) fn writes_through(&self) -> bool {
        self.flags.intersects(OFlags::DIRECT | OFlags::DSYNC | OFlags::SYNC)
    }

    pub(super) fn may_read_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// The kernel does not do so with this file.
    pub(super) fn never_at_once(&self) {
        self.at_once.store(false, Ordering::Relaxed);
    }

    pub(super) fn std(&self) -> &std::fs::File {
        &self.file
    }

    /// The file in the ring's terms.
    pub(super) fn fd(&self) -> types::Fd {
        types::Fd(self.file.as_raw_fd())
    }

    /// The error of an operation on it.
    #[cold]
    pub(super) fn failed(&self, operation: &'static str, error: io::Error) -> io::Error {
        failed(operation, self.path.as_deref(), None, error)
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Opened {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// An open file.
///
/// With a cursor it is read and written through [`futures_io`]'s traits, and the methods of
/// [`dapple::io`](crate::io) on top of them. By position it is read and written with [`read_at`](Self::read_at)
/// and [`write_at`](Self::write_at).
///
/// # Writing with the cursor
///
/// A write copies what it is given, returns its length, and goes on behind the scenes; the next one, a
/// [flush](futures_io::AsyncWrite::poll_flush), and whatever else is done with this `File`, wait for it. If it
/// fails, the next write, flush, close or [`sync_all`](Self::sync_all) says so, once. So flush, or sync, before
/// you drop the file, if you want to know. A write that was begun goes on also if the file is dropped, the task
/// cancelled, or the thread ends; at the end of the runtime it has 400 ms. A failure of which no file was left to be
/// told is counted in [`Metrics::failed_writes`](crate::Metrics::failed_writes).
///
/// # Closing
///
/// When the file is dropped and nothing is under way any more, it is closed, and errors are lost;
/// [`close`](Self::close) tells of them.
///
/// # Examples
///
/// ```
/// use dapple::fs::{self, File};
/// use dapple::io::{AsyncReadExt, AsyncWriteExt};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let path = std::env::temp_dir().join(format!("dapple-file-{}", std::process::id()));
///     let mut file = File::create(&path).await?;
///     file.write_all(b"all the words").await?;
///     file.sync_all().await?;
///
///     let mut file = File::open(&path).await?;
///     let mut text = String::new();
///     file.read_to_string(&mut text).await?;
///     assert_eq!(text, "all the words");
///     fs::remove_file(&path).await
/// })
/// # }
/// ```
pub struct File {
    pub(super) opened: Arc<Opened>,
    pub(super) cursor: Mutex<Cursor>,
}

impl File {
    pub(super) fn of(opened: Arc<Opened>) -> File {
        File { opened, cursor: Mutex::default() }
    }

    /// Opens a file to be read.
    ///
    /// # Errors
    ///
    /// Those of [`std::fs::File::open`], with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: clean. *Scope cancelled*: `Cancelled`, or the file.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open_path(path.as_ref()).await
    }

    /// Opens a file to be written, and makes it, or makes it empty.
    ///
    /// # Errors
    ///
    /// Those of [`std::fs::File::create`], with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: lossy: it may have been made, or made empty. *Scope cancelled*: `Cancelled`, and nothing
    /// has happened, or the file.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open_path(path.as_ref()).await
    }

    /// Makes a file to be read and written; an error if it is there.
    ///
    /// # Errors
    ///
    /// Those of [`std::fs::File::create_new`], with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: lossy: it may have been made. *Scope cancelled*: `Cancelled`, and nothing has happened,
    /// or the file.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open_path(path.as_ref()).await
    }

    /// How to open a file in another way.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over a file of the standard library's.
    #[must_use]
    pub fn from_std(file: std::fs::File) -> File {
        let flags = rustix::fs::fcntl_getfl(&file).unwrap_or(OFlags::empty());
        File::of(Arc::new(Opened::with(file, None, flags, true)))
    }

    /// Gives the file to the standard library, once what was written with the cursor is written.
    ///
    /// # Errors
    ///
    /// That of a write. If an operation that nobody waits for is still under way, the file is a duplicate, which
    /// can fail for want of file descriptors.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: lossy: the file is closed. *Scope cancelled*: `Cancelled`, and the file is closed when
    /// what was written with the cursor is written.
    pub async fn into_std(self) -> io::Result<std::fs::File> {
        self.settle().await?;
        self.take_error()?;
        lock(&self.cursor).rewind(&self.opened);
        drop(self.cursor);
        match Arc::try_unwrap(self.opened) {
            Ok(opened) => Ok(opened.file),
            Err(opened) => opened.file.try_clone(),
        }
    }

    /// Closes the file, once what was written with the cursor is written.
    ///
    /// # Errors
    ///
    /// That of a write, or of closing: some file systems tell only then that there was no room.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*, *scope cancelled*: it is closed all the same; what went wrong is lost.
    pub async fn close(self) -> io::Result<()> {
        self.settle().await?;
        self.take_error()?;
        drop(self.cursor);
        let Ok(opened) = Arc::try_unwrap(self.opened) else { return Ok(()) }; // by who is the last
        let (closed, _) = Operation::new(CloseFile { fd: Some(opened.file.into()) }).await;
        closed.map(drop).map_err(|error| failed("close", opened.path.as_deref(), None, error))
    }

    /// Reads from a position on, into a buffer that comes back with the result.
    ///
    /// As with [`std::os::unix::fs::FileExt::read_at`], the result is how many bytes were read, 0 at the end of
    /// the file, and may be less than there is room for. The cursor does not move. How much room a buffer has,
    /// it says itself: see [`BufferMut`].
    ///
    /// # Errors
    ///
    /// Those of `pread`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: lossy: the buffer stays with the kernel until it is done with it, and is dropped then.
    /// *Scope cancelled*: `Cancelled` and the buffer, or the result. A read that a disk is at cannot be taken
    /// back, and is waited for.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let file = dapple::fs::File::open("/proc/self/cmdline").await?;
    ///     let (read, buffer) = file.read_at(vec![0; 4096], 0).await;
    ///     assert!(buffer[..read?].contains(&0));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn read_at<B: BufferMut>(&self, mut buffer: B, at: u64) -> (io::Result<usize>, B) {
        if let Err(error) = self.settle_at(at).await {
            return (Err(self.opened.failed("read", error)), buffer);
        }
        if self.opened.may_read_at_once() {
            if let Err(error) = begin().await {
                return (Err(error), buffer);
            }
            if let Some(result) = read_at_once(&self.opened, &mut buffer, at) {
                return (result.map_err(|error| self.opened.failed("read", error)), buffer);
            }
        }
        let (result, mut request) = Operation::new(ReadAt { file: self.opened.clone(), buffer, at }).await;
        if let Ok(n) = result {
            // SAFETY: the kernel has written so many bytes to its room.
            unsafe { request.buffer.filled(n as usize) };
        }
        (self.ended("read", result), request.buffer)
    }

    /// Writes a buffer at a position; it comes back with the result.
    ///
    /// As with [`std::os::unix::fs::FileExt::write_at`], the result is how many bytes were written, and may be
    /// less than there are. The cursor does not move.
    ///
    /// # Errors
    ///
    /// Those of `pwrite`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: lossy: it may or may not be written; the buffer stays with the kernel until it is done
    /// with it. *Scope cancelled*: `Cancelled` and the buffer, and nothing was written, or the result.
    pub async fn write_at<B: Buffer>(&self, buffer: B, at: u64) -> (io::Result<usize>, B) {
        if let Err(error) = self.settle_at(at).await {
            return (Err(self.opened.failed("write", error)), buffer);
        }
        let request = WriteAt { file: self.opened.clone(), buffer, done: 0, at };
        let (result, request) = Operation::new(request).await;
        (self.ended("write", result), request.buffer)
    }

    /// As [`read_at`](Self::read_at), into several buffers, one after the other; 1024 at most are used.
    ///
    /// # Errors
    ///
    /// Those of `preadv`, with the path.
    ///
    /// # Cancellation
    ///
    /// As [`read_at`](Self::read_at).
    pub async fn read_vectored_at<B: BufferMut>(
        &self,
        buffers: Vec<B>,
        at: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        if let Err(error) = self.settle_at(at).await {
            return (Err(self.opened.failed("read", error)), buffers);
        }
        let request = ReadVectoredAt { file: self.opened.clone(), buffers, at, pieces: IoVectors::none() };
        let (result, mut request) = Operation::new(request).await;
        let mut left = *result.as_ref().unwrap_or(&0) as usize;
        for buffer in &mut request.buffers {
            let n = left.min(buffer.room().1);
            // SAFETY: the kernel has filled one after the other.
            unsafe { buffer.filled(n) };
            left -= n;
        }
        (self.ended("read", result), request.buffers)
    }

    /// As [`write_at`](Self::write_at), from several buffers, one after the other; 1024 at most are used.
    ///
    /// # Errors
    ///
    /// Those of `pwritev`, with the path.
    ///
    /// # Cancellation
    ///
    /// As [`write_at`](Self::write_at).
    pub async fn write_vectored_at<B: Buffer>(
        &self,
        buffers: Vec<B>,
        at: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        if let Err(error) = self.settle_at(at).await {
            return (Err(self.opened.failed("write", error)), buffers);
        }
        let request = WriteVectoredAt { file: self.opened.clone(), buffers, at, pieces: IoVectors::none() };
        let (result, request) = Operation::new(request).await;
        (self.ended("write", result), request.buffers)
    }

    /// Moves the cursor, and returns where it is then, from the beginning of the file.
    ///
    /// # Errors
    ///
    /// That of an earlier write with the cursor; those of `lseek`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: lossy: it may have been moved. *Scope cancelled*: `Cancelled`, and it has not been, or the
    /// result.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::SeekFrom;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let mut file = dapple::fs::File::open("/proc/self/exe").await?;
    ///     assert_eq!(file.seek(SeekFrom::Start(10)).await?, 10);
    ///     assert_eq!(file.seek(SeekFrom::Current(-3)).await?, 7);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        poll_fn(|cx| Pin::new(&mut *self).poll_seek(cx, to)).await
    }

    /// Waits until all that was written is on the disk, the file's metadata included.
    ///
    /// # Errors
    ///
    /// That of an earlier write with the cursor; those of `fsync`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: clean. *Scope cancelled*: `Cancelled`, or the result.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.sync(false).await
    }

    /// As [`sync_all`](Self::sync_all), without the metadata that is not needed to read the file again.
    ///
    /// # Errors
    ///
    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Cancellation
    ///
    /// As [`sync_all`](Self::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    async fn sync(&self, only_data: bool) -> io::Result<()> {
        self.settle().await?;
        self.take_error()?;
        self.ask("sync", Sync { file: self.opened.clone(), only_data }).await
    }

    /// Makes the file so long: the rest is lost, or what is new is zeros. The cursor does not move.
    ///
    /// # Errors
    ///
    /// Those of `ftruncate`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: lossy: it may have happened. *Scope cancelled*: `Cancelled`, and nothing has happened, or
    /// the result.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        self.settle().await?;
        if i64::try_from(len).is_err() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "longer than a file can be");
            return Err(self.opened.failed("set the length of", error));
        }
        self.ask("set the length of", SetLen { file: self.opened.clone(), len }).await
    }

    /// What is known of the file.
    ///
    /// # Errors
    ///
    /// Those of `fstat`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: clean. *Scope cancelled*: `Cancelled`, or the result.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.settle().await?;
        let opened = self.opened.clone();
        let result = on_pool(move || opened.std().metadata()).await;
        result.map_err(|error| self.opened.failed("get the metadata of", error))
    }

    /// Sets the file's permissions.
    ///
    /// # Errors
    ///
    /// Those of `fchmod`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: lossy: it may have happened. *Scope cancelled*: `Cancelled`, and nothing has happened, or
    /// the result.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let opened = self.opened.clone();
        let result = on_pool(move || opened.std().set_permissions(permissions)).await;
        result.map_err(|error| self.opened.failed("set the permissions of", error))
    }

    /// The same file once more, with the same cursor.
    ///
    /// # Errors
    ///
    /// If there is no file descriptor left.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: clean. *Scope cancelled*: `Cancelled`, or the file.
    pub async fn try_clone(&self) -> io::Result<File> {
        self.settle().await?;
        lock(&self.cursor).rewind(&self.opened);
        begin().await?;
        let file = self.opened.file.try_clone().map_err(|error| self.opened.failed("duplicate", error))?;
        self.opened.shares_cursor.store(true, Ordering::Relaxed);
        Ok(File::of(Arc::new(Opened::with(file, self.opened.path.clone(), self.opened.flags, true))))
    }

    /// Waits until what was begun with the cursor is done.
    pub(super) async fn settle(&self) -> io::Result<()> {
        if lock(&self.cursor).is_settled() {
            return Ok(());
        }
        let mut wait = Wait::default();
        poll_fn(|cx| Cursor::poll_settle_shared(&self.cursor, cx, &self.opened, &mut wait)).await
    }

    /// As `settle`, and whether it is a position.
    async fn settle_at(&self, at: u64) -> io::Result<()> {
        if i64::try_from(at).is_err() {
            debug_assert!(i64::try_from(CURSOR).is_err(), "the cursor is not a position");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a position that no file has"));
        }
        self.settle().await
    }

    /// What went wrong with an earlier write.
    fn take_error(&self) -> io::Result<()> {
        lock(&self.cursor).take_error()
    }

    async fn ask(&self, operation: &'static str, request: impl Request) -> io::Result<()> {
        let (result, _) = Operation::new(request).await;
        self.ended(operation, result).map(drop)
    }

    fn ended(&self, operation: &'static str, result: io::Result<u32>) -> io::Result<usize> {
        result.map(|n| n as usize).map_err(|error| self.opened.failed(operation, error))
    }
}

/// Reads what is in the kernel's memory.
fn read_at_once(file: &Opened, buffer: &mut impl BufferMut, at: u64) -> Option<io::Result<usize>> {
    let (start, len) = buffer.room();
    // SAFETY: it is memory that the buffer lets anybody write to, and it is not used meanwhile.
    let room = unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast::<MaybeUninit<u8>>(), len) };
    let result = cached::read_full(file, room, at)?;
    if let Ok(n) = result {
        // SAFETY: so many bytes have been written to its room.
        unsafe { buffer.filled(n) };
    }
    Some(result)
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File::from_std(file)
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        File::from_std(fd.into())
    }
}

impl FromRawFd for File {
    unsafe fn from_raw_fd(fd: RawFd) -> File {
        // SAFETY: the caller promises that it is open, and ours.
        File::from_std(unsafe { std::fs::File::from_raw_fd(fd) })
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.opened.as_raw_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("File");
        debug.field("fd", &self.as_raw_fd());
        if let Some(path) = &self.opened.path {
            debug.field("path", path);
        }
        debug.finish_non_exhaustive()
    }
}
