//! A store, the file behind it, and what a later process finds there.

mod shown;
mod stored;

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt};

use base64::{Engine, engine::general_purpose::STANDARD};
use kubefold_sql::{Database, Durability, Server};
use kubefold_wire::{
    resource::Gvk,
    watch::{Event, EventType},
};
use proptest::prelude::*;
use tempfile::TempDir;

use self::stored::all_named;
use super::{tables::MIGRATIONS, *};
use crate::{
    config::{MemberName, load_text},
    search::{Parameters, sql::Selection},
    store::{
        Earlier, FleetStore, Identities, KindSpec, LogLimits, Naming, Report, ReportedObject, Revision, Revisions,
        Shared, unix_micros,
    },
};

const MEMBERS: &str = "members: [{name: east, inCluster: true}, {name: west, inCluster: true}]\n";

fn member(name: &str) -> MemberName {
    MemberName::new(name).unwrap()
}

fn config(more: &str) -> Config {
    load_text(&format!("{MEMBERS}{more}"), Path::new("clusters.yaml")).unwrap()
}

/// A store of a kind with east in it, and its objects as the member has them.
struct World {
    store: FleetStore,
    of: MirroredKind,
    revision: u64,
    objects: BTreeMap<String, String>,
}

impl World {
    /// Empty, and followed from revision 10 on.
    fn new(resource: &str, kind: &str) -> Self {
        let shared = Shared {
            naming: Arc::new(Naming::new(&config(""))),
            identities: Arc::new(Identities::default()),
            revisions: Arc::new(Revisions::volatile()),
            log_limits: LogLimits::default(),
        };
        let gvr = Gvr::new("", "v1", resource);
        let gvk = Gvk { group: "".into(), version: "v1".into(), kind: kind.into() };
        let store = FleetStore::new(Arc::new(KindSpec::new(gvr.clone(), gvk, true)), shared, |_| {});
        let east = member("east");
        store.join(&east, "u-east");
        store.begin_list(&east);
        store.end_list(&east, 10);
        store.track(&east, 3, true);
        let of = MirroredKind { gvr, member: east };
        Self { store, of, revision: 10, objects: BTreeMap::new() }
    }

    /// An event of the member's watch.
    fn event(&mut self, name: &str, text: Option<&str>) {
        self.revision += 1;
        let key = format!("a/{name}");
        let document = |data: &str| {
            format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","resourceVersion":"{}"}},"data":{{"k":"{data}"}}}}"#,
                self.revision
            )
        };
        let (event_type, object) = match text {
            Some(text) => (EventType::Modified, document(text)),
            None => (EventType::Deleted, document("")),
        };
        match text {
            Some(_) => drop(self.objects.insert(key, object.clone())),
            None => drop(self.objects.remove(&key)),
        }
        self.store.watch_event(&self.of.member, &Event { event_type, object: &object }).unwrap();
    }

    /// What the task behind the stores does.
    fn write(&self, mirror: &Mirror) -> Result<(), MirrorError> {
        let Some(changes) = self.store.take_changes(&self.of.member) else { return Ok(()) };
        let written = match changes.is_whole {
            true => {
                let documents = self.store.documents(&self.of.member);
                let Changes { position, objects, is_whole } = self.store.take_changes(&self.of.member).unwrap();
                assert!(objects.is_empty() && !is_whole);
                mirror.keep_all(&self.of, &position, documents)
            }
            false => mirror.keep(&self.of, changes).map(|is_kept| assert!(is_kept)),
        };
        if written.is_err() {
            self.store.give_changes_back(&self.of.member);
        }
        written
    }
}

/// All that is kept of a kind, if it counts.
fn kept(mirror: &Mirror, of: &MirroredKind) -> Option<(u64, BTreeMap<String, String>)> {
    let revision = mirror.position(of)?.position.revision;
    let (mut all, mut after) = (BTreeMap::new(), String::new());
    loop {
        let page = mirror.page(of, &after).unwrap();
        let Some(last) = page.last() else { return Some((revision, all)) };
        after = last.key.clone();
        all.extend(page.into_iter().map(|kept| (kept.key, kept.document)));
    }
}

