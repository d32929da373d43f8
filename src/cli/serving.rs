//! Flags of both servers, `serve` and `apiserver`: how clients reach them, and who logs in.

use std::{net::SocketAddr, path::PathBuf};

use clap::ValueEnum;
use http::Uri;

use crate::{
    app::ServingOptions,
    cli::{
        audit::AuditFlags,
        authentication::{FrontProxyFlags, TokenFlags},
        https_url, server_name,
    },
    observe::{self, LogFormat},
};

#[derive(Debug, clap::Args)]
pub(super) struct ServingFlags {
    /// The address and port to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6443")]
    pub(super) listen: SocketAddr,
    /// The directory for certificates and other state; only one process can use it.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// The serving certificate (PEM chain). Default: kubefold makes one.
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The key of the serving certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// More authorities whose client certificates kubefold accepts (PEM), beside its own.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    tokens: TokenFlags,
    #[command(flatten)]
    front_proxy: FrontProxyFlags,
    /// One more name or address in the serving certificate that kubefold makes; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    tls_san: Vec<String>,
    /// The URL at which clients reach this kubefold, for the kubeconfig.
    #[arg(long, value_name = "URL", value_parser = https_url)]
    external_url: Option<Uri>,
    /// The format of log lines.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) log_format: Format,
    /// An address for metrics and health without TLS and without a login, such as 127.0.0.1:9090. Default: none.
    #[arg(long, value_name = "ADDR")]
    metrics_listen: Option<SocketAddr>,
    #[command(flatten)]
    audit: AuditFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

impl ServingFlags {
    /// Has log lines as the flags want them.
    pub(super) fn start_log(&self) {
        let format = match self.log_format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        };
        observe::init(format, observe::LEVEL);
    }

    pub(super) fn options(self) -> ServingOptions {
        ServingOptions {
            listen: self.listen,
            state_dir: self.state_dir,
            serving_certificate: self.tls_cert_file.zip(self.tls_key_file),
            client_ca: self.client_ca_file,
            front_proxy: self.front_proxy.front_proxy(),
            tokens: self.tokens.sources(),
            names: self.tls_san,
            external_url: self.external_url,
            audit: self.audit.options(),
            metrics_listen: self.metrics_listen,
            has_replicas: false,
        }
    }
}
