//! Edge cases: a full disk, a file that gets shorter, interrupted calls, non-blocking files, and files that wait.
#![expect(unsafe_code, reason = "a signal handler")]

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::{Event, in_a_process_of_its_own, not_run, telling};
use crate::fs_common::{block, direct_file, on_both, pattern};
use dapple::fs::{self, Failed, File};
use dapple::io::{AsyncReadExt, AsyncWriteExt, how_far};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A small file system in memory, until it is dropped.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(at: &Path) -> Option<Small<'_>> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(at).output();
        match mounted {
            Ok(output) if output.status.success() => return Some(Small(at)),
            Ok(_) => not_run("mounts a small file system, which needs root"),
            Err(error) => not_run(format_args!("mounts a small file system by `mount`: {error}")),
        }
        None
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_error_carries_the_bytes_written() {
    on_both(|rt, dir| {
        let Some(small) = Small::mount(dir) else { return };
        let path = dir.join("file");
        rt.block_on(async {
            let file = File::create_new(&path).await.unwrap();
            let (written, back) = file.write_at(pattern(100_000), 0).await;
            let written = written.unwrap();
            assert!(0 < written && written <= 64 << 10, "a short write: {written}");
            assert_eq!(back.len(), 100_000);
            let (more, _) = file.write_at(pattern(100_000), 64 << 10).await;
            let error = more.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            assert_eq!(Failed::of(&error).unwrap().path(), Some(&*path));
            drop(file);
            let error = fs::write(&path, pattern(100_000)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            if let Some(done) = how_far(&error) {
                assert_eq!(std::fs::metadata(&path).unwrap().len(), done);
            }
            let mut file = File::create(&path).await.unwrap();
            file.write_all(&pattern(100_000)).await.unwrap(); // a copy, behind which it goes wrong
            assert_eq!(file.flush().await.unwrap_err().kind(), ErrorKind::StorageFull);
            assert!(
                std::fs::read(&path).unwrap() == pattern(100_000)[..64 << 10],
                "as much as there is room for"
            );
            file.set_len(0).await.unwrap();
            assert_eq!(
                fs::copy("/proc/self/exe", dir.join("copy")).await.unwrap_err().kind(),
                ErrorKind::StorageFull
            );
        });
        drop(small);
    });
}

#[test]
fn a_device_that_is_always_full() {
    on_both(|rt, _| {
        rt.block_on(async {
            let mut file = File::options().write(true).open("/dev/full").await.unwrap();
            assert_eq!(file.write_at("x", 0).await.0.unwrap_err().kind(), ErrorKind::StorageFull);
            file.write_all(b"x").await.unwrap();
            assert_eq!(file.sync_data().await.unwrap_err().kind(), ErrorKind::StorageFull);
        });
    });
}

/// The bytes read were in the file. Bytes that are cut off during the read are zeros to the kernel.
#[track_caller]
fn was_there(bytes: &[u8], expected: &[u8]) {
    assert!(bytes.iter().zip(expected).all(|(byte, expected)| byte == expected || *byte == 0));
}

#[test]
fn a_file_that_gets_shorter_while_it_is_read() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        let bytes = pattern(1 << 20);
        rt.block_on(async {
            for round in 0..20 {
                std::fs::write(&path, &bytes).unwrap();
                let file = Arc::new(File::options().read(true).write(true).open(&path).await.unwrap());
                let (reads, stop) = (file.clone(), Arc::new(AtomicBool::new(false)));
                let (stopped, whole) = (stop.clone(), path.clone());
                let expected = bytes.clone();
                let reader = dapple::spawn(async move {
                    while !stopped.load(Ordering::Relaxed) {
                        let (read, buffer) = reads.read_at(vec![0; 1 << 20], 0).await;
                        let n = read.unwrap();
                        was_there(&buffer[..n], &expected);
                        was_there(&fs::read(&whole).await.unwrap(), &expected);
                    }
                });
                for len in [700_000, 4097, 1, 0] {
                    file.set_len(len).await.unwrap();
                    if round % 2 == 0 {
                        dapple::task::yield_now().await;
                    }
                }
                assert_eq!(file.read_at(vec![0; 100], 0).await.0.unwrap(), 0, "the end");
                stop.store(true, Ordering::Relaxed);
                reader.await.unwrap();
            }
            // And past the kernel's memory.
            let Some(file) = direct_file(&path, 8 << 12).await else { return };
            file.set_len(4096 + 512).await.unwrap();
            assert_eq!(file.read_at(block(), 4096).await.0.unwrap(), 512, "as much as there is");
            assert_eq!(file.read_at(block(), 8192).await.0.unwrap(), 0);
        });
    });
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Signals that interrupt system calls, on all threads, all the time.
#[test]
fn interruptions_are_not_seen() {
    // The handler and the signals are for every thread of the process.
    in_a_process_of_its_own("interruptions_are_not_seen", interruptions);
}

