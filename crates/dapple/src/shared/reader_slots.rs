//! Reader slots: readers register in slots of their own thread, so that readers on different processors write
//! to no common cache line.
//!
//! ```text
//! registry --> slots of a thread --> slots of a thread --> ...   eight slots in a cache line;
//!              [ lock | 0 | 0 | lock | ... ]            a slot names the access lock by which its thread reads
//! ```
//!
//! # Invariants
//!
//! * **OWN-SLOTS**: a set of slots belongs to one thread at a time. Only that thread fills and empties them. A
//!   writer on another thread may only change a slot from "reads" to "counted", once.
//! * **SLOTS-STAY**: slots are never freed. A thread that ends leaves its slots to the next thread that starts.

use std::ptr::{NonNull, null_mut};

use crate::prim::{AtomicBool, AtomicPtr, AtomicUsize, IS_MODEL, Ordering};

/// Number of states that a thread can read at a time without taking a permit.
const SLOTS: usize = if IS_MODEL { 2 } else { 8 };

/// Bit of a slot: a writer has counted the reader as the holder of a permit. Access locks are aligned, so the
/// bit is free.
const COUNTED: usize = 1;

/// List of the slots of all threads.
#[derive(Default)]
pub(crate) struct Registry(pub(super) AtomicPtr<ReaderSlots>);

/// The slots of a thread.
#[repr(align(128))] // processors fetch lines in pairs
pub(crate) struct ReaderSlots {
    slots: [ReaderSlot; SLOTS],
    next: AtomicPtr<ReaderSlots>,
    taken: AtomicBool,
}

/// Address of the access lock that is read through this slot, or 0.
pub(crate) struct ReaderSlot(AtomicUsize);

impl Registry {
    /// Takes free slots for a thread, or adds some. OWN-SLOTS until `give_back`.
    pub(crate) fn take(&self) -> &'static ReaderSlots {
        if let Some(slots) = self.all_reader_slots().find(|slots| !slots.taken.swap(true, Ordering::Acquire))
        {
            return slots;
        }
        let slots: &'static mut ReaderSlots = Box::leak(Box::new(ReaderSlots {
            slots: std::array::from_fn(|_| ReaderSlot(AtomicUsize::new(0))),
            next: AtomicPtr::new(null_mut()),
            taken: AtomicBool::new(true),
        }));
        let new = NonNull::from(slots);
        let mut first = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: the slots were just leaked. SLOTS-STAY
            let slots: &'static ReaderSlots = unsafe { new.as_ref() };
            slots.next.store(first, Ordering::Relaxed);
            // SeqCst, as are the walks over the list: a writer that must see a reader's slot also sees
            // the slots that it is one of.
            match self.0.compare_exchange(first, new.as_ptr(), Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return slots,
                Err(now) => first = now,
            }
        }
    }

    fn all_reader_slots(&self) -> impl Iterator<Item = &'static ReaderSlots> {
        fn reader_slots(pointer: *mut ReaderSlots) -> Option<&'static ReaderSlots> {
            // SAFETY: slots in the list are never freed. SLOTS-STAY
            unsafe { pointer.as_ref() }
        }
        std::iter::successors(reader_slots(self.0.load(Ordering::SeqCst)), |last| {
            reader_slots(last.next.load(Ordering::Relaxed)) // the tail of the list never changes
        })
    }

    /// Slots that name the access lock `lock`. The caller has taken the permits before, so no reader enters anew.
    pub(crate) fn named(&self, lock: usize) -> impl Iterator<Item = &'static ReaderSlot> {
        self.all_reader_slots()
            .flat_map(|of_thread| &of_thread.slots)
            .filter(move |slot| slot.0.load(Ordering::SeqCst) == lock)
    }
}

impl ReaderSlots {
    /// Gives the slots back. All are empty.
    pub(crate) fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Returns an empty slot. For the slots' own thread.
    #[inline]
    pub(crate) fn free(&self) -> Option<&ReaderSlot> {
        self.slots.iter().find(|slot| slot.0.load(Ordering::Relaxed) == 0)
    }
}

impl ReaderSlot {
    /// Registers a reader of the access lock `lock`, before the reader looks at the lock's word. For the slots' own thread.
    #[inline]
    pub(crate) fn name(&self, lock: usize) {
        self.0.swap(lock, Ordering::SeqCst);
    }

    /// Empties the slot. `true` if a writer has counted the reader, which then has a permit to release. For
    /// the slots' own thread.
    #[inline]
    pub(crate) fn empty(&self) -> bool {
        // Acquire: the writer that counted this reader may have let it in after other writes, which the
        // reader must see.
        self.0.swap(0, Ordering::AcqRel) & COUNTED != 0
    }

    /// Whether the slot still names the access lock `lock`, and is not counted.
    pub(crate) fn names(&self, lock: usize) -> bool {
        self.0.load(Ordering::Acquire) == lock
    }

    /// Counts the reader as the holder of a permit, if it still reads. OWN-SLOTS
    pub(crate) fn count(&self, lock: usize) -> bool {
        self.0.compare_exchange(lock, lock | COUNTED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
