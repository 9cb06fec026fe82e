//! `handoff`: AC's ping-pong, between two colors of Dapple.
//!
//! A message, a number, goes from one color to the other and back. With callbacks a message is a call: each side's
//! `color.call` runs the other side's callback. With scopes, a side is a task with a color of its own, and a child in
//! its scope sends a message and waits for the answer. In `one` the other side is a color that is called, and the
//! answer is the return value of the call. In `both` there is such a task on either side, with a channel between them
//! each way. `-yield_to`: after each message the sender also hands its worker to the receiver, as AC does.
//!
//! No rival is measured: `dapple/callbacks` compares two shapes of Dapple's own.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use dapple::Color;
use dapple::channel::{mpsc, oneshot};
use dapple::task::{self, Task};

use crate::contest::{Contest, Role};
use crate::sides::{Dapple, Side};
use crate::work::{self, Work};

pub(crate) fn contests() -> Vec<Contest> {
    fn contest<W: Work>(name: &'static str, about: &'static str) -> Contest {
        let entries = vec![
            work::entry_as::<Dapple, W>("dapple", Role::Ours),
            work::entry_as::<Dapple, Callbacks>("callbacks", Role::Rival),
        ];
        work::timed(name, about, entries)
    }
    vec![
        contest::<One<Woken>>("handoff/one", "a message to another color and back, a scope on one side"),
        contest::<Both<Woken>>("handoff/both", "the same with a scope on both sides"),
        contest::<One<HandedTo>>("handoff/one-yield_to", "a scope on one side, and yield_to"),
        contest::<Both<HandedTo>>("handoff/both-yield_to", "a scope on both sides, and yield_to"),
    ]
}

const BATCHES: usize = 1000;
const OPERATIONS: usize = 1000;

/// A side's action after it has sent a message.
trait After: 'static {
    const YIELDS: bool;
}

/// Nothing: the other was woken.
struct Woken;

impl After for Woken {
    const YIELDS: bool = false;
}

struct HandedTo;

impl After for HandedTo {
    const YIELDS: bool = true;
}

struct Callbacks;

/// The state shared by the callbacks of both sides.
struct Table {
    ping: Color,
    pong: Color,
    done: Mutex<Option<oneshot::Sender<()>>>,
}

impl Work for Callbacks {
    const BATCHES: usize = BATCHES;
    const OPERATIONS: usize = OPERATIONS;

    async fn run<S: Side>(_: S, batches: usize) {
        let (done, all_done) = oneshot::channel();
        let (ping_color, pong_color) = (Color::new(), Color::new());
        let table = Arc::new(Table { ping: ping_color, pong: pong_color, done: Mutex::new(Some(done)) });
        let first = table.clone();
        table.ping.call(move || ping(first, batches * OPERATIONS)).detach();
        all_done.await.expect("an end");
    }
}

/// In the first color, when a message has come back.
fn ping(table: Arc<Table>, left: usize) {
    if left == 0 {
        let done = table.done.lock().expect("no panic").take();
        done.expect("one end").send(()).expect("somebody who waits");
        return;
    }
    let pong_color = table.pong.clone();
    pong_color.call(move || pong(table, left)).detach();
}

/// In the second, when one has come.
fn pong(table: Arc<Table>, left: usize) {
    let ping_color = table.ping.clone();
    ping_color.call(move || ping(table, left - 1)).detach();
}

struct One<A>(PhantomData<A>);

impl<A: After> Work for One<A> {
    const BATCHES: usize = BATCHES;
    const OPERATIONS: usize = OPERATIONS;

    async fn run<S: Side>(_: S, batches: usize) {
        let pong = Color::new();
        let ping = dapple::spawn(async move {
            dapple::finish(async |scope| {
                scope.start(async {
                    for number in 0..batches * OPERATIONS {
                        let answer = pong.call(move || number);
                        if A::YIELDS {
                            task::yield_to(&answer).await;
                        }
                        assert_eq!(answer.await.expect("an answer"), number);
                    }
                });
            })
            .await;
        });
        ping.await.expect("a task that ends");
    }
}

struct Both<A>(PhantomData<A>);

impl<A: After> Work for Both<A> {
    const BATCHES: usize = BATCHES;
    const OPERATIONS: usize = OPERATIONS;

    async fn run<S: Side>(_: S, batches: usize) {
        let (there, mut messages) = mpsc::bounded(1);
        let (back, mut answers) = mpsc::bounded(1);
        let (tell, told) = oneshot::channel::<Task>();
        let pong = dapple::spawn(async move {
            let other = told.await.expect("the other task");
            dapple::finish(async |scope| {
                scope.start(async {
                    while let Ok(number) = messages.recv().await {
                        send::<A>(&back, number, &other).await;
                    }
                });
            })
            .await;
        });
        let other = pong.task().expect("a task").clone();
        let ping = dapple::spawn(async move {
            tell.send(task::current()).expect("the other task");
            dapple::finish(async |scope| {
                scope.start(async {
                    let there = there; // dropped at the end, which ends the other
                    for number in 0..batches * OPERATIONS {
                        send::<A>(&there, number, &other).await;
                        assert_eq!(answers.recv().await, Ok(number));
                    }
                });
            })
            .await;
        });
        ping.await.expect("a task that ends");
        pong.await.expect("a task that ends");
    }
}

/// Sends a message, for which there is always room.
async fn send<A: After>(sender: &mpsc::Sender<usize>, number: usize, to: &Task) {
    sender.try_send(number).expect("room for a message");
    if A::YIELDS {
        task::yield_to(to).await;
    }
}
