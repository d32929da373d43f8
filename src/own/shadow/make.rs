//! Creates and updates: every item is tried first, then the write is noted, then it is carried out; what cannot be finished is
//! undone.

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Shadow,
    calls::{By, Refusal, Reply},
    compose::set_generation,
    fields::carry_over,
    journal::Note,
    object::{MADE_BY, Reference, as_item, is_applied_by_kubectl, list, set_list, states, without_bodies},
    plan::{Change, Step, Way, defines, holds},
    world::Seen,
};
use crate::respond::OwnError;
use kubefold_apiserver::kinds::{Author, Carried, Composed, Propagation, Reading};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    access::{number, text},
    resource::Gvr,
    status::Status,
};

/// What a write is about, and how it is done.
struct Work<'a> {
    author: Author<'a>,
    /// The UID of the ShadowResource.
    uid: String,
    way: Way,
    steps: Vec<Step>,
}

/// What an update begins with.
#[derive(Clone, Copy)]
struct Before<'a> {
    shown: &'a Value,
    stored: &'a Value,
}

/// A write that was noted. What is dropped half-way is looked at again.
struct Unfinished<'a> {
    shadow: &'a Shadow,
    note: Option<Note>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(note) = self.note.take() {
            self.shadow.look_again(note);
        }
    }
}

impl Work<'_> {
    fn by(&self, dry_run: bool) -> By<'_> {
        By { caller: self.author.caller, dry_run, validation: self.author.validation }
    }
}

/// What has become of the steps so far: the answer to each, if there was one.
type Replies = Vec<Option<Reply>>;

impl Shadow {
    /// Makes all items of a new ShadowResource.
    ///
    /// Errors: the first item's that is refused; nothing is left of the others, or it says what.
    pub(super) async fn made(&self, author: Author<'_>, object: Value) -> Result<Carried, Status> {
        self.has_namespace(text(&object, "/metadata/namespace")).await?;
        let way = Way::of(author, is_applied_by_kubectl(&object, &Value::Null));
        let steps = self.steps_of_create(&object).await?;
        let work = Work { author, uid: text(&object, "/metadata/uid").to_owned(), way, steps };
        let (tried, mut warnings) = self.try_all(&work).await?;
        if author.dry_run {
            return Ok(dry(object, &work.steps, &tried, &[], warnings));
        }
        let replies = self.carry_out(&work, &object, &mut warnings).await?;
        self.carried(author.caller, object, &work.steps, &replies, warnings, None).await
    }

    /// Makes of what was read what is wanted.
    ///
    /// Errors: as [`Self::made`]; what was changed before an item that is refused after all stays, and is told.
    pub(super) async fn changed(
        &self,
        author: Author<'_>,
        stored: Value,
        old: &Value,
        new: Value,
    ) -> Result<Carried, Status> {
        let way = Way::of(author, is_applied_by_kubectl(&new, &stored));
        let steps = self.steps_of_update(old, &new).await?;
        let work = Work { author, uid: text(&new, "/metadata/uid").to_owned(), way, steps };
        let (tried, mut warnings) = self.try_all(&work).await?;
        if author.dry_run {
            let mut carried = dry(new, &work.steps, &tried, list(old), warnings);
            if list(&carried.shown) == list(old) {
                set_generation(&mut carried.shown, number(old, "/metadata/generation"));
            }
            return Ok(carried);
        }
        let is_nothing = work.steps.iter().all(|step| matches!(step.change, Change::Keep));
        let replies =
            if is_nothing { vec![None; work.steps.len()] } else { self.carry_out(&work, &new, &mut warnings).await? };
        let before = Before { shown: old, stored: &stored };
        self.carried(author.caller, new, &work.steps, &replies, warnings, Some(before)).await
    }

