//! SIGHUP: reloads the certificate and reopens the log file. No connection ends.
//!
//! The kernel sends the same signal when the terminal of the program is closed. Then the program shuts down.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use dapple::signal::Signal;
use dapple_http::Tls;

use crate::log::AccessLog;

/// The files that SIGHUP opens again.
pub(crate) struct Reload {
    pub(crate) tls: Option<(Tls, PathBuf, PathBuf)>,
    pub(crate) log: Option<&'static AccessLog>,
    /// Whether the program was started in a terminal.
    pub(crate) has_terminal: bool,
    pub(crate) quiet: bool,
}

impl Reload {
    pub(crate) fn new(
        tls: Option<(Tls, PathBuf, PathBuf)>,
        log: Option<&'static AccessLog>,
        quiet: bool,
    ) -> Reload {
        Reload { tls, log, has_terminal: io::stderr().is_terminal(), quiet }
    }

    /// Reloads at each signal. Returns when the terminal is gone.
    pub(crate) async fn on(self, mut hangup: Signal) {
        while hangup.recv().await.is_ok() {
            if self.has_terminal && !io::stderr().is_terminal() {
                return;
            }
            self.once().await;
        }
        std::future::pending().await
    }

    async fn once(&self) {
        let mut opened = Vec::new();
        if let Some((tls, certificate, key)) = &self.tls {
            let (renewed, shown) = (tls.clone(), certificate.display().to_string());
            let (certificate, key) = (certificate.clone(), key.clone());
            let renewing = dapple::blocking(move || renewed.renew_from_files(certificate, key));
            match renewing.await {
                Ok(Ok(())) => opened.push(format!("the certificate {shown}")),
                Ok(Err(error)) => say(&format!("error: SIGHUP: the old certificate stays: {error}")),
                Err(error) => say(&format!("error: SIGHUP: the old certificate stays: {error}")),
            }
        }
        if let Some((log, path)) = self.log.and_then(|log| Some((log, log.path()?))) {
            let shown = path.display();
            match dapple::blocking(|| log.reopen()).await {
                Ok(Ok(())) => opened.push(format!("the log {shown}")),
                Ok(Err(error)) => {
                    say(&format!("error: SIGHUP: the log stays as it is: cannot open {shown}: {error}"))
                }
                Err(error) => say(&format!("error: SIGHUP: the log stays as it is: {error}")),
            }
        }
        if !self.quiet && !opened.is_empty() {
            say(&format!("SIGHUP: opened {} again", opened.join(" and ")));
        }
        if !self.quiet && self.tls.is_none() && self.log.and_then(AccessLog::path).is_none() {
            say("SIGHUP: nothing to open again: there is neither --tls-cert nor --log-file");
        }
    }
}

/// Prints to the standard error. Unlike `eprintln!`, does not panic if the standard error is closed.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
