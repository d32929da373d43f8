//! A provider of OpenID Connect, and the machine of a person who logs in there.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use testbed::{Kubectl, Member, Port, binary, client, program};

const SOON: Duration = Duration::from_secs(60);

/// A provider of OpenID Connect, at whose login form a person sits.
pub(crate) struct Provider {
    pub(crate) url: String,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// Ends with the test.
    _process: Child,
}

impl Provider {
    /// Its certificate is one of a member's authority.
    pub(crate) async fn start(member: &Member) -> Self {
        let port = Port::reserve();
        let file = |name: &str| member.dir().join(name);
        let mut command = Command::new(client("oidc"));
        command.arg(port.number().to_string()).args(["server.crt", "server.key", "ca.crt"].map(file));
        let mut process =
            command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the provider");
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = format!("https://localhost:{}", port.number());
        let mut provider = Self { url, input: process.stdin.take().unwrap(), output, _process: process };
        provider.line("ready").await;
        provider
    }

    /// The first line that begins so; it says other things, too.
    async fn line(&mut self, beginning: &str) -> String {
        let found = async {
            loop {
                let line = self.output.next_line().await.unwrap().expect("the provider goes on");
                if line.starts_with(beginning) {
                    return line;
                }
            }
        };
        tokio::time::timeout(SOON, found).await.expect("a line of the provider")
    }

    async fn order(&mut self, order: &str, answer: &str) -> String {
        self.input.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        self.line(answer).await
    }

    /// Logs a user in, and gives the ID token.
    pub(crate) async fn token(&mut self, user: &str, groups: &str) -> String {
        // As every JSON Web Token begins.
        self.order(&format!("{user} {groups}"), "eyJ").await
    }

    /// Makes an account for whoever logs in by a browser.
    pub(crate) async fn account(&mut self, user: &str, groups: &str) {
        self.order(&format!("account {user} {groups}"), "account").await;
    }

    /// How long ID tokens are good from now on.
    pub(crate) async fn life(&mut self, seconds: u32) {
        self.order(&format!("life {seconds}"), "life").await;
    }

    /// How often it gave tokens for this kind of grant.
    pub(crate) async fn grants(&mut self, kind: &str) -> u64 {
        let line = self.order("grants", "grants").await;
        let all: Value = serde_json::from_str(line.trim_start_matches("grants ")).unwrap();
        all[kind].as_u64().unwrap_or_default()
    }

    pub(crate) fn configuration(&self, member: &Member) -> String {
        let ca = member.ca_pem().lines().map(|line| format!("      {line}\n")).collect::<String>();
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {}\n    \
             audiences: [kubefold]\n    certificateAuthority: |\n{ca}  claimMappings:\n    \
             username: {{claim: sub, prefix: 'oidc:'}}\n    groups: {{claim: groups, prefix: 'oidc:'}}\n",
            self.url
        )
    }
}

/// A machine with kubectl, kubefold and a browser, before which one person sits.
pub(crate) struct Desk {
    folder: PathBuf,
}

impl Desk {
    /// In a folder of its own. `member` is the one whose authority signed the provider's certificate.
    pub(crate) fn of(user: &str, folder: &Path, member: &Member) -> Self {
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).unwrap();
        for (name, program) in [("kubefold", program()), ("kubectl", binary("kubectl"))] {
            let link = bin.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(program, link).unwrap();
            }
        }
        // What kubefold opens a browser with, where there is a screen.
        let opener = format!(
            "#!/bin/sh\necho \"$1\" >>'{0}/opened'\nexec '{1}' \"$1\" '{user}' '{2}' >>'{0}/browser.log' 2>&1\n",
            folder.display(),
            client("oidc-browser").display(),
            member.dir().join("ca.crt").display(),
        );
        let path = bin.join("xdg-open");
        fs::write(&path, opener).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder: folder.to_owned() }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}:{}", self.folder.join("bin").display(), std::env::var("PATH").unwrap())
    }

    pub(crate) fn kubectl(&self, kubeconfig: &Path) -> Kubectl {
        Kubectl::new(kubeconfig, &self.folder)
            .with("PATH", &self.path())
            .with("DISPLAY", ":0")
            .with("XDG_CACHE_HOME", "")
    }

    /// A run of kubefold to its end.
    pub(crate) async fn kubefold(&self, args: &[&str], environment: &[(&str, &str)]) -> std::process::Output {
        let mut command = Command::new(program());
        command
            .args(args)
            .env("HOME", &self.folder)
            .env("PATH", self.path())
            .env("DISPLAY", ":0")
            .env("XDG_CACHE_HOME", "");
        command.envs(environment.iter().copied()).kill_on_drop(true);
        tokio::time::timeout(SOON, command.output()).await.expect("an end of kubefold").expect("run kubefold")
    }

    /// Where the browser was sent.
    pub(crate) fn opened(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("opened")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// What the browser showed.
    pub(crate) fn shown(&self) -> String {
        fs::read_to_string(self.folder.join("browser.log")).unwrap_or_default()
    }

    /// Opens a page in it by hand.
    pub(crate) async fn browse(&self, url: &str, user: &str, member: &Member) -> String {
        let mut browser = Command::new(client("oidc-browser"));
        let page = browser.args([url, user]).arg(member.dir().join("ca.crt")).kill_on_drop(true).output();
        let page = tokio::time::timeout(SOON, page).await.expect("a page").unwrap();
        String::from_utf8_lossy(&page.stdout).into_owned()
    }
}
