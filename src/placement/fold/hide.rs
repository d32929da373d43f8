//! The marker is not shown: its label, and what managed fields say of it.

use std::{borrow::Cow, ops::Range};

use serde_json::value::RawValue;

use crate::placement::marker::{MARKER_KEY, OWN_PREFIX};
use kubefold_wire::{
    locate::{Found, NotAnObject},
    splice::{Edit, ObjectEdits, splice},
};

/// Takes the marker's label away, and `labels` with it if nothing else was in it.
pub(super) fn hide_label(json: &str, place: &Found) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let mut labels = ObjectEdits::new(json.get(place.range.clone()).unwrap_or_default(), place.range.start)?;
    labels.remove(|key| key == MARKER_KEY);
    if !labels.is_unchanged() && labels.is_empty() {
        return Ok(vec![Edit::new(whole_entry(json.as_bytes(), &place.range), Vec::new())]);
    }
    Ok(labels.finish())
}

/// From the range of a value to that of its entry: key, colon, value and one comma.
///
/// The key holds no escaped quote, as it was compared with a known one.
fn whole_entry(json: &[u8], value: &Range<usize>) -> Range<usize> {
    let before = |at: usize| json.get(..at).unwrap_or_default().trim_ascii_end();
    let colon = before(value.start);
    let quote = before(colon.len().saturating_sub(1)).len().saturating_sub(1);
    let start = memchr::memrchr(b'"', json.get(..quote).unwrap_or_default()).unwrap_or(value.start);
    let after = json.get(value.end..).unwrap_or_default();
    let rest = after.trim_ascii_start();
    if rest.first() == Some(&b',') {
        return start..value.end + (after.len() - rest.len()) + 1;
    }
    match before(start) {
        [kept @ .., b','] => kept.len()..value.end,
        _ => start..value.end,
    }
}

/// Takes kubefold's own leaves out of the managed fields, with the parents and managers that have nothing else.
pub(super) fn hide_fields(json: &str, place: &Found) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let text = json.get(place.range.clone()).unwrap_or_default();
    let leaf = format!("f:{OWN_PREFIX}");
    if memchr::memmem::find(text.as_bytes(), leaf.as_bytes()).is_none() {
        return Ok(Vec::new());
    }
    let mut shown = vec![b'['];
    for manager in serde_json::from_str::<Vec<&RawValue>>(text)? {
        let Some(manager) = hide_in(manager.get(), &leaf)? else { continue };
        if shown.len() > 1 {
            shown.push(b',');
        }
        shown.extend_from_slice(&manager);
    }
    shown.push(b']');
    Ok(vec![Edit::new(place.range.clone(), shown)])
}

/// One manager's entry without the leaves; `None`: it had nothing else.
fn hide_in<'a>(manager: &'a str, leaf: &str) -> Result<Option<Cow<'a, [u8]>>, NotAnObject> {
    let as_it_is = Ok(Some(Cow::Borrowed(manager.as_bytes())));
    let mut entry = ObjectEdits::new(manager, 0)?;
    let Some(raw) = entry.member("fieldsV1").map(|member| member.raw) else { return as_it_is };
    let mut fields = ObjectEdits::new(raw, 0)?;
    let Some(metadata) = fields.member("f:metadata").map(|member| member.raw) else { return as_it_is };
    let mut kept = ObjectEdits::new(metadata, 0)?;
    for parent in ["f:labels", "f:annotations"] {
        let Some(raw) = kept.member(parent).map(|member| member.raw) else { continue };
        let mut map = ObjectEdits::new(raw, 0)?;
        map.remove(|key| key.starts_with(leaf));
        if map.is_unchanged() {
            continue;
        }
        // `.` says who made the map. One that was made for the marker alone is not shown either.
        let alone = map.members().iter().all(|member| member.name == "." || member.name.starts_with(leaf));
        if alone {
            kept.remove(|key| key == parent);
        } else {
            kept.set(parent, spliced(raw, map));
        }
    }
    if kept.is_unchanged() {
        return as_it_is;
    }
    if kept.is_empty() {
        fields.remove(|key| key == "f:metadata");
    } else {
        fields.set("f:metadata", spliced(metadata, kept));
    }
    if fields.is_empty() {
        return Ok(None);
    }
    entry.set("fieldsV1", spliced(raw, fields));
    Ok(Some(Cow::Owned(spliced(manager, entry))))
}

pub(super) fn spliced(json: &str, edits: ObjectEdits<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    splice(json.as_bytes(), &mut edits.finish(), &mut out);
    out
}
