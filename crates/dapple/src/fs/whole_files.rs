//! Reading and writing of whole files, by path.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use super::buffer::BufferMut;
use super::error::failed;
use super::file::{File, Opened};
use super::operation::{Operation, begin, has_ring};
use super::options::OpenOptions;
use super::paths::call;
use super::request::{CURSOR, ReadAt, WriteAt};
use super::{cached, short_calls};
use crate::io::Partial;

/// The room that is added at a time if the length is not known.
const SOME: usize = 32 << 10;

/// The room for the first read if a file reports no length.
const A_PAGE: usize = 4096;

/// Reads a whole file, as [`std::fs::read`].
///
/// # Errors
///
/// Those of `open` and `read`, with the path.
///
/// # Cancellation
///
/// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let bytes = dapple::fs::read("/proc/self/stat").await?;
///     assert!(bytes.ends_with(b"\n"));
///     Ok(())
/// })
/// # }
/// ```
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    read_path(path).await.map_err(|error| failed("read", Some(path), None, cause_of(error)))
}

/// Reads a whole text file, as [`std::fs::read_to_string`].
///
/// # Errors
///
/// Those of [`read`], and [`InvalidData`](io::ErrorKind::InvalidData) if the file is not UTF-8.
///
/// # Cancellation
///
/// As [`read`].
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// dapple::run(async {
///     let version = fs::read_to_string("/proc/version").await?;
///     assert!(version.starts_with("Linux"));
///     Ok(())
/// })
/// # }
/// ```
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    String::from_utf8(read(path).await?).map_err(|error| {
        failed("read", Some(path), None, io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
    })
}

/// The system error of a step, without the step's path and operation.
fn cause_of(error: io::Error) -> io::Error {
    match super::Failed::of(&error).and_then(|failed| failed.cause().raw_os_error()) {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error,
    }
}

async fn read_path(path: &Path) -> io::Result<Vec<u8>> {
    let (file, len) = OpenOptions::new().read(true).open_with_len(path).await?;
    let file = file.opened;
    let len = len.or_else(|| cached::regular_len(file.as_fd())).unwrap_or(0);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let mut tail = Tail(Vec::new());
    // One byte more than the length, so that the last read also finds the end. A file without a length is empty, or is
    // one of /proc, which as a rule returns a page at a time.
    let room = if len == 0 { A_PAGE } else { len.saturating_add(1) };
    tail.0.try_reserve_exact(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
    loop {
        if tail.0.capacity() == tail.0.len() {
            tail.0.try_reserve(SOME).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        let tail_len = tail.0.len() as u64;
        let room = tail.0.spare_capacity_mut();
        let at = if file.is_regular() { tail_len } else { CURSOR };
        let n = match cached::read(&file, room, at) {
            Some(result) => {
                let n = result?;
                // SAFETY: `n` bytes have been written to the room.
                unsafe { tail.filled(n) };
                n
            }
            None => {
                let request = ReadAt { file: file.clone(), buffer: tail, at };
                let (result, request) = Operation::new(request).await;
                tail = request.buffer;
                let n = result? as usize;
                // SAFETY: as above.
                unsafe { tail.filled(n) };
                n
            }
        };
        // A short read is not the end: files of /proc and of FUSE return any number of bytes. But if the read asked for
        // one byte more than the length and got exactly the length, another read would only return 0.
        let is_as_long_as_told = len > 0 && tail.0.len() == len;
        if n == 0 && tail.0.is_empty() {
            return Ok(Vec::new()); // frees the memory
        }
        if n == 0 || is_as_long_as_told {
            return Ok(tail.0);
        }
    }
}

/// The spare capacity of a vector, as a buffer.
struct Tail(Vec<u8>);

// SAFETY: the memory is behind a pointer that the vector owns.
unsafe impl BufferMut for Tail {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        let room: &mut [MaybeUninit<u8>] = self.0.spare_capacity_mut();
        let len = room.len();
        (NonNull::from(room).cast(), len)
    }

    unsafe fn filled(&mut self, len: usize) {
        // SAFETY: the caller promises that the bytes are initialised and within the room.
        unsafe { self.0.set_len(self.0.len() + len) };
    }
}

/// Writes a whole file, as [`std::fs::write`]. Creates it if it does not exist, and otherwise truncates it first.
///
/// # Errors
///
/// Those of `open` and `write`, with the path. The bytes that were written before the error are in the file.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: all, some or none of the bytes may be written. *Scope cancelled*: returns `Cancelled`, or
/// the result. [`how_far`](crate::io::how_far) of the error returns the number of bytes that were written (`None` if
/// nothing has happened).
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// # let path = std::env::temp_dir().join(format!("dapple-doc-write-{}", std::process::id()));
/// dapple::run(async {
///     fs::write(&path, "one\ntwo\n").await?;
///     assert_eq!(fs::read_to_string(&path).await?, "one\ntwo\n");
///     fs::remove_file(&path).await
/// })
/// # }
/// ```
pub async fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref().to_vec());
    if !has_ring() {
        return call("write", path, move |path| std::fs::write(path, contents)).await;
    }
    let file = File::create(path).await?.opened;
    let (result, done) = write_all(&file, contents).await;
    result.map_err(|error| {
        let error = file.failed("write", error);
        Partial::both((done as u64, Vec::new()), (0, Vec::new()), error)
    })
}

async fn write_all(file: &Arc<Opened>, buffer: Vec<u8>) -> (io::Result<()>, usize) {
    let mut request = WriteAt { file: file.clone(), buffer, done: 0, at: CURSOR };
    while request.done < request.buffer.len() {
        request.at = if file.is_regular() { request.done as u64 } else { CURSOR };
        if let Err(error) = begin().await {
            return (Err(error), request.done);
        }
        match short_calls::write(file, &request.buffer[request.done..], request.at) {
            Some(Ok(0)) => return (Err(io::ErrorKind::WriteZero.into()), request.done),
            Some(Ok(n)) => {
                request.done += n;
                continue;
            }
            Some(Err(errno)) => return (Err(errno.into()), request.done),
            None => {}
        }
        let (result, back) = Operation::new(request).await;
        request = back;
        match result {
            Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), request.done),
            Ok(n) => request.done += n as usize,
            Err(error) => return (Err(error), request.done),
        }
    }
    (Ok(()), request.done)
}
