//! Why state in PostgreSQL cannot be used, and which data it is.

use std::io;

use super::standing::Holder;
use crate::error::SqlError;

/// Which data it is: the cluster, its history (a standby that takes over, and a recovery to a point in time, begin a new
/// one), and the table (a dump that is loaded makes another).
pub fn identity_of(table: &str) -> String {
    format!(
        "SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
            (SELECT timeline_id FROM pg_control_checkpoint()), '{table}'::regclass::oid)"
    )
}

/// Why state in PostgreSQL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The URL says nothing that can be reached.
    #[error("it is no connection string of PostgreSQL ({0}); write postgres://USER:PASSWORD@HOST:5432/DATABASE")]
    Url(String),
    /// It cannot be reached, or does not do what it is asked to.
    #[error(
        "the database does not answer as it should: {0}; check that it runs, the host, user, password and database of its URL, and who signed its certificate"
    )]
    Sql(SqlError),
    /// The user may not make what it needs.
    #[error(
        "the user {user} may not make the schema {schema}, or tables in it; run as the owner of the database: {grant}"
    )]
    Rights {
        /// The user of the URL.
        user: String,
        /// The schema.
        schema: String,
        /// The statement that gives the right.
        grant: String,
    },
    /// Another process has it.
    #[error("{0} has this state; stop that process, or give this one another database")]
    InUse(Holder),
    /// There is no thread for it.
    #[error("no thread can be started for the state: {0}")]
    Thread(#[from] io::Error),
}

impl From<SqlError> for PostgresError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}
