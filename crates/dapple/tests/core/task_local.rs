//! Task-locals: where a value is visible, where it is not, and that none is left after its scope.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::common::runtime;
use dapple::sim::{self, Sim};
use dapple::task::{Builder, Local, yield_now};
use dapple::{Color, event};

static KEY: Local<u32> = Local::new();
static TEXT: Local<String> = Local::new();

fn seen() -> Option<u32> {
    KEY.try_with(|value| *value)
}

/// A value bound around each simulation, which no code inside the simulation may see.
static AROUND: Local<()> = Local::new();

/// The value that code inside [`simulate`] sees.
fn seen_inside() -> Option<u32> {
    assert!(AROUND.try_with(|()| ()).is_none(), "the value of the code that started the simulation is seen");
    seen()
}

fn simulate<T>(future: impl Future<Output = T>) -> T {
    AROUND.scope_sync((), || {
        let output = Sim::new(3).workers(1).run(future);
        assert!(AROUND.try_with(|()| ()).is_some());
        output
    })
}

/// Records the value that was seen, once.
#[derive(Clone, Default)]
struct Note(Arc<Mutex<Option<Option<u32>>>>);

impl Note {
    fn take_down(&self) {
        assert_eq!(self.0.lock().unwrap().replace(seen_inside()), None, "called twice");
    }

    fn get(&self) -> Option<Option<u32>> {
        *self.0.lock().unwrap()
    }

    fn closure(&self) -> impl FnOnce() + Send + use<> {
        let note = self.clone();
        move || note.take_down()
    }
}

/// Records the value that is seen where it is dropped.
struct OnDrop(Note);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.take_down();
    }
}

/// Tasks that work in the middle of their polls, on virtual workers that take turns on one real thread: each sees its
/// own value, however deeply nested, and no value of another task.
#[test]
fn each_task_of_a_simulation_sees_its_own_value() {
    for seed in 0..40 {
        Sim::new(seed).workers(4).run(async {
            let tasks: Vec<_> = (0..8_u32)
                .map(|i| {
                    dapple::spawn(KEY.scope(i, async move {
                        for round in 0..4_u32 {
                            let own = i.to_string().repeat(40);
                            TEXT.scope_sync(own.clone(), || {
                                sim::work(Duration::from_micros(u64::from((i * 7 + round * 3) % 5) * 10));
                                assert_eq!(seen(), Some(i));
                                TEXT.with(|text| {
                                    sim::work(Duration::from_micros(u64::from((i * 3 + round) % 7) * 10));
                                    assert_eq!(*text, own);
                                });
                            });
                            assert_eq!(TEXT.try_with(String::len), None);
                            yield_now().await; // another worker may go on with it
                            assert_eq!(seen(), Some(i));
                        }
                    }))
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(seen(), None);
        });
        assert_eq!((seen(), TEXT.try_with(String::len)), (None, None), "nothing is left of a simulation");
    }
}

/// A blocking call of a simulation is a virtual thread, too.
#[test]
fn a_blocking_call_that_works_beside_others_sees_its_own_value() {
    for seed in 0..20 {
        Sim::new(seed).run(async {
            let calls: Vec<_> = (0..4_u32)
                .map(|i| {
                    dapple::blocking(move || {
                        KEY.scope_sync(i, || {
                            sim::work(Duration::from_micros(u64::from(4 - i)));
                            seen()
                        })
                    })
                })
                .collect();
            for (i, call) in (0..).zip(calls) {
                assert_eq!(call.await.unwrap(), Some(i));
            }
        });
    }
}

#[test]
fn nested_block_on_and_simulations_inherit_no_values() {
    let rt = runtime(1);
    KEY.scope_sync(7, || {
        let (root, local, other) = rt.block_on(async {
            let local = dapple::spawn_local(async { seen() });
            let other = dapple::spawn(async { seen() });
            (seen(), local.await.unwrap(), other.await.unwrap())
        });
        assert_eq!((root, local, other), (None, None, None), "block_on");
        assert_eq!(seen(), Some(7));
        let in_run = dapple::run(async { (seen(), dapple::spawn(async { seen() }).await.unwrap()) });
        assert_eq!(in_run, (None, None), "run");
        assert_eq!(seen(), Some(7));
        let in_sim = Sim::new(1).workers(1).run(async {
            (seen(), dapple::spawn(async { seen() }).await.unwrap(), dapple::blocking(seen).await.unwrap())
        });
        assert_eq!(in_sim, (None, None, None), "Sim::run");
        assert_eq!(seen(), Some(7));
    });
    assert_eq!(seen(), None);
}

#[test]
fn a_value_set_in_a_nested_block_on_ends_with_it() {
    let rt = runtime(1);
    let unwound = KEY.scope_sync(7, || {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            rt.block_on(async {
                let inner = KEY.scope(8, async {
                    assert_eq!(seen(), Some(8));
                    dapple::spawn(yield_now()).await.unwrap();
                    assert_eq!(seen(), Some(8));
                });
                inner.await;
                assert_eq!(seen(), None);
                let failed = dapple::spawn_local(KEY.scope(9, async { panic!("planted") })).await.is_err();
                assert!(failed && seen().is_none());
                panic!("the end");
            });
        }));
        assert_eq!(seen(), Some(7));
        unwound
    });
    assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"the end"));
    assert_eq!(seen(), None);
}

