//! `when`: which waiter's closure runs at which time, and which waiters a write wakes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple::shared::when;
use dapple::task::yield_now;
use dapple::time::{sleep, timeout};
use dapple::{Cancelled, JoinHandle, Shared, finish, spawn, together};

const MS: Duration = Duration::from_millis(1);

/// Lets all that is ready run.
async fn settle() {
    sleep(MS / 10).await.unwrap();
}

/// Polls a future once, with a waker that wakes no one.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Takes `amount` as soon as there is as much; writes its name to the log then. Counts its looks.
fn taker(
    state: &Shared<usize>,
    amount: usize,
    name: &'static str,
    log: &Shared<Vec<&'static str>>,
    looks: &Arc<AtomicUsize>,
) -> JoinHandle<Result<(), Cancelled>> {
    let (state, log, looks) = (state.clone(), log.clone(), looks.clone());
    spawn(async move {
        state
            .when(|value: &mut usize| {
                looks.fetch_add(1, Relaxed);
                (*value >= amount).then(|| *value -= amount)
            })
            .await?;
        log.write(|log| log.push(name)).await
    })
}

#[dapple::test(sim, seeds = 20)]
async fn the_closure_runs_at_first_and_again_only_after_a_write() {
    let (a, b, looks) = (Shared::new(0), Shared::new(0), Arc::new(AtomicUsize::new(0)));
    let task = spawn({
        let (a, b, looks) = (a.clone(), b.clone(), looks.clone());
        async move {
            when((a.writing(), b.reading()), |(a, b)| {
                looks.fetch_add(1, Relaxed);
                (*a + *b == 3).then_some((*a, *b))
            })
            .await
        }
    });
    settle().await;
    assert_eq!(looks.load(Relaxed), 1);
    a.read(|_| ()).await.unwrap();
    together((a.reading(), b.reading()), |_| ()).await.unwrap();
    settle().await;
    assert_eq!(looks.load(Relaxed), 1, "to read is not to write");
    a.write(|a| *a = 1).await.unwrap();
    settle().await;
    assert_eq!(looks.load(Relaxed), 2);
    together((a.reading(), b.writing()), |(_, b)| *b = 1).await.unwrap();
    settle().await;
    assert_eq!(looks.load(Relaxed), 3, "also after a write by `together`");
    b.try_write(|b| *b = 2).unwrap();
    assert_eq!(task.await.unwrap(), Ok((1, 2)));
    assert_eq!(looks.load(Relaxed), 4);
}

#[dapple::test(sim, seeds = 20)]
async fn a_poll_without_a_write_does_not_call_the_closure() {
    let (state, looks) = (Shared::new(0), AtomicUsize::new(0));
    let mut waits = state.when(|value: &mut i32| {
        looks.fetch_add(1, Relaxed);
        (*value == 1).then_some(())
    });
    for _ in 0..5 {
        assert!(poll_once(&mut waits).is_pending());
    }
    assert_eq!(looks.load(Relaxed), 1);
    state.write(|value| *value = 1).await.unwrap();
    assert_eq!(poll_once(&mut waits), Poll::Ready(Ok(())));
    assert_eq!(looks.load(Relaxed), 2);
}

