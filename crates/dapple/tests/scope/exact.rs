//! Channels, locks, timers, tasks and callbacks in a scope that is cancelled: they happen, or they do not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use crate::common::{Event, runtime, start_thread};
use crate::scope_common::{Lent, Operation, SHAPES, Shape, When, happened, in_a_cancelled, simulated};
use dapple::channel::{mpsc, oneshot, watch};
use dapple::sim::{self, Sim};
use dapple::sync::{Condvar, Mutex, Notify, OwnedMutexGuard, RwLock, Semaphore};
use dapple::time::{Instant, interval, sleep, sleep_until, timeout};
use dapple::{Cancelled, JoinHandle, Resume, finish, suspend};

const SEEDS: u64 = 30;

struct Permits(Arc<Semaphore>, usize, bool);

impl Operation for Permits {
    async fn run(&self) -> bool {
        match self.2 {
            false => happened(self.0.acquire_many(self.1).await).map(|permit| permit.forget()).is_some(),
            true => happened(self.0.clone().acquire_many_owned(self.1).await)
                .map(|permit| permit.forget())
                .is_some(),
        }
    }

    async fn complete(&self) {
        for _ in 0..self.1 {
            self.0.add_permits(1);
            crate::scope_common::hesitate().await;
        }
    }

    async fn settle(&self, completed: usize, happened: usize) {
        assert_eq!(self.0.available_permits(), (completed - happened) * self.1);
    }
}

#[test]
fn semaphores() {
    for permits in [1, 3] {
        for owned in [false, true] {
            simulated(SEEDS, true, async move || Permits(Arc::new(Semaphore::new(0)), permits, owned));
        }
    }
}

struct Locked {
    mutex: Arc<Mutex<usize>>,
    held: StdMutex<Option<OwnedMutexGuard<usize>>>,
    owned: bool,
}

impl Operation for Locked {
    async fn run(&self) -> bool {
        match self.owned {
            false => happened(self.mutex.lock().await).map(|mut guard| *guard += 1).is_some(),
            true => happened(self.mutex.clone().lock_owned().await).map(|mut guard| *guard += 1).is_some(),
        }
    }

    async fn complete(&self) {
        let held = self.held.lock().unwrap().take();
        drop(held);
    }

    async fn settle(&self, completed: usize, happened: usize) {
        let free = self.mutex.try_lock();
        assert_eq!(free.is_ok(), completed > 0);
        drop(free);
        self.complete().await;
        assert_eq!(*self.mutex.try_lock().unwrap(), happened);
    }
}

#[test]
fn mutexes() {
    for owned in [false, true] {
        simulated(SEEDS, true, async move || {
            let mutex = Arc::new(Mutex::new(0));
            let held = StdMutex::new(Some(mutex.clone().try_lock_owned().unwrap()));
            Locked { mutex, held, owned }
        });
    }
}

/// A lock for reading and writing, which a task holds until it is told to let it go.
struct ReadOrWrite {
    lock: Arc<RwLock<usize>>,
    let_go: Event,
    holder: Lent<JoinHandle<()>>,
    writes: bool,
}

impl ReadOrWrite {
    async fn new(writes: bool, held_by_reader: bool) -> ReadOrWrite {
        let (lock, let_go, held) = (Arc::new(RwLock::new(0)), Event::default(), Event::default());
        let (its, told, tell) = (lock.clone(), let_go.clone(), held.clone());
        let holder = dapple::spawn(async move {
            let _guards = match held_by_reader {
                true => (Some(its.read().await.unwrap()), None),
                false => (None, Some(its.write().await.unwrap())),
            };
            tell.set();
            told.happened().await;
        });
        held.happened().await;
        ReadOrWrite { lock, let_go, holder: Lent::new(holder), writes }
    }
}

impl Operation for ReadOrWrite {
    async fn run(&self) -> bool {
        match self.writes {
            true => happened(self.lock.write().await).map(|mut guard| *guard += 1).is_some(),
            false => happened(self.lock.read().await).map(drop).is_some(),
        }
    }

