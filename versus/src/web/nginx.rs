//! nginx, started as the server of a case: its configuration is `versus/nginx.conf`.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::child;
use crate::contest::Failure;
use crate::sides::net::ANY;

const CONFIGURATION: &str = include_str!("../../nginx.conf");

/// The name of the side.
pub(crate) const NAME: &str = "nginx";

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The certificate of a TLS server and its key.
pub(crate) struct Tls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Serves a folder until its parent closes the pipe. nginx's own files are put into `work`, which the caller removes.
pub(crate) fn serve(work: &Path, root: &Path, workers: usize, tls: Option<&Tls>) -> Result<(), Failure> {
    let address = free_address()?;
    let file = work.join("nginx.conf");
    let text = configuration(work, address, root, workers, tls);
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut nginx = start(&file)?;
    wait_for(&mut nginx, address)?;
    let master = nginx.id();
    child::say(address);
    while child::told() {
        child::say(cpu_time(master).as_nanos());
    }
    // The workers of nginx end with it. Only its parent, this process, can wait for it.
    let _ = kill_process(Pid::from_child(&nginx), Signal::TERM);
    nginx.wait().map_err(|error| format!("nginx: {error}"))?;
    Ok(())
}

/// A free address: nginx does not report which port it has chosen.
fn free_address() -> Result<SocketAddr, Failure> {
    let address = TcpListener::bind(ANY).and_then(|listener| listener.local_addr());
    address.map_err(|error| format!("no port is free: {error}"))
}

fn configuration(work: &Path, address: SocketAddr, root: &Path, workers: usize, tls: Option<&Tls>) -> String {
    let (listen, keys) = match tls {
        None => ("", String::new()),
        Some(Tls { certificate, key }) => {
            let (certificate, key) = (certificate.display(), key.display());
            (
                "ssl",
                format!("ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;"),
            )
        }
    };
    let fills = [
        ("@WORKERS@", workers.to_string()),
        ("@WORK@", work.display().to_string()),
        ("@ADDRESS@", address.to_string()),
        ("@LISTEN@", listen.to_owned()),
        ("@ROOT@", root.display().to_string()),
        ("@TLS@", keys),
    ];
    fills.iter().fold(CONFIGURATION.to_owned(), |text, (place, value)| text.replace(place, value))
}

/// Starts it, so that it ends with this process, however that ends.
fn start(configuration: &Path) -> Result<Child, Failure> {
    let mut command = Command::new("setpriv");
    // Debian has it where only root looks.
    let path = format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default());
    command.env("PATH", &path).args(["--pdeathsig", "TERM", "nginx", "-c"]).arg(configuration);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if !path.split(':').any(|folder| Path::new(folder).join("nginx").exists()) {
        return Err("this case needs nginx, which is not there: versus/install-rivals installs it".to_owned());
    }
    command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            "nginx is started by setpriv, which is not there: it is in util-linux".to_owned()
        }
        _ => format!("nginx: {error}"),
    })
}

/// Waits until it listens.
fn wait_for(nginx: &mut Child, address: SocketAddr) -> Result<(), Failure> {
    let begin = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Ok(Some(status)) = nginx.try_wait() {
            return Err(format!("nginx did not start: {status}"));
        }
        if begin.elapsed() > PATIENCE {
            return Err("nginx did not start: it does not listen".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The CPU time of the master and its workers.
fn cpu_time(master: u32) -> Duration {
    let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
    let workers = children.split_whitespace().filter_map(|text| text.parse().ok());
    Duration::from_nanos(workers.chain([master]).map(nanos).sum())
}

/// Of one process that has a single thread.
fn nanos(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_filled_in() {
        let [certificate, key] = ["c.pem", "k.pem"].map(PathBuf::from);
        let address = "127.0.0.1:8080".parse().unwrap();
        let tls = Tls { certificate, key };
        let text = configuration(Path::new("/work"), address, Path::new("/srv"), 2, Some(&tls));
        let directives = text.lines().filter(|line| !line.starts_with('#'));
        assert!(directives.clone().all(|line| !line.contains('@')), "{text}");
        assert!(
            directives.clone().any(|line| line.trim() == "listen 127.0.0.1:8080 reuseport ssl;"),
            "{text}"
        );
    }
}
