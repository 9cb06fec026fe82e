//! TCP when things break: resets at every moment, numbers of file descriptors used again, and none left.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use crate::common::{full_name, runtime, watched};
use dapple::net::{TcpListener, TcpStream};
use futures_io::AsyncRead;
use futures_lite::{AsyncReadExt, AsyncWriteExt, StreamExt, future};

const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

#[track_caller]
fn run<F: Future<Output = ()> + Send + 'static>(test: F) {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(rt.spawn(test)).unwrap();
    });
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(HERE).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// Breaks a connection, as the other side sees it.
fn reset(stream: TcpStream) {
    stream.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Whether it says that the connection broke.
fn is_reset(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

#[test]
fn a_connection_reset_before_accept() {
    run(async {
        let listener = TcpListener::bind(HERE).await.unwrap();
        let addr = listener.local_addr().unwrap();
        reset(TcpStream::connect(addr).await.unwrap());
        let good = TcpStream::connect(addr).await.unwrap();
        // Linux hands out the broken one, too.
        let mut incoming = listener.incoming();
        loop {
            let mut stream = incoming.next().await.unwrap().unwrap();
            if stream.peer_addr().is_ok_and(|from| from == good.local_addr().unwrap()) {
                break;
            }
            assert!(is_reset(stream.read(&mut [0]).await.unwrap_err().kind()));
        }
    });
}

#[test]
fn reset_before_a_read_and_before_a_write() {
    run(async {
        let (near, mut far) = pair().await;
        reset(near);
        assert!(is_reset(far.read(&mut [0]).await.unwrap_err().kind()));
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0, "told once; then it is the end");
        assert!(is_reset(far.write(b"x").await.unwrap_err().kind()));
        far.close().await.unwrap();

        let (near, mut far) = pair().await;
        reset(near);
        far.readable().await.unwrap();
        far.writable().await.unwrap();
        assert!(is_reset(far.write(b"x").await.unwrap_err().kind()));
    });
}

#[test]
fn reset_with_bytes_on_the_way() {
    run(async {
        let (mut near, mut far) = pair().await;
        near.write_all(b"lost or not").await.unwrap();
        far.readable().await.unwrap();
        reset(near);
        let mut got = Vec::new();
        match far.read_to_end(&mut got).await {
            Ok(_) => assert_eq!(got, b"lost or not"),
            Err(error) => assert!(is_reset(error.kind()), "{error}"),
        }
    });
}

#[test]
fn a_reset_wakes_waiting_tasks() {
    run(async {
        // to read
        let (near, mut far) = pair().await;
        let reading = dapple::spawn(async move { far.read(&mut [0]).await });
        dapple::task::yield_now().await;
        reset(near);
        assert!(is_reset(reading.await.unwrap().unwrap_err().kind()));
        // to read the rest
        let (mut near, mut far) = pair().await;
        near.write_all(b"ab").await.unwrap();
        let mut got = [0; 2];
        far.read_exact(&mut got).await.unwrap();
        assert!(future::poll_once(far.read(&mut [0])).await.is_none());
        reset(near);
        assert!(is_reset(far.read(&mut [0]).await.unwrap_err().kind()));
        // to peek, and for readiness
        let (near, far) = pair().await;
        assert!(future::poll_once(far.peek(&mut [0])).await.is_none());
        assert!(future::poll_once(far.readable()).await.is_none());
        let far = Arc::new(far);
        let peeking = dapple::spawn({
            let far = far.clone();
            async move { far.peek(&mut [0]).await }
        });
        let ready = dapple::spawn(async move { far.readable().await });
        dapple::task::yield_now().await;
        reset(near);
        let peeked = peeking.await.unwrap(); // the error is reported here or by `readable`
        assert!(peeked.map_or_else(|error| is_reset(error.kind()), |n| n == 0));
        ready.await.unwrap().unwrap();
        // to write
        let (near, far) = pair().await;
        let (mut read, mut write) = far.into_split();
        let writing = dapple::spawn(async move {
            loop {
                if let Err(error) = write.write(&[0; 65536]).await {
                    break error;
                }
            }
        });
        assert!(near.peek(&mut [0]).await.is_ok());
        reset(near);
        assert!(is_reset(writing.await.unwrap().kind()));
        assert!(read.read(&mut [0]).await.map_or_else(|error| is_reset(error.kind()), |n| n == 0));
    });
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Reads once with a waker that counts.
fn poll_read(stream: &mut TcpStream, wakes: &Arc<Wakes>) -> bool {
    let waker = Waker::from(wakes.clone());
    Pin::new(stream).poll_read(&mut Context::from_waker(&waker), &mut [0; 8]).is_ready()
}

#[test]
fn no_old_event_reaches_a_file_descriptor_of_the_same_number() {
    watched(|| {
        let rt = runtime(1);
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await.unwrap();
            let (mut marker, mut marked) = pair().await;
            for has_duplicate in [false, true] {
                let mut hits = 0;
                for attempt in 0.. {
                    assert!(attempt < 1000, "the number was never given out again");
                    let (mut near, mut old) = pair().await;
                    assert!(future::poll_once(old.read(&mut [0])).await.is_none(), "registered");
                    // The kernel keeps an old one on its list for as long as it has a duplicate.
                    let duplicate = has_duplicate.then(|| old.as_fd().try_clone_to_owned().unwrap());
                    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    let number = old.as_raw_fd();
                    drop(old);
                    let (mut new, _) = listener.accept().await.unwrap();
                    let wakes = Arc::new(Wakes::default());
                    assert!(!poll_read(&mut new, &wakes), "registered, and nothing there");
                    // An event for the old one, and one after that, which tells that the first is over.
                    let _ = near.write_all(b"old").await;
                    drop(near);
                    marker.write_all(b"x").await.unwrap();
                    marked.read_exact(&mut [0]).await.unwrap();
                    assert_eq!(wakes.count(), 0);
                    assert!(!poll_read(&mut new, &wakes));
                    drop((duplicate, client));
                    hits += usize::from(new.as_raw_fd() == number); // unless another test was faster
                    if hits == 5 {
                        break;
                    }
                }
            }
        });
    });
}

