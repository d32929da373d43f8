//! Signatures of JSON Web Tokens.

use jsonwebtoken::{
    Algorithm, DecodingKey, TokenData, Validation, decode, decode_header,
    errors::{Error, ErrorKind},
    jwk::{Jwk, PublicKeyUse},
};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;

/// Signatures of a key pair; a shared secret proves nothing about who signed.
pub(super) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The public keys of whoever signs tokens, read from a JSON Web Key Set. Keys of unknown kinds are left out: an issuer may
/// have some for other uses.
#[derive(Deserialize)]
#[serde(from = "KeySet")]
pub struct SigningKeys(Vec<SigningKey>);

struct SigningKey {
    id: Option<String>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl From<KeySet> for SigningKeys {
    fn from(set: KeySet) -> Self {
        let keys = set.keys.into_iter().filter_map(|key| {
            let jwk: Jwk = serde_json::from_value(key).ok()?;
            let signs = jwk.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
            let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| signs)?;
            Some(SigningKey { id: jwk.common.key_id, key })
        });
        Self(keys.collect())
    }
}

impl SigningKeys {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key has this id; a token that names none may be of any.
    pub(super) fn has(&self, id: Option<&str>) -> bool {
        self.of(id).next().is_some()
    }

    fn of(&self, id: Option<&str>) -> impl Iterator<Item = &DecodingKey> {
        self.0.iter().filter(move |one| id.is_none_or(|id| one.id.as_deref() == Some(id))).map(|one| &one.key)
    }

    /// What a token says, if the key of this id signed it and it is as the validation wants it.
    ///
    /// Errors: why the last of the keys refused it.
    pub(super) fn verified<T: DeserializeOwned>(
        &self,
        token: &str,
        id: Option<&str>,
        validation: &Validation,
    ) -> Result<T, Error> {
        let mut last = ErrorKind::InvalidSignature.into();
        for key in self.of(id) {
            match decode(token, key, validation) {
                Ok(TokenData { claims, .. }) => return Ok(claims),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Whether one of the keys signed a token. Whether the token is still good is not judged: its issuer does that.
    pub fn signed(&self, token: &str) -> bool {
        let Some(header) = decode_header(token).ok().filter(|header| ALGORITHMS.contains(&header.alg)) else {
            return false;
        };
        let mut validation = Validation::new(header.alg);
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        validation.required_spec_claims.clear();
        self.verified::<IgnoredAny>(token, header.kid.as_deref(), &validation).is_ok()
    }
}
