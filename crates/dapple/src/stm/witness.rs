//! The commit stamp of a transaction, for tests that check histories.

use super::local::TxWorld;

/// The place, in the order of all commits, of the transaction that this thread has ended last: its time if it has written,
/// and otherwise the time as of which it has read.
///
/// It is right in a closure of [`after_commit`](super::Transaction::after_commit).
#[doc(hidden)]
#[must_use]
pub fn last_stamp() -> u64 {
    // The log that was given back last is the one that is taken first.
    let world = TxWorld::current();
    let log = world.take_log();
    let stamp = log.stamp();
    world.give_log(log);
    stamp
}
