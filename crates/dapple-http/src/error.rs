//! The error type of this crate.

use std::error::Error as StdError;
use std::fmt;

/// Any error that a service or a body may end with. The client gets a 500, or its connection is cut if the response
/// has begun.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Error of this crate: `Display` for people, the `is_` methods for code.
///
/// The server converts it into a [`std::io::Error`], or into the [`BoxError`] of a request body. Use `downcast_ref`
/// on either to get it back.
///
/// # Examples
///
/// ```
/// let error = dapple_http::Tls::from_files("no such file", "nor this one").unwrap_err();
/// assert!(error.is_tls() && !error.is_timeout());
/// assert!(error.to_string().contains("no such file"));
/// ```
pub struct Error {
    kind: FailureKind,
    text: String,
    source: Option<BoxError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    Late,
    Tls,
    NotUpgraded,
}

impl Error {
    pub(crate) fn late(text: &str) -> Error {
        Error { kind: FailureKind::Late, text: text.to_owned(), source: None }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls(text: String, source: Option<BoxError>) -> Error {
        Error { kind: FailureKind::Tls, text, source }
    }

    pub(crate) fn not_upgraded(text: &str) -> Error {
        Error { kind: FailureKind::NotUpgraded, text: text.to_owned(), source: None }
    }

    /// Whether a client or a handler took too long.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind == FailureKind::Late
    }

    /// Whether the error concerns a TLS certificate or key.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.kind == FailureKind::Tls
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.kind).field("text", &self.text).finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = match error.kind {
            FailureKind::Late => std::io::ErrorKind::TimedOut,
            FailureKind::Tls | FailureKind::NotUpgraded => std::io::ErrorKind::InvalidInput,
        };
        std::io::Error::new(kind, error)
    }
}
