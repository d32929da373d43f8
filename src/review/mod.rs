//! Reviews: questions about who somebody is and what he may do, posted and never stored.
//!
//! The fleet allows what every member allows that is asked: a client that reads *yes* must not meet a *no*. Nor must one that reads *no* be
//! kept from what it would get: a list is answered with the objects of the members that allow it, so one of them suffices, but not in the
//! strict view. A question about `x@east` is for that member alone. What members answer differently is said to be incomplete.
//!
//! May name: `answer`, `stores`, `catalog`, `member` and what is below them; not its peers.

mod rules;
mod signer;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use self::rules::{intersect_non_resource, intersect_resource};
use crate::{
    answer::{
        RequestContext,
        reply::{Reply, refusal},
    },
    catalog::{MergedResource, Scope},
    config::MemberName,
    member::{
        call::{Answer, Call},
        keys::signers,
    },
    respond::ReviewError,
    store::KindSpec,
    stores::{Stores, Target},
    view::Mode,
};
use kubefold_serving::request::read_json;
use kubefold_wire::{
    body::Body,
    path::ApiPath,
    resource::Gvr,
    reword::reworded,
    status::Status,
    warning::{Warnings, warning_text},
};

/// The groups whose kinds with the one verb `create` are reviews.
const GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Says whether a resource is a review.
pub fn is_review(gvr: &Gvr) -> bool {
    GROUPS.contains(&&*gvr.group) && gvr.resource.ends_with("reviews")
}

/// What one member says.
struct MemberReview {
    member: MemberName,
    review: Value,
}

/// What the members say.
#[derive(Default)]
struct Round {
    said: Vec<MemberReview>,
    /// Why others say nothing.
    silent: Vec<String>,
    warnings: Warnings,
}

/// A review as it came, of what its members serve.
#[derive(Clone, Copy)]
struct Question<'a> {
    stores: &'a Stores,
    asked: RequestContext<'a>,
    target: &'a Target,
}

/// Answers a `POST` of a review; `known` is what the members serve of its kind.
///
/// Cancel: safe; nothing is stored, so that nothing has to be finished.
pub async fn answer(
    stores: &Stores,
    asked: RequestContext<'_>,
    target: &Target,
    known: Option<&MergedResource>,
    body: Body,
) -> Result<Response<Body>, Status> {
    let Some(resource) = known else {
        return Err(ReviewError::NothingKnown.into());
    };
    let wanted = asked.wanted_of(&target.gvr, "")?;
    let body = read_json(asked.headers, body).await?;
    let registry = stores.registry();
    let present = |name: &&MemberName| {
        asked.caller.counts_in(name.as_str())
            && registry.get(name.as_str()).is_some_and(|member| !member.config().absent && member.twin_of().is_none())
    };
    let members: Vec<MemberName> = resource.members.iter().filter(present).cloned().collect();
    let question = Question { stores, asked, target };
    let response = ask(question, &members, body).await.unwrap_or_else(|reply| reply).into_response();
    let spec = KindSpec::new(target.gvr.clone(), resource.gvk.clone(), resource.scope == Scope::Namespaced);
    asked.written(response, wanted, &spec, stores).await
}

async fn ask(question: Question<'_>, members: &[MemberName], body: Bytes) -> Result<Reply, Reply> {
    let (stores, target) = (question.stores, question.target);
    let visible = visible_name(&body);
    let naming = Arc::clone(&stores.shared().naming);
    let split = visible.as_deref().and_then(|name| naming.split(name));
    let (targets, body) = match &split {
        Some((own, member)) => (vec![(*member).clone()], with_name(&body, own)),
        None => (members.to_vec(), body),
    };
    let mut hidden = Vec::new();
    let targets = match signer::token(&body) {
        // Of a fleet of one there is nobody else.
        Some(token) if *target.gvr.resource == *"tokenreviews" && targets.len() > 1 => {
            let registry = stores.registry();
            let of_targets: Vec<_> = targets.iter().filter_map(|name| registry.get(name.as_str())).collect();
            let signers = signers(&of_targets, &token).await;
            if signers.members.is_empty() {
                let review = signer::of_nobody(&body, &signers.silent);
                let (code, body) = (StatusCode::CREATED, Bytes::from(review.to_string()));
                return Ok(Reply { code, warnings: Warnings::default(), body });
            }
            hidden = signers.silent;
            signers.members
        }
        _ => targets,
    };
    let mut round = all(question, &targets, &body).await?;
    round.silent.extend(hidden);
    if round.said.is_empty() {
        return Err(ReviewError::Unanswered { gvr: target.gvr.clone(), causes: round.silent }.into());
    }
    let mut review = match &*target.gvr.resource {
        "selfsubjectrulesreviews" => rules_review(&round),
        "tokenreviews" => token_review(&round, stores.registry().members().len()),
        "selfsubjectreviews" => first(&round),
        "selfsubjectaccessreviews" if question.asked.mode != Mode::Strict && is_of_collection(&body) => {
            partial_review(&round)
        }
        resource => access_review(&round, resource == "selfsubjectaccessreviews"),
    };
    if let (Some(_), Some(visible)) = (&split, &visible) {
        set(&mut review, &["spec", "resourceAttributes", "name"], json!(visible));
    }
    for why in &round.silent {
        round.warnings.add(why);
    }
    Ok(Reply { code: StatusCode::CREATED, warnings: round.warnings, body: Bytes::from(review.to_string()) })
}

