//! One member's catalog, asked for: conditionally, and in the older way where it does not know the newer.

use std::{collections::HashMap, future::Future, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::{
    parse::{
        ListedGroup, ParseError, is_aggregated, parse_aggregated, parse_api_versions, parse_group_list,
        parse_resource_list, parse_server_version,
    },
    served::{Freshness, Group, MemberCatalog, ServerVersion, Version},
};
use crate::config::OWN_GROUP;
use kubefold_wire::path::ApiPath;

/// Aggregated discovery, in the newest form that the member knows; the last clause is for members before 1.26,
/// which answer 406 to the others alone.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                      application/json";
/// How many group-versions are asked for at once, in the older way.
const LEGACY_IN_FLIGHT_MAX: usize = 8;
/// After how many polls with an unchanged `/apis` the group-versions are asked for again, in the older way. Such a
/// member has no ETags, so that a new resource in an old group-version is noticed only then.
const LEGACY_POLLS: u32 = 30;
/// After how many polls with an unchanged `/apis` the core group and `/version` are asked for again: both change when a member
/// is upgraded, and then `/apis` most often does, too.
const UPGRADE_POLLS: u32 = 30;

/// What a [`Fetcher`] fails with: no answer at all.
pub type FetchError = Box<dyn std::error::Error + Send + Sync>;

/// A GET at one member.
///
/// The answer's body is whole. Deadlines and a limit on the body's bytes (a discovery document of 1,000 CRDs has
/// 1 MB) are the fetcher's. Implemented by any closure of the right form.
pub trait Fetcher: Send + Sync {
    /// Sends `GET path` with these headers beside the fetcher's own, with kubefold's own identity.
    fn get(&self, path: &str, headers: HeaderMap) -> impl Future<Output = Result<Response<Bytes>, FetchError>> + Send;
}

impl<F, Answer> Fetcher for F
where
    F: Fn(String, HeaderMap) -> Answer + Send + Sync,
    Answer: Future<Output = Result<Response<Bytes>, FetchError>> + Send,
{
    fn get(&self, path: &str, headers: HeaderMap) -> impl Future<Output = Result<Response<Bytes>, FetchError>> + Send {
        self(path.to_owned(), headers)
    }
}

/// Why a member's catalog could not be had. The member is to blame; to ask again is safe.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No answer.
    #[error("GET {path} failed: {source}")]
    NoAnswer {
        /// What was asked.
        path: String,
        /// Why.
        source: FetchError,
    },
    /// An answer with another status than 200.
    #[error("GET {path} was answered with {status}; kubefold's credential at this member must be allowed discovery")]
    Refused {
        /// What was asked.
        path: String,
        /// The answer.
        status: StatusCode,
    },
    /// An answer that is no discovery document.
    #[error("the answer to GET {path} cannot be read: {source}")]
    Unreadable {
        /// What was asked.
        path: String,
        /// Why.
        source: ParseError,
    },
    /// The answers lack kinds, but the member says that it is not ready yet.
    #[error("discovery lacks kinds that were there, and /readyz says that the member is not ready")]
    NotReady,
    /// No answer in time.
    #[error("the catalog was not there within {seconds} s")]
    TooSlow {
        /// The limit.
        seconds: u64,
    },
}

/// What was fetched from a member, with what is needed to ask for changes only.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    core: Document,
    named: Document,
    server: Option<Arc<ServerVersion>>,
    /// Polls since the core group and the version were asked for.
    age_polls: u32,
}

/// One of the two roots, `/api` or `/apis`.
#[derive(Clone, Debug, Default)]
struct Document {
    etag: Option<HeaderValue>,
    /// The answer that the groups came from, in the older way.
    legacy: Option<(Bytes, u32)>,
    groups: Arc<[Arc<Group>]>,
}

