//! The same programs on Dapple.
//!
//! ```text
//! pool ACTV {C}        dapple::finish, or finish_local
//! async C              Scope::start
//! cancel               Scope::cancel
//! channels             mpsc::unbounded or bounded, the receiver behind a sync::Mutex
//! try IO else D        the operation, and D if it returns Cancelled
//! IO                   the operation, inside of shield
//! ```
//!
//! In the paper every operation blocks. To be held to its rules, a program is made to: there is a gate in
//! front of each operation, which is opened between two polls of the program, for some of those who wait
//! there. Otherwise nothing is added, and the rules of Dapple hold.
//!
//! In every other run, operations and pools are polled as foreign code does it: with wakers of its own, and
//! only if these are used.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use dapple::channel::mpsc;
use dapple::sim::{self, Sim};
use dapple::time::{Duration, timeout};
use dapple::{Cancelled, JoinHandle, Runtime, Scope, scope::LocalScope};

use super::explore::Outcome;
use super::generate::Dice;
use super::language::{Channel, Command, Io, Programs, Shared, Value, Variable};
use super::polling::{Gate, foreign};
use super::rules::{Rules, Store, holds, value};

/// After this long a program that has not ended is stuck. It is virtual time in a simulation, where it passes
/// only when nothing else can happen. Elsewhere it is a bug: programs that can be stuck are not run there.
const STUCK: Duration = Duration::from_secs(20);

/// Where programs are run.
#[derive(Debug)]
pub enum Place<'a> {
    /// On real workers.
    Real(&'a Runtime),
    /// On virtual workers.
    Simulated,
}

/// The result of a run.
#[derive(Debug)]
pub struct Happened {
    /// The final state, or the failure.
    pub outcome: Result<Outcome, String>,
    /// Whether a cancel has met an operation that was blocked.
    pub met: bool,
}

/// The state that programs share while they run.
struct World {
    store: Mutex<Store>,
    senders: Vec<mpsc::Sender<Value>>,
    receivers: Vec<dapple::sync::Mutex<mpsc::Receiver<Value>>>,
    met: AtomicBool,
}

/// The state of a running program.
struct Runner {
    world: Arc<World>,
    /// In front of each operation.
    gate: Option<Gate>,
    is_foreign: bool,
}

impl World {
    fn new(programs: &Programs, rules: Rules) -> World {
        let channels = programs.channels.iter().map(|room| match *room {
            usize::MAX => mpsc::unbounded(),
            _ if rules == Rules::Paper => mpsc::unbounded(),
            room => mpsc::bounded(room),
        });
        let channels = channels.map(|(sender, receiver)| (sender, dapple::sync::Mutex::new(receiver)));
        let (senders, receivers) = channels.unzip();
        World {
            store: Mutex::new(vec![0; programs.variables]),
            senders,
            receivers,
            met: AtomicBool::new(false),
        }
    }

    fn assign(&self, x: Variable, value: Value) {
        self.with(|store| store[usize::from(x.0)] = value);
    }

    fn with<R>(&self, f: impl FnOnce(&mut Store) -> R) -> R {
        f(&mut self.store.lock().expect("nobody panics"))
    }

    async fn attempt(&self, io: Io) -> Result<(), Cancelled> {
        match io {
            Io::Send(e, Channel(r)) => {
                let value = self.with(|store| value(store, e));
                self.senders[usize::from(r)].send(value).await.map_err(|error| {
                    assert!(error.is_cancelled(), "the channel is open");
                    Cancelled
                })
            }
            Io::Recv(x, Channel(r)) => {
                let mut receiver = self.receivers[usize::from(r)].lock().await?;
                let value = receiver.recv().await.map_err(|error| {
                    assert!(error.is_cancelled(), "the channel is open");
                    Cancelled
                })?;
                self.assign(x, value);
                Ok(())
            }
        }
    }
}

impl Runner {
    async fn operate(&self, io: Io) -> Result<(), Cancelled> {
        match self.is_foreign {
            true => foreign(self.operate_here(io)).await,
            false => self.operate_here(io).await,
        }
    }

    /// Does an operation, and takes note of whether a cancel has ended it while it was blocked.
    async fn operate_here(&self, io: Io) -> Result<(), Cancelled> {
        if let Some(gate) = &self.gate {
            gate.pass().await;
        } else if sim::is_simulated() && sim::random().is_multiple_of(4) {
            sim::work(Duration::ZERO); // other programs come in between
        }
        let mut attempt = pin!(self.world.attempt(io));
        let mut has_waited = false;
        std::future::poll_fn(|cx| {
            let polled = attempt.as_mut().poll(cx);
            match polled {
                Poll::Pending => has_waited = true,
                Poll::Ready(Err(Cancelled)) if has_waited => self.world.met.store(true, Ordering::Relaxed),
                Poll::Ready(_) => {}
            }
            polled
        })
        .await
    }
}

