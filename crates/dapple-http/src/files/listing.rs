//! The page that lists a folder.
//!
//! Reading a folder and the sizes of its files takes a thread of the pool, and a processor, for milliseconds.
//!
//! # Invariants
//!
//! * **FEW-AT-ONCE**: at most [`Listings::at_once`] folders are read at a time, by the threads that hold a permit of `room`
//!   until they are done, also if the client is gone: however many lists are asked for, processors are left for the rest.
//! * **ONE-FOR-ALL**: requests for the same list, in the same order, get the bytes of one reading: those that wait for it,
//!   and those that come within [`recheck`](super::FileService::recheck).
//! * **READ-WHEN-CHANGED**: after that the folder's stamp is compared, which is one system call. Its names are read again only
//!   if the stamp has changed, or after [`SIZES`] times as long, as sizes change without it. So however many clients ask,
//!   a folder that stays as it is costs one reading in that time.
//! * **ONLY-SERVED**: an entry is a file or a folder that can be asked for, by the rules of the root (`root.rs`). A link is
//!   shown as what it leads to, and left out if that is outside, nothing, or no file.

use std::collections::BinaryHeap;
use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use dapple::sync::Semaphore;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::body::FileBody;
use super::root::{Stamp, View};
use super::single_flight::SingleFlight;
use super::stats::FileEvent;
use super::store::{PageStore, Problem, is_young};
use super::{answer, clock, path};

/// The most entries of a list, the first by name: a longer list would take long, and be of no use.
const MOST: usize = 10_000;

/// While a folder is unchanged, its list is used for this many times `recheck` before sizes and times are read again.
const SIZES: u32 = 10;

/// A list, and when it was made.
#[derive(Clone)]
struct CachedListing {
    page: Bytes,
    made: Duration,
    /// When the list was last found to be valid.
    checked: Duration,
    /// The folder before its names were read. `None`: a change right after that might have given the same stamp.
    folder: Option<Stamp>,
}

impl CachedListing {
    /// Whether the list is served without a check.
    fn is_fresh(&self, now: Duration, recheck: Duration) -> bool {
        now.saturating_sub(self.checked) < recheck
    }

