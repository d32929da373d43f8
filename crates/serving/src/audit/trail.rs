//! One request's way through the audit log.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, Response, Uri, header};
use http_body::Body as _;
use tokio::sync::mpsc::OwnedPermit;

use super::{
    Notes,
    event::{Event, Micros, ResponseStatus, Stage},
    log::{AuditLog, Line},
};
use crate::{caller::Caller, network::Network, upgrade::OnceUpgraded};
use kubefold_wire::{
    body::{Body, holding},
    info::RequestInfo,
    status::Failure,
};

/// Source: kubernetes/apiserver `pkg/server/config.go`, `LongRunningFunc`.
const LONG_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Addresses of a request at most.
const ADDRESSES_MAX: usize = 16;
const USER_AGENT_BYTES_MAX: usize = 1024;

/// A request as it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its `Audit-ID`.
    pub id: &'a HeaderValue,
    /// Its method.
    pub method: &'a Method,
    /// What it asks for, as it was sent.
    pub uri: &'a Uri,
    /// The path that says which object it is about, if that is not the URI's.
    pub path: &'a str,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Who sent it.
    pub peer: Option<IpAddr>,
}

/// The queue of the audit log is full, so that the request must not be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct Full;

/// A request of which events are written. Its last event is written when it is dropped.
#[derive(Debug)]
pub struct Trail {
    log: Arc<AuditLog>,
    event: Box<Event>,
    omitted: Vec<Stage>,
    /// For the last event of a write.
    place: Option<OwnedPermit<Line>>,
    notes: Notes,
    is_long: bool,
}

impl AuditLog {
    /// Begins the trail of a request, whose caller is known by now; `acting` is whom he asks to be. `None`: the policy wants
    /// none of it.
    ///
    /// Errors: the queue is full, and the request may change something.
    pub fn begin(
        self: &Arc<Self>,
        arrival: Arrival<'_>,
        caller: Option<&Caller>,
        acting: Option<&Caller>,
    ) -> Result<Option<Trail>, Full> {
        let Arrival { id, method, uri, path, headers, peer } = arrival;
        let info = RequestInfo::of(method, path, uri.query());
        // A path that is none is refused; its event says what was sent.
        let info = info.unwrap_or_else(|_| RequestInfo {
            path: path.to_owned(),
            verb: verb(method),
            ..RequestInfo::default()
        });
        let Some(omitted) = self.policy.load().omitted(caller, &info) else { return Ok(None) };
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let mut event = Event::new(&text(id), target, &info, source_ips(headers, peer, &self.proxies));
        event.user = caller.map(Into::into).unwrap_or_default();
        event.impersonated_user = acting.map(Into::into);
        event.user_agent = headers.get(header::USER_AGENT).map(text).unwrap_or_default();
        event.user_agent.truncate(event.user_agent.floor_char_boundary(USER_AGENT_BYTES_MAX));
        let is_read = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let place = if is_read || caller.is_none() {
            None
        } else {
            Some(self.lines.clone().try_reserve_owned().map_err(|_| Full)?)
        };
        let is_long = info.verb == "watch" || LONG_SUBRESOURCES.contains(&info.subresource.as_str());
        let trail =
            Trail { log: Arc::clone(self), event: Box::new(event), omitted, place, notes: Notes::default(), is_long };
        trail.write(Stage::RequestReceived);
        Ok(Some(trail))
    }
}

impl Trail {
    /// Where to note more about the request.
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// Notes that the code panicked that should have answered.
    pub fn panicked(&self) {
        self.write(Stage::Panic);
    }

    /// Takes the answer, and follows it to its end.
    pub fn answered(mut self, mut response: Response<Body>) -> Response<Body> {
        let failure = response.extensions().get::<Failure>();
        self.event.response_status = Some(ResponseStatus::new(response.status().as_u16(), failure));
        if self.is_long {
            self.write(Stage::ResponseStarted);
        }
        if let Some(once) = response.extensions_mut().remove::<OnceUpgraded>() {
            response.extensions_mut().insert(once.holding(self));
            return response;
        }
        match response.body().size_hint().exact() {
            // Whole already: its end is not waited for.
            Some(_) => response,
            None => response.map(|body| holding(body, self)),
        }
    }

    /// The event as of now, if this stage is logged.
    fn line(&self, stage: Stage) -> Option<Line> {
        if self.omitted.contains(&stage) {
            return None;
        }
        let mut event = self.event.clone();
        (event.stage, event.stage_timestamp) = (stage, Micros::now());
        let noted = self.notes.0.lock();
        event.annotations.clone_from(&noted.annotations);
        if let Some(object) = event.object_ref.as_mut().filter(|object| object.name.is_empty()) {
            object.name.clone_from(&noted.name);
        }
        drop(noted);
        let mut line = serde_json::to_vec(&event).ok()?;
        line.push(b'\n');
        Some(line)
    }

    fn write(&self, stage: Stage) {
        if let Some(line) = self.line(stage)
            && self.log.lines.try_send(line).is_err()
        {
            self.log.counts.lose();
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        match self.place.take() {
            Some(place) => drop(self.line(Stage::ResponseComplete).map(|line| place.send(line))),
            None => self.write(Stage::ResponseComplete),
        }
    }
}

fn verb(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

/// Where a request comes from: first who sent it to the proxies, if they may say so, last who sent it here.
///
/// Source: kubernetes/apimachinery `pkg/util/net/http.go`, `SourceIPs`, which believes everybody.
fn source_ips(headers: &HeaderMap, peer: Option<IpAddr>, proxies: &[Network]) -> Vec<String> {
    let Some(peer) = peer.map(|peer| peer.to_canonical()) else { return Vec::new() };
    let mut sources = Vec::new();
    if proxies.iter().any(|network| network.has(peer)) {
        let said = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let addresses = said.flat_map(|value| value.split(',')).filter_map(|one| one.trim().parse::<IpAddr>().ok());
        sources.extend(addresses.take(ADDRESSES_MAX).map(|address| address.to_string()));
    }
    let last = peer.to_string();
    if sources.last() != Some(&last) {
        sources.push(last);
    }
    sources
}
