//! Callbacks under Miri: a closure and its color have one owner, whichever way the callback ends. Also run natively.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::{Drops, runtime, watched};
use dapple::event::{self, Callback};
use dapple::time::{Duration, sleep};
use dapple::{Color, JoinHandle};

const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Callbacks in a color that only the callback holds, in the running color, in the main color, with all options, and with
/// none.
#[test]
fn called() {
    watched(|| {
        runtime(2).block_on(async {
            let text = || Arc::new("text".to_owned());
            let length = |text: Arc<String>| move || text.len();
            let alone = event::now(Callback::new(length(text())).color(&Color::new()));
            assert_eq!(alone.await.unwrap(), 4);
            let color = Color::new();
            let nested = {
                let (own, f) = (color.clone(), length(text()));
                Callback::new(move || event::now(Callback::new(f).color(&own))).color(&color)
            };
            assert_eq!(event::now(nested).await.unwrap().await.unwrap(), 4);
            let all = Callback::new(length(text())).color(&color).name("all").or_else(|| unreachable!());
            assert_eq!(event::now(all.priority(dapple::sched::Priority::High)).await.unwrap(), 4);
            assert_eq!(event::now(Callback::new(length(text()))).await.unwrap(), 4);
            let elsewhere = dapple::spawn(async move { event::now(Callback::new(length(text()))).await });
            assert_eq!(elsewhere.await.unwrap().unwrap(), 4);
            let local = Rc::new(7);
            let handle = event::now(Callback::local(move || local));
            assert_eq!(*handle.await.unwrap(), 7);
            event::now(Callback::new(|| ()).color(&color)).detach();
        });
    });
}

/// Withdrawn, aborted, and ended with their colors and their runtime.
#[test]
fn never_called() {
    watched(|| {
        let (drops, refused, rt) = (Drops::default(), Arc::new(AtomicUsize::new(0)), runtime(2));
        let refuse = || {
            let refused = refused.clone();
            move || {
                refused.fetch_add(1, SeqCst);
            }
        };
        let color = rt.handle().color();
        rt.block_on(async {
            let callback = |color: &Color| {
                let guard = drops.guard();
                Callback::new(move || drop(guard)).color(color).or_else(refuse())
            };
            drop(event::after(FOR_EVER, callback(&Color::new())));
            event::after(FOR_EVER, callback(&color)).withdraw().await.unwrap();
            event::after(FOR_EVER, callback(&color)).detach();
            event::after(FOR_EVER, callback(&Color::main())).detach();
            let (guard, in_color) = (drops.guard(), callback(&color));
            let aborted: JoinHandle<()> = color
                .call(move || {
                    drop(guard);
                    let handle = event::now(in_color);
                    handle.abort();
                    handle
                })
                .await
                .unwrap();
            assert!(aborted.await.unwrap_err().is_aborted());
            let guard = drops.guard();
            let local = Rc::new(guard);
            event::every(FOR_EVER, Callback::local(move || drop(Rc::clone(&local)))).detach();
        });
        rt.shutdown(Duration::from_secs(10));
        let late = Callback::new(|| ()).color(&color).or_else(refuse());
        assert!(event::after(FOR_EVER, late).is_over());
        // Two that wait, one that was aborted, and one that came too late; not the two that were withdrawn.
        assert_eq!((drops.count(), refused.load(SeqCst)), (7, 4));
    });
}

/// Called often, and withdrawn from elsewhere and from inside.
#[test]
fn withdrawn() {
    watched(|| {
        runtime(2).block_on(async {
            let drops = Drops::default();
            for color in [Color::new(), Color::main()] {
                let guard = drops.guard();
                let callback = Callback::new(move || assert!(Some(&guard).is_some())).color(&color);
                let registration = event::every(Duration::from_micros(1), callback);
                sleep(Duration::from_millis(1)).await.unwrap();
                registration.withdraw().await.unwrap();
            }
            let guard = drops.guard();
            let callback = move || {
                assert!(Some(&guard).is_some());
                std::ops::ControlFlow::Break(())
            };
            let registration =
                event::every(Duration::from_micros(1), Callback::new(callback).color(&Color::new()));
            while !registration.is_over() {
                sleep(Duration::from_millis(1)).await.unwrap();
            }
            assert_eq!(drops.count(), 3);
        });
    });
}
