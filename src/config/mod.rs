//! `clusters.yaml`: raw serde types become validated ones; whoever holds a [`Config`] holds a good one.
//!
//! May name: `wire`.
//!
//! [`load`] reads the file once; [`Reloads`] yields every later good version of it.

mod aggregation;
mod aliases;
mod carried;
mod checked;
mod cluster_profiles;
mod collections;
mod credentials;
mod duration;
mod edit;
mod error;
mod files;
mod joined;
mod kinds;
mod kubeconfig;
mod load;
mod mirror;
mod overriding;
mod policies;
mod policy;
mod raw;
#[cfg(test)]
mod reference;
mod reload;
mod shadow;
mod shared;
mod spread;
#[cfg(test)]
mod tests;

pub use aggregation::{Aggregation, GroupVersion, OWN_GROUP, OWN_NAMESPACE, ServiceRef};
pub use aliases::Alias;
pub use carried::CarriedKind;
pub use cluster_profiles::ClusterProfiles;
pub use edit::{Alteration, Component, Edit, Format, How, KeyMap, Texts};
pub use error::{ConfigError, FileError, KindProblem, PolicyProblem, Problem, ShadowProblem};
pub use joined::member_of;
pub use kinds::KindConfig;
pub use load::{MEMBERS_MAX, load, load_text};
pub use mirror::{MirrorConfig, ResourcePattern};
pub use overriding::{OverrideConfig, OverrideRule};
pub use policies::{PolicySpec, SpecError, policy_of};
pub use policy::{
    Bounds, Chosen, Failover, KindPattern, Match, MemberTaint, MemberTerms, MemberToleration, Overrides, Picked,
    PolicyConfig, Precision, Rebalance, SpreadLevel, Strategy, TaintEffect, Weights, unfit,
};
pub use reload::{ReloadHandle, Reloads};
pub use shadow::{ItemColumn, ItemLabel, ItemPath, ShadowFields};

use crate::search::Collection;
use kubefold_wire::names::is_dns_label;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

/// The name of a member: a DNS label, so that it never holds an `@`, a dot or a slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemberName(Arc<str>);

impl TryFrom<String> for MemberName {
    type Error = NotAMemberName;

    fn try_from(name: String) -> Result<Self, NotAMemberName> {
        Self::new(&name).ok_or(NotAMemberName(name))
    }
}

impl From<MemberName> for String {
    fn from(name: MemberName) -> Self {
        name.as_str().to_owned()
    }
}

/// A text that is no DNS label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a member")]
pub struct NotAMemberName(String);

impl MemberName {
    /// Takes a DNS label (RFC 1123: lower case letters, digits and `-`, at most 63 bytes).
    pub fn new(name: &str) -> Option<Self> {
        is_dns_label(name).then(|| Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Share of a member in a division, relative to the others'. Zero takes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(pub u32);

/// How kubefold reaches and logs in to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A kubeconfig file and, unless it is the current one, a context.
    Kubeconfig {
        /// The file; relative paths were resolved against the folder of `clusters.yaml`.
        path: PathBuf,
        /// The context, or the file's current one.
        context: Option<String>,
        /// Digest of the file and of the certificates that it names: a new credential is a new configuration.
        digest: u64,
    },
    /// An address and a credential, written out.
    Server(Box<ServerAccess>),
    /// The service account of the pod that kubefold runs in.
    InCluster,
}

impl Access {
    /// Whether another access leads to the same server, and differs in the credential at most.
    pub fn is_of_same_server(&self, other: &Self) -> bool {
        let (Self::Server(one), Self::Server(other)) = (self, other) else { return self == other };
        let place = |access: &ServerAccess| ServerAccess {
            client_certificate: None,
            token: None,
            token_file: None,
            impersonator_token: None,
            withheld: None,
            ..access.clone()
        };
        place(one) == place(other)
    }
}

/// A member given by its address.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerAccess {
    /// `https://host:port`, optionally with a path.
    pub server: String,
    /// PEM bundle, from the file or inline.
    pub certificate_authority: Option<PemSource>,
    /// Client certificate and key.
    pub client_certificate: Option<(PemSource, PemSource)>,
    /// A static token.
    pub token: Option<String>,
    /// A file with a token, read again as it changes.
    pub token_file: Option<PathBuf>,
    /// A static token of whoever impersonates, where that is somebody else. `clusters.yaml` has only files of such tokens.
    pub impersonator_token: Option<String>,
    /// Why there is no credential, where there is to be one: nothing is asked of the member then.
    pub withheld: Option<String>,
    /// Name to verify in the member's certificate, when not the host's.
    pub tls_server_name: Option<String>,
    /// `http://` or `socks5://` proxy.
    pub proxy_url: Option<String>,
}

/// Shows where a credential comes from, and never the credential: configurations end up in logs.
impl fmt::Debug for ServerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerAccess")
            .field("server", &self.server)
            .field("certificate_authority", &self.certificate_authority)
            .field("client_certificate", &self.client_certificate)
            .field("token", &self.token.as_ref().map(|_| "REDACTED"))
            .field("token_file", &self.token_file)
            .field("impersonator_token", &self.impersonator_token.as_ref().map(|_| "REDACTED"))
            .field("withheld", &self.withheld)
            .field("tls_server_name", &self.tls_server_name)
            .field("proxy_url", &self.proxy_url.as_ref().map(|_| "REDACTED"))
            .finish()
    }
}

