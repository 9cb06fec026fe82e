//! The error of a file operation, with its operation and paths.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::is_cancelled;

/// The operation that failed, its path, and the cause.
///
/// It is inside the `io::Error` that the operations of this module return; find it with [`Failed::of`]. The
/// `io::Error` has the kind of the cause. For the error number of the system, ask the cause
/// (`Failed::of(&error)?.cause().raw_os_error()`), because an `io::Error` has either a number or an inner error.
///
/// An operation that was [cancelled](crate::is_cancelled), or that is not available (in a simulation, outside of a
/// runtime), has not failed on a file: such an error contains no `Failed`.
///
/// # Examples
///
/// ```
/// use dapple::fs::{self, Failed};
///
/// dapple::run(async {
///     let error = fs::read("/no/such/file").await.unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
///     assert_eq!(error.to_string(), "cannot read /no/such/file: No such file or directory (os error 2)");
///     let failed = Failed::of(&error).unwrap();
///     assert_eq!(failed.operation(), "read");
///     assert_eq!(failed.path().unwrap(), "/no/such/file");
///     assert_eq!(failed.cause().raw_os_error(), Some(2));
/// });
/// ```
#[derive(Debug)]
pub struct Failed {
    operation: &'static str,
    path: Option<PathBuf>,
    other: Option<PathBuf>,
    cause: io::Error,
}

impl Failed {
    /// Returns the `Failed` inside of an error, also if other errors wrap it; `None` if there is none.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Failed> {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(failed) = error.downcast_ref() {
                return Some(failed);
            }
            // `io::Error::source` skips the error that it wraps, so that one is looked at first.
            let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source());
        }
        None
    }

    /// The operation, as a verb: "read", "open", "rename".
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The path of the operation. `None` for a file that was not opened by path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The second path, of an operation that has two: the target of a rename, copy or link.
    #[must_use]
    pub fn other_path(&self) -> Option<&Path> {
        self.other.as_deref()
    }

    /// The cause, as the system reported it.
    #[must_use]
    pub fn cause(&self) -> &io::Error {
        &self.cause
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.operation)?;
        match &self.path {
            Some(path) => write!(f, " {}", path.display())?,
            None => f.write_str(" a file")?,
        }
        if let Some(other) = &self.other {
            write!(f, " to {}", other.display())?;
        }
        write!(f, ": {}", self.cause)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

/// The error of an operation on a path, or on two. The error of a cancellation stays as it is.
#[cold]
pub(super) fn failed(
    operation: &'static str,
    path: Option<&Path>,
    other: Option<&Path>,
    cause: io::Error,
) -> io::Error {
    if is_cancelled(&cause) || Failed::of(&cause).is_some() || is_nowhere(&cause) {
        return cause;
    }
    let [path, other] = [path, other].map(|path| path.map(Path::to_owned));
    io::Error::new(cause.kind(), Failed { operation, path, other, cause })
}

/// No runtime or system is there to do the operation.
#[derive(Debug)]
struct Nowhere(String);

impl fmt::Display for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Nowhere {}

/// The error of an operation that cannot be done here at all.
#[cold]
pub(super) fn nowhere(kind: io::ErrorKind, why: impl Into<String>) -> io::Error {
    io::Error::new(kind, Nowhere(why.into()))
}

fn is_nowhere(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Nowhere>())
}

/// The path as a C string.
pub(super) fn c_path(path: &Path) -> io::Result<std::ffi::CString> {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path cannot contain a zero byte"))
}
