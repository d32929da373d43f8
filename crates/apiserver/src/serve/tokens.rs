//! Tokens of service accounts: what they say, who signs them, and whose one is.
//!
//! Source: kubernetes `pkg/registry/core/serviceaccount/storage/token.go`, `pkg/serviceaccount/claims.go`,
//! `pkg/registry/authentication/tokenreview/storage.go`.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::future::BoxFuture;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    admission::user_info,
    kinds::{Kind, put},
    registry::{Registry, time_text},
    serve::{
        ApiServer,
        answer::answered,
        context::{RequestContext, Target},
        pods::{object, posted},
    },
};
use kubefold_serving::{caller::Caller, request::read_json};
use kubefold_wire::{
    access::text,
    body::Body,
    golang::Quoted,
    resource::Gvk,
    status::{Cause, Reason, Status},
};

/// A token's life, if the request does not say one.
const TOKEN_SECONDS: i64 = 3600;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
/// What a token of an account is for, and who signs it, where nobody says otherwise. Source: kubeadm and kind.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const REQUEST: &str = "TokenRequest";
const PREFIX: &str = "system:serviceaccount:";
/// What a token may be bound to: the kind, its name in the claims, and its plural.
const BOUND: [(&str, &str, &str); 3] =
    [("Pod", "pod", "pods"), ("Secret", "secret", "secrets"), ("Node", "node", "nodes")];

/// Signs the tokens of service accounts, and says whose a token is.
pub trait Tokens: Send + Sync + 'static {
    /// Who signs: a URL. It is also what a token is for, if its request names nothing else.
    fn issuer(&self) -> &str {
        ISSUER
    }

    /// By what others check the signatures, at `/openid/v1/jwks`. `None`: nobody is told, and the paths are not there.
    fn published_keys(&self) -> Option<PublishedKeys> {
        None
    }

    /// Signs claims: a JSON object, as of RFC 7519.
    ///
    /// Errors: the key does not sign. The client gets 500.
    fn sign(&self, claims: &Value) -> Result<String, SignError>;

    /// Whose a token is; `None` if it is nobody's, or for none of these audiences. Without audiences: if it is for this
    /// server.
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> BoxFuture<'a, Option<TokenUser>>;
}

/// The public keys of a server that signs tokens.
#[derive(Clone, Debug)]
pub struct PublishedKeys {
    /// A JSON Web Key Set, as of RFC 7517.
    pub jwks: Value,
    /// How tokens are signed, such as `ES256`.
    pub algorithm: &'static str,
    /// Where clients reach the server, such as `https://api.example.com:6443`, without a path.
    pub url: String,
}

/// Why a token is not signed.
#[derive(Debug, thiserror::Error)]
#[error("cannot sign a token ({0})")]
pub struct SignError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Somebody who was found by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUser {
    /// Who it is.
    pub caller: Caller,
    /// Those of the asked audiences that the token is for.
    pub audiences: Vec<String>,
}

/// Tokens without a signature, for servers that let nobody in by them: they say whose they are.
pub(super) struct Unsigned;

impl Tokens for Unsigned {
    fn sign(&self, claims: &Value) -> Result<String, SignError> {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        Ok(format!("{}.{}.{}", part(&json!({"alg": "none"})), part(claims), text(claims, "/jti")))
    }

    fn review<'a>(&'a self, token: &'a str, _: &'a [String]) -> BoxFuture<'a, Option<TokenUser>> {
        Box::pin(async move {
            let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
            let claims: Value = serde_json::from_slice(&claims).ok()?;
            let user = claims.get("sub")?.as_str()?.to_owned();
            Some(TokenUser { caller: Caller { user, ..Caller::default() }, audiences: Vec::new() })
        })
    }
}

