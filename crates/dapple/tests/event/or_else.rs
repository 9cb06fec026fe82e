//! Drop closures of callbacks: when they are called, where, and when not.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{Drops, Event, eventually, in_both_worlds, message, runtime};
use dapple::Color;
use dapple::event::{self, Callback};
use dapple::time::Duration;

const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Notes of drop closures: how many guards of the callback had been dropped, and the color in which the closure ran.
type Seen = Arc<Mutex<Vec<(usize, Color)>>>;

/// A drop closure that adds a note to `seen`.
fn note(seen: &Seen, drops: &Drops) -> impl FnOnce() + Send + 'static {
    let (seen, drops) = (seen.clone(), drops.clone());
    move || seen.lock().unwrap().push((drops.count(), Color::current()))
}

#[test]
fn called_in_its_color_if_the_handle_was_aborted() {
    in_both_worlds(50, || {
        runtime(2).block_on(async {
            let (color, seen, drops) = (Color::new(), Seen::default(), Drops::default());
            let guard = drops.guard();
            let callback = Callback::new(move || drop(guard)).color(&color).or_else(note(&seen, &drops));
            // It cannot begin while the color is in use.
            let handle = color.call(move || {
                let handle = event::now(callback);
                handle.abort();
                handle
            });
            assert!(handle.await.unwrap().await.unwrap_err().is_aborted());
            assert_eq!(
                *seen.lock().unwrap(),
                [(1, color)],
                "after the closure was dropped, and in its color"
            );
        });
    });
}

#[test]
fn not_called_if_the_callback_was() {
    in_both_worlds(30, || {
        runtime(2).block_on(async {
            let (seen, drops) = (Seen::default(), Drops::default());
            let color = Color::new();
            let handle = event::now(Callback::new(|| 7).color(&color).or_else(note(&seen, &drops)));
            assert_eq!(handle.await.unwrap(), 7);
            let called = Event::default();
            let set = called.clone();
            let callback = Callback::new(move || set.set()).color(&color).or_else(note(&seen, &drops));
            let once = event::after(Duration::ZERO, callback);
            called.happened().await;
            once.withdraw().await.unwrap();
            let called = Event::default();
            let set = called.clone();
            let callback = Callback::new(move || set.set()).color(&color).or_else(note(&seen, &drops));
            event::every(Duration::from_micros(1), callback).detach();
            called.happened().await;
            // Nor if it panicked.
            let sick = event::after(
                Duration::ZERO,
                Callback::new(|| panic!("sick")).color(&color).or_else(note(&seen, &drops)),
            );
            while !sick.is_over() {
                dapple::task::yield_now().await;
            }
            assert!(sick.withdraw().await.unwrap_err().is_panic());
            assert!(seen.lock().unwrap().is_empty());
        });
    });
}

#[test]
fn the_drop_closure_is_not_called_after_a_withdraw() {
    in_both_worlds(50, || {
        runtime(2).block_on(async {
            let (seen, drops, color) = (Seen::default(), Drops::default(), Color::new());
            let callback = || {
                let guard = drops.guard();
                Callback::new(move || {
                    let _owned = &guard;
                })
                .color(&color)
                .or_else(note(&seen, &drops))
            };
            drop(event::after(FOR_EVER, callback()));
            event::after(FOR_EVER, callback()).withdraw().await.unwrap();
            event::every(FOR_EVER, callback()).withdraw().await.unwrap();
            // In the color itself, before it has begun to wait.
            let withdraw = {
                let callback = callback();
                color.call(move || event::every(FOR_EVER, callback).withdraw())
            };
            withdraw.await.unwrap().await.unwrap();
            eventually("all were dropped", || drops.count() == 4);
            assert!(seen.lock().unwrap().is_empty());
        });
    });
}

#[test]
fn called_if_the_runtime_ends_first() {
    in_both_worlds(50, || {
        let (seen, drops, rt) = (Seen::default(), Drops::default(), runtime(2));
        let color = rt.handle().color();
        let callback = || {
            let guard = drops.guard();
            Callback::new(move || {
                let _owned = &guard;
            })
            .color(&color)
            .or_else(note(&seen, &drops))
        };
        event::after(FOR_EVER, callback()).detach();
        event::every(FOR_EVER, callback()).detach();
        let kept = event::after(FOR_EVER, callback());
        rt.shutdown(Duration::from_secs(10));
        assert_eq!(drops.count(), 3);
        assert!(kept.is_over());
        drop(kept);
        let colors: Vec<_> = seen.lock().unwrap().drain(..).map(|(_, color)| color).collect();
        assert_eq!(colors, [color.clone(), color.clone(), color.clone()]);
    });
}

/// On the thread of its main color, which ends with it.
#[test]
fn called_on_the_main_thread_if_the_main_color_ends_first() {
    in_both_worlds(50, || {
        let called = std::rc::Rc::new(std::cell::Cell::new(0));
        runtime(2).block_on(async {
            let count = called.clone();
            let callback = Callback::local(|| unreachable!()).or_else(move || count.set(count.get() + 1));
            event::after(FOR_EVER, callback).detach();
            let count = called.clone();
            let callback = Callback::local(|| unreachable!()).or_else(move || count.set(count.get() + 1));
            let handle: dapple::JoinHandle<()> = event::now(callback);
            handle.abort();
            assert!(handle.await.is_err());
            assert_eq!(called.get(), 1);
        });
        assert_eq!(called.get(), 2);
    });
}

/// There is nothing to wait for.
#[test]
fn called_at_once_if_the_runtime_is_gone() {
    in_both_worlds(10, || {
        let (rt, called) = (runtime(1), Arc::new(AtomicUsize::new(0)));
        let color = rt.handle().color();
        rt.shutdown(Duration::ZERO);
        for how in 0..3 {
            let count = called.clone();
            let refused = move || {
                count.fetch_add(1, SeqCst);
            };
            let callback = Callback::new(|| unreachable!()).color(&color).or_else(refused);
            match how {
                0 => event::now::<_>(callback).detach(),
                1 => drop(event::after(Duration::ZERO, callback)),
                _ => drop(event::every(FOR_EVER, callback)),
            }
            assert_eq!(called.load(SeqCst), how + 1);
        }
    });
}

#[test]
fn a_panic_in_the_drop_closure_is_reported() {
    in_both_worlds(10, || {
        runtime(1).block_on(async {
            let color = Color::new();
            let handle = color.call(|| {
                let callback =
                    Callback::new(|| unreachable!()).or_else(|| panic!("refused")).color(&Color::current());
                let handle: dapple::JoinHandle<()> = event::now(callback);
                handle.abort();
                handle
            });
            let error = handle.await.unwrap().await.unwrap_err();
            assert_eq!(message(&*error.try_into_panic().unwrap()), "refused");
        });
    });
}
