//! The same programs on two real workers and on two virtual ones.
//!
//! On a quiet machine the times agree within a few percent. A steady simulation does not count the rest: the system
//! calls by which `sim::work` asks for its CPU time, polls, and the time to wake a thread.

use std::pin::Pin;

use dapple::sim::{self, Sim};
use dapple::time::{Duration, Instant, sleep};
use dapple::{Color, Runtime};

use crate::{join, micros};

type Program = fn() -> Pin<Box<dyn Future<Output = ()> + Send>>;

async fn independent() {
    let tasks =
        (0..200_u64).map(|i| dapple::spawn(async move { sim::work(micros(100 + i * i * 37 % 1_400)) }));
    join(tasks.collect::<Vec<_>>()).await;
}

async fn pipeline() {
    let stages = [(Color::new(), 200), (Color::new(), 150), (Color::new(), 250)];
    let items = (0..300).map(|_| {
        let stages = stages.clone();
        dapple::spawn(async move {
            for (color, takes) in stages {
                color.call(move || sim::work(micros(takes))).await.expect("the stage goes on");
            }
        })
    });
    join(items.collect::<Vec<_>>()).await;
}

async fn long_and_short() {
    let takes = (0..2_000).map(|i| if i % 500 == 250 { 20_000 } else { 50 });
    join(takes.map(|takes| dapple::spawn(async move { sim::work(micros(takes)) })).collect::<Vec<_>>()).await;
}

fn fan_out(depth: u32) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        sim::work(micros(150));
        if depth > 0 {
            join([dapple::spawn(fan_out(depth - 1)), dapple::spawn(fan_out(depth - 1))]).await;
        }
        sim::work(micros(50));
    })
}

async fn sleeps_between() {
    let tasks = (0..40_u64).map(|i| {
        dapple::spawn(async move {
            for j in 0..20 {
                sim::work(micros(50 + (i * 13 + j * 7) % 100));
                sleep(micros(1_000 + (i * 29 + j * 17) % 2_000)).await.expect("nobody cancels it");
            }
        })
    });
    join(tasks.collect::<Vec<_>>()).await;
}

const PROGRAMS: [(&str, Program); 5] = [
    ("independent tasks", || Box::pin(independent())),
    ("three colors in a row", || Box::pin(pipeline())),
    ("few long, many short", || Box::pin(long_and_short())),
    ("fan out, then join", || fan_out(8)),
    ("sleeps in between", || Box::pin(sleeps_between())),
];

/// How long a program takes, by the clock of the world that it is in.
async fn timed(program: Program) -> Duration {
    let begun = Instant::now();
    program().await;
    begun.elapsed()
}

fn real(program: Program) -> std::io::Result<Duration> {
    let runtime = Runtime::builder().workers(2).build()?;
    Ok(runtime.block_on(async { dapple::spawn(timed(program)).await.expect("it does not panic") }))
}

fn simulated(program: Program, seed: u64) -> Duration {
    let sim = Sim::new(seed).workers(2).steady();
    sim.run(async move { dapple::spawn(timed(program)).await.expect("it does not panic") })
}

pub(crate) fn compare() -> std::io::Result<()> {
    const ROUNDS: usize = 5;
    let mut took = [const { [Vec::new(), Vec::new()] }; PROGRAMS.len()];
    for round in 0..ROUNDS {
        for ((_, program), [reals, virtuals]) in PROGRAMS.iter().zip(&mut took) {
            reals.push(real(*program)?);
            virtuals.push(simulated(*program, round as u64));
        }
    }
    println!("median of {ROUNDS} rounds   2 real workers   2 virtual ones   ratio");
    for ((name, _), times) in PROGRAMS.iter().zip(took) {
        let [real, virtual_] = times.map(|mut times| {
            times.sort();
            1e3 * times[ROUNDS / 2].as_secs_f64()
        });
        println!("{name:22} {real:13.1} ms {virtual_:13.1} ms {:7.3}", real / virtual_);
    }
    Ok(())
}
