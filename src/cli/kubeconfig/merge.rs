//! One kubeconfig put into a person's own files, and taken out again. Pure.
//!
//! Each entry has an extension that says whose it is. So that is found again which was put in, and nothing else is taken out.
//!
//! Source: kubernetes/client-go v0.36 `tools/clientcmd/config.go` and `loader.go`: of an entry that several files have, the first
//! file's counts and is changed; new ones go into the first file that exists, or else into the last one.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use kubefold_wire::{
    access::{items, text},
    golang::Quoted,
};

/// The extension's name.
const EXTENSION: &str = "kubefold.io";
const CURRENT: &str = "current-context";

/// A list of named entries, and the field of an entry that has its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct List {
    name: &'static str,
    inner: &'static str,
    /// Fields that mean the same as others, or forbid them: they go when new ones come.
    replaced: &'static [&'static str],
}

const CLUSTERS: List = List {
    name: "clusters",
    inner: "cluster",
    replaced: &["certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"],
};
const CONTEXTS: List = List { name: "contexts", inner: "context", replaced: &[] };
const USERS: List = List {
    name: "users",
    inner: "user",
    replaced: &[
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "token",
        "tokenFile",
        "username",
        "password",
        "auth-provider",
        "exec",
    ],
};

/// One of a person's files.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loaded {
    pub(super) path: PathBuf,
    /// `None`: there is no such file.
    pub(super) content: Option<Value>,
}