    /// What is stored and shown of a ShadowResource whose items are as these steps have left them.
    async fn carried(
        &self,
        caller: &Caller,
        mut object: Value,
        steps: &[Step],
        replies: &Replies,
        warnings: Vec<String>,
        before: Option<Before<'_>>,
    ) -> Result<Carried, Status> {
        let known_states = before.map_or(&[][..], |before| states(before.stored));
        let kept = steps.iter().zip(replies).filter(|(step, _)| !matches!(step.change, Change::Remove { .. }));
        let (mut references, mut states) = (Vec::new(), Vec::new());
        for (step, reply) in kept {
            references.push(step.reference.item());
            let uid = reply.as_ref().map(|reply| text(&reply.object, "/metadata/uid").to_owned());
            let known = known_states.iter().find(|state| Reference::of_state(state).is_same(&step.reference));
            states.push(match uid {
                Some(uid) => json!({"uid": uid}),
                None => known.cloned().unwrap_or_default(),
            });
        }
        set_list(&mut object, references);
        without_bodies(&mut object);
        if let Some(fields) = object.as_object_mut() {
            let status = fields.entry("status").or_insert_with(|| json!({}));
            status["items"] = Value::Array(states);
        }
        carry_over(&mut object, before.map(|before| before.stored));
        let raised = number(&object, "/metadata/generation");
        if let Some(before) = before {
            set_generation(&mut object, number(before.shown, "/metadata/generation"));
        }
        let Composed { mut shown, stored } = self.composed(caller, object.clone(), Reading::Live).await?;
        let mut stored = stored.unwrap_or(object);
        if before.is_some_and(|before| list(&shown) != list(before.shown)) {
            [&mut shown, &mut stored].into_iter().for_each(|object| set_generation(object, raised));
        }
        Ok(Carried { stored, shown, warnings })
    }

    /// Errors: 404.
    async fn has_namespace(&self, namespace: &str) -> Result<(), Status> {
        let is_absent = self.world().lacks_namespace(namespace).await;
        if is_absent { Err(OwnError::NoNamespace(namespace.to_owned()).into()) } else { Ok(()) }
    }

    /// A dry run of every step. What needs an earlier item is not tried, and that is told.
    ///
    /// Errors: the first step's that is refused; nothing was made.
    async fn try_all(&self, work: &Work<'_>) -> Result<(Replies, Vec<String>), Status> {
        let by = work.by(true);
        let aftermath = if work.author.dry_run { "" } else { "nothing was made or changed" };
        let (mut replies, mut warnings) = (Vec::new(), Vec::new());
        for (at, step) in work.steps.iter().enumerate() {
            let earlier = &work.steps[..at];
            let needs = earlier.iter().find(|one| holds(one, &step.reference) || defines(one, &step.reference));
            if let (Some(needed), true) = (needs, step.makes()) {
                let (what, first) = (&step.reference, &needed.reference);
                warnings.push(format!("{what} could not be tried before it is made, since it needs {first}"));
                replies.push(None);
                continue;
            }
            let reply = self.take(step, by, &work.way, &work.uid).await;
            let reply =
                reply.and_then(|reply| self.is_new(step, reply)).map_err(|status| step.refused(status, aftermath))?;
            if let Some(reply) = &reply {
                note(&mut warnings, &reply.warnings);
            }
            replies.push(reply);
        }
        Ok((replies, warnings))
    }

    /// An apply that should make an item and changes one that is there has found somebody else's.
    fn is_new(&self, step: &Step, reply: Option<Reply>) -> Result<Option<Reply>, Refusal> {
        let is_other = matches!(&step.change, Change::Make { adopts: false, .. })
            && reply.as_ref().is_some_and(|reply| reply.code == StatusCode::OK);
        if !is_other {
            return Ok(reply);
        }
        let gvr = step.place.as_ref().map_or_else(|| Gvr::new("", "", ""), |place| place.gvr.clone());
        Err(Box::new(OwnError::Exists { resource: gvr, name: step.reference.name.clone() }.into()))
    }

