//! The access log: a line for each request, written by a thread of its own, so that no request waits for a slow reader.
//!
//! # Invariants
//!
//! * **BOUNDED**: at most [`MOST`] bytes wait to be written. Lines beyond that are dropped, and counted: a reader that is
//!   too slow costs lines, not requests.
//! * **LOG-WRITTEN**: [`AccessLog::close`] returns when every accepted line is written, or writing has failed.
//! * **NO-SECRETS**: the user and password of an address (`http://user:secret@host/`) are in no line.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use dapple_http::OwnAnswer;
use dapple_http::files::FileFailure;
use http::{HeaderMap, Method, Request, Uri, Version, header};

use crate::args::LogFormat;

/// Maximum number of bytes that wait to be written. BOUNDED
const MOST: usize = 4 << 20;

/// Parts of a request that its log line needs, taken before the service gets the request.
pub(crate) struct AccessRecord {
    peer: Option<IpAddr>,
    /// Method, target and version of the request; `None` if its first line was missing or malformed.
    asked: Option<(Method, Uri, Version)>,
    host: Option<String>,
    agent: Option<String>,
    referer: Option<String>,
}

impl AccessRecord {
    pub(crate) fn new<B>(peer: Option<SocketAddr>, request: &Request<B>) -> AccessRecord {
        let asked = (request.method().clone(), request.uri().clone(), request.version());
        AccessRecord::with(peer, Some(asked), Some(request.headers()))
    }

    /// Makes the record of a request that the server has answered itself.
    pub(crate) fn of_own(answer: &OwnAnswer<'_>) -> AccessRecord {
        let asked = match (answer.method, answer.uri, answer.version) {
            (Some(method), Some(uri), Some(version)) => Some((method.clone(), uri.clone(), version)),
            _ => None,
        };
        AccessRecord::with(answer.peer.address, asked, answer.headers)
    }

    fn with(
        peer: Option<SocketAddr>,
        asked: Option<(Method, Uri, Version)>,
        headers: Option<&HeaderMap>,
    ) -> AccessRecord {
        let text = |name| {
            let value = headers.and_then(|headers| headers.get(name))?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        // HTTP/2 has the host in `:authority`, which `http` makes a part of the target. HTTP/1 has it in a header. Lines of
        // both look the same.
        let (asked, authority) = match asked {
            Some((method, uri, version)) if version >= Version::HTTP_2 && uri.scheme().is_some() => {
                let authority = uri.authority().map(|authority| authority.to_string());
                (Some((method, path_of(uri), version)), authority)
            }
            asked => (asked, None),
        };
        AccessRecord {
            peer: peer.map(|peer| peer.ip().to_canonical()),
            asked,
            host: text(header::HOST).or(authority).map(|host| without_user(&host).to_owned()),
            agent: text(header::USER_AGENT),
            referer: text(header::REFERER).map(|referer| without_secrets(&referer)),
        }
    }
}

/// Returns the path and the query of a target, without scheme and authority.
fn path_of(uri: Uri) -> Uri {
    match uri.path_and_query() {
        Some(path) => Uri::from(path.clone()),
        None => Uri::from_static("/"),
    }
}

/// An authority without user and password. NO-SECRETS
fn without_user(authority: &str) -> &str {
    authority.rsplit('@').next().unwrap_or_default()
}

/// An address without user and password. NO-SECRETS
fn without_secrets(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    format!("{scheme}://{}{}", without_user(&rest[..end]), &rest[end..])
}

/// The target of a request as the log shows it: without user and password. NO-SECRETS
fn shown(uri: &Uri) -> String {
    match uri.authority() {
        Some(authority) if uri.scheme().is_none() => without_user(authority.as_str()).to_owned(),
        Some(_) => without_secrets(&uri.to_string()),
        None => uri.to_string(),
    }
}

/// The access log. Requests append lines; a thread writes them.
pub(crate) struct AccessLog {
    format: LogFormat,
    /// Path of the log file; `None` for the standard output.
    path: Option<PathBuf>,
    state: Mutex<LogState>,
    changed: Condvar,
    lost: AtomicU64,
}

#[derive(Default)]
struct LogState {
    /// Lines that are to be written.
    waiting: Vec<u8>,
    /// The thread is writing lines that it has taken.
    is_writing: bool,
    is_closed: bool,
    /// Writing has failed, for example since the reader of a pipe is gone or the disk is full. Lines are dropped from
    /// then on.
    is_broken: bool,
    /// The reopened file, which the thread takes before it writes the next lines.
    next: Option<Output>,
}

type Output = Box<dyn io::Write + Send>;

impl AccessLog {
    /// Starts a log to a file, or to the standard output. It lives as long as the program. Fails if the file cannot be
    /// opened, or no thread can be started.
    pub(crate) fn start(format: LogFormat, path: Option<&Path>) -> io::Result<&'static AccessLog> {
        let output: Output = match path {
            Some(path) => Box::new(open(path)?),
            None => Box::new(io::stdout()),
        };
        let log: &'static AccessLog = Box::leak(Box::new(AccessLog::new(format, path)));
        thread::Builder::new().name("access-log".into()).spawn(|| log.run(output))?;
        Ok(log)
    }