impl Fetched {
    /// Fetches what has changed since `self`.
    ///
    /// Errors: any but a missing `/version`; `self` is still good then.
    /// Cancel: safe.
    pub async fn fetch(&self, fetcher: &impl Fetcher) -> Result<Self, CatalogError> {
        let named = self.named.fetch(fetcher, "/apis").await?;
        let age_polls = self.age_polls + 1;
        if self.server.is_some() && named.is(&self.named) && age_polls < UPGRADE_POLLS {
            return Ok(Self { named, age_polls, ..self.clone() });
        }
        let core = self.core.fetch(fetcher, "/api").await?;
        let server = fetch_version(fetcher).await.map(Arc::new);
        let server = server.filter(|server| self.server.as_ref() != Some(server)).or_else(|| self.server.clone());
        Ok(Self { core, named, server, age_polls: 0 })
    }

    /// Forgets the ETags, so that the next fetch reads everything.
    #[must_use]
    pub fn without_etags(&self) -> Self {
        let bare = |document: &Document| Document { etag: None, legacy: None, groups: document.groups.clone() };
        Self { core: bare(&self.core), named: bare(&self.named), age_polls: UPGRADE_POLLS, ..self.clone() }
    }

    /// Whether it says what another says: nothing in it was read anew.
    pub(super) fn is(&self, other: &Self) -> bool {
        let is_same_server = match (&self.server, &other.server) {
            (Some(server), Some(other)) => Arc::ptr_eq(server, other),
            (server, other) => server.is_none() && other.is_none(),
        };
        is_same_server && self.core.is(&other.core) && self.named.is(&other.named)
    }

    /// Takes from a catalog what it has alike, so that it is held once.
    pub(super) fn share(&mut self, catalog: &MemberCatalog) {
        let known: HashMap<&str, &Arc<Group>> = catalog.groups.iter().map(|group| (&*group.name, group)).collect();
        for document in [&mut self.core, &mut self.named] {
            let alike = |group: &Arc<Group>| known.get(&*group.name).copied().filter(|known| *known == group);
            document.groups = document.groups.iter().map(|group| alike(group).unwrap_or(group)).cloned().collect();
        }
    }

    /// The catalog. Where the member itself could not ask whoever serves a group-version (it is `Stale`), what
    /// `earlier` knew of it stays: only fresh discovery takes a kind away.
    pub fn catalog(&self, earlier: Option<&MemberCatalog>) -> MemberCatalog {
        let all = self.core.groups.iter().chain(self.named.groups.iter());
        // A member that serves it is the host of this fleet, or of another.
        let mut groups: Vec<Arc<Group>> = all.filter(|group| *group.name != *OWN_GROUP).cloned().collect();
        let is_stale = |group: &Group| group.versions.iter().any(|version| version.freshness == Freshness::Stale);
        for group in groups.iter_mut().filter(|group| is_stale(group)) {
            let Some(earlier) = earlier.and_then(|earlier| earlier.group(&group.name)) else { continue };
            let group = Arc::make_mut(group);
            for version in group.versions.iter_mut().filter(|version| version.freshness == Freshness::Stale) {
                let Some(earlier) = earlier.version(&version.version) else { continue };
                let missing: Vec<_> =
                    earlier.resources.iter().filter(|one| version.resource(&one.resource).is_none()).cloned().collect();
                version.resources.extend(missing);
            }
        }
        MemberCatalog { groups, server: self.server.clone() }
    }
}

