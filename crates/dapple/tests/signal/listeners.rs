//! Signals: several listeners, none lost, storms, and signals that are refused.
//!
//! Signals are the whole process's: the tests take turns, and each uses `SIGUSR1` or `SIGUSR2` unless it
//! says why not.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::{Event, runtime, watched};
use crate::io_common::poll_times;
use crate::turn;
use dapple::signal::{Signal, SignalKind, ctrl_c, shutdown, signal};
use futures_lite::StreamExt;
use rustix::process::{getpid, kill_process};

fn send(number: i32) {
    let signal = rustix::process::Signal::from_named_raw(number).expect("a signal with a name");
    kill_process(getpid(), signal).unwrap();
}

fn listen(kind: SignalKind) -> Signal {
    signal(kind).unwrap()
}

/// A signal to the process may be handled on any thread, a little later. Waits for it.
async fn sent_and_seen(watcher: &mut Signal) {
    send(watcher.kind().as_raw());
    watcher.recv().await.unwrap();
}

#[test]
fn each_listener_sees_each_signal() {
    watched(|| {
        let _turn = turn();
        runtime(2).block_on(async {
            let usr1 = SignalKind::user_defined1();
            let mut first = listen(usr1);
            let mut listeners: Vec<_> = (0..5).map(|_| listen(usr1)).collect();
            let mut other = listen(SignalKind::user_defined2());
            for _ in 0..3 {
                sent_and_seen(&mut first).await;
            }
            for listener in &mut listeners {
                for _ in 0..3 {
                    listener.recv().await.unwrap();
                }
            }
            let mut late = listen(usr1);
            assert!(poll_times(1, late.recv()).await.is_none(), "made after them");
            assert!(poll_times(1, other.recv()).await.is_none(), "of another kind");
            sent_and_seen(&mut first).await;
            late.recv().await.unwrap();
        });
    });
}

#[test]
fn a_storm_is_counted() {
    watched(|| {
        let _turn = turn();
        let rt = runtime(2);
        const EACH: u64 = 10_000;
        const THREADS: u64 = 4;
        let mut by_one = listen(SignalKind::user_defined2());
        let mut by_many = listen(SignalKind::user_defined2());
        let mut idle = listen(SignalKind::user_defined2());
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                thread::spawn(|| {
                    for _ in 0..EACH {
                        raise_here();
                    }
                })
            })
            .collect();
        rt.block_on(async {
            for _ in 0..EACH * THREADS {
                by_one.recv().await.unwrap();
            }
            let mut count = 0;
            while count < EACH * THREADS {
                count += by_many.recv_many().await.unwrap();
            }
            assert_eq!(count, EACH * THREADS);
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(rt.block_on(idle.recv_many()).unwrap(), EACH * THREADS, "also if nobody looked");
        assert!(rt.block_on(poll_times(1, by_one.recv())).is_none(), "and none twice");
    });
}

/// Sends `SIGUSR2` to this thread alone. It has been handled when this returns, so that none is merged.
#[expect(unsafe_code, reason = "there is no safe function for it")]
fn raise_here() {
    // SAFETY: it takes a number, and the signal has a handler.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
}

#[test]
fn a_storm_that_the_kernel_merges_ends_in_a_signal() {
    watched(|| {
        let _turn = turn();
        let rt = runtime(2);
        let mut listener = listen(SignalKind::user_defined1());
        for round in 0..5 {
            let threads: Vec<_> =
                (0..4).map(|_| thread::spawn(|| (0..2_500).for_each(|_| send(libc::SIGUSR1)))).collect();
            let mut count = rt.block_on(listener.recv_many()).unwrap();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // The last one is delivered after the last was sent, whatever became of the others.
            count += rt.block_on(async {
                let mut last = listen(SignalKind::user_defined2());
                sent_and_seen(&mut last).await;
                poll_times(1, listener.recv_many()).await.map_or(0, Result::unwrap)
            });
            assert!((1..=10_000).contains(&count), "round {round}: {count}");
        }
    });
}

static OWN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn own_handler(_: i32) {
    OWN.fetch_add(1, Ordering::SeqCst);
}

#[test]
#[expect(unsafe_code, reason = "installs a handler, as a program might")]
fn a_handler_of_the_programs_own_is_still_called() {
    watched(|| {
        let _turn = turn();
        let handler = own_handler as extern "C" fn(i32);
        // SAFETY: the handler adds to an atomic, and no more. `SIGHUP` is used by no other test.
        let old = unsafe { libc::signal(libc::SIGHUP, handler as libc::sighandler_t) };
        assert_ne!(old, libc::SIG_ERR);
        runtime(1).block_on(async {
            let mut listener = listen(SignalKind::hangup());
            sent_and_seen(&mut listener).await;
        });
        crate::common::eventually("our own was called", || OWN.load(Ordering::SeqCst) == 1);
    });
}

