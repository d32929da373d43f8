//! From a verified client certificate to a [`Caller`].

use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::der_parser::{Oid, oid};

use crate::caller::Caller;

/// Where kube-apiserver reads a user's UID in a certificate's subject.
///
/// Source: kubernetes/apiserver `pkg/authentication/request/x509/x509.go`, `CommonNameUserConversion`.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);
/// What users and groups of Kubernetes' own begin with.
pub const SYSTEM: &str = "system:";
/// What users and groups of the server's own begin with.
pub const OWN: &str = "kubefold:";
/// Those groups of Kubernetes' own that people are in.
const PEOPLES: [&str; 2] = [AUTHENTICATED, "system:masters"];
/// The extras in which Kubernetes' own servers say by which credential somebody was known.
const OF_CREDENTIALS: &str = "authentication.kubernetes.io/";
/// The group of everybody who is somebody.
pub const AUTHENTICATED: &str = "system:authenticated";

/// Says whether only the server's own authority may name a user or group: it is Kubernetes' own, or the server's.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(SYSTEM) || name.starts_with(OWN)
}

/// Somebody, without what only a cluster's own components are, or the server itself: such a user is nobody, and such a group is
/// left out. So is what another cluster says of the credential that it was shown: it differs from one credential of the same user to the next.
pub fn of_people(mut caller: Caller) -> Option<Caller> {
    if is_reserved(&caller.user) {
        return None;
    }
    caller.extra.retain(|key, _| !key.starts_with(OF_CREDENTIALS));
    // An empty group names nothing, and no header can carry it.
    caller.groups.retain(|group| !group.is_empty() && (!is_reserved(group) || PEOPLES.contains(&group.as_str())));
    Some(caller)
}

/// Somebody of a cluster whose people are this server's: who is Kubernetes' own there, a component or a ServiceAccount, is
/// somebody in that cluster alone, with `cluster` as his domain. Nobody is this server's own.
pub fn of_cluster(mut caller: Caller, cluster: &str) -> Option<Caller> {
    if !caller.user.starts_with(SYSTEM) {
        return of_people(caller);
    }
    caller.extra.retain(|key, _| !key.starts_with(OF_CREDENTIALS));
    caller.groups.retain(|group| !group.is_empty() && !group.starts_with(OWN));
    caller.domain = Some(cluster.to_owned());
    Some(caller)
}

/// What a connection proved about its client, once for all its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// No certificate, or none that counts.
    Anonymous,
    /// A certificate of the client authority, until its end (Unix seconds).
    Certificate {
        /// Whose it is.
        caller: Caller,
        /// A connection outlives its certificate; its requests do not.
        not_after_s: u64,
    },
}

impl Identity {
    /// Whose certificate it is, of an authority that was found to have signed it.
    pub(crate) fn of(leaf: &CertificateDer<'_>) -> Self {
        caller(leaf).unwrap_or(Self::Anonymous)
    }

    /// The same of somebody else, or of nobody.
    pub(crate) fn of_whom(self, of: impl FnOnce(Caller) -> Option<Caller>) -> Self {
        match self {
            Self::Certificate { caller, not_after_s } => {
                of(caller).map_or(Self::Anonymous, |caller| Self::Certificate { caller, not_after_s })
            }
            Self::Anonymous => Self::Anonymous,
        }
    }

    /// How long it counts from now on; `None` for nobody's.
    pub fn ends_in(&self, now: UnixTime) -> Option<Duration> {
        match self {
            // The last second counts, as in `caller_at`.
            Self::Certificate { not_after_s, .. } => {
                Some(Duration::from_secs((not_after_s + 1).saturating_sub(now.as_secs())))
            }
            Self::Anonymous => None,
        }
    }

    /// The caller of a request at this time.
    pub fn caller_at(&self, now: UnixTime) -> Option<&Caller> {
        match self {
            Self::Certificate { caller, not_after_s } if now.as_secs() <= *not_after_s => Some(caller),
            Self::Certificate { .. } | Self::Anonymous => None,
        }
    }
}

/// The common name of a subject, and the certificate's end in Unix seconds. As Go's `pkix.Name`: of several the last counts.
pub(crate) fn common_name(leaf: &CertificateDer<'_>) -> Option<(String, u64)> {
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).ok()?;
    let name = parsed.subject().iter_common_name().last()?.as_str().ok()?.to_owned();
    Some((name, u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0)))
}