/// Asks every target at once.
///
/// Errors: one finds fault with the question itself, as all would.
async fn all(question: Question<'_>, targets: &[MemberName], body: &Bytes) -> Result<Round, Reply> {
    let Question { stores, asked, target } = question;
    let path = ApiPath::within(&target.gvr, &target.namespace);
    let user_agent = asked.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let calls = targets.iter().map(|name| {
        let call = Call {
            method: Method::POST,
            path: path.clone(),
            query: asked.query.to_owned(),
            body: body.clone(),
            content_type: String::new(),
            user_agent: user_agent.map(str::to_owned),
        };
        async move {
            let Some(member) = stores.registry().get(name.as_str()) else {
                return (name, Answer::NotSent(format!("member {name} is not in the configuration")));
            };
            (name, member.call(Some(asked.caller), call).await)
        }
    });
    let mut round = Round::default();
    for (member, answer) in join_all(calls).await {
        match answer {
            Answer::Answered { code, warnings, body } if code.is_success() => {
                warnings.iter().for_each(|header| round.warnings.add(&warning_text(header)));
                match serde_json::from_slice(&body) {
                    Ok(review) => round.said.push(MemberReview { member: member.clone(), review }),
                    Err(error) => round.silent.push(format!("member {member} answered with no review: {error}")),
                }
            }
            Answer::Answered { code, .. } if code == StatusCode::UNAUTHORIZED || code.is_server_error() => {
                round.silent.push(format!("member {member} answered {code}"));
            }
            // The question's own fault: every member says the same.
            Answer::Answered { code, body, .. } if code == StatusCode::UNPROCESSABLE_ENTITY => {
                return Err(reworded(&body, str::to_owned).map_or_else(
                    || refusal(member, code, &body, ""),
                    |body| Reply { code, warnings: round.warnings, body },
                ));
            }
            Answer::Answered { code, body, .. } => return Err(refusal(member, code, &body, "")),
            // Nothing is stored: a question whose answer is lost was never asked.
            Answer::NotSent(cause) | Answer::Unknown(cause) => round.silent.push(format!("member {member}: {cause}")),
        }
    }
    Ok(round)
}

/// The first member's answer, in configuration order.
fn first(round: &Round) -> Value {
    round.said.first().map(|said| said.review.clone()).unwrap_or_default()
}

/// Whether it is about what is answered with a part: a list or a watch.
fn is_of_collection(body: &Bytes) -> bool {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    ["list", "watch"].iter().any(|verb| review["spec"]["resourceAttributes"]["verb"] == *verb)
}

/// Allowed if one allows; the others are named.
fn partial_review(round: &Round) -> Value {
    let (allow, deny): (Vec<_>, Vec<_>) =
        round.said.iter().partition(|said| said.review["status"]["allowed"].as_bool().unwrap_or_default());
    if allow.is_empty() || deny.is_empty() {
        return access_review(round, true);
    }
    let said = allow.into_iter().map(|said| MemberReview { member: said.member.clone(), review: said.review.clone() });
    let mut review =
        access_review(&Round { said: said.collect(), silent: round.silent.clone(), ..Round::default() }, true);
    let deny: Vec<&str> = deny.iter().map(|said| said.member.as_str()).collect();
    let why = format!("the answer is without {}: not allowed there", deny.join(", "));
    let reason = match review["status"]["reason"].as_str() {
        Some(reason) => format!("{reason}; {why}"),
        None => why,
    };
    set(&mut review, &["status", "reason"], json!(reason));
    review
}

