//! The cases, in the order in which they are listed and run.

mod chain;
mod detached;
pub(crate) mod memory;
mod mpsc;
mod onelane;
mod oneshot;
mod pingpong;
mod spawn;
mod wake;
mod yields;

use crate::contest::Contest;

/// All contests: a case has one, or one for each of its variants.
pub(crate) fn all() -> Vec<Contest> {
    let mut all =
        vec![spawn::contest(), detached::contest(), yields::contest(), pingpong::contest(), chain::contest()];
    all.extend(onelane::contests());
    all.extend(wake::contests());
    all.push(mpsc::contest());
    all.extend(oneshot::contests());
    all.extend(memory::contests());
    all
}
