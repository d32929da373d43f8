//! Custom resources are served as soon as their definition says that they are.
//!
//! The fleet view shows a definition with the words of its first holder, and what it serves with those of every member's
//! discovery, which is read each second. Between the two a client would be told that a kind is `Established` which nobody
//! knows, so whoever asks for discovery, or for a kind that is not known, waits (bounded) until it is.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use http::{Request, header};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    config::MemberName,
    store::{Part, key},
    stores::{Running, Stores},
    upstream::{Class, collect},
    view::Mode,
};
use kubefold_table::{Definition as Columns, Printer};
use kubefold_wire::{body::empty, resource::Gvr};

/// How long discovery waits for a kind whose definition says that it is served.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// For how long a definition is new. Older ones were published long ago.
const NEW_FOR: Duration = Duration::from_mins(2);
/// Largest OpenAPI document that is looked at.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Versions of kinds of which it is kept how they are printed.
const PRINTERS_MAX: usize = 1024;
/// Between two looks at members' discovery while somebody waits.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Which OpenAPI documents a kind has to stand in.
#[derive(Clone, Copy)]
enum Published {
    V2,
    V3,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Definition {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    creation_timestamp: Option<jiff::Timestamp>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    group: String,
    names: Names,
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    plural: String,
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Version {
    name: String,
    served: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Stores {
    /// Waits until every kind whose definition the fleet view shows as established is in the catalog.
    ///
    /// Where nobody has read definitions there is nobody who was told of one. What a member says it serves and does not is
    /// waited for once.
    pub async fn definitions_are_served(&self) {
        self.definitions_are_published(Published::V3).await;
    }

    /// The same, and in OpenAPI v2, too, which a kube-apiserver publishes on its own.
    pub async fn definitions_are_described(&self) {
        self.definitions_are_published(Published::V3).await;
        self.definitions_are_published(Published::V2).await;
    }

    async fn definitions_are_published(&self, published: Published) {
        let definitions = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let Some(running) = self.peek(&definitions) else { return };
        let head = running.store.snapshot().revision.0;
        let known = match published {
            Published::V3 => &running.known_definitions,
            Published::V2 => &running.described_definitions,
        };
        if known.load(Ordering::Acquire) >= head {
            return;
        }
        let deadline = Instant::now() + SERVED_WITHIN;
        while Instant::now() < deadline {
            let lacking = self.lacking(&running);
            if lacking.is_empty() && self.are_published(&running, published).await {
                break;
            }
            for name in lacking {
                if let Some(member) = self.registry.get(name.as_str()) {
                    self.refresh(member).await;
                }
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        known.fetch_max(head, Ordering::AcqRel);
    }

    /// How a custom resource is printed, by its definition as the fleet view shows it. `None`: it has none.
    ///
    /// A definition is read once a revision: its schema may be large.
    pub async fn printer_of(&self, gvr: &Gvr) -> Option<Printer> {
        let definitions = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let ready = self.ready_in(&definitions, None, Mode::Lenient).await.ok()?;
        let entry = ready.store().get(&key("", &format!("{}.{}", gvr.resource, gvr.group)))?;
        let known = ready.running.printers.lock().get(gvr).cloned();
        if let Some((_, printer)) = known.filter(|(revision, _)| *revision == entry.revision) {
            return Some(printer);
        }
        let definition = Columns::of_version(std::str::from_utf8(entry.json()).ok()?, &gvr.version)?;
        let printer = Printer::custom(&definition);
        let mut printers = ready.running.printers.lock();
        if printers.len() >= PRINTERS_MAX {
            printers.clear();
        }
        printers.insert(gvr.clone(), (entry.revision, printer.clone()));
        Some(printer)
    }

    /// Says whether the kinds of new definitions stand in some member's OpenAPI document, so that they stand in the fleet's.
    /// A kube-apiserver publishes those a moment later than it serves the kind.
    async fn are_published(&self, running: &Running, published: Published) -> bool {
        for entry in running.store.snapshot().range("", b"") {
            let parts = running.store.parts(&key("", entry.name()));
            let Some(definition) = parts.first().and_then(|part| definition(part)).filter(Definition::is_new) else {
                continue;
            };
            for gvr in definition.served() {
                if !self.is_published(&parts, &gvr, &definition.spec.names.kind, published).await {
                    return false;
                }
            }
        }
        true
    }

    async fn is_published(&self, parts: &[Arc<Part>], gvr: &Gvr, kind: &str, published: Published) -> bool {
        let Gvr { group, version, .. } = gvr;
        let (path, wanted) = match published {
            Published::V3 => (format!("/openapi/v3/apis/{group}/{version}"), format!("\"kind\":\"{kind}\"")),
            Published::V2 => (
                "/openapi/v2".to_owned(),
                format!("{{\"group\":\"{group}\",\"kind\":\"{kind}\",\"version\":\"{version}\"}}"),
            ),
        };
        for member in parts.iter().filter_map(|part| self.registry.get(part.member.as_str())) {
            let request = Request::get(&path).header(header::ACCEPT, "application/json").body(empty());
            let Ok(request) = request else { continue };
            let Ok(response) = member.send(request, Class::Read).await else { continue };
            let document = collect(response.into_body(), DOCUMENT_BYTES_MAX).await.unwrap_or_default();
            if memchr::memmem::find(&document, wanted.as_bytes()).is_some() {
                return true;
            }
        }
        false
    }

    /// Members that are up and serve less, as far as is known, than their definitions say.
    fn lacking(&self, running: &Arc<Running>) -> Vec<MemberName> {
        let catalog = self.catalog();
        let snapshot = running.store.snapshot();
        let mut lacking: Vec<MemberName> = Vec::new();
        for entry in snapshot.range("", b"") {
            for part in running.store.parts(&key("", entry.name())) {
                let up = self.registry.get(part.member.as_str()).is_some_and(|member| !member.health().is_down());
                if up
                    && !lacking.contains(&part.member)
                    && !definition(&part).map(|it| it.served()).unwrap_or_default().iter().all(|gvr| {
                        catalog.serving_members(gvr).contains(&part.member)
                            || catalog.get(gvr).is_some_and(|resource| resource.conflicting.contains(&part.member))
                    })
                {
                    lacking.push(part.member.clone());
                }
            }
        }
        lacking
    }
}

/// A definition that its member serves, or is about to.
fn definition(part: &Part) -> Option<Definition> {
    serde_json::from_str(&part.document).ok()
}

impl Definition {
    /// What is served by it.
    fn served(&self) -> Vec<Gvr> {
        let mut conditions = self.status.conditions.iter();
        let established = conditions.any(|one| one.type_ == "Established" && one.status == "True");
        if !established || self.metadata.deletion_timestamp.is_some() {
            return Vec::new();
        }
        let Spec { group, names, versions } = &self.spec;
        let versions = versions.iter().filter(|version| version.served);
        versions.map(|version| Gvr::new(group, &version.name, &names.plural)).collect()
    }

    /// It was made a moment ago, by whoever's clock.
    fn is_new(&self) -> bool {
        let age = self.metadata.creation_timestamp.map(|created| created.duration_until(jiff::Timestamp::now()).abs());
        age.is_some_and(|age| age <= jiff::SignedDuration::try_from(NEW_FOR).unwrap_or_default())
    }
}
