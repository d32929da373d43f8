//! Writes with one target: the member's answer is the answer.
//!
//! The request is put into the member's words ([`inward`]) and its answer into the fleet's ([`outward`]); between them is one
//! request, sent once.

mod inward;
mod json_patch;
mod outward;
mod to;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::{
    answer::reply::{Reply, forwarded},
    config::MemberName,
    member::call::{Answer, Call, Document},
    respond::{Settling, WriteError},
    write::{
        GONE_WITHIN, Writer,
        evict::guard,
        fleet::{Fleet, Key, MemberLocal, Part, Visible},
        forward::{outward::Fate, to::To},
        request::Request,
    },
};
use kubefold_wire::warning::{Warnings, warning_text};

pub(super) use to::paired;

/// Answers a write.
pub(super) async fn forward<F: Fleet>(
    writer: &Arc<Writer<F>>,
    request: &Request,
    own: &str,
    member: &MemberName,
) -> Reply {
    let to = To::new(&writer.fleet, request, own, member);
    let pod = to.member_local.as_ref().map(|pod| &*pod.json);
    // Until the eviction was answered.
    let _held = match guard(writer, request, pod).await {
        Ok(held) => held,
        Err(error) => return error.into(),
    };
    to.answer().await.unwrap_or_else(|reply| reply)
}

/// Answers a request to a subresource of a folded object: its home is asked. `whole` is what [`paired`] gave.
pub(super) async fn forward_home<F: Fleet>(
    fleet: &F,
    request: &Request,
    key: &Key,
    shown: Visible,
    part: Part,
) -> Reply {
    let member = part.member.clone();
    let member_local = MemberLocal { name: key.name.clone(), json: part.json.clone(), shown };
    let to = To {
        fleet,
        request,
        member: &member,
        key: key.clone(),
        visible: key.name.clone(),
        member_local: Some(member_local),
        part: Some(part),
    };
    to.answer().await.unwrap_or_else(|reply| reply)
}

