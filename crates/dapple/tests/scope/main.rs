//! Scopes, races and time limits.

#[path = "../common/budget.rs"]
mod budget_common;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/late.rs"]
mod late_common;
#[path = "../common/scope.rs"]
mod scope_common;

mod basics;
mod exact;
mod exact_channels;
mod exact_io;
mod exact_outside;
mod exact_tasks;
mod fair_property;
mod faults;
mod faults_dropped;
mod faults_late;
mod foreign;
mod race_exact;
mod race_exact_resources;
mod spawn_cancel;
mod spawn_tree;
mod started_late;
mod timeout_abandoned;
mod timeout_foreign;
mod timeout_nested;
mod timeout_stays;
mod tokens;
