//! Streams in memory, and the halves of any stream: nothing is lost, and the end is seen.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::time::Duration;

use crate::common::{Event, Random, in_both_worlds, rounds, runtime, telling, watched};
use crate::io_common::poll_times;
use dapple::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use dapple::{Runtime, is_cancelled};
use futures_lite::future;

#[test]
fn what_is_written_is_read_in_both_directions() {
    watched(|| {
        runtime(2).block_on(async {
            let (near, far) = duplex(7);
            let text: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
            let sent = text.clone();
            let echo = dapple::spawn(async move {
                let (mut from, mut to) = split(far);
                dapple::io::copy(&mut from, &mut to).await.unwrap();
                to.close().await.unwrap();
            });
            let (mut read, mut write) = split(near);
            let writing = dapple::spawn(async move {
                write.write_all(&sent).await.unwrap();
                write.close().await.unwrap();
                write
            });
            let mut got = Vec::new();
            read.read_to_end(&mut got).await.unwrap();
            assert!(got == text);
            echo.await.unwrap();
            let mut whole = writing.await.unwrap().unsplit(read).unwrap();
            assert_eq!(whole.read(&mut [0; 8]).await.unwrap(), 0, "and again the end");
        });
    });
}

#[test]
fn a_full_duplex_stops_the_writer() {
    watched(|| {
        runtime(1).block_on(async {
            let (mut near, mut far) = duplex(4);
            let slices = [IoSlice::new(b"abc"), IoSlice::new(b"def")];
            assert_eq!(near.write_vectored(&slices).await.unwrap(), 4);
            assert!(poll_times(1, near.write(b"x")).await.is_none(), "it is full");
            assert_eq!(near.write(b"").await.unwrap(), 0, "nothing is written at once");
            assert_eq!(near.read(&mut []).await.unwrap(), 0, "nothing is read at once");
            let (mut one, mut two) = ([0; 1], [0; 8]);
            let buffers = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            assert_eq!(far.read_vectored(buffers).await.unwrap(), 4);
            assert_eq!((&one, &two[..3]), (b"a", &b"bcd"[..]));
            assert_eq!(near.write(b"more").await.unwrap(), 4);
        });
    });
}

#[test]
fn the_other_side_sees_the_end() {
    watched(|| {
        let rt = runtime(1);
        rt.block_on(async {
            let (mut near, mut far) = duplex(8);
            near.write_all(b"last").await.unwrap();
            near.close().await.unwrap();
            assert_eq!(near.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            let mut all = Vec::new();
            assert_eq!(far.read_to_end(&mut all).await.unwrap(), 4, "what was written before is read");
            far.write_all(b"back").await.unwrap();
            assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 4, "closed in one direction alone");
            drop(near);
            assert_eq!(far.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
        // Those who wait are woken by it.
        let (near, mut far) = duplex(1);
        let begun = Event::default();
        let reading = rt.spawn(telling(begun.clone(), async move { far.read(&mut [0; 8]).await }));
        begun.wait();
        drop(near);
        assert_eq!(rt.block_on(reading).unwrap().unwrap(), 0);
        let (near, mut far) = duplex(1);
        let begun = Event::default();
        let writing = rt.spawn(telling(begun.clone(), async move { far.write_all(b"ab").await }));
        begun.wait();
        drop(near);
        assert_eq!(rt.block_on(writing).unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_cancelled_read_or_write_has_had_no_effect() {
    watched(|| {
        let rt = runtime(2);
        let (mut near, mut far) = duplex(2);
        let begun = Event::default();
        let task = rt.spawn(telling(begun.clone(), async move {
            let cancelled = far.read(&mut [0; 8]).await.unwrap_err();
            (cancelled, far)
        }));
        begun.wait();
        task.cancel();
        let (cancelled, far) = rt.block_on(task).unwrap();
        assert!(is_cancelled(&cancelled));

        rt.block_on(near.write_all(b"ab")).unwrap();
        let (mut near, mut far) = too_late(&rt, async move {
            let (mut near, mut far) = (near, far);
            assert!(is_cancelled(&far.read(&mut [0; 8]).await.unwrap_err()));
            assert!(is_cancelled(&far.write(b"c").await.unwrap_err()));
            assert!(is_cancelled(&near.close().await.unwrap_err()));
            (near, far)
        });
        let mut got = [0; 2];
        rt.block_on(far.read_exact(&mut got)).unwrap();
        assert_eq!(&got, b"ab", "the bytes stayed");
        assert!(rt.block_on(poll_times(1, near.read(&mut got))).is_none(), "nothing was written");
        assert!(rt.block_on(poll_times(1, far.read(&mut got))).is_none(), "nor closed");
        rt.block_on(near.write_all(b"d")).unwrap();
        assert_eq!(rt.block_on(far.read(&mut got)).unwrap(), 1);
    });
}

/// Runs `future` in a task that was cancelled before.
fn too_late<F>(rt: &Runtime, future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let task = rt.spawn(async {
        assert!(dapple::time::sleep(Duration::MAX).await.is_err());
        future.await
    });
    task.cancel();
    rt.block_on(task).unwrap()
}

#[test]
fn halves_of_different_streams_are_handed_back() {
    let ((a, b), (c, d)) = (duplex(1), duplex(1));
    let ((read, _write), (_read, write)) = (split(a), split(c));
    assert!(!read.is_pair_of(&write));
    let error = read.unsplit(write).unwrap_err();
    assert_eq!(error.to_string(), "the halves are of different streams");
    drop((b, d));
}

/// Reads and writes are dropped and repeated at random.
#[test]
fn nothing_is_lost_whoever_gives_up() {
    in_both_worlds(50, || {
        let (rt, count) = (runtime(2), rounds(200_u8, 50));
        for seed in 0..rounds(20, 2) {
            let (mut near, mut far) = duplex(3);
            let writing = rt.spawn(async move {
                let mut random = Random::new(1 + seed);
                for byte in 0..count {
                    while poll_times(1 + random.below(2) as usize, near.write(&[byte])).await.is_none() {
                        dapple::task::yield_now().await;
                    }
                }
            });
            let reading = async move {
                let mut random = Random::new(1000 + seed);
                let mut got = Vec::<u8>::new();
                loop {
                    let mut buffer = [0; 2];
                    match poll_times(1 + random.below(2) as usize, far.read(&mut buffer)).await {
                        Some(Ok(0)) => return got,
                        Some(n) => got.extend(&buffer[..n.unwrap()]),
                        None => dapple::task::yield_now().await,
                    }
                }
            };
            let (got, written) = rt.block_on(future::zip(reading, writing));
            written.unwrap();
            assert!(got == (0..count).collect::<Vec<u8>>(), "seed {seed}");
        }
    });
}
