//! Pipes, with and without a name.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Event, foreign_block_on, runtime, telling, watched};
use dapple::is_cancelled;
use dapple::net::pipe;
use dapple::net::pipe::{OpenOptions, Receiver, Sender};
use futures_lite::{AsyncReadExt, AsyncWriteExt, future};
use rustix::pipe::{PipeFlags, pipe_with};

fn fill(sender: &Sender) -> usize {
    let mut written = 0;
    loop {
        match sender.try_write(&[0; 4096]) {
            Ok(n) => written += n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return written;
            }
        }
    }
}

#[test]
fn more_than_fits_up_to_the_end() {
    const MUCH: usize = 1_000_000;
    watched(|| {
        runtime(2).block_on(async {
            let (mut sender, mut receiver) = pipe().unwrap();
            let writes = dapple::spawn(async move {
                for chunk in 0..MUCH / 1000 {
                    sender.write_all(&[chunk as u8; 1000]).await.unwrap();
                }
                sender.close().await.unwrap();
            });
            let mut all = Vec::new();
            receiver.read_to_end(&mut all).await.unwrap();
            writes.await.unwrap();
            assert_eq!(all.len(), MUCH);
            assert!(all.iter().enumerate().all(|(i, byte)| *byte == (i / 1000) as u8));
            assert_eq!(receiver.read(&mut [0; 10]).await.unwrap(), 0, "the end stays");
        });
    });
}

#[test]
fn the_end_is_the_last_sender_dropped() {
    watched(|| {
        runtime(2).block_on(async {
            let (mut sender, mut receiver) = pipe().unwrap();
            let begun = Event::default();
            let reads =
                dapple::spawn(telling(begun.clone(), async move { receiver.read(&mut [0; 10]).await }));
            begun.happened().await;
            let other: OwnedFd = rustix::io::fcntl_dupfd_cloexec(&sender, 0).unwrap();
            sender.close().await.unwrap();
            drop(sender);
            assert!(!reads.is_finished());
            drop(other);
            assert_eq!(reads.await.unwrap().unwrap(), 0);
        });
    });
}

#[test]
fn without_a_receiver_writing_fails() {
    watched(|| {
        runtime(2).block_on(async {
            let (mut sender, receiver) = pipe().unwrap();
            fill(&sender);
            let begun = Event::default();
            let writes = dapple::spawn(telling(begun.clone(), async move {
                let error = sender.write(b"waits for room").await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::BrokenPipe);
                assert_eq!(sender.write(b"again").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
                sender.writable().await.unwrap();
                assert_eq!(sender.try_write(b"again").unwrap_err().kind(), ErrorKind::BrokenPipe);
            }));
            begun.happened().await;
            drop(receiver);
            writes.await.unwrap();
        });
    });
}

#[test]
fn cancelled_reading_and_writing_do_nothing() {
    watched(|| {
        let rt = runtime(2);
        let (mut sender, mut receiver) = pipe().unwrap();
        let begun = Event::default();
        let task = rt.spawn(telling(begun.clone(), async move {
            let error = receiver.read(&mut [0; 10]).await.unwrap_err();
            (receiver, error)
        }));
        begun.wait();
        task.cancel();
        let (receiver, error) = rt.block_on(task).unwrap();
        assert!(is_cancelled(&error));

        let filled = fill(&sender);
        let begun = Event::default();
        let task = rt.spawn(telling(begun.clone(), async move {
            let error = sender.write(b"not written").await.unwrap_err();
            assert!(is_cancelled(&error));
        }));
        begun.wait();
        task.cancel();
        rt.block_on(task).unwrap();
        let mut all = Vec::new();
        std::fs::File::from(receiver.into_blocking_fd().unwrap()).read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), filled);
    });
}

#[test]
fn readiness_vectored_calls_and_empty_buffers() {
    watched(|| {
        runtime(1).block_on(async {
            let (mut sender, mut receiver) = pipe().unwrap();
            assert_eq!(receiver.read(&mut []).await.unwrap(), 0);
            assert_eq!(receiver.try_read(&mut []).unwrap(), 0);
            assert_eq!(sender.write(&[]).await.unwrap(), 0);
            assert!(future::poll_once(receiver.readable()).await.is_none());
            assert_eq!(receiver.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            sender.writable().await.unwrap();
            let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
            assert_eq!(sender.try_write_vectored(&slices).unwrap(), 5);
            assert_eq!(sender.write_vectored(&slices).await.unwrap(), 5);
            receiver.readable().await.unwrap();
            let (mut a, mut b) = ([0; 3], [0; 3]);
            let mut buffers = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            assert_eq!(receiver.read_vectored(&mut buffers).await.unwrap(), 6);
            assert_eq!((&a, &b), (b"abc", b"dea"));
            let mut buffers = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            assert_eq!(receiver.try_read_vectored(&mut buffers).unwrap(), 4);
            sender.flush().await.unwrap();
        });
    });
}

/// In packet mode a read takes one packet, though there are more.
#[test]
fn packets_are_all_read() {
    watched(|| {
        runtime(1).block_on(async {
            let (reader, writer) = pipe_with(PipeFlags::DIRECT | PipeFlags::CLOEXEC).unwrap();
            let (mut sender, mut receiver) =
                (Sender::from_fd(writer).unwrap(), Receiver::from_fd(reader).unwrap());
            let mut buffer = [0; 100];
            assert!(future::poll_once(receiver.read(&mut buffer)).await.is_none(), "it is registered");
            for packet in [&b"one"[..], b"three", b"x"] {
                sender.write_all(packet).await.unwrap();
            }
            for packet in [&b"one"[..], b"three", b"x"] {
                let n = receiver.read(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..n], packet);
            }
        });
    });
}

