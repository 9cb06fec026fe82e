//! Reader slots: readers register in slots of their own thread, so that readers on different processors write
//! to no common cache line.
//!
//! ```text
//! registry --> row (of a thread) --> row --> ...        a row is a cache line of eight slots;
//!              [ lock | 0 | 0 | lock | ... ]            a slot names the access lock that is read through it
//! ```
//!
//! # Invariants
//!
//! * **OWN-ROW**: a row belongs to one thread at a time. Only that thread fills and empties its slots. A
//!   writer on another thread may only change a slot from "reads" to "counted", once.
//! * **ROWS-STAY**: rows are never freed. A thread that ends leaves its row to the next thread that starts.

use std::ptr::{NonNull, null_mut};

use crate::prim::{AtomicBool, AtomicPtr, AtomicUsize, IS_MODEL, Ordering};

/// Number of states that a thread can read at a time without taking a permit.
const SLOTS: usize = if IS_MODEL { 2 } else { 8 };

/// Bit of a slot: a writer has counted the reader as the holder of a permit. Access locks are aligned, so the
/// bit is free.
const COUNTED: usize = 1;

/// List of the rows of all threads.
#[derive(Default)]
pub(crate) struct Registry(pub(super) AtomicPtr<ReaderSlots>);

/// Row of a thread: its slots.
#[repr(align(128))] // processors fetch lines in pairs
pub(crate) struct ReaderSlots {
    slots: [ReaderSlot; SLOTS],
    next: AtomicPtr<ReaderSlots>,
    taken: AtomicBool,
}

/// Address of the access lock that is read through this slot, or 0.
pub(crate) struct ReaderSlot(AtomicUsize);

impl Registry {
    /// Takes a free row for a thread, or adds one. OWN-ROW until `give_back`.
    pub(crate) fn take(&self) -> &'static ReaderSlots {
        if let Some(row) = self.all_reader_slots().find(|row| !row.taken.swap(true, Ordering::Acquire)) {
            return row;
        }
        let row: &'static mut ReaderSlots = Box::leak(Box::new(ReaderSlots {
            slots: std::array::from_fn(|_| ReaderSlot(AtomicUsize::new(0))),
            next: AtomicPtr::new(null_mut()),
            taken: AtomicBool::new(true),
        }));
        let new = NonNull::from(row);
        let mut first = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: the row was just leaked. ROWS-STAY
            let row: &'static ReaderSlots = unsafe { new.as_ref() };
            row.next.store(first, Ordering::Relaxed);
            // SeqCst, as are the walks over the list: a writer that must see a reader's slot also sees the
            // row of that slot.
            match self.0.compare_exchange(first, new.as_ptr(), Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return row,
                Err(now) => first = now,
            }
        }
    }

    fn all_reader_slots(&self) -> impl Iterator<Item = &'static ReaderSlots> {
        fn reader_slots(pointer: *mut ReaderSlots) -> Option<&'static ReaderSlots> {
            // SAFETY: a row in the list is never freed. ROWS-STAY
            unsafe { pointer.as_ref() }
        }
        std::iter::successors(reader_slots(self.0.load(Ordering::SeqCst)), |last| {
            reader_slots(last.next.load(Ordering::Relaxed)) // the tail behind a row never changes
        })
    }

    /// Slots that name the access lock `gate`. The caller has taken the permits before, so no reader enters anew.
    pub(crate) fn named(&self, gate: usize) -> impl Iterator<Item = &'static ReaderSlot> {
        self.all_reader_slots()
            .flat_map(|row| &row.slots)
            .filter(move |slot| slot.0.load(Ordering::SeqCst) == gate)
    }
}

impl ReaderSlots {
    /// Gives the row back. All slots are empty.
    pub(crate) fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Returns an empty slot. For the row's own thread.
    #[inline]
    pub(crate) fn free(&self) -> Option<&ReaderSlot> {
        self.slots.iter().find(|slot| slot.0.load(Ordering::Relaxed) == 0)
    }
}

impl ReaderSlot {
    /// Registers a reader of the access lock `gate`, before the reader looks at the lock's word. For the row's own thread.
    #[inline]
    pub(crate) fn name(&self, gate: usize) {
        self.0.swap(gate, Ordering::SeqCst);
    }

    /// Empties the slot. `true` if a writer has counted the reader, which then has a permit to release. For
    /// the row's own thread.
    #[inline]
    pub(crate) fn empty(&self) -> bool {
        // Acquire: the writer that counted this reader may have let it in after other writes, which the
        // reader must see.
        self.0.swap(0, Ordering::AcqRel) & COUNTED != 0
    }

    /// Whether the slot still names the access lock `gate`, and is not counted.
    pub(crate) fn names(&self, gate: usize) -> bool {
        self.0.load(Ordering::Acquire) == gate
    }

    /// Counts the reader as the holder of a permit, if it still reads. OWN-ROW
    pub(crate) fn count(&self, gate: usize) -> bool {
        self.0.compare_exchange(gate, gate | COUNTED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
