//! An etcd without a cluster above it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use super::{Authority, Port, Process, binary, directory};

/// Questions after a start.
const ATTEMPTS: usize = 200;
const INTERVAL: Duration = Duration::from_millis(20);

/// A running etcd of one member. It ends with this, or with the process, and its data with it.
///
/// Everything here blocks, and for less than a second.
pub struct EtcdServer {
    dir: TempDir,
    port: Port,
    peer: Port,
    is_tls: bool,
    is_synced: bool,
    process: Option<Process>,
}

impl EtcdServer {
    /// Starts one and waits until it answers.
    pub fn start() -> Self {
        Self::start_in(directory::temporary("etcd"), false, false)
    }

    /// Starts one that syncs each write, as etcd does unless it is told otherwise.
    pub fn start_synced() -> Self {
        Self::start_in(directory::temporary("etcd"), false, true)
    }

    /// Starts one that speaks TLS alone, with clients that show a certificate of its authority. Its own names `localhost`.
    pub fn start_with_tls() -> Self {
        let dir = directory::temporary("etcd");
        let authority = Authority::new("etcd");
        let (server, client) = (authority.server(&["localhost"]), authority.client("root", None));
        for (name, text) in [
            ("ca.crt", authority.cert_pem()),
            ("server.crt", server.cert_pem),
            ("server.key", server.key_pem),
            ("client.crt", client.cert_pem),
            ("client.key", client.key_pem),
        ] {
            fs::write(dir.path().join(name), text).expect("a file");
        }
        Self::start_in(dir, true, false)
    }

    fn start_in(dir: TempDir, is_tls: bool, is_synced: bool) -> Self {
        let mut server = Self { dir, port: Port::reserve(), peer: Port::reserve(), is_tls, is_synced, process: None };
        server.restart();
        server
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.port.addr()
    }

    /// A file: `ca.crt`, `client.crt` and `client.key` of one with TLS.
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    /// Starts it where it has ended, and waits until it answers.
    pub fn restart(&mut self) {
        let url = self.url();
        let mut args = self.identity();
        args.extend([
            format!("--listen-peer-urls=http://{}", self.peer.addr()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            "--log-level=warn".to_owned(),
        ]);
        if !self.is_synced {
            // A test needs no data after a power cut.
            args.push("--unsafe-no-fsync".to_owned());
        }
        if self.is_tls {
            let file = |name| self.path(name).display().to_string();
            args.extend([
                "--client-cert-auth".to_owned(),
                format!("--trusted-ca-file={}", file("ca.crt")),
                format!("--cert-file={}", file("server.crt")),
                format!("--key-file={}", file("server.key")),
            ]);
        }
        self.process = Some(Process::spawn("etcd", &binary("etcd"), &args, &self.dir.path().join("etcd.log")));
        for _ in 0..ATTEMPTS {
            if self.command(&["endpoint", "health"]).output().expect("run etcdctl").status.success() {
                return;
            }
            thread::sleep(INTERVAL);
        }
        panic!("etcd does not answer\n{}", self.process.as_ref().map(Process::tail).unwrap_or_default());
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.process.as_ref().expect("it runs").pause();
    }

    /// Lets it run on.
    pub fn resume(&self) {
        self.process.as_ref().expect("it runs").resume();
    }

    /// Runs etcdctl as an operator does, and returns what it prints.
    pub fn ctl(&self, args: &[&str]) -> String {
        said(&mut self.command(args))
    }

    /// Saves its data to a file.
    pub fn snapshot(&self, file: &Path) {
        self.ctl(&["snapshot", "save", file.to_str().expect("UTF-8")]);
    }

    /// Ends it, puts what a snapshot has in the place of its data, with further flags for that, and starts it.
    pub fn restore(&mut self, file: &Path, flags: &[&str]) {
        self.kill();
        fs::remove_dir_all(self.path("data")).expect("etcd's data");
        let mut command = Command::new(binary("etcdutl"));
        command.args(["snapshot", "restore"]).arg(file).args(self.identity()).args(flags);
        said(&mut command);
        self.restart();
    }

    fn url(&self) -> String {
        match self.is_tls {
            true => format!("https://localhost:{}", self.port.number()),
            false => format!("http://{}", self.address()),
        }
    }

    /// Its idea of itself, which restored data must share.
    fn identity(&self) -> Vec<String> {
        let peer = format!("http://{}", self.peer.addr());
        vec![
            "--name=one".to_owned(),
            format!("--initial-cluster=one={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--data-dir={}", self.path("data").display()),
        ]
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary("etcdctl"));
        command.arg(format!("--endpoints={}", self.url())).arg("--dial-timeout=1s").arg("--command-timeout=5s");
        if self.is_tls {
            for (flag, file) in [("--cacert", "ca.crt"), ("--cert", "client.crt"), ("--key", "client.key")] {
                command.arg(flag).arg(self.path(file));
            }
        }
        command.args(args).stdin(Stdio::null());
        command
    }
}

fn said(command: &mut Command) -> String {
    let ended = command.output().expect("run it");
    let (out, error) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{command:?}: {}\n{out}\n{error}", ended.status);
    out.into_owned()
}
