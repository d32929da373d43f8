//! How a command asks a running kubefold.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{AsyncBufReadExt, Stream, TryStreamExt};
use http::{Method, Request, Response, header};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use parking_lot::Mutex;
use tower::util::MapResponseLayer;

use crate::{
    cli::say,
    serve::{Login, Published},
};
use kubefold_wire::{golang::Quoted, warning::warning_text};

/// Which kubefold to ask.
#[derive(Debug, clap::Args)]
pub(super) struct Connection {
    /// The state directory of `kubefold serve`, instead of a kubeconfig.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context"])]
    state_dir: Option<PathBuf>,
    /// A kubeconfig with a context for kubefold. Default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context to use. Default: the current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A question to kubefold.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    /// Names and values.
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: Vec<u8>,
}

impl Ask<'_> {
    fn request(&self) -> anyhow::Result<Request<Vec<u8>>> {
        let request = Request::builder().method(&self.method).uri(self.path);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Ok(request.body(self.body.clone())?)
    }
}

/// How a program wants an answer.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Output {
    Json,
    Yaml,
}

impl Output {
    pub(super) fn text(self, answer: &impl serde::Serialize) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => serde_json::to_string_pretty(answer)? + "\n",
            Self::Yaml => serde_saphyr::to_string(answer)?,
        })
    }
}

/// The value of a flag on a command line that is not whole yet.
pub(super) fn word_after(words: impl Iterator<Item = String>, flag: &str) -> Option<String> {
    let words: Vec<String> = words.collect();
    let next = words.iter().position(|word| word == flag).and_then(|at| words.get(at + 1)).cloned();
    next.or_else(|| words.iter().find_map(|word| Some(word.strip_prefix(flag)?.strip_prefix('=')?.to_owned())))
}

impl Connection {
    /// By a context of a kubeconfig. Default: as of the flags.
    pub(super) fn of(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self { state_dir: None, kubeconfig, context }
    }

    /// By the state directory of a kubefold on this machine.
    pub(super) fn of_state(state_dir: PathBuf) -> Self {
        Self { state_dir: Some(state_dir), kubeconfig: None, context: None }
    }

    /// By what stands on a command line that is not whole yet.
    pub(super) fn of_words(words: impl Iterator<Item = String>) -> Self {
        let words: Vec<String> = words.collect();
        let value = |flag: &str| word_after(words.iter().cloned(), flag);
        let path = |flag: &str| value(flag).map(PathBuf::from);
        Self { state_dir: path("--state-dir"), kubeconfig: path("--kubeconfig"), context: value("--context") }
    }

    /// Asks kubefold at one of its own paths, and gives the body of its answer.
    ///
    /// Errors: it is not reached, or does not answer with success; each says why in one sentence.
    pub(super) fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<String> {
        self.ask_with(Ask { method, path, headers: &[], body })
    }

    /// The same with headers.
    ///
    /// Errors: as [`Self::ask`].
    pub(super) fn ask_with(&self, ask: Ask<'_>) -> anyhow::Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Box::pin(self.send(ask)))
    }

    async fn send(&self, ask: Ask<'_>) -> anyhow::Result<String> {
        self.open().await?.ask(ask).await
    }

    /// Makes a client, for several questions.
    ///
    /// Errors: the kubeconfig cannot be used.
    pub(super) async fn open(&self) -> anyhow::Result<Session> {
        let config = self.config().await?;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = client(config).with_context(|| format!("cannot connect to {url}"))?;
        Ok(Session { client, url })
    }

