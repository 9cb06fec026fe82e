//! Sockets, pipes, signals, processes and names in a scope that is cancelled: they happen, or they do not.
//!
//! Sockets in simulations by many seeds and, as all else here, in reality.

use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Event, runtime, telling, watched};
use crate::scope_common::{Lent, Operation, SHAPES, When, happened, in_a_cancelled, really, simulated};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::{self, UdpSocket, UnixDatagram, UnixListener, UnixStream, lookup, pipe};
use dapple::process::{Child, Command};
use dapple::signal::{Signal, SignalKind, signal};
use dapple::sim::{self, Sim};
use dapple::time::{sleep, timeout};
use dapple::{finish, race};
use futures_lite::future::poll_once;

const SEEDS: u64 = 20;
const ROUNDS: usize = 25;
const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// The same tests for the sockets of a simulation and for real ones.
macro_rules! tcp_operations {
    ($module:ident, $net:path) => {
        mod $module {
            use super::*;
            use $net::{TcpListener, TcpStream};

            pub(super) async fn pair() -> (TcpStream, TcpStream) {
                let listener = TcpListener::bind(HERE).await.unwrap();
                let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                (near, listener.accept().await.unwrap().0)
            }

            #[derive(Clone, Copy)]
            pub(super) enum Reads {
                Read,
                Peek,
                Readable,
            }

            /// Reads, or waits for something to be read.
            pub(super) struct Reading {
                near: Lent<TcpStream>,
                far: Lent<TcpStream>,
                how: Reads,
            }

            impl Reading {
                pub(super) async fn new(how: Reads) -> Reading {
                    let (near, far) = pair().await;
                    Reading { near: Lent::new(near), far: Lent::new(far), how }
                }
            }

            impl Operation for Reading {
                async fn run(&self) -> bool {
                    let (mut far, mut bytes) = (self.far.take(), [0; 8]);
                    let read = match self.how {
                        Reads::Read => happened(far.read(&mut bytes).await),
                        Reads::Peek => happened(far.peek(&mut bytes).await),
                        Reads::Readable => happened(far.readable().await).map(|()| 3),
                    };
                    self.far.give(far);
                    assert!(read.is_none_or(|read| read > 0));
                    if let (Reads::Read, Some(read)) = (self.how, read) {
                        // The rest, if it came in pieces: not a part of what is tried here.
                        let mut far = self.far.take();
                        let rest = dapple::shield(far.read_exact(&mut bytes[read..3])).await;
                        rest.unwrap();
                        self.far.give(far);
                        assert_eq!(&bytes[..3], b"abc");
                    }
                    read.is_some()
                }

                async fn complete(&self) {
                    let mut near = self.near.take();
                    near.write_all(b"abc").await.unwrap();
                    self.near.give(near);
                }

                async fn settle(&self, completed: usize, happened: usize) {
                    drop(self.near.take());
                    let (mut far, mut left) = (self.far.take(), String::new());
                    far.read_to_string(&mut left).await.unwrap();
                    let taken = if matches!(self.how, Reads::Read) { happened } else { 0 };
                    assert_eq!(left, "abc".repeat(completed - taken));
                }
            }

            pub(super) struct Accepting {
                listener: TcpListener,
                clients: StdMutex<Vec<TcpStream>>,
                accepted: StdMutex<Vec<TcpStream>>,
            }

            impl Accepting {
                pub(super) async fn new() -> Accepting {
                    let listener = TcpListener::bind(HERE).await.unwrap();
                    Accepting { listener, clients: StdMutex::default(), accepted: StdMutex::default() }
                }
            }

            impl Operation for Accepting {
                async fn run(&self) -> bool {
                    let accepted = happened(self.listener.accept().await);
                    accepted.map(|(stream, _)| self.accepted.lock().unwrap().push(stream)).is_some()
                }

                async fn complete(&self) {
                    let mut client = TcpStream::connect(self.listener.local_addr().unwrap()).await.unwrap();
                    client.write_all(b"hello").await.unwrap();
                    client.close().await.unwrap();
                    self.clients.lock().unwrap().push(client);
                }

                async fn settle(&self, completed: usize, happened: usize) {
                    let mut streams = std::mem::take(&mut *self.accepted.lock().unwrap());
                    assert_eq!(streams.len(), happened);
                    for _ in happened..completed {
                        streams.push(self.listener.accept().await.unwrap().0);
                    }
                    for mut stream in streams {
                        let mut said = String::new();
                        stream.read_to_string(&mut said).await.unwrap();
                        assert_eq!(said, "hello");
                    }
                    assert!(poll_once(self.listener.accept()).await.is_none());
                }
            }

            /// Writes again and again, in scopes that are cancelled: what was written is what is read.
            pub(super) async fn writes_are_counted(shape: crate::scope_common::Shape, rounds: usize) {
                let (mut near, mut far) = pair().await;
                let reads = dapple::spawn(async move {
                    let (mut total, mut sum, mut bytes) = (0_u64, 0_u64, vec![0; 100_000]);
                    loop {
                        crate::scope_common::hesitate().await;
                        match far.read(&mut bytes).await.unwrap() {
                            0 => return (total, sum),
                            read => {
                                total += read as u64;
                                sum += bytes[..read].iter().map(|byte| u64::from(*byte)).sum::<u64>();
                            }
                        }
                    }
                });
                let (mut total, mut sum, mut ended) = (0_u64, 0_u64, 0);
                for round in 0..rounds {
                    let bytes = vec![round as u8; 70_000];
                    let begun = Event::default();
                    let writes = async {
                        let mut written = 0;
                        while let Some(count) = happened(near.write(&bytes).await) {
                            assert!(count > 0);
                            written += count as u64;
                        }
                        written
                    };
                    let late = round % 5 == 4;
                    let when = if late { When::Before } else { When::After(begun.clone()) };
                    let written = in_a_cancelled(shape, when, telling(begun, writes)).await;
                    assert!(!late || written == 0, "nothing is written after the cancel");
                    total += written;
                    sum += written * (round as u64 % 256);
                    ended += 1;
                }
                assert_eq!(ended, rounds);
                drop(near);
                assert_eq!(reads.await.unwrap(), (total, sum));
            }

            /// A connection is made or it is not: then whoever accepts it sees its end at once.
            pub(super) async fn connects_or_not(shape: crate::scope_common::Shape) {
                let listener = TcpListener::bind(HERE).await.unwrap();
                let addr = listener.local_addr().unwrap();
                assert!(
                    happened(in_a_cancelled(shape, When::Before, TcpStream::connect(addr)).await).is_none()
                );
                assert!(poll_once(listener.accept()).await.is_none(), "nobody connected");
                let begun = Event::default();
                begun.set();
                let connected = in_a_cancelled(shape, When::After(begun), TcpStream::connect(addr)).await;
                match happened(connected) {
                    Some(mut near) => {
                        near.write_all(b"x").await.unwrap();
                        let (mut far, from) = listener.accept().await.unwrap();
                        assert_eq!(from, near.local_addr().unwrap());
                        assert_eq!(far.read(&mut [0; 2]).await.unwrap(), 1);
                    }
                    None => {
                        // If it got as far as to be accepted, it has ended.
                        let accepted = timeout(Duration::from_millis(1), listener.accept()).await;
                        let accepted = accepted.unwrap_or_else(|elapsed| elapsed.into_inner().unwrap());
                        if let Some((mut far, _)) = happened(accepted) {
                            assert!(!matches!(far.read(&mut [0; 2]).await, Ok(1..)));
                        }
                    }
                }
            }
        }
    };
}

