//! Heartbeats under stress, for minutes: every kind of work gets on all the time (`ci/stress`).
//!
//! Each *pulse* is a kind of work that goes round in circles and counts its rounds: callbacks, timers, colors, channels,
//! sockets, blocking calls, threads from outside, with tasks that get stuck beside all of them, so that spares come and
//! go. A watcher outside of the runtime looks at the counts. If one of them stands still for longer than
//! `LONGEST_GAP`, the watcher prints the metrics and the dump of the runtime, and the test fails.
//!
//! `DAPPLE_STRESS_SECONDS` says for how long (default 600). The last line of the output names the longest gap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use dapple::channel::mpsc;
use dapple::event::{self, Callback};
use dapple::net::UdpSocket;
use dapple::time::sleep;
use dapple::{Handle, Runtime};

const MS: Duration = Duration::from_millis(1);
const STALL_AFTER: Duration = Duration::from_millis(4);
/// No pulse may stand still for longer. A machine that is shared with others holds up a process for a second or so.
const LONGEST_GAP: Duration = Duration::from_secs(5);
/// How often the watcher looks.
const LOOK: Duration = Duration::from_millis(20);

/// A count of rounds, by name.
#[derive(Clone)]
struct Pulse {
    name: &'static str,
    rounds: Arc<AtomicU64>,
}

impl Pulse {
    fn beat(&self) {
        self.rounds.fetch_add(1, Relaxed);
    }
}

/// The pulses that are watched, and the flag that ends the test.
#[derive(Clone, Default)]
struct Stress {
    pulses: Vec<Pulse>,
    is_over: Arc<AtomicBool>,
}

impl Stress {
    fn pulse(&mut self, name: &'static str) -> Pulse {
        let pulse = Pulse { name, rounds: Arc::default() };
        self.pulses.push(pulse.clone());
        pulse
    }
}

/// A waker that blocks for longer than it takes to be noticed.
struct Blocks;

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        thread::sleep(10 * STALL_AFTER);
    }
}