    /// The same list, checked now, if its folder is unchanged. READ-WHEN-CHANGED
    fn renewed(self, folder: Stamp, now: Duration, recheck: Duration) -> Option<CachedListing> {
        let is_young = now.saturating_sub(self.made) < recheck.saturating_mul(SIZES);
        (is_young && self.folder == Some(folder)).then_some(CachedListing { checked: now, ..self })
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Box<[u8]>, CachedListing> for Weight {
    fn weight(&self, key: &Box<[u8]>, listed: &CachedListing) -> u64 {
        (key.len() + listed.page.len()) as u64 + 256
    }
}

/// The lists that are being made, and those in the cache.
pub(super) struct Listings {
    single_flight: SingleFlight<Result<CachedListing, Problem>>,
    kept: Cache<Box<[u8]>, CachedListing, Weight>,
    room: Arc<Semaphore>,
}

impl Listings {
    /// The part of the cache size that is for lists.
    pub(super) fn share(cache_size: u64) -> u64 {
        cache_size / 8
    }

    pub(super) fn new(cache_size: u64) -> Listings {
        // One shard, so that a list may be as large as the whole capacity.
        let options = OptionsBuilder::new()
            .shards(1)
            .weight_capacity(Listings::share(cache_size))
            .estimated_items_capacity(64)
            .build()
            .expect("both capacities are given");
        let kept =
            Cache::with_options(options, Weight, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Listings {
            single_flight: SingleFlight::default(),
            kept,
            room: Arc::new(Semaphore::new(Listings::at_once())),
        }
    }

    /// Number of folders that are read at a time. Half of the processors are left for other work. At least two, so that
    /// one slow folder does not hold up all others.
    fn at_once() -> usize {
        (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(2)
    }

    pub(super) fn weight(&self) -> u64 {
        self.kept.weight()
    }
}

/// Lists the folder at `path`.
pub(super) async fn list(
    store: &PageStore,
    folder: Arc<OwnedFd>,
    path: &[u8],
    query: Option<&str>,
) -> Response<FileBody> {
    let order = Order::of(query.unwrap_or_default());
    let page = match find(store, folder, path, order).await {
        Ok(page) => page,
        Err(Problem::Missing | Problem::NoIndex) => return answer::plain(StatusCode::NOT_FOUND),
        Err(Problem::Forbidden) => return answer::plain(StatusCode::FORBIDDEN),
        Err(Problem::Busy) => return answer::busy(),
        Err(Problem::Failed) => return answer::plain(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let mut response = Response::new(FileBody::of(page));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Names are escaped; should one get through all the same, it can do nothing.
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// A list that was made recently, or is made now: ONE-FOR-ALL.
async fn find(store: &PageStore, folder: Arc<OwnedFd>, path: &[u8], order: Order) -> Result<Bytes, Problem> {
    let listings = &store.listings;
    let key = [path, b"\0", order.query().as_bytes()].concat(); // no path has a zero byte
    let known = || {
        let listed = listings.kept.get(&key[..])?;
        listed.is_fresh(clock::now(), store.settings.recheck).then_some(listed)
    };
    if let Some(listed) = known() {
        return Ok(listed.page);
    }
    let found = listings.single_flight.find(&key, async {
        if let Some(listed) = known() {
            return Some(Ok(listed)); // another request has made it meanwhile
        }
        // The folder is held open, so its stamp is in memory.
        let stamp = match Stamp::of_open(&*folder) {
            Ok(stamp) => stamp,
            Err(error) => return Some(Err(store.problem(path, &error))),
        };
        let renewed = listings.kept.get(&key[..]);
        let renewed = renewed.and_then(|listed| listed.renewed(stamp, clock::now(), store.settings.recheck));
        if let Some(listed) = renewed {
            listings.kept.insert(key[..].into(), listed.clone());
            store.counters.count(FileEvent::Check);
            return Some(Ok(listed));
        }
        let permit = listings.room.clone().acquire_owned().await.ok()?;
        let (view, hidden) = (store.root.view().await, store.settings.hidden);
        let made = clock::now();
        store.counters.count(FileEvent::List);
        let name: Box<[u8]> = path.into();
        let read = dapple::blocking(move || {
            let _permit = permit; // FEW-AT-ONCE
            let listing = read(&folder, &view, &name, hidden, order)?;
            Ok::<_, io::Error>(Bytes::from(page(&String::from_utf8_lossy(&name), &listing, order)))
        });
        match read.await.ok()? {
            Ok(page) => {
                let folder = (!is_young(stamp)).then_some(stamp);
                let listed = CachedListing { page, made, checked: made, folder };
                listings.kept.insert(key[..].into(), listed.clone());
                Some(Ok(listed))
            }
            Err(error) => Some(Err(store.problem(path, &error))),
        }
    });
    // Cancelled: the client is gone.
    let found = found.await.ok().flatten().unwrap_or(Err(Problem::Busy));
    found.map(|listed| listed.page)
}

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Size,
    Modified,
}

/// The order of a list. Folders are first in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    by: Column,
    is_descending: bool,
}

impl Order {
    /// The order that a query asks for: `sort=size&order=desc`. Other parts of the query are ignored.
    fn of(query: &str) -> Order {
        let mut order = Order { by: Column::Name, is_descending: false };
        for pair in query.split('&') {
            match pair {
                "sort=name" => order.by = Column::Name,
                "sort=size" => order.by = Column::Size,
                "sort=modified" => order.by = Column::Modified,
                "order=asc" => order.is_descending = false,
                "order=desc" => order.is_descending = true,
                _ => {}
            }
        }
        order
    }

    /// The query for this order; `None` for the default order.
    fn query(self) -> &'static str {
        match (self.by, self.is_descending) {
            (Column::Name, false) => "",
            (Column::Name, true) => "?sort=name&amp;order=desc",
            (Column::Size, false) => "?sort=size",
            (Column::Size, true) => "?sort=size&amp;order=desc",
            (Column::Modified, false) => "?sort=modified",
            (Column::Modified, true) => "?sort=modified&amp;order=desc",
        }
    }

    /// The title of a column: a link to the list in the order of that column, or in the other direction if it has that
    /// order.
    fn title(self, by: Column, text: &str) -> String {
        let is_now = self.by == by;
        let next = Order { by, is_descending: is_now && !self.is_descending };
        let sorted = match (is_now, self.is_descending) {
            (false, _) => "",
            (true, false) => " aria-sort=\"ascending\"",
            (true, true) => " aria-sort=\"descending\"",
        };
        format!("<th scope=\"col\"{sorted}><a href=\"./{}\">{text}</a></th>", next.query())
    }
}

/// Folders before files, then by name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    is_file: bool,
    name: Vec<u8>,
    /// The target of a link: its size, and its time of modification.
    link: Option<(u64, i64)>,
}

struct ListEntry {
    name: Vec<u8>,
    is_folder: bool,
    size: u64,
    modified: i64,
}

struct Listing {
    entries: Vec<ListEntry>,
    /// Number of entries, including those that are not shown.
    count: usize,
}

/// Reads the entries of a folder: ONLY-SERVED.
fn read(folder: &OwnedFd, view: &View, path: &[u8], hidden: bool, order: Order) -> io::Result<Listing> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
    let status = |name: &std::ffi::CStr| rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    // A heap of the first names, so that the memory is bounded.
    let mut first = BinaryHeap::new();
    let mut count = 0;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (name.starts_with(b".") && !hidden) {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            kind = status(entry.file_name()).map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
        }
        let mut link = None;
        if kind == FileType::Symlink {
            let Ok(stat) = view.stat(&[path, name].concat()) else { continue };
            kind = FileType::from_raw_mode(stat.st_mode);
            link = Some(traits(&stat));
        }
        let is_file = match kind {
            FileType::Directory => false,
            FileType::RegularFile => true,
            _ => continue,
        };
        count += 1;
        first.push(SortKey { is_file, name: name.into(), link });
        if first.len() > MOST {
            first.pop();
        }
    }
    let entry = |place: SortKey| {
        let (size, modified) = match place.link {
            Some(traits) => traits,
            None => traits(&status(&std::ffi::CString::new(&place.name[..]).ok()?)?),
        };
        Some(ListEntry { name: place.name, is_folder: !place.is_file, size, modified })
    };
    let mut entries: Vec<_> = first.into_sorted_vec().into_iter().filter_map(entry).collect();
    let key = |entry: &ListEntry| match order.by {
        Column::Size if !entry.is_folder => entry.size as i64,
        Column::Modified => entry.modified,
        Column::Size | Column::Name => 0, // keeps the order by name
    };
    if order.is_descending {
        entries.reverse();
        entries.sort_by_key(|entry| (!entry.is_folder, std::cmp::Reverse(key(entry))));
    } else {
        entries.sort_by_key(|entry| (!entry.is_folder, key(entry)));
    }
    Ok(Listing { entries, count })
}

fn traits(stat: &Stat) -> (u64, i64) {
    (stat.st_size as u64, stat.st_mtime)
}

const STYLE: &str = "\
    :root{color-scheme:light dark;--ink:#1d2433;--soft:#6b7485;--paper:#fbfaf7;--line:#e6e2d8;--link:#2166b8}\
    @media(prefers-color-scheme:dark){:root{--ink:#e9ecf2;--soft:#9aa4b5;--paper:#12161f;--line:#2b3342;--link:#7ab7ff}}\
    body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2.2rem auto;padding:0 1.1rem;color:var(--ink);\
    background:var(--paper)}h1{font-size:1.4rem;margin:0 0 1rem;overflow-wrap:anywhere}h1 a{font-weight:400}\
    table{width:100%;border-collapse:collapse}th{padding:.32rem .6rem;text-align:left;\
    font-weight:600;font-size:.92em}th+th{text-align:right;white-space:nowrap}th a{color:var(--soft)}\
    th[aria-sort=ascending] a::after{content:\" \\2191\"}th[aria-sort=descending] a::after{content:\" \\2193\"}\
    td{padding:.32rem .6rem;border-top:1px solid var(--line);\
    overflow-wrap:anywhere}tr:hover td{background:color-mix(in srgb,var(--ink) 5%,transparent)}\
    td+td{text-align:right;white-space:nowrap;color:var(--soft);font-variant-numeric:tabular-nums;font-size:.92em}\
    a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}td a[href$='/'],td a[href*='/?']{font-weight:600}\
    p{color:var(--soft)}@media(max-width:36rem){td+td+td,th+th+th{display:none}}";

fn page(path: &str, listing: &Listing, order: Order) -> String {
    let Listing { entries, count } = listing;
    let title = escape(&format!("/{path}"));
    let query = order.query();
    let mut page = String::with_capacity(2048 + entries.len() * 144);
    let _ = writeln!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{}</h1>\n<table>\n<thead><tr>{}{}{}</tr></thead>\n<tbody>",
        trail(path),
        order.title(Column::Name, "Name"),
        order.title(Column::Size, "Size"),
        order.title(Column::Modified, "Modified"),
    );
    if !path.is_empty() {
        let _ = writeln!(page, "<tr><td><a href=\"../{query}\">../</a></td><td></td><td></td></tr>");
    }
    for entry in entries {
        // Links to other folders keep the order.
        let (slash, query) = if entry.is_folder { ("/", query) } else { ("", "") };
        let mut address = String::from("./"); // without it, a name with a colon would be read as a protocol
        path::encode(&entry.name, &mut address);
        let name = escape(&String::from_utf8_lossy(&entry.name));
        let size = if entry.is_folder { String::new() } else { size(entry.size) };
        let modified = modified(entry.modified);
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{address}{slash}{query}\">{name}{slash}</a></td><td>{size}</td><td>{modified}</td></tr>"
        );
    }
    page.push_str("</tbody></table>\n");
    if entries.is_empty() {
        page.push_str("<p>There is nothing in this folder.</p>\n");
    }
    if entries.len() < *count && *count > MOST {
        let _ = writeln!(page, "<p>These are the first {MOST} by name, of {count} in this folder.</p>");
    }
    page.push_str("</body></html>\n");
    page
}

