//! The choice between io_uring and the blocking pool for a runtime's file operations. It is made and reported once.

use std::io;
use std::sync::{Arc, OnceLock};

use super::super::Driver;
use super::failures::Failures;
use crate::world;

/// The mechanism that a runtime uses for file operations. Choose it with
/// [`runtime::Builder::files`](crate::runtime::Builder::files).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Files {
    /// io_uring if the kernel allows it, otherwise the pool for blocking calls.
    #[default]
    Auto,
    /// io_uring. An operation that the kernel's io_uring does not support goes to the pool.
    Ring,
    /// The pool for blocking calls.
    Pool,
}

/// The mechanism that was asked for, and the one in use.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    wanted: Files,
    in_use: OnceLock<Files>,
    pub(crate) failures: Arc<Failures>,
}

impl Choice {
    /// Fails if io_uring was asked for by name and is not available.
    pub(crate) fn new(wanted: Files) -> io::Result<Choice> {
        let choice = Choice { wanted, ..Choice::default() };
        if wanted == Files::Ring && !world::is_simulated() {
            super::Uring::new(choice.failures.clone()).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("Files::Ring was chosen, but io_uring is not available: {error}"),
                )
            })?;
        }
        Ok(choice)
    }

    /// The mechanism in use. It is settled at the first call, which tries to make a ring on `driver`.
    #[inline]
    pub(crate) fn in_use(&self, driver: &Driver) -> Files {
        self.in_use.get().copied().unwrap_or_else(|| self.settle(driver))
    }

    #[cold]
    fn settle(&self, driver: &Driver) -> Files {
        let (files, why) = match self.wanted {
            Files::Pool => (Files::Pool, "as asked for".to_owned()),
            Files::Auto | Files::Ring => match driver.files(&self.failures) {
                Ok(_) => (Files::Ring, "io_uring is available".to_owned()),
                Err(error) => (Files::Pool, format!("io_uring is not available: {error}")),
            },
        };
        // A subscriber of `tracing` is foreign code, which may use files itself: settle the choice first.
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
