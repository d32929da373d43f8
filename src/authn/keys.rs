//! The public keys of an issuer, fetched when they are first needed, when a token names one that is not known, and when
//! those at hand are old.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use http::{Request, Uri};
use kube::{Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::authn::jwt::SigningKeys;

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
    #[error("it names no key for signatures")]
    None,
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

/// Keys as they were at a time, ready to judge by.
pub(super) struct Fetched {
    pub(super) keys: SigningKeys,
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

    /// The keys, among them the one of this id if the issuer has it.
    pub(super) async fn with(&self, id: Option<&str>) -> Result<Arc<Fetched>, KeysError> {
        let known = self.known.load_full();
        let is_known = known.as_ref().is_some_and(|fetched| fetched.keys.has(id));
        let mut asked = match known.as_ref().filter(|_| is_known) {
            Some(fetched) if fetched.at.elapsed() < GOOD_FOR => return Ok(Arc::clone(fetched)),
            // While one request asks the issuer, the others are judged by the old keys.
            Some(fetched) => match self.asked.try_lock() {
                Ok(asked) => asked,
                Err(_) => return Ok(Arc::clone(fetched)),
            },
            None => self.asked.lock().await,
        };
        // Another request has asked meanwhile.
        let newer = self.known.load_full().filter(|fetched| known.as_ref().is_none_or(|known| fetched.at > known.at));
        if let Some(fetched) = newer {
            return Ok(fetched);
        }
        if asked.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            return known.ok_or(KeysError::Again);
        }
        *asked = Some(Instant::now());
        match (self.fetch(if is_known { RENEW_MAX } else { FETCH_MAX }).await, known) {
            (Ok(keys), _) => {
                let fetched = Arc::new(Fetched { keys, at: Instant::now() });
                self.known.store(Some(Arc::clone(&fetched)));
                Ok(fetched)
            }
            // The keys of an issuer stay good while it does not answer.
            (Err(error), Some(known)) => {
                tracing::warn!(issuer = self.issuer, %error, "keeps the known keys of an issuer");
                Ok(known)
            }
            (Err(error), None) => Err(error),
        }
    }

    async fn fetch(&self, max: Duration) -> Result<SigningKeys, KeysError> {
        let fetched = timeout(max, async {
            let discovery: Discovery = self.get(&self.discovery).await?;
            if discovery.issuer != self.issuer {
                return Err(KeysError::Issuer(discovery.issuer));
            }
            let keys: SigningKeys = self.get(&discovery.jwks_uri).await?;
            if keys.is_empty() { Err(KeysError::None) } else { Ok(keys) }
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
