//! `kubefold apiserver`: an API server of its own, without members.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::{
    app::apiserver::{self, ClientIdentity, Move, Moved, Options, StorageSource, StorageTls, StorageUrl, UrlError},
    cli::{help, print, serving::ServingFlags},
};
use kubefold_apiserver::{BuiltIn, server::Authorization};

/// The subcommand.
const MIGRATE: &str = "migrate";

#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    /// Where objects are stored: sqlite:DIR, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, etcd://HOST, or memory:.
    /// Default: SQLite in the state directory.
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

/// Serves, or does something else with a storage.
#[derive(Debug)]
pub(super) enum ApiServer {
    Serve(Box<Serve>),
    Migrate(Box<Migrate>),
}

/// By hand: what is required to serve is not where there is a subcommand.
impl clap::Args for ApiServer {
    fn augment_args(command: clap::Command) -> clap::Command {
        let migrate = clap::Command::new(MIGRATE)
            .about("Move all objects from one storage to another, while no server serves either. The first keeps them")
            .after_help(help::MIGRATE);
        Serve::augment_args(command)
            .subcommand(Migrate::augment_args(migrate))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ApiServer {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        Ok(match matches.subcommand_matches(MIGRATE) {
            Some(matches) => Self::Migrate(Box::new(Migrate::from_arg_matches(matches)?)),
            None => Self::Serve(Box::new(Serve::from_arg_matches(matches)?)),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Migrate {
    /// Where the objects are: sqlite:DIR, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, or etcd://HOST.
    #[arg(long, value_name = "URL", value_parser = url, required_unless_present = "from_url_file")]
    from: Option<StorageUrl>,
    /// A file with that URL.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    from_url_file: Option<PathBuf>,
    /// The authority of its certificate (PEM).
    #[arg(long, value_name = "FILE")]
    from_ca_file: Option<PathBuf>,
    /// The certificate by which to log in to it (PEM chain).
    #[arg(long, value_name = "FILE", requires = "from_key_file")]
    from_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "from_cert_file")]
    from_key_file: Option<PathBuf>,
    /// Where they go: a storage without objects, or the one of the same move, which was interrupted.
    #[arg(long, value_name = "URL", value_parser = url, required_unless_present = "to_url_file")]
    to: Option<StorageUrl>,
    /// A file with that URL.
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    to_url_file: Option<PathBuf>,
    /// The authority of its certificate (PEM).
    #[arg(long, value_name = "FILE")]
    to_ca_file: Option<PathBuf>,
    /// The certificate by which to log in to it (PEM chain).
    #[arg(long, value_name = "FILE", requires = "to_key_file")]
    to_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "to_cert_file")]
    to_key_file: Option<PathBuf>,
}

impl Migrate {
    fn run(self) -> anyhow::Result<()> {
        let options = Move {
            from: source(self.from, self.from_url_file),
            from_tls: tls(self.from_ca_file, self.from_cert_file, self.from_key_file),
            to: source(self.to, self.to_url_file),
            to_tls: tls(self.to_ca_file, self.to_cert_file, self.to_key_file),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let Moved { objects, sha256 } = runtime.block_on(apiserver::migrate(&options))?;
        print(&format!("{objects} objects are in both storages, with the SHA-256 {sha256}\n"))
    }
}

fn source(url: Option<StorageUrl>, file: Option<PathBuf>) -> StorageSource {
    match (url, file) {
        (_, Some(file)) => StorageSource::File(file),
        (Some(url), None) => StorageSource::Url(url),
        (None, None) => StorageSource::default(),
    }
}

fn tls(authority: Option<PathBuf>, certificate: Option<PathBuf>, key: Option<PathBuf>) -> StorageTls {
    let identity = certificate.zip(key).map(|(certificate, key)| ClientIdentity { certificate, key });
    StorageTls { authority, identity }
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
        tls(self.storage_ca_file, self.storage_cert_file, self.storage_key_file)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kinds {
    /// Namespaces, ConfigMaps, Secrets, ServiceAccounts, Events, Leases, RBAC, access reviews, custom resource definitions
    Basic,
    /// Also all others, as data: no controller runs, and API services are not called
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
    let flags = match flags {
        ApiServer::Serve(flags) => *flags,
        ApiServer::Migrate(flags) => return flags.run(),
    };
    flags.serving.start_log();
    let options = Options {
        storage: source(flags.storage, flags.storage_url_file),
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
