use std::io::Read as _;

use flate2::read::GzDecoder;
use http_body_util::BodyExt as _;
use proptest::prelude::*;

use super::*;
use crate::{
    config::{MemberName, Names, SharedRule},
    read::{filter::Filter, messages},
    store::{FleetStore, Identities, KindSpec, LogLimits, Naming, Revisions, Shared, Snapshot},
    view::FleetSelector,
};
use kubefold_serving::{encode::GZIP_ABOVE_BYTES, packed::Packed};
use kubefold_wire::{
    accept::PARTIAL_OBJECT_LIST,
    body::Body,
    resource::{Gvk, Gvr},
    selector::FieldSelector,
    watch::{Event, EventType},
};

const HEAD: &[u8] = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":"#;

/// Config maps of one member.
struct Kept {
    store: Arc<FleetStore>,
    member: MemberName,
    rv: u64,
}

impl Kept {
    fn new(sizes: &[usize]) -> Self {
        let member = MemberName::new("east").unwrap();
        let shared = Shared {
            naming: Arc::new(Naming::of(Names::Plain, Vec::new(), vec![member.clone()])),
            identities: Arc::new(Identities::default()),
            revisions: Arc::new(Revisions::volatile()),
            log_limits: LogLimits::default(),
        };
        let spec = KindSpec::new(Gvr::new("", "v1", "configmaps"), Gvk::new("", "v1", "ConfigMap"), true);
        let store = Arc::new(FleetStore::new(Arc::new(spec), shared, |_| {}));
        store.join(&member, "uid");
        store.begin_list(&member);
        let objects: Vec<String> = sizes.iter().enumerate().map(|(at, size)| object(at, *size, 5)).collect();
        let items: Vec<&str> = objects.iter().map(String::as_str).collect();
        assert!(store.list_slice(&member, &items).is_empty());
        store.end_list(&member, 9);
        store.open();
        Self { store, member, rv: 10 }
    }

    /// Writes an object anew, or removes it.
    fn change(&mut self, at: usize, size: Option<usize>) {
        self.rv += 1;
        let event_type = if size.is_some() { EventType::Modified } else { EventType::Deleted };
        let object = object(at, size.unwrap_or_default(), self.rv);
        let event = Event { event_type, object: &object };
        self.store.watch_event(&self.member, &event).unwrap();
    }

    fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }
}

fn object(at: usize, size: usize, rv: u64) -> String {
    format!(
        r#"{{"metadata":{{"name":"c{at:05}","namespace":"default","uid":"u{at}","resourceVersion":"{rv}"}},"data":{{"x":"{}"}}}}"#,
        "y".repeat(size)
    )
}

fn everything() -> Filter {
    Filter {
        namespace: String::new(),
        labels: FleetSelector::default(),
        fields: FieldSelector::parse("", "", "configmaps").unwrap(),
        suffixed: false,
        echo: None,
        limit: None,
    }
}

fn entries(snapshot: &Snapshot) -> Vec<Arc<Entry>> {
    snapshot.range("", b"").cloned().collect()
}

fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut out).unwrap();
    out
}

async fn collected(body: Body) -> Vec<u8> {
    body.collect().await.unwrap().to_bytes().to_vec()
}

/// The list as it goes out, and whether it is in gzip.
async fn listed(blocks: &Blocks, walk: impl packed::Walk<Arc<Entry>> + 'static, form: Form) -> (Vec<u8>, bool) {
    match packed::json(blocks.packer(form, false), HEAD.to_vec(), walk).await {
        Packed::Plain(json) => (json, false),
        Packed::Gzip(body) => (unpacked(&collected(body).await), true),
    }
}

fn expected(form: &Form, entries: &[Arc<Entry>]) -> Vec<u8> {
    let mut out = HEAD.to_vec();
    for (at, entry) in entries.iter().enumerate() {
        out.push(if at == 0 { b'[' } else { b',' });
        form.item(entry, None, &mut out);
    }
    form.end_items(entries.is_empty(), &mut out);
    out
}