/// Runs the test of this name again, in a process that may open at most `files` files.
#[track_caller]
fn in_a_process_with_files(test: &str, files: usize) {
    let test = full_name(test);
    let binary = std::env::current_exe().unwrap();
    let script = format!("ulimit -n {files} && exec \"$0\" --exact {test} --nocapture --test-threads 1");
    let status = Command::new("sh").arg("-c").arg(script).arg(binary).env("FEW_FILES", "1").status().unwrap();
    assert!(status.success(), "{test}: {status}");
}

#[test]
fn a_listener_survives_that_file_descriptors_run_out() {
    if std::env::var_os("FEW_FILES").is_none() {
        let test = "a_listener_survives_that_file_descriptors_run_out";
        return in_a_process_with_files(test, 64);
    }
    run(async {
        let mut listener = TcpListener::bind(HERE).await.unwrap();
        let addr = listener.local_addr().unwrap();
        for round in 0..3 {
            let mut clients = vec![TcpStream::connect(addr).await.unwrap()];
            clients.push(TcpStream::connect(addr).await.unwrap());
            let mut files = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                files.push(file);
            }
            let start = Instant::now();
            for _ in 0..6 {
                let error = match round {
                    0 => listener.accept().await.unwrap_err(),
                    1 => listener.incoming().next().await.unwrap().unwrap_err(),
                    _ => std::future::poll_fn(|cx| listener.poll_accept(cx)).await.unwrap_err(),
                };
                assert_eq!(error.raw_os_error(), Some(24), "{error}"); // EMFILE
            }
            let pauses = Duration::from_millis(1 + 2 + 4 + 8 + 16);
            assert!(start.elapsed() >= pauses, "it backs off: {:?}", start.elapsed());
            drop(files);
            let mut wanted: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
            let mut got = [listener.accept().await.unwrap().1, listener.accept().await.unwrap().1].to_vec();
            wanted.sort();
            got.sort();
            assert_eq!(got, wanted, "clients that waited meanwhile");
        }
        // and with no client waiting
        let waiting = dapple::spawn(async move { listener.accept().await.map(|(_, from)| from) });
        let client = TcpStream::connect(addr).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), client.local_addr().unwrap());
    });
}
