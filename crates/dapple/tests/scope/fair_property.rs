//! No branch of a task starves: random trees of scopes, races, limits, shields, foreign combinators and tasks, with
//! branches that are always ready.
//!
//! Each task counts its polls. A branch that can go on, because it is always ready or because it was woken, has to do so
//! within a bounded number of them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};

use crate::budget_common::KINDS;
use crate::common::Random;
use dapple::channel::mpsc;
use dapple::sim;
use dapple::sync::{Notify, Semaphore};
use dapple::task::yield_now;
use dapple::time::{Duration, Instant, sleep_until, timeout};
use dapple::{finish, race, shield};
use futures_util::FutureExt;
use futures_util::future::{join, select};

type Tree = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How many polls of a task are looked at.
const POLLS: u64 = 24;

/// After how many polls a branch of a small task that can go on must have done so: one in which its wait is put off, one
/// in which that goes ahead, and two for operations that give way by themselves (`yield_now`, a writer of a state).
const FEW: u64 = 4;

/// How many children of a scope are polled in each of its polls, at least, before one that is ready. FAIR
const AT_A_TIME: u64 = 64;

/// After how many polls of tasks a worker looks for timers that are due, at most.
const LOOKS: u64 = 64;

/// A branch cannot go on.
const RESTS: u64 = u64::MAX;

/// The record of one task: its polls and its branches.
#[derive(Default)]
struct Watch {
    polls: AtomicU64,
    is_over: AtomicBool,
    /// A branch waits for a time.
    has_times: AtomicBool,
    branches: Mutex<Vec<Weak<Branch>>>,
    /// How many there were at first.
    count: OnceLock<u64>,
}

struct Branch {
    task: Arc<Watch>,
    what: &'static str,
    /// The poll of its task since which it can go on.
    since: AtomicU64,
    /// How it is woken, if it is not always ready.
    bell: Bell,
}

/// The event that lets a branch go on.
enum Bell {
    Always,
    Message(mpsc::Sender<()>),
    Permit(Arc<Semaphore>),
    Notice(Arc<Notify>),
    Time(Mutex<Instant>),
}

impl Watch {
    /// Another branch of this task: can go on from the first poll, if it is always ready.
    fn branch(self: &Arc<Watch>, what: &'static str, bell: Bell) -> Arc<Branch> {
        let since = if matches!(bell, Bell::Always) { 0 } else { RESTS };
        self.has_times.fetch_or(matches!(bell, Bell::Time(_)), Relaxed);
        let branch = Arc::new(Branch { task: self.clone(), what, since: AtomicU64::new(since), bell });
        self.branches.lock().unwrap().push(Arc::downgrade(&branch));
        branch
    }

    /// At the beginning of a poll of the task.
    fn polled(&self) {
        let now = self.polls.fetch_add(1, Relaxed) + 1;
        let lasts = if self.has_times.load(Relaxed) { POLLS + LOOKS } else { POLLS };
        self.is_over.store(now > lasts, Relaxed);
        let mut branches = self.branches.lock().unwrap();
        branches.retain(|branch| branch.strong_count() > 0);
        self.count.get_or_init(|| branches.len() as u64);
        for branch in branches.iter().filter_map(Weak::upgrade) {
            branch.check();
            branch.ring();
        }
    }
}

impl Branch {
    fn check(&self) {
        let (now, since) = (self.task.polls.load(Relaxed), self.since.load(Relaxed));
        let count = self.task.count.get().copied().unwrap_or_default();
        let looks = if matches!(self.bell, Bell::Time(_)) { LOOKS } else { 0 };
        let bound = FEW + 2 * (count / AT_A_TIME) + looks;
        assert!(
            since == RESTS || now - since <= bound,
            "{}, one of {count} branches, could go on since poll {since}, and has not by poll {now}",
            self.what
        );
    }

    /// Lets it go on, if it is its time.
    fn ring(&self) {
        let now = self.task.polls.load(Relaxed);
        let is_over = self.task.is_over.load(Relaxed);
        if !is_over && (self.since.load(Relaxed) != RESTS || !now.is_multiple_of(5)) {
            return;
        }
        match &self.bell {
            Bell::Always => return,
            Bell::Message(sender) => sender.try_send(()).unwrap(),
            Bell::Permit(permits) => permits.add_permits(1),
            Bell::Notice(notify) => notify.notify_one(),
            Bell::Time(deadline) if *deadline.lock().unwrap() > Instant::now() => return,
            Bell::Time(_) => {}
        }
        self.since.fetch_min(now, Relaxed);
    }

    fn waits_until(&self, moment: Instant) {
        if let Bell::Time(deadline) = &self.bell {
            *deadline.lock().unwrap() = moment;
        }
    }

    /// It goes on: `true` if that was enough.
    fn goes_on(&self) -> bool {
        self.check();
        let is_ready = matches!(self.bell, Bell::Always);
        self.since.store(if is_ready { self.task.polls.load(Relaxed) } else { RESTS }, Relaxed);
        self.task.is_over.load(Relaxed)
    }
}