    async fn complete(&self) {
        self.let_go.set();
    }

    async fn settle(&self, _completed: usize, happened: usize) {
        self.let_go.set();
        self.holder.take().await.unwrap();
        assert_eq!(*self.lock.try_write().expect("nobody has it"), if self.writes { happened } else { 0 });
    }
}

#[test]
fn locks_for_reading_and_writing() {
    for (writes, held_by_reader) in [(true, true), (true, false), (false, false)] {
        simulated(SEEDS, true, async move || ReadOrWrite::new(writes, held_by_reader).await);
    }
}

#[derive(Default)]
struct Signalled {
    mutex: Mutex<usize>,
    condvar: Condvar,
    until: bool,
}

impl Operation for Signalled {
    async fn run(&self) -> bool {
        // Not cancelled: what comes after it is to be looked at.
        let guard = dapple::shield(self.mutex.lock()).await.unwrap();
        let (guard, waited) = match self.until {
            false => self.condvar.wait(guard).await,
            true => {
                let (mut guard, waited) = self.condvar.wait_while(guard, |count| *count == 0).await;
                if waited.is_ok() {
                    *guard -= 1;
                }
                (guard, waited)
            }
        };
        assert!(self.mutex.try_lock().is_err(), "it returns with the lock held");
        drop(guard);
        happened(waited).is_some()
    }

    async fn complete(&self) {
        *self.mutex.lock().await.unwrap() += 1;
        self.condvar.notify_one();
    }

    async fn settle(&self, completed: usize, happened: usize) {
        assert!(format!("{:?}", self.condvar).contains("waiting: 0"));
        let count = *self.mutex.try_lock().expect("nobody has it");
        assert_eq!(count, if self.until { completed - happened } else { completed });
    }
}

#[test]
fn condition_variables_return_with_the_lock_held() {
    for until in [false, true] {
        simulated(SEEDS, true, async move || Signalled { until, ..Signalled::default() });
    }
}

#[derive(Default)]
struct Notified(Notify, bool);

impl Operation for Notified {
    async fn run(&self) -> bool {
        happened(self.0.notified().await).is_some()
    }

    async fn complete(&self) {
        if self.1 { self.0.notify_waiters() } else { self.0.notify_one() }
    }

    async fn settle(&self, completed: usize, happened: usize) {
        assert!(format!("{:?}", self.0).contains("waiting: 0"));
        let left = futures_lite::future::poll_once(self.0.notified()).await.is_some();
        assert!(self.1 || left == (completed > happened), "{completed} {happened} {left}");
    }
}

#[test]
fn notifications() {
    simulated(SEEDS, true, async || Notified::default());
    simulated(SEEDS, false, async || Notified(Notify::new(), true));
}

#[derive(Clone, Copy)]
enum Sends {
    Send,
    Reserve,
    ReserveOwned,
}

/// A channel that is full.
struct Sending(mpsc::Sender<u8>, Lent<mpsc::Receiver<u8>>, Sends);

impl Operation for Sending {
    async fn run(&self) -> bool {
        match self.2 {
            Sends::Send => match self.0.send(2).await {
                Ok(()) => true,
                Err(error) => {
                    assert!(error.is_cancelled());
                    assert_eq!(error.into_inner(), 2, "the message comes back");
                    false
                }
            },
            Sends::Reserve => {
                happened(self.0.reserve().await).map(|permit| permit.send(2).unwrap()).is_some()
            }
            Sends::ReserveOwned => {
                let permit = happened(self.0.clone().reserve_owned().await);
                permit.map(|permit| drop(permit.send(2).unwrap())).is_some()
            }
        }
    }

    async fn complete(&self) {
        self.1.with(|receiver| receiver.try_recv().unwrap());
    }

    async fn settle(&self, completed: usize, happened: usize) {
        let left = self.1.with(|receiver| std::iter::from_fn(|| receiver.try_recv().ok()).count());
        assert_eq!(left, 1 + happened - completed);
        assert_eq!(self.0.capacity(), 1);
    }
}

