//! The end of a runtime with files under way, and one that has nothing to do with files any more.
#![expect(unsafe_code, reason = "a buffer that counts")]

use std::path::Path;
use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use crate::common::{Drops, Event, Guard, eventually, telling, watched};
use crate::fs_common::{Dir, block, both, direct_file, has_ring, runtime_with};
use dapple::fs::{self, BufferMut, File, Files};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use futures_lite::future::poll_once;
use rustix::fs::{CWD, FileType, Mode, mknodat};

async fn silent(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    File::options().read(true).write(true).open(path).await.unwrap()
}

/// A buffer that tells when it is dropped.
struct Counted(Vec<u8>, #[expect(dead_code, reason = "for its destructor")] Guard);

// SAFETY: it is the one inside.
unsafe impl BufferMut for Counted {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        self.0.room()
    }

    unsafe fn filled(&mut self, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.filled(len) };
    }
}

/// A read that waits for ever is cancelled, and the shutdown is clean. Only a ring can cancel it.
#[test]
fn what_waits_is_given_up() {
    if !has_ring() {
        return;
    }
    watched(|| {
        let (rt, dir) = (runtime_with(Files::Ring, 2), Dir::new());
        let begun = Event::default();
        let (tells, path) = (begun.clone(), dir.path().join("fifo"));
        let reads = rt.spawn(async move {
            let mut fifo = silent(&path).await;
            telling(tells, fifo.read(&mut [0; 10])).await
        });
        begun.wait();
        let shutdown = rt.shutdown(Duration::from_secs(30));
        assert!(shutdown.is_clean(), "{shutdown}");
        let read = crate::common::foreign_block_on(reads).unwrap();
        assert!(dapple::is_cancelled(&read.unwrap_err()));
    });
}

/// Dropped futures: the buffers that they gave to the kernel come back before the runtime is gone.
#[test]
fn what_was_dropped_is_waited_for() {
    for files in both() {
        watched(move || {
            let (rt, dir) = (runtime_with(files, 2), Dir::new());
            let drops = Drops::default();
            let begun = rt.block_on(async {
                let Some(file) = direct_file(&dir.path().join("file"), 64 << 12).await else { return 0 };
                for i in 0..64 {
                    let buffer = Counted(vec![0; 4096], drops.guard());
                    // Not aligned: refused or not, it comes back.
                    let mut read = Box::pin(file.read_at(buffer, i << 12));
                    drop(poll_once(read.as_mut()).await);
                }
                64
            });
            drop(rt);
            eventually("all are back", || drops.count() == begun);
        });
    }
}

/// A future that outlives its runtime ends, and gives back its buffer.
#[test]
fn what_outlives_its_runtime_ends() {
    for files in both() {
        watched(move || {
            let (rt, other, dir) = (runtime_with(files, 1), crate::common::runtime(1), Dir::new());
            let path = dir.path().join("fifo");
            let (mut read, file) = rt.block_on(async {
                let file = silent(&path).await.into_std().await.unwrap();
                let reads = File::from_std(file.try_clone().unwrap());
                let mut read = Box::pin(async move {
                    let mut reads = reads;
                    let mut buffer = [0; 3];
                    reads.read(&mut buffer).await.map(|n| buffer[..n].to_vec())
                });
                assert!(poll_once(read.as_mut()).await.is_none());
                (read, file)
            });
            drop(rt);
            // On the pool a thread is still at it; from the ring it was taken, and is begun again.
            std::io::Write::write_all(&mut &file, b"abc").unwrap();
            let read = other.block_on(read.as_mut());
            match read {
                Ok(bytes) => assert_eq!(bytes, b"abc"),
                Err(error) => panic!("{error}"),
            }
        });
    }
}

