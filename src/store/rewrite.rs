//! Turns a member's document into a visible one: which values are found in it, and what is put in their place.

use std::{borrow::Cow, ops::Range, sync::Arc};

use crate::{
    config::MemberName,
    store::{
        entry::{Draft, Edits, Holders},
        identities::{Identities, Referent},
        kind::{KindSpec, id},
        naming::Naming,
        references::References,
        revision::Revision,
    },
};
use kubefold_wire::{
    golang::Quoted,
    locate::{Found, NotAnObject},
    resource::split_api_version,
    splice::{ObjectEdits, push_string},
};

/// Prefix of everything that kubefold adds.
const OWN_PREFIX: &str = "kubefold.io/";

/// Why a member's object cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub enum BadObject {
    /// Not an object.
    #[error(transparent)]
    Shape(#[from] NotAnObject),
    /// A field that every stored object has is missing.
    #[error("an object without metadata.{0}")]
    Missing(&'static str),
    /// The revision is no decimal number, so nothing can be ordered by it.
    #[error("metadata.resourceVersion {quoted} is not a decimal number", quoted = Quoted(.0))]
    Revision(String),
    /// It is an object, and not of the kind that was asked for.
    #[error("an object of the kind {quoted}, where {wanted} was asked for", quoted = Quoted(.found))]
    Kind {
        /// What it says.
        found: String,
        /// What the store holds.
        wanted: String,
    },
}

/// The facts of one document, borrowed from it.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) namespace: Cow<'a, str>,
    pub(super) uid: &'a str,
    pub(super) member_rv: u64,
    pub(super) created: &'a str,
    pub(super) created_at: Option<Range<usize>>,
    pub(super) deleting: bool,
    /// Items of lists of built-in kinds have none.
    pub(super) kind: Option<Cow<'a, str>>,
    name_at: Range<usize>,
    pub(super) uid_at: Range<usize>,
    pub(super) resource_version_at: Range<usize>,
    pub(super) labels_at: Option<Range<usize>>,
    pub(super) annotations_at: Option<Range<usize>>,
    pub(super) metadata_at: Range<usize>,
    /// Of a pod that runs on a node.
    pub(super) node_at: Option<Range<usize>>,
}

/// A JSON string's text. Names have no escapes; what has is decoded.
fn unquote(raw: &str) -> Cow<'_, str> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str::<String>(raw).map_or(Cow::Borrowed(inner), Cow::Owned)
}

impl<'a> Facts<'a> {
    /// Walks a document once, which was validated where it came in. What else was found stays in `found`.
    pub(super) fn read(spec: &KindSpec, document: &'a str, found: &mut Vec<Found>) -> Result<Self, BadObject> {
        Self::read_as(spec, document, found, true)
    }

    /// [`Self::read`] for what no store holds, and may so have neither UID nor revision: they lie nowhere then.
    pub(super) fn read_unstored(spec: &KindSpec, document: &'a str, found: &mut Vec<Found>) -> Result<Self, BadObject> {
        Self::read_as(spec, document, found, false)
    }

    fn read_as(spec: &KindSpec, document: &'a str, found: &mut Vec<Found>, is_stored: bool) -> Result<Self, BadObject> {
        found.clear();
        spec.paths.locate_valid(document, found)?;
        let at = |number: u16| found.iter().find(|found| found.id == number).map(|found| found.range.clone());
        let raw = |range: &Range<usize>| document.get(range.clone()).unwrap_or_default();
        let string = |number: u16| at(number).filter(|range| raw(range).starts_with('"'));
        let name_at = string(id::NAME).ok_or(BadObject::Missing("name"))?;
        let stored = |number: u16, what| match string(number) {
            None if is_stored => Err(BadObject::Missing(what)),
            range => Ok(range.unwrap_or_default()),
        };
        let uid_at = stored(id::UID, "uid")?;
        let resource_version_at = stored(id::RESOURCE_VERSION, "resourceVersion")?;
        let revision = raw(&resource_version_at).trim_matches('"');
        let digits = revision.bytes().all(|byte| byte.is_ascii_digit());
        let namespace = match string(id::NAMESPACE) {
            Some(range) => unquote(raw_of(document, range)),
            None if spec.namespaced => return Err(BadObject::Missing("namespace")),
            None => Cow::Borrowed(""),
        };
        if name_at.len() <= 2 {
            return Err(BadObject::Missing("name"));
        }
        Ok(Self {
            name: unquote(raw_of(document, name_at.clone())),
            namespace: if spec.namespaced { namespace } else { Cow::Borrowed("") },
            uid: raw_of(document, uid_at.clone()).trim_matches('"'),
            member_rv: match digits.then(|| revision.parse().ok()).flatten() {
                None if is_stored => return Err(BadObject::Revision(revision.to_owned())),
                number => number.unwrap_or_default(),
            },
            created_at: at(id::CREATION),
            created: at(id::CREATION).map_or("", |range| raw_of(document, range).trim_matches('"')),
            deleting: string(id::DELETION).is_some(),
            kind: string(id::KIND).map(|range| unquote(raw_of(document, range))),
            name_at,
            uid_at,
            resource_version_at,
            labels_at: at(id::LABELS),
            annotations_at: at(id::ANNOTATIONS),
            metadata_at: at(id::METADATA).unwrap_or_default(),
            node_at: string(id::POD_NODE),
        })
    }

