//! The real kubectl.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Process, binary, eventually};

/// A kubectl that hangs is a finding, not a reason to wait for ever.
const TIMEOUT: Duration = Duration::from_secs(120);

/// kubectl with a kubeconfig of its own and nothing of the user's.
#[derive(Clone, Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    context: Option<String>,
    namespace: Option<String>,
    program: PathBuf,
    /// Where its discovery cache lies, which must not be another testbed's that had the same port.
    home: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Kubectl {
    /// `home` is a directory for its cache and for the output of background runs.
    pub fn new(kubeconfig: &Path, home: &Path) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            context: None,
            namespace: None,
            program: binary("kubectl"),
            home: home.to_owned(),
            environment: Vec::new(),
        }
    }

    /// The same in another context of the kubeconfig.
    pub fn in_context(&self, context: &str) -> Self {
        Self { context: Some(context.to_owned()), ..self.clone() }
    }

    /// The same in another namespace, where the arguments name none.
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self.clone() }
    }

    /// The same by another program, such as a kubectl of another minor.
    pub fn by(&self, program: PathBuf) -> Self {
        Self { program, ..self.clone() }
    }

    /// The same with an editor, such as `sed -i s/a/b/`.
    pub fn with_editor(&self, editor: &str) -> Self {
        self.with("KUBE_EDITOR", editor)
    }

    /// The same with a variable in its environment.
    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut this = self.clone();
        this.environment.push((name, value.to_owned()));
        this
    }

    /// Runs to the end.
    pub async fn run(&self, args: &[&str]) -> Output {
        self.run_with_input(args, "").await
    }

    /// Runs to the end with a text on stdin, as for `apply -f -`.
    pub async fn run_with_input(&self, args: &[&str], input: &str) -> Output {
        let mut command = self.command(args);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let run = async {
            let mut child = command.spawn().expect("run kubectl");
            let mut stdin = child.stdin.take().expect("a pipe");
            let (mut out, mut err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
            let feed = async {
                // It may have ended without reading, which its exit code and stderr tell better.
                stdin.write_all(input.as_bytes()).await.ok();
                drop(stdin);
            };
            let ((), out, err) = tokio::join!(feed, out.read_to_end(&mut stdout), err.read_to_end(&mut stderr));
            out.and(err).expect("the words of kubectl");
            child.wait().await.expect("the end of kubectl").code()
        };
        let ended = tokio::time::timeout(TIMEOUT, run).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let output = Output {
            command: args.join(" "),
            code: ended.as_ref().ok().copied().flatten(),
            stdout: text(&stdout),
            stderr: text(&stderr),
        };
        assert!(ended.is_ok(), "it has not ended in {TIMEOUT:?}: {output}");
        output
    }

    /// Waits until a definition is established. `kubectl wait` fails while its conditions are null, as they are at first.
    pub async fn established(&self, definition: &str) {
        let status = "jsonpath={.status.conditions[?(@.type==\"Established\")].status}";
        eventually(TIMEOUT, async || {
            let said = self.run(&["get", "crd", definition, "-o", status]).await;
            if said.stdout == "True" { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// One that a test starts, feeds and reads itself: all of its streams are pipes.
    pub fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(self.arguments(args)).env("HOME", &self.home).env_remove("KUBECONFIG").kill_on_drop(true);
        command.envs(self.environment.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts one that runs on, as `get --watch` does; its [`Process::output`] grows.
    pub fn start(&self, args: &[&str]) -> Process {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let log = self.home.join(format!("kubectl-{}.log", RUNS.fetch_add(1, Ordering::Relaxed)));
        let (arguments, stderr) = (self.arguments(args), log.clone());
        Process::spawn_with("kubectl", &self.program, &arguments, &log, move |command| {
            let stderr = std::fs::OpenOptions::new().append(true).open(stderr).expect("the log");
            command.env("HOME", &self.home).env_remove("KUBECONFIG").stderr(stderr);
            command.envs(self.environment.iter().cloned());
        })
    }

    fn arguments(&self, args: &[&str]) -> Vec<String> {
        let mut all = vec![format!("--kubeconfig={}", self.kubeconfig.display())];
        all.extend(self.context.iter().map(|context| format!("--context={context}")));
        all.extend(self.namespace.iter().map(|namespace| format!("--namespace={namespace}")));
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        all
    }
}

/// What kubectl said.
#[derive(Clone, Debug)]
pub struct Output {
    command: String,
    /// The exit code, unless a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Its stdout; panics unless it succeeded.
    pub fn ok(&self) -> &str {
        assert!(self.succeeded(), "{self}");
        &self.stdout
    }

    /// Its stderr; panics if it succeeded.
    pub fn refused(&self) -> &str {
        assert!(!self.succeeded(), "{self}");
        &self.stderr
    }

    /// Whether the exit code is 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Success with this text in stdout; else an error that shows everything, for `eventually`.
    pub fn holds(&self, text: &str) -> Result<String, String> {
        match self.succeeded() && self.stdout.contains(text) {
            true => Ok(self.stdout.clone()),
            false => Err(format!("no `{text}` in {self}")),
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, code, stdout, stderr } = self;
        write!(f, "kubectl {command}: exit code {code:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}
