//! Calls in the wrong place or with the wrong settings: an error or a panic whose message names the remedy.

use std::io::ErrorKind;
use std::sync::mpsc;

use crate::common::{foreign_block_on, panic_of, runtime, watched};
use dapple::{Color, ColorCell, Runtime, runtime::Builder, task};

/// A call that works only in a certain place, such as a runtime.
type Call = fn();

#[test]
fn calls_that_need_a_runtime_panic_with_advice() {
    let calls: [(&str, Call); 9] = [
        ("dapple::spawn needs a runtime", || drop(dapple::spawn(async {}))),
        ("spawn_local called outside of a main color", || drop(dapple::spawn_local(async {}))),
        ("dapple::blocking needs a runtime", || drop(dapple::blocking(|| ()))),
        ("Color::new() needs a runtime", || drop(Color::new())),
        ("Color::keyed() needs a runtime", || drop(Color::keyed("k"))),
        ("Color::main() called outside of a main color", || drop(Color::main())),
        ("Color::current() called where no color is running", || drop(Color::current())),
        ("outside of a task", || drop(task::current())),
        ("task::Builder::spawn needs a runtime", || drop(task::Builder::new().spawn(async {}))),
    ];
    for (text, call) in calls {
        let said = panic_of(call);
        assert!(said.contains(text), "{said:?} does not say {text:?}");
    }
    assert!(task::try_current().is_none());
    assert!(panic_of(|| ColorCell::new(0)).contains("no color"));
}

#[test]
fn calls_that_need_a_main_color_name_the_alternative() {
    watched(|| {
        let rt = runtime(1);
        let calls: [(&[&str], Call); 2] = [
            (&["spawn_local", "main color", "dapple::spawn"], || drop(dapple::spawn_local(async {}))),
            (&["Color::main()", "main color", "spawn_local"], || drop(Color::main())),
        ];
        for (texts, call) in calls {
            let handles =
                [rt.spawn(async move { call() }), rt.handle().color().call(call), rt.handle().blocking(call)];
            for handle in handles {
                let error = rt.block_on(handle).unwrap_err();
                assert!(error.is_panic());
                let said = error.to_string();
                assert!(texts.iter().all(|text| said.contains(text)), "{said:?} does not say {texts:?}");
            }
        }
    });
}

#[test]
fn a_blocking_call_has_no_color() {
    watched(|| {
        let rt = runtime(1);
        let error = rt.block_on(rt.handle().blocking(Color::current)).unwrap_err();
        assert!(error.to_string().contains("no color is running"), "{error}");
        let builder = task::Builder::new().color(&rt.handle().color());
        assert!(rt.block_on(async { panic_of(|| builder.blocking(|| ())) }).contains("no color"));
    });
}

#[test]
fn block_on_and_run_panic_on_a_worker() {
    watched(|| {
        let rt = runtime(1);
        let handle = rt.handle();
        type Nested = Box<dyn FnOnce() + Send>;
        let nested: [(&str, Nested); 2] = [
            ("block_on", Box::new(move || handle.block_on(async {}))),
            ("dapple::run", Box::new(|| dapple::run(async {}))),
        ];
        for (name, call) in nested {
            let error = rt.block_on(rt.spawn(async move { call() })).unwrap_err();
            let said = error.to_string();
            let texts = [name, "worker", "Await", "dapple::blocking"];
            assert!(texts.iter().all(|text| said.contains(text)), "{said:?} does not say {texts:?}");
        }
        // `run` makes its thread a worker.
        let handle = rt.handle();
        assert!(dapple::run(async { panic_of(|| handle.block_on(async {})) }).contains("worker"));
    });
}

#[test]
fn block_on_nests_where_there_is_no_worker() {
    watched(|| {
        let (one, other) = (runtime(1), runtime(1));
        let deep = one.block_on(async {
            let outer = Color::main();
            let local = dapple::spawn_local(async { 1 });
            let inner = other.block_on(async {
                assert_ne!(Color::main(), outer);
                let local = dapple::spawn_local(async { 10 }).await.unwrap();
                let same = one.block_on(async { dapple::spawn(async { 100 }).await.unwrap() });
                local + same + dapple::run(async { 1000 })
            });
            assert_eq!(Color::main(), outer);
            inner + local.await.unwrap()
        });
        assert_eq!(deep, 1111);
        let handle = one.handle();
        let in_blocking = one.handle().blocking(move || handle.block_on(async { 5 }));
        assert_eq!(one.block_on(in_blocking).unwrap(), 5);
    });
}

#[test]
fn block_on_passes_a_panic_on_and_can_be_called_again() {
    watched(|| {
        let rt = runtime(1);
        assert_eq!(panic_of(|| rt.block_on(async { panic!("as asked") })), "as asked");
        assert_eq!(panic_of(|| dapple::run(async { panic!("as asked") })), "as asked");
        assert_eq!(rt.block_on(async { 5 }), 5);
    });
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    type Set = fn(Builder) -> Builder;
    let wrong: [(&str, Set); 4] = [
        ("one worker", |b| b.workers(0)),
        ("workers", |b| b.workers(usize::MAX)),
        ("at least one thread", |b| b.max_blocking_threads(0)),
        ("zero byte", |b| b.thread_name("a\0b")),
    ];
    for (text, set) in wrong {
        let error = set(Runtime::builder()).build().expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_handle_of_an_ended_runtime_reports_the_end() {
    watched(|| {
        let rt = runtime(1);
        let (handle, color) = (rt.handle(), rt.handle().color());
        drop(rt);
        let (dropped, is_dropped) = mpsc::channel::<()>();
        let gone = [
            handle.spawn(std::future::pending()),
            handle.blocking(move || drop(dropped)),
            color.spawn(async {}),
            color.call(|| ()),
        ];
        for handle in gone {
            assert!(handle.is_finished());
            handle.cancel();
            handle.abort();
            let error = foreign_block_on(handle).unwrap_err();
            assert!(error.is_gone() && error.to_string().contains("ended"), "{error}");
        }
        assert!(is_dropped.recv().is_err(), "what cannot run is dropped");
        for text in [
            panic_of(|| handle.block_on(async {})),
            panic_of(|| handle.color()),
            panic_of(|| handle.keyed_color("k")),
        ] {
            assert!(text.contains("the runtime has ended"), "{text}");
        }
        assert_eq!(handle.dump().tasks.len(), 0);
        assert_eq!(handle.metrics().alive(), 0);
    });
}

#[test]
fn a_handle_awaited_after_its_output_was_taken_says_gone() {
    watched(|| {
        let rt = runtime(1);
        let mut handle = rt.spawn(async { 1 });
        assert_eq!(rt.block_on(&mut handle).unwrap(), 1);
        assert!(rt.block_on(&mut handle).unwrap_err().is_gone());
        assert!(handle.is_finished() && handle.task().is_none());
    });
}
