//! The memory of a transactional variable, whatever its type: a word with version and lock, and a value.
//!
//! ```text
//! word:  version (62 bits) | WAITED | LOCKED
//! value: a number of up to 64 bits, or an `Arc` (see `value`)
//! ```
//!
//! # Invariants
//!
//! * **LOCK-BIT**: the thread that has set LOCKED by a compare-and-swap owns the cell until it stores a word without
//!   LOCKED. Only the owner changes the word, the value and the list of waiters.
//! * **VERSION-GROWS**: an owner that has changed the value stores a version that the clock has given out after the cell was
//!   locked, and that no cell had before. An owner that has not changed it stores the same version.
//! * **TWO-LOOKS**: a reader loads the word, the value, and the word again. If both words are the same and not locked, the
//!   value is that of the version. A pointer is not used before the second look.
//! * **WAITED-LISTED**: an unlocked word has WAITED if and only if the list of waiters is not empty.
//! * **HANDLES-COUNTED**: `handles` counts the `TVar`s of the cell and the links of waiters in its list. At zero the cell is
//!   retired (see `realm`), once, and from then on only transactions that are already under way lock it.

use std::cell::UnsafeCell;
use std::ptr::{NonNull, null};

use super::parking::ParkedLink;
use super::realm::{DropBits, ValueKind};
use crate::prim::{AtomicPtr, AtomicU32, AtomicU64, IS_MODEL, Ordering, spin_loop, yield_now};
use crate::world;

/// The owner of the cell changes it, or enlists a waiter. LOCK-BIT
pub(crate) const LOCKED: u64 = 1;
/// A parked transaction is in the list of the cell. WAITED-LISTED
pub(crate) const WAITED: u64 = 2;
/// Bits of a word below the version.
pub(crate) const VERSION: u32 = 2;

/// No transaction has used the cell.
pub(crate) const UNBOUND: u32 = 0;
/// Transactions of several worlds have used the cell.
pub(crate) const EVERYWHERE: u32 = u32::MAX;

/// How often a transaction looks at a locked cell before it gives up.
const LOOKS: u32 = if IS_MODEL { 1 } else { 64 };

/// A pointer to a value, or the bits of a small one; see `value`.
pub(crate) type ValueBits = *mut ();

/// How many handles a cell has. HANDLES-COUNTED
///
/// It is a type of its own for [`remove`](Self::remove): as soon as a handle is not counted any more, another thread may
/// free the cell. A reference to the cell that is the argument of a running function promises that the cell stays until the
/// function returns. A reference to this count, which is an atomic and nothing else, does not.
pub(crate) struct HandleCount(AtomicU32);

/// The memory of a `TVar`.
#[repr(C)]
pub(crate) struct CellHead {
    word: AtomicU64,
    value: AtomicPtr<()>,
    /// Last link of the ring of waiters, or null. LOCK-BIT
    pub(crate) waiters: UnsafeCell<*const ParkedLink>,
    pub(crate) handles: HandleCount,
    /// The world whose transactions use the cell. BOUND-TO-WORLD in `realm`
    world: AtomicU32,
    /// How a value is dropped, if it has to be.
    kind: Option<&'static ValueKind>,
}

// SAFETY: the list of waiters is reached by the owner of the cell alone. LOCK-BIT
unsafe impl Sync for CellHead {}
// SAFETY: as above; `TVar` asks for values that may be sent.
unsafe impl Send for CellHead {}

/// The version of a word, without its flags.
#[inline]
pub(crate) fn version_of(word: u64) -> u64 {
    word & !(LOCKED | WAITED)
}

impl CellHead {
    pub(crate) fn new(value: ValueBits, kind: Option<&'static ValueKind>) -> CellHead {
        CellHead {
            word: AtomicU64::new(0),
            value: AtomicPtr::new(value),
            waiters: UnsafeCell::new(null()),
            handles: HandleCount(AtomicU32::new(1)),
            world: AtomicU32::new(UNBOUND),
            kind,
        }
    }

    /// How a value is dropped, if it has to be.
    #[inline]
    pub(crate) fn drop_bits(&self) -> Option<DropBits> {
        self.kind.map(|kind| kind.drop_bits)
    }