#[test]
fn sending_to_a_full_channel() {
    for how in [Sends::Send, Sends::Reserve, Sends::ReserveOwned] {
        simulated(SEEDS, true, async move || {
            let (sender, receiver) = mpsc::bounded(1);
            sender.try_send(1).unwrap();
            Sending(sender, Lent::new(receiver), how)
        });
    }
}

struct Receiving(mpsc::Sender<u8>, Lent<mpsc::Receiver<u8>>, bool);

impl Operation for Receiving {
    async fn run(&self) -> bool {
        let mut receiver = self.1.take();
        let got = match self.2 {
            false => happened(receiver.recv().await),
            true => {
                let mut many = Vec::new();
                let count = happened(receiver.recv_many(&mut many, 5).await);
                assert_eq!(count.unwrap_or(0), many.len());
                many.pop()
            }
        };
        self.1.give(receiver);
        assert!(got.is_none_or(|value| value == 7));
        got.is_some()
    }

    async fn complete(&self) {
        self.0.try_send(7).unwrap();
    }

    async fn settle(&self, completed: usize, happened: usize) {
        let left = self.1.with(|receiver| std::iter::from_fn(|| receiver.try_recv().ok()).count());
        assert_eq!(left, completed - happened);
    }
}

#[test]
fn receiving_from_an_empty_channel() {
    for many in [false, true] {
        for bounded in [false, true] {
            simulated(SEEDS, false, async move || {
                let (sender, receiver) = if bounded { mpsc::bounded(1) } else { mpsc::unbounded() };
                Receiving(sender, Lent::new(receiver), many)
            });
        }
    }
}

struct Once(StdMutex<Option<oneshot::Sender<u8>>>, Lent<oneshot::Receiver<u8>>);

impl Operation for Once {
    async fn run(&self) -> bool {
        let mut receiver = self.1.take();
        let got = happened((&mut receiver).await);
        self.1.give(receiver);
        got.is_some()
    }

    async fn complete(&self) {
        let sender = self.0.lock().unwrap().take().unwrap();
        sender.send(7).unwrap();
    }

    async fn settle(&self, completed: usize, happened: usize) {
        if happened == 0 {
            assert_eq!(self.1.with(|receiver| receiver.try_recv()).is_ok(), completed == 1);
        }
    }
}

#[test]
fn a_value_that_is_sent_once() {
    simulated(SEEDS, false, async || {
        let (sender, receiver) = oneshot::channel();
        Once(StdMutex::new(Some(sender)), Lent::new(receiver))
    });
}

/// Those who wait until nobody listens any more.
enum Closed {
    Mpsc(mpsc::Sender<u8>, StdMutex<Option<mpsc::Receiver<u8>>>),
    Once(Lent<oneshot::Sender<u8>>, StdMutex<Option<oneshot::Receiver<u8>>>),
    Watch(watch::Sender<u8>, StdMutex<Option<watch::Receiver<u8>>>),
}

impl Operation for Closed {
    async fn run(&self) -> bool {
        let closed = match self {
            Closed::Mpsc(sender, _) => sender.closed().await,
            Closed::Watch(sender, _) => sender.closed().await,
            Closed::Once(sender, _) => {
                let mut lent = sender.take();
                let closed = lent.closed().await;
                sender.give(lent);
                closed
            }
        };
        happened(closed).is_some()
    }

    async fn complete(&self) {
        match self {
            Closed::Mpsc(_, receiver) => drop(receiver.lock().unwrap().take()),
            Closed::Once(_, receiver) => drop(receiver.lock().unwrap().take()),
            Closed::Watch(_, receiver) => drop(receiver.lock().unwrap().take()),
        }
    }

    async fn settle(&self, completed: usize, _happened: usize) {
        let is_closed = match self {
            Closed::Mpsc(sender, _) => sender.is_closed(),
            Closed::Once(sender, _) => sender.with(|sender| sender.is_closed()),
            Closed::Watch(sender, _) => sender.is_closed(),
        };
        assert_eq!(is_closed, completed > 0);
    }
}

