//! Which types may pass between threads, pinned at compile time.
#![cfg(feature = "axum")]

use axum::Router;
use dapple::net::{TcpListener, UnixListener};
use dapple_http::state::{Query, Read, Stateful, Write};
use dapple_http::{Body, Error, IntoHandler, Peer, Serve, Served, ServerStats, StatsReader, Tls, Upgraded};

fn sends<T: Send>() {}
fn shares<T: Send + Sync>() {}

type Tower = <Router as IntoHandler<dapple_http::ByTower>>::Handler;

#[test]
fn what_passes_between_threads() {
    sends::<Body>();
    sends::<Serve<TcpListener, Tower>>();
    sends::<Serve<UnixListener, Tower>>();
    sends::<<Serve<TcpListener, Tower> as IntoFuture>::IntoFuture>();
    sends::<Upgraded>();
    shares::<ServerStats>();
    shares::<Error>();
    shares::<Peer>();
    shares::<Query<u32>>();
    shares::<Read<'static, u32>>();
    shares::<Served>();
    shares::<Stateful<fn()>>();
    shares::<StatsReader>();
    shares::<Tls>();
    shares::<Write<'static, u32>>();
}
