//! Proofs that a store shows what its members hold now: docs/design/reads.md#proofs.
//!
//! A member is asked for the metadata of what a read is about, by a consistent list. What differs from the store is fetched
//! and taken in as live answers are; what the list lacks is gone by the member's own word.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use http::{HeaderValue, Method, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    config::MemberName,
    member::{Member, reflector::METADATA_LIST},
    store::{FleetStore, HeldVersion, TooManyGone, key},
    stores::{Running, Stores, marks::Place},
    upstream::{Class, Failure, Outgoing, UpstreamError, collect},
    view::FleetSelector,
};
use kubefold_wire::{body::empty, golang::Quoted, list::split, path::ApiPath};

/// For one member to be proven.
const PROOF_MAX: Duration = Duration::from_secs(10);
/// The same of one that is slow already, for a read that did not ask to be proven.
const SLOW_PROOF_MAX: Duration = Duration::from_secs(1);
/// Objects that are fetched one by one; with more, all are listed.
const FETCH_MAX: usize = 32;
/// Objects fetched from one member at once.
const FETCH_AT_ONCE: usize = 8;
/// A member that changes as fast as it is read is not asked for ever.
const ROUNDS_MAX: usize = 5;
/// Namespaces that are proven at once.
const PLACES_AT_ONCE: usize = 16;
/// Items asked for in one page of metadata, and of whole objects.
const METADATA_ITEMS: usize = 2000;
const PAGE_ITEMS: usize = 500;
/// Largest page that is taken.
const PAGE_BYTES_MAX: usize = 1 << 30;

/// What a read is about.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Empty for all, and for cluster-scoped kinds.
    pub namespace: String,
    /// Those of the read.
    pub labels: FleetSelector,
    /// A member's own name, of one object.
    pub name: Option<String>,
}

/// A member of which the store may be behind.
#[derive(Clone, Debug)]
pub struct Unproven {
    /// The member's name.
    pub member: MemberName,
    /// One sentence.
    pub sentence: String,
}

/// Proofs of one member and scope: at most one runs, and one that began after a reader came is the reader's too.
#[derive(Debug, Default)]
pub(super) struct Flight {
    begun: AtomicU64,
    last: tokio::sync::Mutex<Option<(u64, Proven)>>,
}

/// What came of a proof, for all who share it.
type Proven = Result<(), Arc<ProofError>>;

