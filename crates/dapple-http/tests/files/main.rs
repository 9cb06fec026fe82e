//! Files that are served, and files that are not.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../dapple/tests/common/not_run.rs"]
mod not_run;
mod site;

mod answers;
mod change;
mod forms;
mod grow;
mod inside;
mod links;
mod listing;
mod served;
