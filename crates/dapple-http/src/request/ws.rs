//! WebSockets for axum's routers, with the names of `axum::extract::ws`, which needs tokio.
//!
//! Framing is tungstenite's. Over HTTP/1.1 only: a client that speaks HTTP/2 opens a connection of its own for it, as
//! browsers do.
//!
//! # Examples
//!
//! ```
//! use axum::{Router, response::Response, routing::any};
//! use dapple_http::ws::{WebSocket, WebSocketUpgrade};
//!
//! async fn echo(upgrade: WebSocketUpgrade) -> Response {
//!     upgrade.on_upgrade(async |mut socket: WebSocket| {
//!         while let Some(Ok(message)) = socket.recv().await {
//!             if socket.send(message).await.is_err() {
//!                 break;
//!             }
//!         }
//!     })
//! }
//!
//! let router: Router = Router::new().route("/echo", any(echo));
//! ```
//!
//! # Timeouts
//!
//! The server's timeouts end with HTTP. A WebSocket whose peer has vanished, or reads nothing, stays open and counts as a
//! connection, until your own code ends it: send a [`Message::Ping`] now and then, and put a
//! [`timeout`](dapple::time::timeout()) around `recv` and `send`.
//!
//! # Shutdown
//!
//! A graceful shutdown waits for WebSockets until its [deadline](crate::Serve::shutdown_deadline), and then cuts them
//! without a `Close`. To end them at once and with a goodbye, give each of them a receiver of a
//! [`watch`](dapple::channel::watch) that changes at shutdown:
//!
//! ```
//! use axum::{Router, extract::State, response::Response, routing::any};
//! use dapple::channel::{oneshot, watch};
//! use dapple_http::ws::{Message, WebSocket, WebSocketUpgrade};
//!
//! async fn echo(upgrade: WebSocketUpgrade, State(mut closing): State<watch::Receiver<bool>>) -> Response {
//!     upgrade.on_upgrade(async move |mut socket: WebSocket| {
//!         let talk = async {
//!             while let Some(Ok(message)) = socket.recv().await {
//!                 if socket.send(message).await.is_err() {
//!                     break;
//!                 }
//!             }
//!         };
//!         let closed = async { closing.wait_for(|closing| *closing).await.map_or((), drop) };
//!         dapple::race((talk, closed)).await;
//!         let _ = socket.send(Message::Close(None)).await;
//!     })
//! }
//!
//! async fn server(
//!     listener: dapple::net::TcpListener,
//!     asked_to_end: oneshot::Receiver<()>,
//! ) -> std::io::Result<dapple_http::Served> {
//!     let (close, closing) = watch::channel(false);
//!     let router = Router::new().route("/echo", any(echo)).with_state(closing);
//!     let ending = async move {
//!         let _ = asked_to_end.await;
//!         let _ = close.send(true);
//!     };
//!     dapple_http::serve(listener, router).shutdown_on(ending).await
//! }
//! # let _ = server;
//! ```

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use async_tungstenite::tungstenite::handshake::derive_accept_key;
use async_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use async_tungstenite::{WebSocketStream, tungstenite};
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use futures_io::{AsyncRead, AsyncWrite};
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Version};
use hyper::upgrade::OnUpgrade;

pub use async_tungstenite::tungstenite::{Error, Utf8Bytes, protocol::CloseFrame};

use crate::request::upgrade::{self, Upgraded};

/// Extractor of axum for a request that asks for a WebSocket. Take it as an argument of a handler, and return
/// [`on_upgrade`](Self::on_upgrade). Other requests are answered with 400, 405 or 426, and the handler does not run.
///
/// # Examples
///
/// ```
/// use axum::{Router, response::Response, routing::any};
/// use dapple_http::ws::{Message, WebSocket, WebSocketUpgrade};
///
/// async fn greet(upgrade: WebSocketUpgrade) -> Response {
///     upgrade.max_message_size(64 << 10).on_upgrade(async |mut socket: WebSocket| {
///         let _ = socket.send(Message::text("hello")).await;
///     })
/// }
///
/// let router: Router = Router::new().route("/greet", any(greet));
/// ```
pub struct WebSocketUpgrade {
    config: WebSocketConfig,
    key: HeaderValue,
    asked: Option<HeaderValue>,
    chosen: Option<HeaderValue>,
    upgrade: OnUpgrade,
}

