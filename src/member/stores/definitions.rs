//! Custom resources are served as soon as their definition says that they are.
//!
//! The fleet view shows a definition with the words of its first holder, and what it serves with those of every member's
//! discovery, which is read each second. Between the two a client would be told that a kind is `Established` which nobody
//! knows, so whoever asks for discovery, or for a kind that is not known, waits (bounded) until it is.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    config::MemberName,
    member::stores::{Running, Stores},
    store::{Part, key},
    wire::resource::Gvr,
};

/// How long discovery waits for a kind whose definition says that it is served.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at members' discovery while somebody waits.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

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
    /// Waits until every kind whose definition the fleet view shows as established is in the catalogue.
    ///
    /// Where nobody has read definitions there is nobody who was told of one. What a member says it serves and does not is
    /// waited for once.
    pub async fn definitions_are_served(&self) {
        let definitions = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let Some(running) = self.peek(&definitions) else { return };
        let head = running.store.snapshot().revision.0;
        if running.known_definitions.load(Ordering::Acquire) >= head {
            return;
        }
        let deadline = Instant::now() + SERVED_WITHIN;
        loop {
            let lacking = self.lacking(&running);
            if lacking.is_empty() || Instant::now() >= deadline {
                break;
            }
            for name in lacking {
                if let Some(member) = self.registry.get(name.as_str()) {
                    self.refresh(member).await;
                }
            }
            if self.lacking(&running).is_empty() {
                break;
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        running.known_definitions.fetch_max(head, Ordering::AcqRel);
    }

    /// Members that are up and serve less, as far as is known, than their definitions say.
    fn lacking(&self, running: &Arc<Running>) -> Vec<MemberName> {
        let catalogue = self.catalogue();
        let snapshot = running.store.snapshot();
        let mut lacking: Vec<MemberName> = Vec::new();
        for entry in snapshot.range("", b"") {
            for part in running.store.parts(&key("", entry.name())) {
                let up = self.registry.get(part.member.as_str()).is_some_and(|member| !member.health().is_down());
                if up
                    && !lacking.contains(&part.member)
                    && !served(&part).iter().all(|gvr| {
                        catalogue.serving_members(gvr).contains(&part.member)
                            || catalogue.get(gvr).is_some_and(|resource| resource.conflicting.contains(&part.member))
                    })
                {
                    lacking.push(part.member);
                }
            }
        }
        lacking
    }
}

/// What a member serves by one of its definitions.
fn served(part: &Part) -> Vec<Gvr> {
    let Ok(definition) = serde_json::from_str::<Definition>(&part.document) else { return Vec::new() };
    let established = definition.status.conditions.iter().any(|one| one.type_ == "Established" && one.status == "True");
    if !established || definition.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let Spec { group, names, versions } = definition.spec;
    let versions = versions.iter().filter(|version| version.served);
    versions.map(|version| Gvr::new(&group, &version.name, &names.plural)).collect()
}
