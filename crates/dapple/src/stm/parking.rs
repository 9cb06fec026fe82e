//! Parked transactions: a task that sleeps until one of the cells is written that its transaction has read.
//!
//! ```text
//! cell --> ring of links (in the order in which they came); each link is a part of a parked task
//! parked task: its waker, and a link for each cell
//! ```
//!
//! # Invariants
//!
//! * **ENLIST-LOCKED**: a task enlists with a cell while it owns the cell (LOCK-BIT in `cell`), and only if the version is
//!   the one that its transaction has read. A commit takes the list while it owns the cell. So a commit that comes after
//!   the read is noticed by the task, or finds it in the list.
//! * **WOKEN-ONCE**: the commit that changes the state from ASLEEP to WOKEN takes the waker, and wakes the task. If the task
//!   is CHANGING its waker, it sees WOKEN afterwards, and goes on by itself.
//! * **LINK-OUT-LAST**: a commit that takes a link out of a list stores null in `prev` as its last access to the link and its
//!   task. The task is freed after each of its links is out.
//! * **LINK-KEEPS-CELL**: a link has a handle of its cell, from when it is enlisted until the task leaves.

use std::cell::{Cell, UnsafeCell};
use std::ptr::{NonNull, null, null_mut};
use std::task::Waker;

use super::cell::{CellHead, CellRef, WAITED, version_of};
use super::log::ReadEntry;
use crate::prim::{AtomicPtr, AtomicU8, IS_MODEL, Ordering};
use crate::task::guarded::GuardedWaker;
use crate::world;

const ASLEEP: u8 = 0;
const CHANGING: u8 = 1;
const WOKEN: u8 = 2;

/// The place of a parked task in the list of one cell.
pub(crate) struct ParkedLink {
    /// Null if it is in no list. LINK-OUT-LAST
    prev: AtomicPtr<ParkedLink>,
    next: Cell<*const ParkedLink>,
    /// None: it was never enlisted. LINK-KEEPS-CELL
    cell: Cell<Option<CellRef>>,
    task: Cell<*const ParkedTask>,
}

struct ParkedTask {
    state: AtomicU8,
    /// Its owner is the task, until the state is WOKEN. WOKEN-ONCE
    waker: UnsafeCell<Option<GuardedWaker>>,
    first: ParkedLink,
    more: Option<Box<MoreLinks>>,
}

/// Links for all cells but the first. Most tasks park in one cell, and have 64 bytes.
struct MoreLinks(Box<[ParkedLink]>);

const _: () = assert!(IS_MODEL || size_of::<ParkedTask>() == 64);

/// A task that is parked. It leaves all lists when it is dropped.
pub(crate) struct Parked(NonNull<ParkedTask>);

// SAFETY: what several threads reach is guarded by the locks of the cells and by the state. A cell may be sent.
unsafe impl Send for Parked {}
// SAFETY: nothing can be done with a shared one but to look at the state.
unsafe impl Sync for Parked {}

impl ParkedLink {
    fn new() -> ParkedLink {
        ParkedLink {
            prev: AtomicPtr::new(null_mut()),
            next: Cell::new(null()),
            cell: Cell::new(None),
            task: Cell::new(null()),
        }
    }

    /// Appends the link to the list of a cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell. The link is in no list, and stays where it is until it is out of this one.
    unsafe fn push(&self, cell: &CellHead) {
        let own: *const ParkedLink = self;
        // SAFETY: promised by the caller. LOCK-BIT
        let waiters = unsafe { &mut *cell.waiters.get() };
        // SAFETY: a link in the list exists. LINK-OUT-LAST
        match unsafe { waiters.as_ref() } {
            None => {
                self.next.set(own);
                self.prev.store(own.cast_mut(), Ordering::Relaxed);
            }
            Some(last) => {
                let first = last.next.get();
                self.next.set(first);
                self.prev.store((*waiters).cast_mut(), Ordering::Relaxed);
                last.next.set(own);
                // SAFETY: as above.
                unsafe { &*first }.prev.store(own.cast_mut(), Ordering::Relaxed);
            }
        }
        *waiters = own;
    }

    /// Takes the link out of the list of a cell, if it is in it. `true`: the list is empty.
    ///
    /// # Safety
    ///
    /// The caller owns the cell, and the link.
    unsafe fn remove(&self, cell: &CellHead) -> bool {
        let own: *const ParkedLink = self;
        // SAFETY: promised by the caller. LOCK-BIT
        let waiters = unsafe { &mut *cell.waiters.get() };
        let prev: *const ParkedLink = self.prev.load(Ordering::Relaxed);
        if !prev.is_null() {
            let next = self.next.get();
            if std::ptr::eq(next, own) {
                *waiters = null();
            } else {
                // SAFETY: a link in the list exists. LINK-OUT-LAST
                unsafe { &*prev }.next.set(next);
                // SAFETY: as above.
                unsafe { &*next }.prev.store(prev.cast_mut(), Ordering::Relaxed);
                if std::ptr::eq(*waiters, own) {
                    *waiters = prev;
                }
            }
            self.prev.store(null_mut(), Ordering::Relaxed);
        }
        waiters.is_null()
    }
}

