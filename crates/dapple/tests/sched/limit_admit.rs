//! Admission: waiting for room, pausing to accept, the end of a runtime under load, and threads.

use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{in_both_worlds, watched};
use dapple::limit::{Limit, Refuse};
use dapple::net::TcpListener;
use dapple::sim::{self, Sim};
use dapple::task::{Builder, yield_now};
use dapple::time::{sleep, timeout};
use dapple::{Color, Runtime, finish};

const MS: Duration = Duration::from_millis(1);

#[test]
fn waiting_callers_are_admitted_in_the_end() {
    Sim::new(1).workers(3).explore(0..200, || async {
        let limit = Limit::new().concurrency(2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..30)
            .map(|_| {
                // Beside tasks that the same limit holds back.
                let of_limit = Builder::new().limit(limit.clone()).spawn(async { yield_now().await });
                let (limit, running, most) = (limit.clone(), running.clone(), most.clone());
                let waits = async move {
                    let _admitted = limit.admit().await.unwrap();
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    sleep(MS).await.unwrap();
                    running.fetch_sub(1, SeqCst);
                };
                (dapple::spawn(waits), of_limit)
            })
            .collect();
        for (waits, of_limit) in tasks {
            waits.await.unwrap();
            of_limit.await.unwrap();
        }
        assert!(most.load(SeqCst) <= 2);
        assert_eq!(limit.stats().running, 0);
    });
}

#[test]
fn a_cancelled_admit_takes_no_place() {
    Sim::new(1).workers(3).explore(0..200, || async {
        let limit = Limit::new().concurrency(1);
        let first = limit.admit().await.unwrap();
        let admitted = Arc::new(AtomicUsize::new(0));
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let (limit, admitted) = (limit.clone(), admitted.clone());
                dapple::spawn(async move {
                    let got = limit.admit().await;
                    admitted.fetch_add(usize::from(got.is_ok()), SeqCst);
                    sleep(MS * (sim::random() % 2) as u32).await.unwrap_or_default();
                    got.is_ok()
                })
            })
            .collect();
        sleep(MS).await.unwrap();
        waiting[0].cancel();
        waiting[1].abort();
        drop(first);
        let mut got = 0;
        for waiting in waiting {
            got += usize::from(waiting.await.unwrap_or(false));
        }
        assert!((3..=5).contains(&got), "{got}");
        let left = timeout(MS, limit.admit()).await.unwrap().unwrap();
        drop(left);
        // In a cancelled scope there is no admission, even if there is room.
        let late = finish(async |s| {
            s.cancel();
            limit.admit().await.is_err()
        });
        assert!(late.await);
        assert_eq!(limit.stats().running, 0);
    });
}

/// A limit that is closed never has room again: waits learn it, whether they begin before or after.
#[test]
fn waits_for_admission_end_when_the_limit_is_closed() {
    Sim::new(1).workers(3).explore(0..200, || async {
        let limit = Limit::new().concurrency(1);
        let first = limit.admit().await.unwrap();
        let waiting: Vec<_> = (0..5)
            .map(|i| {
                let limit = limit.clone();
                dapple::spawn(async move {
                    sleep(MS * (sim::random() % 3) as u32).await.unwrap();
                    match i % 2 {
                        0 => limit.admit().await.map(drop),
                        _ => limit.room().await,
                    }
                })
            })
            .collect();
        sleep(MS).await.unwrap();
        limit.close();
        for waiting in waiting {
            assert!(waiting.await.unwrap().unwrap_err().is_closed());
        }
        assert_eq!(limit.stats().refused, 5);
        let late = limit.admit().await.unwrap_err();
        assert!(late.is_closed() && !dapple::is_cancelled(&late.into()));
        // A wait that is cancelled says that, as all do.
        let cancelled = finish(async |s| {
            s.cancel();
            limit.admit().await.unwrap_err()
        });
        let cancelled = cancelled.await;
        assert!(cancelled.is_cancelled() && dapple::is_cancelled(&cancelled.into()));
        drop(first);
        limit.drained().await.unwrap();
    });
}

#[test]
fn waiting_for_room_ends_with_the_overload() {
    Sim::new(1).workers(1).explore(0..20, || async {
        let limit = Limit::new().delay(MS, 10 * MS);
        let flood: Vec<_> =
            (0..200).map(|_| Builder::new().limit(limit.clone()).spawn(async { sim::work(MS) })).collect();
        while !limit.is_over() {
            sleep(MS).await.unwrap();
        }
        assert!(!limit.has_room());
        limit.room().await.unwrap(); // by the clock: no event wakes the waiter
        assert!(!limit.is_over() && limit.stats().refused > 0);
        drop(flood);
    });
}

