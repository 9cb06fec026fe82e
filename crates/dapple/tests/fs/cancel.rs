//! File operations that are cancelled, dropped or forgotten: each happens or does not happen, and the kernel never writes
//! to memory that has a new owner.
#![expect(unsafe_code, reason = "a buffer that counts, and one that panics")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::ptr::NonNull;
use std::task::Poll;

use crate::common::{Drops, Event, Guard, eventually, telling, watched};
use crate::fs_common::{Dir, block, both, direct_file, has_ring, on_both, pattern, runtime_with};
use dapple::fs::{self, AlignedBuf, BufferMut, File, Files};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::{Runtime, finish, is_cancelled, shield};
use futures_lite::future::{poll_fn, poll_once};

/// A byte that no file of these tests contains.
const MARK: u8 = 0xa5;

fn marked() -> AlignedBuf {
    let mut buffer = block();
    buffer.fill(MARK);
    buffer
}

fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// A FIFO without a writer. It is opened for reading and writing, so that opening does not wait for a writer.
async fn silent(path: &Path) -> File {
    make_fifo(path);
    File::options().read(true).write(true).open(path).await.unwrap()
}

#[test]
fn what_is_begun_in_a_cancelled_scope_has_no_effect() {
    on_both(|rt, dir| {
        let (path, other) = (dir.join("file"), dir.join("other"));
        std::fs::write(&path, "as it was").unwrap();
        rt.block_on(async {
            let mut file = File::options().read(true).write(true).open(&path).await.unwrap();
            finish(async |s| {
                s.cancel();
                let cancelled = |error: std::io::Error| assert!(is_cancelled(&error), "{error}");
                cancelled(File::create(&path).await.unwrap_err());
                cancelled(File::create_new(&other).await.unwrap_err());
                cancelled(File::open(&path).await.unwrap_err());
                cancelled(fs::write(&path, "new").await.unwrap_err());
                cancelled(fs::read(&path).await.unwrap_err());
                cancelled(fs::metadata(&path).await.unwrap_err());
                cancelled(fs::remove_file(&path).await.unwrap_err());
                cancelled(fs::rename(&path, &other).await.unwrap_err());
                cancelled(fs::hard_link(&path, &other).await.unwrap_err());
                cancelled(fs::symlink(&path, &other).await.unwrap_err());
                cancelled(fs::create_dir(&other).await.unwrap_err());
                cancelled(fs::create_dir_all(&other).await.unwrap_err());
                cancelled(fs::copy(&path, &other).await.unwrap_err());
                cancelled(fs::read_dir(dir).await.unwrap_err());
                cancelled(file.set_len(0).await.unwrap_err());
                cancelled(file.sync_all().await.unwrap_err());
                cancelled(file.write(b"new").await.unwrap_err());
                cancelled(file.read(&mut [0; 10]).await.unwrap_err());
                let (written, back) = file.write_at("new", 0).await;
                cancelled(written.unwrap_err());
                assert_eq!(back, "new");
                let (read, back) = file.read_at(vec![MARK; 5], 0).await;
                cancelled(read.unwrap_err());
                assert_eq!(back, [MARK; 5]);
                shield(async { assert!(fs::try_exists(&path).await.unwrap()) }).await;
            })
            .await;
            file.flush().await.unwrap();
            assert_eq!(fs::read(&path).await.unwrap(), b"as it was");
            assert!(!fs::try_exists(&other).await.unwrap());
        });
    });
}

#[test]
fn a_direct_read_cancelled_in_flight_returns_its_result_or_reads_nothing() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let Some(file) = direct_file(&path, 256 << 12).await else { return };
            let bytes = pattern(256 << 12);
            let (mut done, mut cancelled) = (0, 0);
            for round in 0..50 {
                let (file, bytes, counts) = (&file, &bytes, std::sync::Mutex::new((0, 0)));
                finish(async |s| {
                    for i in 0..8 {
                        let (counts, at) = (&counts, (round * 8 + i) % 256 * 4096);
                        s.start(async move {
                            let (read, buffer) = file.read_at(marked(), at as u64).await;
                            let mut counts = counts.lock().unwrap();
                            match read {
                                Ok(n) => {
                                    assert_eq!(n, 4096);
                                    assert!(buffer[..] == bytes[at..at + 4096], "all of it");
                                    counts.0 += 1;
                                }
                                Err(error) => {
                                    assert!(is_cancelled(&error), "{error}");
                                    assert!(buffer.iter().all(|byte| *byte == MARK), "none of it");
                                    counts.1 += 1;
                                }
                            }
                        });
                    }
                    if round % 3 == 0 {
                        dapple::task::yield_now().await;
                    }
                    s.cancel();
                })
                .await;
                let counts = counts.into_inner().unwrap();
                (done, cancelled) = (done + counts.0, cancelled + counts.1);
            }
            assert_eq!(done + cancelled, 400, "each ends, once");
            assert!(done > 0, "a disk does not forget");
        });
    });
}

