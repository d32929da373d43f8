//! A request to a member, and in whose name it is made.
//!
//! There are two ways to make one, and the way decides about the credential: a request in a caller's name needs the caller, and
//! goes with the token that may only impersonate; kubefold's own needs a path that kubefold made itself. So a request
//! whose headers name nobody does not run with the rights that fill the stores.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

use crate::{
    config::MemberName,
    upstream::{
        access::On,
        impersonate::{IMPERSONATE_USER, ImpersonateError, impersonate},
    },
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    body::{Body, empty},
    path::ApiPath,
};

/// What a member tells of itself, and not of its objects.
const DOCUMENTS: [&str; 5] = ["/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"];
/// Segments of the path of a group's discovery, after the first: the group and the version.
const DISCOVERY_SEGMENTS_MAX: usize = 2;

/// A request to a member.
#[derive(Debug)]
pub struct Outgoing {
    request: Request<Body>,
    on: On,
}

/// A path that kubefold asks for as itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPath(String);

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    /// kubefold itself asks for nothing else.
    #[error("{0} is no document of an API server")]
    NoDocument(String),
    /// A path or query that no request can have.
    #[error(transparent)]
    Request(#[from] http::Error),
}

impl From<ApiPath> for OwnPath {
    fn from(path: ApiPath) -> Self {
        Self(path.to_string())
    }
}

impl OwnPath {
    /// The path of discovery, of a schema, of public keys, of health. It may have a query.
    ///
    /// Errors: it is that of an object, or of anything else.
    pub fn of_document(path: &str) -> Result<Self, OutgoingError> {
        let bare = path.split('?').next().unwrap_or_default();
        let is_below = |folder: &str, segments_max: usize| {
            let below = bare.strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            below.is_some_and(|rest| {
                rest.split('/').skip(1).filter(|segment| !segment.is_empty()).count() <= segments_max
            })
        };
        let is_document = DOCUMENTS.iter().any(|document| is_below(document, usize::MAX))
            || is_below("/api", 1)
            || is_below("/apis", DISCOVERY_SEGMENTS_MAX);
        if is_document { Ok(Self(path.to_owned())) } else { Err(OutgoingError::NoDocument(bare.to_owned())) }
    }

    /// The same with a query, which is encoded; empty for none.
    fn with_query(self, query: &str) -> String {
        match query.trim_start_matches('?') {
            "" => self.0,
            query => format!("{}{}{query}", self.0, if self.0.contains('?') { '&' } else { '?' }),
        }
    }
}

impl Outgoing {
    /// One that kubefold makes as itself. `query` is encoded; it may be empty.
    pub fn own(method: Method, path: impl Into<OwnPath>, query: &str, body: Body) -> Result<Self, OutgoingError> {
        let request = Request::builder().method(method).uri(path.into().with_query(query)).body(body)?;
        Ok(Self { request, on: On::OwnBehalf })
    }

    /// A read of a document that is kubefold's own.
    ///
    /// Errors: as [`OwnPath::of_document`].
    pub fn document(path: &str) -> Result<Self, OutgoingError> {
        Self::own(Method::GET, OwnPath::of_document(path)?, "", empty())
    }

    /// One that is made in a caller's name. Whatever its headers said of who asks is gone.
    ///
    /// Errors: the caller is no header, or nobody in that member.
    pub fn of_caller(
        mut request: Request<Body>,
        caller: &Caller,
        member: &MemberName,
    ) -> Result<Self, ImpersonateError> {
        impersonate(request.headers_mut(), caller, member)?;
        Ok(Self { request, on: On::CallersBehalf })
    }

    /// The same with a header, which says nothing of who asks.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.request.headers_mut().insert(name, value);
        self
    }

    /// The same with headers, which say nothing of who asks.
    #[must_use]
    pub fn with_all(mut self, headers: HeaderMap) -> Self {
        self.request.headers_mut().extend(headers);
        self
    }

    /// The request itself.
    pub fn request(&self) -> &Request<Body> {
        &self.request
    }

    /// In whose name it is sent; `None` if it is kubefold's own.
    pub(super) fn caller(&self) -> Option<&str> {
        let named = self.request.headers().get(IMPERSONATE_USER).filter(|_| self.on == On::CallersBehalf);
        named.map(|user| user.to_str().unwrap_or_default())
    }

    /// To be sent, and by whose credential.
    pub(super) fn into_parts(self) -> (Request<Body>, On) {
        (self.request, self.on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubefold_wire::resource::Gvr;

    #[test]
    fn kubefold_itself_asks_for_documents_and_typed_paths_alone() {
        for path in
            ["/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1?x=y", "/openapi/v3/apis/apps/v1", "/readyz"]
        {
            assert!(OwnPath::of_document(path).is_ok(), "{path}");
        }
        for path in ["/api/v1/secrets", "/apis/apps/v1/deployments", "/apiss", "/", "/openapi/v30", "/metrics", "/logs"]
        {
            assert!(OwnPath::of_document(path).is_err(), "{path}");
        }
        let pods = ApiPath::within(&Gvr::new("", "v1", "pods"), "a/../b");
        let own = Outgoing::own(Method::GET, pods, "?limit=1", empty()).unwrap();
        assert_eq!(own.request().uri(), "/api/v1/namespaces/a%2F..%2Fb/pods?limit=1");
        assert_eq!((own.on, own.caller()), (On::OwnBehalf, None));
    }

    #[test]
    fn a_request_in_a_callers_name_goes_by_the_impersonators_credential() {
        let east = MemberName::new("east").unwrap();
        let jane = Caller { user: "jane".into(), ..Caller::default() };
        let request = || Request::get("/api/v1/pods").header("impersonate-user", "eve").body(empty()).unwrap();
        let asked = Outgoing::of_caller(request(), &jane, &east).unwrap();
        assert_eq!((asked.on, asked.caller()), (On::CallersBehalf, Some("jane")));
        // Not even without the header that names him.
        let without = Outgoing { request: Request::get("/api/v1/pods").body(empty()).unwrap(), ..asked };
        assert_eq!(without.on, On::CallersBehalf);
        assert!(Outgoing::of_caller(request(), &Caller::default(), &east).is_err());
    }
}
