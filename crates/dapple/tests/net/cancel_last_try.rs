//! A wait on a file descriptor that is cancelled after its event has come returns the result.
//!
//! Every wait here is begun and has to wait. Then its event is made to happen by a plain system call, and the scope is
//! cancelled at once, in the same poll: no driver has reported the event. The kernel has it all the same.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;

use crate::common::{Event, telling, watched};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::{AsyncFd, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, pipe};
use dapple::process::Command;
use dapple::signal::{SignalKind, signal};
use dapple::{finish_local, is_cancelled};
use rustix::process::{Pid, WaitIdOptions, kill_process, waitid};

const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Result of a wait whose event happens while it waits, right before its scope is cancelled.
async fn cancelled_after<T>(
    wait: impl Future<Output = io::Result<T>>,
    event: impl FnOnce(),
) -> io::Result<T> {
    finish_local(async |scope| {
        let wait = scope.start(wait);
        event();
        scope.cancel();
        wait.await
    })
    .await
}

fn run(test: impl AsyncFn() + Send + 'static) {
    watched(move || dapple::run(test()));
}

async fn tcp_pair() -> (TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind(HERE).await.unwrap();
    let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().await.unwrap().0, far)
}

/// Writes until there is no room, and returns how many bytes there was room for.
fn fill(write: impl Fn(&[u8]) -> io::Result<usize>) -> usize {
    std::iter::from_fn(|| write(&[7; 4096]).ok()).sum()
}

#[test]
fn tcp_read() {
    run(async || {
        let (mut near, mut far) = tcp_pair().await;
        for _ in 0..3 {
            let mut bytes = [0; 8];
            let read = cancelled_after(near.read(&mut bytes), || far.write_all(b"data").unwrap()).await;
            assert_eq!(&bytes[..read.unwrap()], b"data");
        }
        let read = cancelled_after(near.read(&mut [0; 8]), || drop(far)).await;
        assert_eq!(read.unwrap(), 0, "the end of the stream is a result as well");
    });
}

#[test]
fn tcp_peek_and_readable() {
    run(async || {
        let (near, mut far) = tcp_pair().await;
        let mut bytes = [0; 8];
        let peeked = cancelled_after(near.peek(&mut bytes), || far.write_all(b"data").unwrap()).await;
        assert_eq!(peeked.unwrap(), 4);
        let (near, mut far) = tcp_pair().await;
        cancelled_after(near.readable(), || far.write_all(b"data").unwrap()).await.unwrap();
    });
}

#[test]
fn tcp_write() {
    run(async || {
        let (mut near, mut far) = tcp_pair().await;
        let mut other = std::net::TcpStream::from(near.as_fd().try_clone_to_owned().unwrap());
        let mut filled = fill(|bytes| near.try_write(bytes));
        let drain = || {
            let mut bytes = vec![0; 1 << 20];
            while filled > 0 {
                filled -= far.read(&mut bytes).unwrap().min(filled);
            }
            while other.write(b"x").is_err() {} // until what was read has been acknowledged
        };
        assert_eq!(cancelled_after(near.write(b"more"), drain).await.unwrap(), 4);
    });
}

#[test]
fn tcp_accept() {
    run(async || {
        let listener = TcpListener::bind(HERE).await.unwrap();
        let addr = listener.local_addr().unwrap();
        for _ in 0..2 {
            let mut far = None;
            let connect = || far = Some(std::net::TcpStream::connect(addr).unwrap());
            let (_, from) = cancelled_after(listener.accept(), connect).await.unwrap();
            assert_eq!(from, far.unwrap().local_addr().unwrap());
        }
    });
}

#[test]
fn unix_read_and_write() {
    run(async || {
        let (mut far, near) = StdUnixStream::pair().unwrap();
        let mut near = UnixStream::from_std(near).unwrap();
        for _ in 0..3 {
            let read = cancelled_after(near.read(&mut [0; 8]), || far.write_all(b"data").unwrap()).await;
            assert_eq!(read.unwrap(), 4);
        }
        let filled = fill(|bytes| near.try_write(bytes));
        let drain = || far.read_exact(&mut vec![0; filled]).unwrap();
        assert!(cancelled_after(near.write(b"more"), drain).await.unwrap() > 0);
    });
}

