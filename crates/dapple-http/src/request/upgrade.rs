//! Connections that become something else than HTTP.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};
use http::Request;
use hyper::rt::{Read, ReadBuf, Write};
use hyper::upgrade::OnUpgrade;

use crate::error::Error;

/// Takes over the connection of a request, for a protocol other than HTTP. The returned future gives the connection
/// once the request has been answered with 101, or with 200 to `CONNECT`.
///
/// Spawn a task that awaits it, in `dapple::Color::current()` if it should stay in the color of the request, and
/// return the response. The connection counts as open while it is used. After a shutdown it may go on until the
/// [deadline](crate::Serve::shutdown_deadline); then reading and writing end with errors.
///
/// The server's timeouts end with HTTP: set your own ([`dapple::time::timeout`](dapple::time::timeout())) around reads and
/// writes. Without them a peer that vanished, or that reads nothing, keeps its connection.
///
/// # Examples
///
/// An echo service with a protocol of its own:
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt};
/// use http::{Request, Response, StatusCode, header};
/// use http_body_util::Empty;
/// use std::convert::Infallible;
///
/// async fn parrot(mut request: Request<dapple_http::Body>) -> Result<Response<Empty<bytes::Bytes>>, Infallible> {
///     let upgraded = dapple_http::upgrade(&mut request);
///     let parrot = dapple::Color::current().spawn(async move {
///         let mut stream = upgraded.await?;
///         let mut word = [0; 5];
///         stream.read_exact(&mut word).await.map_err(std::io::Error::from)?;
///         stream.write_all(&word).await.map_err(std::io::Error::from)?;
///         stream.close().await
///     });
///     parrot.detach();
///     let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).header(header::UPGRADE, "parrot");
///     Ok(answer.body(Empty::new()).unwrap())
/// }
/// ```
///
/// # Errors
///
/// If the request did not ask for an upgrade, or the response was not 101 (or 200 to `CONNECT`).
///
/// # Cancellation
///
/// *Dropped early*: the connection is closed. *Scope cancelled*: goes on waiting; it ends when the request is answered.
pub fn upgrade<B>(
    request: &mut Request<B>,
) -> impl Future<Output = io::Result<Upgraded>> + Send + 'static + use<B> {
    of(request.extensions_mut().remove::<OnUpgrade>())
}

pub(crate) async fn of(upgrade: Option<OnUpgrade>) -> io::Result<Upgraded> {
    let Some(upgrade) = upgrade else {
        return Err(Error::not_upgraded("the client did not ask for another protocol (Upgrade)").into());
    };
    match upgrade.await {
        Ok(upgraded) => Ok(Upgraded(upgraded)),
        Err(why) => {
            Err(Error::not_upgraded(&format!("the connection did not change its protocol: {why}")).into())
        }
    }
}

/// Connection that was taken over by [`upgrade`]: a stream of bytes that is not HTTP any more. Bytes that the client
/// sent behind its request come first.
pub struct Upgraded(hyper::upgrade::Upgraded);

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.0).poll_read(cx, buffer.unfilled()))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").finish_non_exhaustive()
    }
}