macro_rules! run_in_scope {
    ($(#[$doc:meta])* $run:ident, $scope:ident, $finish:ident $(, $send:ident)?) => {
        $(#[$doc])*
        fn $run<'scope, 'env>(
            command: &'env Command,
            scope: &'scope $scope<'scope, 'env>,
            runner: &'env Runner,
        ) -> Pin<Box<dyn Future<Output = ()> $(+ $send)? + 'scope>> {
            let world = &runner.world;
            Box::pin(async move {
                match command {
                    Command::Skip => {}
                    Command::Assign(x, e) => world.assign(*x, world.with(|store| value(store, *e))),
                    Command::Sequence(c, d) => {
                        $run(c, scope, runner).await;
                        $run(d, scope, runner).await;
                    }
                    Command::If(b, c, d) => {
                        let holds = world.with(|store| holds(store, *b));
                        $run(if holds { c } else { d }, scope, runner).await;
                    }
                    Command::While(b, c) => {
                        while world.with(|store| holds(store, *b)) {
                            $run(c, scope, runner).await;
                        }
                    }
                    Command::Async(c) => drop(scope.start($run(c, scope, runner))),
                    Command::Pool(pool) => {
                        let [body] = &pool.commands[..] else { unreachable!("it begins with one command") };
                        let pool = dapple::$finish(async |scope| $run(body, scope, runner).await);
                        let pool: Pin<Box<dyn Future<Output = ()> $(+ $send)?>> = Box::pin(pool);
                        match runner.is_foreign {
                            true => foreign(pool).await,
                            false => pool.await,
                        }
                    }
                    Command::Cancel => scope.cancel(),
                    Command::Io(io) => {
                        dapple::shield(runner.operate(*io)).await.expect("a shield keeps off a cancel");
                    }
                    Command::Try(io, d) => {
                        if runner.operate(*io).await == Err(Cancelled) {
                            $run(d, scope, runner).await;
                        }
                    }
                    Command::Now(_) | Command::Waits(_) => unreachable!("no program is written with these"),
                }
            })
        }
    };
}

run_in_scope!(run, Scope, finish, Send);
run_in_scope!(run_local, LocalScope, finish_local);

async fn program(body: Shared, runner: Runner) {
    let pool = dapple::finish(async |scope| run(&body, scope, &runner).await);
    Gate::around(runner.gate.as_ref(), pool).await;
}

async fn local_program(body: Shared, runner: Runner) {
    let pool = dapple::finish_local(async |scope| run_local(&body, scope, &runner).await);
    Gate::around(runner.gate.as_ref(), pool).await;
}

#[derive(Clone, Copy)]
struct How {
    rules: Rules,
    seed: u64,
    /// Whether the first one is in the main color, and not `Send`.
    is_local: bool,
}

/// Runs programs as tasks, and returns the final state when all have ended, or are stuck.
async fn run_all(programs: &Programs, world: &Arc<World>, how: How) -> Outcome {
    let mut handles: Vec<JoinHandle<()>> = Vec::new();
    for (i, body) in programs.bodies.iter().enumerate() {
        let gate = (how.rules == Rules::Paper).then(|| Gate::new(Dice::new(how.seed, i as u64)));
        let (body, runner) =
            (body.clone(), Runner { world: world.clone(), gate, is_foreign: how.seed / 6 % 2 == 1 });
        handles.push(match how.is_local && i == 0 {
            true => dapple::spawn_local(local_program(body, runner)),
            false => dapple::spawn(program(body, runner)),
        });
    }
    let all_end = async {
        for handle in &mut handles {
            if !handle.is_finished() {
                handle.await?;
            }
        }
        Ok::<(), dapple::JoinError>(())
    };
    let in_time = timeout(STUCK, all_end).await;
    if let Ok(ended) = in_time {
        ended.expect("a program does not panic");
    }
    let store = world.with(|store| store.clone());
    let ended = handles.iter().map(JoinHandle::is_finished).collect();
    for handle in handles {
        // A task that is dropped while it waits leaves the messages in their channel.
        if !handle.is_finished() {
            handle.abort();
            assert!(handle.await.expect_err("it is stuck").is_aborted());
        }
    }
    let mut buffers = Vec::new();
    for receiver in &world.receivers {
        let mut receiver = receiver.try_lock().expect("nobody waits any more");
        buffers.push(std::iter::from_fn(|| receiver.try_recv().ok()).collect());
    }
    Outcome { store, buffers, ended }
}

/// Runs programs once. Whether all operations block is up to the rules that they are held to.
#[must_use]
pub fn happens(programs: &Programs, rules: Rules, place: &Place<'_>, seed: u64) -> Happened {
    let world = Arc::new(World::new(programs, rules));
    let outcome = match *place {
        Place::Real(runtime) => {
            let (programs, world) = (programs.clone(), world.clone());
            let how = How { rules, seed, is_local: false };
            let ran = runtime.spawn(async move { run_all(&programs, &world, how).await });
            runtime.block_on(ran).map_err(|error| error.to_string())
        }
        Place::Simulated => {
            let workers = 1 + (seed % 3) as usize;
            let how = How { rules, seed, is_local: seed / 3 % 2 == 1 };
            let ran = Sim::new(seed).workers(workers).try_run(run_all(programs, &world, how));
            ran.map_err(|failure| failure.why().to_owned())
        }
    };
    Happened { outcome, met: world.met.load(Ordering::Relaxed) }
}
