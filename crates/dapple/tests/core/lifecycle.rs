//! Every way for a task to run and end.
//!
//! A table of {behaviour of the future} x {action on its handle} x {before the first poll, during it,
//! after the end} x {kind of task}. Each cell has one right result. In each cell the future is dropped
//! exactly once, and so is the output if there was one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::{Event, foreign_block_on, in_virtual_time, message, start_thread, watched};
use dapple::task::yield_now;
use dapple::{Color, JoinError, JoinHandle, Runtime};

/// Behaviour of the future.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Ready,
    PendingThenReady,
    PanicsInPoll,
    PanicsInItsDrop,
    OutputPanicsInDrop,
}

/// Action on the handle. At the end the handle is joined, if it still exists.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Join,
    DropHandle,
    Cancel,
    Abort,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    BeforeFirstPoll,
    DuringPoll,
    AfterEnd,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Own,
    InColor,
    Local,
    Blocking,
}

const DOES: [Does; 5] = [
    Does::Ready,
    Does::PendingThenReady,
    Does::PanicsInPoll,
    Does::PanicsInItsDrop,
    Does::OutputPanicsInDrop,
];
const ACTS: [Act; 4] = [Act::Join, Act::DropHandle, Act::Cancel, Act::Abort];
const WHENS: [When; 3] = [When::BeforeFirstPoll, When::DuringPoll, When::AfterEnd];

#[derive(Debug, PartialEq)]
enum Joined {
    Value,
    Panic(String),
    Aborted,
    NobodyAsked,
}

/// Outcome of one cell of the table.
#[derive(Debug, PartialEq)]
struct Outcome {
    joined: Joined,
    polls: usize,
    futures_dropped: usize,
    outputs_dropped: usize,
}

const IN_POLL: &str = "in poll";
const IN_DROP: &str = "in the future's drop";
const IN_OUTPUT: &str = "in the output's drop";

fn right_outcome(does: Does, act: Act, when: When) -> Outcome {
    let aborted_in_time = match when {
        When::BeforeFirstPoll => act == Act::Abort,
        When::DuringPoll => act == Act::Abort && does == Does::PendingThenReady,
        When::AfterEnd => false,
    };
    // A cancel ends the runtime's own waits. This task waits for a foreign event, so it is dropped.
    let left_alone = act == Act::Cancel && when == When::BeforeFirstPoll && does == Does::PendingThenReady;
    let joined = match does {
        Does::PanicsInItsDrop => Joined::Panic(IN_DROP.into()),
        _ if aborted_in_time || left_alone => Joined::Aborted,
        Does::PanicsInPoll => Joined::Panic(IN_POLL.into()),
        Does::Ready | Does::PendingThenReady | Does::OutputPanicsInDrop => Joined::Value,
    };
    let polls = match does {
        _ if aborted_in_time => usize::from(when == When::DuringPoll),
        _ if left_alone => 1,
        Does::PendingThenReady => 2,
        _ => 1,
    };
    let has_output = does != Does::PanicsInPoll && !aborted_in_time && !left_alone;
    Outcome {
        joined: if act == Act::DropHandle { Joined::NobodyAsked } else { joined },
        polls,
        futures_dropped: 1,
        outputs_dropped: usize::from(has_output),
    }
}

/// State that the future shares with the test: counts that it reports, and events that drive it.
#[derive(Default)]
struct Stage {
    polls: AtomicUsize,
    futures_dropped: AtomicUsize,
    outputs_dropped: AtomicUsize,
    /// The first poll has begun; it goes on when `go_on` is set.
    begun: Event,
    go_on: Event,
    /// Wakes a future that is `PendingThenReady`.
    ripe: Event,
}

struct Probe {
    does: Does,
    stage: Arc<Stage>,
}

struct Output(Does, Arc<Stage>);

impl Probe {
    /// The first part of a poll, which the test can hold up. Returns the number of polls so far.
    fn begin(&self) -> usize {
        let polls = self.stage.polls.fetch_add(1, Ordering::SeqCst);
        self.stage.begun.set();
        self.stage.go_on.wait();
        assert!(self.does != Does::PanicsInPoll, "{IN_POLL}");
        polls + 1
    }