fn opened(directory: &TempDir) -> Arc<Mirror> {
    Mirror::open(directory.path(), &config(""), None)
}

/// What another program does to the database.
fn meddle(directory: &TempDir, change: &'static str) {
    let database = Database::open(&directory.path().join(FILE), &MIGRATIONS).unwrap();
    database.write(Durability::Synced, |sql| sql.batch(change)).unwrap();
}

fn error(mirror: &Mirror) -> String {
    mirror.figures().error.as_deref().unwrap_or_default().to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// A process that is killed between two batches, however long they are.
    #[test]
    fn what_is_kept_is_what_the_member_had_at_the_position(
        batches in prop::collection::vec(prop::collection::vec((0..8_u8, prop::option::weighted(0.7, "[a-z]{1,9}")), 0..9), 1..9),
        listed_again in 0..9_usize,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mirror = opened(&directory);
        let mut world = World::new("configmaps", "ConfigMap");
        for (at, batch) in batches.into_iter().enumerate() {
            if at == listed_again {
                let objects: Vec<String> = world.objects.values().cloned().collect();
                let items: Vec<&str> = objects.iter().map(String::as_str).collect();
                world.store.begin_list(&world.of.member);
                prop_assert!(world.store.take_changes(&world.of.member).is_none(), "a list is half there");
                world.store.list_slice(&world.of.member, &items);
                world.store.end_list(&world.of.member, world.revision);
                world.store.track(&world.of.member, 3, true);
            }
            for (name, text) in batch {
                world.event(&format!("cm-{name}"), text.as_deref());
            }
            world.write(&mirror).unwrap();
            let later = opened(&directory);
            prop_assert_eq!(kept(&later, &world.of), Some((world.revision, world.objects.clone())));
            let position = later.position(&world.of).unwrap().position;
            prop_assert_eq!((&*position.cluster_uid, position.definition), ("u-east", 3));
        }
    }
}

#[test]
fn nothing_is_kept_of_what_is_excluded_or_of_members_that_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new("configmaps", "ConfigMap");
    let again = |world: &mut World, more: &str| {
        let mirror = Mirror::open(directory.path(), &config(more), None);
        let was_kept = kept(&mirror, &world.of).is_some();
        if mirror.keeps(&world.of.gvr) {
            world.event("one", Some("x"));
            world.store.give_changes_back(&world.of.member);
            world.write(&mirror).unwrap();
        }
        was_kept
    };
    assert!(!again(&mut world, "") && again(&mut world, "") && again(&mut world, "mirror: {exclude: [secrets]}\n"));
    assert!(!again(&mut world, "mirror: {exclude: [configmaps]}\n") && !again(&mut world, ""));
    let left = config("").members.split_off(1);
    drop(Mirror::open(directory.path(), &Config { members: left, ..config("") }, None));
    assert!(!again(&mut world, ""), "east was gone for a while");
    assert!(!again(&mut world, "mirror: {enabled: false}\n"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_damaged_file_is_set_aside_and_a_newer_one_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new("configmaps", "ConfigMap");
    world.event("one", Some("x"));
    fs::write(directory.path().join(FILE), "a file of somebody else's, longer than a hundred bytes, so that it could be one, which it is not at all, is it?").unwrap();
    let mirror = opened(&directory);
    assert!(mirror.is_on() && error(&mirror).contains("is no database"), "{}", error(&mirror));
    assert!(fs::read_to_string(directory.path().join(SET_ASIDE)).unwrap().starts_with("a file of somebody"));
    world.write(&mirror).unwrap();
    mirror.is_level();
    assert_eq!((error(&mirror), mirror.figures().rows), (String::new(), 1));
    assert_eq!(kept(&opened(&directory), &world.of).unwrap().1, world.objects);

    meddle(&directory, "PRAGMA user_version = 99");
    let newer = opened(&directory);
    assert!(!newer.is_on() && error(&newer).contains("a newer version wrote"), "{}", error(&newer));
    assert!(newer.position(&world.of).is_none());
    assert!(matches!(world.write(&newer), Err(MirrorError::Off) | Ok(())));
}

#[test]
fn a_row_that_is_not_what_was_written_is_not_used_and_nor_is_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new("configmaps", "ConfigMap");
    world.event("one", Some("x"));
    world.write(&opened(&directory)).unwrap();
    meddle(&directory, "UPDATE objects SET document = CAST('{}' AS BLOB)");
    let mirror = opened(&directory);
    let refused = mirror.page(&world.of, "").unwrap_err().to_string();
    assert_eq!(refused, "the object a/one of configmaps of member east is damaged");
    assert_eq!((error(&mirror), mirror.position(&world.of)), (refused, None));
    // Nor are changes added to what is not there.
    world.event("two", Some("y"));
    let changes = world.store.take_changes(&world.of.member).unwrap();
    assert!(!mirror.keep(&world.of, changes).unwrap() && mirror.position(&world.of).is_none());
}

