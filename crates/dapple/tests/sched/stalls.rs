//! Workers that are stuck in a runnable, on real threads: sleeping in the kernel, spinning, waiting for a lock of the
//! standard library. The rest of their work goes on: tasks, timers, sockets, the main color.
//!
//! The work that must go on either ends the stall or is counted while the stall lasts. So a test fails by the
//! watchdog's limit, and asserts no time.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::common::{eventually, watched};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::{TcpListener, TcpStream};
use dapple::time::sleep;
use dapple::{Color, Runtime};

/// A function that keeps its thread until the flag is set.
type Hold = fn(&AtomicBool);

const HOLDS: [Hold; 2] = [
    |stop| {
        while !stop.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
    },
    |stop| {
        while !stop.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    },
];

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// Runs `meanwhile` on a runtime all of whose workers are stuck, for each way of that; they are let go when it
/// returns.
fn while_all_are_stuck(meanwhile: fn(&Runtime)) {
    watched(move || {
        for workers in [1, 2] {
            for hold in HOLDS {
                let rt = runtime(workers);
                let (stop, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
                let stuck: Vec<_> = (0..workers)
                    .map(|_| {
                        let (stop, held) = (stop.clone(), held.clone());
                        rt.spawn(async move {
                            held.fetch_add(1, Ordering::AcqRel);
                            hold(&stop);
                        })
                    })
                    .collect();
                eventually("all workers are stuck", || held.load(Ordering::Acquire) == workers);
                meanwhile(&rt);
                stop.store(true, Ordering::Release);
                for stuck in stuck {
                    rt.block_on(stuck).unwrap();
                }
                eventually("those who stood in rest", || rt.metrics().spares_running == 0);
                assert!(rt.metrics().spares_sent >= 1, "{:?}", rt.metrics());
            }
        }
    });
}

#[test]
fn tasks_from_outside_and_their_tasks_run() {
    while_all_are_stuck(|rt| {
        let sum = rt.spawn(async {
            let tasks: Vec<_> = (0..100).map(|i| dapple::spawn(async move { i })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(rt.block_on(sum).unwrap(), 4950);
    });
}

#[test]
fn timers_fire() {
    while_all_are_stuck(|rt| {
        let slept = rt.spawn(async {
            for _ in 0..10 {
                sleep(Duration::from_millis(1)).await.unwrap();
            }
        });
        rt.block_on(slept).unwrap();
    });
}

#[test]
fn connections_are_accepted_and_served() {
    while_all_are_stuck(|rt| {
        let (tell, address) = mpsc::channel();
        let server = rt.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            for _ in 0..3 {
                let (stream, _) = listener.accept().await.unwrap();
                dapple::spawn(echo(stream)).detach();
            }
        });
        let address = address.recv().unwrap();
        for _ in 0..3 {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            let mut back = [0; 4];
            for _ in 0..3 {
                stream.write_all(b"ping").unwrap();
                stream.read_exact(&mut back).unwrap();
                assert_eq!(&back, b"ping");
            }
        }
        rt.block_on(server).unwrap();
    });
}

#[test]
fn files_are_read() {
    while_all_are_stuck(|rt| {
        let read = rt.spawn(async {
            for _ in 0..10 {
                assert!(!dapple::fs::read(file!().replace("crates/dapple/", "")).await.unwrap().is_empty());
            }
        });
        rt.block_on(read).unwrap();
    });
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 64];
    while let Ok(len @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..len]).await.is_err() {
            break;
        }
    }
}

/// Registered before it was stuck, with the drivers of the workers that are.
#[test]
fn tasks_queued_at_a_worker_run_while_it_is_stuck() {
    watched(|| {
        for workers in [1, 2] {
            let rt = runtime(workers);
            let (tell, address) = mpsc::channel();
            let server = rt.spawn(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let (stream, _) = listener.accept().await.unwrap();
                echo(stream).await;
            });
            let mut stream = std::net::TcpStream::connect(address.recv().unwrap()).unwrap();
            let mut ping = || {
                let mut back = [0; 4];
                stream.write_all(b"ping").unwrap();
                stream.read_exact(&mut back).unwrap();
            };
            ping();
            let beats = Arc::new(AtomicUsize::new(0));
            let beat = rt.spawn({
                let beats = beats.clone();
                async move {
                    while sleep(Duration::from_millis(1)).await.is_ok() {
                        beats.fetch_add(1, Ordering::AcqRel);
                    }
                }
            });
            let stop = Arc::new(AtomicBool::new(false));
            let stuck: Vec<_> = (0..workers).map(|_| rt.spawn(hold(HOLDS[0], stop.clone()))).collect();
            let before = beats.load(Ordering::Acquire);
            for _ in 0..20 {
                ping();
            }
            eventually("timers fire", || beats.load(Ordering::Acquire) > before + 20);
            stop.store(true, Ordering::Release);
            for stuck in stuck {
                rt.block_on(stuck).unwrap();
            }
            beat.cancel();
            rt.block_on(beat).unwrap();
            drop(stream);
            rt.block_on(server).unwrap();
        }
    });
}

async fn hold(how: Hold, stop: Arc<AtomicBool>) {
    how(&stop);
}

