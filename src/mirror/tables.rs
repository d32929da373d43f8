//! The tables, and what became of them: in SQLite, and on servers.

use kubefold_sql::{Migrations, Words};

/// A feed whose revision is 0 has objects of several moments, and counts for nothing.
pub(super) const MIGRATIONS: [&str; 4] = [
    "
CREATE TABLE feeds (
    id INTEGER PRIMARY KEY,
    \"group\" TEXT NOT NULL,
    version TEXT NOT NULL,
    resource TEXT NOT NULL,
    member TEXT NOT NULL,
    cluster_uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    definition INTEGER NOT NULL,
    followed_at_ms INTEGER NOT NULL,
    is_followed INTEGER NOT NULL,
    UNIQUE (\"group\", version, resource, member)
) STRICT;
CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    feed INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    document BLOB NOT NULL,
    UNIQUE (feed, key)
) STRICT;
CREATE TABLE catalogs (
    member TEXT PRIMARY KEY,
    cluster_uid TEXT NOT NULL,
    catalog TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE key_proof (id INTEGER PRIMARY KEY CHECK (id = 1), proof BLOB NOT NULL) STRICT;
",
    "
CREATE TABLE rows (
    id INTEGER PRIMARY KEY,
    feed INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    document BLOB NOT NULL,
    deleted_us INTEGER NOT NULL DEFAULT 0,
    namespace TEXT,
    name TEXT,
    created_us INTEGER,
    owner TEXT,
    UNIQUE (feed, key, deleted_us)
) STRICT;
INSERT INTO rows (id, feed, key, uid, revision, digest, document)
    SELECT id, feed, key, '', revision, digest, document FROM objects;
DROP TABLE objects;
ALTER TABLE rows RENAME TO objects;
CREATE INDEX objects_deleted ON objects (feed, deleted_us) WHERE deleted_us > 0;
CREATE INDEX objects_owner ON objects (owner) WHERE owner IS NOT NULL;
CREATE TABLE labels (
    object INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    number INTEGER,
    PRIMARY KEY (object, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_value ON labels (key, value, object);
",
    "
ALTER TABLE feeds ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE feeds ADD COLUMN listing INTEGER NOT NULL DEFAULT 0;
ALTER TABLE objects ADD COLUMN listed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX objects_living ON objects (feed, namespace, name) WHERE deleted_us = 0 AND name IS NOT NULL;
CREATE INDEX objects_named ON objects (feed, name) WHERE deleted_us = 0 AND name IS NOT NULL;
",
    "
CREATE TABLE shown (
    \"group\" TEXT NOT NULL,
    version TEXT NOT NULL,
    resource TEXT NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (\"group\", version, resource)
) STRICT;
",
];
/// The group of tables on a server, where state is there.
pub const SCHEMA: &str = "kubefold_mirror";
/// The same on servers.
pub(super) const REMOTE_MIGRATIONS: Migrations<'_> =
    Migrations { postgres: &POSTGRES_MIGRATIONS, mysql: &[MYSQL_TABLES] };
/// In MySQL text is bytes. It has no index of some rows alone.
const MYSQL_TABLES: &str = "
CREATE TABLE IF NOT EXISTS feeds (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    \"group\" VARBINARY(255) NOT NULL,
    version VARBINARY(255) NOT NULL,
    resource VARBINARY(255) NOT NULL,
    member VARBINARY(255) NOT NULL,
    cluster_uid VARBINARY(255) NOT NULL,
    revision BIGINT NOT NULL,
    definition BIGINT NOT NULL,
    followed_at_ms BIGINT NOT NULL,
    is_followed BIGINT NOT NULL,
    generation BIGINT NOT NULL DEFAULT 0,
    listing BIGINT NOT NULL DEFAULT 0,
    UNIQUE (\"group\", version, resource, member)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS objects (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    feed BIGINT NOT NULL,
    key VARBINARY(2048) NOT NULL,
    uid VARBINARY(255) NOT NULL DEFAULT '',
    revision BIGINT NOT NULL,
    digest BIGINT NOT NULL,
    document LONGBLOB NOT NULL,
    deleted_us BIGINT NOT NULL DEFAULT 0,
    namespace VARBINARY(255),
    name VARBINARY(2048),
    created_us BIGINT,
    owner VARBINARY(255),
    listed BIGINT NOT NULL DEFAULT 0,
    UNIQUE (feed, key, deleted_us),
    INDEX objects_living (feed, deleted_us, namespace, name),
    INDEX objects_named (feed, deleted_us, name),
    INDEX objects_owner (owner),
    FOREIGN KEY (feed) REFERENCES feeds (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS labels (
    object BIGINT NOT NULL,
    key VARBINARY(512) NOT NULL,
    value VARBINARY(512) NOT NULL,
    number BIGINT,
    PRIMARY KEY (object, key),
    INDEX labels_value (key, value, object),
    FOREIGN KEY (object) REFERENCES objects (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS catalogs (
    member VARBINARY(255) NOT NULL PRIMARY KEY,
    cluster_uid VARBINARY(255) NOT NULL,
    catalog LONGTEXT CHARACTER SET utf8mb4 NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS key_proof (id BIGINT NOT NULL PRIMARY KEY, proof LONGBLOB NOT NULL) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS shown (
    \"group\" VARBINARY(255) NOT NULL,
    version VARBINARY(255) NOT NULL,
    resource VARBINARY(255) NOT NULL,
    state LONGBLOB NOT NULL,
    UNIQUE (\"group\", version, resource)
) ENGINE = InnoDB;
";
const POSTGRES_MIGRATIONS: [&str; 4] = [
    "
CREATE TABLE feeds (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    \"group\" TEXT COLLATE \"C\" NOT NULL,
    version TEXT COLLATE \"C\" NOT NULL,
    resource TEXT COLLATE \"C\" NOT NULL,
    member TEXT COLLATE \"C\" NOT NULL,
    cluster_uid TEXT NOT NULL,
    revision BIGINT NOT NULL,
    definition BIGINT NOT NULL,
    followed_at_ms BIGINT NOT NULL,
    is_followed BIGINT NOT NULL,
    UNIQUE (\"group\", version, resource, member)
);
CREATE TABLE objects (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    feed BIGINT NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
    key TEXT COLLATE \"C\" NOT NULL,
    revision BIGINT NOT NULL,
    digest BIGINT NOT NULL,
    document BYTEA NOT NULL,
    UNIQUE (feed, key)
);
CREATE TABLE catalogs (member TEXT PRIMARY KEY, cluster_uid TEXT NOT NULL, catalog TEXT NOT NULL);
CREATE TABLE key_proof (id BIGINT PRIMARY KEY CHECK (id = 1), proof BYTEA NOT NULL);
",
    "
ALTER TABLE objects ADD COLUMN uid TEXT COLLATE \"C\" NOT NULL DEFAULT '';
ALTER TABLE objects ADD COLUMN deleted_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE objects ADD COLUMN namespace TEXT COLLATE \"C\";
ALTER TABLE objects ADD COLUMN name TEXT COLLATE \"C\";
ALTER TABLE objects ADD COLUMN created_us BIGINT;
ALTER TABLE objects ADD COLUMN owner TEXT COLLATE \"C\";
ALTER TABLE objects DROP CONSTRAINT objects_feed_key_key;
ALTER TABLE objects ADD UNIQUE (feed, key, deleted_us);
CREATE INDEX objects_deleted ON objects (feed, deleted_us) WHERE deleted_us > 0;
CREATE INDEX objects_owner ON objects (owner) WHERE owner IS NOT NULL;
CREATE TABLE labels (
    object BIGINT NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
    key TEXT COLLATE \"C\" NOT NULL,
    value TEXT COLLATE \"C\" NOT NULL,
    number BIGINT,
    PRIMARY KEY (object, key)
);
CREATE INDEX labels_value ON labels (key, value, object);
",
    "
ALTER TABLE feeds ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;
ALTER TABLE feeds ADD COLUMN listing BIGINT NOT NULL DEFAULT 0;
ALTER TABLE objects ADD COLUMN listed BIGINT NOT NULL DEFAULT 0;
CREATE INDEX objects_living ON objects (feed, namespace, name) WHERE deleted_us = 0 AND name IS NOT NULL;
CREATE INDEX objects_named ON objects (feed, name) WHERE deleted_us = 0 AND name IS NOT NULL;
",
    "
CREATE TABLE shown (
    \"group\" TEXT COLLATE \"C\" NOT NULL,
    version TEXT COLLATE \"C\" NOT NULL,
    resource TEXT COLLATE \"C\" NOT NULL,
    state BYTEA NOT NULL,
    UNIQUE (\"group\", version, resource)
);
",
];

/// Asks how large the file is, or the table of the objects on a server. Units: bytes.
pub(super) fn bytes_statement(words: Words) -> &'static str {
    match words {
        Words::Sqlite => "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
        Words::Postgres => "SELECT pg_total_relation_size('objects')",
        // As the server estimates it.
        Words::Mysql => {
            "SELECT data_length + index_length FROM information_schema.tables
            WHERE table_schema = DATABASE() AND table_name = 'kubefold_mirror_objects'"
        }
    }
}
