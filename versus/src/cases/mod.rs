//! The cases, in the order in which they are listed and run.

mod accept;
mod bank;
mod blocked;
mod broadcast;
mod callback;
mod cancel;
mod chain;
mod detached;
mod disk;
mod echo;
mod fanout;
mod fifo;
mod files;
mod handoff;
mod hello;
mod hot;
mod hotread;
mod leaf;
mod load;
mod memo;
pub(crate) mod memory;
mod mixed;
mod mpmc;
mod mpsc;
mod mvar;
mod onelane;
mod oneshot;
mod overload;
mod pingpong;
mod quotes;
mod smallfiles;
mod spawn;
mod start;
mod stateful;
mod stm;
mod timers;
mod tls;
mod wake;
mod when;
mod yields;

use std::rc::Rc;

use crate::contest::{Contest, Failure};
use crate::web::{burden, cores};
use crate::{load as loads, served};

/// All contests: a case has one, or one for each of its variants.
pub(crate) fn all() -> Vec<Contest> {
    let mut all =
        vec![spawn::contest(), detached::contest(), yields::contest(), pingpong::contest(), chain::contest()];
    all.extend(onelane::contests());
    all.extend(wake::contests());
    all.push(mpsc::contest());
    all.push(mpmc::contest());
    all.extend(broadcast::contests());
    all.extend(oneshot::contests());
    all.push(mvar::contest());
    all.extend(when::contests());
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
    all.extend(stm::contests());
    all.extend(callback::contests());
    all.extend(fifo::contests());
    all.push(mixed::contest());
    all.extend(disk::contests());
    all.push(smallfiles::contest());
    all.extend(blocked::contests());
    all.extend(overload::contests());
    let made = Rc::default();
    all.extend(files::contests(&made));
    all.extend(hello::contests());
    all.extend(load::contests(&made));
    all.extend(tls::contests());
    all.extend(memory::contests());
    all
}

/// The server of a case, in the process that was started for it.
pub(crate) fn serve(name: &str, side: &str) -> Result<(), Failure> {
    match parts(name) {
        ("echo", _) => served::serve::<echo::Echo>(side),
        ("accept", _) => served::serve::<accept::Accept>(side),
        ("quotes", _) => quotes::serve(side),
        ("blocked" | "sleepy", burden) => blocked::serve(burden, side),
        ("overload", burden) => overload::serve(burden, side),
        ("files", folder) => files::serve(folder, side),
        ("hello", _) => hello::serve(side),
        ("tls", what) => tls::serve(what, side),
        _ => Err(format!("{name:?} has no server")),
    }
}

/// The load of a case, in the process that was started for it.
pub(crate) fn load(name: &str, server: &str, operations: usize) -> Result<(), Failure> {
    let servers = loads::addresses(server)?;
    let server = servers[0];
    match parts(name) {
        ("echo", connections) => echo::load(connections, server, operations),
        ("accept", _) => {
            accept::load(server, operations);
            Ok(())
        }
        ("quotes", clients) => quotes::load(clients, server, operations),
        ("blocked" | "sleepy", _) => loads::web::obey(server, burden::LIGHT, burden::HEAVY),
        ("overload", _) => {
            cores::keep_to_last()?;
            loads::web::obey(server, burden::HEAVY, burden::HEAVY)
        }
        ("files", variant) => files::load(variant, server, operations),
        ("hello", variant) => hello::load(variant, server, operations),
        ("tls", what) => tls::load(what, &servers),
        _ => Err(format!("{name:?} has no load")),
    }
}

/// The case and the variant.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}
