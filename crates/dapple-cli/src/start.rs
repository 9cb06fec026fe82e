//! Starts a server by the command line, and runs it until its end.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dapple::channel::oneshot;
use dapple::limit::Limit;
use dapple::net::TcpListener;
use dapple::signal::{Signal, SignalKind, signal};
use dapple_http::files::FileService;
use http::{Request, Response};
use tower_service::Service;

use crate::args::{Folder, LogFormat, MetricsAddress, ServeArgs, ServerArgs};
use crate::counts::Requests;
use crate::failure::StartFailure;
use crate::log::{AccessLog, AccessRecord};
use crate::metrics::Numbers;
use crate::observe::ObservedService;
use crate::page::{PageService, not_found};
use crate::reload::Reload;
use crate::scrape::{METRICS, Scrape};
use crate::site::Site;

/// Time limit for writing the last lines of the log.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Time over which requests must have waited too long before some are refused, so that bursts pass. If `--max-wait` is
/// longer, that time counts.
const LIMIT_INTERVAL: Duration = Duration::from_millis(500);

/// Sources of the metrics; set when the server starts.
static NUMBERS: OnceLock<Numbers> = OnceLock::new();

/// Serves the built-in site, until a signal ends it.
pub(crate) fn site(server: &ServerArgs) -> Result<(), StartFailure> {
    let hint = "the built-in site; `dapple serve DIR` serves a folder, `dapple --help` lists all options";
    start(server, hint, None, PageService(Site { numbers: &NUMBERS }), None)
}

/// Serves a folder, until a signal ends it.
pub(crate) fn folder(serve: &ServeArgs) -> Result<(), StartFailure> {
    let errors = AccessLog::errors().map_err(|error| StartFailure::log(None, &error))?;
    let files = open(&serve.folder, &serve.files)?.on_failure(|failure| errors.failure(failure));
    let shown = serve.folder.canonicalize().unwrap_or_else(|_| serve.folder.clone());
    let note = note(&serve.folder, &serve.files);
    let ended =
        start(&serve.server, &shown.display().to_string(), note.as_deref(), files.clone(), Some(files));
    errors.close(LAST_LINES);
    ended
}

/// Note in the banner for a folder without an index: `/` would be answered with 404.
fn note(folder: &Path, options: &Folder) -> Option<String> {
    let has_index = options.index.iter().any(|index| folder.join(index).is_file());
    let is_shown = options.list || options.single_page.is_some() || has_index;
    let names = options.index.join(" or ");
    (!is_shown)
        .then(|| format!("there is no {names} in the folder: / is answered with 404. --list lists folders"))
}

/// Returns the page for a folder without an index, when listings are off.
fn no_index(indexes: &[String]) -> String {
    let names =
        indexes.iter().map(|name| name.replace('&', "&amp;").replace('<', "&lt;")).collect::<Vec<_>>();
    let index = names.join(" or ");
    let text = format!(
        "<p>This folder has no {index}, and listings are off.</p>\n<p>Put an {index} into it, or start the server with \
         <code>--list</code>: <code>dapple serve DIR --list</code></p>"
    );
    not_found("<title>No index</title>", &text)
}

fn open(folder: &Path, options: &Folder) -> Result<FileService, StartFailure> {
    let mut files = dapple_http::files(folder)
        .map_err(|error| StartFailure::folder(folder, &error))?
        .listings(options.list)
        .indexes(&options.index)
        .hidden(options.hidden)
        .symlinks(!options.no_symlinks)
        .precompressed(!options.no_precompressed)
        .cache_size(options.cache_size)
        .largest_cached(options.largest_cached)
        .recheck(options.recheck);
    files = files.no_index_page(no_index(&options.index));
    for (option, file) in [("--not-found", &options.not_found), ("--single-page", &options.single_page)] {
        let missing = file.as_ref().and_then(|file| StartFailure::missing_file(folder, option, file));
        missing.map_or(Ok(()), Err)?;
    }
    if let Some(file) = &options.not_found {
        files = files.not_found(file);
    }
    if let Some(file) = &options.single_page {
        files = files.single_page(file);
    }
    for (pattern, value) in &options.cache_control {
        files = files.cache_control(pattern, value).map_err(|error| StartFailure::new(error.to_string()))?;
    }
    Ok(files)
}