tcp_operations!(virtual_tcp, sim::net);
tcp_operations!(real_tcp, net);

#[test]
fn reading_in_a_simulation() {
    use virtual_tcp::{Reading, Reads};
    for how in [Reads::Read, Reads::Peek, Reads::Readable] {
        simulated(SEEDS, false, async move || Reading::new(how).await);
    }
}

#[test]
fn reading() {
    use real_tcp::{Reading, Reads};
    for how in [Reads::Read, Reads::Peek, Reads::Readable] {
        really(ROUNDS, false, async move || Reading::new(how).await);
    }
}

#[test]
fn accepting_in_a_simulation() {
    simulated(SEEDS, true, async || virtual_tcp::Accepting::new().await);
}

#[test]
fn accepting() {
    really(ROUNDS, true, async || real_tcp::Accepting::new().await);
}

#[test]
fn writing_in_a_simulation() {
    for shape in SHAPES {
        Sim::new(1).explore(0..SEEDS, || virtual_tcp::writes_are_counted(shape, 10));
    }
}

#[test]
fn writing() {
    watched(|| {
        let rt = runtime(2);
        for shape in SHAPES {
            rt.block_on(real_tcp::writes_are_counted(shape, 40));
        }
    });
}

#[test]
fn connecting_in_a_simulation() {
    for shape in SHAPES {
        Sim::new(1).explore(0..SEEDS, || virtual_tcp::connects_or_not(shape));
    }
}

