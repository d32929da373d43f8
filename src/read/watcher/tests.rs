use futures::FutureExt;
use serde_json::Value;

use super::*;
use crate::{
    config::{MemberName, Names},
    read::turns::Turns,
    store::{Identities, KindSpec, LogLimits, Naming, Revisions, Shared},
    view::FleetSelector,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    accept::PARTIAL_OBJECT,
    protobuf,
    resource::{Gvk, Gvr},
    selector::FieldSelector,
    watch::Event,
};

fn east() -> MemberName {
    MemberName::new("east").unwrap()
}

/// A store of ConfigMaps of one member, whose log holds so many bytes.
fn store(log_bytes: usize) -> Arc<FleetStore> {
    let shared = Shared {
        naming: Arc::new(Naming::of(Names::Plain, Vec::new(), vec![east()])),
        identities: Arc::new(Identities::default()),
        revisions: Arc::new(Revisions::volatile()),
        log_limits: LogLimits::new(log_bytes, log_bytes),
    };
    let spec = KindSpec::new(Gvr::new("", "v1", "configmaps"), Gvk::new("", "v1", "ConfigMap"), true);
    let store = Arc::new(FleetStore::new(Arc::new(spec), shared, |_| {}));
    store.join(&east(), "uid");
    store.open();
    store
}

/// Makes an event; `life` is part of the object's UID.
fn say(store: &FleetStore, event_type: EventType, name: &str, life: u64, rv: u64, bytes: usize) {
    let object = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}-{life}","resourceVersion":"{rv}","labels":{{"life":"{life}","size":"{bytes}"}}}},"data":{{"x":"{}"}}}}"#,
        "x".repeat(bytes)
    );
    store.watch_event(&east(), &Event { event_type, object: &object }).unwrap();
}

fn filter(labels: &str) -> Filter {
    Filter {
        namespace: String::new(),
        labels: FleetSelector::parse(labels, |_| false).unwrap(),
        fields: FieldSelector::default(),
        suffixed: false,
        echo: None,
        limit: None,
    }
}

fn watcher(store: &Arc<FleetStore>, labels: &str, form: Form, begins: bool) -> Watcher {
    let (snapshot, cursor) = store.snapshot_and_cursor(Revision(0), &Interest::Everything);
    let now = Instant::now();
    let watched = Watched {
        filter: filter(labels),
        interest: Interest::Everything,
        form,
        bookmarks: begins,
        end_bookmark: begins,
        deadline: now + Duration::from_hours(1),
        begun_by: now + Duration::from_mins(5),
        known: None,
        stale: Box::new(Vec::new),
        is_strict: false,
        rights: None,
        pace: Arc::new(Turns::new(1)).pace(&Caller::default()),
        telling: Telling { drain: CancellationToken::new(), may_tell: Arc::new(|| MayTell::Yes) },
    };
    let walk = begins.then(|| Walk::new(snapshot, filter(labels), ""));
    Watcher::new(store, watched, cursor, walk)
}

fn events(chunk: &Bytes) -> Vec<Value> {
    serde_json::Deserializer::from_slice(chunk).into_iter().map(Result::unwrap).collect()
}

