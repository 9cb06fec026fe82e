//! Callbacks for file descriptors: as long as they are ready, until withdrawn.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{Drops, Event, runtime, watched};
use dapple::Color;
use dapple::event::{self, Callback};
use dapple::sim::Sim;
use dapple::task::yield_now;
use dapple::time::{Duration, sleep};

/// How often something has happened, for tasks to wait for.
#[derive(Clone, Default)]
struct Count(Arc<(AtomicUsize, dapple::sync::Notify)>);

impl Count {
    fn add(&self) {
        self.0.0.fetch_add(1, SeqCst);
        self.0.1.notify_one();
    }

    fn get(&self) -> usize {
        self.0.0.load(SeqCst)
    }

    async fn at_least(&self, n: usize) {
        while self.get() < n {
            self.0.1.notified().await.unwrap();
        }
    }
}

/// Reads one byte, if there is one.
fn read_byte(mut from: &UnixStream) -> Option<u8> {
    let mut byte = [0];
    (from.read(&mut byte).unwrap() == 1).then_some(byte[0])
}

#[test]
fn a_readable_callback_repeats_while_bytes_are_left() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            let (near, read) = (Arc::new(near), Arc::new(Mutex::new(Vec::new())));
            let count = Count::default();
            let callback = {
                let (near, read, count) = (near.clone(), read.clone(), count.clone());
                // It takes but one byte of many, and the socket is in blocking mode.
                move || {
                    read.lock().unwrap().extend(read_byte(&near));
                    count.add();
                }
            };
            let reading = event::readable(&near, Callback::new(callback).color(&Color::new())).unwrap();
            for (sent, so_far) in [(&b"hello"[..], 5), (b", ", 7), (b"world", 12)] {
                far.write_all(sent).unwrap();
                count.at_least(so_far).await;
            }
            assert_eq!(*read.lock().unwrap(), b"hello, world");
            sleep(Duration::from_millis(1)).await.unwrap();
            assert_eq!(count.get(), 12, "not without something to read");
            reading.withdraw().await.unwrap();
            far.write_all(b"!").unwrap();
            sleep(Duration::from_millis(1)).await.unwrap();
            assert_eq!(count.get(), 12, "it was withdrawn");
            assert_eq!(read_byte(&near), Some(b'!'), "and took nothing with it");
        });
    });
}

/// Nothing is read, so it is called again and again.
#[test]
fn a_descriptor_at_its_end_stays_readable() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, far) = UnixStream::pair().unwrap();
            drop(far);
            for color in [Color::new(), Color::main()] {
                let count = Count::default();
                let add = count.clone();
                let reading = event::readable(&near, Callback::new(move || add.add()).color(&color)).unwrap();
                count.at_least(100).await;
                reading.withdraw().await.unwrap();
                let add = count.clone();
                let writing = event::writable(&near, Callback::new(move || add.add()).color(&color)).unwrap();
                count.at_least(200).await;
                writing.withdraw().await.unwrap();
            }
        });
    });
}

#[test]
fn a_broken_connection_calls_reader_and_writer() {
    watched(|| {
        runtime(2).block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            near.set_nonblocking(true).unwrap();
            while near.write(&[0; 65536]).is_ok() {} // until there is no room
            let (reads, writes) = (Count::default(), Count::default());
            let color = Color::new();
            let (read, write) = (reads.clone(), writes.clone());
            let reading = event::readable(&near, Callback::new(move || read.add()).color(&color)).unwrap();
            let writing = event::writable(&near, Callback::new(move || write.add()).color(&color)).unwrap();
            sleep(Duration::from_millis(1)).await.unwrap();
            assert_eq!((reads.get(), writes.get()), (0, 0));
            drop(far); // with unread bytes: a reset
            reads.at_least(3).await;
            writes.at_least(3).await;
            reading.withdraw().await.unwrap();
            writing.withdraw().await.unwrap();
        });
    });
}

