//! What the stores showed when their process ended.

use super::*;

/// The row of a kind as it is on disk.
fn row(directory: &TempDir) -> Vec<u8> {
    let database = Database::open(&directory.path().join(FILE), &MIGRATIONS).unwrap();
    database.read(|sql| sql.row("SELECT state FROM shown", &[], |row| row.get(0))).unwrap().unwrap()
}

#[test]
fn what_was_shown_last_is_there_for_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new("configmaps", "ConfigMap");
    world.event("one", Some("x"));
    let gvr = world.of.gvr.clone();
    assert_eq!(world.store.shown(Revision(0)), None, "nobody has read it");
    world.store.open();
    for text in ["y", "z"] {
        world.event("one", Some(text));
        let shown = world.store.shown(Revision(0)).unwrap();
        let mirror = opened(&directory);
        mirror.keep_shown(&gvr, &shown).unwrap();
        assert_eq!(mirror.shown(&gvr), Some(shown.clone()));
        assert_eq!(opened(&directory).shown(&gvr), Some(shown));
        assert_eq!(opened(&directory).shown(&Gvr::new("apps", "v1", "deployments")), None);
    }
    meddle(&directory, "UPDATE shown SET state = CAST('other' AS BLOB)");
    assert_eq!(opened(&directory).shown(&gvr), None);
}

#[test]
fn what_was_shown_of_secrets_is_encrypted() {
    let (directory, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keyed = |byte: u8| {
        let path = keys.path().join(byte.to_string());
        fs::write(&path, STANDARD.encode([byte; 32])).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        Mirror::open(directory.path(), &config(""), Some(KeyFile::new(Some(path), directory.path())))
    };
    let mut world = World::new("secrets", "Secret");
    world.store.open();
    world.event("one", Some("x"));
    let (gvr, shown) = (world.of.gvr.clone(), world.store.shown(Revision(0)).unwrap());
    keyed(1).keep_shown(&gvr, &shown).unwrap();
    assert_eq!(Earlier::decode(&row(&directory)), None);
    assert_eq!(keyed(1).shown(&gvr), Some(shown));
    assert_eq!(keyed(2).shown(&gvr), None);
    assert_eq!(keyed(1).shown(&gvr), None, "it was forgotten");
}
