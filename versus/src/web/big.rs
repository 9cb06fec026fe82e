//! One big file, served over TLS.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;

use http_body_util::Full;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};

use super::files::{ROOT, TYPE, WORK};
use super::folder::Folder;
use super::secret;
use super::server::{Handler, Reply};
use crate::contest::Failure;

/// The path of the file.
pub(crate) const PATH: &str = "/big.txt";

/// How long it is; in a smoke test a twentieth of that.
pub(crate) const LENGTH: usize = 200_000_000;

/// The folder of the case, made once: the file, a certificate and its key.
#[derive(Default)]
pub(crate) struct Made(OnceLock<Result<Folder, Failure>>);

impl Made {
    /// Its path.
    pub(crate) fn folder(&self, quick: bool) -> Result<&Path, Failure> {
        let length = if quick { LENGTH / 20 } else { LENGTH };
        self.0.get_or_init(|| make(length)).as_ref().map(Folder::path).map_err(Clone::clone)
    }
}

fn make(length: usize) -> Result<Folder, Failure> {
    Folder::filled(&format!("tls-{length}"), |folder| {
        let failed = |error| format!("{}: {error}", folder.display());
        let root = folder.join(ROOT);
        fs::create_dir(&root).map_err(failed)?;
        fs::create_dir(folder.join(WORK)).map_err(failed)?;
        fs::write(root.join(&PATH[1..]), contents(length)).map_err(failed)?;
        secret::make(folder)
    })
}

/// The content of the file: bytes that are not all the same.
fn contents(length: usize) -> Vec<u8> {
    (0..length).map(byte).collect()
}

fn byte(index: usize) -> u8 {
    (index ^ (index >> 8) ^ (index >> 16)) as u8
}

/// Whether that is what is in it.
pub(crate) fn is_right(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(index, &found)| found == byte(index))
}

/// It, in memory.
pub(crate) struct Big(Bytes);

impl Big {
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(ROOT).join(&PATH[1..]);
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(bytes.into()))
    }
}

impl Handler for Big {
    async fn answer(&'static self, _: Request<Incoming>) -> Reply {
        let mut reply = Reply::new(Full::new(self.0.clone()));
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TYPE));
        reply
    }
}

/// hyper on tokio-rustls, until the process is ended.
pub(crate) async fn serve_tokio(folder: &Path) -> Result<(), Failure> {
    use hyper_util::rt::TokioIo;
    use tokio_rustls::TlsAcceptor;

    use crate::served::answer;
    use crate::sides::net::{Net, OfTokio};

    let big: &'static Big = Box::leak(Box::new(Big::read(folder)?));
    let acceptor = TlsAcceptor::from(Arc::clone(&secret::of_server(folder)?));
    let (mut listener, address) = OfTokio::bind().await;
    answer(address);
    loop {
        let stream = OfTokio::accept(&mut listener).await;
        OfTokio::set_nodelay(&stream);
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A client that goes away is no failure.
            if let Ok(stream) = acceptor.accept(stream).await {
                let service = super::server::service(big);
                let connection = hyper::server::conn::http1::Builder::new();
                drop(connection.serve_connection(TokioIo::new(stream), service).await);
            }
        });
    }
}
