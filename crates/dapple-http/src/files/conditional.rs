//! Conditional requests: the conditions of a request, in the order of RFC 9110, section 13.2.2.

use std::time::{Duration, SystemTime};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Validators: the tag and the date that identify the bytes of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators<'a> {
    /// The whole `ETag`, with its quotes. Always a strong one.
    pub(super) etag: &'a [u8],
    /// `Last-Modified`, in whole seconds.
    pub(super) modified: SystemTime,
}

/// Result of the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// The answer is sent.
    Send,
    /// The client has it: 304.
    NotModified,
    /// The file is not the one that the client expects: 412.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD.
pub(super) fn weigh(headers: &HeaderMap, now: Validators<'_>) -> Precondition {
    if headers.contains_key(header::IF_MATCH) {
        if !matches(headers, header::IF_MATCH, |tag| tag == now.etag) {
            return Precondition::Failed;
        }
    } else if let Some(since) = date(headers, &header::IF_UNMODIFIED_SINCE)
        && now.modified > since
    {
        return Precondition::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        // Weak comparison (RFC 9110, 13.1.2): a client's copy with a weak tag counts as the same.
        if matches(headers, header::IF_NONE_MATCH, |tag| tag.strip_prefix(b"W/").unwrap_or(tag) == now.etag) {
            return Precondition::NotModified;
        }
    } else if let Some(since) = date(headers, &header::IF_MODIFIED_SINCE)
        && now.modified <= since
    {
        return Precondition::NotModified;
    }
    Precondition::Send
}

/// Whether a `Range` header counts. It does not if an `If-Range` header identifies other bytes.
pub(super) fn range_counts(if_range: Option<&HeaderValue>, now: Validators<'_>, at: SystemTime) -> bool {
    let Some(if_range) = if_range else { return true };
    let value = if_range.as_bytes();
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return value == now.etag;
    }
    // A date identifies bytes only if it is old enough that the file cannot have changed again within the same second.
    let is_strong = at.duration_since(now.modified).is_ok_and(|age| age >= Duration::from_secs(2));
    is_strong && parse_date(if_range).is_some_and(|date| date == now.modified)
}

/// Whether one of the tags in a header matches, or the header is `*`.
fn matches(headers: &HeaderMap, name: HeaderName, fits: impl Fn(&[u8]) -> bool) -> bool {
    headers.get_all(name).iter().any(|value| {
        let value = value.as_bytes();
        value.trim_ascii() == b"*" || Tags(value).any(&fits)
    })
}

/// The tags of a list. A tag may contain commas within its quotes.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let list = &self.0[start..];
        let quote = if list.starts_with(b"W/") { 2 } else { 0 };
        let inside = list.get(quote..)?.strip_prefix(b"\"")?; // anything else is no tag, and ends the list
        let end = quote + 1 + inside.iter().position(|&byte| byte == b'"')? + 1;
        self.0 = &list[end..];
        Some(&list[..end])
    }
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    parse_date(headers.get(name)?)
}

fn parse_date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "Mon, 16 Nov 2026 11:59:59 GMT";
    const THEN: &str = "Mon, 16 Nov 2026 12:00:00 GMT";
    const AFTER: &str = "Mon, 16 Nov 2026 12:00:01 GMT";

    fn validators() -> Validators<'static> {
        Validators { etag: b"\"a,b\"", modified: httpdate::parse_http_date(THEN).unwrap() }
    }

    #[track_caller]
    fn assert_verdict(wanted: Precondition, headers: &[(HeaderName, &str)]) {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect();
        assert_eq!(weigh(&headers, validators()), wanted, "{headers:?}");
    }

    #[test]
    fn each_condition_alone() {
        use header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        let table = [
            (IF_MATCH, "\"a,b\"", Precondition::Send),
            (IF_MATCH, "*", Precondition::Send),
            (IF_MATCH, "\"x\", \"a,b\"", Precondition::Send),
            (IF_MATCH, "W/\"a,b\"", Precondition::Failed),
            (IF_MATCH, "\"x\"", Precondition::Failed),
            (IF_MATCH, "a,b", Precondition::Failed),
            (IF_UNMODIFIED_SINCE, BEFORE, Precondition::Failed),
            (IF_UNMODIFIED_SINCE, THEN, Precondition::Send),
            (IF_UNMODIFIED_SINCE, "yesterday", Precondition::Send),
            (IF_NONE_MATCH, "\"a,b\"", Precondition::NotModified),
            (IF_NONE_MATCH, "*", Precondition::NotModified),
            (IF_NONE_MATCH, "W/\"a,b\"", Precondition::NotModified),
            (IF_NONE_MATCH, "\"x\" ,, W/\"a,b\"", Precondition::NotModified),
            (IF_NONE_MATCH, "\"x\", \"a\"", Precondition::Send),
            (IF_NONE_MATCH, "\"a,b", Precondition::Send),
            (IF_MODIFIED_SINCE, BEFORE, Precondition::Send),
            (IF_MODIFIED_SINCE, THEN, Precondition::NotModified),
            (IF_MODIFIED_SINCE, AFTER, Precondition::NotModified),
            (IF_MODIFIED_SINCE, "", Precondition::Send),
        ];
        for (name, value, wanted) in table {
            assert_verdict(wanted, &[(name, value)]);
        }
    }

    #[test]
    fn tags_count_before_dates_and_failures_before_both() {
        use header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        assert_verdict(Precondition::Send, &[(IF_MATCH, "*"), (IF_UNMODIFIED_SINCE, BEFORE)]);
        assert_verdict(Precondition::Send, &[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, AFTER)]);
        assert_verdict(Precondition::Failed, &[(IF_NONE_MATCH, "*"), (IF_MATCH, "\"x\"")]);
        assert_verdict(Precondition::NotModified, &[(IF_NONE_MATCH, "*"), (IF_MATCH, "*")]);
        assert_verdict(Precondition::NotModified, &[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"a,b\"")]);
        assert_verdict(Precondition::Failed, &[(IF_UNMODIFIED_SINCE, BEFORE), (IF_MODIFIED_SINCE, AFTER)]);
    }

    #[test]
    fn a_range_counts_for_the_same_bytes_only() {
        let counts = |if_range: &'static str, age: u64| {
            let at = validators().modified + Duration::from_secs(age);
            range_counts(Some(&HeaderValue::from_static(if_range)), validators(), at)
        };
        assert!(range_counts(None, validators(), SystemTime::UNIX_EPOCH));
        assert!(counts("\"a,b\"", 0));
        assert!(!counts("W/\"a,b\"", 100));
        assert!(!counts("\"x\"", 100));
        assert!(counts(THEN, 2));
        assert!(!counts(THEN, 1), "it may have changed again within that second");
        assert!(!counts(BEFORE, 100));
        assert!(!counts(AFTER, 100));
        assert!(!counts("yesterday", 100));
    }
}
