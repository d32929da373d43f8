//! Get, list and watch over HTTP.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/get.go`.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::{
    kinds::Kind,
    registry::{At, From, List, ListOptions, Object, Selection},
    serve::{
        ApiServer, NOT_ALLOWED,
        context::{RequestContext, Target},
        form::Form,
        json_response,
        runs::{Known, RunKey},
        watch::{self, Terms},
        writing::{OUTSIDE_BYTES, Writing, begin},
    },
    storage::Stamp,
};
use kubefold_serving::{encode::GZIP_ABOVE_BYTES, packed::Recorder};
use kubefold_wire::{
    body::Body,
    golang::Quoted,
    info::RequestInfo,
    media::{self, Encoding, Media, Negotiated, is_built_in},
    options::{self, Match, Options, query_value, too_large},
    protobuf::EncodeError,
    resource::Gvr,
    selector::FieldSelector,
    status::Status,
    token::ContinueToken,
};

/// Chunks of a list: all that it takes of memory, beside the objects' own bytes.
pub(super) const CHUNK_BYTES: usize = 128 << 10;
/// In a token: the list goes on at whatever is newest.
const NEWEST: u64 = 0;

impl ApiServer {
    pub(super) async fn read(
        &self,
        info: &RequestInfo,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
    ) -> Result<Response<Body>, Status> {
        if info.verb == "get" && info.subresource != "log" {
            options::no_export(asked.query)?;
        }
        match (info.verb.as_str(), info.subresource.as_str()) {
            ("get", "scale") => self.get_scale(target, asked, wanted).await,
            ("get", "log") => self.get_log(target, asked).await,
            ("get", "attach" | "exec" | "portforward") => self.stream(target, asked).await,
            ("get", _) => self.get(target, asked, wanted).await,
            ("list", "") => self.list(target, asked, wanted).await,
            ("watch", "") => self.watch(target, asked, wanted).await,
            _ => Err(Status::method_not_allowed(NOT_ALLOWED)),
        }
    }

    async fn get(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
    ) -> Result<Response<Body>, Status> {
        let registry = &target.registry;
        let revision = query_value(asked.query, "resourceVersion").unwrap_or_default();
        if let options::At::Revision(revision) = options::at(&revision)? {
            let newest = registry.revision().await?;
            if revision > newest {
                return Err(too_large(revision, newest));
            }
        }
        let object = registry.get(&target.kind, &target.namespace, &target.name).await?;
        self.object_response(&target.kind, &object, asked, wanted, StatusCode::OK, &[])
    }

    async fn list(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
    ) -> Result<Response<Body>, Status> {
        let kind = &target.kind;
        let gvr = Gvr::new(&kind.group, &kind.version, &kind.plural);
        let options = Options::parse(asked.query, false, &gvr)?;
        selectable(kind, asked.query)?;
        let form = self.form(kind, asked, wanted, true)?;
        let which = list_options(&options, &target.name);
        let Encoding { media, pretty, gzip, .. } = wanted.encoding;
        let of = form.message().filter(|_| media == Media::Protobuf);
        let how = Writing { form: &form, of, gzip, gvr: &gvr };
        let is_whole = of.is_some() || (media == Media::Json && !pretty && form.is_whole());
        let listed = if is_whole { self.listed_before(target, &which, &how).await } else { None };
        if let Some(Listed { stamp, known: Known::Written(written), .. }) = &listed
            && (which.limit == 0 || written.objects <= which.limit)
            && let Ok(response) = self.inner.blocks.again(&written.run, stamp.revision, &how)
        {
            return Ok(response);
        }
        let stamped = match &listed {
            Some(Listed { stamp, .. }) => {
                let which = ListOptions { at: At::Exact(stamp.revision), ..which.clone() };
                target.registry.list(kind, &target.namespace, &which).await.ok()
            }
            None => None,
        };
        let (list, recorder) = match stamped {
            Some(list) => {
                let recorder = listed.and_then(|listed| self.recorder(&list, listed));
                (list, recorder)
            }
            // The revision of the stamp may be forgotten already.
            None => match target.registry.list(kind, &target.namespace, &which).await {
                Ok(list) => (list, None),
                Err(status) => return Err(with_fresh_token(status, options.token.as_ref())),
            },
        };
        if of.is_some() {
            // What does not fit its type is written from JSON, as far as the client accepts that.
            if let Ok(response) = self.list_in_protobuf(&list, &how, recorder).await {
                return Ok(response);
            }
        } else if is_whole && (gzip || recorder.is_some()) {
            return Ok(self.inner.blocks.json(list, &how, recorder).await);
        }
        Ok(respond(list, &form, &gvr))
    }

