//! Events for `tracing` about scopes.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_scope_that_is_dropped_says_where_it_was_made() {
    let keeps = Keeps::default();
    tracing::subscriber::with_default(keeps.clone(), || {
        dapple::run(async {
            dapple::finish(async |s| s.cancel()).await; // cancelled, and ended: nothing to report
            let for_ever = dapple::finish(async |s| {
                s.start(dapple::time::sleep(Duration::MAX));
            });
            assert!(futures_lite::future::poll_once(for_ever).await.is_none());
        });
    });
    let lines = keeps.0.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("DEBUG") && lines[0].contains("dropped rather than cancelled"), "{lines:?}");
    assert!(lines[0].contains("tracing/scope.rs:47"), "{lines:?}");
}

#[test]
fn a_scope_that_ignores_its_cancel_is_told_of_after_a_second() {
    let keeps = Keeps::default();
    tracing::subscriber::with_default(keeps.clone(), || {
        dapple::sim::Sim::new(0).run(async {
            let long = |seconds| dapple::shield(dapple::time::sleep(Duration::from_secs(seconds)));
            dapple::finish(async |s| {
                s.start(async { long(10).await.unwrap() });
                drop(s.spawn(async move { long(5).await.unwrap() }));
                s.cancel();
            })
            .await;
            dapple::finish(async |s| {
                s.start(dapple::time::sleep(Duration::MAX)); // not told of: it ends
                dapple::time::sleep(Duration::from_secs(5)).await.unwrap();
                s.cancel();
            })
            .await;
        });
    });
    let lines = keeps.0.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN") && lines[0].contains("still waits"), "{lines:?}");
    assert!(lines[0].contains("started=1") && lines[0].contains("tracing/scope.rs:65"), "{lines:?}");
}
