//! Entries of `clusters.yaml`, put in and taken out as a person would: comments and order stay.

use std::fmt;

use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::{
    cli::init::{HEAD, quoted},
    config::OWN_NAMESPACE,
};

/// A member that was joined.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) cluster: &'a Cluster,
    /// Of its credentials, relative to the file.
    pub(super) folder: &'a str,
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cluster, folder } = self;
        writeln!(f, "  - name: {name}")?;
        writeln!(f, "    server: {}", quoted(cluster.url()))?;
        if cluster.authority().is_some() {
            writeln!(f, "    certificateAuthority: {folder}/ca.crt")?;
        }
        if let Some(name) = cluster.tls_server_name() {
            writeln!(f, "    tlsServerName: {}", quoted(name))?;
        }
        if let Some(url) = cluster.proxy_url() {
            writeln!(f, "    proxyURL: {}", quoted(url))?;
        }
        writeln!(f, "    tokenFile: {folder}/reader.token")?;
        writeln!(f, "    impersonatorTokenFile: {folder}/impersonator.token")?;
        writeln!(f, "    renewTokens: true")
    }
}

/// The same member as objects.
pub(super) fn as_objects(name: &str, cluster: &Cluster, reader: &str, impersonator: &str) -> Value {
    let mut texts = json!({"token": reader, "impersonator-token": impersonator});
    if let Some(authority) = cluster.authority() {
        texts["ca.crt"] = authority.into();
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": OWN_NAMESPACE},
        "stringData": texts});
    let mut spec = json!({"server": cluster.url(), "credentialsSecretRef": {"name": name}, "renewTokens": true});
    if let Some(name) = cluster.tls_server_name() {
        spec["tlsServerName"] = name.into();
    }
    if let Some(url) = cluster.proxy_url() {
        spec["proxyURL"] = url.into();
    }
    let member =
        json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "Member", "metadata": {"name": name}, "spec": spec});
    json!({"apiVersion": "v1", "kind": "List", "items": [secret, member]})
}

/// Where the list of members is in a file.
struct Block {
    /// The lines of its items, without `members:`.
    first: usize,
    /// After the last of them.
    end: usize,
    /// Before the dash of an item.
    indent: usize,
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('#')
}

/// `None`: it is not written as a block.
fn block(lines: &[&str]) -> Option<Block> {
    let at = lines.iter().position(|line| line.starts_with("members:"))?;
    let rest = lines.get(at)?.strip_prefix("members:")?.split('#').next()?.trim();
    if !rest.is_empty() {
        return None;
    }
    let first = at + 1;
    let is_inside = |line: &&&str| is_blank(line) || line.starts_with([' ', '-']);
    let inside = lines.iter().skip(first).take_while(is_inside).count();
    let items = lines.get(first..first + inside)?;
    // Blank lines and comments at the end belong to what comes next.
    let used = items.iter().rposition(|line| !is_blank(line) || line.starts_with(' ')).map_or(0, |last| last + 1);
    let indent = items.iter().find(|line| line.trim_start().starts_with("- ")).map_or(2, |line| indent_of(line));
    Some(Block { first, end: first + used, indent })
}

/// The file with one more member, the last one. `None`: its list is not written as a block.
pub(super) fn with_entry(text: Option<&str>, entry: &Entry<'_>) -> Option<String> {
    added(text, &entry.to_string())
}

fn added(text: Option<&str>, entry: &str) -> Option<String> {
    let Some(text) = text else { return Some(format!("{HEAD}{entry}")) };
    let lines: Vec<&str> = text.lines().collect();
    let Block { end, indent, .. } = block(&lines)?;
    let own = entry.lines().map(|line| format!("{}{}", " ".repeat(indent), line.strip_prefix("  ").unwrap_or(line)));
    let (before, after) = lines.split_at_checked(end)?;
    let new: Vec<String> =
        before.iter().map(ToString::to_string).chain(own).chain(after.iter().map(ToString::to_string)).collect();
    Some(new.join("\n") + "\n")
}

/// The file without a member. `None`: its entry is not found.
pub(super) fn without_entry(text: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let Block { first, end, indent } = block(&lines)?;
    let is_item =
        |at: usize| lines.get(at).is_some_and(|line| indent_of(line) == indent && line.trim_start().starts_with("- "));
    let starts: Vec<usize> = (first..end).filter(|at| is_item(*at)).collect();
    let ends = starts.iter().skip(1).copied().chain([end]);
    let names_it = |line: &&str| {
        let field = line.trim_start().trim_start_matches("- ");
        let is_own = indent_of(line) <= indent + 2;
        let value = field.strip_prefix("name:").map(|value| value.split(" #").next().unwrap_or_default().trim());
        is_own && value.is_some_and(|value| value.trim_matches(['"', '\'']) == name)
    };
    let (from, to) = starts
        .iter()
        .copied()
        .zip(ends)
        .find(|(from, to)| lines.get(*from..*to).is_some_and(|item| item.iter().any(names_it)))?;
    let kept = lines.iter().enumerate().filter(|(at, _)| *at < from || *at >= to).map(|(_, line)| *line);
    Some(kept.collect::<Vec<_>>().join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "  - name: new\n    renewTokens: true\n";

    #[test]
    fn an_entry_comes_last_and_goes_again() {
        let file = "# Ours.\nmembers:\n- name: east # first\n  weight: 2\n\n# The other one.\n- weight: 1\n  name: 'west'\n  \
                    labels:\n    name: new\n\n# Rules.\npolicies: []\n";
        let with = added(Some(file), NEW).unwrap();
        assert!(with.contains("    name: new\n- name: new\n  renewTokens: true\n\n# Rules."), "{with}");
        assert_eq!(without_entry(&with, "new").unwrap(), file);
        let without = without_entry(file, "west").unwrap();
        assert!(without.contains("# first") && !without.contains("west") && without.contains("policies"), "{without}");
        let without = without_entry(file, "east").unwrap();
        assert!(!without.contains("east") && without.contains("weight: 1\n  name: 'west'"), "{without}");
        assert_eq!(without_entry(file, "north"), None);
    }

    #[test]
    fn the_first_entry_makes_the_file_and_another_form_is_left_alone() {
        let made = added(None, NEW).unwrap();
        assert!(made.ends_with("members:\n  - name: new\n    renewTokens: true\n"), "{made}");
        assert_eq!(added(Some("members:\n"), NEW).unwrap(), format!("members:\n{NEW}"));
        for flow in ["members: [{name: east}]\n", "policies: []\n", "{members: []}\n"] {
            assert_eq!(added(Some(flow), NEW), None, "{flow}");
        }
    }
}
