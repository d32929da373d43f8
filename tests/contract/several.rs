//! What a fleet of several members must show, from what each member shows by itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    check::Check,
    seen::{Body, Mismatch, Seen, mismatches, normalise},
    target::Target,
};

/// An object as it is shown, and without what the fleet changes.
struct Shown<'a> {
    key: String,
    raw: &'a Value,
}

/// What is wrong with the answer of a fleet of several, if anything.
///
/// Where a fleet of the first alone answers otherwise than that member does, this one answers as that fleet: the
/// difference is declared there.
pub(crate) async fn verdict(members: &[Target], alone: &Target, fleet: &Target, check: &Check) -> Option<String> {
    let said = futures::future::join_all(members.iter().map(|member| member.ask(check))).await;
    let (told, of_one) = tokio::join!(fleet.ask(check), alone.ask(check));
    let of_another_sort = |one: &Mismatch| ["status", "body", "body.kind", "events"].contains(&one.aspect.as_str());
    let wrong = if mismatches(&said[0], &of_one).iter().any(of_another_sort) {
        let (told, of_one) = (sort_of(&told), sort_of(&of_one));
        (told != of_one).then(|| format!("{told}, and over one member {of_one}"))
    } else {
        match judge(members, &said, &told, check) {
            // What a member's own components renew may have changed in between: then the fleet tells what it is now.
            Some(_) => {
                let now = futures::future::join_all(members.iter().map(|member| member.ask(check))).await;
                judge(members, &now, &told, check)
            }
            None => None,
        }
    };
    Some(format!("{}: {}\n    {}", fleet.name, check.label(), wrong?))
}

/// What clients branch on.
fn sort_of(seen: &Seen) -> String {
    match &seen.body {
        Body::Json(value, _) => format!("{} {} {} {}", seen.status, value["kind"], value["reason"], value["code"]),
        Body::Events(events) => {
            let first = events.first().unwrap_or(&Value::Null);
            format!("{} {} {}", seen.status, first["type"], first["object"]["code"])
        }
        _ => seen.status.to_string(),
    }
}

fn judge(members: &[Target], said: &[Seen], told: &Seen, check: &Check) -> Option<String> {
    let first = &said[0];
    if told.status != first.status {
        return Some(format!(
            "status {}, and {} from {}: {}",
            told.status,
            first.status,
            members[0].name,
            told.shown()
        ));
    }
    match (&first.raw, &told.raw) {
        (Body::Json(said, _), Body::Json(told, _)) if said["kind"] == "Status" => {
            let branch = |status: &Value| json!([status["status"], status["reason"], status["code"]]);
            (branch(said) != branch(told)).then(|| format!("{told}, and the member: {said}"))
        }
        (Body::Json(one, _), Body::Json(all, _))
            if (one["items"].is_array() && one["kind"] != "APIGroupDiscoveryList")
                || is_table_of_several(one, check) =>
        {
            let lists: Vec<_> = said.iter().map(|seen| items(&seen.raw)).collect();
            let paged = check.is_paged();
            let ours = told.raw.without_cluster();
            let wrong = sorted(&items(&ours)).or_else(|| union(members, &lists, &items(&ours), paged));
            wrong.or_else(|| (one["kind"] != all["kind"]).then(|| format!("a {}, not a {}", all["kind"], one["kind"])))
        }
        (Body::Events(_), Body::Events(_)) => {
            let lists: Vec<_> = said.iter().map(|seen| items(&seen.raw)).collect();
            union(members, &lists, &items(&told.raw.without_cluster()), false)
        }
        (Body::Json(..), Body::Json(..)) if check.path.contains("{@}") => {
            let (Body::Json(said, _), Body::Json(told, _)) = (&first.body, told.body.without_cluster()) else {
                return None;
            };
            (*said != told).then(|| format!("{told}, and the member: {said}"))
        }
        _ => None,
    }
}

/// The objects of a list, or those that a watch begins with.
fn items(body: &Body) -> Vec<Shown<'_>> {
    let objects: Vec<&Value> = match body {
        Body::Json(list, _) => {
            let objects = list["items"].as_array().or_else(|| list["rows"].as_array());
            objects.into_iter().flatten().collect()
        }
        Body::Events(events) => {
            let added = events.iter().filter(|event| event["type"] == "ADDED").map(|event| &event["object"]);
            added.map(|object| if object["kind"] == "Table" { &object["rows"][0] } else { object }).collect()
        }
        _ => Vec::new(),
    };
    objects.into_iter().map(|raw| Shown { key: key(metadata(raw)), raw }).collect()
}

