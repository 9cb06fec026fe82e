//! The command line: commands, options and their values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// An HTTP server on Dapple, an async runtime in which every task has a color.
///
/// Without a command it serves a small site of its own, which shows what Dapple is.
#[derive(Parser, Debug)]
#[command(name = "dapple", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum CliCommand {
    /// Serve the files of a folder
    Serve(ServeArgs),
    /// Serve the built-in site: the same as `dapple` without a command
    Site {
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The folder to serve
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,

    #[command(flatten)]
    pub(crate) files: Folder,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Options of `dapple serve` for files.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
pub(crate) struct Folder {
    /// List the files of folders that have no index file
    #[arg(short, long)]
    pub(crate) list: bool,

    /// Name of the index file, which is served for its folder. If given more than once, the first that exists is used
    #[arg(long, value_name = "NAME", default_value = "index.html", value_parser = name)]
    pub(crate) index: Vec<String>,

    /// File to send, with status 404, for paths that do not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) not_found: Option<String>,

    /// Single-page application: file to send, with status 200, for paths that do not exist and have no dot in their name
    #[arg(long, value_name = "FILE")]
    pub(crate) single_page: Option<String>,

    /// Serve hidden files (names that begin with a dot). Without this option .well-known is the only one
    #[arg(long)]
    pub(crate) hidden: bool,

    /// Follow no symbolic links, not even those that stay inside of the folder
    #[arg(long)]
    pub(crate) no_symlinks: bool,

    /// Send no precompressed versions of files (.br, .zst, .gz beside them)
    #[arg(long)]
    pub(crate) no_precompressed: bool,

    /// Memory for cached files; 0 disables the cache
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size, allow_hyphen_values = true)]
    pub(crate) cache_size: u64,

    /// Largest file to cache; larger ones are read from disk for each request
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size, allow_hyphen_values = true)]
    pub(crate) largest_cached: u64,

    /// Time for which a cached file is served before the file system is checked for changes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time, allow_hyphen_values = true)]
    pub(crate) recheck: Duration,

    /// Cache-Control header for matching files: "*.css=public, max-age=60", "/assets/=immutable", "*=no-cache".
    /// If given more than once, the first matching rule is used
    #[arg(long, value_name = "FILES=VALUE", value_parser = rule)]
    pub(crate) cache_control: Vec<(String, String)>,
}

/// Options of the server, for a folder and for the built-in site.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// IP address to listen on; 0.0.0.0 or :: for all addresses of this machine
    #[arg(short, long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = address)]
    pub(crate) address: IpAddr,

    /// Port to listen on; 0 for any free port
    #[arg(short, long, default_value_t = 8080, value_parser = port, allow_hyphen_values = true)]
    pub(crate) port: u16,

    /// Certificate chain (PEM): serves HTTPS. SIGHUP reloads certificate and key
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Number of worker threads; by default one for each processor that this process may use
    #[arg(short, long, value_name = "N", value_parser = workers, allow_hyphen_values = true)]
    pub(crate) workers: Option<usize>,

    /// Maximum number of open connections; further clients wait to be accepted. By default three quarters of the file
    /// descriptors, and at most 65,536
    #[arg(long, value_name = "N", value_parser = some, allow_hyphen_values = true)]
    pub(crate) max_connections: Option<usize>,

    /// Maximum number of open connections per client address; further ones are closed at once
    #[arg(long, value_name = "N", value_parser = some, allow_hyphen_values = true)]
    pub(crate) max_connections_per_address: Option<usize>,

    /// Overload: longest time that requests should wait for a worker. If all requests of half a second (or of this time,
    /// if it is longer) have waited longer, some are refused with 503 until the wait is shorter. "off" refuses none
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = wait, allow_hyphen_values = true)]
    pub(crate) max_wait: MaxWait,

    /// Time limit for receiving the head of a request
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time, allow_hyphen_values = true)]
    pub(crate) header_timeout: Duration,

    /// Time after which an idle connection is closed
    #[arg(long, value_name = "TIME", default_value = "75s", value_parser = some_time, allow_hyphen_values = true)]
    pub(crate) idle_timeout: Duration,

    /// Slow readers: time limit for a client to receive 8 KiB. A client that needs more than half of it for 4 KiB is
    /// disconnected
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time, allow_hyphen_values = true)]
    pub(crate) write_timeout: Duration,

    /// Graceful shutdown: time limit for finishing requests that were begun
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time, allow_hyphen_values = true)]
    pub(crate) drain: Duration,

    /// Access log: write a line for each request to the standard output
    #[arg(long, value_name = "FORMAT", default_value = "off")]
    pub(crate) log: LogFormat,

    /// Append the access log to this file, not to the standard output. SIGHUP reopens the file, for log rotation
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// Prometheus metrics: address and port for /_dapple/metrics, or "off". By default a free port of the loopback
    /// address, which is printed at the start
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = metrics)]
    pub(crate) metrics: MetricsAddress,

    /// Host name by which metrics may be requested, besides the address and localhost. Other names are refused, so that
    /// no web site can read metrics through a browser on this machine
    #[arg(long, value_name = "NAME", value_parser = host)]
    pub(crate) metrics_host: Vec<String>,

    /// Print only errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Format of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// No access log
    Off,
    /// Common Log Format
    Common,
    /// A JSON object on each line
    Json,
}

