//! A web proxy, in callbacks and in tasks: the example of the thesis on libasync-mp (figures 2-1 and 3-2).
//!
//! You learn how callbacks (`dapple::event`) and tasks compare: the same program in both styles.
//!
//! Run it: `cargo run --release -p examples --bin webproxy -- 127.0.0.1:8080`
//!
//! In a second terminal start a server, `python3 -m http.server 8001`, and in a third ask for it through the proxy:
//! `curl --proxy http://127.0.0.1:8080 http://localhost:8001/`. Ctrl-C ends it. `--style tasks` is the same in the other
//! style; the clients cannot tell.
//!
//! * [`callbacks`]: each step registers the next one: `readable`, `writable`, `now`. The state of a connection goes from
//!   callback to callback.
//! * [`tasks`]: one function that waits. The state is in its variables.
//! * [`request`]: the part that both share, which waits for nothing.

mod callbacks;
mod request;
mod tasks;

use std::io;
use std::process::ExitCode;

use dapple::channel::oneshot;
use dapple::event::{self, Callback};
use dapple::io::{AsyncWriteExt, stdout};
use dapple::net::TcpListener;
use dapple::signal::{SignalKind, ctrl_c};
use lexopt::prelude::*;

const HELP: &str = "\
A web proxy, in callbacks and in tasks.

Usage: webproxy [OPTIONS] LISTEN

LISTEN is an address such as 127.0.0.1:8080; port 0 is any that is free.

  --style callbacks|tasks   how it is written (callbacks)
";

enum Style {
    Callbacks,
    Tasks,
}

/// `None`: help was asked for.
fn options() -> Result<Option<(Style, String)>, lexopt::Error> {
    let (mut style, mut listen) = (Style::Callbacks, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("style") => {
                style = match &*arguments.value()?.string()? {
                    "callbacks" => Style::Callbacks,
                    "tasks" => Style::Tasks,
                    other => return Err(format!("there is no style {other:?}").into()),
                };
            }
            Value(address) if listen.is_none() => listen = Some(address.string()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some((style, listen.ok_or("an address to listen at is wanted")?)))
}

async fn serve(style: Style, listen: String) -> io::Result<()> {
    let listener = TcpListener::bind(&listen).await?;
    let address = listener.local_addr()?;
    match style {
        Style::Callbacks => {
            let serving = callbacks::serve(listener.into_std()?)?;
            let (end, interrupted) = oneshot::channel();
            let mut end = Some(end);
            let interrupt = Callback::new(move || {
                let _ = end.take().map(|end| end.send(())); // once is enough
            });
            let listening = event::signal(SignalKind::interrupt(), interrupt)?;
            println!("listening at {address}");
            interrupted.await.map_err(io::Error::other)?;
            drop(listening);
            serving.withdraw().await?;
        }
        Style::Tasks => {
            let interrupted = ctrl_c();
            let serving = dapple::spawn(tasks::serve(listener));
            println!("listening at {address}");
            interrupted.await?;
            serving.cancel();
            serving.await?;
        }
    }
    Ok(())
}

#[dapple::main]
async fn main() -> ExitCode {
    let done = match options() {
        Ok(Some((style, listen))) => serve(style, listen).await,
        Ok(None) => stdout().write_all(HELP.as_bytes()).await,
        Err(error) => Err(io::Error::other(format!("{error}; --help says more"))),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("webproxy: {error}");
    ExitCode::FAILURE
}