fn metadata_form(store: &FleetStore) -> Form {
    Form::of_list(Some(PARTIAL_OBJECT_LIST), store.spec(), &Default::default()).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However large the objects are, whatever changes between, and from wherever they come.
    #[test]
    fn what_is_unpacked_is_the_list(
        sizes in prop::collection::vec(prop_oneof![8 => 0..6_000_usize, 1 => 100_000..200_000_usize], 0..200),
        changes in prop::collection::vec((0..200_usize, prop::option::of(0..9_000_usize)), 0..12),
    ) {
        let mut kept = Kept::new(&sizes);
        let blocks = Blocks::default();
        let of_metadata = metadata_form(&kept.store);
        block_on(async {
            for change in [None].into_iter().chain(changes.into_iter().map(Some)) {
                if let Some((at, size)) = change.filter(|(at, _)| *at < sizes.len()) {
                    kept.change(at, size);
                }
                let (snapshot, all) = (kept.snapshot(), entries(&kept.snapshot()));
                for form in [Form::default(), of_metadata.clone()] {
                    let plain = expected(&form, &all);
                    let walk = Walk::new(snapshot.clone(), everything(), "");
                    let of_walk = listed(&blocks, walk, form.clone()).await;
                    for (list, is_gzip) in [of_walk, listed(&blocks, all.clone().into_iter(), form.clone()).await] {
                        assert!(list == plain, "{} and {} bytes", list.len(), plain.len());
                        assert_eq!(is_gzip, plain.len() > GZIP_ABOVE_BYTES);
                    }
                }
            }
        });
    }
}

#[tokio::test]
async fn in_protobuf_it_is_the_same_list() {
    let kept = Kept::new(&vec![2_000; 300]);
    let (blocks, all) = (Blocks::default(), entries(&kept.snapshot()));
    for form in [Form::default(), metadata_form(&kept.store)] {
        let form = form.in_protobuf(kept.store.spec());
        let mut head = HEAD.to_vec();
        form.end_items(true, &mut head);
        let plain = collected(messages::body(&kept.store, &head, &all, None, &form).await.unwrap()).await;
        for _ in 0..2 {
            let packed = packed::protobuf(blocks.packer(form.clone(), false), &head, &all).await.unwrap();
            match packed {
                Some(body) => assert!(unpacked(&collected(body).await) == plain),
                None => assert!(plain.len() <= GZIP_ABOVE_BYTES),
            }
        }
        let few = packed::protobuf(blocks.packer(form.clone(), false), &head, &all[..20]).await.unwrap();
        assert!(few.is_none(), "a small list is not compressed");
    }
}

#[tokio::test]
async fn a_change_makes_few_blocks_anew() {
    let mut kept = Kept::new(&vec![1_000; 4_000]);
    let blocks = Blocks::default();
    let made = async |kept: &Kept| {
        let (before, all) = (blocks.count(), entries(&kept.snapshot()));
        let (list, _) = listed(&blocks, all.clone().into_iter(), Form::default()).await;
        assert!(list == expected(&Form::default(), &all));
        blocks.count() - before
    };
    let first = made(&kept).await;
    assert!(first > 60, "{first}");
    assert_eq!(made(&kept).await, 0);
    let mut anew = 0;
    for at in (0..4_000).step_by(400) {
        kept.change(at, Some(1_200));
        anew += made(&kept).await;
    }
    // Where the end of a block moves, those behind it end elsewhere, until two ends meet again.
    assert!(anew < 10 * first / 4, "{anew} of {first} blocks in ten lists");
}

/// What some parts of a fold make has the revision of the whole.
#[test]
fn folds_are_not_shared_with_who_may_see_a_part_of_them() {
    let rule = SharedRule { group: String::new(), resource: "configmaps".into(), namespace: None, name: None };
    let members = ["east", "west"].map(|name| MemberName::new(name).unwrap());
    let shared = Shared {
        naming: Arc::new(Naming::of(Names::Suffixed, vec![rule], members.to_vec())),
        identities: Arc::new(Identities::default()),
        revisions: Arc::new(Revisions::volatile()),
        log_limits: LogLimits::default(),
    };
    let spec = KindSpec::new(Gvr::new("", "v1", "configmaps"), Gvk::new("", "v1", "ConfigMap"), true);
    let store = FleetStore::new(Arc::new(spec), shared, |_| {});
    for member in &members {
        store.join(member, "uid");
        store.begin_list(member);
        assert!(store.list_slice(member, &[&object(0, 10, 5)]).is_empty());
        store.end_list(member, 9);
    }
    store.open();
    let all = entries(&store.snapshot());
    assert!(all.len() == 1 && all[0].folded);
    let key = |is_limited| Objects { form: Form::default(), is_limited }.key(&all, true);
    assert_eq!((key(true).is_some(), key(false).is_some()), (false, true));
}