impl<S: Send + Sync> FromRequestParts<S> for WebSocketUpgrade {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<WebSocketUpgrade, Response> {
        let refuse = |status: StatusCode, why: &'static str| (status, why).into_response();
        if parts.method != Method::GET {
            return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, "a WebSocket is asked for by GET\n"));
        }
        if parts.version != Version::HTTP_11 {
            return Err(refuse(StatusCode::BAD_REQUEST, "a WebSocket is asked for by HTTP/1.1\n"));
        }
        if !has_token(&parts.headers, &CONNECTION, "upgrade")
            || !has_token(&parts.headers, &UPGRADE, "websocket")
        {
            let mut response = (StatusCode::UPGRADE_REQUIRED, "this is for WebSockets\n").into_response();
            let headers = response.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            return Err(response);
        }
        if parts.headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            let mut response =
                (StatusCode::UPGRADE_REQUIRED, "version 13 of WebSocket is spoken\n").into_response();
            response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            return Err(response);
        }
        let Some(key) = parts.headers.get(SEC_WEBSOCKET_KEY).cloned() else {
            return Err(refuse(StatusCode::BAD_REQUEST, "the header Sec-WebSocket-Key is missing\n"));
        };
        if !is_key(key.as_bytes()) {
            return Err(refuse(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key has to be 16 bytes in base64\n"));
        }
        let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() else {
            return Err(refuse(StatusCode::UPGRADE_REQUIRED, "this connection cannot become a WebSocket\n"));
        };
        let asked = parts.headers.get(SEC_WEBSOCKET_PROTOCOL).cloned();
        Ok(WebSocketUpgrade { config: WebSocketConfig::default(), key, asked, chosen: None, upgrade })
    }
}

/// Whether it is 16 bytes in base64 (RFC 6455, 4.2.1).
fn is_key(key: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.strip_suffix(b"==").is_some_and(|digits| digits.len() == 22 && digits.iter().all(is_base64))
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}

impl WebSocketUpgrade {
    /// Maximum size of a received message, in bytes. 64 MiB by default. A larger one ends `recv` with an error.
    pub fn max_message_size(mut self, bytes: usize) -> WebSocketUpgrade {
        self.config.max_message_size = Some(bytes);
        self
    }

    /// Maximum size of a received frame, a part of a message, in bytes. 16 MiB by default. A larger one ends `recv`
    /// with an error.
    pub fn max_frame_size(mut self, bytes: usize) -> WebSocketUpgrade {
        self.config.max_frame_size = Some(bytes);
        self
    }

    /// Offers application protocols (`Sec-WebSocket-Protocol`). The first of these that the client also names is
    /// chosen; see [`WebSocket::protocol`]. If there is none, the socket has no protocol.
    pub fn protocols<I>(mut self, protocols: I) -> WebSocketUpgrade
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let asked = self.asked.as_ref().and_then(|asked| asked.to_str().ok()).unwrap_or("");
        let is_known = |protocol: &I::Item| asked.split(',').any(|known| known.trim() == protocol.as_ref());
        self.chosen =
            protocols.into_iter().find(is_known).and_then(|it| HeaderValue::from_str(it.as_ref()).ok());
        self
    }

    /// Returns the response that accepts the WebSocket. Return it from the handler.
    ///
    /// When the response has been sent, `callback` runs with the socket, in a task of its own and in the color of the
    /// request. If the connection breaks before that, `callback` is dropped.
    pub fn on_upgrade<C, Fut>(self, callback: C) -> Response
    where
        C: FnOnce(WebSocket) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let WebSocketUpgrade { config, key, chosen, upgrade, .. } = self;
        let protocol = chosen.clone();
        let socket = async move {
            let Ok(stream) = upgrade::of(Some(upgrade)).await else { return };
            let was_cancelled = Arc::new(AtomicBool::new(false));
            let stream = CancelAsPending { stream, was_cancelled: was_cancelled.clone() };
            let inner = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
            callback(WebSocket { inner, was_cancelled, protocol }).await;
        };
        dapple::Color::current().spawn(socket).detach();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        let accept = derive_accept_key(key.as_bytes());
        headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&accept).expect("base64 is text"));
        if let Some(chosen) = chosen {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, chosen);
        }
        response
    }
}

/// Server's end of a WebSocket. Dropping it closes the connection without a goodbye: send a [`Message::Close`] first.
///
/// # Examples
///
/// ```
/// use dapple_http::ws::{Message, WebSocket};
///
/// /// Answers each text with its length, until the client closes.
/// async fn lengths(mut socket: WebSocket) {
///     while let Some(Ok(message)) = socket.recv().await {
///         if let Message::Text(text) = message
///             && socket.send(Message::text(text.len().to_string())).await.is_err()
///         {
///             break; // the client has gone
///         }
///     }
/// }
/// # let _ = lengths;
/// ```
pub struct WebSocket {
    inner: WebSocketStream<CancelAsPending>,
    /// See [`CancelAsPending`].
    was_cancelled: Arc<AtomicBool>,
    protocol: Option<HeaderValue>,
}

