//! Watches: where they begin, and how long they last.

use std::{sync::Arc, time::Duration};

use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::Instant;

use crate::{
    access::Following,
    answer::form::Form,
    read::{
        answer::watch_response,
        filter::Filter,
        turns::Pace,
        walk::Walk,
        watcher::{BEGUN_WITHIN, Stale, Telling, Watched, Watcher, error_frame},
    },
    respond::ReadError,
    store::{Cursor, Entry, FleetStore, Interest, Revision, Snapshot},
    view::ListOptions,
};
use kubefold_wire::{
    body::{Body, BodyError, full},
    options::At,
};

/// A watch without a deadline of its own ends after half an hour and, so that not all end at once, up to as long again.
const DEADLINE_MIN_SECONDS: u64 = 1800;

/// What surrounds a watch.
pub(super) struct Surroundings {
    /// The latest revision given out, for any kind.
    pub(super) last: Revision,
    /// An object that the client knows by another version of the kind: its existence is not an event.
    pub(super) known: Option<Arc<Entry>>,
    pub(super) stale: Stale,
    /// Ends the watch when a member is not current any more.
    pub(super) is_strict: bool,
    /// What becomes of the caller's rights; absent where none are asked for.
    pub(super) rights: Option<Following>,
    /// In whose turns it gives the objects of its beginning.
    pub(super) pace: Pace,
    pub(super) telling: Telling,
    /// How objects are written; `None` if it cannot be: a kube-apiserver ends such a watch at its first event.
    pub(super) form: Option<Form>,
}

/// Answers a watch. One that cannot begin where it wants to is told so in the stream: on an HTTP 410 clients would try
/// the same revision for ever (client-go `tools/watch/retrywatcher.go`).
pub(super) fn watch(
    store: &Arc<FleetStore>,
    options: &ListOptions,
    filter: Filter,
    around: Surroundings,
) -> Response<Body> {
    let Surroundings { last, known, stale, is_strict, rights, pace, telling, form } = around;
    let interest = filter.interest(store.spec());
    let (initial, cursor) = match begin(store, options, last, &interest) {
        Ok(begun) => begun,
        Err(error) => {
            let form = form.unwrap_or_default();
            return watch_response(form.media(), full(form.line(error_frame(error))));
        }
    };
    let seconds = match options.timeout_seconds {
        Some(seconds) => u64::try_from(seconds).unwrap_or_default().min(7 * 24 * 3600),
        None => DEADLINE_MIN_SECONDS + last.0 % DEADLINE_MIN_SECONDS,
    };
    let now = Instant::now();
    let walk = initial.map(|snapshot| Walk::new(snapshot, filter.clone(), ""));
    let fits = form.is_some();
    let form = form.unwrap_or_default();
    let media = form.media();
    let watched = Watched {
        filter,
        interest,
        form,
        bookmarks: options.bookmarks,
        end_bookmark: options.send_initial_events == Some(true) && options.bookmarks,
        deadline: now + Duration::from_secs(seconds),
        begun_by: now + BEGUN_WITHIN,
        known,
        stale,
        is_strict,
        rights,
        pace,
        telling,
    };
    let watcher = Watcher::new(store, watched, cursor, walk);
    let chunks = futures::stream::unfold(watcher, move |mut watcher| async move {
        let chunk = watcher.next_chunk().await.filter(|_| fits)?;
        Some((Ok::<_, BodyError>(Frame::data(chunk)), watcher))
    });
    watch_response(media, StreamBody::new(chunks).boxed_unsync())
}

/// Where a watch begins: at the objects of now, or in the log.
fn begin(
    store: &FleetStore,
    options: &ListOptions,
    last: Revision,
    interest: &Interest,
) -> Result<(Option<Snapshot>, Cursor), ReadError> {
    let initial = options.send_initial_events == Some(true);
    match options.at {
        At::Revision(asked) if asked > last.0 && initial => Err(ReadError::TooLarge { asked, current: last.0 }),
        At::Revision(asked) if asked > last.0 => Err(ReadError::WatchTooOld { asked: Revision(asked), known: last }),
        At::Revision(asked) if !initial => {
            let asked = Revision(asked);
            store
                .cursor(asked, interest)
                .map(|cursor| (None, cursor))
                .map_err(|expired| ReadError::WatchTooOld { asked, known: expired.floor })
        }
        at => {
            let at_least = if let At::Revision(asked) = at { Revision(asked) } else { Revision(0) };
            let (snapshot, cursor) = store.snapshot_and_cursor(at_least, interest);
            Ok((initial.then_some(snapshot), cursor))
        }
    }
}
