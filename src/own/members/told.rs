//! What happens to members, as Events in kubefold's own namespace.

use super::object::MemberStatus;
use crate::own::events::Told;

/// It is no member any more.
pub(super) fn left() -> Told {
    Told::normal("Left", "left the fleet")
}

/// What has happened between two states of a member.
pub(super) fn between(before: &MemberStatus, now: &MemberStatus) -> Vec<Told> {
    let mut all = Vec::new();
    let accepted = |status: &MemberStatus| {
        status.condition("Accepted").map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    if let Some(condition) = now.condition("Accepted").filter(|_| accepted(before) != accepted(now)) {
        match condition.status.as_str() {
            "True" => {}
            _ => all.push(Told::warning(&condition.reason, condition.message.clone())),
        }
    }
    let inventory = |status: &MemberStatus| {
        let condition = status.condition("ClusterProfiles").filter(|condition| condition.status != "True")?;
        Some((condition.reason.clone(), condition.message.clone()))
    };
    if let Some((reason, message)) = inventory(now).filter(|now| inventory(before).as_ref() != Some(now)) {
        all.push(Told::warning(&reason, message));
    }
    let renewed = |status: &MemberStatus| {
        let condition = status.condition("TokensRenewed")?;
        Some((condition.status == "True", condition.reason.clone(), condition.message.clone()))
    };
    if let Some((is_good, reason, message)) = renewed(now).filter(|now| renewed(before).as_ref() != Some(now)) {
        all.push(if is_good { Told::normal(&reason, message) } else { Told::warning(&reason, message) });
    }
    match (before.cluster_uid.as_str(), now.cluster_uid.as_str()) {
        (_, "") => {}
        ("", uid) => all.push(Told::normal("Joined", format!("joined the fleet as cluster {uid}"))),
        (was, uid) if was != uid => {
            let message = format!("it is another cluster than before: the UID of kube-system was {was} and is {uid}");
            all.push(Told::warning("IdentityChanged", message));
        }
        _ => {}
    }
    if (&before.state, &before.cause) == (&now.state, &now.cause) {
        return all;
    }
    let was_wrong = matches!(before.state.as_str(), "down" | "degraded");
    match now.state.as_str() {
        "ready" if was_wrong => all.push(Told::normal("Reachable", "it answers again, and is ready")),
        "down" if now.cause.starts_with("same cluster as ") => {
            all.push(Told::warning("SameCluster", now.cause.clone()))
        }
        "down" => all.push(Told::warning("Unreachable", now.cause.clone())),
        "degraded" if now.cause.contains("(401)") => all.push(Told::warning("CredentialRefused", now.cause.clone())),
        "degraded" => all.push(Told::warning("Degraded", now.cause.clone())),
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::members::object::Condition;

    fn status(state: &str, cause: &str, uid: &str) -> MemberStatus {
        MemberStatus {
            state: state.to_owned(),
            cause: cause.to_owned(),
            cluster_uid: uid.to_owned(),
            ..MemberStatus::default()
        }
    }

    fn reasons(before: &MemberStatus, now: &MemberStatus) -> Vec<(&'static str, String)> {
        between(before, now).into_iter().map(|told| (told.of, told.reason)).collect()
    }

    #[test]
    fn each_thing_that_happens_to_a_member_has_its_reason() {
        let (new, ready) = (MemberStatus::default(), status("ready", "", "a"));
        let down = status("down", "connection refused", "a");
        let refused = status("degraded", "it refuses kubefold's own credential (401)", "a");
        let warning = |reason: &str| vec![("Warning", reason.to_owned())];
        let normal = |reason: &str| vec![("Normal", reason.to_owned())];
        assert_eq!(reasons(&new, &ready), normal("Joined"));
        assert_eq!(reasons(&ready, &ready), []);
        assert_eq!(reasons(&ready, &down), warning("Unreachable"));
        assert_eq!(reasons(&down, &ready), normal("Reachable"));
        assert_eq!(reasons(&ready, &refused), warning("CredentialRefused"));
        assert_eq!(reasons(&ready, &status("degraded", "not ready (500): etcd", "a")), warning("Degraded"));
        assert_eq!(reasons(&ready, &status("down", "same cluster as west", "a")), warning("SameCluster"));
        assert_eq!(reasons(&ready, &status("ready", "", "b")), warning("IdentityChanged"));
        // A restart of kubefold is nothing that happens to a member.
        assert_eq!(reasons(&ready, &status("unknown", "", "a")), []);
        assert_eq!(reasons(&status("unknown", "", "a"), &ready), []);
        let accepted = |status: &str, reason: &str| MemberStatus {
            conditions: vec![Condition {
                r#type: "Accepted".into(),
                status: status.into(),
                reason: reason.into(),
                ..Condition::default()
            }],
            ..MemberStatus::default()
        };
        assert_eq!(reasons(&new, &accepted("False", "SecretNotFound")), warning("SecretNotFound"));
        assert_eq!(reasons(&accepted("False", "SecretNotFound"), &accepted("True", "Accepted")), []);
    }
}