/// Every kind of spawn, call and callback, on a simulated runtime whose one worker is the thread that polls the future.
#[test]
fn spawned_tasks_and_callbacks_inherit_no_values() {
    simulate(KEY.scope(7, async {
        let color = Color::new();
        assert_eq!(dapple::spawn(async { seen_inside() }).await.unwrap(), None, "spawn");
        assert_eq!(dapple::spawn_local(async { seen_inside() }).await.unwrap(), None, "spawn_local");
        assert_eq!(color.spawn(async { seen_inside() }).await.unwrap(), None, "Color::spawn");
        assert_eq!(color.call(seen_inside).await.unwrap(), None, "Color::call");
        assert_eq!(Color::main().call(seen_inside).await.unwrap(), None, "Color::call, in its own color");
        assert_eq!(dapple::blocking(seen_inside).await.unwrap(), None, "blocking");
        assert_eq!(event::now(event::Callback::new(seen_inside)).await.unwrap(), None, "a callback");
        let spawned = dapple::finish(async |scope| scope.spawn(async { seen_inside() }).await).await.unwrap();
        assert_eq!(spawned, None, "a task of a scope");
        let started = dapple::finish(async |scope| scope.start(async { seen_inside() }).await).await;
        assert_eq!(started, Some(7), "a child is a part of the future that started it");
        assert_eq!(seen_inside(), Some(7));
    }));
}

/// The drop closures of tasks that never begin, dropped by whatever comes first: an abort, the end of a main color, the
/// end of a runtime. In each case the thread that drops them is in a scope of its own.
#[test]
fn drop_closures_and_destructors_inherit_no_values() {
    let (aborted, late, gone) = (Note::default(), Note::default(), Note::default());
    let (dropped, left) = (Note::default(), Note::default());
    let rt = runtime(1);
    let main = KEY.scope_sync(7, || {
        rt.block_on(KEY.scope(8, async {
            let color = Color::main();
            let task = Builder::new().color(&color).or_else(aborted.closure()).spawn(async {});
            task.abort();
            task.await.unwrap_err();
            let held = OnDrop(dropped.clone());
            let task = dapple::spawn_local(async move {
                let _held = held;
                pending::<()>().await;
            });
            yield_now().await;
            task.abort();
            task.await.unwrap_err();
            color
        }))
    });
    assert_eq!((aborted.get(), dropped.get()), (Some(None), Some(None)));
    let refused = KEY.scope_sync(7, || Builder::new().color(&main).or_else(late.closure()).spawn(async {}));
    rt.block_on(refused).unwrap_err();
    assert_eq!(late.get(), Some(None), "its main color is over");
    let color = rt.block_on(async { Color::new() });
    KEY.scope_sync(7, || {
        let held = OnDrop(left.clone());
        rt.spawn(async move {
            let _held = held;
            pending::<()>().await;
        })
        .detach();
        rt.shutdown(Duration::ZERO);
        Builder::new().color(&color).or_else(gone.closure()).spawn(async {}).detach();
        assert_eq!(seen(), Some(7));
    });
    assert_eq!(left.get(), Some(None), "ended with its runtime");
    assert_eq!(gone.get(), Some(None), "spawned after the end of its runtime");
}

#[test]
fn a_dropped_future_sees_its_own_values_and_the_outer_values() {
    let note = Note::default();
    simulate(async {
        let held = OnDrop(note.clone());
        let task = dapple::spawn(KEY.scope(
            1,
            TEXT.scope(
                "outer".into(),
                KEY.scope(2, async move {
                    let _held = held;
                    pending::<()>().await;
                }),
            ),
        ));
        yield_now().await;
        sim::work(Duration::from_millis(1));
        KEY.scope_sync(9, || task.abort());
        task.await.unwrap_err();
    });
    assert_eq!(note.get(), Some(Some(2)), "the innermost around it");
}

#[test]
fn a_panic_inside_leaves_the_outer_value() {
    simulate(KEY.scope(1, async {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            KEY.scope_sync(2, || {
                sim::work(Duration::from_millis(1));
                assert_eq!(seen_inside(), Some(2));
                panic!("planted");
            });
        }));
        assert!(caught.is_err());
        assert_eq!(seen_inside(), Some(1));
        let task = dapple::spawn(KEY.scope(3, async { panic!("planted") }));
        assert!(task.await.unwrap_err().is_panic());
        assert_eq!(seen_inside(), Some(1));
    }));
}

/// Two futures in scopes of their own, polled in turns by one task: neither ever sees the other's value.
#[test]
fn scopes_that_are_polled_in_turns_keep_apart() {
    simulate(async {
        let each = |value: u32| {
            KEY.scope(value, async move {
                for _ in 0..3 {
                    assert_eq!(seen_inside(), Some(value));
                    yield_now().await;
                }
                assert_eq!(seen_inside(), Some(value));
            })
        };
        let (mut a, mut b) = (pin!(each(1)), pin!(each(2)));
        let (mut a_is_done, mut b_is_done) = (false, false);
        poll_fn(|cx| {
            a_is_done = a_is_done || a.as_mut().poll(cx).is_ready();
            assert_eq!(seen_inside(), None);
            b_is_done = b_is_done || b.as_mut().poll(cx).is_ready();
            assert_eq!(seen_inside(), None);
            if a_is_done && b_is_done { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
}
