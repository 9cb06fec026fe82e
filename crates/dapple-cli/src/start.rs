//! From the command line to a server, and to its end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dapple::net::TcpListener;
use dapple::sched::Limit;
use dapple::signal::{Signal, SignalKind, signal};
use dapple_http::files::Files;
use http::{Request, Response};
use tower_service::Service;

use crate::args::{Folder, Format, Metrics, Serve, Server};
use crate::counts::Requests;
use crate::failure::Failure;
use crate::log::{Line, Log};
use crate::metrics::Numbers;
use crate::observe::Observed;
use crate::site::{METRICS, Pages};

/// How long the last lines of the log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Over which requests must have waited for too long before some are refused: so bursts pass.
const LIMIT_INTERVAL: Duration = Duration::from_millis(500);

/// Everything that the program counts, from when it serves on.
static NUMBERS: OnceLock<Numbers> = OnceLock::new();

/// Serves the built-in site.
pub(crate) fn site(server: &Server) -> Result<(), Failure> {
    let hint =
        "the built-in site; `dapple serve DIR` serves a folder, `dapple --help` says what else there is";
    start(server, hint, Pages::site(&NUMBERS), None)
}

/// Serves a folder.
pub(crate) fn folder(serve: &Serve) -> Result<(), Failure> {
    let files = open(&serve.folder, &serve.files)?;
    let shown = serve.folder.canonicalize().unwrap_or_else(|_| serve.folder.clone());
    start(&serve.server, &shown.display().to_string(), files.clone(), Some(files))
}

fn open(folder: &Path, options: &Folder) -> Result<Files, Failure> {
    let mut files = dapple_http::files(folder)
        .map_err(|error| Failure::folder(folder, &error))?
        .listings(options.list)
        .indexes(&options.index)
        .hidden(options.hidden)
        .symlinks(!options.no_symlinks)
        .precompressed(!options.no_precompressed)
        .cache_size(options.cache_size)
        .largest_cached(options.largest_cached)
        .recheck(options.recheck);
    if let Some(file) = &options.not_found {
        files = files.not_found(file);
    }
    if let Some(file) = &options.single_page {
        files = files.single_page(file);
    }
    for (pattern, value) in &options.cache_control {
        files = files.cache_control(pattern, value).map_err(|error| Failure::new(error.to_string()))?;
    }
    Ok(files)
}

