//! `kubefold init`: a `clusters.yaml` out of a kubeconfig's contexts.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::OpenOptions,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use kube::config::Kubeconfig;

use crate::{
    cli::print,
    config::{self, ConfigError, MemberName},
    view::Mode,
};
use kubefold_wire::golang::Quoted;

#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// The kubeconfig whose contexts become members.
    #[arg(long, value_name = "FILE")]
    from_kubeconfig: PathBuf,
    /// Use only this context; may be repeated. Default: every context becomes a member.
    #[arg(long, value_name = "NAME")]
    context: Vec<String>,
    /// The file to write, or `-` for standard output. An existing file is never overwritten.
    #[arg(long, value_name = "FILE", default_value = "clusters.yaml")]
    to: PathBuf,
}

/// Writes it.
pub(super) fn run(flags: &Init) -> anyhow::Result<()> {
    let from = &flags.from_kubeconfig;
    let kubeconfig = Kubeconfig::read_from(from).map_err(|error| {
        anyhow!("cannot read the kubeconfig {}: {error}; check it with \"kubectl config view\"", from.display())
    })?;
    let path = std::path::absolute(from).with_context(|| format!("cannot find {}", from.display()))?;
    let (text, members) = compose(&kubeconfig, &path, &flags.context)?;
    if flags.to == Path::new("-") {
        return print(&text);
    }
    let to = flags.to.display();
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(&flags.to).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                anyhow!("{to} exists and is not overwritten; name another file with --to, or remove it")
            }
            _ => anyhow!("cannot write {to}: {error}"),
        })?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {to}"))?;
    drop(writeln!(std::io::stderr(), "wrote {to} with {members} members; next: kubefold doctor --config {to}"));
    Ok(())
}

pub(super) const HEAD: &str = "\
# The fleet that kubefold serves, made by `kubefold init`. Every setting is explained in docs/configuration.md.
#
# kubefold reads this file again when it changes. If a new version is invalid, it keeps the running one.
#
# A member's name is part of the names of its objects (web-0@east): choose it now, and keep it.
# The order of members breaks ties.
members:
";

/// The file, and how many members it has. A context that cannot be used stands in it as a comment, with the reason.
fn compose(kubeconfig: &Kubeconfig, path: &Path, only: &[String]) -> anyhow::Result<(String, usize)> {
    let known: Vec<&str> = kubeconfig.contexts.iter().map(|named| named.name.as_str()).collect();
    if let Some(stranger) = only.iter().find(|name| !known.contains(&name.as_str())) {
        bail!(
            "{} has no context {stranger}; its contexts are {}",
            path.display(),
            known.join(", "),
            stranger = Quoted(stranger)
        );
    }
    let chosen: Vec<&str> = if only.is_empty() { known } else { only.iter().map(String::as_str).collect() };
    let (mut out, mut members) = (HEAD.to_owned(), 0);
    let mut names: Vec<String> = Vec::new();
    let mut servers: BTreeMap<String, String> = BTreeMap::new();
    let mut last_reason = String::new();
    for context in chosen {
        let name = member_name(context, &names);
        let entry = entry(&name, path, context);
        let server = server_of(kubeconfig, context);
        let twin = server.as_ref().and_then(|server| servers.get(server));
        let reason = twin.map(|twin| format!("the same server as {twin}")).or_else(|| refusal(&entry, path));
        if let Some(reason) = reason {
            // Writing to memory has no way to fail.
            let _infallible = writeln!(out, "  # Context {context} is left out: {reason}", context = Quoted(context));
            entry.lines().for_each(|line| {
                let _infallible = writeln!(out, "  # {}", line.strip_prefix("  ").unwrap_or(line));
            });
            last_reason = reason;
            continue;
        }
        out.push_str(&entry);
        servers.extend(server.map(|server| (server, name.clone())));
        names.push(name);
        members += 1;
    }
    if members == 0 {
        bail!("no context of {} can be used: {last_reason}", path.display());
    }
    config::load_text(&out, path).context("kubefold refuses the file that it made; this is a bug in kubefold")?;
    Ok((out, members))
}

fn entry(name: &str, path: &Path, context: &str) -> String {
    let path = quoted(&path.display().to_string());
    format!(
        "  - name: {name}\n    kubeconfig: {path}\n    context: {}\n    # The member's share of divided numbers, relative to the \
         others'; 0 takes nothing.\n    weight: 1\n",
        quoted(context)
    )
}

