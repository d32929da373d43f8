//! From the file to a [`Config`], or to the first reason against it.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_saphyr::Spanned;

use crate::config::{
    Access, AccountRule, ClientAuthorityRule, Config, ConfigError, Deadlines, MemberConfig, MemberName, Names,
    OwnRights, OwnSubjects, Problem, SharedRule, Unmatched, aggregation, aliases,
    checked::{Checked, Fault, fault, known_member, label_key, weight},
    cluster_profiles, collections, credentials, duration,
    error::{FileError, Whose},
    files::{Files, read_bounded},
    kinds, kubeconfig, mirror, policies,
    raw::{RawClientAuthority, RawConfig, RawDeadlines, RawMember, RawPeople, RawShared, RawSubject},
    shadow, shared,
};
use crate::view::Mode;
use kubefold_wire::names::label_value;

/// A fleet larger than this wants to be two.
pub const MEMBERS_MAX: usize = 256;
const IN_FLIGHT_DEFAULT: usize = 200;
const IN_FLIGHT_MAX: usize = 100_000;
const DEADLINE_MIN: Duration = Duration::from_millis(1);
const DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// Reads `clusters.yaml` and every file that it names.
///
/// Errors: the first thing that is wrong, with its line.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    load_tracked(path).0
}

/// Reads the configuration, and says which files it depends on: also those of a refused one, since the next
/// change of any of them may make it good.
pub(super) fn load_tracked(path: &Path) -> (Result<Config, ConfigError>, Vec<PathBuf>) {
    let mut files = Files::beside(path);
    let result = parse(path, &mut files);
    (result, files.read_with(path))
}

/// Reads a configuration that is no file yet; `path` says where it is to be: relative paths are resolved from there.
///
/// Errors: as [`load`].
pub fn load_text(text: &str, path: &Path) -> Result<Config, ConfigError> {
    parse_text(text, path, &mut Files::beside(path))
}

fn parse(path: &Path, files: &mut Files) -> Result<Config, ConfigError> {
    let refuse = |problem: Problem| ConfigError {
        file: path.to_path_buf(),
        line: None,
        whose: Whose::Nobody,
        problem: Box::new(problem),
    };
    let bytes = read_bounded(path).map_err(|cause| {
        refuse(match cause {
            FileError::TooLarge { size, max } => Problem::TooLarge { size, max },
            cause @ (FileError::Io(_) | FileError::NotRegular) => Problem::Unreadable { cause },
        })
    })?;
    let text = std::str::from_utf8(&bytes).map_err(|error| refuse(Problem::Syntax { cause: error.to_string() }))?;
    parse_text(text, path, files)
}

fn parse_text(text: &str, path: &Path, files: &mut Files) -> Result<Config, ConfigError> {
    let refuse = |line: Option<u64>, whose: Whose, problem: Box<Problem>| ConfigError {
        file: path.to_path_buf(),
        line,
        whose,
        problem,
    };
    let raw: RawConfig = serde_saphyr::from_str(text).map_err(|error| {
        let (line, problem) = syntax(&error);
        refuse(line, Whose::Nobody, Box::new(problem))
    })?;
    if raw.members.is_empty() {
        return Err(refuse(None, Whose::Nobody, Box::new(Problem::NoMembers)));
    }
    if raw.members.len() > MEMBERS_MAX {
        let problem = Problem::TooManyMembers { count: raw.members.len(), max: MEMBERS_MAX };
        return Err(refuse(None, Whose::Nobody, Box::new(problem)));
    }
    let mut members = Vec::with_capacity(raw.members.len());
    let mut seen = HashMap::new();
    for entry in &raw.members {
        let whose = || Whose::Member(entry.value.name.value.clone());
        let member =
            member(entry, &mut seen, files).map_err(|fault| refuse(Some(fault.line), whose(), fault.problem))?;
        members.push(member);
    }
    let whole = |fault: Fault| refuse(Some(fault.line), Whose::Nobody, fault.problem);
    let of_policy =
        |policies::PolicyFault { name, fault }| refuse(Some(fault.line), Whose::Policy(name), fault.problem);
    let of_kind = |kinds::KindFault { kind, fault }| refuse(Some(fault.line), Whose::Kind(kind), fault.problem);
    let kinds = kinds::kinds(&raw.kinds).map_err(of_kind)?;
    let known = policies::Known { members: &members, kinds: &kinds };
    let names = names(raw.names.as_ref(), members.len()).map_err(whole)?;
    Ok(Config {
        names,
        shared: shared_rules(raw.shared.as_deref()).map_err(whole)?,
        policies: policies::policies(&raw.policies, known).map_err(of_policy)?,
        overrides: Vec::new(),
        unmatched: unmatched(raw.unmatched.as_ref()).map_err(whole)?,
        kinds,
        subjects: raw
            .subjects
            .iter()
            .map(|subject| account(subject, &members))
            .collect::<Checked<_>>()
            .map_err(whole)?,
        client_authorities: raw
            .client_authorities
            .iter()
            .map(|authority| client_authority(authority, &members, files))
            .collect::<Checked<_>>()
            .map_err(whole)?,
        aggregation: raw
            .aggregation
            .as_ref()
            .map(|raw| aggregation::aggregation(raw, &members, files))
            .transpose()
            .map_err(whole)?,
        own: OwnRights { admins: people(&raw.admins), viewers: people(&raw.viewers) },
        aliases: aliases::aliases(&raw.aliases).map_err(whole)?,
        collections: collections::collections(&raw.collections).map_err(whole)?,
        shadow_fields: shadow::shadow_fields(&raw.shadow_resources).map_err(whole)?,
        mirror: mirror::mirror(raw.mirror.as_ref()).map_err(whole)?,
        cluster_profiles: raw
            .cluster_profiles
            .as_ref()
            .map(|at| cluster_profiles::cluster_profiles(at, names, &members))
            .transpose()
            .map_err(whole)?,
        members,
    })
}

