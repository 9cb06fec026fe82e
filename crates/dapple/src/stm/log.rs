//! The log of a running transaction: the cells it has read, the values it will write, and how it ends.
//!
//! # Invariants
//!
//! * **CONSISTENT**: all values in `reads` were there at the time `stamp`. A value of a later version is read only after
//!   all earlier reads were found unchanged at a later time, which becomes the stamp. So a transaction never sees two values
//!   that were not there together, also if it will be aborted (opacity).
//! * **POISONED**: once the state is not `Running`, no operation succeeds and the commit refuses, also if the closure has
//!   swallowed the error. Only `or_else` takes a `Retry` back, with all that its first branch has written.
//! * **LENT-STAYS**: a pending value that was lent for the rest of the transaction is not changed or dropped before its end.
//! * **LOG-OWNS**: the log owns the pending values in `writes`, `undo` and `kept`.
//! * **PLAIN-LATER**: old values of a plain kind wait in `plain` until there are some of them, or the log is not used any
//!   more. Then they are retired, with the times at which they were replaced. So most commits look at no other announcement.

use super::cell::{CellRef, LOCKED, VERSION, ValueBits, WAITED, version_of};
use super::parking::take_waiters;
use super::realm::{Announcement, DropBits, Realm, Retired};
use super::run_alone::RunAlone;
use crate::prim::{IS_MODEL, step_fence};
use crate::task::guarded::GuardedWaker;
use crate::world;

/// Pending writes that are found one by one, without an index.
const FEW: usize = 8;
/// Entries that a log, and limbo, keep room for when they are not in use.
pub(crate) const KEEPS: usize = 1 << 12;
/// Old values that are retired together. PLAIN-LATER
const PLAIN: usize = if IS_MODEL { 2 } else { 64 };

/// A cell that was read, and its version.
#[derive(Clone, Copy)]
pub(crate) struct ReadEntry {
    cell: CellRef,
    version: u64,
}

impl ReadEntry {
    pub(crate) fn cell(&self) -> CellRef {
        self.cell
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }
}

/// A cell that will be written, and its pending value. LOG-OWNS
pub(crate) struct WriteEntry {
    cell: CellRef,
    pub(crate) value: ValueBits,
    /// The word before it was locked.
    before: u64,
    /// LENT-STAYS
    pub(crate) is_lent: bool,
}

impl WriteEntry {
    /// Locks the cell. The cells of a log are locked in the order of its writes: one by address would differ from run to run.
    #[inline]
    fn lock(&mut self) -> bool {
        let cell = self.cell.get();
        while let Some(word) = cell.unlocked_word() {
            if cell.try_lock(word) {
                self.before = word;
                world::pause();
                return true;
            }
        }
        false
    }
}

/// A pending value that is not to be committed, and how it is dropped. LOG-OWNS
struct Pending(ValueBits, DropBits);

/// A pending value that a branch of `or_else` has replaced.
struct Replaced {
    index: usize,
    value: ValueBits,
    is_lent: bool,
}

/// How a transaction stands. POISONED
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TxState {
    Running,
    /// It has called `retry`.
    Retry,
    /// Another transaction is in the way.
    Conflict,
}

/// Marks in the log, to which a branch of `or_else` is rolled back.
#[derive(Clone, Copy)]
pub(crate) struct Savepoint {
    writes: usize,
    undo: usize,
    hooks: usize,
    outer: usize,
}

/// See the head of this file.
pub(crate) struct TxLog {
    announcement: &'static Announcement,
    pub(crate) world: u32,
    pub(crate) state: TxState,
    pub(crate) is_alone: bool,
    stamp: u64,
    reads: Vec<ReadEntry>,
    pub(crate) writes: Vec<WriteEntry>,
    /// Where in `writes` a cell is, by a hash of its address; positions are counted from one, and 0 is free.
    index: Vec<u32>,
    /// Writes before this one belong to code around the current branch of `or_else`.
    branch: usize,
    undo: Vec<Replaced>,
    /// Pending values that were lent, and replaced. LENT-STAYS
    kept: Vec<Pending>,
    /// Calls for after the commit.
    pub(crate) hooks: Vec<Box<dyn FnOnce()>>,
    pub(crate) retired: Vec<Retired>,
    /// PLAIN-LATER
    plain: Vec<Retired>,
    pub(crate) wakers: Vec<GuardedWaker>,
}

