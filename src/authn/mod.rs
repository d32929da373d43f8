//! Who asks, by a bearer token: tokens of a file, tokens of OpenID Connect issuers, those that a [`Reviewer`] knows, and all
//! others, if there is a webhook or a host that may know them.
//!
//! A token is shown to nobody but who made it: not to another member, not to a log. What it says is believed until it ends.
//! A webhook is shown only what is nobody else's.
//!
//! May name: what is in `kubefold_serving` and `kubefold_wire`.

mod bearer;
mod configuration;
mod error;
mod issuer;
mod jwt;
mod keys;
pub mod known;
mod tokens;
mod webhook;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use futures::future::BoxFuture;
use http::HeaderMap;
use serde::de::IgnoredAny;

use self::{bearer::token_of, issuer::Issuer, tokens::Tokens, webhook::Webhook};

pub use {
    bearer::{Bearer, By},
    error::AuthnError,
    issuer::{claims, ends_s},
    jwt::SigningKeys,
    webhook::{HostTokens, WebhookSource},
};

/// Whoever knows tokens that are neither in a file nor an issuer's.
pub trait Reviewer: Send + Sync {
    /// Whose token it is.
    ///
    /// Cancel: safe.
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Reviewed>;
}

/// What a [`Reviewer`] says of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// Somebody's.
    Known(Bearer),
    /// It is one that he knows, and counts no more; or it may be one, and he cannot say.
    Refused,
    /// None that he knows.
    Foreign,
}

/// Which files say whose tokens count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// As a kube-apiserver's `--token-auth-file`: lines of `token,user,uid,"group,group"`.
    pub tokens: Option<PathBuf>,
    /// As a kube-apiserver's `--authentication-config`.
    pub configuration: Option<PathBuf>,
    /// A webhook for tokens that nobody else knows.
    pub webhook: Option<WebhookSource>,
}

/// Knows whose token is whose. The files are followed.
pub struct Authentication {
    sources: Sources,
    known: ArcSwap<Known>,
    host: ArcSwapOption<Webhook>,
    reviewer: Option<Arc<dyn Reviewer>>,
}

#[derive(Default)]
struct Known {
    texts: [Option<String>; 3],
    tokens: Tokens,
    issuers: Vec<Arc<Issuer>>,
    webhook: Option<Arc<Webhook>>,
}

impl Authentication {
    /// Reads the files.
    ///
    /// Errors: one cannot be read, or does not say what it has to.
    pub fn read(sources: Sources) -> Result<Self, AuthnError> {
        let this = Self { sources, known: ArcSwap::default(), host: ArcSwapOption::empty(), reviewer: None };
        this.reload()?;
        Ok(this)
    }

    /// Has tokens of nobody else's looked at by `reviewer`.
    pub fn reviewed_by(self, reviewer: Arc<dyn Reviewer>) -> Self {
        Self { reviewer: Some(reviewer), ..self }
    }

    /// Has the host asked about tokens that nobody else knows; `None`: nobody more. What another host said counts no more.
    pub fn ask_host(&self, host: Option<HostTokens>) {
        self.host.store(host.map(|host| Arc::new(Webhook::of_host(host))));
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
        let of_webhook = self.sources.webhook.as_ref();
        let texts = [
            text(tokens::FLAG, &self.sources.tokens)?,
            text(configuration::FLAG, &self.sources.configuration)?,
            of_webhook.map(|source| webhook::text(&source.path)).transpose()?,
        ];
        let before = self.known.load();
        if before.texts == texts {
            return Ok(false);
        }
        let [of_tokens, of_issuers, kubeconfig] = &texts;
        let tokens = of_tokens.as_deref().map(Tokens::parse).transpose()?.unwrap_or_default();
        let rules = of_issuers.as_deref().map(configuration::parse).transpose()?.unwrap_or_default();
        let kept = |rules: &issuer::Rules| before.issuers.iter().find(|issuer| *issuer.rules() == *rules).cloned();
        let issuers =
            rules.into_iter().map(|rules| kept(&rules).unwrap_or_else(|| Arc::new(Issuer::new(rules)))).collect();
        let webhook = match (of_webhook, &before.webhook) {
            (Some(_), Some(webhook)) if before.texts.last() == Some(kubeconfig) => Some(Arc::clone(webhook)),
            (source, _) => source.map(Webhook::new).transpose()?.map(Arc::new),
        };
        self.known.store(Arc::new(Known { texts, tokens, issuers, webhook }));
        Ok(true)
    }

    /// Who sends a request with these headers; `None` if no token that counts is in them.
    ///
    /// Cancel: safe.
    pub async fn bearer(&self, headers: &HeaderMap) -> Option<Bearer> {
        let token = token_of(headers)?;
        let known = self.known.load_full();
        if let Some((caller, digest)) = known.tokens.caller(&token) {
            return Some(Bearer { caller, ends_s: None, by: By::File(digest) });
        }
        let (named, ends_s) = (issuer::named_in(&token), ends_s(&token));
        let issuer = known.issuers.iter().find(|issuer| named.as_ref() == Some(&issuer.rules().url));
        if let Some(issuer) = issuer {
            return match Box::pin(issuer.bearer(&token)).await {
                Ok(bearer) => Some(bearer),
                Err(error) => {
                    tracing::info!(issuer = named, %error, "a token was not accepted");
                    None
                }
            };
        }
        // Whatever is remembered of it.
        if ends_s.is_some_and(|ends_s| ends_s <= now_s()) {
            return None;
        }
        if let Some(reviewer) = self.reviewer.as_ref().filter(|_| claims::<IgnoredAny>(&token).is_some()) {
            match reviewer.review(&token).await {
                Reviewed::Known(bearer) => return Some(bearer),
                Reviewed::Refused => return None,
                Reviewed::Foreign => {}
            }
        }
        for webhook in known.webhook.iter().cloned().chain(self.host.load_full()) {
            if let Some(caller) = Box::pin(webhook.caller(&token)).await {
                return Some(Bearer { caller, ends_s, by: By::Source(webhook.number()) });
            }
        }
        None
    }

    /// Says whether whoever was found by a token would be found again: what said so is still there, and says the same.
    pub fn counts(&self, bearer: &Bearer) -> bool {
        let known = self.known.load();
        match bearer.by {
            By::File(digest) => known.tokens.of(&digest) == Some(&bearer.caller),
            By::Source(number) => {
                let issuers = known.issuers.iter().map(|issuer| issuer.number());
                let webhooks = known.webhook.iter().cloned().chain(self.host.load_full());
                issuers.chain(webhooks.map(|webhook| webhook.number())).any(|one| one == number)
            }
            By::Reviewer => true,
        }
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
