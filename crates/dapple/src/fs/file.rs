//! A file, used by position, with buffers that are passed by value and returned. Its use with a cursor is in `cursor`.

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

/// An open file, shared by the `File` and the operations that are under way.
pub(super) struct Opened {
    file: std::fs::File,
    path: Option<Box<Path>>,
    /// The flags that it was opened with.
    flags: OFlags,
    /// Reads are first tried on the page cache, without waiting.
    at_once: AtomicBool,
    /// Reads never wait for a disk.
    in_memory: AtomicBool,
    /// Other file descriptors may share the cursor.
    shares_cursor: AtomicBool,
    /// The kind of file, looked up at the first use.
    kind: OnceLock<FileKind>,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Regular,
    Block,
    /// A pipe, a terminal, a socket: reading and writing may wait for another program.
    Other,
}

impl Opened {
    /// A file that this module has opened.
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

    /// Marks it as a regular file.
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

    /// Whether reads and writes end within a bounded time: they wait for a disk, and not for another program.
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

    /// The position of the cursor, as operations take it. `CURSOR` if another file descriptor may share the cursor, or
    /// if the file has none.
    pub(super) fn cursor(&self) -> u64 {
        if self.shares_cursor.load(Ordering::Relaxed) || !self.is_regular() {
            return CURSOR;
        }
        rustix::fs::tell(&self.file).unwrap_or(CURSOR)
    }

    /// Moves the cursor by the number of bytes that were read or written at it.
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

    /// Whether a ring may read or write the file. A ring may not use the cursor of a regular file (see `CURSOR`), nor a
    /// file that was opened as non-blocking: there a ring would wait, and the caller wants an error.
    pub(super) fn by_ring(&self, at: u64) -> bool {
        match self.is_regular() {
            true => at != CURSOR,
            false => !self.flags.contains(OFlags::NONBLOCK),
        }
    }

    /// Whether writes go to the disk at once.
    pub(super) fn writes_through(&self) -> bool {
        self.flags.intersects(OFlags::DIRECT | OFlags::DSYNC | OFlags::SYNC)
    }

    pub(super) fn may_read_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// Notes that the kernel cannot read this file without waiting.
    pub(super) fn never_at_once(&self) {
        self.at_once.store(false, Ordering::Relaxed);
    }

    pub(super) fn std(&self) -> &std::fs::File {
        &self.file
    }

    /// The file descriptor for the ring.
    pub(super) fn fd(&self) -> types::Fd {
        types::Fd(self.file.as_raw_fd())
    }

