//! Protocols over channels: requests, replies and configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};

use dapple::channel::{mpsc, oneshot, watch};
use dapple::sim::{check_after, work};
use dapple::time::{Duration, Instant, sleep, sleep_until, timeout};
use dapple::{Cancelled, spawn};
use futures_util::future::{Either, select};

use crate::Anything;
use crate::ledger::{InHand, Ledger, locked, next, sorted};

const MS: Duration = Duration::from_millis(1);

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_deposit_has_a_receipt_or_is_undone() -> Result<(), Anything> {
    let (requests, mut accepted) = mpsc::bounded::<(u32, oneshot::Sender<InHand<u32>>)>(1);
    let (booked, undone, claimed) = (Ledger::new(), Ledger::new(), Ledger::new());
    let (unclaimed, dropped) = (Ledger::new(), Ledger::new());
    check_after({
        let (booked, undone, claimed) = (booked.clone(), undone.clone(), claimed.clone());
        let (unclaimed, dropped) = (unclaimed.clone(), dropped.clone());
        async move {
            let settled = sorted(&[claimed.list(), undone.list(), unclaimed.list()]);
            assert_eq!(settled, sorted(&[booked.list()]));
            // Only a client that was dropped leaves its receipt; one that was cancelled claims it.
            assert!(unclaimed.list().iter().all(|amount| dropped.list().contains(amount)));
        }
    });
    let bank = spawn({
        let (booked, unclaimed) = (booked.clone(), unclaimed.clone());
        async move {
            while let Some((amount, reply)) = next(&mut accepted).await? {
                sleep(MS).await?;
                booked.add(amount);
                if let Err(receipt) = reply.send(InHand::new(amount, &unclaimed)) {
                    undone.add(receipt.done());
                }
            }
            Ok::<_, Cancelled>(())
        }
    });
    let clients: Vec<_> = (1..=4)
        .map(|amount| {
            let (requests, claimed) = (requests.clone(), claimed.clone());
            let client = InHand::new(amount, &dropped);
            spawn(async move {
                let (reply, mut receipt) = oneshot::channel();
                let result = match requests.send((amount, reply)).await {
                    Err(error) if error.is_cancelled() => Err(Cancelled),
                    Err(_closed) => Ok(()),
                    Ok(()) => {
                        let answer = (&mut receipt).await;
                        let is_cancelled = answer.as_ref().is_err_and(|error| error.is_cancelled());
                        // A client that was cancelled looks once more, a little later.
                        let answer = answer.ok().or_else(|| {
                            work(2 * MS);
                            receipt.close();
                            receipt.try_recv().ok()
                        });
                        answer.into_iter().for_each(|receipt| claimed.add(receipt.done()));
                        if is_cancelled { Err(Cancelled) } else { Ok(()) }
                    }
                };
                client.done();
                result
            })
        })
        .collect();
    drop(requests);
    for client in clients {
        client.await??;
    }
    bank.await??;
    assert_eq!(sorted(&[claimed.list()]), [1, 2, 3, 4]);
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn a_reader_of_a_configuration_ends_with_the_newest() -> Result<(), Anything> {
    let (publisher, config) = watch::channel((0, 0));
    let (published, seen, ended) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (published, seen, ended) = (published.clone(), seen.clone(), ended.clone());
        async move {
            let newest = published.list().last().copied();
            for reader in 0..3 {
                let own = |list: Vec<(u32, u32)>| {
                    list.into_iter()
                        .filter(|entry| entry.0 == reader)
                        .map(|entry| entry.1)
                        .collect::<Vec<_>>()
                };
                let versions = own(seen.list());
                assert!(versions.is_sorted_by(|one, two| one < two), "{versions:?}");
                assert!(own(ended.list()).into_iter().all(|last| Some(last) == newest.or(Some(0))));
            }
        }
    });
    let readers: Vec<_> = (0..3)
        .map(|reader| {
            let (mut config, seen, ended) = (config.clone(), seen.clone(), ended.clone());
            spawn(async move {
                loop {
                    match config.changed().await {
                        Ok(()) => {
                            let (version, copy) = *config.borrow_and_update();
                            assert_eq!(version, copy);
                            seen.add((reader, version));
                        }
                        Err(error) if error.is_closed() => break,
                        Err(error) => return Err(Anything::from(error)),
                    }
                    sleep(MS * 2 * reader).await?;
                }
                ended.add((reader, config.borrow().0));
                assert!(!config.has_changed().is_ok_and(|changed| changed));
                Ok(())
            })
        })
        .collect();
    drop(config);
    for version in 1..=5 {
        publisher.send_modify(|config| *config = (version, version));
        published.add(version);
        sleep(MS * (version % 3)).await?;
    }
    drop(publisher);
    for reader in readers {
        reader.await??;
    }
    assert_eq!(ended.len(), 3);
    Ok(())
}

type Attempt = (u32, u32, oneshot::Sender<()>);

