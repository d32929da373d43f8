//! Plans a create: which members get a part, how large, and which part comes first.

use http::StatusCode;

use crate::{
    config::{MemberName, Weight},
    placement::division::{Share, divide, tie},
    wire::status::{Reason, Status, qualified},
};

/// How a member is, as far as placing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It answers.
    Ready,
    /// It does not answer, but its objects of the kind are known. The text says why, with age.
    Down(String),
    /// Its objects of the kind are not known: no name can be promised to be free. The text says why.
    Unknown(String),
}

/// What is known of one member, for one create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The member.
    pub name: MemberName,
    /// UID of its cluster (of its namespace `kube-system`); `None` before the first contact.
    pub cluster_uid: Option<String>,
    /// Its weight.
    pub weight: Weight,
    /// The operator declared it absent.
    pub absent: bool,
    /// How it is.
    pub standing: Standing,
    /// It serves the kind in the version asked.
    pub serves_kind: bool,
    /// It holds the namespace, and is not deleting it.
    pub has_namespace: bool,
    /// Owners named in the body that it does not hold: its garbage collector would delete the part.
    pub missing_owners: Vec<String>,
    /// What [`fits`](crate::placement::scheduling::fits) said.
    pub fits: Result<(), String>,
}

/// One part to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where.
    pub member: MemberName,
    /// In which cluster: if the member becomes another one meanwhile, the part is not made.
    pub cluster_uid: String,
    /// How large.
    pub replicas: u32,
}

/// Where an object goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The object's minted UID.
    pub uid: String,
    /// At least one; the first is made last, as the commit, and is the home.
    pub targets: Vec<Target>,
    /// Who gets no part, and why.
    pub left_out: Vec<(MemberName, String)>,
}

/// Why an object cannot be placed. Each reason names its member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No member can take it.
    #[error("no member can take it: {}", listed(.0))]
    NoCandidate(Vec<(MemberName, String)>),
    /// No member that could take it holds its namespace.
    #[error("no member holds the namespace")]
    NoNamespace,
    /// Who could take it is down.
    #[error("no member that is up can take it: {}", listed(.0))]
    AllDown(Vec<(MemberName, String)>),
    /// Whether the name is free cannot be known.
    #[error("whether the name is free is not known at {}; try again, or declare the member `absent: true`", listed(.0))]
    Unknown(Vec<(MemberName, String)>),
}

fn listed(reasons: &[(MemberName, String)]) -> String {
    if reasons.is_empty() {
        return "no member is configured".to_owned();
    }
    reasons.iter().map(|(member, why)| format!("{member}: {why}")).collect::<Vec<_>>().join("; ")
}

impl PlanError {
    /// The failure as the client sees it. A namespace that is nowhere is what a kube-apiserver says it is.
    pub fn to_status(&self, group: &str, resource: &str, kind: &str, (namespace, name): (&str, &str)) -> Status {
        match self {
            Self::NoNamespace => {
                let mut status = Status::not_found("", "namespaces", namespace);
                status.message.push_str(": no member holds it");
                return status;
            }
            Self::NoCandidate(_) => {
                let kind = qualified(group, kind);
                let message = format!("{kind} {name:?} is invalid: {self}");
                Status::new(StatusCode::UNPROCESSABLE_ENTITY, Reason::Invalid, message)
            }
            Self::AllDown(_) | Self::Unknown(_) => {
                Status::unavailable(format!("{} {name:?} cannot be placed: {self}", qualified(group, resource)))
            }
        }
        .about(group, resource, name)
    }
}

/// Plans the parts of one object whose replicas are divided.
///
/// `sticky` is the member that comes first while it is a candidate; else the largest share does, ties falling by UID. A
/// share of 0 makes no part, but one part always exists.
///
/// Errors: no member can take it, or a member is unknown for the kind.
pub fn plan(
    uid: &str,
    replicas: u32,
    candidates: &[Candidate],
    sticky: Option<&MemberName>,
) -> Result<Plan, PlanError> {
    let unknown: Vec<_> = candidates.iter().filter_map(unknown).collect();
    if !unknown.is_empty() {
        return Err(PlanError::Unknown(unknown));
    }
    let (mut takers, mut left_out, mut down) = (Vec::new(), Vec::new(), false);
    for candidate in candidates {
        match taker(candidate) {
            Ok(cluster_uid) => takers.push((candidate, cluster_uid)),
            Err(Refusal { why, down: is_down }) => {
                down |= is_down;
                left_out.push((candidate.name.clone(), why));
            }
        }
    }
    if takers.is_empty() {
        let mut able = candidates.iter().filter(|candidate| !candidate.absent && candidate.serves_kind).peekable();
        return Err(match () {
            () if down => PlanError::AllDown(left_out),
            () if able.peek().is_some() && able.all(|candidate| !candidate.has_namespace) => PlanError::NoNamespace,
            () => PlanError::NoCandidate(left_out),
        });
    }
    let shares: Vec<_> = takers.iter().map(|(c, _)| Share { member: &c.name, weight: c.weight, max: None }).collect();
    let mut parts: Vec<_> = takers.iter().zip(divide(replicas, &shares, uid)).collect();
    parts.sort_by_key(|((candidate, _), replicas)| {
        let later = sticky != Some(&candidate.name);
        (later, std::cmp::Reverse((*replicas, candidate.weight, tie(uid, &candidate.name))))
    });
    let mut targets = Vec::new();
    for ((candidate, cluster_uid), replicas) in parts {
        if replicas == 0 && !targets.is_empty() {
            left_out.push((candidate.name.clone(), "its share is 0".to_owned()));
            continue;
        }
        targets.push(Target { member: candidate.name.clone(), cluster_uid: (*cluster_uid).clone(), replicas });
    }
    Ok(Plan { uid: uid.to_owned(), targets, left_out })
}

