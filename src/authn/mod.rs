//! Who asks, by a bearer token: tokens of a file, and tokens of OpenID Connect issuers.
//!
//! A token is shown to nobody: not to a member, not to a log. What it says is believed until it ends.
//!
//! May name: what is in `kubefold_serving` and `kubefold_wire`.

mod configuration;
mod error;
mod issuer;
mod keys;
mod tokens;

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header};

use self::{issuer::Issuer, tokens::Tokens};
use kubefold_serving::caller::Caller;

pub use error::AuthnError;

/// What a WebSocket's client writes its token behind, as a browser can set no other header of it.
///
/// Source: kubernetes/apiserver `pkg/authentication/request/websocket/protocol.go`.
const PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Which files say whose tokens count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// As a kube-apiserver's `--token-auth-file`: lines of `token,user,uid,"group,group"`.
    pub tokens: Option<PathBuf>,
    /// As a kube-apiserver's `--authentication-config`.
    pub configuration: Option<PathBuf>,
}

/// Knows whose token is whose. The files are followed.
pub struct Authentication {
    sources: Sources,
    known: ArcSwap<Known>,
}

#[derive(Default)]
struct Known {
    texts: [Option<String>; 2],
    tokens: Tokens,
    issuers: Vec<Arc<Issuer>>,
}

/// A caller who was found by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// Who asks.
    pub caller: Caller,
    /// The token's end, in Unix seconds; a token of a file has none.
    pub ends_s: Option<u64>,
}

impl Authentication {
    /// Reads the files.
    ///
    /// Errors: one cannot be read, or does not say what it has to.
    pub fn read(sources: Sources) -> Result<Self, AuthnError> {
        let this = Self { sources, known: ArcSwap::default() };
        this.reload()?;
        Ok(this)
    }

    /// Reads them again. Says whether one has changed; keys of issuers that stay are kept.
    ///
    /// Errors: as [`Self::read`]; nothing changes then.
    pub fn reload(&self) -> Result<bool, AuthnError> {
        let text = |flag, path: &Option<PathBuf>| {
            let read = |path: &PathBuf| {
                std::fs::read_to_string(path).map_err(|source| AuthnError::Unreadable {
                    flag,
                    path: path.clone(),
                    source,
                })
            };
            path.as_ref().map(read).transpose()
        };
        let texts =
            [text(tokens::FLAG, &self.sources.tokens)?, text(configuration::FLAG, &self.sources.configuration)?];
        let before = self.known.load();
        if before.texts == texts {
            return Ok(false);
        }
        let [of_tokens, of_issuers] = &texts;
        let tokens = of_tokens.as_deref().map(Tokens::parse).transpose()?.unwrap_or_default();
        let rules = of_issuers.as_deref().map(configuration::parse).transpose()?.unwrap_or_default();
        let kept = |rules: &issuer::Rules| before.issuers.iter().find(|issuer| *issuer.rules() == *rules).cloned();
        let issuers =
            rules.into_iter().map(|rules| kept(&rules).unwrap_or_else(|| Arc::new(Issuer::new(rules)))).collect();
        self.known.store(Arc::new(Known { texts, tokens, issuers }));
        Ok(true)
    }

    /// Whether any token may count.
    pub fn has_any(&self) -> bool {
        let known = self.known.load();
        !known.tokens.is_empty() || !known.issuers.is_empty()
    }

    /// Who sends a request with these headers; `None` if no token that counts is in them.
    ///
    /// Cancel: safe.
    pub async fn bearer(&self, headers: &HeaderMap) -> Option<Bearer> {
        let token = token_of(headers)?;
        let known = self.known.load_full();
        if let Some(caller) = known.tokens.caller(&token) {
            return Some(Bearer { caller, ends_s: None });
        }
        let named = issuer::named_in(&token)?;
        let issuer = known.issuers.iter().find(|issuer| issuer.rules().url == named)?;
        match Box::pin(issuer.bearer(&token)).await {
            Ok(bearer) => Some(bearer),
            Err(error) => {
                tracing::info!(issuer = named, %error, "a token was not accepted");
                None
            }
        }
    }
}

/// The token among a request's headers.
fn token_of(headers: &HeaderMap) -> Option<String> {
    let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, token)) = said.and_then(|said| said.trim().split_once(' '))
        && scheme.eq_ignore_ascii_case("bearer")
    {
        return Some(token.trim().to_owned()).filter(|token| !token.is_empty());
    }
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut encoded =
        protocols.flat_map(|value| value.split(',')).filter_map(|word| word.trim().strip_prefix(PROTOCOL));
    let token = URL_SAFE_NO_PAD.decode(encoded.next()?.trim_end_matches('=')).ok()?;
    // One that is said twice is two persons'.
    let only = encoded.next().is_none();
    String::from_utf8(token).ok().filter(|token| only && !token.is_empty())
}

#[cfg(test)]
mod tests;