fn interruptions() {
    on_both(|rt, dir| {
        // SAFETY: plain data, for which zeros are a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = count as *const () as usize; // without SA_RESTART
        // SAFETY: the handler does nothing but count.
        let set = unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) };
        assert_eq!(set, 0);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let shoots = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for task in std::fs::read_dir("/proc/self/task").unwrap() {
                    let thread: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
                    let process = std::process::id();
                    // SAFETY: the handler is set; a thread that is gone is an error, and no harm.
                    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR2) };
                }
                // Not so many that nothing gets on.
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        });
        let before = SIGNALS.load(Ordering::Relaxed);
        rt.block_on(async {
            let path = dir.join("fifo");
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            let bytes = pattern(1 << 20);
            let (from, expected) = (path.clone(), bytes.clone());
            let reader = dapple::spawn(async move {
                let mut file = File::open(&from).await.unwrap(); // waits for the writer
                let mut all = Vec::new();
                file.read_to_end(&mut all).await.unwrap();
                assert!(all == expected);
            });
            let mut file = File::options().write(true).open(&path).await.unwrap();
            file.write_all(&bytes).await.unwrap();
            file.close().await.unwrap();
            reader.await.unwrap();
            let path = dir.join("file");
            for _ in 0..20 {
                fs::write(&path, &bytes).await.unwrap();
                assert!(fs::read(&path).await.unwrap() == bytes);
                let file = File::open(&path).await.unwrap();
                file.sync_all().await.unwrap();
                fs::remove_file(&path).await.unwrap();
            }
        });
        assert!(SIGNALS.load(Ordering::Relaxed) > before, "there were some");
        stop.store(true, Ordering::Relaxed);
        shoots.join().unwrap();
    });
}

/// A file that was opened so that it rather fails than waits.
#[test]
fn nonblocking_files_report_would_block() {
    on_both(|rt, dir| {
        let path = dir.join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        rt.block_on(async {
            let mut file = File::options()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&path)
                .await
                .unwrap();
            assert_eq!(file.read(&mut [0; 10]).await.unwrap_err().kind(), ErrorKind::WouldBlock);
            file.write_all(b"abc").await.unwrap();
            file.flush().await.unwrap();
            let mut bytes = [0; 10];
            assert_eq!(file.read(&mut bytes).await.unwrap(), 3);
            assert_eq!(file.read(&mut bytes).await.unwrap_err().kind(), ErrorKind::WouldBlock);
        });
    });
}

/// To open a FIFO waits for the other side, as it does with `std`; meanwhile all else goes on.
#[test]
fn opening_a_fifo_waits_for_the_other_side() {
    on_both(|rt, dir| {
        const FIFOS: usize = 24; // more than the kernel has threads for by default
        let paths: Vec<_> = (0..FIFOS).map(|i| dir.join(i.to_string())).collect();
        for path in &paths {
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        rt.block_on(async {
            let begun: Vec<_> = paths.iter().map(|_| Event::default()).collect();
            let readers: Vec<_> = paths
                .iter()
                .zip(&begun)
                .map(|(path, begun)| {
                    let (path, begun) = (path.clone(), begun.clone());
                    dapple::spawn(async move {
                        let mut file = telling(begun, File::open(&path)).await.unwrap();
                        let mut text = String::new();
                        file.read_to_string(&mut text).await.unwrap();
                        assert_eq!(text, "at last");
                    })
                })
                .collect();
            for begun in &begun {
                begun.happened().await;
            }
            fs::write(dir.join("file"), "meanwhile").await.unwrap();
            assert!(readers.iter().all(|reader| !reader.is_finished()));
            for path in &paths {
                let mut file = File::options().write(true).open(path).await.unwrap();
                file.write_all(b"at last").await.unwrap();
            }
            for reader in readers {
                reader.await.unwrap();
            }
        });
    });
}

/// Appended bytes go to the end, wherever the cursor is.
#[test]
fn appending() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let mut one = File::options().append(true).create(true).open(&path).await.unwrap();
            let mut two = File::options().append(true).open(&path).await.unwrap();
            for i in 0..10_u8 {
                let file = if i % 2 == 0 { &mut one } else { &mut two };
                file.write_all(&[b'0' + i]).await.unwrap();
                file.flush().await.unwrap();
            }
            assert_eq!(fs::read_to_string(&path).await.unwrap(), "0123456789");
        });
    });
}
