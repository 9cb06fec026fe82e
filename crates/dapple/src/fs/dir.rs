//! Directories: created, removed, and read as a stream of entries.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{FileType, Metadata};
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use rustix::fs::Mode;

use super::error::{c_path, failed};
use super::operation::on_pool;
use super::paths::{ask, call, symlink_metadata};
use super::request::{MakeDir, NameChange, Unlink};
use crate::cancel::wait::{Wait, got_at_once};
use crate::prim::{Mutex, lock};

/// The most entries that are read at a time.
const BATCH: usize = 1024;

/// Creates a directory, as [`std::fs::create_dir`].
///
/// # Errors
///
/// Those of `mkdir`, with the path.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: it may have happened. *Scope cancelled*: returns `Cancelled`, and nothing has happened,
/// or the result.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// # let path = std::env::temp_dir().join(format!("dapple-doc-create-dir-{}", std::process::id()));
/// dapple::run(async {
///     fs::create_dir(&path).await?;
///     assert!(fs::metadata(&path).await?.is_dir());
///     fs::remove_dir(&path).await
/// })
/// # }
/// ```
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().create(path).await
}

/// Creates a directory and its missing parents, as [`std::fs::create_dir_all`].
///
/// # Errors
///
/// Those of `mkdir`, with the path.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: some or all may have been created. *Scope cancelled*: returns `Cancelled`, and nothing
/// has happened, or the result: once it has begun it is not stopped.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// # let path = std::env::temp_dir().join(format!("dapple-doc-create-dirs-{}", std::process::id()));
/// dapple::run(async {
///     fs::create_dir_all(path.join("a/b")).await?;
///     assert!(fs::try_exists(path.join("a")).await?);
///     fs::remove_dir_all(&path).await
/// })
/// # }
/// ```
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path).await
}

/// Options for creating a directory, as [`std::fs::DirBuilder`].
///
/// # Examples
///
/// ```
/// use dapple::fs::{self, DirBuilder};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let path = std::env::temp_dir().join(format!("dapple-dir-{}", std::process::id()));
///     DirBuilder::new().mode(0o700).create(&path).await?;
///     assert!(fs::metadata(&path).await?.is_dir());
///     fs::remove_dir(&path).await
/// })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DirBuilder {
    recursive: bool,
    mode: u32,
}

impl Default for DirBuilder {
    fn default() -> DirBuilder {
        DirBuilder::new()
    }
}

impl DirBuilder {
    /// Creates one directory, with the permissions `0o777` before the process's mask is applied.
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder { recursive: false, mode: 0o777 }
    }

    /// Creates missing parents, too. It is then no error if the directory exists.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.recursive = recursive;
        self
    }

    /// Sets the permissions, before the process's mask is applied.
    pub fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.mode = mode;
        self
    }

    /// Creates the directory.
    ///
    /// # Errors
    ///
    /// Those of `mkdir`, with the path.
    ///
    /// # Cancellation
    ///
    /// As [`create_dir`], or [`create_dir_all`].
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let mode = self.mode;
        if self.recursive {
            let make = move |path: &Path| std::fs::DirBuilder::new().recursive(true).mode(mode).create(path);
            return call("make", path, make).await;
        }
        let mode = Mode::from_raw_mode(mode);
        ask("make", path, None, c_path(path).map(|path| MakeDir(NameChange::MakeDir { path, mode }))).await
    }
}

/// Removes an empty directory, as [`std::fs::remove_dir`].
///
/// # Errors
///
/// Those of `rmdir`, with the path.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: it may have happened. *Scope cancelled*: returns `Cancelled`, and nothing has happened,
/// or the result.
///
/// # Examples
///
/// ```
/// use dapple::fs;
///
/// # dapple::run(async {
/// let folder = std::env::temp_dir().join(format!("dapple-remove-dir-{}", std::process::id()));
/// fs::create_dir(&folder).await?;
/// fs::remove_dir(&folder).await?; // only an empty one
/// assert!(!fs::try_exists(&folder).await?);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let request = c_path(path).map(|path| Unlink(NameChange::Unlink { path, is_dir: true }));
    ask("remove", path, None, request).await
}

/// Removes a directory and its contents, without following links, as [`std::fs::remove_dir_all`].
///
/// # Errors
///
/// The error of the first entry that could not be removed, with the path that was passed.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: some or all may be gone. *Scope cancelled*: returns `Cancelled`, and nothing has
/// happened, or the result: once it has begun it is not stopped.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// # let path = std::env::temp_dir().join(format!("dapple-doc-remove-dirs-{}", std::process::id()));
/// dapple::run(async {
///     fs::create_dir_all(path.join("a/b")).await?;
///     fs::remove_dir_all(&path).await?;
///     assert!(!fs::try_exists(&path).await?);
///     Ok(())
/// })
/// # }
/// ```
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    call("remove", path.as_ref(), |path| std::fs::remove_dir_all(path)).await
}

