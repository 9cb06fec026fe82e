//! What `tracing` is told of files: once, how they are read and written.
#![cfg(feature = "tracing")]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use dapple::Runtime;
use dapple::fs::{self, Files};
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
