//! What is counted. Each case prepares outside [`measured`](crate::measured), and looks at the outcome outside it, too.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use kubefold::{
    config::{MemberName, Weight},
    placement::division::{Share, divide},
    store::{
        Audience, Cursor, Entry, FleetStore, FrameKey, Interest, ReadAfter, Record, Revision, Transition, Written,
    },
    view::Mode,
};
use kubefold_wire::{
    media::Media,
    token::ContinueToken,
    watch::{Event, EventType},
};

use crate::{
    callers::Known,
    measured,
    pods::{Fleet, changed},
};

/// One count.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
}

pub(crate) const ALL: [Case; 8] = [
    Case { name: "ingest", run: ingest },
    Case { name: "list", run: list },
    Case { name: "page", run: page },
    Case { name: "fan-out", run: fan_out },
    Case { name: "splice", run: splice },
    Case { name: "token", run: token },
    Case { name: "division", run: division },
    Case { name: "authorization", run: authorization },
];

const CHUNK: usize = 128 << 10;
const PAGE: usize = 500;
const WATCHERS: usize = 1_000;

/// A page of 500 pods of about 6 KB, as a member's list has it, goes into a store that is empty.
fn ingest() {
    let fleet = Fleet::new(1, PAGE);
    let store = fleet.store();
    measured(|| fleet.list(&store));
    assert_eq!(store.snapshot().objects.len(), PAGE);
}

/// 1,000 pods of four members are written out as a list has them.
fn list() {
    let store = Fleet::new(4, 250).filled();
    let snapshot = store.snapshot();
    let mut chunk = Vec::with_capacity(CHUNK);
    let written = measured(|| write_items(snapshot.objects.values(), &mut chunk));
    assert!(written > 5_000_000);
}

/// Writes items in chunks, and says how many bytes they have.
fn write_items<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>, chunk: &mut Vec<u8>) -> usize {
    let mut written = 0;
    for entry in entries {
        if chunk.len() + entry.json().len() + 1 > CHUNK {
            written += chunk.len();
            chunk.clear();
        }
        entry.write_item(chunk);
        chunk.push(b',');
    }
    written + chunk.len()
}

/// The second page of 500 is found by its continue token in a retained snapshot, and written out.
fn page() {
    let store = Fleet::new(4, 250).filled();
    store.open();
    let snapshot = store.snapshot();
    store.retain(&snapshot);
    let after = snapshot.range("", b"").nth(PAGE - 100).map(|entry| entry.key().to_vec());
    let after = String::from_utf8(after.unwrap()).unwrap();
    let token = ContinueToken::new("v1/pods".to_owned(), snapshot.revision.0, after, Some(600)).encode();
    let mut chunk = Vec::with_capacity(CHUNK);
    let written = measured(|| {
        let token = ContinueToken::decode(&token).unwrap();
        let snapshot = store.retained(Revision(token.revision)).unwrap();
        write_items(snapshot.range("", token.after.as_bytes()).take(PAGE), &mut chunk)
    });
    assert!(written > 2_500_000);
}

/// One event is read by 1,000 watchers, who are all told of it.
fn fan_out() {
    let fleet = Fleet::new(1, 10);
    let store = fleet.filled();
    store.open();
    let mut cursors: Vec<Cursor> =
        (0..WATCHERS).map(|_| store.snapshot_and_cursor(Revision(0), &Interest::Everything).1).collect();
    let mut revision = 20_000_000;
    let object = changed(&fleet.items[0][3], &mut revision);
    store.watch_event(&fleet.names[0], &Event { event_type: EventType::Modified, object: &object }).unwrap();
    let told: usize = measured(|| cursors.iter_mut().map(|cursor| tell(&store, cursor)).sum());
    assert!(told > WATCHERS * 5_000);
}

/// Gives a watcher the frame of the one event.
fn tell(store: &FleetStore, cursor: &mut Cursor) -> usize {
    let mut records: Vec<Arc<Record>> = Vec::new();
    assert!(matches!(store.read(cursor, 256, 1 << 20, &mut records), ReadAfter::Read));
    let (written, media) = (Written::Whole, Media::Json);
    let key = FrameKey { written, media, transition: Transition::Modified, audience: Audience::Everyone };
    let frame = |record: &Arc<Record>| {
        store.frame(record, key.clone(), || {
            let mut out = br#"{"type":"MODIFIED","object":"#.to_vec();
            record.entry.write_at(record.revision, &mut out);
            out.extend_from_slice(b"}\n");
            Bytes::from(out)
        })
    };
    records.iter().map(|record| frame(record).len()).sum()
}

/// A pod's new state comes by the watch: it is read, its visible form is spliced, and the event is logged.
fn splice() {
    let fleet = Fleet::new(1, 100);
    let store = fleet.filled();
    store.open();
    let mut revision = 20_000_000;
    let object = changed(&fleet.items[0][7], &mut revision);
    let event = Event { event_type: EventType::Modified, object: &object };
    let before = store.snapshot().revision;
    measured(|| store.watch_event(&fleet.names[0], &event)).unwrap();
    assert!(store.snapshot().revision > before);
}

/// A continue token is written and read, 100 times.
fn token() {
    let of = |at: u64| {
        let after = format!("team-{at:03}/web-{at:06}-0a1b2@member-1");
        ContinueToken::new("v1/pods".to_owned(), 478_000_000_000_000 + at, after, Some(9_500))
    };
    let tokens: Vec<ContinueToken> = (0..100).map(of).collect();
    let same = measured(|| {
        tokens.iter().filter(|token| ContinueToken::decode(&token.encode()).as_ref() == Some(*token)).count()
    });
    assert_eq!(same, 100);
}

/// 10,000 replicas are divided over 200 members of different weights.
fn division() {
    let names: Vec<MemberName> = (0..200).map(|at| MemberName::new(&format!("member-{at}")).unwrap()).collect();
    let shares: Vec<Share<'_>> =
        names.iter().zip(0_u32..).map(|(name, at)| Share::by_weight(name, Weight(1 + at % 7))).collect();
    let seats = measured(|| divide(10_000, &shares, "6f1c2d5e-0b1a-4c3d-8e9f-001122334455"));
    assert_eq!(seats.iter().sum::<u32>(), 10_000);
}

/// It is looked up 1,000 times what a caller may do, of whom 200 members have said it.
fn authorization() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let known = Known::by(200).await;
        // What the members said does not age meanwhile.
        tokio::time::pause();
        assert!(known.grant().await.check(Mode::Strict).is_ok());
        // Nothing is waited for: so no other task runs in between.
        let granted = measured(|| (0..1_000).filter(|_| known.grant().now_or_never().is_some()).count());
        assert_eq!(granted, 1_000);
    });
}
