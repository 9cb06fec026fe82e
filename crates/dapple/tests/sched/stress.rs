//! Colors that increment unguarded counters under load: a lost update shows an overlap.
//!
//! Tasks are spawned from workers, from main colors and from foreign threads, into colors held,
//! keyed and promoted; they yield, wait for foreign wakers, panic, and are cancelled and aborted.
//! `DAPPLE_STRESS=10` makes it ten times as long. Meant for ThreadSanitizer too (`ci/tsan`).
#![expect(unsafe_code, reason = "counters without a guard")]

use std::cell::UnsafeCell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::{
    Drops, Event, Random, Thread, foreign_block_on, give_way, in_virtual_time, message, receive,
    start_thread, watched,
};
use dapple::task::{Task, yield_now};
use dapple::{Color, Handle, JoinHandle, Runtime, sim};

fn scale() -> u64 {
    let factor = std::env::var("DAPPLE_STRESS").ok().and_then(|text| text.parse().ok());
    factor.unwrap_or(1)
}

/// Two counts of the same: one that only a color may touch, and one for all.
#[derive(Default)]
struct Counter {
    unguarded: UnsafeCell<u64>,
    right: AtomicU64,
}

// SAFETY: a counter belongs to one color, which never runs on two threads at once: this is what
// is being tested. If it is not so, the counts differ, and ThreadSanitizer says where.
unsafe impl Sync for Counter {}

impl Counter {
    /// Only in the counter's color.
    fn bump(&self, spin: u64) {
        // SAFETY: no other task of this color runs.
        let value = unsafe { *self.unguarded.get() };
        if sim::is_simulated() {
            sim::work(Duration::from_nanos(spin)); // others may come between
        } else {
            (0..spin).for_each(|_| std::hint::spin_loop());
        }
        // SAFETY: as above.
        unsafe { *self.unguarded.get() = value + 1 };
        self.right.fetch_add(1, Ordering::Relaxed);
    }

    /// Only in the counter's color.
    fn check(&self) -> u64 {
        // SAFETY: no other task of this color runs.
        let unguarded = unsafe { *self.unguarded.get() };
        assert_eq!(unguarded, self.right.load(Ordering::Relaxed), "updates were lost");
        unguarded
    }
}

/// How a color is come by.
#[derive(Clone)]
enum Ink {
    Held(Color),
    /// Asked for at each use, and forgotten in between.
    Keyed(u64),
}

#[derive(Clone)]
struct World {
    rt: Handle,
    inks: Arc<[(Ink, Arc<Counter>)]>,
    /// Where to send wakers that another thread is to wake.
    foreign: mpsc::Sender<Waker>,
    alive: Drops,
    made: Arc<AtomicUsize>,
}

impl World {
    fn color(&self, i: usize) -> Color {
        match &self.inks[i].0 {
            Ink::Held(color) => color.clone(),
            Ink::Keyed(key) => self.rt.keyed_color(key),
        }
    }

    /// Goes to sleep until a foreign thread has woken it. In a shield: a cancelled task that waits in foreign code alone
    /// is dropped.
    async fn foreign_wake(&self) {
        let mut asked = false;
        dapple::shield(poll_fn(|cx| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(());
            }
            let sent = self.foreign.send(cx.waker().clone());
            if sent.is_ok() { Poll::Pending } else { Poll::Ready(()) }
        }))
        .await;
    }

    /// A future for the color of `counter`: a few steps, then an end of some kind.
    async fn steps(self, counter: Arc<Counter>, seed: u64) -> End {
        self.made.fetch_add(1, Ordering::Relaxed);
        let _alive = self.alive.guard();
        let mut random = Random(seed | 1);
        for _ in 0..random.below(6) {
            counter.bump(random.below(50));
            match random.below(8) {
                0 => self.foreign_wake().await,
                1 => drop(dapple::spawn(yield_now()).await),
                2 => self.color(random.below(self.inks.len() as u64) as usize).call(|| ()).detach(),
                3 => {}
                _ => yield_now().await,
            }
        }
        counter.bump(random.below(50));
        match random.below(8) {
            0 => std::panic::resume_unwind(Box::new("as asked")), // without a message on the screen
            1 => {
                let result = dapple::spawn(std::future::pending::<()>()).await;
                counter.bump(0);
                End::Waited(result.is_err_and(|error| error.is_cancelled()))
            }
            _ => End::Plain,
        }
    }

    fn spawn_one(&self, random: &mut Random) -> Spawned {
        let i = random.below(self.inks.len() as u64 + 2) as usize;
        let seed = random.below(u64::MAX);
        let handle = match self.inks.get(i) {
            Some((_, counter)) => self.color(i).spawn(self.clone().steps(counter.clone(), seed)),
            None => self.rt.spawn(self.clone().promoted(seed)),
        };
        let fate = match random.below(6) {
            0 => Fate::Abort,
            // A wait for an event that never comes ends by cancel or abort only, so all are cancelled.
            _ => Fate::Cancel,
        };
        Spawned { handle, fate, detach: random.below(10) == 0 }
    }

    /// An ordinary task that shares its own color, sooner or later, with children.
    async fn promoted(self, seed: u64) -> End {
        let mut random = Random(seed | 1);
        let counter = Arc::new(Counter::default());
        let mut children = Vec::new();
        for _ in 0..4 {
            counter.bump(random.below(50));
            if random.below(2) == 0 {
                let child = self.clone().steps(counter.clone(), random.below(u64::MAX));
                children.push(Color::current().spawn(child));
            }
            match random.below(3) {
                0 => self.foreign_wake().await,
                _ => yield_now().await,
            }
        }
        for child in children {
            counter.bump(0);
            child.cancel();
            let task = child.task().expect("the runtime runs").clone();
            drop(child.await); // a cancelled task does not wait
            while !task.is_finished() {
                yield_now().await;
            }
        }
        counter.check();
        End::Plain
    }
}

