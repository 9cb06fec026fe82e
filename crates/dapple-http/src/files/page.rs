//! A cached page: the file at a path in its forms (as it is, and precompressed), each with the headers of its answers
//! ready made, so an answer from the cache builds no text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};

use super::body::StampedFile;
use super::conditional::Validators;
use super::encoding::{Coding, Taken};
use super::root::Stamp;

/// The bytes of a file.
pub(super) enum FileContent {
    /// In memory.
    Memory(Bytes),
    /// In an open file, which is too large for memory.
    File(StampedFile),
}

/// One form of a file.
pub(super) struct Form {
    pub(super) coding: Option<Coding>,
    pub(super) content: FileContent,
    pub(super) len: u64,
    etag: HeaderValue,
    modified: SystemTime,
    /// Headers of an answer with the whole file.
    headers: HeaderMap,
}

/// The values, besides its stamp, that the headers of a form are made from.
pub(super) struct Traits {
    pub(super) content_type: HeaderValue,
    pub(super) cache_control: Option<HeaderValue>,
    /// Whether there are several forms.
    pub(super) varies: bool,
}

impl Form {
    pub(super) fn new(coding: Option<Coding>, content: FileContent, stamp: Stamp, traits: &Traits) -> Form {
        let modified = modified(stamp);
        let etag = etag(stamp);
        let mut headers = HeaderMap::with_capacity(6);
        headers.insert(header::CONTENT_TYPE, traits.content_type.clone());
        headers.insert(header::ETAG, etag.clone());
        // RFC 9110, section 8.8.2.1: not in the future. Such a date may also be too far away to be written.
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

/// `Last-Modified`, in whole seconds. A date before 1970 becomes 1970, and one far in the future is bounded.
fn modified(stamp: Stamp) -> SystemTime {
    const FAR: i64 = 1 << 40;
    SystemTime::UNIX_EPOCH + Duration::from_secs(stamp.modified.0.clamp(0, FAR) as u64)
}

/// A strong tag: files with other bytes have other tags. The time of modification alone is not enough, since it can be
/// set. The tag also has the time of the last change, which cannot be set, and the inode.
fn etag(stamp: Stamp) -> HeaderValue {
    let nanos = |(seconds, nanos): (i64, i64)| {
        (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanos as u64)
    };
    let (modified, changed) = (nanos(stamp.modified), nanos(stamp.changed));
    let identity = changed ^ stamp.inode.rotate_left(32) ^ stamp.device.rotate_left(48);
    let tag = format!("\"{:x}-{modified:x}-{identity:x}\"", stamp.size);
    HeaderValue::try_from(tag).expect("digits and quotes")
}

/// A path where a form of a page could be, and the stamp of the file there, if there is one.
pub(super) type SeenFile = (Box<[u8]>, Option<Stamp>);

/// The file at a path, in all its forms.
pub(super) struct FilePage {
    /// The forms: at least one, the original first.
    forms: Box<[Form]>,
    /// All paths that were looked at to make the page. While they are unchanged, the page is valid.
    pub(super) seen: Box<[SeenFile]>,
    /// Whether the file was changed so shortly before it was read that a change right after that might get the same
    /// stamp.
    pub(super) is_young: bool,
    /// When the files in `seen` were last found unchanged, in milliseconds of `clock`; and when the missing ones were.
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

    /// Notes that the files were compared just now; with `missing`, the missing ones as well.
    pub(super) fn note_checked(&self, now: Duration, missing: bool) {
        // Relaxed: the page has not changed, so nothing is published.
        self.checked.store(now.as_millis() as u64, Ordering::Relaxed);
        if missing {
            self.checked_missing.store(now.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Time since the files were last compared.
    pub(super) fn age(&self, now: Duration) -> Duration {
        Duration::from_millis((now.as_millis() as u64).saturating_sub(self.checked.load(Ordering::Relaxed)))
    }

    /// Time since the missing files were last looked for.
    pub(super) fn age_of_missing(&self, now: Duration) -> Duration {
        Duration::from_millis(
            (now.as_millis() as u64).saturating_sub(self.checked_missing.load(Ordering::Relaxed)),
        )
    }

    /// The form that the client accepts best.
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

    /// Whether the bytes are in memory. If not, they are read in pieces while they are sent.
    pub(super) fn is_in_memory(&self) -> bool {
        self.forms[0].is_in_memory() // WEIGHED-WHOLE
    }

    /// Number of forms.
    pub(super) fn forms(&self) -> usize {
        self.forms.len()
    }

    /// Memory of the page, estimated.
    pub(super) fn weight(&self) -> u64 {
        const FORM: u64 = 1 << 10; // headers, tables, counts
        let bytes = |form: &Form| FORM + if form.is_in_memory() { form.len } else { 0 };
        let names: usize = self.seen.iter().map(|(name, _)| name.len() + size_of::<SeenFile>()).sum();
        self.forms.iter().map(bytes).sum::<u64>() + names as u64
    }
}