    /// What a member-local object's entry is made from, with its own name, its whole document, no revision and no references.
    pub(super) fn draft<'d>(&'d self, document: &'d str, holders: Holders) -> Draft<'d> {
        Draft {
            namespace: &self.namespace,
            name: &self.name,
            suffix: [""; 3],
            document,
            lead: "",
            type_meta_len: 0,
            labels: self.labels_at.clone(),
            resource_version: self.resource_version_at.clone(),
            uid: self.uid_at.clone(),
            metadata: self.metadata_at.clone(),
            node: self.node_at.clone(),
            revision: Revision(0),
            holders,
            folded: false,
            deleting: self.deleting,
            referents: &[],
        }
    }

    pub(super) fn labels(&self, document: &'a str) -> Option<&'a str> {
        self.labels_at.clone().map(|range| raw_of(document, range))
    }

    pub(super) fn annotations(&self, document: &'a str) -> Option<&'a str> {
        self.annotations_at.clone().map(|range| raw_of(document, range))
    }
}

fn raw_of(document: &str, range: Range<usize>) -> &str {
    document.get(range).unwrap_or_default()
}

/// An annotation of kubefold's own: its value names members.
#[derive(Clone, Copy)]
pub(super) struct Note<'a> {
    pub(super) key: &'a str,
    pub(super) members: &'a [MemberName],
}

impl Note<'_> {
    /// Members' names are DNS labels: nothing in them is escaped.
    fn push_value(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        for (at, member) in self.members.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(member.as_str().as_bytes());
        }
        out.push(b'"');
    }
}

/// What rewriting needs to know beside the document.
pub(super) struct Rewriter<'a, 'r> {
    pub(super) naming: &'a Naming,
    pub(super) identities: &'a Identities,
    /// The member whose document it is.
    pub(super) member: &'a MemberName,
    /// What the document refers to.
    pub(super) refs: &'a mut References<'r>,
    /// A buffer to use again.
    pub(super) referent: &'a mut Vec<u8>,
}

impl Rewriter<'_, '_> {
    /// Puts the visible name in the place of the own one.
    pub(super) fn name(&self, is_event: bool, facts: &Facts<'_>, edits: &mut Edits) {
        self.put_name(is_event, &facts.name, facts.name_at.clone(), edits);
    }

