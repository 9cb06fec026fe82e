//! State that belongs to a color: tasks of the color may use it; use from elsewhere panics.

use std::sync::Arc;

use crate::common::{give_way, in_both_worlds, message, panic_of, rounds, runtime};
use dapple::task::{Builder, yield_now};
use dapple::{Color, ColorCell};

#[test]
fn a_cell_counts_without_a_lock() {
    in_both_worlds(20, || {
        let (rt, count) = (runtime(4), rounds(200, 20));
        let total = rt.block_on(async {
            let color = Color::new();
            let cell = Arc::new(ColorCell::in_color(&color, 0));
            let add = |_| {
                let cell = cell.clone();
                color.spawn(async move {
                    for _ in 0..10 {
                        cell.with(|n| {
                            let seen = *n;
                            give_way(); // a second task that ran here would spoil the count
                            *n = seen + 1;
                        });
                        yield_now().await;
                    }
                })
            };
            let tasks: Vec<_> = (0..count).map(add).collect();
            for task in tasks {
                task.await.unwrap();
            }
            Arc::into_inner(cell).expect("all others are gone").into_inner()
        });
        assert_eq!(total, 10 * count);
    });
}

#[test]
fn use_from_another_color_panics_naming_both() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        rt.block_on(async {
            let (mine, other) = (Color::new(), Color::new());
            let cell = Arc::new(ColorCell::in_color(&mine, 0));
            let both = [format!("{mine:?}"), format!("{other:?}")];
            let stranger = cell.clone();
            let wrong = Builder::new().name("stranger").color(&other).spawn(async move {
                stranger.with(|n| *n += 1);
            });
            let error = wrong.await.unwrap_err();
            assert!(error.is_panic());
            let text = error.to_string();
            assert!(both.iter().all(|name| text.contains(name)), "{both:?} in {text}");
            assert!(text.contains("stranger"), "{text}");
            assert_eq!(mine.call(move || cell.with(|n| *n)).await.unwrap(), 0);
        });
    });
}

#[test]
fn use_outside_of_any_color_panics_naming_its_own() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let color = rt.handle().color();
        let cell = Arc::new(ColorCell::in_color(&color, 0));
        let text = panic_of(|| cell.with(|n| *n));
        assert!(text.contains(&format!("{color:?}")) && text.contains("no color"), "{text}");
        let error = crate::common::foreign_block_on(rt.handle().blocking(move || cell.with(|n| *n)));
        assert!(error.unwrap_err().to_string().contains("no color"));
    });
}

#[test]
fn nested_use_panics_and_a_panic_leaves_the_cell_usable() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let color = rt.handle().color();
        let cell = Arc::new(ColorCell::in_color(&color, 1));
        type Misuse = fn(&ColorCell<i32>) -> i32;
        let misuses: [(&str, Misuse); 2] = [
            ("inside its own", |cell| cell.with(|_| cell.with(|n| *n))),
            ("as asked", |cell| {
                cell.with(|n| {
                    *n += 1;
                    panic!("as asked")
                })
            }),
        ];
        for (text, misuse) in misuses {
            let used = cell.clone();
            let payload = rt.block_on(color.call(move || misuse(&used))).unwrap_err();
            let payload = payload.try_into_panic().expect("a panic");
            assert!(message(&*payload).contains(text));
            let used = cell.clone();
            assert!(rt.block_on(color.call(move || used.with(|n| *n))).unwrap() >= 1, "usable again");
        }
    });
}

#[test]
fn two_cells_of_one_color_can_be_used_inside_each_other() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let sum = rt.spawn(async {
            let (a, b) = (ColorCell::new(1), ColorCell::new(2));
            a.with(|a| b.with(|b| *a + *b))
        });
        assert_eq!(rt.block_on(sum).unwrap(), 3);
    });
}

#[test]
fn a_cell_of_an_ordinary_task_survives_its_promotion() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let total = rt.spawn(async {
            let before = Arc::new(ColorCell::new(1));
            before.with(|n| *n += 1);
            let color = Color::current(); // gives the task a lane
            let after = Arc::new(ColorCell::new(10));
            let children: Vec<_> = (0..10)
                .map(|_| {
                    let (before, after) = (before.clone(), after.clone());
                    color.spawn(async move {
                        yield_now().await;
                        before.with(|n| *n += 1);
                        after.with(|n| *n += 1);
                    })
                })
                .collect();
            for child in children {
                child.await.unwrap();
                before.with(|n| *n += 1);
            }
            let stranger = before.clone();
            assert!(dapple::spawn(async move { stranger.with(|_| ()) }).await.unwrap_err().is_panic());
            before.with(|n| *n) + after.with(|n| *n)
        });
        assert_eq!(rt.block_on(total).unwrap(), 22 + 20);
    });
}

#[test]
fn a_cell_keeps_its_color_from_being_taken_for_another() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let orphan = rt.block_on(rt.spawn(async { Arc::new(ColorCell::new(0)) })).unwrap();
        // The task is gone, and many others are spawned: none may be taken for it.
        for _ in 0..rounds(2000, 20) {
            let orphan = orphan.clone();
            let used = rt.spawn(async move { orphan.with(|_| ()) });
            assert!(rt.block_on(used).unwrap_err().is_panic());
        }
    });
}

#[test]
fn a_cell_outlives_its_runtime_and_can_be_taken_apart() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let mut cell = ColorCell::in_color(&rt.handle().color(), String::from("kept"));
        drop(rt);
        cell.get_mut().push_str(" safe");
        assert!(format!("{cell:?}").contains("color #"));
        assert_eq!(cell.into_inner(), "kept safe");
    });
}