#[test]
fn connecting() {
    watched(|| {
        let rt = runtime(2);
        for shape in SHAPES {
            (0..ROUNDS).for_each(|_| rt.block_on(real_tcp::connects_or_not(shape)));
        }
    });
}

/// What is read of a Unix socket, a datagram socket, or a pipe.
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

#[test]
fn a_race_of_reads_takes_bytes_from_one_alone() {
    Sim::new(1).explore(0..100, || async {
        let (mut pairs, mut got) = (Vec::new(), Vec::<u8>::new());
        for _ in 0..2 {
            pairs.push(virtual_tcp::pair().await);
        }
        let [(mut near, mut far), (mut other_near, mut other_far)] = <[_; 2]>::try_from(pairs).unwrap();
        let writes = dapple::spawn(async move {
            for _ in 0..20 {
                sleep(Duration::from_micros(sim::random() % 5)).await.unwrap();
                near.write_all(b"a").await.unwrap();
                other_near.write_all(b"b").await.unwrap();
            }
            (near, other_near) // an end that is read would win every race
        });
        // The loser of a race may have read something as well: so its reads tell where.
        let (first, second) = (StdMutex::new(Vec::new()), StdMutex::new(Vec::new()));
        while got.len() < 40 {
            let read_first = async {
                let mut byte = [0];
                let read = happened(far.read(&mut byte).await);
                first.lock().unwrap().extend(&byte[..read.unwrap_or(0)]);
            };
            let read_second = async {
                let mut byte = [0];
                let read = happened(other_far.read(&mut byte).await);
                second.lock().unwrap().extend(&byte[..read.unwrap_or(0)]);
            };
            race((read_first, read_second)).await;
            got.append(&mut first.lock().unwrap());
            got.append(&mut second.lock().unwrap());
        }
        got.sort_unstable();
        assert_eq!(got, [b"a".repeat(20), b"b".repeat(20)].concat());
        drop(writes.await.unwrap());
    });
}

#[test]
fn a_server_that_is_cancelled_answers_what_it_has_accepted() {
    Sim::new(1).workers(3).explore(0..100, || async {
        use dapple::sim::net::{TcpListener, TcpStream};
        let listener = TcpListener::bind(HERE).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                dapple::spawn(async move {
                    sleep(Duration::from_micros(sim::random() % 500)).await.unwrap();
                    let mut client = TcpStream::connect(addr).await.ok()?;
                    let mut answer = [0];
                    (client.read(&mut answer).await.ok()? == 1).then_some(answer[0])
                })
            })
            .collect();
        let accepted = AtomicUsize::new(0);
        finish(async |s| {
            drop(s.start(async {
                sleep(Duration::from_micros(sim::random() % 800)).await.unwrap();
                s.cancel();
            }));
            while let Some((mut stream, _)) = happened(listener.accept().await) {
                accepted.fetch_add(1, Ordering::Relaxed);
                drop(s.start(dapple::shield(async move { stream.write_all(b"!").await.unwrap() })));
            }
        })
        .await;
        drop(listener);
        let mut answered = 0;
        for client in clients {
            answered += usize::from(client.await.unwrap().is_some());
        }
        assert_eq!(answered, accepted.into_inner());
    });
}
