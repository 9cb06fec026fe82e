//! A small program around one operation, which `versus` builds with and without cancellation (`leaf`), asks
//! for allocations (`start`), and in which callgrind counts instructions (`versus/instructions`).
//!
//! `versus-probe OPERATION COUNT` runs an operation COUNT times, in a task on one worker, and prints the cost of one:
//! nanoseconds, or allocations. Under callgrind it prints nothing, and lets callgrind collect the instructions of the
//! worker's thread during the measurement.

#[expect(unsafe_code, reason = "talks to valgrind, by instructions that do nothing elsewhere")]
mod callgrind;
mod exchange;
mod leaf;
mod meter;
mod outside;
mod sched;
mod start;
mod state;
mod stm;
#[expect(unsafe_code, reason = "a global allocator")]
mod tally;
mod timers;
#[cfg(feature = "http")]
mod web;

use std::process::ExitCode;

use meter::Meter;

#[global_allocator]
static ALLOCATOR: tally::Tally = tally::Tally::new();

const USAGE: &str = "\
Usage: versus-probe OPERATION COUNT
       versus-probe allocations-OPERATION COUNT

  spawn, yield, pingpong, call          a task, a yield, a message there and back, a closure in a color
  mpsc, oneshot                         a message from task to task; a value from a task spawned for it
  mpmc, broadcast                       a message to one of four tasks, and one to all four
  mvar, when                            a number there and back; a number through two states that are waited for
  start, start-unordered, await         a future that is ready: started, pushed to a FuturesUnordered, awaited
  timer, timer-fire                     a timer that is dropped before it fires, and one that does
  shared-read, shared-write             a state that is free
  shared-map-get, shared-map-insert     a key of a map that is there
  together, when-free                   two states that are free, and a condition over them that holds
  mutex, mvar-free                      a lock; a value put into a place and taken out
  stm-read, stm-write, stm-transfer     a transaction that reads a number, that changes one, that changes two
  stm-queue, stm-map                    a value through a bounded queue; a key of a map that is there, read
  read-ready, read-pending, write       a byte of a socket: one that is there, one to wait for, one that there is room for
  accept                                a connection
  http                                  a request over a connection that is kept
  read-ready-scope, read-pending-scope  the same in what was started in a scope
  bare-ready, bare-pending              reads without their system call, the second up to where it waits
  bare-ready-scope, bare-pending-scope  the same in what was started in a scope
  allocations                           of a start

Says nanoseconds; with `allocations`, how often the worker asks for memory.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(count), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let Some(count) = count.parse().ok().filter(|count| *count > 0) else {
        eprintln!("versus-probe: {count:?} is not a number of operations: give a whole number above 0");
        return ExitCode::from(2);
    };
    let Some(cost) = measure(&what, count) else {
        eprintln!("versus-probe: there is no operation {what:?}\n\n{USAGE}");
        return ExitCode::from(2);
    };
    if !cost.is_nan() {
        println!("{cost}");
    }
    ExitCode::SUCCESS
}

fn measure(what: &str, count: usize) -> Option<f64> {
    let (meter, what) = match what {
        "allocations" => (Meter::Allocations, "start"),
        _ => match what.strip_prefix("allocations-") {
            Some(what) => (Meter::Allocations, what),
            None if callgrind::is_around() => (Meter::Instructions, what),
            None => (Meter::Time, what),
        },
    };
    Some(match what {
        "spawn" => meter.run(meter.of(count, sched::spawn)),
        "yield" => meter.run(meter.of(count, sched::yields)),
        "pingpong" => meter.run(meter.of(count, sched::pingpong)),
        "call" => meter.run(meter.of(count, sched::calls)),
        "mpsc" => meter.run(meter.of(count, sched::mpsc)),
        "oneshot" => meter.run(meter.of(count, sched::oneshot)),
        "mpmc" => meter.run(meter.of(count, exchange::mpmc)),
        "broadcast" => meter.run(meter.of(count, exchange::broadcast)),
        "mvar" => meter.run(meter.of(count, exchange::mvar)),
        "when" => meter.run(meter.of(count, exchange::when_both)),
        "start" => meter.run(meter.of(count, start::in_scope)),
        "start-unordered" => meter.run(meter.of(count, start::unordered)),
        "await" => meter.run(meter.of(count, start::awaited)),
        "timer" => meter.run(meter.of(count, timers::dropped)),
        "timer-fire" => meter.run(meter.of(count, timers::fired)),
        "shared-read" => meter.run(meter.of(count, state::read)),
        "shared-write" => meter.run(meter.of(count, state::write)),
        "shared-map-get" => meter.run(meter.of(count, state::get)),
        "shared-map-insert" => meter.run(meter.of(count, state::insert)),
        "together" => meter.run(meter.of(count, stm::both)),
        "when-free" => meter.run(meter.of(count, stm::when)),
        "mutex" => meter.run(meter.of(count, stm::mutex)),
        "mvar-free" => meter.run(meter.of(count, stm::mvar)),
        "stm-read" => meter.run(meter.of(count, stm::read)),
        "stm-write" => meter.run(meter.of(count, stm::write)),
        "stm-transfer" => meter.run(meter.of(count, stm::transfer)),
        "stm-queue" => meter.run(meter.of(count, stm::queue)),
        "stm-map" => meter.run(meter.of(count, stm::map)),
        "read-ready" => meter.run(meter.of(count, leaf::ready)),
        "read-pending" => meter.run(meter.of(count, leaf::pending)),
        "write" => meter.run(meter.of(count, leaf::write)),
        "accept" => meter.run(outside::accept(count, meter)),
        #[cfg(feature = "http")]
        "http" => meter.run(web::requests(count, meter)),
        "read-ready-scope" => meter.run(meter.of(count, |count| leaf::in_scope(leaf::ready(count)))),
        "read-pending-scope" => meter.run(meter.of(count, |count| leaf::in_scope(leaf::pending(count)))),
        "bare-ready" => meter.run(meter.of(count, leaf::bare_ready)),
        "bare-pending" => meter.run(meter.of(count, leaf::bare_pending)),
        "bare-ready-scope" => meter.run(meter.of(count, |count| leaf::in_scope(leaf::bare_ready(count)))),
        "bare-pending-scope" => meter.run(meter.of(count, |count| leaf::in_scope(leaf::bare_pending(count)))),
        _ => return None,
    })
}
