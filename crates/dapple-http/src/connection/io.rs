//! The stream of a connection, as hyper sees it: reads and writes are sent to the connection as events.
//!
//! Whether a client is gone while its request is under way is not left to hyper, which would try to read behind each
//! head, into a buffer made for that. The stream looks instead, when hyper flushes it at the end of a poll: for the end
//! of the client's bytes, if the request is read to its end; and where nothing more can be read, for a reset.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::shared::{LookFor, ReadMode, StreamHandle};
use crate::connection::client_stream::ClientStream;
use crate::registry::{ConnectionPermit, ShutdownListener, ShutdownStage};

/// The most that is read at once before hyper takes over, and after the connection has ended.
const SOME: usize = 8 * 1024;

/// The reply to a client whose head did not come in time.
const LATE_HEAD: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Reads a little, and shows what was read; nothing, if that was the end.
fn poll_some<S: Read + Unpin, R>(
    stream: &mut S,
    cx: &mut Context<'_>,
    look: impl FnOnce(&[u8]) -> R,
) -> Poll<io::Result<R>> {
    let mut buffer = [MaybeUninit::uninit(); SOME];
    dapple::hyper::poll_look(stream, cx, ReadBuf::uninit(&mut buffer).unfilled(), look)
}

/// See the head of the file.
pub(crate) struct ConnectionIo<S> {
    stream: S,
    /// Bytes that were read before hyper took over.
    first: Bytes,
    handle: StreamHandle,
    /// The client has shut down its side: nothing more will come.
    is_ended: bool,
    /// No more is written.
    is_shut: bool,
    /// The sign to look for in the flush that follows a write: hyper does nothing between the two.
    next_look: Option<LookFor>,
    /// How much of [`LATE_HEAD`] was written.
    said: usize,
    /// After an upgrade to another protocol: wakes the stream's task when the connection is cut.
    listed: Option<ShutdownListener>,
    _permit: ConnectionPermit,
}

impl<S: ClientStream> ConnectionIo<S> {
    pub(crate) fn new(stream: S, handle: StreamHandle, permit: ConnectionPermit) -> ConnectionIo<S> {
        ConnectionIo {
            stream,
            first: Bytes::new(),
            handle,
            is_ended: false,
            is_shut: false,
            next_look: None,
            said: 0,
            listed: None,
            _permit: permit,
        }
    }

    /// Reads more of the first bytes, which hyper will be given.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let read = ready!(poll_some(&mut self.stream, cx, Bytes::copy_from_slice))?;
        self.is_ended = read.is_empty();
        match self.first.is_empty() {
            true => self.first = read,
            false => self.first = [&self.first[..], &read[..]].concat().into(),
        }
        Poll::Ready(Ok(()))
    }

    /// An error if the server has cut what is left, once HTTP is over; and if it does so later, this is polled again.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let server = self.handle.server();
        match &self.listed {
            Some(listed) => listed.renew(cx.waker()),
            None => self.listed = Some(server.enter_stream(cx.waker())),
        }
        Poll::Ready(match server.stage() {
            ShutdownStage::Cutting => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server has ended"))
            }
            _ => Ok(()),
        })
    }

    /// Looks whether the client is gone while a request is under way, and tells the connection. Bytes that come are kept
    /// for hyper.
    fn look(&mut self, look_for: LookFor, cx: &mut Context<'_>) {
        if look_for == LookFor::End && self.first.is_empty() {
            match self.poll_more(cx) {
                Poll::Ready(Ok(())) if self.is_ended => self.handle.peer_finished(),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.handle.peer_gone(),
                Poll::Pending => return, // a reset ends that wait, too
            }
        }
        if self.stream.poll_closed(cx).is_ready() {
            self.handle.peer_gone();
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    pub(crate) fn first(&self) -> &[u8] {
        &self.first
    }

    /// Writes [`LATE_HEAD`]. If the socket does not take it at once, the connection's time to close bounds the wait.
    fn poll_say_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        while self.said < LATE_HEAD.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &LATE_HEAD[self.said..])) {
                Ok(0) => return Poll::Ready(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.said += count,
                Err(error) => return Poll::Ready(error),
            }
        }
        let text = "the head of a request did not come in time";
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