/// With a ring the kernel cancels a read that waits for a FIFO. A blocking read on a pool thread cannot be cancelled.
#[test]
fn a_cancelled_read_of_a_silent_pipe_ends() {
    if !has_ring() {
        return;
    }
    watched(|| {
        let (rt, dir) = (runtime_with(Files::Ring, 2), Dir::new());
        rt.block_on(async {
            let mut fifo = silent(&dir.path().join("fifo")).await;
            for on_worker in [false, true] {
                let begun = Event::default();
                let reads = async {
                    let fifo = &mut fifo;
                    finish(async |s| {
                        s.start({
                            let begun = begun.clone();
                            async move {
                                let error = telling(begun, fifo.read(&mut [0; 10])).await.unwrap_err();
                                assert!(is_cancelled(&error), "{error}");
                            }
                        });
                        begun.happened().await;
                        if on_worker {
                            dapple::spawn(dapple::task::yield_now()).await.unwrap();
                        }
                        s.cancel();
                    })
                    .await;
                };
                reads.await;
            }
            // Nothing was lost.
            fifo.write_all(b"late").await.unwrap();
            let mut late = [0; 4];
            fifo.read_exact(&mut late).await.unwrap();
            assert_eq!(&late, b"late");
        });
    });
}

/// As above, for an open that waits, cancelled at various steps on its way to the kernel.
#[test]
fn a_cancelled_open_of_a_fifo_ends() {
    if !has_ring() {
        return;
    }
    watched(|| {
        let (rt, dir) = (runtime_with(Files::Ring, 2), Dir::new());
        let path = dir.path().join("fifo");
        make_fifo(&path);
        rt.block_on(async {
            for round in 0..300 {
                let path = path.clone();
                let opens = async move {
                    let path = &path;
                    finish(async |s| {
                        let opens = s.start(File::open(path));
                        for _ in 0..round % 10 {
                            dapple::task::yield_now().await;
                        }
                        s.cancel();
                        let error = opens.await.unwrap_err();
                        assert!(is_cancelled(&error), "{error:?}");
                    })
                    .await;
                };
                if round % 2 == 0 {
                    opens.await;
                } else {
                    dapple::spawn(opens).await.unwrap();
                }
            }
        });
    });
}

#[test]
fn a_read_that_has_begun_is_waited_for_and_its_bytes_are_not_lost() {
    on_both(|rt, dir| {
        rt.block_on(async {
            let fifo = silent(&dir.join("fifo")).await;
            let mut writes = File::from_std(fifo.into_std().await.unwrap().try_clone().unwrap());
            let mut reads = writes.try_clone().await.unwrap();
            let mut bytes = [0; 4];
            {
                let mut read = pin!(reads.read(&mut bytes));
                assert!(poll_once(read.as_mut()).await.is_none());
                // It is dropped, and stays with the file.
            }
            writes.write_all(b"abcdefgh").await.unwrap();
            writes.flush().await.unwrap();
            let mut got = Vec::new();
            while got.len() < 8 {
                let n = reads.read(&mut bytes[..3]).await.unwrap();
                got.extend_from_slice(&bytes[..n]);
            }
            assert_eq!(got, b"abcdefgh");
        });
    });
}

