//! Wakers that panic: in `clone`, in `wake`, in `wake_by_ref` or in their destructor. In every kind of wait, however it
//! ends, nothing is lost, the other waiters are woken, and the process lives.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use crate::hostile_common::{FUNCTIONS, Hostile, is_not_lost};
use crate::shared_common::Held;
use dapple::channel::{mpsc, oneshot, watch};
use dapple::sync::{Notify, Semaphore};
use dapple::{
    Shared, finish,
    scope::{Canceller, Resume},
};

/// Whether it was served: not, if it was cancelled.
pub(crate) type Wait = Pin<Box<dyn Future<Output = bool>>>;

/// A kind of wait: how to begin it, and a call that makes its event happen once, for one waiter.
pub(crate) struct Case {
    name: &'static str,
    wait: Box<dyn Fn() -> Wait>,
    happen: Box<dyn Fn()>,
}

impl Case {
    pub(crate) fn new(
        name: &'static str,
        wait: impl Fn() -> Wait + 'static,
        happen: impl Fn() + 'static,
    ) -> Case {
        Case { name, wait: Box::new(wait), happen: Box::new(happen) }
    }
}

/// Polls with a hostile waker; `None` if that panicked.
fn poll(wait: &mut Wait, waker: &Waker) -> Option<Poll<bool>> {
    catch_unwind(AssertUnwindSafe(|| wait.as_mut().poll(&mut Context::from_waker(waker)))).ok()
}

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// It happens while the hostile one waits, and is polled again.
    Completed,
    /// The hostile one is dropped before it happens.
    DroppedBefore,
    /// It happens, and the hostile one is dropped without having been polled again.
    DroppedAfter,
    /// The scope around the hostile one is cancelled before it happens, and it is polled again.
    Cancelled,
}

const ENDS: [End; 4] = [End::Completed, End::DroppedBefore, End::DroppedAfter, End::Cancelled];

/// The wait in a scope, whose canceller is stored in `canceller`.
fn in_scope(wait: Wait, canceller: Arc<OnceLock<Canceller>>) -> Wait {
    Box::pin(async move {
        finish(async |s| {
            let _ = canceller.set(s.canceller());
            wait.await
        })
        .await
    })
}

/// One hostile waiter and one honest one behind it. It happens twice, so that both can have it; whatever the hostile one
/// does, the honest one gets it.
fn the_other_is_served(case: &Case, function: &'static str, end: End) {
    let what = format!("{}, panics in {function}, {end:?}", case.name);
    let hostile = Arc::new(Hostile::default());
    let waker = hostile.waker();
    let canceller = Arc::new(OnceLock::new());
    let mut bad = in_scope((case.wait)(), canceller.clone());
    if function == "clone" {
        hostile.arm(Some(function));
    }
    let first = poll(&mut bad, &waker);
    assert!(first.is_none_or(|first| first.is_pending()), "{what}: it has not happened yet");
    let count = Arc::new(Count::default());
    let honest = Waker::from(count.clone());
    let mut good = (case.wait)();
    assert_eq!(poll(&mut good, &honest), Some(Poll::Pending), "{what}");
    hostile.arm(Some(function));
    if end == End::DroppedBefore {
        let dropped =
            catch_unwind(AssertUnwindSafe(|| drop(std::mem::replace(&mut bad, Box::pin(async { false })))));
        assert!(dropped.is_ok(), "{what}: to drop a wait does not panic");
    }
    if end == End::Cancelled {
        let canceller: Option<&Canceller> = canceller.get(); // none, if not even the scope could begin
        let cancelled = catch_unwind(AssertUnwindSafe(|| canceller.map(Canceller::cancel)));
        assert!(
            cancelled.is_ok_and(|was| was.is_some() || function == "clone"),
            "{what}: to cancel does not panic"
        );
        hostile.arm(None); // what a poll by its owner does is its owner's
        if function == "clone" {
            drop(std::mem::replace(&mut bad, Box::pin(async { false })));
        } else {
            assert_eq!(poll(&mut bad, &waker), Some(Poll::Ready(false)), "{what}: it was cancelled");
        }
        hostile.arm(Some(function));
    }
    for _ in 0..2 {
        let happened = catch_unwind(AssertUnwindSafe(|| (case.happen)()));
        assert!(happened.is_ok(), "{what}: who makes it happen is not harmed");
    }
    match end {
        End::Completed if function == "clone" => {
            hostile.arm(None);
            drop(bad); // its owner has seen the panic
        }
        End::Completed => {
            assert_eq!(poll(&mut bad, &waker), Some(Poll::Ready(true)), "{what}: nothing is lost");
            drop(bad);
        }
        End::DroppedAfter => {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(bad)));
            assert!(dropped.is_ok(), "{what}: to drop a wait does not panic");
        }
        End::DroppedBefore | End::Cancelled => {}
    }
    hostile.arm(None);
    assert!(count.0.load(SeqCst) > 0, "{what}: the honest waiter is woken");
    assert_eq!(poll(&mut good, &honest), Some(Poll::Ready(true)), "{what}: the honest waiter is served");
    drop(good);
    drop((waker, canceller)); // a canceller keeps the waker of its scope
    assert_eq!(Arc::strong_count(&hostile), 1, "{what}: no waker is leaked, none is dropped twice");
}

