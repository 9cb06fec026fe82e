//! A line for a test that cannot run on this machine; the tests of other crates include this file as well.
#![allow(dead_code, unused_imports, reason = "not every test binary needs it")]

use std::fmt::Display;
use std::io::{Write, stderr};
use std::thread;

/// Says that the test of this thread, or a part of it, cannot run on this machine. The test then passes.
///
/// The line does not come from a macro, and so libtest does not capture it. `ci/all` repeats it at its end.
pub(crate) fn not_run(reason: impl Display) {
    let (file, thread) = (env!("CARGO_CRATE_NAME"), thread::current());
    let line = match thread.name() {
        // libtest names the thread of a test after the test; this is another thread.
        None | Some("main") => format!("not run: {file}: {reason}\n"),
        Some(test) => format!("not run: {file}::{test}: {reason}\n"),
    };
    stderr().write_all(line.as_bytes()).expect("standard error can be written to");
}
