//! A certificate that is made for a test, and a client that believes it.

use std::sync::Arc;

use futures_rustls::rustls::crypto::aws_lc_rs;
use futures_rustls::rustls::{ClientConfig, RootCertStore};

pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) client: ClientConfig,
}

pub(crate) fn identity() -> Identity {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Identity { certificate: made.cert.pem(), key: made.signing_key.serialize_pem(), client }
}
