//! Callbacks for signals. Signals are the whole process's: the tests take turns.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::{Drops, Event, runtime, watched};
use crate::turn;
use dapple::Color;
use dapple::event::{self, Callback};
use dapple::signal::{Signal, SignalKind, signal};
use rustix::process::{getpid, kill_process};

/// Sends a signal, and waits until it was delivered.
async fn send(watcher: &mut Signal) {
    let signal =
        rustix::process::Signal::from_named_raw(watcher.kind().as_raw()).expect("a signal with a name");
    kill_process(getpid(), signal).unwrap();
    watcher.recv().await.unwrap();
}

#[test]
fn called_once_for_each_signal_until_withdrawn() {
    watched(|| {
        let _turn = turn();
        runtime(2).block_on(async {
            let kind = SignalKind::user_defined1();
            let mut watcher = signal(kind).unwrap();
            let (calls, drops) = (Arc::new(AtomicUsize::new(0)), Drops::default());
            for color in [Color::main(), Color::new()] {
                let before = calls.load(SeqCst);
                let (done, count, guard) = (Event::default(), calls.clone(), drops.guard());
                let set = done.clone();
                let callback = move || {
                    let _owned = &guard;
                    if count.fetch_add(1, SeqCst) + 1 == before + 5 {
                        set.set();
                    }
                };
                let listening = event::signal(kind, Callback::new(callback).color(&color)).unwrap();
                for _ in 0..5 {
                    send(&mut watcher).await;
                }
                done.happened().await;
                listening.withdraw().await.unwrap();
                send(&mut watcher).await;
                assert_eq!(calls.load(SeqCst), before + 5);
            }
            assert_eq!(drops.count(), 2);
        });
    });
}

#[test]
fn a_callback_may_end_by_itself() {
    watched(|| {
        let _turn = turn();
        dapple::run(async {
            let kind = SignalKind::user_defined2();
            let mut watcher = signal(kind).unwrap();
            let first = dapple::suspend(|resume| {
                let mut resume = Some(resume);
                let callback = Callback::local(move || {
                    resume.take().unwrap().resume(()).unwrap();
                    ControlFlow::Break(())
                });
                let listening = event::signal(kind, callback).unwrap();
                || drop(listening)
            });
            let (sent, first) = (send(&mut watcher), first);
            let mut first = std::pin::pin!(first);
            assert!(futures_lite::future::poll_once(&mut first).await.is_none());
            sent.await;
            first.await.unwrap();
            send(&mut watcher).await; // no callback is called
        });
    });
}

#[test]
fn what_cannot_be_listened_to_is_an_error() {
    watched(|| {
        let _turn = turn(); // it opens files, which another test counts
        dapple::run(async {
            let error = event::signal(SignalKind::from_raw(9), Callback::new(|| unreachable!())).unwrap_err();
            assert!(error.to_string().contains("cannot listen to signal 9"), "{error}");
        });
    });
}
