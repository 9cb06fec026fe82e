//! Wakers that panic: in `clone`, in `wake`, in `wake_by_ref` or in their destructor. Whatever is waited for with one, and
//! however that wait ends, nothing is lost, the others who wait are woken, and the process lives.

#![expect(unsafe_code, reason = "makes wakers by hand")]

mod common;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use common::watched;
use dapple::channel::{mpsc, oneshot, watch};
use dapple::io::AsyncReadExt;
use dapple::sync::{Condvar, Mutex as AsyncMutex, Notify, RwLock, Semaphore};
use dapple::{SharedMap, finish};

/// Which of its functions panics, and how often each was called.
#[derive(Default)]
struct Hostile {
    panics_in: Mutex<Option<&'static str>>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
}

impl Hostile {
    fn called(&self, function: &'static str) {
        *self.calls.lock().unwrap().entry(function).or_default() += 1;
        let panics = *self.panics_in.lock().unwrap() == Some(function);
        assert!(!panics, "hostile: {function}");
    }

    fn waker(self: &Arc<Hostile>) -> Waker {
        // SAFETY: the functions keep the contract of `RawWaker`: the data is a counted reference.
        unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(self.clone()).cast(), &VTABLE)) }
    }

    fn arm(&self, function: Option<&'static str>) {
        *self.panics_in.lock().unwrap() = function;
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        behind(data).called("clone");
        // SAFETY: the waker that is cloned has a reference.
        unsafe { Arc::increment_strong_count(data.cast::<Hostile>()) };
        RawWaker::new(data, &VTABLE)
    },
    |data| {
        // SAFETY: the waker gives its reference away.
        let hostile = unsafe { Arc::from_raw(data.cast::<Hostile>()) };
        hostile.called("wake");
    },
    |data| behind(data).called("wake_by_ref"),
    |data| {
        // SAFETY: as above.
        let hostile = unsafe { Arc::from_raw(data.cast::<Hostile>()) };
        hostile.called("drop");
    },
);

fn behind<'a>(data: *const ()) -> &'a Hostile {
    // SAFETY: the waker that is used has a reference.
    unsafe { &*data.cast::<Hostile>() }
}

const FUNCTIONS: [&str; 4] = ["clone", "wake", "wake_by_ref", "drop"];

type Wait = Pin<Box<dyn Future<Output = ()>>>;

/// Something that is waited for: how to wait for it, and what makes it happen once, for one of those who wait.
struct Case {
    name: &'static str,
    wait: Box<dyn Fn() -> Wait>,
    happen: Box<dyn Fn()>,
}

/// Polls with a hostile waker; `None` if that panicked.
fn poll(wait: &mut Wait, waker: &Waker) -> Option<Poll<()>> {
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
}

/// One hostile waiter and one honest one behind it. It happens twice, so that both can have it; whatever the hostile one
/// does, the honest one gets it.
fn the_other_is_served(case: &Case, function: &'static str, end: End) {
    let what = format!("{}, panics in {function}, {end:?}", case.name);
    let hostile = Arc::new(Hostile::default());
    let waker = hostile.waker();
    let mut bad = (case.wait)();
    if function == "clone" {
        hostile.arm(Some(function));
    }
    let first = poll(&mut bad, &waker);
    assert!(first != Some(Poll::Ready(())), "{what}: it has not happened yet");
    let count = Arc::new(Count::default());
    let honest = Waker::from(count.clone());
    let mut good = (case.wait)();
    assert_eq!(poll(&mut good, &honest), Some(Poll::Pending), "{what}");
    hostile.arm(Some(function));
    if end == End::DroppedBefore {
        let dropped =
            catch_unwind(AssertUnwindSafe(|| drop(std::mem::replace(&mut bad, Box::pin(async {})))));
        assert!(dropped.is_ok(), "{what}: to drop a wait does not panic");
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
            assert_eq!(poll(&mut bad, &waker), Some(Poll::Ready(())), "{what}: nothing is lost");
            drop(bad);
        }
        End::DroppedAfter => {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(bad)));
            assert!(dropped.is_ok(), "{what}: to drop a wait does not panic");
        }
        End::DroppedBefore => {}
    }
    hostile.arm(None);
    assert!(count.0.load(SeqCst) > 0, "{what}: the honest waiter is woken");
    assert_eq!(poll(&mut good, &honest), Some(Poll::Ready(())), "{what}: the honest waiter is served");
    drop(good);
    drop(waker);
    assert_eq!(Arc::strong_count(&hostile), 1, "{what}: no waker is leaked, none is dropped twice");
}