#[test]
fn unix_accept() {
    run(async || {
        let path = std::env::temp_dir().join(format!("dapple-last-try-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let mut far = None;
        let connect = || far = Some(StdUnixStream::connect(&path).unwrap());
        let accepted = cancelled_after(listener.accept(), connect).await;
        std::fs::remove_file(&path).unwrap();
        accepted.unwrap();
    });
}

#[test]
fn pipe_read_and_write() {
    run(async || {
        let (near, mut far) = io::pipe().unwrap();
        let mut near = pipe::Receiver::from_fd(near).unwrap();
        for _ in 0..10 {
            let read = cancelled_after(near.read(&mut [0; 8]), || far.write_all(b"data").unwrap()).await;
            assert_eq!(read.unwrap(), 4);
        }
        // A pipe of our own goes by `Flow`.
        let (mut sender, mut receiver) = pipe::pipe().unwrap();
        for _ in 0..10 {
            let write = || assert_eq!(sender.try_write(b"data").unwrap(), 4);
            assert_eq!(cancelled_after(receiver.read(&mut [0; 8]), write).await.unwrap(), 4);
        }
        let mut filled = fill(|bytes| sender.try_write(bytes));
        let drain = || {
            while filled > 0 {
                filled -= receiver.try_read(&mut [0; 4096]).unwrap();
            }
        };
        assert_eq!(cancelled_after(sender.write(b"more"), drain).await.unwrap(), 4);
    });
}

#[test]
fn udp_receive() {
    run(async || {
        let near = UdpSocket::bind(HERE).await.unwrap();
        let far = std::net::UdpSocket::bind(HERE).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        for _ in 0..2 {
            let send = || assert_eq!(far.send(b"data").unwrap(), 4);
            let (read, from) = cancelled_after(near.recv_from(&mut [0; 8]), send).await.unwrap();
            assert_eq!((read, from), (4, far.local_addr().unwrap()));
        }
        let send = || assert_eq!(far.send(b"data").unwrap(), 4);
        cancelled_after(near.readable(), send).await.unwrap();
    });
}

#[test]
fn unix_datagram_receive_and_send() {
    run(async || {
        let (near, far) = UnixDatagram::pair().unwrap();
        for _ in 0..2 {
            let send = || assert_eq!(far.try_send(b"data").unwrap(), 4);
            assert_eq!(cancelled_after(near.recv(&mut [0; 8]), send).await.unwrap(), 4);
        }
        let mut sent = 0;
        while near.try_send(&[7; 4096]).is_ok() {
            sent += 1;
        }
        let drain = || (0..sent).for_each(|_| assert_eq!(far.try_recv(&mut [0; 4096]).unwrap(), 4096));
        assert_eq!(cancelled_after(near.send(b"more"), drain).await.unwrap(), 4);
    });
}

#[test]
fn async_fd() {
    run(async || {
        let (near, mut far) = StdUnixStream::pair().unwrap();
        let near = AsyncFd::new(near).unwrap();
        cancelled_after(near.readable(), || far.write_all(b"data").unwrap()).await.unwrap();
        let read_with = || near.read_with(|mut near| near.read(&mut [0; 8]));
        assert_eq!(read_with().await.unwrap(), 4);
        let read = cancelled_after(read_with(), || far.write_all(b"data").unwrap()).await;
        assert_eq!(read.unwrap(), 4);
    });
}

#[test]
#[expect(unsafe_code, reason = "raises a signal")]
fn signal_recv() {
    run(async || {
        let kind = SignalKind::from_raw(libc::SIGUSR2);
        let mut signals = signal(kind).unwrap();
        for _ in 0..2 {
            // To its own thread: so it has been handled when this returns.
            // SAFETY: the signal has a handler.
            let raise = || assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
            cancelled_after(signals.recv(), raise).await.unwrap();
        }
    });
}

#[test]
fn child_wait() {
    run(async || {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
        let kill = || {
            kill_process(pid, rustix::process::Signal::KILL).unwrap();
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT; // it stays to be waited for
            waitid(rustix::process::WaitId::Pid(pid), ended).unwrap();
        };
        let status = cancelled_after(child.wait(), kill).await.unwrap();
        assert!(!status.success());
    });
}

/// The same for another way to be cancelled.
#[test]
fn a_task_that_is_cancelled_tries_once_more() {
    run(async || {
        let (mut far, near) = StdUnixStream::pair().unwrap();
        let mut near = UnixStream::from_std(near).unwrap();
        let waits = Event::default();
        let task = dapple::spawn_local(telling(waits.clone(), async move { near.read(&mut [0; 8]).await }));
        waits.happened().await; // it runs in the color of this poll, so not now
        far.write_all(b"data").unwrap();
        task.cancel();
        assert_eq!(task.await.unwrap().unwrap(), 4);
    });
}

#[test]
fn a_wait_that_begins_in_a_cancelled_scope_takes_nothing() {
    run(async || {
        let (mut far, near) = StdUnixStream::pair().unwrap();
        let mut near = UnixStream::from_std(near).unwrap();
        far.write_all(b"data").unwrap();
        let read = finish_local(async |scope| {
            scope.cancel();
            near.read(&mut [0; 8]).await
        });
        assert!(is_cancelled(&read.await.unwrap_err()));
        assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 4, "it is still there");
    });
}
