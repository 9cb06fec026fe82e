//! Wakers that panic, in waits for conditions, values and each other: `when`, `MVar`, `Barrier`, `OnceCell`, `mpmc` and
//! `broadcast`. The same table as in `hostile_wakers`.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::hostile_common::Hostile;
use crate::hostile_wakers::{Case, Wait, in_every_way, wakes_its_last_poller};
use dapple::Shared;
use dapple::channel::{broadcast, mpmc};
use dapple::shared::when;
use dapple::sync::{Barrier, MVar, OnceCell};

/// Polls a wait once, with a waker that wakes no one.
fn poll_once(wait: &mut Wait) -> bool {
    wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Waits for a state to be written, of both kinds: those that write and those that only read.
fn watchers() -> Vec<Case> {
    let (state, sum) = (Shared::new(0), Shared::new(0));
    let (waits, total) = (state.clone(), sum.clone());
    let writes = Case::new(
        "when, writing",
        move || {
            let (state, sum) = (waits.clone(), total.clone());
            Box::pin(async move {
                let takes = when((state.writing(), sum.writing()), |(state, sum)| {
                    (*state > 0).then(|| {
                        *state -= 1;
                        *sum += 1;
                    })
                });
                takes.await.is_ok()
            })
        },
        move || state.try_write(|state| *state += 1).unwrap(),
    );
    let state = Shared::new(0);
    let waits = state.clone();
    let reads = Case::new(
        "when, reading",
        move || {
            let state = waits.clone();
            Box::pin(async move { when(state.reading(), |state| (*state > 0).then_some(())).await.is_ok() })
        },
        move || state.try_write(|state| *state += 1).unwrap(),
    );
    vec![writes, reads]
}

/// Each leaves the MVar as it found it, so that both are served.
fn mvars() -> Vec<Case> {
    let place = Arc::new(MVar::empty());
    let fill = place.clone();
    let take = Case::new(
        "MVar take",
        move || {
            let place = place.clone();
            Box::pin(async move { place.take().await.is_ok_and(|value: u32| place.try_put(value).is_ok()) })
        },
        move || drop(fill.try_put(7)),
    );
    let place = Arc::new(MVar::empty());
    let fill = place.clone();
    let read = Case::new(
        "MVar read",
        move || {
            let place = place.clone();
            Box::pin(async move { place.read().await.is_ok_and(|value: u32| value == 7) })
        },
        move || drop(fill.try_put(7)),
    );
    let place = Arc::new(MVar::new(7));
    let clear = place.clone();
    let put = Case::new(
        "MVar put",
        move || {
            let place = place.clone();
            Box::pin(async move { place.put(8).await.is_ok() && place.try_take() == Some(8) })
        },
        move || assert_ne!(clear.try_take(), Some(0)),
    );
    vec![take, read, put]
}

fn rounds_and_turns() -> Vec<Case> {
    let barrier = Arc::new(Barrier::new(3));
    let (others, arrived) = (barrier.clone(), Mutex::new(Vec::new()));
    let arrive = move |barrier: &Arc<Barrier>| -> Wait {
        let barrier = barrier.clone();
        Box::pin(async move { barrier.wait().await.is_ok() })
    };
    let meets = Case::new(
        "Barrier",
        move || arrive(&barrier),
        move || {
            let mut other = arrive(&others);
            if !poll_once(&mut other) {
                arrived.lock().unwrap().push(other); // it counts as long as it waits
            }
        },
    );
    let cell = Arc::new(OnceCell::new());
    let running = cell.clone();
    let mut initialiser: Wait =
        Box::pin(async move { running.get_or_init(std::future::pending).await.is_ok() });
    assert!(!poll_once(&mut initialiser));
    let initialiser = Mutex::new(Some(initialiser));
    let turn = Case::new(
        "OnceCell",
        move || {
            let cell = cell.clone();
            Box::pin(async move { cell.get_or_init(async || 7).await.is_ok_and(|value| *value == 7) })
        },
        move || drop(initialiser.lock().unwrap().take()),
    );
    vec![meets, turn]
}

fn channels() -> Vec<Case> {
    let (sender, receiver) = mpmc::bounded(2);
    let keep = receiver.clone();
    let receives = Case::new(
        "mpmc recv",
        move || {
            let receiver = receiver.clone();
            Box::pin(async move { receiver.recv().await == Ok(7) })
        },
        move || {
            let _open = &keep;
            sender.try_send(7).unwrap();
        },
    );
    let (sender, receiver) = mpmc::bounded(2);
    (0..2).for_each(|_| sender.try_send(0).unwrap());
    let sends = Case::new(
        "mpmc send",
        move || {
            let sender = sender.clone();
            Box::pin(async move { sender.send(1).await.is_ok() })
        },
        move || assert_eq!(receiver.try_recv(), Ok(0)),
    );
    let (sender, receiver) = broadcast::bounded(2);
    let sender = Arc::new(sender);
    let subscribes = sender.clone();
    let hears = Case::new(
        "broadcast",
        move || {
            let mut receiver = subscribes.subscribe();
            Box::pin(async move { receiver.recv().await == Ok(7) })
        },
        move || {
            let _open = &receiver;
            sender.send(7).unwrap();
        },
    );
    vec![receives, sends, hears]
}

fn all_cases() -> Vec<Case> {
    [watchers(), mvars(), rounds_and_turns(), channels()].into_iter().flatten().collect()
}

#[test]
fn waiters_beside_a_hostile_waker_are_served() {
    in_every_way(all_cases);
}

#[test]
fn waiters_wake_their_last_poller() {
    all_cases().iter().for_each(wakes_its_last_poller);
}

#[test]
fn the_waker_of_a_when_is_cloned_woken_and_dropped_outside_of_the_states() {
    let (one, two) = (Shared::new(0), Shared::new(0));
    let hostile = Arc::new(Hostile::default());
    let busy = Arc::new(AtomicUsize::new(0));
    hostile.at_each_call({
        let (one, two, busy) = (one.clone(), two.clone(), busy.clone());
        move || {
            let is_free = one.try_write(|_| ()).is_ok() && two.try_write(|_| ()).is_ok();
            busy.fetch_add(usize::from(!is_free), SeqCst);
        }
    });
    let waker = hostile.waker();
    let mut cx = Context::from_waker(&waker);
    let wait = when((one.writing(), two.reading()), |(one, two)| (*one + *two > 2).then_some(()));
    let mut wait = Box::pin(wait);
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    for number in 1..3 {
        one.try_write(|one| *one = number).unwrap();
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert!(wait.as_mut().poll(&mut cx).is_pending(), "polled without a write");
    }
    two.try_write(|two| *two = 1).unwrap();
    assert_eq!(wait.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
    drop(wait);
    assert!(hostile.calls() > 10, "{}", hostile.calls());
    assert_eq!(busy.load(SeqCst), 0, "of {} calls", hostile.calls());
}