#[test]
fn waiting_until_nobody_listens() {
    simulated(SEEDS, false, async || {
        let (sender, receiver) = mpsc::bounded(1);
        Closed::Mpsc(sender, StdMutex::new(Some(receiver)))
    });
    simulated(SEEDS, false, async || {
        let (sender, receiver) = oneshot::channel();
        Closed::Once(Lent::new(sender), StdMutex::new(Some(receiver)))
    });
    simulated(SEEDS, false, async || {
        let (sender, receiver) = watch::channel(1);
        Closed::Watch(sender, StdMutex::new(Some(receiver)))
    });
}

struct Watching(watch::Sender<usize>, Lent<watch::Receiver<usize>>, bool);

impl Operation for Watching {
    async fn run(&self) -> bool {
        let mut receiver = self.1.take();
        let seen = match self.2 {
            false => happened(receiver.changed().await).is_some(),
            true => happened(receiver.wait_for(|value| *value == 1).await.map(drop)).is_some(),
        };
        self.1.give(receiver);
        seen
    }

    async fn complete(&self) {
        self.0.send_modify(|value| *value += 1);
    }

    async fn settle(&self, completed: usize, happened: usize) {
        let has_changed = self.1.with(|receiver| receiver.has_changed().unwrap());
        assert_eq!(*self.0.borrow(), completed);
        // Who waits for a value has looked at each.
        assert!(has_changed == (completed > happened) || self.2 && !has_changed);
    }
}

#[test]
fn a_value_that_is_watched() {
    for wanted in [false, true] {
        simulated(SEEDS, false, async move || {
            let (sender, receiver) = watch::channel(0);
            Watching(sender, Lent::new(receiver), wanted)
        });
    }
}

/// A task that has begun.
struct Joining {
    handle: Lent<JoinHandle<Box<u8>>>,
    ends: Event,
    ran: Event,
}

impl Joining {
    async fn new() -> Joining {
        let (ends, ran, begun) = (Event::default(), Event::default(), Event::default());
        let (told, tell, begin) = (ends.clone(), ran.clone(), begun.clone());
        let handle = dapple::spawn(async move {
            begin.set();
            told.happened().await;
            tell.set();
            Box::new(7)
        });
        begun.happened().await;
        Joining { handle: Lent::new(handle), ends, ran }
    }
}

impl Operation for Joining {
    async fn run(&self) -> bool {
        let mut handle = self.handle.take();
        let joined = (&mut handle).await;
        self.handle.give(handle);
        happened(joined).is_some()
    }

    async fn complete(&self) {
        self.ends.set();
    }

    async fn settle(&self, _completed: usize, happened: usize) {
        self.ends.set();
        self.ran.happened().await; // it went on
        if happened == 0 {
            assert_eq!(*self.handle.take().await.unwrap(), 7);
        }
    }
}

#[test]
fn tasks_go_on_when_the_wait_for_them_is_cancelled() {
    simulated(SEEDS, false, async || Joining::new().await);
}

#[test]
fn a_blocking_call_that_has_not_begun_never_does() {
    for shape in SHAPES {
        Sim::new(1).explore(0..20, move || async move {
            let ran = Arc::new(AtomicUsize::new(0));
            let call = || {
                let ran = ran.clone();
                async move {
                    happened(dapple::blocking(move || ran.fetch_add(1, Ordering::Relaxed)).await).is_some()
                }
            };
            assert!(!in_a_cancelled(shape, When::Before, call()).await);
            sleep(Duration::from_secs(1)).await.unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 0, "{shape:?}: begun after the cancel");
        });
    }
}

