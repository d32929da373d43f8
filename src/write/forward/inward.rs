//! A client's body in a member's words: own names, own revisions, own UIDs, and nothing of kubefold's.

use bytes::Bytes;
use http::Method;
use serde_json::value::RawValue;

use crate::{
    placement::marker::OWN_PREFIX,
    respond::{InvalidField, WriteError},
    write::{
        fleet::Fleet,
        forward::{outward::text_at, to::To},
        names::{unpin, with_own_nodes},
        request::values,
    },
};
use kubefold_wire::{
    locate::{Paths, entries},
    splice::{Edit, ObjectEdits, splice, string},
};

pub(super) const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A revision that no object has: etcd's first write makes the second. A member refuses it in its own words, at the point at
/// which it would refuse any that is not the object's.
const NEVER: &str = "1";

impl<F: Fleet> To<'_, F> {
    /// The body as the member gets it. One that cannot be read goes as it came: the member says what is wrong with it.
    ///
    /// Errors: 400, 415, 422.
    pub(super) fn inward(&self) -> Result<Bytes, WriteError> {
        let request = self.request;
        let known = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH];
        if request.method == Method::PATCH && !known.contains(&request.content_type.as_str()) {
            return Err(WriteError::PatchType);
        }
        let Ok(text) = std::str::from_utf8(&request.body) else { return Ok(request.body.clone()) };
        if text.trim_ascii().is_empty() {
            return Ok(request.body.clone());
        }
        match (&request.method, request.subresource.as_str()) {
            (&Method::PATCH, _) if request.content_type == JSON_PATCH => self.json_patch(text),
            (&Method::DELETE, _) => Ok(self.options(text, &["preconditions"])),
            (_, "eviction") => {
                let text = self.in_metadata(text)?;
                let text = std::str::from_utf8(&text).unwrap_or_default();
                Ok(self.options(text, &["deleteOptions", "preconditions"]))
            }
            (_, "binding") => self.binding(text),
            (_, "token") => self.token_request(text),
            _ => self.whole(text).map(Bytes::from),
        }
    }

    /// Says whether nothing is to be changed; the member judges whether it was asked for in a legal way.
    pub(super) fn is_dry(&self, body: &Bytes) -> bool {
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct DryRunFields {
            dry_run: Vec<String>,
            delete_options: Option<Box<Self>>,
        }
        let has_options = self.request.method == Method::DELETE || self.request.subresource == "eviction";
        let said = has_options.then(|| serde_json::from_slice::<DryRunFields>(body).ok()).flatten();
        let in_body = |said: &DryRunFields| !said.dry_run.is_empty();
        values(&self.request.query, "dryRun").next().is_some()
            || said.is_some_and(|said| in_body(&said) || said.delete_options.is_some_and(|said| in_body(&said)))
    }

    /// The revision that the client expects, as it says it.
    pub(super) fn expected_revision(&self) -> Option<String> {
        let body = &self.request.body;
        text_at(body, &["preconditions", "resourceVersion"])
            .or_else(|| text_at(body, &["deleteOptions", "preconditions", "resourceVersion"]))
    }

    /// A whole object, or a patch that has an object's shape.
    pub(super) fn whole(&self, text: &str) -> Result<Vec<u8>, WriteError> {
        let named = String::from_utf8(self.in_metadata(text)?).unwrap_or_default();
        let plain = if self.may_unpin() { unpin(&named, &self.visible, &self.key.name) } else { named.into_bytes() };
        let local = self.fleet.localize(&self.key, self.member, &plain.into());
        let own = with_own_nodes(self.fleet, &self.key, self.member, local);
        Ok(own.map_err(|error| self.invalid(error))?.into())
    }

    /// As in a create, a string that is exactly the pinned name can only mean the name: a manifest that was created so is
    /// applied and replaced so. Not where the member's own object holds that very string.
    fn may_unpin(&self) -> bool {
        let quoted = format!("\"{}\"", self.visible);
        let held = |json: &[u8]| memchr::memmem::find(json, quoted.as_bytes()).is_some();
        self.visible != self.key.name
            && !self.member_local.as_ref().is_some_and(|member_local| held(&member_local.json))
    }

    fn in_metadata(&self, text: &str) -> Result<Vec<u8>, WriteError> {
        let mut found = Vec::new();
        let located = Paths::new([(0, ["metadata"].as_slice())]).locate(text, &mut found);
        let Some(at) = found.into_iter().next().filter(|_| located.is_ok()) else { return Ok(text.into()) };
        let metadata = text.get(at.range.clone()).unwrap_or_default();
        Ok(spliced(text, self.metadata(metadata, at.range.start)?))
    }

    /// The edits of `metadata`, but for owner references by name.
    pub(super) fn metadata(&self, json: &str, start: usize) -> Result<Vec<Edit<'static>>, WriteError> {
        let Ok(mut object) = ObjectEdits::new(json, start) else { return Ok(Vec::new()) };
        let text = |object: &ObjectEdits<'_>, field: &str| object.member(field).and_then(|member| member.text());
        if let Some(name) = text(&object, "name")
            && let Some(own) = self.own_name(&name)?
        {
            object.set("name", string(&own));
        }
        if let Some(own) = text(&object, "resourceVersion").and_then(|revision| self.own_revision(&revision)) {
            object.set("resourceVersion", string(&own));
        }
        if let Some(own) = text(&object, "uid").and_then(|uid| self.uid_of_part(&uid)) {
            object.set("uid", string(own));
        }
        for field in ["labels", "annotations"] {
            self.map(field, &mut object);
        }
        for field in ["ownerReferences", "$setElementOrder/ownerReferences"] {
            let raw = object.member(field).map(|member| member.raw.to_owned());
            if let Some(owners) = raw.and_then(|raw| self.owners(&raw).transpose()) {
                object.set(field, owners?.into_bytes());
            }
        }
        Ok(object.finish())
    }

    /// The own name behind `metadata.name`, if it is this object's.
    ///
    /// Errors: 400 for the member's own name, which in the fleet is another object's.
    pub(super) fn own_name(&self, name: &str) -> Result<Option<String>, WriteError> {
        if name == self.visible || name == self.request.name {
            return Ok(Some(self.key.name.clone()));
        }
        if name != self.key.name {
            return Ok(None);
        }
        let url = &self.request.name;
        Err(match self.request.subresource.as_str() {
            "eviction" => WriteError::SubjectMismatch("Eviction"),
            "binding" => WriteError::SubjectMismatch("Binding"),
            _ => WriteError::NameMismatch { name: name.to_owned(), url: url.clone() },
        })
    }

    /// The member's own revision in the place of the fleet's; `None` where it says nothing or is none.
    pub(super) fn own_revision(&self, said: &str) -> Option<String> {
        let revision: u64 = said.parse().ok().filter(|number| *number > 0)?;
        let own = match (&self.part, &self.member_local) {
            (Some(part), Some(member_local)) => {
                Some(part.resource_version.clone()).filter(|_| member_local.shown.revision == revision)
            }
            _ => self.fleet.own_revision(&self.key, self.member, revision).map(|own| own.to_string()),
        };
        Some(own.unwrap_or_else(|| NEVER.to_owned()))
    }

    /// The part's own UID in the place of the folded object's.
    pub(super) fn uid_of_part(&self, said: &str) -> Option<&str> {
        let (part, member_local) = (self.part.as_ref()?, self.member_local.as_ref()?);
        (member_local.shown.uid == said).then_some(part.uid.as_str())
    }

    /// Drops kubefold's own keys from a map, and the map if it held no others; in a whole object the member's own ones of
    /// that prefix (controllers copy annotations) stay.
    fn map(&self, field: &str, metadata: &mut ObjectEdits<'_>) {
        let kept = if self.request.method == Method::PUT { self.own_keys(field) } else { Vec::new() };
        let raw = metadata.member(field).map(|member| member.raw.to_owned());
        if raw.is_none() && kept.is_empty() {
            return;
        }
        let raw = raw.unwrap_or_else(|| "null".to_owned());
        let Ok(mut map) = ObjectEdits::new(&raw, 0) else { return };
        let was_empty = map.members().is_empty();
        map.remove(|key| key.starts_with(OWN_PREFIX));
        kept.into_iter().for_each(|(key, value)| map.set(&key, value.into_bytes()));
        if map.is_unchanged() {
            return;
        }
        if map.is_empty() && !was_empty {
            metadata.remove(|key| key == field);
        } else {
            metadata.set(field, spliced(&raw, map.finish()));
        }
    }

    /// What the member's own object has in a map of `metadata` under kubefold's prefix, as JSON.
    pub(super) fn own_keys(&self, field: &str) -> Vec<(String, String)> {
        let Some(json) = self.member_local_map(field) else { return Vec::new() };
        let all = entries(&json).unwrap_or_default();
        let own = all.into_iter().filter(|entry| entry.name.starts_with(OWN_PREFIX));
        own.map(|entry| (entry.name, entry.raw.to_owned())).collect()
    }

    /// A map of `metadata` as the member's own object has it.
    pub(super) fn member_local_map(&self, field: &str) -> Option<String> {
        let text = std::str::from_utf8(&self.member_local.as_ref()?.json).ok()?;
        let mut found = Vec::new();
        Paths::new([(0, ["metadata", field].as_slice())]).locate(text, &mut found).ok()?;
        text.get(found.into_iter().next()?.range).filter(|raw| *raw != "null").map(str::to_owned)
    }

    /// Owner references that name no name: patches tell them apart by UID. `None`: nothing to change.
    ///
    /// Errors: 422 for an owner in another member, for whose lack the member would collect the object.
    pub(super) fn owners(&self, json: &str) -> Result<Option<String>, WriteError> {
        let Ok(all) = serde_json::from_str::<Vec<&RawValue>>(json) else { return Ok(None) };
        let (mut out, mut changed) = (Vec::new(), false);
        for raw in all {
            let raw = raw.get();
            let (name, uid) = (text_at(raw.as_bytes(), &["name"]), text_at(raw.as_bytes(), &["uid"]));
            if let Some(name) = &name
                && let Some((_, member)) = self.fleet.split(name)
                && member != *self.member
            {
                let (owner, holder, member) = (name.clone(), member, self.member.clone());
                return Err(self.invalid(InvalidField::OwnerElsewhere { owner, holder, member }));
            }
            let own = uid.filter(|_| name.is_none()).and_then(|uid| self.own_uid(&uid));
            let edited = own.and_then(|own| {
                let mut object = ObjectEdits::new(raw, 0).ok()?;
                object.set("uid", string(&own));
                String::from_utf8(spliced(raw, object.finish())).ok()
            });
            changed |= edited.is_some();
            out.push(edited.unwrap_or_else(|| raw.to_owned()));
        }
        Ok(changed.then(|| format!("[{}]", out.join(","))))
    }

    /// The UID that an owner has in the member, for one that the object names already.
    pub(super) fn own_uid(&self, visible: &str) -> Option<String> {
        let member_local = self.member_local.as_ref()?;
        let uids = |json: &[u8]| -> Option<Vec<String>> {
            let text = std::str::from_utf8(json).ok()?;
            let mut found = Vec::new();
            Paths::new([(0, ["metadata", "ownerReferences", "*", "uid"].as_slice())]).locate(text, &mut found).ok()?;
            let text = |at: &std::ops::Range<usize>| serde_json::from_str(text.get(at.clone()).unwrap_or_default());
            found.iter().map(|at| text(&at.range).ok()).collect()
        };
        let shown = uids(&member_local.shown.body)?.into_iter();
        shown.zip(uids(&member_local.json)?).find(|(shown, _)| shown == visible).map(|(_, own)| own)
    }

    fn invalid(&self, field: InvalidField) -> WriteError {
        self.request.invalid(&self.request.name, field)
    }

    /// Options with preconditions at a path.
    fn options(&self, text: &str, path: &[&str]) -> Bytes {
        let at = |field: &'static str| [path, &[field]].concat();
        let (revision, uid) = (at("resourceVersion"), at("uid"));
        let said = |path: &[&str]| text_at(text.as_bytes(), path);
        let owns = [
            said(&revision).and_then(|said| self.own_revision(&said)),
            said(&uid).and_then(|said| self.uid_of_part(&said).map(str::to_owned)),
        ];
        let mut found = Vec::new();
        let located = Paths::new([(0, revision.as_slice()), (1, uid.as_slice())]).locate(text, &mut found);
        let own = |id: u16| owns.get(usize::from(id)).and_then(Option::as_ref);
        let edits = found.into_iter().filter_map(|at| Some(Edit::new(at.range, string(own(at.id)?))));
        match located {
            Ok(()) => spliced(text, edits.collect()).into(),
            Err(_) => Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    /// A binding of a pod to a node.
    fn binding(&self, text: &str) -> Result<Bytes, WriteError> {
        let text = self.in_metadata(text)?;
        let text = std::str::from_utf8(&text).unwrap_or_default();
        let Some((own, member)) =
            text_at(text.as_bytes(), &["target", "name"]).and_then(|name| self.fleet.split(&name))
        else {
            return Ok(Bytes::copy_from_slice(text.as_bytes()));
        };
        if member != *self.member {
            let (node, holder, member) = (own, member, self.member.clone());
            return Err(self.invalid(InvalidField::NodeElsewhere { node, holder, member }));
        }
        let mut found = Vec::new();
        // It was found a moment ago.
        let _located = Paths::new([(0, ["target", "name"].as_slice())]).locate(text, &mut found);
        Ok(spliced(text, found.into_iter().map(|at| Edit::new(at.range, string(&own))).collect()).into())
    }

    /// A request for a token, which may be bound to an object of the member.
    fn token_request(&self, text: &str) -> Result<Bytes, WriteError> {
        let text = self.in_metadata(text)?;
        let text = std::str::from_utf8(&text).unwrap_or_default();
        let mut found = Vec::new();
        let located = Paths::new([(0, ["spec", "boundObjectRef"].as_slice())]).locate(text, &mut found);
        let Some(at) = found.into_iter().next().filter(|_| located.is_ok()) else {
            return Ok(Bytes::copy_from_slice(text.as_bytes()));
        };
        // It has the fields of an owner reference.
        let (lead, tail) = (r#"{"metadata":{"ownerReferences":["#, "]}}");
        let reference = text.get(at.range.clone()).unwrap_or_default();
        let local = self.localized(&[lead, reference, tail].concat());
        let own = local.get(lead.len()..local.len().saturating_sub(tail.len())).unwrap_or(reference);
        Ok(spliced(text, vec![Edit::new(at.range, own.as_bytes().to_vec())]).into())
    }

    pub(super) fn localized(&self, document: &str) -> String {
        let local = self.fleet.localize(&self.key, self.member, &Bytes::copy_from_slice(document.as_bytes()));
        String::from_utf8(local.into()).unwrap_or_default()
    }
}

pub(super) fn spliced(text: &str, mut edits: Vec<Edit<'_>>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 64);
    splice(text.as_bytes(), &mut edits, &mut out);
    out
}
