//! The program `dapple`: serves a folder, or its built-in site.
//!
//! ```text
//! args      the command line
//! start     options become settings; listeners, banner, signals, shutdown
//! observe   wraps a service: counts its answers and their times
//! counts    counts of requests, without a word that workers share
//! metrics   those counts, and the runtime's, for Prometheus
//! log       a line for each request, and for each file that cannot be read, written without holding up requests
//! reload    SIGHUP: opens certificates and the log's file again
//! scrape    the hosts that may ask for metrics, and the formats
//! page      pages in memory, and the service that answers with them
//! site      the built-in site
//! work      handlers of the site that compute and block
//! failure   errors at the start, with advice
//! ```
//!
//! Exit status: 0 after a shutdown by a signal, 1 after an error, 2 for a wrong command line, and 128 plus the number of the
//! signal if a second signal has cut the shutdown short.

#![forbid(unsafe_code)]

mod args;
mod counts;
mod failure;
mod log;
mod metrics;
mod observe;
mod page;
mod reload;
mod scrape;
mod site;
mod start;
mod work;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, CliCommand};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => match failure::unknown_command(&error) {
            Some(failure) => {
                say(&failure);
                return ExitCode::from(2);
            }
            None => error.exit(),
        },
    };
    let ended = match &arguments.command {
        None => start::site(&arguments.server),
        Some(CliCommand::Site { server }) => start::site(server),
        Some(CliCommand::Serve(serve)) => start::folder(serve),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure);
            ExitCode::FAILURE
        }
    }
}

/// Prints to the standard error. Unlike `eprintln!`, does not panic if the standard error is closed.
fn say(failure: &failure::StartFailure) {
    let _ = writeln!(io::stderr(), "error: {failure}");
}
