//! Prepared files: made by the first process that needs them, and used by all that come after.
//!
//! `VERSUS_PREPARED` names the folder that they are kept in. The guard sets it, since each of its samples is a
//! process of its own. The builds of two commits share the folder, so a name stands for one content for ever: a
//! commit that changes the content changes the name.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use crate::contest::Failure;

/// The environment variable.
pub(crate) const VARIABLE: &str = "VERSUS_PREPARED";

/// The path of a prepared file or folder; nothing where none are to be kept.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    env::var_os(VARIABLE).map(|folder| Path::new(&folder).join(name))
}

/// Makes what is not there yet, under another name first: a path that exists is whole.
pub(crate) fn once(path: &Path, make: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    let unfinished = path.with_extension(format!("unfinished-{}", process::id()));
    make(&unfinished)?;
    fs::rename(&unfinished, path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_made_once_and_never_half() {
        let path = env::temp_dir().join(format!("versus-prepared-test-{}", process::id()));
        let failed = once(&path, |path| {
            fs::write(path, "ha").unwrap();
            fs::remove_file(path).unwrap();
            Err("broken off".to_owned())
        });
        assert!(failed.is_err() && !path.exists());
        once(&path, |path| fs::write(path, "whole").map_err(|error| error.to_string())).unwrap();
        once(&path, |_| unreachable!("it is there")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        fs::remove_file(&path).unwrap();
    }
}