/// The folders on the path to this one, each as a link.
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
    // Up to the end of the year 9999, the last that HTTP dates have.
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

/// A size for people: `1.0 MiB`.
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
    use super::super::root::Root;
    use super::super::settings::FileSettings;
    use super::super::store::PageLookup;
    use super::*;

    #[test]
    fn the_way_to_a_folder_leads_back() {
        assert_eq!(trail(""), "/");
        assert_eq!(trail("a&b"), "<a href=\"../\">/</a>a&amp;b/");
        assert_eq!(trail("a/b/"), "<a href=\"../../\">/</a><a href=\"../\">a/</a>b/");
    }

    #[dapple::test]
    async fn few_folders_are_read_at_once() {
        let folder = std::env::temp_dir().join(format!("dapple-listings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let settings = FileSettings { listings: true, ..FileSettings::default() };
        let store = Arc::new(PageStore::new(&Root::new(&folder).unwrap(), settings));
        let room = store.listings.room.clone();
        let all = room.try_acquire_many(Listings::at_once()).expect("nothing is read yet");
        assert!(room.try_acquire().is_err());
        let PageLookup::Listing(found) = store.find(b"").await else { panic!("not a folder") };
        let listing = dapple::spawn({
            let store = store.clone();
            async move { list(&store, found, b"", None).await.status() }
        });
        dapple::time::sleep(Duration::from_millis(20)).await.unwrap();
        assert_eq!(store.stats().listings, 0, "it waits for its turn");
        drop(all);
        assert_eq!((listing.await.unwrap(), store.stats().listings), (StatusCode::OK, 1));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_title_leads_to_its_order_and_back() {
        let order = Order::of("x=1&sort=size&order=desc");
        assert_eq!(order, Order { by: Column::Size, is_descending: true });
        for by in [Column::Name, Column::Size, Column::Modified] {
            for is_descending in [false, true] {
                let order = Order { by, is_descending };
                assert_eq!(Order::of(&order.query().trim_start_matches('?').replace("&amp;", "&")), order);
            }
        }
        assert!(
            order.title(Column::Size, "Size").contains("aria-sort=\"descending\"><a href=\"./?sort=size\">")
        );
        assert!(order.title(Column::Name, "Name").contains("<th scope=\"col\"><a href=\"./\">"));
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
