//! Operations on paths.

use std::fs::{Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

use super::error::{c_path, failed};
use super::operation::{Operation, begin, on_pool};
use super::request::{Link, NameChange, NameRequest, Rename, Symlink, Unlink};
use super::{cached, short_calls};

/// Does an operation on a path, and adds the path to its error.
pub(super) async fn ask(
    operation: &'static str,
    path: &Path,
    other: Option<&Path>,
    request: io::Result<impl NameRequest>,
) -> io::Result<()> {
    let result = async {
        let request = request?;
        begin().await?;
        match short_calls::name(request.name()) {
            Some(done) => Ok(done?),
            None => Operation::new(request).await.0.map(drop),
        }
    };
    let result: io::Result<()> = result.await;
    result.map_err(|error| failed(operation, Some(path), other, error))
}

/// Makes a blocking call with a path on the pool, and adds the path to its error.
pub(super) async fn call<T: Send + 'static>(
    operation: &'static str,
    path: &Path,
    call: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let owned = path.to_owned();
    let result = on_pool(move || call(&owned)).await;
    result.map_err(|error| failed(operation, Some(path), None, error))
}

/// Removes a file, as [`std::fs::remove_file`].
///
/// # Errors
///
/// Those of `unlink`, with the path.
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
/// # let path = std::env::temp_dir().join(format!("dapple-doc-remove-file-{}", std::process::id()));
/// dapple::run(async {
///     fs::write(&path, "hello").await?;
///     fs::remove_file(&path).await?;
///     assert!(!fs::try_exists(&path).await?);
///     Ok(())
/// })
/// # }
/// ```
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let request = c_path(path).map(|path| Unlink(NameChange::Unlink { path, is_dir: false }));
    ask("remove", path, None, request).await
}

/// Renames a file or directory, as [`std::fs::rename`].
///
/// # Errors
///
/// Those of `rename`, with both paths.
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
/// # let path = std::env::temp_dir().join(format!("dapple-doc-rename-{}", std::process::id()));
/// dapple::run(async {
///     let new = path.with_extension("new");
///     fs::write(&path, "hello").await?;
///     fs::rename(&path, &new).await?;
///     assert!(!fs::try_exists(&path).await?);
///     fs::remove_file(&new).await
/// })
/// # }
/// ```
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (path, other) = (from.as_ref(), to.as_ref());
    let request = || Ok(Rename(NameChange::Rename { from: c_path(path)?, to: c_path(other)? }));
    ask("rename", path, Some(other), request()).await
}

/// Creates a hard link, as [`std::fs::hard_link`].
///
/// # Errors
///
/// Those of `link`, with both paths.
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
/// # let path = std::env::temp_dir().join(format!("dapple-doc-hard-link-{}", std::process::id()));
/// dapple::run(async {
///     let link = path.with_extension("link");
///     fs::write(&path, "hello").await?;
///     fs::hard_link(&path, &link).await?;
///     fs::remove_file(&path).await?;
///     assert_eq!(fs::read(&link).await?, b"hello");
///     fs::remove_file(&link).await
/// })
/// # }
/// ```
pub async fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let (path, other) = (original.as_ref(), link.as_ref());
    let request = || Ok(Link(NameChange::Link { original: c_path(path)?, link: c_path(other)? }));
    ask("link", path, Some(other), request()).await
}

/// Creates a symbolic link, as [`std::os::unix::fs::symlink`].
///
/// # Errors
///
/// Those of `symlink`, with both paths.
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
/// # let link = std::env::temp_dir().join(format!("dapple-doc-symlink-{}", std::process::id()));
/// dapple::run(async {
///     fs::symlink("/proc", &link).await?;
///     assert_eq!(fs::read_link(&link).await?.as_os_str(), "/proc");
///     assert!(fs::symlink_metadata(&link).await?.is_symlink());
///     assert!(fs::metadata(&link).await?.is_dir()); // follows the link
///     fs::remove_file(&link).await
/// })
/// # }
/// ```
pub async fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let (path, other) = (original.as_ref(), link.as_ref());
    let request = || Ok(Symlink(NameChange::Symlink { original: c_path(path)?, link: c_path(other)? }));
    ask("link", path, Some(other), request()).await
}

