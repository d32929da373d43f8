//! Servers of databases, by what an operator says of them.

use std::{fmt, str::FromStr, sync::Arc};

use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio_postgres::{Config, config::Host};

#[cfg(feature = "mysql")]
use crate::mysql::{self, MysqlTls};
use crate::{
    backend::{Keeper, Link, RemoteError, application},
    error::{SqlError, why},
    postgres,
};

/// A database on a server, and how it is reached. Cheap to clone.
#[derive(Clone)]
pub struct Server(Engine);

#[derive(Clone)]
enum Engine {
    Postgres(Arc<(Config, ClientConfig)>),
    #[cfg(feature = "mysql")]
    Mysql(Arc<mysql::Target>),
}

/// How a schema of a database is reached, for who holds a connection of its own.
#[derive(Clone)]
pub enum Dialer {
    /// Of PostgreSQL.
    Postgres(Box<postgres::Dialer>),
    /// A group of tables of MySQL.
    #[cfg(feature = "mysql")]
    Mysql(mysql::Dialer),
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl Server {
    /// A database of PostgreSQL. `url` is a connection string of libpq; `tls` is used if the server has TLS and `sslmode` does not
    /// forbid it.
    ///
    /// Errors: the URL says nothing that can be reached.
    pub fn postgres(url: &str, tls: ClientConfig) -> Result<Self, RemoteError> {
        let config = Config::from_str(url).map_err(|error| {
            let why = why(&error);
            RemoteError::Url(format!(
                "it is no connection string of PostgreSQL ({why}); write postgres://USER:PASSWORD@HOST:5432/DATABASE"
            ))
        })?;
        Ok(Self(Engine::Postgres(Arc::new((config, tls)))))
    }

    /// A database of MySQL or MariaDB, as [`mysql::Target::new`] reads its URL.
    ///
    /// Errors: the URL says nothing that can be reached.
    #[cfg(feature = "mysql")]
    pub fn mysql(url: &str, tls: MysqlTls) -> Result<Self, RemoteError> {
        let target = mysql::Target::new(url, tls).map_err(|error| RemoteError::Url(error.to_string()))?;
        Ok(Self(Engine::Mysql(Arc::new(target))))
    }

    /// What it is called.
    pub fn engine(&self) -> &'static str {
        match self.0 {
            Engine::Postgres(_) => "PostgreSQL",
            #[cfg(feature = "mysql")]
            Engine::Mysql(_) => "MySQL",
        }
    }

    /// The migrations in its words.
    #[cfg_attr(not(feature = "mysql"), allow(unused_variables, reason = "MySQL's alone"))]
    pub(crate) fn migrations<'a>(&self, postgres: &'a [&'a str], mysql: &'a [&'a str]) -> &'a [&'a str] {
        match self.0 {
            Engine::Postgres(_) => postgres,
            #[cfg(feature = "mysql")]
            Engine::Mysql(_) => mysql,
        }
    }

    /// The tables that statements make, where their names have to be changed.
    #[cfg_attr(not(feature = "mysql"), allow(unused_variables, reason = "MySQL's alone"))]
    pub(crate) fn tables_of(&self, migrations: &[&str]) -> Vec<String> {
        match self.0 {
            Engine::Postgres(_) => Vec::new(),
            #[cfg(feature = "mysql")]
            Engine::Mysql(_) => mysql::tables_of(migrations),
        }
    }

    /// Says whether definitions of tables are part of a transaction.
    pub(crate) fn is_transactional(&self) -> bool {
        matches!(self.0, Engine::Postgres(_))
    }

    /// As a log may say it: without user, password and parameters.
    pub fn place(&self) -> String {
        match &self.0 {
            Engine::Postgres(of) => place_of(&of.0),
            #[cfg(feature = "mysql")]
            Engine::Mysql(target) => target.place(),
        }
    }

    /// The same, for the connections of an epoch's process, which the next one ends.
    pub(crate) fn of_epoch(&self, epoch: i64) -> Self {
        Self(match &self.0 {
            Engine::Postgres(of) => {
                let (mut config, tls) = (**of).clone();
                config.application_name(application(epoch));
                Engine::Postgres(Arc::new((config, tls)))
            }
            #[cfg(feature = "mysql")]
            Engine::Mysql(target) => Engine::Mysql(Arc::new(target.of_epoch(epoch))),
        })
    }

    /// Connects, for the tables that say who has the database. Called where a runtime is.
    pub(crate) async fn keeper(&self) -> Result<Box<dyn Keeper>, SqlError> {
        match &self.0 {
            Engine::Postgres(of) => postgres::keeper(&of.0, &of.1).await,
            #[cfg(feature = "mysql")]
            Engine::Mysql(target) => mysql::keeper(target).await,
        }
    }

    /// Connections to a schema.
    pub(crate) fn dialer(&self, schema: &str, runtime: Handle) -> Dialer {
        match &self.0 {
            Engine::Postgres(of) => {
                let (config, tls) = (**of).clone();
                Dialer::Postgres(Box::new(postgres::Dialer::of(config, tls, schema, runtime)))
            }
            #[cfg(feature = "mysql")]
            Engine::Mysql(target) => Dialer::Mysql(mysql::Dialer::new(Arc::clone(target), runtime).of_schema(schema)),
        }
    }
}

impl Dialer {
    /// Connects. `tables` are those of the schema.
    ///
    /// Blocks. Errors: nobody listens, or the server refuses.
    #[cfg_attr(not(feature = "mysql"), allow(unused_variables, reason = "MySQL's alone"))]
    pub(crate) fn link(&self, tables: &[String]) -> Result<Box<dyn Link>, SqlError> {
        match self {
            Self::Postgres(dialer) => Ok(Box::new(dialer.connect()?)),
            #[cfg(feature = "mysql")]
            Self::Mysql(dialer) => Ok(Box::new(dialer.tables(tables)?)),
        }
    }
}

/// A database of PostgreSQL as a log may say it.
fn place_of(config: &Config) -> String {
    let host = config.get_hosts().first().map_or_else(String::new, |host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let port = config.get_ports().first().map(|port| format!(":{port}")).unwrap_or_default();
    format!("postgres://{host}{port}/{}", config.get_dbname().or_else(|| config.get_user()).unwrap_or_default())
}
