//! The load of HTTP servers: HTTP/1.1 by hand, one thread, an epoll of its own.
//!
//! There are several. [`put`] measures the cost of a request: a number of clients that wait for their answers make a
//! number of requests ([`Clients`]). [`obey`] is for servers that are held up, and follows orders, a line at a time:
//! `closed CONNECTIONS MILLISECONDS` keeps a request under way on each connection and reports how many were answered in
//! a second; `open ...` keeps a schedule ([`open`]).

mod answer;
mod clients;
mod connection;
mod downloads;
mod fleet;
pub(crate) mod open;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use rustix::thread::{gettid, set_current_timer_slack};

pub(crate) use self::clients::{Clients, Wanted};
pub(crate) use self::downloads::Downloads;
use self::fleet::Fleet;
use self::open::Plan;
use super::Load;
use crate::child;
use crate::contest::Failure;
use crate::work::cpu_time;

/// No more connections than that; a server with a limit on its file descriptors takes as many.
const MOST: usize = 2000;

/// A request with nothing in it that need not be.
pub(crate) fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: versus\r\n\r\n").into_bytes()
}

/// Of a variant, how many requests a connection is for (0: any number) and how many connections there are:
/// `CONNECTIONS` or `REQUESTSxCONNECTIONS`.
pub(crate) fn clients_of(variant: &str) -> Result<(u32, usize), Failure> {
    let (each, count) = variant.split_once('x').unwrap_or(("0", variant));
    let wrong = |_| format!("not a number of connections: {variant:?}");
    Ok((each.parse().map_err(wrong)?, count.parse().map_err(wrong)?))
}

/// Does a tenth of the work to warm up, and all of it at the parent's order.
pub(crate) fn put(mut clients: Clients, requests: usize) {
    clients.gather();
    clients.run(requests.div_ceil(10));
    put_timed(clients, requests);
}

/// Does all of the work at the parent's order. Then it reports the nanoseconds on the clock, and those of its own CPU
/// time: the load cannot see that a server is faster than the load itself.
pub(crate) fn put_timed(mut load: impl Load, operations: usize) {
    child::say("warm");
    if child::told() {
        let (begin, cpu) = (Instant::now(), cpu_time());
        load.run(operations);
        child::say(format!("{} {}", begin.elapsed().as_nanos(), (cpu_time() - cpu).as_nanos()));
    }
}

/// Follows orders until its parent closes the pipe: `light` and `heavy` are the paths of the two kinds of requests.
pub(crate) fn obey(server: SocketAddr, light: &str, heavy: &str) -> Result<(), Failure> {
    keep_time();
    let (light, heavy) = (request(light), request(heavy));
    let mut fleet = Fleet::new(server, MOST);
    while let Some(line) = child::heard() {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["closed", connections, millis] => {
                let number = |text: &str| text.parse::<u32>().map_err(|_| format!("not a number: {text:?}"));
                let time = Duration::from_millis(number(millis)?.into());
                closed(server, number(connections)?, time, &heavy).to_string()
            }
            ["open", ref rest @ ..] => {
                let plan = Plan::of(rest).ok_or_else(|| format!("not a plan: {line:?}"))?;
                open::run(&mut fleet, &plan, &light, &heavy).line()
            }
            _ => return Err(format!("not a load: {line:?}")),
        };
        child::say(answer);
    }
    Ok(())
}

/// Makes this thread wake up in time, as far as the system lets it: it has little to do and is the clock.
fn keep_time() {
    // Without the right to it, the report shows what comes of it.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let _ = setpriority_process(Some(gettid()), -20);
}

/// Keeps one request under way on each of some connections, all new, for a while: answers a second.
fn closed(server: SocketAddr, connections: u32, time: Duration, request: &[u8]) -> f64 {
    let mut fleet = Fleet::new(server, connections as usize);
    let begin = Instant::now();
    let mut answers = 0;
    while begin.elapsed() < time {
        while fleet.send(request, ()).is_ok() {}
        fleet.wait(Duration::from_secs(1), |((), answer)| {
            answers += u32::from(answer.is_some_and(|answer| answer.status == 200));
        });
    }
    f64::from(answers) / begin.elapsed().as_secs_f64()
}