    /// Follows an answer of kubefold line by line, until it ends or `take` fails.
    ///
    /// Errors: as [`Self::ask`]; those of `take`.
    pub(super) fn follow(&self, ask: &Ask<'_>, mut take: impl FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let followed = async {
            let session = self.open().await?;
            let mut lines = Box::pin(session.lines(ask).await?);
            while let Some(line) = lines.try_next().await? {
                take(&line)?;
            }
            Ok(())
        };
        runtime.block_on(Box::pin(followed))
    }

    /// The namespace of the context.
    ///
    /// Errors: the kubeconfig cannot be used.
    pub(super) fn namespace(&self) -> anyhow::Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(Box::pin(self.config()))?.default_namespace)
    }

    /// The members that the kubeconfig has contexts for, in its order.
    ///
    /// Errors: the kubeconfig cannot be used.
    pub(super) fn members(&self) -> anyhow::Result<Vec<String>> {
        if let Some(state_dir) = &self.state_dir {
            return Ok(Published::read(state_dir)?.members);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let fleet = runtime.block_on(Box::pin(self.config()))?.cluster_url.to_string();
        let begin = format!("{}/clusters/", fleet.trim_end_matches('/'));
        let read = self.read()?;
        let servers = read.clusters.iter().filter_map(|named| named.cluster.as_ref()?.server.as_deref());
        let member = |server: &str| Some(server.strip_prefix(&begin)?.trim_end_matches('/').to_owned());
        Ok(servers.filter_map(member).filter(|member| !member.contains('/')).collect())
    }

    fn read(&self) -> anyhow::Result<Kubeconfig> {
        match (&self.state_dir, &self.kubeconfig) {
            (Some(state_dir), _) => own_kubeconfig(state_dir),
            (None, Some(file)) => Kubeconfig::read_from(file).map_err(|error| unread(&error, Some(file))),
            (None, None) => Kubeconfig::read().map_err(|error| unread(&error, None)),
        }
    }

    /// How clients of it are made.
    ///
    /// Errors: the kubeconfig cannot be used, or does not have the context.
    pub(super) async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let read = self.read()?;
        let known: Vec<&str> = read.contexts.iter().map(|context| context.name.as_str()).collect();
        if let Some(wanted) = self.context.as_deref().filter(|wanted| !known.contains(wanted)) {
            bail!("the kubeconfig has no context {}; its contexts are {}", Quoted(wanted), known.join(", "));
        }
        let mut config = Config::from_custom_kubeconfig(read, &options).await.context("cannot use the kubeconfig")?;
        // A person waits, and is told better at once why kubefold says 503.
        config.default_retry = false;
        Ok(config)
    }
}

/// A client of one kubefold.
pub(super) struct Session {
    client: Client,
    /// Without a last slash.
    url: String,
}

impl Session {
    /// Asks kubefold, and gives the body of its answer.
    ///
    /// Errors: as [`Connection::ask`]. Cancel: safe.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> anyhow::Result<String> {
        let request = ask.request()?;
        self.client.request_text(request).await.map_err(|error| self.failed(ask.path, error))
    }

    /// The lines of an answer of kubefold, as they come.
    ///
    /// Errors: as [`Connection::ask`]; of a line, the connection is lost. Cancel: safe.
    pub(super) async fn lines<'s>(
        &'s self,
        ask: &Ask<'_>,
    ) -> anyhow::Result<impl Stream<Item = std::io::Result<String>> + use<'s>> {
        let answer = self.client.request_stream(ask.request()?).await;
        Ok(answer.map_err(|error| self.failed(ask.path, error))?.lines())
    }

    fn failed(&self, path: &str, error: kube::Error) -> anyhow::Error {
        let url = &self.url;
        match error {
            // A 404 about an object says which.
            kube::Error::Api(status) if status.code == 404 && knows_no_path(&status.message) => anyhow::anyhow!(
                "the server at {url} does not know {path}: is it a kubefold, and does the context name its fleet?"
            ),
            kube::Error::Api(status) if status.code == 401 => anyhow::anyhow!(
                "kubefold at {url} answered 401: it does not know this login, which may have expired or be another \
                 kubefold's; {PRINT_AGAIN}"
            ),
            kube::Error::Api(status) => Refused { url: url.clone(), code: status.code, message: status.message }.into(),
            error => {
                let cause = cause(&error);
                Unreached { url: url.clone(), to_do: what_to_do(&cause), cause }.into()
            }
        }
    }
}

