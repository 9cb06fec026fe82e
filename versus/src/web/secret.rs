//! TLS for servers and the load: a certificate that is made for a run, and one cipher for all.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::contest::Failure;

/// The host name in the certificate.
pub(crate) const HOST: &str = "localhost";

/// Where a certificate is below the folder of a case, and its key.
pub(crate) fn paths(folder: &Path) -> [PathBuf; 2] {
    ["certificate.pem", "key.pem"].map(|name| folder.join(name))
}

/// Makes both.
pub(crate) fn make(folder: &Path) -> Result<(), Failure> {
    let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).map_err(|error| error.to_string())?;
    let texts = [made.cert.pem(), made.signing_key.serialize_pem()];
    for (path, text) in paths(folder).iter().zip(texts) {
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// rustls with its default provider, and with nothing but one cipher of TLS 1.3, the same for all sides.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384];
    Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() })
}

/// For a server on rustls.
pub(crate) fn of_server(folder: &Path) -> Result<Arc<ServerConfig>, Failure> {
    let [certificate, key] = paths(folder);
    let certificates = vec![read_certificate(&certificate)?];
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| format!("{}: {error}", key.display()))?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|config| config.with_no_client_auth().with_single_cert(certificates, key));
    config.map(Arc::new).map_err(|error| error.to_string())
}

/// For the load.
pub(crate) fn of_client(folder: &Path) -> Result<Arc<ClientConfig>, Failure> {
    let [certificate, _] = paths(folder);
    let mut roots = RootCertStore::empty();
    roots.add(read_certificate(&certificate)?).map_err(|error| error.to_string())?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn read_certificate(path: &Path) -> Result<CertificateDer<'static>, Failure> {
    CertificateDer::from_pem_file(path).map_err(|error| format!("{}: {error}", path.display()))
}
