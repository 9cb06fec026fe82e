//! Where a thread gets the log of a transaction: from its cache, or from the simulated world that it is in.
//!
//! # Invariants
//!
//! * **ONE-REALM**: there is one realm in the process, so that a value that several worlds use is safe. The parts that
//!   would make a simulation differ from run to run are in its world: the cache of logs, the flag of the transaction that runs alone, and
//!   (BOUND-TO-WORLD in `realm`) the transactions that an old value waits for.

use std::cell::{Cell, RefCell};
use std::ptr::null_mut;
use std::rc::Rc;

use super::cell::{EVERYWHERE, UNBOUND};
use super::drops::drop_all;
use super::log::TxLog;
use super::realm::{Limbo, Realm};
use super::run_alone::RunAlone;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::world;

/// ONE-REALM
pub(super) static REALM: Realm =
    Realm::of(AtomicU64::new(0), AtomicPtr::new(null_mut()), Mutex::new(Limbo::new()));

static REAL_ALONE: RunAlone = RunAlone::of(AtomicBool::new(false));

/// The number of the real world.
const REAL: u32 = 1;

thread_local! {
    static CACHE: Cell<Option<IdleLog>> = const { Cell::new(None) };
}

/// A log that no transaction uses. PLAIN-LATER in `log`
struct IdleLog(Option<Box<TxLog>>);

impl IdleLog {
    #[inline]
    fn take(mut self) -> Option<Box<TxLog>> {
        self.0.take()
    }
}

impl Drop for IdleLog {
    fn drop(&mut self) {
        if let Some(log) = &mut self.0 {
            log.retire_plain(&REALM);
            drop_all(&mut log.retired);
        }
    }
}

/// The part of a simulated world.
pub(super) struct SimulatedPart {
    number: u32,
    run_alone: RunAlone,
    logs: RefCell<Vec<IdleLog>>,
}

impl Default for SimulatedPart {
    fn default() -> SimulatedPart {
        static LAST: AtomicU32 = AtomicU32::new(REAL);
        let next = |last: u32| (last < EVERYWHERE - 1).then(|| last + 1);
        // After four thousand million worlds, cells are no longer told apart by them, which is safe.
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = last.map_or(EVERYWHERE - 1, |last| last + 1);
        debug_assert_ne!(number, UNBOUND);
        SimulatedPart { number, run_alone: RunAlone::of(AtomicBool::new(false)), logs: RefCell::default() }
    }
}

/// The world of transactions that a thread is in.
#[derive(Clone)]
pub(super) struct TxWorld(Option<Rc<SimulatedPart>>);

impl TxWorld {
    #[inline]
    pub(super) fn current() -> TxWorld {
        TxWorld(if world::is_simulated() { world::with(|world| world.part()) } else { None })
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.0.as_ref().map_or(REAL, |part| part.number)
    }

    #[inline]
    pub(super) fn run_alone(&self) -> &RunAlone {
        self.0.as_ref().map_or(&REAL_ALONE, |part| &part.run_alone)
    }

    /// An empty log.
    #[inline]
    pub(super) fn take_log(&self) -> Box<TxLog> {
        let cached = match &self.0 {
            None => CACHE.try_with(Cell::take).ok().flatten(), // in a destructor of a thread-local there is none
            Some(part) => part.logs.borrow_mut().pop(),
        };
        cached.and_then(IdleLog::take).unwrap_or_else(|| self.new_log())
    }

    #[cold]
    fn new_log(&self) -> Box<TxLog> {
        Box::new(TxLog::new(REALM.take(self.number()), self.number()))
    }

    /// Gives a log back, which is empty.
    #[inline]
    pub(super) fn give_log(&self, log: Box<TxLog>) {
        let log = IdleLog(Some(log));
        let replaced = match &self.0 {
            // One that was nested in a transaction finds another one here, and replaces it.
            None => CACHE.try_with(|cache| cache.replace(Some(log))).ok().flatten(),
            Some(part) => {
                part.logs.borrow_mut().push(log);
                None
            }
        };
        drop(replaced);
    }
}
