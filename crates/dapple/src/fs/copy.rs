//! Copying files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use super::error::failed;
use super::operation::on_pool;
use crate::io::Partial;

/// The number of bytes that are copied between two checks for cancellation.
const PART: u64 = 16 << 20;

/// Copies a file and its permissions, as [`std::fs::copy`]. Returns the number of bytes. If the file system can share
/// the data instead of copying it, it does.
///
/// # Errors
///
/// Those of `open`, `read` and `write`, with both paths. [`how_far`](crate::io::how_far) returns the number of bytes
/// that were copied. [`InvalidInput`](io::ErrorKind::InvalidInput) if `from` is not a regular file.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: all, some or none of the bytes may have been copied. *Scope cancelled*: returns
/// `Cancelled`, after as many bytes as [`how_far`](crate::io::how_far) returns, or the result. Cancellation is checked
/// after every 16 MiB.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use dapple::fs;
///
/// # let path = std::env::temp_dir().join(format!("dapple-doc-copy-{}", std::process::id()));
/// dapple::run(async {
///     let copy = path.with_extension("copy");
///     fs::write(&path, "hello").await?;
///     assert_eq!(fs::copy(&path, &copy).await?, 5);
///     assert_eq!(fs::read(&copy).await?, b"hello");
///     fs::remove_file(&copy).await?;
///     fs::remove_file(&path).await
/// })
/// # }
/// ```
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let explain = |error| failed("copy", Some(from), Some(to), error);
    let paths = (from.to_owned(), to.to_owned());
    let files = on_pool(move || open_both(&paths.0, &paths.1)).await.map_err(explain)?;
    let files = Arc::new(files);
    let mut done = 0;
    loop {
        let files = files.clone();
        let copied = on_pool(move || io::copy(&mut (&files.0).take(PART), &mut &files.1)).await;
        match copied {
            Ok(n) => done += n,
            Err(error) => {
                return Err(Partial::both((done, Vec::new()), (0, Vec::new()), explain(error)));
            }
        }
        if copied.is_ok_and(|n| n < PART) {
            return Ok(done);
        }
    }
}

fn open_both(from: &Path, to: &Path) -> io::Result<(File, File)> {
    let source = File::open(from)?;
    let metadata = source.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the source is not a file"));
    }
    let permissions = metadata.permissions();
    let mut options = File::options();
    let target = options.write(true).create(true).truncate(true).mode(permissions.mode()).open(to)?;
    if target.metadata()?.is_file() {
        target.set_permissions(permissions)?;
    }
    Ok((source, target))
}