impl<F: Fleet> To<'_, F> {
    async fn answer(&self) -> Result<Reply, Reply> {
        let body = self.inward()?;
        let dry = self.is_dry(&body);
        let (code, mut warnings, answer) = self.send(body).await?;
        let reply = match (&self.request.method, self.request.subresource.as_str()) {
            (&Method::DELETE, "") => self.deleted(code, &answer, dry, &mut warnings).await,
            (&Method::GET, "scale") => Box::pin(self.scale(code, &answer)).await,
            (_, "scale") => {
                if !dry {
                    self.take_in(&mut warnings).await;
                }
                Box::pin(self.scale(code, &answer)).await
            }
            (_, "eviction" | "binding") => {
                if !dry {
                    self.take_in(&mut warnings).await;
                }
                Reply { code, warnings: Warnings::default(), body: answer.bytes }
            }
            (_, "token") => self.token(code, &answer),
            _ => self.object(code, &answer, dry, &mut warnings).await,
        };
        Ok(reply.warned(warnings))
    }

    /// Sends the request, once.
    ///
    /// Errors: the member refused it, could not be reached, or did not say.
    async fn send(&self, body: Bytes) -> Result<(StatusCode, Warnings, Document), Reply> {
        let request = self.request;
        let call = Call {
            method: request.method.clone(),
            path: self.key.object().then(&request.subresource),
            query: request.forwarded_query(),
            body,
            content_type: if request.method == Method::PATCH { request.content_type.clone() } else { String::new() },
            user_agent: request.user_agent.clone(),
        };
        let shown = request.key(&request.name);
        let mut warnings = Warnings::default();
        match self.fleet.call(self.member, &request.caller, call).await {
            Answer::Answered { code, warnings: said, body } => {
                said.iter().for_each(|header| warnings.add(&warning_text(header)));
                if code.is_success() {
                    return Ok((code, warnings, body));
                }
                Err(self.refusal(forwarded(self.member, code, &body, &self.key.name, &request.name)).warned(warnings))
            }
            Answer::NotSent(cause) => {
                Err(WriteError::NotSent { object: shown.to_ref(), member: self.member.clone(), cause }.into())
            }
            Answer::Unknown(cause) if request.method == Method::GET => {
                Err(WriteError::NoAnswer { object: shown.to_ref(), member: self.member.clone(), cause }.into())
            }
            Answer::Unknown(cause) => {
                let (doing, causes) = (self.doing(), vec![format!("member {}: {cause}", self.member)]);
                let (object, settling) = (shown.to_ref(), Settling::Nobody);
                Err(WriteError::OutcomeUnknown { doing, object, causes, settling }.into())
            }
        }
    }

    /// What the request does, for people.
    fn doing(&self) -> String {
        let verb = match self.request.method {
            Method::DELETE => "deleting",
            Method::POST => "posting to",
            Method::PATCH => "patching",
            _ => "updating",
        };
        let subresource = &self.request.subresource;
        if subresource.is_empty() { verb.to_owned() } else { format!("{verb} /{subresource} of") }
    }

    /// Answers with the object as the store has it now that the answer is in it; after a dry run, as it would be.
    async fn object(&self, code: StatusCode, answer: &Document, dry: bool, warnings: &mut Warnings) -> Reply {
        if dry {
            return Reply { code, warnings: Warnings::default(), body: self.echoed(self.rendered(answer, None)) };
        }
        // An update that takes the last finalizer from a deleted object ends it.
        let fate = Fate::of(answer);
        if fate.deleting && fate.gone {
            return self.deleted(code, answer, dry, warnings).await;
        }
        self.fleet.ingest(&self.key, self.member, answer).await;
        let shown = self.fleet.member_local(&self.key, self.member).map(|member_local| member_local.shown);
        let body = match shown.filter(|shown| fate.uid.as_ref().is_none_or(|uid| *uid == shown.uid)) {
            Some(shown) => shown.body,
            None => self.rendered(answer, self.held_revision()),
        };
        Reply { code, warnings: Warnings::default(), body: self.echoed(body) }
    }

    /// Answers a delete: what is held by a finalizer is shown, what is gone has left the store.
    async fn deleted(&self, code: StatusCode, answer: &Document, dry: bool, warnings: &mut Warnings) -> Reply {
        let fate = Fate::of(answer);
        let mut shown = None;
        if fate.deleting && !fate.gone && !dry {
            self.fleet.ingest(&self.key, self.member, answer).await;
            let member_local = self.fleet.member_local(&self.key, self.member);
            shown = member_local
                .map(|member_local| member_local.shown)
                .filter(|shown| fate.uid.as_ref() == Some(&shown.uid));
        }
        if fate.gone && !dry {
            let uid = fate.uid.as_deref().or_else(|| self.uid());
            self.wait_gone(uid, warnings).await;
        }
        let body = match shown {
            _ if fate.is_status => self.status(answer),
            Some(shown) if shown.deleting => self.echoed(shown.body),
            Some(_) | None => self.echoed(self.rendered(answer, self.held_revision())),
        };
        Reply { code, warnings: Warnings::default(), body }
    }

    /// The revision of what was held when the write began: of an object that is no more there is none after it.
    fn held_revision(&self) -> Option<u64> {
        self.member_local.as_ref().map(|member_local| member_local.shown.revision)
    }

    /// Brings the object into the store after a write whose answer is not it. kubefold itself asks: what it sees goes to
    /// nobody.
    async fn take_in(&self, warnings: &mut Warnings) {
        match self.fleet.look(self.member, &self.key).await {
            Answer::Answered { code: StatusCode::OK, body, .. } => {
                self.fleet.ingest(&self.key, self.member, &body).await;
            }
            Answer::Answered { code: StatusCode::NOT_FOUND, .. } => {
                self.wait_gone(self.uid(), warnings).await;
            }
            Answer::Answered { .. } | Answer::NotSent(_) | Answer::Unknown(_) => warnings.add(&format!(
                "it is done, but member {} could not be asked for the object: reads may show its last state for a moment",
                self.member
            )),
        }
    }

    async fn wait_gone(&self, uid: Option<&str>, warnings: &mut Warnings) {
        let Some(uid) = uid else { return };
        if !self.fleet.wait_gone(&self.key, self.member, uid, GONE_WITHIN).await {
            let (shown, member) = (self.request.key(&self.request.name), self.member);
            warnings.add(&format!("{shown} is deleted in member {member}, but its watch has not said so yet"));
        }
    }
}
