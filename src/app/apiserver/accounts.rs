//! Tokens of the API server's own service accounts: signed by a key of the state directory, and known by it.

use std::sync::{Arc, OnceLock};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, header};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, TokenData, Validation, decode, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    authn::{Authentication, Bearer, By, Reviewed, Reviewer, ends_s},
    serve::{StateDir, StateError},
};
use kubefold_apiserver::{
    Status,
    registry::Registry,
    serve::{ISSUER, PublishedKeys, SignError, TokenUser, Tokens, account_of},
};

/// In the state directory.
const KEY: &str = "service-account.key";

/// Why tokens of service accounts cannot be signed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum AccountKeyError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("cannot make a key ({0})")]
    New(#[source] rcgen::Error),
    #[error(
        "{KEY} in the state directory cannot be used ({0}); restore it from a backup, or remove it: tokens of service accounts are then nobody's"
    )]
    Broken(#[source] rcgen::Error),
}

/// Signs tokens, and knows them again.
pub(super) struct Accounts {
    signer: EncodingKey,
    verifier: DecodingKey,
    /// Its public half, and how tokens name it.
    jwks: Value,
    header: Header,
    /// Where the accounts are, once the server runs.
    registry: OnceLock<Registry>,
}

impl Accounts {
    /// Takes the key of the state directory, or makes one.
    pub(super) fn open(state: &StateDir) -> Result<Self, AccountKeyError> {
        let pem = match state.read(KEY)? {
            Some(pem) => pem,
            None => {
                let pem = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AccountKeyError::New)?.serialize_pem();
                state.write(KEY, &pem, false)?;
                pem
            }
        };
        let pair = KeyPair::from_pem(&pem).map_err(AccountKeyError::Broken)?;
        let signer = EncodingKey::from_ec_der(pair.serialized_der());
        let point = pair.public_key_raw();
        let verifier = DecodingKey::from_ec_der(point);
        // As a kube-apiserver names its keys. Source: kubernetes `pkg/serviceaccount/jwt.go`, `keyIDFromPublicKey`.
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(pair.subject_public_key_info()));
        let jwks = jwks(&id, point);
        let header = Header { kid: Some(id), ..Header::new(Algorithm::ES256) };
        Ok(Self { signer, verifier, jwks, header, registry: OnceLock::new() })
    }

    /// Says where the accounts are.
    pub(super) fn serve(&self, registry: Registry) {
        drop(self.registry.set(registry));
    }

    /// What a token says that this server signed and that is good now.
    fn claims(&self, token: &str) -> Option<Value> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.validate_nbf = true;
        // Whom it is for is judged by who asks.
        validation.validate_aud = false;
        validation.set_issuer(&[ISSUER]);
        let TokenData { claims, .. } = decode(token, &self.verifier, &validation).ok()?;
        Some(claims)
    }

    /// Whose a token with these claims is, and whom it is for.
    ///
    /// Errors: nobody can say.
    async fn user(&self, claims: &Value) -> Result<Option<TokenUser>, Status> {
        let Some(registry) = self.registry.get() else { return Ok(None) };
        let audiences = claims.get("aud").and_then(Value::as_array).into_iter().flatten();
        let audiences = audiences.filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(account_of(registry, claims).await?.map(|caller| TokenUser { caller, audiences }))
    }

    fn sign(&self, claims: &Value) -> Result<String, SignError> {
        encode(&self.header, claims, &self.signer).map_err(|error| SignError(error.into()))
    }
}

/// The set of one key on the curve P-256: an uncompressed point, its coordinates behind one byte.
fn jwks(id: &str, point: &[u8]) -> Value {
    let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
    let [x, y] = [x, y].map(|coordinate| URL_SAFE_NO_PAD.encode(coordinate));
    json!({"keys": [{"use": "sig", "kty": "EC", "kid": id, "crv": "P-256", "alg": "ES256", "x": x, "y": y}]})
}

impl Reviewer for Accounts {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Reviewed> {
        Box::pin(async move {
            let Some(claims) = self.claims(token) else { return Reviewed::Foreign };
            match self.user(&claims).await {
                Ok(Some(user)) if user.audiences.iter().any(|one| one == ISSUER) => {
                    Reviewed::Known(Bearer { caller: user.caller, ends_s: ends_s(token), by: By::Reviewer })
                }
                Ok(_) => Reviewed::Refused,
                Err(status) => {
                    tracing::warn!(error = status.message, "cannot say whose a token of a service account is");
                    Reviewed::Refused
                }
            }
        })
    }
}

/// What the API server asks about tokens: everyone who may log in by one is known.
pub(super) struct AllTokens {
    pub(super) accounts: Arc<Accounts>,
    pub(super) authentication: Arc<Authentication>,
    /// Where clients reach the server.
    pub(super) url: String,
}

impl Tokens for AllTokens {
    fn published_keys(&self) -> Option<PublishedKeys> {
        let url = self.url.trim_end_matches('/').to_owned();
        Some(PublishedKeys { jwks: self.accounts.jwks.clone(), algorithm: "ES256", url })
    }

    fn sign(&self, claims: &Value) -> Result<String, SignError> {
        self.accounts.sign(claims)
    }

    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> BoxFuture<'a, Option<TokenUser>> {
        Box::pin(async move {
            let own = [self.issuer().to_owned()];
            let wanted = if audiences.is_empty() { &own } else { audiences };
            let of_account = match self.accounts.claims(token) {
                Some(claims) => self.accounts.user(&claims).await.ok().flatten(),
                None => None,
            };
            let user = match of_account {
                Some(user) => user,
                // What else lets somebody in is for this server.
                None => {
                    let value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
                    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
                    let caller = self.authentication.bearer(&headers).await?.caller;
                    TokenUser { caller, audiences: own.to_vec() }
                }
            };
            let audiences: Vec<String> = user.audiences.into_iter().filter(|one| wanted.contains(one)).collect();
            (!audiences.is_empty()).then_some(TokenUser { audiences, ..user })
        })
    }
}
