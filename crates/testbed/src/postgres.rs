//! A PostgreSQL of the system's packages.

use std::{path::Path, process::Command};

use super::database::{DatabaseServer, Engine, printed};

/// PostgreSQL.
pub struct Postgres;

/// A running PostgreSQL.
pub type PostgresServer = DatabaseServer<Postgres>;

impl Engine for Postgres {
    const NAME: &'static str = "postgres";
    const MAKE_JANE: &'static str = "CREATE ROLE jane LOGIN PASSWORD 's3cret'";

    fn sql(server: &PostgresServer, statements: &str) -> String {
        server.sql_in("postgres", statements)
    }
}

impl PostgresServer {
    /// The URL for `jane`, who logs in over TLS with the password `s3cret` and may create tables in the schema `name`. `host` is
    /// a name of 127.0.0.1.
    pub fn tls_url(&self, name: &str, host: &str, password: &str) -> String {
        self.schema(name);
        self.sql(&format!("GRANT ALL ON SCHEMA \"{name}\" TO jane"));
        let port = self.tls_port();
        format!("postgres://jane:{password}@{host}:{port}/postgres?options=-c%20search_path%3D{name}")
    }

    /// How to reach a schema of it, which is made if there is none.
    pub fn schema(&self, name: &str) -> String {
        self.sql(&format!("CREATE SCHEMA IF NOT EXISTS \"{name}\""));
        let folder = self.folder.display();
        format!("host={folder} user=kubefold dbname=postgres options='-c search_path={name}'")
    }

    /// The URL of a schema of it, which is made if there is none.
    pub fn url(&self, name: &str) -> String {
        self.url_through(name, &self.folder)
    }

    /// The same through another folder: a link to that of the server, which a test takes away and brings back.
    pub fn url_through(&self, name: &str, folder: &Path) -> String {
        self.schema(name);
        let host = folder.display().to_string().replace('/', "%2F");
        format!("postgres://kubefold@{host}/postgres?options=-c%20search_path%3D{name}")
    }

    /// The URL of a database of it, which is made if there is none, through a folder: its own, or a link to that.
    pub fn database(&self, name: &str, folder: Option<&Path>) -> String {
        let exists = self.sql(&format!("SELECT 1 FROM pg_database WHERE datname = '{name}'"));
        if exists.is_empty() {
            self.sql(&format!("CREATE DATABASE \"{name}\""));
        }
        let host = folder.unwrap_or(&self.folder).display().to_string().replace('/', "%2F");
        format!("postgres://kubefold@{host}/{name}")
    }

    /// Makes a link to the folder of the server.
    pub fn link(&self, at: &Path) {
        std::os::unix::fs::symlink(&self.folder, at).unwrap();
    }

    /// Ends all connections of clients.
    pub fn cut(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> \
             pg_backend_pid()",
        );
    }

    /// Runs statements as an operator does in another database than `postgres`, and returns what they print.
    pub fn sql_in(&self, database: &str, statements: &str) -> String {
        printed(&mut self.client(database, statements), statements)
    }

    /// What runs statements as an operator does in a database.
    pub fn client(&self, database: &str, statements: &str) -> Command {
        let mut command = Command::new(self.folder.join("psql"));
        command.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--username=kubefold",
            "--dbname",
            database,
        ]);
        command.args(["--set=ON_ERROR_STOP=1", "--host"]).arg(&self.folder).args(["--command", statements]);
        if let Some(port) = &self.port {
            command.env("PGPORT", port.number().to_string());
        }
        command.env("PGOPTIONS", "-c client_min_messages=warning");
        command
    }
}