/// A pool of one thread, which is kept busy until it is told.
#[test]
fn a_blocking_call_that_is_in_line_when_it_is_cancelled_never_begins() {
    for shape in SHAPES {
        crate::common::in_virtual_time(10, move || {
            let builder = dapple::Runtime::builder().workers(2).max_blocking_threads(1);
            let rt = builder.build().unwrap();
            let (busy, release, begun) = (Event::default(), Event::default(), Event::default());
            let (is_busy, released) = (busy.clone(), release.clone());
            let blocks = rt.handle().blocking(move || {
                is_busy.set();
                released.wait();
            });
            busy.wait();
            let ran = Event::default();
            let runs = ran.clone();
            let task = rt.spawn(async move {
                let call = async { happened(dapple::blocking(move || runs.set()).await).is_some() };
                in_a_cancelled(shape, When::After(begun.clone()), crate::common::telling(begun, call)).await
            });
            assert!(!rt.block_on(task).unwrap(), "{shape:?}");
            release.set();
            rt.block_on(blocks).unwrap();
            rt.block_on(rt.handle().blocking(|| ())).unwrap(); // whatever is in line has run
            assert!(!ran.is_set(), "{shape:?}: it ran after the cancel");
        });
    }
}

struct SetOnDrop(Event);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

#[test]
fn a_blocking_call_that_has_begun_goes_on_and_can_be_waited_for_again() {
    for shape in SHAPES {
        Sim::new(1).explore(0..10, move || async move {
            let (begun, ran) = (Event::default(), Event::default());
            let (begin, runs) = (SetOnDrop(begun.clone()), ran.clone());
            let handle = Lent::new(dapple::blocking(move || {
                runs.set();
                drop(begin); // which happens also if it never begins
                sim::work(Duration::from_millis(1));
                Box::new(7)
            }));
            let call = async {
                let mut lent = handle.take();
                let joined = (&mut lent).await;
                handle.give(lent);
                happened(joined).map(|value| *value)
            };
            let delivered = in_a_cancelled(shape, When::After(begun), call).await;
            let again = match delivered {
                Some(value) => Some(value),
                None => handle.take().await.ok().map(|value| *value),
            };
            assert_eq!(again, ran.is_set().then_some(7), "{shape:?}: the result was lost");
        });
    }
}

/// A callback.
#[derive(Default)]
struct CalledBack {
    resume: StdMutex<Option<Resume<u8>>>,
    was_called: Event,
    accepted: AtomicUsize,
    withdrawn: AtomicUsize,
}

impl Operation for CalledBack {
    async fn run(&self) -> bool {
        let called = suspend(|resume| {
            let is_late = self.was_called.is_set();
            *self.resume.lock().unwrap() = Some(resume);
            assert!(!is_late, "it was cancelled before it began");
            || {
                self.withdrawn.fetch_add(1, Ordering::Relaxed);
            }
        });
        happened(called.await).is_some()
    }

