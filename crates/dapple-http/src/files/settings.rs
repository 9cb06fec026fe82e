//! How a folder is served.

use std::time::Duration;

use http::HeaderValue;

/// What can be set; see the methods of [`Files`](super::Files).
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) cache_size: u64,
    pub(super) largest_cached: u64,
    pub(super) open_files: usize,
    pub(super) recheck: Duration,
    pub(super) indexes: Vec<Box<str>>,
    pub(super) listings: bool,
    pub(super) hidden: bool,
    pub(super) symlinks: bool,
    pub(super) precompressed: bool,
    pub(super) cache_rules: Vec<(Pattern, HeaderValue)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cache_size: 64 << 20,
            largest_cached: 1 << 20,
            open_files: 256,
            recheck: Duration::from_secs(1),
            indexes: vec!["index.html".into()],
            listings: false,
            hidden: false,
            symlinks: true,
            precompressed: true,
            cache_rules: Vec::new(),
        }
    }
}

impl Settings {
    /// The `Cache-Control` of a file: by the first rule that fits.
    pub(super) fn cache_control(&self, name: &[u8]) -> Option<HeaderValue> {
        self.cache_rules.iter().find(|(pattern, _)| pattern.fits(name)).map(|(_, value)| value.clone())
    }
}

/// Which files a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    All,
    /// Those whose name ends so.
    Ends(Box<[u8]>),
    /// Those in a folder, and in the folders there.
    In(Box<[u8]>),
    One(Box<[u8]>),
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Option<Pattern> {
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
