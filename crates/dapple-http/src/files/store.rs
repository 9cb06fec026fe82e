//! What is known of paths: the page cache, the cache of open files, and how both are filled and kept true.
//!
//! A page is used without a question for as long as [`Settings::recheck`]; whoever comes after that compares it
//! with the file system first, one for all. So a page that everybody wants costs a few system calls a second.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dapple::fs::File;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter, Weighter};
use rustix::io::Errno;

use super::body::{Source, is_changed};
use super::clock;
use super::encoding::Coding;
use super::flights::Flights;
use super::kind::content_type;
use super::page::{Content, Form, Page, Seen, Traits};
use super::root::{Found, Root, Stamp, is_missing};
use super::settings::Settings;
use super::stats::{Counters, Event, Stats};

/// How often a file is read again that is changed while it is read.
const TRIES: usize = 3;

/// As long after a change, a file system may give the same stamp to another one: two seconds, for the worst.
const YOUNG: Duration = Duration::from_secs(2);

/// What is at a path.
#[derive(Clone)]
pub(super) enum Outcome {
    Page(Arc<Page>),
    /// A folder, asked for without a slash at its end.
    Folder,
    /// A folder without an index, to be listed.
    Listing(Arc<OwnedFd>),
    Problem(Problem),
}

/// Why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Missing,
    Forbidden,
    /// For now: too many open files, or a file that is being written all the time.
    Busy,
    Failed,
}

