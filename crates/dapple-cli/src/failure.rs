//! What goes wrong at the start, in words that say what to do about it.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;

/// Why the program ends.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Failure {}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure(text.into())
    }

    /// Nobody can listen there. `option` is what sets the port.
    pub(crate) fn listening(address: SocketAddr, option: &str, error: &io::Error) -> Failure {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => {
                format!(
                    "something else listens there; choose another port with {option}, 0 for any that is free"
                )
            }
            ErrorKind::PermissionDenied if address.port() < 1024 => format!(
                "ports below 1024 are for root; choose another with {option}, or allow it: \
                 sudo setcap cap_net_bind_service=+ep {}",
                std::env::current_exe().map_or_else(|_| "dapple".into(), |path| path.display().to_string())
            ),
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; 0.0.0.0 or :: stand for all that it has".into()
            }
            _ => return Failure(format!("cannot listen at {address}: {error}")),
        };
        Failure(format!("cannot listen at {address}: {hint}"))
    }

    /// It is no folder that can be served.
    pub(crate) fn folder(folder: &Path, error: &io::Error) -> Failure {
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
        Failure(hint)
    }
}
