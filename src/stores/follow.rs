//! What happens in a store, for who follows it inside of kubefold.

use std::sync::Arc;

use crate::store::{FleetStore, Interest, ReadAfter, Record, Revision};

/// Events read at once.
const RECORDS_MAX: usize = 256;
/// Bytes of their objects.
const RECORDS_BYTES_MAX: usize = 1 << 20;

/// What a follower is told.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// Everything from here on is told.
    Begun,
    /// One event.
    Event(&'a Arc<Record>),
    /// The follower was too slow: anything may have happened. Everything from here on is told.
    Lost,
}

/// Tells what happens in a store, in order, until the store ends. Cancel: safe.
pub async fn follow(store: &FleetStore, mut tell: impl FnMut(Heard<'_>)) {
    let begin = || store.snapshot_and_cursor(Revision(0), &Interest::Everything).1;
    let (mut cursor, mut news, mut records) = (begin(), store.subscribe(), Vec::new());
    tell(Heard::Begun);
    while !store.is_ended() {
        news.borrow_and_update();
        let outcome = store.read(&mut cursor, RECORDS_MAX, RECORDS_BYTES_MAX, &mut records);
        if outcome == ReadAfter::Expired {
            cursor = begin();
            tell(Heard::Lost);
        } else if records.is_empty() {
            if news.changed().await.is_err() {
                return;
            }
        } else {
            records.drain(..).for_each(|record| tell(Heard::Event(&record)));
        }
    }
}
