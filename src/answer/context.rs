//! What a request says beside its target: who asks, for which form and encoding, through which view.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Response};
use http_body_util::BodyExt;

use crate::{
    access::Grants,
    answer::{form::Form, table::Tables},
    config::MemberName,
    respond::ReadError,
    store::{Audience, Entry, KindSpec},
    stores::{FILLING_WAIT_MAX, Reading, Ready, Stores},
    view::Mode,
};
use kubefold_serving::{caller::Caller, encode::encode, replica::CacheAsked};
use kubefold_wire::{
    body::{Body, BodyError, full},
    duration,
    form::{OFFERS, offers},
    media::{self, Encoding, Negotiated},
    options::query_value,
    resource::Gvr,
    status::Status,
    warning::Warnings,
};

/// A request of the fleet view as it came.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The query, without its question mark.
    pub query: &'a str,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// Through which view of the fleet, and so what an unknown member means.
    pub mode: Mode,
    /// What the members allow of it.
    pub grants: &'a Grants,
    /// What the standby that handed it on would do with it.
    pub cache: Option<CacheAsked>,
}

impl RequestContext<'_> {
    /// The members whose objects it may use.
    pub fn audience(&self) -> &Audience {
        self.grants.asked.audience()
    }

    /// What the answer is to be.
    ///
    /// Errors: 406.
    pub fn wanted(&self) -> Result<Negotiated, Status> {
        media::negotiate(self.headers, Some(self.query), OFFERS)
    }

    /// The same of a resource, or of a subresource of it, that may have no columns; `""` is none.
    ///
    /// Errors: 406.
    pub fn wanted_of(&self, gvr: &Gvr, subresource: &str) -> Result<Negotiated, Status> {
        media::negotiate(self.headers, Some(self.query), offers(&gvr.group, &gvr.resource, subresource))
    }

    /// How long it may take by its own `timeout` and `timeoutSeconds`; never more than [`FILLING_WAIT_MAX`].
    pub fn wait_max(&self) -> Duration {
        let timeout = query_value(self.query, "timeout").and_then(|text| duration::parse(&text).ok());
        let timeout = timeout.and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos);
        let seconds = query_value(self.query, "timeoutSeconds").and_then(|text| text.parse().ok());
        let asked = timeout.into_iter().chain(seconds.map(Duration::from_secs)).filter(|asked| !asked.is_zero());
        asked.fold(FILLING_WAIT_MAX, Duration::min)
    }

    /// How it reads the store of a kind; `only` is the one member that it asks about, if it is one.
    pub fn reading<'a>(&'a self, only: Option<&'a MemberName>) -> Reading<'a> {
        Reading { only, audience: self.audience(), mode: self.mode, wait_max: self.wait_max() }
    }

    /// A Table is read by people: who sees a warning is not told the less for a member that is unknown.
    pub(crate) fn for_people(self, wanted: Negotiated) -> Self {
        Self { mode: if self.is_for_people(wanted) { Mode::Lenient } else { self.mode }, ..self }
    }

    /// Says whether people read the answer, and are told of what is left out.
    pub(crate) fn is_for_people(&self, wanted: Negotiated) -> bool {
        self.mode == Mode::Whole && Tables::are_wanted(wanted.transform)
    }

    /// The answer to a write, in the form and encoding that were negotiated for it.
    ///
    /// Errors: 406 for a form that does not fit: the write is done all the same, as with a kube-apiserver.
    pub async fn written(
        &self,
        response: Response<Body>,
        wanted: Negotiated,
        spec: &KindSpec,
        stores: &Stores,
    ) -> Result<Response<Body>, Status> {
        if wanted.transform.is_none() || !response.status().is_success() {
            return Ok(self.encoded(response, wanted.encoding).await);
        }
        let tables = Tables::of(stores, &spec.gvr, wanted.transform, self.query).await;
        let form = Form::of_object(wanted.transform, spec, &tables)?;
        let (head, body) = response.into_parts();
        let broken = |error: BodyError| ReadError::BrokenOff(error.to_string());
        let json = body.collect().await.map_err(broken)?.to_bytes();
        let mut out = Vec::with_capacity(json.len());
        form.document(&json, spec, &mut out);
        out.push(b'\n');
        Ok(self.encoded(Response::from_parts(head, full(out)), wanted.encoding).await)
    }

    /// An answer, or a refusal as it goes out, with warnings.
    pub async fn warned(
        &self,
        answer: Result<Response<Body>, Status>,
        warnings: &Warnings,
    ) -> Result<Response<Body>, Status> {
        let mut response = match answer {
            Ok(response) => response,
            Err(status) => {
                let encoding = media::of_failure(self.headers, Some(self.query));
                encode(status.into_response(), encoding).await
            }
        };
        warnings.write_to(response.headers_mut());
        Ok(response)
    }

    /// An answer as it goes out: in the encoding that was negotiated for it, or for failures.
    pub async fn encoded(&self, response: Response<Body>, encoding: Encoding) -> Response<Body> {
        let failed = response.status().is_client_error() || response.status().is_server_error();
        let encoding = if failed { media::of_failure(self.headers, Some(self.query)) } else { encoding };
        encode(response, encoding).await
    }
}

/// The objects of a collection that a request selects, as they are listed.
pub struct Collection {
    /// Their kind's store.
    pub ready: Ready,
    /// The answer to a list of them.
    pub list: Response<Body>,
    /// The objects, in the list's order.
    pub entries: Vec<Arc<Entry>>,
}
