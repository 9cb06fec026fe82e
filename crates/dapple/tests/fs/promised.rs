//! Promised writes: the length was returned, so the bytes are written, whichever thread submitted them and whatever ends
//! meanwhile. A failure is returned by a later operation on the file, or counted if the file is gone.
//!
//! A pipe stands for a slow file: it takes 64 KiB, and then as much as its reader has taken. Each test places the end of
//! a thread, or of the runtime, at one step of the write: submitted, a part done, given up and submitted again.

use std::io::{PipeReader, Read, SeekFrom};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{eventually, watched};
use crate::fs_common::{Dir, both, has_ring, pattern, runtime_with};
use dapple::Runtime;
use dapple::fs::{File, Files};
use dapple::io::{AsyncReadExt, AsyncWriteExt};

/// Capacity of a pipe: the bytes that it takes without a reader.
const PIPE: usize = 64 << 10;

/// How much is promised to a pipe: at its first step it is submitted and waits for room; larger ones are done in parts.
const SIZES: [usize; 3] = [8, PIPE + 1, 4 * PIPE + 3];

/// A pipe that is full of dots, as a file of its own and its reader.
fn full_pipe() -> (PipeReader, OwnedFd) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, &[b'.'; PIPE]).unwrap();
    (reader, writer.into())
}

/// Promises `len` bytes, and drops the file.
async fn promise(pipe: OwnedFd, len: usize) {
    let mut file = File::from(pipe);
    assert_eq!(file.write(&pattern(len)).await.unwrap(), len, "promised as a whole");
}

/// Reads to the end; fails if a promised byte is lost, or there twice.
#[track_caller]
fn check(reader: &mut PipeReader, len: usize) {
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    check_bytes(&all, len);
}

#[track_caller]
fn check_bytes(all: &[u8], len: usize) {
    assert_eq!(all.len(), PIPE + len, "nothing lost, nothing twice");
    assert!(all[PIPE..] == pattern(len), "in order");
}

/// Runs a future on a thread that ends then.
fn on_a_thread_that_ends(rt: &Runtime, future: impl Future<Output = ()> + Send + 'static) {
    let handle = rt.handle();
    thread::spawn(move || handle.block_on(future)).join().unwrap();
}

#[test]
fn a_write_survives_the_thread_that_submitted_it() {
    if !has_ring() {
        return;
    }
    for len in SIZES {
        watched(move || {
            let rt = runtime_with(Files::Ring, 1);
            let (mut reader, pipe) = full_pipe();
            on_a_thread_that_ends(&rt, promise(pipe, len));
            check(&mut reader, len);
            assert_eq!(rt.metrics().failed_writes, 0);
        });
    }
}

/// The line is handed over by whichever thread puts something in it: each of these threads may submit the rest of the
/// write, and takes it along when it ends.
#[test]
fn a_write_survives_each_thread_that_resubmits_it() {
    if !has_ring() {
        return;
    }
    watched(|| {
        const LEN: usize = 6 * PIPE;
        let rt = runtime_with(Files::Ring, 2);
        let (mut reader, pipe) = full_pipe();
        on_a_thread_that_ends(&rt, promise(pipe, LEN));
        let mut all = Vec::new();
        for _ in 0..100 {
            // Another part is done, and other threads come and go.
            let mut part = vec![0; 4000];
            reader.read_exact(&mut part).unwrap();
            all.extend(part);
            let (mut other, pipe) = full_pipe();
            on_a_thread_that_ends(&rt, promise(pipe, 10));
            check(&mut other, 10);
        }
        reader.read_to_end(&mut all).unwrap();
        check_bytes(&all, LEN);
    });
}

/// With a waiter the same must hold: the write ends once, and the file learns of it.
#[test]
fn a_write_to_an_open_file_survives_its_submitting_thread() {
    if !has_ring() {
        return;
    }
    watched(|| {
        const LEN: usize = 3 * PIPE;
        let rt = runtime_with(Files::Ring, 1);
        let (mut reader, pipe) = full_pipe();
        let (give, take) = mpsc::channel();
        on_a_thread_that_ends(&rt, async move {
            let mut file = File::from(pipe);
            assert_eq!(file.write(&pattern(LEN)).await.unwrap(), LEN);
            give.send(file).unwrap();
        });
        let mut file = take.recv().unwrap();
        let reads = thread::spawn(move || check(&mut reader, LEN));
        rt.block_on(file.flush()).unwrap();
        drop(file);
        reads.join().unwrap();
    });
}

