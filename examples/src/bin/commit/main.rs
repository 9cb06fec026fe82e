//! Two-phase commit between nodes of different colors, in three shapes: Seq, Event and Async.
//!
//! You learn how `start` makes a sequential protocol overlap its waits, without the callbacks that this takes elsewhere.
//!
//! Run it: `cargo run --release -p examples --bin commit`, or simulated, on 16 virtual workers: `-- --sim 1`. No second
//! terminal is needed.
//!
//! An initiator asks all nodes to prepare; if all vote yes, it has them commit, otherwise abort. Barrelfish keeps
//! capabilities consistent across cores in this way (section 5.2 of the AC paper, Figure 10). The program prints the time of
//! an operation for 2 to 16 nodes; with fewer processors than nodes, look at it simulated:
//!
//! * **Seq** is the protocol in its plainest form, and slow: one node after the other.
//! * **Event** is fast, and taken apart by hand: five callbacks, and a structure for the state between them. Compare
//!   `event.rs` with the functions `seq` and `asynchronous` here.
//! * **Async** is Seq, with `start` in front of the steps that may overlap: as fast as Event, as short as Seq.
//!
//! Then faults: a node that votes no aborts all; so does one that a message does not reach, when the time is up. In the end
//! all nodes must hold the same, and none may be left prepared.

mod event;

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::Arc;

use dapple::sim::{self, Sim};
use dapple::time::{Duration, Instant, sleep, timeout};
use dapple::{Cancelled, Color, ColorCell, JoinHandle, finish_local, shield};
use lexopt::prelude::*;

const HELP: &str = "\
Two-phase commit, in three shapes.

Usage: commit [--sim SEED]    (in virtual time, on 16 virtual workers: the same seed gives the same times)
";
const WORK: Duration = Duration::from_micros(200); // what a message takes of a processor's time
const OPERATIONS: u64 = 20; // for each number in the table
const NO_LIMIT: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_millis(20);

/// A fault in an operation, at one node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    VotesNo(usize),
    /// The message that asks it to prepare is lost.
    IsNotReached(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision {
    Commit,
    Refused,
    OutOfTime,
}

#[derive(Clone, Copy)]
struct Operation {
    number: u64,
    fault: Fault,
    limit: Duration,
}

/// The state of a node.
#[derive(Default)]
struct State {
    id: usize,
    prepared: Option<u64>,
    /// The last operation that was committed, and how many were.
    value: (u64, u64),
}

impl State {
    fn prepare(&mut self, operation: Operation) -> bool {
        sim::work(WORK);
        let is_ready = operation.fault != Fault::VotesNo(self.id) && self.prepared.is_none();
        self.prepared = if is_ready { Some(operation.number) } else { self.prepared };
        is_ready
    }

    fn decide(&mut self, number: u64, decision: Decision) {
        sim::work(WORK);
        // One that was not reached, or voted no, has nothing to undo.
        if self.prepared.take_if(|prepared| *prepared == number).is_some() && decision == Decision::Commit {
            self.value = (number, self.value.1 + 1);
        }
    }
}

/// A node: a color, and its state. Messages to a node are calls in its color, so they arrive in order: a coordinator
/// that gave up on a vote can send the abort at once, and the abort arrives after the request to vote.
struct Node {
    id: usize,
    color: Color,
    state: ColorCell<State>,
}

impl Node {
    fn call<R: Send + 'static>(
        self: &Arc<Self>,
        f: impl FnOnce(&mut State) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let node = self.clone();
        self.color.call(move || node.state.with(f))
    }

    async fn prepare(self: &Arc<Self>, operation: Operation) -> Result<bool, Cancelled> {
        if operation.fault == Fault::IsNotReached(self.id) {
            sleep(Duration::MAX).await?; // for an answer that does not come
        }
        let vote = self.call(move |state| state.prepare(operation)).await;
        vote.map_err(|error| if error.is_cancelled() { Cancelled } else { panic!("a node: {error}") })
    }

    async fn decide(self: &Arc<Self>, number: u64, decision: Decision) {
        self.call(move |state| state.decide(number, decision)).await.expect("the decision is shielded");
    }
}

type Nodes = Arc<[Arc<Node>]>;

/// The decision that follows from the votes: all yes, a no, or a wait that was cancelled because the time was up.
fn decision(votes: Result<bool, Cancelled>) -> Decision {
    match votes {
        Ok(true) => Decision::Commit,
        Ok(false) => Decision::Refused,
        Err(Cancelled) => Decision::OutOfTime,
    }
}