/// Why a member could not be proven.
#[derive(Debug, thiserror::Error)]
enum ProofError {
    #[error("{}", .0.cause())]
    Upstream(#[from] UpstreamError),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("its list cannot be read: {0}")]
    List(#[from] kubefold_wire::list::ListError),
    #[error("its list has the revision {quoted}, which is not a decimal number", quoted = Quoted(.0))]
    Revision(String),
    #[error("its metadata cannot be read: {0}")]
    Metadata(#[from] serde_json::Error),
    #[error("it sent an object that cannot be taken in: {0}")]
    Object(#[from] crate::store::BadObject),
    #[error("{0}")]
    Gone(#[from] TooManyGone),
    #[error("it changes faster than it can be read")]
    Restless,
    #[error("it did not answer within {} s", .0.as_secs())]
    Slow(Duration),
}

impl Stores {
    /// Makes sure that a store shows what its members hold by now, as far as `scope` goes. Gives those of whom it may not.
    ///
    /// Shape: one metadata list per member, and what differs. Cancel: safe.
    pub async fn prove(&self, running: &Running, only: Option<&MemberName>, scope: &Scope) -> Vec<Unproven> {
        let members: Vec<Arc<Member>> = running.members(only);
        join_all(members.iter().map(|member| prove(running, member, scope, PROOF_MAX)))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// The same for what was written through member views since it was last proven.
    pub async fn prove_marked(&self, running: &Running, only: Option<&MemberName>, namespace: &str) -> Vec<Unproven> {
        let due = running.marks.lock().due(only, namespace);
        if due.is_empty() {
            return Vec::new();
        }
        let members = running.members(only);
        let each = due.into_iter().map(|(place, mark)| {
            let member = members.iter().find(|member| *member.name() == place.0).cloned();
            let is_slow = member.as_ref().is_some_and(|member| self.is_slow(member));
            prove_place(running, member, place, mark, if is_slow { SLOW_PROOF_MAX } else { PROOF_MAX })
        });
        stream::iter(each).buffer_unordered(PLACES_AT_ONCE).filter_map(std::future::ready).collect().await
    }
}

/// Proves a marked namespace of a member, and settles the mark. One that feeds the store no more owes nothing.
async fn prove_place(
    running: &Running,
    member: Option<Arc<Member>>,
    place: Place,
    mark: u64,
    within: Duration,
) -> Option<Unproven> {
    let scope = Scope { namespace: place.1.clone(), ..Scope::default() };
    let unproven = match &member {
        Some(member) => prove(running, member, &scope, within).await,
        // Its first list may have begun before the write.
        None if running.feeds.lock().contains_key(&place.0) => return None,
        None => None,
    };
    if unproven.is_none() {
        running.marks.lock().settle(&place, mark);
    }
    unproven
}

impl Running {
    /// Who feeds the store, and has filled it.
    fn members(&self, only: Option<&MemberName>) -> Vec<Arc<Member>> {
        let feeds = self.feeds.lock();
        let asked = feeds.values().filter(|feed| only.is_none_or(|only| only == feed.member.name()));
        asked.map(|feed| Arc::clone(&feed.member)).filter(|member| self.store.is_filled(member.name())).collect()
    }

    fn flight(&self, name: &str) -> Arc<Flight> {
        let mut flights = self.flights.lock();
        flights.retain(|known, flight| known == name || Arc::strong_count(flight) > 1);
        Arc::clone(flights.entry(name.to_owned()).or_default())
    }
}

impl Flight {
    /// The outcome of a proof that began after this call: another reader's, if one begins first.
    async fn share(&self, proof: impl Future<Output = Result<(), ProofError>>) -> Proven {
        let arrived = self.begun.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if let Some((begun, outcome)) = &*last
            && *begun > arrived
        {
            return outcome.clone();
        }
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let outcome = proof.await.map_err(Arc::new);
        *last = Some((begun, outcome.clone()));
        outcome
    }
}

/// Proves one member, or shares a proof that another reader begins from now on.
async fn prove(running: &Running, member: &Arc<Member>, scope: &Scope, within: Duration) -> Option<Unproven> {
    let name = scope.name.as_deref().unwrap_or_default();
    let flight = running.flight(&format!("{}|{}|{name}|{}", member.name(), scope.namespace, scope.labels.upstream()));
    let proof = async {
        let proof = Proof { store: &running.store, member, scope: scope.clone() };
        let outcome = tokio::time::timeout(within, Box::pin(proof.run())).await;
        outcome.unwrap_or(Err(ProofError::Slow(within)))
    };
    let cause = flight.share(proof).await.err()?;
    let name = member.name().clone();
    let sentence =
        format!("member {name} could not be asked for its newest state: {cause}; its last known state is shown");
    Some(Unproven { member: name, sentence })
}

struct Proof<'a> {
    store: &'a Arc<FleetStore>,
    member: &'a Arc<Member>,
    scope: Scope,
}

/// An object as the member tells of it.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedMetadata {
    name: String,
    #[serde(default)]
    namespace: String,
    uid: String,
    resource_version: String,
}

#[derive(serde::Deserialize)]
struct ToldItem {
    metadata: ListedMetadata,
}

/// What is not as the store has it.
#[derive(Debug, Default)]
struct Difference {
    /// Own keys whose newest state is to be fetched.
    fetch: Vec<String>,
    /// Own keys under which there is nothing.
    gone: Vec<String>,
    /// What was held and not told of, though labels may be why.
    hidden: usize,
}

impl Proof<'_> {
    async fn run(mut self) -> Result<(), ProofError> {
        let name = self.member.name();
        let mut missing = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            let incarnation = self.store.incarnation(name);
            let (revision, told) = self.metadata().await?;
            let difference = self.difference(revision, told, &missing);
            for own_key in &difference.gone {
                self.room().await;
                self.store.gone(name, incarnation, own_key, revision)?;
            }
            if difference.fetch.is_empty() {
                return Ok(());
            }
            if difference.fetch.len() <= FETCH_MAX {
                missing = self.fetch(&difference.fetch, incarnation).await?;
                if missing.is_empty() {
                    return Ok(());
                }
                // The next list begins after that, and says as of when.
                continue;
            }
            if difference.hidden > FETCH_MAX {
                // A list with these labels would hide them again.
                self.scope.labels = FleetSelector::default();
            }
            self.list(incarnation).await?;
        }
        Err(ProofError::Restless)
    }

    fn difference(&self, revision: u64, told: Vec<ListedMetadata>, missing: &HashSet<String>) -> Difference {
        let name = self.member.name();
        let labels = &self.scope.labels;
        let matches = |entry: &crate::store::Entry| {
            if labels.is_everything() {
                return true;
            }
            let holders: Vec<&str> = entry.holders.iter().map(MemberName::as_str).collect();
            labels.matches(entry.labels(), &holders)
        };
        let own = self.scope.name.as_deref();
        let visible = self.store.held(name, &self.scope.namespace, own, matches);
        compare(visible, revision, told, |own_key| labels.is_everything() || missing.contains(own_key))
    }

    /// The metadata of everything in scope, at one revision.
    async fn metadata(&self) -> Result<(u64, Vec<ListedMetadata>), ProofError> {
        let (mut token, mut told) = (String::new(), Vec::new());
        let mut revision;
        loop {
            let body = self.page(METADATA_LIST, METADATA_ITEMS, &token).await?;
            let (meta, items) = split(&body)?;
            revision = meta.resource_version.parse().map_err(|_| ProofError::Revision(meta.resource_version))?;
            for item in items {
                told.push(serde_json::from_str::<ToldItem>(item)?.metadata);
            }
            token = meta.continue_token;
            if token.is_empty() {
                return Ok((revision, told));
            }
        }
    }

    /// Takes everything in scope in.
    async fn list(&self, incarnation: u32) -> Result<(), ProofError> {
        let mut token = String::new();
        loop {
            let body = self.page("application/json", PAGE_ITEMS, &token).await?;
            let (meta, items) = split(&body)?;
            for item in items {
                self.room().await;
                self.store.ingest_live(self.member.name(), incarnation, item)?;
            }
            token = meta.continue_token;
            if token.is_empty() {
                return Ok(());
            }
        }
    }

    /// Fetches objects one by one, and gives the keys of those that are not there.
    async fn fetch(&self, own_keys: &[String], incarnation: u32) -> Result<HashSet<String>, ProofError> {
        let mut missing = HashSet::new();
        let name = self.member.name();
        let get = |own_key: &String| {
            let (namespace, own) = own_key.split_once('/').unwrap_or(("", own_key));
            let path = self.collection(namespace).then(own);
            let own_key = own_key.clone();
            async move { Ok::<_, ProofError>((own_key, self.ask(path, "pretty=0", "application/json").await?)) }
        };
        let mut answers = stream::iter(own_keys.iter().map(get)).buffer_unordered(FETCH_AT_ONCE);
        while let Some(answer) = answers.next().await {
            let (own_key, (code, body)) = answer?;
            match code {
                StatusCode::OK => {
                    let document = std::str::from_utf8(&body).unwrap_or_default();
                    self.store.ingest_live(name, incarnation, document)?;
                }
                StatusCode::NOT_FOUND => drop(missing.insert(own_key)),
                other => return Err(ProofError::Status(other)),
            }
        }
        Ok(missing)
    }

    async fn page(&self, accept: &'static str, items: usize, token: &str) -> Result<Bytes, ProofError> {
        let mut query = format!("limit={items}");
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                query += &format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
            }
        };
        add("labelSelector", &self.scope.labels.upstream());
        add("fieldSelector", &self.scope.name.as_ref().map(|own| format!("metadata.name={own}")).unwrap_or_default());
        add("continue", token);
        match self.ask(self.collection(&self.scope.namespace), &query, accept).await? {
            (StatusCode::OK, body) => Ok(body),
            (other, _) => Err(ProofError::Status(other)),
        }
    }