/// Memory that was freed while the kernel could still write to it would be found by the next who asks for some.
#[test]
fn nothing_is_written_to_memory_that_was_freed() {
    /// So much that a disk takes its time for it, and so little that the allocator keeps it.
    const LARGE: usize = 64 << 10;
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let Some(file) = direct_file(&path, 256 << 12).await else { return };
            for round in 0..20_u64 {
                let large = || AlignedBuf::new(LARGE);
                let at = |i| (round * 32 + i) % 16 * LARGE as u64;
                let reads: Vec<_> = (0..48).map(|i| file.read_at(large(), at(i))).collect();
                let mut reads: Vec<_> = reads.into_iter().map(Box::pin).collect();
                for read in &mut reads {
                    // Outside of a worker: it is with the kernel after this.
                    drop(poll_once(read.as_mut()).await);
                }
                drop(reads);
                let marked = || {
                    let mut buffer = large();
                    buffer.fill(MARK);
                    buffer
                };
                let marked: Vec<_> = (0..64).map(|_| marked()).collect();
                // As long as it takes the disk to come to those that were asked for before.
                let (read, _) = file.read_at(large(), 0).await;
                assert_eq!(read.unwrap(), LARGE);
                for buffer in &marked {
                    assert!(buffer.iter().all(|byte| *byte == MARK), "somebody else's bytes");
                }
            }
        });
    });
}

/// A buffer that tells when it is dropped.
struct Counted {
    buffer: AlignedBuf,
    _guard: Guard,
    panics: bool,
}

// SAFETY: it is the one inside.
unsafe impl BufferMut for Counted {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        self.buffer.room()
    }

    unsafe fn filled(&mut self, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.buffer.filled(len) };
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(!self.panics, "in the destructor of a buffer");
    }
}

fn counted(drops: &Drops, panics: bool) -> Counted {
    Counted { buffer: block(), _guard: drops.guard(), panics }
}

#[test]
fn a_buffer_dropped_in_flight_is_freed_once_after_completion() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let Some(file) = direct_file(&path, 64 << 12).await else { return };
            let drops = Drops::default();
            for i in 0..64 {
                let mut read = Box::pin(file.read_at(counted(&drops, false), i << 12));
                drop(poll_once(read.as_mut()).await);
            }
            eventually("all are dropped", || drops.count() == 64);
            drop(file);
        });
        assert!(rt.metrics().sleeping <= 2);
    });
}

#[test]
fn a_buffer_with_a_panicking_destructor_affects_no_other_operation() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let Some(file) = direct_file(&path, 64 << 12).await else { return };
            let drops = Drops::default();
            for i in 0..8 {
                let mut read = Box::pin(file.read_at(counted(&drops, true), i << 12));
                let polled = poll_once(read.as_mut()).await;
                // If it is done already, it is ours to drop.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(polled)));
                let _ = catch_unwind(AssertUnwindSafe(|| drop(read)));
            }
            eventually("all are dropped", || drops.count() == 8);
            assert_eq!(file.read_at(block(), 0).await.0.unwrap(), 4096);
        });
    });
}

#[test]
fn what_is_forgotten_stays_with_the_kernel() {
    for files in both() {
        watched(move || {
            let (rt, dir) = (runtime_with(files, 2), Dir::new());
            let drops = Drops::default();
            rt.block_on(async {
                let Some(file) = direct_file(&dir.path().join("file"), 64 << 12).await else { return };
                for i in 0..64 {
                    let mut read = Box::pin(file.read_at(counted(&drops, false), i << 12));
                    std::mem::forget(poll_once(read.as_mut()).await);
                    std::mem::forget(read);
                }
                assert_eq!(file.read_at(block(), 0).await.0.unwrap(), 4096);
            });
            drop(rt);
            assert_eq!(drops.count(), 0, "whoever forgets it keeps it");
        });
    }
}