/// What is put in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addition<'a> {
    /// A kubeconfig.
    pub(super) config: &'a Value,
    /// Which kubefold it leads to.
    pub(super) authority: &'a str,
    /// Entries of others that have its names are replaced.
    pub(super) force: bool,
    /// Its context is the current one from then on, also where there is one.
    pub(super) select: bool,
}

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Merged {
    /// The contexts that were put in or taken out, in order.
    pub(super) contexts: Vec<String>,
    /// The current context now, if there is one.
    pub(super) current: Option<String>,
    /// Contexts of others that lead to what was taken out.
    pub(super) left: Vec<String>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum MergeError {
    #[error("{path} is no kubeconfig: {what}; nothing was changed", path = .path.display())]
    Malformed { path: PathBuf, what: String },
    #[error("{path} has a {kind} {name} that is not of this kubefold{to}; rename or remove it, or replace it with --force. Nothing was changed", path = .path.display(), name = Quoted(.name))]
    Taken { path: PathBuf, kind: &'static str, name: String, to: String },
}

/// Puts a kubeconfig in.
///
/// Errors: a file is no kubeconfig, or has another one's entry of a name that is needed. Then nothing is changed.
pub(super) fn merge(files: &mut [Loaded], addition: &Addition<'_>) -> Result<Merged, MergeError> {
    files.iter().try_for_each(check)?;
    if !addition.force {
        [CLUSTERS, USERS, CONTEXTS].into_iter().try_for_each(|list| untaken(files, addition, list))?;
    }
    let previous = current(files);
    let earlier = files.iter().find_map(|file| noted_previous(file, addition.authority));
    let name = text(addition.config, "/current-context").to_owned();
    let is_own = |context: &String| items(addition.config, "/contexts").iter().any(|one| name_of(one) == context);
    // What was current before the first time.
    let previous = if previous.as_ref().is_some_and(is_own) { earlier } else { previous };
    for list in [CLUSTERS, USERS, CONTEXTS] {
        drop_stale(files, addition, list);
        for new in items(addition.config, &format!("/{}", list.name)) {
            put(files, addition, list, new);
        }
    }
    let is_unset = current(files).is_none();
    if addition.select || is_unset {
        let at = files.iter().position(|file| !current_of(file).is_empty()).unwrap_or_else(|| default_file(files));
        select(files, at, &name);
        note_previous(files, &name, previous.as_deref().unwrap_or_default());
    }
    let contexts = items(addition.config, "/contexts").iter().map(|one| name_of(one).to_owned()).collect();
    Ok(Merged { contexts, current: current(files), left: Vec::new() })
}

/// Takes everything out that was put in for a kubefold.
///
/// Errors: a file is no kubeconfig. Then nothing is changed.
pub(super) fn unmerge(files: &mut [Loaded], authority: &str) -> Result<Merged, MergeError> {
    files.iter().try_for_each(check)?;
    let previous = files.iter().find_map(|file| noted_previous(file, authority)).unwrap_or_default();
    let (mut contexts, mut clusters) = (Vec::new(), Vec::new());
    for list in [CLUSTERS, USERS, CONTEXTS] {
        for file in files.iter_mut() {
            let Some(entries) = entries_mut(file, list) else { continue };
            entries.retain(|entry| {
                let is_own = mark_of(entry, list) == Some(authority);
                match list.name {
                    "contexts" if is_own => contexts.push(name_of(entry).to_owned()),
                    "clusters" if is_own => clusters.push(name_of(entry).to_owned()),
                    _ => {}
                }
                !is_own
            });
        }
    }
    let is_there = find(files, CONTEXTS, &previous).is_some();
    let back = if is_there { previous.as_str() } else { "" };
    for at in 0..files.len() {
        let is_gone = files.get(at).is_some_and(|file| contexts.iter().any(|name| name == current_of(file)));
        if is_gone {
            select(files, at, back);
        }
    }
    let others = files.iter().flat_map(|file| entries(file, CONTEXTS));
    let leads = |entry: &&Value| {
        let cluster = text(entry, "/context/cluster");
        clusters.iter().any(|gone| gone == cluster) && find(files, CLUSTERS, cluster).is_none()
    };
    let left = others.filter(leads).map(|entry| name_of(entry).to_owned()).collect();
    Ok(Merged { contexts, current: current(files), left })
}

fn check(file: &Loaded) -> Result<(), MergeError> {
    let malformed = |what: String| MergeError::Malformed { path: file.path.clone(), what };
    let Some(content) = &file.content else { return Ok(()) };
    let Value::Object(fields) = content else { return Err(malformed("it is no mapping".to_owned())) };
    for list in [CLUSTERS, CONTEXTS, USERS] {
        match fields.get(list.name) {
            None | Some(Value::Null) => {}
            Some(Value::Array(entries)) if entries.iter().all(Value::is_object) => {}
            Some(_) => return Err(malformed(format!("{} is no list of entries", list.name))),
        }
    }
    Ok(())
}

/// Errors: an entry of a name that is needed is another one's.
fn untaken(files: &[Loaded], addition: &Addition<'_>, list: List) -> Result<(), MergeError> {
    for new in items(addition.config, &format!("/{}", list.name)) {
        let name = name_of(new);
        let Some(at) = find(files, list, name) else { continue };
        let Some(file) = files.get(at) else { continue };
        let Some(entry) = entries(file, list).find(|entry| name_of(entry) == name) else { continue };
        if !is_own(files, addition, list, entry) {
            let server = server_of(files, list, entry).map(|server| format!(" and leads to {server}"));
            let (path, to) = (file.path.clone(), server.unwrap_or_default());
            return Err(MergeError::Taken { path, kind: list.inner, name: name.to_owned(), to });
        }
    }
    Ok(())
}

/// Says whether an entry leads to the kubefold of an addition.
fn is_own(files: &[Loaded], addition: &Addition<'_>, list: List, entry: &Value) -> bool {
    if mark_of(entry, list) == Some(addition.authority) {
        return true;
    }
    let leads_there = |context: &Value| {
        let name = text(context, "/context/cluster");
        let file = find(files, CLUSTERS, name).and_then(|at| files.get(at));
        let cluster = file.and_then(|file| entries(file, CLUSTERS).find(|entry| name_of(entry) == name));
        cluster.is_some_and(|cluster| is_own(files, addition, CLUSTERS, cluster))
    };
    match list.inner {
        "cluster" => items(addition.config, "/clusters").iter().any(|new| {
            let is_same = |at: &str| !text(new, at).is_empty() && text(new, at) == text(entry, at);
            is_same("/cluster/server") || is_same("/cluster/certificate-authority-data")
        }),
        "context" => leads_there(entry),
        // Nobody else uses it.
        _ => {
            let mut contexts = files.iter().flat_map(|file| entries(file, CONTEXTS));
            contexts.all(|context| text(context, "/context/user") != name_of(entry) || leads_there(context))
        }
    }
}

fn server_of<'a>(files: &'a [Loaded], list: List, entry: &'a Value) -> Option<&'a str> {
    let cluster = match list.inner {
        "cluster" => entry,
        "context" => {
            let name = text(entry, "/context/cluster");
            let file = files.get(find(files, CLUSTERS, name)?)?;
            entries(file, CLUSTERS).find(|entry| name_of(entry) == name)?
        }
        _ => return None,
    };
    Some(text(cluster, "/cluster/server")).filter(|server| !server.is_empty())
}

/// Takes out what an earlier merge put in and this one has no more, such as a member that left.
fn drop_stale(files: &mut [Loaded], addition: &Addition<'_>, list: List) {
    let new = items(addition.config, &format!("/{}", list.name));
    let is_new = |entry: &Value| new.iter().any(|one| name_of(one) == name_of(entry));
    // A user may have been put in by another merge, for another person.
    if list == USERS {
        return;
    }
    for entries in files.iter_mut().filter_map(|file| entries_mut(file, list)) {
        entries.retain(|entry| mark_of(entry, list) != Some(addition.authority) || is_new(entry));
    }
}

fn put(files: &mut [Loaded], addition: &Addition<'_>, list: List, new: &Value) {
    let name = name_of(new);
    let own = find(files, list, name).filter(|at| {
        let entry = files.get(*at).and_then(|file| entries(file, list).find(|entry| name_of(entry) == name));
        entry.is_some_and(|entry| is_own(files, addition, list, entry))
    });
    let at = find(files, list, name).unwrap_or_else(|| default_file(files));
    let Some(entries) = files.get_mut(at).and_then(|file| entries_or_new(file, list)) else { return };
    let mut entry = json!({ "name": name, list.inner: new.get(list.inner).cloned().unwrap_or_default() });
    let place = entries.iter().position(|entry| name_of(entry) == name);
    // What a person has set beside it stays, such as a context's namespace.
    if let Some(before) = place.and_then(|at| entries.get(at)).filter(|_| own.is_some()) {
        let mut kept = before.get(list.inner).and_then(Value::as_object).cloned().unwrap_or_default();
        list.replaced.iter().for_each(|field| drop(kept.remove(*field)));
        kept.extend(new.get(list.inner).and_then(Value::as_object).cloned().unwrap_or_default());
        let mut whole = before.clone();
        whole[list.inner] = Value::Object(kept);
        entry = whole;
    }
    mark(&mut entry, list, addition.authority);
    match place.and_then(|at| entries.get_mut(at)) {
        Some(before) => *before = entry,
        None => entries.push(entry),
    }
}

/// Notes in an entry whose it is.
fn mark(entry: &mut Value, list: List, authority: &str) {
    let previous = extension(entry, list).and_then(|own| own.get("previousContext").cloned());
    let Some(Value::Object(inner)) = entry.get_mut(list.inner) else { return };
    let extensions = inner.entry("extensions").or_insert_with(|| json!([]));
    if !extensions.is_array() {
        *extensions = json!([]);
    }
    let Some(extensions) = extensions.as_array_mut() else { return };
    extensions.retain(|one| name_of(one) != EXTENSION);
    let mut own = json!({ "authority": authority });
    if let Some(previous) = previous {
        own["previousContext"] = previous;
    }
    extensions.push(json!({"name": EXTENSION, "extension": own}));
}

fn extension(entry: &Value, list: List) -> Option<&Value> {
    let extensions = entry.get(list.inner)?.get("extensions")?.as_array()?;
    extensions.iter().find(|one| name_of(one) == EXTENSION)?.get("extension")
}

fn mark_of(entry: &Value, list: List) -> Option<&str> {
    extension(entry, list)?.get("authority")?.as_str()
}

/// The context that was current before the first merge; empty: none was.
fn noted_previous(file: &Loaded, authority: &str) -> Option<String> {
    let mut own = entries(file, CONTEXTS).filter(|entry| mark_of(entry, CONTEXTS) == Some(authority));
    own.find_map(|entry| Some(extension(entry, CONTEXTS)?.get("previousContext")?.as_str()?.to_owned()))
}

fn note_previous(files: &mut [Loaded], context: &str, previous: &str) {
    let Some(file) = find(files, CONTEXTS, context).and_then(|at| files.get_mut(at)) else { return };
    let entry = entries_mut(file, CONTEXTS).and_then(|all| all.iter_mut().find(|entry| name_of(entry) == context));
    let Some(extensions) = entry.and_then(|entry| entry.pointer_mut("/context/extensions")?.as_array_mut()) else {
        return;
    };
    if let Some(own) = extensions.iter_mut().find(|one| name_of(one) == EXTENSION) {
        own["extension"]["previousContext"] = previous.into();
    }
}

fn select(files: &mut [Loaded], at: usize, context: &str) {
    if let Some(fields) = files.get_mut(at).and_then(fields_mut) {
        fields.insert(CURRENT.to_owned(), context.into());
    }
}

/// The current context: the first one that a file says.
fn current(files: &[Loaded]) -> Option<String> {
    files.iter().map(current_of).find(|name| !name.is_empty()).map(str::to_owned)
}

fn current_of(file: &Loaded) -> &str {
    file.content.as_ref().map_or("", |content| text(content, "/current-context"))
}

/// Where what no file has goes.
fn default_file(files: &[Loaded]) -> usize {
    files.iter().position(|file| file.content.is_some()).unwrap_or_else(|| files.len().saturating_sub(1))
}

/// The first file that has an entry of that name.
fn find(files: &[Loaded], list: List, name: &str) -> Option<usize> {
    files.iter().position(|file| entries(file, list).any(|entry| name_of(entry) == name))
}

fn entries(file: &Loaded, list: List) -> impl Iterator<Item = &Value> {
    file.content.iter().filter_map(move |content| content.get(list.name)?.as_array()).flatten()
}

fn entries_mut(file: &mut Loaded, list: List) -> Option<&mut Vec<Value>> {
    file.content.as_mut()?.get_mut(list.name)?.as_array_mut()
}

fn entries_or_new(file: &mut Loaded, list: List) -> Option<&mut Vec<Value>> {
    let value = fields_mut(file)?.entry(list.name).or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut()
}

/// The fields of a file, which is a kubeconfig from now on. `None`: it is something else.
fn fields_mut(file: &mut Loaded) -> Option<&mut Map<String, Value>> {
    let empty = || json!({"apiVersion": "v1", "kind": "Config", "preferences": {}, CURRENT: "", "clusters": [], "contexts": [], "users": []});
    file.content.get_or_insert_with(empty).as_object_mut()
}

fn name_of(entry: &Value) -> &str {
    text(entry, "/name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition(url: &str, ca: &str, members: &[&str]) -> Value {
        let names = std::iter::once("fleet".to_owned()).chain(members.iter().map(|member| format!("fleet-{member}")));
        let names: Vec<String> = names.collect();
        let cluster = |name: &String| {
            let path = name.strip_prefix("fleet-").map_or_else(String::new, |member| format!("/clusters/{member}"));
            json!({"name": name, "cluster": {"server": format!("{url}{path}"), "certificate-authority-data": ca}})
        };
        let context = |name: &String| json!({"name": name, "context": {"cluster": name, "user": "kubefold-admin"}});
        json!({
            "current-context": "fleet",
            "clusters": names.iter().map(cluster).collect::<Vec<_>>(),
            "contexts": names.iter().map(context).collect::<Vec<_>>(),
            "users": [{"name": "kubefold-admin", "user": {"client-certificate-data": "C", "client-key-data": "K"}}],
        })
    }

    fn own() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true}, "current-context": "work", "x-own": [1],
            "clusters": [{"name": "work", "cluster": {"server": "https://work", "x": 1}}],
            "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me", "namespace": "a"}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        })
    }

    fn loaded(contents: &[Option<Value>]) -> Vec<Loaded> {
        let path = |at: usize| PathBuf::from(format!("/{at}"));
        contents.iter().enumerate().map(|(at, content)| Loaded { path: path(at), content: content.clone() }).collect()
    }

    fn into(files: &mut [Loaded], config: &Value, authority: &str, how: &[&str]) -> Result<Merged, MergeError> {
        let (force, select) = (how.contains(&"force"), how.contains(&"use"));
        merge(files, &Addition { config, authority, force, select })
    }

    fn names(file: &Loaded, list: List) -> Vec<&str> {
        entries(file, list).map(name_of).collect()
    }

    #[test]
    fn what_is_put_in_is_taken_out_and_the_rest_is_as_before() {
        let (fleet, before) = (addition("https://fleet", "CA", &["east"]), loaded(&[Some(own())]));
        for how in [&[][..], &["use"]] {
            let mut files = before.clone();
            let merged = into(&mut files, &fleet, "a", how).unwrap();
            assert_eq!(merged.contexts, ["fleet", "fleet-east"]);
            assert_eq!(merged.current.as_deref(), Some(if how.is_empty() { "work" } else { "fleet" }));
            assert_eq!(names(&files[0], USERS), ["me", "kubefold-admin"]);
            // Again it is the same.
            let once = files.clone();
            into(&mut files, &fleet, "a", how).unwrap();
            assert_eq!(files, once);
            let other = unmerge(&mut files, "b").unwrap();
            assert_eq!((other.contexts.len(), &files), (0, &once));
            assert_eq!(unmerge(&mut files, "a").unwrap().current.as_deref(), Some("work"));
            assert_eq!(files, before);
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_made() {
        let mut files = loaded(&[None, None]);
        let merged = into(&mut files, &addition("https://fleet", "CA", &[]), "a", &[]).unwrap();
        assert_eq!((merged.current.as_deref(), &files[0].content), (Some("fleet"), &None));
        assert_eq!(names(&files[1], CONTEXTS), ["fleet"]);
        assert_eq!(unmerge(&mut files, "a").unwrap().current, None);
        assert_eq!(files[1].content.as_ref().unwrap()["contexts"], json!([]));
    }

    #[test]
    fn what_leads_elsewhere_is_not_replaced() {
        let mut files = loaded(&[Some(own())]);
        into(&mut files, &addition("https://one", "ONE", &["east"]), "one", &["use"]).unwrap();
        let (before, other) = (files.clone(), addition("https://two", "TWO", &[]));
        let refused = into(&mut files, &other, "two", &[]).unwrap_err();
        let said = "/0 has a cluster \"fleet\" that is not of this kubefold and leads to https://one; rename or remove it, or replace it with \
                    --force. Nothing was changed";
        assert_eq!((refused.to_string().as_str(), &files), (said, &before));
        into(&mut files, &other, "two", &["force"]).unwrap();
        assert_eq!(mark_of(entries(&files[0], CLUSTERS).nth(1).unwrap(), CLUSTERS), Some("two"));
        // A user that others use is theirs.
        let mut shared = loaded(&[Some(own())]);
        shared[0].content.as_mut().unwrap()["contexts"][0]["context"]["user"] = "kubefold-admin".into();
        shared[0].content.as_mut().unwrap()["users"][0]["name"] = "kubefold-admin".into();
        let refused = into(&mut shared, &other, "two", &[]).unwrap_err().to_string();
        assert!(refused.starts_with("/0 has a user \"kubefold-admin\" that is not of this kubefold;"), "{refused}");
    }

    /// It was pasted before, the kubefold has another address or authority by now, or a member has left.
    #[test]
    fn what_leads_to_this_kubefold_is_renewed() {
        let mut pasted = addition("https://fleet", "OLD", &["east", "west"]);
        pasted["contexts"][0]["context"]["namespace"] = "shop".into();
        pasted["users"][0]["user"] = json!({"token": "old", "as": "ann"});
        let mut files = loaded(&[Some(own()), Some(pasted)]);
        into(&mut files, &addition("https://fleet", "NEW", &["east", "west"]), "new", &[]).unwrap();
        assert_eq!(names(&files[0], CONTEXTS), ["work"]);
        let second = files[1].content.clone().unwrap();
        assert_eq!(second["contexts"][0]["context"]["namespace"], "shop");
        assert_eq!(second["clusters"][0]["cluster"]["certificate-authority-data"], "NEW");
        let user = &second["users"][0]["user"];
        assert_eq!((&user["token"], &user["as"], &user["client-key-data"]), (&Value::Null, &json!("ann"), &json!("K")));
        into(&mut files, &addition("https://other", "NEW", &["east"]), "new", &[]).unwrap();
        assert_eq!(names(&files[1], CONTEXTS), ["fleet", "fleet-east"]);
    }

    #[test]
    fn the_first_file_with_a_current_context_has_it() {
        let mut second = own();
        second["contexts"][0]["name"] = "other".into();
        second["current-context"] = "other".into();
        let mut first = own();
        first[CURRENT] = "".into();
        let before = loaded(&[Some(first), Some(second)]);
        let mut files = before.clone();
        into(&mut files, &addition("https://fleet", "CA", &[]), "a", &["use"]).unwrap();
        assert_eq!((current_of(&files[0]), current_of(&files[1])), ("", "fleet"));
        assert_eq!(names(&files[0], CONTEXTS), ["work", "fleet"]);
        // A context of a person's own that leads there.
        let mine = json!({"name": "mine", "context": {"cluster": "fleet", "user": "me"}});
        entries_mut(&mut files[0], CONTEXTS).unwrap().push(mine);
        assert_eq!(unmerge(&mut files, "a").unwrap().left, ["mine"]);
        entries_mut(&mut files[0], CONTEXTS).unwrap().pop();
        assert_eq!(files, before);
    }

    #[test]
    fn what_is_no_kubeconfig_is_left_alone() {
        for content in [json!([1]), json!("x"), json!({"clusters": {}}), json!({"users": [1]})] {
            let mut files = loaded(&[Some(content.clone())]);
            let refused = into(&mut files, &addition("https://fleet", "CA", &[]), "a", &["force"]).unwrap_err();
            assert!(matches!(refused, MergeError::Malformed { .. }), "{content}");
            assert!(unmerge(&mut files, "a").is_err());
        }
    }
}
