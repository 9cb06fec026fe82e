//! TLS by rustls: certificates and keys. The stream of a connection is in `encrypted.rs`.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use futures_rustls::pki_types::pem::{self, PemObject};
use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer};
use futures_rustls::rustls::crypto::aws_lc_rs;
use futures_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use futures_rustls::rustls::sign::CertifiedKey;
use futures_rustls::rustls::{self, InconsistentKeys, ServerConfig};

use crate::error::Error;

/// TLS certificate and key, for [`Serve::tls`](crate::Serve::tls). Clones share the certificate.
///
/// Serves TLS 1.2 and 1.3, and HTTP/2 or HTTP/1.1 as the client prefers (ALPN). Sessions are resumed by tickets. The
/// certificate can be renewed while a server runs: see [`renew_from_files`](Self::renew_from_files).
#[derive(Clone)]
pub struct Tls(pub(crate) Arc<ServerConfig>, Option<Arc<CurrentCertificate>>);

/// The certificate that new connections are shown. Its lock is taken once in a handshake.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Tls {
    /// Reads a certificate chain, the server's own certificate first, and the private key, from PEM files. Both may
    /// be in one file.
    ///
    /// The files are read now, by a call that blocks, and again only by [`renew_from_files`](Self::renew_from_files).
    ///
    /// # Errors
    ///
    /// If a file cannot be read, has nothing of the kind in it, or the key is not the certificate's. The text names the
    /// file and the remedy.
    ///
    /// # Examples
    ///
    /// ```
    /// let error = dapple_http::Tls::from_files("no/such/cert.pem", "key.pem").unwrap_err();
    /// assert!(error.to_string().starts_with("cannot read the certificate file no/such/cert.pem"));
    /// ```
    pub fn from_files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Tls, Error> {
        configure(read_files(certificate.as_ref(), key.as_ref())?)
    }

    /// Makes it of a certificate chain, the server's own certificate first, and the private key, from PEM texts in
    /// memory.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files).
    pub fn from_pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Tls, Error> {
        configure(read(certificate.as_ref(), key.as_ref(), "the certificate", "the key")?)
    }

    /// Replaces certificate and key by those in the files, for new connections of every server that was given this
    /// `Tls` or a clone of it. Open connections go on. A client that resumes a session is not shown a certificate.
    ///
    /// The call blocks: from a task, make it in [`dapple::blocking`].
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files). Also if this `Tls` was made from a `ServerConfig`: then the `cert_resolver` of
    /// that configuration chooses the certificate, and has to renew it. After an error the old certificate stays in use.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(tls: dapple_http::Tls) {
    /// if let Err(error) = tls.renew_from_files("cert.pem", "key.pem") {
    ///     eprintln!("the old certificate stays: {error}");
    /// }
    /// # }
    /// ```
    pub fn renew_from_files(
        &self,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<(), Error> {
        let Some(current) = &self.1 else {
            let text = "the certificate of a rustls ServerConfig is renewed by its cert_resolver".to_owned();
            return Err(Error::tls(text, None));
        };
        let renewed = Arc::new(read_files(certificate.as_ref(), key.as_ref())?);
        let old = std::mem::replace(&mut *current.0.write().unwrap_or_else(PoisonError::into_inner), renewed);
        drop(old);
        Ok(())
    }
}

/// For everything that rustls can do. Set `alpn_protocols`, or only HTTP/1.1 and HTTP/2 with prior knowledge are
/// spoken.
impl From<Arc<ServerConfig>> for Tls {
    fn from(config: Arc<ServerConfig>) -> Tls {
        Tls(config, None)
    }
}

fn read_files(certificate: &Path, key: &Path) -> Result<CertifiedKey, Error> {
    let read_file = |what: &str, path: &Path| {
        std::fs::read(path).map_err(|why| {
            Error::tls(format!("cannot read the {what} file {}: {why}", path.display()), Some(why.into()))
        })
    };
    let certificate_pem = read_file("certificate", certificate)?;
    let key_pem = read_file("key", key)?;
    let named = |path: &Path| format!("the file {}", path.display());
    read(&certificate_pem, &key_pem, &named(certificate), &named(key))
}