/// A client that takes its time for the beginning, while far more changes than the log holds.
#[tokio::test]
async fn a_beginning_that_outlasts_the_log_ends_all_the_same() {
    let store = store(100_000);
    for at in 0..60 {
        say(&store, EventType::Added, &format!("c{at:02}"), 0, 10 + at, 8000);
    }
    let mut rv = 1000;
    for labels in ["", "life=0", "life!=0"] {
        let mut watcher = watcher(&store, labels, Form::default(), true);
        let (mut told, mut chunks) = (std::collections::BTreeMap::new(), 0);
        let revision = loop {
            let chunk = watcher.next_chunk().await.unwrap();
            assert!(chunk.len() <= CHUNK_BYTES, "{}", chunk.len());
            chunks += 1;
            let mut end = None;
            for event in events(&chunk) {
                let metadata = &event["object"]["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default().to_owned();
                let known = match event["type"].as_str().unwrap() {
                    "ADDED" => told.insert(name, event["object"].clone()).is_none(),
                    "MODIFIED" => told.insert(name, event["object"].clone()).is_some(),
                    "DELETED" => told.remove(&name).is_some(),
                    "BOOKMARK" => {
                        end = metadata["resourceVersion"].as_str().map(|text| Revision(text.parse().unwrap()));
                        true
                    }
                    other => panic!("{other}: {event}"),
                };
                assert!(known, "{event}");
            }
            if let Some(end) = end {
                break end;
            }
            if chunks < 4 {
                // Changed, gone, made anew, new, and changed back and forth.
                for name in ["c01", "c30", "c59"] {
                    for _ in 0..20 {
                        rv += 1;
                        say(&store, EventType::Modified, name, 0, rv, 9000 + chunks);
                    }
                }
                for (name, life) in [("c02", 0), ("c40", 0), ("c40", 1)] {
                    rv += 1;
                    let event_type = if chunks == 1 { EventType::Deleted } else { EventType::Added };
                    say(&store, event_type, name, life, rv, 8000);
                }
            }
        };
        let now = store.snapshot();
        assert_eq!(revision, now.revision, "{labels} {chunks}");
        let wanted = now.objects.values().filter(|entry| watcher.watched.filter.selected(entry).is_some());
        let wanted: Vec<Value> = wanted.map(|entry| serde_json::from_slice(entry.json()).unwrap()).collect();
        assert_eq!(told.into_values().collect::<Vec<_>>(), wanted, "{labels}");
        assert!(store.expired() == 0 && !store.has_lost(&store.cursor(revision, &Interest::Everything).unwrap()));
        // What comes then is told as ever.
        say(&store, EventType::Added, "new", 0, rv + 1, 10);
        say(&store, EventType::Deleted, "new", 0, rv + 2, 10);
        say(&store, EventType::Added, "new", 1, rv + 3, 10);
        say(&store, EventType::Deleted, "new", 1, rv + 4, 10);
        rv += 4;
        let told = events(&watcher.next_chunk().await.unwrap());
        assert_eq!(told.len(), if labels.is_empty() { 4 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_beginning_that_nobody_takes_for_five_minutes_ends() {
    let store = store(1 << 20);
    (0..60).for_each(|at| say(&store, EventType::Added, &format!("c{at:02}"), 0, 10 + at, 8000));
    let mut watcher = watcher(&store, "", Form::default(), true);
    assert!(watcher.next_chunk().await.is_some());
    tokio::time::advance(Duration::from_mins(5)).await;
    assert_eq!(events(&watcher.next_chunk().await.unwrap())[0]["object"]["code"], 410);
    assert!(watcher.next_chunk().await.is_none());
}

#[tokio::test]
async fn watchers_of_one_form_are_told_with_the_same_bytes() {
    let store = store(1 << 20);
    let partial = KindSpec::new(Gvr::new("", "v1", "configmaps"), Gvk::new("", "v1", "ConfigMap"), true);
    let metadata = Form::of_object(Some(PARTIAL_OBJECT), &partial, &Default::default()).unwrap();
    let mut whole: Vec<Watcher> = (0..3).map(|_| watcher(&store, "", Form::default(), false)).collect();
    whole.push(watcher(&store, "size=100", Form::default(), false));
    let mut partial = [(); 2].map(|()| watcher(&store, "", metadata.clone(), false));
    say(&store, EventType::Added, "c", 1, 10, 100);
    let mut told = Vec::new();
    for watcher in whole.iter_mut().chain(&mut partial) {
        told.push(watcher.next_chunk().await.unwrap());
    }
    let is_same = |one: usize, other: usize| told[one].as_ptr() == told[other].as_ptr();
    assert!(is_same(0, 1) && is_same(0, 2) && is_same(0, 3), "a selector that selects all of it changes nothing");
    assert!(is_same(4, 5) && !is_same(0, 4));
    assert_eq!(events(&told[4])[0]["object"]["kind"], "PartialObjectMetadata");
    // To one the object changed, and to another it is gone.
    say(&store, EventType::Modified, "c", 1, 11, 101);
    let changed = whole[0].next_chunk().await.unwrap();
    let left = whole[3].next_chunk().await.unwrap();
    assert_eq!((&events(&changed)[0]["type"], &events(&left)[0]["type"]), (&"MODIFIED".into(), &"DELETED".into()));
}

#[tokio::test]
async fn a_selector_is_judged_once_for_all_who_select_by_it() {
    let store = store(1 << 20);
    let (one, same, other) = (
        watcher(&store, "life=1", Form::default(), false),
        watcher(&store, "life=1", Form::default(), false),
        watcher(&store, "life=2", Form::default(), false),
    );
    let id = |watcher: &Watcher| watcher.selector.as_ref().unwrap().id();
    assert!(id(&one) == id(&same) && id(&one) != id(&other));
    assert!(watcher(&store, "", Form::default(), false).selector.is_none(), "there is nothing to judge");
    say(&store, EventType::Added, "c", 1, 10, 100);
    let mut records = Vec::new();
    let mut cursor = store.cursor(one.cursor.revision, &Interest::Everything).unwrap();
    store.read(&mut cursor, 1, 1, &mut records);
    assert_eq!(one.judge(&records[0]), Some(Transition::Added));
    assert_eq!(records[0].verdict(id(&same), || panic!("it was judged")), Some(Transition::Added));
    assert_eq!(other.judge(&records[0]), None);
}

#[tokio::test]
async fn a_watcher_that_lags_is_given_chunks_of_a_bounded_size() {
    let store = store(16 << 20);
    let mut watcher = watcher(&store, "", Form::default(), false);
    (0..200).for_each(|at| say(&store, EventType::Added, &format!("c{at}"), 0, 10 + at, 20_000));
    let mut told = 0;
    while let Some(Some(chunk)) = watcher.next_chunk().now_or_never() {
        assert!(chunk.len() <= CHUNK_BYTES);
        assert!(watcher.unsent.len() * 20_000 <= RECORDS_BYTES_MAX + 20_000, "{}", watcher.unsent.len());
        told += events(&chunk).len();
    }
    assert_eq!(told, 200);
}

fn in_protobuf() -> Form {
    let spec = KindSpec::new(Gvr::new("", "v1", "configmaps"), Gvk::new("", "v1", "ConfigMap"), true);
    Form::default().in_protobuf(&spec)
}

/// The lines of JSON as frames.
fn framed(chunk: &Bytes) -> Vec<u8> {
    let lines = std::str::from_utf8(chunk).unwrap().lines();
    lines.flat_map(|line| protobuf::watch_frame(line).unwrap()).collect()
}

#[tokio::test]
async fn a_watch_in_protobuf_tells_what_one_in_json_tells_and_shares_its_frames() {
    let store = store(1 << 20);
    (0..3).for_each(|at| say(&store, EventType::Added, &format!("c{at}"), 0, 10 + at, 100));
    let mut json = watcher(&store, "", Form::default(), true);
    let mut protobuf = [(); 2].map(|()| watcher(&store, "", in_protobuf(), true));
    let mut selecting = watcher(&store, "size=100", in_protobuf(), true);
    for step in 0..4 {
        match step {
            1 => say(&store, EventType::Modified, "c1", 0, 20, 101),
            2 => say(&store, EventType::Deleted, "c2", 0, 21, 100),
            3 => (0..5).for_each(|at| say(&store, EventType::Added, &format!("d{at}"), 0, 30 + at, 1000)),
            _ => {}
        }
        let told = json.next_chunk().await.unwrap();
        let [one, other] = [protobuf[0].next_chunk().await.unwrap(), protobuf[1].next_chunk().await.unwrap()];
        assert!(one == other && one == framed(&told), "step {step}");
        assert_eq!(one.as_ptr() == other.as_ptr(), step == 1 || step == 2, "step {step}");
    }
    // The object leaves the selection: its state before is told, as of the event.
    selecting.next_chunk().await.unwrap();
    let mut in_json = watcher(&store, "size=1000", Form::default(), false);
    let mut selecting = watcher(&store, "size=1000", in_protobuf(), false);
    say(&store, EventType::Modified, "d1", 0, 40, 7);
    assert_eq!(selecting.next_chunk().await.unwrap(), framed(&in_json.next_chunk().await.unwrap()));
}

#[tokio::test]
async fn a_watch_in_protobuf_ends_before_an_object_that_it_has_no_form_for() {
    let unfit = |store: &FleetStore, name: &str, rv: u64| {
        let object = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","resourceVersion":"{rv}"}},"newer":1}}"#
        );
        store.watch_event(&east(), &Event { event_type: EventType::Added, object: &object }).unwrap();
    };
    for (before, after) in [(0, 0), (1, 0), (2, 1)] {
        let store = store(1 << 20);
        let mut json = watcher(&store, "", Form::default(), false);
        let mut protobuf = [(); 2].map(|()| watcher(&store, "", in_protobuf(), false));
        (0..before).for_each(|at| say(&store, EventType::Added, &format!("c{at}"), 0, 10 + at, 100));
        unfit(&store, "n", 20);
        (0..after).for_each(|at| say(&store, EventType::Added, &format!("d{at}"), 0, 30 + at, 100));
        let told = events(&json.next_chunk().await.unwrap());
        assert_eq!(told.len() as u64, before + 1 + after);
        for watcher in &mut protobuf {
            for chunk in 0..u64::from(before > 0) {
                let frames = watcher.next_chunk().await.unwrap();
                assert!(frames.windows(4).filter(|name| *name == b"u-c0").count() == 1, "{chunk}");
                assert!(!frames.windows(2).any(|two| two == b"d0"), "nothing is told that is behind it");
            }
            assert_eq!(watcher.next_chunk().await, None, "it ends cleanly");
        }
        assert!(store.had_unfit() && store.unfit() <= 2);
        // So does one that begins with it.
        let mut beginning = watcher(&store, "", in_protobuf(), true);
        while beginning.next_chunk().await.is_some() {}
        assert!(beginning.over);
        assert!(store.unfit() >= 2);
    }
}

/// A process that stood still may have been replaced: it tells nothing before that is clear, and then nothing at all or everything.
#[tokio::test(start_paused = true)]
async fn what_another_process_may_have_told_in_another_way_is_not_told() {
    for then in [MayTell::Yes, MayTell::No] {
        let store = store(100_000);
        say(&store, EventType::Added, "first", 0, 10, 10);
        let mut watcher = watcher(&store, "", Form::default(), true);
        while !events(&watcher.next_chunk().await.unwrap()).iter().any(|event| event["type"] == "BOOKMARK") {}
        let began = Instant::now();
        let may_tell = move || if began.elapsed() < Duration::from_secs(1) { MayTell::Unclear } else { then };
        watcher.watched.telling.may_tell = Arc::new(may_tell);
        say(&store, EventType::Added, "second", 0, 11, 10);
        let next = watcher.next_chunk().await;
        assert!(began.elapsed() >= Duration::from_secs(1));
        match then {
            MayTell::Yes => assert_eq!(events(&next.unwrap())[0]["object"]["metadata"]["name"], "second"),
            _ => assert_eq!(next, None),
        }
    }
}

/// Kubefold ends, and what was on its way comes in a moment later. The next process begins behind all of it.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_with_kubefold_has_the_last_events_of_its_kind() {
    let store = store(100_000);
    say(&store, EventType::Added, "first", 0, 10, 10);
    for (at, labels) in ["", "life=9"].into_iter().enumerate() {
        let mut watcher = watcher(&store, labels, Form::default(), true);
        while !events(&watcher.next_chunk().await.unwrap()).iter().any(|event| event["type"] == "BOOKMARK") {}
        watcher.watched.telling.drain.cancel();
        let began = Instant::now();
        let late = async {
            for rv in 0..20 {
                sleep(Duration::from_millis(40)).await;
                say(&store, EventType::Modified, "first", 0, 100 * (at as u64 + 1) + rv, 10);
            }
        };
        let told = async {
            let mut told = Vec::new();
            while let Some(chunk) = watcher.next_chunk().await {
                told.extend(events(&chunk));
            }
            told
        };
        let ((), mut told) = tokio::join!(late, told);
        let last = told.pop().unwrap();
        assert_eq!(last["type"], "BOOKMARK");
        assert_eq!(last["object"]["metadata"]["resourceVersion"], store.snapshot().revision.to_string());
        assert_eq!(told.len(), if labels.is_empty() { 20 } else { 0 });
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    // Who never stops is not waited for.
    let mut watcher = watcher(&store, "life=9", Form::default(), true);
    while !events(&watcher.next_chunk().await.unwrap()).iter().any(|event| event["type"] == "BOOKMARK") {}
    watcher.watched.telling.drain.cancel();
    let endless = async {
        for rv in 1000.. {
            sleep(Duration::from_millis(20)).await;
            say(&store, EventType::Modified, "first", 0, rv, 10);
        }
    };
    let ended = async { while watcher.next_chunk().await.is_some() {} };
    tokio::select! {
        () = endless => {}
        () = sleep(Duration::from_secs(2)) => panic!("it does not end"),
        () = ended => {}
    }
}
