//! Protocols in scopes: all children have ended, in the right order, when the scope ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};

use dapple::channel::mpsc;
use dapple::sim::check_after;
use dapple::sync::{Mutex, MutexGuard};
use dapple::time::{Duration, Instant, sleep};
use dapple::{
    Cancelled, finish,
    scope::{Canceller, Resume},
    shield, spawn, suspend,
};

use crate::Anything;
use crate::ledger::{InHand, Ledger, keep, locked, next, sorted};

const MS: Duration = Duration::from_millis(1);

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_crawl_ends_after_all_its_fetches() -> Result<(), Anything> {
    let (begun, fetched, broken_off) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (begun, fetched, broken_off) = (begun.clone(), fetched.clone(), broken_off.clone());
        async move {
            assert_eq!(sorted(&[fetched.list(), broken_off.list()]), sorted(&[begun.list()]));
            let pages = sorted(&[begun.list()]);
            assert!(pages.is_sorted_by(|one, two| one < two), "fetched twice: {pages:?}");
        }
    });
    let fetch = async |page: u32| {
        begun.add(page);
        let fetching = InHand::new(page, &broken_off);
        sleep(MS * (1 + page % 3)).await?;
        fetched.add(fetching.done());
        Ok::<_, Cancelled>(())
    };
    let fetch = &fetch;
    finish(async |scope| {
        for site in [10, 20, 30] {
            scope.start(async move {
                fetch(site).await?;
                for page in site + 1..site + 3 {
                    scope.start(fetch(page));
                }
                Ok::<_, Cancelled>(())
            });
        }
    })
    .await;
    assert_eq!(fetched.len() + broken_off.len(), begun.len(), "a fetch goes on after its scope");
    sleep(MS).await?;
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_hedged_request_closes_all_its_connections() -> Result<(), Anything> {
    let (opened, closed, answers) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (opened, closed, answers) = (opened.clone(), closed.clone(), answers.clone());
        async move {
            assert_eq!(sorted(&[closed.list()]), sorted(&[opened.list()]));
            assert!(answers.list().iter().all(|replica| opened.list().contains(replica)));
        }
    });
    for request in 0..2 {
        let first = StdMutex::new(None);
        let (opened, closed, answers, first) = (&opened, &closed, &answers, &first);
        finish(async |scope| {
            for replica in [0, 1, 2] {
                scope.start(async move {
                    opened.add((request, replica));
                    let _connection = InHand::new((request, replica), closed);
                    sleep(MS * (5 - replica)).await?;
                    answers.add((request, replica));
                    locked(first).get_or_insert(replica);
                    scope.cancel();
                    Ok::<_, Cancelled>(())
                });
                // The next replica is asked if the others are slow.
                if sleep(2 * MS).await.is_err() {
                    break;
                }
            }
        })
        .await;
        assert_eq!(
            sorted(&[closed.list()]),
            sorted(&[opened.list()]),
            "a connection is open after its scope"
        );
        if locked(first).is_none() {
            return Err(Cancelled.into());
        }
        // The cancel of the losers ends here.
        sleep(MS).await?;
    }
    Ok(())
}

/// A booking, which is undone by a task of its own if it is dropped before its trip is confirmed.
struct Booking {
    part: Option<&'static str>,
    undone: Ledger<&'static str>,
}

impl Booking {
    async fn undo(mut self) {
        let part = self.part.take().expect("a booking that is not undone");
        let _ = sleep(MS).await;
        self.undone.add(part);
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        if let part @ Some(_) = self.part.take() {
            spawn(Booking { part, undone: self.undone.clone() }.undo()).detach();
        }
    }
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_trip_is_booked_in_whole_or_undone_in_whole() -> Result<(), Anything> {
    let (booked, confirmed, undone) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (booked, confirmed, undone) = (booked.clone(), confirmed.clone(), undone.clone());
        async move {
            assert_eq!(sorted(&[confirmed.list(), undone.list()]), sorted(&[booked.list()]));
            assert!(confirmed.list().is_empty() || undone.list().is_empty(), "half a trip");
        }
    });
    let trip = spawn({
        let booked = booked.clone();
        async move {
            let mut bookings = Vec::new();
            for part in ["flight", "hotel", "car"] {
                if sleep(MS).await.is_err() {
                    while let Some(booking) = bookings.pop() {
                        shield(Booking::undo(booking)).await;
                    }
                    return Err(Cancelled);
                }
                booked.add(part);
                bookings.push(Booking { part: Some(part), undone: undone.clone() });
            }
            sleep(MS).await?;
            confirmed.add_all(bookings.iter_mut().filter_map(|booking| booking.part.take()));
            Ok(())
        }
    });
    trip.await??;
    Ok(())
}

