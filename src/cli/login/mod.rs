//! `kubefold login`: an exec credential plugin that logs a person in at an issuer of OpenID Connect.
//!
//! kubectl and every program with client-go run it by the kubeconfig that `kubefold kubeconfig --oidc-issuer-url` prints, and
//! take the ID token that it prints. The token and what renews it are kept in the user's cache, so that a browser is needed once.

mod cache;
mod device;
mod flags;
mod issuer;
mod loopback;
mod machine;
mod token;

use std::{io::IsTerminal as _, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use self::{
    cache::{Cache, Kept, Key},
    flags::{Flow, Listen, Parameter, issuer_url},
    issuer::Issuer,
    machine::now_s,
};
use crate::cli::print as print_text;
use kubefold_wire::golang::Quoted;

pub(super) use self::{cache::Logout, flags::Login, loopback::open as open_browser, machine::secret};

/// A person has logged in by then.
const LOGIN_MAX: Duration = Duration::from_mins(5);
/// A token that ends sooner is renewed: what is asked with it has to arrive before its end.
const LEFT_MIN_S: u64 = 10;
/// How a program says what it understands. Source: KEP-541 (client-go credential plugins).
const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";
const EXEC_GROUP: &str = "client.authentication.k8s.io";
const EXEC_VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// Logs in, and prints the credential.
pub(super) fn run(flags: &Login) -> anyhow::Result<()> {
    let version = asked(std::env::var(EXEC_INFO).ok().as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let login = runtime.block_on(Box::pin(async { timeout(LOGIN_MAX, obtain(flags)).await }));
    let kept = login.map_err(|_| {
        anyhow!(
            "nobody logged in at {} within {} minutes; run the command again",
            flags.issuer_url,
            LOGIN_MAX.as_secs() / 60
        )
    })??;
    if version.is_none() && std::io::stdout().is_terminal() {
        let until = jiff::Timestamp::from_second(i64::try_from(kept.ends_s)?)?;
        return print_text(&format!("logged in at {} as {} until {until}\n", flags.issuer_url, kept.subject));
    }
    print_text(&credential(version.unwrap_or(EXEC_VERSIONS[0]), &kept)?)
}

/// The version of the credential that the program reads, if a program asks at all.
fn asked(info: Option<&str>) -> anyhow::Result<Option<&'static str>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        api_version: String,
    }
    let Some(info) = info.filter(|info| !info.is_empty()) else { return Ok(None) };
    let Info { api_version } = serde_json::from_str(info).with_context(|| format!("{EXEC_INFO} cannot be read"))?;
    let known = EXEC_VERSIONS.into_iter().find(|version| *version == api_version);
    let unknown = || anyhow!("the kubeconfig asks for {}; write {EXEC_GROUP}/v1 there", Quoted(&api_version));
    known.map(Some).ok_or_else(unknown)
}

fn credential(version: &str, kept: &Kept) -> anyhow::Result<String> {
    // Before its end, so that a program fetches the next one in time.
    let until = jiff::Timestamp::from_second(i64::try_from(kept.ends_s.saturating_sub(LEFT_MIN_S))?)?;
    let status = json!({"expirationTimestamp": until.to_string(), "token": kept.id_token});
    Ok(json!({"apiVersion": version, "kind": "ExecCredential", "status": status}).to_string() + "\n")
}

/// A token that lasts: the one that is kept, one by the refresh token, or one by a person.
async fn obtain(flags: &Login) -> anyhow::Result<Kept> {
    let cache = Cache::open(&flags.key())?;
    if let Some(kept) = cache.read().filter(lasts) {
        return Ok(kept);
    }
    let _lock = cache.lock().await?;
    // Another login may have ended meanwhile.
    let old = cache.read();
    if let Some(kept) = old.clone().filter(lasts) {
        return Ok(kept);
    }
    let issuer = Issuer::discover(flags).await?;
    let refreshed = match &old {
        Some(old) => issuer.refresh(old).await?,
        None => None,
    };
    let kept = match refreshed {
        Some(kept) => kept,
        None if flags.flow == Flow::Device => Box::pin(device::log_in(&issuer, &flags.auth_param)).await?,
        None => Box::pin(loopback::log_in(&issuer, flags)).await?,
    };
    cache.write(&kept)?;
    Ok(kept)
}

fn lasts(kept: &Kept) -> bool {
    kept.ends_s > now_s() + LEFT_MIN_S
}

