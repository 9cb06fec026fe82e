//! The error of what is done in several steps: how far it got.

use std::error::Error;
use std::fmt;
use std::io;

/// How far an operation of several steps got before an error, or `cancel`, stopped it.
///
/// It lies in the `io::Error` that such an operation returns; [`Partial::of`] finds it there. The
/// `io::Error` has the kind of the one that stopped the operation, which is its source; a number of
/// the system's is to be had from [`stopped_by`](Self::stopped_by).
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
    /// The same of the other direction.
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

    /// Finds it in an error, or in what that one wraps.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Partial> {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(partial) = error.downcast_ref() {
                return Some(partial);
            }
            // What an `io::Error` wraps is not its source: that is the source of what it wraps.
            let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source());
        }
        None
    }

    /// How many bytes were read, written or copied; which, the operation says.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes that were read, and not handed on to where they should have gone.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// How many bytes were copied in the other direction, by
    /// [`copy_bidirectional`](super::copy_bidirectional).
    #[must_use]
    pub fn done_back(&self) -> u64 {
        self.back.0
    }

    /// Bytes of the other direction that were read, and not handed on.
    #[must_use]
    pub fn rest_back(&self) -> &[u8] {
        &self.back.1
    }

    /// What stopped it.
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

/// How many bytes an operation had read, written or copied before it failed; `None` if the error is
/// not of one that does several steps. The same as [`Partial::done`].
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