type Callbacks = Arc<StdMutex<BTreeMap<u32, Resume<InHand<u32>>>>>;

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_callback_resumes_its_wait_or_is_withdrawn() -> Result<(), Anything> {
    let callbacks = Callbacks::default();
    let (called, got, returned) = (Ledger::new(), Ledger::new(), Ledger::new());
    let (lost, dropped) = (Ledger::new(), Ledger::new());
    check_after({
        let (callbacks, called, got) = (callbacks.clone(), called.clone(), got.clone());
        let (returned, lost, dropped) = (returned.clone(), lost.clone(), dropped.clone());
        async move {
            assert!(locked(&callbacks).is_empty(), "a callback of a wait that is over");
            assert!(returned.list().is_empty(), "called after the withdrawal: {:?}", returned.list());
            assert_eq!(sorted(&[got.list(), lost.list()]), sorted(&[called.list()]));
            // A value is lost only with a waiter that was dropped.
            assert!(lost.list().iter().all(|key| dropped.list().contains(key)));
        }
    });
    let caller = spawn({
        let (callbacks, lost) = (callbacks.clone(), lost.clone());
        async move {
            for _ in 0..10 {
                sleep(MS).await?;
                let Some((key, resume)) = locked(&callbacks).pop_first() else { continue };
                called.add(key);
                if let Err(value) = resume.resume(InHand::new(key, &lost)) {
                    returned.add(value.done());
                }
            }
            locked(&callbacks).clear();
            Ok::<_, Cancelled>(())
        }
    });
    let waiters = [0, 1, 2, 3].map(|key: u32| {
        let (callbacks, got) = (callbacks.clone(), got.clone());
        let waiter = InHand::new(key, &dropped);
        spawn(async move {
            let waited = suspend(|resume| {
                locked(&callbacks).insert(key, resume);
                || drop(locked(&callbacks).remove(&key))
            })
            .await;
            waiter.done();
            got.add(waited?.done());
            Ok::<_, Cancelled>(())
        })
    });
    let ended = caller.await;
    if !matches!(ended, Ok(Ok(()))) {
        // Without a caller the waiters would wait for ever.
        locked(&callbacks).clear();
        waiters.iter().for_each(|waiter| waiter.cancel());
    }
    for waiter in waiters {
        waiter.await??;
    }
    ended??;
    assert_eq!(got.len(), 4);
    Ok(())
}