fn people(raw: &RawPeople) -> OwnSubjects {
    OwnSubjects { users: raw.users.clone(), groups: raw.groups.clone() }
}

fn account(raw: &Spanned<RawSubject>, members: &[MemberConfig]) -> Checked<AccountRule> {
    let raw = &raw.value;
    let member = known_member(&raw.member, members)?;
    for (field, at) in [("namespace", &raw.namespace), ("name", &raw.name), ("user", &raw.user)] {
        if at.value.is_empty() {
            return fault(at, Problem::Empty { field });
        }
    }
    let [namespace, name, user] = [&raw.namespace, &raw.name, &raw.user].map(|at| at.value.clone());
    Ok(AccountRule { member, namespace, name, user, groups: raw.groups.clone() })
}

fn client_authority(
    raw: &Spanned<RawClientAuthority>,
    members: &[MemberConfig],
    files: &mut Files,
) -> Checked<ClientAuthorityRule> {
    let RawClientAuthority { file, member } = &raw.value;
    let bundle = credentials::bundle("file", file, files)?;
    let member = member.as_ref().map(|at| known_member(at, members)).transpose()?;
    Ok(ClientAuthorityRule { bundle, member })
}

/// What the YAML reader found wrong, in our words where it is one of the usual mistakes.
fn syntax(error: &serde_saphyr::Error) -> (Option<u64>, Problem) {
    let error = error.without_snippet();
    let line = error.location().map(|at| at.line()).filter(|line| *line > 0);
    let problem = match error {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            Problem::UnknownField { field: field.clone(), expected: expected.clone() }
        }
        serde_saphyr::Error::SerdeMissingField { field, .. } => Problem::MissingField { field },
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
            Problem::DuplicateKey { key: key.clone().unwrap_or_default() }
        }
        other => Problem::Syntax { cause: yaml_cause(other) },
    };
    (line, problem)
}

/// The reader's message on one line and without the place, which stands before ours.
pub(super) fn yaml_cause(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().render();
    let text = text.lines().next().unwrap_or_default();
    let text = text.split(" at line ").next().unwrap_or(text);
    text.trim_start_matches("error: ").trim().to_owned()
}

pub(super) fn member(
    entry: &Spanned<RawMember>,
    seen: &mut HashMap<String, u64>,
    files: &mut Files,
) -> Checked<MemberConfig> {
    let raw = &entry.value;
    let Some(name) = MemberName::new(&raw.name.value) else {
        return fault(&raw.name, Problem::InvalidName { name: raw.name.value.clone() });
    };
    if Mode::PREFIXED.iter().any(|(view, _)| *view == name.as_str()) {
        return fault(&raw.name, Problem::ReservedName { name: raw.name.value.clone() });
    }
    if let Some(first) = seen.insert(raw.name.value.clone(), raw.name.referenced.line()) {
        return fault(&raw.name, Problem::DuplicateName { first });
    }
    Ok(MemberConfig {
        name,
        access: access(entry, files)?,
        impersonator: credentials::impersonator(raw, files)?,
        renew_tokens: raw.renew_tokens,
        weight: weight(raw.weight.as_ref())?,
        labels: labels(&raw.labels)?,
        taints: policies::taints(&raw.taints)?,
        absent: raw.absent,
        rebuilt: raw.rebuilt,
        deadlines: deadlines(&raw.deadlines)?,
        in_flight_max: in_flight_max(raw.in_flight_max.as_ref())?,
    })
}

