//! Unix sockets, datagrams, pipes, signals, processes and names in a scope that is cancelled: they happen, or they do not.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Event, runtime, telling, watched};
use crate::exact_io::{HERE, ROUNDS};
use crate::scope_common::{Lent, Operation, SHAPES, When, happened, in_a_cancelled, really};
use dapple::io::AsyncReadExt;
use dapple::net::{UdpSocket, UnixDatagram, UnixListener, UnixStream, lookup, pipe};
use dapple::process::{Child, Command};
use dapple::signal::{Signal, SignalKind, signal};
use futures_lite::future::poll_once;

/// A read of a Unix socket, a datagram socket, or a pipe.
enum Reading {
    Unix(Lent<UnixStream>, Lent<UnixStream>),
    Udp(UdpSocket, UdpSocket),
    UnixDatagram(UnixDatagram, UnixDatagram),
    Pipe(Lent<pipe::Sender>, Lent<pipe::Receiver>),
}

impl Reading {
    async fn new(which: usize) -> Reading {
        match which {
            0 => {
                let (near, far) = UnixStream::pair().unwrap();
                Reading::Unix(Lent::new(near), Lent::new(far))
            }
            1 => {
                let (near, far) =
                    (UdpSocket::bind(HERE).await.unwrap(), UdpSocket::bind(HERE).await.unwrap());
                near.connect(far.local_addr().unwrap()).await.unwrap();
                Reading::Udp(near, far)
            }
            2 => {
                let (near, far) = UnixDatagram::pair().unwrap();
                Reading::UnixDatagram(near, far)
            }
            _ => {
                let (near, far) = pipe::pipe().unwrap();
                Reading::Pipe(Lent::new(near), Lent::new(far))
            }
        }
    }

    async fn next(&self) -> Option<usize> {
        let mut bytes = [0; 8];
        let read = match self {
            Reading::Unix(_, lent) => {
                let mut far = lent.take();
                let read = far.read(&mut bytes[..1]).await;
                lent.give(far);
                read
            }
            Reading::Udp(_, far) => far.recv_from(&mut bytes).await.map(|(read, _)| read),
            Reading::UnixDatagram(_, far) => far.recv(&mut bytes).await,
            Reading::Pipe(_, lent) => {
                let mut far = lent.take();
                let read = far.read(&mut bytes[..1]).await;
                lent.give(far);
                read
            }
        };
        let read = happened(read);
        assert!(read.is_none_or(|read| read == 1 && bytes[0] == b'x'));
        read
    }
}

impl Operation for Reading {
    async fn run(&self) -> bool {
        self.next().await.is_some()
    }

    async fn complete(&self) {
        let sent = match self {
            Reading::Unix(lent, _) => lent.with(|near| near.try_write(b"x")),
            Reading::Udp(near, _) => near.try_send(b"x"),
            Reading::UnixDatagram(near, _) => near.try_send(b"x"),
            Reading::Pipe(lent, _) => lent.with(|near| near.try_write(b"x")),
        };
        assert_eq!(sent.unwrap(), 1);
    }

    async fn settle(&self, completed: usize, happened: usize) {
        for _ in happened..completed {
            assert_eq!(self.next().await, Some(1));
        }
        assert_eq!(poll_once(self.next()).await, None);
    }
}

#[test]
fn unix_sockets_datagrams_and_pipes() {
    for which in 0..4 {
        really(ROUNDS, matches!(which, 1 | 2), async move || Reading::new(which).await);
    }
}

struct UnixAccepting(UnixListener, std::path::PathBuf, StdMutex<Vec<StdUnixStream>>);

impl UnixAccepting {
    fn new() -> UnixAccepting {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dapple-exact-{}-{number}", std::process::id()));
        UnixAccepting(UnixListener::bind(&path).unwrap(), path, StdMutex::default())
    }
}

impl Drop for UnixAccepting {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1);
    }
}

impl Operation for UnixAccepting {
    async fn run(&self) -> bool {
        happened(self.0.accept().await).is_some()
    }

    async fn complete(&self) {
        self.2.lock().unwrap().push(StdUnixStream::connect(&self.1).unwrap());
    }

    async fn settle(&self, completed: usize, happened: usize) {
        for _ in happened..completed {
            self.0.accept().await.unwrap();
        }
        assert!(poll_once(self.0.accept()).await.is_none());
        // And from the other side.
        let connected =
            in_a_cancelled(crate::scope_common::Shape::Body, When::Before, UnixStream::connect(&self.1));
        assert!(crate::scope_common::happened(connected.await).is_none());
        assert!(poll_once(self.0.accept()).await.is_none(), "nobody connected");
    }
}

#[test]
fn accepting_from_a_unix_socket() {
    really(ROUNDS, true, async || UnixAccepting::new());
}

/// Signals are the whole process's: no other test of this file uses this one.
struct Signalled(Lent<Signal>, StdMutex<Signal>);

impl Signalled {
    async fn next(&self) -> bool {
        let mut signal = self.0.take();
        let came = happened(signal.recv().await).is_some();
        self.0.give(signal);
        came
    }
}

impl Operation for Signalled {
    async fn run(&self) -> bool {
        self.next().await
    }

    async fn complete(&self) {
        let kind = rustix::process::Signal::USR1;
        rustix::process::kill_process(rustix::process::getpid(), kind).unwrap();
        // It may be handled on any thread, a little later: a second listener waits for that.
        let mut witness = std::mem::replace(&mut *self.1.lock().unwrap(), usr1());
        witness.recv().await.unwrap();
    }

    async fn settle(&self, completed: usize, happened: usize) {
        for _ in happened..completed {
            assert!(self.next().await);
        }
        assert_eq!(poll_once(self.next()).await, None);
    }
}

fn usr1() -> Signal {
    signal(SignalKind::user_defined1()).unwrap()
}

#[test]
fn signals() {
    really(ROUNDS, false, async || Signalled(Lent::new(usr1()), StdMutex::new(usr1())));
}

/// A child that ends when its input does.
struct Waiting(Lent<Child>, StdMutex<Option<dapple::process::ChildStdin>>);

impl Waiting {
    fn new() -> Waiting {
        let mut child = Command::new("cat").stdin(dapple::process::Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        Waiting(Lent::new(child), StdMutex::new(input))
    }
}

impl Operation for Waiting {
    async fn run(&self) -> bool {
        let mut child = self.0.take();
        let ended = happened(child.wait().await);
        self.0.give(child);
        assert!(ended.is_none_or(|status| status.success()));
        ended.is_some()
    }

    async fn complete(&self) {
        drop(self.1.lock().unwrap().take());
    }

    async fn settle(&self, completed: usize, _happened: usize) {
        if completed == 0 {
            assert!(self.0.with(|child| child.try_wait().unwrap().is_none()), "the child runs on");
        }
        self.complete().await;
        assert!(self.0.take().wait().await.unwrap().success());
    }
}

#[test]
fn processes() {
    really(3, false, async || Waiting::new());
}

#[test]
fn names() {
    watched(|| {
        let rt = runtime(2);
        for shape in SHAPES {
            rt.block_on(async {
                for name in ["localhost:80", "127.0.0.1:80"] {
                    assert!(happened(in_a_cancelled(shape, When::Before, lookup(name)).await).is_none());
                    let begun = Event::default();
                    let looking_up = telling(begun.clone(), lookup(name));
                    begun.set();
                    let found = happened(in_a_cancelled(shape, When::After(begun), looking_up).await);
                    assert!(found.is_none_or(|found| found[0].ip().is_loopback()));
                    assert!(!lookup(name).await.unwrap().is_empty());
                }
            });
        }
    });
}
