//! Models of transactions: opacity, updates, reclamation, parking, running alone. With two preemptions at most: a commit has
//! many steps.

use std::ptr::{NonNull, null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use loom::thread::{JoinHandle, spawn};

use super::{Plain, sleeper};
use crate::prim::{AtomicBool, AtomicPtr, AtomicU64, Mutex};
use crate::stm::cell::{CellHead, CellRef, ValueBits, version_of};
use crate::stm::log::{Found, Poisoned, TxLog};
use crate::stm::parking::Parked;
use crate::stm::realm::{Limbo, Realm, ValueKind};
use crate::stm::run_alone::RunAlone;
use crate::task::guarded::GuardedWaker;

const WORLD: u32 = 1;

/// Two cells that hold numbers, and all that transactions over them share.
struct Pair {
    realm: Realm,
    run_alone: RunAlone,
    cells: [CellHead; 2],
}

impl Pair {
    fn new() -> Arc<Pair> {
        let cells = [(); 2].map(|()| CellHead::new(null_mut(), None));
        cells.iter().for_each(|cell| cell.bind(WORLD)); // as after the first use: `find` inlines the rest
        Arc::new(Pair { realm: realm(), run_alone: RunAlone::of(AtomicBool::new(false)), cells })
    }

    fn cell(&self, at: usize) -> CellRef {
        // SAFETY: the pair outlives the transactions of its model.
        unsafe { CellRef::new(NonNull::from(&self.cells[at])) }
    }

    /// Runs a transaction once.
    fn attempt<R>(
        &self,
        log: &mut TxLog,
        f: impl FnOnce(&mut TxLog) -> Result<R, Poisoned>,
    ) -> Result<R, Poisoned> {
        log.begin(&self.realm, false);
        let result = f(log).and_then(|result| log.commit(&self.realm, &self.run_alone).map(|()| result));
        log.writes.clear();
        log.end(&self.realm);
        log.wakers.drain(..).for_each(GuardedWaker::wake);
        result
    }

    /// Writes one number to the cells, until that is committed.
    fn write(&self, cells: impl IntoIterator<Item = usize> + Clone, number: usize) {
        let mut log = TxLog::new(self.realm.take(WORLD), WORLD);
        loop {
            let written = self.attempt(&mut log, |log| {
                cells.clone().into_iter().for_each(|at| log.write_bits(self.cell(at), bits(number)));
                Ok(())
            });
            match written {
                Ok(()) => return,
                Err(_) => loom::thread::yield_now(),
            }
        }
    }

    fn number(&self, at: usize) -> usize {
        self.cells[at].value().addr()
    }
}

fn realm() -> Realm {
    Realm::of(AtomicU64::new(0), AtomicPtr::new(null_mut()), Mutex::new(Limbo::new()))
}

trait ReadWriteBits {
    /// Reads a cell, as `Transaction::read` does.
    fn read_bits(&mut self, realm: &Realm, of: CellRef) -> Result<ValueBits, Poisoned>;
    fn write_bits(&mut self, of: CellRef, value: ValueBits);
}

impl ReadWriteBits for TxLog {
    fn read_bits(&mut self, realm: &Realm, of: CellRef) -> Result<ValueBits, Poisoned> {
        Ok(match self.find(realm, of)? {
            Found::Committed(value) => value,
            Found::Own(at) => self.writes[at].value,
        })
    }

    fn write_bits(&mut self, of: CellRef, value: ValueBits) {
        match self.find_own(of) {
            Ok(Some(at)) => drop(self.replace(at, value)),
            _ => self.push(of, value),
        }
    }
}

fn bits(number: usize) -> ValueBits {
    without_provenance_mut(number)
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    model_of(2, f);
}

fn model_of(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

fn in_thread(pair: &Arc<Pair>, f: impl FnOnce(&Pair) + 'static) -> JoinHandle<()> {
    let pair = pair.clone();
    spawn(move || f(&pair))
}

#[test]
fn a_transaction_never_sees_half_of_a_commit() {
    // With two, no schedule is tried that a missing second look of `find` needs.
    model_of(4, || {
        let pair = Pair::new();
        let writer = in_thread(&pair, |pair| pair.write([0, 1], 1));
        let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
        let seen = pair.attempt(&mut log, |log| {
            let first = log.read_bits(&pair.realm, pair.cell(0))?;
            let second = log.read_bits(&pair.realm, pair.cell(1))?;
            assert_eq!(first, second); // also if it is aborted afterwards
            Ok(first)
        });
        drop(seen);
        writer.join().unwrap();
        assert_eq!((pair.number(0), pair.number(1)), (1, 1));
    });
}

#[test]
fn of_two_updates_none_is_lost() {
    model(|| {
        let pair = Pair::new();
        let update = |pair: &Pair| {
            let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
            for _ in 0..4 {
                let updated = pair.attempt(&mut log, |log| {
                    let number = log.read_bits(&pair.realm, pair.cell(0))?.addr();
                    log.write_bits(pair.cell(0), bits(number + 1));
                    Ok(())
                });
                if updated.is_ok() {
                    return 1;
                }
                loom::thread::yield_now();
            }
            0
        };
        let other = pair.clone();
        let thread = spawn(move || update(&other));
        let done = update(&pair) + thread.join().unwrap();
        assert_eq!(pair.number(0), done);
        assert!(done > 0, "both were aborted by each other");
    });
}

#[test]
fn of_two_transactions_that_read_what_the_other_writes_one_sees_the_other() {
    model(|| {
        let pair = Pair::new();
        // Each writes its cell if the other cell is 0: not both can.
        let write_if_zero = |pair: &Pair, own: usize| {
            let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
            let written = pair.attempt(&mut log, |log| {
                if log.read_bits(&pair.realm, pair.cell(1 - own))?.addr() == 0 {
                    log.write_bits(pair.cell(own), bits(1));
                }
                Ok(())
            });
            drop(written);
        };
        let thread = in_thread(&pair, move |pair| write_if_zero(pair, 0));
        write_if_zero(&pair, 1);
        thread.join().unwrap();
        assert!(pair.number(0) + pair.number(1) < 2, "write skew");
    });
}

/// A value that counts when it is dropped, and fails the model if a transaction still reads it.
struct Counted {
    value: Plain<usize>,
    drops: Arc<AtomicUsize>,
}

fn counted(drops: &Arc<AtomicUsize>) -> ValueBits {
    let value = Box::new(Counted { value: Plain::new(7), drops: drops.clone() });
    Box::into_raw(value).cast()
}

/// # Safety
///
/// The bits are from `counted`, and not used any more.
unsafe fn drop_counted(bits: ValueBits) {
    // SAFETY: promised by the caller.
    let value = unsafe { Box::from_raw(bits.cast::<Counted>()) };
    value.value.write(0); // the model fails if a read of another thread is not ordered before it
    value.drops.fetch_add(1, Ordering::Relaxed);
}

static COUNTED: ValueKind = ValueKind { drop_bits: drop_counted, is_plain: false };
static COUNTED_PLAIN: ValueKind = ValueKind { drop_bits: drop_counted, is_plain: true };

#[test]
fn a_value_is_dropped_once_after_its_last_reader() {
    model(|| values_are_dropped(&COUNTED, 1));
}

/// PLAIN-LATER: in a model two values are retired together.
#[test]
fn plain_values_are_dropped_together_after_their_last_reader() {
    model_of(2, || values_are_dropped(&COUNTED_PLAIN, 2));
}

fn values_are_dropped(kind: &'static ValueKind, writes: usize) {
    let drops = Arc::new(AtomicUsize::new(0));
    let cell = CellHead::new(counted(&drops), Some(kind));
    cell.bind(WORLD);
    let pair = Arc::new(Pair {
        realm: realm(),
        run_alone: RunAlone::of(AtomicBool::new(false)),
        cells: [cell, CellHead::new(null_mut(), None)],
    });
    let writer = spawn({
        let (pair, drops) = (pair.clone(), drops.clone());
        move || {
            let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
            for _ in 0..writes {
                log.begin(&pair.realm, false);
                log.write_bits(pair.cell(0), counted(&drops));
                assert!(log.commit(&pair.realm, &pair.run_alone).is_ok());
                end(&mut log, &pair.realm);
            }
        }
    });
    let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
    log.begin(&pair.realm, false);
    if let Ok(bits) = log.read_bits(&pair.realm, pair.cell(0)) {
        // SAFETY: the announcement keeps the value.
        let value = unsafe { &*bits.cast::<Counted>() };
        assert_eq!(value.value.read(), 7);
    }
    end(&mut log, &pair.realm);
    writer.join().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), writes, "dropped by the last of the two");
    // SAFETY: no thread is left.
    unsafe { drop_counted(pair.cells[0].value()) };
}

