//! An issuer of OpenID Connect, as a client sees it: its metadata, and its token endpoint.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, anyhow, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use form_urlencoded::{Serializer, byte_serialize};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::client::proxy::matcher::Matcher;
use kube::{Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::{
    cache::Kept,
    flags::Login,
    token::{Expected, accept},
};
use kubefold_wire::golang::Quoted;

/// One answer of the issuer is there by then.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Its answers are small; a longer one is something else.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Asks for a token that renews others.
const OFFLINE: &str = "offline_access";

/// An issuer, and who asks it.
pub(super) struct Issuer {
    url: String,
    pub(super) client: String,
    secret: Option<String>,
    /// DER of the authorities of its certificate; without any, the system's.
    authorities: Option<Vec<Vec<u8>>>,
    /// Separated by blanks.
    pub(super) scope: String,
    pub(super) metadata: Metadata,
}

/// Source: OpenID Connect Discovery 1.0, section 3; RFC 8414; RFC 8628, section 4; RFC 9207, section 3.
#[derive(Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    pub(super) authorization_endpoint: String,
    token_endpoint: String,
    pub(super) device_authorization_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// What an issuer answers to a form: what was asked for, or why not.
pub(super) type Reply<T> = Result<T, Refusal>;

/// Source: RFC 6749, section 5.2.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
    error_description: Option<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.error_description.as_deref().filter(|why| !why.is_empty()) {
            Some(why) => write!(f, "{} ({})", why.trim_end_matches('.'), self.error),
            None => f.write_str(&self.error),
        }
    }
}

/// Source: OpenID Connect Core 1.0, section 3.1.3.3.
#[derive(Deserialize)]
pub(super) struct Given {
    id_token: Option<String>,
    refresh_token: Option<String>,
}

impl Issuer {
    /// Reads what the issuer says of itself.
    pub(super) async fn discover(flags: &Login) -> anyhow::Result<Self> {
        let secret = flags.client_secret_file.as_ref().map(|file| {
            let text = fs::read_to_string(file);
            text.map(|text| text.trim().to_owned()).with_context(|| format!("cannot read {}", file.display()))
        });
        let pem = match (&flags.certificate_authority, &flags.certificate_authority_data) {
            (Some(file), _) => Some(authority_of(file)?),
            (None, data) => data.clone(),
        };
        let mut issuer = Self {
            url: flags.issuer_url.clone(),
            client: flags.client_id.clone(),
            secret: secret.transpose()?,
            authorities: pem.as_deref().map(authorities).transpose()?,
            scope: String::new(),
            metadata: Metadata::unread(),
        };
        let url = format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/'));
        let (status, text) = issuer.exchange(&url, None).await?;
        if status != StatusCode::OK {
            bail!("{url} answers {status}: --issuer-url is not the URL of an OpenID Connect issuer");
        }
        let metadata: Metadata = serde_json::from_slice(&text)
            .with_context(|| format!("{url} is not what an OpenID Connect issuer says of itself"))?;
        if metadata.issuer != issuer.url {
            bail!("{} calls itself {}; give --issuer-url exactly so", issuer.url, Quoted(&metadata.issuer));
        }
        issuer.scope = scope(&flags.scope, &metadata.scopes_supported);
        issuer.metadata = metadata;
        Ok(issuer)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Asks the token endpoint.
    pub(super) async fn token(&self, form: &[(&str, &str)]) -> anyhow::Result<Reply<Given>> {
        self.post(&self.metadata.token_endpoint, form).await
    }

    /// Renews a login. `None` where a person has to log in again.
    pub(super) async fn refresh(&self, old: &Kept) -> anyhow::Result<Option<Kept>> {
        let Some(refresh) = &old.refresh_token else { return Ok(None) };
        let given = self.token(&[("grant_type", "refresh_token"), ("refresh_token", refresh)]).await?;
        // Whatever it has against the refresh token, it has nothing against a new login. It may leave the ID token out, or give the old
        // one.
        let Ok(Ok(mut new)) = given.map(|given| self.kept(given, None, Some(&old.subject))) else { return Ok(None) };
        new.refresh_token = new.refresh_token.or_else(|| Some(refresh.clone()));
        Ok(Some(new))
    }

    /// What is kept of what the issuer gave.
    pub(super) fn kept(&self, given: Given, nonce: Option<&str>, subject: Option<&str>) -> anyhow::Result<Kept> {
        let token = given.id_token.ok_or_else(|| {
            anyhow!(
                "{} gave no ID token: the client {} may not use the scope openid there",
                self.url,
                Quoted(&self.client)
            )
        })?;
        let expected = Expected { issuer: &self.url, client: &self.client, nonce, subject };
        let accepted = accept(&token, &expected);
        let accepted = accepted.with_context(|| format!("{} gave an ID token that does not count", self.url))?;
        Ok(Kept {
            issuer: self.url.clone(),
            client: self.client.clone(),
            subject: accepted.subject,
            ends_s: accepted.ends_s,
            id_token: token,
            refresh_token: given.refresh_token,
        })
    }

    /// Sends a form with the client's own name, and its secret if it has one.
    pub(super) async fn post<T: DeserializeOwned>(&self, url: &str, form: &[(&str, &str)]) -> anyhow::Result<Reply<T>> {
        let mut body = Serializer::new(String::new());
        body.extend_pairs(form);
        let basic = self.secret.as_deref().filter(|_| self.metadata.takes_basic());
        if basic.is_none() {
            body.append_pair("client_id", &self.client);
            body.extend_pairs(self.secret.as_deref().map(|secret| ("client_secret", secret)));
        }
        let login = basic.map(|secret| {
            // Source: RFC 6749, section 2.3.1: both are encoded as in a form first.
            let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            format!("Basic {}", STANDARD.encode(format!("{}:{}", encode(&self.client), encode(secret))))
        });
        let (status, text) = self.exchange(url, Some((body.finish(), login))).await?;
        if status.is_success() {
            return serde_json::from_slice(&text).map(Ok).with_context(|| format!("cannot read the answer of {url}"));
        }
        serde_json::from_slice(&text).map(Err).map_err(|_| anyhow!("{url} answers {status}"))
    }

    async fn exchange(
        &self,
        url: &str,
        form: Option<(String, Option<String>)>,
    ) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let answer = timeout(ANSWER_MAX, self.send(url, form)).await;
        let answer = answer.unwrap_or_else(|_| Err(anyhow!("no answer within {} s", ANSWER_MAX.as_secs())));
        answer.map_err(|error| {
            let cause = error.root_cause().to_string();
            let what = if cause.contains("UnknownIssuer") {
                "; name the authority of its certificate with --certificate-authority"
            } else {
                "; is --issuer-url right, and is the issuer reached from this machine?"
            };
            anyhow!("cannot reach {url}: {cause}{what}")
        })
    }

