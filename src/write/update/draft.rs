//! What a write means for each part: the same changes in each member's words, and each one's share of what is divided.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    config::{MemberName, Overrides},
    member::call::Document,
    placement::{
        merge::{Change, Take, difference, take},
        noted::{self, Note},
        overrides::Kind,
        policy::Policy,
    },
    write::{
        fleet::Fleet,
        update::{
            desired::{Desired, meant, plain_of, take_at, without_managers},
            overrider::Overrider,
            part::{Held, Manner, changed_in},
            shares::{Missing, Room, Shares, Total},
            task::{PartTask, Pending},
            work::Work,
        },
    },
};
use kubefold_wire::patch::{Action, path_of, steps};

/// What a write means for each part.
pub(super) struct Plan {
    /// How members are asked.
    pub(super) manner: Manner,
    /// The query of every request.
    pub(super) query: String,
    /// The object as its author wants it; of an apply, what is applied.
    pub(super) said: Value,
    /// The home's document, with all changes made.
    pub(super) document: Value,
    /// The home's changes.
    pub(super) home: PartTask,
    /// The same, as the fleet view shows them.
    pub(super) shown: Vec<Change>,
    /// The other parts', in their order.
    pub(super) others: Vec<PartTask>,
    /// The shares of parts that earlier writes have still to make, by the member's name.
    pub(super) coming: Vec<(String, Vec<Change>)>,
    /// The parts that are to be made.
    pub(super) missing: Vec<Missing>,
    /// What they are made of.
    pub(super) body: Option<String>,
    /// The whole that a `/scale` asks for.
    pub(super) scale: Option<u32>,
    /// The client named the revision that it changes.
    pub(super) guarded: bool,
    /// What the client should know.
    pub(super) warning: Option<String>,
    /// What is about to be asked of the quotas.
    pub(super) room: Room,
    /// The home's answer to a dry run of the client's own patch, where the home is to get just that.
    pub(super) home_dry_run: Option<Rehearsed>,
}

/// A home's answer to a dry run.
pub(super) struct Rehearsed {
    pub(super) body: Document,
    /// What that says, where it was read as it is.
    pub(super) document: Option<Value>,
}