/// Kinds of waits that can have many waiters at a time.
fn shared_cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |name, wait: Box<dyn Fn() -> Wait>, happen: Box<dyn Fn()>| {
        cases.push(Case { name, wait, happen });
    };
    let notify = Arc::new(Notify::new());
    let waits = notify.clone();
    add(
        "Notify",
        Box::new(move || {
            let notify = waits.clone();
            Box::pin(async move { notify.notified().await.is_ok() })
        }),
        Box::new(move || notify.notify_one()),
    );
    let semaphore = Arc::new(Semaphore::new(0));
    let waits = semaphore.clone();
    add(
        "Semaphore",
        Box::new(move || {
            let semaphore = waits.clone();
            Box::pin(async move { semaphore.acquire_owned().await.map(|permit| permit.forget()).is_ok() })
        }),
        Box::new(move || semaphore.add_permits(1)),
    );
    let (sender, _) = watch::channel(0);
    let sender = Arc::new(sender);
    let waits = sender.clone();
    add(
        "watch",
        Box::new(move || {
            let mut receiver = waits.subscribe();
            Box::pin(async move { receiver.changed().await.is_ok() })
        }),
        Box::new(move || sender.send_modify(|value| *value += 1)),
    );
    let (sender, receiver) = mpsc::bounded::<u32>(2);
    (0..2).for_each(|_| sender.try_send(0).unwrap());
    let receiver = Arc::new(Mutex::new(receiver));
    let waits = sender.clone();
    add(
        "mpsc send",
        Box::new(move || {
            let sender = waits.clone();
            Box::pin(async move { sender.send(1).await.is_ok() })
        }),
        {
            let receiver = receiver.clone();
            Box::new(move || assert_eq!(receiver.lock().unwrap().try_recv(), Ok(0)))
        },
    );
    let (sender, receiver) = mpsc::bounded::<u32>(2);
    (0..2).for_each(|_| sender.try_send(0).unwrap());
    let receiver = Arc::new(Mutex::new(receiver));
    add(
        "mpsc reserve",
        Box::new(move || {
            let sender = sender.clone();
            Box::pin(async move { sender.reserve().await.map(|permit| permit.send(1).unwrap()).is_ok() })
        }),
        Box::new(move || assert_eq!(receiver.lock().unwrap().try_recv(), Ok(0))),
    );
    for writes in [false, true] {
        let state = Shared::new(0);
        let held = Mutex::new(Some(Held::writing(&state)));
        add(
            if writes { "Shared write" } else { "Shared read" },
            Box::new(move || {
                let state = state.clone();
                Box::pin(async move {
                    match writes {
                        true => state.write(|value| *value += 1).await.is_ok(),
                        false => state.read(|value| *value).await.is_ok(),
                    }
                })
            }),
            // Both can have it then, one after the other.
            Box::new(move || held.lock().unwrap().take().into_iter().for_each(Held::let_go)),
        );
    }
    let resumes: Arc<Mutex<VecDeque<Resume<()>>>> = Arc::default();
    let waits = resumes.clone();
    add(
        "suspend",
        Box::new(move || {
            let resumes = waits.clone();
            Box::pin(async move {
                let begin = |resume| {
                    resumes.lock().unwrap().push_back(resume);
                    || {}
                };
                dapple::suspend(begin).await.is_ok()
            })
        }),
        Box::new(move || {
            let resume = resumes.lock().unwrap().pop_front();
            if let Some(resume) = resume {
                let _ = resume.resume(());
            }
        }),
    );
    cases
}

