//! Events for `tracing` about stuck workers, seen by the one subscriber of a process.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{eventually, in_a_process_of_its_own, watched};
use dapple::task::Builder;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps events as text.
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
fn each_kind_of_stuck_task_is_reported_once_and_so_is_a_lack_of_spares() {
    let test = "each_kind_of_stuck_task_is_reported_once_and_so_is_a_lack_of_spares";
    in_a_process_of_its_own(test, each_kind);
}

fn each_kind() {
    let keeps = Keeps::default();
    tracing::subscriber::set_global_default(keeps.clone()).unwrap();
    watched(move || {
        let told = |what: &str| keeps.0.lock().unwrap().iter().filter(|line| line.contains(what)).count();
        let rt = dapple::Runtime::builder().workers(1).max_spares(2).build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stuck = |stop: &Arc<AtomicBool>| {
            let stop = stop.clone();
            async move {
                while !stop.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            }
        };
        // By its name, its place and its color, while it is stuck.
        let (color, task) = (rt.handle().color(), Builder::new().name("the spinner"));
        let (named,) = rt.block_on(async { (task.color(&color).spawn(stuck(&stop)),) });
        eventually("it is told", || told("the spinner") == 1);
        {
            let lines = keeps.0.lock().unwrap();
            let line = lines.iter().find(|line| line.contains("the spinner")).unwrap();
            let parts = ["WARN", "color #", "stalls.rs", "dapple::blocking", "color.call", "stuck_for="];
            assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        }
        let dump = rt.dump();
        let task = dump.tasks.iter().find(|task| task.name == "the spinner").unwrap();
        assert!(task.stuck_for.is_some() && dump.to_string().contains("stuck in a poll for"), "{dump}");
        // Named by its type, once, although there are two; for the third stuck task no spare is left.
        let others: Vec<_> = (0..2).map(|_| rt.spawn(stuck(&stop))).collect();
        eventually("that of another kind is told", || told("stalls::") == 1);
        eventually("no spare is left", || told("no spare is left") == 1);
        eventually("all three are counted", || rt.metrics().stalls == 3);
        stop.store(true, Ordering::Release);
        rt.block_on(named).unwrap();
        others.into_iter().for_each(|other| rt.block_on(other).unwrap());
        eventually("those who stood in rest", || rt.metrics().spares_running == 0);
        assert!(rt.dump().tasks.iter().all(|task| task.stuck_for.is_none()));
        assert_eq!((told("stalls::"), told("the spinner"), told("no spare is left")), (1, 1, 1));
        assert_eq!(rt.metrics().stalls_unrelieved, 1);
    });
}

/// A subscriber that blocks at each event until it may go on.
#[derive(Clone, Default)]
struct Blocks {
    entered: Arc<AtomicUsize>,
    goes_on: Arc<AtomicBool>,
}

impl Subscriber for Blocks {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dapple")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        while !self.goes_on.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_stuck_worker_is_replaced_while_a_subscriber_blocks() {
    in_a_process_of_its_own("a_stuck_worker_is_replaced_while_a_subscriber_blocks", blocks);
}

fn blocks() {
    let blocks = Blocks::default();
    tracing::subscriber::set_global_default(blocks.clone()).unwrap();
    watched(move || {
        let rt = dapple::Runtime::builder().workers(1).build().unwrap();
        let (end, ends) = std::sync::mpsc::channel();
        let told = rt.spawn(async move { ends.recv().unwrap() });
        eventually("a stuck task is told", || blocks.entered.load(Ordering::SeqCst) > 0);
        end.send(()).unwrap();
        rt.block_on(told).unwrap();
        for _ in 0..2 {
            eventually("all spares rest", || rt.metrics().spares_running == 0);
            // The first task blocks its worker until the task behind it has run.
            let (run, has_run) = std::sync::mpsc::channel();
            let stuck = rt.spawn(async move { has_run.recv().unwrap() });
            rt.spawn(async move { run.send(()).unwrap() }).detach();
            rt.block_on(stuck).unwrap();
        }
        blocks.goes_on.store(true, Ordering::SeqCst);
    });
}
