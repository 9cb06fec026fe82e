//! One run: the observed program, and the check after it.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::super::{Failure, Outcome, Sim, Trace};
use super::{SETTLE, SETTLE_POLLS};
use crate::cancel::points::CancelPoints;
use crate::shield;
use crate::time::sleep;
use crate::world;

/// The program in a simulation. It can be dropped, and reports its begin and end.
pub(super) struct Program<F> {
    work: Option<Pin<Box<F>>>,
    points: Rc<CancelPoints>,
    has_begun: bool,
}

/// The end of a program.
pub(super) enum ProgramEnd<T> {
    Returned(T),
    Dropped,
}

/// One run.
pub(super) struct Run<T> {
    /// How the program ended; `None` if it did not end.
    pub(super) ended: Option<ProgramEnd<T>>,
    pub(super) failure: Option<Failure>,
    /// The number of polls of the program.
    pub(super) polls: u64,
    /// The messages of tasks that panicked.
    pub(super) panics: Vec<String>,
    /// The trace, if the run did not fail.
    pub(super) trace: Option<Trace>,
}

impl<F> Program<F> {
    pub(super) fn new(work: F, points: Rc<CancelPoints>) -> Program<F> {
        Program { work: Some(Box::pin(work)), points, has_begun: false }
    }
}

impl<F: Future> Future for Program<F> {
    type Output = ProgramEnd<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.points.begin_program(); // it polls the program again, observed
            return Poll::Pending;
        }
        if self.points.drops_program() {
            self.work = None;
            return Poll::Ready(ProgramEnd::Dropped);
        }
        let work = self.work.as_mut().expect("`Program` was polled after it had ended");
        let output = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(ProgramEnd::Returned(output))
    }
}

/// Runs a program in a simulation, and the check after it.
#[track_caller]
pub(super) fn run<F: Future, C: Future>(
    sim: &Sim,
    points: &Rc<CancelPoints>,
    most_polls: Option<u64>,
    program: Program<F>,
    check: &mut impl FnMut() -> C,
) -> Run<F::Output>
where
    C::Output: Outcome,
{
    let sim = most_polls.into_iter().fold(sim.clone(), Sim::max_polls);
    let mut run = Run { ended: None, failure: None, polls: 0, panics: Vec::new(), trace: None };
    let in_simulation = async {
        let ended = crate::finish_local(async |_| program.await).await;
        points.end_program();
        world::with(|world| {
            run.polls = world.polls();
            world.limit_polls(run.polls + SETTLE_POLLS);
        });
        run.ended = Some(ended);
        // The program may have cancelled the task that it ran in.
        let checked = shield(async {
            let _ = sleep(SETTLE).await;
            world::with(|world| world.limit_polls(u64::MAX));
            check().await.failure()
        });
        if let Some(why) = checked.await {
            super::super::explore::fail_quietly(format!("the check {why}"));
        }
    };
    let ran = points.observe(|| sim.try_run_observed(points.clone(), in_simulation));
    match ran {
        Ok(((), trace)) => run.trace = Some(trace),
        Err(failure) => run.failure = Some(failure),
    }
    run.panics = points.panics();
    run
}
