//! One issuer of OpenID Connect: whose tokens are its own, and who is in them.
//!
//! Source: kubernetes/apiserver `plugin/pkg/authenticator/token/oidc/oidc.go`.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, Validation, decode_header};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::authn::{
    bearer::{Bearer, By, next_number},
    jwt::ALGORITHMS,
    keys::{Keys, KeysError},
};
use kubefold_serving::{
    authenticate::{AUTHENTICATED, is_reserved},
    caller::Caller,
};

/// How far clocks may differ about when a token begins. Source: coreos/go-oidc `oidc/verify.go`.
const NOT_BEFORE_LEEWAY_S: u64 = 300;

/// What is believed of an issuer's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) url: String,
    pub(super) discovery_url: Option<String>,
    /// PEM of the authority that signed its certificate; the system's are trusted without one.
    pub(super) authority: Option<String>,
    /// A token has to name one of them.
    pub(super) audiences: Vec<String>,
    pub(super) user: Claim,
    pub(super) groups: Option<Claim>,
    pub(super) uid: Option<String>,
    pub(super) required: Vec<Required>,
}

/// A claim that becomes a name of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) claim: String,
    pub(super) prefix: String,
}

/// A claim that has to have a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Required {
    pub(super) claim: String,
    pub(super) value: String,
}

/// Why a token does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("{0}")]
    Token(#[from] jsonwebtoken::errors::Error),
    #[error("it is signed by {0:?}, which proves nothing")]
    Algorithm(Algorithm),
    #[error("its issuer has no key of that id")]
    Key,
    #[error("the issuer's keys cannot be had: {0}")]
    Keys(#[from] KeysError),
    #[error("its claim {0:?} is missing, or is no text")]
    Claim(String),
    #[error("its claim {0:?} is not what is required")]
    Required(String),
    #[error("its e-mail address is not verified")]
    Email,
    #[error("it is not good yet")]
    NotYet,
    #[error("its user would be one of Kubernetes' own, {0:?}")]
    System(String),
}

/// One issuer, and its keys.
pub(super) struct Issuer {
    rules: Rules,
    keys: Keys,
    number: u64,
}

impl Issuer {
    pub(super) fn new(rules: Rules) -> Self {
        let discovery = rules.discovery_url.clone();
        let discovery = discovery
            .unwrap_or_else(|| format!("{}/.well-known/openid-configuration", rules.url.trim_end_matches('/')));
        Self { keys: Keys::new(rules.url.clone(), discovery, rules.authority.clone()), rules, number: next_number() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whose token it is.
    pub(super) async fn bearer(&self, token: &str) -> Result<Bearer, TokenError> {
        let header = decode_header(token)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(TokenError::Algorithm(header.alg));
        }
        let claims = self.verified(token, header.alg, header.kid.as_deref()).await?;
        self.caller(&claims)
    }

    async fn verified(&self, token: &str, alg: Algorithm, kid: Option<&str>) -> Result<Map<String, Value>, TokenError> {
        let mut validation = Validation::new(alg);
        validation.leeway = 0;
        validation.set_audience(&self.rules.audiences);
        validation.set_issuer(&[&self.rules.url]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let fetched = self.keys.with(kid).await?;
        if !fetched.keys.has(kid) {
            return Err(TokenError::Key);
        }
        Ok(fetched.keys.verified(token, kid, &validation)?)
    }

    fn caller(&self, claims: &Map<String, Value>) -> Result<Bearer, TokenError> {
        let number = |claim: &str| claims.get(claim).and_then(Value::as_f64).map(|seconds| seconds as u64);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        if number("nbf").is_some_and(|begins| begins > now + NOT_BEFORE_LEEWAY_S) {
            return Err(TokenError::NotYet);
        }
        for Required { claim, value } in &self.rules.required {
            if claims.get(claim).and_then(Value::as_str) != Some(value) {
                return Err(TokenError::Required(claim.clone()));
            }
        }
        let text = |claim: &str| {
            let text = claims.get(claim).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.ok_or_else(|| TokenError::Claim(claim.to_owned()))
        };
        let Claim { claim, prefix } = &self.rules.user;
        // Whoever may write any address into his account would be whomever he likes.
        if claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != Value::Bool(true)) {
            return Err(TokenError::Email);
        }
        let user = format!("{prefix}{}", text(claim)?);
        if is_reserved(&user) {
            return Err(TokenError::System(user));
        }
        let mut groups = match &self.rules.groups {
            None => Vec::new(),
            Some(Claim { claim, prefix }) => names(claims.get(claim), claim, prefix)?,
        };
        groups.retain(|group| !is_reserved(group));
        groups.push(AUTHENTICATED.to_owned());
        let uid = self.rules.uid.as_deref().map(text).transpose()?.map(str::to_owned);
        let caller = Caller { user, groups, uid, ..Caller::default() };
        Ok(Bearer { caller, ends_s: number("exp"), by: By::Source(self.number) })
    }
}

/// A text, or a list of texts. What is missing is none.
fn names(value: Option<&Value>, claim: &str, prefix: &str) -> Result<Vec<String>, TokenError> {
    let unfit = || TokenError::Claim(claim.to_owned());
    let name = |value: &Value| value.as_str().map(|name| format!("{prefix}{name}")).ok_or_else(unfit);
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(all)) => all.iter().map(name).collect(),
        Some(one) => Ok(vec![name(one)?]),
    }
}

/// The issuer that a token names, before anything of it is believed.
pub(super) fn named_in(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        iss: String,
    }
    claims::<Named>(token).map(|named| named.iss)
}

/// When a token ends, in Unix seconds, as it says itself.
pub fn ends_s(token: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Ends {
        exp: f64,
    }
    // Whole seconds: the fraction is dropped.
    claims::<Ends>(token).map(|ends| ends.exp as u64)
}

/// What a token says, before anything of it is believed.
pub fn claims<T: DeserializeOwned>(token: &str) -> Option<T> {
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice(&payload).ok()
}
