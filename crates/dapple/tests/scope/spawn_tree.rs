//! Random trees of scopes, limits, races, shields and spawned tasks, cancelled at random places.
//!
//! Each scope and each task is a [`Place`] that knows the place around it. The canceller of a place marks it when the
//! cancel has returned. A wait that begins in a marked place, or in one with a marked place around it and no shield
//! between, must not succeed.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{runtime, watched};
use dapple::sim::{self, Sim};
use dapple::sync::Semaphore;
use dapple::task::yield_now;
use dapple::time::{sleep, timeout};
use dapple::{JoinHandle, finish, race, scope::Canceller, shield};

/// Chance, the same in a simulation and in reality.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn fork(&mut self) -> Chance {
        Chance(self.below(u64::MAX) | 1)
    }
}

/// A scope, a task, or a shield.
#[derive(Default)]
struct Place {
    around: Option<Arc<Place>>,
    is_shield: bool,
    is_cancelled: AtomicBool,
}

impl Place {
    fn inside(around: &Arc<Place>) -> Arc<Place> {
        Arc::new(Place { around: Some(around.clone()), ..Place::default() })
    }

    fn is_cancelled(&self) -> bool {
        !self.is_shield
            && (self.is_cancelled.load(SeqCst)
                || self.around.as_ref().is_some_and(|around| around.is_cancelled()))
    }
}

enum Cancels {
    Scope(Canceller),
    Task(JoinHandle<()>),
}

/// State that is shared by all places of a tree.
#[derive(Default)]
struct Tree {
    cancels: Mutex<Vec<(Arc<Cancels>, Arc<Place>)>>,
    waits: AtomicUsize,
    /// Waits that were cancelled from the beginning, and those that were not.
    refused: AtomicUsize,
    succeeded_late: AtomicUsize,
}

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Tree {
    async fn wait(&self, place: &Place, chance: &mut Chance) {
        let is_late = place.is_cancelled();
        let succeeded = match chance.below(3) {
            0 => sleep(Duration::from_micros(100 * chance.below(4))).await.is_ok(),
            1 => Semaphore::new(1).acquire().await.is_ok(),
            _ => {
                let (sender, receiver) = dapple::channel::oneshot::channel();
                sender.send(()).unwrap();
                receiver.await.is_ok()
            }
        };
        self.waits.fetch_add(1, SeqCst);
        self.refused.fetch_add(usize::from(is_late), SeqCst);
        self.succeeded_late.fetch_add(usize::from(is_late && succeeded), SeqCst);
    }

    /// Cancels anything.
    fn cancel(&self, chance: &mut Chance) {
        let chosen = {
            let cancels = self.cancels.lock().unwrap();
            let at = chance.below(cancels.len().max(1) as u64) as usize;
            cancels.get(at).map(|(cancels, place)| (cancels.clone(), place.clone()))
        };
        if let Some((cancels, place)) = chosen {
            match &*cancels {
                Cancels::Scope(scope) => scope.cancel(),
                Cancels::Task(task) => task.cancel(),
            }
            place.is_cancelled.store(true, SeqCst);
            work(chance);
        }
    }

    fn enter(&self, cancels: Cancels, place: &Arc<Place>) {
        self.cancels.lock().unwrap().push((Arc::new(cancels), place.clone()));
    }

    /// A scope with children and spawned tasks.
    fn scope(self: &Arc<Tree>, around: &Arc<Place>, depth: u32, mut chance: Chance) -> Boxed {
        let (tree, place) = (self.clone(), Place::inside(around));
        Box::pin(finish(async move |scope| {
            tree.enter(Cancels::Scope(scope.canceller()), &place);
            for _ in 0..1 + chance.below(3) {
                let part = tree.part(&place, depth, chance.fork());
                match chance.below(3) {
                    0 => drop(scope.start(part)),
                    _ => scope.spawn(part).detach(),
                }
            }
            if chance.below(2) == 0 {
                tree.part(&place, depth, chance.fork()).await;
            }
            if chance.below(8) == 0 {
                scope.cancel();
                place.is_cancelled.store(true, SeqCst);
                work(&mut chance);
            }
        }))
    }

    /// Some of everything.
    fn part(self: &Arc<Tree>, place: &Arc<Place>, depth: u32, mut chance: Chance) -> Boxed {
        let (tree, place) = (self.clone(), place.clone());
        Box::pin(async move {
            for _ in 0..1 + chance.below(4) {
                match chance.below(if depth > 0 { 12 } else { 7 }) {
                    0..3 => tree.wait(&place, &mut chance).await,
                    3 => tree.cancel(&mut chance),
                    4 => work(&mut chance),
                    5..7 => yield_now().await,
                    7 | 8 => tree.scope(&place, depth - 1, chance.fork()).await,
                    9 => {
                        let limit = Duration::from_micros(200 * chance.below(10));
                        let _ = timeout(limit, tree.scope(&place, depth - 1, chance.fork())).await;
                    }
                    10 => {
                        let one = tree.scope(&place, depth - 1, chance.fork());
                        race((one, tree.part(&place, depth - 1, chance.fork()))).await;
                    }
                    _ => {
                        let around = Some(place.clone());
                        let shielded = Arc::new(Place { around, is_shield: true, ..Place::default() });
                        shield(tree.scope(&shielded, depth - 1, chance.fork())).await;
                    }
                }
            }
        })
    }

    /// A few tasks, each of which can be cancelled as a whole.
    async fn run(self: &Arc<Tree>, mut chance: Chance) {
        let mut ends = Vec::new();
        for _ in 0..2 {
            let place = Arc::new(Place::default());
            let (ended, end) = dapple::channel::oneshot::channel::<()>();
            let scope = self.scope(&place, 3, chance.fork());
            let task = dapple::spawn(async move {
                scope.await;
                drop(ended);
            });
            self.enter(Cancels::Task(task), &place);
            ends.push(end);
        }
        for end in ends {
            assert!(end.await.is_err());
        }
    }
}

/// Holds up its worker for a while.
fn work(chance: &mut Chance) {
    if sim::is_simulated() {
        sim::work(Duration::from_micros(100 * chance.below(20)));
    } else {
        (0..chance.below(2000)).for_each(|_| std::hint::spin_loop());
    }
}

#[test]
fn no_wait_that_begins_after_a_cancel_succeeds() {
    let refused = Arc::new(AtomicUsize::new(0));
    for workers in 1..4 {
        Sim::new(1).workers(workers).explore(0..150, || {
            let refused = refused.clone();
            async move {
                let tree = Arc::new(Tree::default());
                tree.run(Chance(sim::random() | 1)).await;
                assert_eq!(tree.succeeded_late.load(SeqCst), 0);
                refused.fetch_add(tree.refused.load(SeqCst), SeqCst);
            }
        });
    }
    assert!(refused.load(SeqCst) > 1000, "{refused:?} waits began after a cancel");
}

#[test]
fn the_same_on_real_workers() {
    watched(|| {
        let rt = runtime(3);
        let mut refused = 0;
        for round in 1..=800 {
            let tree = Arc::new(Tree::default());
            rt.block_on(tree.run(Chance(round * 0x9e37_79b9)));
            assert_eq!(tree.succeeded_late.load(SeqCst), 0, "round {round}");
            refused += tree.refused.load(SeqCst);
        }
        assert!(refused > 1000, "{refused} waits began after a cancel");
    });
}