/// A value that was found.
pub(crate) enum Found {
    /// In the cell, as of the stamp.
    Committed(ValueBits),
    /// Of this transaction, at this place in `writes`.
    Own(usize),
}

/// A transaction cannot go on.
pub(crate) struct Poisoned;

impl TxLog {
    pub(crate) fn new(announcement: &'static Announcement, world: u32) -> TxLog {
        TxLog {
            announcement,
            world,
            state: TxState::Running,
            is_alone: false,
            stamp: 0,
            reads: Vec::new(),
            writes: Vec::new(),
            index: Vec::new(),
            branch: 0,
            undo: Vec::new(),
            kept: Vec::new(),
            hooks: Vec::new(),
            retired: Vec::new(),
            plain: Vec::new(),
            wakers: Vec::new(),
        }
    }

    /// Begins a transaction. The log is empty.
    #[inline]
    pub(crate) fn begin(&mut self, realm: &Realm, is_alone: bool) {
        self.state = TxState::Running;
        self.is_alone = is_alone;
        self.stamp = self.announcement.begin(realm);
    }

    /// Ends it. Values that are to be dropped now are in `retired`.
    #[inline]
    pub(crate) fn end(&mut self, realm: &Realm) {
        self.reads.clear();
        let is_marked = self.announcement.end();
        if self.plain.len() >= PLAIN {
            self.retired.append(&mut self.plain); // PLAIN-LATER
        }
        realm.retire(&mut self.retired, self.world);
        if is_marked {
            realm.collect(&mut self.retired, self.world); // MARKED-COLLECTS
        }
        if self.reads.capacity().max(self.writes.capacity()) > KEEPS {
            self.shrink();
        }
    }

    /// Retires all plain values, before the log is dropped. Those that are to be dropped now are in `retired`.
    pub(crate) fn retire_plain(&mut self, realm: &Realm) {
        self.retired.append(&mut self.plain);
        realm.retire(&mut self.retired, self.world);
    }

    /// A large transaction keeps no memory.
    #[cold]
    fn shrink(&mut self) {
        self.reads.shrink_to(KEEPS);
        self.writes.shrink_to(KEEPS);
        self.undo.shrink_to(KEEPS);
        self.kept.shrink_to(KEEPS);
        self.index = Vec::new();
        self.plain.shrink_to(KEEPS);
    }

    /// The time as of which it has read, and once it has committed writes, their time.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }

    pub(crate) fn reads(&self) -> &[ReadEntry] {
        &self.reads
    }

    /// Forgets the reads of cells that were read before, so that each cell is there once.
    #[cold]
    pub(crate) fn unite_reads(&mut self) {
        if self.reads.len() <= FEW {
            let mut kept = 0;
            for at in 0..self.reads.len() {
                let read = self.reads[at];
                if self.reads[..kept].iter().all(|earlier| earlier.cell != read.cell) {
                    self.reads[kept] = read;
                    kept += 1;
                }
            }
            self.reads.truncate(kept);
        } else {
            let mut seen = std::collections::HashSet::with_capacity(self.reads.len());
            self.reads.retain(|read| seen.insert(read.cell.addr()));
        }
    }

    /// Another transaction is in the way. POISONED
    #[cold]
    fn conflict(&mut self) -> Poisoned {
        self.state = TxState::Conflict;
        Poisoned
    }

