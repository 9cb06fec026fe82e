//! A service on more and more virtual workers: how long it takes, and how busy they are.

use dapple::Color;
use dapple::channel::mpsc;
use dapple::sim::{self, Sim};
use dapple::time::{Duration, Instant, sleep};

use crate::{join, micros};

const REQUESTS: u64 = 2_000;
const SESSIONS: u64 = 100;

/// Answers all requests. Each is a task; work on a session is done in the session's color, without a lock; some
/// requests wait for a database; finished work is reported to a log, which writes one entry after the other. Returns
/// the total work.
async fn serve() -> Duration {
    let (to_log, mut entries) = mpsc::bounded::<Duration>(256);
    let log = dapple::spawn(async move {
        let mut worked = Duration::ZERO;
        while let Ok(entry) = entries.recv().await {
            sim::work(micros(8));
            worked += entry + micros(8);
        }
        worked
    });
    let requests = (0..REQUESTS).map(|i| {
        let to_log = to_log.clone();
        dapple::spawn(async move {
            let (parse, render) = (micros(50 + i * 7 % 100), micros(100 + i * 31 % 200));
            sim::work(parse);
            let session = Color::keyed(&("session", i * i % SESSIONS));
            session.call(|| sim::work(micros(50))).await.expect("the session goes on");
            if i % 10 == 0 {
                sleep(Duration::from_millis(2)).await.expect("nobody cancels it"); // the database
            }
            sim::work(render);
            to_log.send(parse + micros(50) + render).await.expect("the log listens");
        })
    });
    join(requests.collect::<Vec<_>>()).await;
    drop(to_log);
    log.await.expect("the log ends with the last entry")
}

pub(crate) fn plan() {
    println!("{REQUESTS} requests, {SESSIONS} sessions, one log\n");
    println!("workers     makespan   speed-up   utilisation");
    let mut alone = None;
    for workers in [1, 2, 4, 8, 16, 32, 64] {
        let (worked, took) = Sim::new(1).workers(workers).steady().run(async {
            let begun = Instant::now();
            (serve().await, begun.elapsed())
        });
        let took = took.as_secs_f64();
        let speed_up = *alone.get_or_insert(took) / took;
        let busy = 100.0 * worked.as_secs_f64() / took / workers as f64;
        println!("{workers:7} {:9.1} ms {speed_up:9.1}x {busy:11.0} %", 1e3 * took);
    }
}