    fn output(&self) -> Output {
        Output(self.does, self.stage.clone())
    }
}

impl Future for Probe {
    type Output = Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Output> {
        if self.begin() == 1 && self.does == Does::PendingThenReady {
            if self.stage.ripe.poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        Poll::Ready(self.output())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stage.futures_dropped.fetch_add(1, Ordering::SeqCst);
        assert!(self.does != Does::PanicsInItsDrop, "{IN_DROP}");
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.1.outputs_dropped.fetch_add(1, Ordering::SeqCst);
        assert!(self.0 != Does::OutputPanicsInDrop, "{IN_OUTPUT}");
    }
}

fn spawn(kind: Kind, probe: Probe) -> JoinHandle<Output> {
    match kind {
        Kind::Own => dapple::spawn(probe),
        Kind::InColor => Color::new().spawn(probe),
        Kind::Local => dapple::spawn_local(probe),
        Kind::Blocking => dapple::blocking(move || {
            probe.begin();
            let output = probe.output();
            drop(probe); // here, since rustc leaks the return value if a capture's drop panics
            output
        }),
    }
}

/// Performs the action; returns the handle if it still exists.
fn perform(act: Act, mut handle: JoinHandle<Output>) -> Option<JoinHandle<Output>> {
    match act {
        Act::Join => {
            // The wait begins here, if the task has not ended; it continues at the end of the test.
            if !handle.is_finished() {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut handle).poll(&mut cx).is_pending());
            }
        }
        Act::DropHandle => {
            // A panic of the task does not reach the thread that drops the handle, even if the task has already ended.
            catch_unwind(AssertUnwindSafe(|| drop(handle))).expect("dropping a handle does not panic");
            return None;
        }
        Act::Cancel => handle.cancel(),
        Act::Abort => handle.abort(),
    }
    Some(handle)
}

fn joined(result: Result<Output, JoinError>) -> Joined {
    match result {
        Ok(output) => {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(output)));
            assert!(dropped.err().is_none_or(|payload| message(&*payload) == IN_OUTPUT));
            Joined::Value
        }
        Err(error) if error.is_aborted() => Joined::Aborted,
        Err(error) => Joined::Panic(message(&*error.try_into_panic().expect("a panic"))),
    }
}

fn play(kind: Kind, does: Does, act: Act, when: When) -> Outcome {
    let rt = Runtime::builder().workers(1).max_blocking_threads(1).build().expect("a runtime");
    let stage = Arc::new(Stage::default());
    let result = rt.block_on(async {
        // Keeps the only worker and the only thread of the pool busy until the act is over.
        let (held, release) = (Event::default(), Event::default());
        let (go, stop) = (held.clone(), release.clone());
        let hold = move || {
            go.set();
            stop.wait();
        };
        match kind {
            _ if when != When::BeforeFirstPoll => held.set(),
            Kind::Own | Kind::InColor => dapple::spawn(async move { hold() }).detach(),
            Kind::Blocking => dapple::blocking(hold).detach(),
            Kind::Local => held.set(), // this thread would run the task
        }
        held.wait();
        let handle = spawn(kind, Probe { does, stage: stage.clone() });
        let task = handle.task().expect("the runtime runs").clone();
        if when != When::DuringPoll {
            stage.go_on.set();
        }
        let mut handle = Some(handle);
        if when == When::BeforeFirstPoll {
            handle = handle.and_then(|handle| perform(act, handle));
            release.set();
        }
        if when == When::DuringPoll {
            let (stage, acted) = (stage.clone(), Event::default());
            let told = acted.clone();
            let actor = start_thread(move || {
                stage.begun.wait();
                let handle = handle.and_then(|handle| perform(act, handle));
                stage.go_on.set();
                told.set();
                handle
            });
            acted.happened().await; // meanwhile, a local task is polled here
            handle = actor.join().expect("the act");
        }
        // The test does not wait for a cancelled task.
        if (act, when) != (Act::Cancel, When::BeforeFirstPoll) {
            stage.ripe.set();
        }
        while !task.is_finished() {
            yield_now().await;
        }
        if when == When::AfterEnd {
            handle = handle.and_then(|handle| perform(act, handle));
        }
        let result = match handle {
            Some(handle) => joined(handle.await),
            None => Joined::NobodyAsked,
        };
        // The worker and the pool still work.
        assert_eq!(dapple::spawn(async { 1 }).await.unwrap(), 1);
        assert_eq!(dapple::blocking(|| 2).await.unwrap(), 2);
        result
    });
    drop(rt);
    let of = |count: &AtomicUsize| count.load(Ordering::SeqCst);
    Outcome {
        joined: result,
        polls: of(&stage.polls),
        futures_dropped: of(&stage.futures_dropped),
        outputs_dropped: of(&stage.outputs_dropped),
    }
}