/// Value of `--max-wait`; `None` for "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxWait(pub(crate) Option<Duration>);

fn wait(text: &str) -> Result<MaxWait, String> {
    if text == "off" {
        return Ok(MaxWait(None));
    }
    match time(text) {
        Ok(Duration::ZERO) => Err("every request waits a little: use 1ms or more, or \"off\"".into()),
        Ok(time) => Ok(MaxWait(Some(time))),
        Err(error) => Err(format!("{error}, or \"off\"")),
    }
}

/// Value of `--metrics`; `None` for "off".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress(pub(crate) Option<SocketAddr>);

fn metrics(text: &str) -> Result<MetricsAddress, String> {
    if text == "off" {
        return Ok(MetricsAddress(None));
    }
    let address = text.parse().map_err(|_| "use an address and a port, as 127.0.0.1:9090, or \"off\"")?;
    Ok(MetricsAddress(Some(address)))
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| match text.parse::<SocketAddr>() {
        Ok(both) => {
            format!("the port has an option of its own: use --address {} --port {}", both.ip(), both.port())
        }
        Err(_) if text == "localhost" => "use an IP address: 127.0.0.1 is that of localhost".into(),
        Err(_) => "use an IP address, as 127.0.0.1, or 0.0.0.0 for all addresses of this machine".into(),
    })
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "use a number from 1 to 65535, or 0 for any free port".into())
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "use a number, as 4".into())
}

fn workers(text: &str) -> Result<usize, String> {
    match number(text) {
        Ok(0) => Err("a server needs a worker: use 1 or more, or leave the option out".into()),
        number => number,
    }
}

/// Parses a number that is not 0.
fn some(text: &str) -> Result<usize, String> {
    match number(text) {
        Ok(0) => Err("this would refuse every client: use 1 or more, or leave the option out".into()),
        number => number,
    }
}

/// Parses the name of a file, without slashes.
fn name(text: &str) -> Result<String, String> {
    match text {
        "" | "." | ".." => Err("use the name of a file, as index.html".into()),
        text if text.contains('/') => {
            Err("an index is looked for in each folder: use a name without slashes, as index.html".into())
        }
        text => Ok(text.into()),
    }
}

/// Parses a host name, into lower case and without a final dot.
fn host(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match !text.is_empty() && text.bytes().all(is_name) {
        true => Ok(text.trim_end_matches('.').to_ascii_lowercase()),
        false => Err("use a name without scheme, port and path, as metrics.example.com".into()),
    }
}

/// Parses a number of bytes, with or without a unit: 4096, 64M, 1GiB.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("use a number of bytes, or one with K, M, G or T, as 64M".into()),
    };
    let number: u64 =
        digits.parse().map_err(|_| "use a number of bytes, or one with K, M, G or T, as 64M")?;
    number.checked_mul(1 << shift).ok_or_else(|| "the number is too large: use fewer bytes, as 64M".into())
}

/// Parses a time with its unit: 500ms, 30s, 5m, 1h.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || {
        let has_no_unit = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let unit = if has_no_unit { "the unit is missing: " } else { "" };
        format!("{unit}use a number with ms, s, m or h, as 500ms or 30s")
    };
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let millis = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(millis)
        .map(Duration::from_millis)
        .ok_or_else(|| "the time is too long: use at most some years, as 8760h".into())
}

/// Parses a time that is not zero.
fn some_time(text: &str) -> Result<Duration, String> {
    match time(text) {
        Ok(Duration::ZERO) => {
            Err("this would cut off every client: use 1ms or more, or a long time, as 24h, for no limit"
                .into())
        }
        Err(error) if text == "0" => Err(format!("this would cut off every client; {error}")),
        time => time,
    }
}

fn rule(text: &str) -> Result<(String, String), String> {
    let (files, value) = text.split_once('=').ok_or("use files and a value, as \"*.css=max-age=60\"")?;
    Ok((files.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_makes_sense() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes_have_units() {
        let table =
            [("0", 0), ("10", 10), ("64M", 64 << 20), ("1KiB", 1024), ("2gb", 2 << 30), ("1T", 1 << 40)];
        for (text, wanted) in table {
            assert_eq!(size(text), Ok(wanted), "{text}");
        }
        for text in ["", "M", "-1", "1X", "1.5M", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, wanted) in [("0s", 0), ("250ms", 250), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(wanted)), "{text}");
        }
        for text in ["", "5", "s", "1d", "-1s", "99999999999999999999h", "9999999999999999h"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
