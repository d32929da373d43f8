//! TLS of the server's own certificate.

use std::sync::Arc;

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use kubefold_serving::tls::{Tls, TlsError, TlsFiles};

/// Sets TLS up. Without a client authority no certificate says who asks.
///
/// Errors: certificates that are none, or do not belong together.
pub(super) fn tls(files: &TlsFiles) -> Result<Tls, TlsError> {
    if !files.client_authorities.is_empty() {
        return Tls::new(files);
    }
    let serving = |error: &dyn std::fmt::Display| TlsError::Serving(error.to_string());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(files.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| serving(&error))?;
    if chain.is_empty() {
        return Err(TlsError::Serving("it holds no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(files.key.as_bytes()).map_err(|error| serving(&error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| serving(&error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| serving(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls::without_certificates(Arc::new(config)))
}