#[test]
fn writable_when_there_is_room() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            while (&near).write(&[0; 4096]).is_ok() {}
            let count = Count::default();
            let add = count.clone();
            let writing =
                event::writable(&near, Callback::new(move || add.add()).color(&Color::new())).unwrap();
            sleep(Duration::from_millis(1)).await.unwrap();
            assert_eq!(count.get(), 0);
            far.set_nonblocking(true).unwrap();
            while far.read(&mut [0; 65536]).is_ok() {}
            count.at_least(10).await;
            writing.withdraw().await.unwrap();
        });
    });
}

/// The kernel does not wait for these; `select` says that they are ready.
#[test]
fn files_are_always_ready() {
    watched(|| {
        runtime(2).block_on(async {
            let path = std::env::temp_dir().join(format!("dapple-event-{}", std::process::id()));
            std::fs::write(&path, "0123456789").unwrap();
            let mut file = File::options().read(true).write(true).open(&path).unwrap();
            let text = dapple::suspend(|resume| {
                let (mut reader, mut text, mut resume) =
                    (file.try_clone().unwrap(), String::new(), Some(resume));
                let callback = move || {
                    let mut byte = [0];
                    if reader.read(&mut byte).unwrap() == 1 {
                        text.push(byte[0].into());
                        return ControlFlow::Continue(());
                    }
                    resume.take().unwrap().resume(std::mem::take(&mut text)).unwrap();
                    ControlFlow::Break(())
                };
                event::readable(&file, Callback::new(callback)).unwrap().detach();
                || {}
            });
            assert_eq!(text.await.unwrap(), "0123456789");
            let count = Count::default();
            let (mut writer, add) = (file.try_clone().unwrap(), count.clone());
            let callback = move || {
                writer.write_all(b"!").unwrap();
                add.add();
            };
            let writing = event::writable(&file, Callback::new(callback).color(&Color::new())).unwrap();
            count.at_least(3).await;
            writing.withdraw().await.unwrap();
            let mut all = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut all).unwrap();
            assert_eq!(all.len(), 10 + count.get());
            std::fs::remove_file(path).unwrap();
        });
    });
}

/// Callbacks of a file that is always ready end with the runtime, too.
#[test]
fn shutdown_ends_callbacks_that_are_always_ready() {
    watched(|| {
        let (rt, drops, called) = (runtime(2), Drops::default(), Event::default());
        rt.block_on(async {
            let (guard, set) = (drops.guard(), called.clone());
            let callback = move || {
                let _owned = &guard;
                set.set();
            };
            let null = File::open("/dev/null").unwrap();
            event::readable(&null, Callback::new(callback).color(&Color::new())).unwrap().detach();
            let (near, far) = UnixStream::pair().unwrap();
            drop(far);
            let guard = drops.guard();
            let callback = Callback::new(move || {
                let _owned = &guard;
            })
            .color(&Color::new());
            event::readable(&near, callback).unwrap().detach();
            called.happened().await;
        });
        assert!(rt.shutdown(Duration::from_secs(20)).is_clean());
        assert_eq!(drops.count(), 2);
    });
}

/// The registration has a duplicate: what becomes of the original is not its business, and the connection ends with
/// the last of them.
#[test]
fn the_original_may_be_closed() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            let count = Count::default();
            let add = count.clone();
            let reading =
                event::readable(&near, Callback::new(move || add.add()).color(&Color::new())).unwrap();
            drop(near);
            // Another that gets the same number, and is ready, is not taken for it.
            let (other, mut more) = UnixStream::pair().unwrap();
            more.write_all(b"!").unwrap();
            sleep(Duration::from_millis(1)).await.unwrap();
            assert_eq!(count.get(), 0);
            assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "not the end yet");
            reading.withdraw().await.unwrap();
            assert_eq!(far.read(&mut [0]).unwrap(), 0, "now it is");
            drop(other);
        });
    });
}

