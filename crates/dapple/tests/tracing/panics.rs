//! A subscriber of `tracing` that panics at every event harms no part of the runtime.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use crate::common::{eventually, in_a_process_of_its_own, watched};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static EVENTS: AtomicUsize = AtomicUsize::new(0);

struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dapple")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        EVENTS.fetch_add(1, Ordering::SeqCst);
        panic!("a subscriber that panics");
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn events(before: usize) -> bool {
    EVENTS.load(Ordering::SeqCst) > before
}

#[test]
fn a_panicking_subscriber_does_not_affect_the_runtime() {
    in_a_process_of_its_own("a_panicking_subscriber_does_not_affect_the_runtime", harms_no_other_task);
}

fn harms_no_other_task() {
    tracing::subscriber::set_global_default(Panics).unwrap();
    watched(|| {
        // The monitor reports that no spare is left, and the stuck task. It goes on counting after the panic.
        let rt = dapple::Runtime::builder().workers(1).max_spares(0).build().unwrap();
        for round in 1..4 {
            let stop = Arc::new(AtomicBool::new(false));
            let stops = stop.clone();
            let stuck = rt.spawn(async move {
                while !stops.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            });
            eventually("the stall is counted", || rt.metrics().stalls >= round);
            stop.store(true, Ordering::Release);
            rt.block_on(stuck).unwrap();
        }
        assert!(events(0));
        // A dropped scope is reported, in a destructor.
        let before = EVENTS.load(Ordering::SeqCst);
        {
            let mut scope = pin!(dapple::finish(async |s| {
                s.start(pending::<()>());
                pending::<()>().await;
            }));
            assert!(scope.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert!(events(before));
        // The first read of a file reports the backend.
        let before = EVENTS.load(Ordering::SeqCst);
        let rt = dapple::Runtime::builder().workers(1).build().unwrap();
        assert!(rt.block_on(dapple::fs::try_exists("/")).unwrap());
        assert!(rt.block_on(dapple::fs::read("/proc/self/exe")).is_ok());
        assert!(events(before));
    });
}