#[test]
#[expect(unsafe_code, reason = "does something in a child that is not another program yet")]
fn a_signal_to_a_child_that_was_just_started_is_not_ours() {
    watched(|| {
        let _turn = turn();
        runtime(1).block_on(async {
            let mut listener = listen(SignalKind::user_defined2());
            let mut command = dapple::process::Command::new("true");
            let raise = || {
                raise_here();
                Ok(())
            };
            // SAFETY: it raises a signal, whose handler makes two system calls.
            unsafe { command.pre_exec(raise) };
            assert!(command.status().await.unwrap().success());
            assert!(poll_times(1, listener.recv()).await.is_none());
            sent_and_seen(&mut listener).await;
            assert!(poll_times(1, listener.recv()).await.is_none());
        });
    });
}

#[test]
fn a_wait_that_is_cancelled_loses_no_signal() {
    watched(|| {
        let _turn = turn();
        let rt = runtime(2);
        let begun = Event::default();
        let mut watcher = listen(SignalKind::user_defined1());
        let listener = listen(SignalKind::user_defined1());
        let task = rt.spawn({
            let (mut listener, begun) = (listener, begun.clone());
            async move {
                assert!(poll_times(1, listener.recv()).await.is_none());
                begun.set();
                let cancelled = listener.recv().await.unwrap_err();
                assert!(dapple::is_cancelled(&cancelled));
                listener
            }
        });
        begun.wait();
        task.cancel();
        let mut listener = rt.block_on(task).unwrap();
        rt.block_on(sent_and_seen(&mut watcher));
        rt.block_on(sent_and_seen(&mut watcher));

        // Begun in a cancelled task, it takes nothing.
        let gate = Event::default();
        let task = rt.spawn({
            let gate = gate.clone();
            async move {
                dapple::shield(gate.happened()).await;
                assert!(dapple::is_cancelled(&listener.recv().await.unwrap_err()));
                assert!(dapple::is_cancelled(&listener.next().await.unwrap().unwrap_err()));
                listener
            }
        });
        task.cancel();
        gate.set();
        let mut listener = rt.block_on(task).unwrap();
        assert_eq!(rt.block_on(listener.recv_many()).unwrap(), 2);
    });
}

#[test]
fn what_cannot_be_listened_to_is_refused() {
    let _turn = turn();
    for number in [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV] {
        let error = signal(SignalKind::from_raw(number)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with(&format!("cannot listen to signal {number}: ")), "{error}");
    }
    for number in [-1, 0, 1000] {
        let error = signal(SignalKind::from_raw(number)).unwrap_err();
        assert!(error.to_string().contains(&number.to_string()), "{error}");
    }
}

#[test]
fn a_listener_that_is_dropped_leaves_nothing_behind() {
    watched(|| {
        let _turn = turn();
        runtime(1).block_on(async {
            let mut first = listen(SignalKind::user_defined1());
            let before = open_files();
            for _ in 0..500 {
                let mut listener = listen(SignalKind::user_defined1());
                assert!(poll_times(1, listener.recv()).await.is_none());
            }
            assert!(open_files() <= before, "no file descriptor is left");
            sent_and_seen(&mut first).await;
            drop(first);
            send(SignalKind::user_defined1().as_raw()); // and the program lives on
        });
    });
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn ctrl_c_reaches_every_earlier_listener() {
    watched(|| {
        let _turn = turn();
        runtime(1).block_on(async {
            let (first, second) = (ctrl_c(), ctrl_c());
            send(SignalKind::interrupt().as_raw()); // this program is not ended by it
            first.await.unwrap();
            second.await.unwrap();
        });
    });
}

#[test]
fn shutdown_hears_both_signals_and_says_which() {
    watched(|| {
        let _turn = turn();
        runtime(1).block_on(async {
            for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
                let (first, second) = (shutdown(), shutdown());
                send(kind.as_raw()); // this program is not ended by it
                assert_eq!(first.await.unwrap(), kind);
                assert_eq!(second.await.unwrap(), kind);
            }
        });
    });
}

#[test]
fn a_cancelled_wait_for_shutdown_returns_an_error() {
    watched(|| {
        let _turn = turn();
        runtime(1).block_on(async {
            let task = dapple::spawn(shutdown());
            dapple::task::yield_now().await;
            task.cancel();
            assert!(dapple::is_cancelled(&task.await.unwrap().unwrap_err()));
        });
    });
}

#[test]
fn shutdown_in_a_simulation_is_refused() {
    let error = dapple::sim::Sim::new(1).run(async { shutdown().await.unwrap_err() });
    assert!(error.to_string().contains("signal::shutdown"), "{error}");
}