#[test]
fn a_full_file_has_what_was_before_and_goes_on_once_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let of_size =
        |size: &str| Mirror::open(directory.path(), &config(&format!("mirror: {{maxBytes: {size}}}\n")), None);
    let mirror = of_size("1Mi");
    let mut world = World::new("configmaps", "ConfigMap");
    world.event("one", Some("x"));
    world.write(&mirror).unwrap();
    let before = (world.revision, world.objects.clone());
    world.event("two", Some(&"x".repeat(2 << 20)));
    assert!(world.write(&mirror).unwrap_err().to_string().contains("mirror.maxBytes"));
    assert_eq!(kept(&mirror, &world.of), Some(before));
    // What does not fit in one transaction counts for nothing until all of it is there.
    for at in 0..12 {
        world.event(&format!("large-{at}"), Some(&"x".repeat(1 << 20)));
    }
    // The first transaction has 8 to 10 of the 14 MiB, in whatever order.
    let mirror = of_size("11Mi");
    world.write(&mirror).unwrap_err();
    assert_eq!(kept(&mirror, &world.of), None);
    let mirror = of_size("1Gi");
    world.write(&mirror).unwrap();
    mirror.is_level();
    assert_eq!(kept(&mirror, &world.of), Some((world.revision, world.objects.clone())));
    assert_eq!((error(&mirror), mirror.figures().rows), (String::new(), 14));
}