    async fn complete(&self) {
        self.was_called.set();
        let resume = self.resume.lock().unwrap().take();
        if resume.is_some_and(|resume| resume.resume(7).is_ok()) {
            self.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn settle(&self, completed: usize, happened: usize) {
        assert_eq!(self.accepted.load(Ordering::Relaxed), happened, "a value comes back, or has come");
        let begun = self.resume.lock().unwrap().is_some() || completed > 0;
        assert!(self.withdrawn.load(Ordering::Relaxed) <= usize::from(begun && happened == 0));
    }
}

#[test]
fn callbacks() {
    simulated(SEEDS, false, async || CalledBack::default());
}

#[test]
fn timers() {
    for shape in SHAPES {
        Sim::new(1).explore(0..SEEDS, move || async move {
            for late in [Duration::ZERO, Duration::from_secs(1)] {
                let begun = Instant::now();
                assert_eq!(in_a_cancelled(shape, When::Before, sleep(late)).await, Err(Cancelled));
                assert!(begun.elapsed() < Duration::from_millis(1));
            }
            // Cancelled at about the time.
            let deadline = Instant::now() + Duration::from_nanos(sim::random() % 30_000);
            let begun = Event::default();
            let waits = crate::common::telling(begun.clone(), sleep_until(deadline));
            begun.set();
            let slept = in_a_cancelled(shape, When::After(begun), waits).await;
            assert!(slept.is_err() || Instant::now() >= deadline, "{shape:?}: too early");
        });
    }
}

#[test]
fn no_tick_of_an_interval_is_lost() {
    for shape in SHAPES {
        Sim::new(1).explore(0..SEEDS, move || async move {
            let period = Duration::from_micros(10);
            let mut ticks = interval(period);
            let mut last = ticks.tick().await.unwrap();
            let mut cancelled = 0;
            for round in 0..20 {
                let begun = Event::default();
                begun.set();
                let when = if round % 4 == 0 { When::Before } else { When::After(begun) };
                match in_a_cancelled(shape, when, ticks.tick()).await {
                    Ok(tick) => {
                        assert!(round % 4 != 0, "it was cancelled");
                        assert_eq!(tick, last + period);
                        last = tick;
                    }
                    Err(Cancelled) => cancelled += 1,
                }
            }
            assert!(cancelled >= 5);
            assert_eq!(ticks.tick().await, Ok(last + period));
        });
    }
}

#[test]
fn both_come_about() {
    // Or else the tests above would show little.
    let (made, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Sim::new(1).explore(0..300, || async {
        let begun = Event::default();
        let permits = Arc::new(Permits(Arc::new(Semaphore::new(0)), 1, false));
        let completing = crate::scope_common::complete_after(&permits, &begun);
        let running = crate::common::telling(begun.clone(), permits.run());
        let has_happened = in_a_cancelled(Shape::Child, When::After(begun), running).await;
        if has_happened { &made } else { &cancelled }.fetch_add(1, Ordering::Relaxed);
        completing.await.unwrap();
    });
    let (made, cancelled) = (made.into_inner(), cancelled.into_inner());
    // A cancel that comes first is seldom seen first: who is polled takes what has come by then.
    assert!(made > 20 && cancelled > 20, "{made} were made, {cancelled} cancelled");
}

#[test]
fn permits_are_not_lost_on_real_threads() {
    crate::common::watched(|| {
        let rt = runtime(2);
        let semaphore = Arc::new(Semaphore::new(2));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let semaphore = semaphore.clone();
                rt.spawn(async move {
                    let (mut got, mut cancelled) = (0, 0);
                    for _ in 0..500 {
                        let results = finish(async |s| {
                            let canceller = s.canceller();
                            let thread = start_thread(move || canceller.cancel());
                            let children: Vec<_> = (0..4)
                                .map(|_| {
                                    s.start(async { happened(semaphore.acquire_many(2).await).is_some() })
                                })
                                .collect();
                            let results = futures_util::future::join_all(children).await;
                            thread.join().unwrap();
                            results
                        })
                        .await;
                        got += results.iter().filter(|happened| **happened).count();
                        cancelled += results.iter().filter(|happened| !**happened).count();
                    }
                    (got, cancelled)
                })
            })
            .collect();
        for task in tasks {
            let (got, cancelled) = rt.block_on(task).unwrap();
            assert_eq!(got + cancelled, 2000);
        }
        assert_eq!(semaphore.available_permits(), 2);
    });
}

#[test]
fn a_timeout_hands_back_what_came_in_time_after_all() {
    Sim::new(1).explore(0..200, || async {
        let (sender, mut receiver) = mpsc::bounded::<u32>(4);
        let sends = dapple::spawn(async move {
            for i in 0..10 {
                sleep(Duration::from_nanos(sim::random() % 4000)).await.unwrap();
                // The sender is in a hurry as well: what it could not send comes back.
                let mut message = i;
                while let Err(elapsed) = timeout(Duration::from_nanos(700), sender.send(message)).await {
                    match elapsed.into_inner().unwrap() {
                        Ok(()) => break,
                        Err(error) => message = error.into_inner(),
                    }
                }
            }
        });
        let mut next = 0;
        while next < 10 {
            let got = timeout(Duration::from_nanos(sim::random() % 3000), receiver.recv()).await;
            let got = got.unwrap_or_else(|elapsed| elapsed.into_inner().unwrap());
            if let Some(value) = happened(got) {
                assert_eq!(value, next);
                next += 1;
            }
        }
        sends.await.unwrap();
    });
}
