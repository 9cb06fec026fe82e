//! Files over real sockets: by a server as they are, and in an axum `Router`.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;

use crate::site::Site;
use axum::Router;
use dapple::channel::oneshot;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::{TcpListener, TcpStream};
use dapple_http::serve;

/// Sends one request, and returns all bytes until the connection ends.
async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[dapple::test]
async fn lengths_are_told_on_the_wire() {
    let site = Site::new(&[("a.txt", "x".repeat(5000)), ("large.txt", "y".repeat(200_000))]);
    let files = site.files().largest_cached(100_000);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = dapple::spawn(serve(listener, files).shutdown_on(stopped).into_future());
    for (path, len) in [("/a.txt", 5000), ("/large.txt", 200_000)] {
        let head = ask(address, &format!("HEAD {path}")).await;
        let get = ask(address, &format!("GET {path}")).await;
        for answer in [&head, &get] {
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}");
            assert_eq!(answer.matches(&format!("content-length: {len}\r\n")).count(), 1, "{path}");
        }
        assert!(head.ends_with("\r\n\r\n"));
        assert_eq!(get.split_once("\r\n\r\n").unwrap().1.len(), len);
    }
    drop(stop);
    assert_eq!(server.await.unwrap().unwrap().requests, 4);
}

#[dapple::test]
async fn a_file_that_shrinks_cuts_the_connection() {
    const LEN: usize = 32 << 20; // more than sockets and buffers hold
    let site = Site::new(&[("a.bin", vec![b'o'; LEN])]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    dapple::spawn(serve(listener, site.files()).into_future()).detach();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /a.bin HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 1000]).await.unwrap();
    fs::File::options().write(true).open(site.at("a.bin")).unwrap().set_len(10).unwrap();
    let mut rest = Vec::new();
    // The connection is not kept: its end, or a reset, comes before all that was promised.
    match stream.read_to_end(&mut rest).await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    assert!(rest.len() < LEN, "all of it came");
    assert!(rest.iter().all(|&byte| byte == b'o'), "something else came");
}

#[dapple::test]
async fn a_router_has_files_below_a_path_and_for_all_else() {
    let site =
        Site::new(&[("a.txt", "a file"), ("docs/index.html", "the docs"), ("docs/more/index.html", "more")]);
    let docs = dapple_http::files(site.at("docs")).unwrap();
    let router = Router::new()
        .route("/hello", axum::routing::get(async || "a handler"))
        .nest_service("/manual", docs)
        .fallback_service(site.files());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    dapple::spawn(serve(listener, router).into_future()).detach();
    for (path, wanted) in
        [("/hello", "a handler"), ("/a.txt", "a file"), ("/docs/", "the docs"), ("/manual/", "the docs")]
    {
        assert!(ask(address, &format!("GET {path}")).await.ends_with(wanted), "{path}");
    }
    // Right below another path, as it is relative.
    assert!(ask(address, "GET /manual/more").await.contains("location: ./more/\r\n"));
    assert!(ask(address, "GET /manual/../a.txt").await.starts_with("HTTP/1.1 404 "));
}