/// One node after the other.
async fn seq(nodes: &Nodes, operation: Operation) -> Decision {
    let votes = timeout(operation.limit, async {
        for node in nodes.iter() {
            if !node.prepare(operation).await? {
                return Ok(false);
            }
        }
        Ok(true)
    });
    // All votes may have come just as the time was up: nothing is lost, and it is a yes.
    let decision = decision(votes.await.unwrap_or_else(|late| late.into_inner().unwrap_or(Err(Cancelled))));
    shield(async {
        for node in nodes.iter() {
            node.decide(operation.number, decision).await;
        }
    })
    .await;
    decision
}

/// As `seq`, but that each node is asked without waiting for the one before.
async fn asynchronous(nodes: &Nodes, operation: Operation) -> Decision {
    let votes = timeout(operation.limit, async {
        let result = Cell::new(Ok(true)); // shared without a lock: nothing here runs in parallel
        finish_local(async |votes| {
            let result = &result;
            for node in nodes.iter() {
                votes.start(async move {
                    let vote = node.prepare(operation).await;
                    if vote != Ok(true) && result.get() == Ok(true) {
                        result.set(vote);
                        votes.cancel(); // the rest need not be waited for
                    }
                });
            }
        })
        .await;
        result.get()
    });
    let decision = decision(votes.await.unwrap_or_else(|late| late.into_inner().unwrap_or(Err(Cancelled))));
    shield(finish_local(async |acks| {
        for node in nodes.iter() {
            acks.start(node.decide(operation.number, decision));
        }
    }))
    .await;
    decision
}

/// Runs all shapes, one after the other: returns their decisions, and the time of each.
async fn shapes(nodes: &Nodes, last: &mut u64, fault: Fault, limit: Duration) -> [(Decision, Duration); 3] {
    let mut operation = || {
        *last += 1;
        Operation { number: *last, fault, limit }
    };
    let begun = Instant::now();
    let seq = seq(nodes, operation()).await;
    let seq_took = begun.elapsed();
    let event = event::event(nodes, operation()).await;
    let event_took = begun.elapsed() - seq_took;
    let asynchronous = asynchronous(nodes, operation()).await;
    [(seq, seq_took), (event, event_took), (asynchronous, begun.elapsed() - seq_took - event_took)]
}

/// Whether all nodes hold `value` (the last committed value, and the number of commits), and none is left prepared.
async fn is_consistent(nodes: &Nodes, value: (u64, u64)) -> bool {
    let mut all_agree = true;
    for node in nodes.iter() {
        let seen = node.call(|state| (state.prepared, state.value)).await;
        all_agree &= seen.is_ok_and(|seen| seen == (None, value));
    }
    all_agree
}

/// Prints the table, then what faults do. Whether all was as it should be.
async fn show() -> bool {
    println!("{:>5} {:>10} {:>10} {:>10}", "nodes", "Seq", "Event", "Async");
    let mut is_right = true;
    for count in [2, 4, 8, 16] {
        let node = |id| {
            let color = Color::new();
            let state = ColorCell::in_color(&color, State { id, ..State::default() });
            Arc::new(Node { id, color, state })
        };
        let nodes: Nodes = (0..count).map(node).collect();
        let (mut last, mut took) = (0, [Duration::ZERO; 3]);
        for _ in 0..OPERATIONS {
            let done = shapes(&nodes, &mut last, Fault::None, NO_LIMIT).await;
            is_right &= done.iter().all(|done| done.0 == Decision::Commit);
            took = std::array::from_fn(|shape| took[shape] + done[shape].1);
        }
        let [seq, event, asynchronous] = took.map(|took| took.as_secs_f64() * 1e6 / OPERATIONS as f64);
        println!("{count:>5} {seq:>7.0} us {event:>7.0} us {asynchronous:>7.0} us");
        let value = (last, last);
        is_right &= is_consistent(&nodes, value).await;
        for fault in [Fault::VotesNo(1), Fault::IsNotReached(count - 1)] {
            let done = shapes(&nodes, &mut last, fault, LIMIT).await.map(|(decision, _)| decision);
            println!("      {fault:?}: {done:?}");
            is_right &= !done.contains(&Decision::Commit) && is_consistent(&nodes, value).await;
        }
    }
    println!("{}", if is_right { "all nodes agree" } else { "THE NODES DO NOT AGREE" });
    is_right
}

fn start() -> Result<bool, lexopt::Error> {
    let mut arguments = lexopt::Parser::from_env();
    match arguments.next()? {
        None => Ok(dapple::run(show())),
        Some(Long("sim")) => Ok(Sim::new(arguments.value()?.parse()?).workers(16).run(show())),
        Some(Short('h') | Long("help")) => {
            print!("{HELP}");
            Ok(true)
        }
        Some(other) => Err(other.unexpected()),
    }
}

fn main() -> ExitCode {
    let is_right = start().inspect_err(|error| eprintln!("commit: {error}"));
    if is_right.is_ok_and(|is_right| is_right) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
