//! The network of a simulation against the real one: the same program sees the same ends and errors.

use std::fmt::Debug;
use std::io;

/// The results that a program saw: numbers and kinds of errors, in order.
#[derive(Debug, Default, PartialEq)]
struct Seen(Vec<String>);

impl Seen {
    fn note<T: Debug>(&mut self, what: &str, result: io::Result<T>) {
        let result = result.map_err(|error| error.kind());
        self.0.push(format!("{what}: {result:?}"));
    }
}

/// The same programs over one network or the other.
macro_rules! programs {
    ($name:ident, $($network:ident)::+) => {
        mod $name {
            use std::io::ErrorKind;
            use std::net::Shutdown;
            use std::time::Duration;

            use dapple::io::{AsyncReadExt, AsyncWriteExt};
            use $($network)::+::{TcpListener, TcpStream};

            use super::Seen;

            async fn pair() -> (TcpStream, TcpStream) {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let (far, _) = listener.accept().await.unwrap();
                (near, far)
            }

            /// Writes until that fails.
            async fn write_until_refused(stream: &mut TcpStream) -> std::io::Result<()> {
                loop {
                    stream.write(b"x").await?;
                    dapple::time::sleep(Duration::from_millis(1)).await?;
                }
            }

            async fn closed(seen: &mut Seen) {
                let (mut near, mut far) = pair().await;
                near.write_all(b"hello").await.unwrap();
                near.close().await.unwrap();
                seen.note("close twice", near.close().await);
                seen.note("write after close", near.write(b"x").await);
                let mut text = Vec::new();
                seen.note("read to the end", far.read_to_end(&mut text).await);
                seen.note("read at the end", far.read(&mut [0; 8]).await);
                far.write_all(b"back").await.unwrap();
                drop(far);
                seen.note("read to the other end", near.read_to_end(&mut text).await);
            }

            async fn dropped(seen: &mut Seen) {
                let (mut near, mut far) = pair().await;
                near.write_all(b"hello").await.unwrap();
                drop(near);
                let mut text = Vec::new();
                seen.note("read what was sent", far.read_to_end(&mut text).await);
                seen.note("write to nobody", write_until_refused(&mut far).await);
                seen.note("read from nobody", far.read(&mut [0; 8]).await);
                seen.note("write again", far.write(b"x").await);
            }

            async fn dropped_unread(seen: &mut Seen, first: usize) {
                let (mut near, far) = pair().await;
                near.write_all(b"never read").await.unwrap();
                far.readable().await.unwrap();
                drop(far);
                near.readable().await.unwrap();
                match first {
                    0 => seen.note("read", near.read(&mut [0; 8]).await),
                    1 => seen.note("write", near.write(b"x").await),
                    _ => seen.note("error", near.take_error().map(|error| error.map(|error| error.kind()))),
                }
                seen.note("read then", near.read(&mut [0; 8]).await);
                seen.note("write then", near.write(b"x").await);
                seen.note("shutdown then", near.shutdown(Shutdown::Write));
                seen.note("close then", near.close().await);
                seen.note("error then", near.take_error().map(|error| error.map(|error| error.kind())));
            }

            async fn reset(seen: &mut Seen) {
                let (near, mut far) = pair().await;
                near.set_linger(Some(Duration::ZERO)).unwrap();
                drop(near);
                far.readable().await.unwrap();
                seen.note("read from a reset one", far.read(&mut [0; 8]).await);
            }

            async fn reset_after_the_end(seen: &mut Seen) {
                let (mut near, mut far) = pair().await;
                near.close().await.unwrap();
                seen.note("the end", far.read(&mut [0; 8]).await);
                far.write_all(b"unread").await.unwrap();
                near.readable().await.unwrap();
                drop(near);
                seen.note("write", write_until_refused(&mut far).await);
                seen.note("read", far.read(&mut [0; 8]).await);
            }

            async fn shut_down_for_reading(seen: &mut Seen) {
                let (near, mut far) = pair().await;
                near.shutdown(Shutdown::Read).unwrap();
                seen.note("read", { near }.read(&mut [0; 8]).await);
                seen.note("the other side", far.read(&mut [0; 8]).await);
            }

            async fn not_accepted(seen: &mut Seen) {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let addr = listener.local_addr().unwrap();
                seen.note("bind again", TcpListener::bind(addr).await);
                let mut near = TcpStream::connect(addr).await.unwrap();
                drop(listener);
                seen.note("not accepted", near.read(&mut [0; 8]).await);
                seen.note("nobody there", TcpStream::connect(addr).await);
            }

            async fn gone_before_accepted(seen: &mut Seen) {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                near.write_all(b"and gone").await.unwrap();
                drop(near);
                let (mut far, _) = listener.accept().await.unwrap();
                let mut text = String::new();
                seen.note("read what was sent", far.read_to_string(&mut text).await);
            }

            async fn full(seen: &mut Seen) {
                let (near, far) = pair().await;
                let mut sent = 0;
                let stopped = loop {
                    match near.try_write(&[0; 4096]) {
                        Ok(n) => sent += n,
                        // A real one goes on a little while what was written is moved along.
                        Err(error) if error.kind() == ErrorKind::WouldBlock && sent < 65536 => {}
                        Err(error) => break error,
                    }
                };
                seen.note("written", Err::<(), _>(stopped));
                far.readable().await.unwrap();
                drop(far);
                near.writable().await.unwrap();
                seen.note("write", near.try_write(b"x"));
                seen.note("again", near.try_write(b"x"));
            }

            pub(super) async fn all() -> Seen {
                let mut seen = Seen::default();
                closed(&mut seen).await;
                dropped(&mut seen).await;
                for first in 0..3 {
                    dropped_unread(&mut seen, first).await;
                }
                reset(&mut seen).await;
                reset_after_the_end(&mut seen).await;
                shut_down_for_reading(&mut seen).await;
                not_accepted(&mut seen).await;
                gone_before_accepted(&mut seen).await;
                full(&mut seen).await;
                seen
            }
        }
    };
}

programs!(real, dapple::net);
programs!(simulated, dapple::sim::net);

#[test]
fn ends_and_errors_are_those_of_real_connections() {
    let real = dapple::run(real::all());
    for seed in 0..20 {
        // Steady, for a read that falls short would be another number.
        let seen = dapple::sim::Sim::new(seed).steady().run(simulated::all());
        for (real, seen) in real.0.iter().zip(&seen.0) {
            assert_eq!(real, seen);
        }
        assert_eq!(real, seen);
    }
}
