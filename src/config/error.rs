//! Why a `clusters.yaml` is refused: file, line, what is wrong, what to do. One sentence each.

use std::{fmt, path::PathBuf};

/// A refused configuration.
///
/// Errors: the operator's, always; nothing of it reaches a client. Loading again is safe.
#[derive(Debug, thiserror::Error)]
#[error("{}: {whose}{problem}", Place(.file, *.line))]
pub struct ConfigError {
    /// The file, as the operator named it.
    pub file: PathBuf,
    /// Line of the value at fault; `None` where the file as a whole is.
    pub line: Option<u64>,
    /// In which entry.
    pub whose: Whose,
    /// What is wrong and what to do.
    #[source]
    pub problem: Box<Problem>,
}

struct Place<'a>(&'a PathBuf, Option<u64>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())?;
        self.1.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// The entry that a problem is in, shown before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// The file as a whole.
    #[default]
    Nobody,
    /// The member of that name.
    Member(String),
    /// The policy of that name.
    Policy(String),
    /// The kind of that name.
    Kind(String),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => Ok(()),
            Self::Member(name) => write!(f, "member \"{name}\": "),
            Self::Policy(name) => write!(f, "policy \"{name}\": "),
            Self::Kind(name) => write!(f, "kind \"{name}\": "),
        }
    }
}