/// A JSON string is a YAML one.
pub(super) fn quoted(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-".contains(character);
    let is_word =
        text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/') && text.chars().all(plain);
    let is_keyword = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if is_word && !is_keyword { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// Why a member of its own would be refused.
fn refusal(entry: &str, path: &Path) -> Option<String> {
    config::load_text(&format!("members:\n{entry}"), path).err().map(|ConfigError { problem, .. }| problem.to_string())
}

fn server_of(kubeconfig: &Kubeconfig, context: &str) -> Option<String> {
    let named = kubeconfig.contexts.iter().find(|named| named.name == context)?;
    let cluster = &named.context.as_ref()?.cluster;
    kubeconfig.clusters.iter().find(|named| named.name == *cluster)?.cluster.as_ref()?.server.clone()
}

/// What the context's cluster is called, as a DNS label that no other member has: `admin@east` is `east`, and so is
/// `arn:aws:eks:eu-west-1:1:cluster/east`.
pub(super) fn member_name(context: &str, taken: &[String]) -> String {
    let last = context.rsplit(['/', '@']).find(|part| !part.is_empty()).unwrap_or(context);
    let label = |text: &str| {
        let mapped = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
        let mapped: String = mapped.collect();
        let from = mapped.len().saturating_sub(50);
        mapped.get(from..).unwrap_or_default().trim_matches('-').to_owned()
    };
    let mut base = label(last);
    if MemberName::new(&base).is_none() || Mode::PREFIXED.iter().any(|(view, _)| *view == base) {
        base = format!("member-{base}").trim_end_matches('-').to_owned();
    }
    let numbered = (2_u32..).map(|number| format!("{base}-{number}"));
    let mut names = std::iter::once(base.clone()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_called_as_its_cluster_is() {
        let cases = [
            ("east", "east"),
            ("admin@east", "east"),
            ("kubernetes-admin@Prod_EU", "prod-eu"),
            ("arn:aws:eks:eu-west-1:1:cluster/shop", "shop"),
            ("gke_project_europe-west1_shop", "gke-project-europe-west1-shop"),
            ("lenient", "member-lenient"),
            ("@", "member"),
        ];
        for (context, name) in cases {
            assert_eq!(member_name(context, &[]), name, "{context}");
            assert!(MemberName::new(name).is_some());
        }
        assert_eq!(member_name("east", &["east".into(), "east-2".into()]), "east-3");
        assert_eq!(member_name(&"x".repeat(80), &[]).len(), 50);
    }

    #[test]
    fn what_cannot_be_used_is_a_comment_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a@east\nclusters:\n\
                    - {name: east, cluster: {server: 'https://east:6443'}}\n\
                    - {name: west, cluster: {server: 'https://west:6443'}}\n\
                    contexts:\n\
                    - {name: a@east, context: {cluster: east, user: u}}\n\
                    - {name: b@east, context: {cluster: east, user: u}}\n\
                    - {name: west, context: {cluster: west, user: u}}\n\
                    - {name: gone, context: {cluster: gone, user: u}}\n\
                    users: [{name: u, user: {token: t}}]\n";
        std::fs::write(&path, text).unwrap();
        let read = Kubeconfig::read_from(&path).unwrap();
        let (made, members) = compose(&read, &path, &[]).unwrap();
        assert_eq!(members, 2, "{made}");
        assert!(made.contains("  - name: east\n    kubeconfig: \"/") && made.contains("context: \"a@east\""), "{made}");
        assert!(made.contains("# Context \"b@east\" is left out: the same server as east"), "{made}");
        assert!(made.contains("# Context \"gone\" is left out: context \"gone\" of kubeconfig"), "{made}");
        let (made, members) = compose(&read, &path, &["west".into()]).unwrap();
        assert!(members == 1 && !made.contains("name: east"), "{made}");
        let error = compose(&read, &path, &["nowhere".into()]).unwrap_err().to_string();
        assert!(error.contains("its contexts are a@east, b@east, west, gone"), "{error}");
        let error = compose(&read, &path, &["gone".into()]).unwrap_err().to_string();
        assert!(error.contains("no context of") && error.contains("not in it"), "{error}");
    }
}