/// Allowed if all allow. Of the caller himself the members that answer decide, as each will judge again what he does; a
/// review of somebody else is the judgement, and is no while anybody is silent.
fn access_review(round: &Round, of_self: bool) -> Value {
    let is = |said: &MemberReview, what: &str| said.review["status"][what].as_bool().unwrap_or_default();
    let no = round.said.iter().find(|said| !is(said, "allowed"));
    let mut review = no.map_or_else(|| first(round), |said| said.review.clone());
    let mut status = Map::new();
    status.insert("allowed".into(), json!(no.is_none() && (of_self || round.silent.is_empty())));
    if round.said.iter().any(|said| is(said, "denied")) {
        status.insert("denied".into(), json!(true));
    }
    let reason = review["status"]["reason"].as_str().unwrap_or_default().to_owned();
    let reason = match no {
        Some(said) if reason.is_empty() => format!("member {} does not allow it", said.member),
        Some(said) => format!("member {}: {reason}", said.member),
        None => reason,
    };
    if !reason.is_empty() {
        status.insert("reason".into(), json!(reason));
    }
    let errors = round.said.iter().filter_map(|said| {
        let error = said.review["status"]["evaluationError"].as_str().filter(|error| !error.is_empty())?;
        Some(format!("member {}: {error}", said.member))
    });
    let errors: Vec<String> = errors.chain(round.silent.iter().cloned()).collect();
    if !errors.is_empty() {
        status.insert("evaluationError".into(), json!(errors.join("; ")));
    }
    set(&mut review, &["status"], Value::Object(status));
    review
}

/// What all members allow.
fn rules_review(round: &Round) -> Value {
    let mut review = first(round);
    let status = |said: &MemberReview, what: &str| said.review["status"][what].clone();
    let lists = |what: &str| round.said.iter().map(|said| status(said, what)).collect::<Vec<_>>();
    let (resource, non_resource) = (lists("resourceRules"), lists("nonResourceRules"));
    // Each member gives them in an order of its own.
    let sorted = |list: &Value| {
        let mut rules: Vec<String> = list.as_array().into_iter().flatten().map(Value::to_string).collect();
        rules.sort();
        rules
    };
    let differ = [&resource, &non_resource]
        .iter()
        .any(|all| all.windows(2).any(|two| two.first().map(sorted) != two.last().map(sorted)));
    if differ {
        set(&mut review, &["status", "resourceRules"], intersect_resource(&resource));
        set(&mut review, &["status", "nonResourceRules"], intersect_non_resource(&non_resource));
    }
    let mut errors: Vec<String> = round
        .said
        .iter()
        .filter_map(|said| {
            let error = said.review["status"]["evaluationError"].as_str().filter(|error| !error.is_empty())?;
            Some(format!("member {}: {error}", said.member))
        })
        .collect();
    if differ {
        let members: Vec<&str> = round.said.iter().map(|said| said.member.as_str()).collect();
        errors.push(format!("members differ; listed is what all of {} allow", members.join(", ")));
    }
    errors.extend(round.silent.iter().cloned());
    let incomplete = round.said.iter().any(|said| said.review["status"]["incomplete"] == json!(true));
    set(&mut review, &["status", "incomplete"], json!(incomplete || differ || !round.silent.is_empty()));
    if !errors.is_empty() {
        set(&mut review, &["status", "evaluationError"], json!(errors.join("; ")));
    }
    review
}

/// The first member that knows the token says whose it is. What one member of several vouches for is no power in the
/// others: groups that Kubernetes itself trusts are left out.
fn token_review(round: &Round, members: usize) -> Value {
    let known = round.said.iter().find(|said| said.review["status"]["authenticated"] == json!(true));
    let Some(said) = known else { return first(round) };
    let mut review = said.review.clone();
    if members > 1 {
        let groups = review["status"]["user"]["groups"].as_array().cloned().unwrap_or_default();
        let trusted = |group: &Value| group.as_str().is_some_and(|group| group.starts_with("system:"));
        let kept: Vec<Value> =
            groups.into_iter().filter(|group| !trusted(group) || *group == json!("system:authenticated")).collect();
        set(&mut review, &["status", "user", "groups"], json!(kept));
    }
    review
}

/// Sets a value inside objects, which are made where they are missing.
fn set(value: &mut Value, path: &[&str], to: Value) {
    let mut at = value;
    for key in path {
        if !at.is_object() {
            *at = json!({});
        }
        let Some(object) = at.as_object_mut() else { return };
        at = object.entry(*key).or_insert(Value::Null);
    }
    *at = to;
}

fn visible_name(body: &[u8]) -> Option<String> {
    let review: Value = serde_json::from_slice(body).ok()?;
    review["spec"]["resourceAttributes"]["name"].as_str().map(str::to_owned)
}

