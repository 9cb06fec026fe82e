//! `versus-probe`, a small program of its own: built as it is asked for, and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::contest::Failure;

/// Builds it in a folder of this name, with these flags for the compiler, and says where it is.
pub(crate) fn build(folder: &str, flags: &str) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    // Beside the folder that this program is in.
    let above = program.ancestors().nth(2).ok_or("this program is in no folder")?;
    let target = above.join(folder);
    let mut rustflags = std::env::var("RUSTFLAGS").unwrap_or_default();
    rustflags.push(' ');
    rustflags.push_str(flags);
    let built = Command::new("cargo")
        // Without HTTP, which nothing here asks for, and which takes minutes to build.
        .args([
            "build",
            "--profile",
            "dist",
            "--quiet",
            "--package",
            "versus-probe",
            "--no-default-features",
            "--target-dir",
        ])
        .arg(&target)
        .env("RUSTFLAGS", rustflags)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Err("versus-probe cannot be built".to_owned());
    }
    Ok(target.join("dist/versus-probe"))
}

/// Runs the probe for `count` operations, and returns the cost of one that it reports.
pub(crate) fn run(program: &Path, what: &str, count: usize) -> Result<f64, Failure> {
    let failed = |why: String| format!("{} {what} {count}: {why}", program.display());
    let mut command = Command::new(program);
    command.arg(what).arg(count.to_string()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let answer = String::from_utf8_lossy(&output.stdout);
    answer.trim().parse().map_err(|_| failed(format!("{}, {answer:?}", output.status)))
}
