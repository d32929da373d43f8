//! `x@east`: a create of any kind that names its member. One target, so the member's answer is the answer.

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::{
    answer::reply::{Reply, forwarded, refusal},
    config::MemberName,
    member::call::{Answer, Call},
    placement::{
        marker::Marker,
        stamp::{Stamp, stamped},
    },
    respond::{Settling, WriteError},
    write::{
        Writer,
        fleet::Fleet,
        names::{unpin, with_own_nodes},
        request::{Request, with_dry_run},
        steps::Seen,
    },
};
use kubefold_wire::{
    golang::Quoted,
    warning::{Warnings, warning_text},
};

/// What is created in one member.
#[derive(Clone, Copy)]
pub(super) struct Pinned<'a> {
    /// What the request's body calls it.
    pub(super) visible: &'a str,
    /// Its own name.
    pub(super) own: &'a str,
    /// Where.
    pub(super) member: &'a MemberName,
    /// Of what is no member-local object.
    pub(super) marker: Option<&'a Marker>,
}

/// Creates an object in one member; `json` is the request's body.
pub(super) async fn create<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    json: &str,
    what: Pinned<'_>,
) -> Result<Reply, Reply> {
    let (fleet, Pinned { visible, own, member, marker }) = (&writer.fleet, what);
    let dry = request.dry_run("CreateOptions")?;
    let (shown, key) = (request.key(visible), request.key(own));
    let plain = Bytes::from(unpin(json, visible, own));
    let local = with_own_nodes(fleet, &key, member, fleet.localize(&key, member, &plain));
    let local = local.map_err(|error| request.invalid(visible, error))?;
    let text = std::str::from_utf8(&local).unwrap_or_default();
    let body = stamped(text, Stamp { marker, name: Some(own), ..Stamp::default() }).map_err(WriteError::from)?;
    let passed = request.passed_query();
    let call = Call {
        method: Method::POST,
        path: key.collection(),
        query: if dry { with_dry_run(&passed) } else { passed },
        body: body.into(),
        content_type: String::new(),
        user_agent: request.user_agent.clone(),
    };
    let mut warnings = Warnings::default();
    let (code, body) = match fleet.call(member, &request.caller, call).await {
        Answer::Answered { code, warnings: said, body } => {
            said.iter().for_each(|header| warnings.add(&warning_text(header)));
            (code, body)
        }
        Answer::NotSent(cause) => {
            return Err(WriteError::NotSent { object: shown.to_ref(), member: member.clone(), cause }.into());
        }
        Answer::Unknown(cause) => {
            let (doing, causes) = ("creating".to_owned(), vec![format!("member {member}: {cause}")]);
            let settling = Settling::Nobody;
            return Err(WriteError::OutcomeUnknown { doing, object: shown.to_ref(), causes, settling }.into());
        }
    };
    if !code.is_success() {
        let said = Seen::of(&body).message.unwrap_or_default();
        if code == StatusCode::NOT_FOUND && said == format!("namespaces {} not found", Quoted(&key.namespace)) {
            // The fleet may well have it.
            return Err(refusal(member, code, &body, "").warned(warnings));
        }
        return Err(forwarded(member, code, &body, &key.name, visible).warned(warnings));
    }
    let mut stored = None;
    if !dry {
        fleet.ingest(&key, member, &body).await;
        // An event has another visible name than the pin's.
        let member_local = fleet.member_local(&key, member).map(|member_local| member_local.shown);
        stored = member_local.or_else(|| fleet.visible(&shown)).map(|visible| visible.body);
    }
    let body = stored.or_else(|| fleet.render(&key, &[(member.clone(), body.bytes.clone())])).unwrap_or(body.bytes);
    Ok(Reply { code, warnings, body })
}