fn end(log: &mut TxLog, realm: &Realm) {
    log.end(realm);
    for one in log.retired.drain(..) {
        // SAFETY: the realm has said that no transaction uses it.
        unsafe { one.drop_value() };
    }
}

/// Parks in the cells until one of them is written. Returns whether it slept.
fn park(pair: &Pair, cells: &[usize]) -> Option<Parked> {
    let (parker, waker) = sleeper();
    let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
    loop {
        log.begin(&pair.realm, false);
        let is_zero = cells.iter().all(|&at| {
            let read = log.read_bits(&pair.realm, pair.cell(at));
            read.is_ok_and(|bits| bits.addr() == 0)
        });
        let parked = match is_zero {
            true => Parked::park(log.reads(), GuardedWaker::of(&waker), &mut Vec::new()),
            false => None,
        };
        log.end(&pair.realm);
        match parked {
            Some(parked) => {
                while !parked.is_woken() {
                    parker.park(None);
                }
                return Some(parked);
            }
            None if cells.iter().any(|&at| pair.number(at) != 0) => return None,
            None => loom::thread::yield_now(),
        }
    }
}

#[test]
fn a_parked_task_does_not_sleep_through_a_commit() {
    model(|| {
        let pair = Pair::new();
        let writer = in_thread(&pair, |pair| pair.write([0], 1));
        drop(park(&pair, &[0]));
        writer.join().unwrap();
    });
}

