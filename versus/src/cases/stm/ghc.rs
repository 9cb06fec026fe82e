//! GHC's own transactional memory, in a program of its own: `versus/ghc/Stm.hs`.
//!
//! It is compiled by the first round that needs it, into the folder of the builds, and runs with as many of GHC's
//! capabilities as the others have workers. A reference: without a compiler (`versus/install-rivals` installs it) its columns are
//! empty.

use std::cell::OnceCell;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contest::{CONTENDED, Entry, Failure, Role, Sample};
use crate::sides::WORKERS;

/// GHC's side of a case, which does so many operations.
pub(super) fn entry(case: &'static str, operations: usize) -> Entry {
    let program = OnceCell::new();
    let round = move |quick: bool| -> Result<Sample, Failure> {
        if program.get().is_none() {
            // Only this thread sets it, so `set` cannot fail.
            let _ = program.set(compile()?);
        }
        match program.get().expect("what was just compiled") {
            Some(program) => run(program, case, operations.div_ceil(if quick { 20 } else { 1 })),
            None => Ok(vec![f64::NAN; CONTENDED.len()]),
        }
    };
    Entry { side: "ghc", role: Role::Reference, round: Box::new(move |scale| round(scale.quick)) }
}

/// Compiles the program, unless it is newer than its source. `None`: there is no compiler, which is said.
fn compile() -> Result<Option<PathBuf>, Failure> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("ghc/Stm.hs");
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    // Beside the folder that this program is in.
    let folder = own.ancestors().nth(2).ok_or("this program is in no folder")?.join("ghc");
    let program = folder.join("stm");
    let age = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    if age(&program).is_some_and(|made| Some(made) > age(&source)) {
        return Ok(Some(program));
    }
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut command = Command::new("ghc");
    command.args(["-O2", "-threaded", "-v0"]).arg(format!("-with-rtsopts=-N{WORKERS}"));
    command.arg("-outputdir").arg(&folder).arg("-o").arg(&program).arg(&source);
    match command.status() {
        Ok(status) if status.success() => Ok(Some(program)),
        Ok(status) => Err(format!("ghc {}: {status}", source.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("ghc: not run: there is no `ghc`: sudo versus/install-rivals");
            Ok(None)
        }
        Err(error) => Err(format!("ghc: {error}")),
    }
}

fn run(program: &Path, case: &str, operations: usize) -> Result<Sample, Failure> {
    let output = Command::new(program).arg(case).arg(operations.to_string()).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    sample(&said).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!("{} {case} ({}): {said}{error}", program.display(), output.status)
    })
}

/// Parses the two numbers that the program prints, as [`CONTENDED`] has them. How long its threads were denied a core is not
/// known.
fn sample(said: &str) -> Option<Sample> {
    let mut numbers = said.split_whitespace().map(str::parse::<f64>);
    let (wall, cpu) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    numbers.next().is_none().then(|| vec![wall, cpu, cpu / wall, f64::NAN])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_are_a_sample() {
        let sample = sample("200.5 401\n").unwrap();
        assert_eq!(sample[..3], [200.5, 401.0, 2.0]);
        assert!(sample[3].is_nan());
    }

    #[test]
    fn anything_else_is_none() {
        assert_eq!(sample("money was lost, or made"), None);
        assert_eq!(sample("200.5"), None);
        assert_eq!(sample("1 2 3"), None);
    }
}