/// Answers a request in its own task. The first attempts are slow.
async fn answer(
    (id, attempt, reply): Attempt,
    journal: Arc<Mutex<BTreeSet<u32>>>,
    applied: Ledger<u32>,
) -> Result<(), Cancelled> {
    if attempt < id {
        sleep(5 * MS).await?;
    }
    // An attempt that was given up may still arrive: the journal knows which attempt was first.
    if locked(&journal).insert(id) {
        applied.add(id);
    }
    let _ = reply.send(());
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_request_with_retries_is_applied_once() -> Result<(), Anything> {
    let (requests, mut accepted) = mpsc::unbounded::<Attempt>();
    let (applied, confirmed) = (Ledger::new(), Ledger::new());
    check_after({
        let (applied, confirmed) = (applied.clone(), confirmed.clone());
        async move {
            let applied = sorted(&[applied.list()]);
            assert!(applied.is_sorted_by(|one, two| one < two), "applied twice: {applied:?}");
            assert!(confirmed.list().iter().all(|id| applied.contains(id)));
        }
    });
    let server = spawn({
        let applied = applied.clone();
        async move {
            let journal = Arc::default();
            while let Some(attempt) = next(&mut accepted).await? {
                spawn(answer(attempt, Arc::clone(&journal), applied.clone())).detach();
            }
            Ok::<_, Cancelled>(())
        }
    });
    let clients: Vec<_> = (0..4)
        .map(|id| {
            let (requests, confirmed) = (requests.clone(), confirmed.clone());
            spawn(async move {
                for attempt in 0..5 {
                    let (reply, receiver) = oneshot::channel();
                    if requests.try_send((id, attempt, reply)).is_err() {
                        return Ok(());
                    }
                    // An answer that came together with the end of the time counts.
                    let answer =
                        timeout(2 * MS, receiver).await.unwrap_or_else(|late| late.into_inner().unwrap());
                    if answer.is_ok() {
                        confirmed.add(id);
                        return Ok(());
                    }
                    sleep(MS * (1 << attempt)).await?;
                }
                Ok::<_, Cancelled>(())
            })
        })
        .collect();
    drop(requests);
    for client in clients {
        client.await??;
    }
    server.await??;
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_lease_without_heartbeats_runs_out_and_is_taken_over() -> Result<(), Anything> {
    let (beat, mut beats) = watch::channel(0);
    let held = Arc::new(Mutex::new((0, 0)));
    let terms = Ledger::new();
    check_after({
        let (held, terms) = (held.clone(), terms.clone());
        async move {
            assert_eq!(locked(&held).0, 0, "the lease is held after its end");
            assert!(terms.list().is_sorted_by(|one, two| one < two), "{:?}", terms.list());
        }
    });
    let term = |held: &Arc<Mutex<(u32, u32)>>| {
        let mut state = locked(held);
        *state = (state.0 + 1, state.1 + 1);
        assert_eq!(state.0, 1, "two holders");
        terms.add(state.1);
        Held(held.clone())
    };
    let first = term(&held);
    let holder = spawn(async move {
        let _first = first;
        for number in 1..=4 {
            beat.send_modify(|beat| *beat = number);
            sleep(2 * MS).await?;
        }
        Ok::<_, Cancelled>(())
    });
    // The end of the holder closes the channel; a holder that is late misses its deadline.
    loop {
        let deadline = Instant::now() + 5 * MS;
        match select(pin!(beats.changed()), sleep_until(deadline)).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(error), _)) if error.is_cancelled() => return Err(error.into()),
            Either::Left((Err(_closed), _)) => break,
            Either::Right((time, _)) => {
                time?;
                holder.abort();
                break;
            }
        }
    }
    match holder.await {
        Err(error) if error.is_aborted() => {}
        ended => ended??,
    }
    let _second = term(&held);
    sleep(MS).await?;
    Ok(())
}

/// A lease, until this is dropped.
struct Held(Arc<Mutex<(u32, u32)>>);

impl Drop for Held {
    fn drop(&mut self) {
        locked(&self.0).0 -= 1;
    }
}

type Waiters = Arc<Mutex<BTreeMap<u32, Vec<oneshot::Sender<u32>>>>>;

/// A computation of a key's value for all its waiters. If it is dropped early, its entry is removed and the waiters retry.
struct Flight(Waiters, u32);

impl Drop for Flight {
    fn drop(&mut self) {
        locked(&self.0).remove(&self.1);
    }
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn a_single_flight_serves_all_that_wait_for_it() -> Result<(), Anything> {
    let waiters: Waiters = Arc::default();
    let (begun, served, ended) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (waiters, begun, served, ended) = (waiters.clone(), begun.clone(), served.clone(), ended.clone());
        async move {
            assert!(locked(&waiters).is_empty(), "a flight without an end");
            assert!(served.list().iter().all(|(key, value)| *value == key * 10));
            assert_eq!(sorted(&[begun.list()]), sorted(&[ended.list()]));
        }
    });
    let callers: Vec<_> = (0..6)
        .map(|caller| {
            let (waiters, begun, served, ended) =
                (waiters.clone(), begun.clone(), served.clone(), ended.clone());
            let key = caller % 2;
            spawn(async move {
                sleep(MS * (caller / 2)).await?;
                loop {
                    let (sender, receiver) = oneshot::channel();
                    let is_first = {
                        let mut waiters = locked(&waiters);
                        let entry = waiters.entry(key);
                        let is_first = matches!(entry, std::collections::btree_map::Entry::Vacant(_));
                        entry.or_default().push(sender);
                        is_first
                    };
                    if is_first {
                        let _flight = Flight(waiters.clone(), key);
                        begun.add(key);
                        let _counted = InHand::new(key, &ended);
                        sleep(3 * MS).await?;
                        let all = locked(&waiters).get_mut(&key).map(std::mem::take);
                        for waiter in all.into_iter().flatten() {
                            let _ = waiter.send(key * 10);
                        }
                    }
                    match receiver.await {
                        Ok(value) => {
                            served.add((key, value));
                            return Ok(());
                        }
                        Err(error) if error.is_cancelled() => return Err(Cancelled),
                        Err(_leader_has_left) => {}
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    assert_eq!(served.len(), 6);
    Ok(())
}