impl Problem {
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

/// What a page weighs in the cache.
#[derive(Clone)]
struct Bytes;

impl Weighter<Box<[u8]>, Arc<Page>> for Bytes {
    fn weight(&self, path: &Box<[u8]>, page: &Arc<Page>) -> u64 {
        path.len() as u64 + page.weight()
    }
}

pub(super) struct Store {
    pub(super) settings: Settings,
    pub(super) root: Root,
    /// Pages that are in memory.
    pages: Cache<Box<[u8]>, Arc<Page>, Bytes>,
    /// Those that are too large for that: their files are kept open.
    open: Cache<Box<[u8]>, Arc<Page>, UnitWeighter>,
    flights: Flights<Outcome>,
    counters: Counters,
}

impl Store {
    pub(super) fn new(root: &Root, settings: Settings) -> Store {
        // A shard must have room for some of the largest pages, or they would never stay.
        let most_shards = settings.cache_size / settings.largest_cached.max(1).saturating_mul(8);
        let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let options = OptionsBuilder::new()
            .shards(most_shards.clamp(1, 4 * threads) as usize)
            .weight_capacity(settings.cache_size)
            .estimated_items_capacity((settings.cache_size / (16 << 10)).clamp(16, 1 << 20) as usize)
            .build()
            .expect("both capacities are given");
        Store {
            root: root.with(settings.symlinks, settings.recheck),
            pages: Cache::with_options(
                options,
                Bytes,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            open: Cache::new(settings.open_files),
            flights: Flights::default(),
            counters: Counters::default(),
            settings,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            hits: self.counters.sum(Event::Hit),
            misses: self.counters.sum(Event::Miss),
            checks: self.counters.sum(Event::Check),
            loads: self.counters.sum(Event::Load),
            opens: self.counters.sum(Event::Open),
            cached_pages: self.pages.len() as u64,
            cached_bytes: self.pages.weight(),
        }
    }

    /// What is known of a path, without asking anybody.
    pub(super) fn known(&self, path: &[u8]) -> Option<Arc<Page>> {
        let page = self.fresh(path)?;
        self.counters.count(Event::Hit);
        Some(page)
    }

    fn fresh(&self, path: &[u8]) -> Option<Arc<Page>> {
        let page = self.pages.get(path).or_else(|| self.open.get(path))?;
        (page.age(clock::now()) < self.settings.recheck).then_some(page)
    }

    /// What is at a path, by the file system.
    pub(super) async fn find(&self, path: &[u8]) -> Outcome {
        self.counters.count(Event::Miss);
        let found = self.flights.find(path, async {
            match self.look(path).await {
                Err(error) if dapple::is_cancelled(&error) => None,
                Err(error) => Some(Outcome::Problem(Problem::of(&error))),
                Ok(outcome) => Some(outcome),
            }
        });
        // Cancelled: whoever asked has gone.
        found.await.ok().flatten().unwrap_or(Outcome::Problem(Problem::Busy))
    }

    async fn look(&self, path: &[u8]) -> io::Result<Outcome> {
        if let Some(page) = self.fresh(path) {
            return Ok(Outcome::Page(page)); // found by somebody else meanwhile
        }
        if let Some(page) = self.pages.peek(path).or_else(|| self.open.peek(path)) {
            let now = clock::now();
            if self.is_unchanged(&page).await? {
                self.counters.count(Event::Check);
                page.note_checked(now);
                return Ok(Outcome::Page(page));
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

    /// Whether everything is as it was when the page was made.
    async fn is_unchanged(&self, page: &Page) -> io::Result<bool> {
        if page.is_young {
            return Ok(false);
        }
        for (name, stamp) in &page.seen {
            if self.root.stamp(name).await? != *stamp {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a page of what is at a path.
    async fn load(&self, path: &[u8]) -> io::Result<Outcome> {
        let now = clock::now();
        let is_folder = path.is_empty() || path.ends_with(b"/");
        if !is_folder {
            return match self.root.open(path).await? {
                Found::Folder(_) => Ok(Outcome::Folder),
                Found::File(file, stamp) => self.keep(path, path, Vec::new(), (file, stamp), now).await,
            };
        }
        let mut seen = Vec::new();
        for index in &self.settings.indexes {
            let name = [path, index.as_bytes()].concat();
            match self.root.open(&name).await {
                Ok(Found::File(file, stamp)) => {
                    return self.keep(path, &name, seen, (file, stamp), now).await;
                }
                Ok(Found::Folder(_)) => {}
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
            seen.push((name.into(), None));
        }
        match self.root.open(path).await? {
            Found::Folder(folder) if self.settings.listings => Ok(Outcome::Listing(Arc::new(folder))),
            _ => Ok(Outcome::Problem(Problem::Missing)),
        }
    }

    /// Makes a page of a file and its compressed forms, and keeps it.
    async fn keep(
        &self,
        path: &[u8],
        name: &[u8],
        mut seen: Vec<Seen>,
        (file, stamp): (OwnedFd, Stamp),
        now: Duration,
    ) -> io::Result<Outcome> {
        let mut contents = vec![(None, self.content(file, stamp).await?, stamp)];
        seen.push((name.into(), Some(stamp)));
        let codings = if self.settings.precompressed { &Coding::ALL[..] } else { &[] };
        for &coding in codings {
            let name = [name, coding.suffix()].concat();
            let found = match self.root.open(&name).await {
                Ok(Found::File(file, stamp)) => Some((file, stamp)),
                _ => None, // the original will do, whatever is wrong with this one
            };
            seen.push((name.into(), found.as_ref().map(|(_, stamp)| *stamp)));
            // One that is older than the original was made of another one.
            if let Some((file, compressed)) = found
                && compressed.modified.0 >= stamp.modified.0
            {
                contents.push((Some(coding), self.content(file, compressed).await?, compressed));
            }
        }
        let is_utf8 = match &contents[0].1 {
            Content::Memory(bytes) => str::from_utf8(bytes).is_ok(),
            Content::File(_) => true,
        };
        let traits = Traits {
            content_type: content_type(name, is_utf8),
            cache_control: self.settings.cache_control(name),
            varies: contents.len() > 1,
        };
        let is_young = contents.iter().any(|(_, _, stamp)| is_young(*stamp));
        let form = |(coding, content, stamp)| Form::new(coding, content, stamp, &traits);
        let page = Arc::new(Page::new(contents.into_iter().map(form).collect(), seen, is_young, now));
        match page.is_in_memory() {
            true => self.pages.insert(path.into(), page.clone()),
            false => self.open.insert(path.into(), page.clone()),
        }
        Ok(Outcome::Page(page))
    }

    /// Reads a file into memory, or keeps it open if it is too large for that.
    async fn content(&self, file: OwnedFd, stamp: Stamp) -> io::Result<Content> {
        let source = Source { file: Arc::new(File::from(file)), stamp };
        if stamp.size > self.settings.largest_cached {
            self.counters.count(Event::Open);
            return Ok(Content::File(source));
        }
        self.counters.count(Event::Load);
        Ok(Content::Memory(source.read(0..stamp.size).await?))
    }
}

/// Whether a change right now might get the same stamp.
fn is_young(stamp: Stamp) -> bool {
    let changed = Duration::new(stamp.changed.0.try_into().unwrap_or(0), stamp.changed.1 as u32);
    SystemTime::UNIX_EPOCH.elapsed().is_ok_and(|now| now < changed + YOUNG)
}
