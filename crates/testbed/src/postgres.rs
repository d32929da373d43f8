//! A PostgreSQL of the system's packages, with its data in a temporary folder.

use std::{
    fs,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use parking_lot::Mutex;

use super::{Authority, Port};

/// A running server. It ends with this, or with the process, and its data with it.
pub struct PostgresServer {
    folder: PathBuf,
    script: Mutex<Script>,
    /// Where it listens for TLS.
    port: Option<Port>,
}

/// What runs it, and what that says.
struct Script {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Script {
    fn is_ready(&mut self) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "PostgreSQL does not start; see stderr");
    }
}

impl PostgresServer {
    /// Starts one and waits until it answers.
    pub fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap().keep(), None)
    }

    /// Starts one that listens on 127.0.0.1, for TLS and for users with passwords alone: see [`PostgresServer::tls_url`]. Its
    /// certificate names `localhost`, and is of an authority of its own.
    pub fn start_with_tls() -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let authority = Authority::new("postgres");
        let server = authority.server(&["localhost"]);
        for (name, text) in
            [("ca.crt", authority.cert_pem()), ("server.crt", server.cert_pem), ("server.key", server.key_pem)]
        {
            fs::write(folder.join(name), text).unwrap();
        }
        let server = Self::start_in(folder, Some(Port::reserve()));
        server.sql("CREATE ROLE jane LOGIN PASSWORD 's3cret'");
        server
    }

    fn start_in(folder: PathBuf, port: Option<Port>) -> Self {
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/postgres.sh"));
        command.arg(&folder).args(port.iter().map(|port| port.number().to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut script = Script { child, said };
        script.is_ready();
        Self { folder, script: Mutex::new(script), port }
    }

    /// All its processes stop in their tracks: connections stay open and new ones are accepted by the kernel, nothing is
    /// answered.
    pub fn pause(&self) {
        self.order("pause");
    }

    /// They go on where they stopped.
    pub fn resume(&self) {
        self.order("resume");
    }

    /// `kill -9` for all its processes.
    pub fn kill(&self) {
        self.order("kill");
    }

    /// Starts it again with the data that it has, and waits until it answers.
    pub fn restart(&self) {
        self.order("start");
    }

    fn order(&self, order: &str) {
        let mut script = self.script.lock();
        writeln!(script.child.stdin.as_mut().expect("it runs"), "{order}").unwrap();
        script.is_ready();
    }

    /// The URL for `jane`, who logs in over TLS with the password `s3cret` and may create tables in the schema `name`. `host` is
    /// a name of 127.0.0.1.
    pub fn tls_url(&self, name: &str, host: &str, password: &str) -> String {
        self.schema(name);
        self.sql(&format!("GRANT ALL ON SCHEMA \"{name}\" TO jane"));
        let port = self.port.as_ref().expect("a server with TLS").number();
        format!("postgres://jane:{password}@{host}:{port}/postgres?options=-c%20search_path%3D{name}")
    }

    /// Where it listens for TLS.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.as_ref().expect("a server with TLS").number())
    }

    /// The authority of its certificate.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
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

    /// Runs statements as an operator does, and returns what they print.
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in("postgres", statements)
    }

    /// The same in another database than `postgres`.
    pub fn sql_in(&self, database: &str, statements: &str) -> String {
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
        let output = command.env("PGOPTIONS", "-c client_min_messages=warning").output().unwrap();
        assert!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let script = self.script.get_mut();
        drop(script.child.stdin.take());
        let _ended = script.child.wait();
    }
}
