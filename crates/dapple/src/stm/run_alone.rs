//! A transaction that was aborted many times runs alone: all other commits of its world stand back for it.
//!
//! # Invariants
//!
//! * **LOCK-THEN-LOOK**: a commit locks its cells first and looks at the flag second (both SeqCst); a transaction that runs
//!   alone sets the flag first and reads second. So a commit that has not seen the flag has locked its cells before the
//!   transaction that runs alone looks at them. It is one of those that were under way when the flag was set: there are at
//!   most as many as threads, and only they can abort the transaction that runs alone.

use crate::prim::{AtomicBool, Ordering, step_fence};

/// Whether a transaction runs alone. One for each world.
pub(crate) struct RunAlone(AtomicBool);

/// A transaction runs alone until this is dropped.
pub(crate) struct Alone<'a>(&'a RunAlone);

impl RunAlone {
    /// One with this flag, which is not set.
    pub(crate) const fn of(flag: AtomicBool) -> RunAlone {
        RunAlone(flag)
    }

    /// Runs alone from here on, unless another transaction does.
    pub(crate) fn try_take(&self) -> Option<Alone<'_>> {
        let is_taken = self.0.swap(true, Ordering::SeqCst);
        step_fence();
        if is_taken { None } else { Some(Alone(self)) }
    }

    /// Whether a transaction runs alone. LOCK-THEN-LOOK
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        step_fence();
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
