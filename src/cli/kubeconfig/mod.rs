//! `kubefold kubeconfig`: one context for the fleet, one for each of its other views, one for each member's own API; or one for
//! an API server of its own. It is printed, or put into a person's own files.

mod files;
mod merge;

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::bail;
use aws_lc_rs::{
    encoding::{AsDer, EcPrivateKeyRfc5915Der},
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::builder::NonEmptyStringValueParser;
use http::Uri;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use self::{
    files::{Changed, Files, paths},
    merge::{Addition, Merged, merge, unmerge},
};
use crate::{
    cli::{
        client::Output,
        https_url,
        login::{Exec, ForKubeconfig},
        print as print_text, say,
    },
    serve::{
        Login, Published,
        authority::ADMIN_USER,
        login::{NewLogin, issue},
    },
    view::Mode,
};
#[cfg(feature = "demo")]
use kubefold_apiserver::endpoint::Endpoint;
use kubefold_wire::duration::{self, DurationError};

const FLEET: &str = "fleet";
/// The context of a kubefold that is no fleet.
const APISERVER: &str = "kubefold";
/// Whoever logs in by an issuer: the file is everybody's.
const LOGIN_USER: &str = "login";

#[derive(Debug, clap::Args)]
pub(super) struct Kubeconfig {
    /// The state directory of `kubefold serve` or `kubefold apiserver`.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// The server URL to write, instead of the one that kubefold serves at.
    #[arg(long, value_name = "URL", value_parser = https_url)]
    server: Option<Uri>,
    /// Make a login for this user, instead of the administrator's. Its rights are what RBAC in the members, or in the API server, gives the user.
    #[arg(long, value_name = "USER", value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// A group of the user; may be repeated.
    #[arg(long, value_name = "GROUP", requires = "user", value_parser = NonEmptyStringValueParser::new())]
    group: Vec<String>,
    /// How long the login is good, such as 8h. `kubefold revoke` withdraws it before.
    #[arg(long, value_name = "DURATION", requires = "user", default_value = "24h", value_parser = life)]
    expires: Duration,
    #[command(flatten)]
    issuer: ForKubeconfig,
    #[command(flatten)]
    own: OwnFiles,
    /// The output format.
    #[arg(short, long, value_enum, default_value = "yaml", conflicts_with_all = ["merge", "unmerge"])]
    output: Output,
}

/// What is done with a person's own files.
#[derive(Debug, clap::Args)]
struct OwnFiles {
    /// Put it into your own kubeconfig, and keep everything else there. What an earlier --merge put in is renewed.
    #[arg(long, conflicts_with = "unmerge")]
    merge: bool,
    /// Take out again what --merge put in.
    #[arg(long, conflicts_with_all = ["server", "user"])]
    unmerge: bool,
    /// Your kubeconfig. Default: the files of $KUBECONFIG, as for kubectl config, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Make its context the current one. It becomes that by itself if there is none.
    #[arg(long = "use", requires = "merge")]
    select: bool,
    /// Replace clusters, users and contexts that have its names and lead elsewhere.
    #[arg(long, requires = "merge")]
    force: bool,
}

/// How long a login may be good at most: as long as the own authority's other certificates.
const LIFE_MAX: Duration = Duration::from_hours(730 * 24);

/// The life of a login, as Go writes durations.
fn life(text: &str) -> Result<Duration, LifeError> {
    let nanos = u64::try_from(duration::parse(text)?).unwrap_or_default();
    let life = Duration::from_nanos(nanos);
    if life >= Duration::from_mins(1) && life <= LIFE_MAX { Ok(life) } else { Err(LifeError::OutOfRange) }
}

#[derive(Debug, thiserror::Error)]
enum LifeError {
    #[error(transparent)]
    Duration(#[from] DurationError),
    #[error("write a duration from 1m to 17520h (two years)")]
    OutOfRange,
}

/// Prints it on standard output, or changes a person's own files.
pub(super) fn run(flags: &Kubeconfig) -> anyhow::Result<()> {
    let OwnFiles { merge, unmerge, kubeconfig, .. } = &flags.own;
    if kubeconfig.is_some() && !merge && !unmerge {
        bail!("--kubeconfig names a file for --merge or --unmerge; without them the kubeconfig is printed");
    }
    let published = Published::read(&flags.state_dir)?;
    if *unmerge { flags.take_out(&published) } else { flags.put(&published) }
}

impl Kubeconfig {
    fn put(&self, published: &Published) -> anyhow::Result<()> {
        let (name, user) = match (self.issuer.exec()?, &self.user) {
            (Some(exec), _) => (LOGIN_USER, User::Exec { exec }),
            (None, None) => (ADMIN_USER, User::of(&Published::read_admin(&self.state_dir)?)),
            (None, Some(user)) => {
                let login = NewLogin { user: user.clone(), groups: self.group.clone(), life: self.expires };
                (&**user, User::of(&issue(&self.state_dir, &login, SystemTime::now())?))
            }
        };
        let server = self.server.as_ref();
        let url = server.map_or_else(|| published.url.clone(), |url| url.to_string().trim_end_matches('/').to_owned());
        let file = file(published, &url, name, user);
        if self.own.merge {
            return self.put_in(published, &serde_json::to_value(&file)?);
        }
        let text = match self.output {
            Output::Json => self.output.text(&file)?,
            Output::Yaml => yaml(&file)?,
        };
        print_text(&text)
    }

    fn put_in(&self, published: &Published, config: &Value) -> anyhow::Result<()> {
        let mut files = Files::open(&paths(self.own.kubeconfig.as_deref())?)?;
        let authority = authority(published);
        let OwnFiles { force, select, .. } = self.own;
        let addition = Addition { config, authority: &authority, force, select };
        let Changed { outcome, written } = files.change(|files| merge(files, &addition))?;
        let Merged { contexts, current, .. } = outcome;
        let names = contexts.join(", ");
        let first = contexts.first().map_or("", String::as_str);
        print_text(&match listed(&written) {
            None => format!("contexts {names}: nothing has changed\n"),
            Some(written) => format!("contexts {names}: merged into {written}\n"),
        })?;
        match current {
            Some(current) if current != first => {
                say(&format!(
                    "the current context is still {current}; kubectl config use-context {first} changes that"
                ));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_out(&self, published: &Published) -> anyhow::Result<()> {
        let mut files = Files::open(&paths(self.own.kubeconfig.as_deref())?)?;
        let authority = authority(published);
        let Changed { outcome, written } = files.change(|files| unmerge(files, &authority))?;
        let Merged { contexts, current, left } = outcome;
        print_text(&match listed(&written) {
            None => "nothing of this kubefold was merged\n".to_owned(),
            Some(written) => format!("contexts {}: taken out of {written}\n", contexts.join(", ")),
        })?;
        if !written.is_empty() && current.is_none() {
            say("there is no current context now; kubectl config use-context sets one");
        }
        for context in left {
            say(&format!("the context {context} stays, and leads to a cluster that was taken out"));
        }
        Ok(())
    }
}

/// What tells a kubefold from others, wherever it is served.
fn authority(published: &Published) -> String {
    let digest = Sha256::digest(published.certificate_authority.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn listed(paths: &[PathBuf]) -> Option<String> {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn file(published: &Published, url: &str, user_name: &str, user: User) -> File {
    let name = if published.fleet { FLEET } else { APISERVER };
    let view = |(name, _): (&str, Mode)| (format!("{FLEET}-{name}"), format!("{url}/views/{name}"));
    let other_views = Mode::PREFIXED.into_iter().filter(|_| published.fleet).map(view);
    let views = std::iter::once((name.to_owned(), url.to_owned())).chain(other_views).chain(
        published.members.iter().map(|member| (format!("{FLEET}-{member}"), format!("{url}/clusters/{member}"))),
    );
    let authority = STANDARD.encode(&published.certificate_authority);
    let (mut clusters, mut contexts) = (Vec::new(), Vec::new());
    for (name, server) in views {
        let cluster = Cluster { certificate_authority_data: authority.clone(), server };
        clusters.push(NamedCluster { cluster, name: name.clone() });
        contexts.push(NamedContext { context: ContextOf { cluster: name.clone(), user: user_name.to_owned() }, name });
    }
    File {
        api_version: "v1",
        kind: "Config",
        current_context: name,
        clusters,
        contexts,
        users: vec![NamedUser { name: user_name.to_owned(), user }],
    }
}

fn yaml(file: &File) -> anyhow::Result<String> {
    // A credential stays on its line: people and scripts look for it there.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    Ok(serde_saphyr::to_string_with_options(file, options)?)
}

#[derive(Serialize)]
struct File {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(rename = "current-context")]
    current_context: &'static str,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    users: Vec<NamedUser>,
}

/// A key of an elliptic curve in the form of RFC 5915, `EC PRIVATE KEY`, which every client reads: fabric8's for Java reads
/// no PKCS#8 of that kind. `None` for any other key.
fn sec1(key: &str) -> Option<String> {
    let pkcs8 = pem::parse(key).ok().filter(|pem| pem.tag() == "PRIVATE KEY")?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.contents()).ok()?;
    let der: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().ok()?;
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    Some(pem::encode_config(&pem::Pem::new("EC PRIVATE KEY", der.as_ref()), config))
}

/// As [`run`] prints it, with a context more that leads to an endpoint.
#[cfg(feature = "demo")]
pub(super) fn with_endpoint(
    published: &Published,
    admin: &Login,
    name: &'static str,
    endpoint: &Endpoint,
) -> anyhow::Result<String> {
    let mut file = file(published, &published.url, ADMIN_USER, User::of(admin));
    file.add(name, endpoint);
    yaml(&file)
}

/// A kubeconfig of an endpoint alone.
#[cfg(feature = "demo")]
pub(super) fn of_endpoint(name: &'static str, endpoint: &Endpoint) -> anyhow::Result<String> {
    let (clusters, contexts, users) = (Vec::new(), Vec::new(), Vec::new());
    let mut file = File { api_version: "v1", kind: "Config", current_context: name, clusters, contexts, users };
    file.add(name, endpoint);
    yaml(&file)
}

#[cfg(feature = "demo")]
impl File {
    fn add(&mut self, name: &'static str, endpoint: &Endpoint) {
        let server = format!("https://{}", endpoint.address());
        let certificate_authority_data = STANDARD.encode(endpoint.certificate());
        self.clusters.push(NamedCluster { cluster: Cluster { certificate_authority_data, server }, name: name.into() });
        self.contexts
            .push(NamedContext { context: ContextOf { cluster: name.into(), user: name.into() }, name: name.into() });
        self.users.push(NamedUser { name: name.into(), user: User::Token { token: endpoint.token().to_owned() } });
    }
}

#[derive(Serialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Serialize)]
struct NamedContext {
    name: String,
    context: ContextOf,
}

#[derive(Serialize)]
struct ContextOf {
    cluster: String,
    user: String,
}

#[derive(Serialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Serialize)]
#[serde(untagged)]
enum User {
    #[serde(rename_all = "kebab-case")]
    Certificate {
        client_certificate_data: String,
        client_key_data: String,
    },
    Exec {
        exec: Exec,
    },
    #[cfg(feature = "demo")]
    Token {
        token: String,
    },
}

impl User {
    fn of(login: &Login) -> Self {
        Self::Certificate {
            client_certificate_data: STANDARD.encode(&login.certificate),
            client_key_data: STANDARD.encode(sec1(&login.key).as_deref().unwrap_or(&login.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    /// Java's fabric8 reads a key of an elliptic curve in this form alone, openssl and rustls in both.
    #[test]
    fn a_key_is_in_the_form_that_every_client_reads() {
        let folder = tempfile::tempdir().unwrap();
        let state = crate::serve::StateDir::open(&folder.path().join("state")).unwrap();
        crate::serve::authority::ensure(&state, &[].into(), &[].into(), SystemTime::now()).unwrap();
        let wanted = NewLogin { user: "jane".into(), groups: vec!["dev".into()], life: Duration::from_hours(8) };
        let login = issue(state.path(), &wanted, SystemTime::now()).unwrap();
        let key = sec1(&login.key).unwrap();
        assert!(key.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{key}");
        use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
        let certificate = CertificateDer::from_pem_slice(login.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        rustls::sign::CertifiedKey::from_der(vec![certificate], key, &provider).unwrap();
        assert_eq!(sec1("KEY"), None);
    }

    #[test]
    fn a_client_reads_it_as_fleet_and_one_context_per_member() {
        let published = Published {
            url: "https://127.0.0.1:6443".into(),
            fleet: true,
            members: vec!["east".into(), "west".into()],
            certificate_authority: "CA".into(),
        };
        let admin = Login { certificate: "CERT".into(), key: "KEY".repeat(99) };
        let made = file(&published, &published.url, "jane", User::of(&admin));
        let text = yaml(&made).unwrap();
        let read = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("fleet"));
        assert!(text.contains("    client-key-data: "), "{text}");
        let seen: Vec<_> = read
            .contexts
            .iter()
            .map(|named| {
                let context = named.context.as_ref().unwrap();
                let cluster = read.clusters.iter().find(|cluster| cluster.name == context.cluster).unwrap();
                let cluster = cluster.cluster.as_ref().unwrap();
                assert_eq!(cluster.certificate_authority_data.as_deref(), Some(&*STANDARD.encode("CA")));
                (named.name.as_str(), cluster.server.clone().unwrap())
            })
            .collect();
        let expected = [
            ("fleet", "https://127.0.0.1:6443".to_owned()),
            ("fleet-lenient", "https://127.0.0.1:6443/views/lenient".to_owned()),
            ("fleet-strict", "https://127.0.0.1:6443/views/strict".to_owned()),
            ("fleet-east", "https://127.0.0.1:6443/clusters/east".to_owned()),
            ("fleet-west", "https://127.0.0.1:6443/clusters/west".to_owned()),
        ];
        assert_eq!(seen, expected);
        let alone = Published { fleet: false, members: Vec::new(), ..published };
        let read = Kubeconfig::from_yaml(&yaml(&file(&alone, &alone.url, "jane", User::of(&admin))).unwrap()).unwrap();
        let names: Vec<&str> = read.contexts.iter().map(|named| named.name.as_str()).collect();
        assert_eq!((read.current_context.as_deref(), names), (Some("kubefold"), vec!["kubefold"]));
    }
}
