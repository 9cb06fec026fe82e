//! Dropping what transactions use no more: old values, and cells without handles.
//!
//! A destructor is foreign code. It runs with no lock held and outside of transactions, and its panic is discarded: the
//! thread that happens to drop a value is not its owner.
//!
//! # Invariants
//!
//! * **ONE-DROPS**: a thread that drops a value, and drops others in its destructor, puts those into a queue and drops them
//!   afterwards. So a list of a million variables takes no deep stack. The queue is on the stack of the outermost call.
//! * **NO-DROP-IN-CLOSURE**: what is dropped in the closure of a transaction, such as a variable that no transaction has used,
//!   waits until that transaction has ended: in its closure the destructor could begin no transaction of its own. The
//!   exception is a pending value that the closure itself replaces: it goes at once, as the closure's own values do, so that
//!   a loop of writes keeps one.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::cell::{CellHead, CellRef, EVERYWHERE, UNBOUND};
use super::local::{REALM, TxWorld};
use super::realm::Retired;
use crate::context::{Fills, OfDrops, with_context};
use crate::task::guarded::guarded;

/// Values to be dropped after the one that is being dropped. ONE-DROPS
struct DropQueue(RefCell<VecDeque<Retired>>);

// SAFETY: no other type does.
unsafe impl Fills<OfDrops> for DropQueue {}

/// Frees cells whose last handle is gone, once no transaction can use them any more. HANDLES-COUNTED
pub(super) fn retire_cells(cells: Vec<CellRef>) {
    cells.into_iter().for_each(retire_cell);
}

/// As `retire_cells`, of one.
pub(super) fn retire_cell(of: CellRef) {
    let world = TxWorld::current().number();
    let bound = of.get().world();
    let waits_for = if bound == UNBOUND || bound == world { bound } else { EVERYWHERE };
    let is_free = waits_for == UNBOUND || REALM.is_idle(waits_for);
    let time = if is_free { 0 } else { REALM.tick() };
    // SAFETY: it was a box, and no handle is left. RETIRED-LATER
    let one = unsafe { Retired::new(of.as_ptr().cast(), CellHead::free, time, waits_for) };
    if is_free {
        return drop_one(one);
    }
    let mut retired = vec![one];
    REALM.retire(&mut retired, world);
    drop_all(&mut retired);
}

/// Drops values that no transaction can use any more.
pub(super) fn drop_all(retired: &mut Vec<Retired>) {
    retired.drain(..).for_each(drop_one);
}

/// Leaves a value to the transaction whose closure this thread is in. NO-DROP-IN-CLOSURE
#[cold]
fn drop_after_transaction(one: Retired) {
    let world = TxWorld::current().number();
    let mut retired = vec![one.again(REALM.tick(), world)];
    REALM.retire(&mut retired, world);
    debug_assert!(retired.is_empty(), "the transaction is announced, and began before this time");
}

fn drop_one(one: Retired) {
    let (outer, is_inside): (*const DropQueue, _) =
        with_context(|context| (context.drops(), context.in_transaction()));
    // SAFETY: it is on this thread's stack, below. ONE-DROPS
    if let Some(outer) = unsafe { outer.as_ref() } {
        outer.0.borrow_mut().push_back(one);
        return;
    }
    if is_inside {
        return drop_after_transaction(one);
    }
    let queue = DropQueue(RefCell::new(VecDeque::new()));
    with_context(|context| context.set_drops(&raw const queue));
    let mut next = Some(one);
    while let Some(one) = next {
        // SAFETY: the realm has said that no transaction uses it. RETIRED-LATER
        guarded(|| unsafe { one.drop_value() });
        next = queue.0.borrow_mut().pop_front();
    }
    with_context(|context| context.set_drops::<DropQueue>(std::ptr::null()));
}
