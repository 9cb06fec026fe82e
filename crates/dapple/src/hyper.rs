//! Support for [hyper](https://docs.rs/hyper): an [`Executor`], a [`Timer`], and its traits `Read` and
//! `Write`, which all streams of [`net`](crate::net) implement.
//!
//! Needs the feature `hyper`.
//!
//! # Examples
//!
//! A server for one connection:
//!
//! ```
//! use dapple::net::{TcpListener, TcpStream};
//! use futures_lite::{AsyncReadExt, AsyncWriteExt};
//! use http_body_util::Full;
//! use hyper::body::{Bytes, Incoming};
//! use hyper::{Request, Response, server::conn::http1, service::service_fn};
//! use std::convert::Infallible;
//!
//! async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
//!     Ok(Response::new(Full::new("hello".into())))
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! dapple::run(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let mut client = TcpStream::connect(listener.local_addr()?).await?;
//!     let (stream, _) = listener.accept().await?;
//!     let serving = dapple::spawn(
//!         http1::Builder::new().timer(dapple::hyper::Timer).serve_connection(stream, service_fn(hello)),
//!     );
//!     client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
//!     let mut answer = String::new();
//!     client.read_to_string(&mut answer).await?;
//!     assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"));
//!     serving.await.unwrap().unwrap();
//!     Ok(())
//! })
//! # }
//! ```

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::ReadBufCursor;
use rustix::net::RecvFlags;

use crate::net::TcpStream;
use crate::source::Direction;
use crate::source::stream::Stream;
use crate::time;

/// hyper's executor: spawns each of hyper's tasks with a color of its own, on the runtime of the task that
/// uses it.
///
/// # Panics
///
/// If it is used outside of a runtime.
///
/// # Examples
///
/// ```
/// use hyper::rt::Executor;
///
/// dapple::run(async {
///     let (tell, told) = dapple::channel::oneshot::channel();
///     let executor = dapple::hyper::Executor; // give it to hyper's builders for HTTP/2
///     executor.execute(async move { tell.send("ran").is_ok() });
///     assert_eq!(told.await.unwrap(), "ran");
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        crate::spawn(future).detach();
    }
}

/// hyper's executor for services that are not `Send`: spawns tasks in the main color, on the current thread.
///
/// # Panics
///
/// If it is used outside of a main color; see [`spawn_local`](crate::spawn_local).
///
/// # Examples
///
/// ```
/// use hyper::rt::Executor;
/// use std::rc::Rc;
///
/// dapple::run(async {
///     let (tell, told) = dapple::channel::oneshot::channel();
///     let name = Rc::new("ran"); // not `Send`
///     dapple::hyper::LocalExecutor.execute(async move { tell.send(name.len()).is_ok() });
///     assert_eq!(told.await.unwrap(), 3);
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        crate::spawn_local(future).detach();
    }
}

/// hyper's timer: gives hyper the runtime's clock, for its timeouts.
///
/// # Cancellation
///
/// hyper has no cancelled timers, and takes the end of a timer for a timeout. So in a cancelled task a timer
/// never ends: the connection ends by its I/O, which returns an error.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, Instant};
/// use hyper::rt::Timer;
///
/// dapple::run(async {
///     let timer = dapple::hyper::Timer; // give it to hyper's builders
///     let begun = Instant::now();
///     timer.sleep(Duration::from_millis(1)).await;
///     assert!(begun.elapsed() >= Duration::from_millis(1));
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(time::sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(time::sleep_until(deadline.into())))
    }

    fn now(&self) -> Instant {
        time::Instant::now().into()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(mut sleep) => sleep.0.reset(deadline.into()),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// A sleep that stays pending when cancelled.
struct HyperSleep(time::Sleep);

impl hyper::rt::Sleep for HyperSleep {}

impl Future for HyperSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(()) => Poll::Ready(()),
            Err(_cancelled) => Poll::Pending,
        }
    }
}

impl hyper::rt::Read for TcpStream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        poll_read(&mut self.get_mut().0, cx, cursor)
    }
}

/// Reads into hyper's buffer, which need not be initialised: the kernel fills it.
fn poll_read<T: AsFd>(
    stream: &mut Stream<T>,
    cx: &mut Context<'_>,
    mut cursor: ReadBufCursor<'_>,
) -> Poll<io::Result<()>> {
    let wanted = cursor.remaining();
    if wanted == 0 {
        return Poll::Ready(Ok(()));
    }
    let n = ready!(stream.source.poll_stream(cx, Direction::Read, &mut stream.reading, wanted, |io| {
        // SAFETY: the kernel only fills it, so no byte becomes uninitialised.
        let buffer = unsafe { cursor.as_mut() };
        let (_, count) = rustix::net::recv(io, buffer, RecvFlags::empty())?;
        Ok(count)
    }))?;
    // SAFETY: the kernel has filled `n` bytes.
    unsafe { cursor.advance(n) };
    Poll::Ready(Ok(()))
}

/// Reads from a stream into hyper's buffer, and calls `look` with the new bytes, which are none at the end of
/// the stream. Use it in a stream that wraps another one and must see its data.
///
/// # Errors
///
/// Those of the stream; `look` is not called then.
///
/// # Examples
///
/// A stream that counts:
///
/// ```
/// use hyper::rt::{Read, ReadBufCursor};
/// use std::{io, pin::Pin, task::{Context, Poll}};
///
/// struct Counting<S> {
///     stream: S,
///     count: usize,
/// }
///
/// impl<S: Read + Unpin> Read for Counting<S> {
///     fn poll_read(
///         mut self: Pin<&mut Self>,
///         cx: &mut Context<'_>,
///         cursor: ReadBufCursor<'_>,
///     ) -> Poll<io::Result<()>> {
///         let Counting { stream, count } = &mut *self;
///         dapple::hyper::poll_look(stream, cx, cursor, |bytes| *count += bytes.len())
///     }
/// }
/// ```
#[inline]
pub fn poll_look<S: hyper::rt::Read + Unpin, R>(
    stream: &mut S,
    cx: &mut Context<'_>,
    mut cursor: ReadBufCursor<'_>,
    look: impl FnOnce(&[u8]) -> R,
) -> Poll<io::Result<R>> {
    // SAFETY: it is passed on as a `ReadBuf`, which does not let a byte become uninitialised.
    let mut buffer = hyper::rt::ReadBuf::uninit(unsafe { cursor.as_mut() });
    ready!(Pin::new(stream).poll_read(cx, buffer.unfilled()))?;
    let filled = buffer.filled();
    let (result, count) = (look(filled), filled.len());
    // SAFETY: the stream has filled `count` bytes.
    unsafe { cursor.advance(count) };
    Poll::Ready(Ok(result))
}
