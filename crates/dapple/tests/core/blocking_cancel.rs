//! A cancelled wait for a blocking call returns at once; the call goes on, and can be waited for again.

use std::sync::mpsc::{Receiver, Sender, channel};

use dapple::time::{Duration, sleep, timeout};
use dapple::{JoinHandle, Runtime, blocking, finish, race, shield, spawn};

const MS: Duration = Duration::from_millis(1);

fn runtime() -> Runtime {
    Runtime::builder().workers(2).max_blocking_threads(1).build().expect("a runtime")
}

/// A blocking call that has begun. It returns the first value that is sent to it.
fn begun() -> (JoinHandle<u8>, Sender<u8>) {
    let (begins, has_begun) = channel();
    let (sender, receiver): (_, Receiver<u8>) = channel();
    let handle = blocking(move || {
        begins.send(()).unwrap();
        receiver.recv().unwrap()
    });
    has_begun.recv().expect("it begins");
    (handle, sender)
}

#[test]
fn a_timeout_does_not_wait_for_a_call() {
    runtime().block_on(async {
        let (mut call, sender) = begun();
        let late = timeout(MS, &mut call).await.expect_err("the call has not returned");
        let joined = late.into_inner().expect("the wait has answered");
        assert!(joined.unwrap_err().is_cancelled());
        sender.send(7).unwrap();
        assert_eq!(call.await.unwrap(), 7, "it went on");
    });
}

#[test]
fn a_race_does_not_wait_for_a_call() {
    runtime().block_on(async {
        let (mut call, sender) = begun();
        for _ in 0..3 {
            let raced = race((async { (&mut call).await.ok() }, async {
                sleep(MS).await.unwrap();
                None
            }));
            assert_eq!(raced.await, None);
        }
        sender.send(7).unwrap();
        assert_eq!(call.await.unwrap(), 7, "it went on");
    });
}

#[test]
fn cancelled_tasks_and_scopes_do_not_wait_for_a_call() {
    runtime().block_on(async {
        let (call, sender) = begun();
        let task = spawn(async { call.await.map_err(|error| error.is_cancelled()) });
        sleep(MS).await.unwrap();
        task.cancel();
        assert_eq!(task.await.unwrap(), Err(true));
        sender.send(1).unwrap();
        let (mut call, sender) = begun();
        finish(async |s| {
            let waits = s.start(async { (&mut call).await.map_err(|error| error.is_cancelled()) });
            s.cancel();
            assert_eq!(waits.await, Err(true));
        })
        .await;
        sender.send(7).unwrap();
        assert_eq!(call.await.unwrap(), 7, "it went on");
    });
}

#[test]
fn a_call_in_a_shield_is_waited_for() {
    runtime().block_on(async {
        let (call, sender) = begun();
        let task = spawn(shield(call));
        sleep(MS).await.unwrap();
        task.cancel();
        sleep(MS).await.unwrap();
        assert!(!task.is_finished());
        sender.send(7).unwrap();
        assert_eq!(task.await.unwrap().unwrap(), 7);
    });
}

/// A cancelled call that has not begun never begins: waiting for it returns a cancellation error.
#[test]
fn a_call_in_line_is_withdrawn() {
    runtime().block_on(async {
        let (first, sender) = begun();
        let mut second = blocking(|| 2);
        let late = timeout(MS, &mut second).await.expect_err("the only thread is busy");
        assert!(late.into_inner().expect("the wait has answered").unwrap_err().is_cancelled());
        sender.send(1).unwrap();
        assert_eq!(first.await.unwrap(), 1);
        assert!(second.await.unwrap_err().is_aborted());
    });
}