impl Login {
    fn key(&self) -> Key {
        let parameters = self.auth_param.iter().map(|Parameter { name, value }| format!("{name}={value}"));
        Key {
            issuer: self.issuer_url.clone(),
            client: self.client_id.clone(),
            asked: self.scope.iter().cloned().chain(parameters).collect(),
        }
    }
}

/// The same for a kubeconfig: what it says to `kubefold login`.
#[derive(Debug, clap::Args)]
pub(super) struct ForKubeconfig {
    /// Print a kubeconfig without a secret, for everybody: its users log in at this OpenID Connect issuer by kubefold login.
    #[arg(long, value_name = "URL", conflicts_with = "user", requires = "oidc_client_id", value_parser = issuer_url)]
    oidc_issuer_url: Option<String>,
    /// The id that the issuer knows kubefold login by.
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    oidc_client_id: Option<String>,
    /// One more scope to ask for; may be repeated.
    #[arg(long, value_name = "SCOPE", requires = "oidc_issuer_url")]
    oidc_scope: Vec<String>,
    /// The authority that signed the issuer's certificate (PEM); the kubeconfig gets a copy.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    oidc_certificate_authority: Option<PathBuf>,
    /// How its users log in. Default: loopback.
    #[arg(long, value_enum, requires = "oidc_issuer_url")]
    oidc_flow: Option<Flow>,
    /// Where the browser brings the answer; may be repeated. Default: 127.0.0.1 and any free port.
    #[arg(long, value_name = "HOST:PORT", value_parser = Listen::parse, requires = "oidc_issuer_url")]
    oidc_listen: Vec<Listen>,
    /// One more parameter of the login, such as prompt=consent; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = Parameter::parse, requires = "oidc_issuer_url")]
    oidc_auth_param: Vec<Parameter>,
}

impl ForKubeconfig {
    /// The user of the kubeconfig, if it is to log in at an issuer.
    ///
    /// Errors: the authority cannot be read.
    pub(super) fn exec(&self) -> anyhow::Result<Option<Exec>> {
        let (Some(issuer), Some(client)) = (&self.oidc_issuer_url, &self.oidc_client_id) else { return Ok(None) };
        let mut args = vec!["login".to_owned(), format!("--issuer-url={issuer}"), format!("--client-id={client}")];
        args.extend(self.oidc_scope.iter().map(|scope| format!("--scope={scope}")));
        if let Some(file) = &self.oidc_certificate_authority {
            let pem = issuer::authority_of(file)?;
            args.push(format!("--certificate-authority-data={pem}"));
        }
        if self.oidc_flow == Some(Flow::Device) {
            args.push("--flow=device".to_owned());
        }
        args.extend(
            self.oidc_auth_param.iter().map(|Parameter { name, value }| format!("--auth-param={name}={value}")),
        );
        args.extend(
            self.oidc_listen.iter().map(|Listen { host, address }| format!("--listen={host}:{}", address.port())),
        );
        Ok(Some(Exec {
            api_version: EXEC_VERSIONS[0],
            command: "kubefold",
            args,
            interactive_mode: "IfAvailable",
            install_hint: "kubefold is not on your PATH; it logs you in at your organization's issuer. Install the version that \
                           serves the fleet, or ask whoever gave you this kubeconfig.",
            provide_cluster_info: false,
        }))
    }
}

/// A user of a kubeconfig who logs in by a plugin.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Exec {
    api_version: &'static str,
    command: &'static str,
    args: Vec<String>,
    interactive_mode: &'static str,
    install_hint: &'static str,
    provide_cluster_info: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_the_version_that_it_asks_for() {
        let info = |version: &str| json!({"apiVersion": version, "kind": "ExecCredential", "spec": {}}).to_string();
        for version in EXEC_VERSIONS {
            assert_eq!(asked(Some(&info(version))).unwrap(), Some(version));
        }
        assert_eq!(asked(None).unwrap(), None);
        let old = asked(Some(&info("client.authentication.k8s.io/v1alpha1"))).unwrap_err().to_string();
        assert!(old.contains("write client.authentication.k8s.io/v1 there"), "{old}");
        assert!(asked(Some("{")).is_err());
    }

    #[test]
    fn a_credential_ends_before_its_token() {
        let kept = Kept { ends_s: 1_000_000_010, id_token: "e.y.J".into(), ..Kept::default() };
        let made: serde_json::Value = serde_json::from_str(&credential(EXEC_VERSIONS[1], &kept).unwrap()).unwrap();
        let status = json!({"expirationTimestamp": "2001-09-09T01:46:40Z", "token": "e.y.J"});
        assert_eq!(made, json!({"apiVersion": EXEC_VERSIONS[1], "kind": "ExecCredential", "status": status}));
    }
}
