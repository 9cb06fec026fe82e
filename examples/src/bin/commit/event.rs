//! The two-phase commit by callbacks, taken apart by hand.
//!
//! Each callback runs in the color of a node or of the initiator, does one step, and submits the next callback. The
//! state that `seq` and `asynchronous` have on their stack (missing votes, the decision, the waiter for the end) is kept
//! in a structure here, and so is the timer. `suspend` leads back to an await.

use std::sync::Arc;

use dapple::time::sleep;
use dapple::{Color, ColorCell, JoinHandle, scope::Resume, spawn, suspend};

use crate::{Decision, Fault, Nodes, Operation, State};

/// The state that a task would keep on its stack.
struct Ripped {
    nodes: Nodes,
    operation: Operation,
    votes_left: usize,
    acks_left: usize,
    timer: Option<JoinHandle<()>>,
    decision: Option<Decision>,
    resume: Option<Resume<Decision>>,
}

/// Where the initiator's callbacks run.
struct Initiator {
    color: Color,
    ripped: ColorCell<Ripped>,
}

impl Initiator {
    fn call(self: &Arc<Self>, f: impl FnOnce(&Arc<Self>, &mut Ripped) + Send + 'static) {
        let initiator = self.clone();
        self.color.call(move || initiator.ripped.with(|ripped| f(&initiator, ripped))).detach();
    }

    fn begin(self: &Arc<Self>, ripped: &mut Ripped) {
        let (initiator, operation) = (self.clone(), ripped.operation);
        ripped.timer = Some(spawn(async move {
            if sleep(operation.limit).await.is_ok() {
                initiator.call(Initiator::on_time_up);
            }
        }));
        for node in ripped.nodes.iter().filter(|node| operation.fault != Fault::IsNotReached(node.id)) {
            let initiator = self.clone();
            let prepare = move |state: &mut State| {
                let vote = state.prepare(operation);
                initiator.call(move |initiator, ripped| initiator.on_vote(ripped, vote));
            };
            node.call(prepare).detach();
        }
    }

    fn on_vote(self: &Arc<Self>, ripped: &mut Ripped, vote: bool) {
        ripped.votes_left -= 1;
        if !vote {
            self.decide(ripped, Decision::Refused);
        } else if ripped.votes_left == 0 {
            self.decide(ripped, Decision::Commit);
        }
    }

    fn on_time_up(self: &Arc<Self>, ripped: &mut Ripped) {
        self.decide(ripped, Decision::OutOfTime);
    }

    fn decide(self: &Arc<Self>, ripped: &mut Ripped, decision: Decision) {
        if ripped.decision.is_some() {
            return; // a vote after the decision
        }
        ripped.decision = Some(decision);
        ripped.timer.take().inspect(JoinHandle::cancel);
        for node in ripped.nodes.iter() {
            let (initiator, number) = (self.clone(), ripped.operation.number);
            let decide = move |state: &mut State| {
                state.decide(number, decision);
                initiator.call(Initiator::on_ack);
            };
            node.call(decide).detach();
        }
    }

    fn on_ack(self: &Arc<Self>, ripped: &mut Ripped) {
        ripped.acks_left -= 1;
        if let (0, Some(decision)) = (ripped.acks_left, ripped.decision) {
            ripped.resume.take().map(|resume| resume.resume(decision));
        }
    }
}

pub(crate) async fn event(nodes: &Nodes, operation: Operation) -> Decision {
    let begin = |resume| {
        let (nodes, left, resume) = (nodes.clone(), nodes.len(), Some(resume));
        let (votes_left, acks_left, timer, decision) = (left, left, None, None);
        let ripped = Ripped { nodes, operation, votes_left, acks_left, timer, decision, resume };
        let color = Color::new();
        let initiator = Arc::new(Initiator { ripped: ColorCell::in_color(&color, ripped), color });
        initiator.call(Initiator::begin);
        || {} // the decision is not withdrawn
    };
    suspend(begin).await.expect("it is not cancelled")
}
