//! Tasks that know how long they have waited, without a color that has a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use dapple::limit::Limit;
use dapple::sim::{self, Sim};
use dapple::task::{Builder, yield_now};
use dapple::time::sleep;

const MS: Duration = Duration::from_millis(1);

/// Keeps the only worker busy, so that all that is put in line waits for some 20 ms, until it is dropped.
struct Crowd(Arc<AtomicBool>);

impl Crowd {
    fn new() -> Crowd {
        let is_over = Arc::new(AtomicBool::new(false));
        for _ in 0..20 {
            let is_over = is_over.clone();
            let busy = dapple::spawn(async move {
                while !is_over.load(Relaxed) {
                    sim::work(MS);
                    yield_now().await;
                }
            });
            busy.detach();
        }
        Crowd(is_over)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn limit() -> Limit {
    Limit::new().delay(5 * MS, 50 * MS)
}

/// Comes to its turn until it is refused, and says whether it was.
async fn is_refused_in_the_end(limit: &Limit) -> bool {
    for _ in 0..50 {
        sleep(MS).await.unwrap();
        if limit.try_admit().is_err() {
            return true;
        }
    }
    false
}

#[test]
fn only_clocked_tasks_are_refused_for_their_wait() {
    Sim::new(1).workers(1).explore(0..20, || async {
        let _crowd = Crowd::new();
        let (first, second) = (limit(), limit());
        let clocked = Builder::new().measure_wait().spawn(async move { is_refused_in_the_end(&first).await });
        let plain = dapple::spawn(async move { is_refused_in_the_end(&second).await });
        assert!(clocked.await.unwrap());
        assert!(!plain.await.unwrap()); // its wait is not measured
    });
}

#[test]
fn children_inherit_the_wait_and_a_yield_starts_it_again() {
    Sim::new(1).workers(1).explore(0..20, || async {
        let crowd = Crowd::new();
        let task = Builder::new().measure_wait().spawn(async move {
            let limit = limit();
            assert!(is_refused_in_the_end(&limit).await);
            let ask = |limit: &Limit| {
                let limit = limit.clone();
                async move { limit.check().is_ok() }
            };
            // The first comes to its turn at once, and yet has waited.
            let clocked = Builder::new().measure_wait().spawn(ask(&limit));
            let plain = dapple::spawn(ask(&limit));
            assert!(!clocked.await.unwrap());
            assert!(plain.await.unwrap());
            yield_now().await;
            assert!(limit.check().is_err());
            drop(crowd);
            while limit.is_over() {
                sleep(MS).await.unwrap();
                let _one = limit.check();
            }
            limit.check().unwrap();
        });
        task.await.unwrap();
    });
}

#[test]
fn a_clocked_task_can_have_a_name_and_becomes_a_color() {
    dapple::run(async {
        let task = Builder::new().name("one").measure_wait().spawn(async {
            assert_eq!(dapple::task::current().name(), "one");
            let color = dapple::Color::current();
            let inside = color.spawn(async { dapple::Color::current() });
            let inside = inside.await.unwrap();
            yield_now().await;
            (inside == color, dapple::Color::current() == color)
        });
        assert_eq!(task.await.unwrap(), (true, true));
    });
}
