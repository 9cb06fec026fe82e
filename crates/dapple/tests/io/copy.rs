//! Copying: counts, errors that say how far, both directions, cancelling.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Event, runtime, watched};
use crate::io_common::{Script, Step, bytes, poll_times};
use dapple::io::{AsyncReadExt, AsyncWriteExt, BufWriter, Partial, copy, copy_bidirectional, how_far};
use dapple::net::UnixStream;

/// Bytes that tell where they belong.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[test]
fn copies_everything_and_counts_it() {
    watched(|| {
        let rt = runtime(1);
        rt.block_on(async {
            for len in [0, 1, 5000, 100_000] {
                let from = pattern(len);
                let mut to =
                    Script::writes([Step::GiveWay, Step::Room(7), Step::Fails(ErrorKind::Interrupted)]);
                assert_eq!(copy(&from[..], &mut to).await.unwrap(), len as u64);
                assert_eq!(to.written(), from);
                assert!(to.flushes > 0 && !to.closed);
            }
        });
    });
}

#[test]
fn an_error_of_the_writer_says_how_far_and_has_the_rest() {
    watched(|| {
        runtime(1).block_on(async {
            let from = Script::reads([bytes("hello "), bytes("world"), bytes("never read")]);
            let mut to = Script::writes([Step::Room(6), Step::Room(2), Step::Fails(ErrorKind::BrokenPipe)]);
            let mut copying = copy(from, &mut to);
            let error = (&mut copying).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            assert_eq!(how_far(&error), Some(8));
            assert_eq!(Partial::of(&error).unwrap().rest(), b"rld");
            assert!(!dapple::is_cancelled(&error));
            let (mut from, _) = copying.into_inner();
            let mut left = String::new();
            from.read_to_string(&mut left).await.unwrap();
            assert_eq!(left, "never read", "it reads only what it can hand on");
            assert_eq!(to.written(), b"hello wo");
        });
    });
}

#[test]
fn an_error_of_the_reader_comes_after_all_was_written() {
    watched(|| {
        runtime(1).block_on(async {
            let from = Script::reads([bytes("hello"), Step::Fails(ErrorKind::ConnectionReset)]);
            let mut to = Vec::new();
            let error = copy(from, &mut to).await.unwrap_err();
            assert_eq!((error.kind(), how_far(&error)), (ErrorKind::ConnectionReset, Some(5)));
            assert_eq!(to, b"hello");
            let text = error.to_string();
            assert!(text.contains("after 5 bytes"), "{text}");
        });
    });
}

#[test]
fn a_copy_cancelled_at_a_foreign_writer_returns_the_unwritten_rest() {
    watched(|| {
        let rt = runtime(1);
        let asked = Event::default();
        let to = Script::writes([Step::Room(3), Step::Never(asked.clone())]);
        let written = to.written.clone();
        let task = rt.spawn(async move { copy(&b"hello world"[..], to).await });
        asked.wait();
        task.cancel();
        let error = rt.block_on(task).unwrap().unwrap_err();
        assert!(dapple::is_cancelled(&error));
        let partial = Partial::of(&error).unwrap();
        assert_eq!((partial.done(), partial.rest()), (3, &b"lo world"[..]));
        assert_eq!(*written.lock().unwrap(), b"hel");
    });
}

#[test]
fn cancelled_between_sockets_loses_no_byte() {
    watched(|| {
        let rt = runtime(2);
        let sent = pattern(1 << 20);
        let (error, mut near, mut out) = rt.block_on(async {
            let (mut source, near) = UnixStream::pair().unwrap();
            let (far, out) = UnixStream::pair().unwrap();
            let mut whole = sent.clone();
            let feed = dapple::spawn(async move {
                // More than the sockets hold: it is stuck until the other side is read.
                let written = source.write_all(&whole).await;
                whole.drain(..how_far_or_all(&written, whole.len()));
                (source, whole)
            });
            let (begun, is_begun) = dapple::channel::oneshot::channel();
            let task = dapple::spawn(async move {
                let mut near = near;
                let mut far = far;
                let mut copying = copy(&mut near, &mut far);
                let first = poll_times(1, &mut copying).await;
                assert!(first.is_none());
                begun.send(()).unwrap();
                let error = copying.await.unwrap_err();
                (error, near)
            });
            is_begun.await.unwrap();
            for _ in 0..100 {
                dapple::task::yield_now().await; // wherever it is then
            }
            task.cancel();
            let (error, near) = task.await.unwrap();
            feed.cancel();
            let (source, unsent) = feed.await.unwrap();
            drop(source);
            (error, (near, unsent), out)
        });
        assert!(dapple::is_cancelled(&error), "{error}");
        let partial = Partial::of(&error).unwrap();
        rt.block_on(async {
            let mut got = vec![0; usize::try_from(partial.done()).unwrap()];
            out.read_exact(&mut got).await.unwrap();
            got.extend_from_slice(partial.rest());
            near.0.read_to_end(&mut got).await.unwrap();
            got.extend_from_slice(&near.1);
            assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        });
    });
}

