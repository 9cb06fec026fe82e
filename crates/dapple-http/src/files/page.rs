//! What is kept of a path: the file in its forms (as it is, and compressed beforehand), each with the headers of
//! its answers ready made, so that an answer from the cache builds no text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};

use super::body::StampedFile;
use super::conditional::Validators;
use super::encoding::{Coding, Taken};
use super::root::Stamp;

/// Where the bytes of a file are.
pub(super) enum FileContent {
    /// In memory.
    Memory(Bytes),
    /// In a file that is too large for that. It is open.
    File(StampedFile),
}

/// One form of a file.
pub(super) struct Form {
    pub(super) coding: Option<Coding>,
    pub(super) content: FileContent,
    pub(super) len: u64,
    etag: HeaderValue,
    modified: SystemTime,
    /// Of an answer with the whole of it.
    headers: HeaderMap,
}

/// What the headers of a form are made of, beside its stamp.
pub(super) struct Traits {
    pub(super) content_type: HeaderValue,
    pub(super) cache_control: Option<HeaderValue>,
    /// There are several forms.
    pub(super) varies: bool,
}

impl Form {
    pub(super) fn new(coding: Option<Coding>, content: FileContent, stamp: Stamp, traits: &Traits) -> Form {
        let modified = modified(stamp);
        let etag = etag(stamp);
        let mut headers = HeaderMap::with_capacity(6);
        headers.insert(header::CONTENT_TYPE, traits.content_type.clone());
        headers.insert(header::ETAG, etag.clone());
        // RFC 9110, section 8.8.2.1: not from the future, which may also be too far away to be told.
        if modified <= SystemTime::now() {
            let date = httpdate::fmt_http_date(modified);
            headers.insert(header::LAST_MODIFIED, HeaderValue::try_from(date).expect("a date is plain text"));
        }
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(cache_control) = &traits.cache_control {
            headers.insert(header::CACHE_CONTROL, cache_control.clone());
        }
        if let Some(coding) = coding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        if traits.varies {
            headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        }
        Form { coding, content, len: stamp.size, etag, modified, headers }
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    pub(super) fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_bytes(), modified: self.modified }
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.content, FileContent::Memory(_))
    }
}

/// `Last-Modified`, in whole seconds. A date before 1970 is as good as any, and so is one beyond all calendars.
fn modified(stamp: Stamp) -> SystemTime {
    const FAR: i64 = 1 << 40;
    SystemTime::UNIX_EPOCH + Duration::from_secs(stamp.modified.0.clamp(0, FAR) as u64)
}

/// A strong tag: other bytes have another one. The time of modification alone would not do, as it can be set; so
/// the time of the last change, which cannot, and the inode are in it too.
fn etag(stamp: Stamp) -> HeaderValue {
    let nanos = |(seconds, nanos): (i64, i64)| {
        (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanos as u64)
    };
    let (modified, changed) = (nanos(stamp.modified), nanos(stamp.changed));
    let identity = changed ^ stamp.inode.rotate_left(32) ^ stamp.device.rotate_left(48);
    let tag = format!("\"{:x}-{modified:x}-{identity:x}\"", stamp.size);
    HeaderValue::try_from(tag).expect("digits and quotes")
}

/// What was found where a form of a page could be.
pub(super) type SeenFile = (Box<[u8]>, Option<Stamp>);

/// A path, and what is there.
pub(super) struct FilePage {
    /// At least one; the original first.
    forms: Box<[Form]>,
    /// Everything that was looked at to make it: if that is the same, so is the page.
    pub(super) seen: Box<[SeenFile]>,
    /// It was changed so shortly before it was read that the file system might have no other stamp for a change
    /// right after that.
    pub(super) is_young: bool,
    /// When `seen` was last found to be so, in milliseconds of `clock`: what was there, and what was not.
    checked: AtomicU64,
    checked_missing: AtomicU64,
}

impl FilePage {
    pub(super) fn new(forms: Vec<Form>, seen: Vec<SeenFile>, is_young: bool, now: Duration) -> FilePage {
        assert!(!forms.is_empty(), "a page is made of a file");
        let now = now.as_millis() as u64;
        FilePage {
            forms: forms.into(),
            seen: seen.into(),
            is_young,
            checked: AtomicU64::new(now),
            checked_missing: AtomicU64::new(now),
        }
    }

    /// It was compared with what is there; `missing`: also with what is not.
    pub(super) fn note_checked(&self, now: Duration, missing: bool) {
        // Nothing is published by it: what was checked has not changed.
        self.checked.store(now.as_millis() as u64, Ordering::Relaxed);
        if missing {
            self.checked_missing.store(now.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// How long ago it was compared with what is there.
    pub(super) fn age(&self, now: Duration) -> Duration {
        Duration::from_millis((now.as_millis() as u64).saturating_sub(self.checked.load(Ordering::Relaxed)))
    }

    /// How long ago it was looked for what was not there.
    pub(super) fn age_of_missing(&self, now: Duration) -> Duration {
        Duration::from_millis(
            (now.as_millis() as u64).saturating_sub(self.checked_missing.load(Ordering::Relaxed)),
        )
    }

    /// The form that a client likes best.
    pub(super) fn form(&self, accept_encoding: impl FnOnce() -> Taken) -> &Form {
        let plain = &self.forms[0];
        if self.forms.len() == 1 {
            return plain;
        }
        let taken = accept_encoding();
        let liked = |form: &Form| form.coding.map_or_else(|| taken.plain(), |coding| taken.coding(coding));
        let best = self.forms.iter().filter(|form| liked(form) > 0);
        // A client that accepts none of the forms gets the plain one, and can still reject it.
        best.min_by_key(|form| (std::cmp::Reverse(liked(form)), form.len)).unwrap_or(plain)
    }

    /// Whether its bytes are in memory, and not read in pieces while they are sent.
    pub(super) fn is_in_memory(&self) -> bool {
        self.forms[0].is_in_memory() // WEIGHED-WHOLE
    }

    /// How many forms it has.
    pub(super) fn forms(&self) -> usize {
        self.forms.len()
    }

    /// How much memory it takes, more or less.
    pub(super) fn weight(&self) -> u64 {
        const FORM: u64 = 1 << 10; // headers, tables, counts
        let bytes = |form: &Form| FORM + if form.is_in_memory() { form.len } else { 0 };
        let names: usize = self.seen.iter().map(|(name, _)| name.len() + size_of::<SeenFile>()).sum();
        self.forms.iter().map(bytes).sum::<u64>() + names as u64
    }
}
