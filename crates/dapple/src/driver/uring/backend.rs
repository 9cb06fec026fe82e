//! Whether the files of a runtime go through rings or through the pool: asked for, tried, and told once.

use std::io;
use std::sync::{Arc, OnceLock};

use super::super::Driver;
use super::failures::Failures;
use crate::world;

/// How a runtime does what is to be done with files; see
/// [`runtime::Builder::files`](crate::runtime::Builder::files).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Files {
    /// By io_uring if the kernel lets us, or else by the pool for blocking calls.
    #[default]
    Auto,
    /// By io_uring, the kernel's queue for such things; what it does not know, by the pool.
    Ring,
    /// By the pool for blocking calls.
    Pool,
}

/// What was asked for, and what is in use.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    wanted: Files,
    in_use: OnceLock<Files>,
    pub(crate) failures: Arc<Failures>,
}

impl Choice {
    /// An error if what is asked for by name is not to be had.
    pub(crate) fn new(wanted: Files) -> io::Result<Choice> {
        let choice = Choice { wanted, ..Choice::default() };
        if wanted == Files::Ring && !world::is_simulated() {
            super::Uring::new(choice.failures.clone()).map_err(|error| {
                io::Error::new(error.kind(), format!("files by io_uring, which cannot be had: {error}"))
            })?;
        }
        Ok(choice)
    }

    /// What is in use: settled at the first call, with a driver to try it on.
    #[inline]
    pub(crate) fn in_use(&self, driver: &Driver) -> Files {
        self.in_use.get().copied().unwrap_or_else(|| self.settle(driver))
    }

    #[cold]
    fn settle(&self, driver: &Driver) -> Files {
        let (files, why) = match self.wanted {
            Files::Pool => (Files::Pool, "as asked for".to_owned()),
            Files::Auto | Files::Ring => match driver.files(&self.failures) {
                Ok(_) => (Files::Ring, "io_uring is to be had".to_owned()),
                Err(error) => (Files::Pool, format!("io_uring cannot be had: {error}")),
            },
        };
        // To tell is foreign code, which may ask for files itself: it is settled first.
        let is_first = self.in_use.set(files).is_ok();
        if is_first {
            tell(files, &why);
        }
        self.in_use.get().copied().unwrap_or(files)
    }
}

#[cfg(feature = "tracing")]
fn tell(files: Files, why: &str) {
    let what = "how files are read and written";
    crate::task::guarded::guarded(|| tracing::debug!(target: "dapple::fs", ?files, why, "{what}"));
}

#[cfg(not(feature = "tracing"))]
fn tell(_files: Files, _why: &str) {}
