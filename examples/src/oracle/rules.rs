//! The rules, each by its name.
//!
//! [`Rules::Paper`] are those of Figure 5, to the letter. There, every operation blocks: a command that comes to one
//! lets others go on first, even if the operation could be done at once. And an operation in a cancelled pool may
//! happen all the same, or not.
//!
//! [`Rules::Dapple`] are what Dapple promises beyond that, and where it differs:
//!
//! * **At-Once**: an operation that can be done when its command comes to it is done, and no other command runs in
//!   between. (The paper has this as an aim, "serial elision", not as a rule.) It must wait if it cannot be done, or if
//!   another one waits for the same.
//! * **Room**: a channel may have a limit of messages, and a `send` waits while it is full.
//! * **Begun-Late**: an operation that is begun in a cancelled pool does not happen, even if it could.
//! * An operation that waits and then happens, or is cancelled, goes on at once: the steps are one.
//! * **Pool-Goes-On**: a pool in which all commands wait still has its turn, if it was evaluated last: a command in it
//!   that can go on may do so before the commands around the pool. So `async` of a pool that cancels itself need not
//!   block, as nothing in it does.
//!
//! Programs that run side by side take any steps of any of them. Since they share channels only, a step is
//! what happens between two operations on channels: under the rules of Dapple the evaluation stops at each
//! of them, or at a pool that has its turn, which is then what the program is at ([`Command::Now`]).

use std::sync::Arc;

use super::language::{Channel, Command, Condition, Expression, Flag, Io, Pool, Programs, Shared, Value};

/// σ
pub type Store = Vec<Value>;

/// β; what was sent first comes first.
pub type Buffers = Vec<Vec<Value>>;

/// Which rules hold; see the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Figure 5.
    Paper,
    /// The promises of Dapple.
    Dapple,
}

/// ⟨σ, β, C⟩, with as many C as there are programs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// σ
    pub store: Store,
    /// β
    pub buffers: Buffers,
    /// How many messages each buffer has room for.
    pub rooms: Arc<[usize]>,
    /// C of each
    pub commands: Vec<Shared>,
}

/// The value of an expression.
#[must_use]
pub fn value(store: &[Value], e: Expression) -> Value {
    match e {
        Expression::Value(v) => v,
        Expression::Variable(x) => store[usize::from(x.0)],
        Expression::Sum(x, v) => store[usize::from(x.0)].wrapping_add(v),
    }
}

/// Whether a condition holds.
#[must_use]
pub fn holds(store: &[Value], b: Condition) -> bool {
    match b {
        Condition::Less(x, v) => store[usize::from(x.0)] < v,
        Condition::Equal(x, v) => store[usize::from(x.0)] == v,
    }
}

pub(super) fn is_skip(command: &Command) -> bool {
    matches!(command, Command::Skip)
}

fn has_now(command: &Command) -> bool {
    command.any(&|c| matches!(c, Command::Now(_)))
}

fn now(command: Shared) -> Shared {
    Arc::new(Command::Now(command))
}

/// Whether a pool was evaluated before, and nothing in it is what its program is at.
fn all_wait(pool: &Pool) -> bool {
    let is_begun = |c: &Command| matches!(c, Command::Waits(_));
    pool.commands.iter().any(|c| c.any(&is_begun)) && !pool.commands.iter().any(|c| has_now(c))
}

/// ⟨σ, p, C⟩
pub type Evaluated = (Store, Pool, Shared);

impl Rules {
    /// The state in which programs begin: each is `pool ACTV {C}`.
    #[must_use]
    pub fn first(self, programs: &Programs) -> State {
        let pools = programs.bodies.iter().map(|body| Arc::new(Command::Pool(Pool::active(body.clone()))));
        let room = |room: &usize| if self == Rules::Paper { usize::MAX } else { *room };
        let mut state = State {
            store: vec![0; programs.variables],
            buffers: vec![Vec::new(); programs.channels.len()],
            rooms: programs.channels.iter().map(room).collect(),
            commands: pools.collect(),
        };
        if self == Rules::Dapple {
            for i in 0..state.commands.len() {
                state = self.go_on(&state, i, state.commands[i].clone());
            }
        }
        state
    }