fn start<S, B>(
    options: &ServerArgs,
    what: &str,
    note: Option<&str>,
    service: S,
    files: Option<FileService>,
) -> Result<(), StartFailure>
where
    S: Service<Request<dapple_http::Body>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Unpin + Send + 'static,
    B: http_body::Body<Data = Bytes, Error = io::Error> + Unpin + Send + 'static,
{
    allow_many_files();
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => {
            let tls = dapple_http::Tls::from_files(cert, key);
            Some((tls.map_err(|error| StartFailure::new(error.to_string()))?, cert.clone(), key.clone()))
        }
        _ => None,
    };
    if options.log_file.is_some() && options.log == LogFormat::Off {
        return Err(StartFailure::new(
            "--log-file needs a format for its lines: add --log common or --log json",
        ));
    }
    let builder = dapple::Runtime::builder().thread_name("dapple");
    let builder = match options.workers {
        Some(workers) => builder.workers(workers),
        None => builder,
    };
    let runtime =
        builder.build().map_err(|error| StartFailure::new(format!("cannot start the workers: {error}")))?;
    let served = runtime.block_on(async {
        let signals = Signals::new().map_err(|error| StartFailure::new(error.to_string()))?;
        let address = SocketAddr::new(options.address, options.port);
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| StartFailure::listening(address, "--port", &error))?;
        let shown = listener.local_addr().unwrap_or(address);
        let metrics = serve_metrics(options.metrics, &options.metrics_host).await?;
        let log = match options.log {
            LogFormat::Off => None,
            format => {
                let started = AccessLog::start(format, options.log_file.as_deref());
                Some(started.map_err(|error| StartFailure::log(options.log_file.as_deref(), &error))?)
            }
        };

        let service = ObservedService::new(service, Requests::ALL, log);
        let mut serve = dapple_http::serve(listener, service)
            .header_timeout(options.header_timeout)
            .idle_timeout(options.idle_timeout)
            .write_timeout(options.write_timeout)
            .shutdown_deadline(options.drain);
        let limit = options.max_wait.0.map(|wait| Limit::new().delay(wait, LIMIT_INTERVAL.max(wait)));
        serve = match &limit {
            Some(limit) => serve.limit(limit.clone()),
            None => serve.no_limit(),
        };
        let is_tls = tls.is_some();
        if let Some((tls, ..)) = &tls {
            serve = serve.tls(tls.clone());
        }
        if let Some(count) = options.max_connections {
            serve = serve.max_connections(count);
        }
        if let Some(count) = options.max_connections_per_address {
            serve = serve.max_connections_per_address(count);
        }
        if let Some(log) = log {
            serve = serve.peer_info().on_own_answer(|answer| {
                log.write(&AccessRecord::of_own(answer), answer.status.as_u16(), answer.bytes, answer.took);
            });
        }
        let (runtime, server) = (runtime.handle(), serve.stats());
        let workers = runtime.metrics().workers.len();
        let numbers = Numbers { begun: Instant::now(), runtime, server: server.clone(), limit, files, log };
        let _is_first = NUMBERS.set(numbers);
        if !options.quiet {
            banner(what, note, shown, is_tls, workers, metrics);
        }
        let reload = Reload::new(tls, log, options.quiet);
        let serve = serve.shutdown_on(signals.told_to_end(reload, options.quiet, server));
        // In a task, so that a worker accepts, and not this thread, which has nothing else to do.
        let served = dapple::spawn(serve.into_future()).await;
        if let Some(log) = log {
            log.close(LAST_LINES);
        }
        served
            .map_err(|error| StartFailure::new(error.to_string()))?
            .map_err(|error| StartFailure::new(error.to_string()))
    })?;
    if !options.quiet {
        let (requests, connections) = (served.requests, served.connections);
        let cut = served.cut;
        // Not `eprintln!`, which panics if the terminal is gone.
        let _ = writeln!(
            io::stderr(),
            "served {requests} requests on {connections} connections; {cut} connections cut off"
        );
    }
    Ok(())
}

