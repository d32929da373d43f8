//! Visible names and UIDs: a function of the object and its member alone.

use std::borrow::Cow;

use uuid::Uuid;

use crate::{
    config::{Config, MemberName, SharedRule},
    placement::{divided::Kinds, fingerprint::Mask, visible::VisibleNames},
};

#[cfg(test)]
use crate::config::Names;
use kubefold_wire::resource::Gvr;

/// Namespace of the UIDs that shared objects have in a fleet of several members.
const SHARED_UIDS: Uuid = Uuid::from_u128(0x6b75_6265_666f_6c64_0000_0000_0000_0001);

/// How objects are named in this fleet.
#[derive(Clone, Debug)]
pub struct Naming {
    names: VisibleNames,
    shared: Vec<SharedRule>,
    /// What policies make different between parts.
    mask: Mask,
    /// What is divided of which kinds.
    kinds: Kinds,
}

impl Naming {
    /// Takes what the configuration says about names.
    pub fn new(config: &Config) -> Self {
        Self {
            names: VisibleNames::new(config),
            shared: config.shared.clone(),
            mask: Mask::of(config),
            kinds: Kinds::of(config),
        }
    }

    /// Takes it in its parts.
    #[cfg(test)]
    pub(crate) fn of(names: Names, shared: Vec<SharedRule>, members: Vec<MemberName>) -> Self {
        let names = VisibleNames::of(names, members);
        Self { names, shared, mask: Mask::default(), kinds: Kinds::default() }
    }

    /// What is no difference between parts.
    pub(super) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// What is divided of which kinds.
    pub(super) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The members, in configuration order.
    pub fn members(&self) -> &[MemberName] {
        self.names.members()
    }

    /// Says whether that name is a member's.
    pub fn is_member(&self, name: &str) -> bool {
        self.member(name).is_some()
    }

    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&MemberName> {
        self.names.member(name)
    }

