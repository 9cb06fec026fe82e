//! A main color whose `block_on` has returned: tasks spawned there end unpolled, one after the other, in the color.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use crate::common::{give_way, in_both_worlds, pause, runtime, start_thread, watched};
use dapple::task::Builder;
use dapple::{Color, ColorCell, JoinHandle};

/// Spawns a task with a drop closure, which must not be polled.
fn spawn_late(color: &Color, closure: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().color(color).or_else(closure).spawn(async { panic!("polled in a color that is over") })
}

#[test]
fn drop_closures_of_a_color_that_is_over_never_overlap() {
    in_both_worlds(40, || {
        let rt = runtime(2);
        let color = rt.block_on(async { Color::main() });
        let (inside, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (color, inside, calls) = (color.clone(), inside.clone(), calls.clone());
                start_thread(move || {
                    for _ in 0..20 {
                        let (inside, calls) = (inside.clone(), calls.clone());
                        let closure = move || {
                            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at the same time");
                            (0..5).for_each(|_| give_way());
                            inside.fetch_sub(1, SeqCst);
                            calls.fetch_add(1, SeqCst);
                        };
                        spawn_late(&color, closure).detach();
                        give_way();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let last = rt.block_on(color.call(|| ()));
        assert!(last.unwrap_err().is_aborted());
        assert_eq!(calls.load(SeqCst), 60, "all that came before the last");
    });
}

#[test]
fn a_drop_closure_is_called_in_its_color_although_that_is_over() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (color, cell) = rt.block_on(async { (Color::main(), Arc::new(ColorCell::new(Vec::new()))) });
        let late: Vec<_> = (0..10)
            .map(|i| {
                let (own, cell) = (color.clone(), cell.clone());
                spawn_late(&color, move || {
                    assert_eq!(Color::current(), own);
                    cell.with(|seen| seen.push(i)); // panics in any other color
                })
            })
            .collect();
        for task in late {
            assert!(rt.block_on(task).unwrap_err().is_aborted());
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (own, to) = (cell.clone(), seen.clone());
        let last = spawn_late(&color, move || *to.lock().unwrap() = own.with(std::mem::take));
        rt.block_on(last).unwrap_err();
        assert_eq!(*seen.lock().unwrap(), (0..10).collect::<Vec<_>>(), "in order");
    });
}

/// A task that a drop closure spawns into its own color, after that color has ended, also ends in that color.
#[test]
fn what_a_late_drop_closure_spawns_there_ends_there() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let color = rt.block_on(async { Color::main() });
        let is_called = Arc::new(AtomicBool::new(false));
        let inner = Arc::new(Mutex::new(None));
        let (own, called, handle) = (color.clone(), is_called.clone(), inner.clone());
        let outer = spawn_late(&color, move || {
            let again = Color::current();
            let task = spawn_late(&own, move || {
                assert_eq!(Color::current(), again);
                called.store(true, SeqCst);
            });
            *handle.lock().unwrap() = Some(task);
        });
        rt.block_on(outer).unwrap_err();
        let inner = inner.lock().unwrap().take().unwrap();
        rt.block_on(inner).unwrap_err();
        assert!(is_called.load(SeqCst));
    });
}

/// Other threads spawn into a main color while its thread leaves. That thread has spawned futures that are not `Send`: they
/// are dropped on their thread, and all tasks end.
#[test]
fn what_is_spawned_while_the_thread_leaves_ends_and_stays_on_its_thread() {
    struct Stays(ThreadId, PhantomData<*const ()>);
    impl Drop for Stays {
        fn drop(&mut self) {
            assert_eq!(std::thread::current().id(), self.0, "dropped elsewhere");
        }
    }
    watched(|| {
        let rt = runtime(2);
        for round in 0..200_u64 {
            let (hand, take) = std::sync::mpsc::channel::<Color>();
            let inside = Arc::new(AtomicUsize::new(0));
            let pusher = std::thread::spawn(move || {
                let color = take.recv().unwrap();
                let tasks: Vec<_> = (0..20)
                    .map(|_| {
                        let inside = inside.clone();
                        Builder::new().color(&color).spawn(async move {
                            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at the same time");
                            inside.fetch_sub(1, SeqCst);
                        })
                    })
                    .collect();
                (color, tasks)
            });
            rt.block_on(async {
                let stays = Stays(std::thread::current().id(), PhantomData);
                dapple::spawn_local(async move {
                    let _stays = stays;
                    std::future::pending::<()>().await;
                })
                .detach();
                hand.send(Color::main()).unwrap();
                for _ in 0..round % 7 {
                    dapple::task::yield_now().await;
                }
            });
            let (color, tasks) = pusher.join().unwrap();
            for task in tasks {
                let ended = rt.block_on(task);
                assert!(
                    ended.is_ok() || ended.is_err_and(|error| error.is_aborted() || error.is_cancelled())
                );
            }
            assert!(rt.block_on(color.call(|| ())).unwrap_err().is_aborted());
        }
    });
}

