//! A member's answer in the fleet's words.

use bytes::Bytes;
use http::StatusCode;

use crate::{
    answer::reply::Reply,
    member::call::Document,
    write::{
        fleet::{Fleet, MemberLocal},
        forward::to::{To, paired},
    },
};
use kubefold_wire::{
    locate::Paths,
    reword::reworded,
    splice::{Edit, ObjectEdits, splice, string},
    warning::Warnings,
};

/// How often a `/scale` is read again that is not of the version that the store holds.
const SCALE_READS_MAX: usize = 3;

/// What the answer to a delete says.
pub(super) struct Fate {
    /// It is a `Status`, not the object.
    pub(super) is_status: bool,
    /// The object has a `deletionTimestamp`.
    pub(super) deleting: bool,
    /// The object is no more.
    pub(super) gone: bool,
    pub(super) uid: Option<String>,
}

impl Fate {
    /// An object that nothing holds is gone, though it is shown once more with a `deletionTimestamp`.
    pub(super) fn of(answer: &Bytes) -> Self {
        let paths = Paths::new([
            (0, ["kind"].as_slice()),
            (1, &["metadata", "uid"]),
            (2, &["details", "uid"]),
            (3, &["metadata", "deletionTimestamp"]),
            (4, &["metadata", "deletionGracePeriodSeconds"]),
            (5, &["metadata", "finalizers"]),
            (6, &["apiVersion"]),
        ]);
        let (mut found, text) = (Vec::new(), std::str::from_utf8(answer).unwrap_or_default());
        // What is no object says nothing.
        let _located = paths.locate(text, &mut found);
        let raw = |id: u16| found.iter().find(|at| at.id == id).and_then(|at| text.get(at.range.clone()));
        let string = |id: u16| raw(id).and_then(|raw| serde_json::from_str::<String>(raw).ok());
        let is_status = string(0).as_deref() == Some("Status") && string(6).as_deref() == Some("v1");
        let deleting = string(3).is_some();
        let held = raw(5).is_some_and(|all| all != "null" && all != "[]") || raw(4).is_some_and(|grace| grace != "0");
        Self { is_status, deleting, gone: is_status || !deleting || !held, uid: string(1).or_else(|| string(2)) }
    }
}

