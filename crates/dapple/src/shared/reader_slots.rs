//! Where readers announce themselves: slots of their thread, so that those on different processors write
//! nothing that the others read.
//!
//! ```text
//! registry --> row (of a thread) --> row --> ...        a row is a cache line of eight slots;
//!              [ gate | 0 | 0 | gate | ... ]            a slot names the gate that is read through it
//! ```
//!
//! # Invariants
//!
//! * **OWN-ROW**: a row belongs to one thread at a time. Only that thread puts something into its slots, or
//!   empties them. Others, who want to write, change what is in a slot from "reads" to "counted", once.
//! * **ROWS-STAY**: rows are never freed. A thread that ends leaves its row to the next that begins.

use std::ptr::{NonNull, null_mut};

use crate::prim::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// How many states a thread can read at a time without their counting it.
const SLOTS: usize = if cfg!(loom) { 2 } else { 8 };

/// In a slot: the reader has been counted as one who has a permit. Gates are aligned.
const COUNTED: usize = 1;

#[cfg(not(loom))]
pub(crate) static REGISTRY: Registry = Registry::new();

/// The row of this thread; none while the thread ends.
#[cfg(not(loom))]
#[inline]
pub(crate) fn own_row() -> Option<&'static ReaderSlots> {
    struct OwnRow(&'static ReaderSlots);
    impl Drop for OwnRow {
        fn drop(&mut self) {
            self.0.give_back();
        }
    }
    thread_local! {
        static OWN: OwnRow = OwnRow(REGISTRY.take());
    }
    OWN.try_with(|own| own.0).ok()
}

/// All rows of all threads.
pub(crate) struct Registry(AtomicPtr<ReaderSlots>);

/// The slots of a thread.
#[repr(align(128))] // processors fetch lines in pairs
pub(crate) struct ReaderSlots {
    slots: [ReaderSlot; SLOTS],
    next: AtomicPtr<ReaderSlots>,
    taken: AtomicBool,
}

/// The address of the gate that is read, or 0.
pub(crate) struct ReaderSlot(AtomicUsize);

impl Registry {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Registry {
        Registry(AtomicPtr::new(null_mut()))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Registry {
        Registry(AtomicPtr::new(null_mut()))
    }

    /// A row for a thread; OWN-ROW until it is given back.
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
            // SAFETY: it was just leaked. ROWS-STAY
            let row: &'static ReaderSlots = unsafe { new.as_ref() };
            row.next.store(first, Ordering::Relaxed);
            // Sequentially consistent, as are the walks: who announces himself in a row is in the list to all
            // who look for him.
            match self.0.compare_exchange(first, new.as_ptr(), Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return row,
                Err(now) => first = now,
            }
        }
    }

    fn all_reader_slots(&self) -> impl Iterator<Item = &'static ReaderSlots> {
        fn reader_slots(pointer: *mut ReaderSlots) -> Option<&'static ReaderSlots> {
            // SAFETY: what is in the list is there for ever. ROWS-STAY
            unsafe { pointer.as_ref() }
        }
        std::iter::successors(reader_slots(self.0.load(Ordering::SeqCst)), |last| {
            reader_slots(last.next.load(Ordering::Relaxed)) // what is behind a row never changes
        })
    }

    /// All slots in which a gate is named, after a step that keeps others from entering it.
    pub(crate) fn named(&self, gate: usize) -> impl Iterator<Item = &'static ReaderSlot> {
        self.all_reader_slots()
            .flat_map(|row| &row.slots)
            .filter(move |slot| slot.0.load(Ordering::SeqCst) == gate)
    }
}

impl ReaderSlots {
    /// Gives the row back, empty.
    pub(crate) fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// A slot that is empty; for the row's own thread.
    #[inline]
    pub(crate) fn free(&self) -> Option<&ReaderSlot> {
        self.slots.iter().find(|slot| slot.0.load(Ordering::Relaxed) == 0)
    }
}

impl ReaderSlot {
    /// Names a gate, before its word is looked at; for the row's own thread.
    #[inline]
    pub(crate) fn name(&self, gate: usize) {
        self.0.swap(gate, Ordering::SeqCst);
    }

    /// Empties it. `true`: it has been counted, and so has a permit to give back. For the row's own thread.
    #[inline]
    pub(crate) fn empty(&self) -> bool {
        // Whoever counted him may have come after others who wrote, which a reader so let in sees.
        self.0.swap(0, Ordering::AcqRel) & COUNTED != 0
    }

    /// Whether the gate is still read through it.
    pub(crate) fn names(&self, gate: usize) -> bool {
        self.0.load(Ordering::Acquire) == gate
    }

    /// Counts the reader, if he is still there. OWN-ROW
    pub(crate) fn count(&self, gate: usize) -> bool {
        self.0.compare_exchange(gate, gate | COUNTED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
