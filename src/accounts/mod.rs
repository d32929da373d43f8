//! Who asks, by a token that a member made for one of its service accounts. Whoever that is acts in that member alone, unless
//! the configuration says who it is in the fleet.
//!
//! The member whose keys signed a token is the only one that is shown it, and says with a `TokenReview` whether it is good.
//!
//! May name: `authn`, `config`, `member`, `upstream`.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture, future::join_all};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::{
    authn::{
        Bearer, By, Reviewed, Reviewer, claims, ends_s,
        known::{AGAIN_AFTER, GRACE, Known, Slot, TOKEN_BYTES_MAX},
    },
    config::{AccountRule, MemberName},
    member::{
        Member,
        call::{Answer, Call},
        keys::signers,
        registry::Registry,
    },
};
use kubefold_serving::{authenticate::AUTHENTICATED, caller::Caller};
use kubefold_wire::{path::ApiPath, resource::Gvr};

/// A member that takes longer has not said.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// What a member has said of a token holds for so long. That no member has signed one, too: each may have new keys.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// What the tokens of ServiceAccounts say of themselves begins so.
const ACCOUNT: &str = "system:serviceaccount:";

/// Knows whose tokens of service accounts are.
pub struct Accounts {
    registry: Arc<Registry>,
    rules: ArcSwap<Vec<AccountRule>>,
    known: Known<Whose>,
}

/// Whose a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whose {
    Account(Caller),
    /// A member has signed it, and knows it no more.
    Nobodys,
    /// No member has signed it.
    Foreign,
}

impl Whose {
    /// Whose word it is. While that member is down, it stands.
    fn member(&self) -> Option<&str> {
        match self {
            Self::Account(caller) => caller.domain.as_deref(),
            Self::Nobodys | Self::Foreign => None,
        }
    }
}

/// What one member says of a token.
enum Said {
    Good(Caller),
    Bad,
    Unknown(String),
}

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
}

impl Accounts {
    /// Asks these members.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, rules: ArcSwap::default(), known: Known::default() }
    }

    /// Takes the accounts that are somebody in the whole fleet from here on.
    pub fn configure(&self, rules: &[AccountRule]) {
        self.rules.store(Arc::new(rules.to_vec()));
    }

    async fn bearer(&self, token: &str) -> Reviewed {
        if token.len() > TOKEN_BYTES_MAX {
            return Reviewed::Refused;
        }
        let slot = self.known.slot(token);
        let word = match slot.fresh() {
            Some(known) => known,
            None => {
                let _turn = slot.turn().await;
                match slot.fresh() {
                    Some(known) => known,
                    None => self.ask(token, &slot).await,
                }
            }
        };
        match word {
            Some(Whose::Account(caller)) => {
                Reviewed::Known(Bearer { caller: self.in_fleet(caller), ends_s: ends_s(token), by: By::Reviewer })
            }
            Some(Whose::Nobodys) => Reviewed::Refused,
            Some(Whose::Foreign) => Reviewed::Foreign,
            // A member that cannot say may have signed it, if it is of a kind that members sign.
            None if is_of_account(token) => Reviewed::Refused,
            None => Reviewed::Foreign,
        }
    }

    /// Whose the members say it is, as of now; kept in its slot.
    async fn ask(&self, token: &str, slot: &Slot<Whose>) -> Option<Whose> {
        let members = self.registry.members();
        let is_present = |member: &&Arc<Member>| !member.config().absent && member.twin_of().is_none();
        let members: Vec<Arc<Member>> = members.iter().filter(is_present).cloned().collect();
        let signers = signers(&members, token).await;
        let of_signers = members.iter().filter(|member| signers.members.contains(member.name()));
        let asked = Instant::now();
        let said = join_all(of_signers.map(|member| review(member, token))).await;
        let (mut good, mut silent) = (Vec::new(), signers.silent);
        for said in said {
            match said {
                Said::Good(caller) => good.push(caller),
                Said::Bad => {}
                Said::Unknown(cause) => silent.push(cause),
            }
        }
        match (good.pop(), good.is_empty(), silent.is_empty()) {
            (Some(caller), true, _) => Some(slot.is(Whose::Account(caller), asked, GOOD_FOR)),
            (None, _, false) => {
                tracing::info!(causes = silent.join("; "), "members cannot say whose a token is");
                slot.is_unknown(|word, at| {
                    asked < at + GRACE || word.member().is_some_and(|member| self.is_down(member))
                })
            }
            (None, _, true) if signers.members.is_empty() => Some(slot.is(Whose::Foreign, asked, GOOD_FOR)),
            (None, _, true) => Some(slot.is(Whose::Nobodys, asked, AGAIN_AFTER)),
            (Some(_), false, _) => {
                tracing::warn!("several members with the same keys know a token: it is nobody's");
                Some(slot.is(Whose::Nobodys, asked, AGAIN_AFTER))
            }
        }
    }

    fn is_down(&self, member: &str) -> bool {
        self.registry.get(member).is_some_and(|member| member.health().is_down())
    }

    /// As whom an account acts.
    fn in_fleet(&self, caller: Caller) -> Caller {
        let rules = self.rules.load();
        let is_of = |rule: &&AccountRule| {
            let user = format!("{ACCOUNT}{}:{}", rule.namespace, rule.name);
            caller.domain.as_deref() == Some(rule.member.as_str()) && caller.user == user
        };
        let Some(rule) = rules.iter().find(is_of) else { return caller };
        let groups = rule.groups.iter().cloned().chain([AUTHENTICATED.to_owned()]).collect();
        Caller { user: rule.user.clone(), groups, ..Caller::default() }
    }
}

