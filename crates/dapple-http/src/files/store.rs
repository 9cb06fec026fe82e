//! The page cache and the cache of open files, by path: how both are filled and kept up to date.
//!
//! A page is served without a check until it is [`FileSettings::recheck`] old. The first request after that compares it
//! with the file system, once for all requests that wait. So a page in high demand costs a few system calls a second.
//!
//! # Invariants
//!
//! * **WEIGHED-WHOLE**: all forms of a page are in memory, and weighed in `pages` by their bytes, or all are open
//!   files, and weighed in `open` by their number. A form in memory that only a descriptor was counted for would be
//!   memory without a bound.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use dapple::fs::File;
use http::StatusCode;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use rustix::io::Errno;

use super::body::{StampedFile, is_changed};
use super::buffers;
use super::clock;
use super::encoding::Coding;
use super::kind::{content_type, is_text};
use super::listing::Listings;
use super::page::{FileContent, FilePage, Form, SeenFile, Traits};
use super::root::{PathEntry, Root, Stamp, is_missing};
use super::settings::{FileFailure, FileSettings};
use super::single_flight::SingleFlight;
use super::stats::{FileCounters, FileEvent, FileStats};

/// Number of attempts to read a file that is being changed.
const TRIES: usize = 3;

/// Missing files (a compressed form, another index) are looked for this many times less often than existing ones are
/// checked: most of them never exist.
const MISSING: u32 = 10;

/// The longest text outside of the cache that is read to see whether it is UTF-8.
const CHECKED: u64 = 1 << 20;

/// Time after a change in which another change may get the same stamp: two seconds, in the worst file systems.
const YOUNG: Duration = Duration::from_secs(2);

/// Result of a lookup of a path.
#[derive(Clone)]
pub(super) enum PageLookup {
    Page(Arc<FilePage>),
    /// A folder, requested without a slash at its end.
    Folder,
    /// A folder without an index, to be listed.
    Listing(Arc<OwnedFd>),
    Problem(Problem),
}

/// Why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Missing,
    /// A folder without an index, while listings are off.
    NoIndex,
    Forbidden,
    /// A failure that may pass: too many open files, or a file that is written all the time.
    Busy,
    Failed,
}

