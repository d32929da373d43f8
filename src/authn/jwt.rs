//! Signatures of JSON Web Tokens.

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    jwk::{Jwk, JwkSet, PublicKeyUse},
};
use serde::de::IgnoredAny;

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

/// The keys of an id that sign, or all where a token names none.
pub(super) fn keys_of<'a>(set: &'a JwkSet, id: Option<&str>) -> impl Iterator<Item = &'a Jwk> {
    set.keys.iter().filter(move |key| {
        let signs = key.common.public_key_use.as_ref().is_none_or(|use_| *use_ == PublicKeyUse::Signature);
        signs && id.is_none_or(|id| key.common.key_id.as_deref() == Some(id))
    })
}

/// Says whether one of the keys signed a token, whatever the token says: whether it is good is for whoever made it to judge.
pub fn is_signed_by(token: &str, keys: &JwkSet) -> bool {
    let Some(header) = decode_header(token).ok().filter(|header| ALGORITHMS.contains(&header.alg)) else {
        return false;
    };
    let mut validation = Validation::new(header.alg);
    (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
    validation.required_spec_claims.clear();
    keys_of(keys, header.kid.as_deref()).any(|key| {
        let judged = DecodingKey::from_jwk(key).and_then(|key| decode::<IgnoredAny>(token, &key, &validation));
        judged.is_ok()
    })
}
