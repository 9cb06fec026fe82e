//! `pingpong`: two tasks wake each other in turn, through the same hand-made slots.

use std::sync::Arc;

use crate::contest::Contest;
use crate::sides::Side;
use crate::signal::Slot;
use crate::work::{self, Work};

pub(crate) fn contest() -> Contest {
    let about = "two tasks wake each other through hand-made slots; per round trip";
    work::contest_with_monoio::<PingPong>("pingpong", about)
}

struct PingPong;

/// The way there and the way back.
struct Table {
    ping: Slot,
    pong: Slot,
}

impl Work for PingPong {
    const BATCHES: usize = 2000;
    const OPERATIONS: usize = 1000;

    async fn run<S: Side>(side: S, batches: usize) {
        let trips = batches * Self::OPERATIONS;
        let table = Arc::new(Table { ping: Slot::new(), pong: Slot::new() });
        let first = side.spawn(serve(table.clone(), trips));
        let second = side.spawn(answer(table, trips));
        S::join(first).await;
        S::join(second).await;
    }
}

async fn serve(table: Arc<Table>, trips: usize) {
    for _ in 0..trips {
        table.ping.send();
        table.pong.receive().await;
    }
}

async fn answer(table: Arc<Table>, trips: usize) {
    for _ in 0..trips {
        table.ping.receive().await;
        table.pong.send();
    }
}
