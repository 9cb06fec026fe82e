//! TCP in a scope that is cancelled: each operation happens, or it does not.
//!
//! In simulations by many seeds, and in reality.

use std::net::Ipv4Addr;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Event, runtime, telling, watched};
use crate::scope_common::{Lent, Operation, SHAPES, When, happened, in_a_cancelled, really, simulated};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::{self};
use dapple::sim::{self, Sim};
use dapple::time::{sleep, timeout};
use dapple::{finish, race};
use futures_lite::future::poll_once;

pub(crate) const SEEDS: u64 = 20;
pub(crate) const ROUNDS: usize = 25;
pub(crate) const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

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
                        // The rest, if the bytes came in pieces. Reading it is not part of this test.
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
fn a_cancelled_server_answers_accepted_connections() {
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
