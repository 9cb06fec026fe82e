//! Options for opening a file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::error::{c_path, failed};
use super::file::{File, Opened};
use super::operation::{Operation, begin};
use super::request::OpenFile;
use super::{cached, short_calls};

/// Options for opening a file: those of [`std::fs::OpenOptions`], and its extensions on Unix.
///
/// # Examples
///
/// ```
/// use dapple::fs::{self, OpenOptions};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let path = std::env::temp_dir().join(format!("dapple-options-{}", std::process::id()));
///     let file = OpenOptions::new().read(true).write(true).create(true).open(&path).await?;
///     let (written, _) = file.write_at("words", 0).await;
///     assert_eq!(written?, 5);
///     let (read, buffer) = file.read_at(Vec::with_capacity(100), 1).await;
///     assert_eq!((read?, &buffer[..]), (4, &b"ords"[..]));
///     fs::remove_file(&path).await
/// })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    direct: bool,
    mode: u32,
    custom_flags: i32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

/// Setters that store their argument.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $name: $type) -> &mut OpenOptions {
            self.$name = $name;
            self
        }
    )*};
}

impl OpenOptions {
    /// Makes options with nothing set. Set at least `read`, `write` or `append`.
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            direct: false,
            mode: 0o666,
            custom_flags: 0,
        }
    }

    settings! {
        /// Sets read access.
        read: bool;
        /// Sets write access.
        write: bool;
        /// Sets append mode: each write goes to the end of the file.
        append: bool;
        /// Truncates the file, if it exists.
        truncate: bool;
        /// Creates the file, if it does not exist.
        create: bool;
        /// Creates the file, and fails if it exists.
        create_new: bool;
        /// Bypasses the page cache (`O_DIRECT`). Reads and writes then use an
        /// [`AlignedBuf`](super::AlignedBuf), and multiples of the disk's block size.
        direct: bool;
        /// Sets the permissions of a file that is created, before the process's mask is applied. The default is `0o666`.
        mode: u32;
        /// Sets further flags for `open`. The access mode is ignored here.
        custom_flags: i32;
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Those of [`std::fs::OpenOptions::open`], with the path.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: if the file was to be created or truncated, that may have happened. *Scope
    /// cancelled*: returns `Cancelled`, and nothing has happened, or the file.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_path(path.as_ref()).await
    }

    pub(super) async fn open_path(&self, path: &Path) -> io::Result<File> {
        self.open_with_len(path).await.map(|(file, _)| file)
    }

    /// As `open`, and returns the length, if it is known already.
    pub(super) async fn open_with_len(&self, path: &Path) -> io::Result<(File, Option<u64>)> {
        let explain = |error| failed("open", Some(path), None, error);
        let flags = self.flags().map_err(explain)?;
        let c_path = c_path(path).map_err(explain)?;
        begin().await?;
        let (fd, len) = match cached::open(&c_path, flags) {
            Some(opened) => opened.map(|(fd, len)| (fd, Some(len))).map_err(explain)?,
            None => {
                let mode = Mode::from_raw_mode(self.mode);
                if let Some(made) = short_calls::create(&c_path, flags, mode) {
                    let made = made.map_err(|errno| explain(errno.into()))?;
                    return Ok((
                        File::of(Arc::new(Opened::new(made.into(), path, flags).regular())),
                        Some(0),
                    ));
                }
                let (result, open) =
                    Operation::new(OpenFile { path: c_path, flags, mode, opened: None }).await;
                result.map_err(explain)?;
                (open.opened.expect("a completed open has a file descriptor"), None)
            }
        };
        let opened = Opened::new(fd.into(), path, flags);
        // The length is known only for a regular file.
        let opened = if len.is_some() { opened.regular() } else { opened };
        Ok((File::of(Arc::new(opened)), len))
    }

    /// The flags for `open`, by the rules of the standard library.
    fn flags(&self) -> io::Result<OFlags> {
        let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => OFlags::RDONLY,
            (false, true, false) => OFlags::WRONLY,
            (true, true, false) => OFlags::RDWR,
            (false, _, true) => OFlags::WRONLY | OFlags::APPEND,
            (true, _, true) => OFlags::RDWR | OFlags::APPEND,
            (false, false, false) => {
                return invalid("to be opened for nothing: set at least one of read, write and append");
            }
        };
        let makes = self.truncate || self.create || self.create_new;
        if makes && !self.write && !self.append {
            return invalid("a file is made or truncated only if it is opened for writing");
        }
        if self.append && self.truncate && !self.create_new {
            return invalid("a file cannot be opened both to be truncated and to be appended to");
        }
        let creation = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => OFlags::CREATE | OFlags::EXCL,
            (true, true, _) => OFlags::CREATE | OFlags::TRUNC,
            (true, false, _) => OFlags::CREATE,
            (false, true, _) => OFlags::TRUNC,
            (false, false, _) => OFlags::empty(),
        };
        let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        let custom = OFlags::from_bits_retain(self.custom_flags as u32) - OFlags::ACCMODE;
        Ok(access | creation | direct | custom | OFlags::CLOEXEC)
    }
}