    /// The kind of its values, unless they need not be dropped.
    #[inline]
    pub(crate) fn kind(&self) -> Option<&'static ValueKind> {
        self.kind
    }

    /// The word. SeqCst: ANNOUNCED-OR-LOCKED in `realm`
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        self.word.load(Ordering::SeqCst)
    }

    /// The value, between two looks at the word. TWO-LOOKS
    #[inline]
    pub(crate) fn value(&self) -> ValueBits {
        // Acquire: the second look comes after it, and sees at least the lock of the owner that stored this value.
        self.value.load(Ordering::Acquire)
    }

    /// Waits for a while until the cell is not locked. Returns the word.
    #[inline]
    pub(crate) fn unlocked_word(&self) -> Option<u64> {
        let word = self.word();
        if word & LOCKED == 0 { Some(word) } else { self.look_again() }
    }

    #[cold]
    fn look_again(&self) -> Option<u64> {
        for _ in 0..LOOKS {
            spin(1);
            let word = self.word();
            if word & LOCKED == 0 {
                return Some(word);
            }
        }
        None
    }

    /// Locks the cell if its word is `word`, which is not locked. LOCK-BIT
    #[inline]
    pub(crate) fn try_lock(&self, word: u64) -> bool {
        // SeqCst: ANNOUNCED-OR-LOCKED
        self.word.compare_exchange(word, word | LOCKED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Locks the cell, however long that takes. Returns the word before. For owners that hold no other cell.
    pub(crate) fn lock(&self) -> u64 {
        let mut looks = 0;
        loop {
            let word = self.word();
            if word & LOCKED == 0 && self.try_lock(word) {
                return word;
            }
            looks += 1;
            spin(looks);
        }
    }

    /// Ends the ownership. LOCK-BIT
    #[inline]
    pub(crate) fn unlock(&self, word: u64) {
        debug_assert_eq!(word & LOCKED, 0);
        self.word.store(word, Ordering::Release);
    }

    /// Replaces the value. For the owner. Returns the old one.
    #[inline]
    pub(crate) fn replace(&self, value: ValueBits) -> ValueBits {
        let old = self.value.load(Ordering::Relaxed); // changed by owners alone
        // Release: a reader that sees the value sees that the cell was locked before. TWO-LOOKS
        self.value.store(value, Ordering::Release);
        old
    }

    /// Frees the cell, and drops its value, which may panic.
    ///
    /// # Safety
    ///
    /// `cell` is from `Box::into_raw`, its last handle is gone, and no transaction can use it any more.
    pub(crate) unsafe fn free(cell: ValueBits) {
        // SAFETY: promised by the caller.
        let cell = unsafe { Box::from_raw(cell.cast::<CellHead>()) };
        let (value, drop_bits) = (cell.value.load(Ordering::Acquire), cell.drop_bits());
        drop(cell);
        if let Some(drop_bits) = drop_bits {
            // SAFETY: the cell owned its value, and is gone.
            unsafe { drop_bits(value) };
        }
    }

    /// The world whose transactions use the cell. For an owner of the cell, or of its last handle.
    #[inline]
    pub(crate) fn world(&self) -> u32 {
        self.world.load(Ordering::SeqCst)
    }

    /// Whether only transactions of `world` use the cell, so far.
    #[inline]
    pub(crate) fn is_bound_to(&self, world: u32) -> bool {
        self.world.load(Ordering::Relaxed) == world
    }

    /// Before a transaction of `world` uses the cell. BOUND-TO-WORLD
    #[inline]
    pub(crate) fn bind(&self, world: u32) {
        if !self.is_bound_to(world) {
            self.bind_first(world);
        }
    }

    #[cold]
    fn bind_first(&self, world: u32) {
        loop {
            let bound = self.world.load(Ordering::SeqCst);
            let next = match bound {
                UNBOUND => world,
                EVERYWHERE => return,
                bound if bound == world => return,
                _ => EVERYWHERE,
            };
            if self.world.compare_exchange(bound, next, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                crate::prim::step_fence();
                return;
            }
        }
    }
}

impl HandleCount {
    /// Counts one more handle. The caller has one.
    #[inline]
    pub(crate) fn add(&self) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before > u32::MAX / 2 {
            too_many_handles();
        }
    }

    /// Counts one more handle, unless the last one is gone.
    pub(crate) fn try_add(&self) -> bool {
        let add = |handles: u32| (handles != 0).then(|| handles.wrapping_add(1));
        let added = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        if added.is_ok_and(|before| before > u32::MAX / 2) {
            too_many_handles();
        }
        added.is_ok()
    }

    /// Counts one handle less. `true`: it was the last one, and the caller retires the cell. Otherwise the cell may be gone.
    #[inline]
    pub(crate) fn remove(&self) -> bool {
        // AcqRel: the last one sees what all others did.
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cold]
fn too_many_handles() -> ! {
    // As `Arc` does: a count that wraps would free a cell in use.
    std::process::abort()
}

/// Waits for the owner of a cell, which may be waiting for a processor.
#[cold]
fn spin(looks: u32) {
    if world::is_simulated() {
        world::let_others();
    } else if IS_MODEL || looks.is_multiple_of(64) {
        yield_now();
    } else {
        spin_loop();
    }
}

/// A cell in a log. The announcement of the transaction keeps the cell (see `realm`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellRef(NonNull<CellHead>);

impl CellRef {
    /// # Safety
    ///
    /// The cell that `get` returns is used only while its handles, or an announcement that is older than its end, keep it.
    #[inline]
    pub(crate) unsafe fn new(cell: NonNull<CellHead>) -> CellRef {
        CellRef(cell)
    }

    #[inline]
    pub(crate) fn get<'a>(self) -> &'a CellHead {
        // SAFETY: promised to `new`.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn addr(self) -> usize {
        self.0.addr().get()
    }

    pub(crate) fn as_ptr(self) -> *mut CellHead {
        self.0.as_ptr()
    }
}
