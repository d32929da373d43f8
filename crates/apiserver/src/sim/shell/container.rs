//! The container that a command runs in: its names, its variables and its files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::disk::{Disk, Node, WriteError};
use crate::sim::fields::{items, text};

/// Commands that are files in `/bin`.
pub(super) const PROGRAMS: [&str; 31] = [
    "ash", "bash", "cat", "date", "echo", "env", "false", "grep", "head", "help", "hostname", "id", "ls", "mkdir",
    "nproc", "printenv", "printf", "ps", "pwd", "rm", "sh", "sleep", "tail", "tar", "test", "touch", "true", "uname",
    "wc", "which", "whoami",
];
/// What the file of every program has.
pub(super) const PROGRAM: &[u8] = b"\x7fELF\n";
/// Where programs are.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Bytes of a path.
const PATH_BYTES_MAX: usize = 1024;
/// Directories within directories.
const DEPTH_MAX: usize = 64;

/// One container of a simulated pod.
#[derive(Clone)]
pub(in crate::sim) struct Container {
    pub(super) hostname: String,
    pub(super) command: String,
    pub(super) variables: Vec<(String, String)>,
    /// What it comes with, which nobody can change.
    files: BTreeMap<String, Node>,
    disk: Disk,
}

impl Container {
    /// A container of a pod in a cluster of this name, with what was written to it.
    pub(in crate::sim) fn new(pod: &Value, container: &Value, cluster: &str, disk: Disk) -> Self {
        let name = text(pod, "/metadata/name");
        let hostname = Some(text(pod, "/spec/hostname")).filter(|name| !name.is_empty()).unwrap_or(name).to_owned();
        let words = |at: &str| items(container, at).iter().filter_map(Value::as_str).collect::<Vec<_>>();
        let command = [words("/command"), words("/args")].concat().join(" ");
        let image = text(container, "/image");
        let command = if command.is_empty() { image.to_owned() } else { command };
        let variables = variables(pod, container, &hostname);
        let files = files(pod, container, &hostname, cluster);
        Self { hostname, command, variables, files, disk }
    }

    /// What is at an absolute path.
    pub(super) fn at(&self, path: &str) -> Option<Node> {
        if let Some(node) = self.files.get(path) {
            return Some(node.clone());
        }
        if let Some(node) = self.disk.at(path) {
            return Some(node);
        }
        (path == "/" || !self.below(path).is_empty()).then_some(Node::Directory)
    }

    /// The names in a directory.
    pub(super) fn below(&self, directory: &str) -> Vec<String> {
        let prefix = if directory == "/" { "/".to_owned() } else { format!("{directory}/") };
        let written = self.disk.paths(&prefix);
        let inside = self.files.keys().chain(&written).filter_map(|path| path.strip_prefix(&prefix));
        let names: BTreeSet<String> = inside.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }

    /// Puts a file or a directory at an absolute path.
    pub(super) fn write(&self, path: &str, node: Node) -> Result<(), WriteError> {
        if path.len() > PATH_BYTES_MAX || path.split('/').count() > DEPTH_MAX {
            return Err(WriteError::TooLong);
        }
        let is_file = |path: &str| matches!(self.at(path), Some(Node::File(_) | Node::Program));
        if path.match_indices('/').skip(1).any(|(end, _)| path.get(..end).is_some_and(is_file)) {
            return Err(WriteError::NotDirectory);
        }
        match (self.at(path), &node) {
            (Some(Node::Directory), Node::Directory) => Ok(()),
            (Some(Node::Directory), _) => Err(WriteError::IsDirectory),
            _ if self.files.contains_key(path) => Err(WriteError::ReadOnly),
            (Some(_), Node::Directory) => Err(WriteError::NotDirectory),
            _ => self.disk.write(path, node),
        }
    }

    /// Removes what was written at an absolute path and below it.
    pub(super) fn remove(&self, path: &str) -> Result<(), WriteError> {
        if self.disk.remove(path) { Ok(()) } else { Err(WriteError::ReadOnly) }
    }

    /// The program that a word names, in `PATH` or by its own path.
    pub(super) fn program(&self, word: &str) -> Option<Node> {
        match word.contains('/') {
            true => self.at(&absolute("/", word)),
            false => self.at(&format!("/bin/{word}")).filter(|node| *node == Node::Program),
        }
    }
}

/// A path as seen from a directory, without `.` and `..`.
pub(super) fn absolute(directory: &str, path: &str) -> String {
    let start = if path.starts_with('/') { "" } else { directory };
    let mut names = Vec::new();
    for name in start.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// Its own variables, and those of every container.
fn variables(pod: &Value, container: &Value, hostname: &str) -> Vec<(String, String)> {
    let mut variables = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOSTNAME".to_owned(), hostname.to_owned()),
        ("HOME".to_owned(), "/root".to_owned()),
        ("KUBERNETES_SERVICE_HOST".to_owned(), "10.96.0.1".to_owned()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned()),
    ];
    for variable in items(container, "/env") {
        let value = match variable.pointer("/valueFrom/fieldRef/fieldPath").and_then(Value::as_str) {
            Some(path) => Some(text(pod, &format!("/{}", path.replace('.', "/")))),
            None => variable["value"].as_str(),
        };
        if let Some(value) = value {
            variables.push((text(variable, "/name").to_owned(), value.to_owned()));
        }
    }
    variables
}

fn files(pod: &Value, container: &Value, hostname: &str, cluster: &str) -> BTreeMap<String, Node> {
    let (ip, namespace) = (text(pod, "/status/podIP"), text(pod, "/metadata/namespace"));
    let hosts = format!("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n{ip}\t{hostname}\n");
    let resolv = format!(
        "search {namespace}.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"
    );
    let system =
        format!("NAME=\"kubefold demo\"\nID=kubefold\nPRETTY_NAME=\"A simulated container of cluster {cluster}\"\n");
    let texts = [
        ("/etc/hostname", format!("{hostname}\n")),
        ("/etc/hosts", hosts),
        ("/etc/os-release", system),
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n".to_owned()),
        ("/etc/resolv.conf", resolv),
    ];
    let mut files: BTreeMap<String, Node> =
        texts.into_iter().map(|(path, text)| (path.to_owned(), Node::File(text.into()))).collect();
    files.insert(format!("{ACCOUNT}/namespace"), Node::File(namespace.to_owned().into()));
    files.extend(PROGRAMS.iter().map(|name| (format!("/bin/{name}"), Node::Program)));
    let mounts = items(container, "/volumeMounts").iter().map(|mount| text(mount, "/mountPath"));
    for path in ["/root", "/tmp"].into_iter().chain(mounts).map(|path| absolute("/", path)) {
        files.entry(path).or_insert(Node::Directory);
    }
    files
}