/// Each worker has submitted some, and the workers leave one after the other. A write that is still to be done when the
/// last one has left gets its time all the same.
#[test]
fn a_write_is_done_at_shutdown_whichever_worker_began_it() {
    if !has_ring() {
        return;
    }
    for len in SIZES {
        watched(move || {
            const WORKERS: usize = 4;
            let rt = runtime_with(Files::Ring, WORKERS);
            let together = Arc::new(Barrier::new(WORKERS));
            let (mut tasks, mut readers) = (Vec::new(), Vec::new());
            for _ in 0..WORKERS {
                let (reader, pipe) = full_pipe();
                let together = together.clone();
                readers.push(reader);
                // All of them at once, each on a worker of its own.
                tasks.push(rt.spawn(async move {
                    dapple::blocking(|| ()).await.unwrap();
                    together.wait();
                    promise(pipe, len).await;
                }));
            }
            tasks.into_iter().for_each(|task| rt.block_on(task).unwrap());
            let handle = rt.handle();
            let readers = readers.into_iter().map(|mut reader| {
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(50)); // the workers leave meanwhile
                    check(&mut reader, len);
                })
            });
            let readers: Vec<_> = readers.collect();
            rt.shutdown(Duration::from_secs(30));
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            assert_eq!(handle.metrics().failed_writes, 0);
        });
    }
}

/// The runtime ends right after the promise: in line, submitted, or a part done. Dropped inside of another, too.
#[test]
fn the_runtime_ends_at_once() {
    for files in both() {
        watched(move || {
            for round in 0..20 {
                let rt = runtime_with(files, 1 + round % 3);
                let (mut reader, pipe) = full_pipe();
                let len = SIZES[round % 3];
                let reads = thread::spawn(move || check(&mut reader, len));
                match round % 4 {
                    0 => rt.block_on(promise(pipe, len)),
                    1 => rt.block_on(rt.spawn(promise(pipe, len))).unwrap(),
                    2 => on_a_thread_that_ends(&rt, promise(pipe, len)),
                    _ => runtime_with(files, 1).block_on(async {
                        rt.block_on(promise(pipe, len));
                    }),
                }
                if round % 2 == 0 {
                    drop(rt);
                } else {
                    runtime_with(files, 1).block_on(async move { drop(rt) });
                }
                reads.join().unwrap();
            }
        });
    }
}

