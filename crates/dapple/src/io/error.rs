//! The error of an operation that takes several steps: it records the progress so far.

use std::error::Error;
use std::fmt;
use std::io;

/// The progress of an operation of several steps when an error, or a cancellation, stopped it.
///
/// It is inside the `io::Error` that such an operation returns; find it with [`Partial::of`]. The
/// `io::Error` has the kind of the error that stopped the operation, and that error is its source. For the
/// error number of the system, see [`stopped_by`](Self::stopped_by).
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, Partial, how_far};
///
/// dapple::run(async {
///     let mut reader = &b"abc"[..];
///     let mut buffer = [0; 8];
///     let error = reader.read_exact(&mut buffer).await.unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
///     assert_eq!(how_far(&error), Some(3)); // and there they are:
///     assert_eq!(&buffer[..3], b"abc");
///
///     let mut reader = &b"abc"[..];
///     let error = reader.read_u64().await.unwrap_err();
///     assert_eq!(Partial::of(&error).unwrap().rest(), b"abc");
/// });
/// ```
#[derive(Debug)]
pub struct Partial {
    done: u64,
    rest: Vec<u8>,
    /// The same for the other direction.
    back: (u64, Vec<u8>),
    error: io::Error,
}

impl Partial {
    pub(super) fn error(done: u64, rest: Vec<u8>, error: io::Error) -> io::Error {
        Partial::both((done, rest), (0, Vec::new()), error)
    }

    pub(crate) fn both(there: (u64, Vec<u8>), back: (u64, Vec<u8>), error: io::Error) -> io::Error {
        let (done, rest) = there;
        io::Error::new(error.kind(), Partial { done, rest, back, error })
    }

    /// Returns the `Partial` inside of an error, also if other errors wrap it; `None` if there is none.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Partial> {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(partial) = error.downcast_ref() {
                return Some(partial);
            }
            // `io::Error::source` skips the error that it wraps, so that one is looked at first.
            let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source());
        }
        None
    }

    /// The number of bytes that were read, written or copied; the operation's docs define which.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes that were read and not handed on to their destination.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// The number of bytes that were copied in the other direction, by
    /// [`copy_bidirectional`](super::copy_bidirectional).
    #[must_use]
    pub fn done_back(&self) -> u64 {
        self.back.0
    }

    /// Bytes of the other direction that were read and not handed on.
    #[must_use]
    pub fn rest_back(&self) -> &[u8] {
        &self.back.1
    }

    /// The error that stopped the operation.
    #[must_use]
    pub fn stopped_by(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, after {} bytes", self.error, self.done)?;
        if self.back.0 > 0 {
            write!(f, " and {} bytes back", self.back.0)?;
        }
        match self.rest.len() + self.back.1.len() {
            0 => Ok(()),
            rest => write!(f, "; {rest} bytes that were read have not been handed on"),
        }
    }
}

impl Error for Partial {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// The number of bytes that an operation had read, written or copied before it failed; `None` if the error is
/// not from an operation of several steps. The same as [`Partial::done`].
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, how_far};
///
/// dapple::run(async {
///     let mut buffer = [0; 8];
///     let error = (&b"hello"[..]).read_exact(&mut buffer).await.unwrap_err();
///     assert_eq!(how_far(&error), Some(5));
///     assert_eq!(error.to_string(), "the reader ended before the 8 bytes that were asked for, after 5 bytes");
/// });
/// ```
#[must_use]
pub fn how_far(error: &io::Error) -> Option<u64> {
    Partial::of(error).map(Partial::done)
}