fn all_cells_of(kind: Kind) {
    let mut wrong = Vec::new();
    for does in DOES {
        if kind == Kind::Blocking && does == Does::PendingThenReady {
            continue; // a closure does not wait
        }
        for act in ACTS {
            for when in WHENS {
                let cell = format!("{kind:?}, {does:?}, {act:?} {when:?}");
                let right = right_outcome(does, act, when);
                let played = watched(move || catch_unwind(|| play(kind, does, act, when)));
                match played {
                    Ok(outcome) if outcome == right => {}
                    Ok(outcome) => wrong.push(format!("{cell}: {outcome:?} is not {right:?}")),
                    Err(payload) => wrong.push(format!("{cell}: panicked: {}", message(&*payload))),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
    // And with some seeds, each of which runs the steps in another order.
    in_virtual_time(3, move || {
        for does in DOES.into_iter().filter(|does| kind != Kind::Blocking || *does != Does::PendingThenReady)
        {
            for (act, when) in ACTS.into_iter().flat_map(|act| WHENS.map(|when| (act, when))) {
                if (kind, when) == (Kind::Blocking, When::DuringPoll) {
                    continue; // the actor occupies the only thread of the pool
                }
                let outcome = play(kind, does, act, when);
                assert_eq!(outcome, right_outcome(does, act, when), "{kind:?}, {does:?}, {act:?} {when:?}");
            }
        }
    });
}

#[test]
fn tasks_with_a_color_of_their_own() {
    all_cells_of(Kind::Own);
}

#[test]
fn tasks_in_a_color() {
    all_cells_of(Kind::InColor);
}

#[test]
fn local_tasks() {
    all_cells_of(Kind::Local);
}

#[test]
fn blocking_calls() {
    all_cells_of(Kind::Blocking);
}

/// Panics when it is dropped, also as the payload of a panic.
struct Grenade(&'static str);

impl Drop for Grenade {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("{}", self.0);
        }
    }
}

#[test]
fn a_second_panic_goes_nowhere_and_breaks_nothing() {
    watched(|| {
        let rt = crate::common::runtime(1);
        // In the poll, then again in the future's drop: the first one counts.
        let error = foreign_block_on(rt.spawn(async {
            let _kept = Grenade("second");
            std::future::poll_fn(|_| -> Poll<()> { panic!("first") }).await;
        }));
        assert!(error.unwrap_err().to_string().contains("first"));
        // A payload that panics when dropped: without and with a handle to take it.
        rt.spawn(async { std::panic::panic_any(Grenade("payload")) }).detach();
        let error = foreign_block_on(rt.spawn(async { std::panic::panic_any(Grenade("payload")) }));
        let payload = error.unwrap_err().try_into_panic().unwrap();
        std::mem::forget(payload);
        // A future dropped by abort whose destructor panics with such a payload.
        struct Twice;
        impl Drop for Twice {
            fn drop(&mut self) {
                std::panic::panic_any(Grenade("nested"));
            }
        }
        let stuck = rt.spawn(async {
            let _kept = Twice;
            std::future::pending::<()>().await;
        });
        stuck.abort();
        stuck.detach();
        assert_eq!(foreign_block_on(rt.spawn(async { 5 })).unwrap(), 5);
    });
}