    /// Notes the write, and takes every step.
    ///
    /// Errors: the first step's that fails; what was made is undone.
    async fn carry_out(&self, work: &Work<'_>, object: &Value, warnings: &mut Vec<String>) -> Result<Replies, Status> {
        let note_of_write = Note {
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            uid: work.uid.clone(),
            items: work.steps.iter().filter(|step| step.makes()).map(|step| step.reference.item()).collect(),
        };
        match self.journal.begin(&note_of_write).await {
            Ok(true) => {}
            Ok(false) => {
                // Writes of one name wait for each other: this note is of one that was given up.
                if let Some(stale) = self.journal.get(&note_of_write.namespace, &note_of_write.name).await {
                    self.look_again(stale);
                }
                return Err(OwnError::Held { resource: Self::gvr(), name: note_of_write.name }.into());
            }
            Err(error) => return Err(OwnError::Unnoted(error.to_string()).into()),
        }
        // Whoever stops waiting, or is killed, leaves the note.
        let mut unfinished = Unfinished { shadow: self, note: Some(note_of_write.clone()) };
        let by = work.by(false);
        let mut replies: Replies = Vec::new();
        for step in &work.steps {
            let reply = self.take(step, by, &work.way, &work.uid).await;
            match reply.and_then(|reply| self.is_new(step, reply)) {
                Ok(reply) => {
                    if let Some(reply) = &reply {
                        note(warnings, &reply.warnings);
                    }
                    replies.push(reply);
                }
                Err(status) => {
                    if let Some(landed) = self.landed(step, &work.uid, &status).await {
                        replies.push(Some(landed));
                        continue;
                    }
                    unfinished.note = None;
                    let aftermath = self.after_failure(work, &note_of_write, &replies, &status).await;
                    return Err(step.refused(status, &aftermath));
                }
            }
        }
        unfinished.note = None;
        Ok(replies)
    }

    /// What there is of an item whose outcome is not known.
    async fn landed(&self, step: &Step, uid: &str, status: &Status) -> Option<Reply> {
        if !step.makes() || !is_unknown(status) {
            return None;
        }
        let place = step.place.as_ref()?;
        match self.asked(&Self::itself(), place, false).await {
            Seen::There(object) if made_by(&object) == uid => {
                Some(Reply { code: StatusCode::CREATED, object: *object, warnings: Vec::new() })
            }
            _ => None,
        }
    }

    /// Undoes what a write has made, and says what has become of it.
    async fn after_failure(&self, work: &Work<'_>, note: &Note, replies: &Replies, status: &Status) -> String {
        let taken = || work.steps.iter().zip(replies);
        let made: Vec<Reference> =
            taken().filter(|(step, _)| step.makes()).map(|(step, _)| step.reference.clone()).collect();
        let others = taken().filter(|(step, reply)| !step.makes() && reply.is_some()).count();
        let left = self.undone(note, &made).await;
        let mut told = Vec::new();
        if others > 0 {
            told.push(format!("{others} items before it are changed; send the same again to go on"));
        }
        match (made.is_empty(), left.is_empty()) {
            (true, _) if others == 0 => told.push("nothing was made or changed".to_owned()),
            (true, _) => {}
            (false, true) => told.push("what was made before it is undone".to_owned()),
            (false, false) => told.push(format!("what was made before it is being undone: {}", left.join("; "))),
        }
        if is_unknown(status) {
            // It may land yet: the note stays, and is looked at again.
            told.push("its outcome is not known, and it is undone if it was made".to_owned());
            self.look_again(note.clone());
        } else if left.is_empty() {
            self.journal.end(&note.namespace, &note.name).await;
        } else {
            self.look_again(note.clone());
        }
        told.join("; ")
    }

