//! Protocols over locks: caches, transactions, elections.

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use dapple::sim::check_after;
use dapple::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use dapple::time::{Duration, sleep};
use dapple::{Cancelled, spawn};
use futures_util::future::{Either, select};

use crate::Anything;
use crate::ledger::{InHand, Ledger, sorted};

const MS: Duration = Duration::from_millis(1);

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_cache_computes_a_key_once_though_callers_leave() -> Result<(), Anything> {
    let cache: Arc<[Mutex<Option<u32>>; 2]> = Arc::default();
    let (begun, broken_off, stored, served) = (Ledger::new(), Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (cache, begun, broken_off) = (cache.clone(), begun.clone(), broken_off.clone());
        let (stored, served) = (stored.clone(), served.clone());
        async move {
            for (key, cell) in cache.iter().enumerate() {
                let value = cell.try_lock().expect("a lock is held after its task has ended");
                let of_key = |list: Vec<u32>| list.iter().filter(|other| **other == key as u32).count();
                assert!(of_key(stored.list()) == usize::from(value.is_some()), "a key was computed twice");
                assert!(
                    value.is_some() || of_key(served.list()) == 0,
                    "a caller has a value that is not there"
                );
            }
            assert_eq!(sorted(&[stored.list(), broken_off.list()]), sorted(&[begun.list()]));
        }
    });
    let callers: Vec<_> = (0..6)
        .map(|caller| {
            let (cache, begun, broken_off) = (cache.clone(), begun.clone(), broken_off.clone());
            let (stored, served) = (stored.clone(), served.clone());
            spawn(async move {
                let key = caller % 2;
                let mut cell = cache[key as usize].lock().await?;
                if cell.is_none() {
                    begun.add(key);
                    let computing = InHand::new(key, &broken_off);
                    sleep(2 * MS).await?;
                    *cell = Some(key * 10);
                    stored.add(computing.done());
                }
                assert_eq!(*cell, Some(key * 10));
                served.add(key);
                Ok::<_, Cancelled>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    assert_eq!((begun.len(), served.len()), (2, 6));
    Ok(())
}

#[derive(Default)]
struct Account {
    balance: i64,
    prepared: Option<i64>,
    version: u32,
}

/// The locks of all participants. A transaction that is dropped before its commit withdraws what it prepared.
struct Transaction<'a>(Vec<MutexGuard<'a, Account>>);

impl Transaction<'_> {
    fn commit(mut self) {
        for account in &mut self.0 {
            let change = account.prepared.take().expect("all participants are prepared");
            account.balance += change;
            account.version += 1;
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|account| account.prepared = None);
    }
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_two_phase_commit_is_seen_by_all_participants_or_none() -> Result<(), Anything> {
    let accounts: Arc<[Mutex<Account>; 3]> = Arc::default();
    let committed = Ledger::new();
    check_after({
        let (accounts, committed) = (accounts.clone(), committed.clone());
        async move {
            let accounts = accounts.each_ref().map(|account| account.try_lock().expect("a lock is held"));
            assert!(accounts.iter().all(|account| account.prepared.is_none()), "half a transaction");
            assert!(accounts.iter().all(|account| account.version as usize == committed.len()));
            let expected = |index: usize| -> i64 {
                committed.list().iter().map(|changes: &[i64; 3]| changes[index]).sum()
            };
            assert_eq!(accounts.each_ref().map(|account| account.balance), [0, 1, 2].map(expected));
        }
    });
    let coordinators = [[5, -3, -2], [-1, 0, 1], [2, 2, -4]].map(|changes| {
        let (accounts, committed) = (accounts.clone(), committed.clone());
        spawn(async move {
            let mut transaction = Transaction(Vec::new());
            for (account, change) in accounts.iter().zip(changes) {
                let mut account = account.lock().await?;
                assert!(account.prepared.replace(change).is_none());
                transaction.0.push(account);
                sleep(MS).await?;
            }
            transaction.commit();
            committed.add(changes);
            Ok::<_, Cancelled>(())
        })
    });
    for coordinator in coordinators {
        coordinator.await??;
    }
    assert_eq!(committed.len(), 3);
    Ok(())
}

/// Two accounts, of which one has paid and the other has not received yet.
struct Transfer<'a> {
    accounts: Option<RwLockWriteGuard<'a, [i64; 2]>>,
    amount: i64,
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        self.accounts.iter_mut().for_each(|accounts| accounts[0] += self.amount);
    }
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn readers_see_no_half_transfer() -> Result<(), Anything> {
    let accounts = Arc::new(RwLock::new([10, 0]));
    let (done, audits) = (Ledger::new(), Ledger::<i64>::new());
    check_after({
        let (accounts, done, audits) = (accounts.clone(), done.clone(), audits.clone());
        async move {
            let accounts = accounts.try_write().expect("a lock is held after its task has ended");
            let moved: i64 = done.list().iter().sum();
            assert_eq!(*accounts, [10 - moved, moved]);
            assert!(audits.list().iter().all(|sum| *sum == 10), "{:?}", audits.list());
        }
    });
    let writers = [1, 2, 3].map(|amount| {
        let (accounts, done, audits) = (accounts.clone(), done.clone(), audits.clone());
        spawn(async move {
            let mut transfer = Transfer { accounts: None, amount };
            let mut locked = accounts.write().await?;
            locked[0] -= amount;
            transfer.accounts = Some(locked);
            sleep(MS).await?;
            let mut locked = transfer.accounts.take().expect("the lock of this transfer");
            locked[1] += amount;
            done.add(amount);
            // The audit sees this transfer and no later one.
            let before = *locked;
            let locked = RwLockWriteGuard::downgrade(locked);
            sleep(MS).await?;
            assert_eq!(*locked, before);
            audits.add(locked.iter().sum());
            Ok::<_, Cancelled>(())
        })
    });
    let readers = [0, 1, 2].map(|reader| {
        let (accounts, audits) = (accounts.clone(), audits.clone());
        spawn(async move {
            for _ in 0..2 {
                sleep(MS * reader).await?;
                let locked = accounts.read().await?;
                let before = *locked;
                sleep(MS).await?;
                assert_eq!(*locked, before);
                audits.add(locked.iter().sum());
            }
            Ok::<_, Cancelled>(())
        })
    });
    for task in writers.into_iter().chain(readers) {
        task.await??;
    }
    assert_eq!((done.len(), audits.len()), (3, 9));
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_lease_has_one_leader_and_each_term_a_number() -> Result<(), Anything> {
    let (lease, leaders) = (Arc::new(Mutex::new(0)), Arc::new(AtomicU32::new(0)));
    let (terms, writes) = (Ledger::new(), Ledger::new());
    check_after({
        let (lease, leaders, terms, writes) = (lease.clone(), leaders.clone(), terms.clone(), writes.clone());
        async move {
            let last = *lease.try_lock().expect("the lease is held after its leader has ended");
            assert_eq!(leaders.load(Relaxed), 0);
            assert_eq!(terms.list(), (1..=last).collect::<Vec<u32>>());
            assert!(writes.list().is_sorted(), "a write of an old leader: {:?}", writes.list());
        }
    });
    let nodes = [0, 1, 2].map(|node| {
        let (lease, leaders, terms, writes) = (lease.clone(), leaders.clone(), terms.clone(), writes.clone());
        spawn(async move {
            for _ in 0..2 {
                // A follower that has waited for long looks after its other duties, and loses its place.
                let mut term = loop {
                    match select(pin!(lease.clone().lock_owned()), pin!(sleep(3 * MS))).await {
                        Either::Left((term, _)) => break term?,
                        Either::Right((time, _)) => time?,
                    }
                };
                *term += 1;
                terms.add(*term);
                let _leader = Leader::new(&leaders);
                for heartbeat in 0..=node {
                    sleep(MS).await?;
                    writes.add((*term, heartbeat));
                }
            }
            Ok::<_, Cancelled>(())
        })
    });
    for node in nodes {
        node.await??;
    }
    assert_eq!((terms.len(), writes.len()), (6, 12));
    Ok(())
}

/// Counts the leaders.
struct Leader(Arc<AtomicU32>);

impl Leader {
    fn new(leaders: &Arc<AtomicU32>) -> Leader {
        assert_eq!(leaders.fetch_add(1, Relaxed), 0, "two leaders");
        Leader(leaders.clone())
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A document that is checked out for an edit: it is put back as it was unless the edit is saved.
struct Edit<'a> {
    document: MutexGuard<'a, Vec<u32>>,
    saved: Option<Vec<u32>>,
}

impl Deref for Edit<'_> {
    type Target = Vec<u32>;

    fn deref(&self) -> &Vec<u32> {
        &self.document
    }
}

impl DerefMut for Edit<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u32> {
        &mut self.document
    }
}

impl Drop for Edit<'_> {
    fn drop(&mut self) {
        if let Some(saved) = self.saved.take() {
            *self.document = saved;
        }
    }
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn an_edit_that_is_broken_off_leaves_the_document_as_it_was() -> Result<(), Anything> {
    let document = Arc::new(Mutex::new(Vec::new()));
    let saved = Ledger::new();
    check_after({
        let (document, saved) = (document.clone(), saved.clone());
        async move {
            let document = document.try_lock().expect("a lock is held after its task has ended");
            let expected: Vec<u32> = saved.list().into_iter().flat_map(|edit| [edit; 3]).collect();
            assert_eq!(*document, expected);
        }
    });
    let editors = [1, 2, 3, 4].map(|number| {
        let (document, saved) = (document.clone(), saved.clone());
        spawn(async move {
            let document = document.lock().await?;
            let mut edit = Edit { saved: Some(document.clone()), document };
            for _ in 0..3 {
                edit.push(number);
                sleep(MS).await?;
            }
            edit.saved = None;
            saved.add(number);
            Ok::<_, Cancelled>(())
        })
    });
    for editor in editors {
        editor.await??;
    }
    assert_eq!(saved.len(), 4);
    Ok(())
}
