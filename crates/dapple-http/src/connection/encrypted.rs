//! The stream of an encrypted connection: hyper's traits on top of rustls, and the socket below it.
//!
//! Written bytes are encrypted into a buffer of rustls's and go to the socket from there. The size of that buffer sets
//! the cost per byte: a system call, the kernel's work for a segment, and the wake-up of the reader cost the same for
//! 64 KB as for 256, and together as much as the encryption. So the buffer grows while the client takes all that it is
//! given, and shrinks for a client that does not: a slow reader does not hold more than [`LEAST`] for long.
//!
//! # Invariants
//!
//! * **BY-THE-SOCKET**: the progress of a client is noted where the socket takes bytes or has no room ([`Wire`]), also while
//!   the stream is flushed or closed. Bytes that rustls takes into its buffer are no progress of the client.
//! * **GIVES-WAY**: a write for which rustls took bytes, and the socket took none, is followed by a `Pending`. rustls returns
//!   `Ready` for it, and its caller would go on: past the budget of the task, if that is why the socket had to wait.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};
use futures_rustls::server::TlsStream;
use hyper::rt::{Read, ReadBufCursor, Write};

use super::shared::StreamHandle;
use crate::connection::client_stream::ClientStream;

/// No record is longer.
const RECORD: usize = 16 * 1024;

/// How much is encrypted before it is sent, at the least and at the most: whole records, and so that what is encrypted is
/// still in the processor's cache when the kernel takes it from there.
const LEAST: usize = 4 * RECORD;
const MOST: usize = 16 * RECORD;

/// The buffers on the way to a client that reads nothing take at most this many bytes. A client to which more was sent
/// is known to read.
const PROVEN: u64 = 4 << 20;

thread_local! {
    /// Empty until it is first used, and while it is in use.
    static PLAIN: Cell<Box<[u8]>> = Cell::default();
}

/// See the head of the file.
pub(crate) struct Encrypted<S> {
    stream: TlsStream<Wire<S>>,
    /// How much rustls may have in its buffer.
    room: usize,
    /// How much it has taken so far.
    taken: u64,
    /// The last write left bytes in the buffer. GIVES-WAY
    gives_way: bool,
}

impl<S> Encrypted<S> {
    pub(crate) fn new(mut stream: TlsStream<Wire<S>>) -> Encrypted<S> {
        stream.get_mut().1.set_buffer_limit(Some(LEAST));
        Encrypted { stream, room: LEAST, taken: 0, gives_way: false }
    }

    /// Adapts the buffer after a write that took `taken` bytes.
    fn adapt(&mut self, taken: usize) {
        self.taken += taken as u64;
        let session = self.stream.get_mut().1;
        let room = match session.wants_write() {
            true => (self.room / 2).max(LEAST), // the socket is full, or others have their turn
            false if taken >= self.room && self.taken >= PROVEN => (2 * self.room).min(MOST),
            false => return,
        };
        if room != self.room {
            self.room = room;
            session.set_buffer_limit(Some(room));
        }
    }

    fn adapted(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(taken)) => self.adapt(taken),
            Poll::Pending => self.adapt(0),
            Poll::Ready(Err(_)) => {}
        }
        polled
    }
}

impl<S: ClientStream + AsyncRead + AsyncWrite> Read for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // rustls decrypts in its own buffer and copies from there into one that is initialised. To copy once more
        // is cheaper than to initialise hyper's each time, for how little comes at a time.
        // It is taken out meanwhile, not borrowed: the stream is foreign code, in which a virtual thread may give way
        // to another that reads here, too.
        let mut plain = PLAIN.take();
        if plain.is_empty() {
            plain = vec![0; RECORD].into();
        }
        let room = cursor.remaining().min(RECORD);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut plain[..room]);
        if let Poll::Ready(Ok(count)) = polled {
            cursor.put_slice(&plain[..count]);
        }
        PLAIN.set(plain);
        polled.map_ok(|_| ())
    }
}

impl<S: ClientStream + AsyncRead + AsyncWrite> Write for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // As one of several: rustls would go on for as long as there is room in the socket, and the buffer would not grow.
        self.as_mut().poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if std::mem::take(&mut self.gives_way) {
            cx.waker().wake_by_ref();
            return Poll::Pending; // GIVES-WAY
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.gives_way = matches!(polled, Poll::Ready(Ok(_))) && self.stream.get_ref().1.wants_write();
        self.adapted(polled)
    }

    /// rustls fills its records from several slices, without joining them before.
    #[inline]
    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    #[inline]
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

impl<S: ClientStream + AsyncRead + AsyncWrite> ClientStream for Encrypted<S> {
    /// Of the socket: what the client has encrypted says nothing of a reset.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.get_mut().0.stream.poll_closed(cx)
    }
}

/// The socket below. BY-THE-SOCKET
pub(crate) struct Wire<S> {
    stream: S,
    /// Whether the first byte was that of a request in plain text; not known before it has come.
    is_plain: Option<bool>,
    handle: StreamHandle,
}

impl<S> Wire<S> {
    pub(crate) fn new(stream: S, handle: StreamHandle) -> Wire<S> {
        Wire { stream, is_plain: None, handle }
    }

    /// Whether the client speaks HTTP without TLS. Then the handshake has failed.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain == Some(true)
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: ClientStream> Wire<S> {
    fn note(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if self.handle.wrote(&polled).asks_kernel {
            self.handle.unacknowledged(self.stream.unacknowledged());
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        // Records of TLS begin with the byte 22, and methods of HTTP with a capital letter.
        if *self.is_plain.get_or_insert(buffer[..count].first().is_some_and(u8::is_ascii_uppercase)) {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(count))
    }
}

impl<S: ClientStream + AsyncWrite> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = AsyncWrite::poll_write(Pin::new(&mut self.stream), cx, bytes);
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = AsyncWrite::poll_write_vectored(Pin::new(&mut self.stream), cx, slices);
        self.note(polled)
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.stream), cx)
    }

    #[inline]
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}
