//! hyper on the sockets of each runtime: a task for each connection, HTTP/1.1, kept alive, `TCP_NODELAY`, and no
//! timeouts, all of them alike.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use smol_hyper::rt::FuturesIo;

use crate::contest::Failure;
use crate::served::answer;
use crate::sides::Side;
use crate::sides::net::{Net, OfDapple, OfSmol, OfTokio};

/// An answer.
pub(crate) type Reply = Response<Full<Bytes>>;

/// The handler of a server: answers requests. A server has one for as long as it lives.
pub(crate) trait Handler: Sync + 'static {
    fn answer(&'static self, request: Request<Incoming>) -> impl Future<Output = Reply> + Send + 'static;
}

/// A runtime's sockets, as hyper wants them.
pub(crate) trait HyperNet: Net {
    type Io: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static;

    fn io(stream: Self::Stream) -> Self::Io;
}

impl HyperNet for OfDapple {
    type Io = Self::Stream;

    fn io(stream: Self::Stream) -> Self::Io {
        stream
    }
}

impl HyperNet for OfTokio {
    type Io = TokioIo<Self::Stream>;

    fn io(stream: Self::Stream) -> Self::Io {
        TokioIo::new(stream)
    }
}

impl HyperNet for OfSmol {
    type Io = FuturesIo<Self::Stream>;

    fn io(stream: Self::Stream) -> Self::Io {
        FuturesIo::new(stream)
    }
}

/// A handler, as hyper wants it.
pub(crate) fn service<H: Handler>(
    handler: &'static H,
) -> impl Service<Request<Incoming>, Response = Reply, Error = Infallible, Future: Send> + Clone + Send {
    service_fn(move |request| {
        let reply = handler.answer(request);
        async move { Ok::<_, Infallible>(reply.await) }
    })
}

/// Accepts for ever, inside of a runtime.
pub(crate) async fn serve<S: Side, N: HyperNet, H: Handler>(side: S, handler: H) -> ! {
    let handler: &'static H = Box::leak(Box::new(handler));
    let (mut listener, address) = N::bind().await;
    answer(address);
    loop {
        let stream = N::accept(&mut listener).await;
        N::set_nodelay(&stream);
        let service = service(handler);
        let connection = http1::Builder::new().serve_connection(N::io(stream), service);
        // A client that hangs up is no failure.
        S::detach(side.spawn(async move { drop(connection.await) }));
    }
}

/// The same by `dapple_http`, with all that it does by itself: limits, timeouts, a handler that is cancelled when its
/// client goes away.
pub(crate) async fn serve_dapple_http<H: Handler>(handler: H) -> Result<(), Failure> {
    let handler: &'static H = Box::leak(Box::new(handler));
    let (listener, address) = OfDapple::bind().await;
    answer(address);
    let served = dapple_http::serve(listener, service(handler)).await;
    Err(format!("the server has ended: {served:?}"))
}