#[derive(Debug, PartialEq)]
enum End {
    Plain,
    /// It waited, and whether that was cancelled.
    Waited(bool),
}

enum Fate {
    Abort,
    Cancel,
}

struct Spawned {
    handle: JoinHandle<End>,
    fate: Fate,
    detach: bool,
}

/// Ends what was spawned, and says how many ended in which way: plain, waited, panicked, aborted.
fn end_all(spawned: Vec<Spawned>) -> [usize; 4] {
    let mut ends = [0; 4];
    for Spawned { handle, fate, detach } in spawned {
        match fate {
            Fate::Abort => handle.abort(),
            Fate::Cancel => handle.cancel(),
        }
        if detach {
            handle.detach();
            continue;
        }
        match (foreign_block_on(handle), fate) {
            (Ok(End::Plain), _) => ends[0] += 1,
            (Ok(End::Waited(cancelled)), _) => {
                assert!(cancelled, "what never ends did");
                ends[1] += 1;
            }
            (Err(error), Fate::Abort) if error.is_aborted() => ends[3] += 1,
            (Err(error), _) => {
                let payload = error.try_into_panic().expect("a panic");
                assert_eq!(message(&*payload), "as asked");
                ends[2] += 1;
            }
        }
    }
    ends
}

fn wakes(wakers: mpsc::Receiver<Waker>) {
    for (i, waker) in std::iter::from_fn(|| receive(&wakers)).enumerate() {
        match i % 3 {
            0 => waker.wake(),
            1 => {
                waker.wake_by_ref();
                waker.wake();
            }
            _ => {
                let twin = waker.clone();
                give_way();
                waker.wake();
                drop(twin);
            }
        }
    }
}

fn world(rt: &Runtime, colors: u64) -> (World, Thread<()>) {
    let (foreign, wakers) = mpsc::channel();
    let ink = |i: u64| {
        let ink = if i.is_multiple_of(2) { Ink::Held(rt.handle().color()) } else { Ink::Keyed(i) };
        (ink, Arc::new(Counter::default()))
    };
    let inks = (0..colors).map(ink).collect();
    let world = World { rt: rt.handle(), inks, foreign, alive: Drops::default(), made: Arc::default() };
    (world, start_thread(move || wakes(wakers)))
}

/// Tasks of all kinds from everywhere: how many ended in which way, and how many were stolen.
fn storm(seed: u64, rounds: u64) -> ([usize; 4], u64) {
    let rt = Runtime::builder().workers(4).random_seed(seed).build().unwrap();
    let (world, waker) = world(&rt, 6);
    let storm = |seed: u64, rounds: u64| {
        let (world, mut random) = (world.clone(), Random((seed * 0x9e37_79b9) | 1));
        move || (0..rounds).map(|_| world.spawn_one(&mut random)).collect::<Vec<_>>()
    };
    let threads: Vec<_> = (1..3).map(|i| start_thread(storm(seed + 100 * i, rounds))).collect();
    let from_worker = rt.spawn({
        let mut storm = storm(seed + 1000, rounds);
        async move { storm() }
    });
    let from_main = rt.block_on(async { storm(seed + 2000, rounds)() });
    let mut ends = end_all(from_main);
    let spawned = threads.into_iter().map(|thread| thread.join().unwrap());
    for spawned in spawned.chain([foreign_block_on(from_worker).unwrap()]) {
        ends.iter_mut().zip(end_all(spawned)).for_each(|(sum, n)| *sum += n);
    }
    for (i, (_, counter)) in world.inks.iter().enumerate() {
        let counter = counter.clone();
        let count = foreign_block_on(world.color(i).call(move || counter.check())).unwrap();
        assert!(count > 0);
    }
    let stolen: u64 = rt.metrics().workers.iter().map(|worker| worker.stolen).sum();
    let (alive, made) = (world.alive.clone(), world.made.clone());
    drop(rt);
    drop(world);
    waker.join().unwrap();
    assert_eq!(alive.count(), made.load(Ordering::Relaxed), "each future is dropped once");
    (ends, stolen)
}