    /// A list in protobuf, in gzip if it is large and the client takes that.
    ///
    /// Errors: an object has what its type has not.
    async fn list_in_protobuf(
        &self,
        list: &List,
        how: &Writing<'_>,
        recorder: Option<Recorder>,
    ) -> Result<Response<Body>, EncodeError> {
        if let Some(response) = self.inner.blocks.protobuf(list, how, recorder).await? {
            return Ok(response);
        }
        self.inner.messages.respond(list, how)
    }

    /// What is known of a list that has all objects of its kind, or of a namespace, as they are now. `None`: it is another list, or
    /// nobody can say whether objects changed.
    async fn listed_before(&self, target: &Target, which: &ListOptions, how: &Writing<'_>) -> Option<Listed> {
        let Target { kind, namespace, .. } = target;
        if !which.selection.is_everything() || which.after.is_some() || matches!(which.at, At::Exact(_)) {
            return None;
        }
        let stamp = target.registry.stamp(kind, namespace).await?;
        if matches!(which.at, At::NotOlder(asked) if asked > stamp.revision) {
            return None;
        }
        let (kind, namespace) = (Arc::clone(kind), namespace.clone());
        let key = RunKey { kind, namespace, is_protobuf: how.of.is_some(), is_gzip: how.gzip };
        let known = self.inner.runs.ask(&key, stamp.state);
        Some(Listed { key, stamp, known })
    }

    /// What records a list of the stamp's revision, if it is worth it.
    fn recorder(&self, list: &List, listed: Listed) -> Option<Recorder> {
        let Listed { key, stamp, known: Known::Asked } = listed else { return None };
        let is_large = list.objects.iter().map(Object::len).sum::<usize>() > GZIP_ABOVE_BYTES;
        if list.next.is_some() || !is_large || !list.objects.iter().all(Object::is_stored) {
            return None;
        }
        self.inner.runs.recorder(key, stamp.state, list.objects.len())
    }

    async fn watch(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
    ) -> Result<Response<Body>, Status> {
        let kind = &target.kind;
        let gvr = Gvr::new(&kind.group, &kind.version, &kind.plural);
        let options = Options::parse(asked.query, true, &gvr)?;
        selectable(kind, asked.query)?;
        if !wanted.encoding.media.streams() {
            return Err(media::no_stream());
        }
        let form = self.form(kind, asked, wanted, false)?;
        let registry = &target.registry;
        let initial = options.send_initial_events == Some(true);
        let newest = registry.revision().await?;
        let from = match options.at {
            options::At::Revision(asked) if asked > newest && initial => {
                return Ok(watch::refusal(&too_large(asked, newest)));
            }
            options::At::Revision(revision) if !initial => From::After(revision),
            _ if initial => From::Start,
            _ => From::After(newest),
        };
        let selection = selection(&options, &target.name);
        let events = match registry.watch(kind, &target.namespace, selection, from).await {
            Ok(events) => events,
            Err(status) => return Ok(watch::refusal(&status)),
        };
        let revision = if let From::After(revision) = from { revision } else { newest };
        let terms = Terms {
            form,
            bookmarks: options.bookmarks,
            initial_events: initial,
            timeout_seconds: options.timeout_seconds,
            revision,
            drain: self.inner.settings.drain.clone(),
        };
        Ok(watch::watch(events, terms))
    }
}

/// A list of all objects of a kind, or of a namespace, as the storage has it now.
struct Listed {
    key: RunKey,
    stamp: Stamp,
    known: Known,
}

/// What is selected. A path or a selector may name one object.
fn selection(options: &Options, name: &str) -> Selection {
    let fields = if name.is_empty() { options.fields.clone() } else { options.fields.clone().with_name(name) };
    Selection { labels: options.labels.clone(), fields }
}

/// The fields of one kind that can be selected by, beside name and namespace.
///
/// Source: kubernetes 1.36 `pkg/apis/*/*/conversion.go`, `AddFieldLabelConversionFunc`.
fn fields_of(kind: &Kind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "spec.host",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        _ => &[],
    }
}