impl<S: ClientStream> Read for ConnectionIo<S> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let count = this.first.len().min(cursor.remaining());
            let read = this.first.split_to(count);
            cursor.put_slice(&read);
            return Poll::Ready(this.handle.read(&read).map_err(io::Error::from));
        }
        let reading = this.handle.reading();
        match reading {
            ReadMode::Plain | ReadMode::Bare => {}
            ReadMode::HeadLate => return this.poll_say_late(cx).map(Err),
            ReadMode::BodyLate => {
                let text = "the body of a request did not come in time";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
            }
            ReadMode::Ended => {
                ready!(this.poll_cut(cx))?;
                return Pin::new(&mut this.stream).poll_read(cx, cursor);
            }
        }
        let ConnectionIo { stream, handle, is_ended, .. } = this;
        let polled = dapple::hyper::poll_look(stream, cx, cursor, |read| {
            *is_ended = read.is_empty();
            if reading == ReadMode::Bare {
                handle.bare_read(read.len());
            }
            if read.is_empty() { Ok(()) } else { handle.read(read) }
        });
        if reading == ReadMode::Bare && polled.is_pending() {
            handle.bare_read(0);
        }
        Poll::Ready(ready!(polled)?.map_err(io::Error::from))
    }
}

impl<S: ClientStream> ConnectionIo<S> {
    #[inline]
    fn note_write(
        &mut self,
        polled: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // Encrypted bytes are counted below, at the socket. BY-THE-SOCKET in `encrypted`
        let is_ended = match self.handle.is_tls() {
            true => self.handle.reading() == ReadMode::Ended,
            false => {
                let written = self.handle.wrote(&polled);
                self.next_look = written.next_look;
                if written.asks_kernel {
                    self.handle.unacknowledged(self.stream.unacknowledged());
                }
                written.is_ended
            }
        };
        if is_ended { self.note_write_after_end(polled, cx) } else { polled }
    }

    /// HTTP is over: an error if the server has cut the stream. A stream that was read is listed with the waker of its
    /// reader, and stays so.
    #[cold]
    fn note_write_after_end(
        &mut self,
        polled: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.listed.is_none() || self.handle.server().stage() == ShutdownStage::Cutting {
            ready!(self.poll_cut(cx))?;
        }
        polled
    }
}

impl<S: ClientStream> Write for ConnectionIo<S> {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_write(polled, cx)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_write(polled, cx)
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes at the end of each of its polls, also if a service has to be waited for.
    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let look_for = self.next_look.take().unwrap_or_else(|| self.handle.look_for());
        if look_for != LookFor::Nothing {
            self.look(look_for, cx);
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Closes, but if the client is still sending, not before it has noticed: or the kernel would take back the
    /// answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.is_shut = true;
        }
        if this.is_ended {
            return Poll::Ready(Ok(()));
        }
        if this.first.is_empty() && !this.handle.is_peer_sending() {
            // The stream has not looked while the last request was under way: bytes may have come all the same.
            match poll_some(&mut this.stream, cx, <[u8]>::is_empty) {
                Poll::Ready(Ok(false)) => this.handle.body_unread(),
                Poll::Ready(Ok(true) | Err(_)) | Poll::Pending => return Poll::Ready(Ok(())),
            }
        }
        this.handle.closing();
        while !this.is_ended && !this.handle.is_closed() {
            match ready!(poll_some(&mut this.stream, cx, <[u8]>::is_empty)) {
                Ok(is_ended) => this.is_ended = is_ended,
                Err(_it_is_over_as_well) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
