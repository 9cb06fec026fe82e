//! Streams of the network of a simulation: peeking, slices, halves, options, and programs that use them.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::time::Duration;

use crate::net::{assert_kind, pair, pattern, wait_a_second};
use dapple::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::sim::{self, Sim};
use dapple::spawn;
use futures_lite::StreamExt;

#[test]
fn what_is_peeked_at_stays() {
    Sim::new(0).explore(0..20, || async {
        let (mut near, mut far) = pair().await;
        near.write_all(b"abcdef").await.unwrap();
        wait_a_second().await;
        let mut buffer = [0; 4];
        let n = far.peek(&mut buffer).await.unwrap();
        assert!(n > 0 && buffer[..n] == b"abcd"[..n]);
        let mut all = [0; 6];
        far.read_exact(&mut all).await.unwrap();
        assert_eq!(&all, b"abcdef");
    });
}

#[test]
fn several_slices_are_one_stream() {
    Sim::new(0).explore(0..30, || async {
        let (near, far) = pair().await;
        let bytes = pattern(1, 90);
        let mut put = 0;
        while put < bytes.len() {
            let (first, rest) = bytes[put..].split_at((bytes.len() - put) / 2);
            put += near
                .try_write_vectored(&[IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)])
                .unwrap();
        }
        wait_a_second().await;
        let mut got = Vec::<u8>::new();
        while got.len() < bytes.len() {
            let (mut first, mut second) = ([0; 7], [0; 30]);
            let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            let n = far.try_read_vectored(&mut buffers).unwrap();
            got.extend(first.iter().chain(&second).take(n));
        }
        assert_eq!(got, bytes);
        assert_eq!(far.try_read(&mut []).unwrap(), 0);
        assert_eq!(far.try_write(&[]).unwrap(), 0);
    });
}

#[test]
fn halves_go_their_own_ways_and_come_together() {
    Sim::new(0).explore(0..10, || async {
        let (mut near, mut far) = pair().await;
        let (mut read, mut write) = near.split();
        let both = futures_lite::future::zip(
            async {
                let mut got = [0; 3];
                read.read_exact(&mut got).await.unwrap();
                got
            },
            async { write.write_all(b"there").await.unwrap() },
        );
        far.write_all(b"two").await.unwrap();
        assert_eq!(both.await.0, *b"two");
        let (read, write) = near.into_split();
        let near = read.reunite(write).unwrap();
        let (read, write) = near.into_split();
        drop(write); // the end
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "there");
        far.write_all(b"back").await.unwrap();
        drop(far);
        { read }.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "thereback");
    });
}

#[test]
fn options_are_remembered() {
    Sim::new(1).run(async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        listener.set_ttl(7).unwrap();
        let near = TcpStream::connect("127.0.0.1:80").await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        assert_eq!((listener.ttl().unwrap(), far.ttl().unwrap(), near.ttl().unwrap()), (7, 7, 64));
        assert_kind(near.set_ttl(256), ErrorKind::InvalidInput);
        near.set_nodelay(true).unwrap();
        near.set_quickack(false).unwrap();
        near.set_keepalive(Some(Duration::from_secs(5))).unwrap();
        assert_kind(near.set_keepalive(Some(Duration::from_millis(5))), ErrorKind::InvalidInput);
        near.set_keepalive_probes(Duration::from_secs(1), 3).unwrap();
        near.set_linger(Some(Duration::ZERO)).unwrap();
        assert!(near.nodelay().unwrap() && !near.quickack().unwrap() && !far.nodelay().unwrap());
        assert_eq!(near.keepalive().unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(near.linger().unwrap(), Some(Duration::ZERO));
    });
}

/// A chat server: each line of a client is sent to all clients.
async fn chat(listener: TcpListener) {
    let everybody = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut incoming = listener.into_incoming();
    while let Some(Ok(stream)) = incoming.next().await {
        let (read, mut write) = stream.into_split();
        let (sender, mut receiver) = dapple::channel::mpsc::bounded::<String>(100);
        everybody.lock().unwrap().push(sender);
        spawn(async move {
            while let Ok(line) = receiver.recv().await {
                if write.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        })
        .detach();
        let everybody = everybody.clone();
        spawn(async move {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let all = everybody.lock().unwrap().clone();
                for one in all {
                    let _ = one.send(format!("{line}\n")).await;
                }
            }
        })
        .detach();
    }
}

