//! The setting of a run: machine, versions, commit, load.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The source of the versions: cargo writes this file before it builds.
const LOCK: &str = include_str!("../Cargo.lock");

/// Whose versions matter.
const PACKAGES: [&str; 18] = [
    "dapple",
    "tokio",
    "smol",
    "async-executor",
    "async-io",
    "async-task",
    "monoio",
    "compio",
    "parking_lot",
    "dashmap",
    "arc-swap",
    "moka",
    "rayon",
    "hyper",
    "axum",
    "actix-web",
    "rustls",
    "mimalloc",
];

/// The setting at the start of a run.
pub(crate) struct Setting {
    cpu: String,
    cpus: usize,
    memory: String,
    kernel: String,
    commit: String,
    /// Seconds since 1970.
    time: u64,
    /// Over one, five and fifteen minutes.
    load: Vec<f64>,
}

impl Setting {
    pub(crate) fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cpus: available_parallelism().map_or(0, usize::from),
            memory: field("/proc/meminfo", "MemTotal"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: commit(),
            time: since_1970.map_or(0, |time| time.as_secs()),
            load: load(),
        }
    }

    /// A line for people.
    pub(crate) fn describe(&self) -> String {
        let versions: Vec<String> =
            PACKAGES.iter().map(|package| format!("{package} {}", version(package))).collect();
        format!(
            "{}\n{} x {}, {}, Linux {}; commit {}; load {:?}",
            versions.join(", "),
            self.cpus,
            self.cpu,
            self.memory,
            self.kernel,
            self.commit,
            self.load,
        )
    }

    pub(crate) fn to_json(&self) -> Value {
        let versions: serde_json::Map<String, Value> =
            PACKAGES.iter().map(|&package| (package.to_owned(), version(package).into())).collect();
        json!({
            "machine": {
                "cpu": self.cpu,
                "cpus": self.cpus,
                "memory": self.memory,
                "kernel": self.kernel,
            },
            "versions": versions,
            "commit": self.commit,
            "time": self.time,
            "load_before": self.load,
            "load_after": load(),
        })
    }
}

/// The version of a package in the lock file: the newest, where others that we depend on have an older one.
fn version(package: &str) -> &'static str {
    let heading = format!("name = \"{package}\"\nversion = \"");
    LOCK.rsplit_once(&heading).and_then(|(_, rest)| rest.split('"').next()).unwrap_or("unknown")
}

/// The commit that the sources are at, and whether they have changed since.
pub(crate) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} (changed)"),
    }
}

fn load() -> Vec<f64> {
    let text = read("/proc/loadavg");
    let numbers = text.split_whitespace().take(3);
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The first value of a key in a file of `key: value` lines.
fn field(path: &str, key: &str) -> String {
    let text = read(path);
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = pairs.filter(|(name, _)| name.trim() == key);
    let value = values.next().map(|(_, value)| value.trim());
    value.unwrap_or("unknown").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_in_the_lock_file() {
        for package in PACKAGES {
            assert_ne!(version(package), "unknown", "{package}");
        }
    }
}
