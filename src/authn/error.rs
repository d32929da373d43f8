//! What is wrong with the files that say whose tokens count: the operator's to mend.

use std::path::PathBuf;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum AuthnError {
    #[error("{flag} {}: cannot be read ({source}); check the path and its permissions", .path.display())]
    Unreadable { flag: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{flag}: line {line}: {cause}; write token,user,uid and, if there are any, \"group,group\"")]
    Token { flag: &'static str, line: usize, cause: &'static str },
    #[error("{flag}: it is no AuthenticationConfiguration of apiserver.config.k8s.io/v1 ({})", .source.without_snippet())]
    Form { flag: &'static str, source: Box<serde_saphyr::Error> },
    #[error("{flag}: {field} {cause}")]
    Field { flag: &'static str, field: String, cause: String },
    #[error("{flag} {}: it is no kubeconfig with the webhook's server as its current context ({source})", .path.display())]
    Kubeconfig { flag: &'static str, path: PathBuf, source: Box<kube::config::KubeconfigError> },
    #[error("{flag} {}: a client cannot be made of it ({source})", .path.display())]
    Client { flag: &'static str, path: PathBuf, source: Box<kube::Error> },
    #[error("{flag} {}: the server {url} is not https, and whoever sees a token may use it", .path.display())]
    Plain { flag: &'static str, path: PathBuf, url: String },
}