/// Refuses to select by a field that a kube-apiserver does not select by.
///
/// Errors: 400.
pub(super) fn selectable(kind: &Kind, query: &str) -> Result<(), Status> {
    let custom: Vec<&str> = kind.selectable_fields.iter().map(String::as_str).collect();
    let known = if is_built_in(&kind.group) { fields_of(kind) } else { &custom };
    let selector = query_value(query, "fieldSelector").unwrap_or_default();
    let odd = FieldSelector::labels(&selector)
        .find(|label| !matches!(*label, "metadata.name" | "metadata.namespace") && !known.contains(label));
    let Some(odd) = odd else { return Ok(()) };
    if known.is_empty() && is_built_in(&kind.group) {
        let only = "only \"metadata.name\", \"metadata.namespace\"";
        return Err(Status::bad_request(format!("{odd} is not a known field selector: {only}", odd = Quoted(odd))));
    }
    Err(Status::bad_request(format!("field label not supported: {odd}")))
}

/// Source: kubernetes/apiserver `storage/cacher/delegator/interface.go`; a limit without a match is a legacy of it.
pub(super) fn list_options(options: &Options, name: &str) -> ListOptions {
    let selection = selection(options, name);
    let limit = options.limit.unwrap_or_default();
    if let Some(token) = &options.token {
        return ListOptions {
            selection,
            at: if token.revision == NEWEST { At::Newest } else { At::Exact(token.revision) },
            limit,
            after: Some(token.after.clone()),
            known_remaining: token.remaining,
        };
    }
    let at = match options.at {
        options::At::Revision(revision) => match options.matching {
            Match::Exact => At::Exact(revision),
            Match::Unset if options.limit.is_some() => At::Exact(revision),
            Match::Unset | Match::NotOlderThan => At::NotOlder(revision),
        },
        options::At::Newest | options::At::Any => At::Newest,
    };
    ListOptions { selection, at, limit, after: None, known_remaining: None }
}

/// 410 with a token that goes on behind the same object, at whatever is newest then.
///
/// Source: kubernetes/apiserver `pkg/storage/etcd3/errors.go`.
fn with_fresh_token(status: Status, token: Option<&ContinueToken>) -> Status {
    let Some(token) = token.filter(|_| status.code == StatusCode::GONE) else { return status };
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.continue_token = ContinueToken::new(token.resource.clone(), NEWEST, token.after.clone(), None).encode();
    status
}

/// A list as an answer, a chunk at a time.
pub(super) fn respond(list: List, form: &Form, gvr: &Gvr) -> Response<Body> {
    let mut head = Vec::with_capacity(room_for(&list.objects));
    begin(&list, form, gvr, &mut head);
    let state = (head, list.objects.into_iter(), form.clone(), true, false);
    let chunks = futures::stream::unfold(state, |(mut out, mut objects, form, mut first, done)| async move {
        if done {
            return None;
        }
        let done = fill(&mut out, &mut objects, &form, &mut first);
        let chunk = Bytes::from(std::mem::take(&mut out));
        Some((Ok::<_, Infallible>(Frame::data(chunk)), (out, objects, form, first, done)))
    });
    let body = StreamBody::new(chunks).map_err(|never| match never {});
    json_response(body.boxed_unsync())
}

/// Appends items until the next does not fit into the chunk; says whether these were the last. One that is larger than a chunk
/// has one of its own.
fn fill(out: &mut Vec<u8>, objects: &mut std::vec::IntoIter<Object>, form: &Form, first: &mut bool) -> bool {
    if out.capacity() == 0 {
        out.reserve(room_for(objects.as_slice()));
    }
    while let Some(object) = objects.as_slice().first() {
        if !out.is_empty() && out.len() + object.len() > CHUNK_BYTES {
            return false;
        }
        out.push(if std::mem::take(first) { b'[' } else { b',' });
        form.item(object, out);
        objects.next();
    }
    form.end_list(*first, out);
    true
}

/// What the next chunk takes. Units: bytes.
fn room_for(left: &[Object]) -> usize {
    let mut bytes = OUTSIDE_BYTES;
    for object in left {
        bytes += object.len();
        if bytes > CHUNK_BYTES {
            return CHUNK_BYTES + OUTSIDE_BYTES;
        }
    }
    bytes
}