    /// ⟨σ, p, C⟩ ⇒ ⟨σ', p', C'⟩: how far `command` can get by itself, in each way in which it can.
    #[must_use]
    pub fn evaluate(self, store: &Store, p: &Pool, command: &Shared) -> Vec<Evaluated> {
        let one = |store: Store, p: Pool, command: Command| vec![(store, p, Arc::new(command))];
        match &**command {
            // (Final); under the rules of Dapple, it is decided next what becomes of it.
            Command::Io(_) | Command::Try(..) if self == Rules::Dapple => {
                one(store.clone(), p.clone(), Command::Now(command.clone()))
            }
            Command::Skip | Command::Io(_) | Command::Try(..) | Command::Waits(_) => {
                vec![(store.clone(), p.clone(), command.clone())]
            }
            Command::Now(command) => match &**command {
                Command::Waits(pool) if matches!(**pool, Command::Pool(_)) => {
                    vec![(store.clone(), p.clone(), pool.clone())] // it gives its turn away
                }
                _ => self.evaluate(store, p, command),
            },
            // (Assign)
            Command::Assign(x, e) => {
                let mut after = store.clone();
                after[usize::from(x.0)] = value(store, *e);
                one(after, p.clone(), Command::Skip)
            }
            Command::Sequence(c, d) => {
                let mut all = Vec::new();
                for (store, p, c) in self.evaluate(store, p, c) {
                    if is_skip(&c) {
                        all.extend(self.evaluate(&store, &p, d)); // (Seq-1)
                    } else {
                        all.push((store, p, Arc::new(Command::Sequence(c, d.clone())))); // (Seq-2)
                    }
                }
                all
            }
            // (If-1), (If-2)
            Command::If(b, c, d) => self.evaluate(store, p, if holds(store, *b) { c } else { d }),
            // (While-1)
            Command::While(b, c) if holds(store, *b) => {
                self.evaluate(store, p, &Arc::new(Command::Sequence(c.clone(), command.clone())))
            }
            // (While-2)
            Command::While(..) => one(store.clone(), p.clone(), Command::Skip),
            Command::Async(c) => {
                let evaluated = self.evaluate(store, p, c).into_iter().map(|(store, p, c)| {
                    if is_skip(&c) {
                        (store, p, c) // (Async-1)
                    } else if has_now(&c) {
                        (store, p, Arc::new(Command::Async(c))) // it has not blocked yet
                    } else {
                        (store, p.with(c), Arc::new(Command::Skip)) // (Async-2)
                    }
                });
                evaluated.collect()
            }
            // (Pool-1)
            Command::Pool(inner) if inner.commands.is_empty() => one(store.clone(), p.clone(), Command::Skip),
            Command::Pool(inner) if self == Rules::Dapple && all_wait(inner) => {
                one(store.clone(), p.clone(), Command::Now(command.clone()))
            }
            Command::Pool(inner) => {
                let mut all = Vec::new();
                for i in self.choices(inner) {
                    for (store, inner, c) in self.evaluate(store, &inner.without(i), &inner.commands[i]) {
                        if is_skip(&c) {
                            all.extend(self.evaluate(&store, p, &Arc::new(Command::Pool(inner)))); // (Pool-3)
                            continue;
                        }
                        let pool = Arc::new(Command::Pool(inner.with(c)));
                        let has_turn = self == Rules::Dapple && !has_now(&pool);
                        let pool = if has_turn { Arc::new(Command::Now(pool)) } else { pool };
                        let evaluated = (store, p.clone(), pool); // (Pool-2)
                        if !all.contains(&evaluated) {
                            all.push(evaluated);
                        }
                    }
                }
                all
            }
            // (Cancel)
            Command::Cancel => {
                let cancelled = Pool { flag: Flag::Cancelled, ..p.clone() };
                one(store.clone(), cancelled, Command::Skip)
            }
        }
    }