fn is_table_of_several(body: &Value, check: &Check) -> bool {
    body["kind"] == "Table" && !check.path.contains("{@}") && !check.path.contains("includeObject=None")
}

/// Of an object, or of that in a row.
fn metadata(raw: &Value) -> &Value {
    if raw["cells"].is_array() { &raw["object"]["metadata"] } else { &raw["metadata"] }
}

/// The key in the order of Kubernetes' storage.
fn key(metadata: &Value) -> String {
    let name = metadata["name"].as_str().unwrap_or_default();
    metadata["namespace"].as_str().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Promise 1, and Kubernetes' order.
fn sorted(shown: &[Shown<'_>]) -> Option<String> {
    let pair = shown.windows(2).find(|pair| pair[0].key >= pair[1].key)?;
    Some(format!("{} before {}", pair[0].key, pair[1].key))
}

/// Every object of every member is there once, and nothing else; member-local objects are their member's own but for what is promised.
/// Of a page that is asked for, not all need be there.
fn union(members: &[Target], said: &[Vec<Shown<'_>>], told: &[Shown<'_>], paged: bool) -> Option<String> {
    let mut missing: BTreeSet<(String, &str)> = BTreeSet::new();
    let mut objects: BTreeMap<(String, &str), &Value> = BTreeMap::new();
    for (member, shown) in members.iter().zip(said) {
        for one in shown {
            missing.insert((one.key.clone(), &member.name));
            objects.insert((one.key.clone(), &member.name), one.raw);
        }
    }
    for one in told {
        let named = one.key.rsplit_once('@').and_then(|(own, at)| {
            // In the name of an event the member comes before the last dot.
            let (at, end) = at.split_once('.').map_or((at, String::new()), |(at, end)| (at, format!(".{end}")));
            Some((format!("{own}{end}"), members.iter().find(|one| one.name == at)?))
        });
        if let Some((own, member)) = named {
            let place = (own, member.name.as_str());
            if !missing.remove(&place) && !paged {
                return Some(format!("{} is not in {}, or shown twice", one.key, member.name));
            }
            let Some(theirs) = objects.get(&place) else { continue };
            let (mut ours, mut theirs) = (one.raw.clone(), (*theirs).clone());
            if let Some(wrong) = about_shared(&mut ours, &mut theirs) {
                return Some(wrong);
            }
            normalise(&mut ours, &format!("@{}", member.name));
            normalise(&mut theirs, "");
            // The order of keys counts, but for custom resources in a form that is Kubernetes' own.
            let kind = if ours["cells"].is_array() { &ours["object"]["kind"] } else { &ours["kind"] };
            let in_order = kind == "PartialObjectMetadata" || ours.to_string().eq(&theirs.to_string());
            if ours != theirs || !in_order {
                return Some(format!("{ours}, and the member: {theirs}"));
            }
            continue;
        }
        let holders = metadata(one.raw)["annotations"]["kubefold.io/clusters"].as_str().unwrap_or_default();
        if holders.is_empty() {
            return Some(format!("{} names no member", one.key));
        }
        for holder in holders.split(',') {
            let Some(member) = members.iter().find(|member| member.name == holder) else { continue };
            missing.remove(&(one.key.clone(), &member.name));
        }
    }
    let (key, member) = missing.first().filter(|_| !paged)?;
    Some(format!("{key} of {member} is missing"))
}

/// What an event is about, where that is a shared object: it is told by the fleet's own UID, or the join is lost.
/// Takes both UIDs out.
fn about_shared(ours: &mut Value, theirs: &mut Value) -> Option<String> {
    for field in ["involvedObject", "regarding"] {
        let (Some(told), Some(own)) = (ours.get_mut(field), theirs.get_mut(field)) else { continue };
        let is_shared = told["name"] == "kubernetes" && told["kind"] == "Service";
        if !is_shared || own["uid"].is_null() {
            continue;
        }
        if told["uid"] == own["uid"] {
            return Some(format!("the fleet's Service has not the member's UID, but an event tells of it: {told}"));
        }
        told["uid"].take();
        own["uid"].take();
    }
    None
}
