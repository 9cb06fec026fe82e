//! A folder of a case: among the temporary files and gone when the value is, or prepared once for many processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::contest::Failure;
use crate::prepared;

/// The folder. A process that is killed leaves a temporary one behind.
pub(crate) struct Folder {
    path: PathBuf,
    is_temporary: bool,
}

impl Folder {
    /// A folder that was filled, now or by an earlier process ([`prepared`]). Folders with the same name have the same
    /// content.
    pub(crate) fn filled(
        name: &str,
        fill: impl FnOnce(&Path) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let Some(path) = prepared::path(name) else {
            let folder = Self::new(&format!("versus-{name}"))?;
            fill(&folder.path)?;
            return Ok(folder);
        };
        prepared::once(&path, |path| {
            create(path)?;
            fill(path)
        })?;
        Ok(Self { path, is_temporary: false })
    }

    /// An empty one among the temporary files.
    fn new(name: &str) -> Result<Self, Failure> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("{name}-{}-{number}", process::id()));
        create(&path)?;
        Ok(Self { path, is_temporary: true })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a folder that every user may read: a server may give up its rights.
fn create(path: &Path) -> Result<(), Failure> {
    let made =
        fs::create_dir(path).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
    made.map_err(|error| format!("{}: {error}", path.display()))
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_temporary {
            // A folder that cannot be removed is left to the cleaning of temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
