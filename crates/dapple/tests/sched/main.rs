//! The scheduler: order, fairness, limits, policies, priorities, budgets, stalls and stress.

#[path = "../common/budget.rs"]
mod budget_common;
#[path = "../common/mod.rs"]
mod common;

mod budget;
mod color_identity;
mod color_order;
mod driver;
mod driver_edges;
mod fair;
mod limit;
mod limit_admit;
mod limit_clocked;
mod policy;
mod priority;
mod stalls;
mod stalls_foreign;
mod stalls_sim;
mod stress;
mod stress_io;
