//! The real program, before members.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::{Answer, Api, Kubectl, Member, Output, Port, Process, Relay, directory, eventually, kubeconfig, pki};

/// For `/readyz` to be 200 after a start.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A `clusters.yaml` in the making.
#[derive(Clone, Debug, Default)]
pub struct FleetFile {
    members: String,
    rest: String,
}

impl FleetFile {
    /// Adds a member by its own kubeconfig.
    pub fn member(self, member: &Member, weight: u32) -> Self {
        self.entry(member.name(), &member.kubeconfig(), weight, "")
    }

    /// Adds a member by any kubeconfig, such as one through a relay. `settings` are further lines of the entry.
    pub fn entry(mut self, name: &str, kubeconfig: &Path, weight: u32, settings: &str) -> Self {
        let kubeconfig = kubeconfig.display();
        self.members += &format!("  - name: {name}\n    kubeconfig: {kubeconfig}\n    weight: {weight}\n");
        settings.lines().for_each(|line| self.members += &format!("    {line}\n"));
        self
    }

    /// Adds a member by lines of YAML.
    pub fn written(mut self, name: &str, settings: &str) -> Self {
        self.members += &format!("  - name: {name}\n");
        settings.lines().for_each(|line| self.members += &format!("    {line}\n"));
        self
    }

    /// Adds top-level settings, in YAML.
    pub fn settings(mut self, yaml: &str) -> Self {
        self.rest += &format!("{yaml}\n");
        self
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let members = if self.members.is_empty() { " []" } else { "" };
        format!("members:{members}\n{}{}", self.members, self.rest)
    }
}

/// A running kubefold. Dropping it kills it.
pub struct Kubefold {
    process: Mutex<Option<Process>>,
    program: Mutex<PathBuf>,
    port: Port,
    dir: TempDir,
    flags: Vec<String>,
    /// Where kubectl works, if not in `default`.
    namespace: Option<String>,
}

impl Kubefold {
    /// Starts it before members of equal weight and waits until it is ready.
    pub async fn before(members: &[Member]) -> Self {
        Self::start(&members.iter().fold(FleetFile::default(), |file, member| file.member(member, 1))).await
    }

    /// Starts it with a configuration and waits until it is ready.
    pub async fn start(file: &FleetFile) -> Self {
        let kubefold = Self::launch(file);
        kubefold.ready().await;
        kubefold
    }

    /// Starts it and does not wait: for members that are down, which may keep it from being ready.
    pub fn launch(file: &FleetFile) -> Self {
        Self::launch_with(file, &[])
    }

    /// Starts it with more flags and waits until it is ready.
    pub async fn start_with(file: &FleetFile, flags: &[&str]) -> Self {
        let kubefold = Self::launch_with(file, flags);
        kubefold.ready().await;
        kubefold
    }

    /// Starts it with more flags and does not wait.
    pub fn launch_with(file: &FleetFile, flags: &[&str]) -> Self {
        Self::launch_of(program(), file, flags)
    }

    /// Starts another program, such as another version, and does not wait.
    pub fn launch_of(program: PathBuf, file: &FleetFile, flags: &[&str]) -> Self {
        let dir = directory::temporary("kubefold");
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (process, program, port) = (Mutex::new(None), Mutex::new(program), Port::reserve());
        let kubefold = Self { process, program, port, dir, flags, namespace: None };
        kubefold.configure(file);
        kubefold.run();
        kubefold
    }

    /// The same, with a kubectl that works in this namespace, where its arguments name none.
    pub fn for_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Waits until `/readyz` is 200, and keeps the kubeconfig that it hands out.
    pub async fn ready(&self) {
        eventually(READY_TIMEOUT, async || {
            self.assert_running();
            self.save_kubeconfig().await?;
            let answer = self.api().await.try_request(Method::GET, "/readyz", "").await?;
            (answer.status == StatusCode::OK).then_some(()).ok_or_else(|| format!("{answer}\n{}", self.log()))
        })
        .await;
    }

    /// Replaces `clusters.yaml`; what a running kubefold makes of that is its own affair.
    pub fn configure(&self, file: &FleetFile) {
        // By a rename, as ConfigMap volumes and careful operators do it: no half-written file is ever seen.
        let new = self.dir.path().join("clusters.yaml.new");
        fs::write(&new, file.text()).expect("write clusters.yaml");
        fs::rename(new, self.config()).expect("replace clusters.yaml");
    }