#[test]
fn made_elsewhere() {
    watched(|| {
        runtime(1).block_on(async {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let mut receiver = Receiver::from_fd(reader).unwrap();
            writer.write_all(b"hello").unwrap();
            assert_eq!(receiver.read(&mut [0; 10]).await.unwrap(), 5);
            let sender = Sender::from_fd(writer).unwrap();
            let number = sender.as_raw_fd();
            assert_eq!(OwnedFd::from(sender).as_raw_fd(), number);

            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut sender = Sender::from_fd(child.stdin.take().unwrap()).unwrap();
            let mut receiver = Receiver::from_fd(child.stdout.take().unwrap()).unwrap();
            sender.write_all(b"through a cat").await.unwrap();
            drop(sender);
            let mut text = String::new();
            receiver.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "through a cat");
            assert!(child.wait().unwrap().success());
        });
    });
}

#[test]
fn what_is_not_the_right_end_is_refused() {
    let (reader, writer) = std::io::pipe().unwrap();
    for (error, says) in [
        (Receiver::from_fd(writer).unwrap_err(), "cannot be read"),
        (Sender::from_fd(reader).unwrap_err(), "cannot be written"),
        (Receiver::from_fd(std::fs::File::open("/dev/null").unwrap()).unwrap_err(), "AsyncFd"),
        (Sender::from_fd(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap_err(), "AsyncFd"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn outside_of_a_runtime_only_waiting_is_an_error() {
    watched(|| {
        foreign_block_on(async {
            let (mut sender, mut receiver) = pipe().unwrap();
            sender.write_all(b"hello").await.unwrap();
            assert_eq!(receiver.read(&mut [0; 10]).await.unwrap(), 5);
            let error = receiver.read(&mut [0; 10]).await.unwrap_err();
            assert!(error.to_string().contains("dapple::run"), "{error}");
        });
    });
}

/// A named pipe in a folder that is gone with the test.
struct Fifo(PathBuf);

impl Fifo {
    fn new() -> Fifo {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("dapple-fifo-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        Fifo(path)
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn named() {
    watched(|| {
        let fifo = Fifo::new();
        runtime(1).block_on(async {
            let options = OpenOptions::new();
            let nobody = options.open_sender(&fifo.0).unwrap_err();
            assert_eq!(nobody.raw_os_error(), Some(libc::ENXIO));
            let mut receiver = options.open_receiver(&fifo.0).unwrap();
            assert_eq!(receiver.read(&mut [0; 10]).await.unwrap(), 0, "nobody sends yet");
            for round in 0..3 {
                let mut sender = options.open_sender(&fifo.0).unwrap();
                assert!(future::poll_once(receiver.read(&mut [0; 10])).await.is_none(), "somebody does");
                sender.write_all(&[round; 5]).await.unwrap();
                assert_eq!(receiver.read(&mut [0; 10]).await.unwrap(), 5);
                drop(sender);
                assert_eq!(receiver.read(&mut [0; 10]).await.unwrap(), 0, "and then nobody again");
            }
        });
    });
}

#[test]
fn named_with_both_ends_open_has_no_end() {
    watched(|| {
        let fifo = Fifo::new();
        runtime(1).block_on(async {
            let options = OpenOptions::new().read_write(true);
            let mut sender = options.open_sender(&fifo.0).unwrap();
            let mut receiver = options.open_receiver(&fifo.0).unwrap();
            sender.write_all(b"early").await.unwrap();
            drop(sender);
            assert_eq!(receiver.read(&mut [0; 10]).await.unwrap(), 5);
            assert!(future::poll_once(receiver.read(&mut [0; 10])).await.is_none());
        });
        let path = fifo.0.with_extension("file");
        std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        let error = OpenOptions::new().open_receiver(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}