    /// Puts kubefold's annotations in, and every other `kubefold.io/` annotation out.
    pub(super) fn annotate(document: &str, facts: &Facts<'_>, notes: &[Note<'_>], edits: &mut Edits) {
        let pairs = |out: &mut Vec<u8>| {
            for (at, note) in notes.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                push_string(note.key, out);
                out.push(b':');
                note.push_value(out);
            }
        };
        let Some(at) = facts.annotations_at.clone() else {
            // Every object has a name: what follows it is a good place.
            edits.put(facts.name_at.end..facts.name_at.end, |out| {
                out.extend_from_slice(b",\"annotations\":{");
                pairs(out);
                out.push(b'}');
            });
            return;
        };
        let annotations = raw_of(document, at.clone());
        let may_hold_own = memchr::memmem::find(annotations.as_bytes(), b"kubefold").is_some()
            || memchr::memmem::find(annotations.as_bytes(), b"\\u").is_some();
        let is_empty = annotations.get(1..).is_none_or(|rest| rest.trim_start().starts_with('}'));
        if may_hold_own || is_empty || !annotations.starts_with('{') {
            if let Ok(mut object) = ObjectEdits::new(annotations, at.start) {
                object.remove(|key| key.starts_with(OWN_PREFIX));
                for note in notes {
                    let mut text = Vec::new();
                    note.push_value(&mut text);
                    object.set(note.key, text);
                }
                object.finish().iter().for_each(|edit| edits.add(edit));
            }
            return;
        }
        edits.put(at.start + 1..at.start + 1, |out| {
            pairs(out);
            out.push(b',');
        });
    }

    /// Rewrites every reference to another object: docs/design/identity.md#joins.
    pub(super) fn references(&mut self, document: &str, facts: &Facts<'_>, found: &[Found], edits: &mut Edits) {
        let mut reference = Reference::default();
        let mut account = Reference::default();
        for item in found {
            let range = item.range.clone();
            match item.id {
                id::ACCOUNT => account.name = Some(range),
                id::ACCOUNT_UID => account.uid = Some(range),
                id::OWNER | id::OBJECT => {
                    self.reference(document, facts, &reference, edits);
                    reference = Reference { owner: item.id == id::OWNER, ..Reference::default() };
                }
                id::REF_API_VERSION => reference.api_version = Some(range),
                id::REF_KIND => reference.kind = Some(range),
                id::REF_NAMESPACE => reference.namespace = Some(range),
                id::REF_NAME => reference.name = Some(range),
                id::REF_UID => reference.uid = Some(range),
                id::NODE | id::POD_NODE => self.bare(document, "Node", range, edits),
                id::VOLUME => self.bare(document, "PersistentVolume", range, edits),
                _ => {}
            }
        }
        self.reference(document, facts, &reference, edits);
        if let (Some(name), Some(uid)) = (account.name, account.uid) {
            self.account(document, facts, name, uid, edits);
        }
    }

    /// The service account of a token Secret, after its annotations were edited. Its name is no join: the Secret's own member reads it.
    fn account(&mut self, document: &str, facts: &Facts<'_>, name: Range<usize>, uid: Range<usize>, edits: &mut Edits) {
        let (name, own) = (unquote(raw_of(document, name)), unquote(raw_of(document, uid.clone())));
        if let Some(Some(visible)) = self.folded("", "ServiceAccount", &facts.namespace, &name, Some(&own)) {
            edits.put_value(uid.clone(), raw_of(document, uid), |out| push_string(&visible, out));
        }
    }

    /// A reference that is a bare name of a cluster-scoped core kind. No such object's own name has an `@`: a name that is visible
    /// already is what a client wrote of another member.
    fn bare(&mut self, document: &str, kind: &str, at: Range<usize>, edits: &mut Edits) {
        let name = unquote(raw_of(document, at.clone()));
        if self.naming.split(&name).is_some() {
            return;
        }
        if !name.is_empty() && self.identity("", kind, "", &name, None).is_none() {
            self.rename(&name, at, edits);
        }
    }

    fn reference(&mut self, document: &str, facts: &Facts<'_>, reference: &Reference, edits: &mut Edits) {
        let text = |range: &Option<Range<usize>>| {
            range.clone().map_or(Cow::Borrowed(""), |range| unquote(raw_of(document, range)))
        };
        let (kind, name) = (text(&reference.kind), text(&reference.name));
        let Some(name_at) = reference.name.clone().filter(|_| !name.is_empty() && !kind.is_empty()) else { return };
        let api_version = text(&reference.api_version);
        let group = split_api_version(&api_version).map_or("", |(group, _)| group);
        let uid = text(&reference.uid);
        let known_uid = (!uid.is_empty()).then_some(uid.as_ref());
        // An owner is in the object's own namespace, or cluster-scoped.
        let stated = text(&reference.namespace);
        let namespaces = if reference.owner { [facts.namespace.as_ref(), ""] } else { [stated.as_ref(), ""] };
        for namespace in namespaces {
            if let Some(visible) = self.folded(group, &kind, namespace, &name, known_uid) {
                if let (Some(at), Some(uid), Some(_)) = (reference.uid.clone(), visible, known_uid) {
                    edits.put(at, |out| push_string(&uid, out));
                }
                return;
            }
            if namespace.is_empty() {
                break;
            }
        }
        self.rename(&name, name_at, edits);
    }

    /// The visible UID of a folded object, shared or placed, that is referred to. `None`: it is none; `Some(None)`: it has
    /// its own.
    fn folded(
        &mut self,
        group: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Option<Option<Arc<str>>> {
        if let Some(resource) = self.naming.shared_kind(group, kind, namespace, name) {
            let key = crate::store::naming::key(namespace, name);
            let life = self.identities.life(&format!("{group}/{resource}/{key}"));
            let shared = self.naming.shared_uid(group, resource, &key, life);
            Referent::write(self.member, group, kind, namespace, name, self.referent);
            self.refs.insert(self.referent);
            return Some(shared.map(Arc::from));
        }
        self.identity(group, kind, namespace, name, uid).map(Some)
    }

    /// The visible UID of a placed object's part, and a note that this member's documents name it.
    fn identity(
        &mut self,
        group: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Option<Arc<str>> {
        Referent::write(self.member, group, kind, namespace, name, self.referent);
        self.refs.insert(self.referent);
        if self.refs.insert_kind(group, kind) {
            self.identities.refer(group, kind);
        }
        if self.identities.is_empty() {
            return None;
        }
        self.identities.get(self.referent, uid).map(|identity| identity.visible_uid)
    }

    fn rename(&self, name: &str, at: Range<usize>, edits: &mut Edits) {
        self.put_name(false, name, at, edits);
    }

    fn put_name(&self, is_event: bool, name: &str, at: Range<usize>, edits: &mut Edits) {
        if self.naming.is_plain() {
            return;
        }
        let [own, sign, member, end] = self.naming.pieces(is_event, name, self.member);
        edits.put(at, |out| {
            push_string(own, out);
            // Before the closing quote.
            out.pop();
            [sign, member].iter().for_each(|word| out.extend_from_slice(word.as_bytes()));
            if end.is_empty() {
                out.push(b'"');
                return;
            }
            let quote = out.len();
            push_string(end, out);
            out.remove(quote);
        });
    }
}

/// Where the fields of one reference lie.
#[derive(Default)]
struct Reference {
    owner: bool,
    api_version: Option<Range<usize>>,
    kind: Option<Range<usize>>,
    namespace: Option<Range<usize>>,
    name: Option<Range<usize>>,
    uid: Option<Range<usize>>,
}