/// What can be wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is, and the fields are its words")]
pub enum Problem {
    #[error(transparent)]
    Policy(PolicyProblem),
    #[error(transparent)]
    Kind(KindProblem),
    #[error(transparent)]
    Shadow(ShadowProblem),
    #[error("the file cannot be read ({cause}); give the path of a readable clusters.yaml")]
    Unreadable { cause: FileError },
    #[error("the file has {size} bytes and at most {max} are read; check that it is a clusters.yaml")]
    TooLarge { size: u64, max: u64 },
    #[error("not valid YAML for a clusters.yaml: {cause}; correct this line")]
    Syntax { cause: String },
    #[error("unknown field \"{field}\"; remove it, or use one of: {}", .expected.join(", "))]
    UnknownField { field: String, expected: Vec<&'static str> },
    #[error("the field \"{key}\" is given twice; keep one of the two")]
    DuplicateKey { key: String },
    #[error("the field \"{field}\" is missing; add it")]
    MissingField { field: &'static str },
    #[error("there is no member \"{member}\"; use one of: {}", .known.join(", "))]
    UnknownMember { member: String, known: Vec<String> },
    #[error("\"{to}\" has no aliases; write {own}")]
    AliasTo { to: String, own: &'static str },
    #[error(
        "\"{from}\" is no group and version that can be an alias; write a domain and a version, such as apis.example.com/v1, of a group that is neither Kubernetes' nor kubefold's own"
    )]
    AliasFrom { from: String },
    #[error("the group \"{group}\" is an alias twice; keep one of the two")]
    AliasTwice { group: String },
    #[error("\"{name}\" is no name of a collection; write a DNS label")]
    CollectionName { name: String },
    #[error("the collection \"{name}\" is there already; choose another name")]
    CollectionTwice { name: String },
    #[error("the collection \"{name}\" has no resources; name some, such as deployments.apps")]
    CollectionEmpty { name: String },
    #[error("no member is configured; add at least one under \"members:\"")]
    NoMembers,
    #[error("{count} members are configured and at most {max} are served; split the fleet")]
    TooManyMembers { count: usize, max: usize },
    #[error(
        "\"{name}\" is not a valid name; use a DNS label: lower case letters, digits and \"-\", at most 63, with a letter or digit first and last"
    )]
    InvalidName { name: String },
    #[error(
        "the name \"{name}\" is kubefold's own: the context fleet-{name} is a view of the whole fleet; give the member another name"
    )]
    ReservedName { name: String },
    #[error("the name is taken by the member on line {first}; give each member its own name")]
    DuplicateName { first: u64 },
    #[error("\"names: {names}\" is unknown; use \"suffixed\" or \"plain\"")]
    UnknownNames { names: String },
    #[error("\"unmatched: {unmatched}\" is unknown; use \"default\" or \"refuse\"")]
    UnknownUnmatched { unmatched: String },
    #[error("\"names: plain\" needs exactly one member, and {members} are configured; use \"names: suffixed\"")]
    PlainNames { members: usize },
    #[error("\"names: plain\" needs exactly one member, and \"clusterProfiles\" may add some; use \"names: suffixed\"")]
    PlainProfiles,
    #[error("\"{field}: {namespace}\" is not a namespace; write a DNS label")]
    Namespace { field: &'static str, namespace: String },
    #[error("a shared rule without a resource; name the plural resource, for example \"configmaps\"")]
    EmptyResource,
    #[error("no way to reach it is given; set exactly one of \"kubeconfig\", \"server\", \"inCluster: true\"")]
    NoAccess,
    #[error(
        "both \"{one}\" and \"{other}\" are given; keep exactly one of \"kubeconfig\", \"server\", \"inCluster: true\""
    )]
    TwoAccesses { one: &'static str, other: &'static str },
    #[error("\"{field}\" has no meaning without \"{needs}\"; remove it, or add \"{needs}\"")]
    FieldWithout { field: &'static str, needs: &'static str },
    #[error("both \"{one}\" and \"{other}\" are given; keep one of the two")]
    Exclusive { one: &'static str, other: &'static str },
    #[error("\"{field}: {value}\" is not a valid address ({cause}); write it as {example}")]
    InvalidUrl { field: &'static str, value: String, cause: String, example: &'static str },
    #[error("\"{field}\" is empty; give it a value or remove it")]
    Empty { field: &'static str },
    #[error("weight {weight} is out of range; use a whole number from 0 to {max}")]
    Weight { weight: i64, max: u32 },
    #[error("inFlightMax {value} is out of range; use a whole number from 1 to {max}")]
    InFlightMax { value: i64, max: usize },
    #[error(
        "label key \"{key}\" is not valid; use an optional DNS prefix and \"/\", then at most 63 letters, digits, \"-\", \"_\", \".\""
    )]
    LabelKey { key: String },
    #[error("label key \"{key}\" is kubefold's own; use a prefix other than kubefold.io")]
    LabelReserved { key: String },
    #[error(
        "label value \"{value}\" of \"{key}\" is not valid; use at most 63 letters, digits, \"-\", \"_\", \".\", a letter or digit first and last"
    )]
    LabelValue { key: String, value: String },
    #[error("deadline \"{field}: {value}\" is not a duration from 1ms to 1h; write it like \"5s\" or \"1m30s\"")]
    Deadline { field: &'static str, value: String },
    #[error("{field} file {} cannot be read ({cause}); correct the path or its permissions", .path.display())]
    FileUnreadable { field: &'static str, path: PathBuf, cause: FileError },
    #[error("{field} holds no PEM certificate; give a file or text with a BEGIN CERTIFICATE block")]
    NoCertificate { field: &'static str },
    #[error("{field} holds a broken certificate ({cause}); export it again as PEM")]
    BrokenCertificate { field: &'static str, cause: String },
    #[error("{field} holds no PEM private key; give a file or text with a BEGIN PRIVATE KEY block")]
    NoKey { field: &'static str },
    #[error(
        "the client key does not belong to the client certificate ({cause}); give the pair that was issued together"
    )]
    KeyMismatch { cause: String },
    #[error("{field} is neither PEM nor base64 of PEM; paste the value as a kubeconfig has it")]
    InvalidData { field: &'static str },
    #[error("kubeconfig {} is not one ({cause}); check it with \"kubectl --kubeconfig {} config view\"", .path.display(), .path.display())]
    KubeconfigInvalid { path: PathBuf, cause: String },
    #[error("kubeconfig {} has no context \"{context}\"; use one of: {}", .path.display(), .known.join(", "))]
    NoContext { path: PathBuf, context: String, known: Vec<String> },
    #[error("kubeconfig {} has no current context; set \"context:\" to one of: {}", .path.display(), .known.join(", "))]
    NoCurrentContext { path: PathBuf, known: Vec<String> },
    #[error("context \"{context}\" of kubeconfig {} names the {what} \"{name}\", which is not in it; repair the kubeconfig", .path.display())]
    KubeconfigDangling { path: PathBuf, context: String, what: &'static str, name: String },
    #[error("no way to reach the host is given; set exactly one of \"kubeconfig\", \"inCluster: true\"")]
    NoHost,
    #[error("\"{service}\" is not a Service; write it as namespace/name")]
    Service { service: String },
    #[error("\"{group}\" is not a version of a group; write it like \"apps.example.com/v1\"")]
    GroupVersion { group: String },
    #[error("the group \"{group}\" is given twice; keep one of the two")]
    GroupTwice { group: String },
    #[error(
        "\"{resource}\" is not a resource; write its plural like \"events\" or \"leases.coordination.k8s.io\", or \"*.example.com\""
    )]
    Resource { resource: String },
    #[error(
        "\"{resource}\" cannot be in the mirror's tables alone: kubefold needs its objects in memory; remove it from \"{field}\""
    )]
    NeverStored { resource: String, field: &'static str },
    #[error("\"{resource}\" is in both \"{field}\" and \"exclude\"; remove it from one of the two")]
    StoredExcluded { resource: String, field: &'static str },
    #[error("\"{field}: {value}\" is not a quantity of at least 1Mi; write it like \"4Gi\"")]
    MirrorBytes { field: &'static str, value: String },
    #[error(
        "\"memory\" needs \"storable\", the kinds that may be in the mirror's tables alone once it is too little, and \"storable\" needs \"memory\"; give both or neither"
    )]
    MemoryAlone,
    #[error("\"keepDeleted: {value}\" is not a duration from 1m to 8760h; write it like \"168h\"")]
    KeepDeleted { value: String },
    #[error("the group \"{group}\" is kubefold's own, which is always served; remove it")]
    OwnGroup { group: String },
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses; without its number, which tells people nothing.
    #[error("{}", plain(.0))]
    Io(#[source] std::io::Error),
    /// A pipe or a device, which would block or never end.
    #[error("it is not a regular file")]
    NotRegular,
    /// More than is read of any file.
    #[error("it has {size} bytes, and at most {max} are read")]
    TooLarge {
        /// Units: bytes.
        size: u64,
        /// Units: bytes.
        max: u64,
    },
}

/// The cause as people say it, without `(os error 2)`.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// What can be wrong with a policy, or with the taints that policies have.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is, and the fields are its words")]
pub enum PolicyProblem {
    #[error("{count} policies are configured and at most {max} are read; merge some")]
    TooMany { count: usize, max: usize },
    #[error("the name is taken by the policy on line {first}; give each policy its own name")]
    Duplicate { first: u64 },
    #[error(
        "\"strategy: {strategy}\" is unknown; use \"duplicate\", \"divide\" or \"one\", or remove it for the default of each kind"
    )]
    UnknownStrategy { strategy: String },
    #[error("\"weights: {weights}\" is unknown; use \"static\", \"capacity\" or \"use\"")]
    UnknownWeights { weights: String },
    #[error("\"{field}\" has no meaning with \"strategy: {strategy}\"; remove it, or use \"strategy: divide\"")]
    OnlyDivided { field: &'static str, strategy: &'static str },
    #[error(
        "\"match\" is empty; give kinds, namespaces, labels or annotations, or remove it: then only objects that name the policy have it"
    )]
    EmptyMatch,
    #[error("\"{kind}\" is not a kind; write it like \"Deployment\", or with its group like \"Widget.example.com\"")]
    Kind { kind: String },
    #[error("\"{namespace}\" is not a namespace; write a DNS label, with a last \"*\" for a prefix")]
    Namespace { namespace: String },
    #[error("{why}; change the strategy or the kinds")]
    Unfit { why: String },
    #[error("\"{field}: {text}\" is not a label selector ({cause}); write it like \"region in (eu,us)\"")]
    Selector { field: &'static str, text: String, cause: String },
    #[error("{field} {value} is out of range; use a whole number from 0 to {max}")]
    Number { field: &'static str, value: i64, max: u32 },
    #[error("min {min} is above max {max}; lower the one or raise the other")]
    MinAboveMax { min: u32, max: u32 },
    #[error("{field} {value} is out of range; use a whole number from 1 to {max}")]
    Groups { field: &'static str, value: i64, max: u32 },
    #[error("minGroups {min} is above maxGroups {max}; lower the one or raise the other")]
    MinAboveMaxGroups { min: u32, max: u32 },
    #[error("\"spread\" has the label \"{label}\" twice; keep one of the two")]
    SpreadTwice { label: String },
    #[error("a group without members; give \"members\" or \"memberSelector\", or remove the group")]
    EmptyGroup,
    #[error("\"prefer: {prefer}\" is unknown; use \"all\" or \"fewest\"")]
    UnknownPrefer { prefer: String },
    #[error("\"weight\" has no meaning with \"weights: capacity\"; remove one of the two")]
    WeightByCapacity,
    #[error("\"registry: {registry}\" is not one; write a host, perhaps with port and path, like \"mirror.example/x\"")]
    Registry { registry: String },
    #[error(
        "\"patch\" is not a JSON patch ({cause}); write a list of operations like \"- {{op: add, path: /metadata/labels/tier, value: edge}}\""
    )]
    Patch { cause: String },
    #[error("\"carry\" has the kind \"{kind}\", which is not carried; use \"ConfigMap\" or \"Secret\"")]
    Carry { kind: String },
    #[error("effect \"{effect}\" means nothing for members; use \"NoSchedule\" or \"NoExecute\", or leave it out")]
    Effect { effect: String },
    #[error("\"tolerationSeconds\" has a meaning with \"effect: NoExecute\" alone; remove it, or set the effect")]
    TolerationSeconds,
    #[error("\"{field}: {value}\" is not a duration from 1s to 168h; write it like \"90s\" or \"5m\"")]
    Interval { field: &'static str, value: String },
    #[error("\"threshold: {threshold}\" is not a percentage from 0% to 100%; write it like \"20%\"")]
    Threshold { threshold: String },
    #[error("operator \"{operator}\" is unknown; use \"Exists\" or \"Equal\"")]
    Operator { operator: String },
    #[error("\"value\" has no meaning with \"operator: Exists\"; remove one of the two")]
    ExistsValue,
    #[error("a toleration without a key tolerates every taint and needs \"operator: Exists\"; add it, or add a key")]
    NoKey,
}

/// What can be wrong with a kind that is declared.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is, and the fields are its words")]
pub enum KindProblem {
    #[error("{count} kinds are declared and at most {max} are read; remove some")]
    TooMany { count: usize, max: usize },
    #[error("\"{kind}\" is not a kind with its group; write it like \"Widget.example.com\"")]
    Name { kind: String },
    #[error("{kind} is built into Kubernetes, and is divided as Kubernetes has it; remove it")]
    BuiltIn { kind: String },
    #[error("the kind is declared on line {first} already; keep one of the two")]
    Duplicate { first: u64 },
    #[error("more than {max} statusPaths are given; remove some")]
    TooManyPaths { max: usize },
    #[error(
        "\"{field}\" has \"{path}\", which is not a path of fields; write names of letters, digits, \"-\" and \"_\" like \".{root}.replicas\""
    )]
    Path { field: &'static str, path: String, root: &'static str },
    #[error("\"statusPaths\" has \".status.observedGeneration\", which is a sum for every kind; remove it")]
    Observed,
    #[error(
        "\"statusPaths\" has \"{path}\" and \".status.{other}\", of which one is the other or lies within it; keep one of the two"
    )]
    Within { path: String, other: String },
}

/// What can be wrong with what ShadowResources show of their items.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is, and the fields are its words")]
pub enum ShadowProblem {
    #[error("more than {max} {what} of ShadowResources are given; remove some")]
    TooMany { what: &'static str, max: usize },
    #[error(
        "\"name: {name}\" cannot be the name of a column; use 1 to {max} letters, digits, blanks, \"-\", \"_\", \"/\", \"%\", \".\""
    )]
    Name { name: String, max: usize },
    #[error("ShadowResources have a column \"{name}\" already; give this one another name")]
    NameTaken { name: String },
    #[error("\"type: {type_}\" is unknown; use \"string\", \"integer\", \"number\", \"boolean\" or \"date\"")]
    Type { type_: String },
    #[error("\"path: {path}\" is not a JSONPath; write it without braces, like \".spec.version\"")]
    Path { path: String },
    #[error("the label \"{key}\" is given twice; keep one of the two")]
    KeyTaken { key: String },
    #[error(
        "a label shows its value to everybody who may read the ShadowResource, and is not made of a Secret; use another kind"
    )]
    LabelOfSecret,
}
