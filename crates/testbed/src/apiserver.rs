//! The real program as an API server of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use http::{Method, StatusCode};
use tempfile::TempDir;

use super::{Api, Kubectl, Port, Process, directory, eventually, program};

/// For `/readyz` to be 200 after a start.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running `kubefold apiserver`. Dropping it kills it.
pub struct ApiServer {
    process: Option<Process>,
    port: Port,
    dir: TempDir,
    flags: Vec<String>,
}

impl ApiServer {
    /// Starts it with flags and waits until it is ready.
    pub async fn start(flags: &[&str]) -> Self {
        let dir = directory::temporary("apiserver");
        Self::start_in(dir, flags).await
    }

    /// The same in a folder that has files which the flags name.
    pub async fn start_in(dir: TempDir, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut server = Self { process: None, port: Port::reserve(), dir, flags };
        server.restart().await;
        server
    }

    /// Starts it again, on the same port with the same state, and waits until it is ready. Kills it first if it runs.
    pub async fn restart(&mut self) {
        self.kill9();
        let state_dir = self.state_dir().display().to_string();
        let addr = self.port.addr();
        let args = ["apiserver", "--state-dir", &state_dir, "--listen", &addr];
        let args: Vec<&str> = args.into_iter().chain(self.flags.iter().map(String::as_str)).collect();
        self.process = Some(Process::spawn("kubefold", &program(), &args, &self.log_path()));
        eventually(READY_TIMEOUT, async || {
            let process = self.process.as_mut().expect("it was started");
            if let Some(status) = process.exited() {
                panic!("kubefold ended: {status}\n{}", process.tail());
            }
            self.save_kubeconfig().await?;
            let answer = self.api().await.try_request(Method::GET, "/readyz", "").await?;
            (answer.status == StatusCode::OK).then_some(()).ok_or_else(|| answer.to_string())
        })
        .await;
    }

    /// `kill -9`.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// Asks it to end and returns how it did.
    pub async fn terminate(&mut self, deadline: Duration) -> ExitStatus {
        self.process.take().expect("a running kubefold").terminate(deadline).await
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running kubefold").id()
    }

    /// Its state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The folder of all its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `127.0.0.1:<port>`.
    pub fn addr(&self) -> String {
        self.port.addr()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin.kubeconfig")
    }

    /// kubectl of the administrator.
    pub fn as_admin(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig(), self.dir.path())
    }

    /// kubectl of whoever has a token.
    pub fn with_token(&self, name: &str, token: &str) -> Kubectl {
        let path = self.dir.path().join(format!("{name}.kubeconfig"));
        let admin = fs::read_to_string(self.kubeconfig()).expect("a kubeconfig");
        let authority = admin.lines().find(|line| line.contains("certificate-authority-data:")).expect("an authority");
        let authority = authority.trim();
        let server = format!("server: https://{}", self.addr());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    {authority}\n    {server}\n\
             users:\n- name: u\n  user: {{token: '{token}'}}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\n"
        );
        fs::write(&path, text).expect("write a kubeconfig");
        Kubectl::new(&path, self.dir.path())
    }

    /// Creates or changes what a manifest describes; panics when kubectl fails.
    pub async fn apply(&self, manifest: &str) -> String {
        self.as_admin().run_with_input(&["apply", "-f", "-"], manifest).await.ok().to_owned()
    }

    /// An HTTPS client of the administrator.
    pub async fn api(&self) -> Api {
        Api::from_kubeconfig(&self.kubeconfig(), None).await
    }

    /// Everything that it has logged, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    async fn save_kubeconfig(&self) -> Result<(), String> {
        let mut command = tokio::process::Command::new(program());
        command.args(["kubeconfig", "--state-dir"]).arg(self.state_dir()).kill_on_drop(true);
        let made = command.output().await.expect("run kubefold");
        if !made.status.success() {
            return Err(format!("kubefold kubeconfig: {}", String::from_utf8_lossy(&made.stderr)));
        }
        fs::write(self.kubeconfig(), made.stdout).map_err(|error| error.to_string())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("kubefold.log")
    }
}
