//! Foreign code in a scope that is cancelled: it learns of the cancel from the errors of its reads and writes, ends by
//! itself, and is not dropped halfway.
//!
//! `in_a_cancelled` checks that the foreign future is not dropped: it needs the future's output.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::common::{Event, runtime, telling, watched};
use crate::scope_common::{SHAPES, Shape, When, happened, in_a_cancelled};
use dapple::channel::mpsc;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::{TcpListener, TcpStream, UnixStream};
use dapple::sim::{self, Sim};
use dapple::sync::Semaphore;
use dapple::time::{Duration, sleep};
use futures_rustls::rustls::crypto::aws_lc_rs;
use futures_rustls::rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use futures_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use futures_rustls::{TlsAcceptor, TlsConnector};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(HERE).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// The shapes in which it is the test that says when the cancel comes.
fn scopes() -> impl Iterator<Item = Shape> {
    SHAPES.into_iter().filter(|shape| *shape != Shape::TimeIsUp)
}

/// Runs a test in every shape, in a task and in the main color.
#[track_caller]
fn in_all_shapes<F: Future<Output = ()> + Send + 'static>(test: impl Fn(Shape) -> F + Send + 'static) {
    watched(move || {
        let rt = runtime(2);
        for shape in scopes() {
            rt.block_on(rt.spawn(test(shape))).unwrap();
            rt.block_on(test(shape));
        }
    });
}

#[cfg(feature = "hyper")]
#[test]
fn a_hyper_connection() {
    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
        Ok(Response::new(Full::new("an answer".into())))
    }

    in_all_shapes(|shape| async move {
        let (mut near, far) = pair().await;
        near.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\nGET / HT").await.unwrap();
        let begun = Event::default();
        let (is_read, tell) = (begun.clone(), begun.clone());
        // Cancelled when the first request was answered, and half of the second is there.
        let reads = dapple::spawn(async move {
            let (mut bytes, mut got) = ([0; 1000], Vec::new());
            while !got.ends_with(b"an answer") {
                let read = near.read(&mut bytes).await.unwrap();
                assert!(read > 0);
                got.extend_from_slice(&bytes[..read]);
            }
            tell.set();
            near.read_to_end(&mut got).await.unwrap();
            got
        });
        let serving = async {
            hyper::server::conn::http1::Builder::new().serve_connection(far, service_fn(answer)).await
        };
        let error = in_a_cancelled(shape, When::After(is_read), serving).await.unwrap_err();
        assert_eq!(happened(Err::<(), _>(error)), None);
        let got = String::from_utf8(reads.await.unwrap()).unwrap();
        assert!(got.starts_with("HTTP/1.1 200 OK") && got.ends_with("an answer"), "{got}");
    });
}

fn certified() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    // By name: other crates of the workspace have another provider, and then none is the default.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions that ring has")
        .with_no_client_auth();
    let server = server.with_single_cert(vec![cert.der().clone()], key.into()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that ring has")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

#[test]
fn a_rustls_stream() {
    let (server, client) = certified();
    in_all_shapes(move |shape| {
        let (server, client) = (server.clone(), client.clone());
        async move {
            let (near, far) = pair().await;
            let name = ServerName::try_from("localhost").unwrap();
            let connecting = TlsConnector::from(client).connect(name, near);
            let accepting = TlsAcceptor::from(server).accept(far);
            let (near, far) = futures_util::future::join(connecting, accepting).await;
            let (mut near, mut far) = (near.unwrap(), far.unwrap());
            near.write_all(b"before").await.unwrap();
            near.flush().await.unwrap();
            let begun = Event::default();
            let serving = async {
                let mut bytes = [0; 6];
                far.read_exact(&mut bytes).await.unwrap();
                far.write_all(b"answer").await.unwrap();
                far.flush().await.unwrap();
                // It has said something, and waits for more, when the cancel comes.
                let read = telling(begun.clone(), far.read(&mut bytes)).await;
                (bytes, read)
            };
            let (bytes, read) = in_a_cancelled(shape, When::After(begun.clone()), serving).await;
            assert_eq!((&bytes, happened(read)), (b"before", None));
            // Nothing has happened to the connection: it goes on outside.
            let (mut bytes, mut answer) = ([0; 5], [0; 6]);
            near.read_exact(&mut answer).await.unwrap();
            near.write_all(b"after").await.unwrap();
            near.close().await.unwrap();
            far.read_exact(&mut bytes).await.unwrap();
            assert_eq!((&answer, &bytes), (b"answer", b"after"));
            assert_eq!(far.read(&mut bytes).await.unwrap(), 0);
        }
    });
}

#[test]
fn a_rustls_handshake() {
    let (server, _) = certified();
    in_all_shapes(move |shape| {
        let server = server.clone();
        async move {
            let (near, far) = pair().await;
            let begun = Event::default();
            let accepting = telling(begun.clone(), TlsAcceptor::from(server).accept(far));
            let error = in_a_cancelled(shape, When::After(begun), accepting).await.map(drop).unwrap_err();
            assert!(dapple::is_cancelled(&error), "{error:?}");
            drop(near);
        }
    });
}

#[test]
fn a_copy() {
    in_all_shapes(|shape| async move {
        let ((mut source, from), (to, mut sink)) = (pair().await, UnixStream::pair().unwrap());
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i / 7) as u8).collect();
        let begun = Event::default();
        let (tell, expected) = (begun.clone(), bytes.clone());
        let reads = dapple::spawn(async move {
            let mut got = vec![0; expected.len()];
            sink.read_exact(&mut got).await.unwrap();
            assert_eq!(got, expected);
            tell.set(); // all has arrived, and the copy waits for more
            let mut rest = Vec::new();
            sink.read_to_end(&mut rest).await.unwrap();
            rest
        });
        source.write_all(&bytes).await.unwrap();
        let mut from = from;
        let copying = async {
            let mut to = to;
            let copied = futures_util::io::copy(&mut from, &mut to).await;
            // It goes on after the error.
            dapple::shield(to.close()).await.unwrap();
            copied
        };
        let error = in_a_cancelled(shape, When::After(begun), copying).await.unwrap_err();
        assert!(dapple::is_cancelled(&error), "{error:?}");
        assert!(reads.await.unwrap().is_empty());
        // Bytes that arrive after the cancel are still there to read.
        source.write_all(b"after").await.unwrap();
        let mut bytes = [0; 5];
        from.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"after");
    });
}

