//! The service: its settings, and the way from a request to an answer.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};

use super::body::FileBody;
use super::path::{self, PathRefusal};
use super::root::Root;
use super::settings::{FileFailure, FileSettings, InvalidRule, Rule};
use super::stats::FileStats;
use super::store::{PageLookup, PageStore, Problem};
use super::{answer, listing};

/// Serves the files of a folder.
///
/// The folder is opened at once, by a call that may block for a moment. Its settings are methods of [`FileService`].
///
/// # Errors
///
/// If it is not a folder, or may not be opened; the error names it.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("dapple-files-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # std::fs::write(folder.join("hello.txt"), "Hello.\n")?;
/// use dapple_http::files::files;
/// use http::Request;
/// use http_body_util::BodyExt;
/// use tower_service::Service;
///
/// dapple::run(async {
///     let mut site = files(&folder)?;
///     let response = site.call(Request::get("/hello.txt").body(()).unwrap()).await.unwrap();
///     assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
///     assert_eq!(response.into_body().collect().await?.to_bytes(), "Hello.\n");
/// #   std::fs::remove_dir_all(&folder)?;
///     Ok(())
/// })
/// # }
/// ```
pub fn files(folder: impl AsRef<Path>) -> io::Result<FileService> {
    let folder = folder.as_ref();
    let explain = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot serve the folder {}: {error}", folder.display()))
    };
    let root = Root::new(folder).map_err(explain)?;
    Ok(FileService { store: Arc::new(PageStore::new(&root, FileSettings::default())) })
}

/// A service that answers with the files of a folder; made by [`files`].
///
/// It is a [`tower_service::Service`] for requests with any body, so that it can be given to a server as it is, or
/// be part of an axum `Router` (`fallback_service`, `nest_service`). Clones share everything. It must be used inside
/// of a Dapple runtime.
///
/// # What it answers
///
/// * **Methods**: `GET`, `HEAD` and `OPTIONS`. Others get a 405.
/// * **Folders**: the index is sent, by default `index.html`. A path without a slash at its end is redirected to the one
///   with it.
/// * **Conditional requests and ranges** (RFC 9110): responses have a strong `ETag` and `Last-Modified`. A request for more
///   than 16 ranges, or for ranges that overlap, gets the whole file.
/// * **Compression**: a precompressed version beside the file (`.br`, `.zst`, `.gz`) is sent to clients that accept it, if
///   it is smaller than the file and not older.
/// * **Types**: by the name's ending. A text of up to 1 MiB has `charset=utf-8` if all of its bytes are UTF-8.
///
/// # What it does not serve
///
/// * Anything outside of the folder. The kernel resolves each path inside of it, so a race cannot lead out; see
///   [`symlinks`](Self::symlinks).
/// * Names that begin with a dot, except `.well-known`; see [`hidden`](Self::hidden).
/// * Anything other than regular files: no FIFO or device is ever opened.
///
/// # Memory
///
/// Small files are cached, up to [`cache_size`](Self::cache_size) bytes in all. A cached file is compared with the file
/// system [once a second](Self::recheck), and served without a system call in between. If a thousand clients ask for one
/// file that is not cached, it is read once. Large files are sent in pieces; only their descriptors are kept.
///
/// # Files that change
///
/// A file that grows while it is being sent, such as a log, is sent up to the announced length. If it becomes shorter, or is
/// changed in place at the same size, the connection is cut, so that the client sees that the file is incomplete. A file
/// that is replaced by renaming another over it, or removed, is sent to its end. A file that is overwritten by longer
/// content, as `cp` does, can look as if it had grown: then the client gets bytes of both. So publish by renaming.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir();
/// let site = dapple_http::files::files(folder)?
///     .cache_size(256 << 20)
///     .listings(true)
///     .cache_control("/assets/", "public, max-age=31536000, immutable")?
///     .cache_control("*", "no-cache")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FileService {
    store: Arc<PageStore>,
}

impl FileService {
    /// The service with a changed setting. Its cache is empty.
    fn set(self, set: impl FnOnce(&mut FileSettings)) -> FileService {
        let mut settings = self.store.settings.clone();
        set(&mut settings);
        FileService { store: Arc::new(PageStore::new(&self.store.root, settings)) }
    }

    /// Size of the cache for files, in bytes. 64 MiB by default; 0 switches the cache off.
    #[must_use]
    pub fn cache_size(self, bytes: u64) -> FileService {
        self.set(|settings| settings.cache_size = bytes)
    }

    /// Size of the largest file that is cached, in bytes. 1 MiB by default, and at most half of
    /// [`cache_size`](Self::cache_size). Larger files are read from disk for each request, in pieces.
    #[must_use]
    pub fn largest_cached(self, bytes: u64) -> FileService {
        self.set(|settings| settings.largest_cached = bytes)
    }