    /// Makes the error of an operation on this file.
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
/// Use it with a cursor through the traits of [`futures_io`] and the methods of
/// [`dapple::io`](crate::io), or by position with [`read_at`](Self::read_at)
/// and [`write_at`](Self::write_at).
///
/// # Writing with the cursor
///
/// A write copies its bytes, returns their number, and goes on in the background. The next write, a
/// [flush](futures_io::AsyncWrite::poll_flush), and every other operation of this `File`, wait for it. If it
/// fails, the next write, flush, close or [`sync_all`](Self::sync_all) returns the error, once. So flush, or sync,
/// before you drop the file, to learn of a failure. A write that has begun goes on also if the file is dropped, the
/// task is cancelled, or the thread ends; at the end of the runtime it gets 400 ms. A failure after the file was
/// dropped is counted in [`Metrics::failed_writes`](crate::runtime::Metrics::failed_writes).
///
/// # Closing
///
/// When the file is dropped and no operation is under way any more, it is closed, and errors of closing are lost.
/// [`close`](Self::close) returns them.
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

    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// Those of [`std::fs::File::open`], with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the file.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use dapple::fs::File;
    /// use dapple::io::AsyncReadExt;
    ///
    /// dapple::run(async {
    ///     let mut file = File::open("/proc/self/comm").await?;
    ///     let mut name = String::new();
    ///     file.read_to_string(&mut name).await?;
    ///     assert!(name.ends_with('\n'));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open_path(path.as_ref()).await
    }

    /// Opens a file for writing. Creates it if it does not exist, and otherwise truncates it.
    ///
    /// # Errors
    ///
    /// Those of [`std::fs::File::create`], with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the file may have been created or truncated. *Scope cancelled*: returns `Cancelled`,
    /// and nothing has happened, or the file.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use dapple::fs::{self, File};
    /// use dapple::io::AsyncWriteExt;
    ///
    /// # let path = std::env::temp_dir().join(format!("dapple-doc-create-{}", std::process::id()));
    /// dapple::run(async {
    ///     let mut file = File::create(&path).await?;
    ///     file.write_all(b"hello").await?;
    ///     file.close().await?; // waits for the write, and returns its error
    ///     assert_eq!(fs::read(&path).await?, b"hello");
    ///     fs::remove_file(&path).await
    /// })
    /// # }
    /// ```
    pub async fn create(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open_path(path.as_ref()).await
    }

    /// Creates a file, and opens it for reading and writing. Fails if it exists.
    ///
    /// # Errors
    ///
    /// Those of [`std::fs::File::create_new`], with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the file may have been created. *Scope cancelled*: returns `Cancelled`, and nothing
    /// has happened, or the file.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open_path(path.as_ref()).await
    }

    /// Returns options for opening a file in another way.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Wraps a file of the standard library.
    #[must_use]
    pub fn from_std(file: std::fs::File) -> File {
        let flags = rustix::fs::fcntl_getfl(&file).unwrap_or(OFlags::empty());
        File::of(Arc::new(Opened::with(file, None, flags, true)))
    }

    /// Converts it to a file of the standard library, after all writes with the cursor have ended.
    ///
    /// # Errors
    ///
    /// The error of an earlier write. If an operation whose future was dropped is still under way, the result is a
    /// duplicate, which fails if no file descriptor is left.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the file is closed. *Scope cancelled*: returns `Cancelled`, and the file is closed
    /// after the writes with the cursor have ended.
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

    /// Closes the file, after all writes with the cursor have ended.
    ///
    /// # Errors
    ///
    /// The error of an earlier write, or of closing: some file systems report only then that the disk is full.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the file is closed, and its errors are lost. *Scope cancelled*: returns `Cancelled`;
    /// the file is closed, and its errors are lost.
    pub async fn close(self) -> io::Result<()> {
        self.settle().await?;
        self.take_error()?;
        drop(self.cursor);
        let Ok(opened) = Arc::try_unwrap(self.opened) else { return Ok(()) }; // the last operation closes it
        let (closed, _) = Operation::new(CloseFile { fd: Some(opened.file.into()) }).await;
        closed.map(drop).map_err(|error| failed("close", opened.path.as_deref(), None, error))
    }

    /// Reads at a position, into a buffer that is returned with the result.
    ///
    /// As with [`std::os::unix::fs::FileExt::read_at`], the result is the number of bytes that were read, 0 at the end
    /// of the file, and may be less than the buffer has room for. The cursor does not move. See [`BufferMut`] for the
    /// room of a buffer.
    ///
    /// # Errors
    ///
    /// Those of `pread`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the buffer stays with the kernel until the read ends, and is then dropped.
    /// *Scope cancelled*: returns `Cancelled` and the buffer, or the result. A read that has reached the disk cannot be
    /// recalled, so the call waits for it.
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
            // SAFETY: the kernel has written `n` bytes to its room.
            unsafe { request.buffer.filled(n as usize) };
        }
        (self.ended("read", result), request.buffer)
    }

    /// Writes a buffer at a position, and returns it with the result.
    ///
    /// As with [`std::os::unix::fs::FileExt::write_at`], the result is the number of bytes that were written, and may be
    /// less than the buffer has. The cursor does not move.
    ///
    /// # Errors
    ///
    /// Those of `pwrite`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: it may or may not be written, and the buffer stays with the kernel until the write
    /// ends. *Scope cancelled*: returns `Cancelled` and the buffer, and nothing was written, or the result.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use dapple::fs::{self, File};
    ///
    /// # let path = std::env::temp_dir().join(format!("dapple-doc-write-at-{}", std::process::id()));
    /// dapple::run(async {
    ///     let file = File::create(&path).await?;
    ///     let (written, buffer) = file.write_at(b"world".to_vec(), 6).await;
    ///     assert_eq!((written?, &buffer[..]), (5, &b"world"[..]));
    ///     file.write_at(b"hello ".to_vec(), 0).await.0?;
    ///     assert_eq!(fs::read_to_string(&path).await?, "hello world");
    ///     fs::remove_file(&path).await
    /// })
    /// # }
    /// ```
    pub async fn write_at<B: Buffer>(&self, buffer: B, at: u64) -> (io::Result<usize>, B) {
        if let Err(error) = self.settle_at(at).await {
            return (Err(self.opened.failed("write", error)), buffer);
        }
        let request = WriteAt { file: self.opened.clone(), buffer, done: 0, at };
        let (result, request) = Operation::new(request).await;
        (self.ended("write", result), request.buffer)
    }

    /// As [`read_at`](Self::read_at), into several buffers in sequence; at most 1024 are used.
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
            // SAFETY: the kernel fills one buffer after the other, and `n` is this buffer's share of the result.
            unsafe { buffer.filled(n) };
            left -= n;
        }
        (self.ended("read", result), request.buffers)
    }

    /// As [`write_at`](Self::write_at), from several buffers in sequence; at most 1024 are used.
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

    /// Moves the cursor, and returns its new position from the beginning of the file.
    ///
    /// # Errors
    ///
    /// The error of an earlier write with the cursor; those of `lseek`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the cursor may have moved. *Scope cancelled*: returns `Cancelled`, and it has not
    /// moved, or the result.
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

    /// Waits until all data that was written, and the file's metadata, are on the disk.
    ///
    /// # Errors
    ///
    /// The error of an earlier write with the cursor; those of `fsync`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result.
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
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::fs::File;
    /// use dapple::io::AsyncWriteExt;
    ///
    /// # dapple::run(async {
    /// # let path = std::env::temp_dir().join(format!("dapple-sync-data-{}", std::process::id()));
    /// let mut journal = File::create(&path).await?;
    /// journal.write_all(b"seat 12 is sold\n").await?;
    /// journal.sync_data().await?; // it is on the disk: only now tell the customer
    /// # dapple::fs::remove_file(&path).await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    async fn sync(&self, only_data: bool) -> io::Result<()> {
        self.settle().await?;
        self.take_error()?;
        self.ask("sync", Sync { file: self.opened.clone(), only_data }).await
    }

    /// Sets the length of the file: the rest is lost, or the added bytes are zero. The cursor does not move.
    ///
    /// # Errors
    ///
    /// Those of `ftruncate`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: it may have happened. *Scope cancelled*: returns `Cancelled`, and nothing has
    /// happened, or the result.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use dapple::fs::{self, File};
    ///
    /// # let path = std::env::temp_dir().join(format!("dapple-doc-set-len-{}", std::process::id()));
    /// dapple::run(async {
    ///     let file = File::create(&path).await?;
    ///     file.set_len(3).await?;
    ///     assert_eq!(file.metadata().await?.len(), 3);
    ///     fs::remove_file(&path).await
    /// })
    /// # }
    /// ```
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        self.settle().await?;
        if i64::try_from(len).is_err() {
            let error = io::Error::new(
                io::ErrorKind::InvalidInput,
                "the length is above 2^63 - 1, the limit of a file",
            );
            return Err(self.opened.failed("set the length of", error));
        }
        self.ask("set the length of", SetLen { file: self.opened.clone(), len }).await
    }

    /// Returns the metadata of the file.
    ///
    /// # Errors
    ///
    /// Those of `fstat`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result.
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
    /// *Dropped early*: **lossy**: it may have happened. *Scope cancelled*: returns `Cancelled`, and nothing has
    /// happened, or the result.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let opened = self.opened.clone();
        let result = on_pool(move || opened.std().set_permissions(permissions)).await;
        result.map_err(|error| self.opened.failed("set the permissions of", error))
    }

    /// Duplicates the file descriptor. The two files share the cursor.
    ///
    /// # Errors
    ///
    /// If no file descriptor is left.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the file.
    pub async fn try_clone(&self) -> io::Result<File> {
        self.settle().await?;
        lock(&self.cursor).rewind(&self.opened);
        begin().await?;
        let file = self.opened.file.try_clone().map_err(|error| self.opened.failed("duplicate", error))?;
        self.opened.shares_cursor.store(true, Ordering::Relaxed);
        Ok(File::of(Arc::new(Opened::with(file, self.opened.path.clone(), self.opened.flags, true))))
    }

    /// Waits until the operation with the cursor has ended.
    pub(super) async fn settle(&self) -> io::Result<()> {
        if lock(&self.cursor).is_settled() {
            return Ok(());
        }
        let mut wait = Wait::default();
        poll_fn(|cx| Cursor::poll_settle_shared(&self.cursor, cx, &self.opened, &mut wait)).await
    }

    /// As `settle`, and fails if `at` is not a valid position.
    async fn settle_at(&self, at: u64) -> io::Result<()> {
        if i64::try_from(at).is_err() {
            debug_assert!(i64::try_from(CURSOR).is_err(), "`CURSOR` must not be a valid position");
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the position is above 2^63 - 1, the limit of a file",
            ));
        }
        self.settle().await
    }

    /// The error of an earlier write.
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

/// Reads from the page cache.
fn read_at_once(file: &Opened, buffer: &mut impl BufferMut, at: u64) -> Option<io::Result<usize>> {
    let (start, len) = buffer.room();
    // SAFETY: the contract of `BufferMut` allows writes to its room, and nothing else uses it meanwhile.
    let room = unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast::<MaybeUninit<u8>>(), len) };
    let result = cached::read_full(file, room, at)?;
    if let Ok(n) = result {
        // SAFETY: `read_full` has written `n` bytes to its room.
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
        // SAFETY: the caller promises that it is open, and passes ownership.
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