/// Whose a token is that says this, and whose signature is good. `None` if the account is gone, or another of its name is
/// there, or what the token is bound to is gone.
///
/// Errors: the storage's.
pub async fn account_of(registry: &Registry, claims: &Value) -> Result<Option<Caller>, Status> {
    let of = claims.get("kubernetes.io").unwrap_or(&Value::Null);
    let (namespace, name) = (text(of, "/namespace"), text(of, "/serviceaccount/name"));
    let user = format!("{PREFIX}{namespace}:{name}");
    if text(claims, "/sub") != user {
        return Ok(None);
    }
    let uid = text(of, "/serviceaccount/uid");
    if !is_there(registry, "ServiceAccount", namespace, name, uid).await? {
        return Ok(None);
    }
    let mut extra = BTreeMap::new();
    let said = |key: &str, value: &str| (format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
    let id = text(claims, "/jti");
    extra.extend((!id.is_empty()).then(|| said("credential-id", &format!("JTI={id}"))));
    for (kind, key, _) in BOUND {
        let Some(bound) = of.get(key) else { continue };
        let namespace = if kind == "Node" { "" } else { namespace };
        let (name, uid) = (text(bound, "/name"), text(bound, "/uid"));
        if !is_there(registry, kind, namespace, name, uid).await? {
            return Ok(None);
        }
        if kind != "Secret" {
            extra.extend([said(&format!("{key}-name"), name), said(&format!("{key}-uid"), uid)]);
        }
    }
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    Ok(Some(Caller { user, groups, uid: Some(uid.to_owned()), extra, domain: None }))
}

/// Says whether an object has this UID, and does not end.
async fn is_there(registry: &Registry, kind: &str, namespace: &str, name: &str, uid: &str) -> Result<bool, Status> {
    let Some(kind) = registry.kind("", kind) else { return Ok(false) };
    match registry.get(&kind, namespace, name).await {
        Ok(object) => {
            let object = object.value();
            Ok(!uid.is_empty() && text(&object, "/metadata/uid") == uid)
        }
        Err(status) if status.reason == Reason::NotFound => Ok(false),
        Err(status) => Err(status),
    }
}

impl ApiServer {
    /// Makes a token of a service account.
    ///
    /// Errors: 400, 404, 409, 422.
    pub(super) async fn token(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let account = target.registry.get(&target.kind, &target.namespace, &target.name).await?.value();
        let mut request = request_of(target, &read_json(asked.headers, body).await?)?;
        let (object_type, options) = (Gvk::new("authentication.k8s.io", "v1", REQUEST), posted(target, false));
        put(&mut request, "metadata", Some(json!({"name": target.name, "namespace": target.namespace})));
        let admitted = target.registry.admit_posted(&target.kind, &target.namespace, object_type, request, &options);
        let mut request = Box::pin(admitted).await?;
        let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(TOKEN_SECONDS);
        check_life(seconds)?;
        let tokens = &self.inner.settings.tokens;
        let asked = request.pointer("/spec/audiences").and_then(Value::as_array).cloned();
        let audiences = asked.filter(|all| !all.is_empty()).unwrap_or_else(|| vec![tokens.issuer().into()]);
        let now = self.inner.registry.env().now();
        let expires = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let mut of = json!({
            "namespace": target.namespace,
            "serviceaccount": {"name": target.name, "uid": text(&account, "/metadata/uid")},
        });
        if let Some(reference) = request.pointer("/spec/boundObjectRef").filter(|one| !one.is_null()) {
            let (key, bound) = bound(target, reference).await?;
            put(&mut of, key, Some(bound));
        }
        let claims =
            claims(target, tokens, &audiences, of, Life { from: now, until: expires }, self.inner.registry.env().uid());
        let token = tokens.sign(&claims).map_err(|error| Status::internal(error.to_string()))?;
        let metadata = json!({
            "name": target.name,
            "namespace": target.namespace,
            "uid": text(&account, "/metadata/uid"),
            "creationTimestamp": time_text(now),
        });
        put(&mut request, "metadata", Some(metadata));
        let mut spec = request.get("spec").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        put(&mut spec, "audiences", Some(audiences.into()));
        put(&mut spec, "expirationSeconds", Some(seconds.into()));
        if spec.get("boundObjectRef").is_none() {
            put(&mut spec, "boundObjectRef", Some(Value::Null));
        }
        put(&mut request, "spec", Some(spec));
        put(&mut request, "status", Some(json!({"token": token, "expirationTimestamp": time_text(expires)})));
        Ok(answered(request.to_string().into_bytes(), StatusCode::CREATED, &[]))
    }

    /// Answers whose a token is; `None`: the kind is no question about tokens.
    ///
    /// Errors: 400.
    pub(super) async fn review_token(&self, kind: &Kind, object: &Value) -> Result<Option<Value>, Status> {
        if kind.kind != "TokenReview" || kind.group != "authentication.k8s.io" {
            return Ok(None);
        }
        let token = text(object, "/spec/token");
        if token.is_empty() {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        let audiences: Vec<String> = object
            .pointer("/spec/audiences")
            .and_then(|all| serde_json::from_value(all.clone()).ok())
            .unwrap_or_default();
        let status = match self.inner.settings.tokens.review(token, &audiences).await {
            Some(TokenUser { caller, audiences }) => {
                let mut status = json!({"authenticated": true, "user": user_info(&caller)});
                put(&mut status, "audiences", Some(audiences).filter(|all| !all.is_empty()).map(Value::from));
                status
            }
            None => json!({"user": {}, "error": "invalid bearer token"}),
        };
        let mut object = object.clone();
        let metadata = object.get("metadata").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        put(&mut object, "metadata", Some(metadata));
        put(&mut object, "status", Some(status));
        Ok(Some(object))
    }
}

/// When a token is good.
struct Life {
    from: Timestamp,
    until: Timestamp,
}

fn claims(target: &Target, tokens: &Arc<dyn Tokens>, audiences: &[Value], of: Value, life: Life, id: String) -> Value {
    json!({
        "aud": audiences,
        "exp": life.until.as_second(),
        "iat": life.from.as_second(),
        "iss": tokens.issuer(),
        "jti": id,
        "kubernetes.io": of,
        "nbf": life.from.as_second(),
        "sub": format!("{PREFIX}{}:{}", target.namespace, target.name),
    })
}

/// A request for a token of an account.
///
/// Errors: 400 for another kind or namespace, 422 for another name.
fn request_of(target: &Target, body: &[u8]) -> Result<Value, Status> {
    let mut request = object(body)?;
    // What is left out is that of the subresource.
    for (field, word) in [("kind", REQUEST), ("apiVersion", "authentication.k8s.io/v1")] {
        if text(&request, &format!("/{field}")).is_empty() {
            put(&mut request, field, Some(word.into()));
        }
    }
    let (kind, version) = (text(&request, "/kind"), text(&request, "/apiVersion"));
    if (kind, version) != (REQUEST, "authentication.k8s.io/v1") {
        let version = Quoted(version);
        return Err(Status::bad_request(format!("{kind} in version {version} cannot be handled as a {REQUEST}")));
    }
    let (name, namespace) = (text(&request, "/metadata/name"), text(&request, "/metadata/namespace"));
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !name.is_empty() && name != target.name {
        let why = "must match the service account name if specified";
        return Err(invalid(&target.name, Cause::invalid_text("metadata.name", name, why)));
    }
    Ok(request)
}

fn invalid(name: &str, cause: Cause) -> Status {
    Status::invalid("authentication.k8s.io", REQUEST, name, vec![cause])
}

/// Source: kubernetes `pkg/apis/authentication/validation/validation.go`.
fn check_life(seconds: i64) -> Result<(), Status> {
    let why = if seconds < TOKEN_SECONDS_MIN {
        "may not specify a duration less than 10 minutes"
    } else if seconds > TOKEN_SECONDS_MAX {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    Err(invalid("", Cause::invalid("spec.expirationSeconds", &seconds.to_string(), why)))
}

/// What a token is bound to, as a claim and its key.
///
/// Errors: 400, 404, 409.
async fn bound(target: &Target, reference: &Value) -> Result<(&'static str, Value), Status> {
    let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
    let version = text(reference, "/apiVersion");
    let known = BOUND.iter().find(|(known, ..)| *known == kind && version == "v1");
    let Some((_, key, plural)) = known else {
        let message = format!("cannot bind token to object of type {version}, Kind={kind}");
        return Err(Status::bad_request(message));
    };
    let namespace = if kind == "Node" { "" } else { target.namespace.as_str() };
    let none = || Status::not_found("", plural, name);
    let found = target.registry.kind("", kind).ok_or_else(none)?;
    let object = target.registry.get(&found, namespace, name).await?.value();
    let (is, wanted) = (text(&object, "/metadata/uid"), text(reference, "/uid"));
    if !wanted.is_empty() && wanted != is {
        let message = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        let message = format!("Operation cannot be fulfilled on {kind} {}: {message}", Quoted(name));
        return Err(Status::conflict("", kind, name, message));
    }
    Ok((key, json!({"name": name, "uid": is})))
}
