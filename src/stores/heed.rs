//! What tells at once that a member serves something else, where there are so many members that each is polled seldom: its
//! definitions of custom resources, watched for their metadata alone. What they say is not read. The member is asked what it serves.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Method, Response, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    member::{
        Member,
        reflector::{METADATA, METADATA_LIST},
    },
    stores::Stores,
    upstream::{Class, Outgoing, UpResponseBody, collect},
};
use kubefold_wire::{body::empty, list::ListMeta, path::ApiPath, resource::Gvr};

/// A member serves what a definition says a moment after it has told of the definition. It is asked after each of these pauses: an answer
/// that brings nothing new is one without a body.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(600),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// After a watch that ended or broke.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// After one that was not to be had several times: kubefold's login may have no right to it.
const AGAIN_AFTER_MAX: Duration = Duration::from_mins(5);
/// How long a watch lasts at least. They do not all end at once.
const WATCH_SECONDS: u64 = 300;
/// A list of one definition's metadata. Managed fields make it large.
const LIST_BYTES_MAX: usize = 4 << 20;

impl Stores {
    /// Asks a member what it serves whenever its definitions change, while it is polled seldom. Cancel: by the token.
    pub(super) async fn heed(&self, member: &Arc<Member>, until: &CancellationToken) {
        let heeding = async {
            let mut pause = AGAIN_AFTER;
            loop {
                if self.catalog.polls_seldom() && !member.health().is_down() {
                    let mut has_begun = false;
                    // What went wrong is told by the polls.
                    let _ended = self.heed_definitions(member, &mut has_begun).await;
                    pause = if has_begun { AGAIN_AFTER } else { (pause * 2).min(AGAIN_AFTER_MAX) };
                }
                sleep(pause).await;
            }
        };
        Box::pin(until.run_until_cancelled(heeding)).await;
    }

    /// Until the watch ends. `None`: there is none to be had.
    async fn heed_definitions(&self, member: &Arc<Member>, has_begun: &mut bool) -> Option<()> {
        #[derive(serde::Deserialize)]
        struct List {
            metadata: ListMeta,
        }
        let list = definitions(member, "?limit=1", METADATA_LIST, Class::Read).await?;
        let list: List = serde_json::from_slice(&collect(list.into_body(), LIST_BYTES_MAX).await.ok()?).ok()?;
        let from = list.metadata.resource_version;
        let seconds = WATCH_SECONDS + from.bytes().fold(0, |sum, byte| (sum * 10 + u64::from(byte)) % WATCH_SECONDS);
        let query = format!("?watch=1&resourceVersion={from}&timeoutSeconds={seconds}");
        let mut events = definitions(member, &query, METADATA, Class::Watch).await?.into_body();
        *has_begun = true;
        // What has changed before.
        self.refresh(Arc::clone(member)).await;
        loop {
            events.frame().await?.ok()?;
            let mut pauses = PAUSES.iter();
            while let Some(pause) = pauses.next() {
                if drain(&mut events, Instant::now() + *pause).await? {
                    pauses = PAUSES.iter();
                }
                self.refresh(Arc::clone(member)).await;
            }
        }
    }
}

/// Asks for definitions. `None`: they are not given.
async fn definitions(
    member: &Member,
    query: &str,
    accept: &'static str,
    class: Class,
) -> Option<Response<UpResponseBody>> {
    let path = ApiPath::of(&Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"));
    let request = Outgoing::own(Method::GET, path, query, empty()).ok()?;
    let request = request.with(header::ACCEPT, HeaderValue::from_static(accept));
    member.send(request, class).await.ok().filter(|answer| answer.status().is_success())
}

/// Takes what comes until then, and says whether anything came. `None`: the watch has ended.
async fn drain(events: &mut UpResponseBody, until: Instant) -> Option<bool> {
    let mut came = false;
    while let Ok(event) = timeout_at(until, events.frame()).await {
        event?.ok()?;
        came = true;
    }
    Some(came)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::StreamExt;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio::sync::{Notify, watch};

    use super::*;
    use crate::{
        catalog::{
            Fetcher,
            testdata::{EAST, FakeMember, group},
        },
        member::fake::{Fake, handler},
        stores::tests::{config, stores_of},
    };
    use kubefold_wire::body::{BodyError, full};

    /// Serves what `member` serves, and tells of a definition whenever it is let.
    async fn serving(member: Arc<FakeMember>, event: Arc<Notify>, watches: watch::Sender<usize>) -> Fake {
        let watches = Arc::new(watches);
        Fake::http2(handler(move |request| {
            let (member, event, watches) = (Arc::clone(&member), Arc::clone(&event), Arc::clone(&watches));
            async move {
                let path = request.uri().path();
                if !path.ends_with("/customresourcedefinitions") {
                    let (head, body) = member.get(path, request.headers().clone()).await?.into_parts();
                    return Ok(Response::from_parts(head, full(body)));
                }
                if !request.uri().query().unwrap_or_default().contains("watch=1&resourceVersion=7&") {
                    return Ok(Response::new(full(r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#)));
                }
                watches.send_modify(|count| *count += 1);
                let events = futures::stream::unfold(event, |event| async {
                    event.notified().await;
                    let line = Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":{}}\n");
                    Some((Ok::<_, BodyError>(Frame::data(line)), event))
                });
                Ok(Response::new(StreamBody::new(events.boxed()).boxed_unsync()))
            }
        }))
        .await
    }

    #[tokio::test]
    async fn one_of_many_members_is_asked_when_its_definitions_change() {
        let (member, event) = (Arc::new(FakeMember::new(EAST, true)), Arc::new(Notify::new()));
        let (watches, mut begun) = watch::channel(0);
        let fake = serving(Arc::clone(&member), Arc::clone(&event), watches).await;
        let names: Vec<String> = (0..20).map(|at| format!("m{at:02}")).collect();
        let others = config(&names.iter().map(String::as_str).collect::<Vec<_>>()).members;
        let stores = stores_of([vec![fake.config("east")], others].concat());
        assert!(stores.catalog.polls_seldom());
        let heeding = {
            let (stores, until) = (Arc::clone(&stores), stores.cancel.clone());
            let east = stores.registry.get("east").unwrap();
            stores.clone().tasks.spawn(async move { stores.heed(&east, &until).await })
        };
        begun.changed().await.unwrap();
        let foxes = Gvr::new("foxes.io", "v1", "foxes");
        let mut changes = stores.catalog.changes();
        while stores.catalog.current().get(&Gvr::new("", "v1", "pods")).is_none() {
            changes.changed().await.unwrap();
        }
        assert!(stores.catalog.current().get(&foxes).is_none());
        // It is told of before it is served.
        event.notify_one();
        sleep(PAUSES[0] * 2).await;
        member.edit(|groups| groups.push(group("foxes.io", "v1", "foxes", "Fox", "Current")));
        while stores.catalog.current().get(&foxes).is_none() {
            changes.changed().await.unwrap();
        }
        stores.cancel.cancel();
        heeding.await.unwrap();
        assert_eq!(*begun.borrow(), 1, "one watch");
    }
}
