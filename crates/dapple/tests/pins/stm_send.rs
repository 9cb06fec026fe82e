//! Which types of `stm` may pass between threads, pinned at compile time.

use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync::MutexGuard;

use dapple::stm::{Abort, Atomically, AtomicallyOr, TVar, Transaction, TryError};

pin_markers! {
    // type: Send Sync;
    TVar<u8>: yes yes;
    TVar<String>: yes yes;
    // A value is dropped by any thread, and seen by several.
    TVar<Cell<u8>>: no no;
    TVar<MutexGuard<'static, u8>>: no no;
    TVar<Rc<u8>>: no no;
    Transaction<'static>: no no;
    Abort: yes yes;
    TryError: yes yes;
    Atomically<fn()>: yes yes;
    Atomically<Cell<u8>>: yes no;
    Atomically<Rc<u8>>: no no;
    AtomicallyOr<fn()>: yes yes;
    AtomicallyOr<Rc<u8>>: no no;
}

/// A panic in a transaction leaves no trace in its variables.
#[test]
fn variables_may_be_used_after_a_panic() {
    fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe + Unpin>() {}
    is_unwind_safe::<TVar<Cell<u8>>>();
}