fn unknown(candidate: &Candidate) -> Option<(MemberName, String)> {
    match &candidate.standing {
        Standing::Unknown(why) if !candidate.absent => Some((candidate.name.clone(), why.clone())),
        Standing::Unknown(_) | Standing::Ready | Standing::Down(_) => None,
    }
}

struct Refusal {
    why: String,
    down: bool,
}

/// The cluster UID of a member that can take a part, or why it cannot.
fn taker(candidate: &Candidate) -> Result<&String, Refusal> {
    let no = |why: String| Err(Refusal { why, down: false });
    if candidate.absent {
        return no("it is declared absent".to_owned());
    }
    if !candidate.serves_kind {
        return no("it does not serve the kind".to_owned());
    }
    if let Standing::Down(why) = &candidate.standing {
        return Err(Refusal { why: format!("it is down: {why}"), down: true });
    }
    if !candidate.has_namespace {
        return no("it does not hold the namespace".to_owned());
    }
    if !candidate.missing_owners.is_empty() {
        return no(format!("it does not hold the owner {}", candidate.missing_owners.join(", ")));
    }
    if let Err(why) = &candidate.fits {
        return no(why.clone());
    }
    match &candidate.cluster_uid {
        Some(uid) => Ok(uid),
        None => Err(Refusal { why: "which cluster it is was never read".to_owned(), down: true }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, weight: u32) -> Candidate {
        Candidate {
            name: MemberName::new(name).unwrap(),
            cluster_uid: Some(format!("c-{name}")),
            weight: Weight(weight),
            absent: false,
            standing: Standing::Ready,
            serves_kind: true,
            has_namespace: true,
            missing_owners: Vec::new(),
            fits: Ok(()),
        }
    }

    fn shape(plan: &Plan) -> Vec<(&str, u32)> {
        plan.targets.iter().map(|target| (target.member.as_str(), target.replicas)).collect()
    }

    #[test]
    fn the_largest_share_comes_first() {
        let all = [candidate("east", 1), candidate("west", 2)];
        assert_eq!(shape(&plan("u", 3, &all, None).unwrap()), [("west", 2), ("east", 1)]);
        let sticky = MemberName::new("east").unwrap();
        assert_eq!(shape(&plan("u", 3, &all, Some(&sticky)).unwrap()), [("east", 1), ("west", 2)]);
    }

    #[test]
    fn a_share_of_0_makes_no_part_but_the_home_exists() {
        let all = [candidate("east", 1), candidate("west", 2)];
        let one = plan("u", 1, &all, None).unwrap();
        assert_eq!(shape(&one), [("west", 1)]);
        assert_eq!(one.left_out[0].1, "its share is 0");
        assert_eq!(shape(&plan("u", 0, &all, None).unwrap()), [("west", 0)]);
        assert_eq!(shape(&plan("u", 4, &[candidate("east", 0), candidate("west", 1)], None).unwrap()), [("west", 4)]);
    }

    #[test]
    fn a_namespace_that_is_nowhere_is_not_found() {
        let mut all = [candidate("a", 1), candidate("b", 1), candidate("c", 1)];
        all.iter_mut().for_each(|candidate| candidate.has_namespace = false);
        all[2].serves_kind = false;
        let status =
            plan("u", 1, &all, None).unwrap_err().to_status("apps", "deployments", "Deployment", ("ns", "web"));
        assert_eq!((status.code.as_u16(), status.reason), (404, Reason::NotFound));
        assert_eq!(status.message, "namespaces \"ns\" not found: no member holds it");
        all[1].standing = Standing::Down("cut off".into());
        assert!(matches!(plan("u", 1, &all, None), Err(PlanError::AllDown(_))), "it may hold it");
    }

    #[test]
    fn divide_leaves_a_down_member_out_and_each_reason_is_said() {
        let mut all =
            vec![candidate("a", 1), candidate("b", 1), candidate("c", 1), candidate("d", 1), candidate("e", 1)];
        all[0].standing = Standing::Down("connection refused for 3 s".into());
        all[1].has_namespace = false;
        all[2].missing_owners = vec!["Thing x".into()];
        all[3].fits = Err("no node matches".into());
        let p = plan("u", 4, &all, None).unwrap();
        assert_eq!(shape(&p), [("e", 4)]);
        assert_eq!(p.left_out.len(), 4);
        all[4].serves_kind = false;
        let error = plan("u", 4, &all, None).unwrap_err();
        assert_eq!(error.to_status("apps", "deployments", "Deployment", ("ns", "web")).code, 503, "one is only down");
        all[0].absent = true;
        let status =
            plan("u", 4, &all, None).unwrap_err().to_status("apps", "deployments", "Deployment", ("ns", "web"));
        assert_eq!((status.code.as_u16(), status.reason), (422, Reason::Invalid));
        assert_eq!(
            status.message,
            "Deployment.apps \"web\" is invalid: no member can take it: a: it is declared absent; \
             b: it does not hold the namespace; c: it does not hold the owner Thing x; d: no node matches; \
             e: it does not serve the kind"
        );
    }

    #[test]
    fn an_unknown_member_refuses_unless_it_is_declared_absent() {
        let mut all = vec![candidate("east", 1), candidate("west", 1)];
        all[1].standing = Standing::Unknown("never reached".into());
        let status =
            plan("u", 3, &all, None).unwrap_err().to_status("apps", "deployments", "Deployment", ("ns", "web"));
        assert_eq!(status.code, 503);
        assert!(status.message.contains("west: never reached"), "{}", status.message);
        assert_eq!(status.details.retry_after_seconds, None);
        all[1].absent = true;
        assert_eq!(shape(&plan("u", 3, &all, None).unwrap()), [("east", 3)]);
    }
}
