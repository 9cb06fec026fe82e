//! Reads and writes of one byte at a socket.

use std::future::poll_fn;
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::pin::pin;
use std::task::Poll;

use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::{AsyncFd, UnixStream};

/// Bytes that are put into the socket at a time: as many as surely fit.
const FILL: usize = 4096;
/// Writes of a byte at a time: as many as surely fit. Each takes a buffer of the kernel.
const WRITES: usize = 64;

/// Reads `count` bytes, each of which is already in the socket. The socket is refilled now and then, equally in all
/// builds.
pub(crate) async fn ready(count: usize) {
    let (near, mut far) = StdStream::pair().expect("a pair of sockets");
    let mut near = UnixStream::from_std(near).expect("a socket");
    let mut byte = [0];
    let mut left = count;
    while left > 0 {
        let fill = left.min(FILL);
        far.write_all(&[7; FILL][..fill]).expect("room for some bytes");
        for _ in 0..fill {
            let length = near.read(&mut byte).await.expect("a socket that holds");
            assert_eq!((length, byte), (1, [7]));
        }
        left -= fill;
    }
}

/// Reads `count` bytes, each of which arrives while the reader waits: two tasks take turns.
pub(crate) async fn pending(count: usize) {
    let (mut near, mut far) = UnixStream::pair().expect("a pair of sockets");
    let trips = count.div_ceil(2);
    let other = dapple::spawn(async move {
        for _ in 0..trips {
            read(&mut far).await;
            send(&mut far).await;
        }
    });
    for _ in 0..trips {
        send(&mut near).await;
        read(&mut near).await;
    }
    other.await.expect("a task that ends");
}

/// Writes `count` bytes into a socket that has room. The socket is emptied now and then, equally in all builds.
pub(crate) async fn write(count: usize) {
    let (near, mut far) = StdStream::pair().expect("a pair of sockets");
    let mut near = UnixStream::from_std(near).expect("a socket");
    let mut left = count;
    while left > 0 {
        let fill = left.min(WRITES);
        for _ in 0..fill {
            assert_eq!(near.write(&[7]).await.expect("a socket that holds"), 1);
        }
        far.read_exact(&mut [0; WRITES][..fill]).expect("what was written");
        left -= fill;
    }
}

async fn read(stream: &mut UnixStream) {
    let mut byte = [0];
    let length = stream.read(&mut byte).await.expect("a socket that holds");
    assert_eq!((length, byte), (1, [7]));
}

async fn send(stream: &mut UnixStream) {
    stream.write_all(&[7]).await.expect("a socket that holds");
}

/// Does `count` reads from a readable socket without their system call: the cost of the leaf future itself.
pub(crate) async fn bare_ready(count: usize) {
    let (near, mut far) = StdStream::pair().expect("a pair of sockets");
    let near = AsyncFd::new(near).expect("a socket");
    far.write_all(&[7]).expect("room for a byte");
    near.readable().await.expect("a socket that holds");
    for _ in 0..count {
        let length = near.read_with(|_| Ok(black_box(1))).await.expect("a socket that holds");
        assert_eq!(length, 1);
    }
}

/// Starts and abandons `count` reads that must wait: the first half of a wait, without a system call.
pub(crate) async fn bare_pending(count: usize) {
    let (near, _far) = StdStream::pair().expect("a pair of sockets");
    let near = AsyncFd::new(near).expect("a socket");
    for _ in 0..count {
        let nothing = |_: &StdStream| io::Result::<usize>::Err(ErrorKind::WouldBlock.into());
        let mut read = pin!(near.read_with(nothing));
        poll_fn(|cx| {
            assert!(read.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
}

/// The same, started in a scope.
pub(crate) async fn in_scope(work: impl Future<Output = ()> + Send + 'static) {
    dapple::finish(async |scope| {
        scope.start(work);
    })
    .await;
}