/// Tasks that are spawned there after the end of the runtime are dropped, too.
#[test]
fn what_is_spawned_after_the_end_of_the_runtime_is_dropped() {
    in_both_worlds(10, || {
        let rt = runtime(1);
        let color = rt.block_on(async { Color::main() });
        let calls = Arc::new(AtomicUsize::new(0));
        let count = |calls: &Arc<AtomicUsize>| {
            let calls = calls.clone();
            move || {
                calls.fetch_add(1, SeqCst);
            }
        };
        spawn_late(&color, count(&calls)).detach();
        rt.shutdown(Duration::from_secs(30));
        spawn_late(&color, count(&calls)).detach();
        pause(Duration::from_millis(1));
        assert_eq!(calls.load(SeqCst), 2);
    });
}

/// A caller that runs in no color: the task has ended, in its color, when `spawn` returns.
#[test]
fn what_a_thread_spawns_in_a_color_that_is_over_has_ended_when_spawn_returns() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let color = rt.block_on(async { Color::main() });
        let of_thread = color.clone();
        let thread = start_thread(move || {
            let before = dapple::task::try_current();
            for i in 0..100 {
                let (called, own) = (Arc::new(AtomicBool::new(false)), of_thread.clone());
                let to = called.clone();
                let task = spawn_late(&of_thread, move || {
                    assert_eq!(Color::current(), own);
                    dapple::spawn(async {}).detach(); // it is in the runtime
                    to.store(true, SeqCst);
                });
                assert!(called.load(SeqCst) && task.is_finished(), "task {i}");
                assert_eq!(dapple::task::try_current(), before, "the thread is where it was");
                give_way();
            }
        });
        thread.join().unwrap();
        assert!(rt.block_on(color.call(|| ())).unwrap_err().is_aborted());
    });
}

/// Drop closures do not nest. A drop closure that spawns into another ended color, or into its own, does not run the new
/// task's drop closure inside itself, however many colors are in the chain.
#[test]
fn drop_closures_of_colors_that_are_over_are_never_inside_of_each_other() {
    thread_local! {
        static DEPTH: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    fn pass_on(colors: Arc<Vec<Color>>, index: usize, calls: Arc<AtomicUsize>) {
        let Some(color) = colors.get(index).cloned() else { return };
        let closure = move || {
            assert_eq!(DEPTH.replace(1), 0, "one inside of another");
            calls.fetch_add(1, SeqCst);
            pass_on(colors, index + 1, calls);
            DEPTH.set(0);
        };
        spawn_late(&color, closure).detach();
    }
    watched(|| {
        let rt = runtime(2);
        let many: Vec<_> = (0..50).map(|_| rt.block_on(async { Color::main() })).collect();
        let one = vec![many[0].clone(); 2000];
        for colors in [many, one] {
            let (colors, calls) = (Arc::new(colors), Arc::new(AtomicUsize::new(0)));
            pass_on(colors.clone(), 0, calls.clone());
            while calls.load(SeqCst) < colors.len() {
                pause(Duration::from_millis(1));
            }
        }
    });
}

/// A panic of a drop closure belongs to the task: `spawn` does not panic, and the color goes on.
#[test]
fn a_panicking_drop_closure_in_an_ended_color_affects_no_other_task() {
    in_both_worlds(10, || {
        let rt = runtime(1);
        let color = rt.block_on(async { Color::main() });
        let of_thread = color.clone();
        let spawn_and_panic = move || {
            let task = spawn_late(&of_thread, || panic!("of a drop closure"));
            assert!(task.is_finished());
            let called = Arc::new(AtomicBool::new(false));
            let to = called.clone();
            spawn_late(&of_thread, move || to.store(true, SeqCst)).detach();
            assert!(called.load(SeqCst));
            task
        };
        let task = start_thread(spawn_and_panic).join().unwrap();
        assert!(rt.block_on(task).unwrap_err().is_panic());
        assert!(rt.block_on(color.call(|| ())).unwrap_err().is_aborted());
    });
}