/// A spare stands in for the only worker and submits the write. It then rests, or ends with the runtime.
#[test]
fn a_write_survives_the_spare_that_submitted_it() {
    if !has_ring() {
        return;
    }
    for ends in [false, true] {
        watched(move || {
            const LEN: usize = 3 * PIPE;
            let rt = runtime_with(Files::Ring, 1);
            let stop = Arc::new(AtomicBool::new(false));
            let stops = stop.clone();
            let stuck = rt.spawn(async move {
                while !stops.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let (mut reader, pipe) = full_pipe();
            let promises = rt.spawn(promise(pipe, LEN));
            eventually("a spare has promised it", || promises.is_finished());
            assert!(rt.metrics().spares_sent > 0);
            stop.store(true, Ordering::Release);
            rt.block_on(stuck).unwrap();
            eventually("the spare rests", || rt.metrics().spares_running == 0);
            let reads = thread::spawn(move || check(&mut reader, LEN));
            if ends {
                rt.shutdown(Duration::from_secs(30));
                reads.join().unwrap();
            } else {
                reads.join().unwrap();
            }
        });
    }
}

/// No reader: after the shutdown's time limit the write is given up. It is counted, since no file is left to return the
/// error. One write is partly done.
#[test]
fn a_write_that_could_not_be_done_in_time_is_counted() {
    if !has_ring() {
        return;
    }
    watched(|| {
        let rt = runtime_with(Files::Ring, 2);
        let handle = rt.handle();
        let pipes: Vec<_> = (0..5).map(|_| full_pipe()).collect();
        let mut readers = Vec::new();
        for (reader, pipe) in pipes {
            readers.push(reader);
            on_a_thread_that_ends(&rt, promise(pipe, 2 * PIPE));
        }
        readers[0].read_exact(&mut [0; PIPE]).unwrap(); // room for a part
        rt.shutdown(Duration::from_secs(30));
        assert_eq!(handle.metrics().failed_writes, 5);
    });
}

/// The same with the file still there: nothing is counted, since the next runtime does the rest of it.
#[test]
fn a_write_that_could_not_be_done_in_time_goes_on_in_the_next_runtime() {
    if !has_ring() {
        return;
    }
    for first in [0, PIPE] {
        watched(move || {
            const LEN: usize = 2 * PIPE + 5;
            let rt = runtime_with(Files::Ring, 2);
            let handle = rt.handle();
            let (mut reader, pipe) = full_pipe();
            let mut file = File::from(pipe);
            assert_eq!(rt.block_on(file.write(&pattern(LEN))).unwrap(), LEN);
            let mut all = vec![0; first]; // nothing of it is done, or a part
            reader.read_exact(&mut all).unwrap();
            rt.shutdown(Duration::from_secs(30));
            assert_eq!(handle.metrics().failed_writes, 0);
            let reads = thread::spawn(move || {
                reader.read_to_end(&mut all).unwrap();
                check_bytes(&all, LEN);
            });
            runtime_with(Files::Ring, 1).block_on(async {
                file.flush().await.unwrap();
                drop(file);
            });
            reads.join().unwrap();
        });
    }
}

/// An error reaches the file, or is counted: never both, and never neither.
#[test]
fn a_failure_is_told_or_counted() {
    for files in both() {
        watched(move || {
            let rt = runtime_with(files, 1);
            let failed = || rt.metrics().failed_writes;
            let open = || async { File::options().write(true).open("/dev/full").await.unwrap() };
            rt.block_on(async {
                let mut file = open().await;
                file.write_all(b"no room").await.unwrap();
                file.flush().await.unwrap_err();
                file.flush().await.unwrap();
                file.write_all(b"no room").await.unwrap();
                file.write_all(b"no room").await.unwrap_err();
            });
            assert_eq!(failed(), 0, "told");
            // Dropped at once; after the write has failed; and after `metadata`, which does not return the write's error.
            rt.block_on(async {
                let mut file = open().await;
                file.write_all(b"no room").await.unwrap();
            });
            eventually("one is counted", || failed() == 1);
            rt.block_on(async {
                let mut file = open().await;
                file.write_all(b"no room").await.unwrap();
                dapple::blocking(|| thread::sleep(Duration::from_millis(20))).await.unwrap();
            });
            eventually("two are counted", || failed() == 2);
            rt.block_on(async {
                let mut file = open().await;
                file.write_all(b"no room").await.unwrap();
                file.metadata().await.unwrap();
            });
            eventually("three are counted", || failed() == 3);
        });
    }
}

/// Regular files: the cursor, appending, and operations that wait for a promised write.
#[test]
fn a_promised_write_is_ahead_of_all_that_follows() {
    for files in both() {
        watched(move || {
            let (rt, dir) = (runtime_with(files, 2), Dir::new());
            let path = dir.path().join("file");
            rt.block_on(async {
                let mut file = File::create_new(&path).await.unwrap();
                file.write_all(&pattern(300_000)).await.unwrap();
                assert_eq!(file.seek(SeekFrom::Current(0)).await.unwrap(), 300_000);
                file.write_all(b"more").await.unwrap();
                file.sync_all().await.unwrap();
                assert_eq!(std::fs::metadata(&path).unwrap().len(), 300_004);
                file.write_all(b"and more").await.unwrap();
                file.close().await.unwrap();
                let mut file = File::options().append(true).open(&path).await.unwrap();
                file.write_all(b", appended").await.unwrap();
                file.write_all(b" twice").await.unwrap();
                drop(file);
                eventually("it is written", || std::fs::metadata(&path).unwrap().len() == 300_028);
                let mut file = File::open(&path).await.unwrap();
                file.seek(SeekFrom::Start(300_000)).await.unwrap();
                let mut rest = String::new();
                file.read_to_string(&mut rest).await.unwrap();
                assert_eq!(rest, "moreand more, appended twice");
            });
            assert_eq!(rt.metrics().failed_writes, 0);
        });
    }
}
