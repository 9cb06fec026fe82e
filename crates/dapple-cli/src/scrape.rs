//! The service of metrics: for which hosts it answers, and in which format.
//!
//! # Invariants
//!
//! * **KNOWN-HOST**: metrics are shown only to requests whose host is `localhost`, an address of this machine that they are
//!   served at, or a name that was given (`--metrics-host`). The port is of this machine, but so is a browser: a web site
//!   whose name is made to lead to 127.0.0.1 (DNS rebinding) could have it read them. Its requests have that site's name.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode, Uri};

use crate::metrics::{self, Numbers};
use crate::page::{Page, PageBody, Pages};

/// Path of the metrics page.
pub(crate) const METRICS: &str = "/_dapple/metrics";

/// Service that answers Prometheus with the metrics page.
#[derive(Clone)]
pub(crate) struct Scrape {
    numbers: &'static OnceLock<Numbers>,
    at: IpAddr,
    names: Arc<[String]>,
}

impl Scrape {
    /// Serves the numbers to requests for the address `at`, `localhost`, or one of `names`. Others get a 421.
    /// KNOWN-HOST
    pub(crate) fn new(numbers: &'static OnceLock<Numbers>, at: SocketAddr, names: &[String]) -> Scrape {
        Scrape { numbers, at: at.ip().to_canonical(), names: names.into() }
    }
}

impl Pages for Scrape {
    fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Response<PageBody> {
        let host = uri.authority().map(|authority| authority.as_str().as_bytes());
        let host = host.or_else(|| headers.get(header::HOST).map(HeaderValue::as_bytes));
        if !is_known(host.unwrap_or_default(), self.at, &self.names) {
            let text = "metrics are shown by the address that they are served at, by localhost, or by a name given with \
                        --metrics-host\n";
            return Page::text(text).answer(StatusCode::MISDIRECTED_REQUEST);
        }
        if method != Method::GET && method != Method::HEAD {
            return Page::not_allowed("GET, HEAD");
        }
        let format = MetricsFormat::of(headers);
        let page = match self.numbers.get() {
            _ if uri.path() != METRICS => Err(StatusCode::NOT_FOUND),
            None => Err(StatusCode::SERVICE_UNAVAILABLE),
            Some(numbers) => metrics::page(numbers).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR),
        };
        let (status, page) = match page {
            Ok(page) => {
                let body = match format {
                    MetricsFormat::OpenMetrics => page,
                    MetricsFormat::Text => text(&page),
                };
                (StatusCode::OK, Page { kind: format.kind(), cache: "no-store", body: body.into() })
            }
            Err(status) => (status, Page::status(status)),
        };
        let mut response = page.answer_to(method, status);
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
        response
    }
}

/// Whether metrics are shown to requests for this host, with or without a port. KNOWN-HOST
fn is_known(host: &[u8], at: IpAddr, names: &[String]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    // An address is no name that could be made to lead here: at all addresses, every one of them will do.
    if let Ok(address) = name.parse::<IpAddr>() {
        let address = address.to_canonical();
        return address.is_loopback() || address == at || at.is_unspecified();
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || names.contains(&name)
}

/// Format of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricsFormat {
    /// Text format of Prometheus, which all its versions read.
    Text,
    OpenMetrics,
}

impl MetricsFormat {
    fn kind(self) -> &'static str {
        match self {
            MetricsFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Chooses the format that the client prefers, by `Accept` (RFC 9110, section 12.5.1). OpenMetrics is chosen only if it is
    /// named.
    fn of(headers: &HeaderMap) -> MetricsFormat {
        let (mut open, mut plain) = (0, None);
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        for item in values.flat_map(|value| value.split(',')) {
            let mut pieces = item.split(';').map(str::trim);
            let kind = pieces.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<_> = pieces.filter_map(|piece| piece.split_once('=')).collect();
            let of = |name: &str| {
                let found = parameters.iter().find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.trim().trim_matches('"'))
            };
            let weight = of("q").map_or(1.0, |weight| weight.parse::<f32>().unwrap_or(0.0));
            let weight = (weight.clamp(0.0, 1.0) * 1000.0) as u16;
            match &*kind {
                // Version 0.0.1 has no counters that end with _total.
                "application/openmetrics-text"
                    if of("version").is_none_or(|version| version.starts_with("1.")) =>
                {
                    open = open.max(weight);
                }
                "text/plain" => plain = plain.max(Some(weight)),
                _ => {}
            }
        }
        if open > 0 && open >= plain.unwrap_or(0) { MetricsFormat::OpenMetrics } else { MetricsFormat::Text }
    }
}

/// Converts a page from OpenMetrics to the text format, where a counter's description has the name of its value, and no
/// line marks the end.
fn text(page: &str) -> String {
    let counters: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(page.len() + 1024);
    for line in page.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what @ ("HELP" | "TYPE")), Some(name), rest) if counters.contains(&name) => {
                text.extend(["# ", what, " ", name, "_total ", rest.unwrap_or_default()]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_known() {
        let names = ["metrics.example.com".to_owned()];
        let at = |at: &str, host: &str| is_known(host.as_bytes(), at.parse().unwrap(), &names);
        for host in
            ["localhost", "LOCALHOST:9090", "127.0.0.1:1", "127.1.2.3", "[::1]:80", "metrics.example.com.:80"]
        {
            assert!(at("127.0.0.1", host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "192.0.2.1",
            "evil.example:80",
            "[",
            "metrics.example",
        ] {
            assert!(!at("127.0.0.1", host), "{host}");
        }
        assert!(at("192.0.2.1", "192.0.2.1:9090") && at("0.0.0.0", "192.0.2.7") && at("::", "[2001:db8::1]"));
        assert!(!at("192.0.2.1", "192.0.2.2") && !at("0.0.0.0", "evil.example"));
    }

    #[test]
    fn the_format_is_negotiated() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;\
                          q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, wanted) in [
            (prometheus, MetricsFormat::OpenMetrics),
            ("application/openmetrics-text", MetricsFormat::OpenMetrics),
            (
                "application/openmetrics-text; version=\"1.0.0\"; q=0.5, text/plain; q=0.9",
                MetricsFormat::Text,
            ),
            ("application/openmetrics-text;q=0", MetricsFormat::Text),
            ("application/openmetrics-text;version=0.0.1", MetricsFormat::Text),
            ("*/*", MetricsFormat::Text),
            ("text/html", MetricsFormat::Text),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(MetricsFormat::of(&headers), wanted, "{accept}");
        }
        assert_eq!(MetricsFormat::of(&HeaderMap::new()), MetricsFormat::Text);
    }

    #[test]
    fn the_text_format_names_counters_as_their_values() {
        let open = "# HELP a_b Some of it.\n# TYPE a_b counter\na_b_total 1\n# HELP a_b_c x\n# TYPE a_b_c gauge\n# UNIT \
                    a_b_c seconds\na_b_c 2\n# EOF\n";
        let wanted = "# HELP a_b_total Some of it.\n# TYPE a_b_total counter\na_b_total 1\n# HELP a_b_c x\n# TYPE a_b_c \
                      gauge\na_b_c 2\n";
        assert_eq!(text(open), wanted);
    }
}
