//! Callbacks and tasks together: callbacks that spawn tasks, and tasks that wait for callbacks.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::{Random, in_both_worlds, runtime};
use dapple::event::{self, Callback};
use dapple::task::yield_now;
use dapple::time::{Duration, sleep};
use dapple::{Cancelled, Color};

/// Waits for a time, by a callback in the task's own color. The callback is never called in vain.
async fn wait(time: Duration, called: Arc<AtomicUsize>) -> Result<u32, Cancelled> {
    dapple::suspend(|resume| {
        let callback = move || {
            called.fetch_add(1, SeqCst);
            resume.resume(7).expect("somebody who waits");
        };
        let registration = event::after(time, Callback::new(callback).color(&Color::current()));
        move || drop(registration)
    })
    .await
}

#[test]
fn a_task_waits_for_a_callback() {
    in_both_worlds(50, || {
        runtime(3).block_on(async {
            let called = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> =
                (0..5).map(|i| dapple::spawn(wait(Duration::from_micros(i * 100), called.clone()))).collect();
            for task in tasks {
                assert_eq!(task.await.unwrap(), Ok(7));
            }
            assert_eq!(wait(Duration::ZERO, called.clone()).await, Ok(7));
            assert_eq!(called.load(SeqCst), 6);
        });
    });
}

/// Either it was called, and the task got its value; or it was not, and never will be.
#[test]
fn a_task_that_is_cancelled_has_withdrawn_its_callback() {
    in_both_worlds(300, || {
        runtime(3).block_on(async {
            let mut random = Random::new(5);
            let called = Arc::new(AtomicUsize::new(0));
            let task = dapple::spawn(wait(Duration::from_micros(400), called.clone()));
            sleep(Duration::from_micros(200 + random.below(400))).await.unwrap();
            task.cancel();
            let result = task.await.unwrap();
            sleep(Duration::from_millis(1)).await.unwrap();
            assert_eq!(called.load(SeqCst), usize::from(result.is_ok()), "{result:?}");
        });
    });
}

#[test]
fn a_callback_spawns_tasks() {
    in_both_worlds(30, || {
        runtime(3).block_on(async {
            // In its color, in colors of their own, and in scopes.
            let color = Color::new();
            let spawns = || {
                let own = Color::current();
                let sum = dapple::spawn(async move {
                    yield_now().await;
                    let one = own.spawn(async { 1 });
                    dapple::finish(async |scope| scope.start(async { one.await.unwrap() + 1 }).await).await
                });
                (Color::current(), sum)
            };
            let (ran_in, sum) = event::now(Callback::new(spawns).color(&color)).await.unwrap();
            assert_eq!(ran_in, color);
            assert_eq!(sum.await.unwrap(), 2);
            // In the main color, tasks that are not `Send`.
            let count = Rc::new(Cell::new(0));
            let inside = count.clone();
            let local = event::now(Callback::local(move || {
                dapple::spawn_local(async move {
                    yield_now().await;
                    inside.set(1);
                })
            }));
            local.await.unwrap().await.unwrap();
            assert_eq!(count.get(), 1);
        });
    });
}
