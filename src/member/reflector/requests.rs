//! What a reflector asks its member for, and how the answers are read.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    member::{
        admission::PageRoom,
        reflector::{Reflector, error::SessionError, progress::Progress},
    },
    placement::marker::MARKER_KEY,
    upstream::{Class, Failure, Outgoing, UpResponseBody, UpstreamError, collect},
};
use kubefold_wire::{body::empty, list::split, path::ApiPath, resource::Gvr};

/// Items asked for in one page of a member's list. Source: client-go's pager.
pub(super) const PAGE_ITEMS: usize = 500;
/// Largest page that is taken. A larger one is asked for in smaller pages, down to [`PAGE_ITEMS_MIN`].
const PAGE_BYTES_MAX: usize = 256 << 20;
const PAGE_ITEMS_MIN: usize = 8;
/// By how much a page that was too large is made smaller.
const PAGE_SHRINKS: usize = 8;
/// A definition's metadata. Managed fields make it large.
const DEFINITION_BYTES_MAX: usize = 4 << 20;
/// An object's metadata alone; all of it where a server does not know that.
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The same of a list's items.
pub(crate) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

impl Reflector {
    /// The generation of the definition of a custom resource; `None` where there is none to be read.
    pub(super) async fn definition(&self) -> Option<u64> {
        #[derive(serde::Deserialize)]
        struct Definition {
            metadata: Generation,
        }
        #[derive(serde::Deserialize)]
        struct Generation {
            generation: u64,
        }
        let gvr = &self.store.spec().gvr;
        // Groups of custom resources are domains, and so are most of Kubernetes' own.
        if !gvr.group.contains('.') {
            return None;
        }
        let definitions = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let path = ApiPath::of(&definitions).then(&format!("{}.{}", gvr.resource, gvr.group));
        let request = Outgoing::own(Method::GET, path, "", empty()).ok()?;
        let request = request.with(header::ACCEPT, HeaderValue::from_static(METADATA));
        let response =
            self.member.send(request, Class::Read).await.ok().filter(|answer| answer.status().is_success())?;
        let body = collect(response.into_body(), DEFINITION_BYTES_MAX).await.ok()?;
        serde_json::from_slice::<Definition>(&body).ok().map(|definition| definition.metadata.generation)
    }

    /// A current revision of the member: a consistent list of one item.
    pub(super) async fn revision(&self) -> Result<u64, SessionError> {
        let (_room, body) = self.read_list("?limit=1", 1).await?;
        revision(&split(&body)?.0.resource_version)
    }

    /// One page; the pages become smaller where one is too large.
    pub(super) async fn page(&self, token: &str, items: &mut usize) -> Result<(PageRoom, bytes::Bytes), SessionError> {
        let token = utf8_percent_encode(token, NON_ALPHANUMERIC).to_string();
        let after = if token.is_empty() { token } else { format!("&continue={token}") };
        loop {
            match self.read_list(&format!("?limit={items}{after}"), *items).await {
                Err(SessionError::Upstream(error))
                    if *items > PAGE_ITEMS_MIN && matches!(error.failure, Failure::BodyTooLarge { .. }) =>
                {
                    *items = (*items / PAGE_SHRINKS).max(PAGE_ITEMS_MIN);
                }
                answer => return answer,
            }
        }
    }

    /// Reads a list of at most so many items when there is room for it.
    async fn read_list(&self, query: &str, items: usize) -> Result<(PageRoom, bytes::Bytes), SessionError> {
        self.state.note_progress(Progress::queue);
        let asking = Box::pin(async {
            self.state.note_progress(Progress::let_in);
            self.ask(query, Class::Read).await
        });
        let (mut room, response) = self.member.admission().ask(self.state.bytes_of(items), asking).await;
        let response = response?;
        if response.status() == StatusCode::GONE {
            return Err(SessionError::Expired(0));
        }
        let body = collect(ok(response, "list").await?, PAGE_BYTES_MAX).await?;
        room.correct(body.len());
        Ok((room, body))
    }

    pub(super) async fn ask(&self, query: &str, class: Class) -> Result<http::Response<UpResponseBody>, SessionError> {
        let spec = self.store.spec();
        // Children have no label.
        let selected = (self.of_parts && !spec.has_children())
            .then(|| format!("&labelSelector={}", utf8_percent_encode(MARKER_KEY, NON_ALPHANUMERIC)));
        let accept = match (self.of_parts, query.starts_with("?watch")) {
            (false, _) => "application/json",
            (true, false) => METADATA_LIST,
            (true, true) => METADATA,
        };
        let query = format!("{query}{}", selected.unwrap_or_default());
        let agent = concat!("kubefold/", env!("CARGO_PKG_VERSION"), " reflector");
        let request = Outgoing::own(Method::GET, ApiPath::of(&spec.gvr), &query, empty())
            .map_err(|error| UpstreamError::new(self.member.name(), Failure::Request(error.to_string().into())))?
            .with(header::ACCEPT, HeaderValue::from_static(accept))
            .with(header::USER_AGENT, HeaderValue::from_static(agent));
        let response = self.member.send(request, class).await?;
        if response.status().is_success() {
            self.state.hear(response.headers());
        }
        Ok(response)
    }
}

/// The fields of a `Status` that decide.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct StatusSaid {
    pub(super) code: u16,
    pub(super) message: String,
}

pub(super) async fn ok(
    response: http::Response<UpResponseBody>,
    what: &'static str,
) -> Result<UpResponseBody, SessionError> {
    let (head, body) = response.into_parts();
    let code = head.status;
    let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if code.is_success() {
        let content = text(header::CONTENT_TYPE).filter(|content| !content.contains("json"));
        // kubefold asks for no encoding: what comes encoded all the same was not made by a kube-apiserver.
        let encoding = text(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity");
        return match encoding.or(content) {
            Some(content) => Err(SessionError::Content { what, content: content.to_owned() }),
            None => Ok(body),
        };
    }
    let retry_after = text(header::RETRY_AFTER).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let told = collect(body, 1 << 20).await.unwrap_or_default();
    let message = serde_json::from_slice::<StatusSaid>(&told).map(|status| status.message);
    Err(SessionError::Status { code, what, message: message.unwrap_or_default(), retry_after })
}

pub(super) fn revision(text: &str) -> Result<u64, SessionError> {
    text.parse().map_err(|_| SessionError::Revision(text.to_owned()))
}

pub(super) fn bookmark(object: &str) -> Result<u64, SessionError> {
    #[derive(serde::Deserialize)]
    struct Bookmark {
        metadata: kubefold_wire::list::ListMeta,
    }
    let bookmark: Bookmark = serde_json::from_str(object).map_err(kubefold_wire::watch::WatchError::from)?;
    revision(&bookmark.metadata.resource_version)
}
