//! A MariaDB of the system's packages.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::database::{DatabaseServer, Engine, printed};

/// MariaDB.
pub struct Mariadb;

/// A running MariaDB.
pub type MariadbServer = DatabaseServer<Mariadb>;

impl Engine for Mariadb {
    const NAME: &'static str = "mariadb";
    const MAKE_JANE: &'static str = "CREATE USER jane@'%' IDENTIFIED BY 's3cret' REQUIRE SSL";

    fn sql(server: &MariadbServer, statements: &str) -> String {
        printed(&mut server.client(statements), statements)
    }
}

impl MariadbServer {
    /// The URL for `jane`, who logs in over TLS with the password `s3cret`, of a database that is made if there is none. `host` is
    /// a name of 127.0.0.1.
    pub fn tls_url(&self, name: &str, host: &str, password: &str) -> String {
        self.sql(&format!("CREATE DATABASE IF NOT EXISTS `{name}`; GRANT ALL ON `{name}`.* TO jane@'%'"));
        let port = self.tls_port();
        format!("mysql://jane:{password}@{host}:{port}/{name}")
    }

    /// What runs statements as an operator does.
    pub fn client(&self, statements: &str) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root", "--execute", statements]);
        command.arg("--socket").arg(self.socket());
        command
    }

    /// Ends connections of clients, by a condition on `information_schema.processlist`.
    pub fn cut(&self, which: &str) {
        let ids = self.sql(&format!("SELECT id FROM information_schema.processlist WHERE {which}"));
        let kill: String = ids.lines().map(|id| format!("KILL CONNECTION {id};")).collect();
        // Some may have ended by themselves meanwhile.
        self.client(&kill).arg("--force").output().unwrap();
    }

    /// The socket on which it listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// The URL of a database of it, which is made if there is none.
    pub fn url(&self, name: &str) -> String {
        self.url_through(name, &self.socket())
    }

    /// The same through another socket.
    pub fn url_through(&self, name: &str, socket: &Path) -> String {
        self.sql(&format!("CREATE DATABASE IF NOT EXISTS `{name}`"));
        format!("mysql://kubefold@localhost/{name}?socket={}", socket.display())
    }
}