/// As often as one likes, beside whatever else waits for it.
#[test]
fn one_file_descriptor_may_have_many_callbacks() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            let counts: Vec<_> = (0..5).map(|_| Count::default()).collect();
            let registrations: Vec<_> = counts
                .iter()
                .map(|count| {
                    let count = count.clone();
                    event::readable(&near, Callback::new(move || count.add()).color(&Color::new())).unwrap()
                })
                .collect();
            far.write_all(b"!").unwrap();
            for count in &counts {
                count.at_least(1).await;
            }
            for registration in registrations {
                registration.withdraw().await.unwrap();
            }
        });
    });
}

/// In its color, although it is ready.
#[test]
fn a_queued_callback_that_is_withdrawn_is_not_called() {
    watched(|| {
        dapple::run(async {
            for _ in 0..100 {
                let (near, mut far) = UnixStream::pair().unwrap();
                far.write_all(b"!").unwrap();
                let reading =
                    event::readable(&near, Callback::local(|| unreachable!("it was withdrawn"))).unwrap();
                drop(reading); // in its color, so it is not called
                yield_now().await;
            }
        });
    });
}

#[test]
fn errors_say_why() {
    let (near, _far) = UnixStream::pair().unwrap();
    let callback = || Callback::new(|| unreachable!());
    let outside = crate::common::panic_of(|| event::readable(&near, callback()));
    assert!(outside.starts_with("event::readable needs a runtime"), "{outside}");
    Sim::new(1).run(async move {
        for (name, result) in [
            ("event::readable", event::readable(&near, callback())),
            ("event::writable", event::writable(&near, callback())),
            ("event::signal", event::signal(dapple::signal::SignalKind::hangup(), callback())),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(
                error.to_string().starts_with(&format!("{name}: there is no outside in a simulation")),
                "{error}"
            );
        }
    });
}

#[test]
fn a_dump_shows_what_named_callbacks_wait_for() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let (near, _far) = UnixStream::pair().unwrap();
            let callback = |name| Callback::new(|| ()).color(&Color::new()).name(name);
            let _reading = event::readable(&near, callback("reader")).unwrap();
            let _alarm = event::after(Duration::from_secs(3600), callback("alarm"));
            for (name, what) in [("reader", "a file descriptor to be readable"), ("alarm", "a time")] {
                // Once it has come to wait.
                while !rt.dump().tasks.iter().any(|task| task.name == name && task.waits_for == Some(what)) {
                    yield_now().await;
                }
            }
        });
    });
}

/// A thread outside of the runtime need not be in it, if the callback has a color.
#[test]
fn from_outside_of_the_runtime() {
    watched(|| {
        let rt = runtime(1);
        let (near, mut far) = UnixStream::pair().unwrap();
        let near = Arc::new(near);
        let (reader, seen) = (near.clone(), Event::default());
        let set = seen.clone();
        let callback = move || {
            assert_eq!(read_byte(&reader), Some(b'!'));
            set.set();
        };
        let reading = event::readable(&near, Callback::new(callback).color(&rt.handle().color())).unwrap();
        far.write_all(b"!").unwrap();
        seen.wait();
        crate::common::foreign_block_on(reading.withdraw()).unwrap();
    });
}

/// Anything that has a file descriptor.
#[test]
fn whatever_has_a_file_descriptor() -> io::Result<()> {
    watched(|| {
        dapple::run(async {
            let (reader, writer) = io::pipe()?;
            let owned: OwnedFd = writer.into();
            let dynamic: Box<dyn AsFdAlso> = Box::new(reader);
            let callback = || Callback::new(|| ());
            drop(event::writable(&owned, callback())?);
            drop(event::writable(&owned.as_fd(), callback())?);
            drop(event::readable(&Arc::new(dynamic.as_fd().try_clone_to_owned()?), callback())?);
            drop(event::readable(&io::stdin(), callback())?);
            Ok(())
        })
    })
}

trait AsFdAlso: AsFd {}
impl<T: AsFd> AsFdAlso for T {}
