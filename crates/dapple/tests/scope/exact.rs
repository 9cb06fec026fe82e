//! Locks and semaphores in a scope that is cancelled: they happen, or they do not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};

use crate::common::{Event, runtime, start_thread};
use crate::scope_common::{Lent, Operation, Shape, When, happened, in_a_cancelled, simulated};
use dapple::sim::Sim;
use dapple::sync::{Condvar, Mutex, Notify, OwnedMutexGuard, RwLock, Semaphore};
use dapple::{JoinHandle, finish};

pub(crate) const SEEDS: u64 = 30;

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

/// A lock for reading and writing, which a task holds until `let_go` is set.
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
    // A wait that is polled takes a permit that has come by then, so a cancel that came before the permit seldom wins.
    assert!(made > 20 && cancelled > 20, "{made} were made, {cancelled} cancelled");
}