    /// Deletes items that a write has made, the last one first. Answers what is not gone yet, and why.
    pub(super) async fn undone(&self, note: &Note, items: &[Reference]) -> Vec<String> {
        let (itself, mut left) = (Self::itself(), Vec::new());
        for reference in items.iter().rev() {
            let Some(place) = self.place(reference).await else {
                if let Seen::Unknown(why) = self.world().of_no_kind(reference) {
                    left.push(format!("{reference}: {why}"));
                }
                continue;
            };
            let object = match self.asked(&itself, &place, false).await {
                Seen::There(object) if made_by(&object) == note.uid => object,
                Seen::There(_) | Seen::Absent => continue,
                Seen::Hidden => {
                    left.push(format!("{reference} cannot be read"));
                    continue;
                }
                Seen::Unknown(why) => {
                    left.push(format!("{reference}: {why}"));
                    continue;
                }
            };
            let by = By::doing(&itself);
            let uid = text(&object, "/metadata/uid");
            match self.calls.delete(by, &place, uid, "Background").await {
                Ok(Some(reply)) => {
                    let waits = kubefold_wire::access::texts(&reply.object, "/metadata/finalizers");
                    let waits: Vec<&str> = waits.collect();
                    if !waits.is_empty() {
                        left.push(format!("{reference} waits for its finalizers {}", waits.join(", ")));
                    }
                }
                Ok(None) => {}
                Err(status) => left.push(format!("{reference}: {}", status.message)),
            }
        }
        left
    }

    /// Says what is stored of a ShadowResource whose deletion is asked for: how its items go.
    ///
    /// Errors: 403, where the caller may not delete an item; nothing was deleted.
    pub(super) async fn deleted(
        &self,
        author: Author<'_>,
        mut stored: Value,
        propagation: Option<Propagation>,
    ) -> Result<Value, Status> {
        let is_going = !text(&stored, "/metadata/deletionTimestamp").is_empty();
        let how = match propagation {
            Some(Propagation::Orphan) => "Orphan",
            Some(Propagation::Foreground) => "Foreground",
            Some(Propagation::Background) | None => "Background",
        };
        if is_going {
            return Ok(stored);
        }
        if how != "Orphan" {
            let by = By { dry_run: true, ..By::doing(author.caller) };
            for (at, item) in list(&stored).iter().enumerate() {
                let reference = Reference::of(item);
                let place = self.place(&reference).await;
                let uid = states(&stored).get(at).map(|state| text(state, "/uid").to_owned()).unwrap_or_default();
                let step = Step { at, reference, place, change: Change::Remove { uid } };
                match self.take(&step, by, &Way::Difference, "").await {
                    Err(status) if status.code == StatusCode::FORBIDDEN => {
                        return Err(step.refused(status, "nothing was deleted"));
                    }
                    // What is gone, is another object, or is in a member that is down, is looked at when its turn comes.
                    _ => {}
                }
            }
        }
        if let Some(fields) = stored.as_object_mut() {
            let status = fields.entry("status").or_insert_with(|| json!({}));
            status["deletion"] = how.into();
        }
        Ok(stored)
    }
}

/// What a dry run shows.
fn dry(mut object: Value, steps: &[Step], replies: &Replies, before: &[Value], warnings: Vec<String>) -> Carried {
    let kept = steps.iter().zip(replies).filter(|(step, _)| !matches!(step.change, Change::Remove { .. }));
    let item = |(step, reply): (&Step, &Option<Reply>)| match (reply, &step.change) {
        (Some(reply), _) => as_item(reply.object.clone()),
        (None, Change::Make { item, .. } | Change::Alter { item, .. }) => item.clone(),
        (None, _) => {
            let was = before.iter().find(|was| Reference::of(was).is_same(&step.reference));
            was.cloned().unwrap_or_else(|| step.reference.item())
        }
    };
    let items = kept.map(item).collect();
    set_list(&mut object, items);
    without_bodies(&mut object);
    Carried { stored: Value::Null, shown: object, warnings }
}

fn note(warnings: &mut Vec<String>, more: &[String]) {
    for warning in more {
        if !warnings.contains(warning) {
            warnings.push(warning.clone());
        }
    }
}

/// Says whether what was asked for may have happened.
fn is_unknown(status: &Status) -> bool {
    status.code.is_server_error()
}

fn made_by(object: &Value) -> &str {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(MADE_BY)).and_then(Value::as_str).unwrap_or_default()
}