    async fn send(&self, url: &str, form: Option<(String, Option<String>)>) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let uri: Uri = url.parse()?;
        let host = uri.authority().filter(|_| uri.scheme_str() == Some("https")).context("it is no https URL")?;
        let mut config =
            Config::new(Uri::builder().scheme("https").authority(host.clone()).path_and_query("/").build()?);
        config.root_cert.clone_from(&self.authorities);
        config.proxy_url = Matcher::from_env().intercept(&uri).map(|proxy| proxy.uri().clone());
        config.default_retry = false;
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let request = Request::builder().uri(path).header(header::ACCEPT, "application/json");
        let request = match form {
            None => request.body(kube::client::Body::empty())?,
            Some((form, login)) => {
                let request = request.method("POST").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
                let request = login.iter().fold(request, |request, login| request.header(header::AUTHORIZATION, login));
                request.body(form.into_bytes().into())?
            }
        };
        let answer = Client::try_from(config)?.send(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| anyhow!("{error}"))?.to_bytes().to_vec()))
    }
}

impl Metadata {
    /// Before the issuer was asked.
    fn unread() -> Self {
        Self {
            issuer: String::new(),
            authorization_endpoint: String::new(),
            token_endpoint: String::new(),
            device_authorization_endpoint: None,
            scopes_supported: Vec::new(),
            token_endpoint_auth_methods_supported: None,
            authorization_response_iss_parameter_supported: false,
        }
    }

    /// Whether a secret stands in a header; that is the default. Else it is in the form.
    fn takes_basic(&self) -> bool {
        let methods = self.token_endpoint_auth_methods_supported.as_ref();
        methods.is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic"))
    }
}

/// What to ask for: an issuer that does not know a scope may refuse the login.
fn scope(asked: &[String], supported: &[String]) -> String {
    let offline = supported.iter().filter(|scope| *scope == OFFLINE).map(String::as_str);
    let mut scopes = vec!["openid"];
    for scope in asked.iter().map(String::as_str).chain(offline) {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes.join(" ")
}

/// The PEM of a file as base64.
pub(super) fn authority_of(file: &Path) -> anyhow::Result<String> {
    let pem = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let data = STANDARD.encode(pem);
    authorities(&data).with_context(|| format!("cannot use {}", file.display()))?;
    Ok(data)
}

fn authorities(data: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let pem = STANDARD.decode(data).context("the certificate authority is no base64")?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.ok().filter(|all| !all.is_empty()).context("it has no certificate (PEM)")?;
    Ok(all.iter().map(|certificate| certificate.to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_token_is_asked_for_where_the_issuer_has_them() {
        let list = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(scope(&[], &list(&["openid", OFFLINE])), "openid offline_access");
        assert_eq!(scope(&list(&["groups", "openid"]), &list(&["openid"])), "openid groups");
        assert_eq!(scope(&list(&[OFFLINE]), &list(&[OFFLINE])), "openid offline_access");
    }

    #[test]
    fn a_refusal_is_in_the_issuers_words() {
        let refusal = |text: &str| serde_json::from_str::<Refusal>(text).unwrap().to_string();
        assert_eq!(refusal(r#"{"error": "access_denied"}"#), "access_denied");
        assert_eq!(
            refusal(r#"{"error": "invalid_grant", "error_description": "Too late."}"#),
            "Too late (invalid_grant)"
        );
    }
}