/// Numbers that look random, for how long things take.
fn dice(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// A chain of callbacks: each one arranges for the next, now or after a moment, in another color.
fn chain(handle: &Handle, pulse: Pulse, mut seed: u64) {
    pulse.beat();
    let color = handle.keyed_color(&dice(&mut seed, 5));
    let (later, again) = (dice(&mut seed, 4) == 0, handle.clone());
    let callback = Callback::new(move || chain(&again, pulse, seed)).color(&color);
    if later {
        event::after(Duration::from_micros(seed % 900), callback).detach();
    } else {
        event::now(callback).detach();
    }
}

/// Starts all that beats in the runtime.
fn start(handle: &Handle, stress: &mut Stress) {
    for (name, seed) in [("callbacks 1", 11), ("callbacks 2", 22), ("callbacks 3", 33)] {
        let (pulse, again) = (stress.pulse(name), handle.clone());
        // A round every millisecond, of many callbacks each.
        handle.spawn(async move { chain(&again, pulse, seed) }).detach();
    }
    let every = stress.pulse("every");
    let color = handle.color();
    handle
        .spawn(async move {
            event::every(3 * MS, Callback::new(move || every.beat()).color(&color)).detach();
        })
        .detach();
    for name in ["timer 1", "timer 2"] {
        let pulse = stress.pulse(name);
        let timer = async move {
            while sleep(MS).await.is_ok() {
                pulse.beat();
            }
        };
        handle.spawn(timer).detach();
    }
    let pulse = stress.pulse("spawn and join");
    let tasks = async move {
        loop {
            let tasks: Vec<_> = (0..20).map(|_| dapple::spawn(dapple::task::yield_now())).collect();
            for task in tasks {
                if task.await.is_err() {
                    return;
                }
            }
            pulse.beat();
            if sleep(MS / 2).await.is_err() {
                return;
            }
        }
    };
    handle.spawn(tasks).detach();
    let pulse = stress.pulse("blocking call");
    let calls = async move {
        while dapple::blocking(|| thread::sleep(MS)).await.is_ok() {
            pulse.beat();
        }
    };
    handle.spawn(calls).detach();
    let (ping, pong) = (mpsc::bounded::<u64>(1), mpsc::bounded::<u64>(1));
    let pulse = stress.pulse("ping pong");
    let (color, others) = (handle.color(), (pong.0, ping.1));
    let mut answers = pong.1;
    color
        .spawn(async move {
            let (to, mut from) = others;
            while let Ok(n) = from.recv().await {
                if to.send(n).await.is_err() {
                    return;
                }
            }
        })
        .detach();
    handle
        .spawn(async move {
            for n in 0.. {
                if ping.0.send(n).await.is_err()
                    || answers.recv().await.is_err()
                    || sleep(MS / 4).await.is_err()
                {
                    return;
                }
                pulse.beat();
            }
        })
        .detach();
    let pulse = stress.pulse("socket");
    let socket = async move {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut buffer = [0; 16];
        loop {
            // A datagram to oneself always arrives, unless the kernel has no memory: then the next one does.
            let sent = socket.send_to(b"beat", address).await;
            let received = dapple::time::timeout(100 * MS, socket.recv_from(&mut buffer)).await;
            if sent.is_ok() && received.is_ok_and(|received| received.is_ok()) {
                pulse.beat();
            }
            if sleep(MS).await.is_err() {
                return;
            }
        }
    };
    handle.spawn(socket).detach();
    // Tasks that are stuck for about as long as the monitor waits, and now and then for much longer.
    for (name, mut seed) in [("stuck 1", 5), ("stuck 2", 77)] {
        let pulse = stress.pulse(name);
        let stuck = async move {
            while sleep(Duration::from_micros(dice(&mut seed, 20_000))).await.is_ok() {
                let times = if dice(&mut seed, 50) == 0 { 20 } else { 2 };
                thread::sleep(Duration::from_micros(dice(&mut seed, times * STALL_AFTER.as_micros() as u64)));
                pulse.beat();
            }
        };
        handle.spawn(stuck).detach();
    }
    // A foreign waker that blocks, on a timer.
    let pulse = stress.pulse("foreign waker");
    let foreign = async move {
        let waker = Waker::from(Arc::new(Blocks));
        while sleep(200 * MS).await.is_ok() {
            let mut timer = Box::pin(sleep(MS));
            let _ = timer.as_mut().poll(&mut Context::from_waker(&waker));
            if sleep(5 * MS).await.is_err() {
                return;
            }
            pulse.beat();
        }
    };
    handle.spawn(foreign).detach();
}

/// Threads from outside, which bring tasks, and wait in `block_on`.
fn start_threads(handle: &Handle, stress: &mut Stress) -> Vec<thread::JoinHandle<()>> {
    let outside = [("outside: spawn", 0), ("outside: block_on", 1), ("outside: main color", 2)];
    let mut start = |(name, kind): (&'static str, u32)| {
        let (pulse, handle, is_over) = (stress.pulse(name), handle.clone(), stress.is_over.clone());
        thread::spawn(move || {
            while !is_over.load(Relaxed) {
                match kind {
                    0 => {
                        let task = handle.spawn(async {});
                        while !task.is_finished() && !is_over.load(Relaxed) {
                            thread::sleep(Duration::from_micros(50));
                        }
                    }
                    1 => handle.block_on(async { drop(handle.spawn(async {}).await) }),
                    _ => handle.block_on(async {
                        let local = dapple::spawn_local(async { sleep(MS / 2).await });
                        drop(local.await);
                    }),
                }
                pulse.beat();
                thread::sleep(Duration::from_micros(300));
            }
        })
    };
    outside.map(&mut start).into()
}

/// Looks at all pulses until the time is up. The longest gap, and whose it was.
fn watch(rt: &Runtime, stress: &Stress, time: Duration) -> (Duration, &'static str) {
    let begun = Instant::now();
    let mut seen: Vec<(u64, Instant)> = stress.pulses.iter().map(|_| (0, begun)).collect();
    let mut longest = (Duration::ZERO, "none");
    let mut looked = begun;
    while begun.elapsed() < time {
        thread::sleep(LOOK);
        let now = Instant::now();
        // If this thread was held up itself, the machine was, and that is no gap.
        let held_up = (now - looked).saturating_sub(5 * LOOK);
        looked = now;
        for (pulse, (rounds, since)) in stress.pulses.iter().zip(&mut seen) {
            *since = (*since + held_up).min(now);
            let count = pulse.rounds.load(Relaxed);
            let gap = now - *since;
            if gap > longest.0 {
                longest = (gap, pulse.name);
            }
            if count != *rounds {
                (*rounds, *since) = (count, now);
            } else if gap > LONGEST_GAP {
                let all: Vec<_> = stress.pulses.iter().map(|p| (p.name, p.rounds.load(Relaxed))).collect();
                eprintln!("{all:#?}\n{:#?}\n{}", rt.metrics(), rt.dump());
                panic!("no heartbeat of {:?} for {gap:?}, {:?} after the start", pulse.name, begun.elapsed());
            }
        }
    }
    longest
}

#[test]
#[ignore = "takes ten minutes: ci/stress"]
fn everything_gets_on_all_the_time() {
    let seconds =
        std::env::var("DAPPLE_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let rt = Runtime::builder().workers(2).stall_after(STALL_AFTER).max_spares(16).build().unwrap();
    let mut stress = Stress::default();
    start(&rt.handle(), &mut stress);
    let threads = start_threads(&rt.handle(), &mut stress);
    let (gap, name) = watch(&rt, &stress, Duration::from_secs(seconds));
    stress.is_over.store(true, Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    let metrics = rt.metrics();
    let rounds: u64 = stress.pulses.iter().map(|pulse| pulse.rounds.load(Relaxed)).sum();
    println!(
        "heartbeat: {rounds} rounds of {} pulses, {} stalls, {} spares sent; longest gap {gap:.0?} ({name})",
        stress.pulses.len(),
        metrics.stalls,
        metrics.spares_sent,
    );
    rt.shutdown(Duration::from_secs(1));
}