/// PEM text, and the file that it came from if it came from one.
#[derive(Clone, PartialEq, Eq)]
pub struct PemSource {
    /// The text.
    pub pem: String,
    /// The file, read again as it changes.
    pub file: Option<PathBuf>,
}

impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemSource").field("pem", &"REDACTED").field("file", &self.file).finish()
    }
}

/// Time limits toward one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// To connect, TLS included.
    pub connect: Duration,
    /// For a read to give its answer's head, and for each page of a list.
    pub read: Duration,
    /// For a write; a kube-apiserver works on one for up to 34 s.
    pub write: Duration,
    /// Between two health probes.
    pub probe: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(30),
            write: Duration::from_secs(40),
            probe: Duration::from_secs(2),
        }
    }
}

/// One member as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// Its name in the fleet.
    pub name: MemberName,
    /// How to reach it.
    pub access: Access,
    /// A file with the token of whoever impersonates, where that is somebody else.
    pub impersonator: Option<PathBuf>,
    /// Whether kubefold renews the tokens that it logs in with.
    pub renew_tokens: bool,
    /// Its share in divisions.
    pub weight: Weight,
    /// Labels for policies.
    pub labels: BTreeMap<String, String>,
    /// Objects that do not tolerate these go elsewhere.
    pub taints: Vec<MemberTaint>,
    /// Declared absent by the operator: reads do not wait for it.
    pub absent: bool,
    /// Declared by the operator as a new cluster in the place of an earlier one.
    pub rebuilt: bool,
    /// Time limits.
    pub deadlines: Deadlines,
    /// How many requests may be under way to it at once, watches apart.
    pub in_flight_max: usize,
}

/// How member-local objects are named in the fleet view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// `web-0@east`.
    Suffixed,
    /// `web-0`: for a fleet of one member only.
    Plain,
}

/// What becomes of an object that no policy selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It is placed as its kind is by default.
    #[default]
    Default,
    /// It is refused.
    Refuse,
}

/// Objects that every cluster has under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRule {
    /// API group; empty is core.
    pub group: String,
    /// Plural resource.
    pub resource: String,
    /// Only in this namespace; all where `None`.
    pub namespace: Option<String>,
    /// Only this name, or with a last `*` this prefix; all where `None`.
    pub name: Option<String>,
}

/// A whole valid configuration. Two equal ones mean the same fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The members, in the order that breaks ties.
    pub members: Vec<MemberConfig>,
    /// How member-local objects are named.
    pub names: Names,
    /// What is shared; defaults as docs/design/identity.md#shared-objects.
    pub shared: Vec<SharedRule>,
    /// Placement policies; of those that match an object the first holds.
    pub policies: Vec<PolicyConfig>,
    /// What makes parts different, whichever policy places them, in the order in which it applies.
    pub overrides: Vec<OverrideConfig>,
    /// What becomes of an object that no policy selects.
    pub unmatched: Unmatched,
    /// Kinds that can be divided, beside Kubernetes' own.
    pub kinds: Vec<KindConfig>,
    /// Members' service accounts that are somebody in the whole fleet.
    pub subjects: Vec<AccountRule>,
    /// Authorities of client certificates.
    pub client_authorities: Vec<ClientAuthorityRule>,
    /// Who may use kubefold's own.
    pub own: OwnRights,
    /// Further groups in which kubefold's own kinds are served, as they were at the start.
    pub aliases: Vec<Alias>,
    /// Collections of kinds that are searched together, beside those that there are anyway.
    pub collections: Vec<Collection>,
    /// What ShadowResources show of their items.
    pub shadow_fields: ShadowFields,
    /// The host, behind whose kube-aggregator kubefold serves.
    pub aggregation: Option<Aggregation>,
    /// What is kept of members' objects over a restart, as it was at the start.
    pub mirror: MirrorConfig,
    /// The inventory whose clusters are members, too.
    pub cluster_profiles: Option<ClusterProfiles>,
}

impl Config {
    /// These members and nothing else: no object is shared, and there is no policy.
    pub fn of(members: Vec<MemberConfig>) -> Self {
        Self {
            members,
            names: Names::Suffixed,
            shared: Vec::new(),
            policies: Vec::new(),
            overrides: Vec::new(),
            unmatched: Unmatched::default(),
            kinds: Vec::new(),
            subjects: Vec::new(),
            client_authorities: Vec::new(),
            own: OwnRights::default(),
            aliases: Vec::new(),
            collections: Vec::new(),
            shadow_fields: ShadowFields::default(),
            mirror: MirrorConfig::default(),
            aggregation: None,
            cluster_profiles: None,
        }
    }
}

/// An authority of client certificates, and where those are somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthorityRule {
    /// Its certificates.
    pub bundle: PemSource,
    /// The one member that they count in; `None`: the fleet.
    pub member: Option<MemberName>,
}

/// Who may use what kubefold itself tells and does, beside the groups that are made for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnRights {
    /// All of it.
    pub admins: OwnSubjects,
    /// What it tells.
    pub viewers: OwnSubjects,
}

/// Users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnSubjects {
    /// Users.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
}

/// A member's service account, and who it is in the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRule {
    /// The member that makes its tokens.
    pub member: MemberName,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its user in the fleet.
    pub user: String,
    /// Its groups in the fleet.
    pub groups: Vec<String>,
}