fn start<S, B>(options: &Server, what: &str, service: S, files: Option<Files>) -> Result<(), Failure>
where
    S: Service<Request<dapple_http::Body>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Unpin + Send + 'static,
    B: http_body::Body<Data = Bytes, Error = io::Error> + Unpin + Send + 'static,
{
    allow_many_files();
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => {
            Some(dapple_http::Tls::from_files(cert, key).map_err(|error| Failure::new(error.to_string()))?)
        }
        _ => None,
    };
    let builder = dapple::Runtime::builder().thread_name("dapple");
    let builder = match options.workers {
        Some(workers) => builder.workers(workers),
        None => builder,
    };
    let runtime =
        builder.build().map_err(|error| Failure::new(format!("cannot start the workers: {error}")))?;
    let served = runtime.block_on(async {
        let signals = Signals::new().map_err(|error| Failure::new(error.to_string()))?;
        let address = SocketAddr::new(options.address, options.port);
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| Failure::listening(address, "--port", &error))?;
        let shown = listener.local_addr().unwrap_or(address);
        let metrics = serve_metrics(options.metrics).await?;
        let log = match options.log {
            Format::Off => None,
            format => Some(
                Log::start(format).map_err(|error| Failure::new(format!("cannot start the log: {error}")))?,
            ),
        };

        let service = Observed::new(service, Requests::ALL, log);
        let mut serve = dapple_http::serve(listener, service)
            .header_timeout(options.header_timeout)
            .idle_timeout(options.idle_timeout)
            .write_timeout(options.write_timeout)
            .shutdown_deadline(options.drain);
        let limit = options.max_wait.0.map(|wait| Limit::new().delay(wait, LIMIT_INTERVAL));
        serve = match &limit {
            Some(limit) => serve.limit(limit.clone()),
            None => serve.no_limit(),
        };
        let is_tls = tls.is_some();
        if let Some(tls) = tls {
            serve = serve.tls(tls);
        }
        if let Some(count) = options.max_connections {
            serve = serve.max_connections(count);
        }
        if let Some(count) = options.max_connections_per_address {
            serve = serve.max_connections_per_address(count);
        }
        if let Some(log) = log {
            serve = serve.peer_info().on_own_answer(|answer| {
                log.write(&Line::of_own(answer), answer.status.as_u16(), answer.bytes, answer.took);
            });
        }
        let (runtime, server) = (runtime.handle(), serve.stats());
        let workers = runtime.metrics().workers.len();
        let numbers = Numbers { begun: Instant::now(), runtime, server: server.clone(), limit, files, log };
        let _is_first = NUMBERS.set(numbers);
        if !options.quiet {
            banner(what, shown, is_tls, workers, metrics);
        }
        let serve = serve.shutdown_on(signals.told_to_end(options.quiet, server));
        // In a task, so that a worker accepts, and not this thread, which has nothing else to do.
        let served = dapple::spawn(serve.into_future()).await;
        if let Some(log) = log {
            log.close(LAST_LINES);
        }
        served
            .map_err(|error| Failure::new(error.to_string()))?
            .map_err(|error| Failure::new(error.to_string()))
    })?;
    if !options.quiet {
        let (requests, connections) = (served.requests, served.connections);
        eprintln!("served {requests} requests on {connections} connections; {} cut off", served.cut);
    }
    Ok(())
}

/// Serves the page of metrics, and says where.
async fn serve_metrics(metrics: Metrics) -> Result<Option<SocketAddr>, Failure> {
    let Metrics(Some(address)) = metrics else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| Failure::listening(address, "--metrics", &error))?;
    let shown = listener.local_addr().unwrap_or(address);
    let serve = dapple_http::serve(listener, Pages::metrics(&NUMBERS)).max_connections(64);
    dapple::spawn(serve.into_future()).detach();
    Ok(Some(shown))
}

fn banner(what: &str, address: SocketAddr, is_tls: bool, workers: usize, metrics: Option<SocketAddr>) {
    let scheme = if is_tls { "https" } else { "http" };
    let metrics = match metrics {
        Some(metrics) => format!("http://{metrics}{METRICS}"),
        None => "off".into(),
    };
    eprintln!("Dapple {} serves {what}", env!("CARGO_PKG_VERSION"));
    eprintln!("  address   {scheme}://{address}/");
    eprintln!("  workers   {workers}");
    eprintln!("  metrics   {metrics}");
    eprintln!("  to stop   Ctrl-C, or SIGTERM: finishes what was begun; once more ends at once");
}

/// A server needs a file descriptor for each connection, and the system's default is low.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // What cannot be had is done without.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// What tells the program to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one of them. `None` if nobody waits any more.
    async fn next(&mut self) -> Option<SignalKind> {
        let Signals { interrupt, terminate } = self;
        let interrupted = async { interrupt.recv().await.ok().map(|()| SignalKind::interrupt()) };
        let terminated = async { terminate.recv().await.ok().map(|()| SignalKind::terminate()) };
        dapple::race((interrupted, terminated)).await
    }

    /// Ends with the first signal; the second one ends the program.
    async fn told_to_end(mut self, quiet: bool, server: dapple_http::Stats) {
        if self.next().await.is_none() {
            return;
        }
        if !quiet {
            let open = server.snapshot().open;
            eprintln!("finishing what was begun on {open} connections; once more ends at once");
        }
        let cut_short = async move {
            if let Some(kind) = self.next().await {
                std::process::exit(128 + kind.as_raw());
            }
        };
        dapple::spawn(cut_short).detach();
    }
}
