//! A resource is not lost in races: a branch that loses passes its permit, lock, state or place in a limit on.

use std::rc::Rc;

use dapple::limit::Limit;
use dapple::sync::{Mutex, Semaphore};
use dapple::time::{sleep, timeout};
use dapple::{Shared, finish_local};

use super::race_exact::{MS, ROUNDS, with_seeds};

/// A resource with many waiters, held by one at a time.
trait Resource {
    async fn hold(&self) -> Option<()>;
}

struct OneSemaphore(Semaphore);
struct OneMutex(Mutex<()>);
struct OneShared(Shared<u32>);
struct OneLimit(Limit);

impl Resource for OneSemaphore {
    async fn hold(&self) -> Option<()> {
        let _permit = self.0.acquire().await.ok()?;
        sleep(MS).await.ok()
    }
}

impl Resource for OneMutex {
    async fn hold(&self) -> Option<()> {
        let _guard = self.0.lock().await.ok()?;
        sleep(MS).await.ok()
    }
}

impl Resource for OneShared {
    async fn hold(&self) -> Option<()> {
        self.0.write(|count| *count += 1).await.ok()
    }
}

impl Resource for OneLimit {
    async fn hold(&self) -> Option<()> {
        let _seat = self.0.admit().await.ok()?;
        sleep(MS).await.ok()
    }
}

/// A branch that loses a race passes its resource on: every task gets it in the end, and it is free after that.
fn all_get_it<R: Resource + 'static>(new: impl Fn() -> R + Clone + 'static) {
    with_seeds(move |dice| {
        let all = Rc::new(new());
        async move {
            finish_local(async |s| {
                for _ in 0..6 {
                    let (all, dice) = (all.clone(), dice.clone());
                    drop(s.start(async move {
                        let mut rounds = 0;
                        while dice.race(all.hold()).await.is_none() {
                            rounds += 1;
                            assert!(rounds < ROUNDS, "it was passed on to none");
                        }
                    }));
                }
            })
            .await;
            assert!(timeout(MS * 100, all.hold()).await.is_ok(), "it is held by none, and not free");
        }
    });
}

#[test]
fn permits() {
    all_get_it(|| OneSemaphore(Semaphore::new(1)));
}

#[test]
fn locks() {
    all_get_it(|| OneMutex(Mutex::new(())));
}

#[test]
fn shared_states() {
    all_get_it(|| OneShared(Shared::new(0)));
}

#[test]
fn seats_of_a_limit() {
    all_get_it(|| OneLimit(Limit::new().concurrency(1)));
}