impl Reviewer for Accounts {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Reviewed> {
        self.bearer(token).boxed()
    }
}

/// Says whether a token says of itself that it is one of a ServiceAccount.
fn is_of_account(token: &str) -> bool {
    #[derive(Deserialize)]
    struct Subject {
        sub: String,
    }
    claims::<Subject>(token).is_some_and(|subject| subject.sub.starts_with(ACCOUNT))
}

/// Asks a member whose a token is that it made.
async fn review(member: &Member, token: &str) -> Said {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let call = Call {
        method: Method::POST,
        path: ApiPath::of(&Gvr::new("authentication.k8s.io", "v1", "tokenreviews")),
        query: String::new(),
        body: Bytes::from(review.to_string()),
        content_type: String::new(),
        user_agent: None,
    };
    let name = member.name();
    let unknown = |what: String| Said::Unknown(format!("member {name}: {what}"));
    let Ok(answer) = timeout(ANSWER_MAX, member.review_token(call)).await else {
        return unknown(format!("no answer in {}s", ANSWER_MAX.as_secs()));
    };
    match answer {
        Answer::Answered { code, body, .. } if code.is_success() => said(name, &body),
        Answer::Answered { code: StatusCode::FORBIDDEN, .. } => {
            unknown("kubefold may not create tokenreviews there: see deploy/member-rbac.yaml".to_owned())
        }
        Answer::Answered { code, .. } => unknown(format!("it answered {code}")),
        Answer::NotSent(cause) | Answer::Unknown(cause) => unknown(cause),
    }
}

/// What a member's answer comes to. The extras of a credential stay out: kubefold may not name them to a member.
fn said(member: &MemberName, body: &[u8]) -> Said {
    let Ok(Review { status }) = serde_json::from_slice(body) else {
        return Said::Unknown(format!("member {member}: its answer is no review"));
    };
    let User { username: user, uid, mut groups } = status.user;
    if !status.authenticated || user.is_empty() {
        return Said::Bad;
    }
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let uid = Some(uid).filter(|uid| !uid.is_empty());
    Said::Good(Caller { user, groups, uid, domain: Some(member.to_string()), ..Caller::default() })
}
