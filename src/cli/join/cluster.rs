//! What `deploy/member-rbac.yaml` has, in one cluster.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::{Context, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Method, Request};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::{Value, json};

use kubefold_serving::authenticate::AUTHENTICATED;
use kubefold_wire::golang::Quoted;

/// The rights, one document for each object.
const MANIFEST: &str = include_str!("../../../deploy/member-rbac.yaml");
/// Of the rule that lets kubefold act for groups.
const ANY_GROUP: &str = "    resources: [\"groups\"]\n";
const NAMESPACE: &str = "kubefold";
const MANAGER: &str = "kubefold-join";
/// On the namespace, where `join` made it.
const MADE_BY: &str = "app.kubernetes.io/managed-by";

/// A ServiceAccount of [`MANIFEST`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Account {
    Reader,
    Impersonator,
}

impl Account {
    fn name(self) -> &'static str {
        match self {
            Self::Reader => "kubefold-reader",
            Self::Impersonator => "kubefold-impersonator",
        }
    }
}

/// A cluster, as its administrator reaches it.
pub(super) struct Cluster {
    client: Client,
    context: String,
    server: String,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
    authority: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

impl Object {
    /// Where objects of its kind are.
    fn collection(&self) -> String {
        let root = if self.api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{}", self.api_version) };
        let plural = format!("{}s", self.kind.to_ascii_lowercase());
        match &self.metadata.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.metadata.name)
    }

    fn title(&self) -> String {
        format!("{}/{}", self.kind.to_ascii_lowercase(), self.metadata.name)
    }
}

/// The manifest, with the right to act for these groups alone, if there are any. Every caller is in one more.
pub(super) fn manifest(groups: &[String]) -> String {
    if groups.is_empty() {
        return MANIFEST.to_owned();
    }
    let named: BTreeSet<&str> = groups.iter().map(String::as_str).chain([AUTHENTICATED]).collect();
    let named: Vec<String> = named.iter().map(|group| format!("\"{group}\"")).collect();
    MANIFEST.replace(ANY_GROUP, &format!("{ANY_GROUP}    resourceNames: [{}]\n", named.join(", ")))
}

/// The objects of a manifest, with their texts.
fn objects(manifest: &str) -> anyhow::Result<Vec<(Object, &str)>> {
    let documents = manifest.split("\n---\n");
    documents.map(|text| Ok((serde_saphyr::from_str(text)?, text))).collect()
}

impl Cluster {
    /// By a context of a kubeconfig.
    ///
    /// Errors: it has none of that name, or cannot be used; its server is not verified.
    pub(super) async fn of(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Self> {
        let read = match file {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let kubeconfig =
            read.map_err(|error| anyhow!("cannot read the kubeconfig: {error}; name another with --kubeconfig"))?;
        let known: Vec<&str> = kubeconfig.contexts.iter().map(|named| named.name.as_str()).collect();
        let context = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone()).unwrap_or_default();
        let named = kubeconfig.contexts.iter().find(|named| named.name == context);
        let Some(named) = named else {
            bail!("the kubeconfig has no context {}; its contexts are {}", Quoted(&context), known.join(", "));
        };
        let name = named.context.as_ref().map(|context| context.cluster.clone()).unwrap_or_default();
        let cluster = kubeconfig.clusters.iter().find(|named| named.name == name);
        let cluster = cluster.and_then(|named| named.cluster.clone());
        let cluster = cluster.ok_or_else(|| anyhow!("context {} names no cluster", Quoted(&context)))?;
        let server = cluster.server.clone().unwrap_or_default();
        if cluster.insecure_skip_tls_verify == Some(true) || !server.starts_with("https://") {
            bail!(
                "the kubeconfig does not verify the server of {}: kubefold's tokens would be for whoever answers there; give \
                 its certificate authority",
                Quoted(&context)
            );
        }
        let authority = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
            (Some(data), _) => Some(String::from_utf8(STANDARD.decode(data.trim())?)?),
            (None, Some(path)) => Some(fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?),
            (None, None) => None,
        };
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.context("cannot use the kubeconfig")?;
        let client = Client::try_from(config).with_context(|| format!("cannot connect to {server}"))?;
        let (tls_server_name, proxy_url) = (cluster.tls_server_name.clone(), cluster.proxy_url.clone());
        Ok(Self { client, context, server, tls_server_name, proxy_url, authority })
    }

    pub(super) fn context(&self) -> &str {
        &self.context
    }

    pub(super) fn url(&self) -> &str {
        &self.server
    }

    pub(super) fn tls_server_name(&self) -> Option<&str> {
        self.tls_server_name.as_deref().filter(|name| !name.is_empty())
    }

