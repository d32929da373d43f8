//! Who asks, by a bearer token: tokens of a file, and tokens of OpenID Connect issuers.
//!
//! A token is shown to nobody: not to a member, not to a log. What it says is believed until it ends.
//!
//! May name: what is in `kubefold_serving` and `kubefold_wire`.

mod bearer;
mod configuration;
mod error;
mod issuer;
mod jwt;
mod keys;
mod tokens;

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use http::HeaderMap;

use self::{bearer::token_of, issuer::Issuer, tokens::Tokens};

pub use {bearer::Bearer, error::AuthnError, jwt::SigningKeys};

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

#[cfg(test)]
mod tests;
