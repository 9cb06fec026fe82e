//! `echo`: a server sends back what it gets, message by message.

use std::net::SocketAddr;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};

use crate::contest::{Contest, Metric};
use crate::load::{self, Connections};
use crate::served::{self, Service};
use crate::sides::net::Net;

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        served::contest(
            "echo/64",
            "64 connections of another process, a message of 64 bytes in flight on each; per request",
            METRICS,
            REQUESTS,
        ),
        served::contest("echo/800", "the same with 800 connections; per request", METRICS, REQUESTS),
    ]
}

/// The CPU time of the server is what counts most, and comes first.
const METRICS: &[Metric] = &[Metric::new("cpu", "ns"), Metric::new("wall", "ns")];

/// Requests in a round.
const REQUESTS: usize = 50_000;

/// Bytes that the server reads at most.
const BUFFER: usize = 1024;

/// The load of a variant.
pub(crate) fn load(variant: &str, server: SocketAddr, requests: usize) -> Result<(), String> {
    let count = variant.parse().map_err(|_| format!("not a number of connections: {variant:?}"))?;
    load::put(Connections::open(server, count), requests);
    Ok(())
}

pub(crate) struct Echo;

impl Service for Echo {
    async fn serve<N: Net>(mut stream: N::Stream) {
        N::set_nodelay(&stream);
        let mut buffer = [0; BUFFER];
        loop {
            let length = N::read(&mut stream, &mut buffer).await;
            if length == 0 {
                return;
            }
            N::write_all(&mut stream, &buffer[..length]).await;
        }
    }

    async fn serve_monoio(mut stream: monoio::net::TcpStream) {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            let (length, bytes) = stream.read(buffer).await;
            if length.expect("a connection that holds") == 0 {
                return;
            }
            let (written, bytes) = stream.write_all(bytes).await;
            written.expect("a connection that holds");
            buffer = bytes;
            buffer.clear();
        }
    }
}
