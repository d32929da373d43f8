//! A webhook that knows whose tokens are that nobody else knows: it is asked with a `TokenReview`.
//!
//! Source: kubernetes/apiserver `plugin/pkg/authenticator/token/webhook/webhook.go`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use kube::{
    Client,
    client::Body,
    config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::authn::{
    AuthnError,
    bearer::next_number,
    known::{AGAIN_AFTER, GRACE, Known, TOKEN_BYTES_MAX},
};
use kubefold_serving::{
    authenticate::{AUTHENTICATED, of_cluster, of_people},
    caller::Caller,
};

pub(super) const FLAG: &str = "--authentication-token-webhook-config-file";

/// Where a kube-apiserver is asked.
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// As long as the answers of a kube-apiserver count for an aggregated API server.
///
/// Source: kubernetes/apiserver `pkg/server/options/authentication.go`, `NewDelegatingAuthenticationOptions`.
const HOST_HOLDS: Duration = Duration::from_secs(10);
const VERSION: &str = "authentication.k8s.io/v1";
const KIND: &str = "TokenReview";
/// It has not said what it has not said by then.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Questions at once; others wait, as long as for an answer.
const QUESTIONS_MAX: usize = 64;

/// Who is asked about tokens, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSource {
    /// As a kube-apiserver's `--authentication-token-webhook-config-file`.
    pub path: PathBuf,
    /// Its yes holds for so long.
    pub holds: Duration,
    /// As a kube-apiserver's `--api-audiences`: a token has to be for one of them. None: for whatever the webhook thinks.
    pub audiences: Vec<String>,
}

/// The host's kube-apiserver, which knows its own tokens.
pub struct HostTokens {
    /// As kubefold logs in there.
    pub client: Client,
    /// Its name as a domain.
    pub cluster: Arc<str>,
}

/// A webhook, and what it has said.
pub(super) struct Webhook {
    client: Client,
    path: String,
    holds: Duration,
    audiences: Vec<String>,
    /// The cluster that it is, by its name as a domain: its components and ServiceAccounts are somebody there.
    cluster: Option<Arc<str>>,
    known: Known<Option<Caller>>,
    places: Semaphore,
    number: u64,
}

/// Why it has not said whose a token is.
#[derive(Debug, thiserror::Error)]
enum Silence {
    #[error("it did not answer in {}s", ANSWER_MAX.as_secs())]
    Late,
    #[error("{0}")]
    Client(#[from] kube::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("its answer broke off, or has more than {ANSWER_BYTES_MAX} bytes")]
    Body,
    #[error("it answered {0}")]
    Code(StatusCode),
    #[error("its answer is no {KIND} of {VERSION}")]
    Form,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    audiences: &'a [String],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    api_version: String,
    kind: String,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: User,
    audiences: Vec<String>,
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
}

/// What makes a webhook another one: its kubeconfig, and the certificates that this names.
pub(super) fn text(path: &Path) -> Result<String, AuthnError> {
    let unreadable = |source| AuthnError::Unreadable { flag: FLAG, path: path.to_path_buf(), source };
    let mut text = fs::read_to_string(path).map_err(unreadable)?;
    let Ok(kubeconfig) = Kubeconfig::read_from(path) else { return Ok(text) };
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()?.certificate_authority.clone());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let users = users.flat_map(|user| [user.client_certificate.clone(), user.client_key.clone()]).flatten();
    for file in clusters.chain(users) {
        // One that is not there is said when the client is made.
        text.push_str(&fs::read_to_string(file).unwrap_or_default());
    }
    Ok(text)
}

