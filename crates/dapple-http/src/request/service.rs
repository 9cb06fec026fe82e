//! One trait for the services that can be served: those of tower (with axum's `Router`) and of hyper.
//!
//! One blanket implementation cannot cover both kinds, so each kind has a *marker*, a type that callers never name:
//! rustc infers the only one that fits.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use crate::connection::shared::RequestHandle;
use crate::error::BoxError;
use crate::request::body::Body;

/// A service as [`serve`](crate::serve()) calls it, made by [`IntoHandler`]. Each connection has its own clone.
///
/// Sealed: to handle requests in your own way, write a service of tower or hyper.
///
/// # Examples
///
/// ```
/// use dapple_http::{Handler, IntoHandler};
///
/// /// Takes any service that `serve` takes.
/// fn prepare<S: IntoHandler<M>, M>(service: S) -> impl Handler {
///     service.into_handler()
/// }
///
/// let _handler = prepare(axum::Router::new());
/// ```
pub trait Handler: sealed::Sealed + Clone + Send + 'static {
    /// The body of a response.
    type Body: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static;
    /// The future of one response.
    type Future: Future<Output = Result<Response<Self::Body>, BoxError>> + Send + 'static;

    /// Begins with a request.
    #[doc(hidden)]
    fn handle(&self, request: Request<Incoming>, within: Within<'_>) -> Self::Future;
}

/// Keeps implementations of [`Handler`] inside of this crate: how a request is given to it may change.
mod sealed {
    pub trait Sealed {}
}

/// The request that a handler is given.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Within<'a>(pub(crate) &'a RequestHandle);

impl std::fmt::Debug for Within<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Within")
    }
}

/// A tower or hyper service, as [`serve`](crate::serve()) takes it. The compiler infers `M`.
///
/// * tower: `Service<Request<Body>> + Clone`, and with it axum's `Router`;
/// * hyper: `Service<Request<Body>> + Clone` or `Service<Request<Incoming>> + Clone`, such as `service_fn`.
///
/// Prefer [`Body`] to hyper's `Incoming`, for which the limits on bodies are weaker:
///
/// * the [time limit](crate::Serve::body_timeout) counts also while the service waits for something other than the body;
/// * with HTTP/2 there is no time limit, and the limit of size holds only for bodies with a declared length.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be served",
    label = "not a service",
    note = "serve takes an axum Router, a tower Service<Request<dapple_http::Body>> or a hyper Service, with \
            `Clone + Send + 'static`, futures that are `Send`, and a response whose body is an http_body::Body"
)]
pub trait IntoHandler<M> {
    /// The handler that the service becomes.
    type Handler: Handler;

    /// Converts the service into its handler.
    #[doc(hidden)]
    fn into_handler(self) -> Self::Handler;
}

/// Marks services of tower.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum ByTower {}

/// Marks services of hyper that take a [`Body`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum ByHyper {}

/// Marks services of hyper that take an `Incoming`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum ByHyperIncoming {}

/// A service of tower.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Tower<S>(S);

impl<S, B> IntoHandler<ByTower> for S
where
    S: tower_service::Service<Request<Body>, Response = Response<B>, Future: Send, Error: Into<BoxError>>,
    S: Clone + Send + 'static,
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Handler = Tower<S>;

    fn into_handler(self) -> Tower<S> {
        Tower(prepared(self))
    }
}

/// Gives the state `()` to an axum router that has no state yet. Without it the router would make its routes anew for
/// each request.
#[cfg(feature = "axum")]
fn prepared<S: 'static>(mut service: S) -> S {
    if let Some(router) = (&mut service as &mut dyn std::any::Any).downcast_mut::<axum::Router>() {
        *router = std::mem::take(router).with_state(());
    }
    service
}

#[cfg(not(feature = "axum"))]
fn prepared<S>(service: S) -> S {
    service
}

impl<S> sealed::Sealed for Tower<S> {}

impl<S, B> Handler for Tower<S>
where
    S: tower_service::Service<Request<Body>, Response = Response<B>, Future: Send, Error: Into<BoxError>>,
    S: Clone + Send + 'static,
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
    type Future = WhenReady<S>;

    #[inline]
    fn handle(&self, request: Request<Incoming>, within: Within<'_>) -> WhenReady<S> {
        let request = request.map(|incoming| Body::new(incoming, within.0));
        WhenReady::Waiting { service: self.0.clone(), request: Some(request) }
    }
}

pin_project! {
    /// Calls a service of tower when it is ready.
    #[doc(hidden)]
    #[project = WhenReadyProjection]
    #[allow(missing_debug_implementations, reason = "a future that programs do not name")]
    pub enum WhenReady<S: tower_service::Service<Request<Body>>> {
        #[doc(hidden)]
        Waiting { service: S, request: Option<Request<Body>> },
        #[doc(hidden)]
        Called { #[pin] future: S::Future },
    }
}

impl<S, B> Future for WhenReady<S>
where
    S: tower_service::Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>,
{
    type Output = Result<Response<B>, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let WhenReadyProjection::Waiting { service, request } = self.as_mut().project() {
            ready!(service.poll_ready(cx)).map_err(Into::into)?;
            let request = request.take().expect("it is called once");
            let future = service.call(request);
            self.set(WhenReady::Called { future });
        }
        match self.project() {
            WhenReadyProjection::Called { future } => future.poll(cx).map_err(Into::into),
            WhenReadyProjection::Waiting { .. } => unreachable!("it was called above"),
        }
    }
}

macro_rules! by_hyper {
    ($marker:ident, $kind:ident, $body:ty, $with_body:expr, $text:literal) => {
        #[doc = $text]
        #[doc(hidden)]
        #[derive(Clone, Debug)]
        pub struct $kind<S>(S);

        impl<S, B> IntoHandler<$marker> for S
        where
            S: hyper::service::Service<Request<$body>, Response = Response<B>>,
            S::Future: Send + 'static,
            S::Error: Into<BoxError>,
            S: Clone + Send + 'static,
            B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
        {
            type Handler = $kind<S>;

            fn into_handler(self) -> $kind<S> {
                $kind(self)
            }
        }

        impl<S> sealed::Sealed for $kind<S> {}

        impl<S, B> Handler for $kind<S>
        where
            S: hyper::service::Service<Request<$body>, Response = Response<B>>,
            S::Future: Send + 'static,
            S::Error: Into<BoxError>,
            S: Clone + Send + 'static,
            B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
        {
            type Body = B;
            type Future = Boxing<S::Future>;

            #[inline]
            fn handle(&self, request: Request<Incoming>, within: Within<'_>) -> Self::Future {
                let with_body: fn(Request<Incoming>, &RequestHandle) -> Request<$body> = $with_body;
                Boxing { future: self.0.call(with_body(request, within.0)) }
            }
        }
    };
}

by_hyper!(
    ByHyper,
    Hyper,
    Body,
    |request, handle| request.map(|incoming| Body::new(incoming, handle)),
    "A service of hyper that takes a [`Body`]."
);
by_hyper!(
    ByHyperIncoming,
    HyperIncoming,
    Incoming,
    |request, handle| {
        if !http_body::Body::is_end_stream(request.body()) {
            handle.body_is_bare();
        }
        request
    },
    "A service of hyper that takes what hyper gives."
);

pin_project! {
    /// Makes any error a boxed one.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct Boxing<F> {
        #[pin]
        future: F,
    }
}

impl<F, T, E> Future for Boxing<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().future.poll(cx).map_err(Into::into)
    }
}