/// Every future of this module, dropped after each number of polls, on a worker and elsewhere.
#[test]
fn every_future_can_be_dropped_at_any_poll() {
    on_both(|rt, dir| {
        let dir = dir.to_owned();
        let all = move |polls: usize| {
            let dir = dir.clone();
            async move {
                macro_rules! try_out {
                    ($future:expr) => {{
                        let mut future = Box::pin($future);
                        for _ in 0..polls {
                            if poll_once(future.as_mut()).await.is_some() {
                                break;
                            }
                            dapple::task::yield_now().await;
                        }
                        drop(future);
                    }};
                }
                let (path, other) = (dir.join("file"), dir.join("other"));
                std::fs::write(&path, pattern(10000)).unwrap();
                let mut file = File::options().read(true).write(true).open(&path).await.unwrap();
                try_out!(File::open(&path));
                try_out!(File::create(dir.join("made")));
                try_out!(file.read_at(vec![0; 100], 0));
                try_out!(file.write_at("abc", 0));
                try_out!(file.read_vectored_at(vec![vec![0; 100]; 4], 0));
                try_out!(file.write_vectored_at(vec!["abc"; 4], 0));
                let mut bytes = [0; 100];
                try_out!(file.read(&mut bytes));
                try_out!(file.write(&[0; 100]));
                try_out!(file.flush());
                try_out!(file.sync_all());
                try_out!(file.set_len(5000));
                try_out!(file.metadata());
                try_out!(file.try_clone());
                try_out!(fs::read(&path));
                try_out!(fs::write(&other, "abc"));
                try_out!(fs::copy(&path, dir.join("copied")));
                try_out!(fs::metadata(&path));
                try_out!(fs::read_dir(&dir));
                try_out!(fs::create_dir(dir.join("made dir")));
                try_out!(fs::remove_dir(dir.join("made dir")));
                try_out!(fs::create_dir_all(dir.join("made/dirs")));
                try_out!(fs::hard_link(&path, dir.join("linked")));
                try_out!(fs::symlink(&path, dir.join("pointed")));
                try_out!(fs::rename(&other, dir.join("renamed")));
                try_out!(fs::canonicalize(&path));
                try_out!(fs::remove_file(dir.join("renamed")));
                try_out!(file.into_std());
                let file = File::open(&path).await.unwrap();
                try_out!(file.close());
            }
        };
        rt.block_on(async {
            for polls in 0..4 {
                all(polls).await;
                let all = all.clone();
                dapple::spawn(async move { all(polls).await }).await.unwrap();
            }
        });
    });
}

/// A write with the cursor was promised: it goes on after its scope is cancelled and after the file is dropped.
#[test]
fn a_promised_write_is_not_cancelled() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            for round in 0..50_u32 {
                let mut file = File::create(&path).await.unwrap();
                finish(async |s| {
                    file.write_all(&[b'x'; 10000]).await.unwrap();
                    s.cancel();
                    if let Err(error) = file.flush().await {
                        assert!(is_cancelled(&error), "{error}");
                    }
                    assert!(is_cancelled(&file.write(b"y").await.unwrap_err()));
                })
                .await;
                if round % 2 == 0 {
                    file.flush().await.unwrap();
                    assert_eq!(std::fs::read(&path).unwrap(), [b'x'; 10000]);
                } else {
                    drop(file);
                    eventually("it is written", || std::fs::read(&path).unwrap() == [b'x'; 10000]);
                }
            }
        });
    });
}

/// An aborted task drops the operation that it waits for. A cancelled task gets the operation's result, or `Cancelled`.
#[test]
fn tasks_that_are_aborted_or_cancelled() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let Some(file) = direct_file(&path, 64 << 12).await else { return };
            let file = std::sync::Arc::new(file);
            for round in 0..100_u64 {
                let file = file.clone();
                let reads = dapple::spawn(async move {
                    for i in 0.. {
                        let (read, _) = file.read_at(block(), i % 64 * 4096).await;
                        match read {
                            Ok(n) => assert_eq!(n, 4096),
                            Err(error) => return is_cancelled(&error),
                        }
                    }
                    false
                });
                for _ in 0..round % 8 {
                    dapple::task::yield_now().await;
                }
                if round % 2 == 0 {
                    reads.abort();
                    assert!(reads.await.unwrap_err().is_aborted());
                } else {
                    reads.cancel();
                    assert!(reads.await.unwrap());
                }
            }
        });
    });
}

/// A future that was begun in one runtime and is polled in another still ends.
#[test]
fn an_operation_begun_in_one_runtime_ends_in_another() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        let other: Runtime = crate::common::runtime(1);
        rt.block_on(async {
            let Some(file) = direct_file(&path, 64 << 12).await else { return };
            let mut reads = Box::pin(async move { file.read_at(block(), 4096).await.0.unwrap() });
            let begun = poll_fn(|cx| Poll::Ready(reads.as_mut().poll(cx))).await;
            let n = match begun {
                Poll::Ready(n) => n,
                Poll::Pending => dapple::blocking(move || other.block_on(reads)).await.unwrap(),
            };
            assert_eq!(n, 4096);
        });
    });
}
