//! 700 files of 4 KB, and the servers that have them all in memory.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT_RANGES, CONTENT_TYPE, ETAG, HeaderValue, LAST_MODIFIED};
use hyper::{Request, StatusCode};

use super::folder::Folder;
use super::server::{Handler, Reply};
use crate::contest::Failure;
use crate::load::web::Wanted;

/// How many, and how long each is.
pub(crate) const COUNT: usize = 700;
pub(crate) const LENGTH: usize = 4096;

/// The folder of the files below the folder of a case, and the folder for a server's own files.
pub(crate) const ROOT: &str = "root";
pub(crate) const WORK: &str = "work";

/// The headers of all files, on the sides that have them in a map: the same headers that a file server sends.
pub(crate) const TYPE: &str = "text/plain";
pub(crate) const MODIFIED: &str = "Mon, 16 Nov 2026 12:00:00 GMT";

/// The path of a file, as it is asked for.
pub(crate) fn path(number: usize) -> String {
    format!("/{number}.txt")
}

/// The content of a file: its number, and bytes that differ between files.
fn contents(number: usize) -> Vec<u8> {
    let mut contents = first(number).to_vec();
    contents.extend((contents.len()..LENGTH).map(|index| b'a' + ((index + number) % 26) as u8));
    contents
}

fn first(number: usize) -> [u8; 8] {
    let text = format!("{number:08}");
    text.as_bytes().try_into().expect("eight digits")
}

/// The requests of a load.
pub(crate) fn wanted() -> Vec<Wanted> {
    (0..COUNT).map(|number| Wanted::new(&path(number), LENGTH, first(number))).collect()
}

/// The folder of a case, made once for all its contests.
#[derive(Default)]
pub(crate) struct Made(OnceLock<Result<Folder, Failure>>);

impl Made {
    /// Its path.
    pub(crate) fn folder(&self) -> Result<&Path, Failure> {
        let made = self.0.get_or_init(make).as_ref();
        made.map(Folder::path).map_err(Clone::clone)
    }
}

fn make() -> Result<Folder, Failure> {
    Folder::filled(&format!("files-{COUNT}x{LENGTH}"), |folder| {
        let failed = |error| format!("{}: {error}", folder.display());
        let root = folder.join(ROOT);
        fs::create_dir(&root).map_err(failed)?;
        fs::create_dir(folder.join(WORK)).map_err(failed)?;
        (0..COUNT)
            .try_for_each(|number| fs::write(root.join(&path(number)[1..]), contents(number)))
            .map_err(failed)
    })
}

/// All files by path: what a server answers that has read them when it started.
pub(crate) struct Map {
    files: HashMap<String, File>,
    modified: HeaderValue,
}

/// A file in memory.
pub(crate) struct File {
    pub(crate) bytes: Bytes,
    pub(crate) tag: HeaderValue,
}

impl Map {
    /// Reads them all.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let read = |number| {
            let path = path(number);
            let file = root.join(&path[1..]);
            let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            let tag = HeaderValue::from_str(&format!("\"{number:x}-{LENGTH:x}\"")).expect("a tag");
            Ok((path, File { bytes: bytes.into(), tag }))
        };
        let files = (0..COUNT).map(read).collect::<Result<_, Failure>>()?;
        Ok(Self { files, modified: HeaderValue::from_static(MODIFIED) })
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }
}

impl Handler for Map {
    async fn answer(&'static self, request: Request<Incoming>) -> Reply {
        let Some(file) = self.get(request.uri().path()) else {
            let mut reply = Reply::new(Full::default());
            *reply.status_mut() = StatusCode::NOT_FOUND;
            return reply;
        };
        let mut reply = Reply::new(Full::new(file.bytes.clone()));
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(TYPE));
        headers.insert(ETAG, file.tag.clone());
        headers.insert(LAST_MODIFIED, self.modified.clone());
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_with_what_is_in_it() {
        let made = Made::default();
        let map = Map::read(&made.folder().unwrap().join(ROOT)).unwrap();
        for number in 0..COUNT {
            assert_eq!(map.get(&path(number)).unwrap().bytes, contents(number));
        }
        assert!(map.get("/700.txt").is_none());
    }
}