/// Describes an error in a PEM text in words.
fn describe(why: &pem::Error, place: &str) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_matches('-').to_owned();
    match why {
        pem::Error::MissingSectionEnd { end_marker } => {
            let section = text(end_marker);
            let section = section.trim_start_matches("END ");
            let what = if section.contains("KEY") { "the key" } else { "a certificate" };
            format!(
                "{what} in {place} is cut short: a line -----END {section}----- is missing at its end. \
                 Copy it once more, all of it"
            )
        }
        pem::Error::IllegalSectionStart { line } => format!(
            "{place} is not in the format PEM: the line \"{}\" should be like -----BEGIN CERTIFICATE-----",
            String::from_utf8_lossy(line).trim().escape_debug()
        ),
        pem::Error::Base64Decode(_) => format!(
            "{place} is damaged: between its lines BEGIN and END there is something else than base64. Copy it once more"
        ),
        other => format!("{place} is not in the format PEM: {other}"),
    }
}

/// Reads a certificate and its key, and sees that they belong together. An error blames the one that is wrong.
fn read(certificate: &[u8], key: &[u8], in_certificate: &str, in_key: &str) -> Result<CertifiedKey, Error> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|why| Error::tls(describe(&why, in_certificate), Some(why.into())))?;
    if chain.is_empty() {
        let text = format!(
            "{in_certificate} has no certificate in it: it should have a part that begins with \
             -----BEGIN CERTIFICATE-----{}",
            if contains(certificate, b"PRIVATE KEY") { "; this looks like a key" } else { "" }
        );
        return Err(Error::tls(text, None));
    }
    let is_certificate = contains(key, b"-----BEGIN CERTIFICATE");
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| {
        let text = match &why {
            _ if contains(key, b"ENCRYPTED") => format!(
                "{in_key} has a key that is encrypted: decrypt it first (openssl pkey -in KEY -out PLAIN)"
            ),
            pem::Error::NoItemsFound => format!(
                "{in_key} has no private key in it: it should have a part that begins with \
                 -----BEGIN PRIVATE KEY-----{}",
                if is_certificate { "; this looks like a certificate" } else { "" }
            ),
            other => describe(other, in_key),
        };
        Error::tls(text, Some(why.into()))
    })?;
    let key = aws_lc_rs::default_provider().key_provider.load_private_key(key).map_err(|why| {
        let text = format!(
            "the key in {in_key} cannot be used: it is damaged, or of a kind that is not supported. RSA, ECDSA \
             (P-256, P-384, P-521) and Ed25519 are"
        );
        Error::tls(text, Some(why.into()))
    })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(why @ rustls::Error::InconsistentKeys(_)) => {
            let text = format!(
                "the key in {in_key} is not the one of the certificate in {in_certificate}: use the key that this \
                 certificate was made for; a chain begins with the certificate of the server itself"
            );
            Err(Error::tls(text, Some(why.into())))
        }
        Err(why) => {
            let text = format!("the first certificate in {in_certificate} cannot be read: {why}");
            Err(Error::tls(text, Some(why.into())))
        }
    }
}

fn configure(certified: CertifiedKey) -> Result<Tls, Error> {
    let refuse = |why: rustls::Error| Error::tls(format!("TLS cannot be set up: {why}"), Some(why.into()));
    let current = Arc::new(CurrentCertificate(RwLock::new(Arc::new(certified))));
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refuse)?
        .with_no_client_auth()
        .with_cert_resolver(current.clone());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if cfg!(feature = "http2") {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(refuse)?;
    Ok(Tls(Arc::new(config), Some(current)))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").finish_non_exhaustive()
    }
}
