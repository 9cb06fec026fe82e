//! `onelane`: tasks that never overlap, in one color and in tokio's `LocalSet`.

use super::spawn::SpawnAndJoin;
use super::yields::Yields;
use crate::contest::{Contest, Role};
use crate::sides::{DappleLane, TokioLocalSet};
use crate::work::{self, Work};

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        lane::<SpawnAndJoin>(
            "onelane/spawn",
            "`spawn` with all tasks in one color, against a LocalSet; per task",
        ),
        lane::<Yields>("onelane/yield", "`yield` with all tasks in one color, against a LocalSet; per yield"),
    ]
}

fn lane<W: Work>(name: &'static str, about: &'static str) -> Contest {
    let entries =
        vec![work::entry::<DappleLane, W>(Role::Ours), work::entry::<TokioLocalSet, W>(Role::Rival)];
    work::timed(name, about, entries)
}