fn how_far_or_all(result: &std::io::Result<()>, all: usize) -> usize {
    match result {
        Ok(()) => all,
        Err(error) => usize::try_from(how_far(error).expect("it says how far")).unwrap(),
    }
}

#[test]
fn begun_in_a_cancelled_task_has_no_effect() {
    watched(|| {
        let rt = runtime(1);
        let gate = Event::default();
        let go = gate.clone();
        let task = rt.spawn(async move {
            dapple::shield(go.happened()).await;
            let mut from = &b"hello"[..];
            let mut to = Vec::new();
            let error = copy(&mut from, &mut to).await.unwrap_err();
            assert_eq!((from, &to[..]), (&b"hello"[..], &b""[..]));
            error
        });
        task.cancel();
        gate.set();
        let error = rt.block_on(task).unwrap();
        assert!(dapple::is_cancelled(&error));
        assert_eq!(how_far(&error), Some(0));
    });
}

#[test]
fn an_endless_copy_in_memory_gives_way_and_can_be_cancelled() {
    watched(|| {
        let rt = runtime(1);
        let copying = rt.spawn(async { copy(futures_lite::io::repeat(7), futures_lite::io::sink()).await });
        let ran = Arc::new(AtomicBool::new(false));
        let other = rt.spawn({
            let ran = ran.clone();
            async move { ran.store(true, Ordering::SeqCst) }
        });
        rt.block_on(other).unwrap();
        assert!(ran.load(Ordering::SeqCst));
        copying.cancel();
        let error = rt.block_on(copying).unwrap().unwrap_err();
        assert!(dapple::is_cancelled(&error));
    });
}

#[test]
fn the_writer_is_flushed_while_the_reader_waits() {
    watched(|| {
        let rt = runtime(1);
        let asked = Event::default();
        let from = Script::reads([bytes("hello"), Step::GiveWay, Step::Never(asked.clone())]);
        let to = Script::default();
        let written = to.written.clone();
        let task = rt.spawn(copy(from, BufWriter::new(to)));
        asked.wait();
        crate::common::eventually("it is flushed", || *written.lock().unwrap() == b"hello");
        task.cancel();
        assert!(dapple::is_cancelled(&rt.block_on(task).unwrap().unwrap_err()));
    });
}

#[test]
fn half_a_close_is_passed_on_and_the_other_direction_goes_on() {
    watched(|| {
        runtime(2).block_on(async {
            let (mut client, a) = UnixStream::pair().unwrap();
            let (b, mut server) = UnixStream::pair().unwrap();
            let proxy = dapple::spawn(async move { copy_bidirectional(a, b).await });
            client.write_all(b"question").await.unwrap();
            client.close().await.unwrap();
            let mut question = String::new();
            server.read_to_string(&mut question).await.unwrap();
            assert_eq!(question, "question");
            assert!(!proxy.is_finished());
            server.write_all(&pattern(100_000)).await.unwrap();
            drop(server);
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, pattern(100_000));
            assert_eq!(proxy.await.unwrap().unwrap(), (8, 100_000));
        });
    });
}

#[test]
fn an_error_in_one_direction_has_the_counts_and_rests_of_both() {
    watched(|| {
        runtime(1).block_on(async {
            let a = Script {
                reads: [bytes("there"), Step::GiveWay, bytes("more")].into(),
                writes: [Step::Room(2), Step::Never(Event::default())].into(),
                ..Script::default()
            };
            let b = Script {
                reads: [bytes("back")].into(),
                writes: [Step::Room(5), Step::Fails(ErrorKind::BrokenPipe)].into(),
                ..Script::default()
            };
            let error = copy_bidirectional(a, b).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            let partial = Partial::of(&error).unwrap();
            assert_eq!((partial.done(), partial.rest()), (5, &b"more"[..]));
            assert_eq!((partial.done_back(), partial.rest_back()), (2, &b"ck"[..]));
        });
    });
}

#[test]
fn both_directions_are_cancelled_together() {
    watched(|| {
        let rt = runtime(1);
        let asked = Event::default();
        let a = Script::reads([bytes("x"), Step::Never(Event::default())]);
        let b = Script::reads([Step::Never(asked.clone())]);
        let task = rt.spawn(copy_bidirectional(a, b));
        asked.wait();
        task.cancel();
        let error = rt.block_on(task).unwrap().unwrap_err();
        assert!(dapple::is_cancelled(&error));
        assert_eq!(how_far(&error), Some(1));
    });
}