/// Returns the target of a symbolic link, as [`std::fs::read_link`].
///
/// # Errors
///
/// Those of `readlink`, with the path.
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
/// # dapple::run(async {
/// let program = fs::read_link("/proc/self/exe").await?; // where the link leads
/// assert!(program.is_absolute());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    call("read the link", path.as_ref(), |path| std::fs::read_link(path)).await
}

/// Returns the absolute path without links and dots, as [`std::fs::canonicalize`].
///
/// # Errors
///
/// Those of `realpath`, with the path.
///
/// # Cancellation
///
/// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// dapple::run(async {
///     let path = fs::canonicalize("/proc/../proc/.").await?;
///     assert_eq!(path.as_os_str(), "/proc");
///     Ok(())
/// })
/// # }
/// ```
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    call("find", path.as_ref(), |path| std::fs::canonicalize(path)).await
}

/// Sets the permissions of a file or directory, as [`std::fs::set_permissions`].
///
/// # Errors
///
/// Those of `chmod`, with the path.
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
/// # let path = std::env::temp_dir().join(format!("dapple-doc-permissions-{}", std::process::id()));
/// dapple::run(async {
///     fs::write(&path, "hello").await?;
///     let mut permissions = fs::metadata(&path).await?.permissions();
///     permissions.set_readonly(true);
///     fs::set_permissions(&path, permissions).await?;
///     assert!(fs::metadata(&path).await?.permissions().readonly());
///     fs::remove_file(&path).await
/// })
/// # }
/// ```
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    let set = move |path: &Path| std::fs::set_permissions(path, permissions);
    call("set the permissions of", path.as_ref(), set).await
}

/// Returns the metadata of a file or directory, as [`std::fs::metadata`]. It follows links.
///
/// # Errors
///
/// Those of `stat`, with the path.
///
/// # Cancellation
///
/// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// dapple::run(async {
///     assert!(fs::metadata("/proc").await?.is_dir());
///     Ok(())
/// })
/// # }
/// ```
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    metadata_of(path.as_ref(), true).await
}

/// As [`metadata`], without following a link at the path; as [`std::fs::symlink_metadata`].
///
/// # Errors
///
/// As [`metadata`].
///
/// # Cancellation
///
/// As [`metadata`].
///
/// # Examples
///
/// ```
/// use dapple::fs;
///
/// # dapple::run(async {
/// assert!(fs::symlink_metadata("/proc/self/exe").await?.is_symlink()); // of the link itself
/// assert!(fs::metadata("/proc/self/exe").await?.is_file()); // of its target
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    metadata_of(path.as_ref(), false).await
}

async fn metadata_of(path: &Path, follow: bool) -> io::Result<Metadata> {
    let operation = "get the metadata of";
    begin().await?;
    let at_once = match c_path(path) {
        Ok(path) => cached::metadata(&path, follow),
        Err(error) => Some(Err(error)),
    };
    match at_once {
        Some(result) => result.map_err(|error| failed(operation, Some(path), None, error)),
        None if follow => call(operation, path, |path| std::fs::metadata(path)).await,
        None => call(operation, path, |path| std::fs::symlink_metadata(path)).await,
    }
}

/// Whether a path exists, as [`std::fs::exists`].
///
/// # Errors
///
/// Those of `stat`, with the path, except for "not found".
///
/// # Cancellation
///
/// *Dropped early*: **clean**. *Scope cancelled*: returns `Cancelled`, or the result.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// dapple::run(async {
///     assert!(fs::try_exists("/proc").await?);
///     assert!(!fs::try_exists("/proc/none").await?);
///     Ok(())
/// })
/// # }
/// ```
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    match metadata(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
