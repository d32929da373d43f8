//! What a write left half-made goes: that of a process that was killed, and what could not be undone at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    Shadow,
    journal::Note,
    object::{Reference, list},
    pending::Name,
};
use kubefold_apiserver::{kinds::Kind, registry::Registry};
use kubefold_wire::access::text;

/// What failed is tried again after so long.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// A request that got no answer may land within this time.
const LANDS_WITHIN: Duration = Duration::from_secs(60);

/// Undoes what writes have left half-made: those of an earlier process, and those that are not done with.
pub(super) async fn run(shadow: &Shadow, registry: &Registry, kind: &Arc<Kind>) {
    let mut open: BTreeMap<Name, (Note, Instant)> = BTreeMap::new();
    match shadow.journal.all().await {
        Ok(notes) => open.extend(notes.into_iter().map(|note| (of_note(&note), (note, Instant::now())))),
        Err(error) => tracing::error!(%error, "what an earlier process left half-made cannot be read"),
    }
    loop {
        for (name, (note, since)) in std::mem::take(&mut open) {
            if !is_settled(shadow, registry, kind, &note, since).await {
                open.insert(name, (note, since));
            }
        }
        tokio::select! {
            () = shadow.again.added() => {
                let taken = shadow.again.take().into_iter();
                open.extend(taken.map(|(name, note)| (name, (note, Instant::now()))));
            }
            () = sleep(RETRY_AFTER), if !open.is_empty() => {}
        }
    }
}

/// Says whether a write is done or undone.
pub(super) async fn is_settled(
    shadow: &Shadow,
    registry: &Registry,
    kind: &Arc<Kind>,
    note: &Note,
    since: Instant,
) -> bool {
    let kept = match registry.get(kind, &note.namespace, &note.name).await {
        Ok(object) => Some(object.value()).filter(|object| text(object, "/metadata/uid") == note.uid),
        Err(status) if status.code == http::StatusCode::NOT_FOUND => None,
        Err(_) => return false,
    };
    let is_kept = |item: &Reference| {
        kept.as_ref().is_some_and(|kept| list(kept).iter().any(|one| Reference::of(one).is_same(item)))
    };
    let orphans: Vec<Reference> = note.references().into_iter().filter(|item| !is_kept(item)).collect();
    let left = shadow.undone(note, &orphans).await;
    let may_land = !orphans.is_empty() && since.elapsed() < LANDS_WITHIN;
    if !left.is_empty() || may_land {
        return false;
    }
    shadow.journal.end(&note.namespace, &note.name).await;
    true
}

fn of_note(note: &Note) -> Name {
    (note.namespace.clone(), note.name.clone())
}