/// A client that says the `Warning`s of answers on standard error, each once, as kubectl does.
fn client(config: Config) -> Result<Client, kube::Error> {
    let layer = MapResponseLayer::new(warned);
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

fn warned<B>(answer: Response<B>) -> Response<B> {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    for value in answer.headers().get_all(header::WARNING) {
        let text = warning_text(&String::from_utf8_lossy(value.as_bytes()));
        if SAID.lock().insert(text.clone()) {
            say(&format!("Warning: {text}"));
        }
    }
    answer
}

/// The kubeconfig that `kubefold kubeconfig` prints, with the fleet's context alone.
fn own_kubeconfig(state_dir: &Path) -> anyhow::Result<Kubeconfig> {
    let published = Published::read(state_dir)?;
    let Login { certificate, key } = Published::read_admin(state_dir)?;
    let file = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fleet",
        "clusters": [{"name": "fleet", "cluster": {
            "server": published.url, "certificate-authority-data": STANDARD.encode(published.certificate_authority),
        }}],
        "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "fleet"}}],
        "users": [{"name": "fleet", "user": {
            "client-certificate-data": STANDARD.encode(certificate), "client-key-data": STANDARD.encode(key),
        }}],
    });
    Ok(serde_json::from_value(file)?)
}

/// What to do where a kubeconfig is an old one.
const PRINT_AGAIN: &str = "print its kubeconfig again with kubefold kubeconfig";

/// kubefold answered with an error.
#[derive(Debug, thiserror::Error)]
#[error("kubefold at {url} answered {code}: {message}")]
pub(super) struct Refused {
    url: String,
    code: u16,
    message: String,
}

impl Refused {
    #[cfg(test)]
    pub(super) fn new(url: &str, code: u16, message: &str) -> Self {
        Self { url: url.to_owned(), code, message: message.to_owned() }
    }

    pub(super) fn is_forbidden(&self) -> bool {
        self.code == 403
    }

    /// The status of HTTP.
    pub(super) fn code(&self) -> u16 {
        self.code
    }

    /// What kubefold said.
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

/// Nobody answered.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach kubefold at {url}: {cause}{to_do}")]
pub(super) struct Unreached {
    url: String,
    cause: String,
    to_do: String,
}

pub(super) fn what_to_do(cause: &str) -> String {
    if cause.contains("UnknownIssuer") || cause.contains("BadSignature") {
        return format!(
            " (another authority than the kubeconfig's made the certificate): is it another server, or has kubefold a new \
             state directory? {PRINT_AGAIN}"
        );
    }
    if cause.contains("NotValidForName") {
        return "; start kubefold with --tls-san for that name, or use a name of its certificate".to_owned();
    }
    if cause.contains("refused") || cause.contains("timed out") || cause.contains("deadline") {
        return "; does kubefold serve run there, and at this address?".to_owned();
    }
    String::new()
}

/// Says of a kubeconfig in one line what is wrong.
fn unread(error: &KubeconfigError, file: Option<&Path>) -> anyhow::Error {
    let why = match error {
        KubeconfigError::ReadConfig(error, path) => format!("{}: {}", path.display(), io_cause(error)),
        other => {
            let text = cause(other);
            let line = text.lines().next().unwrap_or_default();
            file.map_or_else(|| line.to_owned(), |file| format!("{}: {line}", file.display()))
        }
    };
    anyhow::anyhow!("cannot read the kubeconfig {why}; name another with --kubeconfig, or use --state-dir")
}

fn io_cause(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "its permissions do not let it be read".to_owned(),
        _ => error.to_string(),
    }
}

/// What a kube-apiserver says of a path that it has no route for.
fn knows_no_path(message: &str) -> bool {
    ["the server could not find the requested resource", "404 page not found"]
        .iter()
        .any(|said| message.starts_with(said))
}

/// The last cause says it: those before it say which layer handed it on.
pub(super) fn cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