#[dapple::test(sim, seeds = 20)]
async fn writers_are_woken_one_at_a_time_in_order() {
    let (state, log, looks) = (Shared::new(0), Shared::new(Vec::new()), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for name in ["first", "second", "third"] {
        tasks.push(taker(&state, 1, name, &log, &looks));
        settle().await;
    }
    assert_eq!(looks.swap(0, Relaxed), 3);
    state.write(|value| *value = 1).await.unwrap();
    settle().await;
    assert_eq!(log.read(Clone::clone).await.unwrap(), ["first"]);
    // The first took it, which is a write: the others have looked once each, in vain.
    assert_eq!(looks.swap(0, Relaxed), 3);
    state.write(|value| *value = 2).await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(log.read(Clone::clone).await.unwrap(), ["first", "second", "third"]);
}

#[dapple::test(sim, seeds = 20)]
async fn one_whose_condition_fails_passes_the_wake_up_on() {
    let (state, log, looks) = (Shared::new(0), Shared::new(Vec::new()), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for (amount, name) in [(5, "five"), (4, "four"), (1, "one")] {
        tasks.push(taker(&state, amount, name, &log, &looks));
        settle().await;
    }
    state.write(|value| *value = 1).await.unwrap();
    settle().await;
    assert_eq!(log.read(Clone::clone).await.unwrap(), ["one"]);
    state.write(|value| *value = 4).await.unwrap();
    settle().await;
    state.write(|value| *value += 5).await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(log.read(Clone::clone).await.unwrap(), ["one", "four", "five"]);
}

#[dapple::test(sim, seeds = 20)]
async fn one_that_is_dropped_after_it_was_woken_passes_the_wake_up_on() {
    let (state, log, looks) = (Shared::new(0), Shared::new(Vec::new()), Arc::new(AtomicUsize::new(0)));
    let mut first = state.when(|value: &mut usize| (*value > 0).then_some(()));
    assert!(poll_once(&mut first).is_pending());
    let second = taker(&state, 1, "second", &log, &looks);
    settle().await;
    state.write(|value| *value = 1).await.unwrap(); // wakes the first
    drop(first);
    // Long before the alarm for one that is forgotten.
    timeout(MS, second).await.expect("the wake-up was not passed on").unwrap().unwrap();
}

#[dapple::test(sim, seeds = 20)]
async fn one_that_is_aborted_after_it_was_woken_passes_the_wake_up_on() {
    let (state, log, looks) = (Shared::new(0), Shared::new(Vec::new()), Arc::new(AtomicUsize::new(0)));
    let first = taker(&state, 2, "first", &log, &looks);
    settle().await;
    let second = taker(&state, 1, "second", &log, &looks);
    settle().await;
    first.abort();
    state.write(|value| *value = 1).await.unwrap();
    timeout(MS, second).await.expect("the wake-up was not passed on").unwrap().unwrap();
}

#[dapple::test(sim, seeds = 20)]
async fn one_that_is_cancelled_passes_the_wake_up_on() {
    let (a, b) = (Shared::new(0), Shared::new(0));
    let first = spawn({
        let (a, b) = (a.clone(), b.clone());
        async move { timeout(MS, when((a.writing(), b.writing()), |(a, _)| (*a > 5).then_some(()))).await }
    });
    settle().await;
    let second = spawn({
        let (a, b) = (a.clone(), b.clone());
        async move { when((b.writing(), a.reading()), |(b, a)| (*a + *b == 2).then_some(())).await }
    });
    settle().await;
    a.write(|a| *a = 1).await.unwrap();
    sleep(MS * 2).await.unwrap();
    let late = first.await.unwrap().unwrap_err();
    assert_eq!(late.into_inner(), Some(Err(Cancelled)));
    b.write(|b| *b = 1).await.unwrap();
    assert_eq!(second.await.unwrap(), Ok(()));
}

#[dapple::test(sim, seeds = 20)]
async fn one_that_succeeds_without_writing_a_state_passes_its_wake_up_on() {
    // Both read `open`, and write a state of their own.
    let open = Shared::new(false);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (open, own) = (open.clone(), Shared::new(0));
            spawn(async move {
                when((open.reading(), own.writing()), |(open, own)| open.then(|| *own += 1)).await
            })
        })
        .collect();
    settle().await;
    open.write(|open| *open = true).await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[dapple::test(sim, seeds = 20)]
async fn readers_are_woken_together() {
    let state = Shared::new(0);
    let seen = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..40)
        .map(|_| {
            let (state, seen) = (state.clone(), seen.clone());
            spawn(async move {
                when(state.reading(), |value| (*value == 1).then(|| seen.fetch_add(1, Relaxed))).await
            })
        })
        .collect();
    settle().await;
    state.write(|value| *value = 1).await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(seen.load(Relaxed), 40);
}

#[dapple::test(sim, seeds = 20)]
async fn two_that_fail_do_not_wake_each_other() {
    let (state, looks) = (Shared::new(0), Arc::new(AtomicUsize::new(0)));
    let log = Shared::new(Vec::new());
    let tasks = [5, 6].map(|amount| taker(&state, amount, "", &log, &looks));
    settle().await;
    for value in 1..=3 {
        state.write(|state| *state = value).await.unwrap();
        settle().await;
    }
    assert_eq!(looks.load(Relaxed), 2 + 3 * 2);
    for task in tasks {
        task.abort();
    }
}

#[dapple::test(sim, seeds = 20)]
async fn a_try_that_enters_some_states_and_leaves_them_is_no_write() {
    let (a, b) = (Shared::new(0), Shared::new(0));
    let looks = Arc::new(AtomicUsize::new(0));
    let waits = spawn({
        let (a, looks) = (a.clone(), looks.clone());
        async move {
            a.when(|a: &mut i32| {
                looks.fetch_add(1, Relaxed);
                (*a == 1).then_some(())
            })
            .await
        }
    });
    settle().await;
    let reader = dapple::blocking({
        let b = b.clone();
        move || b.read_blocking(|_| std::thread::yield_now()).unwrap()
    });
    together((a.writing(), b.writing()), |(a, _)| *a = 1).await.unwrap();
    reader.await.unwrap();
    assert_eq!(waits.await.unwrap(), Ok(()));
    assert_eq!(looks.load(Relaxed), 2);
}