#[test]
fn a_task_parked_in_two_cells_is_woken_by_either() {
    model(|| {
        let pair = Pair::new();
        let writer = in_thread(&pair, |pair| pair.write([1], 1));
        drop(park(&pair, &[0, 1]));
        writer.join().unwrap();
        let none: *const _ = std::ptr::null();
        // SAFETY: no thread is left.
        let waiters = pair.cells.each_ref().map(|cell| unsafe { *cell.waiters.get() });
        assert_eq!(waiters, [none; 2], "nothing is left behind");
    });
}

#[test]
fn one_commit_wakes_all_tasks_that_are_parked_in_a_cell() {
    model(|| {
        let pair = Pair::new();
        let other = in_thread(&pair, |pair| drop(park(pair, &[0])));
        let (parker, waker) = sleeper();
        let parked = park_once(&pair, &waker).expect("no one has written");
        pair.write([0], 1);
        parker.park(None);
        assert!(parked.is_woken());
        other.join().unwrap();
    });
}

#[test]
fn a_task_that_leaves_takes_no_other_out_of_the_list() {
    model(|| {
        let pair = Pair::new();
        let (parker, waker) = sleeper();
        let parked = park_once(&pair, &waker).expect("no one has written");
        let leaver = in_thread(&pair, |pair| drop(park_once(pair, Waker::noop())));
        pair.write([0], 1);
        parker.park(None);
        assert!(parked.is_woken());
        leaver.join().unwrap();
        assert_eq!(pair.cells[0].word() & 3, 0, "neither locked nor waited for");
    });
}

/// Parks in the first cell, unless it was written meanwhile.
fn park_once(pair: &Pair, waker: &Waker) -> Option<Parked> {
    let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
    log.begin(&pair.realm, false);
    let read = log.read_bits(&pair.realm, pair.cell(0));
    let parked = read.ok().and_then(|_| Parked::park(log.reads(), GuardedWaker::of(waker), &mut Vec::new()));
    log.end(&pair.realm);
    parked
}

#[test]
fn a_task_that_leaves_while_it_is_woken_is_gone_from_all_lists() {
    model(|| {
        let pair = Pair::new();
        let (_parker, waker) = sleeper();
        let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
        log.begin(&pair.realm, false);
        for at in 0..2 {
            assert!(log.read_bits(&pair.realm, pair.cell(at)).is_ok());
        }
        let parked = Parked::park(log.reads(), GuardedWaker::of(&waker), &mut Vec::new());
        log.end(&pair.realm);
        let writer = in_thread(&pair, |pair| pair.write([0], 1));
        drop(parked);
        writer.join().unwrap();
        for cell in &pair.cells {
            assert_eq!(cell.word() & 3, 0, "neither locked nor waited for");
        }
    });
}

#[test]
fn a_waker_that_changes_is_woken_or_its_task_sees_that() {
    model(|| {
        let pair = Pair::new();
        let (_first, waker) = sleeper();
        let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
        log.begin(&pair.realm, false);
        assert!(log.read_bits(&pair.realm, pair.cell(0)).is_ok());
        let parked = Parked::park(log.reads(), GuardedWaker::of(&waker), &mut Vec::new());
        let mut parked = parked.expect("no one has written");
        log.end(&pair.realm);
        let writer = in_thread(&pair, |pair| pair.write([0], 1));
        let (second, waker) = sleeper();
        if parked.sleep_on(&waker) {
            second.park(None); // for ever, if the commit has woken the first
        }
        writer.join().unwrap();
        assert!(parked.is_woken());
    });
}

#[test]
fn what_a_transaction_has_read_alone_stays_until_it_ends() {
    model(|| {
        let pair = Pair::new();
        let writer = in_thread(&pair, |pair| {
            let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
            let written = pair.attempt(&mut log, |log| {
                log.write_bits(pair.cell(0), bits(1));
                Ok(())
            });
            drop(written);
        });
        let alone = pair.run_alone.try_take().expect("no other runs alone");
        let mut log = TxLog::new(pair.realm.take(WORLD), WORLD);
        log.begin(&pair.realm, true);
        if log.read_bits(&pair.realm, pair.cell(0)).is_ok() {
            let read = log.reads()[0].version();
            loom::thread::yield_now();
            assert_eq!(version_of(pair.cells[0].word()), read, "a commit that came later has got through");
        }
        log.end(&pair.realm);
        drop(alone);
        writer.join().unwrap();
    });
}
