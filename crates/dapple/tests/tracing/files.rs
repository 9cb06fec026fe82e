//! Events for `tracing` about files: the backend, once, and writes that failed with no caller left to get the error.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use dapple::Runtime;
use dapple::fs::{self, Files};
use dapple::io::AsyncWriteExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the events of this thread as text.
#[derive(Clone, Default)]
struct Keeps(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Keeps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "dapple::fs"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn how_files_are_used_is_told_once() {
    for wanted in [Files::Auto, Files::Pool] {
        let keeps = Keeps::default();
        let used = tracing::subscriber::with_default(keeps.clone(), || {
            let rt = Runtime::builder().workers(1).files(wanted).build().unwrap();
            rt.block_on(async {
                fs::read("/proc/self/status").await.unwrap();
                fs::metadata("/").await.unwrap();
            });
            rt.files()
        });
        let lines = keeps.0.lock().unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&format!("files={used:?}")), "{lines:?}");
    }
}

/// A promised write that fails, and a file that is dropped without having heard of it.
#[test]
fn a_write_that_failed_with_no_file_to_tell_is_told_with_its_path() {
    for wanted in [Files::Auto, Files::Pool] {
        let keeps = Keeps::default();
        tracing::subscriber::with_default(keeps.clone(), || {
            let rt = Runtime::builder().workers(1).files(wanted).build().unwrap();
            rt.block_on(async {
                let mut file = fs::File::options().write(true).open("/dev/full").await.unwrap();
                file.write_all(b"no room").await.unwrap();
                file.metadata().await.unwrap(); // the write is done, and no caller got its error
                assert_eq!(rt.metrics().failed_writes, 0);
                drop(file);
                assert_eq!(rt.metrics().failed_writes, 1);
            });
        });
        let lines = keeps.0.lock().unwrap();
        let told = lines.iter().filter(|line| line.contains("/dev/full") && line.contains("promised"));
        assert_eq!(told.count(), 1, "{lines:?}");
    }
}
