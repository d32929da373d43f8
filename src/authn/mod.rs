//! Who asks, by a bearer token: tokens of a file, tokens of OpenID Connect issuers, and those that a [`Reviewer`] knows.
//!
//! A token is shown to nobody but who made it: not to another member, not to a log. What it says is believed until it ends.
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
use futures::future::BoxFuture;
use http::HeaderMap;

use self::{bearer::token_of, issuer::Issuer, tokens::Tokens};

pub use {
    bearer::Bearer,
    error::AuthnError,
    issuer::{claims, ends_s},
    jwt::SigningKeys,
};

/// Whoever knows tokens that are neither in a file nor an issuer's.
pub trait Reviewer: Send + Sync {
    /// Whose token it is.
    ///
    /// Cancel: safe.
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Option<Bearer>>;
}

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
    reviewer: Option<Arc<dyn Reviewer>>,
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
        let this = Self { sources, known: ArcSwap::default(), reviewer: None };
        this.reload()?;
        Ok(this)
    }

    /// Has tokens of nobody else's looked at by `reviewer`.
    pub fn reviewed_by(self, reviewer: Arc<dyn Reviewer>) -> Self {
        Self { reviewer: Some(reviewer), ..self }
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
        let Some(issuer) = known.issuers.iter().find(|issuer| issuer.rules().url == named) else {
            return self.reviewer.as_ref()?.review(&token).await;
        };
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
