//! `kinds` of `clusters.yaml`: custom resources that can be divided.

use std::collections::HashMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::config::{
    KindProblem, Problem,
    checked::{Checked, Fault, fault, kind_name},
};
use kubefold_wire::media::is_built_in;

/// More kinds than this nobody declares.
const KINDS_MAX: usize = 256;
/// More paths of one kind than this nobody declares.
const STATUS_PATHS_MAX: usize = 64;
/// No field lies deeper.
const DEPTH_MAX: usize = 16;

/// A kind of custom resources whose objects can be divided: a policy with `strategy: divide` then applies to them.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawKind {
    /// The kind with its group: `Widget.example.com`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) kind: Spanned<String>,
    /// The field that is divided, a whole number: `.spec.replicas`. Names of fields and dots only.
    #[cfg_attr(test, schemars(with = "String"))]
    replicas_path: Spanned<String>,
    /// The fields of the status that the fleet view shows as sums over the parts, whole numbers: `.status.replicas`. `/scale` shows
    /// the first as its `status.replicas`. Default: none; everything but generations is the home's.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    status_paths: Vec<Spanned<String>>,
}

/// A kind that can be divided, beside Kubernetes' own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindConfig {
    /// Its group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The names of the fields that lead to the divided number.
    pub replicas: Vec<String>,
    /// The same of each counter, below `status`.
    pub counters: Vec<Vec<String>>,
}

/// What is wrong, and with which kind.
pub(super) struct KindFault {
    pub(super) kind: String,
    pub(super) fault: Fault,
}

/// Reads all kinds.
pub(super) fn kinds(raw: &[Spanned<RawKind>]) -> Result<Vec<KindConfig>, KindFault> {
    let mut seen = HashMap::new();
    let one = |at: &Spanned<RawKind>| {
        kind(at, raw.len(), &mut seen).map_err(|fault| KindFault { kind: at.value.kind.value.clone(), fault })
    };
    raw.iter().map(one).collect()
}

fn refuse<T, V>(at: &Spanned<V>, problem: KindProblem) -> Checked<T> {
    fault(at, Problem::Kind(problem))
}

fn kind(at: &Spanned<RawKind>, count: usize, seen: &mut HashMap<String, u64>) -> Checked<KindConfig> {
    let RawKind { kind: name, replicas_path, status_paths } = &at.value;
    if count > KINDS_MAX {
        return refuse(at, KindProblem::TooMany { count, max: KINDS_MAX });
    }
    let Some((kind, Some(group))) = kind_name(&name.value) else {
        return refuse(name, KindProblem::Name { kind: name.value.clone() });
    };
    if is_built_in(group) {
        return refuse(name, KindProblem::BuiltIn { kind: kind.to_owned() });
    }
    if let Some(first) = seen.insert(name.value.clone(), name.referenced.line()) {
        return refuse(name, KindProblem::Duplicate { first });
    }
    if let Some(above) = status_paths.get(STATUS_PATHS_MAX) {
        return refuse(above, KindProblem::TooManyPaths { max: STATUS_PATHS_MAX });
    }
    let replicas = path("replicasPath", "spec", replicas_path)?;
    let mut counters: Vec<Vec<String>> = Vec::new();
    for at in status_paths {
        let counter: Vec<String> = path("statusPaths", "status", at)?.into_iter().skip(1).collect();
        if counter == ["observedGeneration"] {
            return refuse(at, KindProblem::Observed);
        }
        let other = counters.iter().find(|other| other.starts_with(&counter) || counter.starts_with(other));
        if let Some(other) = other {
            return refuse(at, KindProblem::Within { path: at.value.clone(), other: other.join(".") });
        }
        counters.push(counter);
    }
    Ok(KindConfig { group: group.to_owned(), kind: kind.to_owned(), replicas, counters })
}