    /// Splits `web-0@east` at its last `@` when a member's name follows.
    pub fn split<'a>(&self, visible: &'a str) -> Option<(&'a str, &MemberName)> {
        self.names.split(visible)
    }

    /// The same of an object of that resource. An event is called after its object: `web-0@east.17f0` is `web-0.17f0` of east.
    pub fn split_of<'a>(&self, gvr: &Gvr, visible: &'a str) -> Option<(Cow<'a, str>, &MemberName)> {
        if let Some((own, member)) = self.split(visible) {
            return Some((Cow::Borrowed(own), member));
        }
        (gvr.is_event() && !self.is_plain()).then_some(())?;
        let (object, rest) = visible.rsplit_once('@')?;
        let (member, suffix) = rest.split_once('.')?;
        let is_cut_so = !object.is_empty() && !suffix.is_empty() && !suffix.contains('.');
        is_cut_so.then_some(())?;
        Some((Cow::Owned(format!("{object}.{suffix}")), self.member(member)?))
    }

    /// The own name behind the visible one of an object of that resource.
    pub fn own<'a>(&self, gvr: &Gvr, visible: &'a str) -> Cow<'a, str> {
        self.split_of(gvr, visible).map_or(Cow::Borrowed(visible), |(own, _)| own)
    }

    /// Says whether member-local objects keep their own names.
    pub fn is_plain(&self) -> bool {
        self.names.is_plain()
    }

    /// What follows a member-local object's own name: an `@` and its member, or nothing.
    pub fn suffix<'a>(&self, member: &'a MemberName) -> [&'a str; 2] {
        if self.is_plain() { ["", ""] } else { ["@", member.as_str()] }
    }

    /// The visible name of a member-local object, in pieces; of its own key, its visible key.
    pub(super) fn pieces<'a>(&self, is_event: bool, own: &'a str, member: &'a MemberName) -> [&'a str; 4] {
        let [at, name] = self.suffix(member);
        let cut = own.rfind('.').filter(|cut| is_event && *cut > 0 && !own[..*cut].ends_with('/'));
        let (object, suffix) = own.split_at(cut.unwrap_or(own.len()));
        // What ends in a dot is called after nothing.
        if suffix == "." { [own, at, name, ""] } else { [object, at, name, suffix] }
    }

    /// Appends the visible name of a member-local object.
    pub(super) fn write_member_local(&self, is_event: bool, own: &str, member: &MemberName, out: &mut String) {
        out.extend(self.pieces(is_event, own, member));
    }

    /// Says whether an object of that resource is one that every cluster has under this name.
    ///
    /// A name that ends in `@<member>` never is: it could not be told from a member-local object's.
    pub fn is_shared(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        self.shared
            .iter()
            .any(|rule| rule.group == group && rule.resource == resource && self.rule_holds(rule, namespace, name))
    }

    /// The same for an object that is referred to by its kind: its resource, if it is shared. A rule's resource is compared
    /// with the kind's plural as Kubernetes guesses it (apimachinery `pkg/api/meta/restmapper.go`,
    /// `UnsafeGuessKindToResource`).
    pub fn shared_kind(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<&str> {
        self.shared
            .iter()
            .find(|rule| {
                rule.group == group && is_plural_of(&rule.resource, kind) && self.rule_holds(rule, namespace, name)
            })
            .map(|rule| rule.resource.as_str())
    }

    fn rule_holds(&self, rule: &SharedRule, namespace: &str, name: &str) -> bool {
        let name_fits = match rule.name.as_deref() {
            None => true,
            Some(pattern) => match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == pattern,
            },
        };
        name_fits && rule.namespace.as_deref().is_none_or(|only| only == namespace) && self.split(name).is_none()
    }

    /// The UID that a shared object has: its own in a fleet of one member, otherwise one that is made of its resource,
    /// key and life number, so that it is the same after a restart and another after the object was gone.
    pub fn shared_uid(&self, group: &str, resource: &str, key: &str, life: u32) -> Option<String> {
        if self.members().len() < 2 {
            return None;
        }
        let name = format!("{group}/{resource}/{key}/{life}");
        Some(Uuid::new_v5(&SHARED_UIDS, name.as_bytes()).to_string())
    }
}

/// Says whether `resource` is what Kubernetes guesses from `kind`, without making the guess: every reference asks.
fn is_plural_of(resource: &str, kind: &str) -> bool {
    let is = |stem: &str, ending: &str| {
        resource.len() == stem.len() + ending.len()
            && resource.get(..stem.len()).is_some_and(|start| start.eq_ignore_ascii_case(stem))
            && resource.ends_with(ending)
    };
    match kind.as_bytes().last() {
        _ if kind.eq_ignore_ascii_case("endpoints") => is(kind, ""),
        Some(b's' | b'S') => is(kind, "es"),
        Some(b'y' | b'Y') => is(kind.get(..kind.len() - 1).unwrap_or_default(), "ies"),
        _ => is(kind, "s"),
    }
}

