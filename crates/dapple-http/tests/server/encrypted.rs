//! TLS, and the protocol over it: HTTP/2 or HTTP/1.1, as the client prefers.

use std::sync::Arc;

use crate::common::Server;
use crate::identity::{Identity, identity};
use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use dapple::net::TcpStream;
use dapple_http::Tls;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use futures_rustls::TlsConnector;
use futures_rustls::pki_types::ServerName;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::rt::Executor as _;

fn router() -> Router {
    Router::new()
        .route("/", get(|request: axum::extract::Request| async move { format!("{:?}", request.version()) }))
        .route("/large", get(|| async { vec![b'x'; 3_000_000] }))
}

#[test]
fn http_1_is_spoken_over_tls() {
    let Identity { certificate, key, mut client } = identity();
    let tls = Tls::from_pem(certificate, key).unwrap();
    let server = Server::start_with(router(), move |serve| serve.tls(tls));
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let address = server.address;
    dapple::run(async {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("HTTP/1.1"), "{answer}");
    });
    assert_eq!(server.stop().requests, 1);
}

#[test]
fn http_2_is_spoken_over_tls() {
    let Identity { certificate, key, mut client } = identity();
    let tls = Tls::from_pem(certificate, key).unwrap();
    let server = Server::start_with(router(), move |serve| serve.tls(tls));
    client.alpn_protocols = vec![b"h2".to_vec()];
    let address = server.address;
    dapple::run(async {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        ask_http_2(crate::common::Hyper(stream)).await;
    });
    let served = server.stop();
    assert_eq!((served.requests, served.cut), (3, 0));
}

#[test]
fn http_2_is_known_by_its_preface() {
    let server = Server::start(router());
    let address = server.address;
    dapple::run(async { ask_http_2(TcpStream::connect(address).await.unwrap()).await });
    assert_eq!(server.stop().requests, 3);
    // One that only begins like it.
    let server = Server::start(router());
    let mut client = server.connect();
    client.send("P");
    client.send("RI / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.answer().status, 405);
}

/// Asks three times over one connection, at the same time.
async fn ask_http_2<S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static>(stream: S) {
    let executor = dapple::hyper::Executor;
    let (ask, connection) = hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
    executor.execute(async { connection.await.unwrap() });
    let asked: Vec<_> = [("/", "HTTP/2.0".len()), ("/large", 3_000_000), ("/", "HTTP/2.0".len())]
        .into_iter()
        .map(|(path, length)| {
            let mut ask = ask.clone();
            dapple::spawn(async move {
                let request = Request::get(format!("http://localhost{path}")).body(Empty::<Bytes>::new());
                let response = ask.send_request(request.unwrap()).await.unwrap();
                assert_eq!(response.status(), 200);
                assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), length);
            })
        })
        .collect();
    for asked in asked {
        asked.await.unwrap();
    }
}

#[test]
fn a_handshake_that_does_not_come_is_not_waited_for() {
    let Identity { certificate, key, .. } = identity();
    let tls = Tls::from_pem(certificate, key).unwrap();
    let soon = std::time::Duration::from_millis(60);
    let server = Server::start_with(router(), move |serve| serve.tls(tls).header_timeout(soon));
    for first in [&b""[..], b"\x16\x03\x01"] {
        let mut client = server.connect();
        client.send(first);
        client.ends();
    }
    assert_eq!(server.stats.snapshot().timeouts, 2);
    // A client that speaks neither TLS nor HTTP gets an alert of TLS.
    let mut client = server.connect();
    client.send([0x17, 0x03, 0x03, 0x00, 0x02, 0x01, 0x02]);
    assert_eq!(client.take(1), [0x15]);
}

#[test]
fn what_cannot_be_used_is_said_clearly() {
    let Identity { certificate, key, .. } = identity();
    let other = identity();
    let folder = std::env::temp_dir().join(format!("dapple-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (certificate_file, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate_file, &certificate).unwrap();
    std::fs::write(&key_file, &key).unwrap();
    Tls::from_files(&certificate_file, &key_file).unwrap();
    let swapped = Tls::from_files(&key_file, &certificate_file).unwrap_err().to_string();
    assert!(swapped.contains("no certificate") && swapped.contains("looks like a key"), "{swapped}");
    let no_key = Tls::from_files(&certificate_file, &certificate_file).unwrap_err().to_string();
    assert!(no_key.contains("no private key in it"), "{no_key}");
    let missing = Tls::from_files(&certificate_file, folder.join("none")).unwrap_err();
    assert!(missing.is_tls() && missing.to_string().contains("cannot read the key file"), "{missing}");
    let foreign = Tls::from_pem(&certificate, &other.key).unwrap_err().to_string();
    assert!(foreign.contains("is not the one of the certificate"), "{foreign}");
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = Tls::from_pem(&certificate, encrypted).unwrap_err().to_string();
    assert!(encrypted.contains("decrypt it first"), "{encrypted}");
    std::fs::remove_dir_all(&folder).unwrap();
}