/// A tree in a task of its own, or in that of the test.
struct Counted {
    task: Arc<Watch>,
    tree: Tree,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        sim::work(Duration::from_micros(sim::random() % 200));
        self.task.polled();
        if !self.task.is_over.load(Relaxed) {
            cx.waker().wake_by_ref();
        }
        self.tree.as_mut().poll(cx)
    }
}

fn task(random: &mut Random, depth: u64) -> Counted {
    let task = Arc::default();
    Counted { tree: tree(random, &task, depth), task }
}

fn leaf(random: &mut Random, task: &Arc<Watch>) -> Tree {
    match random.below(KINDS.len() as u64 + 6) {
        0 | 1 => {
            let branch = task.branch("a yield", Bell::Always);
            Box::pin(async move {
                while !branch.goes_on() {
                    yield_now().await;
                }
            })
        }
        2 => {
            let (sender, mut receiver) = mpsc::unbounded();
            let branch = task.branch("a message", Bell::Message(sender));
            Box::pin(async move { while receiver.recv().await.is_ok() && !branch.goes_on() {} })
        }
        3 => {
            let permits = Arc::new(Semaphore::new(0));
            let branch = task.branch("a permit", Bell::Permit(permits.clone()));
            Box::pin(async move {
                while let Ok(permit) = permits.acquire().await {
                    permit.forget();
                    if branch.goes_on() {
                        return;
                    }
                }
            })
        }
        4 => {
            let notify = Arc::new(Notify::new());
            let branch = task.branch("a notice", Bell::Notice(notify.clone()));
            Box::pin(async move { while notify.notified().await.is_ok() && !branch.goes_on() {} })
        }
        5 => {
            let branch =
                task.branch("a time", Bell::Time(Mutex::new(Instant::now() + Duration::from_secs(1))));
            Box::pin(async move {
                loop {
                    let next = Instant::now() + Duration::from_micros(300);
                    branch.waits_until(next);
                    if sleep_until(next).await.is_err() || branch.goes_on() {
                        return;
                    }
                }
            })
        }
        _ => busy(random, task),
    }
}

/// Work that is always ready.
fn busy(random: &mut Random, task: &Arc<Watch>) -> Tree {
    let (what, busy) = KINDS[random.below(KINDS.len() as u64) as usize];
    let branch = task.branch(what, Bell::Always);
    busy(Arc::new(move || branch.goes_on()))
}

fn tree(random: &mut Random, task: &Arc<Watch>, depth: u64) -> Tree {
    if depth == 0 || random.below(5) == 0 {
        return leaf(random, task);
    }
    let inner = |random: &mut Random| tree(random, task, depth - 1);
    match random.below(8) {
        0 | 1 => scope(random, task, depth),
        2 => Box::pin(race((inner(random), inner(random)))),
        3 => Box::pin(race((inner(random), inner(random), inner(random)))),
        4 => {
            let limit = Duration::from_micros(100 << random.below(8));
            if random.below(2) == 0 {
                let inner = timeout(limit, inner(random));
                return Box::pin(inner.map(|_| ()));
            }
            // The work ends when it is cancelled, and so does the limit.
            let inner = timeout(limit, busy(random, task));
            let branch = task.branch("a limit", Bell::Time(Mutex::new(Instant::now() + limit)));
            Box::pin(async move {
                if inner.await.is_err() {
                    branch.goes_on();
                }
            })
        }
        5 => Box::pin(shield(inner(random))),
        6 => {
            let (mut first, mut second) = (inner(random).fuse(), inner(random).fuse());
            Box::pin(async move {
                futures_util::select_biased! { () = first => {}, () = second => {} }
            })
        }
        _ if random.below(2) == 0 => Box::pin(select(inner(random), inner(random)).map(drop)),
        _ => Box::pin(join(inner(random), inner(random)).map(drop)),
    }
}

fn scope(random: &mut Random, task: &Arc<Watch>, depth: u64) -> Tree {
    let body = (random.below(3) > 0).then(|| tree(random, task, depth - 1));
    let many = if random.below(40) == 0 { 200 + random.below(300) } else { 0 };
    let mut children: VecDeque<Tree> = (0..many).map(|_| leaf(random, task)).collect();
    for _ in 0..1 + random.below(3) {
        let child = tree(random, task, depth - 1);
        if random.below(2) == 0 { children.push_front(child) } else { children.push_back(child) }
    }
    let spawned = (random.below(4) == 0).then(|| self::task(random, depth - 1));
    Box::pin(finish(async move |s| {
        for child in children {
            s.start(child);
        }
        if let Some(spawned) = spawned {
            s.spawn(spawned).detach();
        }
        if let Some(body) = body {
            body.await;
        }
    }))
}

/// As many seeds as `DAPPLE_SEEDS` says.
#[dapple::test(sim, workers = 2, seeds = 2_000)]
async fn every_ready_branch_proceeds_within_a_few_polls() {
    let mut random = Random::new(0);
    let depth = 1 + random.below(4);
    let task = task(&mut random, depth);
    match random.below(2) {
        0 => task.await,
        _ => dapple::spawn(task).await.unwrap(),
    }
}
