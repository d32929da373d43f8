//! Edits of one member's part: changes that depend on what the part says, such as another tag of its images.
//!
//! Source: karmada `pkg/util/overridemanager`, for what each of them means.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    config::{Alteration, Component, Edit, Format, How, KeyMap},
    placement::scheduling::pod_spec,
};
use kubefold_wire::{
    golang::Quoted,
    patch::{Action, JsonPatch, Operation, path_of},
    resource::Gvk,
    yaml,
};

/// Docker's own registry has names of one word, and of two, without a registry before them.
///
/// Source: distribution/reference `normalize.go` `splitDockerDomain`.
const LOCALHOST: &str = "localhost";

/// Why an edit does not go with an object.
#[derive(Debug, thiserror::Error)]
pub(super) enum EditError {
    #[error("{0}")]
    Patch(#[from] kubefold_wire::patch::Inapplicable),
    #[error("there is no text at {at}", at = Quoted(.0))]
    NoText(String),
    #[error("the text at {at} is not {format}: {why}", at = Quoted(.at))]
    Document { at: String, format: &'static str, why: String },
}

/// Makes an edit of a whole object.
///
/// Errors: it does not go with it.
pub(super) fn edited(mut object: Value, edit: &Edit, of: &Gvk) -> Result<Value, EditError> {
    match &edit.what {
        Alteration::Image { at: Some(at), component, how, value } => {
            let image = text_at(&mut object, at)?;
            *image = altered(image, *component, *how, value);
        }
        Alteration::Image { at: None, component, how, value } => {
            alter_images(&mut object, of, |image| altered(image, *component, *how, value));
        }
        Alteration::Words { .. } => alter_words(&mut object, edit, of, None),
        Alteration::Keys { map, how, values } => {
            for operation in key_operations(&object, *map, *how, values) {
                if *how == How::Add && object.pointer(&format!("/metadata/{}", map.field())).is_none() {
                    let empty = Action::Add(json!({}));
                    let made = Operation { path: format!("/metadata/{}", map.field()), action: empty };
                    object = JsonPatch(vec![made]).apply(object)?;
                }
                object = JsonPatch(vec![operation]).apply(object)?;
            }
        }
        Alteration::Document { at, format, patch } => {
            let text = text_at(&mut object, at)?;
            *text = document(text, at, *format, patch)?;
        }
        Alteration::Patch(patch) => object = patch.apply(object)?,
    }
    Ok(object)
}

/// The JSON pointer of the one text that an edit is about.
pub(super) fn pointer(edit: &Edit) -> Option<&str> {
    match &edit.what {
        Alteration::Image { at, .. } => at.as_deref(),
        Alteration::Document { at, .. } => Some(at),
        Alteration::Words { .. } | Alteration::Keys { .. } | Alteration::Patch(_) => None,
    }
}

/// Makes an edit of what a client applies to a part, which need not say everything: of what it says. `here` is where the place of
/// [`pointer`] is in it. Gives the operations that are still to be done.
pub(super) fn edit_applied(
    body: &mut Value,
    here: Option<&str>,
    part: &Value,
    edit: &Edit,
    of: &Gvk,
) -> Vec<Operation> {
    match &edit.what {
        Alteration::Image { at: Some(_), component, how, value } => {
            if let Some(image) = here.and_then(|here| text_of(body, here)) {
                *image = altered(image, *component, *how, value);
            }
        }
        Alteration::Image { at: None, component, how, value } => {
            alter_images(body, of, |image| altered(image, *component, *how, value));
        }
        Alteration::Words { .. } => alter_words(body, edit, of, Some(part)),
        Alteration::Keys { map, how, values } => return key_operations(body, *map, *how, values),
        Alteration::Document { at, format, patch } => {
            if let Some(text) = here.and_then(|here| text_of(body, here))
                && let Ok(after) = document(text, at, *format, patch)
            {
                *text = after;
            }
        }
        Alteration::Patch(patch) => return patch.0.clone(),
    }
    Vec::new()
}

fn text_of<'v>(object: &'v mut Value, path: &str) -> Option<&'v mut String> {
    match object.pointer_mut(path)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn text_at<'v>(object: &'v mut Value, path: &str) -> Result<&'v mut String, EditError> {
    text_of(object, path).ok_or_else(|| EditError::NoText(path.to_owned()))
}

/// The containers of its pods, without those that are for its start alone.
fn containers<'v>(object: &'v mut Value, of: &Gvk) -> impl Iterator<Item = &'v mut Value> {
    // Source: karmada `imageoverride.go`, `commandargsoverride.go`: a CronJob's pods are not looked for.
    let path = pod_spec(&of.group, &of.kind).filter(|_| &*of.kind != "CronJob");
    let spec = path.and_then(|path| path.iter().try_fold(object, |at, key| at.get_mut(*key)));
    spec.and_then(|spec| spec.get_mut("containers")?.as_array_mut()).into_iter().flatten()
}

