//! Helpers for the tests of exact cancelling: an operation that waits, and all the ways to cancel it.
//!
//! Each operation is tried in every [`Shape`] of scopes, in four situations: cancelled while it waits;
//! begun after the cancel; made possible while it is cancelled; and the same with another waiter in line behind it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::error::Error;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple::time::timeout;
use dapple::{finish, or_cancelled, race, sim};
use futures_util::future::join_all;

use crate::common::{Event, runtime, telling, watched};

/// Something that waits.
pub(crate) trait Operation: Send + Sync + 'static {
    /// Waits. Returns `true` if the operation has happened, `false` if it was cancelled. Fails in no other way.
    fn run(&self) -> impl Future<Output = bool> + Send;

    /// Makes the operation possible, for one waiter.
    fn complete(&self) -> impl Future<Output = ()> + Send;

    /// Checks that nothing was lost: it was made possible `completed` times, and has happened `happened` times.
    fn settle(&self, completed: usize, happened: usize) -> impl Future<Output = ()> + Send;
}

/// The scopes and combinators between the wait and the scope that is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Body,
    Child,
    ChildOfChild,
    Nested,
    ChildOfNested,
    Race,
    Timeout,
    /// A foreign combinator, with wakers of its own.
    Joined,
    ChildJoined,
    /// Not a scope: the time is up.
    TimeIsUp,
}

pub(crate) const SHAPES: [Shape; 10] = [
    Shape::Body,
    Shape::Child,
    Shape::ChildOfChild,
    Shape::Nested,
    Shape::ChildOfNested,
    Shape::Race,
    Shape::Timeout,
    Shape::Joined,
    Shape::ChildJoined,
    Shape::TimeIsUp,
];

/// When the scope is cancelled.
#[derive(Clone)]
pub(crate) enum When {
    Before,
    /// From another task, after this.
    After(Event),
}

const LONG: Duration = Duration::from_secs(3600);

type Boxed<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

async fn until_cancelled() {
    let _ = or_cancelled(pending::<()>()).await;
}

/// Others may come between: by taking time, and by letting those go first who are in the same line.
pub(crate) async fn hesitate() {
    if sim::is_simulated() {
        for _ in 0..sim::random() % 4 {
            sim::work(Duration::from_nanos(sim::random() % 1000));
            dapple::task::yield_now().await;
        }
    }
}

/// Runs `operation` in a scope that is cancelled.
pub(crate) async fn in_a_cancelled<T: Send>(
    shape: Shape,
    when: When,
    operation: impl Future<Output = T> + Send,
) -> T {
    let slot = Mutex::new(None);
    let operation = async {
        let output = operation.await;
        *slot.lock().unwrap() = Some(output);
    };
    match (shape, when) {
        (Shape::TimeIsUp, When::Before) => {
            let up = timeout(Duration::ZERO, async {
                until_cancelled().await;
                operation.await;
            });
            assert!(up.await.is_err());
        }
        (Shape::TimeIsUp, When::After(event)) => {
            // The limit is what the scope around it has for a clock.
            let limit = Duration::from_micros(if sim::is_simulated() { sim::random() % 20 } else { 50 });
            let _ = timeout(limit, operation).await;
            event.happened().await;
        }
        (_, when) => {
            finish(async |s| {
                match when {
                    When::Before => s.cancel(),
                    When::After(event) => {
                        let canceller = s.canceller();
                        let cancels = dapple::spawn(async move {
                            event.happened().await;
                            hesitate().await;
                            canceller.cancel();
                        });
                        cancels.detach();
                    }
                }
                let operation: Boxed<'_> = Box::pin(operation);
                match shape {
                    Shape::Body | Shape::TimeIsUp => operation.await,
                    Shape::Child => drop(s.start(operation)),
                    Shape::ChildOfChild => {
                        let child = s.start(async move { s.start(operation).await });
                        drop(s.start(until_cancelled()));
                        child.await;
                    }
                    Shape::Nested => finish(async |_| operation.await).await,
                    Shape::ChildOfNested => {
                        drop(s.start(finish(async |inner| {
                            drop(inner.start(until_cancelled()));
                            inner.start(operation).await;
                        })));
                    }
                    Shape::Race => {
                        let waits: Boxed<'_> = Box::pin(until_cancelled());
                        race((until_cancelled(), operation, waits)).await;
                    }
                    Shape::Timeout => timeout(LONG, timeout(LONG, operation)).await.unwrap().unwrap(),
                    Shape::Joined => drop(join_all([Box::pin(until_cancelled()), operation]).await),
                    Shape::ChildJoined => {
                        // Enough of them for a list of those that are ready.
                        let mut all: Vec<Boxed<'_>> = Vec::new();
                        all.resize_with(33, || Box::pin(until_cancelled()));
                        all.push(operation);
                        drop(s.start(join_all(all)));
                    }
                }
            })
            .await;
        }
    }
    slot.into_inner().unwrap().expect("it was not dropped halfway")
}

