//! The error of an attempt: the attempt, and the system's error.

use std::error::Error;
use std::fmt;
use std::io;

/// A failed attempt and its cause. An `io::Error` made of it has the kind of the cause, and the cause as its source.
#[derive(Debug)]
struct NamedError {
    what: String,
    why: io::Error,
}

/// `what` begins the message: "cannot listen at ...".
pub(crate) fn failed(what: String, why: io::Error) -> io::Error {
    io::Error::new(why.kind(), NamedError { what, why })
}

impl fmt::Display for NamedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl Error for NamedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.why)
    }
}
