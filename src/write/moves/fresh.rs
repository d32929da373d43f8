//! Where a create of an object would place it now.

use std::collections::BTreeMap;

use http::Method;
use serde_json::Value;

use crate::{
    config::MemberName,
    placement::{
        plan::{Candidate, Plan},
        policy::{PLACE_ON_KEY, POLICY_KEY},
    },
    write::{
        Writer,
        create::Draft,
        fleet::{Fleet, Measure},
        moves::{body::body_of, object::Object, part::Stays},
        plan::asked,
        quotas::pods_of,
        request::Request,
        steps::mover,
        workloads::{POD, documents},
    },
};
use kubefold_wire::{locate::value_at, matching::ObjectSelector, resource::Gvr};

/// How many pods are looked at without a pause.
const PODS_AT_ONCE: usize = 64;

/// A plan that nothing of an object is in the way of.
pub(super) struct Fitting {
    pub(super) plan: Plan,
    /// How many replicas fit in the members of which that is known, those included that are there.
    pub(super) rooms: BTreeMap<MemberName, u32>,
}

impl<F: Fleet> Writer<F> {
    /// The plan that a create of the object would have now, and the members that lack its namespace.
    ///
    /// Errors: no member can take it.
    pub(super) async fn fresh(
        &self,
        object: &Object,
        without: Option<&MemberName>,
    ) -> Result<(Plan, Vec<MemberName>), Stays> {
        let key = &object.key;
        let request = self.request_of(object)?;
        let draft = Draft::read(&request, self.fleet.rules().kinds()).map_err(|error| error.to_string())?;
        let asked = asked(self, &request, &draft, key, Measure::Nothing).await;
        let mut asked = asked.map_err(|error| error.to_string())?;
        asked.cap(&pods_of(&object.parts));
        if asked.policy.weights.are_measured() {
            self.add_own(object, &mut asked.facts.candidates).await;
        }
        asked.facts.candidates.retain(|candidate| without != Some(&candidate.name));
        asked.facts.sticky = asked.facts.sticky.filter(|sticky| without != Some(sticky));
        let lacks = asked.facts.candidates.iter().filter(|candidate| !candidate.has_namespace);
        let lacks = lacks.map(|candidate| candidate.name.clone()).collect();
        let plan = asked.plan_of(&draft, key, &object.marker.uid).map_err(|unplaced| unplaced.error.to_string())?;
        Ok((plan, lacks))
    }

    /// The same where no member gets more than its nodes have room for.
    ///
    /// Errors: no members can take all of it.
    pub(super) async fn fitting(&self, object: &Object) -> Result<Fitting, Stays> {
        let key = &object.key;
        let request = self.request_of(object)?;
        let draft = Draft::read(&request, self.fleet.rules().kinds()).map_err(|error| error.to_string())?;
        let asked = asked(self, &request, &draft, key, Measure::Always).await;
        let mut asked = asked.map_err(|error| error.to_string())?;
        asked.cap(&pods_of(&object.parts));
        self.add_own(object, &mut asked.facts.candidates).await;
        // Of a kind that makes no pods nothing is known.
        let room = |one: &Candidate| Some((one.name.clone(), one.capacity.filter(|_| draft.pod.is_some())?.replicas));
        let rooms: BTreeMap<MemberName, u32> = asked.facts.candidates.iter().filter_map(room).collect();
        for (member, terms) in &mut asked.policy.terms {
            let room = rooms.get(member).copied();
            terms.max = terms.max.into_iter().chain(room).min();
        }
        let plan = asked.plan_of(&draft, key, &object.marker.uid).map_err(|unplaced| unplaced.error.to_string())?;
        Ok(Fitting { plan, rooms })
    }

    /// The create that would make the object as it is.
    fn request_of(&self, object: &Object) -> Result<Request, Stays> {
        let key = &object.key;
        let body = body_of(key, &object.visible.body, &object.parts).ok_or("it is no object")?;
        let mut document: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        let rules = self.fleet.rules();
        // One that is gone from the configuration says nothing any more.
        let policy = object.marker.policy.clone().filter(|name| rules.has_policy(name));
        if let Some(annotations) = document.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            let inputs = [(POLICY_KEY, policy), (PLACE_ON_KEY, object.marker.place_on.clone())];
            annotations.extend(inputs.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?.into()))));
        }
        Ok(Request {
            caller: mover(),
            method: Method::POST,
            gvr: key.gvr.clone(),
            gvk: key.gvk.clone(),
            namespace: key.namespace.clone(),
            name: String::new(),
            subresource: String::new(),
            query: String::new(),
            content_type: "application/json".to_owned(),
            user_agent: None,
            refusing: Vec::new(),
            body: document.to_string().into(),
        })
    }

    /// Counts as free what the object itself takes: that it has.
    async fn add_own(&self, object: &Object, candidates: &mut [Candidate]) {
        let own = self.scheduled(object).await;
        for candidate in candidates {
            let Some(capacity) = &mut candidate.capacity else { continue };
            capacity.add_own(own.get(&candidate.name).copied().unwrap_or(0));
        }
    }

    /// How many pods of a workload are on a node, in each member.
    async fn scheduled(&self, object: &Object) -> BTreeMap<MemberName, u32> {
        let mut counts = BTreeMap::new();
        let shown: Value = serde_json::from_slice(&object.visible.body).unwrap_or_default();
        let Some(selector) = shown.pointer("/spec/selector").and_then(pod_selector) else { return counts };
        let (group, version, resource, _) = POD;
        let pods = Gvr::new(group, version, resource);
        for (at, pod) in self.fleet.labelled(&pods, &object.key.namespace, &selector).await.into_iter().enumerate() {
            if at % PODS_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
            for (member, json) in documents(&pod) {
                let has_node = value_at(json, &["spec", "nodeName"]).is_some_and(|name| name != "\"\"");
                let has_ended = matches!(value_at(json, &["status", "phase"]), Some("\"Succeeded\"" | "\"Failed\""));
                if has_node && !has_ended {
                    *counts.entry(member.clone()).or_default() += 1;
                }
            }
        }
        counts
    }
}

/// A selector of pods: a ReplicationController has labels alone.
fn pod_selector(selector: &Value) -> Option<ObjectSelector> {
    let is_plain = selector.as_object()?.values().all(Value::is_string);
    let selector = if is_plain { serde_json::json!({ "matchLabels": selector }) } else { selector.clone() };
    ObjectSelector::of(&selector).filter(|selector| !selector.is_empty())
}
