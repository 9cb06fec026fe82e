//! The place of a wait in the program, by a backtrace.

use std::backtrace::Backtrace;
use std::fmt;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// The folder of this crate's sources.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// The first frame outside of dapple, core and std, and the last frame of dapple before it.
#[derive(Debug)]
pub(super) struct WaitSite {
    function: String,
    /// File, line and column, if there is debug information.
    at: Option<String>,
    kind: Option<String>,
}

/// One frame, as the standard library prints it: a line with a number and a function, and, if it is known, a line with
/// `at`, file, line and column.
struct Frame<'a> {
    function: &'a str,
    at: Option<&'a str>,
}

impl WaitSite {
    /// Finds the place in a backtrace. If no frame is the program's (a callback that waits for its time), it is the
    /// place where the task was spawned.
    pub(super) fn of(backtrace: &Backtrace, spawned_at: Option<&Location<'_>>) -> WaitSite {
        let folder = std::env::current_dir().unwrap_or_default();
        let place = WaitSite::parse(&backtrace.to_string(), &folder);
        place.unwrap_or_else(|kind| WaitSite {
            function: "a task of dapple's that was spawned there".to_owned(),
            at: spawned_at.map(Location::to_string),
            kind,
        })
    }

    /// Parses a backtrace that names files relative to `folder`. The error has the kind, if only that is known.
    fn parse(text: &str, folder: &Path) -> Result<WaitSite, Option<String>> {
        let mut kind = None;
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let is_frame = |(number, _): &(&str, &str)| number.parse::<u32>().is_ok();
            let Some((_, function)) = line.split_once(": ").filter(is_frame) else { continue };
            let frame = Frame { function, at: lines.peek().and_then(|next| next.strip_prefix("at ")) };
            if let Some(module) = frame.module_of_dapple(folder) {
                if ["dapple::task::cell", "dapple::task::poll", "dapple::task::traced"]
                    .iter()
                    .any(|poll| module.starts_with(poll))
                {
                    break; // the poll of the task: the frames after it are the scheduler's
                }
                kind = Some(module);
            } else if !frame.is_of_the_language() {
                let function = function.replace("::{{closure}}", "");
                return Ok(WaitSite { function, at: frame.at.map(str::to_owned), kind });
            }
        }
        Err(kind)
    }

    /// The module of dapple that the program called.
    pub(super) fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }
}

impl Frame<'_> {
    /// The module of dapple that the frame is in. With little debug information a function has no path, so the
    /// file decides if there is one.
    fn module_of_dapple(&self, folder: &Path) -> Option<String> {
        let Some(at) = self.at else {
            let path = self.function.trim_start_matches('<');
            let path = path.split_once(" as ").map_or(path, |(path, _)| path);
            let path = path.split_once('<').map_or(path, |(path, _)| path);
            return path.starts_with("dapple::").then(|| path.trim_end_matches("::{{closure}}").to_owned());
        };
        let file = PathBuf::from(at.split_once(".rs:").map_or(at, |(file, _)| file));
        let file = folder.join(file.strip_prefix("./").unwrap_or(&file));
        let module = file.strip_prefix(SOURCES).ok()?.to_string_lossy().replace('/', "::");
        Some(format!("dapple::{}", module.trim_end_matches("::mod")))
    }

    /// Whether it is in core, alloc or std, or in `futures-io`, which only forwards polls through a reference.
    fn is_of_the_language(&self) -> bool {
        let path = self.function.trim_start_matches('<');
        let crates = ["core::", "std::", "alloc::", "__rust", "futures_io::", "&mut T as futures_io::"];
        crates.iter().any(|name| path.starts_with(name))
            || self
                .at
                .is_some_and(|at| at.starts_with("/rustc/") || at.contains("/lib/rustlib/src/rust/library/"))
    }
}

impl fmt::Display for WaitSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(f, "{at}, in {}", self.function),
            None => write!(f, "{} (build with debug information to see the line)", self.function),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
   0: std::backtrace_rs::backtrace::libunwind::trace
             at /rustc/59807616/library/std/src/backtrace.rs:100:5
   1: carry_out
             at ./src/task/cancel_points.rs:300:34
   2: poll<alloc::vec::Vec<u8>>
             at ./src/channel/mpsc/receiver.rs:191:9
   3: <core::pin::Pin<P> as core::future::future::Future>::poll
             at /rustc/59807616/library/core/src/future/future.rs:133:9
   4: pool::take_jobs::{{closure}}
             at ./tests/pool.rs:17:30
   5: dapple::task::cell::TaskCell<K,F>::poll_inline
             at ./src/task/cell.rs:200:22
";

    #[test]
    fn the_first_frame_of_the_program_is_the_place() {
        let place = WaitSite::parse(TEXT, Path::new(env!("CARGO_MANIFEST_DIR"))).expect("a frame");
        assert_eq!(place.to_string(), "./tests/pool.rs:17:30, in pool::take_jobs");
        assert_eq!(place.kind(), Some("dapple::channel::mpsc::receiver"));
    }

    #[test]
    fn frames_behind_the_poll_of_the_task_are_not_the_place() {
        let lines = TEXT.lines().filter(|line| !line.contains("pool"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let text =
            text + "   6: corosensei::coroutine::run\n             at /registry/corosensei/src/lib.rs:1:1\n";
        let kind = WaitSite::parse(&text, Path::new(env!("CARGO_MANIFEST_DIR"))).expect_err("no frame");
        assert_eq!(kind.as_deref(), Some("dapple::channel::mpsc::receiver"));
    }

    #[test]
    fn without_debug_information_there_are_functions() {
        let text = "\
   0: std::backtrace::Backtrace::force_capture
   1: dapple::task::cancel_points::CancelPoints::carry_out
   2: <dapple::channel::mpsc::receiver::Recv<T> as core::future::future::Future>::poll
   3: pool::take_jobs::{{closure}}
";
        let place = WaitSite::parse(text, Path::new("/")).expect("a frame");
        assert_eq!(place.to_string(), "pool::take_jobs (build with debug information to see the line)");
        assert_eq!(place.kind(), Some("dapple::channel::mpsc::receiver::Recv"));
    }
}
