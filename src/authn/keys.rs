//! The public keys of an issuer, fetched when they are first needed, when a token names one that is not known, and when
//! those at hand are old.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use http::{Request, Uri};
use jsonwebtoken::jwk::{Jwk, JwkSet};
use kube::{Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::authn::jwt::keys_of;

/// Keys that are older are asked for again: an issuer takes one back by no longer naming it.
const GOOD_FOR: Duration = Duration::from_mins(5);
/// Whoever makes tokens up must not make kubefold ask their issuer for each.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Both documents are there by then.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// The same where the keys at hand will do.
const RENEW_MAX: Duration = Duration::from_secs(2);

/// Why there are no keys.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum KeysError {
    #[error("{0}")]
    Fetch(Arc<kube::Error>),
    #[error("{0} is no URL")]
    Url(String),
    #[error("its certificate authority is no PEM")]
    Authority,
    #[error("it did not answer in {} s", .0.as_secs())]
    Late(Duration),
    #[error("its discovery names the issuer {0:?}")]
    Issuer(String),
    #[error("asked a moment ago, in vain")]
    Again,
}

pub(super) struct Keys {
    issuer: String,
    discovery: String,
    authority: Option<String>,
    known: ArcSwapOption<Fetched>,
    /// When they were asked for last. Held while they are.
    asked: Mutex<Option<Instant>>,
}

struct Fetched {
    set: JwkSet,
    at: Instant,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Keys {
    pub(super) fn new(issuer: String, discovery: String, authority: Option<String>) -> Self {
        Self { issuer, discovery, authority, known: ArcSwapOption::empty(), asked: Mutex::new(None) }
    }

    /// The keys of an id, or all where a token names none.
    pub(super) async fn of(&self, id: Option<&str>) -> Result<Vec<Jwk>, KeysError> {
        let known = self.known.load_full();
        let found = known.as_ref().map(|fetched| fetched.select(id)).unwrap_or_default();
        let is_fresh = known.as_ref().is_some_and(|fetched| fetched.at.elapsed() < GOOD_FOR);
        if is_fresh && !found.is_empty() {
            return Ok(found);
        }
        let asked = match found.is_empty() {
            true => Some(self.asked.lock().await),
            // Old keys serve whoever comes while somebody asks.
            false => self.asked.try_lock().ok(),
        };
        let Some(mut asked) = asked else { return Ok(found) };
        // Somebody else has asked meanwhile.
        let newer = self.known.load_full().filter(|fetched| known.as_ref().is_none_or(|known| fetched.at > known.at));
        if let Some(fetched) = newer {
            return Ok(fetched.select(id));
        }
        if asked.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            // An issuer that is away a moment takes nobody's key back.
            return if known.is_some() { Ok(found) } else { Err(KeysError::Again) };
        }
        *asked = Some(Instant::now());
        let max = if found.is_empty() { FETCH_MAX } else { RENEW_MAX };
        match self.fetch(max).await {
            Ok(set) => {
                let fetched = Arc::new(Fetched { set, at: Instant::now() });
                self.known.store(Some(Arc::clone(&fetched)));
                Ok(fetched.select(id))
            }
            Err(error) if known.is_some() => {
                tracing::warn!(issuer = self.issuer, %error, "keeps the keys that it has of an issuer");
                Ok(found)
            }
            Err(error) => Err(error),
        }
    }

    async fn fetch(&self, max: Duration) -> Result<JwkSet, KeysError> {
        let fetched = timeout(max, async {
            let discovery: Discovery = self.get(&self.discovery).await?;
            if discovery.issuer != self.issuer {
                return Err(KeysError::Issuer(discovery.issuer));
            }
            self.get(&discovery.jwks_uri).await
        });
        fetched.await.map_err(|_| KeysError::Late(max))?
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, KeysError> {
        let fault = |error: kube::Error| KeysError::Fetch(Arc::new(error));
        let uri = url.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("https"));
        let (uri, authority) = uri
            .and_then(|uri| Some((uri.clone(), uri.into_parts().authority?)))
            .ok_or_else(|| KeysError::Url(url.to_owned()))?;
        let base = Uri::builder().scheme("https").authority(authority).path_and_query("/").build();
        let mut config = Config::new(base.map_err(|_| KeysError::Url(url.to_owned()))?);
        if let Some(authority) = &self.authority {
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authority.as_bytes()).collect();
            let certificates = certificates.ok().filter(|all| !all.is_empty()).ok_or(KeysError::Authority)?;
            config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
        }
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let request = Request::get(path).body(Vec::new()).map_err(|error| fault(kube::Error::HttpError(error)))?;
        Client::try_from(config).map_err(fault)?.request(request).await.map_err(fault)
    }
}

impl Fetched {
    fn select(&self, id: Option<&str>) -> Vec<Jwk> {
        keys_of(&self.set, id).cloned().collect()
    }
}
