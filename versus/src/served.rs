//! Work that another process asks for: servers, and their cost.
//!
//! A round has three processes, all of them this program. The one that was started tells the others
//! what to do. In the second, one side is the server, on two workers, as everywhere; nothing of another
//! side was ever there. The third is the load ([`crate::load`]): one thread, the same for all sides. What
//! counts is the CPU time of the server while the load is timed; the clock is the load's.

use std::process;
use std::thread;

use monoio::net::TcpListener;
use monoio::{FusionDriver, RuntimeBuilder};

use crate::child::{self, Child};
use crate::contest::{Contest, Entry, Failure, Metric, Role, Sample, Scale};
use crate::denied::Denied;
use crate::sides::net::{self, Net};
use crate::sides::{Dapple, Host, Monoio, Side, SmolDriven, TokioDriven};
use crate::work::cpu_time;

/// The hidden option of a server: `--serve CASE SIDE`. Says its address, then, each time that it is
/// asked, the nanoseconds of CPU time that it has used.
pub(crate) const SERVE: &str = "serve";

/// The hidden option of a load: `--load CASE ADDRESS OPERATIONS`. The load warms up and reports that; then, at its
/// parent's order, does its work and reports how many nanoseconds that took.
pub(crate) const LOAD: &str = "load";

/// A server's handling of a connection.
pub(crate) trait Service: 'static {
    fn serve<N: Net>(stream: N::Stream) -> impl Future<Output = ()> + Send + 'static;

    /// The same, as monoio wants it.
    fn serve_monoio(stream: monoio::net::TcpStream) -> impl Future<Output = ()> + 'static;
}

/// A contest of servers, with monoio as a reference.
pub(crate) fn contest(
    name: &'static str,
    about: &'static str,
    metrics: &'static [Metric],
    operations: usize,
) -> Contest {
    let entry = |side, role| {
        let round = move |scale: Scale| round(name, side, operations / if scale.quick { 20 } else { 1 });
        Entry { side, role, round: Box::new(round) }
    };
    let entries = vec![
        entry(Dapple::NAME, Role::Ours),
        entry(TokioDriven::NAME, Role::Rival),
        entry(SmolDriven::NAME, Role::Rival),
        entry(Monoio::NAME, Role::Reference),
    ];
    // No warm-up: each round is a process of its own, and has one.
    Contest { name, about, metrics, warm_up: false, at_most: usize::MAX, entries }
}

/// One round of one side: CPU time of the server, then time on the clock, per operation.
pub(crate) fn round(name: &str, side: &str, operations: usize) -> Result<Sample, Failure> {
    let mut server = Child::start(&[&format!("--{SERVE}"), name, side])?;
    let address: String = server.answer()?;
    let mut load = Child::start(&[&format!("--{LOAD}"), name, &address, &operations.to_string()])?;
    let _warm: String = load.answer()?;
    let denied = Denied::of([server.id()]);
    let before: u64 = server.ask()?;
    let wall: u64 = load.ask()?;
    let after: u64 = server.ask()?;
    denied.end();
    Ok([after - before, wall].map(|nanos| nanos as f64 / operations as f64).to_vec())
}

/// Runs the server, in its own process.
pub(crate) fn serve<V: Service>(side: &str) -> Result<(), Failure> {
    match side {
        Dapple::NAME => serve_on::<Dapple, net::OfDapple, V>(),
        TokioDriven::NAME => serve_on::<TokioDriven, net::OfTokio, V>(),
        SmolDriven::NAME => serve_on::<SmolDriven, net::OfSmol, V>(),
        Monoio::NAME => serve_on_monoio::<V>(),
        _ => Err(format!("no side is called {side:?}")),
    }
}

/// Accepts for ever; the process ends when it is no longer asked.
fn serve_on<H: Host, N: Net, V: Service>() -> Result<(), Failure> {
    H::start().run(|side| async move {
        let (mut listener, address) = N::bind().await;
        answer(address);
        loop {
            let stream = N::accept(&mut listener).await;
            H::Side::detach(side.spawn(V::serve::<N>(stream)));
        }
    })
}

/// The same on one thread.
fn serve_on_monoio<V: Service>() -> Result<(), Failure> {
    let mut runtime = RuntimeBuilder::<FusionDriver>::new().build().expect("a monoio runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind(net::ANY).expect("a port");
        answer(listener.local_addr().expect("an address"));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            monoio::spawn(V::serve_monoio(stream));
        }
    })
}

/// Reports the address of the server, and starts the thread that reports its cost.
pub(crate) fn answer(address: impl ToString) {
    child::say(address);
    thread::spawn(|| {
        while child::told() {
            child::say(cpu_time().as_nanos());
        }
        process::exit(0);
    });
}
