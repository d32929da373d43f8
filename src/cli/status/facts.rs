//! What of the fleet's status is worth a line when it changes: what counts seconds, bytes and objects changes always.

use crate::{
    cli::status::page::name,
    status::{FleetStatus, MemberStatus, RemarkedObject, UnfinishedWrite},
};

/// Seconds behind which a member's lag is told.
const LAG_MIN_S: u64 = 10;

/// Something that holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    /// What it is about: two facts about the same are one that changes.
    about: String,
    said: String,
}

impl Fact {
    /// kubefold does not answer.
    pub(super) fn server(error: &anyhow::Error) -> Self {
        Self { about: SERVER.to_owned(), said: format!("{error:#}") }
    }

    pub(super) fn is_of_server(&self) -> bool {
        self.about == SERVER
    }
}

const SERVER: &str = "kubefold";

/// What holds.
pub(super) fn facts(status: &FleetStatus) -> Vec<Fact> {
    let fact = |about: String, said: String| Fact { about, said };
    let mut out: Vec<Fact> =
        status.members.iter().map(|one| fact(format!("member {}", one.name), member(one))).collect();
    for kind in status.kinds.iter().filter(|kind| !kind.unknown.is_empty()) {
        let about = format!("{}/{}", kind.resource, kind.version);
        let said = format!("{about} has not been read from {}", kind.unknown.join(", "));
        out.push(fact(about, said));
    }
    if let Some(state) = &status.state {
        let error = state.error.as_ref().map(|error| format!("nothing can be written through the fleet view: {error}"));
        out.extend(error.map(|said| fact("state".to_owned(), said)));
    }
    let mirror = status.mirror.as_ref().and_then(|mirror| mirror.error.as_ref());
    out.extend(mirror.map(|error| fact("mirror".to_owned(), format!("the mirror is not kept: {error}"))));
    out.extend(status.damaged.iter().map(|said| fact(said.clone(), said.clone())));
    for write in &status.unfinished {
        let what = format!("{} of {}", write.verb, name(&write.resource, &write.namespace, &write.name));
        out.push(fact(format!("write {what}"), format!("{what} is unfinished{}", behind(write))));
    }
    for (about, said, objects) in
        [("differs", "differs in", &status.differing), ("name", "has a name that is used twice, in", &status.doubled)]
    {
        out.extend(objects.iter().map(|one| {
            let RemarkedObject { resource, namespace, name: own, members } = one;
            let what = name(resource, namespace, own);
            fact(format!("{about} {what}"), format!("{what} {said} {}", members.join(", ")))
        }));
    }
    out
}

fn member(one: &MemberStatus) -> String {
    let mut said = format!("member {} is {}", one.name, one.state);
    if one.absent {
        said += ", absent";
    }
    if one.lag_seconds >= LAG_MIN_S && one.state == "ready" {
        said += ", not current";
    }
    match &one.cause {
        Some(cause) => format!("{said}: {cause}"),
        None => said,
    }
}

fn behind(write: &UnfinishedWrite) -> String {
    let behind = write.behind.iter().map(|one| format!("{}: {}", one.member, one.why));
    let behind = behind.collect::<Vec<_>>().join("; ");
    if behind.is_empty() { behind } else { format!(" in {behind}") }
}

/// A line for each fact that is new or has changed, and for each that holds no more.
pub(super) fn changes(before: &[Fact], now: &[Fact]) -> Vec<String> {
    let new = now.iter().filter(|fact| !before.contains(fact)).map(|fact| fact.said.clone());
    let is_told = |fact: &&Fact| now.iter().any(|one| one.about == fact.about);
    let over = before.iter().filter(|fact| !is_told(fact)).map(|fact| format!("over: {}", fact.said));
    new.chain(over).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(members: serde_json::Value, unfinished: serde_json::Value) -> FleetStatus {
        let whole = json!({"members": members, "kinds": [], "unfinished": unfinished, "differing": [], "doubled": []});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn what_changes_is_told_once() {
        let member = |state: &str, cause: Option<&str>, bytes: usize| json!([{"name": "west", "state": state, "reachable": state == "ready", "cause": cause, "bytes": bytes}]);
        let calm = facts(&status(member("ready", None, 1), json!([])));
        assert_eq!(changes(&calm, &facts(&status(member("ready", None, 2), json!([])))), Vec::<String>::new());
        let write = |why: &str| {
            json!([{
                "resource": "deployments.apps", "namespace": "shop", "name": "web", "verb": "update", "user": "ann",
                "behind": [{"member": "west", "why": why}],
            }])
        };
        let down = facts(&status(member("down", Some("refused"), 1), write("not asked yet")));
        let update = "update of deployments.apps/web in shop is unfinished in west: not asked yet";
        assert_eq!(changes(&calm, &down), ["member west is down: refused", update]);
        let refused = facts(&status(member("down", Some("refused"), 1), write("403")));
        assert_eq!(changes(&down, &refused), ["update of deployments.apps/web in shop is unfinished in west: 403"]);
        assert_eq!(changes(&down, &calm), ["member west is ready".to_owned(), format!("over: {update}")]);
        let gone = Fact::server(&anyhow::anyhow!("cannot reach kubefold"));
        assert_eq!(changes(&calm, &[calm.clone(), vec![gone.clone()]].concat()), ["cannot reach kubefold"]);
        assert!(gone.is_of_server() && !calm[0].is_of_server());
    }
}