    fn collection(&self, namespace: &str) -> ApiPath {
        ApiPath::within(&self.store.spec().gvr, namespace)
    }

    async fn ask(&self, path: ApiPath, query: &str, accept: &'static str) -> Result<(StatusCode, Bytes), ProofError> {
        let agent = concat!("kubefold/", env!("CARGO_PKG_VERSION"), " proof");
        let request = Outgoing::own(Method::GET, path, query, empty())
            .map_err(|error| UpstreamError::new(self.member.name(), Failure::Request(error.to_string().into())))?
            .with(header::ACCEPT, HeaderValue::from_static(accept))
            .with(header::USER_AGENT, HeaderValue::from_static(agent));
        let (head, body) = self.member.send(request, Class::Read).await?.into_parts();
        Ok((head.status, collect(body, PAGE_BYTES_MAX).await?))
    }

    /// Bulk changes wait for watchers that still move.
    async fn room(&self) {
        while !self.store.has_room() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// What differs between the store and a list at `revision`. `is_gone` says of what the list lacks whether it is gone, and
/// not only hidden by labels.
fn compare(
    mut held: HashMap<String, HeldVersion>,
    revision: u64,
    told: Vec<ListedMetadata>,
    is_gone: impl Fn(&str) -> bool,
) -> Difference {
    let mut difference = Difference::default();
    for object in told {
        let own_key = key(&object.namespace, &object.name);
        let member_rv: u64 = object.resource_version.parse().unwrap_or(u64::MAX);
        let has = held.remove(&own_key);
        let is_known = has.is_some_and(|has| has.uid == object.uid && has.current && has.member_rv >= member_rv);
        if !is_known {
            difference.fetch.push(own_key);
        }
    }
    for (own_key, has) in held {
        match has.current && has.member_rv > revision {
            // It came to be after the list.
            true => {}
            false if is_gone(&own_key) => difference.gone.push(own_key),
            false => {
                difference.hidden += 1;
                difference.fetch.push(own_key);
            }
        }
    }
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, uid: &str, rv: u64) -> ListedMetadata {
        ListedMetadata { name: name.into(), namespace: "a".into(), uid: uid.into(), resource_version: rv.to_string() }
    }

    fn held(entries: &[(&str, &str, u64, bool)]) -> HashMap<String, HeldVersion> {
        let version = |(name, uid, member_rv, current): &(&str, &str, u64, bool)| {
            (format!("a/{name}"), HeldVersion { uid: (*uid).to_owned(), member_rv: *member_rv, current: *current })
        };
        entries.iter().map(version).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn readers_share_a_proof_that_began_after_they_came() {
        let flight = Flight::default();
        let runs = AtomicU64::new(0);
        let proof = || async {
            let run = runs.fetch_add(1, Ordering::AcqRel) + 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
            Err(ProofError::Revision(format!("run {run}")))
        };
        let later = async || {
            // The first proof is under way, and proves nothing to who comes now.
            tokio::time::sleep(Duration::from_millis(500)).await;
            flight.share(proof()).await
        };
        let run = |outcome: Proven| match &*outcome.unwrap_err() {
            ProofError::Revision(run) => run.clone(),
            other => panic!("{other}"),
        };
        let (first, second, third, fourth) = tokio::join!(flight.share(proof()), later(), later(), later());
        assert_eq!(run(first), "run 1");
        for shared in [second, third, fourth] {
            assert_eq!(run(shared), "run 2");
        }
        assert_eq!(run(flight.share(proof()).await), "run 3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_proof_that_was_given_up_is_nobodys() {
        let flight = Flight::default();
        let never = flight.share(std::future::pending());
        assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
        assert!(flight.share(async { Ok(()) }).await.is_ok());
    }

    #[test]
    fn what_is_new_changed_reborn_or_of_another_life_is_fetched() {
        let held =
            held(&[("same", "1", 5, true), ("ahead", "2", 9, true), ("old", "3", 4, true), ("reborn", "4", 6, true)]);
        let mut both = held;
        both.insert("a/life".into(), HeldVersion { uid: "5".into(), member_rv: 7, current: false });
        let list = vec![
            told("same", "1", 5),
            told("ahead", "2", 8),
            told("old", "3", 5),
            told("reborn", "44", 6),
            told("life", "5", 7),
            told("new", "6", 8),
        ];
        let mut difference = compare(both, 8, list, |_| true);
        difference.fetch.sort();
        assert_eq!(difference.fetch, ["a/life", "a/new", "a/old", "a/reborn"]);
        assert_eq!(difference.gone, [""; 0]);
    }

    #[test]
    fn what_a_whole_list_lacks_is_gone_unless_it_is_younger() {
        let held = || held(&[("gone", "1", 5, true), ("younger", "2", 9, true), ("life", "3", 9, false)]);
        let mut difference = compare(held(), 8, Vec::new(), |_| true);
        difference.gone.sort();
        assert_eq!((difference.fetch.len(), difference.gone), (0, vec!["a/gone".to_owned(), "a/life".to_owned()]));
        // With labels it may only have lost them.
        let difference = compare(held(), 8, Vec::new(), |_| false);
        assert_eq!((difference.fetch.len(), difference.gone.len(), difference.hidden), (2, 0, 2));
    }
}