    /// Starts a log of errors to the standard error, for files that cannot be served. Fails if no thread can be started.
    pub(crate) fn errors() -> io::Result<&'static AccessLog> {
        let log: &'static AccessLog = Box::leak(Box::new(AccessLog::new(LogFormat::Off, None)));
        thread::Builder::new().name("error-log".into()).spawn(|| log.run(Box::new(io::stderr())))?;
        Ok(log)
    }

    /// Appends a line about a file or folder that could not be served.
    pub(crate) fn failure(&self, failure: &FileFailure<'_>) {
        let mut text = String::from("error: cannot serve /");
        escape(&mut text, &String::from_utf8_lossy(failure.path));
        let _ = writeln!(text, ": {}; answered with {}", failure.error, failure.status.as_u16());
        self.push(text.as_bytes());
    }

    fn new(format: LogFormat, path: Option<&Path>) -> AccessLog {
        let (state, changed) = (Mutex::default(), Condvar::new());
        AccessLog { format, path: path.map(Into::into), state, changed, lost: AtomicU64::new(0) }
    }

    /// Returns the path of the log file; `None` for the standard output.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Opens the log file again, for log rotation: another program has renamed it. Later lines go to the new file. If it
    /// cannot be opened, returns the error, and the old file stays in use.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = open(path)?;
        let mut state = self.state();
        state.next = Some(Box::new(file));
        state.is_broken = false;
        Ok(())
    }

    /// Returns the number of lines that were dropped. BOUNDED
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the line of an answered request. Drops the line if too many bytes wait to be written. BOUNDED
    pub(crate) fn write(&self, line: &AccessRecord, status: u16, bytes: u64, took: Duration) {
        let mut text = String::with_capacity(256);
        let now = SystemTime::now();
        match self.format {
            LogFormat::Off => return,
            LogFormat::Common => common(&mut text, line, now, status, bytes),
            LogFormat::Json => json(&mut text, line, now, status, bytes, took),
        }
        text.push('\n');
        self.push(text.as_bytes());
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.is_broken || state.waiting.len() + line.len() > MOST {
            self.lost.fetch_add(1, Relaxed); // BOUNDED
            return;
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.extend_from_slice(line);
        if was_empty && !state.is_writing {
            self.changed.notify_all();
        }
    }

    /// Body of the thread: writes lines until the log is closed.
    fn run(&self, mut output: Output) {
        let mut lines = Vec::new();
        let mut state = self.state();
        loop {
            if state.waiting.is_empty() {
                if state.is_closed {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            std::mem::swap(&mut state.waiting, &mut lines);
            state.is_writing = true;
            let next = state.next.take();
            drop(state);
            output = next.unwrap_or(output);
            let written = output.write_all(&lines).and_then(|()| output.flush());
            lines.clear();
            state = self.state();
            state.is_writing = false;
            if let Err(error) = written {
                state.is_broken = true;
                state.waiting.clear();
                let _ = writeln!(io::stderr(), "the access log ends here: {error}");
            }
            self.changed.notify_all();
        }
    }

    /// Closes the log, and waits until its lines are written, for `patience` at most. LOG-WRITTEN
    pub(crate) fn close(&self, patience: Duration) {
        let mut state = self.state();
        state.is_closed = true;
        self.changed.notify_all();
        let is_busy = |state: &mut LogState| state.is_writing || !state.waiting.is_empty();
        // LOG-WRITTEN
        drop(self.changed.wait_timeout_while(state, patience, is_busy));
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// Parts of a date such as `16 Nov 2026 12:00:00`.
struct Moment {
    text: String,
}

impl Moment {
    fn new(time: SystemTime) -> Moment {
        Moment { text: httpdate::fmt_http_date(time) } // "Mon, 16 Nov 2026 12:00:00 GMT"
    }

    fn common(&self) -> String {
        let text = &self.text;
        format!("{}/{}/{}:{} +0000", &text[5..7], &text[8..11], &text[12..16], &text[17..25])
    }

    fn iso(&self, time: SystemTime) -> String {
        const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let text = &self.text;
        let month = MONTHS.find(&text[8..11]).map_or(0, |at| at / 3 + 1);
        let millis = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.subsec_millis());
        format!("{}-{month:02}-{}T{}.{millis:03}Z", &text[12..16], &text[5..7], &text[17..25])
    }
}

fn common(text: &mut String, line: &AccessRecord, now: SystemTime, status: u16, bytes: u64) {
    match line.peer {
        Some(peer) => write!(text, "{peer}"),
        None => write!(text, "-"),
    }
    .expect("a string");
    let _ = write!(text, " - - [{}] \"", Moment::new(now).common());
    match &line.asked {
        Some((method, uri, version)) => {
            let _ = write!(text, "{method} ");
            escape(text, &shown(uri));
            let _ = write!(text, " {version:?}");
        }
        None => text.push('-'),
    }
    let _ = write!(text, "\" {status} {bytes}");
}

fn json(text: &mut String, line: &AccessRecord, now: SystemTime, status: u16, bytes: u64, took: Duration) {
    let _ = write!(text, "{{\"time\":\"{}\"", Moment::new(now).iso(now));
    let mut field = |name: &str, value: &str| {
        let _ = write!(text, ",\"{name}\":\"");
        escape(text, value);
        text.push('"');
    };
    if let Some(peer) = line.peer {
        field("remote", &peer.to_string());
    }
    match &line.asked {
        Some((method, uri, version)) => {
            field("method", method.as_str());
            field("uri", &shown(uri));
            field("protocol", &format!("{version:?}"));
        }
        None => ["method", "uri", "protocol"].into_iter().for_each(|name| field(name, "-")),
    }
    for (name, value) in [("host", &line.host), ("referer", &line.referer), ("user_agent", &line.agent)] {
        if let Some(value) = value {
            field(name, value);
        }
    }
    let _ = write!(text, ",\"status\":{status},\"bytes\":{bytes},\"seconds\":{:.6}}}", took.as_secs_f64());
}

/// Appends a value with quotes, backslashes and control characters escaped as in JSON, so that no request can end a line
/// or a quoted text. Used for both formats.
fn escape(text: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '"' | '\\' => text.extend(['\\', char]),
            char if char.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(char));
            }
            char => text.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> AccessRecord {
        let request = Request::get("/a%22b?q=1").header("host", "h").header("user-agent", "x\"y\\z\tw");
        AccessRecord::new(Some("192.0.2.1:1234".parse().unwrap()), &request.body(()).unwrap())
    }

    fn time() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_794_830_400_123)
    }

    #[test]
    fn the_common_format() {
        let mut text = String::new();
        common(&mut text, &line(), time(), 404, 15);
        assert_eq!(text, "192.0.2.1 - - [16/Nov/2026:12:00:00 +0000] \"GET /a%22b?q=1 HTTP/1.1\" 404 15");
    }

    #[test]
    fn an_object_of_json() {
        let mut text = String::new();
        json(&mut text, &line(), time(), 200, 7, Duration::from_micros(1500));
        let wanted = r#"{"time":"2026-11-16T12:00:00.123Z","remote":"192.0.2.1","method":"GET","uri":"/a%22b?q=1","protocol":"HTTP/1.1","host":"h","user_agent":"x\"y\\z\u0009w","status":200,"bytes":7,"seconds":0.001500}"#;
        assert_eq!(text, wanted);
    }

    #[test]
    fn lines_of_http_2_have_host_and_path_as_those_of_http_1() {
        let lines = |request: http::request::Builder| {
            let line = AccessRecord::new(None, &request.body(()).unwrap());
            let (mut object, mut plain) = (String::new(), String::new());
            json(&mut object, &line, time(), 200, 7, Duration::ZERO);
            common(&mut plain, &line, time(), 200, 7);
            (object, plain)
        };
        let first = lines(Request::get("/a?q=1").header("host", "h:81"));
        let second = lines(Request::get("https://user:secret@h:81/a?q=1").version(Version::HTTP_2));
        assert_eq!(first.0, second.0.replace("HTTP/2.0", "HTTP/1.1"));
        assert_eq!(first.1, second.1.replace("HTTP/2.0", "HTTP/1.1"));
        // HTTP/1 to a proxy: the target is shown as it was sent.
        let proxied = lines(Request::get("http://h/a").header("host", "h"));
        assert!(proxied.1.contains("GET http://h/a HTTP/1.1"), "{}", proxied.1);
    }

    #[test]
    fn what_was_not_understood_is_a_dash() {
        let line = AccessRecord::with(None, None, None);
        let mut text = String::new();
        common(&mut text, &line, time(), 408, 0);
        assert_eq!(text, "- - - [16/Nov/2026:12:00:00 +0000] \"-\" 408 0");
        text.clear();
        json(&mut text, &line, time(), 400, 0, Duration::ZERO);
        let wanted = r#"{"time":"2026-11-16T12:00:00.123Z","method":"-","uri":"-","protocol":"-","status":400,"bytes":0,"seconds":0.000000}"#;
        assert_eq!(text, wanted);
    }

    #[test]
    fn lines_beyond_the_buffer_are_lost_and_counted_without_a_wait() {
        let log = AccessLog::new(LogFormat::Common, None);
        let long = [b'x'; 1 << 10];
        (0..5000).for_each(|_| log.push(&long));
        assert_eq!(log.lost(), 5000 - (MOST >> 10) as u64);
        let (reader, writer) = io::pipe().unwrap();
        let reading = thread::spawn(move || io::read_to_string(reader).unwrap().len());
        log.state().is_closed = true;
        log.run(Box::new(writer));
        assert_eq!(reading.join().unwrap(), MOST);
    }

    #[test]
    fn no_user_and_no_password_is_logged() {
        for (target, wanted) in [
            ("http://user:secret@a/b?c=d@e", "http://a/b?c=d@e"),
            ("http://user@a:81/", "http://a:81/"),
            ("/plain@path", "/plain@path"),
            ("user:secret@a:80", "a:80"),
        ] {
            let request =
                Request::get(target).header("referer", "https://me:secret@b?q").header("host", "x:secret@h");
            let mut text = String::new();
            let line = AccessRecord::new(None, &request.body(()).unwrap());
            json(&mut text, &line, time(), 200, 7, Duration::ZERO);
            common(&mut text, &line, time(), 200, 7);
            assert!(!text.contains("secret") && !text.contains("user@"), "{text}");
            assert_eq!(
                text.matches(&format!("{wanted}\"")).count()
                    + text.matches(&format!("{wanted} HTTP")).count(),
                2
            );
            assert!(text.contains("\"https://b?q\"") && text.contains("\"host\":\"h\""), "{text}");
        }
    }
}
