//! Whole files: every byte is read, also where reads are short before the end, and where the reported length is wrong.

use std::path::Path;

use crate::common::not_run;
use crate::fs_common::{forget_cached, on_both, pattern};
use dapple::fs::{self, File};
use dapple::io::AsyncReadExt;

/// Files without a length, which the kernel gives in parts of a page or so: those that are there, are larger than that,
/// and do not change by themselves.
fn files_without_length() -> Vec<(&'static Path, Vec<u8>)> {
    let there =
        ["/proc/kallsyms", "/proc/crypto", "/proc/self/mountinfo", "/proc/filesystems", "/proc/devices"];
    let files = there.into_iter().filter_map(|path| {
        let path = Path::new(path);
        let bytes = std::fs::read(path).ok()?;
        let is_stable = std::fs::read(path).is_ok_and(|again| again == bytes);
        (is_stable && std::fs::metadata(path).ok()?.len() == 0).then_some((path, bytes))
    });
    let files: Vec<_> = files.collect();
    if !files.iter().any(|(_, bytes)| bytes.len() > 3 * 4096) {
        not_run("its part on large files of /proc: none that stays the same");
    }
    files
}

#[test]
fn a_short_read_is_not_the_end() {
    on_both(|rt, dir| {
        for (path, bytes) in files_without_length() {
            let read = rt.block_on(fs::read(path)).unwrap();
            assert!(read == bytes, "{}: {} bytes of {}", path.display(), read.len(), bytes.len());
            let text = rt.block_on(fs::read_to_string(path)).unwrap();
            assert!(text.as_bytes() == bytes, "{}", path.display());
            let copy = dir.join("copy");
            assert_eq!(rt.block_on(fs::copy(path, &copy)).unwrap(), bytes.len() as u64, "{}", path.display());
            assert!(std::fs::read(&copy).unwrap() == bytes, "{}", path.display());
            std::fs::remove_file(&copy).unwrap();
            let with_cursor = rt.block_on(async {
                let mut all = Vec::new();
                File::open(path).await.unwrap().read_to_end(&mut all).await.unwrap();
                all
            });
            assert!(with_cursor == bytes, "{}", path.display());
        }
    });
}

/// Files of /sys are a page long, they say, and have less in them.
#[test]
fn a_file_may_be_shorter_than_told() {
    on_both(|rt, _| {
        for path in ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/devices/system/cpu/online"] {
            if let Ok(bytes) = std::fs::read(path) {
                assert_eq!(rt.block_on(fs::read(path)).unwrap(), bytes, "{path}");
            }
        }
    });
}

#[test]
fn files_of_all_lengths() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        for len in [0, 1, 4095, 4096, 4097, 8192, 12_288, 100_000, 1 << 20, (1 << 20) + 1] {
            let bytes = pattern(len);
            std::fs::write(&path, &bytes).unwrap();
            for cached in [true, false] {
                if !cached {
                    forget_cached(&path);
                }
                assert!(rt.block_on(fs::read(&path)).unwrap() == bytes, "{len}, cached: {cached}");
            }
        }
    });
}

/// A file that others write to meanwhile: all that was there when it was opened.
#[test]
fn a_file_that_grows_is_read_to_its_length_at_least() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        let before = pattern(64 << 10);
        std::fs::write(&path, &before).unwrap();
        let to = path.clone();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stops = stop.clone();
        let grows = std::thread::spawn(move || {
            let mut file = std::fs::File::options().append(true).open(&to).unwrap();
            for _ in 0..20_000 {
                if stops.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                std::io::Write::write_all(&mut file, b"more").unwrap();
            }
        });
        for _ in 0..200 {
            let least = std::fs::metadata(&path).unwrap().len();
            let read = rt.block_on(fs::read(&path)).unwrap();
            assert!(read.len() as u64 >= least && read.starts_with(&before), "{} of {least}", read.len());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        grows.join().unwrap();
    });
}