fn with_name(body: &[u8], own: &str) -> Bytes {
    let mut review: Value = serde_json::from_slice(body).unwrap_or_default();
    set(&mut review, &["spec", "resourceAttributes", "name"], json!(own));
    Bytes::from(review.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(reviews: &[(&str, Value)], silent: &[&str]) -> Round {
        let said = |(member, status): &(&str, Value)| MemberReview {
            member: MemberName::new(member).unwrap(),
            review: json!({"kind": "R", "spec": {"a": 1}, "status": status}),
        };
        let silent = silent.iter().map(|why| (*why).to_owned()).collect();
        Round { said: reviews.iter().map(said).collect(), silent, warnings: Warnings::default() }
    }

    #[test]
    fn access_is_allowed_where_all_members_allow_it() {
        let (yes, no) = (json!({"allowed": true, "reason": "RBAC"}), json!({"allowed": false}));
        let of = |round: &Round, of_self| access_review(round, of_self)["status"].clone();
        let both = round(&[("east", yes.clone()), ("west", yes.clone())], &[]);
        assert_eq!(of(&both, true), json!({"allowed": true, "reason": "RBAC"}));
        let one = round(&[("east", yes.clone()), ("west", no)], &[]);
        assert_eq!(of(&one, true), json!({"allowed": false, "reason": "member west does not allow it"}));
        let down = round(&[("east", yes)], &["member west: down"]);
        assert_eq!(of(&down, true)["allowed"], json!(true));
        assert_eq!(of(&down, false)["allowed"], json!(false));
        assert_eq!(of(&down, false)["evaluationError"], json!("member west: down"));
        let denied = round(&[("east", json!({"allowed": false, "denied": true, "reason": "webhook"}))], &[]);
        assert_eq!(of(&denied, false), json!({"allowed": false, "denied": true, "reason": "member east: webhook"}));
    }

    #[test]
    fn a_list_is_allowed_where_one_member_allows_it() {
        let (yes, no) = (json!({"allowed": true, "reason": "RBAC"}), json!({"allowed": false}));
        let of = |all: &[(&str, Value)], silent: &[&str]| partial_review(&round(all, silent))["status"].clone();
        let some = of(&[("east", no.clone()), ("west", yes.clone()), ("north", no.clone())], &["member south: down"]);
        let reason = "RBAC; the answer is without east, north: not allowed there";
        assert_eq!(some, json!({"allowed": true, "reason": reason, "evaluationError": "member south: down"}));
        assert_eq!(of(&[("east", yes.clone()), ("west", yes)], &[]), json!({"allowed": true, "reason": "RBAC"}));
        let none = of(&[("east", no.clone()), ("west", no)], &[]);
        assert_eq!(none, json!({"allowed": false, "reason": "member east does not allow it"}));
        let body = |verb: &str| Bytes::from(json!({"spec": {"resourceAttributes": {"verb": verb}}}).to_string());
        assert!(is_of_collection(&body("list")) && is_of_collection(&body("watch")) && !is_of_collection(&body("get")));
    }

    #[test]
    fn rules_that_differ_are_intersected_and_incomplete() {
        let rules = |verbs: &[&str]| {
            json!({"resourceRules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}],
                   "nonResourceRules": [], "incomplete": false})
        };
        let same = rules_review(&round(&[("east", rules(&["get"])), ("west", rules(&["get"]))], &[]));
        assert_eq!(same["status"], rules(&["get"]));
        let differ = rules_review(&round(&[("east", rules(&["get", "list"])), ("west", rules(&["*"]))], &[]));
        assert_eq!(differ["status"]["resourceRules"][0]["verbs"], json!(["get", "list"]));
        assert_eq!(differ["status"]["incomplete"], json!(true));
        assert!(differ["status"]["evaluationError"].as_str().unwrap().contains("east, west"));
    }

    #[test]
    fn a_token_is_the_first_members_that_knows_it_and_has_no_power_elsewhere() {
        let unknown = json!({"authenticated": false, "error": "no"});
        let known = json!({"authenticated": true, "user": {"username": "a", "groups": ["dev", "system:masters", "system:authenticated"]}});
        let of = |members| token_review(&round(&[("east", unknown.clone()), ("west", known.clone())], &[]), members);
        assert_eq!(of(2)["status"]["user"]["groups"], json!(["dev", "system:authenticated"]));
        assert_eq!(of(1)["status"], known);
        assert_eq!(token_review(&round(&[("east", unknown.clone())], &[]), 2)["status"], unknown);
    }

    #[test]
    fn names_are_found_and_replaced() {
        let body = br#"{"spec":{"resourceAttributes":{"verb":"get","name":"a@east"}}}"#;
        assert_eq!(visible_name(body).as_deref(), Some("a@east"));
        assert_eq!(with_name(body, "a"), r#"{"spec":{"resourceAttributes":{"verb":"get","name":"a"}}}"#);
        assert_eq!(visible_name(b"{}"), None);
    }
}
