//! What the host decides: about kubefold's own objects, and for whoever is known by the host's word alone.

use std::sync::Arc;

use crate::{
    access::{
        Access, MASTERS, Who,
        grant::{forbidden_because, not_known},
    },
    config::Aggregation,
    host::{Host, OUTSIDE},
    member::review::{Action, Judgement},
    respond::AccessError,
};
use kubefold_serving::caller::Caller;

/// As whom a kube-controller-manager empties namespaces, with and without `--use-service-account-credentials`.
const NAMESPACE_CONTROLLERS: [&str; 2] =
    ["system:serviceaccount:kube-system:namespace-controller", "system:kube-controller-manager"];

impl Access {
    /// Takes the host; call it before anything is asked.
    pub fn behind(&self, host: Arc<Host>) {
        // Once, as a process begins once.
        let _taken_before = self.host.set(host);
    }

    /// Takes another host from here on.
    pub fn configure_host(&self, aggregation: Option<&Aggregation>) {
        self.host.get().inspect(|host| host.configure(aggregation));
    }

    /// Says whether the host decides about a path that is no resource, since no member knows the caller.
    pub fn is_of_host(&self, caller: &Caller) -> bool {
        self.host.get().is_some_and(|host| host.is_domain_of(caller))
    }

    /// Says whether somebody is one of the host's own, its controllers and ServiceAccounts, and the host is no member: then he is
    /// nobody in any member.
    pub fn is_of_no_member(&self, caller: &Caller) -> bool {
        caller.domain.as_deref() == Some(OUTSIDE)
    }

    /// Says whether somebody empties namespaces of the host that are being deleted.
    pub fn empties_namespaces_of_host(&self, caller: &Caller) -> bool {
        self.is_of_host(caller) && NAMESPACE_CONTROLLERS.contains(&caller.user.as_str())
    }

    /// Asks the host whether somebody may do something; whoever acts as somebody else has to be allowed that, too. `None`: there
    /// is no host.
    ///
    /// Errors: 403 where the host does not allow it, 503 where it does not say.
    pub async fn host_allows(&self, who: Who<'_>, action: &Action) -> Option<Result<(), AccessError>> {
        let host = self.host.get()?;
        if who.is_of(&[MASTERS]) {
            return Some(Ok(()));
        }
        for part in who.through.iter().flat_map(|original| &original.parts) {
            let original = who.through.map_or(who.caller, |original| &original.caller);
            if let Err(error) = said(original, part, host.judge(original, part).await?) {
                return Some(Err(error));
            }
        }
        Some(said(who.caller, action, host.judge(who.caller, action).await?))
    }
}

fn said(caller: &Caller, action: &Action, judgement: Judgement) -> Result<(), AccessError> {
    match judgement {
        Judgement::Allowed => Ok(()),
        // As a kube-apiserver: the reason stands behind its sentence, if there is one.
        Judgement::Denied(why) => {
            let reasons = Some(why.to_string()).filter(|why| !why.is_empty()).into_iter().collect();
            Err(forbidden_because(caller, action, reasons))
        }
        Judgement::Unknown(why) => Err(not_known(caller, action, vec![format!("the host: {why}")])),
    }
}