#[test]
fn a_promised_write_is_written_before_the_end() {
    for files in both() {
        watched(move || {
            for round in 0..20 {
                let (rt, dir) = (runtime_with(files, 2), Dir::new());
                let path = dir.path().join("file");
                let to = path.clone();
                let writes = async move {
                    let mut file = File::create(&to).await.unwrap();
                    file.write_all(&[b'x'; 100_000]).await.unwrap();
                };
                if round % 2 == 0 {
                    rt.block_on(writes);
                } else {
                    rt.block_on(async { dapple::spawn(writes).await.unwrap() });
                }
                rt.shutdown(Duration::from_secs(30));
                assert_eq!(std::fs::read(&path).unwrap(), [b'x'; 100_000]);
            }
        });
    }
}

#[test]
fn files_of_a_runtime_that_has_ended_go_on_in_another() {
    for files in both() {
        watched(move || {
            let dir = Dir::new();
            let path = dir.path().join("file");
            let first = runtime_with(files, 1);
            let mut file = first.block_on(File::create_new(&path)).unwrap();
            first.block_on(file.write_all(b"first")).unwrap();
            drop(first);
            let second = runtime_with(files, 1);
            second.block_on(async {
                file.write_all(b", second").await.unwrap();
                file.sync_all().await.unwrap();
                assert_eq!(fs::read_to_string(&path).await.unwrap(), "first, second");
            });
        });
    }
}

/// Context switches of the threads whose names start so.
fn switches(prefix: &str) -> Vec<String> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let ours = threads.filter(|thread| read(thread.join("comm")).starts_with(prefix));
    let lines = |thread: std::path::PathBuf| {
        read(thread.join("status")).lines().filter(|line| line.contains("ctxt_switches")).collect::<String>()
    };
    ours.map(lines).collect()
}

#[test]
fn a_runtime_that_has_used_files_sleeps() {
    for files in both() {
        watched(move || {
            let dir = Dir::new();
            let rt = dapple::Runtime::builder().workers(2).thread_name("filer").files(files).build().unwrap();
            rt.block_on(async {
                let path = dir.path().join("file");
                let Some(file) = direct_file(&path, 64 << 12).await else { return };
                let file = std::sync::Arc::new(file);
                let reads: Vec<_> = (0..64)
                    .map(|i| {
                        let file = file.clone();
                        dapple::spawn(async move { file.read_at(block(), i << 12).await.0.unwrap() })
                    })
                    .collect();
                for read in reads {
                    assert_eq!(read.await.unwrap(), 4096);
                }
                fs::remove_file(&path).await.unwrap();
            });
            // How things are after a while in which nothing has changed. The time is what this is about.
            let after_a_while = || {
                let before = switches("filer-");
                thread::sleep(Duration::from_millis(400));
                (switches("filer-") == before).then_some(before)
            };
            let at_rest = (0..20).find_map(|_| after_a_while()).expect("it comes to rest");
            assert!(at_rest.len() >= 3, "two workers and the monitor");
            assert_eq!(after_a_while(), Some(at_rest), "and stays so");
        });
    }
}

/// A runtime that has a file to wait for sleeps meanwhile.
#[test]
fn a_runtime_that_waits_for_a_file_sleeps() {
    if !has_ring() {
        return;
    }
    watched(|| {
        let dir = Dir::new();
        let rt = dapple::Runtime::builder().workers(2).thread_name("waiter").build().unwrap();
        let path = dir.path().join("fifo");
        let begun = Event::default();
        let tells = begun.clone();
        rt.spawn(async move {
            let mut fifo = silent(&path).await;
            let _ = telling(tells, fifo.read(&mut [0; 10])).await;
        })
        .detach();
        begun.wait();
        let after_a_while = || {
            let before = switches("waiter-");
            thread::sleep(Duration::from_millis(400));
            (switches("waiter-") == before).then_some(before)
        };
        let at_rest = (0..20).find_map(|_| after_a_while()).expect("it comes to rest");
        assert_eq!(after_a_while(), Some(at_rest), "and stays so");
    });
}
