//! What an ID token has to say before it is kept.
//!
//! It came straight from the issuer's token endpoint over TLS, so its signature need not be checked here; kubefold serve
//! checks it. Source: OpenID Connect Core 1.0, sections 3.1.3.7 (ID Token Validation) and 12.2 (refresh).

use serde::Deserialize;

use crate::{authn::claims, cli::login::machine::now_s};
use kubefold_wire::golang::Quoted;

/// What the token was asked for with.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client: &'a str,
    /// Of this login; a token by a device or a refresh has none.
    pub(super) nonce: Option<&'a str>,
    /// Whose token is renewed.
    pub(super) subject: Option<&'a str>,
}

/// What is kept of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) subject: String,
    /// Units: Unix seconds.
    pub(super) ends_s: u64,
}

/// Why a token is not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum TokenError {
    #[error("it is no signed JSON Web Token")]
    Form,
    #[error("it is of the issuer {}; give --issuer-url exactly so", Quoted(.0))]
    Issuer(String),
    #[error("it is for {0}, and not for this client")]
    Audience(String),
    #[error("it was made for the client {}", Quoted(.0))]
    Party(String),
    #[error("it is of another login")]
    Nonce,
    #[error("it is of another user than the one who had logged in")]
    Subject,
    #[error("it has ended already; is this machine's clock right?")]
    Ended,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: f64,
    azp: Option<String>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Checks it.
pub(super) fn accept(token: &str, expected: &Expected<'_>) -> Result<Accepted, TokenError> {
    // An algorithm that signs nothing is none that is known.
    jsonwebtoken::decode_header(token).map_err(|_| TokenError::Form)?;
    let Claims { iss, sub, aud, exp, azp, nonce } = claims(token).ok_or(TokenError::Form)?;
    let audiences = match aud {
        Audience::One(one) => vec![one],
        Audience::Several(all) => all,
    };
    if iss != expected.issuer {
        return Err(TokenError::Issuer(iss));
    }
    if !audiences.iter().any(|audience| audience == expected.client) {
        return Err(TokenError::Audience(audiences.join(", ")));
    }
    match azp {
        Some(party) if party != expected.client => return Err(TokenError::Party(party)),
        // Audiences beside this client are trusted only if the token says that it was made for this client.
        None if audiences.len() > 1 => return Err(TokenError::Audience(audiences.join(", "))),
        _ => {}
    }
    if expected.nonce.is_some() && nonce.as_deref() != expected.nonce {
        return Err(TokenError::Nonce);
    }
    if expected.subject.is_some_and(|subject| subject != sub) {
        return Err(TokenError::Subject);
    }
    // Whole seconds: the fraction is dropped.
    let ends_s = exp as u64;
    if ends_s <= now_s() {
        return Err(TokenError::Ended);
    }
    Ok(Accepted { subject: sub, ends_s })
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde_json::{Value, json};

    use super::*;

    fn signed(alg: &str, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.c2ln", part(&json!({"alg": alg, "typ": "JWT"})), part(claims))
    }

    #[test]
    fn a_token_is_of_this_issuer_for_this_client_and_of_this_login() {
        let ends_s = now_s() + 60;
        let sound =
            json!({"iss": "https://a", "sub": "jane", "aud": "kubefold", "exp": ends_s, "nonce": "n", "iat": now_s()});
        let accept_with = |changes: Value, expected: &Expected<'_>| {
            let mut claims = sound.clone();
            claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            accept(&signed("RS256", &claims), expected)
        };
        let login = Expected { issuer: "https://a", client: "kubefold", nonce: Some("n"), subject: None };
        let jane = || Accepted { subject: "jane".into(), ends_s };
        let text = str::to_owned;
        for (changes, verdict) in [
            (json!({}), Ok(jane())),
            (json!({"aud": ["kubefold"]}), Ok(jane())),
            (json!({"aud": ["kubefold", "b"], "azp": "kubefold"}), Ok(jane())),
            (json!({"aud": ["kubefold", "b"]}), Err(TokenError::Audience(text("kubefold, b")))),
            (json!({"aud": "b"}), Err(TokenError::Audience(text("b")))),
            (json!({"azp": "b"}), Err(TokenError::Party(text("b")))),
            (json!({"iss": "https://a/"}), Err(TokenError::Issuer(text("https://a/")))),
            (json!({"nonce": "m"}), Err(TokenError::Nonce)),
            (json!({"nonce": null}), Err(TokenError::Nonce)),
            (json!({"exp": now_s() - 1}), Err(TokenError::Ended)),
            (json!({"exp": null}), Err(TokenError::Form)),
            (json!({"sub": null}), Err(TokenError::Form)),
        ] {
            assert_eq!(accept_with(changes.clone(), &login), verdict, "{changes}");
        }
        let refresh = |subject| Expected { nonce: None, subject: Some(subject), ..login };
        assert_eq!(accept_with(json!({"nonce": null}), &refresh("jane")), Ok(jane()));
        assert_eq!(accept_with(json!({}), &refresh("eve")), Err(TokenError::Subject));
        assert_eq!(accept(&signed("none", &sound), &login), Err(TokenError::Form));
        assert_eq!(accept("opaque", &login), Err(TokenError::Form));
    }
}
