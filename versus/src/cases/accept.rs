//! `accept`: connections that come, say one thing, and go.

use std::net::SocketAddr;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};

use crate::contest::{Contest, Metric};
use crate::load::{self, Visitors};
use crate::served::{self, Service};
use crate::sides::net::Net;

pub(crate) fn contest() -> Contest {
    let about = "another process connects, 16 at a time; a byte there and back; per connection";
    served::contest("accept", about, METRICS, CONNECTIONS)
}

/// The CPU time of the server counts. Time on the clock is mostly the kernel's and the load's.
const METRICS: &[Metric] =
    &[Metric::new("cpu", "ns"), Metric { name: "wall", unit: "ns", ratios: false, absolutes: false }];

/// Connections in a round.
const CONNECTIONS: usize = 10_000;

/// Connections at a time.
const AT_A_TIME: usize = 16;

/// The load.
pub(crate) fn load(server: SocketAddr, connections: usize) {
    load::put(Visitors::new(server, AT_A_TIME), connections);
}

pub(crate) struct Accept;

impl Service for Accept {
    async fn serve<N: Net>(mut stream: N::Stream) {
        let mut byte = [0];
        let length = N::read(&mut stream, &mut byte).await;
        N::write_all(&mut stream, &byte[..length]).await;
    }

    async fn serve_monoio(mut stream: monoio::net::TcpStream) {
        let (length, byte) = stream.read(Vec::with_capacity(1)).await;
        length.expect("a connection that holds");
        let (written, _) = stream.write_all(byte).await;
        written.expect("a connection that holds");
    }
}