impl<F: Fleet> To<'_, F> {
    /// An object that is not in the store, as the fleet view would show it: with the revision of the version that the
    /// member names if that is known, else with `otherwise`.
    pub(super) fn rendered(&self, answer: &Document, otherwise: Option<u64>) -> Bytes {
        let Some(body) = self.fleet.render(&self.key, &[(self.member.clone(), answer.bytes.clone())]) else {
            return answer.bytes.clone();
        };
        let Some(revision) = self.revision_in(answer).or(otherwise) else { return body };
        let text = std::str::from_utf8(&body).unwrap_or_default();
        let mut found = Vec::new();
        let located = Paths::new([(0, ["metadata", "uid"].as_slice())]).locate(text, &mut found);
        let Some(uid) = found.into_iter().next().filter(|_| located.is_ok()) else { return body };
        let insert = format!(",\"resourceVersion\":\"{revision}\"").into_bytes();
        spliced(&body, &mut [Edit::new(uid.range.end..uid.range.end, insert)])
    }

    /// The fleet's revision of the version that an answer of the member has.
    fn revision_in(&self, answer: &Bytes) -> Option<u64> {
        let text = std::str::from_utf8(answer).ok()?;
        let mut found = Vec::new();
        Paths::new([(0, ["metadata", "resourceVersion"].as_slice())]).locate(text, &mut found).ok()?;
        let own: String = serde_json::from_str(text.get(found.first()?.range.clone())?).ok()?;
        self.fleet_revision(own.parse().ok()?)
    }

    fn fleet_revision(&self, own: u64) -> Option<u64> {
        let Some(part) = &self.part else { return self.fleet.fleet_revision(&self.key, self.member, own) };
        let shown = &self.member_local.as_ref()?.shown;
        (part.resource_version == own.to_string()).then_some(shown.revision)
    }

    /// The same of the folded object as it is now. The whole is held for that, so that it and the part belong together.
    async fn now(&self) -> Option<Self> {
        let (shown, parts) = paired(self.fleet, &self.key).await.ok().flatten()?;
        let part = parts.into_iter().next().filter(|part| part.member == *self.member)?;
        let member_local = MemberLocal { name: self.visible.clone(), json: part.json.clone(), shown };
        let (key, visible) = (self.key.clone(), self.visible.clone());
        Some(Self { key, visible, member_local: Some(member_local), part: Some(part), ..*self })
    }

    /// The document under the name that the client used.
    pub(super) fn echoed(&self, body: Bytes) -> Bytes {
        if self.request.name == self.visible {
            return body;
        }
        renamed(&body, &["metadata", "name"], &self.request.name)
    }

    /// A `Status` of success, about the name that the client used.
    pub(super) fn status(&self, answer: &Bytes) -> Bytes {
        renamed(answer, &["details", "name"], &self.request.name)
    }

    /// A `Scale`, whose revision is that of the object.
    pub(super) async fn scale(&self, code: StatusCode, answer: &Document) -> Reply {
        let mut answer = answer.clone();
        for _ in 0..SCALE_READS_MAX {
            let now = if self.part.is_some() { self.now().await } else { None };
            if let Some(now) = now.filter(|now| now.revision_in(&answer).is_some()) {
                let body = now.scale_body(&answer).unwrap_or(answer.bytes);
                return Reply { code, warnings: Warnings::default(), body };
            }
            if self.request.method != http::Method::GET || (self.part.is_none() && self.revision_in(&answer).is_some())
            {
                break;
            }
            // Its member has written the object since: the store learns of that first.
            self.take_in(&mut Warnings::default()).await;
            match self.send(Bytes::new()).await {
                Ok((_, _, again)) => answer = again,
                Err(refused) => return refused,
            }
        }
        let body = self.scale_body(&answer).unwrap_or(answer.bytes);
        Reply { code, warnings: Warnings::default(), body }
    }

    fn scale_body(&self, answer: &Bytes) -> Option<Bytes> {
        let text = std::str::from_utf8(answer).ok()?;
        let mut found = Vec::new();
        Paths::new([(0, ["metadata"].as_slice())]).locate(text, &mut found).ok()?;
        let at = found.into_iter().next()?.range;
        let mut metadata = ObjectEdits::new(text.get(at.clone())?, at.start).ok()?;
        metadata.set("name", string(&self.request.name));
        if let (Some(_), Some(member_local)) = (&self.part, &self.member_local) {
            metadata.set("uid", string(&member_local.shown.uid));
        }
        match self.revision_in(answer) {
            Some(revision) => metadata.set("resourceVersion", string(&revision.to_string())),
            // One that nobody can tell must not be taken for a present one.
            None => metadata.remove(|key| key == "resourceVersion"),
        }
        Some(spliced(answer, &mut metadata.finish()))
    }

    /// A `TokenRequest`: what it is bound to is named as the client named it.
    pub(super) fn token(&self, code: StatusCode, answer: &Document) -> Reply {
        let bound = ["spec", "boundObjectRef"];
        let mut body = renamed(answer, &["metadata", "name"], &self.request.name);
        if let (Some(_), Some(member_local)) = (&self.part, &self.member_local) {
            body = renamed(&body, &["metadata", "uid"], &member_local.shown.uid);
        }
        for field in ["name", "uid"] {
            let path = [bound.as_slice(), &[field]].concat();
            if let Some(said) = text_at(&self.request.body, &path) {
                body = renamed(&body, &path, &said);
            }
        }
        Reply { code, warnings: Warnings::default(), body }
    }

    /// A refusal whose message tells of revisions and names of the member that stand in no quotes.
    pub(super) fn refusal(&self, reply: Reply) -> Reply {
        let name = (format!("the URL ({})", self.key.name), format!("the URL ({})", self.request.name));
        // Of a patched object that cannot be read, a kube-apiserver quotes the whole.
        let quoted = [&self.key.name, &self.request.name].map(|name| format!("\\\"{name}\\\""));
        let [own, shown] = &quoted;
        let uids = self
            .part
            .as_ref()
            .zip(self.member_local.as_ref())
            .map(|(part, member_local)| (&part.uid, &member_local.shown.uid));
        let change = |message: &str| {
            let message = message.replace(&name.0, &name.1).replace(own, shown);
            let message = uids.map_or_else(|| message.clone(), |(own, shown)| message.replace(own.as_str(), shown));
            self.with_fleet_revisions(&message)
        };
        let body = reworded(&reply.body, change).unwrap_or(reply.body);
        Reply { body, ..reply }
    }

    /// Source: kubernetes/apiserver `pkg/registry/rest/delete.go`, `BeforeDelete`; `pkg/storage/interfaces.go`,
    /// `Preconditions.Check`.
    fn with_fleet_revisions(&self, message: &str) -> String {
        let sent = self.expected_revision();
        let mut out = message.to_owned();
        for (lead, end) in [
            ("ResourceVersion in the precondition (", ')'),
            ("ResourceVersion in record (", ')'),
            ("ResourceVersion in precondition: ", ','),
            ("ResourceVersion in object meta: ", ' '),
        ] {
            let Some(start) = out.find(lead).map(|at| at + lead.len()) else { continue };
            let rest = out.get(start..).unwrap_or_default();
            let number = rest.get(..rest.find(end).unwrap_or(rest.len())).unwrap_or_default().to_owned();
            let is_sent = lead.contains("precondition");
            let fleet = |own: u64| self.fleet_revision(own);
            let told = match &sent {
                Some(sent) if is_sent => sent.clone(),
                _ => number.parse().ok().and_then(fleet).map_or_else(|| "another".to_owned(), |one| one.to_string()),
            };
            out.replace_range(start..start + number.len(), &told);
        }
        out
    }
}

/// The string at a path of a document.
pub(super) fn text_at(json: &[u8], path: &[&str]) -> Option<String> {
    let text = std::str::from_utf8(json).ok()?;
    let mut found = Vec::new();
    Paths::new([(0, path)]).locate(text, &mut found).ok()?;
    serde_json::from_str(text.get(found.first()?.range.clone())?).ok()
}

/// The document with another string at a path, if there is one.
fn renamed(json: &Bytes, path: &[&str], name: &str) -> Bytes {
    let text = std::str::from_utf8(json).unwrap_or_default();
    let mut found = Vec::new();
    let located = Paths::new([(0, path)]).locate(text, &mut found);
    match found.into_iter().next() {
        Some(at) if located.is_ok() => spliced(json, &mut [Edit::new(at.range, string(name))]),
        _ => json.clone(),
    }
}

fn spliced(json: &[u8], edits: &mut [Edit<'_>]) -> Bytes {
    let mut out = Vec::with_capacity(json.len() + 64);
    splice(json, edits, &mut out);
    out.into()
}