impl Webhook {
    /// Connects to nothing yet.
    pub(super) fn new(source: &WebhookSource) -> Result<Self, AuthnError> {
        let path = || source.path.clone();
        let refuse = |cause: KubeconfigError| AuthnError::Kubeconfig { flag: FLAG, path: path(), source: cause.into() };
        let kubeconfig = Kubeconfig::read_from(&source.path).map_err(refuse)?;
        // It is async in name only.
        let options = KubeConfigOptions::default();
        let made = Config::from_custom_kubeconfig(kubeconfig, &options);
        let mut config = futures::executor::block_on(made).map_err(refuse)?;
        let url = config.cluster_url.clone();
        if !is_private(&url) {
            return Err(AuthnError::Plain { flag: FLAG, path: path(), url: url.to_string() });
        }
        // The path is sent as it is written; kube would end it with a slash.
        let mut parts = url.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        config.cluster_url = Uri::from_parts(parts).unwrap_or_else(|_| url.clone());
        config.default_retry = false;
        let refuse = |cause: kube::Error| AuthnError::Client { flag: FLAG, path: path(), source: cause.into() };
        Ok(Self {
            path: Some(url.path().trim_end_matches('/')).filter(|path| !path.is_empty()).unwrap_or("/").to_owned(),
            holds: source.holds,
            audiences: source.audiences.clone(),
            cluster: None,
            ..Self::asking(Client::try_from(config).map_err(refuse)?)
        })
    }

    /// The host's kube-apiserver, as a webhook.
    pub(super) fn of_host(source: HostTokens) -> Self {
        Self { cluster: Some(source.cluster), ..Self::asking(source.client) }
    }