#[test]
fn no_update_is_lost() {
    let mut totals = [0; 4];
    let mut steals = 0;
    for seed in 1..=8 {
        let (ends, stolen) = watched(move || storm(seed, 1000 * scale()));
        totals.iter_mut().zip(ends).for_each(|(sum, n)| *sum += n);
        steals += stolen;
    }
    println!("plain, waited, panicked, aborted: {totals:?}; stolen: {steals}");
    assert!(totals.iter().all(|n| *n > 0), "every kind of end is met: {totals:?}");
    assert!(steals > 0, "there was something to steal");
}

#[test]
fn no_update_is_lost_in_virtual_time() {
    in_virtual_time(20, || _ = storm(sim::random() >> 44, 30));
}

#[test]
fn a_runtime_that_ends_under_load_keeps_colors_apart_and_drops_all_once() {
    for seed in 1..=10 * scale() {
        watched(move || {
            let rt = Runtime::builder().workers(2).random_seed(seed).build().unwrap();
            let (world, waker) = world(&rt, 3);
            let begun = Event::default();
            let storms = [1, 2].map(|i| {
                let (world, begun) = (world.clone(), begun.clone());
                thread::spawn(move || {
                    let mut random = Random(seed * 31 + i);
                    let mut spawned = Vec::new();
                    loop {
                        if spawned.len() == 50 {
                            begun.set();
                        }
                        // A keyed color cannot be had any more once the runtime has ended.
                        if world.rt.spawn(async {}).is_finished() && spawned.len() >= 50 {
                            let over = foreign_block_on(world.rt.spawn(async {}));
                            if over.is_err_and(|error| error.is_gone()) {
                                return spawned;
                            }
                        }
                        let held = 2 * random.below(2) as usize;
                        let steps = world.clone().steps(world.inks[held].1.clone(), random.below(u64::MAX));
                        spawned.push(world.color(held).spawn(steps));
                    }
                })
            });
            begun.wait();
            drop(rt);
            let spawned: Vec<_> = storms.into_iter().flat_map(|storm| storm.join().unwrap()).collect();
            let tasks: Vec<Task> = spawned.iter().filter_map(|handle| handle.task().cloned()).collect();
            for handle in spawned {
                let ended = foreign_block_on(handle);
                assert!(ended.map_or_else(|error| error.is_gone() || error.is_panic(), |_| true));
            }
            assert!(tasks.iter().all(Task::is_finished));
            for (_, counter) in world.inks.iter() {
                counter.check();
            }
            let (alive, made) = (world.alive.clone(), world.made.clone());
            drop(world);
            waker.join().unwrap();
            assert_eq!(alive.count(), made.load(Ordering::Relaxed));
        });
    }
}

/// One task that is woken, cancelled, looked at and perhaps aborted, all at the same time.
fn everybodys(seed: u64) {
    let rt = Runtime::builder().workers(2).random_seed(seed).build().unwrap();
    let (drops, counter) = (Drops::default(), Arc::new(Counter::default()));
    let (send, wakers) = mpsc::channel::<Waker>();
    let (guard, steps) = (drops.guard(), 3 + seed % 20);
    // Otherwise it waits in foreign code alone, and is dropped when it is cancelled there.
    let is_shielded = seed % 4 < 2;
    let count = counter.clone();
    let body = async move {
        let _kept = guard;
        for step in 0..steps {
            count.bump(20);
            if step == seed % 7 {
                let count = count.clone();
                Color::current().call(move || count.bump(20)).detach();
            }
            let mut polled = false;
            let foreign = poll_fn(|cx| {
                let _ = send.send(cx.waker().clone());
                if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
            });
            match is_shielded {
                true => dapple::shield(foreign).await,
                false => foreign.await,
            }
        }
        count.check();
    };
    let handle = rt.spawn(body);
    let task = handle.task().unwrap().clone();
    let wake = start_thread(move || std::iter::from_fn(|| receive(&wakers)).for_each(Waker::wake));
    let cancel = start_thread(move || {
        for _ in 0..50 {
            task.cancel();
            if sim::is_simulated() {
                give_way();
            }
        }
    });
    let dumper = rt.handle();
    let dump = start_thread(move || {
        for _ in 0..20 {
            drop(dumper.dump());
            if sim::is_simulated() {
                give_way();
            }
        }
    });
    if seed.is_multiple_of(3) {
        handle.abort();
    }
    let result = foreign_block_on(handle);
    match result {
        Ok(()) => {}
        Err(error) => assert!(error.is_aborted() && (seed.is_multiple_of(3) || !is_shielded), "{error}"),
    }
    [wake, cancel, dump].into_iter().for_each(|thread| thread.join().unwrap());
    drop(rt);
    assert_eq!(drops.count(), 1);
}

#[test]
fn one_task_in_everybodys_hands() {
    for seed in 1..=200 * scale() {
        watched(move || everybodys(seed));
    }
}

#[test]
fn one_task_in_everybodys_virtual_hands() {
    in_virtual_time(100, || everybodys(sim::random() >> 44));
}
