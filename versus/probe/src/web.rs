//! Requests over HTTP/1.1, one at a time over one connection, with a small answer.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpStream as StdStream;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

use crate::meter::Meter;
use crate::outside::{Load, listen};

const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nhost: localhost\r\nuser-agent: versus-probe\r\naccept: */*\r\n\r\n";
const ANSWER: &[u8] = b"\r\n\r\nhello";

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello"))))
}

pub(crate) async fn requests(count: usize, meter: Meter) -> f64 {
    let (listener, address) = listen().await;
    let server = dapple::spawn(dapple_http::serve(listener, service_fn(hello)).into_future());
    let mut client = StdStream::connect(address).expect("a listener");
    let load = Load::start(move || {
        client.write_all(REQUEST).expect("a server that reads");
        let (mut answer, mut length) = ([0; 1000], 0);
        while !answer[..length].ends_with(ANSWER) {
            match client.read(&mut answer[length..]).expect("an answer") {
                0 => panic!("no answer, but {:?}", String::from_utf8_lossy(&answer[..length])),
                more => length += more,
            }
        }
    });
    let cost = meter.of(count, |count| load.times(count)).await;
    server.cancel();
    cost
}
