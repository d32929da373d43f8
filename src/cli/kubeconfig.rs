//! `kubefold kubeconfig`: one context for the fleet, one for each of its other views, one for each member's own API.

use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Uri;
use serde::Serialize;

use crate::{
    cli::{client::Output, print as print_text},
    serve::{Login, Published},
    view::Mode,
};
#[cfg(feature = "demo")]
use kubefold_apiserver::endpoint::Endpoint;

const FLEET: &str = "fleet";
const USER: &str = "kubefold-admin";

/// Prints it on standard output.
pub(super) fn print(state_dir: &Path, server: Option<&Uri>, output: Output) -> anyhow::Result<()> {
    let published = Published::read(state_dir)?;
    let admin = Published::read_admin(state_dir)?;
    let url = server.map_or_else(|| published.url.clone(), |url| url.to_string().trim_end_matches('/').to_owned());
    let file = file(&published, &url, &admin);
    let text = match output {
        Output::Json => output.text(&file)?,
        Output::Yaml => yaml(&file)?,
    };
    print_text(&text)
}

fn file(published: &Published, url: &str, admin: &Login) -> File {
    let view = |(name, _): (&str, Mode)| (format!("{FLEET}-{name}"), format!("{url}/views/{name}"));
    let views = std::iter::once((FLEET.to_owned(), url.to_owned())).chain(Mode::PREFIXED.map(view)).chain(
        published.members.iter().map(|member| (format!("{FLEET}-{member}"), format!("{url}/clusters/{member}"))),
    );
    let authority = STANDARD.encode(&published.certificate_authority);
    let (mut clusters, mut contexts) = (Vec::new(), Vec::new());
    for (name, server) in views {
        let cluster = Cluster { certificate_authority_data: authority.clone(), server };
        clusters.push(NamedCluster { cluster, name: name.clone() });
        contexts.push(NamedContext { context: ContextOf { cluster: name.clone(), user: USER }, name });
    }
    let user = User::Certificate {
        client_certificate_data: STANDARD.encode(&admin.certificate),
        client_key_data: STANDARD.encode(&admin.key),
    };
    File {
        api_version: "v1",
        kind: "Config",
        current_context: FLEET,
        clusters,
        contexts,
        users: vec![NamedUser { name: USER, user }],
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

/// As [`print`] prints it, with a context more that leads to an endpoint.
#[cfg(feature = "demo")]
pub(super) fn with_endpoint(
    published: &Published,
    admin: &Login,
    name: &'static str,
    endpoint: &Endpoint,
) -> anyhow::Result<String> {
    let mut file = file(published, &published.url, admin);
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
        self.contexts.push(NamedContext { context: ContextOf { cluster: name.into(), user: name }, name: name.into() });
        self.users.push(NamedUser { name, user: User::Token { token: endpoint.token().to_owned() } });
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
    user: &'static str,
}

#[derive(Serialize)]
struct NamedUser {
    name: &'static str,
    user: User,
}

#[derive(Serialize)]
#[serde(untagged)]
enum User {
    #[serde(rename_all = "kebab-case")]
    Certificate { client_certificate_data: String, client_key_data: String },
    #[cfg(feature = "demo")]
    Token { token: String },
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn a_client_reads_it_as_fleet_and_one_context_per_member() {
        let published = Published {
            url: "https://127.0.0.1:6443".into(),
            members: vec!["east".into(), "west".into()],
            certificate_authority: "CA".into(),
        };
        let admin = Login { certificate: "CERT".into(), key: "KEY".repeat(99) };
        let made = file(&published, &published.url, &admin);
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
    }
}