/// What many can wait for at a time.
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
            Box::pin(async move { notify.notified().await.unwrap() })
        }),
        Box::new(move || notify.notify_one()),
    );
    let semaphore = Arc::new(Semaphore::new(0));
    let waits = semaphore.clone();
    add(
        "Semaphore",
        Box::new(move || {
            let semaphore = waits.clone();
            Box::pin(async move { semaphore.acquire_owned().await.unwrap().forget() })
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
            Box::pin(async move { receiver.changed().await.unwrap() })
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
            Box::pin(async move { sender.send(1).await.unwrap() })
        }),
        {
            let receiver = receiver.clone();
            Box::new(move || assert_eq!(receiver.lock().unwrap().try_recv(), Ok(0)))
        },
    );
    cases
}

#[test]
fn who_waits_beside_a_hostile_waker_is_served() {
    for function in FUNCTIONS {
        for end in [End::Completed, End::DroppedBefore, End::DroppedAfter] {
            // Afresh for each: they keep what happened.
            for case in shared_cases() {
                the_other_is_served(&case, function, end);
            }
        }
    }
}

/// One waiter with a hostile waker that panics once it waits. Then it happens, and it is polled again with an honest
/// waker: what it waited for is there.
fn is_not_lost<F: Future<Output = T> + ?Sized, T>(
    name: &str,
    function: &'static str,
    mut future: Pin<Box<F>>,
    happen: impl FnOnce(),
) -> T {
    let hostile = Arc::new(Hostile::default());
    let waker = hostile.waker();
    if function == "clone" {
        hostile.arm(Some(function));
    }
    let polled =
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()));
    assert!(!polled.unwrap_or(false), "{name}: it has not happened yet");
    hostile.arm(Some(function));
    let happened = catch_unwind(AssertUnwindSafe(happen));
    assert!(happened.is_ok(), "{name}, {function}: who makes it happen is not harmed");
    hostile.arm(None);
    let output = common::foreign_block_on(future.as_mut());
    drop(future);
    drop(waker);
    // The runtime may still be about to drop its own: it is counted, and not used any more.
    for _ in 0..1000 {
        if Arc::strong_count(&hostile) == 1 {
            return output;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{name}, {function}: a waker is leaked");
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

        let rt = common::runtime(1);
        let notify = Arc::new(Notify::new());
        let waits = notify.clone();
        let mut handle = rt.spawn(async move { waits.notified().await.map(|()| 7) });
        let got = is_not_lost("join", function, by_hand(move |cx| Pin::new(&mut handle).poll(cx)), || {
            notify.notify_one();
        });
        assert_eq!(got.unwrap(), Ok(7));
    }
}

#[test]
fn locks_are_not_lost() {
    for function in FUNCTIONS.into_iter().filter(|function| *function != "clone") {
        let mutex = Arc::new(AsyncMutex::new(1));
        let held = mutex.clone().try_lock_owned().unwrap();
        let waits = mutex.clone();
        let got =
            is_not_lost("Mutex", function, Box::pin(async move { *waits.lock().await.unwrap() }), || {
                drop(held)
            });
        assert_eq!(got, 1);

        let lock: &'static RwLock<i32> = Box::leak(Box::new(RwLock::new(1)));
        let held = lock.try_write().unwrap();
        let got =
            is_not_lost("RwLock", function, Box::pin(async { *lock.read().await.unwrap() }), || drop(held));
        assert_eq!(got, 1);

        let (condvar, mutex) = (Arc::new(Condvar::new()), Arc::new(AsyncMutex::new(false)));
        let (waits, of) = (condvar.clone(), mutex.clone());
        let wait = Box::pin(async move {
            let guard = of.lock().await.unwrap();
            let (guard, waited) = waits.wait_while(guard, |done| !*done).await;
            waited.map(|()| *guard).unwrap()
        });
        let got = is_not_lost("Condvar", function, wait, || {
            *mutex.try_lock().unwrap() = true;
            condvar.notify_one();
        });
        assert!(got);
    }
}

