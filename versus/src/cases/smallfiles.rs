//! `smallfiles`: 20,000 files of 1 KB, each created, written, read and removed.
//!
//! By path and by the functions that each side has for whole files (`write`, `read`, `remove_file`), 64 tasks at
//! a time; what was read is checked. In a folder of its own for each round, among the temporary files, which is
//! removed with the round. `std` is one thread that blocks. compio has one runtime a thread, so there are as many of
//! them as the others have workers, with their share of the tasks.
//!
//! A file system may get slower for a while after many files were removed from it, which is why each round gives
//! the sides another order, and why only ratios within a round count.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::{env, fs, io, process, thread};

use compio::driver::{DriverType, ProactorBuilder};
use compio::runtime::Runtime;

use crate::contest::{Contest, Entry, Failure, Role, Sample, Scale, TIMES};
use crate::sides::{Dapple, Host, Side, TokioDriven, WORKERS};
use crate::work::Stopwatch;

pub(crate) fn contest() -> Contest {
    let entries = vec![
        entry(Dapple::NAME, Role::Ours, on::<Dapple, OfDapple>),
        entry("std", Role::Rival, on_one_thread),
        entry(TokioDriven::NAME, Role::Rival, on::<TokioDriven, OfTokio>),
        entry("compio", Role::Rival, on_compio),
    ];
    Contest {
        name: "smallfiles",
        about: "create, write, read and remove 20,000 files of 1 KB, 64 tasks at a time; per file",
        metrics: TIMES,
        // A round warms up by itself, and a slow disk makes it long.
        warm_up: false,
        at_most: 5,
        entries,
    }
}

const FILES: usize = 20_000;
/// Bytes of a file.
const SIZE: usize = 1024;
/// Tasks that are at it at a time.
const TASKS: usize = 64;

fn entry(side: &'static str, role: Role, round: fn(Files, Files) -> Sample) -> Entry {
    let round = move |scale: Scale| -> Result<Sample, Failure> {
        let count = FILES.div_ceil(if scale.quick { 20 } else { 1 });
        let folder = Folder::new().map_err(|error| format!("a folder for files: {error}"))?;
        let warm_up = Files::new(&folder.0, 0..count / 10);
        let files = Files::new(&folder.0, count / 10..count / 10 + count);
        let sample = round(warm_up, files);
        folder.remove().map_err(|error| format!("a folder that is left empty: {error}"))?;
        Ok(sample)
    };
    Entry { side, role, round: Box::new(round) }
}

/// A folder that ends with the value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let path = env::temp_dir().join(format!("versus-smallfiles-{}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Removes it; an error if there is something left in it.
    fn remove(self) -> io::Result<()> {
        fs::remove_dir(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Already gone, if all went well.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The files of a run, which tasks take one after the other.
#[derive(Clone)]
struct Files(Arc<(Vec<PathBuf>, AtomicUsize)>);

impl Files {
    fn new(folder: &Path, numbers: Range<usize>) -> Self {
        let paths = numbers.map(|number| folder.join(number.to_string())).collect();
        Self(Arc::new((paths, AtomicUsize::new(0))))
    }

    fn count(&self) -> usize {
        self.0.0.len()
    }

    /// The next file that no task has taken, and its content.
    fn next(&self) -> Option<(&Path, Vec<u8>)> {
        let number = self.0.1.fetch_add(1, Relaxed);
        let path = self.0.0.get(number)?;
        Some((path, vec![number as u8; SIZE]))
    }
}

/// Looks whether it is what was written.
fn check(contents: &[u8], written: u8) {
    assert!(contents.len() == SIZE && contents.iter().all(|&byte| byte == written), "what was written");
}

/// The work of one task of a runtime.
trait Work: 'static {
    fn work(files: Files) -> impl Future<Output = ()> + Send;
}

/// The loop of a task, with the functions of a module that have the names of std's.
macro_rules! each_file {
    ($files:ident, $module:path) => {{
        use $module as module;
        while let Some((path, contents)) = $files.next() {
            let written = contents[0];
            module::write(path, contents).await.expect("a file that can be written");
            check(&module::read(path).await.expect("a file that can be read"), written);
            module::remove_file(path).await.expect("a file that can be removed");
        }
    }};
}

struct OfDapple;

impl Work for OfDapple {
    async fn work(files: Files) {
        each_file!(files, dapple::fs);
    }
}

struct OfTokio;

impl Work for OfTokio {
    async fn work(files: Files) {
        each_file!(files, tokio::fs);
    }
}

/// A round of a runtime with tasks that any of its threads may run.
fn on<H: Host, W: Work>(warm_up: Files, files: Files) -> Sample {
    H::start().run(|side| async move {
        all::<H::Side, W>(&side, &warm_up).await;
        let stopwatch = Stopwatch::start();
        all::<H::Side, W>(&side, &files).await;
        stopwatch.per_operation(files.count())
    })
}

async fn all<S: Side, W: Work>(side: &S, files: &Files) {
    let tasks: Vec<_> = (0..TASKS).map(|_| side.spawn(W::work(files.clone()))).collect();
    for task in tasks {
        S::join(task).await;
    }
}

/// A round of a thread that blocks.
fn on_one_thread(warm_up: Files, files: Files) -> Sample {
    let all = |files: &Files| {
        while let Some((path, contents)) = files.next() {
            fs::write(path, &contents).expect("a file that can be written");
            check(&fs::read(path).expect("a file that can be read"), contents[0]);
            fs::remove_file(path).expect("a file that can be removed");
        }
    };
    all(&warm_up);
    let stopwatch = Stopwatch::start();
    all(&files);
    stopwatch.per_operation(files.count())
}

/// A round of compio: a runtime on each of some threads.
fn on_compio(warm_up: Files, files: Files) -> Sample {
    let barrier = Arc::new(Barrier::new(WORKERS + 1));
    let threads: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (warm_up, files, barrier) = (warm_up.clone(), files.clone(), barrier.clone());
            thread::spawn(move || {
                let runtime = compio_runtime();
                runtime.block_on(share_of_compio(warm_up));
                barrier.wait(); // all are warm
                barrier.wait(); // the clock has started
                runtime.block_on(share_of_compio(files));
                barrier.wait(); // all are done
            })
        })
        .collect();
    barrier.wait();
    let stopwatch = Stopwatch::start();
    barrier.wait();
    barrier.wait();
    let sample = stopwatch.per_operation(files.count());
    for thread in threads {
        thread.join().expect("a thread that ends");
    }
    sample
}

/// With what its documentation advises for most cases.
fn compio_runtime() -> Runtime {
    let mut driver = ProactorBuilder::new();
    driver.coop_taskrun(true).taskrun_flag(true);
    let runtime = Runtime::builder().with_proactor(driver).build().expect("a compio runtime");
    assert_eq!(runtime.driver_type(), DriverType::IoUring, "what it is good at");
    runtime
}

/// The work of one of compio's runtimes.
async fn share_of_compio(files: Files) {
    let work = |files: Files| async move {
        while let Some((path, contents)) = files.next() {
            let written = contents[0];
            compio::fs::write(path, contents).await.0.expect("a file that can be written");
            check(&compio::fs::read(path).await.expect("a file that can be read"), written);
            compio::fs::remove_file(path).await.expect("a file that can be removed");
        }
    };
    let tasks: Vec<_> = (0..TASKS / WORKERS).map(|_| compio::runtime::spawn(work(files.clone()))).collect();
    for task in tasks {
        task.await.expect("a task that ends");
    }
}