impl Document {
    /// Whether it is the very same one as another.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.groups, &other.groups)
    }

    async fn fetch(&self, fetcher: &impl Fetcher, root: &str) -> Result<Self, CatalogError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPT));
        if let Some(etag) = &self.etag {
            headers.insert(header::IF_NONE_MATCH, etag.clone());
        }
        let answer = get(fetcher, root, headers).await?;
        match answer.status() {
            StatusCode::NOT_MODIFIED if self.etag.is_some() => Ok(self.clone()),
            StatusCode::OK if is_aggregated(answer.headers()) => {
                let groups = parse_aggregated(answer.body()).map_err(unreadable(root))?;
                let etag = answer.headers().get(header::ETAG).cloned();
                Ok(Self { etag, legacy: None, groups: self.same_or(groups) })
            }
            StatusCode::OK => self.fetch_legacy(fetcher, root, answer.into_body()).await,
            // An API server without a core group is legal: an aggregated one, for example.
            StatusCode::NOT_FOUND if root == "/api" => {
                Ok(Self { etag: None, legacy: None, groups: self.same_or(Vec::new()) })
            }
            status => Err(CatalogError::Refused { path: root.to_owned(), status }),
        }
    }

    /// The older way: the root lists group-versions, and each has a document of its own.
    async fn fetch_legacy(&self, fetcher: &impl Fetcher, root: &str, list: Bytes) -> Result<Self, CatalogError> {
        if let Some((known, age_polls)) = &self.legacy
            && *known == list
            && *age_polls < LEGACY_POLLS
        {
            return Ok(Self { legacy: Some((list, age_polls + 1)), ..self.clone() });
        }
        let listed: Vec<ListedGroup> = if root == "/api" {
            vec![("".into(), parse_api_versions(&list).map_err(unreadable(root))?)]
        } else {
            parse_group_list(&list).map_err(unreadable(root))?
        };
        let pairs: Vec<(Arc<str>, Arc<str>)> = listed
            .iter()
            .flat_map(|(group, versions)| versions.iter().map(|version| (group.clone(), version.clone())))
            .collect();
        let fetched: Vec<Version> = stream::iter(pairs)
            .map(|(group, version)| fetch_group_version(fetcher, group, version))
            .buffered(LEGACY_IN_FLIGHT_MAX)
            .try_collect()
            .await?;
        let mut fetched = fetched.into_iter();
        let groups = listed
            .into_iter()
            .map(|(name, versions)| Group { name, versions: fetched.by_ref().take(versions.len()).collect() })
            .collect();
        Ok(Self { etag: None, legacy: Some((list, 0)), groups: self.same_or(groups) })
    }

    /// The groups; those that are as they were are the same, so that nobody has to compare them again.
    fn same_or(&self, groups: Vec<Group>) -> Arc<[Arc<Group>]> {
        let known: HashMap<&str, &Arc<Group>> = self.groups.iter().map(|group| (&*group.name, group)).collect();
        let same = |group: Group| match known.get(&*group.name) {
            Some(known) if ***known == group => Arc::clone(known),
            _ => Arc::new(group),
        };
        let groups: Vec<Arc<Group>> = groups.into_iter().map(same).collect();
        let is_same = groups.len() == self.groups.len()
            && groups.iter().zip(self.groups.iter()).all(|(group, known)| Arc::ptr_eq(group, known));
        if is_same { self.groups.clone() } else { groups.into() }
    }
}

/// Anything but a 200 is stale, as in the aggregator: whoever serves the group-version is away.
async fn fetch_group_version(
    fetcher: &impl Fetcher,
    group: Arc<str>,
    version: Arc<str>,
) -> Result<Version, CatalogError> {
    let path = ApiPath::of_group_version(&group, &version);
    let path = path.as_str();
    let answer = get(fetcher, path, json_headers()).await?;
    if answer.status() != StatusCode::OK {
        return Ok(Version { version, freshness: Freshness::Stale, resources: Vec::new() });
    }
    let resources = parse_resource_list(answer.body()).map_err(unreadable(path))?;
    Ok(Version { version, freshness: Freshness::Current, resources })
}

/// A member that hides its version is served all the same.
async fn fetch_version(fetcher: &impl Fetcher) -> Option<ServerVersion> {
    let answer = get(fetcher, "/version", json_headers()).await.ok()?;
    if answer.status() != StatusCode::OK {
        return None;
    }
    parse_server_version(answer.body()).ok()
}

/// Whether the member says that it is ready. Before, its catalog may lack groups that it is still reading.
pub(super) async fn is_ready(fetcher: &impl Fetcher) -> Result<bool, CatalogError> {
    Ok(get(fetcher, "/readyz", HeaderMap::new()).await?.status() == StatusCode::OK)
}

async fn get(fetcher: &impl Fetcher, path: &str, headers: HeaderMap) -> Result<Response<Bytes>, CatalogError> {
    fetcher.get(path, headers).await.map_err(|source| CatalogError::NoAnswer { path: path.to_owned(), source })
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))])
}

fn unreadable(path: &str) -> impl FnOnce(ParseError) -> CatalogError {
    move |source| CatalogError::Unreadable { path: path.to_owned(), source }
}