    /// Which commands of a pool can be taken next.
    fn choices(self, pool: &Pool) -> std::ops::Range<usize> {
        match self {
            Rules::Paper => 0..pool.commands.len(),
            // The command that runs now; if none does, the pool has only one.
            Rules::Dapple => {
                let now = pool.commands.iter().position(|c| has_now(c)).unwrap_or(0);
                now..now + 1
            }
        }
    }

    /// ⟨σ, β, C⟩ → ⟨σ', β', C'⟩: all states that can come next, of whichever program.
    #[must_use]
    pub fn next(self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        for (i, command) in state.commands.iter().enumerate() {
            let is_at_one = self == Rules::Dapple && has_now(command);
            if self == Rules::Paper && matches!(**command, Command::Pool(_)) {
                // (T-Eval); the pool around is not accessed.
                let around = Pool { flag: Flag::Active, commands: Vec::new() };
                for (store, _, command) in self.evaluate(&state.store, &around, command) {
                    let mut after = State { store, ..state.clone() };
                    after.commands[i] = command;
                    all.push(after);
                }
            }
            in_context(command, false, &|c| c, &mut |hole, is_cancelled, plug| match (self, &**hole) {
                (Rules::Paper, _) => {
                    let (io, cancelled) = operation(hole);
                    // (T-Send), (T-Recv), (T-Try-IO)
                    if let Some(mut after) = perform(state, io) {
                        after.commands[i] = plug(Arc::new(Command::Skip));
                        all.push(after);
                    }
                    // (T-Try-Cancel)
                    if let Some(d) = cancelled.filter(|_| is_cancelled) {
                        let mut after = state.clone();
                        after.commands[i] = plug(d.clone());
                        all.push(after);
                    }
                }
                (Rules::Dapple, Command::Now(at)) => match &**at {
                    Command::Pool(_) => {
                        // (Pool-Goes-On), or not.
                        let waits = Arc::new(Command::Waits(at.clone()));
                        all.push(self.go_on(state, i, plug(now(waits))));
                        in_context(at, is_cancelled, plug, &mut |hole, is_cancelled, plug| {
                            self.resume(state, i, hole, is_cancelled, plug, &mut all);
                        });
                    }
                    _ => all.push(self.begin(state, i, at, is_cancelled, plug)),
                },
                (Rules::Dapple, Command::Waits(_)) if !is_at_one => {
                    self.resume(state, i, hole, is_cancelled, plug, &mut all);
                }
                (Rules::Dapple, _) => {}
            });
        }
        all
    }

    /// A command comes to an operation.
    fn begin(self, state: &State, i: usize, command: &Shared, is_cancelled: bool, plug: Plug<'_>) -> State {
        let (io, cancelled) = operation(command);
        if let Some(d) = cancelled.filter(|_| is_cancelled) {
            return self.go_on(state, i, plug(now(d.clone()))); // (Begun-Late)
        }
        match perform(state, io).filter(|_| !is_waited_for(state, io)) {
            Some(after) => self.go_on(&after, i, plug(now(Arc::new(Command::Skip)))), // (At-Once)
            None => {
                let command = bound(&state.store, command);
                self.go_on(state, i, plug(now(Arc::new(Command::Waits(command)))))
            }
        }
    }

    /// An operation that waits happens, or is cancelled, if it can.
    fn resume(
        self,
        state: &State,
        i: usize,
        waits: &Shared,
        is_cancelled: bool,
        plug: Plug<'_>,
        all: &mut Vec<State>,
    ) {
        let Command::Waits(command) = &**waits else { unreachable!("all that is blocked waits") };
        let (io, cancelled) = operation(command);
        if let Some(after) = perform(state, io) {
            all.push(self.go_on(&after, i, plug(now(Arc::new(Command::Skip)))));
        }
        if let Some(d) = cancelled.filter(|_| is_cancelled) {
            all.push(self.go_on(state, i, plug(now(d.clone()))));
        }
    }

