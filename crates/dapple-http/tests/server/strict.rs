//! A request that two servers could read in two ways is refused, and reaches no service.

use crate::common::Server;
use axum::Router;
use axum::routing::any;
use bytes::Bytes;

/// Answers what it was given; what it is not given cannot come back.
fn server() -> Server {
    let router = Router::new().fallback(any(|body: Bytes| async move { format!("served {}", body.len()) }));
    Server::start(router)
}

#[test]
fn forms_that_smuggle_are_refused() {
    let server = server();
    let chunk = "0\r\n\r\n";
    let forms = [
        (
            "both a length and chunks",
            format!("content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"),
        ),
        ("the other way round", format!("transfer-encoding: chunked\r\nContent-Length: 5\r\n\r\n{chunk}")),
        (
            "twice",
            format!("content-length: 5\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n{chunk}"),
        ),
        ("two lengths", "content-length: 5\r\ncontent-length: 6\r\n\r\nhello!".into()),
        ("the same length twice", "content-length: 5\r\ncontent-length: 5\r\n\r\nhello".into()),
        ("a list of lengths", "content-length: 5, 5\r\n\r\nhello".into()),
        ("a length with a sign", "content-length: +5\r\n\r\nhello".into()),
        ("a negative length", "content-length: -5\r\n\r\nhello".into()),
        ("a length in hex", "content-length: 0x5\r\n\r\nhello".into()),
        ("a length too large to be true", "content-length: 99999999999999999999\r\n\r\nhello".into()),
        ("an unknown coding", "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n".into()),
        ("chunked, but not at last", "transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n".into()),
        (
            "chunked in two lines",
            "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n".into(),
        ),
        ("a blank before the colon", "transfer-encoding : chunked\r\n\r\n0\r\n\r\n".into()),
        ("a folded line", "transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n".into()),
        ("a line that begins with a blank", " transfer-encoding: chunked\r\n\r\n0\r\n\r\n".into()),
        ("a line without a colon", "transfer-encoding\r\n\r\n".into()),
        ("a zero byte in a value", "x: a\0b\r\n\r\n".into()),
        ("CR alone in a value", "x: a\rtransfer-encoding: chunked\r\n\r\n".into()),
        ("LF alone at the end of a line", "x: a\ncontent-length: 5\r\n\r\nhello".into()),
        ("LF alone everywhere", "x: a\n\n".into()),
    ];
    for (what, rest) in forms {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{rest}"));
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{what}: {answer:?}");
        client.ends();
    }
    let codings = ["gzip, chunked", "chunked, chunked", "identity, chunked", "\tchunked\t,chunked"];
    for coding in codings {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n0\r\n\r\n"));
        assert_eq!(client.answer().status, 501, "{coding}");
        client.ends();
    }
    let mut client = server.connect();
    client.send("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 400);
}

#[test]
fn chunks_are_read_by_the_letter() {
    let server = server();
    let good = ["5\r\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n0\r\n\r\n", "00005\r\nhello\r\n0\r\n\r\n"];
    for chunks in good {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"));
        assert_eq!(client.answer().text(), "served 5", "{chunks:?}");
        assert_eq!(client.get("/").text(), "served 0", "{chunks:?}");
    }
    let bad = [
        "5\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello",
    ];
    for chunks in bad {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"));
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{chunks:?}");
        client.ends();
    }
}

#[test]
fn one_host_is_needed() {
    let server = server();
    let forms = [
        ("", 400),
        ("host: a\r\nHost: a\r\n", 400),
        ("host: a\r\nhost: b\r\n", 400),
        ("host: a, b\r\n", 400),
        ("host: a b\r\n", 400),
        ("host: a/b\r\n", 400),
        ("host: a@b\r\n", 400),
        ("host: a:port\r\n", 400),
        ("host: [::1\r\n", 400),
        ("host: a:80:80\r\n", 400),
        ("host: www..com\r\n", 400),
        ("host: :\r\n", 400),
        ("host: [zz]\r\n", 400),
        ("host: localhost:99999\r\n", 400),
        ("host:\r\n", 200),
        ("host: localhost:80\r\n", 200),
        ("host: [::1]:80\r\n", 200),
        ("host: www.example.com.:443\r\n", 200),
    ];
    for (hosts, status) in forms {
        let mut client = server.connect();
        client.send(format!("GET / HTTP/1.1\r\n{hosts}\r\n"));
        let answer = client.answer();
        assert_eq!(answer.status, status, "{hosts:?}");
        if status == 400 {
            assert!(answer.text().to_lowercase().contains("host"), "{answer:?}");
            client.ends();
        }
    }
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_target_is_a_path_or_a_whole_address() {
    let server = server();
    let forms = [
        ("GET a.txt", 400),
        ("GET a:80", 400),
        ("GET *", 400),
        ("POST user:secret@a", 400),
        ("CONNECT /a", 400),
        ("GET http://a:99999/", 400),
        ("GET /a.txt", 200),
        ("OPTIONS *", 200),
        ("GET http://a/b", 200),
        ("GET HTTP://A/b", 200),
    ];
    for (line, status) in forms {
        let mut client = server.connect();
        client.send(format!("{line} HTTP/1.1\r\nhost: a\r\n\r\n"));
        assert_eq!(client.answer().status, status, "{line}");
    }
}

#[test]
fn an_absolute_target_and_the_host_are_the_same() {
    let server = server();
    let forms = [
        ("http://a/", "host: b\r\n", 400),
        ("http://a:80/", "host: a:81\r\n", 400),
        ("http://a/", "host:\r\n", 400),
        ("http://user:secret@a/", "host: a\r\n", 200),
        ("http://a@b/", "host: a\r\n", 400),
        ("http://a:81/x?y", "host: A:81\r\n", 200),
    ];
    for (target, host, status) in forms {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\n{host}\r\n"));
        assert_eq!(client.answer().status, status, "{target} {host:?}");
    }
    let mut client = server.connect();
    client.send("GET http://a/ HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().status, 200, "HTTP/1.0 has no Host header");
}

#[test]
fn a_second_request_in_one_breath_is_looked_at_as_well() {
    let server = server();
    let mut client = server.connect();
    client.send(
        "GET / HTTP/1.1\r\nhost: a\r\n\r\nPOST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi\
         POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "served 0");
    assert_eq!(client.answer().text(), "served 2");
    assert_eq!(client.answer().status, 400);
    client.ends();
    assert_eq!(server.stats.snapshot().bad, 1);
}
