//! The page that lists a folder.

use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::answer;
use super::body::Body;
use super::path;

/// More than this nobody reads, and it would take long.
const MOST: usize = 10_000;

struct Entry {
    name: Vec<u8>,
    is_folder: bool,
    size: u64,
    modified: i64,
}

/// Lists a folder, which is called `path` from the root on.
pub(super) async fn list(folder: Arc<OwnedFd>, path: &[u8], hidden: bool) -> Response<Body> {
    let path = String::from_utf8_lossy(path).into_owned();
    let listed = dapple::blocking(move || {
        let (entries, is_whole) = read(&folder, hidden)?;
        Ok::<_, io::Error>(page(&path, &entries, is_whole))
    });
    let Ok(Ok(page)) = listed.await else { return answer::plain(StatusCode::INTERNAL_SERVER_ERROR) };
    let mut response = Response::new(Body::of(page.into()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Names are escaped; should one get through all the same, it can do nothing.
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// What is in a folder: folders first, by name. And whether that is all.
fn read(folder: &OwnedFd, hidden: bool) -> io::Result<(Vec<Entry>, bool)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (name.starts_with(b".") && !hidden) {
            continue;
        }
        if entries.len() == MOST {
            return Ok((entries, false));
        }
        // A link is shown as what it is: where it leads may be outside.
        let Ok(stat) = rustix::fs::statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        entries.push(Entry {
            name: name.into(),
            is_folder: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
            size: stat.st_size as u64,
            modified: stat.st_mtime,
        });
    }
    entries.sort_by(|a, b| b.is_folder.cmp(&a.is_folder).then_with(|| a.name.cmp(&b.name)));
    Ok((entries, true))
}

const STYLE: &str = "\
    :root{color-scheme:light dark;--ink:#1d2433;--soft:#6b7485;--paper:#fbfaf7;--line:#e6e2d8;--link:#2166b8}\
    @media(prefers-color-scheme:dark){:root{--ink:#e9ecf2;--soft:#9aa4b5;--paper:#12161f;--line:#2b3342;--link:#7ab7ff}}\
    body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2.2rem auto;padding:0 1.1rem;color:var(--ink);\
    background:var(--paper)}h1{font-size:1.4rem;margin:0 0 1rem;overflow-wrap:anywhere}h1 a{font-weight:400}\
    table{width:100%;border-collapse:collapse}td{padding:.32rem .6rem;border-top:1px solid var(--line);\
    overflow-wrap:anywhere}tr:hover td{background:color-mix(in srgb,var(--ink) 5%,transparent)}\
    td+td{text-align:right;white-space:nowrap;color:var(--soft);font-variant-numeric:tabular-nums;font-size:.92em}\
    a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}td a[href$='/']{font-weight:600}\
    p{color:var(--soft)}@media(max-width:36rem){td+td+td{display:none}}";

fn page(path: &str, entries: &[Entry], is_whole: bool) -> String {
    let title = escape(&format!("/{path}"));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{}</h1>\n<table>\n",
        trail(path)
    );
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in entries {
        let slash = if entry.is_folder { "/" } else { "" };
        let mut address = String::from("./"); // or a name with a colon would be another protocol
        path::encode(&entry.name, &mut address);
        let name = escape(&String::from_utf8_lossy(&entry.name));
        let size = if entry.is_folder { String::new() } else { size(entry.size) };
        let modified = modified(entry.modified);
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{address}{slash}\">{name}{slash}</a></td><td>{size}</td><td>{modified}</td></tr>"
        );
    }
    page.push_str("</table>\n");
    if entries.is_empty() {
        page.push_str("<p>There is nothing in this folder.</p>\n");
    }
    if !is_whole {
        let _ = writeln!(page, "<p>There are more than {MOST}: the others are not shown.</p>");
    }
    page.push_str("</body></html>\n");
    page
}

/// The folders on the way to this one, each a link.
fn trail(path: &str) -> String {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let Some((last, before)) = names.split_last() else { return "/".to_owned() };
    let mut trail = format!("<a href=\"{}\">/</a>", "../".repeat(names.len()));
    for (i, name) in before.iter().enumerate() {
        let up = "../".repeat(names.len() - 1 - i);
        let _ = write!(trail, "<a href=\"{up}\">{}/</a>", escape(name));
    }
    trail + &escape(last) + "/"
}

/// `16 Nov 2026 12:00`
fn modified(seconds: i64) -> String {
    // Up to the end of the year 9999, beyond which there are no dates.
    let since = Duration::from_secs(seconds.clamp(0, 253_402_300_799) as u64);
    let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since); // "Mon, 16 Nov 2026 12:00:00 GMT"
    date[5..22].to_owned()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            char => escaped.push(char),
        }
    }
    escaped
}

/// A size that one can read.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().expect("there are some");
    while size >= 1023.95
        && let Some(next) = units.next()
    {
        size /= 1024.0;
        unit = next;
    }
    format!("{size:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_folder_leads_back() {
        assert_eq!(trail(""), "/");
        assert_eq!(trail("a&b"), "<a href=\"../\">/</a>a&amp;b/");
        assert_eq!(trail("a/b/"), "<a href=\"../../\">/</a><a href=\"../\">a/</a>b/");
    }

    #[test]
    fn moments_that_one_can_read() {
        assert_eq!(modified(1_794_830_400), "16 Nov 2026 12:00");
        assert_eq!(
            (modified(i64::MIN), modified(i64::MAX)),
            ("01 Jan 1970 00:00".into(), "31 Dec 9999 23:59".into())
        );
    }

    #[test]
    fn sizes_that_one_can_read() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (1_572_864, "1.5 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ];
        for (bytes, wanted) in table {
            assert_eq!(size(bytes), wanted);
        }
    }
}