#[test]
fn secrets_are_kept_with_a_key_of_ones_own_alone_and_with_another_one_no_more() {
    let (directory, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keys_of = |bytes: &[u8]| {
        let path = keys.path().join(format!("{bytes:?}"));
        let lines = bytes.iter().map(|byte| format!("{}\n", STANDARD.encode([*byte; 32])));
        fs::write(&path, lines.collect::<String>()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        KeyFile::new(Some(path), keys.path())
    };
    let key = |byte: u8| keys_of(&[byte]);
    let opened = |key: Option<KeyFile>| Mirror::open(directory.path(), &config(""), key);
    let mut world = World::new("secrets", "Secret");
    world.event("one", Some("hunter"));
    assert!(!opened(None).keeps(&world.of.gvr) && opened(Some(key(1))).keeps(&world.of.gvr));
    world.write(&opened(Some(key(1)))).unwrap();
    assert_eq!(kept(&opened(Some(key(1))), &world.of).unwrap().1, world.objects);
    let is_on_disk = || {
        let mut files = fs::read_dir(directory.path()).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap());
        files.any(|bytes| bytes.windows(6).any(|window| window == b"hunter"))
    };
    assert!(!is_on_disk());
    // Another key is put before it, and then it goes.
    for bytes in [&[1, 3][..], &[3, 1], &[3], &[1, 3], &[1]] {
        assert_eq!(kept(&opened(Some(keys_of(bytes))), &world.of).unwrap().1, world.objects, "{bytes:?}");
    }
    assert_eq!(kept(&opened(Some(key(2))), &world.of), None, "another key");
    world.store.give_changes_back(&world.of.member);
    world.write(&opened(Some(key(2)))).unwrap();
    assert!(kept(&opened(Some(key(2))), &world.of).is_some() && !is_on_disk());
    assert_eq!(kept(&opened(None), &world.of), None, "no key");
    assert_eq!(kept(&opened(Some(key(2))), &world.of), None, "it was forgotten");
}

/// What was deleted of a kind, in the order of a query, and how many there are.
fn deleted(mirror: &Mirror, of: &MirroredKind, query: &str) -> Vec<String> {
    let now = i64::try_from(unix_micros()).unwrap();
    let query = Parameters { query: &format!("deleted=true&{query}"), now }.read().unwrap();
    let members = Some(["east"].as_slice());
    let selection = Selection { gvr: &of.gvr, kind: "ConfigMap", members, namespace: "", owners: None };
    let found = mirror.search(&query, &selection).unwrap();
    found.objects.into_iter().map(|object| format!("{} {}", object.key, object.uid)).collect()
}

#[test]
fn what_was_deleted_is_found_and_nowhere_else_until_its_time_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let opened = |settings: &str| Mirror::open(directory.path(), &config(&format!("mirror: {{{settings}}}\n")), None);
    let keep = "keepDeleted: 1h";
    // What an earlier version kept has no UID beside it.
    let mut world = World::new("configmaps", "ConfigMap");
    let all = ["one", "two", "three", "four"];
    all.iter().for_each(|name| world.event(name, Some("before")));
    world.write(&opened("")).unwrap();
    meddle(&directory, "UPDATE objects SET uid = ''");
    let mirror = opened(keep);
    world.event("one", Some("last"));
    world.write(&mirror).unwrap();
    assert_eq!(deleted(&mirror, &world.of, ""), [""; 0]);
    world.event("one", None);
    world.event("two", None);
    // Another object of that name, between two looks.
    world.event("three", None);
    let other = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"three","namespace":"a","uid":"u-other","resourceVersion":"99"}}"#;
    world.store.watch_event(&world.of.member, &Event { event_type: EventType::Added, object: other }).unwrap();
    world.write(&mirror).unwrap();
    let gone = ["a/one u-one", "a/three u-three", "a/two u-two"];
    assert_eq!(deleted(&mirror, &world.of, ""), gone);
    assert_eq!(
        deleted(&mirror, &world.of, "since=1h&orderby=deleted_at%20desc,name&fieldSelector=data.k%3Dlast"),
        [gone[0]]
    );
    assert_eq!(deleted(&mirror, &world.of, "before=1h"), [""; 0]);
    assert_eq!(deleted(&mirror, &world.of, "clusters=west"), [""; 0]);
    let keys: Vec<String> = kept(&mirror, &world.of).unwrap().1.into_keys().collect();
    assert_eq!(keys, ["a/four", "a/three"]);
    mirror.is_level();
    assert_eq!(mirror.figures().rows, 2, "objects that exist");
    // One key may have been several objects.
    let gone_again = Event { event_type: EventType::Deleted, object: other };
    world.store.watch_event(&world.of.member, &gone_again).unwrap();
    world.write(&mirror).unwrap();
    assert_eq!(deleted(&mirror, &world.of, "names=three"), ["a/three u-other", "a/three u-three"]);
    // A list that has it no more is as a deletion.
    let position = mirror.position(&world.of).unwrap().position;
    mirror.keep_all(&world.of, &position, HashMap::new()).unwrap();
    assert_eq!(deleted(&mirror, &world.of, "names=four"), ["a/four u-four"]);
    drop(mirror);
    meddle(
        &directory,
        "UPDATE objects SET deleted_us = deleted_us - 3600000000 WHERE key <> 'a/four' AND deleted_us > 0",
    );
    assert_eq!(deleted(&opened(keep), &world.of, ""), ["a/four u-four"]);
    assert_eq!(deleted(&opened(""), &world.of, ""), [""; 0]);
    assert_eq!(deleted(&opened(keep), &world.of, ""), [""; 0], "it was forgotten");
}

