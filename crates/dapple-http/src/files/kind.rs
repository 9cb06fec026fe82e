//! Content types: the `Content-Type` of a file, by its name.

use http::HeaderValue;

/// The types of most answers as static values: they are not reference-counted, so copying them is cheaper.
const COMMON: [&str; 4] = [
    "text/html; charset=utf-8",
    "text/css; charset=utf-8",
    "text/javascript; charset=utf-8",
    "text/plain; charset=utf-8",
];

/// The type by the name alone.
fn kind(name: &[u8]) -> Option<&'static str> {
    let name = String::from_utf8_lossy(name.rsplit(|&byte| byte == b'/').next().unwrap_or_default());
    let kind = mime_guess::from_path(&*name).first_raw()?;
    // RFC 9239 has one name for scripts.
    Some(if kind == "application/javascript" { "text/javascript" } else { kind })
}

/// Whether a file of this name has a charset.
pub(super) fn is_text(name: &[u8]) -> bool {
    kind(name).is_some_and(|kind| kind.starts_with("text/"))
}

/// The type of a file. `is_utf8`: all of its bytes were read, and are UTF-8.
pub(super) fn content_type(name: &[u8], is_utf8: bool) -> HeaderValue {
    let Some(kind) = kind(name) else {
        return HeaderValue::from_static("application/octet-stream");
    };
    if !kind.starts_with("text/") || !is_utf8 {
        return HeaderValue::from_static(kind);
    }
    let common = COMMON.iter().find(|common| common.split(';').next() == Some(kind));
    match common {
        Some(common) => HeaderValue::from_static(common),
        None => HeaderValue::try_from(format!("{kind}; charset=utf-8"))
            .unwrap_or_else(|_| HeaderValue::from_static(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_name() {
        let table = [
            ("a/index.html", "text/html; charset=utf-8"),
            ("style.css", "text/css; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("README.md", "text/markdown; charset=utf-8"),
            ("a.b/notes.TXT", "text/plain; charset=utf-8"),
            ("data.json", "application/json"),
            ("logo.svg", "image/svg+xml"),
            ("photo.jpeg", "image/jpeg"),
            ("code.wasm", "application/wasm"),
            ("font.woff2", "font/woff2"),
            ("unknown.abcdefg", "application/octet-stream"),
            ("Makefile", "application/octet-stream"),
            ("a.html/none", "application/octet-stream"),
        ];
        for (name, wanted) in table {
            assert_eq!(content_type(name.as_bytes(), true), wanted, "{name}");
        }
        assert_eq!(content_type(b"old.html", false), "text/html");
        assert_eq!(content_type(b"\xff.html", true), "text/html; charset=utf-8");
    }
}
