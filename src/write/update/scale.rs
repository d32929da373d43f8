//! `/scale` of a folded object: the whole is asked for, and divided.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    answer::reply::{Reply, refusal},
    member::call::{Answer, Call},
    placement::divided::{Division, Field, REPLICAS},
    respond::WriteError,
    write::{
        fleet::Fleet,
        steps::Outcome,
        update::{
            desired::{self, Desired, JSON_PATCH, check_preconditions, object, plain_of},
            draft::Plan,
            part::{How, Rewrite, SCALE},
            shares::{DesiredReplicas, Total},
            work::{NOTHING_CHANGED, Stop, Work, unreachable},
        },
    },
};
use kubefold_wire::{patch::merge_into, warning::Warnings};

impl<F: Fleet> Work<'_, F> {
    /// Answers a `GET`.
    pub(super) async fn read_scale(&self) -> Result<Reply, Reply> {
        let call = Call {
            method: Method::GET,
            path: self.key.object().then(SCALE),
            query: String::new(),
            content_type: String::new(),
            body: Bytes::new(),
            user_agent: self.request.user_agent.clone(),
        };
        let home = &self.home.member;
        match self.writer.fleet.call(home, &self.request.caller, call).await {
            Answer::Answered { code, body, .. } if code.is_success() => Ok(self.scaled(code, &body, None)?),
            Answer::Answered { code, body, .. } => Err(refusal(home, code, &body, "")),
            Answer::NotSent(cause) | Answer::Unknown(cause) => {
                Err(WriteError::ScaleUnread { object: self.key.to_ref(), home: home.clone(), cause }.into())
            }
        }
    }

    /// A member's answer as the fleet's: of the whole, with its name, UID and revision.
    pub(super) fn scaled(&self, code: StatusCode, answer: &Bytes, total: Option<u32>) -> Result<Reply, WriteError> {
        let scale = serde_json::from_slice(answer);
        let mut scale: Value = scale.map_err(|_| WriteError::Internal("a scale is no object"))?;
        let replicas = total.map(Value::from).or_else(|| self.shown.pointer(self.scaled_field().pointer).cloned());
        // Go leaves a 0 out of the spec, and shows one in the status.
        let replicas = replicas.filter(|number| number.as_u64() != Some(0)).unwrap_or_default();
        merge_into(&mut scale, desired::nested(REPLICAS.path, replicas));
        let status = self.counted().unwrap_or_else(|| 0.into());
        let (uid, revision) = (&self.visible.uid, self.visible.revision.to_string());
        let known = json!({"metadata": {"uid": uid, "resourceVersion": revision}, "status": {"replicas": status}});
        merge_into(&mut scale, known);
        Ok(Reply { code, warnings: Warnings::default(), body: Bytes::from(scale.to_string()) })
    }

    /// The field of the object that its scale is about.
    pub(super) fn scaled_field(&self) -> Field {
        self.writer.division(self.key).and_then(Division::scaled).unwrap_or(REPLICAS)
    }

    /// How many replicas there are, as the scale's status has it.
    fn counted(&self) -> Option<Value> {
        let Some(Division::Declared(declared)) = self.writer.division(self.key) else {
            return self.shown.pointer("/status/replicas").cloned();
        };
        let counter = declared.counters().first()?;
        self.shown.pointer(&format!("/status/{}", counter.join("/"))).cloned()
    }

    /// The scale as a client sees it before it changes it.
    fn shown_scale(&self) -> Value {
        let of = |pointer: &str| self.shown.pointer(pointer).cloned().unwrap_or_default();
        json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                "name": self.key.name,
                "namespace": self.key.namespace,
                "uid": self.visible.uid,
                "resourceVersion": self.visible.revision.to_string(),
                "creationTimestamp": of("/metadata/creationTimestamp"),
            },
            "spec": {"replicas": of(self.scaled_field().pointer)},
            "status": {"replicas": self.counted()},
        })
    }

    /// Plans a write to `/scale`.
    pub(super) async fn plan_scale(&self) -> Result<Plan, Stop> {
        let is_json_patch = self.request.content_type == JSON_PATCH && self.how() != How::Put;
        let (scale, named) = if self.how() == How::Put {
            let body = object(&self.request.body)?;
            (body.clone(), body)
        } else {
            // A Scale has no lists: a strategic merge patch of it is a merge patch.
            let scale = desired::patched(self.request, &self.shown_scale())?;
            let named = if is_json_patch { scale.clone() } else { object(&self.request.body)? };
            (scale, named)
        };
        let text = |field: &str| {
            let value = named.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
            value.filter(|value| !value.is_empty() && *value != "0").map(str::to_owned)
        };
        let (revision, uid) = (text("resourceVersion"), text("uid"));
        check_preconditions(self.key, &self.visible, revision.as_deref(), uid.as_deref())?;
        // An unset number is 0 here: a Scale has no default.
        let asked =
            scale.pointer(REPLICAS.pointer).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| 0.into());
        let field = self.scaled_field();
        let asked = desired::nested(field.path, asked);
        let guarded = revision.is_some() && !is_json_patch;
        let as_shown = plain_of(&self.shown);
        let wanted = Desired { before: as_shown.clone(), after: as_shown, guarded, managed_fields: None };
        let Some(total @ Total { asked: DesiredReplicas::Number(number), .. }) = Total::read(&asked, field) else {
            return Err(self.refused_by_home(&asked).await);
        };
        let unchanged = self.shown.pointer(field.pointer).and_then(Value::as_u64) == Some(number.into());
        let totals = if unchanged && self.coming().is_empty() { Vec::new() } else { vec![total] };
        let mut plan = Box::pin(self.draft(&wanted, None, &totals)).await;
        plan.scale = Some(number);
        Ok(plan)
    }

    /// What no number is, the home says in its own words.
    async fn refused_by_home(&self, asked: &Value) -> Stop {
        let mut after = (*self.home.document).clone();
        merge_into(&mut after, asked.clone());
        let member = &self.home.member;
        let rewrite = Rewrite { before: &self.home.document, after: &after, revision: None };
        let (manner, query, mut said) = (self.manner(), self.request.passed_query(), Warnings::default());
        let asking = self.asking(&manner, &query);
        match self.writer.write_part(asking, member, rewrite, true, &mut said).await {
            Outcome::Refused { code, body } => refusal(member, code, &body, NOTHING_CHANGED).into(),
            Outcome::NotSent(cause) | Outcome::Unknown(cause) => unreachable(self.key, member, cause).into(),
            Outcome::Done { .. } => WriteError::Replicas.into(),
        }
    }
}