    pub(super) fn proxy_url(&self) -> Option<&str> {
        self.proxy_url.as_deref().filter(|url| !url.is_empty())
    }

    /// PEM of who signed the server's certificate, unless the system knows.
    pub(super) fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// What is made in it.
    pub(super) fn names(&self) -> Vec<String> {
        objects(MANIFEST).map(|objects| objects.iter().map(|(object, _)| object.title()).collect()).unwrap_or_default()
    }

    /// Makes all objects of a manifest, or makes them as they should be, and says what.
    pub(super) async fn apply(&self, manifest: &str) -> anyhow::Result<Vec<String>> {
        let mut done = Vec::new();
        for (object, text) in objects(manifest)? {
            // A namespace that is there is somebody's, and stays so.
            let answer = if object.kind == "Namespace" {
                let labels = json!({MADE_BY: MANAGER});
                let body = json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": object.metadata.name, "labels": labels}});
                self.ask(Method::POST, &object.collection(), "application/json", body.to_string()).await
            } else {
                let path = format!("{}?fieldManager={MANAGER}&force=true", object.path());
                self.ask(Method::PATCH, &path, "application/apply-patch+yaml", text.to_owned()).await
            };
            match answer {
                Ok(_) => done.push(format!("{} applied", object.title())),
                Err(kube::Error::Api(status)) if status.code == 409 && object.kind == "Namespace" => {}
                Err(error) => return Err(self.refused(&format!("cannot make {}", object.title()), &error)),
            }
        }
        Ok(done)
    }

    /// A new token of one of the accounts.
    pub(super) async fn token(&self, account: Account, life: Duration) -> anyhow::Result<String> {
        let name = account.name();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token");
        let spec = json!({"expirationSeconds": life.as_secs()});
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let answer = self.ask(Method::POST, &path, "application/json", body.to_string()).await;
        let answer = answer.map_err(|error| self.refused(&format!("cannot make a token of {name}"), &error))?;
        let answer: Value = serde_json::from_str(&answer)?;
        let token = answer["status"]["token"].as_str().ok_or_else(|| anyhow!("{} gave no token", self.server))?;
        Ok(token.to_owned())
    }

    /// Removes all objects, the last first, and the namespace if `join` made it; says what.
    pub(super) async fn remove(&self) -> anyhow::Result<Vec<String>> {
        let mut done = Vec::new();
        for (object, _) in objects(MANIFEST)?.into_iter().rev() {
            let path = object.path();
            let cannot = |error: &kube::Error| self.refused(&format!("cannot remove {}", object.title()), error);
            if object.kind == "Namespace" {
                let found = match self.ask(Method::GET, &path, "application/json", String::new()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => continue,
                    found => found.map_err(|error| cannot(&error))?,
                };
                let found: Value = serde_json::from_str(&found)?;
                if found["metadata"]["labels"][MADE_BY] != MANAGER {
                    continue;
                }
            }
            match self.ask(Method::DELETE, &path, "application/json", String::new()).await {
                Ok(_) => done.push(format!("{} removed", object.title())),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(cannot(&error)),
            }
        }
        Ok(done)
    }

    async fn ask(&self, method: Method, path: &str, media: &str, body: String) -> Result<String, kube::Error> {
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(body.into_bytes()).map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await
    }

    fn refused(&self, what: &str, error: &kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) => anyhow!("{what}: {} answered {}: {}", self.server, status.code, status.message),
            other => anyhow!("{what}: cannot reach {}: {}", self.server, last_cause(other)),
        }
    }
}

/// The last cause says it: those before it say which layer handed it on.
fn last_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_manifest_has_its_path() {
        let paths: Vec<String> = objects(MANIFEST).unwrap().iter().map(|(object, _)| object.path()).collect();
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        assert_eq!(paths.len(), 13);
        assert_eq!(paths[0], "/api/v1/namespaces/kubefold");
        assert_eq!(paths[1], "/api/v1/namespaces/kubefold/serviceaccounts/kubefold-reader");
        assert!(paths.contains(&format!("{rbac}/clusterrolebindings/kubefold-impersonator")));
        assert!(paths.contains(&format!("{rbac}/namespaces/kubefold/rolebindings/kubefold-reader")));
    }

    #[test]
    fn the_right_to_act_for_groups_is_narrowed() {
        assert_eq!(manifest(&[]), MANIFEST);
        let narrowed = manifest(&["dev".to_owned(), "oidc:ops".to_owned()]);
        let rule = "resources: [\"groups\"]\n    resourceNames: [\"dev\", \"oidc:ops\", \"system:authenticated\"]\n    verbs: [\"impersonate\"]\n";
        assert_eq!(narrowed.matches(rule).count(), 1, "{narrowed}");
        assert_eq!(objects(&narrowed).unwrap().len(), 13);
    }
}
