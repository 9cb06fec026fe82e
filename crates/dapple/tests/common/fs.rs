//! Helpers for the tests of files: both backends (ring and pool), and directories that are removed when dropped.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use dapple::Runtime;
use dapple::fs::{AlignedBuf, File, Files};

use super::common::{not_run, watched};

/// Both ways: through a ring, if the kernel lets us, and through the pool.
pub(crate) fn both() -> Vec<Files> {
    let ring = ring().map_err(|why| not_run(format_args!("its part on a ring: {why}")));
    ring.into_iter().chain([Files::Pool]).collect()
}

/// Whether there is a ring, for a test that the pool cannot pass. If not, reports the test as not run.
pub(crate) fn has_ring() -> bool {
    ring().map_err(not_run).is_ok()
}

fn ring() -> io::Result<Files> {
    Runtime::builder().workers(1).files(Files::Ring).build().map(|_| Files::Ring)
}

pub(crate) fn runtime_with(files: Files, workers: usize) -> Runtime {
    let rt = Runtime::builder().workers(workers).files(files).build().expect("a runtime");
    assert_eq!(rt.files(), files, "as asked for");
    rt
}

/// Runs a test through a ring and through the pool, with a directory for it: on a runtime of two workers.
#[track_caller]
pub(crate) fn on_both(body: impl Fn(&Runtime, &Path) + Clone + Send + 'static) {
    for files in both() {
        let body = body.clone();
        watched(move || {
            let rt = runtime_with(files, 2);
            let dir = Dir::new();
            body(&rt, dir.path());
        });
    }
}

/// A directory that is removed when this is dropped.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Dir {
        Dir::inside(&std::env::temp_dir())
    }

    pub(crate) fn inside(parent: &Path) -> Dir {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("dapple-fs-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Dir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes of which each says where it is.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

/// A file with such bytes that is not in the kernel's memory, opened past it; `None` where that cannot be had:
/// then the test, or the rest of it, is reported as not run.
pub(crate) async fn direct_file(path: &Path, len: usize) -> Option<File> {
    let file = std::fs::File::create(path).unwrap();
    std::io::Write::write_all(&mut &file, &pattern(len)).unwrap();
    file.sync_all().unwrap();
    let file = File::options().read(true).write(true).direct(true).open(path).await;
    if file.is_err() {
        not_run(format_args!("no direct access (O_DIRECT) to files in {}", std::env::temp_dir().display()));
    }
    file.ok()
}

/// Forgets what the kernel has of a file in its memory, so that reading it has to wait.
pub(crate) fn forget_cached(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// A block in which nothing was read.
pub(crate) fn block() -> AlignedBuf {
    AlignedBuf::new(4096)
}