    /// Finds the value of a cell, and notes that it was read. CONSISTENT
    ///
    /// The common case is inlined: the cell is free, and not newer than the transaction, which has written nothing so far.
    #[inline(always)]
    pub(crate) fn find(&mut self, realm: &Realm, of: CellRef) -> Result<Found, Poisoned> {
        let cell = of.get();
        if self.state == TxState::Running && self.writes.is_empty() && cell.is_bound_to(self.world) {
            let word = cell.word();
            if word & LOCKED == 0 && word >> VERSION <= self.stamp {
                let value = cell.value();
                if (cell.word() ^ word) & !WAITED == 0 {
                    self.reads.push(ReadEntry { cell: of, version: version_of(word) });
                    return Ok(Found::Committed(value)); // TWO-LOOKS
                }
            }
        }
        self.find_slowly(realm, of)
    }

    #[inline(never)]
    fn find_slowly(&mut self, realm: &Realm, of: CellRef) -> Result<Found, Poisoned> {
        if self.state != TxState::Running {
            return Err(Poisoned);
        }
        if !self.writes.is_empty()
            && let Some(at) = self.position(of)
        {
            return Ok(Found::Own(at));
        }
        self.read(realm, of).map(Found::Committed)
    }

    /// Where the pending value of a cell is, if it has one.
    #[inline]
    pub(crate) fn find_own(&self, of: CellRef) -> Result<Option<usize>, Poisoned> {
        match self.state {
            TxState::Running if self.writes.is_empty() => Ok(None),
            TxState::Running => Ok(self.position(of)),
            _ => Err(Poisoned),
        }
    }

    /// Keeps a value until the transaction ends. LENT-STAYS
    pub(crate) fn keep(&mut self, value: ValueBits, drop_bits: DropBits) {
        self.kept.push(Pending(value, drop_bits));
    }

    #[inline]
    pub(crate) fn read(&mut self, realm: &Realm, of: CellRef) -> Result<ValueBits, Poisoned> {
        let cell = of.get();
        cell.bind(self.world);
        loop {
            let Some(word) = cell.unlocked_word() else { return Err(self.conflict()) };
            let version = version_of(word);
            if version >> VERSION > self.stamp {
                self.extend(realm)?;
                continue;
            }
            let value = cell.value();
            if cell.word() & !WAITED == version {
                self.reads.push(ReadEntry { cell: of, version });
                return Ok(value);
            }
        }
    }

    /// Makes now the time of the transaction, if nothing that it has read was written since. CONSISTENT
    #[cold]
    fn extend(&mut self, realm: &Realm) -> Result<(), Poisoned> {
        let now = realm.now();
        world::pause();
        for read in &self.reads {
            match read.cell.get().unlocked_word() {
                Some(word) if version_of(word) == read.version => {}
                _ => return Err(self.conflict()),
            }
        }
        self.stamp = now;
        Ok(())
    }

    fn position(&self, of: CellRef) -> Option<usize> {
        if self.writes.len() <= FEW {
            return self.writes.iter().position(|write| write.cell == of);
        }
        let mut slot = hash(of) & (self.index.len() - 1);
        loop {
            let at = (self.index[slot] as usize).checked_sub(1)?;
            if self.writes[at].cell == of {
                return Some(at);
            }
            slot = (slot + 1) & (self.index.len() - 1);
        }
    }

    /// Adds a pending value for a cell that has none. LOG-OWNS
    #[inline]
    pub(crate) fn push(&mut self, of: CellRef, value: ValueBits) {
        of.get().bind(self.world);
        self.writes.push(WriteEntry { cell: of, value, before: 0, is_lent: false });
        if self.writes.len() > FEW {
            self.add_to_index();
        }
    }