#[test]
fn lines_of_a_chat_reach_all_in_order() {
    Sim::new(0).explore(0..25, || async {
        let listener = TcpListener::bind("0.0.0.0:6667").await.unwrap();
        let server = spawn(chat(listener));
        let mut members = Vec::new();
        for who in 0..4 {
            members.push((who, TcpStream::connect("10.0.0.1:6667").await.unwrap()));
        }
        wait_a_second().await; // all are in
        let members: Vec<_> = members
            .into_iter()
            .map(|(who, stream)| {
                spawn(async move {
                    let (read, mut write) = stream.into_split();
                    let speaker = spawn(async move {
                        for i in 0..10 {
                            write.write_all(format!("{who} says {i}\n").as_bytes()).await.unwrap();
                        }
                        write
                    });
                    let (mut lines, mut next) = (BufReader::new(read).lines(), [0; 4]);
                    while next != [10; 4] {
                        let line = lines.next_line().await.unwrap().unwrap();
                        let (who, i) = line.split_once(" says ").unwrap();
                        let next = &mut next[who.parse::<usize>().unwrap()];
                        assert_eq!(i.parse::<u32>().unwrap(), *next);
                        *next += 1;
                    }
                    drop(speaker.await.unwrap());
                })
            })
            .collect();
        for member in members {
            member.await.unwrap();
        }
        server.cancel();
        server.await.unwrap();
    });
}

#[test]
fn the_same_seed_is_the_same_traffic() {
    let run = |seed| {
        Sim::new(seed).workers(3).run_traced(async {
            let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
            let server = spawn(async move {
                for _ in 0..5 {
                    let (stream, _) = listener.accept().await.unwrap();
                    spawn(async move {
                        let (read, write) = stream.into_split();
                        dapple::io::copy(read, write).await.unwrap();
                    })
                    .detach();
                }
            });
            let clients: Vec<_> = (0..5)
                .map(|which| {
                    spawn(async move {
                        let mut stream = TcpStream::connect("127.0.0.1:80").await.unwrap();
                        stream.write_all(&pattern(which, 3000)).await.unwrap();
                        stream.close().await.unwrap();
                        let mut sizes = Vec::new();
                        loop {
                            match stream.read(&mut [0; 500]).await.unwrap() {
                                0 => return sizes,
                                n => sizes.push(n),
                            }
                        }
                    })
                })
                .collect();
            let mut sizes = Vec::new();
            for client in clients {
                sizes.push(client.await.unwrap());
            }
            server.await.unwrap();
            sizes
        })
    };
    let ((first, trace), (second, again)) = (run(5), run(5));
    assert_eq!(first, second);
    assert_eq!(trace.to_string(), again.to_string());
    assert_ne!(first, run(6).0);
}

#[test]
fn a_deadlock_report_names_the_waits() {
    let failure = Sim::new(1)
        .try_run(async {
            let (mut near, far) = pair().await;
            let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
            spawn(async move { listener.accept().await.map(drop) }).detach();
            spawn(async move { near.write_all(&[0; 100_000]).await }).detach();
            { far }.read_exact(&mut [0; 70_000]).await.unwrap();
            std::future::pending::<()>().await;
        })
        .unwrap_err();
    assert!(failure.why().contains("waits for a connection to accept"), "{failure}");
    let failure = Sim::new(1)
        .try_run(async {
            let (mut near, _far) = pair().await;
            near.read(&mut [0; 1]).await.unwrap();
        })
        .unwrap_err();
    assert!(failure.why().contains("waits for bytes to read"), "{failure}");
}

#[test]
fn two_simulations_never_meet() {
    let (stream, far, listener) = Sim::new(1).run(async {
        let listener = TcpListener::bind("10.0.0.1:8").await.unwrap();
        let (near, far) = pair().await;
        near.try_write(b"x").unwrap();
        (near, far, listener)
    });
    assert_kind(stream.try_write(b"x"), ErrorKind::Unsupported);
    assert!(far.try_read(&mut [0]).unwrap_err().to_string().contains("no simulation here"));
    Sim::new(1).run(async {
        TcpListener::bind("10.0.0.1:8").await.unwrap();
        let error = stream.readable().await.unwrap_err();
        assert!(error.to_string().contains("another simulation"), "{error}");
        assert_kind(listener.accept().await, ErrorKind::Unsupported);
        drop(stream);
    });
    drop((far, listener));
}