impl Problem {
    fn status(self) -> StatusCode {
        match self {
            Problem::Missing | Problem::NoIndex => StatusCode::NOT_FOUND,
            Problem::Forbidden => StatusCode::FORBIDDEN,
            Problem::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Problem::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn of(error: &io::Error) -> Problem {
        match Errno::from_io_error(error) {
            _ if is_missing(error) => Problem::Missing,
            Some(Errno::ACCESS | Errno::PERM) => Problem::Forbidden,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::BUSY | Errno::TXTBSY) => Problem::Busy,
            _ if is_changed(error) => Problem::Busy,
            _ => Problem::Failed,
        }
    }
}

/// The weight of a page in memory: the bytes of all its forms.
#[derive(Clone)]
struct ByteWeight;

impl Weighter<Box<[u8]>, Arc<FilePage>> for ByteWeight {
    fn weight(&self, path: &Box<[u8]>, page: &Arc<FilePage>) -> u64 {
        path.len() as u64 + page.weight()
    }
}

/// The weight of a page of open files: the descriptors of all its forms.
#[derive(Clone)]
struct Descriptors;

impl Weighter<Box<[u8]>, Arc<FilePage>> for Descriptors {
    fn weight(&self, _path: &Box<[u8]>, page: &Arc<FilePage>) -> u64 {
        page.forms() as u64
    }
}

pub(super) struct PageStore {
    pub(super) settings: FileSettings,
    pub(super) root: Root,
    /// Pages that are in memory.
    pages: Cache<Box<[u8]>, Arc<FilePage>, ByteWeight>,
    /// Pages that are too large for memory: their files are kept open.
    open: Cache<Box<[u8]>, Arc<FilePage>, Descriptors>,
    single_flight: SingleFlight<PageLookup>,
    pub(super) listings: Listings,
    pub(super) counters: FileCounters,
    /// Whether a task sweeps the open files.
    is_swept: AtomicBool,
}

impl PageStore {
    pub(super) fn new(root: &Root, mut settings: FileSettings) -> PageStore {
        // A file that does not fit into the cache would be read as a whole for each request.
        settings.largest_cached = settings.largest_cached.min(settings.cache_size / 2);
        // A shard must have room for several of the largest pages. Otherwise they would be evicted at once.
        let most_shards = settings.cache_size / settings.largest_cached.max(1).saturating_mul(8);
        let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let options = OptionsBuilder::new()
            .shards(most_shards.clamp(1, 4 * threads) as usize)
            .weight_capacity(settings.cache_size - Listings::share(settings.cache_size))
            .estimated_items_capacity((settings.cache_size / (16 << 10)).clamp(16, 1 << 20) as usize)
            .build()
            .expect("both capacities are given");
        PageStore {
            root: root.with(settings.symlinks, settings.recheck),
            pages: Cache::with_options(
                options,
                ByteWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            open: Cache::with_weighter(settings.open_files, settings.open_files as u64, Descriptors),
            single_flight: SingleFlight::default(),
            listings: Listings::new(settings.cache_size),
            counters: FileCounters::default(),
            is_swept: AtomicBool::new(false),
            settings,
        }
    }

    pub(super) fn stats(&self) -> FileStats {
        FileStats {
            hits: self.counters.sum(FileEvent::Hit),
            misses: self.counters.sum(FileEvent::Miss),
            checks: self.counters.sum(FileEvent::Check),
            loads: self.counters.sum(FileEvent::Load),
            opens: self.counters.sum(FileEvent::Open),
            listings: self.counters.sum(FileEvent::List),
            cached_pages: self.pages.len() as u64,
            cached_bytes: self.pages.weight() + self.listings.weight(),
        }
    }

    /// The page of a path from the cache, if it need not be checked.
    pub(super) fn known(&self, path: &[u8]) -> Option<Arc<FilePage>> {
        let page = self.fresh(path)?;
        self.counters.count(FileEvent::Hit);
        Some(page)
    }

    fn fresh(&self, path: &[u8]) -> Option<Arc<FilePage>> {
        let page = self.pages.get(path).or_else(|| self.open.get(path))?;
        (page.age(clock::now()) < self.settings.recheck).then_some(page)
    }

    /// Looks a path up in the file system, or takes the result of another request that does so.
    pub(super) async fn find(self: &Arc<Self>, path: &[u8]) -> PageLookup {
        self.counters.count(FileEvent::Miss);
        let found = self.single_flight.find(path, async {
            match self.look_with_room(path).await {
                Err(error) if dapple::is_cancelled(&error) => None,
                Err(error) => Some(PageLookup::Problem(self.problem(path, &error))),
                Ok(outcome) => Some(outcome),
            }
        });
        // Cancelled: the request is gone, so no client sees this answer.
        let found = found.await.ok().flatten().unwrap_or(PageLookup::Problem(Problem::Busy));
        self.sweep(matches!(&found, PageLookup::Page(page) if !page.is_in_memory()));
        found
    }

    /// The problem that an error means for the answer. Reports it to the observer, unless there is no such file.
    pub(super) fn problem(&self, path: &[u8], error: &io::Error) -> Problem {
        let problem = Problem::of(error);
        if let Some(observer) = &self.settings.observer
            && problem != Problem::Missing
        {
            observer(&FileFailure { path, error, status: problem.status() });
        }
        problem
    }

    /// Starts a task that closes unused files and frees unused buffers, unless it runs already. The space of a removed
    /// file is free only when the file is closed. The task ends when there are none left. `begins`: pieces are about to
    /// be sent.
    fn sweep(self: &Arc<Self>, begins: bool) {
        if (self.open.is_empty() && !begins) || self.is_swept.swap(true, Ordering::SeqCst) {
            return;
        }
        let (store, unused) = (Arc::downgrade(self), self.settings.unused);
        let sweeping = async move {
            while dapple::time::sleep(unused / 4).await.is_ok() {
                let are_buffers_left = buffers::sweep();
                let Some(store) = store.upgrade() else { return };
                let now = clock::now();
                let most = unused.max(store.settings.recheck.saturating_mul(2));
                store.open.retain(|_, page| page.age(now) < most);
                if store.open.is_empty() && !are_buffers_left {
                    store.is_swept.store(false, Ordering::SeqCst);
                    store.sweep(false); // a file may have been opened just now
                    return;
                }
            }
        };
        dapple::spawn(sweeping).detach();
    }

    /// As [`look`](Self::look). Where no file descriptor is left, files that are open for later requests are closed first.
    async fn look_with_room(&self, path: &[u8]) -> io::Result<PageLookup> {
        match self.look(path).await {
            Err(error) if is_out_of_descriptors(&error) && !self.open.is_empty() => {
                self.open.clear();
                self.look(path).await
            }
            found => found,
        }
    }

    async fn look(&self, path: &[u8]) -> io::Result<PageLookup> {
        if let Some(page) = self.fresh(path) {
            return Ok(PageLookup::Page(page)); // another request has found it meanwhile
        }
        if let Some(page) = self.pages.peek(path).or_else(|| self.open.peek(path)) {
            let now = clock::now();
            let missing = page.age_of_missing(now) >= self.settings.recheck.saturating_mul(MISSING);
            if self.is_unchanged(&page, missing).await? {
                self.counters.count(FileEvent::Check);
                page.note_checked(now, missing);
                return Ok(PageLookup::Page(page));
            }
            self.pages.remove(path);
            self.open.remove(path);
        }
        let mut tries = 1..TRIES;
        loop {
            match self.load(path).await {
                Err(error) if is_changed(&error) && tries.next().is_some() => {}
                outcome => return outcome,
            }
        }
    }

    /// Whether the files of a page are unchanged. `missing`: and the missing ones still missing.
    async fn is_unchanged(&self, page: &FilePage, missing: bool) -> io::Result<bool> {
        if page.is_young {
            return Ok(false);
        }
        for (name, stamp) in page.seen.iter().filter(|(_, stamp)| missing || stamp.is_some()) {
            if self.root.stamp(name).await? != *stamp {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a page of the file or folder at a path.
    async fn load(&self, path: &[u8]) -> io::Result<PageLookup> {
        let now = clock::now();
        let is_folder = path.is_empty() || path.ends_with(b"/");
        if !is_folder {
            return match self.root.open(path).await? {
                PathEntry::Folder(_) => Ok(PageLookup::Folder),
                PathEntry::File(file, stamp) => self.keep(path, path, Vec::new(), (file, stamp), now).await,
            };
        }
        let mut seen = Vec::new();
        for index in &self.settings.indexes {
            let name = [path, index.as_bytes()].concat();
            match self.root.open(&name).await {
                Ok(PathEntry::File(file, stamp)) => {
                    return self.keep(path, &name, seen, (file, stamp), now).await;
                }
                Ok(PathEntry::Folder(_)) => {}
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
            seen.push((name.into(), None));
        }
        match self.root.open(path).await? {
            PathEntry::Folder(folder) if self.settings.listings => Ok(PageLookup::Listing(Arc::new(folder))),
            PathEntry::Folder(_) => Ok(PageLookup::Problem(Problem::NoIndex)),
            PathEntry::File(..) => Ok(PageLookup::Problem(Problem::Missing)),
        }
    }

    /// Makes a page of a file and its compressed forms, and puts it into the cache.
    async fn keep(
        &self,
        path: &[u8],
        name: &[u8],
        mut seen: Vec<SeenFile>,
        (file, stamp): (OwnedFd, Stamp),
        now: Duration,
    ) -> io::Result<PageLookup> {
        // WEIGHED-WHOLE: other forms are smaller.
        let is_large = stamp.size > self.settings.largest_cached;
        let original = self.content(file, stamp, is_large).await?;
        let is_utf8 = match &original {
            FileContent::Memory(bytes) => str::from_utf8(bytes).is_ok(),
            FileContent::File(source) => is_text(name) && is_utf8(source).await?,
        };
        let mut contents = vec![(None, original, stamp)];
        seen.push((name.into(), Some(stamp)));
        let codings = if self.settings.precompressed { &Coding::ALL[..] } else { &[] };
        for &coding in codings {
            let name = [name, coding.suffix()].concat();
            let found = match self.root.open(&name).await {
                Ok(PathEntry::File(file, stamp)) => Some((file, stamp)),
                _ => None, // without this form, the original is sent
            };
            seen.push((name.into(), found.as_ref().map(|(_, stamp)| *stamp)));
            // An older compressed form belongs to an earlier original. One that is not smaller is of no use.
            if let Some((file, compressed)) = found
                && compressed.modified.0 >= stamp.modified.0
                && compressed.size < stamp.size
            {
                contents.push((Some(coding), self.content(file, compressed, is_large).await?, compressed));
            }
        }
        let traits = Traits {
            content_type: content_type(name, is_utf8),
            cache_control: self.settings.cache_control(name),
            varies: contents.len() > 1,
        };
        let is_young = contents.iter().any(|(_, _, stamp)| is_young(*stamp));
        let form = |(coding, content, stamp)| Form::new(coding, content, stamp, &traits);
        let page = Arc::new(FilePage::new(contents.into_iter().map(form).collect(), seen, is_young, now));
        match is_large {
            false => self.pages.insert(path.into(), page.clone()),
            true => self.open.insert(path.into(), page.clone()),
        }
        Ok(PageLookup::Page(page))
    }

    /// Reads a file into memory, or keeps it open if it is too large.
    async fn content(&self, file: OwnedFd, stamp: Stamp, is_large: bool) -> io::Result<FileContent> {
        let mut source = StampedFile { file: Arc::new(File::from(file)), stamp };
        if is_large {
            self.counters.count(FileEvent::Open);
            return Ok(FileContent::File(source));
        }
        self.counters.count(FileEvent::Load);
        Ok(FileContent::Memory(source.read(0..stamp.size).await?))
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether the bytes of an open file are UTF-8. It is read once for that. A file longer than [`CHECKED`] does not count.
async fn is_utf8(source: &StampedFile) -> io::Result<bool> {
    const PIECE: u64 = 64 << 10;
    let len = source.stamp.size;
    if len > CHECKED {
        return Ok(false);
    }
    let mut source = source.clone();
    let mut text = Vec::new(); // begins with the incomplete character at the end of the last piece
    for start in (0..len).step_by(PIECE as usize) {
        text.extend_from_slice(&source.read(start..len.min(start + PIECE)).await?);
        match str::from_utf8(&text) {
            Ok(_) => text.clear(),
            Err(error) if error.error_len().is_none() => drop(text.drain(..error.valid_up_to())),
            Err(_) => return Ok(false),
        }
    }
    Ok(text.is_empty())
}

/// Whether a change now might get the same stamp.
pub(super) fn is_young(stamp: Stamp) -> bool {
    let changed = Duration::new(stamp.changed.0.try_into().unwrap_or(0), stamp.changed.1 as u32);
    SystemTime::UNIX_EPOCH.elapsed().is_ok_and(|now| now < changed + YOUNG)
}

#[cfg(test)]
mod tests {
    use super::super::answer;
    use super::*;
    use std::fs;

    #[dapple::test]
    async fn a_large_file_that_is_not_requested_is_closed() {
        let folder = std::env::temp_dir().join(format!("dapple-unused-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.bin"), "large enough").unwrap();
        let milli = Duration::from_millis(1);
        let settings =
            FileSettings { largest_cached: 0, recheck: milli, unused: 20 * milli, ..FileSettings::default() };
        let store = Arc::new(PageStore::new(&Root::new(&folder).unwrap(), settings));
        for opened in 1..=2 {
            assert!(matches!(store.find(b"a.bin").await, PageLookup::Page(_)));
            assert_eq!(store.stats().opens, opened);
            while !store.open.is_empty() {
                dapple::time::sleep(milli).await.unwrap();
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[dapple::test]
    async fn buffers_of_pieces_are_given_back_when_nothing_is_sent_any_more() {
        let folder = std::env::temp_dir().join(format!("dapple-pieces-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.bin"), vec![b'x'; 4 * buffers::SIZE]).unwrap();
        let milli = Duration::from_millis(1);
        // With files that are kept open, and without.
        for open_files in [16, 0] {
            let settings =
                FileSettings { largest_cached: 0, open_files, unused: 20 * milli, ..FileSettings::default() };
            let store = Arc::new(PageStore::new(&Root::new(&folder).unwrap(), settings));
            let PageLookup::Page(page) = store.find(b"a.bin").await else { panic!("there is a file") };
            let response = answer::page(&page, &http::Method::GET, &http::HeaderMap::new());
            let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
            assert_eq!(body.to_bytes().len(), 4 * buffers::SIZE);
            drop(page);
            while store.is_swept.load(Ordering::SeqCst) {
                dapple::time::sleep(milli).await.unwrap();
            }
            assert!(!buffers::sweep(), "a buffer is left");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