/// Reads user, groups and UID out of a subject. An empty user is nobody.
fn caller(leaf: &CertificateDer<'_>) -> Option<Identity> {
    let (user, not_after_s) = common_name(leaf)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).ok()?;
    let subject = parsed.subject();
    if user.is_empty() {
        return None;
    }
    let mut groups = Vec::new();
    for organization in subject.iter_organization() {
        groups.push(organization.as_str().ok()?.to_owned());
    }
    let mut uids = subject.iter_by_oid(&UID);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => None,
        (Some(uid), None) => Some(uid.as_str().ok()?.to_owned()).filter(|uid| !uid.is_empty()),
        // kube-apiserver refuses a certificate with two.
        (Some(_), Some(_)) => return None,
    };
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    Some(Identity::Certificate { caller: Caller { user, groups, uid, ..Caller::default() }, not_after_s })
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    use super::*;
    use crate::tls::{Believed, ClientAuthority, Judge, Tls};

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        pem: String,
    }

    fn authority() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn leaf(authority: &Authority, subject: &[(DnType, &str)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        params.signed_by(&KeyPair::generate().unwrap(), &authority.issuer).unwrap().der().clone()
    }

    fn believed(authority: &Authority, believed: Believed) -> Judge {
        Judge::new(&ClientAuthority { bundle: authority.pem.clone(), believed }).unwrap()
    }

    /// Whom these authorities together, the first one first, take a certificate for.
    fn by_all(authorities: &[(&Authority, Believed)], chain: &[CertificateDer<'_>]) -> Option<Caller> {
        let judges: Vec<_> = authorities.iter().map(|(authority, of)| believed(authority, of.clone())).collect();
        let identity = Tls::identity(&judges, chain, UnixTime::now());
        identity.caller_at(UnixTime::now()).cloned()
    }

    /// The attack: a node of the cluster whose authority is given is a node of every other cluster.
    #[test]
    fn another_authority_makes_no_users_of_kubernetes_own() {
        let authority = authority();
        let judge = believed(&authority, Believed::PeopleOnly);
        let caller = |user, group| {
            let subject = [(DnType::CommonName, user), (DnType::OrganizationName, group)];
            let identity = judge.identity(&[leaf(&authority, &subject)], UnixTime::now()).unwrap();
            identity.caller_at(UnixTime::now()).cloned()
        };
        assert_eq!(caller("system:node:n1", "system:nodes"), None);
        assert_eq!(caller("system:kube-controller-manager", "dev"), None);
        assert_eq!(caller("kubefold:mover", "dev"), None);
        let groups = |group| caller("jane", group).unwrap().groups;
        assert_eq!(groups("dev"), ["dev", "system:authenticated"]);
        assert_eq!(groups("system:nodes"), ["system:authenticated"]);
        assert_eq!(groups("kubefold:viewers"), ["system:authenticated"]);
        assert_eq!(groups("system:masters"), ["system:masters", "system:authenticated"]);
    }

    fn judge(trusted: &Authority, chain: &[CertificateDer<'_>]) -> Option<Caller> {
        by_all(&[(trusted, Believed::Everything)], chain)
    }

    /// A member's users are somebody in that member; nodes and administrators of it are nobody else's.
    #[test]
    fn what_a_member_signed_counts_in_that_member_alone() {
        let [own, east, west] = [(); 3].map(|()| authority());
        let authorities = [
            (&own, Believed::Everything),
            (&east, Believed::InDomain("east".into())),
            (&west, Believed::InDomain("west".into())),
        ];
        let of = |authority| {
            let subject = [(DnType::CommonName, "system:node:n1"), (DnType::OrganizationName, "system:masters")];
            by_all(&authorities, &[leaf(authority, &subject)]).unwrap()
        };
        let node = of(&east);
        assert_eq!((node.user.as_str(), node.domain.as_deref()), ("system:node:n1", Some("east")));
        assert!(node.groups.contains(&"system:masters".to_owned()) && !node.is_in("system:masters"));
        assert_eq!(of(&west).domain.as_deref(), Some("west"));
        assert_eq!(of(&own).domain, None);
    }

    /// The attack: a member that says another one's authority is its own, or that of the whole fleet.
    #[test]
    fn an_authority_of_two_members_is_nobodys_and_the_fleets_own_come_first() {
        let shared = authority();
        let jane = || [leaf(&shared, &[(DnType::CommonName, "jane")])];
        let [east, west] = ["east", "west"].map(|member| (&shared, Believed::InDomain(member.into())));
        assert_eq!(by_all(&[east.clone(), west.clone()], &jane()), None);
        let given = (&shared, Believed::PeopleOnly);
        let of_fleet = by_all(&[given.clone(), east.clone(), west.clone()], &jane()).unwrap();
        assert_eq!((of_fleet.user.as_str(), of_fleet.domain), ("jane", None));
        let node = [leaf(&shared, &[(DnType::CommonName, "system:node:n1")])];
        assert_eq!(by_all(&[given, east], &node), None, "whom the fleet's own authority may not name is nobody");
    }

    #[test]
    fn the_subject_says_user_group_and_uid() {
        let authority = authority();
        let subject = [
            (DnType::CommonName, "jane@example.com"),
            (DnType::OrganizationName, "team:a"),
            (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), "uid-1"),
        ];
        let caller = judge(&authority, &[leaf(&authority, &subject)]).unwrap();
        assert_eq!(caller.user, "jane@example.com");
        assert_eq!(caller.groups, ["team:a", "system:authenticated"]);
        assert_eq!(caller.uid.as_deref(), Some("uid-1"));
    }

    #[test]
    fn whoever_is_nobody_is_nobody() {
        let [authority, other] = [(); 2].map(|()| authority());
        let nameless = leaf(&authority, &[(DnType::OrganizationName, "system:masters")]);
        assert_eq!(judge(&authority, &[nameless]), None);
        let empty = leaf(&authority, &[(DnType::CommonName, ""), (DnType::OrganizationName, "system:masters")]);
        assert_eq!(judge(&authority, &[empty]), None);
        let foreign = leaf(&other, &[(DnType::CommonName, "jane")]);
        assert_eq!(judge(&authority, &[foreign]), None);
        assert_eq!(judge(&authority, &[]), None);
    }

    #[test]
    fn a_certificate_ends_while_its_connection_goes_on() {
        let authority = authority();
        let chain = [leaf(&authority, &[(DnType::CommonName, "jane")])];
        let identity = believed(&authority, Believed::Everything).identity(&chain, UnixTime::now()).unwrap();
        let left = identity.ends_in(UnixTime::since_unix_epoch(Duration::from_secs(4_102_444_790)));
        assert_eq!(left, Some(Duration::from_secs(11)), "to the end of 2099 and the second that still counts");
        assert!(identity.caller_at(UnixTime::now()).is_some());
        let later = UnixTime::since_unix_epoch(Duration::from_secs(5_000_000_000));
        assert_eq!(identity.caller_at(later), None);
    }
}