/// Deadlock unless a spare stands in: the holder of the lock needs a worker to release it, and all workers wait for it.
#[test]
fn a_lock_of_the_standard_library_that_a_task_gives_back_is_not_waited_for_in_vain() {
    watched(|| {
        for workers in [1, 2] {
            let rt = runtime(workers);
            let lock = Arc::new(Mutex::new(0));
            let (has_it, has) = mpsc::channel();
            let (wanted, waiting) = (Arc::new(AtomicUsize::new(0)), 2 * workers);
            let holder = rt.handle().blocking({
                let (rt, lock, wanted) = (rt.handle(), lock.clone(), wanted.clone());
                move || {
                    let mut guard = lock.lock().unwrap();
                    has_it.send(()).unwrap();
                    eventually("all workers wait", || wanted.load(Ordering::Acquire) >= waiting / 2);
                    // All workers are blocked: without a spare, this task would never run.
                    *guard = rt.block_on(rt.spawn(async { 7 })).unwrap();
                }
            });
            has.recv().unwrap();
            let waiting: Vec<_> = (0..waiting)
                .map(|_| {
                    let (lock, wanted) = (lock.clone(), wanted.clone());
                    rt.spawn(async move {
                        wanted.fetch_add(1, Ordering::AcqRel);
                        *lock.lock().unwrap()
                    })
                })
                .collect();
            rt.block_on(holder).unwrap();
            for waits in waiting {
                assert_eq!(rt.block_on(waits).unwrap(), 7);
            }
        }
    });
}

#[test]
fn a_stuck_main_color_holds_up_no_other_color() {
    watched(|| {
        for how in HOLDS {
            dapple::run(async move {
                let stop = Arc::new(AtomicBool::new(false));
                let others: Vec<_> = (0..20)
                    .map(|_| {
                        dapple::spawn(async {
                            sleep(Duration::from_millis(2)).await.unwrap();
                            dapple::task::yield_now().await;
                        })
                    })
                    .collect();
                let last = dapple::spawn({
                    let stop = stop.clone();
                    async move {
                        for other in others {
                            other.await.unwrap();
                        }
                        stop.store(true, Ordering::Release); // nothing else lets the main color go
                    }
                });
                how(&stop);
                last.await.unwrap();
            });
        }
    });
}

#[test]
fn the_stuck_color_keeps_its_turn() {
    while_all_are_stuck(|rt| {
        let color = rt.handle().color();
        let (order, busy) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let calls: Vec<_> = (0..10)
            .map(|i| {
                let (order, busy) = (order.clone(), busy.clone());
                color.call(move || {
                    assert!(!busy.swap(true, Ordering::AcqRel), "two of a color at a time");
                    if i % 4 == 0 {
                        std::thread::sleep(Duration::from_millis(25));
                    }
                    order.lock().unwrap().push(i);
                    busy.store(false, Ordering::Release);
                })
            })
            .collect();
        for call in calls {
            rt.block_on(call).unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
        drop::<Color>(color);
    });
}

#[test]
fn shutdown_names_the_task_of_a_stuck_worker() {
    watched(|| {
        let rt = runtime(1);
        let stop = Arc::new(AtomicBool::new(false));
        let stuck = rt.spawn(hold(HOLDS[0], stop.clone()));
        eventually("somebody stands in", || rt.metrics().spares_running == 1);
        let ended = rt.spawn(async { while sleep(Duration::from_secs(1)).await.is_ok() {} });
        let report = rt.shutdown(Duration::from_millis(100));
        assert_eq!(report.still_running.len(), 1, "{report}");
        assert!(report.to_string().contains("hold"), "{report}");
        stop.store(true, Ordering::Release);
        crate::common::foreign_block_on(stuck).unwrap();
        crate::common::foreign_block_on(ended).unwrap();
    });
}

#[test]
fn invalid_settings_are_refused_and_extreme_settings_work() {
    let refused = |builder: dapple::runtime::Builder, why: &str| {
        let error = builder.build().expect_err(why);
        assert!(
            error.kind() == std::io::ErrorKind::InvalidInput && error.to_string().contains(why),
            "{error}"
        );
    };
    refused(Runtime::builder().stall_after(Duration::ZERO), "max_spares(0)");
    refused(Runtime::builder().max_spares(usize::MAX), "at most 16384");
    watched(|| {
        for stall_after in [Duration::from_nanos(1), Duration::MAX] {
            let rt = Runtime::builder().workers(1).max_spares(1).stall_after(stall_after).build().unwrap();
            let stuck = rt.spawn(async { std::thread::sleep(Duration::from_millis(30)) });
            let other = rt.spawn(async { 5 });
            rt.block_on(stuck).unwrap();
            assert_eq!(rt.block_on(other).unwrap(), 5);
            assert!(stall_after != Duration::MAX || rt.metrics().stalls == 0);
        }
    });
}

/// Nothing in the process wakes up while nothing is to be done.
#[test]
fn resting_spares_are_not_woken() {
    watched(|| {
        let rt = Runtime::builder().workers(2).thread_name("calm").build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stuck: Vec<_> = (0..3).map(|_| rt.spawn(hold(HOLDS[0], stop.clone()))).collect();
        eventually("somebody stands in", || rt.metrics().spares_running >= 2);
        stop.store(true, Ordering::Release);
        for stuck in stuck {
            rt.block_on(stuck).unwrap();
        }
        eventually("all rest", || rt.metrics().spares_running == 0 && rt.metrics().sleeping == 2);
        let switches = || -> Vec<String> {
            let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
            let ours = threads.filter(|path| {
                std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("calm"))
            });
            let status = ours.filter_map(|path| std::fs::read_to_string(path.join("status")).ok());
            status
                .flat_map(|text| {
                    text.lines().filter(|line| line.contains("ctxt")).map(str::to_owned).collect::<Vec<_>>()
                })
                .collect()
        };
        eventually("nothing wakes up any more", || {
            let before = switches();
            std::thread::sleep(Duration::from_millis(100));
            before.len() >= 8 && switches() == before
        });
    });
}