#[test]
fn timers_scopes_and_computations_are_not_lost() {
    for function in FUNCTIONS.into_iter().filter(|function| *function != "clone") {
        let rt = common::runtime(1);
        let inside = rt.handle().clone();
        // Polled inside of the runtime, so that its driver has the timer.
        let mut sleep = Box::pin(dapple::time::sleep(Duration::from_millis(5)));
        let hostile = Arc::new(Hostile::default());
        hostile.arm(Some(function));
        rt.block_on(poll_fn(|_| {
            let waker = std::mem::ManuallyDrop::new(hostile.waker());
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            Poll::Ready(())
        }));
        rt.block_on(dapple::time::sleep(Duration::from_millis(20))).unwrap();
        rt.block_on(sleep).unwrap();
        rt.block_on(inside.spawn(async {})).unwrap(); // its worker lives
        hostile.arm(None);

        let map: SharedMap<u8, u8> = SharedMap::new();
        let mut computes = Box::pin(map.get_or_insert_with(1, async || {
            dapple::task::yield_now().await;
            7
        }));
        assert!(computes.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let waits = map.clone();
        let wait = Box::pin(async move { waits.get_or_insert_with(1, async || 8).await });
        let got = is_not_lost("SharedMap", function, wait, || {
            assert_eq!(common::foreign_block_on(computes), Ok(7));
        });
        assert_eq!(got, Ok(7));

        let (go, gone) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (waits, counts) = (go.clone(), gone.clone());
        let scope = Box::pin(async move {
            finish(async |s| {
                let (waits, counts) = (&waits, &counts);
                for _ in 0..3 {
                    s.start(async move {
                        waits.notified().await.unwrap();
                        counts.fetch_add(1, SeqCst);
                    });
                }
            })
            .await;
        });
        is_not_lost("scope", function, scope, || (0..3).for_each(|_| go.notify_one()));
        assert_eq!(gone.load(SeqCst), 3);
    }
}

#[test]
fn sockets_and_files_are_not_lost() {
    watched(|| {
        for function in FUNCTIONS.into_iter().filter(|function| *function != "clone") {
            let rt = common::runtime(1);
            let (reader, mut writer) = std::io::pipe().unwrap();
            let hostile = Arc::new(Hostile::default());
            let mut file = dapple::fs::File::from(OwnedFd::from(reader));
            let mut buffer = [0; 4];
            {
                let mut read = Box::pin(file.read_exact(&mut buffer));
                rt.block_on(poll_fn(|_| {
                    let waker = std::mem::ManuallyDrop::new(hostile.waker());
                    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                    Poll::Ready(())
                }));
                hostile.arm(Some(function));
                writer.write_all(b"file").unwrap();
                rt.block_on(async { dapple::time::sleep(Duration::from_millis(5)).await }).unwrap();
                hostile.arm(None);
                rt.block_on(read).unwrap();
            }
            assert_eq!(&buffer, b"file");

            let (mine, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut stream = rt.block_on(async { dapple::net::UnixStream::try_from(mine).unwrap() });
            let mut read = Box::pin(async move {
                let mut buffer = [0; 4];
                stream.read_exact(&mut buffer).await.map(|()| buffer)
            });
            rt.block_on(poll_fn(|_| {
                let waker = std::mem::ManuallyDrop::new(hostile.waker());
                assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                Poll::Ready(())
            }));
            hostile.arm(Some(function));
            other.write_all(b"sock").unwrap();
            rt.block_on(async { dapple::time::sleep(Duration::from_millis(5)).await }).unwrap();
            hostile.arm(None);
            assert_eq!(&rt.block_on(read).unwrap(), b"sock");
        }
    });
}
