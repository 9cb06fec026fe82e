//! A folder to serve in a test, and requests to its service without a socket.
#![allow(dead_code, reason = "no test uses all of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use dapple_http::files::{FileBody, FileService, files};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tower_service::Service;

/// A folder that is removed at the end.
pub(crate) struct Site(PathBuf);

impl Site {
    /// A folder with these files. They are an hour old.
    pub(crate) fn new<B: AsRef<[u8]>>(files: &[(&str, B)]) -> Site {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("dapple-site-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let site = Site(std::env::temp_dir().join(name));
        fs::create_dir_all(site.path()).unwrap();
        for (name, content) in files {
            site.write(name, content);
        }
        site
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that is an hour old.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        self.age(name, Duration::from_secs(3600));
    }

    /// Makes a file so old.
    pub(crate) fn age(&self, name: &str, age: Duration) {
        let file = fs::File::options().write(true).open(self.at(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    pub(crate) fn files(&self) -> FileService {
        files(self.path()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An answer, with all of its body.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The size hint of the body before it was read.
    pub(crate) hint: Option<u64>,
}

impl Got {
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        match self.headers.get(name) {
            Some(value) => value.to_str().unwrap(),
            None => panic!("no {name} in {self:?}"),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }
}

/// The answer before its body is read.
pub(crate) async fn begin(
    files: &FileService,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Response<FileBody> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    files.clone().call(request.body(()).unwrap()).await.unwrap()
}

pub(crate) async fn ask(files: &FileService, method: &str, path: &str, headers: &[(&str, &str)]) -> Got {
    let (parts, body) = begin(files, method, path, headers).await.into_parts();
    let hint = http_body::Body::size_hint(&body).exact();
    let body = body.collect().await.unwrap().to_bytes();
    assert_eq!(hint, Some(body.len() as u64), "the body is as long as it says");
    Got { status: parts.status, headers: parts.headers, body, hint }
}

pub(crate) async fn get(files: &FileService, path: &str) -> Got {
    ask(files, "GET", path, &[]).await
}
