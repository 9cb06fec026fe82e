//! TLS by rustls: certificates and keys. The stream of a connection is in `encrypted.rs`.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures_rustls::pki_types::pem::{self, PemObject};
use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer};
use futures_rustls::rustls::{self, ServerConfig, crypto::aws_lc_rs};

use crate::error::Error;

/// A certificate and its key, for [`Serve::tls`](crate::Serve::tls).
///
/// Versions 1.2 and 1.3 of TLS, with HTTP/2 and HTTP/1.1 to choose from (ALPN). Sessions are resumed by tickets.
#[derive(Clone)]
pub struct Tls(pub(crate) Arc<ServerConfig>);

impl Tls {
    /// Reads a chain of certificates, the server's own first, and the private key, from files in the format PEM.
    /// They may be one file.
    ///
    /// The files are read at once, not again: start the server anew for a new certificate.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, has nothing of the kind in it, or the key is not the certificate's. The text says
    /// which file, and what to do.
    ///
    /// # Examples
    ///
    /// ```
    /// let error = dapple_http::Tls::from_files("no/such/cert.pem", "key.pem").unwrap_err();
    /// assert!(error.to_string().starts_with("cannot read the certificate file no/such/cert.pem"));
    /// ```
    pub fn from_files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Tls, Error> {
        let read = |what: &str, path: &Path| {
            std::fs::read(path).map_err(|why| {
                Error::tls(format!("cannot read the {what} file {}: {why}", path.display()), Some(why.into()))
            })
        };
        let (certificate, key) = (certificate.as_ref(), key.as_ref());
        let certificate_pem = read("certificate", certificate)?;
        let key_pem = read("key", key)?;
        let named = |path: &Path| format!("the file {}", path.display());
        build(&certificate_pem, &key_pem, &named(certificate), &named(key))
    }

    /// As [`from_files`](Self::from_files), of what is in memory.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files).
    pub fn from_pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Tls, Error> {
        build(certificate.as_ref(), key.as_ref(), "the certificate", "the key")
    }
}

/// For everything that rustls can do. Set `alpn_protocols`, or only HTTP/1.1 and HTTP/2 with prior knowledge are
/// spoken.
impl From<Arc<ServerConfig>> for Tls {
    fn from(config: Arc<ServerConfig>) -> Tls {
        Tls(config)
    }
}

fn build(certificate: &[u8], key: &[u8], in_certificate: &str, in_key: &str) -> Result<Tls, Error> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>().map_err(|why| {
            Error::tls(format!("{in_certificate} is not in the format PEM: {why}"), Some(why.into()))
        })?;
    if chain.is_empty() {
        let text = format!(
            "{in_certificate} has no certificate in it: it should have a part that begins with \
             -----BEGIN CERTIFICATE-----{}",
            if contains(certificate, b"PRIVATE KEY") { "; this looks like a key" } else { "" }
        );
        return Err(Error::tls(text, None));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| {
        let text = match why {
            _ if contains(key, b"ENCRYPTED") => format!(
                "{in_key} has a key that is encrypted: decrypt it first (openssl pkey -in KEY -out PLAIN)"
            ),
            pem::Error::NoItemsFound => format!(
                "{in_key} has no private key in it: it should have a part that begins with \
                 -----BEGIN PRIVATE KEY-----"
            ),
            ref other => format!("{in_key} is not in the format PEM: {other}"),
        };
        Error::tls(text, Some(why.into()))
    })?;
    let refuse = |why: rustls::Error| {
        let text = match &why {
            rustls::Error::InconsistentKeys(_) => {
                format!("the key in {in_key} is not the one of the certificate in {in_certificate}")
            }
            other => format!("{in_certificate} and {in_key} cannot be used: {other}"),
        };
        Error::tls(text, Some(why.into()))
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refuse)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refuse)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(refuse)?;
    Ok(Tls(Arc::new(config)))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").finish_non_exhaustive()
    }
}