#[test]
fn a_listener_pauses_and_resumes() {
    watched(|| {
        dapple::run(async {
            let limit = Limit::new().concurrency(2);
            let mut listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.set_limit(limit.clone());
            let address = listener.local_addr().unwrap();
            let clients = dapple::blocking(move || {
                let connect = |_| std::net::TcpStream::connect(address).unwrap();
                (0..4).map(connect).collect::<Vec<_>>()
            });
            let mut clients = clients.await.unwrap();
            let mut served = Vec::new();
            for _ in 0..2 {
                let (stream, _) = listener.accept().await.unwrap();
                served.push((stream, limit.try_admit().unwrap()));
            }
            // The third is there, and is not accepted as long as two are served.
            assert!(timeout(20 * MS, listener.accept()).await.is_err());
            served.pop();
            let (mut third, _) = listener.accept().await.unwrap();
            let answered = dapple::blocking(move || {
                clients[2].write_all(b"x").unwrap();
                clients
            });
            let mut byte = [0];
            futures_lite::AsyncReadExt::read_exact(&mut third, &mut byte).await.unwrap();
            assert_eq!(byte, *b"x");
            drop(answered.await.unwrap());
        });
    });
}

#[test]
fn a_closed_limit_closes_its_listener_for_good() {
    watched(|| {
        dapple::run(async {
            let limit = Limit::new();
            let mut listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.set_limit(limit.clone());
            let address = listener.local_addr().unwrap();
            limit.close();
            let client = dapple::blocking(move || std::net::TcpStream::connect(address).unwrap());
            let mut client = client.await.unwrap();
            assert!(timeout(10 * MS, listener.accept()).await.is_err());
            drop(listener); // the kernel closes connections not yet accepted
            let end = dapple::blocking(move || client.read(&mut [0])).await.unwrap();
            assert!(matches!(end, Ok(0)) || end.is_err());
        });
    });
}

#[test]
fn shutdown_refuses_and_reports_tasks_that_have_not_begun() {
    in_both_worlds(50, || {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let limit = Limit::new().concurrency(2);
        let (refused, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let handles: Vec<_> = runtime.block_on(async {
            let handles = (0..10).map(|_| {
                let (refused, ended) = (refused.clone(), ended.clone());
                Builder::new().limit(limit.clone()).or_else(move || _ = refused.fetch_add(1, SeqCst)).spawn(
                    async move {
                        let _ = sleep(Duration::from_secs(3600)).await; // until it is cancelled
                        ended.fetch_add(1, SeqCst);
                    },
                )
            });
            let handles: Vec<_> = handles.collect();
            while limit.stats().running < 2 {
                sleep(MS).await.unwrap();
            }
            handles
        });
        let report = runtime.shutdown(Duration::from_secs(10));
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.refused, refused.load(SeqCst), ended.load(SeqCst)), (8, 8, 2));
        let is_refused = |mut handle: dapple::JoinHandle<()>| {
            let mut context = Context::from_waker(Waker::noop());
            let ended = Pin::new(&mut handle).poll(&mut context);
            matches!(ended, Poll::Ready(Err(error)) if error.is_refused())
        };
        assert_eq!(handles.into_iter().map(is_refused).filter(|is| *is).count(), 8);
        assert_eq!((limit.stats().waiting, limit.stats().running), (0, 0));
    });
}

/// Everything at once, on real threads and on virtual ones: each is begun or refused, once, and counts end at zero.
#[test]
fn no_task_is_lost_or_counted_twice() {
    in_both_worlds(30, || {
        let runtime = Runtime::builder().workers(3).build().unwrap();
        let bounds = [
            Limit::new().depth(20),
            Limit::new().depth(20).refusing(Refuse::Newest),
            Limit::new().concurrency(3),
            Limit::new().concurrency(2).depth(5),
            Limit::new().concurrency(2).depth(5).refusing(Refuse::Newest),
            Limit::new().delay(MS, 2 * MS).depth(50),
        ];
        for limit in bounds {
            let (begun, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let counts = (begun.clone(), dropped.clone());
            let of_all = limit.clone();
            runtime.block_on(async move {
                let colors: Vec<_> = (0..5).map(|_| Color::new()).collect();
                colors.iter().for_each(|color| color.set_limit(of_all.clone()));
                let spawners = (0..4).map(|spawner| {
                    let (colors, counts) = (colors.clone(), counts.clone());
                    dapple::spawn(async move {
                        let mut handles = Vec::new();
                        for number in 0..100_usize {
                            let (begun, dropped) = counts.clone();
                            let task = Builder::new()
                                .color(&colors[(number * 7 + spawner) % colors.len()])
                                .or_else(move || _ = dropped.fetch_add(1, SeqCst))
                                .spawn(async move {
                                    begun.fetch_add(1, SeqCst);
                                    match number % 5 {
                                        0 => yield_now().await,
                                        1 => panic!("on purpose"),
                                        2 => sleep(MS / 10).await.unwrap_or_default(),
                                        _ => {}
                                    }
                                });
                            match number % 11 {
                                0 => task.abort(),
                                1 => task.cancel(),
                                _ => {}
                            }
                            handles.push(task);
                            if number % 16 == 0 {
                                yield_now().await;
                            }
                        }
                        for handle in handles {
                            let _ = handle.await;
                        }
                    })
                });
                for spawner in spawners.collect::<Vec<_>>() {
                    spawner.await.unwrap();
                }
            });
            assert_eq!(begun.load(SeqCst) + dropped.load(SeqCst), 400, "{limit:?}");
            crate::common::eventually("all have left", || {
                let counts = limit.stats();
                (counts.waiting, counts.running) == (0, 0)
            });
        }
        assert!(runtime.shutdown(Duration::from_secs(10)).is_clean());
    });
}