impl WebSocket {
    /// Receives the next message. `None` means that the connection has ended. Pings and the peer's `Close` are
    /// answered automatically.
    ///
    /// # Errors
    ///
    /// If the connection breaks, the peer violates the protocol, or a message is longer than
    /// [`max_message_size`](WebSocketUpgrade::max_message_size); if the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*, also by a [`race`](dapple::race) or a
    /// [`timeout`](dapple::time::timeout()): an [`Error::Io`] for which [`is_cancelled`](dapple::is_cancelled) is true, or a
    /// message that was there. The socket goes on: the next `recv` returns the next message.
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        loop {
            let next = poll_fn(|cx| {
                let next = Pin::new(&mut self.inner).poll_next(cx);
                cancelled_or(next, &self.was_cancelled, |error| Some(Err(error)))
            });
            let next = next.await?;
            match next.map(Message::of) {
                Ok(Some(message)) => {
                    if matches!(message, Message::Close(_)) {
                        // tungstenite sends its answer on the next read, and not every caller reads again.
                        poll_fn(|cx| Poll::Ready(Pin::new(&mut self.inner).poll_next(cx).is_ready())).await;
                        self.was_cancelled.store(false, Relaxed);
                    }
                    return Some(Ok(message));
                }
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Sends a message, and waits until the system has taken it.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or the message is too large.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the message may have been sent, or be sent with the next one. *Scope cancelled*: an
    /// error, with the same effect.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        let WebSocket { inner, was_cancelled, .. } = self;
        let mut sent = pin!(inner.send(message.into()));
        poll_fn(|cx| cancelled_or(sent.as_mut().poll(cx), was_cancelled, Err)).await
    }

    /// Returns the application protocol that was chosen of those in [`WebSocketUpgrade::protocols`]; `None` without
    /// one.
    #[must_use]
    pub fn protocol(&self) -> Option<&HeaderValue> {
        self.protocol.as_ref()
    }
}

/// The stream below a WebSocket. async-tungstenite takes any error of it for the end of the socket. A cancelled wait is
/// not the end, so it is shown as pending, and told beside it: [`cancelled_or`] makes it the result of the operation.
struct CancelAsPending {
    stream: Upgraded,
    was_cancelled: Arc<AtomicBool>,
}

impl CancelAsPending {
    fn hide<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Err(error)) if dapple::is_cancelled(&error) => {
                self.was_cancelled.store(true, Relaxed);
                Poll::Pending
            }
            polled => polled,
        }
    }
}

/// The result of a poll; or, if it is pending since a wait below was cancelled, that error.
fn cancelled_or<T>(polled: Poll<T>, was_cancelled: &AtomicBool, error: impl FnOnce(Error) -> T) -> Poll<T> {
    if !was_cancelled.load(Relaxed) {
        return polled;
    }
    was_cancelled.store(false, Relaxed);
    match polled {
        Poll::Pending => Poll::Ready(error(Error::Io(dapple::Cancelled.into()))),
        polled => polled,
    }
}

impl AsyncRead for CancelAsPending {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.hide(polled)
    }
}

impl AsyncWrite for CancelAsPending {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.hide(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.hide(polled)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_close(cx);
        self.hide(polled)
    }
}

/// A message of a WebSocket.
///
/// # Examples
///
/// ```
/// use dapple_http::ws::Message;
///
/// assert_eq!(Message::text("hello"), Message::Text("hello".into()));
/// assert_eq!(Message::binary(vec![1, 2]), Message::Binary(vec![1, 2].into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text, in UTF-8.
    Text(Utf8Bytes),
    /// Bytes without a format.
    Binary(Bytes),
    /// Ping: asks the peer for a pong with the same bytes. Received ones are answered automatically.
    Ping(Bytes),
    /// Pong: the peer's reply to a ping.
    Pong(Bytes),
    /// Goodbye, with an optional code and reason. The peer sends none after it.
    Close(Option<CloseFrame>),
}

impl Message {
    /// Makes a message of text.
    pub fn text(text: impl Into<Utf8Bytes>) -> Message {
        Message::Text(text.into())
    }

    /// Makes a message of bytes.
    pub fn binary(bytes: impl Into<Bytes>) -> Message {
        Message::Binary(bytes.into())
    }

    fn of(message: tungstenite::Message) -> Option<Message> {
        Some(match message {
            tungstenite::Message::Text(text) => Message::Text(text),
            tungstenite::Message::Binary(bytes) => Message::Binary(bytes),
            tungstenite::Message::Ping(bytes) => Message::Ping(bytes),
            tungstenite::Message::Pong(bytes) => Message::Pong(bytes),
            tungstenite::Message::Close(frame) => Message::Close(frame),
            tungstenite::Message::Frame(_) => return None,
        })
    }
}

impl From<Message> for tungstenite::Message {
    fn from(message: Message) -> tungstenite::Message {
        match message {
            Message::Text(text) => tungstenite::Message::Text(text),
            Message::Binary(bytes) => tungstenite::Message::Binary(bytes),
            Message::Ping(bytes) => tungstenite::Message::Ping(bytes),
            Message::Pong(bytes) => tungstenite::Message::Pong(bytes),
            Message::Close(frame) => tungstenite::Message::Close(frame),
        }
    }
}

impl fmt::Debug for WebSocketUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketUpgrade").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}