impl<F: Fleet> Work<'_, F> {
    /// Plans a write; `patch` is the one of which the home told what it makes of it.
    pub(super) async fn draft(&self, wanted: &Desired, patch: Option<&Value>, totals: &[Total]) -> Plan {
        let (noted, rules) = (Note::read(&self.home.document), self.writer.fleet.rules());
        let documents: Vec<&Value> = self.parts().map(|part| &*part.document).collect();
        let said = noted.as_ref().map(|noted| noted.said(&wanted.before, &wanted.after, &documents));
        let said = said.unwrap_or_else(|| wanted.after.clone());
        let shares = match self.companion_shares(&wanted.after, totals).await {
            Some(shares) => shares,
            None => self.shares(totals, &said).await,
        };
        let Shares { mut tasks, coming, missing, warning, room } = shares;
        let policy = self.policy();
        let homes = overrides_in(policy, &self.home.member);
        let kind = Kind::divided(&self.key.gvk, &rules, self.divided());
        let shown = self.kept(self.said(patch, &wanted.before, &wanted.after), patch, totals);
        let texts = self.texts(wanted);
        for (task, part) in tasks.iter_mut().zip(self.parts()) {
            let localize = |text: &Bytes| self.writer.fleet.localize(self.key, &part.member, text);
            task.shared = match texts.as_ref().map(|texts| (texts, texts.each_ref().map(localize))) {
                Some((texts, local)) if local != *texts => self.changes_of(&local, wanted, patch, totals),
                _ => shown.clone(),
            };
            if self.subresource().is_empty() {
                let own = overrides_in(policy, &part.member);
                let overrider = Overrider {
                    kind,
                    member: &part.member,
                    own: &own,
                    homes: &homes,
                    noted: noted.as_ref(),
                    documents: &documents,
                };
                let changes = task.shared.clone();
                overrider.fit(&mut task.shared, &part.document, &wanted.before, &wanted.after);
                task.own.extend(self.noted_change(part, &kind, &changes, &task.shared));
            }
        }
        self.divide_status(&mut tasks);
        let mut tasks = tasks.into_iter();
        let home = tasks.next().unwrap_or_default();
        let others: Vec<PartTask> = tasks.collect();
        let document = with_all(&self.home.document, &home);
        let body = (!missing.is_empty()).then(|| self.body_of_missing(wanted, policy));
        let manner = Manner { managed_fields: wanted.managed_fields.clone(), ..self.manner() };
        let (query, guarded) = (self.request.passed_query(), wanted.guarded);
        Plan {
            manner,
            query,
            said,
            document,
            home,
            shown,
            others,
            coming,
            missing,
            body,
            scale: None,
            guarded,
            warning,
            room,
            home_dry_run: None,
        }
    }

    /// The texts of what is changed, before and after, where members may have other words for them.
    fn texts(&self, wanted: &Desired) -> Option<[Bytes; 2]> {
        if wanted.before == wanted.after {
            return None;
        }
        match [&wanted.before, &wanted.after].map(|document| self.referring(document)) {
            [None, None] => None,
            _ => Some([&wanted.before, &wanted.after].map(|document| Bytes::from(document.to_string()))),
        }
    }

    /// The text of a document, where members may have other words for it.
    pub(super) fn referring(&self, document: &Value) -> Option<Bytes> {
        let text = Bytes::from(document.to_string());
        (!self.writer.fleet.is_local(self.key, &text)).then_some(text)
    }

    /// What a part that is missing is made of, where the fleet view is to show what is wanted.
    pub(super) fn body_of_missing(&self, wanted: &Desired, policy: Option<&Policy>) -> String {
        template(self.undressed(wanted, policy))
    }

    /// The object without the overrides of its home, which no other part is to inherit. A home of an earlier version notes none, and is
    /// shown with them: a part without overrides tells what stands in their place; where there is none, what the policy adds goes.
    fn undressed(&self, wanted: &Desired, policy: Option<&Policy>) -> Value {
        if let Some(noted) = Note::read(&self.home.document) {
            let others: Vec<&Value> = self.others.iter().map(|part| &*part.document).collect();
            return noted.said(&wanted.before, &wanted.after, &others);
        }
        let homes = overrides_in(policy, &self.home.member);
        let mut whole = wanted.after.clone();
        if homes.is_empty() {
            return whole;
        }
        let (member, rules) = (&self.home.member, self.writer.fleet.rules());
        let kind = Kind::divided(&self.key.gvk, &rules, self.divided());
        let (own, homes) = (&homes, &homes);
        let overrider = Overrider { kind, member, own, homes, noted: None, documents: &[] };
        let bare = self.others.iter().find(|part| overrides_in(policy, &part.member).is_empty());
        if let Some(bare) = bare.map(|part| plain_of(&part.document)) {
            take(&difference(&overrider.overridden(&bare, homes), &bare), Take::WhereOld, &mut whole);
            return whole;
        }
        let added =
            homes.patch.iter().flat_map(|patch| patch.0.iter()).filter_map(|operation| match &operation.action {
                Action::Add(value) => Some((operation.path.as_str(), value)),
                _ => None,
            });
        for (path, value) in added {
            let mut steps = steps(path);
            let Some(key) = steps.pop() else { continue };
            let map = whole.pointer_mut(&path_of(&steps)).and_then(Value::as_object_mut);
            if let Some(map) = map.filter(|map| map.get(&key) == Some(value)) {
                map.shift_remove(&key);
            }
        }
        whole
    }

    /// How a part's note of its overrides changes with these changes: as they are `said` of the object, and as the part gets
    /// them.
    fn noted_change(&self, part: &Held, kind: &Kind<'_>, said: &[Change], gets: &[Change]) -> Option<Change> {
        if said.is_empty() {
            return None;
        }
        let waiting = Pending::of(&self.earlier_in(&part.member), &part.member).live(&self.home.document);
        if said == gets && waiting.is_empty() && Note::read(&part.document).is_none() {
            return None;
        }
        let mut overridden = (*part.document).clone();
        take(&waiting, Take::Always, &mut overridden);
        let noted = Note::read(&overridden);
        if said == gets && noted.is_none() {
            return None;
        }
        let mut base = noted.as_ref().map_or_else(|| overridden.clone(), |noted| noted.base(&overridden, &[]));
        take(said, Take::Always, &mut base);
        take(gets, Take::Always, &mut overridden);
        let after = Note::after_write(noted.as_ref(), kind, &part.member, &base, &overridden);
        (after != noted).then(|| noted::change(noted.as_ref(), after.as_ref()))
    }

    /// The changes in a member's words; `local` is what is wanted in these: before, and after.
    fn changes_of(&self, local: &[Bytes; 2], wanted: &Desired, patch: Option<&Value>, totals: &[Total]) -> Vec<Change> {
        let read = |text: &Bytes, whole: &Value| serde_json::from_slice(text).unwrap_or_else(|_| whole.clone());
        let [before, after] = local;
        let (before, after) = (read(before, &wanted.before), read(after, &wanted.after));
        self.kept(self.said(patch, &before, &after), patch, totals)
    }

    fn said(&self, patch: Option<&Value>, before: &Value, after: &Value) -> Vec<Change> {
        match patch {
            Some(patch) => meant(self.key, patch, before, after),
            None => difference(before, after),
        }
    }

    /// Without what is divided, and what is not this write's.
    fn kept(&self, mut changes: Vec<Change>, patch: Option<&Value>, totals: &[Total]) -> Vec<Change> {
        let is_divided = |change: &Change| match patch {
            Some(_) => self.divided().iter().any(|field| change.is_within(field.path)),
            None => totals.iter().any(|total| change.is_within(total.field.path)),
        };
        let without_status = self.is_without_status();
        let is_not_its = |change: &Change| without_status && change.is_within(&["status"]);
        changes.retain(|change| !is_not_its(change) && !is_divided(change));
        changes
    }
}

/// How a policy has the part in a member differ.
pub(super) fn overrides_in(policy: Option<&Policy>, member: &MemberName) -> Overrides {
    policy.map(|policy| policy.terms(member).overrides).unwrap_or_default()
}

/// What a part that is missing is made of: the object as it is to be, without what its members write.
pub(super) fn template(mut body: Value) -> String {
    take_at(&mut body, &["status"]);
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        take_at(&mut body, &["metadata", field]);
    }
    // A rollout's number is each cluster's own. Source: kubernetes `pkg/controller/deployment/util/deployment_util.go`.
    take_at(&mut body, &["metadata", "annotations", "deployment.kubernetes.io/revision"]);
    body.to_string()
}

/// A document with a task's changes made, whatever it holds, without the managers of its fields, which no member is told.
pub(super) fn with_all(document: &Value, task: &PartTask) -> Value {
    let all: Vec<Change> = task.shared.iter().chain(&task.own).cloned().collect();
    changed_in(without_managers(document), document, &all, Take::Always).0
}
