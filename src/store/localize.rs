//! The way back: a create body's references, visible in the fleet, become a member's own.

use std::{borrow::Cow, ops::Range};

use crate::{
    config::MemberName,
    store::{
        kind::{KindSpec, id},
        naming::Naming,
    },
};
use kubefold_wire::{
    locate::{Found, NotAnObject},
    resource::split_api_version,
    splice::{Edit, splice, string},
};

/// What a reference names, as the client wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// API group and version.
    pub group_version: (&'a str, &'a str),
    /// Kind.
    pub kind: &'a str,
    /// The namespace that it stands in or names; an owner may be cluster-scoped all the same.
    pub namespace: &'a str,
    /// Visible name.
    pub name: &'a str,
}

/// Puts a member's own names and UIDs in the place of visible ones, in the closed table of joins.
///
/// `own_uid` gives the UID that the member's part of a folded object has. A reference into another member stays as it is:
/// the member refuses it, or nobody joins by it.
///
/// Errors: the body is no JSON object.
pub fn localize(
    spec: &KindSpec,
    naming: &Naming,
    member: &MemberName,
    namespace: &str,
    document: &str,
    own_uid: impl Fn(Named<'_>) -> Option<String>,
) -> Result<Vec<u8>, NotAnObject> {
    let mut found = Vec::new();
    spec.paths.locate(document, &mut found)?;
    let mut work = Work { naming, member, namespace, document, own_uid, edits: Vec::new() };
    work.walk(&found);
    let mut out = Vec::with_capacity(document.len());
    splice(document.as_bytes(), &mut work.edits, &mut out);
    Ok(out)
}

/// What [`Work::walk`] looks at.
const REFERENCES: [u16; 12] = [
    id::ACCOUNT,
    id::ACCOUNT_UID,
    id::NODE,
    id::OBJECT,
    id::OWNER,
    id::POD_NODE,
    id::REF_API_VERSION,
    id::REF_KIND,
    id::REF_NAME,
    id::REF_NAMESPACE,
    id::REF_UID,
    id::VOLUME,
];

/// Says whether [`localize`] leaves a document as it is, whichever member it is for: it refers to nothing.
pub fn refers_to_nothing(spec: &KindSpec, document: &str) -> bool {
    let mut found = Vec::new();
    spec.paths.locate(document, &mut found).is_ok() && !found.iter().any(|item| REFERENCES.contains(&item.id))
}

struct Work<'a, F> {
    naming: &'a Naming,
    member: &'a MemberName,
    namespace: &'a str,
    document: &'a str,
    own_uid: F,
    edits: Vec<Edit<'static>>,
}

#[derive(Default)]
struct Reference {
    api_version: Option<Range<usize>>,
    kind: Option<Range<usize>>,
    namespace: Option<Range<usize>>,
    name: Option<Range<usize>>,
    uid: Option<Range<usize>>,
}

impl<F: Fn(Named<'_>) -> Option<String>> Work<'_, F> {
    fn walk(&mut self, found: &[Found]) {
        let (mut reference, mut account) = (Reference::default(), Reference::default());
        for item in found {
            let range = item.range.clone();
            match item.id {
                id::ACCOUNT => account.name = Some(range),
                id::ACCOUNT_UID => account.uid = Some(range),
                id::OWNER | id::OBJECT => self.reference(&std::mem::take(&mut reference)),
                id::REF_API_VERSION => reference.api_version = Some(range),
                id::REF_KIND => reference.kind = Some(range),
                id::REF_NAMESPACE => reference.namespace = Some(range),
                id::REF_NAME => reference.name = Some(range),
                id::REF_UID => reference.uid = Some(range),
                id::NODE | id::POD_NODE | id::VOLUME => {
                    self.own_name(range);
                }
                _ => {}
            }
        }
        self.reference(&reference);
        self.account(&account);
    }

    /// The service account of a token Secret: a member deletes one whose UID is not its own account's.
    ///
    /// Source: kubernetes `pkg/controller/serviceaccount/tokens_controller.go`.
    fn account(&mut self, account: &Reference) {
        let (Some(name), Some(at)) = (&account.name, account.uid.clone()) else { return };
        let name = self.text(Some(name));
        let named = Named { group_version: ("", "v1"), kind: "ServiceAccount", namespace: self.namespace, name: &name };
        if let Some(uid) = (self.own_uid)(named) {
            self.edits.push(Edit::new(at, string(&uid)));
        }
    }

    fn text(&self, range: Option<&Range<usize>>) -> Cow<'static, str> {
        let raw = range.and_then(|range| self.document.get(range.clone())).unwrap_or("\"\"");
        serde_json::from_str::<String>(raw).map_or(Cow::Borrowed(""), Cow::Owned)
    }

    /// Says whether the name was of this member.
    fn own_name(&mut self, at: Range<usize>) -> bool {
        let visible = self.text(Some(&at));
        match self.naming.split(&visible) {
            Some((own, member)) if member == self.member => {
                self.edits.push(Edit::new(at, string(own)));
                true
            }
            Some(_) | None => false,
        }
    }

    fn reference(&mut self, reference: &Reference) {
        let Some(name_at) = reference.name.clone() else { return };
        if self.own_name(name_at.clone()) {
            return;
        }
        let Some(uid_at) = reference.uid.clone() else { return };
        let (api_version, kind) = (self.text(reference.api_version.as_ref()), self.text(reference.kind.as_ref()));
        let (stated, name) = (self.text(reference.namespace.as_ref()), self.text(Some(&name_at)));
        let namespace = if stated.is_empty() { self.namespace } else { &stated };
        let named = Named {
            group_version: split_api_version(&api_version).unwrap_or_default(),
            kind: &kind,
            namespace,
            name: &name,
        };
        if let Some(uid) = (self.own_uid)(named) {
            self.edits.push(Edit::new(uid_at, string(&uid)));
        }
    }
}
