//! This program's ends of the pipes to a child.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{self, Stdio};
use std::task::{Context, Poll};

use crate::io::foreign::{impl_read, impl_write};
use crate::source::Source;
use crate::source::stream::StreamHalf;

/// Opens this end in non-blocking mode. The child's end is a separate file, and stays in blocking mode.
fn open(pipe: impl Into<OwnedFd>) -> io::Result<StreamHalf<Source<File>>> {
    let file = File::from(pipe.into());
    rustix::io::ioctl_fionbio(&file, true)?;
    Ok(StreamHalf::new(Source::new(file)))
}

/// Gives the pipe to another child, which does not expect non-blocking mode.
fn give_away(way: StreamHalf<Source<File>>) -> io::Result<OwnedFd> {
    let file = way.source.into_inner();
    rustix::io::ioctl_fionbio(&file, false)?;
    Ok(file.into())
}

macro_rules! pipe {
    ($(#[$doc:meta])* $type:ident, $std:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $type(StreamHalf<Source<File>>);

        impl $type {
            pub(super) fn new(pipe: $std) -> io::Result<$type> {
                open(pipe).map($type)
            }

            /// Returns the file descriptor, in blocking mode again.
            ///
            /// # Errors
            ///
            /// If the mode cannot be changed.
            pub fn into_owned_fd(self) -> io::Result<OwnedFd> {
                give_away(self.0)
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.source.as_fd()
            }
        }

        impl TryFrom<$type> for Stdio {
            type Error = io::Error;

            /// Connects the pipe to another child.
            fn try_from(pipe: $type) -> io::Result<Stdio> {
                give_away(pipe.0).map(Stdio::from)
            }
        }
    };
}

macro_rules! read_end {
    ($type:ident) => {
        impl $type {
            pub(crate) fn poll_read(
                &mut self,
                cx: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_read(cx, buffer)
            }

            pub(crate) fn poll_read_vectored(
                &mut self,
                cx: &mut Context<'_>,
                buffers: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_read_vectored(cx, buffers)
            }
        }

        impl_read!($type);
    };
}

pipe! {
    /// The write end of the pipe to a child's standard input.
    ///
    /// Drop it, and the child reads the end. If the child has closed its end, or has ended, writing
    /// fails with `BrokenPipe`.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncReadExt, AsyncWriteExt};
    /// use dapple::process::{Command, Stdio};
    ///
    /// # dapple::run(async {
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    /// let mut stdin = child.stdin.take().unwrap();
    /// stdin.write_all(b"hello").await?;
    /// drop(stdin); // `cat` sees the end
    /// let mut text = String::new();
    /// child.stdout.take().unwrap().read_to_string(&mut text).await?;
    /// assert_eq!(text, "hello");
    /// assert!(child.wait().await?.success());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ChildStdin, process::ChildStdin
}
pipe! {
    /// The read end of the pipe from a child's standard output.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncBufReadExt, BufReader};
    /// use dapple::process::{Command, Stdio};
    ///
    /// # dapple::run(async {
    /// let mut child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
    /// let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    /// assert_eq!(lines.next_line().await?.as_deref(), Some("hello"));
    /// assert!(child.wait().await?.success());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ChildStdout, process::ChildStdout
}
pipe! {
    /// The read end of the pipe from a child's standard error.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::AsyncReadExt;
    /// use dapple::process::{Command, Stdio};
    ///
    /// # dapple::run(async {
    /// let mut child = Command::new("sh").args(["-c", "echo oops >&2"]).stderr(Stdio::piped()).spawn()?;
    /// let mut text = String::new();
    /// child.stderr.take().unwrap().read_to_string(&mut text).await?;
    /// assert_eq!(text, "oops\n");
    /// child.wait().await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ChildStderr, process::ChildStderr
}

read_end!(ChildStdout);
read_end!(ChildStderr);

impl ChildStdin {
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_vectored(cx, slices)
    }

    /// Returns at once: there is no buffer in this program.
    pub(crate) fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// A pipe is closed by dropping it.
    pub(crate) fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl_write!(ChildStdin);
