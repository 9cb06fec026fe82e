//! Operations of a task on itself: yielding, its identity, task-local values, and its name.
#![expect(clippy::async_yields_async, reason = "handles are handed over, to be awaited elsewhere")]

use std::future::pending;
use std::sync::{Arc, Mutex};

use crate::common::{Drops, in_both_worlds, panic_of, runtime, start_thread, watched};
use dapple::task::{self, Builder, Local, yield_now, yield_to};
use dapple::{Color, JoinHandle};

/// The order of events.
type Notes = Arc<Mutex<Vec<&'static str>>>;

fn notes_of(notes: &Notes) -> Vec<&'static str> {
    std::mem::take(&mut *notes.lock().unwrap())
}

#[test]
fn tasks_that_yield_alternate() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let notes = Notes::default();
        let each = |name: &'static str| {
            let notes = notes.clone();
            async move {
                for _ in 0..50 {
                    notes.lock().unwrap().push(name);
                    yield_now().await;
                }
            }
        };
        let (a, b) = (each("a"), each("b"));
        let both = rt.spawn(async move {
            let both = [dapple::spawn(a), dapple::spawn(b)];
            for task in both {
                task.await.unwrap();
            }
        });
        rt.block_on(both).unwrap();
        let turns = notes_of(&notes);
        let runs = turns.chunk_by(|x, y| x == y).map(<[_]>::len).max();
        assert_eq!((turns.len(), runs), (100, Some(1)), "{turns:?}");
    });
}

/// With one worker: `a` yields to `target` while other tasks are in the queue and in the slot.
#[test]
fn yield_to_runs_its_target_next() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        for in_color in [false, true] {
            let notes = Notes::default();
            let note = |name: &'static str| {
                let notes = notes.clone();
                move || notes.lock().unwrap().push(name)
            };
            let (in_line, before, after, target) =
                (note("in line"), note("a"), note("a again"), note("target"));
            let main = rt.spawn(async move {
                // Waits until it is polled for the second time.
                let waits = async move {
                    yield_once_unwoken().await;
                    target();
                };
                let target: JoinHandle<()> =
                    if in_color { Color::new().spawn(waits) } else { dapple::spawn(waits) };
                for _ in 0..10 {
                    yield_now().await; // `target` gets its first poll
                }
                let others = [dapple::spawn(async move { in_line() }), dapple::spawn(yield_now())];
                before();
                yield_to(&target).await;
                after();
                for other in others {
                    other.await.unwrap();
                }
                target.await.unwrap();
            });
            rt.block_on(main).unwrap();
            assert_eq!(notes_of(&notes), ["a", "target", "in line", "a again"], "in a color: {in_color}");
        }
    });
}

async fn yield_once_unwoken() {
    let mut polled = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut polled, true) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

#[test]
fn yield_to_oneself_to_the_dead_and_to_the_busy_just_yields() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let task = rt.spawn(async {
            yield_to(&task::current()).await;
            let mut ended = dapple::spawn(async {});
            (&mut ended).await.unwrap();
            yield_to(&ended).await;
            let color = Color::current();
            let same = color.spawn(yield_now());
            yield_to(&same).await;
            same.await.unwrap();
        });
        rt.block_on(task).unwrap();
    });
}

#[test]
fn a_task_knows_itself() {
    watched(|| {
        let rt = runtime(2);
        let handle = rt.spawn(async {
            let me = task::current();
            yield_now().await;
            assert_eq!(me, task::current());
            assert!(!me.is_finished() && !me.is_cancelled());
            assert!(me.name().contains("a_task_knows_itself"), "the type of its future: {}", me.name());
            me
        });
        let task = handle.task().unwrap().clone();
        let me = rt.block_on(handle).unwrap();
        assert_eq!(me, task);
        assert_eq!((me.id(), me.color_id()), (task.id(), task.color_id()));
        assert!(me.is_finished());
        me.cancel(); // harmless when late
        assert!(task::try_current().is_none());
        assert!(rt.block_on(async { task::try_current() }).is_some());
        assert!(rt.block_on(rt.handle().blocking(task::try_current)).unwrap().is_some());
        let stranger = rt.spawn(pending::<()>());
        assert_ne!(stranger.task(), Some(&me));
        stranger.abort();
    });
}