fn alter_images(object: &mut Value, of: &Gvk, alter: impl Fn(&str) -> String) {
    for container in containers(object, of) {
        if let Some(Value::String(image)) = container.get_mut("image") {
            *image = alter(image);
        }
    }
}

/// Where the object is the `part` of what is applied, a list that it does not say is as the part has it: the edit's own, or
/// somebody else's.
fn alter_words(object: &mut Value, edit: &Edit, of: &Gvk, part: Option<&Value>) {
    let Alteration::Words { texts, container: name, how, values } = &edit.what else { return };
    let values: Vec<Value> = values.iter().map(|value| Value::from(value.as_str())).collect();
    let mut part = part.cloned();
    let held = part.as_mut().map(|part| {
        let named = containers(part, of).find(|one| one.get("name").and_then(Value::as_str) == Some(name));
        named.and_then(|one| one.get(texts.field()).cloned())
    });
    for container in containers(object, of).filter(|one| one.get("name").and_then(Value::as_str) == Some(name)) {
        match container.get_mut(texts.field()) {
            Some(Value::Array(words)) if *how == How::Add => words.extend(values.iter().cloned()),
            Some(Value::Array(words)) => words.retain(|word| !values.contains(word)),
            _ if *how == How::Add && held.as_ref().is_none_or(|held| *held == Some(Value::Array(values.clone()))) => {
                if let Some(fields) = container.as_object_mut() {
                    fields.insert(texts.field().to_owned(), Value::Array(values.clone()));
                }
            }
            _ => {}
        }
    }
}

fn key_operations(object: &Value, map: KeyMap, how: How, values: &BTreeMap<String, String>) -> Vec<Operation> {
    let held = object.pointer(&format!("/metadata/{}", map.field())).and_then(Value::as_object);
    let is_held = |key: &String| how == How::Add || held.is_some_and(|held| held.contains_key(key));
    let operation = |(key, value): (&String, &String)| {
        let steps = ["metadata".to_owned(), map.field().to_owned(), key.clone()];
        let action = match how {
            How::Add => Action::Add(value.as_str().into()),
            How::Remove => Action::Remove,
            How::Replace => Action::Replace(value.as_str().into()),
        };
        Operation { path: path_of(&steps), action }
    };
    values.iter().filter(|(key, _)| is_held(key)).map(operation).collect()
}

/// A text that is a document, with a patch of it.
fn document(text: &str, at: &str, format: Format, patch: &JsonPatch) -> Result<String, EditError> {
    let wrong = |format: &'static str, why: String| EditError::Document { at: at.to_owned(), format, why };
    match format {
        Format::Json => {
            let value = serde_json::from_str(text).map_err(|error| wrong("JSON", error.to_string()))?;
            Ok(patch.apply(value)?.to_string())
        }
        Format::Yaml => {
            let value: Value =
                serde_saphyr::from_str(text).map_err(|error| wrong("YAML", error.without_snippet().to_string()))?;
            let after = yaml::from_json(patch.apply(value)?.to_string().as_bytes());
            let after = after.map_err(|error| wrong("YAML", error.to_string()))?;
            Ok(String::from_utf8_lossy(&after).into_owned())
        }
    }
}

/// The registry that stands before an image's name.
pub(super) fn registry_of(image: &str) -> Option<&str> {
    let (first, _) = image.split_once('/')?;
    let is_one = first.contains(['.', ':']) || first == LOCALHOST || first.chars().any(char::is_uppercase);
    is_one.then_some(first)
}

/// An image with one component added to, removed or replaced.
///
/// Source: karmada `pkg/util/imageparser/parser.go`: an image has a tag or a digest, and the tag counts where it has both.
fn altered(image: &str, component: Component, how: How, value: &str) -> String {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let tag_at = name.rfind(':').filter(|at| !name.get(*at..).is_some_and(|rest| rest.contains('/')));
    let (name, tag) = match tag_at {
        Some(at) => (name.get(..at).unwrap_or_default(), name.get(at + 1..)),
        None => (name, None),
    };
    let (registry, repository) =
        registry_of(name).map_or(("", name), |domain| (domain, name.get(domain.len() + 1..).unwrap_or_default()));
    let version = tag.or(digest).unwrap_or_default();
    let with = |now: &str| match how {
        How::Add => format!("{now}{value}"),
        How::Remove => String::new(),
        How::Replace => value.to_owned(),
    };
    let (mut registry, mut repository, mut version) = (registry.to_owned(), repository.to_owned(), version.to_owned());
    match component {
        Component::Registry => registry = with(&registry),
        Component::Repository => repository = with(&repository),
        Component::Tag => version = with(&version),
    }
    let name = if registry.is_empty() { repository } else { format!("{registry}/{repository}") };
    match version.as_str() {
        "" => name,
        digest if digest.contains(':') => format!("{name}@{digest}"),
        tag => format!("{name}:{tag}"),
    }
}
