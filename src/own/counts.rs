//! How many nodes and pods members have, where no store holds these: each member says it, once a minute, without a store.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::{StreamExt, stream};
use http::{HeaderValue, Method, header};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::{
    config::MemberName,
    member::{Member, reflector::METADATA_LIST},
    stores::Stores,
    upstream::{Class, Outgoing, collect},
};
use kubefold_wire::{body::empty, path::ApiPath, resource::Gvr};

/// Kinds that are counted, all in the core group.
const COUNTED: [&str; 2] = ["nodes", "pods"];
/// A member is asked again after so long.
const ASK_EVERY: Duration = Duration::from_mins(1);
/// Members that are asked at once, so that those of a large fleet are not all asked in one moment.
const AT_ONCE: usize = 8;
/// A member that takes longer is asked again a minute later.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The metadata of one object has at most 1.5 MiB.
const ANSWER_BYTES_MAX: usize = 2 << 20;

/// What members said.
#[derive(Default)]
pub(super) struct Counts(Mutex<HashMap<MemberName, Counted>>);

/// What one member said.
struct Counted {
    /// The one that it was then.
    incarnation: u64,
    asked: Instant,
    /// One for each of [`COUNTED`]; `None`: it did not say.
    numbers: [Option<usize>; COUNTED.len()],
}

/// As much of a list as says how long it is.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Vec<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    r#continue: String,
    remaining_item_count: Option<usize>,
}

impl Counts {
    /// What a member said last of how many objects of a kind it has. `None`: nothing, or it was another cluster then.
    pub(super) fn of(&self, resource: &str, member: &Member) -> Option<usize> {
        let at = COUNTED.iter().position(|counted| *counted == resource)?;
        let all = self.0.lock();
        let counted = all.get(member.name()).filter(|counted| counted.incarnation == member.incarnation())?;
        counted.numbers.get(at).copied().flatten()
    }

    /// Asks the members that are due. Cancel: safe.
    pub(super) async fn ask(&self, stores: &Stores) {
        let members = stores.registry().members();
        let names: HashSet<&MemberName> = members.iter().map(|member| member.name()).collect();
        self.0.lock().retain(|name, _| names.contains(name));
        let due = members.iter().filter(|member| !member.config().absent && member.health().is_reachable());
        let due: Vec<_> = due.filter(|member| self.is_due(member)).cloned().collect();
        let asking = due.iter().map(|member| async {
            let incarnation = member.incarnation();
            let mut numbers = [None; COUNTED.len()];
            for (number, resource) in numbers.iter_mut().zip(COUNTED) {
                // A store that is there knows it.
                if held(stores, resource, member).is_none() {
                    *number = timeout(ANSWER_MAX, count(member, resource)).await.ok().flatten();
                }
            }
            let counted = Counted { incarnation, asked: Instant::now(), numbers };
            self.0.lock().insert(member.name().clone(), counted);
        });
        stream::iter(asking).for_each_concurrent(AT_ONCE, |asked| asked).await;
    }

    fn is_due(&self, member: &Member) -> bool {
        let all = self.0.lock();
        all.get(member.name())
            .is_none_or(|counted| counted.incarnation != member.incarnation() || counted.asked.elapsed() >= ASK_EVERY)
    }
}

/// How many objects of a kind a store holds of a member. `None`: there is no store, or it does not hold all of them yet.
pub(super) fn held(stores: &Stores, resource: &str, member: &Member) -> Option<usize> {
    let running = stores.peek(&Gvr::new("", "v1", resource))?;
    if !running.store.is_filled(member.name()) {
        return None;
    }
    Some(running.store.held_of(member.name()).objects)
}

/// Asks a member for one object of a kind: it says how many more there are.
async fn count(member: &Member, resource: &str) -> Option<usize> {
    let path = ApiPath::of(&Gvr::new("", "v1", resource));
    let request = Outgoing::own(Method::GET, path, "?limit=1", empty()).ok()?;
    let request = request.with(header::ACCEPT, HeaderValue::from_static(METADATA_LIST));
    let answer = member.send(request, Class::Read).await.ok().filter(|answer| answer.status().is_success())?;
    let page: Page = serde_json::from_slice(&collect(answer.into_body(), ANSWER_BYTES_MAX).await.ok()?).ok()?;
    page.count()
}

impl Page {
    /// `None`: there is more, and nobody says how much.
    fn count(&self) -> Option<usize> {
        let more = if self.metadata.r#continue.is_empty() { 0 } else { self.metadata.remaining_item_count? };
        Some(self.items.len() + more)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use http::Response;
    use kubefold_wire::body::full;

    use super::*;
    use crate::{
        member::fake::{Fake, handler},
        stores::tests::stores_of,
    };

    #[test]
    fn a_page_says_how_many_there_are() {
        let count = |json: &str| serde_json::from_str::<Page>(json).unwrap().count();
        assert_eq!(count(r#"{"metadata":{},"items":[]}"#), Some(0));
        assert_eq!(count(r#"{"metadata":{},"items":[{"metadata":{"name":"a"}}]}"#), Some(1));
        assert_eq!(count(r#"{"metadata":{"continue":"x","remainingItemCount":41},"items":[{}]}"#), Some(42));
        assert_eq!(count(r#"{"metadata":{"continue":"x"},"items":[{}]}"#), None);
    }

    #[tokio::test]
    async fn members_are_counted_once_a_minute_by_one_object_each() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&asked);
        let answer = handler(move |request| {
            let asked = Arc::clone(&counting);
            async move {
                let more = match request.uri().path() {
                    "/api/v1/nodes" => 11,
                    "/api/v1/pods" => 203,
                    _ => return Ok(Response::new(full("{}"))),
                };
                asked.fetch_add(1, Relaxed);
                assert_eq!(request.uri().query(), Some("limit=1"));
                assert!(request.headers()[header::ACCEPT].to_str().unwrap().contains("PartialObjectMetadataList"));
                let page = format!(r#"{{"metadata":{{"continue":"x","remainingItemCount":{more}}},"items":[{{}}]}}"#);
                Ok(Response::new(full(page)))
            }
        });
        let fake = Fake::http2(answer).await;
        let stores = stores_of(vec![fake.config("east")]);
        let member = stores.registry().members()[0].clone();
        let counts = Counts::default();
        assert_eq!(counts.of("pods", &member), None);
        while counts.of("pods", &member).is_none() {
            counts.ask(&stores).await;
            tokio::task::yield_now().await;
        }
        assert_eq!((counts.of("nodes", &member), counts.of("pods", &member)), (Some(12), Some(204)));
        counts.ask(&stores).await;
        assert_eq!(asked.load(Relaxed), 2, "it is asked again a minute later");
        assert!(stores.all_running().is_empty(), "no store is started for it");
    }
}