/// Tries an operation in a shape, in all situations.
pub(crate) async fn try_all<O: Operation>(shape: Shape, has_line: bool, new: impl AsyncFn() -> O) {
    // Begun after the cancel.
    for completed in [0, 1] {
        let operation = new().await;
        for _ in 0..completed {
            operation.complete().await;
        }
        assert!(!in_a_cancelled(shape, When::Before, operation.run()).await, "{shape:?}: it was cancelled");
        operation.settle(completed, 0).await;
    }
    // Cancelled while it waits.
    let (operation, begun) = (new().await, Event::default());
    let running = telling(begun.clone(), operation.run());
    assert!(!in_a_cancelled(shape, When::After(begun), running).await, "{shape:?}: it was not possible");
    operation.settle(0, 0).await;
    // Made possible while it is cancelled.
    let (operation, begun) = (Arc::new(new().await), Event::default());
    let completing = complete_after(&operation, &begun);
    let running = telling(begun.clone(), operation.run());
    let happened = in_a_cancelled(shape, When::After(begun), running).await;
    completing.await.unwrap();
    operation.settle(1, usize::from(happened)).await;
    if !has_line {
        return;
    }
    // The same, with another waiter behind it in line.
    let operation = Arc::new(new().await);
    let (begun, behind) = (Event::default(), Event::default());
    let completing = complete_after(&operation, &behind);
    let (next, first, second) = (operation.clone(), begun.clone(), behind.clone());
    let next = dapple::spawn(async move {
        first.happened().await;
        telling(second, next.run()).await
    });
    let running = telling(begun, operation.run());
    let happened = in_a_cancelled(shape, When::After(behind), running).await;
    completing.await.unwrap();
    if happened {
        operation.complete().await;
    }
    assert!(next.await.unwrap(), "{shape:?}: what the first did not take is the second's");
    operation.settle(1 + usize::from(happened), 1 + usize::from(happened)).await;
}

/// A task that makes it possible, after this.
pub(crate) fn complete_after<O: Operation>(operation: &Arc<O>, event: &Event) -> dapple::JoinHandle<()> {
    let (operation, event) = (operation.clone(), event.clone());
    dapple::spawn(async move {
        event.happened().await;
        hesitate().await; // twice: it comes about later than a cancel more often than not
        hesitate().await;
        operation.complete().await;
    })
}

/// In virtual time, in every shape, with `seeds` seeds.
#[track_caller]
pub(crate) fn simulated<O: Operation>(seeds: u64, has_line: bool, new: impl AsyncFn() -> O + Copy) {
    for shape in SHAPES {
        sim::Sim::new(1).explore(0..seeds, || try_all(shape, has_line, new));
    }
}

/// On real threads, in every shape, `rounds` times.
#[track_caller]
pub(crate) fn really<O: Operation>(
    rounds: usize,
    has_line: bool,
    new: impl AsyncFn() -> O + Copy + Send + 'static,
) {
    watched(move || {
        let rt = runtime(2);
        for shape in SHAPES {
            for _ in 0..rounds {
                rt.block_on(try_all(shape, has_line, new));
            }
        }
    });
}

/// Whether a result is there; if not, that it was cancelled is the only reason.
#[track_caller]
pub(crate) fn happened<T, E: Error + Send + Sync + 'static>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let text = error.to_string();
            assert!(dapple::is_cancelled(&io::Error::other(error)), "another error: {text}");
            None
        }
    }
}

/// A value that an operation needs exclusively while it runs.
pub(crate) struct Lent<T>(Mutex<Option<T>>);

impl<T> Lent<T> {
    pub(crate) fn new(value: T) -> Lent<T> {
        Lent(Mutex::new(Some(value)))
    }

    pub(crate) fn take(&self) -> T {
        self.0.lock().unwrap().take().expect("it was given back")
    }

    pub(crate) fn give(&self, value: T) {
        *self.0.lock().unwrap() = Some(value);
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(self.0.lock().unwrap().as_mut().expect("it was given back"))
    }
}