    /// Maximum number of large files that are kept open between requests, precompressed versions included. 256 by
    /// default. A file that is not asked for is closed after a minute.
    #[must_use]
    pub fn open_files(self, files: usize) -> FileService {
        self.set(|settings| settings.open_files = files)
    }

    /// Time for which a cached file is served without checking the file system. One second by default; zero checks at
    /// each request. The absence of a precompressed version or an index is checked again only after ten times as
    /// long.
    #[must_use]
    pub fn recheck(self, interval: Duration) -> FileService {
        self.set(|settings| settings.recheck = interval)
    }

    /// Names of the index files, which are served for their folder. The first that exists is used. Only `index.html`
    /// by default.
    #[must_use]
    pub fn indexes<S: AsRef<str>>(self, names: impl IntoIterator<Item = S>) -> FileService {
        let is_name = |name: &&str| !matches!(*name, "" | "." | "..") && !name.contains(['/', '\0']);
        let names: Vec<_> = names.into_iter().collect();
        let names = names.iter().map(S::as_ref).filter(is_name).map(Into::into).collect();
        self.set(|settings| settings.indexes = names)
    }

    /// Lists the files of folders without an index. Off by default: such folders are answered with 404.
    ///
    /// A listing has up to 10,000 files and folders that can be requested, and the targets of links. Folders come
    /// first, sorted by name, or as `?sort=size`, `?sort=modified` and `&order=desc` ask. It is made once for all
    /// clients that wait for it, and cached like a file ([`recheck`](Self::recheck)). A folder in which no name has
    /// changed is read again only after ten times as long, so sizes may be out of date by that much. Few listings are
    /// made at once, so that other requests are not held up.
    #[must_use]
    pub fn listings(self, list: bool) -> FileService {
        self.set(|settings| settings.listings = list)
    }

    /// Serves hidden files: names that begin with a dot. Off by default except for `.well-known`, since such files
    /// are often private (`.git`, `.env`).
    #[must_use]
    pub fn hidden(self, serve: bool) -> FileService {
        self.set(|settings| settings.hidden = serve)
    }

    /// Follows symbolic links that stay inside of the folder. On by default; links that lead out are never followed.
    ///
    /// An absolute link is followed if its text begins with the path of the folder, as it was given to [`files`] or
    /// with its own links resolved. A link that comes back into the folder in another way is not followed.
    #[must_use]
    pub fn symlinks(self, follow: bool) -> FileService {
        self.set(|settings| settings.symlinks = follow)
    }

    /// Sends precompressed versions that lie beside a file (`style.css.br`, `style.css.zst`, `style.css.gz`) to
    /// clients that accept them. On by default. Nothing is compressed on the fly.
    #[must_use]
    pub fn precompressed(self, look: bool) -> FileService {
        self.set(|settings| settings.precompressed = look)
    }

    /// Adds a `Cache-Control` header to the responses for matching files. Of several rules that match, the first is
    /// used.
    ///
    /// | pattern | which files |
    /// |---|---|
    /// | `*` | all |
    /// | `*.css` | those whose name ends with `.css` |
    /// | `/assets/` | those in that folder, and in the folders there |
    /// | `/index.html` | that one |
    ///
    /// # Errors
    ///
    /// If the pattern is none of these, or the value cannot be one of a header.
    pub fn cache_control(self, pattern: &str, value: &str) -> Result<FileService, InvalidRule> {
        let rule = Rule::parse(pattern, value)?;
        Ok(self.set(|settings| settings.cache_rules.push(rule)))
    }

    /// Path of the file that is sent with status 404 for paths that do not exist, such as `404.html`, relative to the
    /// folder. By default a line of text is sent.
    #[must_use]
    pub fn not_found(self, file: &str) -> FileService {
        let file = file.trim_start_matches('/').as_bytes().into();
        self.set(|settings| settings.not_found = Some(file))
    }

    /// Path of the file that is sent with status 200 for paths that do not exist and have no dot in their last part,
    /// such as `index.html`, relative to the folder. For single-page applications, which interpret the path
    /// themselves. Off by default.
    #[must_use]
    pub fn single_page(self, file: &str) -> FileService {
        let file = file.trim_start_matches('/').as_bytes().into();
        self.set(|settings| settings.single_page = Some(file))
    }

    /// HTML page that is sent with status 404 for a folder without an index and without a listing, if there is
    /// neither a [`single_page`](Self::single_page) nor a [`not_found`](Self::not_found) page. By default a line of
    /// text is sent.
    #[must_use]
    pub fn no_index_page(self, html: impl Into<Bytes>) -> FileService {
        let html = html.into();
        self.set(|settings| settings.no_index = Some(html))
    }

