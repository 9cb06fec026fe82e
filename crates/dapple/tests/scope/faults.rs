//! Scopes in which children, bodies and destructors panic. Dropped scopes are in `faults_dropped.rs`, late wakers and
//! cancellers in `faults_late.rs`.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::common::{Drops, message};
use dapple::scope::Canceller;
use dapple::sim::Sim;
use dapple::task::yield_now;
use dapple::time::sleep;
use dapple::{Cancelled, Scope, finish, or_cancelled, race};
use futures_lite::future::poll_once;
use futures_util::FutureExt;
use futures_util::future::join_all;

pub(crate) const FOR_EVER: Duration = Duration::MAX;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits until it is cancelled, and counts that.
pub(crate) async fn ends_when_cancelled(ended: &AtomicUsize) {
    assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
    ended.fetch_add(1, Ordering::Relaxed);
}

/// The message of the panic that a future ends in.
pub(crate) async fn panic_in(future: impl Future) -> String {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(_) => panic!("did not panic"),
        Err(payload) => message(&*payload),
    }
}

pub(crate) struct PanicsInDrop(pub(crate) &'static str);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}
#[derive(Default)]
pub(crate) struct Count(pub(crate) AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How a scope can fail. All but the culprits wait until they are cancelled.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Child,
    ChildAtOnce,
    Body,
    Destructor,
    DestructorOfOutput,
    TwoChildren,
    ChildAndBody,
    WhileCancelled,
    ChildOfChild,
    AwaitedByBody,
    AwaitedBySibling,
    AwaitedByInnerBody,
    AwaitedByInnerChild,
    AwaitedInAJoin,
    Nested,
}

const FAULTS: [Fault; 15] = [
    Fault::Child,
    Fault::ChildAtOnce,
    Fault::Body,
    Fault::Destructor,
    Fault::DestructorOfOutput,
    Fault::TwoChildren,
    Fault::ChildAndBody,
    Fault::WhileCancelled,
    Fault::ChildOfChild,
    Fault::AwaitedByBody,
    Fault::AwaitedBySibling,
    Fault::AwaitedByInnerBody,
    Fault::AwaitedByInnerChild,
    Fault::AwaitedInAJoin,
    Fault::Nested,
];

async fn panics_later(text: &'static str) {
    sleep(ms(1)).await.unwrap();
    panic!("{text}");
}

async fn fails<'s>(s: &'s Scope<'s, '_>, fault: Fault, ended: &'s AtomicUsize) {
    match fault {
        Fault::Child => drop(s.start(panics_later("first"))),
        Fault::ChildAtOnce => drop(s.start(async { panic!("first") })),
        Fault::Body => {
            sleep(ms(1)).await.unwrap();
            panic!("first");
        }
        Fault::Destructor => drop(s.start(async {
            let _kept = PanicsInDrop("first");
            sleep(ms(1)).await.unwrap();
        })),
        Fault::DestructorOfOutput => drop(s.start(async {
            sleep(ms(1)).await.unwrap();
            PanicsInDrop("first")
        })),
        Fault::TwoChildren => {
            drop(s.start(panics_later("first")));
            drop(s.start(async {
                assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
                panic!("second");
            }));
        }
        Fault::ChildAndBody => {
            drop(s.start(panics_later("first")));
            assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
            panic!("second");
        }
        Fault::WhileCancelled => {
            s.cancel();
            drop(s.start(async {
                assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
                panic!("first");
            }));
        }
        Fault::ChildOfChild => drop(s.start(async move {
            drop(s.start(panics_later("first")));
            ends_when_cancelled(ended).await;
            ended.fetch_sub(1, Ordering::Relaxed);
        })),
        Fault::AwaitedByBody => {
            s.start(panics_later("first")).await;
            unreachable!("it unwinds");
        }
        Fault::AwaitedBySibling => {
            let panics = s.start(panics_later("first"));
            drop(s.start(async {
                panics.await;
                unreachable!("it unwinds");
            }));
        }
        Fault::AwaitedByInnerBody => {
            let panics = s.start(panics_later("first"));
            finish(async |_| panics.await).await;
            unreachable!("it unwinds");
        }
        Fault::AwaitedByInnerChild => {
            let panics = s.start(panics_later("first"));
            finish(async |inner| {
                drop(inner.start(panics));
                drop(inner.start(async {
                    ends_when_cancelled(ended).await;
                    ended.fetch_sub(1, Ordering::Relaxed);
                }));
            })
            .await;
        }
        Fault::AwaitedInAJoin => {
            let all: Vec<_> =
                (0..40).map(|i| s.start(async move { panics_later_if(i == 20).await })).collect();
            join_all(all).await;
            unreachable!("it unwinds");
        }
        Fault::Nested => {
            finish(async |inner| {
                drop(inner.start(panics_later("first")));
                ends_when_cancelled(ended).await;
                ended.fetch_sub(1, Ordering::Relaxed);
            })
            .await;
        }
    }
}

async fn panics_later_if(panics: bool) {
    match panics {
        true => panics_later("first").await,
        false => assert_eq!(sleep(FOR_EVER).await, Err(Cancelled)),
    }
}