    /// Its `clusters.yaml`.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("clusters.yaml")
    }

    /// Its state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The kubeconfig that it hands out: contexts `fleet` and `fleet-<member>`.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("fleet.kubeconfig")
    }

    /// That kubeconfig, but through a relay.
    pub fn kubeconfig_through(&self, relay: &Relay) -> PathBuf {
        let direct = fs::read_to_string(self.kubeconfig()).expect("a kubeconfig");
        let path = self.dir.path().join(format!("relay-{}.kubeconfig", relay.addr().port()));
        fs::write(&path, direct.replace(&self.addr(), &relay.addr().to_string())).expect("write a kubeconfig");
        path
    }

    /// A kubeconfig of the fleet view for any user, by a client certificate of kubefold's own authority.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> PathBuf {
        let read = |file: &str| fs::read_to_string(self.state_dir().join(file)).expect("kubefold's authority");
        let (ca, key) = (read("ca.crt"), read("ca.key"));
        let path = self.dir.path().join(format!("user-{user}.kubeconfig"));
        let identity = pki::client_of(&ca, &key, user, group);
        kubeconfig::write(&path, "fleet", &format!("https://{}", self.addr()), &ca, &identity);
        path
    }

    /// A kubeconfig of the fleet view for whoever has a certificate, whose authority it is that signed it.
    pub fn kubeconfig_with(&self, name: &str, identity: &pki::Identity) -> PathBuf {
        let ca = fs::read_to_string(self.state_dir().join("ca.crt")).expect("kubefold's authority");
        let path = self.dir.path().join(format!("{name}.kubeconfig"));
        kubeconfig::write(&path, "fleet", &format!("https://{}", self.addr()), &ca, identity);
        path
    }

    /// A kubeconfig of the fleet view without any credential.
    pub fn kubeconfig_of_nobody(&self) -> PathBuf {
        let with = fs::read_to_string(self.kubeconfig_for("nobody", None)).expect("a kubeconfig");
        let without = |line: &str| {
            if line.trim_start().starts_with("user: {client") { "    user: {}".into() } else { line.to_owned() }
        };
        let path = self.dir.path().join("nobody.kubeconfig");
        fs::write(&path, with.lines().map(without).collect::<Vec<_>>().join("\n")).expect("write a kubeconfig");
        path
    }

    /// `127.0.0.1:<port>`.
    pub fn addr(&self) -> String {
        self.port.addr()
    }

    /// kubectl with that kubeconfig.
    pub fn as_admin(&self) -> Kubectl {
        let kubectl = Kubectl::new(&self.kubeconfig(), self.dir.path());
        match &self.namespace {
            Some(namespace) => kubectl.in_namespace(namespace),
            None => kubectl,
        }
    }

    /// Runs kubectl in the fleet view.
    pub async fn kubectl(&self, args: &[&str]) -> Output {
        self.as_admin().run(args).await
    }

    /// Runs kubectl in one member's view, or in any other context of the kubeconfig.
    pub async fn kubectl_in(&self, context: &str, args: &[&str]) -> Output {
        self.as_admin().in_context(context).run(args).await
    }

    /// Creates or changes in the fleet view what a manifest describes; panics when kubectl fails.
    pub async fn apply(&self, manifest: &str) -> String {
        self.as_admin().run_with_input(&["apply", "-f", "-"], manifest).await.ok().to_owned()
    }

    /// An HTTPS client of the fleet view.
    pub async fn api(&self) -> Api {
        Api::from_kubeconfig(&self.kubeconfig(), None).await
    }

    /// One request to the fleet view.
    pub async fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        self.api().await.request(method, path, body).await
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.lock().as_ref().expect("a running kubefold").id()
    }

    /// `kill -9`.
    pub fn kill9(&self) {
        *self.process.lock() = None;
    }

    /// Asks it to end and returns how it did.
    pub async fn terminate(&self, deadline: Duration) -> ExitStatus {
        let mut process = self.process.lock().take().expect("a running kubefold");
        process.terminate(deadline).await
    }

    /// Tells it to read its configuration again.
    pub fn hang_up(&self) {
        self.process.lock().as_ref().expect("a running kubefold").signal(rustix::process::Signal::HUP);
    }

    /// Starts it again where it is to fail, and returns how it ended.
    pub async fn restart_in_vain(&self) -> ExitStatus {
        self.kill9();
        self.run();
        self.ended().await
    }

    /// Starts it again, on the same port with the same state, and waits until it is ready. Kills it first if it runs.
    pub async fn restart(&self) {
        self.kill9();
        self.run();
        self.ready().await;
    }

    /// The same, with other flags.
    pub async fn restart_with(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self.restart().await;
    }

    /// The same, without what it kept of the members' objects.
    pub async fn restart_without_mirror(&self) {
        self.kill9();
        for file in ["mirror.db", "mirror.db-wal", "mirror.db-shm"] {
            let removed = fs::remove_file(self.state_dir().join(file));
            assert!(removed.is_ok() || !self.state_dir().join(file).exists(), "{file} stays");
        }
        self.restart().await;
    }

    /// Starts it again and does not wait. Kills it first if it runs.
    pub fn relaunch(&self) {
        self.kill9();
        self.run();
    }

    /// Waits until `/livez` is 200, ready or not, and keeps the kubeconfig that it hands out.
    pub async fn alive(&self) {
        eventually(READY_TIMEOUT, async || {
            self.assert_running();
            self.save_kubeconfig().await?;
            let answer = self.api().await.try_request(Method::GET, "/livez", "").await?;
            (answer.status == StatusCode::OK).then_some(()).ok_or_else(|| format!("{answer}\n{}", self.log()))
        })
        .await;
    }

    /// Is another program from its next start on, and in its commands.
    pub fn becomes(&self, program: PathBuf) {
        *self.program.lock() = program;
    }

    /// Stops it where it is: it answers nothing, and its connections stay.
    pub fn pause(&self) {
        self.process.lock().as_ref().expect("a running kubefold").pause();
    }

    /// Lets it go on where it was stopped.
    pub fn resume(&self) {
        self.process.lock().as_ref().expect("a running kubefold").resume();
    }

    /// Says whether it has not ended of itself.
    pub fn is_running(&self) -> bool {
        self.process.lock().as_mut().is_some_and(|process| process.exited().is_none())
    }

    /// Waits until it ends of itself.
    pub async fn ended(&self) -> ExitStatus {
        loop {
            let status = self.process.lock().as_mut().expect("a started kubefold").exited();
            if let Some(status) = status {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The memory that it has in use.
    pub fn resident_bytes(&self) -> u64 {
        let id = self.pid();
        let status = fs::read_to_string(format!("/proc/{id}/status")).expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line about memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") << 10
    }

    /// Everything that it has logged, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Runs another of its commands on the same state directory: `kubeconfig`, `status`, `doctor`, ...
    pub async fn command(&self, args: &[&str]) -> std::process::Output {
        let mut command = tokio::process::Command::new(&*self.program.lock());
        command.args(args).arg("--state-dir").arg(self.state_dir()).kill_on_drop(true);
        command.output().await.expect("run kubefold")
    }

    fn run(&self) {
        let (config, state_dir) = (self.config(), self.state_dir());
        let args = [
            "serve",
            "--config",
            config.to_str().expect("UTF-8"),
            "--listen",
            &self.addr(),
            "--state-dir",
            state_dir.to_str().expect("UTF-8"),
        ];
        let args: Vec<&str> = args.into_iter().chain(self.flags.iter().map(String::as_str)).collect();
        let process = Process::spawn("kubefold", &self.program.lock(), &args, &self.log_path());
        *self.process.lock() = Some(process);
    }

    async fn save_kubeconfig(&self) -> Result<(), String> {
        let made = self.command(&["kubeconfig"]).await;
        if !made.status.success() {
            return Err(format!("kubefold kubeconfig: {}", String::from_utf8_lossy(&made.stderr)));
        }
        fs::write(self.kubeconfig(), made.stdout).map_err(|error| error.to_string())
    }

    fn assert_running(&self) {
        let mut process = self.process.lock();
        let process = process.as_mut().expect("a started kubefold");
        if let Some(status) = process.exited() {
            panic!("kubefold ended: {status}\n{}", process.tail());
        }
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("kubefold.log")
    }
}

/// The program under test: what `KUBEFOLD_BIN` names, or what lies above this test or example in the target directory.
pub fn program() -> PathBuf {
    let told = std::env::var_os("KUBEFOLD_BIN").map(PathBuf::from);
    let above = || std::env::current_exe().ok()?.ancestors().nth(2).map(|target| target.join("kubefold"));
    let program = told.or_else(above).expect("a place for kubefold");
    assert!(program.exists(), "no kubefold at {}; KUBEFOLD_BIN may name another place", program.display());
    program
}

/// An example of a crate, where cargo puts those that it builds with all tests.
pub fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("a running test");
    let path = tests.ancestors().nth(2).expect("target/debug").join("examples").join(name);
    assert!(path.exists(), "{} is missing: cargo build --workspace --examples", path.display());
    path
}
