//! What a shell completes: commands and flags, and names that a running kubefold knows.

use std::{collections::BTreeSet, env, ffi::OsStr, io, sync::mpsc, thread, time::Duration};

use clap::CommandFactory;
use clap_complete::{
    CompletionCandidate,
    env::{CompleteEnv, Shells},
};
use http::Method;
use serde_json::Value;

use crate::cli::{
    Cli, Shell,
    client::{Ask, Connection, word_after},
    served,
};
use kubefold_wire::{path::ApiPath, resource::Gvr};

/// Set by a shell that asks what could be typed.
const VARIABLE: &str = "KUBEFOLD_COMPLETE";
/// Whoever presses the tab key does not wait longer.
const TIMEOUT: Duration = Duration::from_secs(3);
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/// Answers a shell that asks what could be typed. Says whether one did.
pub(super) fn answer() -> clap::error::Result<bool> {
    CompleteEnv::with_factory(Cli::command)
        .var(VARIABLE)
        .try_complete(env::args_os(), env::current_dir().ok().as_deref())
}

/// The script that a shell reads; it asks the program.
pub(super) fn script(shell: Shell) -> io::Result<String> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
    };
    let mut script = Vec::new();
    let known = Shells::builtins();
    let shell = known.completer(name).ok_or(io::ErrorKind::Unsupported)?;
    shell.write_registration(VARIABLE, "kubefold", "kubefold", "kubefold", &mut script)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// The fleet's members.
pub(super) fn members(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, |connection| names(&connection, "/apis/kubefold.io/v1alpha1/members"))
}

/// The fleet's namespaces.
pub(super) fn namespaces(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, |connection| names(&connection, "/api/v1/namespaces"))
}

/// The kinds that can be listed, as `kubectl api-resources -o name` calls them.
pub(super) fn kinds(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, |connection| {
        let mut kinds = BTreeSet::new();
        for path in served::PATHS {
            let listed = served::read(&connection, path).ok()?.into_iter().filter(|one| one.is_listed);
            kinds.extend(listed.map(|one| one.qualified()));
        }
        Some(kinds)
    })
}

/// One object of the fleet view: `deployments.apps/web`, or a kind and then a name.
pub(super) fn objects(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(text) = begun.to_str() else { return Vec::new() };
    if let Some((kind, _)) = text.split_once('/') {
        let kind = kind.to_owned();
        let with_kind = move |connection: Connection| {
            let names = names_of(&connection, &kind)?;
            Some(names.into_iter().map(|name| format!("{kind}/{name}")).collect())
        };
        return candidates(begun, with_kind);
    }
    // The word before, if it is no flag, no value of one and no command.
    let words: Vec<String> = env::args().collect();
    let at = words.len().saturating_sub(2);
    let kind = words.get(at).filter(|_| is_free(&words, at)).cloned();
    match kind {
        Some(kind) => candidates(begun, move |connection| names_of(&connection, &kind)),
        None => kinds(begun),
    }
}

/// Says whether a word is an argument behind the command: neither a flag nor a flag's value.
fn is_free(words: &[String], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| words.get(before));
    let is_flag = |word: &String| word.starts_with('-');
    // The program's own word, `--`, the program again, and the command stand before any argument.
    let command = words.iter().position(|word| word == "--").map_or(1, |at| at + 2);
    at > command && words.get(at).is_some_and(|word| !is_flag(word)) && !before.is_some_and(is_flag)
}

/// The names of a kind in the namespace of the command line, or of the context.
fn names_of(connection: &Connection, kind: &str) -> Option<BTreeSet<String>> {
    let mut served = served::PATHS.iter().filter_map(|path| served::read(connection, path).ok()).flatten();
    let found = served.find(|one| one.is_listed && (one.is_called(kind) || one.qualified() == kind))?;
    let gvr = Gvr::new(&found.group, &found.version, &found.resource);
    let path = if found.is_namespaced {
        let of_flag = ["-n", "--namespace"].iter().find_map(|flag| word_after(env::args(), flag));
        ApiPath::within(&gvr, &of_flag.or_else(|| connection.namespace().ok())?)
    } else {
        ApiPath::of(&gvr)
    };
    visible_names(connection, path.as_str())
}

/// Those that begin so. None where kubefold cannot be asked: a shell has no place for the reason.
fn candidates(
    begun: &OsStr,
    known: impl FnOnce(Connection) -> Option<BTreeSet<String>> + Send + 'static,
) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else { return Vec::new() };
    let connection = Connection::of_words(env::args());
    let (send, receive) = mpsc::sync_channel(1);
    // It ends with the process.
    thread::spawn(move || send.send(known(connection)));
    let known = receive.recv_timeout(TIMEOUT).ok().flatten().unwrap_or_default();
    known.into_iter().filter(|name| name.starts_with(begun)).map(CompletionCandidate::new).collect()
}

/// Members' own names, each once.
fn names(connection: &Connection, path: &str) -> Option<BTreeSet<String>> {
    let names = visible_names(connection, path)?.into_iter();
    Some(names.map(|name| name.split('@').next().unwrap_or(&name).to_owned()).collect())
}

/// Names of the fleet view.
fn visible_names(connection: &Connection, path: &str) -> Option<BTreeSet<String>> {
    let headers = [("Accept", METADATA)];
    let answer = connection.ask_with(Ask { method: Method::GET, path, headers: &headers, body: Vec::new() }).ok()?;
    let list: Value = serde_json::from_str(&answer).ok()?;
    let names = list["items"].as_array()?.iter().filter_map(|item| item["metadata"]["name"].as_str());
    Some(names.map(str::to_owned).collect())
}
