use http::header;

use super::*;
use crate::{
    config::{MemberName, Names},
    read::{
        blocks::Blocks,
        filter::Filter,
        list::{Shape, list},
    },
    store::{Identities, KindSpec, LogLimits, Naming, Revision, Revisions, Shared},
    view::{FleetSelector, list_options},
};
use kubefold_wire::{
    accept::PARTIAL_OBJECT_LIST,
    protobuf,
    resource::{Gvk, Gvr},
    selector::FieldSelector,
    watch::{Event, EventType},
};

fn spec() -> KindSpec {
    KindSpec::new(Gvr::new("", "v1", "configmaps"), Gvk::new("", "v1", "ConfigMap"), true)
}

/// A store of ConfigMaps of these bytes.
fn store(limits: &LogLimits, sizes: impl Iterator<Item = usize>) -> Arc<FleetStore> {
    let shared = Shared {
        naming: Arc::new(Naming::of(Names::Plain, Vec::new(), vec![east()])),
        identities: Arc::new(Identities::default()),
        revisions: Arc::new(Revisions::volatile()),
        log_limits: limits.clone(),
    };
    let store = Arc::new(FleetStore::new(Arc::new(spec()), shared, |_| {}));
    store.join(&east(), "uid");
    store.open();
    sizes.enumerate().for_each(|(at, bytes)| add(&store, at, &format!(r#""data":{{"x":"{}"}}"#, "x".repeat(bytes))));
    store
}

fn east() -> MemberName {
    MemberName::new("east").unwrap()
}

fn add(store: &FleetStore, at: usize, data: &str) {
    let object = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"c{at:04}","namespace":"a","uid":"u-{at}","resourceVersion":"{}"}},{data}}}"#,
        10 + at
    );
    store.watch_event(&east(), &Event { event_type: EventType::Added, object: &object }).unwrap();
}

/// The content type of a list, and its chunks.
async fn listed(store: &Arc<FleetStore>, query: &str, echo: Option<&str>, form: Form) -> (String, Vec<Bytes>) {
    listed_of(store, query, echo, form, None).await
}

async fn listed_of(
    store: &Arc<FleetStore>,
    query: &str,
    echo: Option<&str>,
    form: Form,
    blocks: Option<&Blocks>,
) -> (String, Vec<Bytes>) {
    let options = list_options(query, false, &spec().gvr, |_| false).unwrap();
    let filter = Filter {
        namespace: String::new(),
        labels: FleetSelector::default(),
        fields: FieldSelector::default(),
        suffixed: false,
        echo: echo.map(str::to_owned),
        limit: None,
    };
    let shape = Shape { form, blocks, gzip: false };
    let response = list(store, &options, filter, shape, Revision(u64::MAX)).await.unwrap();
    let of = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let (mut body, mut chunks) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        chunks.push(frame.unwrap().into_data().unwrap());
    }
    (of, chunks)
}

fn metadata() -> Form {
    Form::of_list(Some(PARTIAL_OBJECT_LIST), &spec(), &Default::default()).unwrap()
}

/// Whatever is listed, and however often: the bytes that the whole list in JSON comes to, in chunks.
#[tokio::test]
async fn a_list_in_protobuf_is_what_its_json_comes_to() {
    let limits = LogLimits::default();
    let empty = store(&limits, std::iter::empty());
    let small = store(&limits, [0, 100, 200_000, 1, 127, 128].into_iter());
    let large = store(&limits, (0..700).map(|at| at * 17));
    for (store, is_large) in [(&empty, false), (&small, false), (&large, true)] {
        for form in [Form::default(), metadata()] {
            for (query, echo) in [("", None), ("limit=2", None), ("limit=5", Some("other"))] {
                let (_, json) = listed(store, query, echo, form.clone()).await;
                let wanted = protobuf::from_json(std::str::from_utf8(&json.concat()).unwrap()).unwrap();
                for _ in 0..2 {
                    let (of, chunks) = listed(store, query, echo, form.clone().in_protobuf(&spec())).await;
                    assert_eq!(of, protobuf::MEDIA_TYPE);
                    assert!(chunks.concat() == wanted, "{query} {echo:?}");
                    let fits = |chunk: &Bytes| chunk.len() <= CHUNK_BYTES || !is_large;
                    assert!(chunks.iter().all(fits));
                }
            }
        }
    }
}

#[tokio::test]
async fn the_messages_of_small_lists_are_kept_within_a_budget_and_of_large_ones_their_lengths() {
    let limits = LogLimits::default();
    let large = store(&limits, std::iter::repeat_n(10_000, 500));
    let messages = |store: &FleetStore| -> Vec<(Option<usize>, Option<Vec<u8>>)> {
        let entries = store.snapshot();
        let of = |entry: &Arc<Entry>| (entry.message_len(), entry.kept_message().map(|kept| kept.to_vec()));
        entries.objects.values().map(of).collect()
    };
    listed(&large, "", None, Form::default().in_protobuf(&spec())).await;
    assert!(messages(&large).iter().all(|(len, kept)| len.is_some_and(|len| len > 10_000) && kept.is_none()));
    assert_eq!(limits.messages_used(), 0);

    let small = [(); 12].map(|()| store(&limits, std::iter::repeat_n(10_000, 300)));
    for (listed_before, store) in small.iter().enumerate() {
        listed(store, "", None, Form::default().in_protobuf(&spec())).await;
        assert!(messages(store).iter().all(|(len, kept)| kept.as_ref().map(Vec::len) == *len && len.is_some()));
        assert!(limits.messages_used() <= 32 << 20, "{listed_before}");
    }
    assert!(
        messages(&small[0]).iter().all(|(len, kept)| len.is_some() && kept.is_none()),
        "what was made first goes first"
    );
    assert!(messages(&small[10]).iter().all(|(_, kept)| kept.is_some()));
}

#[tokio::test]
async fn a_list_that_is_too_large_for_messages_is_made_of_blocks_until_it_is_too_large_for_them() {
    let limits = LogLimits::default();
    for (objects, has_blocks) in [(300, false), (700, true), (1_700, false)] {
        let store = store(&limits, std::iter::repeat_n(10_000, objects));
        let blocks = Blocks::default();
        let form = || Form::default().in_protobuf(&spec());
        let wanted = listed(&store, "", None, form()).await.1.concat();
        let mut counts = Vec::new();
        for _ in 0..2 {
            let (of, chunks) = listed_of(&store, "", None, form(), Some(&blocks)).await;
            assert!(of == protobuf::MEDIA_TYPE && chunks.concat() == wanted, "{objects}");
            counts.push(blocks.count());
        }
        assert_eq!((counts[0] > 0, counts[0]), (has_blocks, counts[1]), "{objects}");
    }
}

#[tokio::test]
async fn a_list_with_an_object_that_does_not_fit_is_json_and_counted() {
    let store = store(&LogLimits::default(), [1, 2].into_iter());
    add(&store, 7, r#""newer":{"a":1}"#);
    let whole = Form::default().in_protobuf(&spec());
    let (of, json) = listed(&store, "", None, whole.clone()).await;
    assert_eq!((of.as_str(), store.unfit()), ("application/json", 1));
    assert_eq!(json.concat(), listed(&store, "", None, Form::default()).await.1.concat());
    // A page without it fits, and so does the metadata of all.
    assert_eq!(listed(&store, "limit=2", None, whole).await.0, protobuf::MEDIA_TYPE);
    assert_eq!(listed(&store, "", None, metadata().in_protobuf(&spec())).await.0, protobuf::MEDIA_TYPE);
    assert_eq!(store.unfit(), 1);
}