/// Starts the server for metrics, and returns its address. Fails if the address cannot be listened on.
async fn serve_metrics(
    metrics: MetricsAddress,
    names: &[String],
) -> Result<Option<SocketAddr>, StartFailure> {
    let MetricsAddress(Some(address)) = metrics else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| StartFailure::listening(address, "--metrics", &error))?;
    let shown = listener.local_addr().unwrap_or(address);
    let scrape = PageService(Scrape::new(&NUMBERS, shown, names));
    let serve = dapple_http::serve(listener, scrape).max_connections(64);
    dapple::spawn(serve.into_future()).detach();
    Ok(Some(shown))
}

fn banner(
    what: &str,
    note: Option<&str>,
    address: SocketAddr,
    is_tls: bool,
    workers: usize,
    metrics: Option<SocketAddr>,
) {
    let scheme = if is_tls { "https" } else { "http" };
    let metrics = match metrics {
        Some(metrics) => format!("http://{metrics}{METRICS}"),
        None => "off".into(),
    };
    let mut lines = vec![
        format!("Dapple {} serves {what}", env!("CARGO_PKG_VERSION")),
        format!("  address   {scheme}://{address}/"),
        format!("  workers   {workers}"),
        format!("  metrics   {metrics}"),
        "  to stop   Ctrl-C or SIGTERM: finishes open requests; a second signal ends at once".to_owned(),
    ];
    if let Some(note) = note {
        lines.insert(2, format!("  note      {note}"));
    }
    // Not `eprintln!`, which panics if the standard error is closed.
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}

/// Raises the limit of open files as far as the process may: each connection needs a file descriptor, and the default is
/// low.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If the limit cannot be raised, the server runs with the present one.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Listeners for the signals that end the program (SIGINT, SIGTERM) or reload its files (SIGHUP).
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns at the first SIGINT or SIGTERM. A second one ends the process at once. SIGHUP is handled all the time, also
    /// during the shutdown.
    async fn told_to_end(self, reload: Reload, quiet: bool, server: dapple_http::StatsReader) {
        let Signals { mut interrupt, mut terminate, hangup } = self;
        let (tell, told) = oneshot::channel::<()>();
        let reloading = async move {
            reload.on(hangup).await;
            drop(tell);
        };
        dapple::spawn(reloading).detach();
        let gone = async { told.await.map_or((), drop) };
        let first = async { next(&mut interrupt, &mut terminate).await.map_or((), drop) };
        dapple::race((first, gone)).await;
        if !quiet {
            let open = server.snapshot().open;
            let plural = if open == 1 { "" } else { "s" };
            let _ = writeln!(
                io::stderr(),
                "finishing the requests of {open} connection{plural}; a second signal ends at once"
            );
        }
        let cut_short = async move {
            if let Some(kind) = next(&mut interrupt, &mut terminate).await {
                std::process::exit(128 + kind.as_raw());
            }
        };
        dapple::spawn(cut_short).detach();
    }
}

/// Waits for one of two signals. `None` if the wait was cancelled.
async fn next(interrupt: &mut Signal, terminate: &mut Signal) -> Option<SignalKind> {
    let interrupted = async { interrupt.recv().await.ok().map(|()| SignalKind::interrupt()) };
    let terminated = async { terminate.recv().await.ok().map(|()| SignalKind::terminate()) };
    dapple::race((interrupted, terminated)).await
}
