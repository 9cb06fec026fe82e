//! Scopes in which things go wrong: panics, scopes that are dropped, late wakers and late cancellers.

use std::future::{pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::common::{Drops, Event, in_both_worlds, message, panic_of, runtime, watched};
use dapple::channel::{mpsc, oneshot};
use dapple::sim::{self, Sim};
use dapple::sync::{Condvar, Mutex as AsyncMutex, Notify, Semaphore};
use dapple::task::yield_now;
use dapple::time::sleep;
use dapple::{Cancelled, Canceller, Scope, finish, finish_local, or_cancelled, race};
use futures_lite::future::poll_once;
use futures_util::FutureExt;
use futures_util::future::{join_all, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

const FOR_EVER: Duration = Duration::MAX;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits until it is cancelled, and counts that.
async fn ends_when_cancelled(ended: &AtomicUsize) {
    assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
    ended.fetch_add(1, Ordering::Relaxed);
}

/// The message of the panic that a future ends in.
async fn panic_in(future: impl Future) -> String {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(_) => panic!("did not panic"),
        Err(payload) => message(&*payload),
    }
}

struct PanicsInDrop(&'static str);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("{}", self.0);
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
fn an_inner_scope_unwinds_quietly_when_what_it_awaits_has_panicked() {
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
fn who_waits_for_a_child_is_forgotten_with_it() {
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
fn a_scope_that_has_ended_says_so() {
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

/// Its name is noted when it is dropped.
struct Named(String, Arc<Mutex<Vec<String>>>);

impl Drop for Named {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(std::mem::take(&mut self.0));
    }
}

#[test]
fn a_scope_that_is_dropped_drops_its_body_and_then_the_children_in_their_order() {
    Sim::new(1).explore(0..100, || async {
        let names = Arc::new(Mutex::new(Vec::new()));
        let name = |name: String| Named(name, names.clone());
        let done = sim::random() % 10;
        {
            let mut scope = pin!(finish(async |s| {
                let _body = name("body".to_owned());
                let mut kept = Vec::new();
                for i in 0..10 {
                    let name = name(format!("child {i}"));
                    kept.push(s.start(async move {
                        if i == done {
                            yield_now().await;
                            return Some(name); // an output that nobody takes, in its place
                        }
                        let _kept = name;
                        assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
                        None
                    }));
                }
                if sim::random().is_multiple_of(2) {
                    kept.clear();
                }
                sleep(FOR_EVER).await
            }));
            for _ in 0..=sim::random() % 4 {
                assert!(poll_once(&mut scope).await.is_none());
                sleep(ms(1)).await.unwrap();
            }
        }
        let mut expected = vec!["body".to_owned()];
        expected.extend((0..10).map(|i| format!("child {i}")));
        let mut names = std::mem::take(&mut *names.lock().unwrap());
        if names[0] == format!("child {done}") {
            expected.remove(1 + done as usize);
            names.remove(0); // it was done, and nobody wanted it
        }
        assert_eq!(names, expected);
    });
}

/// Everything that can be waited for, in one place, so that it can be seen who still waits.
struct Things {
    semaphore: Semaphore,
    notify: Notify,
    mutex: AsyncMutex<u8>,
    condvar: Condvar,
    sender: mpsc::Sender<u8>,
    receiver: mpsc::Receiver<u8>,
}

impl Things {
    fn new() -> Things {
        let (sender, receiver) = mpsc::bounded(1);
        sender.try_send(1).unwrap();
        let (semaphore, notify) = (Semaphore::new(0), Notify::new());
        Things { semaphore, notify, mutex: AsyncMutex::new(0), condvar: Condvar::new(), sender, receiver }
    }

    /// Nobody waits: whoever comes now is served, and what was there is still there.
    async fn nobody_waits(&mut self) {
        self.semaphore.add_permits(1);
        drop(self.semaphore.try_acquire().expect("its permit has gone to somebody who is gone"));
        for line in [format!("{:?}", self.notify), format!("{:?}", self.condvar)] {
            assert!(line.contains("waiting: 0"), "{line}");
        }
        self.notify.notify_one();
        assert_eq!(poll_once(self.notify.notified()).await, Some(Ok(())));
        drop(self.mutex.try_lock().expect("somebody has it, or is in line for it"));
        assert_eq!(self.receiver.try_recv().unwrap(), 1);
        assert!(self.receiver.try_recv().is_err());
        self.sender.try_send(1).unwrap();
    }
}

/// A scope that waits for all of them: in its body, in children, in nested ones, through a combinator.
async fn waits_everywhere(things: &Things, fired: &AtomicUsize, drops: &Drops) {
    finish(async |s| {
        let children: [Pin<Box<dyn Future<Output = ()> + Send + '_>>; 7] = [
            Box::pin(async { drop(things.semaphore.acquire().await) }),
            Box::pin(async { things.notify.notified().await.unwrap_or_default() }),
            Box::pin(async { drop(things.sender.send(2).await) }),
            Box::pin(async {
                let guard = things.mutex.lock().await.unwrap();
                drop(things.condvar.wait(guard).await);
            }),
            Box::pin(async { drop(join_all((0..3).map(|_| things.semaphore.acquire())).await) }),
            Box::pin(async {
                let _ = sleep(ms(3)).await;
                fired.fetch_add(1, Ordering::Relaxed);
            }),
            Box::pin(finish(async |inner| {
                let child = inner.start(async { drop(things.semaphore.acquire().await) });
                drop(inner.start(child));
                let _ = race((things.notify.notified(), things.notify.notified())).await;
            })),
        ];
        for child in children {
            let guard = drops.guard();
            yield_now().await;
            drop(s.start(async move {
                let _kept = guard;
                child.await;
            }));
        }
        let child = s.start(or_cancelled(pending::<()>()));
        let mut all: FuturesUnordered<_> = [child].into_iter().collect();
        all.next().await;
    })
    .await;
}

#[test]
fn a_scope_dropped_at_any_point_leaves_nobody_waiting() {
    let count = Arc::new(Count::default());
    for polls in 0..14_usize {
        let count = count.clone();
        Sim::new(1).explore(0..10, move || {
            let count = count.clone();
            async move {
                let waker = Waker::from(count);
                let (mut things, fired, drops) = (Things::new(), AtomicUsize::new(0), Drops::default());
                {
                    let mut scope = pin!(waits_everywhere(&things, &fired, &drops));
                    for i in 0..polls {
                        // With two wakers in turn.
                        match i % 3 {
                            2 => assert!(scope.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()),
                            _ => assert!(poll_once(&mut scope).await.is_none()),
                        }
                    }
                }
                assert_eq!(drops.count(), polls.min(7));
                things.nobody_waits().await;
                sleep(ms(10)).await.unwrap();
                assert_eq!(fired.load(Ordering::Relaxed), 0);
            }
        });
    }
    assert_eq!(Arc::strong_count(&count), 1, "somebody still has a waker");
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_foreign_select_drops_the_scope_that_loses() {
    Sim::new(1).explore(0..100, || async {
        let (mut things, fired, drops) = (Things::new(), AtomicUsize::new(0), Drops::default());
        {
            let scope = pin!(waits_everywhere(&things, &fired, &drops));
            let limit = Duration::from_micros(sim::random() % 2000);
            drop(select(scope, sleep(limit)).await);
        }
        things.nobody_waits().await;
        sleep(ms(10)).await.unwrap();
        assert_eq!(fired.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_panic_in_a_destructor_while_a_scope_is_dropped_keeps_nothing_from_being_dropped() {
    Sim::new(1).explore(0..10, || async {
        for culprit in 0..4 {
            let drops = Drops::default();
            let dropped = panic_in(async {
                let mut scope = pin!(finish(async |s| {
                    let _body = drops.guard();
                    for i in 0..3 {
                        let guard = drops.guard();
                        drop(s.start(async move {
                            let _panics = (i == culprit).then_some(PanicsInDrop("in drop"));
                            let _kept = guard;
                            let _ = sleep(FOR_EVER).await;
                        }));
                    }
                    let _panics = (culprit == 3).then_some(PanicsInDrop("in drop"));
                    sleep(FOR_EVER).await
                }));
                assert!(poll_once(&mut scope).await.is_none());
            });
            assert_eq!(dropped.await, "in drop", "{culprit}");
            assert_eq!(drops.count(), 4, "{culprit}");
        }
    });
}

#[test]
fn what_was_spawned_in_a_scope_that_is_dropped_is_cancelled_and_goes_on() {
    Sim::new(1).explore(0..50, || async {
        let (send, receive) = oneshot::channel();
        {
            let mut scope = pin!(finish(async |s| {
                s.spawn(async move {
                    let slept = sleep(FOR_EVER).await;
                    dapple::shield(sleep(ms(1))).await.unwrap();
                    send.send(slept).unwrap();
                })
                .detach();
                sleep(FOR_EVER).await
            }));
            assert!(poll_once(&mut scope).await.is_none());
            sleep(ms(sim::random() % 2)).await.unwrap();
        }
        assert_eq!(receive.await, Ok(Err(Cancelled)));
    });
}

#[test]
fn late_wakers_wake_nobody() {
    in_both_worlds(30, || {
        let rt = runtime(2);
        let task = rt.spawn(async {
            let wakers = Mutex::new(Vec::new());
            for round in 0..20 {
                let keep = |waker: &Waker| wakers.lock().unwrap().push(waker.clone());
                let mut scope = Box::pin(finish(async |s| {
                    for i in 0..5 {
                        drop(s.start(async move {
                            let mut polls = 0;
                            poll_fn(|cx| {
                                keep(cx.waker());
                                polls += 1;
                                if polls > i { Poll::Ready(()) } else { Poll::Pending }
                            })
                            .await;
                        }));
                    }
                }));
                if round % 2 == 0 {
                    assert!(poll_once(&mut scope).await.is_none());
                } else {
                    // Each is woken until it is done, by its own wakers of earlier rounds, too.
                    poll_fn(|cx| {
                        wakers.lock().unwrap().iter().for_each(Waker::wake_by_ref);
                        let polled = scope.as_mut().poll(cx);
                        if polled.is_pending() {
                            cx.waker().wake_by_ref();
                        }
                        polled
                    })
                    .await;
                }
            }
            wakers.into_inner().unwrap()
        });
        let wakers = rt.block_on(task).unwrap();
        assert!(wakers.len() > 100);
        // Their scopes are gone, and so is their task.
        let halves = wakers.clone();
        let other = crate::common::start_thread(move || halves.into_iter().for_each(Waker::wake));
        wakers.iter().for_each(Waker::wake_by_ref);
        drop(rt);
        wakers.into_iter().for_each(Waker::wake);
        other.join().unwrap();
    });
}

#[test]
fn wakers_from_many_threads_while_scopes_come_and_go() {
    watched(|| {
        let rt = runtime(2);
        let shared = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let over = Event::default();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (shared, over) = (shared.clone(), over.clone());
                thread::spawn(move || {
                    while !over.is_set() {
                        let wakers = std::mem::take(&mut *shared.lock().unwrap());
                        for waker in wakers {
                            waker.wake_by_ref();
                            thread::yield_now();
                            waker.wake();
                        }
                    }
                })
            })
            .collect();
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                rt.spawn(async move {
                    for round in 0..300_usize {
                        let shared = &shared;
                        let mut scope = pin!(finish(async |s| {
                            for i in 0..8 {
                                drop(s.start(async move {
                                    let mut polls = 0;
                                    poll_fn(|cx| {
                                        shared.lock().unwrap().push(cx.waker().clone());
                                        polls += 1;
                                        if polls > i % 3 { Poll::Ready(()) } else { Poll::Pending }
                                    })
                                    .await;
                                }));
                            }
                        }));
                        match round % 3 {
                            0 => drop(poll_once(&mut scope).await), // and it is dropped
                            _ => scope.await,
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            rt.block_on(task).unwrap();
        }
        over.set();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn late_cancellers_reach_no_other_scope() {
    Sim::new(1).explore(0..30, || async {
        let mut cancellers = Vec::new();
        for round in 0..50 {
            let canceller = finish(async |s| {
                for canceller in &cancellers {
                    Canceller::cancel(canceller); // of scopes whose memory this one may have
                }
                sleep(Duration::ZERO).await.unwrap();
                s.start(async { sleep(Duration::from_nanos(1)).await.unwrap() }).await;
                assert!(!s.is_cancelled());
                s.canceller()
            })
            .await;
            assert!(!canceller.is_cancelled());
            if round % 2 == 0 {
                cancellers.push(canceller); // else its memory is free to be used again
            }
        }
    });
}

#[test]
fn cancelled_once_or_often_from_a_task_or_a_thread() {
    in_both_worlds(100, || {
        let rt = runtime(2);
        for from in 0..4 {
            let (send, receive) = oneshot::channel();
            let (waits, begun) = (Semaphore::new(0), Event::default());
            let begin = begun.clone();
            let task = rt.spawn(async move {
                finish(async |s| {
                    send.send(s.canceller()).unwrap();
                    let waits = &waits;
                    for _ in 0..3 {
                        drop(s.start(async move { assert!(waits.acquire().await.is_err()) }));
                    }
                    begin.set();
                    waits.acquire().await.is_err() && s.is_cancelled()
                })
                .await
            });
            let canceller = rt.block_on(receive).unwrap();
            let other = canceller.clone();
            match from {
                0 => rt.block_on(rt.spawn(async move { other.cancel() })).unwrap(),
                1 => crate::common::start_thread(move || other.cancel()).join().unwrap(),
                2 => {
                    let threads: Vec<_> = (0..3)
                        .map(|_| {
                            let other = canceller.clone();
                            crate::common::start_thread(move || (0..3).for_each(|_| other.cancel()))
                        })
                        .collect();
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                }
                _ => {
                    begun.wait();
                    other.cancel();
                }
            }
            assert!(rt.block_on(task).unwrap());
            assert!(canceller.is_cancelled());
            canceller.cancel();
        }
    });
}

#[test]
fn cancelled_by_a_signal() {
    use dapple::signal::{SignalKind, signal};
    watched(|| {
        let rt = runtime(2);
        let answer = rt.block_on(async {
            let mut usr2 = signal(SignalKind::user_defined2()).unwrap();
            finish(async |s| {
                let canceller = s.canceller();
                let told = dapple::spawn(async move {
                    usr2.recv().await.unwrap();
                    canceller.cancel();
                });
                let pid = rustix::process::getpid();
                rustix::process::kill_process(pid, rustix::process::Signal::USR2).unwrap();
                let waited = Semaphore::new(0).acquire().await.map(drop);
                told.await.unwrap_err(); // is cancelled, as all that is awaited in here
                waited.is_err()
            })
            .await
        });
        assert!(answer);
    });
}

#[test]
fn a_scope_that_moves_from_one_scope_to_another() {
    Sim::new(1).explore(0..100, || async {
        let ended = AtomicUsize::new(0);
        let cancels = sim::random() % 4;
        let mut moves = Box::pin(finish(async |s| {
            drop(s.start(ends_when_cancelled(&ended)));
            drop(s.start(join_all([ends_when_cancelled(&ended), ends_when_cancelled(&ended)])));
            ends_when_cancelled(&ended).await;
        }));
        for round in 0..4 {
            let done = finish(async |s| {
                let moves = &mut moves;
                let polled = s.start(async move { poll_once(moves).await.is_some() }).await;
                if round < cancels {
                    assert!(!polled);
                } else {
                    s.cancel(); // it is not inside any more, and knows nothing of it
                }
                polled
            })
            .await;
            assert!(!done);
        }
        // In yet another one, which is cancelled while it is there.
        finish(async |s| {
            let moves = &mut moves;
            drop(s.start(moves));
            sleep(ms(1)).await.unwrap();
            assert_eq!(ended.load(Ordering::Relaxed), 0);
            s.cancel();
        })
        .await;
        assert_eq!(ended.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn another_thread_may_cancel_and_ask_but_not_start() {
    watched(|| {
        let rt = runtime(2);
        let task = rt.spawn(async {
            finish(async |s| {
                drop(s.start(async move {
                    let child = s.start(async {
                        yield_now().await;
                        Box::new(1)
                    });
                    thread::scope(|threads| {
                        let other = threads.spawn(|| {
                            assert!(!s.is_cancelled());
                            let refused = panic_of(|| drop(s.start(async {})));
                            assert!(
                                refused.contains("Scope::start called outside of its scope"),
                                "{refused}"
                            );
                            drop(child);
                            s.cancel();
                            s.canceller().is_cancelled()
                        });
                        assert!(other.join().unwrap());
                    });
                    assert!(s.is_cancelled());
                    drop(s.start(async {})); // here it may
                }));
                drop(s.start(async { assert_eq!(sleep(FOR_EVER).await, Err(Cancelled)) }));
            })
            .await;
        });
        rt.block_on(task).unwrap();
    });
}

#[test]
fn an_aborted_task_drops_its_scope() {
    in_both_worlds(50, || {
        let rt = runtime(2);
        let (begun, drops) = (Event::default(), Drops::default());
        let (begin, guards) = (begun.clone(), [drops.guard(), drops.guard()]);
        let task = rt.spawn(async move {
            finish(async |s| {
                for guard in guards {
                    drop(s.start(async move {
                        let _kept = guard;
                        let _ = sleep(FOR_EVER).await;
                    }));
                }
                begin.set();
                pending::<()>().await;
            })
            .await;
        });
        begun.wait();
        task.abort();
        assert!(rt.block_on(task).unwrap_err().is_aborted());
        assert_eq!(drops.count(), 2);
    });
}

#[test]
fn destructors_of_a_dropped_scope_may_use_it() {
    struct Uses<'s, 'e>(&'s Scope<'s, 'e>, &'e AtomicUsize);
    impl Drop for Uses<'_, '_> {
        fn drop(&mut self) {
            self.0.cancel();
            assert!(self.0.is_cancelled() && self.0.canceller().is_cancelled());
            // There is nobody who would poll it.
            assert!(panic_of(|| drop(self.0.start(async {}))).contains("outside of its scope"));
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    dapple::run(async {
        let used = AtomicUsize::new(0);
        {
            let mut scope = pin!(finish(async |s| {
                for _ in 0..2 {
                    let uses = Uses(s, &used);
                    drop(s.start(async move {
                        let _kept = uses;
                        pending::<()>().await;
                    }));
                }
                let _kept = Uses(s, &used);
                pending::<()>().await;
            }));
            assert!(poll_once(&mut scope).await.is_none());
        }
        assert_eq!(used.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_local_scope_fails_in_the_same_way() {
    dapple::run(async {
        let ended = std::cell::Cell::new(0);
        let scope = finish_local(async |s| {
            drop(s.start(async {
                assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
                ended.set(ended.get() + 1);
            }));
            let panics = s.start(async {
                yield_now().await;
                panic!("first");
            });
            drop(s.start(panics));
            assert_eq!(sleep(FOR_EVER).await, Err(Cancelled));
            ended.set(ended.get() + 1);
        });
        assert_eq!(panic_in(scope).await, "first");
        assert_eq!(ended.get(), 2);
    });
}