#[dapple::test(sim, seeds = 20)]
async fn one_that_is_forgotten_is_passed_over() {
    let (state, log, looks) = (Shared::new(0), Shared::new(Vec::new()), Arc::new(AtomicUsize::new(0)));
    let mut first = Box::new(state.when(|value: &mut usize| (*value > 0).then_some(())));
    assert!(poll_once(&mut first).is_pending());
    let mut second = Box::new(state.when(|value: &mut usize| (*value > 0).then_some(())));
    assert!(poll_once(&mut second).is_pending());
    let third = taker(&state, 1, "third", &log, &looks);
    settle().await;
    state.write(|value| *value = 1).await.unwrap(); // wakes the first, then the second, which never come
    third.await.unwrap().unwrap();
    // They come after all.
    assert!(poll_once(&mut first).is_pending());
    let fourth = taker(&state, 1, "fourth", &log, &looks);
    settle().await;
    state.write(|value| *value = 1).await.unwrap();
    fourth.await.unwrap().unwrap();
    std::mem::forget((first, second));
}

#[test]
fn a_thread_outside_wakes_all_that_write() {
    let state = Shared::new(0);
    dapple::run(async {
        let mut forgotten = Box::new(state.when(|value: &mut usize| (*value > 0).then_some(())));
        assert!(poll_once(&mut forgotten).is_pending());
        let (log, looks) = (Shared::new(Vec::new()), Arc::new(AtomicUsize::new(0)));
        let waits = taker(&state, 1, "waits", &log, &looks);
        while looks.load(Relaxed) == 0 {
            yield_now().await;
        }
        let outside = state.clone();
        std::thread::spawn(move || outside.write_blocking(|value| *value = 1).unwrap()).join().unwrap();
        waits.await.unwrap().unwrap();
    });
}

#[dapple::test(sim, seeds = 20)]
async fn a_cancel_takes_what_can_be_had_or_nothing() {
    let state = Shared::new(0);
    for has_come in [false, true] {
        let got = finish(async |scope| {
            let waits = scope.start(state.when(|value: &mut usize| (*value > 0).then(|| *value -= 1)));
            state.write(|value| *value = usize::from(has_come)).await.unwrap();
            scope.cancel();
            waits.await
        })
        .await;
        assert_eq!(got, if has_come { Ok(()) } else { Err(Cancelled) });
        assert_eq!(state.read(|value| *value).await, Ok(0));
    }
}

#[dapple::test(sim, seeds = 5)]
async fn a_panic_in_the_closure_reaches_its_caller_and_counts_as_a_write() {
    let state = Shared::named("counter", 0);
    let watcher = spawn({
        let state = state.clone();
        async move { when(state.reading(), |value| (*value == 7).then_some(())).await }
    });
    settle().await;
    let panics = spawn({
        let state = state.clone();
        async move {
            state
                .when(|value: &mut i32| -> Option<()> {
                    *value = 7;
                    panic!("inside")
                })
                .await
        }
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(watcher.await.unwrap(), Ok(()));
    assert_eq!(state.try_write(|value| *value), Ok(7));
}

#[dapple::test]
async fn misuse_is_a_panic_with_a_sentence() {
    let state = Shared::named("account", 0);
    let twice = catch_unwind(AssertUnwindSafe(|| {
        poll_once(&mut when((state.reading(), state.writing()), |_| Some(())))
    }));
    let message = *twice.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("named twice") && message.contains("account"), "{message}");
    let inside = state.write(|_| {
        let nested = state.clone();
        catch_unwind(AssertUnwindSafe(|| poll_once(&mut nested.when(|_: &mut i32| Some(())))))
    });
    let message = *inside.await.unwrap().unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("inside of the closure"), "{message}");
    let mut done = state.when(|_: &mut i32| Some(()));
    assert!(poll_once(&mut done).is_ready());
    assert!(catch_unwind(AssertUnwindSafe(|| poll_once(&mut done))).is_err());
}

#[dapple::test(sim, seeds = 5)]
async fn eight_states_at_once() {
    let s: [Shared<u64>; 8] = std::array::from_fn(|_| Shared::new(0));
    let sum = spawn({
        let s = s.clone();
        async move {
            let all = (
                s[0].reading(),
                s[1].reading(),
                s[2].reading(),
                s[3].reading(),
                s[4].writing(),
                s[5].reading(),
                s[6].reading(),
                s[7].reading(),
            );
            when(all, |(a, b, c, d, e, f, g, h)| {
                let sum = *a + *b + *c + *d + *e + *f + *g + *h;
                (sum == 36).then_some(sum)
            })
            .await
        }
    });
    for (index, state) in s.iter().enumerate() {
        state.write(|value| *value = index as u64 + 1).await.unwrap();
        settle().await;
    }
    assert_eq!(sum.await.unwrap(), Ok(36));
}