/// Cancels a scope when its task ends, in whatever way the task ends.
struct CancelOnDrop(Canceller);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn a_shutdown_waits_for_work_that_has_begun() -> Result<(), Anything> {
    let (sender, receiver) = mpsc::unbounded();
    let (jobs, left) = keep(receiver);
    let (begun, done, broken_off) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (begun, done, broken_off) = (begun.clone(), done.clone(), broken_off.clone());
        async move {
            assert!(broken_off.list().is_empty(), "work is shielded: {:?}", broken_off.list());
            assert_eq!(sorted(&[done.list()]), sorted(&[begun.list()]));
            assert_eq!(sorted(&[done.list(), left.drain()]), (0..10).collect::<Vec<u32>>());
        }
    });
    (0..10).for_each(|job| sender.try_send(job).expect("an open queue"));
    let jobs = Arc::new(Mutex::new(jobs));
    finish(async |scope| {
        for _ in 0..2 {
            let (jobs, begun, done) = (jobs.clone(), begun.clone(), done.clone());
            let broken_off = broken_off.clone();
            let worker = scope.spawn(async move {
                loop {
                    let Some(job) = next(&mut *jobs.lock().await?).await? else {
                        return Ok::<_, Cancelled>(());
                    };
                    begun.add(job);
                    let job = InHand::new(job, &broken_off);
                    let _ = shield(sleep(2 * MS)).await;
                    done.add(job.done());
                }
            });
            worker.detach();
        }
        let stop = CancelOnDrop(scope.canceller());
        scope
            .spawn(async move {
                let _stop = stop;
                sleep(5 * MS).await
            })
            .detach();
    })
    .await;
    assert_eq!(done.len(), begun.len(), "a worker goes on after its scope");
    drop((jobs, sender));
    sleep(MS).await?;
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_supervisor_restarts_its_worker_where_it_stopped() -> Result<(), Anything> {
    let (done, stopped) = (Ledger::new(), Ledger::new());
    let workers = Arc::new(());
    check_after({
        let (done, stopped, workers) = (done.clone(), stopped.clone(), Arc::downgrade(&workers));
        async move {
            assert_eq!(done.list(), (0..done.len()).collect::<Vec<_>>());
            assert!(stopped.list().iter().all(|steps| *steps == done.len()), "a step after the stop");
            assert_eq!(workers.strong_count(), 0, "a worker without its supervisor");
        }
    });
    let mut restarts = 0;
    loop {
        let (steps, is_alive) = (done.clone(), workers.clone());
        assert_eq!(Arc::strong_count(&workers), 2, "two workers");
        let mut worker = spawn(async move {
            let _is_alive = is_alive;
            while steps.len() < 5 {
                let next = steps.len();
                sleep(MS).await?;
                steps.add(next);
            }
            Ok::<_, Cancelled>(())
        });
        match (&mut worker).await {
            Ok(Ok(())) => break,
            Err(error) if error.is_cancelled() => {
                worker.cancel();
                let _ = shield(worker).await;
                stopped.add(done.len());
                return Err(error.into());
            }
            ended if restarts == 3 => return Ok(ended??),
            Ok(Err(_)) | Err(_) => restarts += 1,
        }
        sleep(MS * (1 << restarts)).await?;
    }
    assert_eq!(done.len(), 5);
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn heartbeats_end_with_the_work_beside_them() -> Result<(), Anything> {
    let (beats, steps, ended) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (beats, ended) = (beats.clone(), ended.clone());
        async move {
            let last = ended.list().first().copied();
            assert!(
                last.is_none_or(|end| beats.list().iter().all(|beat| *beat <= end)),
                "a beat after the end"
            );
        }
    });
    let result = finish(async |scope| {
        scope.start(async {
            loop {
                beats.add(Instant::now());
                if sleep(2 * MS).await.is_err() {
                    return;
                }
            }
        });
        let work = async {
            for step in 0..4 {
                sleep(3 * MS).await?;
                steps.add(step);
            }
            Ok::<_, Cancelled>(())
        };
        let result = work.await;
        scope.cancel();
        result
    })
    .await;
    ended.add(Instant::now());
    result?;
    sleep(10 * MS).await?;
    assert_eq!(steps.len(), 4);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Prepared,
    Committed,
    RolledBack,
}

/// A participant that has voted. If its coordinator is gone before the decision, it rolls back.
struct Vote<'a>(MutexGuard<'a, State>);

impl Drop for Vote<'_> {
    fn drop(&mut self) {
        if *self.0 == State::Prepared {
            *self.0 = State::RolledBack;
        }
    }
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_two_phase_commit_in_a_scope_is_decided_once() -> Result<(), Anything> {
    let participants = Arc::new([0, 1, 2].map(|_| Mutex::new(State::Idle)));
    let decided = Ledger::new();
    check_after({
        let (participants, decided) = (participants.clone(), decided.clone());
        async move {
            let states = participants.each_ref().map(|state| *state.try_lock().expect("a lock is held"));
            if let [true] = decided.list()[..] {
                assert_eq!(states, [State::Committed; 3]);
            } else {
                let is_undone = |state: &State| matches!(state, State::Idle | State::RolledBack);
                assert!(decided.len() <= 1 && states.iter().all(is_undone), "{states:?}");
            }
        }
    });
    let coordinator = spawn(async move {
        let mut votes = finish(async |scope| {
            let prepared = [0, 1, 2].map(|number| {
                let participant = &participants[number];
                scope.start(async move {
                    let mut vote = Vote(participant.lock().await?);
                    *vote.0 = State::Prepared;
                    sleep(MS * number as u32).await?;
                    Ok::<_, Cancelled>(vote)
                })
            });
            let mut votes = Vec::new();
            for vote in prepared {
                votes.extend(vote.await);
            }
            votes
        })
        .await;
        let is_commit = votes.len() == 3;
        // The decision is final: the second phase is not cancelled.
        decided.add(is_commit);
        shield(async {
            for vote in &mut votes {
                let _ = sleep(MS).await;
                *vote.0 = if is_commit { State::Committed } else { State::RolledBack };
            }
        })
        .await;
        if is_commit { Ok(()) } else { Err(Cancelled) }
    });
    coordinator.await??;
    Ok(())
}