/// Takes all out of the list of a cell, and adds the wakers of those that are to be woken, in order.
///
/// # Safety
///
/// The caller owns the cell.
#[cold]
pub(crate) unsafe fn take_waiters(cell: &CellHead, wakers: &mut Vec<GuardedWaker>) {
    // SAFETY: promised by the caller. LOCK-BIT
    let last = std::mem::replace(unsafe { &mut *cell.waiters.get() }, null());
    // SAFETY: a link in the list exists. LINK-OUT-LAST
    let Some(link) = (unsafe { last.as_ref() }) else { return };
    let mut at = link.next.get();
    loop {
        // SAFETY: a link in the list exists, with its task. LINK-OUT-LAST
        let link = unsafe { &*at };
        let next = link.next.get();
        // SAFETY: as above.
        let task = unsafe { &*link.task.get() };
        if task.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            // SAFETY: the waker is ours. WOKEN-ONCE
            wakers.extend(unsafe { &mut *task.waker.get() }.take());
        }
        link.prev.store(null_mut(), Ordering::Release); // LINK-OUT-LAST
        if std::ptr::eq(at, last) {
            return;
        }
        at = next;
    }
}

impl ParkedTask {
    fn places(&self) -> impl Iterator<Item = &ParkedLink> {
        std::iter::once(&self.first).chain(self.more.iter().flat_map(|more| &more.0))
    }
}

impl Parked {
    /// Parks a transaction that has read `reads`, each cell once. `None`: one of them has been written since.
    pub(crate) fn park(reads: &[ReadEntry], waker: GuardedWaker, dead: &mut Vec<CellRef>) -> Option<Parked> {
        let more = (reads.len() > 1)
            .then(|| Box::new(MoreLinks((1..reads.len()).map(|_| ParkedLink::new()).collect())));
        let task = Box::new(ParkedTask {
            state: AtomicU8::new(ASLEEP),
            waker: UnsafeCell::new(Some(waker)),
            first: ParkedLink::new(),
            more,
        });
        let mut parked = Parked(NonNull::from(Box::leak(task)));
        let is_in_all = reads.iter().zip(parked.task().places()).all(|(read, link)| {
            link.task.set(parked.0.as_ptr());
            world::pause();
            let cell = read.cell().get();
            let word = cell.lock();
            if version_of(word) != read.version() {
                cell.unlock(word);
                return false;
            }
            if !cell.handles.try_add() {
                cell.unlock(word); // its last handle is gone: no transaction that begins from now on can write it
                return true;
            }
            link.cell.set(Some(read.cell()));
            // SAFETY: the cell is ours, and the link is in no list. ENLIST-LOCKED
            unsafe { link.push(cell) };
            world::pause();
            cell.unlock(word | WAITED);
            true
        });
        if !is_in_all {
            parked.leave(dead);
            return None;
        }
        Some(parked)
    }

    fn task(&self) -> &ParkedTask {
        // SAFETY: it is freed by `drop` alone.
        unsafe { self.0.as_ref() }
    }

    /// Whether a commit has woken the task.
    pub(crate) fn is_woken(&self) -> bool {
        self.task().state.load(Ordering::Acquire) == WOKEN
    }

    /// Sleeps on, to be woken by `waker`. `false`: it has been woken.
    pub(crate) fn sleep_on(&mut self, waker: &Waker) -> bool {
        let task = self.task();
        let new = GuardedWaker::of(waker); // CLONED-FIRST
        let begin = task.state.compare_exchange(ASLEEP, CHANGING, Ordering::Acquire, Ordering::Acquire);
        if begin.is_err() {
            return false;
        }
        // SAFETY: the waker is ours while the state is CHANGING. WOKEN-ONCE
        let old = unsafe { &mut *task.waker.get() }.replace(new);
        let end = task.state.compare_exchange(CHANGING, ASLEEP, Ordering::Release, Ordering::Acquire);
        drop(old);
        end.is_ok()
    }

    /// Leaves all lists. Cells whose last handle that was are added to `dead`.
    pub(crate) fn leave(&mut self, dead: &mut Vec<CellRef>) {
        for link in self.task().places() {
            let Some(of) = link.cell.take() else { continue };
            let cell = of.get();
            if !link.prev.load(Ordering::Acquire).is_null() {
                let word = cell.lock();
                world::pause();
                // SAFETY: the cell is ours, and so is the link.
                let is_empty = unsafe { link.remove(cell) };
                cell.unlock(if is_empty { word & !WAITED } else { word }); // WAITED-LISTED
            }
            if cell.handles.remove() {
                dead.push(of);
            }
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let mut dead = Vec::new();
        self.leave(&mut dead);
        // SAFETY: it was a box, and all links are out. LINK-OUT-LAST
        let task = unsafe { Box::from_raw(self.0.as_ptr()) };
        drop(task); // with its waker, if it has not been woken
        super::retire_cells(dead);
    }
}