/// The names of the fields of a path like `.spec.replicas`, which lies below `root`.
fn path(field: &'static str, root: &'static str, at: &Spanned<String>) -> Checked<Vec<String>> {
    let names: Vec<&str> = at.value.strip_prefix('.').unwrap_or_default().split('.').collect();
    let is_name = |name: &&str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let is_good = names.first() == Some(&root) && (2..=DEPTH_MAX).contains(&names.len()) && names.iter().all(is_name);
    if !is_good {
        return refuse(at, KindProblem::Path { field, path: at.value.clone(), root });
    }
    Ok(names.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Config, ConfigError, Strategy, load_text};

    /// Kinds begin on line 2.
    fn loaded(kinds: &str) -> Result<Config, ConfigError> {
        let text = format!("members: [{{name: east, inCluster: true}}]\n{kinds}");
        load_text(&text, Path::new("clusters.yaml"))
    }

    #[test]
    fn refusals_say_line_kind_and_remedy() {
        let cases = [
            (
                "kind: Widget",
                "3: kind \"Widget\": \"Widget\" is not a kind with its group; write it like \"Widget.example.com\"",
            ),
            (
                "kind: Deployment.apps",
                "3: kind \"Deployment.apps\": Deployment is built into Kubernetes, and is divided as Kubernetes has it; remove it",
            ),
            (
                "replicasPath: spec.replicas",
                "4: kind \"Widget.example.com\": \"replicasPath\" has \"spec.replicas\", which is not a path of fields; write names of \
                 letters, digits, \"-\" and \"_\" like \".spec.replicas\"",
            ),
            (
                "replicasPath: .spec",
                "4: kind \"Widget.example.com\": \"replicasPath\" has \".spec\", which is not a path",
            ),
            (
                "replicasPath: '.spec.a[0]'",
                "4: kind \"Widget.example.com\": \"replicasPath\" has \".spec.a[0]\", which is not",
            ),
            (
                "statusPaths: [.spec.a]",
                "5: kind \"Widget.example.com\": \"statusPaths\" has \".spec.a\", which is not a path",
            ),
            (
                "statusPaths: [.status.observedGeneration]",
                "5: kind \"Widget.example.com\": \"statusPaths\" has \".status.observedGeneration\", which is a sum for every kind; \
                 remove it",
            ),
            (
                "statusPaths: [.status.a.b, .status.a]",
                "5: kind \"Widget.example.com\": \"statusPaths\" has \".status.a\" and \".status.a.b\", of which one is the other or lies \
                 within it; keep one of the two",
            ),
        ];
        for (line, expected) in cases {
            let (field, _) = line.split_once(':').unwrap();
            let lines = ["kind: Widget.example.com", "replicasPath: .spec.replicas", "statusPaths: [.status.replicas]"];
            let lines = lines.map(|whole| if whole.starts_with(field) { line } else { whole });
            let error = loaded(&format!("kinds:\n- {}\n", lines.join("\n  "))).unwrap_err().to_string();
            assert!(error.starts_with(&format!("clusters.yaml:{expected}")), "{error}");
        }
        let entry = "- {kind: Widget.example.com, replicasPath: .spec.replicas}\n";
        let twice = loaded(&format!("kinds:\n{entry}{entry}")).unwrap_err().to_string();
        assert!(
            twice.ends_with(
                ":4: kind \"Widget.example.com\": the kind is declared on line 3 already; keep one of the two"
            )
        );
    }

    #[test]
    fn a_policy_may_divide_what_is_declared_and_not_duplicate_it() {
        let kinds = "kinds:\n- kind: Widget.example.com\n  replicasPath: .spec.pool.size\n  statusPaths: [.status.pool.ready, .status.x]\n";
        let policy = |strategy: &str, kind: &str| {
            format!("policies:\n- name: p\n  strategy: {strategy}\n  match: {{kinds: [{kind}]}}\n")
        };
        let config = loaded(&format!("{kinds}{}", policy("divide", "Widget.example.com"))).unwrap();
        assert_eq!(config.policies[0].strategy, Some(Strategy::Divide));
        assert_eq!(config.kinds[0].replicas, ["spec", "pool", "size"]);
        assert_eq!(config.kinds[0].counters, [vec!["pool", "ready"], vec!["x"]]);
        let duplicated =
            loaded(&format!("{kinds}{}", policy("duplicate", "Widget.example.com"))).unwrap_err().to_string();
        assert!(duplicated.contains("a Widget cannot be duplicated: the fleet view shows the sum"), "{duplicated}");
        let other = loaded(&format!("{kinds}{}", policy("divide", "Widget.other.com"))).unwrap_err().to_string();
        assert!(other.contains("a Widget has nothing to divide"), "{other}");
    }
}