#[test]
fn what_was_deleted_has_a_quarter_of_the_file_and_secrets_have_none() {
    let (directory, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = config("mirror: {keepDeleted: 1h, maxBytes: 4Mi}\n");
    let key = keys.path().join("key");
    fs::write(&key, STANDARD.encode([1; 32])).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let mirror = Mirror::open(directory.path(), &settings, Some(KeyFile::new(Some(key), keys.path())));
    let mut world = World::new("configmaps", "ConfigMap");
    for at in 0..5 {
        let name = format!("large-{at}");
        world.event(&name, Some(&"x".repeat(300 << 10)));
        world.write(&mirror).unwrap();
        world.event(&name, None);
        world.write(&mirror).unwrap();
    }
    mirror.is_level();
    let latest = ["a/large-2 u-large-2", "a/large-3 u-large-3", "a/large-4 u-large-4"];
    assert_eq!(deleted(&mirror, &world.of, "orderby=deleted_at"), latest);
    let mut secrets = World::new("secrets", "Secret");
    secrets.event("one", Some("hunter"));
    secrets.write(&mirror).unwrap();
    secrets.event("one", None);
    secrets.write(&mirror).unwrap();
    assert!(kept(&mirror, &secrets.of).is_some() && mirror.keeps(&secrets.of.gvr));
    assert!(!mirror.keeps_deleted(&secrets.of.gvr) && deleted(&mirror, &secrets.of, "").is_empty());
}

#[test]
fn in_postgresql_it_keeps_what_it_keeps_in_a_file() {
    let server = testbed::PostgresServer::start();
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let tls = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
    let of = Server::postgres(&server.database("mirror", None), tls.with_no_client_auth()).unwrap();
    let clear = "SELECT count(*) FROM kubefold_mirror.objects WHERE encode(document, 'escape') LIKE '%hunter%'";
    let all = "SELECT count(*) FROM kubefold_mirror.objects";
    keeps_what_it_keeps_in_a_file(of, &|| server.sql_in("mirror", clear), &|| server.sql_in("mirror", all));
}

#[test]
fn in_mysql_it_keeps_what_it_keeps_in_a_file() {
    let server = testbed::MariadbServer::start();
    let of = Server::mysql(&server.url("mirror"), kubefold_sql::mysql::MysqlTls::default()).unwrap();
    let clear = "SELECT count(*) FROM mirror.kubefold_mirror_objects WHERE document LIKE '%hunter%'";
    let all = "SELECT count(*) FROM mirror.kubefold_mirror_objects";
    keeps_what_it_keeps_in_a_file(of, &|| server.sql(clear), &|| server.sql(all));
}

/// `clear` counts the objects with text that can be read, `all` every object.
fn keeps_what_it_keeps_in_a_file(server: Server, clear: &dyn Fn() -> String, all: &dyn Fn() -> String) {
    let (directory, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = keys.path().join("key");
    fs::write(&path, STANDARD.encode([1; 32])).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(directory.path().join(FILE), "of a kubefold that had no database").unwrap();
    let state = RemoteState::open(server, &["kubefold", SCHEMA], directory.path().join("mark")).unwrap();
    let opened = || {
        let key = KeyFile::new(Some(path.clone()), keys.path());
        Mirror::open_in(&state, directory.path(), &config(""), Some(key))
    };
    let mut world = World::new("secrets", "Secret");
    // More than a page, in the order of their bytes.
    for at in 0..600 {
        world.event(&format!("{}-{at}", if at % 2 == 0 { "a" } else { "B" }), Some("hunter"));
    }
    let mirror = opened();
    assert!(mirror.is_on() && !directory.path().join(FILE).exists(), "{}", error(&mirror));
    world.write(&mirror).unwrap();
    for (name, text) in [("a-0", None), ("B-1", Some("changed")), ("c", Some("new"))] {
        world.event(name, text);
    }
    world.write(&mirror).unwrap();
    mirror.is_level();
    let figures = mirror.figures();
    assert_eq!((figures.rows, figures.bytes > 0, error(&mirror)), (600, true, String::new()));
    drop(mirror);
    let mirror = opened();
    assert_eq!(kept(&mirror, &world.of), Some((world.revision, world.objects.clone())));
    assert_eq!(clear(), "0");
    mirror.touch(&world.of, false).unwrap();
    assert!(!mirror.position(&world.of).unwrap().is_followed);
    let catalog = |document: &str| KeptCatalog {
        member: member("east"),
        cluster_uid: "u-east".into(),
        document: document.to_owned(),
    };
    for document in ["{}", "{\"a\":1}"] {
        mirror.keep_catalog(catalog(document)).unwrap();
    }
    assert_eq!(mirror.catalogs(), [catalog("{\"a\":1}")]);
    let mut events = World::new("events", "Event");
    (0..600).for_each(|at| events.event(&format!("one-{at}"), Some(&"x".repeat(2_000))));
    events.write(&mirror).unwrap();
    drop(mirror);
    let bounded = config("mirror: {memory: 1Mi, storable: [events]}\n");
    let key = KeyFile::new(Some(path.clone()), keys.path());
    let mirror = Mirror::open_in(&state, directory.path(), &bounded, Some(key));
    assert_eq!(mirror.figures().memory.unwrap().in_tables, ["events"], "{}", error(&mirror));
    assert_eq!(all_named(&mirror, "").len(), 600);
    assert_eq!(all_named(&mirror, "names=one-7,one-599"), ["one-599", "one-7"]);
    mirror.forget(&events.of);
    mirror.forget(&world.of);
    assert_eq!(mirror.position(&world.of), None);
    assert_eq!(all(), "0");
}

/// What a member tells of a kind that is in the tables alone.
#[derive(Clone, Debug)]
enum Said {
    Put(u8, String),
    Gone(u8),
    /// A list of what it has, cut off before its end or not; of the same member, or of one that was restored.
    Listed {
        whole: bool,
    },
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        6 => (0..6_u8, "[a-z]{1,5}").prop_map(|(name, label)| Said::Put(name, label)),
        3 => (0..6_u8).prop_map(Said::Gone),
        1 => any::<bool>().prop_map(|whole| Said::Listed { whole }),
    ]
}

fn stored_document(name: u8, label: &str, revision: u64) -> String {
    format!(
        r#"{{"kind":"Lease","metadata":{{"name":"l-{name}","namespace":"a","uid":"u-{name}","resourceVersion":"{revision}","labels":{{"l":"{label}"}}}}}}"#
    )
}

/// What is found by a label or in the whole: key to document.
fn stored_rows(mirror: &Mirror, label: Option<&str>) -> Option<BTreeMap<String, String>> {
    let gvr = Gvr::new("coordination.k8s.io", "v1", "leases");
    let of = Selection { gvr: &gvr, kind: "Lease", members: None, namespace: "a", owners: None };
    let query = label.map(|label| format!("labelSelector=l%3D{label}")).unwrap_or_default();
    let query = Parameters { query: &query, now: 0 }.read().unwrap();
    let found = mirror.search(&query, &of).unwrap();
    let rows = found.objects.into_iter().map(|object| (object.key, object.document));
    (!found.members.is_empty()).then(|| rows.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever a member tells, in whatever batches, and whenever the process ends: the tables have what it has, and find it by its labels.
    #[test]
    fn tables_have_what_a_member_has_of_a_stored_kind(
        batches in prop::collection::vec(prop::collection::vec(said(), 0..6), 1..8),
        restarted in prop::collection::vec(any::<bool>(), 8),
        keeps_deleted in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let keep = if keeps_deleted { ", keepDeleted: 1h" } else { "" };
        let settings = config(&format!("mirror: {{stored: [leases.coordination.k8s.io]{keep}}}\n"));
        let open = || Mirror::open(directory.path(), &settings, None);
        let of = MirroredKind { gvr: Gvr::new("coordination.k8s.io", "v1", "leases"), member: member("east") };
        let (mut mirror, mut has, mut revision) = (open(), BTreeMap::<u8, (String, u64)>::new(), 10_u64);
        prop_assert!(!mirror.report(&of, vec![Report::At(5)].into()).unwrap(), "nothing is there yet");
        let ended = |revision: u64| Report::ListEnded { cluster_uid: "u-east".into(), revision, definition: 3 };
        let object = |name: u8, label: &str, revision: u64| {
            let (key, uid, document) = (format!("a/l-{name}"), format!("u-{name}"), stored_document(name, label, revision));
            Report::Object(ReportedObject { key, uid, revision, document })
        };
        let listed = |has: &BTreeMap<u8, (String, u64)>| {
            let objects = has.iter().map(|(name, (label, revision))| object(*name, label, *revision));
            std::iter::once(Report::ListBegan).chain(objects).collect::<Vec<_>>()
        };
        prop_assert!(mirror.report(&of, vec![Report::ListBegan, ended(10)].into()).unwrap());
        for (batch, is_restarted) in batches.into_iter().zip(restarted) {
            let (mut reports, mut is_whole) = (Vec::new(), true);
            for said in batch {
                revision += 1;
                match said {
                    Said::Put(name, label) => {
                        reports.push(object(name, &label, revision));
                        has.insert(name, (label, revision));
                    }
                    Said::Gone(name) => {
                        has.remove(&name);
                        reports.push(Report::Gone { key: format!("a/l-{name}"), revision });
                    }
                    Said::Listed { whole } => {
                        reports.extend(listed(&has));
                        is_whole = whole;
                        reports.extend(whole.then(|| ended(revision)));
                    }
                }
            }
            prop_assert!(mirror.report(&of, reports.into()).unwrap());
            if is_restarted {
                drop(mirror);
                mirror = open();
            }
            let kept = mirror.position(&of).unwrap();
            if !is_whole {
                prop_assert!(!kept.is_followed, "a list that was not ended is begun anew");
                let mut again = listed(&has);
                again.push(ended(revision));
                prop_assert!(mirror.report(&of, again.into()).unwrap());
            } else if kept.position.revision > 10 {
                prop_assert_eq!(kept.position.revision, revision);
            }
            let documents = |label: Option<&str>| {
                let each = has.iter().filter(|(_, (is, _))| label.is_none_or(|label| label == is));
                let each = each.map(|(name, (label, revision))| (format!("a/l-{name}"), stored_document(*name, label, *revision)));
                Some(each.collect::<BTreeMap<_, _>>())
            };
            prop_assert_eq!(stored_rows(&mirror, None), documents(None));
            for (label, _) in has.values() {
                prop_assert_eq!(stored_rows(&mirror, Some(label)), documents(Some(label)));
            }
        }
    }
}

#[test]
fn what_cannot_be_stored_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let why = |settings: &str, gvr: &Gvr| {
        let mirror = Mirror::open(directory.path(), &config(&format!("mirror: {{{settings}}}\n")), None);
        mirror.cannot_store(gvr).map(|why| why.to_string())
    };
    let widgets = Gvr::new("example.com", "v1", "widgets");
    assert_eq!(why("stored: [widgets.example.com]", &widgets), None);
    assert_eq!(
        why("stored: [widgets.example.com], exclude: [\"*.example.com\"]", &widgets).unwrap(),
        "mirror.exclude in clusters.yaml names widgets.example.com"
    );
    assert_eq!(
        why("stored: [widgets.example.com], enabled: false", &widgets).unwrap(),
        "mirror.enabled in clusters.yaml is false"
    );
    fs::write(directory.path().join(FILE), "").unwrap();
    meddle(&directory, "PRAGMA user_version = 99");
    assert_eq!(why("stored: [widgets.example.com]", &widgets).unwrap(), "there is no mirror");
}