fn access(entry: &Spanned<RawMember>, files: &mut Files) -> Checked<Access> {
    let raw = &entry.value;
    let in_cluster = raw.in_cluster.as_ref().filter(|at| at.value);
    let ways = [
        ("kubeconfig", raw.kubeconfig.as_ref().map(|at| at.referenced)),
        ("server", raw.server.as_ref().map(|at| at.referenced)),
        ("inCluster", in_cluster.map(|at| at.referenced)),
    ];
    let mut given = ways.iter().filter_map(|(way, at)| at.map(|at| (*way, at)));
    let Some((way, _)) = given.next() else {
        return fault(&raw.name, Problem::NoAccess);
    };
    if let Some((other, at)) = given.next() {
        let problem = Box::new(Problem::TwoAccesses { one: way, other });
        return Err(Fault { line: at.line(), problem });
    }
    if let (Some(context), true) = (&raw.context, way != "kubeconfig") {
        return fault(context, Problem::FieldWithout { field: "context", needs: "kubeconfig" });
    }
    if let (Some((field, at)), true) = (credentials::first_given(raw), way != "server") {
        return fault(at, Problem::FieldWithout { field, needs: "server" });
    }
    match (&raw.kubeconfig, &raw.server) {
        (Some(path), _) => kubeconfig::access(path, raw.context.as_ref(), files),
        (None, Some(server)) => credentials::access(server, raw, files).map(|access| Access::Server(Box::new(access))),
        (None, None) => Ok(Access::InCluster),
    }
}

fn in_flight_max(raw: Option<&Spanned<i64>>) -> Checked<usize> {
    let Some(at) = raw else { return Ok(IN_FLIGHT_DEFAULT) };
    match usize::try_from(at.value) {
        Ok(value @ 1..=IN_FLIGHT_MAX) => Ok(value),
        Ok(_) | Err(_) => fault(at, Problem::InFlightMax { value: at.value, max: IN_FLIGHT_MAX }),
    }
}

fn labels(raw: &BTreeMap<String, Spanned<String>>) -> Checked<BTreeMap<String, String>> {
    raw.iter()
        .map(|(key, at)| {
            label_key(at, key)?;
            if !label_value(&at.value).is_empty() {
                return fault(at, Problem::LabelValue { key: key.clone(), value: at.value.clone() });
            }
            Ok((key.clone(), at.value.clone()))
        })
        .collect()
}

fn deadlines(raw: &RawDeadlines) -> Checked<Deadlines> {
    let default = Deadlines::default();
    Ok(Deadlines {
        connect: deadline("connect", raw.connect.as_ref(), default.connect)?,
        read: deadline("read", raw.read.as_ref(), default.read)?,
        write: deadline("write", raw.write.as_ref(), default.write)?,
        probe: deadline("probe", raw.probe.as_ref(), default.probe)?,
    })
}

fn deadline(field: &'static str, raw: Option<&Spanned<String>>, default: Duration) -> Checked<Duration> {
    let Some(at) = raw else { return Ok(default) };
    match duration::parse(&at.value) {
        Some(value) if (DEADLINE_MIN..=DEADLINE_MAX).contains(&value) => Ok(value),
        Some(_) | None => fault(at, Problem::Deadline { field, value: at.value.clone() }),
    }
}

fn names(raw: Option<&Spanned<String>>, members: usize) -> Checked<Names> {
    let Some(at) = raw else { return Ok(Names::Suffixed) };
    match at.value.as_str() {
        "suffixed" => Ok(Names::Suffixed),
        "plain" if members == 1 => Ok(Names::Plain),
        "plain" => fault(at, Problem::PlainNames { members }),
        other => fault(at, Problem::UnknownNames { names: other.to_owned() }),
    }
}

fn unmatched(raw: Option<&Spanned<String>>) -> Checked<Unmatched> {
    let Some(at) = raw else { return Ok(Unmatched::Default) };
    match at.value.as_str() {
        "default" => Ok(Unmatched::Default),
        "refuse" => Ok(Unmatched::Refuse),
        other => fault(at, Problem::UnknownUnmatched { unmatched: other.to_owned() }),
    }
}

fn shared_rules(raw: Option<&[Spanned<RawShared>]>) -> Checked<Vec<SharedRule>> {
    let Some(rules) = raw else { return Ok(shared::defaults()) };
    rules
        .iter()
        .map(|at| {
            let RawShared { group, resource, namespace, name } = &at.value;
            if resource.is_empty() {
                return fault(at, Problem::EmptyResource);
            }
            let (group, resource) = (group.clone(), resource.clone());
            Ok(SharedRule { group, resource, namespace: namespace.clone(), name: name.clone() })
        })
        .collect()
}
