//! `kubefold apiserver`: an API server of its own, without members.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::{
    app::apiserver::{self, ClientIdentity, Options, StorageSource, StorageTls, StorageUrl, UrlError},
    cli::serving::ServingFlags,
};
use kubefold_apiserver::{BuiltIn, server::Authorization};

#[derive(Debug, clap::Args)]
pub(super) struct ApiServer {
    /// Where objects are stored: sqlite:DIR, postgres://USER@HOST/DATABASE, etcd://HOST, or memory:. Default: SQLite in the state
    /// directory.
    #[arg(long, value_name = "URL", value_parser = url)]
    storage: Option<StorageUrl>,
    /// A file with that URL, for one with a password, which other users of the machine see in a command line.
    #[arg(long, value_name = "FILE", conflicts_with = "storage")]
    storage_url_file: Option<PathBuf>,
    #[command(flatten)]
    tls: StorageTlsFlags,
    /// Which of Kubernetes' own kinds are served. Custom resource definitions add others, at any time.
    #[arg(long, value_enum, default_value_t = Kinds::Basic)]
    kinds: Kinds,
    /// Who may do what. `always-allow`: everyone who logs in may do everything.
    #[arg(long, value_enum, default_value_t = Mode::Rbac)]
    authorization: Mode,
    #[command(flatten)]
    serving: ServingFlags,
}

/// How a storage with TLS is believed, and what is shown to it.
#[derive(Debug, clap::Args)]
struct StorageTlsFlags {
    /// The authority of the database's certificate (PEM). Default: the authorities that this machine trusts.
    #[arg(long, value_name = "FILE")]
    storage_ca_file: Option<PathBuf>,
    /// The certificate by which this server logs in to the database (PEM chain).
    #[arg(long, value_name = "FILE", requires = "storage_key_file")]
    storage_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "storage_cert_file")]
    storage_key_file: Option<PathBuf>,
}

impl StorageTlsFlags {
    fn options(self) -> StorageTls {
        let identity = self.storage_cert_file.zip(self.storage_key_file);
        let identity = identity.map(|(certificate, key)| ClientIdentity { certificate, key });
        StorageTls { authority: self.storage_ca_file, identity }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kinds {
    /// Namespaces, ConfigMaps, Secrets, ServiceAccounts, Events, Leases, RBAC, access reviews, custom resource definitions
    Basic,
    /// Also all others, as data: no controller runs, and webhooks and API services are not called
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Roles and bindings, as in Kubernetes
    Rbac,
    /// Everything
    AlwaysAllow,
}

pub(super) fn run(flags: ApiServer) -> anyhow::Result<()> {
    flags.serving.start_log();
    let source = match (flags.storage, flags.storage_url_file) {
        (_, Some(file)) => StorageSource::File(file),
        (Some(url), None) => StorageSource::Url(url),
        (None, None) => StorageSource::default(),
    };
    let options = Options {
        storage: source,
        storage_tls: flags.tls.options(),
        kinds: match flags.kinds {
            Kinds::Basic => BuiltIn::Basic,
            Kinds::All => BuiltIn::All,
        },
        authorization: match flags.authorization {
            Mode::Rbac => Authorization::Rbac,
            Mode::AlwaysAllow => Authorization::Everything,
        },
        serving: flags.serving.options(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(apiserver::run(options))
}

fn url(text: &str) -> Result<StorageUrl, UrlError> {
    text.parse()
}