#[test]
fn a_builder_gives_name_place_and_color() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        rt.block_on(async {
            let color = Color::new();
            let place = |task: &task::Task| task.spawned_at().map(|place| place.line());
            let ask = || async { (task::current().name(), Color::current()) };
            let line = line!() + 1;
            let colored = Builder::new().name("colored").color(&color).spawn(ask());
            assert_eq!(place(colored.task().unwrap()), Some(line));
            assert_eq!(colored.await.unwrap(), ("colored".to_owned(), color));
            let own = Builder::new().name(format!("own {}", 1)).spawn(ask());
            assert_eq!(own.await.unwrap().0, "own 1");
            let local = Builder::new().name("local").color(&Color::main()).spawn_local(ask());
            assert_eq!(local.await.unwrap(), ("local".to_owned(), Color::main()));
            let call = Builder::new().name("call").blocking(|| task::current().name());
            assert_eq!(call.await.unwrap(), "call");
            let nameless = Builder::new().spawn(async { task::current().spawned_at().is_some() });
            assert!(nameless.await.unwrap());
            // The name is kept through a promotion, and is in the message of a panic.
            let panics = Builder::new().name("jumpy").spawn(async {
                drop(Color::current());
                panic!("boo");
            });
            assert_eq!(panics.await.unwrap_err().to_string(), "task jumpy panicked: boo");
            let wrong = Builder::new().color(&Color::new());
            assert!(panic_of(|| wrong.spawn_local(async {})).contains("main color"));
        });
    });
}

static DEPTH: Local<u32> = Local::new();
static NAME: Local<String> = Local::new();

#[test]
fn task_locals_follow_their_future_only() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let work = |n: u32| {
            DEPTH.scope(n, async move {
                for _ in 0..50 {
                    assert_eq!(DEPTH.get(), n);
                    yield_now().await; // may continue on any worker
                    let inner = DEPTH.scope(n + 1000, async { DEPTH.get() }).await;
                    assert_eq!((inner, DEPTH.get()), (n + 1000, n));
                }
                let spawned = dapple::spawn(async { DEPTH.try_with(|_| ()) }).await.unwrap();
                assert!(spawned.is_none(), "not inherited");
                NAME.scope(format!("{n}"), async { (DEPTH.get(), NAME.with(String::len)) }).await
            })
        };
        let tasks: Vec<_> = (0..50).map(|n| rt.spawn(work(n))).collect();
        for (n, task) in tasks.into_iter().enumerate() {
            assert_eq!(rt.block_on(task).unwrap().0, n as u32);
        }
        assert_eq!(DEPTH.try_with(|n| *n), None);
        assert_eq!(DEPTH.scope_sync(3, || DEPTH.get()), 3);
        assert!(panic_of(|| DEPTH.get()).contains("outside of its scope"));
        assert_eq!(panic_of(|| DEPTH.scope_sync(4, || panic!("boo"))), "boo");
        assert_eq!(DEPTH.try_with(|n| *n), None, "also after a panic");
    });
}

#[test]
fn task_locals_of_one_type_are_distinct() {
    static OTHER: Local<u32> = Local::new();
    let both = DEPTH.scope_sync(1, || OTHER.scope_sync(2, || (DEPTH.get(), OTHER.get())));
    assert_eq!(both, (1, 2));
    assert_eq!(DEPTH.scope_sync(1, || OTHER.try_with(|n| *n)), None);
}

#[test]
fn a_task_local_is_there_when_its_future_is_dropped() {
    struct Reads(std::sync::mpsc::Sender<Option<u32>>);
    impl Drop for Reads {
        fn drop(&mut self) {
            self.0.send(DEPTH.try_with(|n| *n)).unwrap();
        }
    }
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (send, receive) = std::sync::mpsc::channel();
        let drops = Drops::default();
        let (reads, guard) = (Reads(send), drops.guard());
        let task = rt.spawn(DEPTH.scope(9, async move {
            let _kept = (reads, guard);
            pending::<()>().await;
        }));
        task.abort();
        assert!(rt.block_on(task).unwrap_err().is_aborted());
        assert_eq!((receive.recv().unwrap(), drops.count()), (Some(9), 1));
    });
}

#[test]
fn a_task_name_is_visible_to_other_tasks() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let task = rt.block_on(async { Builder::new().name("watched").spawn(pending::<()>()) });
        let seen = task.task().unwrap().clone();
        let name = start_thread(move || (seen.name(), format!("{seen:?}"))).join().unwrap();
        assert_eq!(name, ("watched".to_owned(), "Task(watched)".to_owned()));
        assert_eq!(format!("{task:?}"), "JoinHandle(Some(Task(watched)))");
        drop(rt);
        assert_eq!(task.task().unwrap().name(), "watched", "also when the runtime is gone");
    });
}