    /// A kube-apiserver about tokens that are for itself.
    fn asking(client: Client) -> Self {
        Self {
            client,
            path: REVIEWS.to_owned(),
            holds: HOST_HOLDS,
            audiences: Vec::new(),
            cluster: None,
            known: Known::default(),
            places: Semaphore::new(QUESTIONS_MAX),
            number: next_number(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whose a token is. Equal questions at the same time are one.
    pub(super) async fn caller(&self, token: &str) -> Option<Caller> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let slot = self.known.slot(token);
        if let Some(known) = slot.fresh() {
            return known.flatten();
        }
        let _turn = slot.turn().await;
        if let Some(known) = slot.fresh() {
            return known.flatten();
        }
        let asked = Instant::now();
        match timeout(ANSWER_MAX, self.ask(token)).await.unwrap_or(Err(Silence::Late)) {
            Ok(caller) => {
                let holds_for = if caller.is_some() { self.holds } else { AGAIN_AFTER };
                slot.is(caller, asked, holds_for)
            }
            Err(error) => {
                tracing::warn!(%error, "the token webhook does not say whose a token is");
                slot.is_unknown(|_, at| asked < at + self.holds + GRACE).flatten()
            }
        }
    }

    async fn ask(&self, token: &str) -> Result<Option<Caller>, Silence> {
        let Ok(_place) = self.places.acquire().await else { return Err(Silence::Late) };
        let spec = Spec { token, audiences: &self.audiences };
        let review =
            serde_json::to_vec(&Asked { api_version: VERSION, kind: KIND, spec }).map_err(|_| Silence::Form)?;
        let json = "application/json";
        let request = Request::post(self.path.as_str()).header("content-type", json).header("accept", json);
        let answer = self.client.send(request.body(Body::from(review))?).await?;
        if !answer.status().is_success() {
            return Err(Silence::Code(answer.status()));
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|_| Silence::Body)?;
        said(&body.to_bytes(), &self.audiences, self.cluster.as_deref())
    }
}

/// What an answer comes to, to a question about these audiences. The extras of a token stay out, as those of a member's do:
/// kubefold may not name them to members.
fn said(body: &[u8], wanted: &[String], cluster: Option<&str>) -> Result<Option<Caller>, Silence> {
    let said: Said = serde_json::from_slice(body).map_err(|_| Silence::Form)?;
    if (said.api_version.as_str(), said.kind.as_str()) != (VERSION, KIND) {
        return Err(Silence::Form);
    }
    let Status { authenticated, user, audiences, error } = said.status;
    if !authenticated {
        if !error.is_empty() {
            tracing::info!(error, "the token webhook refused a token");
        }
        return Ok(None);
    }
    // One that names no audience knows of none: the token is good for whoever asks.
    let is_for_us = wanted.is_empty() || audiences.is_empty() || audiences.iter().any(|one| wanted.contains(one));
    if !is_for_us || user.username.is_empty() {
        tracing::info!(?audiences, "the token webhook knows a token that is for others, or nobody's");
        return Ok(None);
    }
    let User { username: user, uid, mut groups } = user;
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let uid = Some(uid).filter(|uid| !uid.is_empty());
    let caller = Caller { user, groups, uid, ..Caller::default() };
    Ok(match cluster {
        Some(cluster) => of_cluster(caller, cluster),
        None => of_people(caller),
    })
}

/// Whoever sees a token may use it. On this machine nobody is on the way.
fn is_private(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    url.scheme_str() == Some("https") || is_here
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(status: Value, wanted: &[&str]) -> Option<Caller> {
        let wanted: Vec<String> = wanted.iter().map(|one| (*one).to_owned()).collect();
        let body = json!({"apiVersion": VERSION, "kind": KIND, "status": status}).to_string();
        said(body.as_bytes(), &wanted, None).unwrap()
    }

    fn jane() -> Value {
        json!({"username": "jane", "uid": "u", "groups": ["dev", "", "system:nodes", "kubefold:admins", "system:masters"],
            "extra": {"scopes": ["a"]}})
    }

    #[test]
    fn an_answer_names_a_person_and_nobody_of_kubernetes_own() {
        let jane = of(json!({"authenticated": true, "user": jane()}), &[]).unwrap();
        assert_eq!((jane.user.as_str(), jane.uid.as_deref(), jane.domain.as_deref()), ("jane", Some("u"), None));
        assert_eq!(jane.groups, ["dev", "system:masters", "system:authenticated"]);
        assert!(jane.extra.is_empty());
        for nobody in [
            json!({}),
            json!({"authenticated": false, "user": {"username": "jane"}, "error": "it has ended"}),
            json!({"authenticated": true}),
            json!({"authenticated": true, "user": {"username": "system:serviceaccount:a:b"}}),
        ] {
            assert_eq!(of(nobody, &[]), None);
        }
    }

    /// The host knows its ServiceAccounts, and they are somebody there alone.
    #[test]
    fn the_host_names_its_own_accounts_in_itself() {
        let user = json!({"username": "system:serviceaccount:shop:bot", "groups": ["system:serviceaccounts", "kubefold:admins"]});
        let body =
            json!({"apiVersion": VERSION, "kind": KIND, "status": {"authenticated": true, "user": user}}).to_string();
        let bot = said(body.as_bytes(), &[], Some("host")).unwrap().unwrap();
        assert_eq!(bot.groups, ["system:serviceaccounts", "system:authenticated"]);
        assert_eq!(bot.domain.as_deref(), Some("host"));
        let body =
            json!({"apiVersion": VERSION, "kind": KIND, "status": {"authenticated": true, "user": jane()}}).to_string();
        assert_eq!(said(body.as_bytes(), &[], Some("host")).unwrap().unwrap().domain, None);
    }

    /// As a kube-apiserver: a webhook that names audiences has to name one of those that were asked for.
    #[test]
    fn audiences_have_to_meet() {
        let with = |audiences: &[&str]| json!({"authenticated": true, "user": jane(), "audiences": audiences});
        assert!(of(with(&["kubefold", "other"]), &["kubefold"]).is_some());
        assert!(of(with(&[]), &["kubefold"]).is_some(), "it knows of no audiences");
        assert!(of(with(&["other"]), &[]).is_some(), "none was asked for");
        assert_eq!(of(with(&["other"]), &["kubefold"]), None);
    }

    #[test]
    fn what_is_no_review_says_nothing() {
        let other =
            json!({"apiVersion": "authentication.k8s.io/v1beta1", "kind": KIND, "status": {"authenticated": true}});
        for body in ["<html>", "{}", &other.to_string()] {
            assert!(matches!(said(body.as_bytes(), &[], None), Err(Silence::Form)), "{body}");
        }
    }

    #[test]
    fn a_token_goes_over_no_wire_in_the_clear() {
        for (url, expected) in [
            ("https://a.example/x", true),
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://a.example", false),
        ] {
            assert_eq!(is_private(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