/// Each case with each function that panics, and each end of the wait.
pub(crate) fn in_every_way(cases: impl Fn() -> Vec<Case>) {
    for function in FUNCTIONS {
        for end in ENDS {
            // Afresh for each: they keep what happened.
            for case in cases() {
                the_other_is_served(&case, function, end);
            }
        }
    }
}

/// A wait that goes from one task to another wakes the task that has polled it last.
pub(crate) fn wakes_its_last_poller(case: &Case) {
    let (before, after) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut wait = (case.wait)();
    for count in [&before, &after, &before, &after] {
        let polled = poll(&mut wait, &Waker::from(count.clone()));
        assert_eq!(polled, Some(Poll::Pending), "{}: it has not happened yet", case.name);
    }
    let mut other = (case.wait)(); // a barrier needs one more
    assert_eq!(poll(&mut other, Waker::noop()), Some(Poll::Pending), "{}", case.name);
    after.0.store(0, SeqCst);
    (case.happen)();
    assert!(after.0.load(SeqCst) > 0, "{}: the last poller is woken", case.name);
    assert_eq!(poll(&mut wait, Waker::noop()), Some(Poll::Ready(true)), "{}", case.name);
}

#[test]
fn waits_wake_their_last_poller() {
    shared_cases().iter().for_each(wakes_its_last_poller);
}

#[test]
fn a_waiter_beside_a_hostile_waker_is_served() {
    in_every_way(shared_cases);
}

/// Each with a poll by hand between, so that what an `async fn` has begun is not lost by a panic in its midst.
fn by_hand<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Pin<Box<impl Future<Output = T>>> {
    Box::pin(poll_fn(move |cx| poll(cx)))
}

#[test]
fn values_are_not_lost() {
    for function in FUNCTIONS {
        let (sender, mut receiver) = oneshot::channel();
        let got =
            is_not_lost("oneshot", function, by_hand(move |cx| Pin::new(&mut receiver).poll(cx)), || {
                sender.send(7).unwrap();
            });
        assert_eq!(got.unwrap(), 7);

        let (sender, mut receiver) = mpsc::unbounded();
        let stream = by_hand(move |cx| futures_util::Stream::poll_next(Pin::new(&mut receiver), cx));
        let got = is_not_lost("mpsc recv", function, stream, || sender.try_send(7).unwrap());
        assert_eq!(got, Some(Ok(7)));

        let rt = crate::common::runtime(1);
        let notify = Arc::new(Notify::new());
        let waits = notify.clone();
        let mut handle = rt.spawn(async move { waits.notified().await.map(|()| 7) });
        let got = is_not_lost("join", function, by_hand(move |cx| Pin::new(&mut handle).poll(cx)), || {
            notify.notify_one();
        });
        assert_eq!(got.unwrap(), Ok(7));
    }
}