    /// The last write is new, or (if the index is too small) all of them.
    #[cold]
    fn add_to_index(&mut self) {
        let len = self.writes.len();
        let mut first = len - 1;
        if len == FEW + 1 || self.index.len() < 2 * len {
            self.index.clear();
            self.index.resize((4 * len).next_power_of_two(), 0);
            first = 0;
        }
        for at in first..len {
            let mut slot = hash(self.writes[at].cell) & (self.index.len() - 1);
            while self.index[slot] != 0 {
                slot = (slot + 1) & (self.index.len() - 1);
            }
            self.index[slot] = u32::try_from(at + 1).expect("fewer than 2^32 writes");
        }
    }

    /// Replaces the pending value of a cell. Returns the old one if it is to be dropped.
    #[inline]
    pub(crate) fn replace(&mut self, at: usize, value: ValueBits) -> Option<ValueBits> {
        let write = &mut self.writes[at];
        let old = std::mem::replace(&mut write.value, value);
        let is_lent = std::mem::take(&mut write.is_lent);
        if at < self.branch {
            self.undo.push(Replaced { index: at, value: old, is_lent });
            return None;
        }
        self.keep_or_drop(at, old, is_lent)
    }

    /// Whether the pending value of a cell may be changed in place.
    #[inline]
    pub(crate) fn is_changeable(&self, at: usize) -> bool {
        at >= self.branch && !self.writes[at].is_lent
    }

    #[inline]
    fn keep_or_drop(&mut self, at: usize, value: ValueBits, is_lent: bool) -> Option<ValueBits> {
        let drop_bits = self.writes[at].cell.get().drop_bits()?;
        if is_lent {
            self.kept.push(Pending(value, drop_bits)); // LENT-STAYS
            return None;
        }
        Some(value)
    }

