//! From a file to a socket: all of it, from memory and from the disk, and how far it got.

use crate::common::{Event, telling};
use crate::fs_common::{forget_cached, on_both, pattern};
use dapple::fs::{self, Failed, File};
use dapple::io::{AsyncReadExt, how_far};
use dapple::net::{TcpListener, TcpStream, UnixStream};
use dapple::{finish, is_cancelled};

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

#[test]
fn all_of_a_range() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        let bytes = pattern(3 << 20);
        std::fs::write(&path, &bytes).unwrap();
        rt.block_on(async {
            for is_cached in [true, false] {
                for (from, to) in [(0, 3 << 20), (0, 0), (1, 2), (100_001, 2_000_003), (3 << 20, 4 << 20)] {
                    if !is_cached {
                        forget_cached(&path);
                    }
                    let (near, mut far) = tcp_pair().await;
                    let path = path.clone();
                    let sends = dapple::spawn(async move {
                        let file = File::open(&path).await.unwrap();
                        fs::send_file(&file, from..to, &near).await
                    });
                    let mut all = Vec::new();
                    far.read_to_end(&mut all).await.unwrap();
                    let expected = &bytes[from as usize..bytes.len().min(to as usize)];
                    assert!(all == expected, "{from}..{to}");
                    assert_eq!(sends.await.unwrap().unwrap(), expected.len() as u64);
                }
            }
        });
    });
}

#[test]
fn to_the_end_if_the_range_goes_beyond() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        std::fs::write(&path, "words").unwrap();
        rt.block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            let file = File::open(&path).await.unwrap();
            assert_eq!(fs::send_file(&file, 2..u64::MAX, &near).await.unwrap(), 3);
            drop(near);
            let mut text = String::new();
            far.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "rds");
        });
    });
}

#[test]
fn an_error_carries_the_bytes_sent() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        let bytes = pattern(8 << 20);
        std::fs::write(&path, &bytes).unwrap();
        rt.block_on(async {
            let (near, far) = UnixStream::pair().unwrap();
            drop(far);
            let file = File::open(&path).await.unwrap();
            let error = fs::send_file(&file, 0..100, &near).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
            assert_eq!(how_far(&error), Some(0));
            assert_eq!(Failed::of(&error).unwrap().path(), Some(&*path));
        });
    });
}

/// Cancelled when the socket is full: what was sent, and no more, has been sent.
#[test]
fn cancelled_on_its_way() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        let bytes = pattern(32 << 20);
        std::fs::write(&path, &bytes).unwrap();
        rt.block_on(async {
            for is_cached in [true, false] {
                if !is_cached {
                    forget_cached(&path);
                }
                let (near, mut far) = tcp_pair().await;
                let file = File::open(&path).await.unwrap();
                let begun = Event::default();
                let sent = finish(async |s| {
                    let sends = s.start(telling(begun.clone(), fs::send_file(&file, 0..32 << 20, &near)));
                    begun.happened().await;
                    let mut some = [0; 1000];
                    far.read_exact(&mut some).await.unwrap();
                    assert!(some[..] == bytes[..1000]);
                    s.cancel();
                    sends.await
                })
                .await;
                let error = sent.unwrap_err();
                assert!(is_cancelled(&error), "{error}");
                let sent = how_far(&error).unwrap() as usize;
                drop(near);
                let mut rest = Vec::new();
                far.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest.len() + 1000, sent);
                assert!(rest == bytes[1000..sent]);
            }
        });
    });
}