/// Reads the entries of a directory as a stream, as [`std::fs::read_dir`].
///
/// Entries are read in batches of 1024, when the stream is polled. An entry that is created or removed meanwhile may
/// or may not be among them.
///
/// # Errors
///
/// Those of `opendir`, with the path; later, from the stream, those of `readdir`.
///
/// # Cancellation
///
/// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result.
///
/// # Examples
///
/// ```
/// use dapple::fs;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut entries = fs::read_dir("/proc/self/fd").await?;
///     let mut count = 0;
///     while let Some(entry) = entries.next_entry().await? {
///         assert!(entry.file_name().to_str().unwrap().parse::<u32>().is_ok());
///         count += 1;
///     }
///     assert!(count >= 3);
///     Ok(())
/// })
/// # }
/// ```
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let (entries, first) = call("read the directory", path, |path| {
        let mut entries = std::fs::read_dir(path)?;
        let first = next_batch(&mut entries);
        Ok((entries, first))
    })
    .await?;
    Ok(ReadDir {
        path: path.into(),
        entries: Arc::new(Mutex::new(entries)),
        is_over: first.len() < BATCH,
        batch: first,
        reading: None,
        at_once: Wait::default(),
    })
}

type EntryBatch = VecDeque<io::Result<DirEntry>>;

fn next_batch(entries: &mut std::fs::ReadDir) -> EntryBatch {
    let of = |entry: io::Result<std::fs::DirEntry>| {
        entry.map(|entry| DirEntry { file_type: entry.file_type(), entry: Arc::new(entry) })
    };
    // After an error the batch ends: the same error might come for ever.
    let mut batch = EntryBatch::new();
    for entry in entries.take(BATCH).map(of) {
        let is_error = entry.is_err();
        batch.push_back(entry);
        if is_error {
            break;
        }
    }
    batch
}

/// The entries of a directory: a stream of results. See [`read_dir`].
///
/// After an error the stream ends.
pub struct ReadDir {
    path: Box<Path>,
    /// Used by the one operation that reads the next batch.
    entries: Arc<Mutex<std::fs::ReadDir>>,
    batch: EntryBatch,
    /// There is no entry after the batch.
    is_over: bool,
    reading: Option<Pin<Box<dyn Future<Output = io::Result<EntryBatch>> + Send>>>,
    /// The wait for an entry of the batch.
    at_once: Wait,
}

impl ReadDir {
    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Those of `readdir`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result; no entry is lost.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        poll_fn(|cx| self.poll_next_entry(cx)).await.transpose()
    }

    fn poll_next_entry(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<DirEntry>>> {
        loop {
            if let Some(entry) = self.batch.front() {
                if let Err(cancelled) = ready!(self.at_once.begin_at_once(cx)) {
                    return Poll::Ready(Some(Err(cancelled.into())));
                }
                got_at_once();
                self.is_over |= entry.is_err();
                let entry = self.batch.pop_front().map(|entry| entry.map_err(|error| self.failed(error)));
                return Poll::Ready(entry);
            }
            if self.is_over && self.reading.is_none() {
                return Poll::Ready(None);
            }
            let entries = &self.entries;
            let reading = self.reading.get_or_insert_with(|| {
                let entries = entries.clone();
                Box::pin(on_pool(move || Ok(next_batch(&mut lock(&entries)))))
            });
            let read = ready!(reading.as_mut().poll(cx));
            self.reading = None;
            match read {
                Ok(batch) => {
                    self.is_over = batch.len() < BATCH;
                    self.batch = batch;
                }
                Err(error) => return Poll::Ready(Some(Err(self.failed(error)))),
            }
        }
    }

    fn failed(&self, error: io::Error) -> io::Error {
        failed("read the directory", Some(&self.path), None, error)
    }
}

impl Stream for ReadDir {
    type Item = io::Result<DirEntry>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<DirEntry>>> {
        self.get_mut().poll_next_entry(cx)
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.path).finish()
    }
}

/// An entry of a directory; see [`read_dir`].
///
/// # Examples
///
/// ```
/// use dapple::fs;
///
/// # dapple::run(async {
/// let mut entries = fs::read_dir("/proc/self").await?;
/// let mut found = false;
/// while let Some(entry) = entries.next_entry().await? {
///     if entry.file_name() == "status" {
///         found = entry.file_type().await?.is_file();
///         assert!(entry.path().ends_with("self/status"));
///     }
/// }
/// assert!(found);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub struct DirEntry {
    entry: Arc<std::fs::DirEntry>,
    file_type: io::Result<FileType>,
}

impl DirEntry {
    /// The path of the entry: the path of the directory, as it was passed, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// The name of the entry, without the directory.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// The inode number of the entry.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// Returns the type of the entry, without following links. As a rule it comes with the entry, and needs no wait.
    ///
    /// # Errors
    ///
    /// On file systems that do not return the type with the entry, those of `stat`.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns the type that came with the entry; otherwise `Cancelled`,
    /// or the result.
    pub async fn file_type(&self) -> io::Result<FileType> {
        match &self.file_type {
            Ok(file_type) => Ok(*file_type),
            Err(_) => self.metadata().await.map(|metadata| metadata.file_type()),
        }
    }

    /// Returns the metadata of the entry, without following links.
    ///
    /// # Errors
    ///
    /// Those of `stat`, with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        symlink_metadata(self.path()).await
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
