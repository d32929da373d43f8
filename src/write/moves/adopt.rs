//! Member-local objects become placed ones: they get the marker, and nothing of them is made anew.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    command::Command,
    part::{Problem, Stays, problem},
    report::{LeftObject, MoveState, MovesReport, PartState},
};
use crate::{
    config::MemberName,
    member::call::{Answer, Call},
    placement::marker::{MARKER_KEY, Marker},
    respond::WriteError,
    write::{
        Writer,
        fleet::{Ask, Fleet, Key, Measure, NamedObject},
        request::{OWN_MANAGER, with_dry_run},
        steps::{Outcome, Seen, mover},
        update::MERGE_PATCH,
    },
};
use kubefold_wire::warning::Warnings;

/// An object that is to become a part.
struct Adopted {
    member: MemberName,
    cluster_uid: String,
    uid: String,
    revision: Value,
}

impl<F: Fleet> Writer<F> {
    /// Marks objects of one name in several members as the parts of one placed object. The first member's is the home, and its
    /// UID stays.
    ///
    /// Errors: the command names no object or no member.
    pub(super) async fn adopt(
        self: &Arc<Self>,
        command: &Command,
        named: &NamedObject,
    ) -> Result<MovesReport, WriteError> {
        let Some(key) = self.fleet.named(named) else {
            return Err(WriteError::KindUnknown(named.resource.clone()));
        };
        if command.members.is_empty() {
            return Err(WriteError::MemberUnnamed(self.fleet.members()));
        }
        let mut report = self.nothing_done();
        let ask = Ask { key: &key, owners: &[], pods: None, claims: &[], measure: Measure::Nothing };
        drop(self.fleet.facts(ask).await);
        let Some(hold) = self.fleet.hold(&key).await else { return Err(WriteError::Taken(key.to_ref())) };
        let adopted = self.adopt_held(&key, &command.members, command.dry_run).await;
        self.fleet.release(hold).await;
        match adopted {
            Ok(members) => report.moves.push(MoveState {
                resource: key.gvr.qualified(),
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                why: "adopt".to_owned(),
                to: members.iter().map(|member| PartState { member: member.to_string(), share: None }).collect(),
                ..MoveState::default()
            }),
            Err(Stays(why)) => report.left.push(LeftObject::of(&key, why)),
        }
        Ok(report)
    }

    /// Errors: why it cannot be adopted.
    pub(super) async fn adopt_held(
        &self,
        key: &Key,
        members: &[MemberName],
        dry: bool,
    ) -> Result<Vec<MemberName>, Stays> {
        if self.fleet.shared_uid(key).is_some() {
            return Err("every cluster has it under this name: it is one object already".into());
        }
        if self.fleet.visible(key).is_some() {
            return Err("an object of the fleet has the name already".into());
        }
        let mut all = Vec::new();
        for member in members {
            all.push(self.adoptable(key, member).await.map_err(|why| format!("member {member}: {why}"))?);
        }
        let home = all.first().ok_or("no member is named")?;
        let listed = all.iter().map(|one| (one.member.clone(), one.cluster_uid.clone())).collect();
        let Key { gvk, namespace, name, .. } = key;
        let marker = Marker::new(home.uid.clone(), gvk, namespace, name, home.member.clone(), listed);
        // All of them or none, as far as a dry run can tell.
        for one in &all {
            self.mark(key, one, &marker, true).await.map_err(|problem| format!("member {}: {problem}", one.member))?;
        }
        if !dry {
            self.journal.place(&key.gvk).await;
        }
        // The home last: it is the commit.
        for one in all.iter().rev().filter(|_| !dry) {
            self.mark(key, one, &marker, false).await.map_err(|problem| format!("member {}: {problem}", one.member))?;
        }
        Ok(members.to_vec())
    }

    async fn adoptable(&self, key: &Key, member: &MemberName) -> Result<Adopted, Stays> {
        let cluster_uid = self.fleet.cluster_uid(member).ok_or("it is not known which cluster it is")?;
        let body = match self.fleet.look(member, key).await {
            Answer::Answered { code: StatusCode::OK, body, .. } => body,
            Answer::Answered { code: StatusCode::NOT_FOUND, .. } => return Err("there is no such object".into()),
            Answer::Answered { code, .. } => return Err(Stays(format!("it answered {code}"))),
            Answer::NotSent(why) | Answer::Unknown(why) => return Err(Stays(why)),
        };
        let document: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        let owners = document.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        if owners.into_iter().flatten().any(|owner| owner["controller"] == true) {
            return Err("a controller made it: adopt its owner".into());
        }
        let seen = Seen::of(&body);
        if seen.deleting {
            return Err("it is being deleted".into());
        }
        let revision = document.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        Ok(Adopted { member: member.clone(), cluster_uid, uid: seen.uid.ok_or("it is no object")?, revision })
    }

    async fn mark(&self, key: &Key, one: &Adopted, marker: &Marker, dry: bool) -> Result<(), Problem> {
        let marker = Marker { member: one.member.clone(), ..marker.clone() };
        let annotation: Value = serde_json::from_slice(&marker.annotation_json()).unwrap_or_default();
        let patch = json!({"metadata": {
            "uid": one.uid, "resourceVersion": one.revision,
            "labels": {MARKER_KEY: marker.uid}, "annotations": {MARKER_KEY: annotation},
        }});
        let query = format!("fieldManager={OWN_MANAGER}");
        let call = Call {
            method: Method::PATCH,
            path: key.object(),
            query: if dry { with_dry_run(&query) } else { query },
            body: patch.to_string().into(),
            content_type: MERGE_PATCH.to_owned(),
            user_agent: None,
        };
        match self.mutate(&one.member, &mover(), call, dry, &mut Warnings::default()).await {
            Outcome::Done { body, .. } => {
                if !dry {
                    self.fleet.ingest(key, &one.member, &body).await;
                }
                Ok(())
            }
            outcome => Err(problem(&outcome)),
        }
    }
}
