//! Panics of runnables: each is counted and reported to the hook of its runtime, whether or not a handle is left to see it.

use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{eventually, watched};
use dapple::Runtime;
use dapple::sim::Sim;
use dapple::task::{self, Builder};

/// Reports that a panic hook received: the task's name, the message, and whether the task had a handle.
type Told = Arc<Mutex<Vec<(String, String, bool)>>>;

fn keeping(builder: dapple::runtime::Builder) -> (Runtime, Told) {
    let told = Told::default();
    let keeps = told.clone();
    let builder = builder.on_panic(move |report| {
        assert!(task::try_current().is_none(), "no task is current in a hook");
        let of = (report.task().name(), report.message().to_owned(), report.has_handle());
        keeps.lock().unwrap().push(of);
    });
    (builder.workers(2).build().unwrap(), told)
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in a destructor");
        }
    }
}

/// The name of a task, the message, and how it comes to panic; whether its handle is kept.
type Way = (&'static str, &'static str, fn(bool));

/// All ways in which a runnable panics.
fn ways() -> Vec<Way> {
    fn keep<T: Send + 'static>(keeps: bool, handle: dapple::JoinHandle<T>) {
        match keeps {
            true => std::mem::forget(handle),
            false => handle.detach(),
        }
    }
    vec![
        ("task", "in a poll", |keeps| {
            // Waits until its handle is kept or dropped.
            let (go, wait) = dapple::channel::oneshot::channel::<()>();
            let body = async move {
                let _ = wait.await;
                panic!("in a poll")
            };
            keep::<()>(keeps, Builder::new().name("task").spawn(body));
            go.send(()).unwrap();
        }),
        ("colored", "in a poll", |keeps| {
            let color = dapple::Color::new();
            let (go, wait) = dapple::channel::oneshot::channel::<()>();
            let body = async move {
                let _ = wait.await;
                panic!("in a poll")
            };
            keep::<()>(keeps, Builder::new().name("colored").color(&color).spawn(body));
            go.send(()).unwrap();
        }),
        ("output", "in a destructor", |keeps| {
            if keeps {
                panic_in_poll_of("output"); // its output would go to the handle
                return;
            }
            let (go, wait) = dapple::channel::oneshot::channel::<()>();
            let body = async move {
                let _ = wait.await;
                PanicsInDrop
            };
            Builder::new().name("output").spawn(body).detach();
            go.send(()).unwrap();
        }),
        ("aborted", "in a destructor", |keeps| {
            let held = PanicsInDrop;
            let body = async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            let handle = Builder::new().name("aborted").spawn(body);
            handle.abort();
            keep(true, handle);
            let _ = keeps;
        }),
    ]
}

fn panic_in_poll_of(name: &'static str) {
    let handle = Builder::new().name(name).spawn(async { panic_any("in a destructor") });
    std::mem::forget::<dapple::JoinHandle<()>>(handle);
}

#[test]
fn every_way_to_panic_is_counted_and_reported() {
    for keeps in [true, false] {
        for (name, message, way) in ways() {
            watched(move || {
                let (rt, told) = keeping(Runtime::builder());
                rt.block_on(async { way(keeps) });
                eventually("it is reported", || !told.lock().unwrap().is_empty());
                let has_handle = keeps || name == "aborted";
                assert_eq!(*told.lock().unwrap(), [(name.to_owned(), message.to_owned(), has_handle)]);
                assert_eq!(rt.metrics().panics, 1, "{name}");
            });
        }
    }
}

#[test]
fn blocking_calls_and_callbacks_are_reported() {
    watched(|| {
        let (rt, told) = keeping(Runtime::builder());
        let messages = || {
            let mut messages: Vec<_> = told.lock().unwrap().iter().map(|told| told.1.clone()).collect();
            messages.sort();
            messages
        };
        rt.block_on(async {
            dapple::blocking(|| panic!("blocks")).detach();
            dapple::Color::new().call(|| panic!("called")).detach();
            dapple::event::now(dapple::event::Callback::new(|| panic!("now"))).detach();
        });
        eventually("all are reported", || messages() == ["blocks", "called", "now"]);
        assert_eq!(rt.metrics().panics, 3);
    });
}

#[test]
fn a_panicking_hook_is_counted_and_affects_no_other_task() {
    watched(|| {
        let rt = Runtime::builder().workers(1).on_panic(|_| panic!("the hook")).build().unwrap();
        for round in 1..=3 {
            let error = rt.block_on(async { dapple::spawn(async { panic!("the task") }).await }).unwrap_err();
            assert!(error.to_string().ends_with("the task"), "the handle gets its own panic: {error}");
            assert_eq!(rt.metrics().panics, 2 * round);
        }
    });
}

#[test]
fn a_second_panic_in_the_destructor_is_counted() {
    struct Always;
    impl Drop for Always {
        fn drop(&mut self) {
            panic!("the second");
        }
    }
    watched(|| {
        let (rt, told) = keeping(Runtime::builder());
        let held = Always;
        let mut first = true;
        let task = rt.spawn(std::future::poll_fn(move |_| {
            let _ = &held;
            assert!(!std::mem::take(&mut first), "the first");
            std::task::Poll::Ready(())
        }));
        assert!(rt.block_on(task).unwrap_err().is_panic());
        assert_eq!(rt.metrics().panics, 2);
        assert_eq!(told.lock().unwrap().len(), 1);
    });
}

#[test]
fn the_future_of_block_on_is_reported_and_panics_to_its_caller() {
    let (rt, told) = keeping(Runtime::builder());
    let ended =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rt.block_on(async { panic!("mine") })));
    assert!(ended.is_err());
    let told = told.lock().unwrap();
    assert!(told.len() == 1 && told[0].1 == "mine" && told[0].2, "{told:?}");
    assert_eq!(rt.metrics().panics, 1);
}

#[test]
fn a_hook_may_use_the_runtime() {
    watched(|| {
        let spawned = Arc::new(AtomicBool::new(false));
        let says = spawned.clone();
        let rt = Runtime::builder().workers(1).on_panic(move |report| {
            let says = says.clone();
            let (task, name) = (report.task().clone(), report.task().name());
            dapple::spawn(async move {
                assert!(task.name() == name);
                says.store(true, Ordering::SeqCst);
            })
            .detach();
        });
        let rt = rt.build().unwrap();
        rt.block_on(async { dapple::spawn(async { panic!("restart me") }).detach() });
        eventually("the hook has spawned", || spawned.load(Ordering::SeqCst));
    });
}

#[test]
fn in_simulation_the_reports_are_the_same_in_every_run() {
    let run = |seed| {
        let told = Told::default();
        let keeps = told.clone();
        let sim = Sim::new(seed).on_panic(move |report| {
            let of = (String::new(), report.message().to_owned(), report.has_handle());
            keeps.lock().unwrap().push(of);
        });
        sim.run(async {
            for i in 0..20 {
                dapple::spawn(async move {
                    dapple::time::sleep(std::time::Duration::from_micros(i % 3)).await.unwrap();
                    panic!("task {i}")
                })
                .detach();
            }
            dapple::time::sleep(std::time::Duration::from_millis(1)).await.unwrap();
        });
        let told = told.lock().unwrap().clone();
        assert_eq!(told.len(), 20);
        told
    };
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed));
    }
}