/// `namespace/name`, or `name`: how a store keys an object.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(names: Names, members: &[&str]) -> Naming {
        let rule = |group: &str, resource: &str, name: Option<&str>| SharedRule {
            group: group.into(),
            resource: resource.into(),
            namespace: None,
            name: name.map(Into::into),
        };
        Naming {
            names: VisibleNames::of(names, members.iter().map(|name| MemberName::new(name).unwrap()).collect()),
            shared: vec![
                rule("", "namespaces", None),
                rule("", "endpoints", Some("kubernetes")),
                rule("rbac.authorization.k8s.io", "clusterroles", Some("system:*")),
            ],
            mask: Mask::default(),
            kinds: Kinds::default(),
        }
    }

    #[test]
    fn the_last_at_sign_before_a_members_name_decides() {
        let naming = naming(Names::Suffixed, &["east", "west"]);
        let split = |name| naming.split(name).map(|(own, member)| (own, member.as_str()));
        assert_eq!(split("web-0@east"), Some(("web-0", "east")));
        assert_eq!(split("joe@example.com-admin"), None);
        assert_eq!(split("joe@example.com@west"), Some(("joe@example.com", "west")));
        assert_eq!(split("a@east@west"), Some(("a@east", "west")));
        assert_eq!(split("@east"), None);
    }

    #[test]
    fn an_event_is_called_after_its_object() {
        let naming = naming(Names::Suffixed, &["east", "west"]);
        let (events, pods) = (Gvr::new("", "v1", "events"), Gvr::new("", "v1", "pods"));
        let east = naming.member("east").unwrap();
        for (own, visible) in [
            ("web-0.17f0", "web-0@east.17f0"),
            ("a.b.17f0", "a.b@east.17f0"),
            ("web-0", "web-0@east"),
            ("x@west.17f0", "x@west@east.17f0"),
            ("x@west", "x@west@east"),
            ("ends.", "ends.@east"),
            (".starts", ".starts@east"),
            ("a..b", "a.@east.b"),
        ] {
            let key = |name: &str| format!("shop/{name}");
            assert_eq!(naming.pieces(true, own, east).concat(), visible);
            assert_eq!(naming.pieces(true, &key(own), east).concat(), key(visible));
            let split = naming.split_of(&events, visible);
            assert_eq!(split.map(|(own, member)| (own.into_owned(), member.as_str())), Some((own.to_owned(), "east")));
        }
        assert_eq!(naming.pieces(false, "web-0.17f0", east).concat(), "web-0.17f0@east");
        for name in ["web-0.17f0", "web-0@north.17f0", "web-0@east.", "@east.17f0", "web-0@east.1.2"] {
            assert_eq!(naming.split_of(&events, name), None, "{name}");
        }
        assert_eq!(naming.split_of(&pods, "web-0@east.17f0"), None);
        assert_eq!(naming.own(&events, "web-0@west.17f0"), "web-0.17f0");
    }

    #[test]
    fn shared_objects_by_resource_and_by_kind() {
        let naming = naming(Names::Suffixed, &["east", "west"]);
        let rbac = "rbac.authorization.k8s.io";
        assert!(naming.is_shared("", "namespaces", "", "default") && !naming.is_shared("", "pods", "", "default"));
        assert!(naming.is_shared(rbac, "clusterroles", "", "system:node"));
        assert!(!naming.is_shared(rbac, "clusterroles", "", "admin"));
        assert!(!naming.is_shared(rbac, "clusterroles", "", "system:x@east"));
        assert_eq!(naming.shared_kind("", "Namespace", "", "x"), Some("namespaces"));
        assert_eq!(naming.shared_kind("", "Endpoints", "default", "kubernetes"), Some("endpoints"));
        assert_eq!(naming.shared_kind("apps", "Namespace", "", "x"), None);
    }

    #[test]
    fn plurals_as_kubernetes_guesses_them() {
        for (kind, resource) in [
            ("Pod", "pods"),
            ("Ingress", "ingresses"),
            ("NetworkPolicy", "networkpolicies"),
            ("Endpoints", "endpoints"),
        ] {
            assert!(is_plural_of(resource, kind), "{kind}");
            assert!(!is_plural_of(&resource[1..], kind) && !is_plural_of("", kind));
        }
    }

    #[test]
    fn shared_uids_are_stable_for_a_life() {
        let two = naming(Names::Suffixed, &["east", "west"]);
        assert_eq!(two.shared_uid("", "namespaces", "x", 1), two.shared_uid("", "namespaces", "x", 1));
        assert_ne!(two.shared_uid("", "namespaces", "x", 1), two.shared_uid("", "namespaces", "x", 2));
        assert_eq!(naming(Names::Suffixed, &["east"]).shared_uid("", "namespaces", "x", 1), None);
    }
}