    /// Calls the closure with each file or folder that exists and cannot be served: it may not be read, reading it
    /// fails, or too many files are open. Use it for an error log, since the client gets a status only.
    ///
    /// It is called once for all clients that wait for the same file, on a worker, so it must not block.
    #[must_use]
    pub fn on_failure(self, tell: impl Fn(&FileFailure<'_>) + Send + Sync + 'static) -> FileService {
        self.set(|settings| settings.observer = Some(Arc::new(tell)))
    }

    /// Returns the numbers of hits, misses and reads so far. Clones of the service share them.
    #[must_use]
    pub fn stats(&self) -> FileStats {
        self.store.stats()
    }

    /// Returns the path of the folder that is served, as it was given to [`files`].
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.store.root.path()
    }

    /// Answers a request. A page in the cache is answered at once; only its headers are allocated.
    fn answer(&self, method: &Method, uri: &Uri, headers: &mut HeaderMap) -> Answer {
        if method != Method::GET && method != Method::HEAD {
            let response = if method == Method::OPTIONS { answer::options() } else { answer::not_allowed() };
            return Answer(AnswerState::Ready(Some(response)));
        }
        let path = match path::clean(uri.path(), self.store.settings.hidden) {
            Ok(path) => path,
            Err(refused) => return Answer(AnswerState::Ready(Some(refuse(refused, method)))),
        };
        if let Some(page) = self.store.known(&path) {
            return Answer(AnswerState::Ready(Some(answer::page(&page, method, headers))));
        }
        let (store, method) = (self.store.clone(), method.clone());
        let (path, query) = (path.into_owned(), uri.query().map(str::to_owned));
        let headers = std::mem::take(headers);
        Answer(AnswerState::Looking(Box::pin(async move {
            let mut outcome = store.find(&path).await;
            if let PageLookup::Problem(Problem::Missing | Problem::NoIndex) = outcome
                && let Some((instead, status)) = store.settings.instead_of(&path)
            {
                let page = match store.known(instead) {
                    Some(page) => PageLookup::Page(page),
                    None => store.find(instead).await,
                };
                match page {
                    PageLookup::Page(page) if status == StatusCode::NOT_FOUND => {
                        let response = answer::not_found(&page, &headers);
                        return if method == Method::HEAD {
                            answer::without_body(response)
                        } else {
                            response
                        };
                    }
                    PageLookup::Page(_) => outcome = page,
                    _ => {} // the configured page is missing as well
                }
            }
            let response = match outcome {
                PageLookup::Page(page) => return answer::page(&page, &method, &headers),
                PageLookup::Folder => answer::with_slash(&path, query.as_deref()),
                PageLookup::Listing(folder) => listing::list(&store, folder, &path, query.as_deref()).await,
                PageLookup::Problem(Problem::NoIndex) => answer::no_index(store.settings.no_index.as_ref()),
                PageLookup::Problem(Problem::Missing) => answer::plain(StatusCode::NOT_FOUND),
                PageLookup::Problem(Problem::Forbidden) => answer::plain(StatusCode::FORBIDDEN),
                PageLookup::Problem(Problem::Busy) => answer::busy(),
                PageLookup::Problem(Problem::Failed) => answer::plain(StatusCode::INTERNAL_SERVER_ERROR),
            };
            if method == Method::HEAD { answer::without_body(response) } else { response }
        })))
    }
}

#[cold]
fn refuse(refused: PathRefusal, method: &Method) -> Response<FileBody> {
    let response = answer::plain(match refused {
        PathRefusal::Malformed => StatusCode::BAD_REQUEST,
        PathRefusal::Nowhere => StatusCode::NOT_FOUND,
    });
    if method == Method::HEAD { answer::without_body(response) } else { response }
}

impl fmt::Debug for FileService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileService").field("folder", &self.folder()).finish_non_exhaustive()
    }
}

impl<B> tower_service::Service<Request<B>> for FileService {
    type Response = Response<FileBody>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        let (mut parts, _body) = request.into_parts();
        self.answer(&parts.method, &parts.uri, &mut parts.headers)
    }
}

/// Future of a response of [`FileService`], returned by its `Service::call`. A cached file is ready at the first poll. It
/// does not fail: errors are responses with a status. Dropping it early is **clean**.
///
/// # Examples
///
/// ```
/// use tower_service::Service;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut files = dapple_http::files("/proc/self")?;
///     let request = http::Request::get("/no-such-file").body(()).unwrap();
///     let response = files.call(request).await.unwrap(); // `call` returns an `Answer`
///     assert_eq!(response.status(), 404);
///     Ok(())
/// })
/// # }
/// ```
pub struct Answer(AnswerState);

enum AnswerState {
    Ready(Option<Response<FileBody>>),
    Looking(Pin<Box<dyn Future<Output = Response<FileBody>> + Send>>),
}

impl Future for Answer {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            AnswerState::Ready(response) => Poll::Ready(Ok(response.take().expect("polled after its end"))),
            AnswerState::Looking(looking) => looking.as_mut().poll(cx).map(Ok),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_ready = matches!(self.0, AnswerState::Ready(_));
        f.debug_struct("Answer").field("is_ready", &is_ready).finish_non_exhaustive()
    }
}
