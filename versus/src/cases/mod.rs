//! The cases, in the order in which they are listed and run.

mod accept;
mod bank;
mod callback;
mod cancel;
mod chain;
mod detached;
mod disk;
mod echo;
mod fanout;
mod fifo;
mod handoff;
mod hot;
mod hotread;
mod leaf;
mod memo;
pub(crate) mod memory;
mod mixed;
mod mpsc;
mod onelane;
mod oneshot;
mod pingpong;
mod quotes;
mod smallfiles;
mod spawn;
mod start;
mod stateful;
mod timers;
mod wake;
mod yields;

use crate::contest::{Contest, Failure};
use crate::{load, served};

/// All contests: a case has one, or one for each of its variants.
pub(crate) fn all() -> Vec<Contest> {
    let mut all =
        vec![spawn::contest(), detached::contest(), yields::contest(), pingpong::contest(), chain::contest()];
    all.extend(onelane::contests());
    all.extend(wake::contests());
    all.push(mpsc::contest());
    all.extend(oneshot::contests());
    all.extend(timers::contests());
    all.extend(echo::contests());
    all.push(accept::contest());
    all.extend(start::contests());
    all.push(fanout::contest());
    all.extend(cancel::contests());
    all.extend(leaf::contests());
    all.extend(handoff::contests());
    all.extend(quotes::contests());
    all.extend(hot::contests());
    all.extend(hotread::contests());
    all.push(bank::contest());
    all.push(memo::contest());
    all.extend(stateful::contests());
    all.extend(callback::contests());
    all.extend(fifo::contests());
    all.push(mixed::contest());
    all.extend(disk::contests());
    all.push(smallfiles::contest());
    all.extend(memory::contests());
    all
}

/// The server of a case, in the process that was started for it.
pub(crate) fn serve(name: &str, side: &str) -> Result<(), Failure> {
    match parts(name) {
        ("echo", _) => served::serve::<echo::Echo>(side),
        ("accept", _) => served::serve::<accept::Accept>(side),
        ("quotes", _) => quotes::serve(side),
        _ => Err(format!("{name:?} has no server")),
    }
}

/// The load of a case, in the process that was started for it.
pub(crate) fn load(name: &str, server: &str, operations: usize) -> Result<(), Failure> {
    let server = load::address(server)?;
    match parts(name) {
        ("echo", connections) => echo::load(connections, server, operations),
        ("accept", _) => {
            accept::load(server, operations);
            Ok(())
        }
        ("quotes", clients) => quotes::load(clients, server, operations),
        _ => Err(format!("{name:?} has no load")),
    }
}

/// The case and the variant.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}
