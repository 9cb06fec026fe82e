//! Errors at the start of the program, each with advice.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Component, Path};

use clap::error::{ContextKind, ContextValue, ErrorKind as Clap};

/// Error at the start, with advice: the program prints it and ends with status 1, or 2 for a wrong command line.
#[derive(Debug)]
pub(crate) struct StartFailure(String);

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for StartFailure {}

impl StartFailure {
    pub(crate) fn new(text: impl Into<String>) -> StartFailure {
        StartFailure(text.into())
    }

    /// Makes the error for an address that cannot be listened on. `option` is the option that sets the port.
    pub(crate) fn listening(address: SocketAddr, option: &str, error: &io::Error) -> StartFailure {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => {
                format!(
                    "another program listens there; choose another port with {option}, 0 for any free one"
                )
            }
            ErrorKind::PermissionDenied if address.port() < 1024 => format!(
                "ports below 1024 are for root; choose another with {option}, or allow it: \
                 sudo setcap cap_net_bind_service=+ep {}",
                std::env::current_exe().map_or_else(|_| "dapple".into(), |path| path.display().to_string())
            ),
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; 0.0.0.0 or :: stand for all of its addresses".into()
            }
            _ => return StartFailure(format!("cannot listen at {address}: {error}")),
        };
        StartFailure(format!("cannot listen at {address}: {hint}"))
    }

    /// Makes the error for a log that cannot be opened, or whose thread cannot be started (`None`).
    pub(crate) fn log(path: Option<&Path>, error: &io::Error) -> StartFailure {
        match path {
            Some(path) => StartFailure(format!(
                "cannot open the log {}: {error}; name a file that this user may write, in a folder that exists",
                path.display()
            )),
            None => StartFailure(format!("cannot start the log: {error}")),
        }
    }

    /// Makes the error for a folder that cannot be served.
    pub(crate) fn folder(folder: &Path, error: &io::Error) -> StartFailure {
        let shown = folder.display();
        let hint = match error.kind() {
            ErrorKind::NotFound => {
                format!("there is no folder {shown}: name one that exists, as in `dapple serve .`")
            }
            ErrorKind::NotADirectory => format!("{shown} is not a folder: name the folder that it is in"),
            ErrorKind::PermissionDenied => {
                format!("the folder {shown} may not be opened: give this user the right to read it")
            }
            _ => error.to_string(),
        };
        StartFailure(hint)
    }

    /// Checks that a file that an option names is in the served folder, and returns the error if it is not.
    pub(crate) fn missing_file(folder: &Path, option: &str, file: &str) -> Option<StartFailure> {
        let shown = folder.display();
        let name = file.trim_start_matches('/');
        if Path::new(name).components().any(|part| part == Component::ParentDir) {
            return Some(StartFailure(format!(
                "{option} {file} leads out of the folder {shown}: name a file that is in it, as 404.html"
            )));
        }
        let path = folder.join(name);
        (name.is_empty() || !path.is_file()).then(|| {
            StartFailure(format!(
                "{option} {file}: there is no file {}: make it, or name another",
                path.display()
            ))
        })
    }
}

/// Returns an error with advice if `error` is about an unknown command; `None` for any other error.
pub(crate) fn unknown_command(error: &clap::Error) -> Option<StartFailure> {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let word = match error.kind() {
        Clap::InvalidSubcommand => of(ContextKind::InvalidSubcommand)?,
        Clap::UnknownArgument => of(ContextKind::InvalidArg)?,
        _ => return None,
    };
    // After a command, it is an argument too many.
    if word.starts_with('-') || std::env::args().nth(1).as_ref() != Some(&word) {
        return None;
    }
    let folder = match Path::new(&word).is_dir() {
        true => format!("; to serve the folder {word}: dapple serve {word}"),
        false => String::new(),
    };
    Some(StartFailure(format!(
        "there is no command {word}: use `dapple serve DIR` for a folder, `dapple` or `dapple site` for the built-in \
         site{folder}; `dapple --help` lists all options"
    )))
}