    /// Under the rules of Dapple, evaluation goes on where the program is at: in one way only.
    fn go_on(self, state: &State, i: usize, command: Shared) -> State {
        let around = Pool { flag: Flag::Active, commands: Vec::new() };
        let mut evaluated = self.evaluate(&state.store, &around, &command);
        let (store, _, command) = evaluated.pop().expect("there is a way to go on");
        assert!(evaluated.is_empty(), "there is one way to go on");
        let mut after = State { store, ..state.clone() };
        after.commands[i] = match &*command {
            // If the outermost pool has its turn, so has everything.
            Command::Now(pool) => pool.clone(),
            _ => command,
        };
        after
    }
}

/// The operation of a command, and the command that runs if it is cancelled.
fn operation(command: &Shared) -> (Io, Option<&Shared>) {
    match &**command {
        Command::Io(io) => (*io, None),
        Command::Try(io, d) => (*io, Some(d)),
        _ => unreachable!("a hole is an operation"),
    }
}

/// The same operation with the message that it sends: that is made when it is begun.
fn bound(store: &Store, command: &Shared) -> Shared {
    let value = |io: Io| match io {
        Io::Send(e, r) => Io::Send(Expression::Value(value(store, e)), r),
        Io::Recv(..) => io,
    };
    Arc::new(match &**command {
        Command::Io(io) => Command::Io(value(*io)),
        Command::Try(io, d) => Command::Try(value(*io), d.clone()),
        _ => unreachable!("it is an operation"),
    })
}

/// Does an operation, if it can be done.
fn perform(state: &State, io: Io) -> Option<State> {
    let mut after = state.clone();
    match io {
        Io::Send(e, Channel(r)) => {
            let buffer = &mut after.buffers[usize::from(r)];
            if buffer.len() == state.rooms[usize::from(r)] {
                return None; // never so in the paper
            }
            buffer.push(value(&state.store, e)); // pushleft
        }
        Io::Recv(x, Channel(r)) => {
            let buffer = &mut after.buffers[usize::from(r)];
            if buffer.is_empty() {
                return None;
            }
            after.store[usize::from(x.0)] = buffer.remove(0); // popright
        }
    }
    Some(after)
}

/// Whether another operation waits for the same: then it is first.
fn is_waited_for(state: &State, io: Io) -> bool {
    let is_same = |other: Io| match (io, other) {
        (Io::Recv(_, r), Io::Recv(_, other)) | (Io::Send(_, r), Io::Send(_, other)) => r == other,
        _ => false,
    };
    let waits = |command: &Command| match command {
        Command::Waits(waits) => is_same(operation(waits).0),
        _ => false,
    };
    state.commands.iter().any(|command| command.any(&waits))
}

/// Puts a command in the place of a hole.
type Plug<'a> = &'a dyn Fn(Shared) -> Shared;

/// Calls `visit` with each operation that `command` is an execution context ℰ of, whether that is a cancelled one, ℰ_c,
/// and a function that plugs the hole.
fn in_context(
    command: &Shared,
    is_cancelled: bool,
    plug: Plug<'_>,
    visit: &mut dyn FnMut(&Shared, bool, Plug<'_>),
) {
    match &**command {
        Command::Io(_) | Command::Try(..) | Command::Now(_) | Command::Waits(_) => {
            visit(command, is_cancelled, plug);
        }
        Command::Sequence(c, d) => {
            let plug = |c: Shared| plug(Arc::new(Command::Sequence(c, d.clone())));
            in_context(c, is_cancelled, &plug, visit);
        }
        Command::Pool(pool) => {
            for (i, command) in pool.commands.iter().enumerate() {
                let plug = |c: Shared| plug(Arc::new(Command::Pool(pool.without(i).with(c))));
                in_context(command, is_cancelled || pool.flag == Flag::Cancelled, &plug, visit);
            }
        }
        // It has not blocked yet: that is, not in the paper.
        Command::Async(c) if has_now(c) => {
            in_context(c, is_cancelled, &|c| plug(Arc::new(Command::Async(c))), visit);
        }
        _ => {}
    }
}