    /// Begins a branch of `or_else`.
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        let outer = std::mem::replace(&mut self.branch, self.writes.len());
        Savepoint { writes: self.writes.len(), undo: self.undo.len(), hooks: self.hooks.len(), outer }
    }

    /// Ends a branch whose writes stay.
    pub(crate) fn merge(&mut self, to: Savepoint) {
        self.branch = to.outer;
        if to.outer == 0 {
            for at in to.undo..self.undo.len() {
                let Replaced { index, value, .. } = self.undo[at];
                self.kept_at(index, value);
            }
            self.undo.truncate(to.undo);
        }
    }

    /// No branch is left: of one that has unwound, the writes stay.
    #[inline]
    fn flatten(&mut self) {
        self.branch = 0;
        while let Some(Replaced { index, value, .. }) = self.undo.pop() {
            self.kept_at(index, value);
        }
    }

    /// Ends a branch whose writes do not stay. Its values are dropped with the transaction: they may have been lent.
    pub(crate) fn roll_back(&mut self, to: Savepoint) -> Vec<Box<dyn FnOnce()>> {
        while self.undo.len() > to.undo {
            let Some(Replaced { index, value, is_lent }) = self.undo.pop() else { break };
            let new = std::mem::replace(&mut self.writes[index].value, value);
            self.writes[index].is_lent = is_lent;
            self.kept_at(index, new);
        }
        while self.writes.len() > to.writes {
            let at = self.writes.len() - 1;
            let value = self.writes[at].value;
            self.kept_at(at, value);
            self.writes.pop();
        }
        if self.writes.len() > FEW {
            self.index.clear();
            self.index.resize((4 * self.writes.len()).next_power_of_two(), 0);
            for at in 0..self.writes.len() {
                let mut slot = hash(self.writes[at].cell) & (self.index.len() - 1);
                while self.index[slot] != 0 {
                    slot = (slot + 1) & (self.index.len() - 1);
                }
                self.index[slot] = (at + 1) as u32; // it fitted before
            }
        }
        self.branch = to.outer;
        self.hooks.split_off(to.hooks)
    }

    fn kept_at(&mut self, at: usize, value: ValueBits) {
        if let Some(drop_bits) = self.writes[at].cell.get().drop_bits() {
            self.kept.push(Pending(value, drop_bits));
        }
    }

    /// Makes the writes visible, all at once, or none of them. The wakers of parked tasks are in `wakers` then, and the old
    /// values in `retired`. POISONED
    pub(crate) fn commit(&mut self, realm: &Realm, run_alone: &RunAlone) -> Result<(), Poisoned> {
        if self.state != TxState::Running {
            return Err(Poisoned);
        }
        if self.writes.is_empty() {
            return Ok(()); // all reads are of one time. CONSISTENT
        }
        world::pause();
        if !self.is_alone && run_alone.is_taken() {
            return Err(self.conflict()); // before it disturbs the one that runs alone
        }
        self.flatten();
        let refused = self.writes.iter_mut().position(|write| !write.lock());
        if let Some(at) = refused {
            self.unlock_writes(at);
            return Err(self.conflict());
        }
        if !self.is_alone && run_alone.is_taken() {
            self.unlock_writes(self.writes.len()); // LOCK-THEN-LOOK
            return Err(self.conflict());
        }
        let time = realm.tick();
        world::pause();
        // Nothing was committed since the last look, so nothing has changed. Other worlds have the same clock, so that in a
        // simulation this would differ from run to run.
        let is_next = time == self.stamp + 1 && !world::is_simulated();
        if !is_next && !self.is_unchanged() {
            self.unlock_writes(self.writes.len());
            return Err(self.conflict());
        }
        self.publish(time);
        Ok(())
    }

    fn unlock_writes(&self, until: usize) {
        for write in &self.writes[..until] {
            write.cell.get().unlock(write.before);
        }
    }

    /// Whether all that was read is as it was. All writes are locked.
    fn is_unchanged(&self) -> bool {
        self.reads.iter().all(|read| {
            let word = read.cell.get().word();
            version_of(word) == read.version && (word & LOCKED == 0 || self.position(read.cell).is_some())
        })
    }

    /// Stores the new values, and unlocks their cells. All writes are locked.
    fn publish(&mut self, time: u64) {
        self.stamp = time;
        step_fence();
        for write in &self.writes {
            let cell = write.cell.get();
            let old = cell.replace(write.value);
            if let Some(kind) = cell.kind() {
                // SAFETY: the value was in the cell until now, which was locked before `time`. RETIRED-LATER
                let old = unsafe { Retired::new(old, kind.drop_bits, time, cell.world()) };
                let retired = if kind.is_plain { &mut self.plain } else { &mut self.retired };
                retired.push(old);
            }
            if write.before & WAITED != 0 {
                // SAFETY: we own the cell. LOCK-BIT
                unsafe { take_waiters(cell, &mut self.wakers) };
            }
            world::pause();
        }
        for write in &self.writes {
            write.cell.get().unlock(time << VERSION); // VERSION-GROWS, WAITED-LISTED
            world::pause();
        }
        self.writes.clear();
    }

    /// Whether `pop_pending` may have something to take, or to put in order.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !(self.writes.is_empty() && self.kept.is_empty() && self.undo.is_empty() && self.branch == 0)
    }

    /// Takes the pending values that are to be dropped, one by one. LOG-OWNS
    pub(crate) fn pop_pending(&mut self) -> Option<(ValueBits, DropBits)> {
        if let Some(Pending(value, drop_bits)) = self.kept.pop() {
            return Some((value, drop_bits));
        }
        while let Some(Replaced { index, value, .. }) = self.undo.pop() {
            // Writes are popped later, so the index is right.
            if let Some(drop_bits) = self.writes.get(index).and_then(|write| write.cell.get().drop_bits()) {
                return Some((value, drop_bits));
            }
        }
        while let Some(WriteEntry { cell, value, .. }) = self.writes.pop() {
            if let Some(drop_bits) = cell.get().drop_bits() {
                return Some((value, drop_bits));
            }
        }
        self.branch = 0;
        None
    }
}

impl Drop for TxLog {
    fn drop(&mut self) {
        self.announcement.give_back();
    }
}

fn hash(of: CellRef) -> usize {
    (of.addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(32) as usize
}
