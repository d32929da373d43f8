//! Tells other processes what this one shows, so that one of them goes on where this one is killed:
//! docs/design/revisions.md#after-a-kill.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use http_body::Frame as BodyFrame;
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::{
    store::{FleetStore, Revision},
    stores::{Stores, told::Frame},
};
use kubefold_wire::{
    body::{Body, BodyError},
    resource::Gvr,
};

/// How often it is looked what has happened while much does. A watch that was told of something after the last look before a kill begins
/// anew.
const TELL_EVERY: Duration = Duration::from_millis(5);
/// How often when nothing has for [`CALM_AFTER`].
const LOOK_EVERY: Duration = Duration::from_millis(20);
const CALM_AFTER: Duration = Duration::from_secs(1);

/// What one process has been told.
struct Teller {
    stores: Weak<Stores>,
    /// Up to which event of each kind, by the store that had it.
    kinds: HashMap<Gvr, (Weak<FleetStore>, Revision)>,
    /// Everything up to there.
    reached: Revision,
    /// When there was news last.
    news_at: Instant,
}

impl Stores {
    /// What this process shows, told for as long as it serves, and the other side reads.
    pub fn telling(&self) -> Body {
        let teller =
            Teller { stores: self.this.clone(), kinds: HashMap::new(), reached: Revision(0), news_at: Instant::now() };
        let told = stream::unfold(teller, |teller| async {
            let (news, teller) = teller.news().await?;
            let frame = news.map(BodyFrame::data).map_err(|error| -> BodyError { error.into() });
            Some((frame, teller))
        });
        let until = self.cancel.clone().cancelled_owned();
        StreamBody::new(Box::pin(told.take_until(until))).boxed_unsync()
    }
}

impl Teller {
    /// Waits until something has happened. `None`: this process ends.
    async fn news(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            sleep(if self.news_at.elapsed() < CALM_AFTER { TELL_EVERY } else { LOOK_EVERY }).await;
            let stores = self.stores.upgrade()?;
            let last = stores.shared().revisions.last();
            if last > self.reached {
                self.news_at = Instant::now();
                // Bytes of objects are read.
                let collecting = spawn_blocking(move || (self.collect(&stores, last), self));
                return collecting.await.ok();
            }
        }
    }

    /// What has happened up to a revision, which was given out for any kind.
    fn collect(&mut self, stores: &Stores, last: Revision) -> io::Result<Bytes> {
        let mut out = BytesMut::new();
        let all = stores.all_running();
        let followed: HashMap<&Gvr, &Arc<FleetStore>> = all
            .iter()
            .filter(|running| running.together.is_some())
            .map(|running| (&running.store.spec().gvr, &running.store))
            .collect();
        let is_followed = |gvr: &Gvr, of: &Weak<FleetStore>| {
            followed.get(gvr).is_some_and(|store| std::ptr::eq(Arc::as_ptr(store), of.as_ptr()))
        };
        let ended: Vec<Gvr> =
            self.kinds.iter().filter(|(gvr, (of, _))| !is_followed(gvr, of)).map(|(gvr, _)| gvr.clone()).collect();
        for gvr in ended {
            self.kinds.remove(&gvr);
            Frame::Ended(gvr).write(&mut out)?;
        }
        for (gvr, store) in followed {
            let after = self.kinds.get(gvr).map(|(_, told)| *told);
            match after.and_then(|after| store.shown_after(after, last)) {
                Some(later) => {
                    if !later.is_empty() {
                        self.kinds.insert(gvr.clone(), (Arc::downgrade(store), later.head()));
                        Frame::Changed(gvr.clone(), later).write(&mut out)?;
                    }
                }
                None => {
                    let Some(shown) = store.shown(last) else { continue };
                    self.kinds.insert(gvr.clone(), (Arc::downgrade(store), shown.head()));
                    Frame::Shown(gvr.clone(), shown).write(&mut out)?;
                }
            }
        }
        Frame::Reached(last).write(&mut out)?;
        self.reached = last;
        Ok(out.freeze())
    }
}