#[test]
fn the_first_panic_goes_on_when_the_others_have_ended() {
    for fault in FAULTS {
        Sim::new(1).explore(0..30, || async move {
            let ended = AtomicUsize::new(0);
            let drops = Drops::default();
            let scope = finish(async |s| {
                let (ended, drops) = (&ended, &drops);
                for _ in 0..3 {
                    let guard = drops.guard();
                    drop(s.start(async move {
                        let _kept = guard;
                        ends_when_cancelled(ended).await;
                    }));
                }
                drop(s.spawn(async { assert_eq!(sleep(FOR_EVER).await, Err(Cancelled)) }));
                fails(s, fault, ended).await;
                drop(s.start(ends_when_cancelled(ended))); // some have panicked already
                ended.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(panic_in(scope).await, "first", "{fault:?}");
            let ended = ended.load(Ordering::Relaxed);
            let body_goes_on = !matches!(
                fault,
                Fault::Body
                    | Fault::ChildAndBody
                    | Fault::AwaitedByBody
                    | Fault::AwaitedByInnerBody
                    | Fault::AwaitedByInnerChild
                    | Fault::AwaitedInAJoin
                    | Fault::Nested
            );
            assert_eq!((ended, drops.count()), (if body_goes_on { 5 } else { 3 }, 3), "{fault:?}");
            sleep(ms(1)).await.unwrap(); // outside all is well
        });
    }
}

#[test]
fn the_panic_of_a_task_that_was_spawned_is_its_handles() {
    Sim::new(1).explore(0..30, || async {
        let joined = finish(async |s| {
            let handle = s.spawn(panics_later("the task's"));
            sleep(ms(5)).await.unwrap(); // not cancelled by that
            assert!(!s.is_cancelled());
            handle.await
        })
        .await;
        assert!(joined.unwrap_err().to_string().contains("the task's"));
    });
}

#[test]
fn a_race_waits_for_the_others_when_one_panics_in_any_way() {
    Sim::new(1).explore(0..30, || async {
        let ended = AtomicUsize::new(0);
        let loser = || async {
            assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
            ended.fetch_add(1, Ordering::Relaxed);
            None::<PanicsInDrop>
        };
        let panics = async { panics_later("first").await }.map(|()| None);
        assert_eq!(panic_in(race((loser(), panics, loser()))).await, "first");
        assert_eq!(ended.swap(0, Ordering::Relaxed), 2);
        let wins = async { sleep(ms(1)).await.unwrap() }.map(|()| None);
        let loses = async { sleep(FOR_EVER).await.unwrap_err() }.map(|_| Some(PanicsInDrop("first")));
        assert_eq!(panic_in(race((loses, loser(), wins))).await, "first");
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn an_inner_scope_unwinds_quietly_after_a_panic_of_an_awaited_child() {
    Sim::new(1).explore(0..10, || async {
        let inner = Mutex::new(None);
        let scope = finish(async |s| {
            let panics = s.start(panics_later("first"));
            let unwound = AssertUnwindSafe(finish(async |_| panics.await)).catch_unwind().await;
            *inner.lock().unwrap() = unwound.err().map(|payload| message(&*payload));
        });
        assert_eq!(panic_in(scope).await, "first");
        // It goes on without a panic of its own.
        assert_eq!(inner.into_inner().unwrap().as_deref(), Some("(not a string)"));
    });
}

#[test]
fn an_ended_child_releases_the_waker_of_its_waiter() {
    let count = Arc::new(Count::default());
    for ends in 0..3 {
        let waker = Waker::from(count.clone());
        dapple::run(async {
            let mut scope = Box::pin(finish(async |s| {
                let mut child = Box::pin(s.start(or_cancelled(pending::<()>())));
                let polled =
                    poll_fn(|_| Poll::Ready(child.as_mut().poll(&mut Context::from_waker(&waker)))).await;
                assert!(polled.is_pending());
                match ends {
                    0 => drop(child),
                    1 => s.cancel(),
                    _ => pending().await,
                }
            }));
            assert_eq!(poll_once(&mut scope).await.is_some(), ends == 1);
        });
    }
    assert_eq!(Arc::strong_count(&count), 1, "somebody still has a waker");
}

#[test]
fn an_ended_scope_releases_the_waker_of_its_poller() {
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let cancellers = [false, true].map(|is_dropped| {
        let sent = Cell::new(None);
        let mut scope = Box::pin(finish(async |s| {
            sent.set(Some(s.canceller()));
            let mut is_first = true;
            poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
        }));
        let mut cx = Context::from_waker(&waker);
        assert!(scope.as_mut().poll(&mut cx).is_pending());
        assert!(is_dropped || scope.as_mut().poll(&mut cx).is_ready());
        drop(scope);
        sent.take().expect("the body has begun")
    });
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1, "a canceller keeps no waker");
    cancellers.iter().for_each(Canceller::cancel);
}

#[test]
fn use_of_an_ended_scope_panics_with_advice() {
    dapple::run(async {
        let mut done = Box::pin(finish(async |_| 1));
        assert_eq!((&mut done).await, 1);
        assert!(panic_in(done).await.contains("polled again"));
        let mut failed = Box::pin(finish(async |_| panic!("first")));
        assert_eq!(panic_in(&mut failed).await, "first");
        assert!(panic_in(failed).await.contains("polled again"));
    });
}

#[test]
fn a_plain_function_as_a_body() {
    fn body<'s>(s: &'s Scope<'s, '_>) -> impl Future<Output = u8> + use<'s> {
        let child = s.start(async {
            yield_now().await;
            1
        });
        async { child.await + 1 }
    }
    fn fails<'s>(_: &'s Scope<'s, '_>) -> impl Future<Output = u8> + use<'s> {
        panic!("first");
        #[expect(unreachable_code, reason = "it is the type that counts")]
        async {
            1
        }
    }
    dapple::run(async {
        assert_eq!(finish(body).await, 2);
        assert_eq!(panic_in(finish(fails)).await, "first");
    });
}
