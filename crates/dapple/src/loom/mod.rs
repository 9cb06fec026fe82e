//! Models of the lock-free protocols, checked in every interleaving by loom (`ci/loom`).
//!
//! A model is a few threads, a few operations of the real code and one promise, which names it.
//! What the protocols guard (futures, outputs, payloads, the memory itself) is [`Plain`]: loom
//! tells of every access that is not ordered after the one before, so that a missing release or
//! acquire shows even where the values would be right.
//!
//! Two things loom cannot see: a load that is delayed past a later store (so the release of a
//! compare-and-swap that only keeps earlier *reads* in place, SLOT-KEPT, is not shown to matter),
//! and `membarrier` (both fences of `prim` are sequentially consistent ones here).
//!
//! PROOFS

mod idle;
mod inbox;
mod promotion;
mod ring;
mod state;

use loom::cell::UnsafeCell;
use loom::model::Builder;

/// Checks a model, with no more preemptions than `LOOM_MAX_PREEMPTIONS` says.
fn check(model: impl Fn() + Send + Sync + 'static) {
    Builder::new().check(model);
}

/// Memory that is read and written without atomics: the model fails if two threads race for it.
#[derive(Default)]
struct Plain<T>(UnsafeCell<T>);

// SAFETY: loom ends the model before an access that races with another one is made.
unsafe impl<T: Send> Sync for Plain<T> {}

impl<T> Plain<T> {
    fn new(value: T) -> Plain<T> {
        Plain(UnsafeCell::new(value))
    }

    fn read(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: loom has seen that nobody writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: loom has seen that nobody else reads or writes meanwhile.
        self.0.with_mut(|value| change(unsafe { &mut *value }))
    }

    fn write(&self, value: T) {
        self.change(|old| *old = value);
    }
}
