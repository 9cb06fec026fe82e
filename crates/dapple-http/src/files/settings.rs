//! How a folder is served.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

/// Settings of a service; see the methods of [`FileService`](super::FileService).
#[derive(Clone)]
pub(super) struct FileSettings {
    pub(super) cache_size: u64,
    pub(super) largest_cached: u64,
    pub(super) open_files: usize,
    /// A large file that was not requested for this time is closed.
    pub(super) unused: Duration,
    pub(super) recheck: Duration,
    pub(super) indexes: Vec<Box<str>>,
    pub(super) listings: bool,
    pub(super) hidden: bool,
    pub(super) symlinks: bool,
    pub(super) precompressed: bool,
    pub(super) cache_rules: Vec<Rule>,
    /// The page with status 404 for paths that do not exist.
    pub(super) not_found: Option<Box<[u8]>>,
    /// The page with status 200 for paths that do not exist and have no dot in their last part.
    pub(super) single_page: Option<Box<[u8]>>,
    /// The page with status 404 for a folder that has no index and is not listed.
    pub(super) no_index: Option<Bytes>,
    pub(super) observer: Option<FailureObserver>,
}

/// A closure that is called with each file or folder that could not be served.
pub(super) type FailureObserver = Arc<dyn Fn(&FileFailure<'_>) + Send + Sync>;

/// File or folder that exists and could not be served. [`FileService::on_failure`](super::FileService::on_failure) reports it.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let files = dapple_http::files("/proc/self")?.on_failure(|failure| {
///     eprintln!("{}: {}", String::from_utf8_lossy(failure.path), failure.error);
/// });
/// # drop(files);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FileFailure<'a> {
    /// Path of the file or folder, relative to the root and decoded. It may have any bytes but zero.
    pub path: &'a [u8],
    /// Error of the system.
    pub error: &'a io::Error,
    /// Status of the response: 403, 500 or 503.
    pub status: StatusCode,
}

impl Default for FileSettings {
    fn default() -> FileSettings {
        FileSettings {
            cache_size: 64 << 20,
            largest_cached: 1 << 20,
            open_files: 256,
            unused: Duration::from_secs(60),
            recheck: Duration::from_secs(1),
            indexes: vec!["index.html".into()],
            listings: false,
            hidden: false,
            symlinks: true,
            precompressed: true,
            cache_rules: Vec::new(),
            not_found: None,
            single_page: None,
            no_index: None,
            observer: None,
        }
    }
}

impl FileSettings {
    /// The file that is sent in place of a missing one, and its status.
    pub(super) fn instead_of(&self, name: &[u8]) -> Option<(&[u8], StatusCode)> {
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let single_page = self.single_page.as_deref().filter(|_| !last.contains(&b'.'));
        let not_found = self.not_found.as_deref().map(|page| (page, StatusCode::NOT_FOUND));
        single_page.map(|page| (page, StatusCode::OK)).or(not_found)
    }

    /// The `Cache-Control` of a file, by the first matching rule.
    pub(super) fn cache_control(&self, name: &[u8]) -> Option<HeaderValue> {
        self.cache_rules.iter().find(|rule| rule.files.fits(name)).map(|rule| rule.value.clone())
    }
}

/// A rule for `Cache-Control`.
#[derive(Clone)]
pub(super) struct Rule {
    files: Pattern,
    value: HeaderValue,
}

impl Rule {
    pub(super) fn parse(pattern: &str, value: &str) -> Result<Rule, InvalidRule> {
        let invalid = |what| InvalidRule { what, pattern: pattern.into(), value: value.into() };
        let files = Pattern::parse(pattern).ok_or_else(|| invalid("the pattern"))?;
        let value = HeaderValue::from_str(value).map_err(|_| invalid("the value"))?;
        Ok(Rule { files, value })
    }
}

/// Error of [`FileService::cache_control`](super::FileService::cache_control): the pattern is of no known form, or the value
/// cannot be one of a header. `Display` names both.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let files = dapple_http::files("/proc/self")?;
/// let error = files.cache_control("a?b", "no-store").unwrap_err(); // only "*", "*.css", "/folder/" and "/file"
/// assert!(error.to_string().contains("a?b"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRule {
    what: &'static str,
    pattern: String,
    value: String,
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidRule { what, pattern, value } = self;
        let hint = match *what {
            "the pattern" => "use \"*\", \"*.css\", \"/folder/\" or \"/file\"",
            _ => "use visible characters of ASCII only, as in \"public, max-age=60\"",
        };
        write!(f, "{what} of the rule \"{pattern}\" = \"{}\" is invalid: {hint}", value.escape_debug())
    }
}

impl Error for InvalidRule {}

/// The files that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    All,
    /// Files whose name has this ending.
    Ends(Box<[u8]>),
    /// Files in this folder, and in the folders in it.
    In(Box<[u8]>),
    One(Box<[u8]>),
}

impl Pattern {
    fn parse(text: &str) -> Option<Pattern> {
        match text {
            "*" => Some(Pattern::All),
            text if text.starts_with('*') && !text[1..].contains(['*', '/']) => {
                Some(Pattern::Ends(text.as_bytes()[1..].into()))
            }
            text if text.contains('*') => None,
            "/" => Some(Pattern::All),
            text if text.starts_with('/') && text.ends_with('/') => {
                Some(Pattern::In(text.as_bytes()[1..].into()))
            }
            text if text.starts_with('/') => Some(Pattern::One(text.as_bytes()[1..].into())),
            _ => None,
        }
    }

    fn fits(&self, name: &[u8]) -> bool {
        match self {
            Pattern::All => true,
            Pattern::Ends(end) => name.ends_with(end),
            Pattern::In(folder) => name.starts_with(folder),
            Pattern::One(one) => name == &**one,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_what_they_fit() {
        let table = [
            ("*", "a/b.css", true),
            ("/", "a/b.css", true),
            ("*.css", "a/b.css", true),
            ("*.css", "a/b.css.map", false),
            ("/a/", "a/b.css", true),
            ("/a/", "ab.css", false),
            ("/a/b.css", "a/b.css", true),
            ("/b.css", "a/b.css", false),
        ];
        for (pattern, name, wanted) in table {
            assert_eq!(Pattern::parse(pattern).unwrap().fits(name.as_bytes()), wanted, "{pattern} {name}");
        }
        for malformed in ["", "a", "a*", "/a*", "**", "*/a", "a/"] {
            assert_eq!(Pattern::parse(malformed), None, "{malformed}");
        }
    }
}
