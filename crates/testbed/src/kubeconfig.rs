//! Kubeconfig files with everything in them, so that one file is all that a client needs.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::pki::Identity;

/// Writes a kubeconfig of one context, which has the member's name.
pub(crate) fn write(path: &Path, name: &str, server: &str, ca_pem: &str, identity: &Identity) {
    let (ca, cert, key) =
        (STANDARD.encode(ca_pem), STANDARD.encode(&identity.cert_pem), STANDARD.encode(&identity.key_pem));
    let text = format!(
        "apiVersion: v1
kind: Config
current-context: {name}
clusters:
  - name: {name}
    cluster: {{server: '{server}', certificate-authority-data: {ca}}}
users:
  - name: {name}
    user: {{client-certificate-data: {cert}, client-key-data: {key}}}
contexts:
  - name: {name}
    context: {{cluster: {name}, user: {name}}}
"
    );
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