#[test]
fn three_reads_in_a_list_of_futures() {
    in_all_shapes(|shape| async move {
        let (mut nears, mut fars) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (near, far) = pair().await;
            nears.push(near);
            fars.push(far);
        }
        nears[1].write_all(b"x").await.unwrap();
        let begun = Event::default();
        let reading = async {
            let mut reads: FuturesUnordered<_> = fars
                .iter_mut()
                .map(|far| async {
                    let mut byte = [0];
                    happened(far.read(&mut byte).await).map(|read| (read, byte[0]))
                })
                .collect();
            // One has its byte; the others wait.
            assert_eq!(reads.next().await, Some(Some((1, b'x'))));
            let second = telling(begun.clone(), reads.next()).await;
            (second, reads.next().await, reads.next().await)
        };
        let ended = in_a_cancelled(shape, When::After(begun.clone()), reading).await;
        assert_eq!(ended, (Some(None), Some(None), None));
        for (near, far) in nears.iter_mut().zip(&mut fars) {
            near.write_all(b"y").await.unwrap();
            let mut byte = [0];
            assert_eq!((far.read(&mut byte).await.unwrap(), byte[0]), (1, b'y'));
        }
    });
}

/// A thousand at once, of three kinds; every tenth has happened before the cancel.
async fn a_thousand(shape: Shape) {
    let permits = Semaphore::new(0);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..400).map(|_| mpsc::bounded::<usize>(1)).unzip();
    senders.iter().step_by(10).for_each(|sender| sender.try_send(1).unwrap());
    permits.add_permits(30);
    let begun = Event::default();
    let waiting = async {
        let mut all: Vec<std::pin::Pin<Box<dyn Future<Output = bool> + Send>>> = Vec::new();
        for mut receiver in receivers {
            all.push(Box::pin(async move { happened(receiver.recv().await).is_some() }));
        }
        for _ in 0..300 {
            let permits = &permits;
            all.push(Box::pin(async {
                happened(permits.acquire().await).map(|permit| permit.forget()).is_some()
            }));
            all.push(Box::pin(async { happened(sleep(Duration::from_secs(3600)).await).is_some() }));
        }
        assert_eq!(all.len(), 1000);
        telling(begun.clone(), join_all(all)).await
    };
    let ended = in_a_cancelled(shape, When::After(begun.clone()), waiting).await;
    assert_eq!(ended.len(), 1000);
    assert_eq!(ended.iter().filter(|has_happened| **has_happened).count(), 70);
    permits.add_permits(1);
    assert_eq!(permits.available_permits(), 1);
}

#[test]
fn a_large_join() {
    watched(|| {
        let rt = runtime(2);
        for shape in scopes() {
            rt.block_on(a_thousand(shape));
        }
    });
    for shape in scopes() {
        Sim::new(1).explore(0..5, || a_thousand(shape));
    }
}

#[test]
fn a_list_of_futures_in_a_simulation_loses_no_result() {
    for shape in scopes() {
        Sim::new(1).explore(0..5, move || async move {
            let mut streams = Vec::new();
            let listener = sim::net::TcpListener::bind(HERE).await.unwrap();
            for _ in 0..3 {
                let near = sim::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                streams.push((near, listener.accept().await.unwrap().0));
            }
            let (mut nears, mut fars): (Vec<_>, Vec<_>) = streams.into_iter().unzip();
            let writes = dapple::spawn(async move {
                for _ in 0..30 {
                    sleep(Duration::from_micros(sim::random() % 3)).await.unwrap();
                    nears[(sim::random() % 3) as usize].write_all(b"x").await.unwrap();
                }
            });
            let mut read = 0;
            while read < 30 {
                sleep(Duration::from_micros(sim::random() % 20)).await.unwrap();
                let begun = Event::default();
                begun.set();
                let reading = async {
                    let each =
                        fars.iter_mut().map(|far| async { happened(far.read(&mut [0]).await).unwrap_or(0) });
                    let reads: FuturesUnordered<_> = each.collect();
                    reads.fold(0, async |sum, read| sum + read).await
                };
                read += in_a_cancelled(shape, When::After(begun), reading).await;
            }
            assert_eq!(read, 30);
            writes.await.unwrap();
        });
    }
}
