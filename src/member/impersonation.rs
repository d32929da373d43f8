//! Whether a caller may be somebody else in a member: the member says, for each part of whom it would be.

use futures::future::join_all;

use crate::{
    member::{
        Member,
        review::{Action, Judgement, judge},
    },
    respond::ImpersonationRefused,
};
use kubefold_serving::{caller::Caller, impersonation::Impersonation};
use kubefold_wire::golang::Quoted;

/// The group of everything about an identity but its user and groups.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Asks a member whether `caller` may be whom it asks to be.
///
/// Cancel: safe; nothing is stored.
pub async fn permit(member: &Member, caller: &Caller, wanted: &Impersonation) -> Result<(), ImpersonationRefused> {
    let parts = parts(wanted);
    let asked = parts.iter().map(|part| async move {
        match judge(member, caller, part).await {
            Judgement::Allowed => Ok(()),
            Judgement::Denied(_) => Err(forbidden(caller, part)),
            Judgement::Unknown(cause) => {
                Err(ImpersonationRefused::Unknown { member: member.name().clone(), cause: cause.to_string() })
            }
        }
    });
    // The first of them in their order: the same question has the same answer.
    join_all(asked).await.into_iter().collect()
}

/// What has to be allowed to whoever would be somebody: one action for each part of him.
pub fn parts(wanted: &Impersonation) -> Vec<Action> {
    let plain = |resource: &str, name: &str| Action {
        verb: "impersonate".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Action::default()
    };
    let user = match wanted.service_account() {
        Some((namespace, name)) => Action { namespace: namespace.to_owned(), ..plain("serviceaccounts", name) },
        None => plain("users", wanted.user.as_str()),
    };
    let groups = wanted.groups.iter().map(|group| plain("groups", group.as_str()));
    let of_login = |action| Action { group: AUTHENTICATION.to_owned(), ..action };
    let uid = wanted.uid.iter().map(|uid| of_login(plain("uids", uid)));
    let extras = wanted.extra.iter().flat_map(|(key, values)| {
        let of = move |value| Action { subresource: key.clone(), ..of_login(plain("userextras", value)) };
        values.iter().map(move |value| of(value))
    });
    std::iter::once(user).chain(groups).chain(uid).chain(extras).collect()
}

fn forbidden(caller: &Caller, part: &Action) -> ImpersonationRefused {
    let place = match part.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", Quoted(namespace)),
    };
    let resource = match part.subresource.as_str() {
        "" => part.resource.clone(),
        key => format!("{}/{key}", part.resource),
    };
    let (user, name, group) = (caller.user.clone(), part.name.clone(), part.group.clone());
    ImpersonationRefused::Forbidden { user, resource, group, name, place }
}