#[test]
fn there_is_no_such_network_outside() {
    dapple::run(async {
        let errors = [
            TcpListener::bind("127.0.0.1:0").await.map(drop),
            TcpStream::connect("127.0.0.1:1").await.map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("no simulation here"), "{error}");
        }
    });
}

#[test]
fn only_localhost_can_be_resolved() {
    Sim::new(1).run(async {
        let listener = TcpListener::bind("localhost:80").await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), "127.0.0.1:80".parse().unwrap());
        let error = TcpStream::connect("www.example.com:80").await.unwrap_err();
        assert!(error.to_string().contains("www.example.com"), "{error}");
        assert!(error.to_string().contains("no outside in a simulation"), "{error}");
    });
}

#[test]
fn they_can_be_sent_and_shared() {
    fn both<T: Send + Sync>() {}
    both::<TcpListener>();
    both::<TcpStream>();
    both::<sim::net::tcp::Incoming<'static>>();
    both::<sim::net::tcp::IntoIncoming>();
    both::<sim::net::tcp::ReadHalf<'static>>();
    both::<sim::net::tcp::WriteHalf<'static>>();
    both::<sim::net::tcp::OwnedReadHalf>();
    both::<sim::net::tcp::OwnedWriteHalf>();
}

#[cfg(feature = "tokio-io")]
#[test]
fn tokio_reads_and_writes_it() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    Sim::new(0).explore(0..5, || async {
        let (mut near, mut far) = pair().await;
        AsyncWriteExt::write_all(&mut near, b"tokio").await.unwrap();
        AsyncWriteExt::shutdown(&mut near).await.unwrap();
        let mut text = String::new();
        AsyncReadExt::read_to_string(&mut far, &mut text).await.unwrap();
        assert_eq!(text, "tokio");
    });
}

#[cfg(feature = "hyper")]
mod http {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::*;
    use dapple::hyper::{Executor, Timer};
    use dapple::time::Instant;
    use http_body_util::{BodyExt, Empty, Full};
    use hyper::body::{Bytes, Incoming};
    use hyper::rt::Executor as _;
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let length = request.uri().path().trim_start_matches('/').parse().unwrap();
        Ok(Response::new(Full::new(vec![b'x'; length].into())))
    }

    #[test]
    fn hyper_serves_and_asks() {
        Sim::new(0).explore(0..10, || async {
            let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
            let server = spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let mut http = hyper::server::conn::http1::Builder::new();
                    let http = http.timer(Timer).header_read_timeout(Duration::from_secs(30));
                    spawn(http.serve_connection(stream, service_fn(answer))).detach();
                }
            });
            let clients: Vec<_> = (0..3)
                .map(|_| {
                    spawn(async {
                        let stream = TcpStream::connect("10.0.0.1:80").await.unwrap();
                        let (mut ask, connection) =
                            hyper::client::conn::http1::handshake(stream).await.unwrap();
                        Executor.execute(connection);
                        for length in [5_usize, 0, 100_000, 1] {
                            ask.ready().await.unwrap();
                            let request = Request::get(format!("/{length}")).header("host", "localhost");
                            let request = request.body(Empty::<Bytes>::new()).unwrap();
                            let response = ask.send_request(request).await.unwrap();
                            assert_eq!(response.status(), 200);
                            let body = response.into_body().collect().await.unwrap().to_bytes();
                            assert!(body.len() == length && body.iter().all(|byte| *byte == b'x'));
                        }
                    })
                })
                .collect();
            for client in clients {
                client.await.unwrap();
            }
            server.cancel();
            server.await.unwrap();
        });
    }

    #[test]
    fn a_client_that_sends_no_head_is_given_up() {
        Sim::new(1).run(async {
            let (near, far) = pair().await;
            near.try_write(b"GET").unwrap();
            let begun = Instant::now();
            let mut http = hyper::server::conn::http1::Builder::new();
            let http = http.timer(Timer).header_read_timeout(Duration::from_secs(3600));
            let error = http.serve_connection(far, service_fn(answer)).await.unwrap_err();
            assert!(error.is_timeout(), "{error}");
            assert_eq!(begun.elapsed().as_secs(), 3600);
        });
    }
}
