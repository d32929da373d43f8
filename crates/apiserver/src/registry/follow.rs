//! What is known of all objects of some kinds, kept by watches.

use std::{sync::Arc, time::Duration};

use futures::stream::{BoxStream, StreamExt, select_all};
use parking_lot::RwLock;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    kinds::Kind,
    registry::{Event, Events, From, Registry, Selection},
};
use kubefold_wire::status::Status;

/// After a failure of the storage.
const RETRY: Duration = Duration::from_secs(1);
/// How long a write waits to be followed: it is made, whatever becomes of the watch.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// Something that is made of the objects of some kinds.
pub(crate) trait Index: Default + Send + Sync + 'static {
    /// Takes an object of the kind at a place in: what is new of it, or what was before it went.
    fn take(&mut self, place: usize, event: &Event);
}

/// An index that follows a registry.
pub(crate) struct Followed<I> {
    index: RwLock<I>,
    /// The revision up to which objects count.
    seen: watch::Sender<u64>,
    /// Such as `roles and bindings`.
    what: &'static str,
}

impl<I: Index> Followed<I> {
    /// One that knows nothing yet, and what makes it follow the registry.
    pub(crate) fn new(what: &'static str, registry: &Registry, kinds: Vec<Arc<Kind>>) -> (Arc<Self>, Follower<I>) {
        let followed = Arc::new(Self { index: RwLock::new(I::default()), seen: watch::Sender::new(0), what });
        (Arc::clone(&followed), Follower { followed, registry: registry.clone(), kinds })
    }

    /// Looks into the index.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&I) -> T) -> T {
        look(&self.index.read())
    }

    /// Waits until all counts that was written before. So whoever wrote an object finds it in force with his next request.
    pub(crate) async fn settled(&self, registry: &Registry) {
        let Ok(revision) = registry.revision().await else { return };
        let mut seen = self.seen.subscribe();
        if timeout(SETTLE_MAX, seen.wait_for(|seen| *seen >= revision)).await.is_err() {
            tracing::warn!(revision, "a write to {} is not in force yet", self.what);
        }
    }

    fn announce(&self, watches: &Watches) {
        let seen = watches.seen.iter().copied().min().unwrap_or_default();
        self.seen.send_if_modified(|known| std::mem::replace(known, seen) != seen);
    }
}

/// Makes an index follow a registry.
pub(crate) struct Follower<I> {
    followed: Arc<Followed<I>>,
    registry: Registry,
    kinds: Vec<Arc<Kind>>,
}

/// The watches of all kinds, after their beginning.
pub(crate) struct Watches {
    /// With the place of the kind.
    events: BoxStream<'static, (usize, Option<Result<Event, Status>>)>,
    /// Up to where each was told.
    seen: Vec<u64>,
}

impl<I: Index> Follower<I> {
    /// Follows them until it is cancelled, whatever the storage says. Meanwhile what was there last is in force.
    ///
    /// Cancel: safe.
    pub(crate) async fn follow_until(self, loaded: Watches, stop: CancellationToken) {
        let mut loaded = Some(loaded);
        while !stop.is_cancelled() {
            let Some(Err(status)) = stop.run_until_cancelled(self.run(loaded.take())).await else { continue };
            tracing::warn!(error = status.message, "restarting the watches of {}", self.followed.what);
            let _cancelled = stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
        }
    }

    async fn run(&self, loaded: Option<Watches>) -> Result<(), Status> {
        let mut watches = match loaded {
            Some(watches) => watches,
            None => self.load().await?,
        };
        while let Some((place, event)) = watches.events.next().await {
            let Some(event) = event else { break };
            let event = event?;
            self.followed.index.write().take(place, &event);
            if let Some(seen) = watches.seen.get_mut(place) {
                *seen = (*seen).max(revision_of(&event));
            }
            self.followed.announce(&watches);
        }
        Ok(())
    }

    /// Reads all of them into a new index, and puts it in place of the old one.
    ///
    /// Errors: the storage's.
    pub(crate) async fn load(&self) -> Result<Watches, Status> {
        let (mut index, mut all, mut seen) = (I::default(), Vec::new(), Vec::new());
        for (place, kind) in self.kinds.iter().enumerate() {
            let mut events: Events = self.registry.watch(kind, "", Selection::default(), From::Start).await?;
            let mut synced = 0;
            while let Some(event) = events.next().await.transpose()? {
                index.take(place, &event);
                if let Event::Synced(revision) = event {
                    synced = revision;
                    break;
                }
            }
            seen.push(synced);
            // The end of one is the end of all.
            let events = events.map(Some).chain(futures::stream::iter([None]));
            all.push(events.map(move |event| (place, event)).boxed());
        }
        *self.followed.index.write() = index;
        let watches = Watches { events: select_all(all).boxed(), seen };
        self.followed.announce(&watches);
        Ok(watches)
    }
}

fn revision_of(event: &Event) -> u64 {
    match event {
        Event::Added(object) | Event::Modified(object) | Event::Deleted(object) => object.revision(),
        Event::Synced(revision) | Event::Progress(revision) => *revision,
    }
}
